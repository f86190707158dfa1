// @ts-check
// Numbers and texts as the page shows them.

/**
 * @param {number[]} values
 */
export const sum = (values) => values.reduce((a, b) => a + b, 0);
/**
 * @param {number | null | undefined} x
 * @param {number} [digits]
 */
export const percent = (x, digits = 1) => (x === null || x === undefined ? "n/a" : (100 * x).toFixed(digits));
/**
 * @param {number} x
 */
export const signed = (x) => {
  const text = Math.abs(100 * x).toFixed(1);
  return (text === "0.0" ? "±" : x > 0 ? "+" : "−") + text;
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
