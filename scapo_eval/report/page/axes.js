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
 * A fraction at a tick in percent, with as many digits as it needs, so that neighboring ticks never read alike.
 * @param {number} v
 */
export const percentTick = (v) => String(+(100 * v).toFixed(4));
/**
 * @param {number[][]} points
 */
export const path = (points) =>
  points.map((p, k) => (k ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");
/**
 * The ends of an axis: even around zero for differences, what the values need for values.
 * @param {{ value: number, low: number | null, high: number | null }[]} rows
 * @param {number | null} least half of an axis of differences at least; null for values
 * @returns {[number, number]}
 */
export function axisOf(rows, least) {
  const all = rows.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
  if (least !== null) {
    const most = Math.max(...all.map(Math.abs), least);
    return [-most, most];
  }
  const low = Math.min(...all),
    high = Math.max(...all),
    room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - room, high + room];
}
