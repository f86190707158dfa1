// @ts-check
// Series over steps as plain arrays: pure functions without a page, tested on their own.
// A missing value is null (or NaN in an array of floats).

import { percent } from "./format.js";

/**
 * @typedef {{ x: number[], y: (number | null)[] }} Line
 * @typedef {(name: string) => ArrayLike<number | null>} Column
 */

/**
 * @param {number | null | undefined} v
 * @returns {v is null | undefined}
 */
const missing = (v) => v === null || v === undefined || Number.isNaN(v);

/**
 * A column of a run: the values there are, at their steps. A gap stays a gap (null) where a value is missing now and
 * then; of a quantity of every tenth step only the steps that have it are left.
 * @param {number[]} x
 * @param {ArrayLike<number | null> & Iterable<number | null>} y
 * @returns {Line & { sparse: boolean }}
 */
export function lineOf(x, y) {
  let count = 0;
  for (let k = 0; k < y.length; k++) if (!missing(y[k])) count++;
  const sparse = 2 * count <= y.length;
  if (sparse) {
    const there = Array.from(y, (_, k) => k).filter((k) => !missing(y[k]));
    return { x: there.map((k) => x[k]), y: there.map((k) => y[k]), sparse };
  }
  return { x, y: Array.from(y, (v) => (missing(v) ? null : v)), sparse };
}

/**
 * Means over what lies within half of a width of each x, so that it does not matter how often a run logs.
 * @param {number[]} x
 * @param {(number | null)[]} y
 * @param {number} width
 * @returns {(number | null)[]}
 */
export function smoothed(x, y, width) {
  const half = width / 2,
    out = Array.from({ length: y.length }, () => /** @type {number | null} */ (null));
  let from = 0,
    to = 0,
    total = 0,
    count = 0;
  for (let k = 0; k < y.length; k++) {
    for (; to < y.length && x[to] <= x[k] + half; to++)
      if (y[to] !== null) {
        total += y[to];
        count++;
      }
    for (; x[from] < x[k] - half; from++)
      if (y[from] !== null) {
        total -= y[from];
        count--;
      }
    if (y[k] !== null) out[k] = total / count;
  }
  return out;
}

/**
 * The place of the last value at or before a position; -1 where there is none.
 * @param {number[]} x
 * @param {(number | null)[]} y
 * @param {number} at
 */
export function placeAt(x, y, at) {
  let low = 0,
    high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle + 1;
    else high = middle;
  }
  let k = low - 1;
  while (k >= 0 && y[k] === null) k--;
  return k;
}

/**
 * The values of several lines at the positions that all of them have: [positions, columns].
 * @param {Line[]} lines
 * @returns {[number[], (number | null)[][]]}
 */
function shared(lines) {
  const [first] = lines;
  const equal = (/** @type {Line} */ line) =>
    line.x === first.x || (line.x.length === first.x.length && line.x.every((v, k) => v === first.x[k]));
  if (lines.every(equal)) return [first.x, lines.map((line) => line.y)];
  const places = lines.map((line) => new Map(line.x.map((x, k) => [x, k])));
  const x = first.x.filter((v) => places.every((place) => place.has(v)));
  return [x, lines.map((line, n) => x.map((v) => line.y[places[n].get(v)]))];
}

/**
 * Mean, least and largest of several lines at the positions that all of them have.
 * @param {Line[]} lines
 */
export function bandOf(lines) {
  const [x, columns] = shared(lines);
  /** @type {{ x: number[], y: (number | null)[], low: (number | null)[], high: (number | null)[] }} */
  const out = { x, y: [], low: [], high: [] };
  for (let k = 0; k < x.length; k++) {
    let total = 0,
      least = Infinity,
      most = -Infinity;
    for (const column of columns) {
      const v = column[k];
      if (v === null) total = NaN;
      total += v;
      if (v < least) least = v;
      if (v > most) most = v;
    }
    const gap = Number.isNaN(total);
    out.y.push(gap ? null : total / columns.length);
    out.low.push(gap ? null : least);
    out.high.push(gap ? null : most);
  }
  return out;
}

/**
 * @param {number} rows
 * @param {(row: number) => number} amount
 */
const sums = (rows, amount) => {
  let total = 0;
  return Array.from({ length: rows }, (_, k) => (total += amount(k)));
};

/**
 * Hours that a run had taken at each logged step, from its phases' seconds; null where it logs none.
 * @param {number[]} steps
 * @param {Column} column
 * @param {string[]} names
 */
export function hoursOf(steps, column, names) {
  const phases = names.filter((name) => name.startsWith("seconds_")).map(column);
  if (!phases.length) return null;
  return sums(steps.length, (k) => phases.reduce((n, phase) => n + (missing(phase[k]) ? 0 : phase[k]), 0) / 3600);
}

/**
 * Tokens that a run had learned from at each logged step, from their rate; null where it logs none.
 * @param {number[]} steps
 * @param {Column} column
 * @param {string[]} names
 */
export function tokensOf(steps, column, names) {
  const phases = names.filter((name) => name.startsWith("seconds_")).map(column);
  if (!phases.length || !names.includes("tokens_per_second")) return null;
  const rate = column("tokens_per_second");
  return sums(steps.length, (k) =>
    missing(rate[k]) ? 0 : rate[k] * phases.reduce((n, phase) => n + (missing(phase[k]) ? 0 : phase[k]), 0),
  );
}

/**
 * The logged value as people read it, to the digits that were kept of it.
 * @param {number} v
 * @param {boolean} isPercent
 */
export function shownNumber(v, isPercent) {
  if (isPercent) return String(+percent(v, 2));
  return Math.abs(v) >= 1e6 || (v && Math.abs(v) < 1e-4)
    ? v.toExponential(3).replace(/\.?0+e/, "e")
    : String(+v.toPrecision(5));
}

/**
 * The range of a chart's values: all of them, and the alarms', with a little room.
 * @param {number} low
 * @param {number} high
 * @param {number[]} alarms
 * @param {boolean} logarithmic
 * @returns {[number, number]}
 */
export function rangeOf(low, high, alarms, logarithmic) {
  const all = [low, high, ...alarms].filter((v) => !missing(v) && (!logarithmic || v > 0));
  const least = Math.min(...all),
    most = Math.max(...all);
  if (logarithmic) return [least / 1.15, most * 1.15];
  const room = (most - least) * 0.06 || Math.abs(most) * 0.1 || 0.5;
  return [least - room, most + room];
}

/**
 * Settings in which runs differ: [key, value of each run or ""].
 * @param {Record<string, string>[]} settings
 * @returns {[string, string[]][]}
 */
export function differing(settings) {
  const keys = [...new Set(settings.flatMap((each) => Object.keys(each)))].sort();
  return keys
    .map((key) => /** @type {[string, string[]]} */ ([key, settings.map((each) => each[key] ?? "")]))
    .filter(([, values]) => new Set(values).size > 1);
}
