// @ts-check
// Geometry that every chart needs.

/**
 * @param {number} low
 * @param {number} high
 * @param {number} [count]
 * @returns {number[]}
 */
export function ticks(low, high, count = 6) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    out.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return out;
}
/**
 * @param {number[][]} points
 */
export const path = (points) =>
  points.map((p, k) => (k ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");
