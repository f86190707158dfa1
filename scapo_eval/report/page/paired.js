// What makes a difference between two systems, image by image (or question by question): pure functions of counts,
// tested without a page. A row of counts is [faults, ...what the figure is made of]; null where a system said nothing.

/** Names of what can have become of an item from the baseline to the system; `differs` is mended or spoiled. */
export const OUTCOMES = {
  differs: "differ",
  mended: "mended (fewer faults than the baseline)",
  spoiled: "spoiled (more faults than the baseline)",
  both: "faults in both, equally many",
  neither: "no fault in either",
  only: "only this system has them",
};

/** What became of an item: mended, spoiled, both, neither, only; null where the system said nothing about it. */
function outcomeOf(ours, theirs) {
  if (!ours) return null;
  if (!theirs) return "only";
  if (ours[0] !== theirs[0]) return ours[0] < theirs[0] ? "mended" : "spoiled";
  return ours[0] ? "both" : "neither";
}

export const matches = (outcome, wanted) =>
  wanted === "differs" ? outcome === "mended" || outcome === "spoiled" : outcome === wanted;

const plus = (total, row, sign) => total.map((n, k) => n + sign * row[k + 1]);
const totalOf = (rows, places) =>
  places.reduce((total, k) => plus(total, rows[k], 1), Array(places.length ? rows[places[0]].length - 1 : 0).fill(0));

/** A ratio of sums; null over nothing. */
export const ratioOf = (part, whole) => (whole ? part / whole : null);
/** The harmonic mean of two rates, as scapo_eval.cap_score: 0 where both are. */
const harmonic = (a, b) => (a === null || b === null ? null : a + b > 0 ? (2 * a * b) / (a + b) : 0);

const minus = (a, b) => (a === null || b === null ? null : a - b);

/**
 * Two systems side by side. ours, theirs: rows of counts, item by item; figure: sums of counts -> value.
 * Returns the items that both have, {difference, ours, theirs} on them, the outcome of every item, its influence (the
 * difference minus that without it; its sign is the difference's where it makes it), and `without(items)`: the difference
 * without these items.
 */
export function paired(ours, theirs, figure) {
  const shared = [];
  ours.forEach((row, k) => {
    if (row && theirs[k]) shared.push(k);
  });
  const totals = [ours, theirs].map((rows) => totalOf(rows, shared));
  const values = totals.map((total) => (shared.length ? figure(total) : null));
  const difference = minus(values[0], values[1]);
  const without = (items) => {
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

/** Items in the order of their influence: what makes the difference first, what works against it last. */
export function byInfluence(items, pair) {
  const sign = Math.sign(pair.difference || 0) || -1;
  return [...items].sort((a, b) => sign * ((pair.influence.get(b) || 0) - (pair.influence.get(a) || 0)) || a - b);
}

/**
 * How captions are counted for a difference: name -> {faults and counts of one caption's sets, figure of the sums}. A
 * caption has `supported`, `hallucinated` (sets of labels) and `present` (what is in its image).
 */
export function measureOf(name, label = null) {
  const has = (set) => (set.has(label) ? 1 : 0);
  const missed = (c) => (c.present.has(label) && !c.supported.has(label) ? 1 : 0);
  const rates = (c) => [c.hallucinated.size, c.hallucinated.size + c.supported.size, c.supported.size, c.present.size];
  const hal = (t) => ratioOf(t[0], t[1]),
    cover = (t) => ratioOf(t[2], t[3]);
  return {
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
  }[name];
}

/** The sum of several rows of counts; null of none. */
export const summed = (rows) => (rows.length ? rows.reduce((total, row) => total.map((n, k) => n + row[k])) : null);
