// Captions with their mentions marked.

import { el } from "./dom.js";

const starts = (lengths) => {
  const out = new Uint32Array(lengths.length + 1);
  lengths.forEach((n, k) => {
    out[k + 1] = out[k] + n;
  });
  return out;
};
/** Code of a verdict -> its word, as scapo_eval/base/verdicts.py defines them. */
export let verdictWords = {};
export const nameVerdicts = (words) => {
  verdictWords = words;
};

/**
 * The captions of a system, column by column.
 * @typedef {object} Columns
 * @property {string[]} text one a caption
 * @property {ArrayLike<number>} marks number of marks of a caption
 * @property {ArrayLike<number>} pieces number of pieces of a caption
 * @property {ArrayLike<number>} gap characters between a mark and the one before
 * @property {ArrayLike<number>} length characters of a mark
 * @property {ArrayLike<number>} label of a mark; below 0: a phrase that names nothing
 * @property {ArrayLike<number>} verdict of a mark, a key of verdictWords
 * @property {ArrayLike<number>} use of a mark
 * @property {ArrayLike<number>} piece_length characters of a piece
 * @property {ArrayLike<number>} reward of a piece, in thousandths
 */

export class Texts {
  /**
   * @param {Columns} columns
   * @param {string[]} labels
   * @param {string[]} uses
   */
  constructor(columns, labels, uses = []) {
    this.labels = labels;
    this.uses = uses;
    this.text = columns.text;
    this.pieces = columns.pieces;
    this.gap = columns.gap;
    this.length = columns.length;
    this.label = columns.label;
    this.verdict = columns.verdict;
    this.use = columns.use;
    this.piece_length = columns.piece_length;
    this.reward = columns.reward;
    this.markAt = starts(columns.marks);
    this.pieceAt = starts(columns.pieces);
  }

  marksOf(k) {
    const out = [];
    let at = 0;
    for (let m = this.markAt[k]; m < this.markAt[k + 1]; m++) {
      const start = at + this.gap[m];
      at = start + this.length[m];
      out.push({ start, end: at, label: this.label[m], verdict: verdictWords[this.verdict[m]], use: this.use[m] });
    }
    return out;
  }

  /** What a mark says in words: its label, verdict, and what the caption does with it besides claiming it. */
  described(mark) {
    const use = this.uses[mark.use];
    if (mark.label < 0) return "ignore phrase";
    return `${this.labels[mark.label]}: ${mark.verdict}` + (mark.use && use ? `, ${use}` : "");
  }

  /** The text of caption k with its marks; rewards: with the reward behind each piece; named: with labels above. */
  render(k, rewards, named = false) {
    const text = this.text[k],
      marks = this.marksOf(k),
      root = el("p", { class: rewards ? "text rewarded" : "text", dir: "auto" });
    const count = rewards ? this.pieces[k] : 0;
    let from = 0,
      m = 0;
    for (let p = 0; p < Math.max(1, count); p++) {
      const to = count ? from + this.piece_length[this.pieceAt[k] + p] : text.length;
      const piece = el("span", { class: "piece" });
      let at = from;
      while (m < marks.length && marks[m].start < to) {
        const mark = marks[m],
          begin = Math.max(mark.start, at),
          end = Math.min(mark.end, to);
        const marked = el(
          "mark",
          { class: "v-" + mark.verdict.replace(" ", "-"), title: this.described(mark), "data-m": m },
          text.slice(begin, end),
        );
        const use = mark.use ? " · " + this.uses[mark.use] : "";
        piece.append(
          text.slice(at, begin),
          named && mark.label >= 0 && begin === mark.start
            ? el("ruby", {}, marked, el("rt", {}, this.labels[mark.label] + use))
            : marked,
        );
        at = end;
        if (mark.end > to) break; // goes on in the next piece
        m++;
      }
      piece.append(text.slice(at, to));
      root.append(piece);
      if (count) {
        const value = this.reward[this.pieceAt[k] + p] / 1000;
        root.append(
          el(
            "span",
            {
              class: "reward " + (value > 0 ? "plus" : value < 0 ? "minus" : "zero"),
              title: "reward of this subsentence",
            },
            (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value),
          ),
        );
      }
      from = to;
    }
    return root;
  }
}
