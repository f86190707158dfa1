// @ts-check
// Many pictures of one label at once: what is shown, what a press means, where an arrow leads. No page is needed here.

/** Pictures shown at once. */
export const MANY = 25;

/**
 * The first pairs of a label that have no answer.
 * @param {[number, number][]} pairs image row and label of every pair
 * @param {(string | null)[]} answers
 * @param {number} label
 * @returns {number[]} places in `pairs`, at most MANY
 */
export function openPairs(pairs, answers, label) {
  const found = [];
  for (let k = 0; k < pairs.length && found.length < MANY; k++)
    if (pairs[k][1] === label && answers[k] === null) found.push(k);
  return found;
}

/**
 * What a picture says after a press: the other answer, then unsure, then again what all say that are not pressed.
 * @param {string} now
 * @param {string} rest
 * @returns {string}
 */
export function pressed(now, rest) {
  if (now === rest) return rest === "no" ? "yes" : "no";
  return now === "unsure" ? rest : "unsure";
}

/**
 * The answer to every pair in view; pictures that cannot be shown are skipped.
 * @param {number[]} shown
 * @param {Map<number, string>} marks
 * @param {string} rest
 * @param {Set<number>} gone
 * @returns {[number, string][]}
 */
export function answersOf(shown, marks, rest, gone) {
  return shown.map((pair) => [pair, gone.has(pair) ? "missing" : (marks.get(pair) ?? rest)]);
}

/**
 * The tile that an arrow key leads to.
 * @param {string} key lower case
 * @param {number} at
 * @param {number} tiles
 * @param {number} columns
 * @returns {number}
 */
export function step(key, at, tiles, columns) {
  const by = { arrowleft: -1, arrowright: 1, arrowup: -columns, arrowdown: columns }[key];
  const to = at + (by ?? 0);
  return to < 0 || to >= tiles ? at : to;
}
