// @ts-check
// Numbers and texts as the page shows them.

/**
 * @param {number[]} values
 */
export const sum = (values) => values.reduce((a, b) => a + b, 0);
/**
 * A number as Python writes it: exact ties go to the even digit, where toFixed rounds them up. Zero has no sign.
 * @param {number} x
 * @param {number} digits
 */
export const fixed = (x, digits) => {
  const text = x.toFixed(digits),
    last = Number(text.slice(-1)),
    tie = (Math.abs(x) * 2 ** (digits + 1)) % 2 === 1;
  const even = tie && last % 2 ? text.slice(0, -1) + (last - 1) : text;
  return Number(even) ? even : even.replace("-", "");
};
/**
 * @param {number | null | undefined} x
 * @param {number} [digits]
 * @param {boolean} [sign] with a plus where it is above zero
 */
export const percent = (x, digits = 1, sign = false) => {
  if (x === null || x === undefined) return "n/a";
  const text = fixed(100 * x, digits);
  return (sign && Number(text) > 0 ? "+" : "") + text;
};
/**
 * @param {number} x
 */
export const signed = (x) => {
  const text = percent(Math.abs(x));
  return (text === "0.0" ? "±" : x > 0 ? "+" : "−") + text;
};
/**
 * A metric's value as people read it.
 * @param {number | null} value
 * @param {boolean} plain
 */
export const shownValue = (value, plain) => (value !== null && plain ? fixed(value, 2) : percent(value));
/**
 * A difference with its sign.
 * @param {number} value
 * @param {boolean} plain
 */
export const shownChange = (value, plain) => {
  const text = shownValue(Math.abs(value), plain);
  return Number(text) ? (value > 0 ? "+" : "−") + text : text;
};
/**
 * A long name without its middle: what tells names apart stands at their ends as often as at their beginnings.
 * @param {string} text
 * @param {number} most
 */
export const shortMiddle = (text, most) => {
  const letters = Array.from(text),
    half = (most - 1) / 2;
  if (letters.length <= most) return text;
  return letters.slice(0, Math.ceil(half)).join("") + "…" + letters.slice(letters.length - Math.floor(half)).join("");
};
/**
 * @param {string} text
 */
export const wellFormed = (text) => text.replace(/\p{Cs}/gu, "\ufffd"); // as URLs carry it
