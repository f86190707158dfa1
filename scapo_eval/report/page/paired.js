// @ts-check
// What makes a difference between two systems, image by image (or question by question): pure functions of counts,
// tested without a page. A row of counts is [faults, ...what the figure is made of]; null where a system said nothing.

/**
 * @typedef {number[]} Row counts of an item, its faults first
 * @typedef {(sums: number[]) => number | null} Figure
 * @typedef {{ supported: Set<number>, hallucinated: Set<number>, present: Set<number> }} Claims
 * @typedef {object} Pair
 * @property {number[]} shared
 * @property {number | null} ours
 * @property {number | null} theirs
 * @property {number | null} difference
 * @property {(items: number[]) => number | null} without
 * @property {Map<number, number>} influence
 * @property {(string | null)[]} outcomes
 */

/**
 * Names of what can have become of an item from the baseline to the system; `differs` is mended or spoiled.
 * @type {Record<string, string>}
 */
export const OUTCOMES = {
  differs: "differ",
  mended: "improved (fewer errors than the baseline)",
  spoiled: "regressed (more errors than the baseline)",
  both: "equally many errors in both",
  neither: "no errors in either",
  only: "only in this system",
};

/**
 * What became of an item: mended, spoiled, both, neither, only; null where the system said nothing about it.
 * @param {Row | null} ours
 * @param {Row | null} theirs
 * @returns {string | null}
 */
function outcomeOf(ours, theirs) {
  if (!ours) return null;
  if (!theirs) return "only";
  if (ours[0] !== theirs[0]) return ours[0] < theirs[0] ? "mended" : "spoiled";
  return ours[0] ? "both" : "neither";
}

/**
 * @param {string | null} outcome
 * @param {string} wanted
 */
export const matches = (outcome, wanted) =>
  wanted === "differs" ? outcome === "mended" || outcome === "spoiled" : outcome === wanted;

/**
 * @param {number[]} total
 * @param {Row} row
 * @param {number} sign
 */
const plus = (total, row, sign) => total.map((n, k) => n + sign * row[k + 1]);
/**
 * @param {(Row | null)[]} rows
 * @param {number[]} places
 * @returns {number[]}
 */
const totalOf = (rows, places) =>
  places.reduce((total, k) => plus(total, rows[k], 1), Array(places.length ? rows[places[0]].length - 1 : 0).fill(0));

/**
 * A ratio of sums; null over nothing.
 * @param {number} part
 * @param {number} whole
 */
export const ratioOf = (part, whole) => (whole ? part / whole : null);
/**
 * The harmonic mean of two rates, as scapo_eval.cap_score: 0 where both are.
 * @param {number | null} a
 * @param {number | null} b
 */
const harmonic = (a, b) => (a === null || b === null ? null : a + b > 0 ? (2 * a * b) / (a + b) : 0);

/**
 * @param {number | null} a
 * @param {number | null} b
 */
const minus = (a, b) => (a === null || b === null ? null : a - b);

/**
 * Two systems side by side. ours, theirs: rows of counts, item by item; figure: sums of counts -> value.
 * Returns the items that both have, {difference, ours, theirs} on them, the outcome of every item, its influence (the
 * difference minus that without it; its sign is the difference's where it makes it), and `without(items)`: the difference
 * without these items.
 * @param {(Row | null)[]} ours
 * @param {(Row | null)[]} theirs
 * @param {Figure} figure
 * @returns {Pair}
 */
export function paired(ours, theirs, figure) {
  /** @type {number[]} */
  const shared = [];
  ours.forEach((row, k) => {
    if (row && theirs[k]) shared.push(k);
  });
  const totals = [ours, theirs].map((rows) => totalOf(rows, shared));
  const values = totals.map((total) => (shared.length ? figure(total) : null));
  const difference = minus(values[0], values[1]);
  const without = (/** @type {number[]} */ items) => {
    const left = items.filter((k) => ours[k] && theirs[k]);
    if (left.length >= shared.length) return null;
    const [a, b] = [ours, theirs].map((rows, n) => left.reduce((total, k) => plus(total, rows[k], -1), totals[n]));
    return minus(figure(a), figure(b));
  };
  const influence = new Map();
  for (const k of shared) influence.set(k, minus(difference, without([k])) || 0);
  return {
    shared,
    ours: values[0],
    theirs: values[1],
    difference,
    without,
    influence,
    outcomes: ours.map((row, k) => outcomeOf(row, theirs[k])),
  };
}

/**
 * Items in the order of their influence: what makes the difference first, what works against it last.
 * @param {number[]} items
 * @param {Pair} pair
 */
export function byInfluence(items, pair) {
  const sign = Math.sign(pair.difference || 0) || -1;
  return [...items].sort((a, b) => sign * ((pair.influence.get(b) || 0) - (pair.influence.get(a) || 0)) || a - b);
}

/**
 * How captions are counted for a difference: name -> {faults and counts of one caption's sets, figure of the sums}. A
 * caption has `supported`, `hallucinated` (sets of labels) and `present` (what is in its image).
 * @param {string} name
 * @param {number | null} [label]
 * @returns {{ count: (c: Claims) => Row, figure: Figure }}
 */
export function measureOf(name, label = null) {
  const has = (/** @type {Set<number>} */ set) => (set.has(label) ? 1 : 0);
  const missed = (/** @type {Claims} */ c) => (c.present.has(label) && !c.supported.has(label) ? 1 : 0);
  const rates = (/** @type {Claims} */ c) => [
    c.hallucinated.size,
    c.hallucinated.size + c.supported.size,
    c.supported.size,
    c.present.size,
  ];
  /** @type {Figure} */
  const hal = (t) => ratioOf(t[0], t[1]);
  /** @type {Figure} */
  const cover = (t) => ratioOf(t[2], t[3]);
  /** @type {Record<string, { count: (c: Claims) => Row, figure: Figure }>} */
  const known = {
    hal_rate: { count: (c) => [c.hallucinated.size, ...rates(c)], figure: hal },
    cover_rate: { count: (c) => [c.present.size - c.supported.size, ...rates(c)], figure: cover },
    cap_score: {
      count: (c) => [c.hallucinated.size + c.present.size - c.supported.size, ...rates(c)],
      figure: (t) => harmonic(minus(1, hal(t)), cover(t)),
    },
    // of one label: the captions that name it though it is absent, of all; of those that name it; those that miss it
    share: { count: (c) => [has(c.hallucinated), has(c.hallucinated), 1], figure: (t) => ratioOf(t[0], t[1]) },
    rate: {
      count: (c) => [has(c.hallucinated), has(c.hallucinated), has(c.hallucinated) + has(c.supported)],
      figure: (t) => ratioOf(t[0], t[1]),
    },
    missed: { count: (c) => [missed(c), missed(c), c.present.has(label) ? 1 : 0], figure: (t) => ratioOf(t[0], t[1]) },
  };
  return known[name];
}

/**
 * The sum of several rows of counts; null of none.
 * @param {Row[]} rows
 * @returns {Row | null}
 */
export const summed = (rows) => (rows.length ? rows.reduce((total, row) => total.map((n, k) => n + row[k])) : null);
