// A reader's marks on hallucinated mentions: by keyboard, kept while the page is open, saved as JSON Lines.

import { byId, el } from "./dom.js";
import { percent } from "./format.js";
import { shown } from "./pages.js";
import { loadedText, MARKS, pointsBefore, readLines, recount, statusOf } from "./recount.js";
import { saveFile } from "./save.js";
import { systemMark } from "./systems.js";

const NAMES = Object.fromEntries(Object.values(MARKS));

export class Marks {
  /** captions: the Captions page; title: of the report, by which the browser keeps its marks. */
  constructor(captions, title) {
    this.captions = captions;
    this.store = "scapo-marks:" + title;
    this.given = new Map(); // key of a mention -> mark
    this.at = null; // key of the selected mention
    byId("marks-keys").replaceChildren(
      ...Object.entries(MARKS).map(([key, [mark, name]]) =>
        el(
          "button",
          { type: "button", "data-mark": mark, "aria-keyshortcuts": key, onclick: () => this.mark(mark) },
          el("kbd", {}, key),
          " " + name,
        ),
      ),
    );
    byId("marks-save").addEventListener("click", () => saveFile("marks.jsonl", this.lines(), "application/jsonl"));
    byId("marks-open").addEventListener("change", (event) => this.load(event.target));
    byId("marks").addEventListener("toggle", () => this.summarize());
    addEventListener("keydown", (event) => {
      if (shown !== "captions" || event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.target.closest && event.target.closest("input, select, textarea, summary, [contenteditable]")) return;
      if (event.key === "n" || event.key === "p") this.go(event.key === "n" ? 1 : -1);
      else if (MARKS[event.key] && this.at !== null) this.mark(MARKS[event.key][0]);
      else return;
      event.preventDefault();
    });
    // Another tab has given a mark. If the storage is cleared, the marks last as long as the page.
    addEventListener("storage", ({ key, newValue }) => {
      if (key === this.store && newValue !== null) this.restore();
    });
  }

  keyOf(system, k, m) {
    return [this.captions.systems.indexOf(system), k, m].join(":");
  }

  /** Makes a mention one that can be selected and marked. */
  offer(node, system, k, m) {
    const key = this.keyOf(system, k, m);
    node.dataset.mention = key;
    node.tabIndex = 0;
    node.setAttribute("role", "button");
    this.paint(node);
    node.addEventListener("focus", () => this.select(key));
    node.addEventListener("click", () => node.focus());
  }

  paint(node) {
    const given = this.given.get(node.dataset.mention);
    if (given) node.dataset.given = given;
    else delete node.dataset.given;
    node.setAttribute("aria-label", `${node.textContent}: ${node.title}${given ? "; marked: " + NAMES[given] : ""}`);
  }

  nodes() {
    return [...byId("detail").querySelectorAll("[data-mention]")];
  }

  select(key) {
    this.at = key;
    for (const node of this.nodes()) node.classList.toggle("selected", node.dataset.mention === key);
    const given = this.given.get(key);
    for (const button of byId("marks-keys").children) {
      button.disabled = key === null;
      button.setAttribute("aria-pressed", String(button.dataset.mark === given));
    }
  }

  /** Goes to the next hallucinated mention, in the next image where this one has no more. */
  go(by) {
    const nodes = this.nodes(),
      at = nodes.findIndex((node) => node.dataset.mention === this.at);
    const next = at < 0 ? nodes[by > 0 ? 0 : nodes.length - 1] : nodes[at + by];
    if (next) return next.focus();
    for (let rest = this.captions.rows.length; rest; rest--) {
      const before = this.captions.at;
      this.captions.step(by);
      if (this.captions.at === before) return;
      const found = this.nodes();
      if (found.length) return found[by > 0 ? 0 : found.length - 1].focus();
    }
  }

  mark(mark) {
    if (this.at === null) return;
    if (this.given.get(this.at) === mark) this.given.delete(this.at);
    else this.given.set(this.at, mark);
    this.keep();
    for (const node of this.nodes()) this.paint(node);
    this.select(this.at);
    byId("captions-said").textContent = this.given.has(this.at) ? NAMES[mark] : "mark removed";
    this.summarize();
  }

  /** A caption is drawn: what was selected in another one no longer is. */
  painted() {
    if (!this.nodes().some((node) => node.dataset.mention === this.at)) this.select(null);
    this.summarize();
  }

  /** Labels that the reader found in the images, though the truth lacks them. */
  mended() {
    const found = new Map();
    for (const [key, mark] of this.given) {
      if (mark !== "truth") continue;
      const [s, k, m] = key.split(":").map(Number),
        system = this.captions.systems[s],
        image = system.image[k];
      if (!found.has(image)) found.set(image, new Set());
      found.get(image).add(system.texts.marksOf(k)[m].label);
    }
    return found;
  }

