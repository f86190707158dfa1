// Numbers and texts as the page shows them.

export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const percent = (x, digits = 1) => (x === null || x === undefined ? "n/a" : (100 * x).toFixed(digits));
export const signed = (x) => {
  const text = Math.abs(100 * x).toFixed(1);
  return (text === "0.0" ? "±" : x > 0 ? "+" : "−") + text;
};
/** A long name without its middle: what tells names apart stands at their ends as often as at their beginnings. */
export const shortMiddle = (text, most) => {
  const letters = Array.from(text),
    half = (most - 1) / 2;
  if (letters.length <= most) return text;
  return letters.slice(0, Math.ceil(half)).join("") + "…" + letters.slice(letters.length - Math.floor(half)).join("");
};
export const wellFormed = (text) => text.replace(/\p{Cs}/gu, "\ufffd"); // as URLs carry it
