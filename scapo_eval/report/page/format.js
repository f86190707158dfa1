// Numbers and texts as the page shows them.

export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const percent = (x, digits = 1) => (x === null || x === undefined ? "n/a" : (100 * x).toFixed(digits));
export const signed = (x) => {
  const text = Math.abs(100 * x).toFixed(1);
  return (text === "0.0" ? "±" : x > 0 ? "+" : "−") + text;
};
export const short = (text, most) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
export const wellFormed = (text) => text.replace(/\p{Cs}/gu, "\ufffd"); // as URLs carry it
