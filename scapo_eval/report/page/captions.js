// The Captions page: images in the order of a filter, with every system's captions.

import { address, link } from "./address.js";
import { byId, el } from "./dom.js";
import { sum, wellFormed } from "./format.js";
import { addPage, shown } from "./pages.js";
import { names, swatch } from "./systems.js";
import { Texts } from "./texts.js";

const ROW = 44; // height of a row of the list in pixels, as in captions.css

function shuffled(values, seed) {
  let state = seed >>> 0;
  const next = () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  for (let k = values.length - 1; k > 0; k--) {
    const j = Math.floor(next() * (k + 1));
    [values[k], values[j]] = [values[j], values[k]];
  }
  return values;
}

class Captions {
  constructor(data) {
    this.images = data.images;
    this.labels = data.labels;
    this.present = data.present.map((labels) => new Set(labels));
    this.place = new Map(data.images.map((id, k) => [wellFormed(id), k]));
    this.systems = data.systems.map((columns) => {
      const texts = new Texts(columns, data.labels),
        of = data.images.map(() => []),
        sets = [];
      columns.image.forEach((image, k) => of[image].push(k));
      for (let k = 0; k < columns.text.length; k++) {
        const claims = [new Set(), new Set(), new Set()];
        for (let m = texts.markAt[k]; m < texts.markAt[k + 1]; m++)
          if (texts.label[m] >= 0) claims[texts.verdict[m]].add(texts.label[m]);
        sets.push(claims);
      }
      return { name: columns.name, line: columns.line, texts, of, sets };
    });
    this.disagreement = data.images.map((_, image) => {
      const saying = this.systems.filter((s) => s.of[image].length),
        times = new Map();
      for (const s of saying)
        for (const label of new Set(s.of[image].flatMap((k) => s.sets[k].flatMap((set) => [...set]))))
          times.set(label, (times.get(label) || 0) + 1);
      return [...times.values()].filter((n) => n < saying.length).length;
    });
    this.pictures = {};
    this.rows = [];
    this.at = -1;
    this.form = byId("captions-controls");
    this.list = byId("list");
    this.space = byId("list-space");
    for (const s of this.systems) this.form.elements.system.append(el("option", { value: wellFormed(s.name) }, s.name));
    byId("label-list").append(...this.labels.map((label) => el("option", { value: label })));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.filter(null));
    this.form.addEventListener("reset", () => setTimeout(() => this.filter(null)));
    this.list.addEventListener("scroll", () => this.window());
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(+row.dataset.k);
    });
    this.list.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
      const to = {
        ArrowDown: this.at + 1,
        ArrowUp: this.at - 1,
        PageDown: this.at + page,
        PageUp: this.at - page,
        Home: 0,
        End: this.rows.length - 1,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.rows.length - 1, to)));
    });
    addEventListener("resize", () => this.window());
  }

  settings() {
    const f = this.form.elements;
    return {
      order: f.order.value,
      seed: f.order.value === "random" ? f.seed.value || "0" : "",
      system: f.system.value,
      label: f.label.value,
      verdict: f.verdict.value,
      text: f.text.value,
      rewards: f.rewards.checked ? "1" : "",
    };
  }

  address(image, of, n) {
    const s = this.settings();
    return link({
      page: "captions",
      ...s,
      order: s.order === "worst" ? "" : s.order,
      image: image === null ? "" : this.images[image],
      of: of === undefined ? "" : of,
      n: n || "",
    });
  }

  fromAddress() {
    const at = address(),
      f = this.form.elements;
    const one = (field, name) => {
      const value = at.get(name) || "";
      field.value = [...field.options].some((o) => o.value === value) ? value : field.options[0].value;
    };
    one(f.order, "order");
    one(f.system, "system");
    one(f.verdict, "verdict");
    f.seed.value = at.get("seed") || "1";
    f.label.value = at.get("label") || "";
    f.text.value = at.get("text") || "";
    f.rewards.checked = at.get("rewards") === "1";
    const image = this.place.get(at.get("image"));
    this.target = image === undefined ? null : { image, of: at.get("of"), n: +at.get("n") || 0 };
    this.filter(image === undefined ? null : image);
  }

  filter(image) {
    const s = this.settings(),
      text = s.text.toLowerCase();
    byId("seed-field").hidden = s.order !== "random";
    const exact = this.labels.indexOf(s.label);
    const labels = !s.label
      ? null
      : exact >= 0
        ? [exact]
        : this.labels.flatMap((label, k) => (label.toLowerCase().includes(s.label.toLowerCase()) ? [k] : []));
    const systems = this.systems.filter((system) => !s.system || wellFormed(system.name) === s.system);
    const says = (system, k, image) => {
      if (text && !system.texts.text[k].toLowerCase().includes(text)) return false;
      const sets = system.sets[k],
        missed = (label) => this.present[image].has(label) && !sets[0].has(label);
      const v = ["supported", "hallucinated", "unknown"].indexOf(s.verdict);
      if (!labels)
        return v >= 0 ? sets[v].size > 0 : s.verdict === "missed" ? [...this.present[image]].some(missed) : true;
      return labels.some((label) =>
        v >= 0
          ? sets[v].has(label)
          : s.verdict === "missed"
            ? missed(label)
            : sets.some((set) => set.has(label)) || missed(label),
      );
    };
    const rows = [],
      wrong = new Map();
    for (let image = 0; image < this.images.length; image++) {
      let hit = false,
        count = 0;
      for (const system of systems)
        for (const k of system.of[image])
          if (says(system, k, image)) {
            hit = true;
            count += system.sets[k][1].size;
          }
      if (hit) {
        rows.push(image);
        wrong.set(image, count);
      }
    }
    if (s.order === "worst") rows.sort((a, b) => wrong.get(b) - wrong.get(a) || a - b);
    if (s.order === "disagreement") rows.sort((a, b) => this.disagreement[b] - this.disagreement[a] || a - b);
    if (s.order === "random") shuffled(rows, Number(s.seed) || 0);
    this.rows = rows;
    this.shownSystems = systems.length === 1 ? systems : this.systems;
    byId("captions-count").textContent =
      `${rows.length.toLocaleString("en")} of ${this.images.length.toLocaleString("en")} images` +
      (labels && !labels.length ? "; label not found" : "");
    this.space.style.height = rows.length * ROW + "px";
    if (image === null) {
      this.target = null;
      this.list.scrollTop = 0;
    }
    const k = image === null ? 0 : rows.indexOf(image);
    if (rows.length && k >= 0) return this.choose(k, image !== null);
    this.at = -1; // a linked image that the filter hides is shown all the same
    this.window();
    if (image === null) {
      byId("detail").replaceChildren();
      this.remember(null);
    } else this.detail(image);
  }

  remember(image) {
    if (shown === "captions")
      history.replaceState(
        null,
        "",
        this.target && image === this.target.image
          ? this.address(image, this.target.of, this.target.n)
          : this.address(image),
      );
  }

  choose(k, linked) {
    this.at = k;
    const image = this.rows[k],
      top = k * ROW;
    if (!linked && (!this.target || this.target.image !== image)) this.target = null;
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    if (top + ROW > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = linked ? top - this.list.clientHeight / 2 : top + ROW - this.list.clientHeight;
    this.window();
    this.detail(image);
    this.remember(image);
  }

  window() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 4),
      last = Math.min(this.rows.length, first + Math.ceil((this.list.clientHeight || 400) / ROW) + 9);
    const made = [];
    for (let k = first; k < last; k++) {
      const image = this.rows[k];
      const badges = this.shownSystems
        .filter((s) => s.of[image].length)
        .map((s) => {
          const wrong = sum(s.of[image].map((c) => s.sets[c][1].size)),
            right = sum(s.of[image].map((c) => s.sets[c][0].size));
          return el(
            "span",
            { title: s.name + ": supported, hallucinated" },
            swatch(Math.max(0, names.indexOf(s.name))),
            right + "+",
            el("span", { class: wrong ? "bad" : "" }, wrong + "!"),
          );
        });
      made.push(
        el(
          "div",
          {
            class: "row",
            id: "row" + k,
            role: "option",
            "data-k": k,
            "aria-selected": String(k === this.at),
            "aria-setsize": this.rows.length,
            "aria-posinset": k + 1,
            css: { top: k * ROW + "px" },
          },
          el("b", { dir: "auto" }, this.images[image]),
          el("div", {}, badges),
        ),
      );
    }
    this.space.replaceChildren(...made);
    if (this.at >= first && this.at < last) this.list.setAttribute("aria-activedescendant", "row" + this.at);
    else this.list.removeAttribute("aria-activedescendant");
  }

  detail(image) {
    const rewards = this.form.elements.rewards.checked;
    const labelList = (title, labels) =>
      el(
        "p",
        { class: "facts" },
        el("b", {}, title + ": "),
        labels.length
          ? el(
              "bdi",
              {},
              labels
                .map((k) => this.labels[k])
                .sort()
                .join(", "),
            )
          : "nothing",
      );
    const cards = this.shownSystems.flatMap((s) =>
      s.of[image].map((k, n) => {
        const [right, wrong, unknown] = s.sets[k],
          href = this.address(image, s.name, n);
        const target =
          this.target && this.target.image === image && this.target.of === wellFormed(s.name) && this.target.n === n;
        return el(
          "section",
          { class: target ? "caption target" : "caption", "aria-label": s.name },
          el(
            "h4",
            {},
            swatch(Math.max(0, names.indexOf(s.name))),
            el("bdi", {}, s.name),
            s.of[image].length > 1 ? ` (${n + 1})` : null,
            el("a", { href, title: "A link to this caption" }, `line ${s.line[k]} #`),
          ),
          s.texts.render(k, rewards),
          wrong.size ? labelList("hallucinated", [...wrong]) : null,
          labelList(
            "missed",
            [...this.present[image]].filter((label) => !right.has(label)),
          ),
          unknown.size ? labelList("unknown", [...unknown]) : null,
        );
      }),
    );
    const id = this.images[image],
      picture = Object.hasOwn(this.pictures, id)
        ? el("img", { src: this.pictures[id], alt: "Image " + id, loading: "lazy" })
        : null;
    byId("detail").replaceChildren(
      el(
        "header",
        {},
        el("h3", {}, "Image ", el("bdi", {}, id)),
        el("button", { type: "button", onclick: () => this.at > 0 && this.choose(this.at - 1) }, "Previous"),
        el(
          "button",
          { type: "button", onclick: () => this.at < this.rows.length - 1 && this.choose(this.at + 1) },
          "Next",
        ),
      ),
      ...(picture ? [picture] : []),
      labelList("in the image", [...this.present[image]]),
      el("div", { class: "columns" }, cards),
    );
  }
}

export function captionsPage(data, pictures) {
  const captions = new Captions(data);
  captions.pictures = pictures;
  addPage("captions", { arrive: () => captions.fromAddress() });
  if (shown === "captions") captions.fromAddress();
}
