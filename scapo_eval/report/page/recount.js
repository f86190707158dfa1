// @ts-check
// Marks on hallucinated mentions: what they do to the scores, and how they are read from a file. These are pure
// functions, tested without a page.

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

/**
 * The rows of a file of marks.
 * @param {string} name of the file
 * @param {string} text
 * @returns {any[]}
 */
export function readLines(name, text) {
  return text.split("\n").flatMap((line, k) => {
    if (!line.trim()) return [];
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new Error(`${name}:${k + 1}: not valid JSON`);
    }
    const marks = row && row.marks;
    if (!Array.isArray(marks) || !marks.every((mark) => mark instanceof Object))
      throw new Error(`${name}:${k + 1}: not a caption with marks`);
    return [row];
  });
}

/**
 * What became of a file of marks, in words.
 * @param {number} marks that were loaded
 * @param {number} others lines with marks that this report has no mention for
 */
export const loadedText = (marks, others) =>
  `${marks} mark${marks === 1 ? "" : "s"} loaded.` +
  (others ? ` ${others} line${others === 1 ? " belongs" : "s belong"} to other captions or mentions.` : "");