  summarize() {
    byId("marks-count").textContent = this.given.size ? `${this.given.size} marked` : "";
    if (!byId("marks").open) return;
    const mended = this.mended();
    const rows = this.captions.systems.map((system, s) => {
      const marks = new Map(); // caption -> label -> marks of its hallucinated mentions
      for (const key of this.given.keys()) {
        const [of, k] = key.split(":").map(Number);
        if (of !== s || marks.has(k)) continue;
        const labels = new Map();
        system.texts.marksOf(k).forEach((mention, m) => {
          if (mention.verdict !== "hallucinated") return;
          if (!labels.has(mention.label)) labels.set(mention.label, []);
          labels.get(mention.label).push(this.given.get([s, k, m].join(":")) || "open");
        });
        marks.set(k, labels);
      }
      const captions = system.sets.map((sets, k) => ({
        image: system.image[k],
        ...sets,
        present: this.captions.present[system.image[k]],
        status: (label) => statusOf((marks.get(k) && marks.get(k).get(label)) || []),
      }));
      const found = recount(captions, mended);
      return [
        [systemMark(system.name), el("bdi", {}, system.name)],
        String(found.read),
        String(found.matcher),
        String(found.truth),
        String(found.invented),
        String(found.open),
        `${percent(found.hal[0])} – ${percent(found.hal[1])}`,
        percent(found.cover),
      ];
    });
    const heads = [
      "system",
      "reviewed claims",
      "matcher errors",
      "ground truth errors",
      "confirmed",
      "open",
      "Hal. Rate after review, %",
      "Cover Rate, %",
    ];
    byId("marks-scores").replaceChildren(
      el(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Scores after review" },
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              heads.map((head) => el("th", { scope: "col" }, head)),
            ),
          ),
          el(
            "tbody",
            {},
            rows.map((cells) =>
              el(
                "tr",
                {},
                cells.map((cell, k) => el(k ? "td" : "th", { scope: k ? null : "row" }, cell)),
              ),
            ),
          ),
        ),
      ),
      el(
        "p",
        { class: "hint" },
        "The lower Hal. Rate assumes that all open claims (not reviewed, or unsure) are in the image; the higher one assumes that none are.",
      ),
    );
  }

  /** A line per caption with marks: the caption, its image's objects with what the reader found, spans and marks. */
  lines() {
    const mended = this.mended(),
      of = new Map();
    for (const [key, mark] of this.given) {
      const [s, k, m] = key.split(":").map(Number),
        place = s + ":" + k;
      if (!of.has(place)) of.set(place, []);
      of.get(place).push([m, mark]);
    }
    const { labels, images, systems, present } = this.captions;
    return [...of]
      .map(([place, given]) => {
        const [s, k] = place.split(":").map(Number),
          system = systems[s],
          text = system.texts.text[k],
          image = system.image[k],
          mentions = system.texts.marksOf(k);
        const marks = given
          .sort((a, b) => a[0] - b[0])
          .map(([m, mark]) => {
            const { start, end, label } = mentions[m];
            return {
              start: pointsBefore(text, start),
              end: pointsBefore(text, end),
              surface: text.slice(start, end),
              label: labels[label],
              mark,
            };
          });
        // who reads parts takes what is not marked for right: parts only of a caption that is read to its end
        const whole = mentions.every(
          (each, m) =>
            each.verdict !== "hallucinated" || (this.given.get([s, k, m].join(":")) || "unsure") !== "unsure",
        );
        const invented = marks.filter(({ mark }) => mark === "invented");
        const row = {
          image_id: images[image],
          caption: text,
          system: system.name,
          line: system.line[k],
          objects: [...new Set([...present[image], ...(mended.get(image) || [])])].map((label) => labels[label]).sort(),
          ...(whole ? { spans: invented.map(({ start, end }) => ({ start, end, wrong: true })) } : {}),
          marks,
        };
        return JSON.stringify(row) + "\n";
      })
      .join("");
  }

  /** Saved rows: key of a mention -> mark, and the rows with those of their marks that have no mention in this report. */
  placed(rows) {
    const { systems, images, labels } = this.captions;
    const given = new Map(),
      others = [];
    for (const row of rows) {
      const system = systems.find((each) => each.name === row.system),
        k = system
          ? system.line.findIndex((number, at) => number === row.line && images[system.image[at]] === row.image_id)
          : -1;
      const mentions = k >= 0 && system.texts.text[k] === row.caption ? system.texts.marksOf(k) : [];
      const rest = row.marks.filter(({ start, label, mark }) => {
        const m = mentions.findIndex(
          (each) => labels[each.label] === label && pointsBefore(row.caption, each.start) === start,
        );
        if (m < 0 || !(mark in NAMES)) return true;
        given.set(this.keyOf(system, k, m), mark);
        return false;
      });
      if (rest.length) others.push({ ...row, marks: rest });
    }
    return { given, others };
  }

  take(given) {
    for (const [key, mark] of given) this.given.set(key, mark);
    for (const node of this.nodes()) this.paint(node);
    this.summarize();
  }

  /** Loads the file that the reader chose, and says what became of it. */
  async load(input) {
    const [file] = input.files,
      said = byId("marks-said");
    if (!file) return;
    try {
      const { given, others } = this.placed(readLines(file.name, await file.text()));
      this.take(given);
      this.keep();
      said.textContent = loadedText(given.size, others.length);
    } catch (error) {
      said.textContent = /** @type {Error} */ (error).message;
    }
    input.value = ""; // the same file can be chosen again
  }

  // The browser keeps the marks over a reload, where it may. Reports of the same title share what it keeps, and so does
  // a report that is made again: marks of captions that this report lacks stay.

  kept() {
    try {
      return this.placed(readLines(this.store, localStorage.getItem(this.store) || ""));
    } catch {
      return this.placed([]);
    }
  }
  keep() {
    const others = this.kept().others.map((row) => JSON.stringify(row) + "\n");
    try {
      localStorage.setItem(this.store, this.lines() + others.join(""));
    } catch {
      // no storage: they last as long as the page
    }
  }
  restore() {
    this.given.clear();
    this.take(this.kept().given);
    this.select(this.at);
  }
}
