// Captions with their mentions marked.

import { el } from "./dom.js";

const VERDICTS = ["supported", "hallucinated", "unknown", "ignored"];

const starts = (lengths) => {
  const out = new Uint32Array(lengths.length + 1);
  lengths.forEach((n, k) => {
    out[k + 1] = out[k] + n;
  });
  return out;
};
export class Texts {
  constructor(columns, labels) {
    Object.assign(this, columns, { labels });
    this.markAt = starts(columns.marks);
    this.pieceAt = starts(columns.pieces);
  }

  marksOf(k) {
    const out = [];
    let at = 0;
    for (let m = this.markAt[k]; m < this.markAt[k + 1]; m++) {
      const start = at + this.gap[m];
      at = start + this.length[m];
      out.push({ start, end: at, label: this.label[m], verdict: this.verdict[m] });
    }
    return out;
  }

  render(k, rewards) {
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
        piece.append(
          text.slice(at, begin),
          el(
            "mark",
            {
              class: "v" + mark.verdict,
              title: (mark.label < 0 ? "" : this.labels[mark.label] + ": ") + VERDICTS[mark.verdict],
            },
            text.slice(begin, end),
          ),
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
