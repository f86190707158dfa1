// @ts-check
// What a reader's marks on hallucinated mentions do to the scores: pure functions, tested without a page.

/**
 * @typedef {object} Caption
 * @property {number} image
 * @property {Set<number>} supported
 * @property {Set<number>} hallucinated
 * @property {Set<number>} present
 * @property {(label: number) => "matcher" | "truth" | "invented" | "open"} status
 */

/**
 * Keys and meanings of the marks.
 * @type {Record<string, [string, string]>}
 */
export const MARKS = {
  m: ["matcher", "matcher error"],
  t: ["truth", "ground truth error"],
  i: ["invented", "confirmed hallucination"],
  u: ["unsure", "unsure"],
};

/**
 * What the marks of a claim's mentions make of it: invented as soon as one is; the matcher's fault where all are; the
 * truth's where one is; else open (unsure, or not read).
 * @param {string[]} marks
 * @returns {"matcher" | "truth" | "invented" | "open"}
 */
export function statusOf(marks) {
  if (marks.includes("invented")) return "invented";
  if (marks.includes("truth")) return "truth";
  return marks.length && marks.every((mark) => mark === "matcher") ? "matcher" : "open";
}

/**
 * The rates under the marks. captions: {image, supported, hallucinated, present: sets of labels, status(label)}; mended:
 * image -> labels that the truth lacks. Returns {read, open, matcher, truth, invented: numbers of claims; hal: [least,
 * most], cover}: the least Hal. Rate is that where every open claim is there after all, the most where none is.
 * @param {Caption[]} captions
 * @param {Map<number, Set<number>>} mended
 */
export function recount(captions, mended) {
  const n = { matcher: 0, truth: 0, invented: 0, open: 0 };
  let supported = 0,
    covered = 0,
    present = 0;
  for (const caption of captions) {
    const lacked = mended.get(caption.image) || new Set();
    supported += caption.supported.size;
    covered += caption.supported.size;
    present += caption.present.size + [...lacked].filter((label) => !caption.present.has(label)).length;
    for (const label of caption.hallucinated) {
      const status = lacked.has(label) ? "truth" : caption.status(label);
      n[status]++;
      if (status === "truth") covered++;
    }
  }
  const generated = supported + n.truth + n.invented + n.open,
    share = (/** @type {number} */ k) => (generated ? k / generated : null);
  return {
    ...n,
    read: n.matcher + n.truth + n.invented,
    hal: [share(n.invented), share(n.invented + n.open)],
    cover: present ? covered / present : null,
  };
}

/**
 * Where characters begin as Python counts them: the number of code points before a UTF-16 position.
 * @param {string} text
 * @param {number} at
 */
export const pointsBefore = (text, at) => Array.from(text.slice(0, at)).length;
