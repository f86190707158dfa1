// The Captions page: images in the order of a filter, with every system's captions.

import { address, link } from "./address.js";
import { asideNames, isAside } from "./baseline.js";
import { byId, el } from "./dom.js";
import { percent, signed, sum, wellFormed } from "./format.js";
import { Marks } from "./marks.js";
import { addPage, remember, shown } from "./pages.js";
import { OUTCOMES, byInfluence, matches, measureOf, paired, summed } from "./paired.js";
import { systemMark } from "./systems.js";
import { Texts, verdictWords } from "./texts.js";

const GRID_STEP = 96; // pictures that are shown at once, and more at each press
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

/** How a word is compared: as Python's casefold does for all but a few letters, white space as one blank. */
const folded = (text) => text.toLowerCase().split(/\s+/).filter(Boolean).join(" ");

const OF_SYSTEM = ["hal_rate", "cover_rate", "cap_score"],
  OF_LABEL = ["share", "rate", "missed"];

class Captions {
  constructor(data, pictures, boxes, title) {
    this.counted = null; // see disagreement
    this.boxes = boxes; // image id -> [label, left, top, width, height] in shares of the picture
    this.images = data.images;
    this.labels = data.labels;
    this.uses = data.uses;
    this.slices = data.slices.map(wellFormed);
    this.pictures = pictures;
    this.present = data.present.map((labels) => new Set(labels));
    this.place = new Map(data.images.map((id, k) => [wellFormed(id), k]));
    this.owner = new Map(); // alias -> its label
    data.aliases.forEach((aliases, label) => aliases.forEach((alias) => this.owner.set(folded(alias), label)));
    const places = data.systems.map((columns) => {
      const of = data.images.map(() => []);
      for (const name of ["image", "line"]) {
        let at = 0; // they come as steps
        columns[name] = Int32Array.from(columns[name], (step) => {
          at += step;
          return at;
        });
      }
      columns.label = Int16Array.from(columns.form, (form) => columns.forms[form][0]);
      columns.length = Int32Array.from(columns.form, (form) => columns.forms[form][1]);
      columns.image.forEach((image, k) => of[image].push(k));
      columns.text = Array.from({ length: columns.image.length });
      return of;
    });
    let next = 0; // the texts lie image by image, then system by system
    for (let image = 0; image < data.images.length; image++)
      data.systems.forEach((columns, s) => {
        for (const k of places[s][image]) columns.text[k] = data.texts[next++];
      });
    this.systems = data.systems.map((columns, s) => {
      const texts = new Texts(columns, data.labels, data.uses),
        of = places[s],
        sets = [];
      for (let k = 0; k < columns.text.length; k++) {
        const claims = { supported: new Set(), hallucinated: new Set(), unknown: new Set() };
        for (let m = texts.markAt[k]; m < texts.markAt[k + 1]; m++)
          if (texts.label[m] >= 0) claims[verdictWords[texts.verdict[m]]]?.add(texts.label[m]);
        sets.push(claims);
      }
      return { name: columns.name, line: columns.line, image: columns.image, slice: columns.slice, texts, of, sets };
    });
    this.rows = [];
    this.at = -1;
    this.form = byId("captions-controls");
    this.list = byId("list");
    this.space = byId("list-space");
    this.aside = new Set();
    this.pair = null; // two systems side by side, see paired.js
    this.marks = new Marks(this, title);
    this.lay();
    this.listen();
    this.marks.restore();
  }

  /** The parts that depend on the data: choices, toggles of the systems, what is said of pictures. */
  lay() {
    const f = this.form.elements;
    for (const s of this.systems)
      for (const field of [f.system, f.against]) field.append(el("option", { value: wellFormed(s.name) }, s.name));
    f.outcome.append(...Object.entries(OUTCOMES).map(([value, text]) => el("option", { value }, text)));
    f.against.parentElement.hidden = this.systems.length < 2;
    f.slice.append(...this.slices.map((name) => el("option", { value: name }, name)));
    f.slice.parentElement.hidden = !this.slices.length;
    for (const use of this.uses) f.use.append(el("option", { value: use }, use));
    f.label.addEventListener("focus", () => this.suggest(), { once: true });
    this.systems.forEach((s, k) =>
      byId("captions-systems").append(
        el(
          "label",
          { class: "check" },
          el("input", { type: "checkbox", checked: true, "data-system-place": k }),
          systemMark(s.name),
          el("bdi", {}, s.name),
        ),
      ),
    );
    byId("captions-systems").hidden = this.systems.length < 2;
    byId("captions-browser").classList.toggle("pictured", Object.keys(this.pictures).length > 0);
    const some = Object.keys(this.pictures).length > 0;
    byId("no-pictures").hidden = some;
    byId("captions-look").hidden = !some;
  }

  /** What the field of the label offers: labels, and aliases with the label that they name. */
  suggest() {
    const known = new Set(this.labels);
    byId("label-list").append(
      ...this.labels.map((label) => el("option", { value: label })),
      ...[...this.owner]
        .filter(([alias]) => !known.has(alias))
        .map(([alias, label]) => el("option", { value: alias, label: `${alias}: ${this.labels[label]}` })),
    );
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.filter(null));
    this.form.addEventListener("reset", () => setTimeout(() => this.filter(null)));
    byId("captions-systems").addEventListener("change", () => {
      for (const box of byId("captions-systems").querySelectorAll("input")) {
        const name = wellFormed(this.systems[+box.dataset.systemPlace].name);
        if (box.checked) this.aside.delete(name);
        else this.aside.add(name);
      }
      this.filter(this.rows[this.at] === undefined ? null : this.rows[this.at]);
    });
    byId("captions-look").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      this.look = button.dataset.look;
      this.filter(this.rows[this.at] === undefined ? null : this.rows[this.at]);
    });
    byId("grid-more").addEventListener("click", () => this.grid(byId("grid").childElementCount + GRID_STEP));
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
    // the images one after another from anywhere on the page, but where these keys have another meaning
    addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || shown !== "captions" || this.look === "grid") return;
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      if (event.target.closest && event.target.closest("input, select, textarea, summary, [contenteditable]")) return;
      event.preventDefault();
      this.step(step);
    });
    addEventListener("resize", () => this.window());
  }

  step(by) {
    const k = this.at + by;
    if (k >= 0 && k < this.rows.length) this.choose(k);
  }

  /** Which labels the field means, and by which word if it is an alias: [labels, word]; null for an empty field. */
  meant(text) {
    const exact = this.labels.indexOf(text);
    if (exact >= 0) return [[exact], ""];
    const wanted = folded(text);
    if (this.owner.has(wanted)) return [[this.owner.get(wanted)], wanted];
    return [this.labels.flatMap((label, k) => (label.toLowerCase().includes(wanted) ? [k] : [])), ""];
  }

  settings() {
    const f = this.form.elements;
    return {
      order: f.order.value,
      seed: f.order.value === "random" ? f.seed.value || "0" : "",
      system: f.system.value,
      against: f.against.value === f.system.value ? "" : f.against.value,
      outcome: f.against.value ? f.outcome.value : "",
      by: f.against.value ? f.by.value : "",
      label: f.label.value,
      word: f.word.value,
      verdict: f.verdict.value,
      use: f.use.value,
      slice: f.slice.value,
      text: f.text.value,
      rewards: f.rewards.checked ? "1" : "",
      names: f.names.checked ? "1" : "",
      look: this.look === "grid" ? "grid" : "",
      without: [...this.aside],
    };
  }

  linkOf(image, of, n) {
    return { ...this.linkValues(image, of, n), page: "captions" };
  }

  linkValues(image, of, n) {
    const s = this.settings();
    return {
      ...s,
      order: s.order === "worst" ? "" : s.order,
      image: image === null ? "" : this.images[image],
      of: of === undefined ? "" : of,
      n: n || "",
    };
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
    one(f.against, "against");
    one(f.outcome, "outcome");
    one(f.by, "by");
    one(f.verdict, "verdict");
    one(f.use, "use");
    one(f.slice, "slice");
    f.seed.value = at.get("seed") || "1";
    for (const name of ["label", "word", "text"]) f[name].value = at.get(name) || "";
    for (const name of ["rewards", "names"]) f[name].checked = at.get(name) === "1";
    this.look = at.get("look") === "grid" && Object.keys(this.pictures).length ? "grid" : "list";
    this.aside = asideNames();
    for (const box of byId("captions-systems").querySelectorAll("input"))
      box.checked = !isAside(this.systems[+box.dataset.systemPlace].name, this.aside);
    const image = this.place.get(at.get("image"));
    this.target = image === undefined ? null : { image, of: at.get("of"), n: +at.get("n") || 0 };
    this.filter(image === undefined ? null : image);
  }

  /** Images by how many labels some systems name and others do not; counted when first asked for. */
  get disagreement() {
    this.counted ||= this.images.map((_, image) => {
      const saying = this.systems.filter((s) => s.of[image].length),
        times = new Map();
      for (const s of saying)
        for (const label of new Set(s.of[image].flatMap((k) => Object.values(s.sets[k]).flatMap((set) => [...set]))))
          times.set(label, (times.get(label) || 0) + 1);
      return [...times.values()].filter((n) => n < saying.length).length;
    });
    return this.counted;
  }

  filter(image) {
    const s = this.settings(),
      text = s.text.toLowerCase();
    byId("seed-field").hidden = s.order !== "random";
    const [labels, alias] = s.label ? this.meant(s.label) : [null, ""];
    this.pair = s.against ? this.pairOf(s, labels) : null;
    const word = s.word ? folded(s.word) : alias,
      use = this.uses.indexOf(s.use),
      verdict = s.verdict;
    const systems = this.systems.filter(
      (system) => (!s.system || wellFormed(system.name) === s.system) && !isAside(system.name, this.aside),
    );
    const mention = (system, k) =>
      system.texts
        .marksOf(k)
        .some(
          (mark) =>
            mark.label >= 0 &&
            (!labels || labels.includes(mark.label)) &&
            (!verdict || mark.verdict === verdict) &&
            (use < 0 || mark.use === use) &&
            (!word || folded(system.texts.text[k].slice(mark.start, mark.end)) === word),
        );
    const says = (system, k, image) => {
      if (!this.inSlice(system, k, s.slice)) return false;
      if (text && !system.texts.text[k].toLowerCase().includes(text)) return false;
      const sets = system.sets[k],
        missed = (label) => this.present[image].has(label) && !sets.supported.has(label);
      if (s.verdict === "missed") return labels ? labels.some(missed) : [...this.present[image]].some(missed);
      if (word || use >= 0) return mention(system, k);
      if (!labels) return verdict ? sets[verdict].size > 0 : true;
      return labels.some((label) =>
        verdict ? sets[verdict].has(label) : Object.values(sets).some((set) => set.has(label)) || missed(label),
      );
    };
    const rows = [],
      wrong = new Map();
    if (this.pair) {
      const textIn = (system, k) => !text || system.texts.text[k].toLowerCase().includes(text);
      const spoken = (image) => this.pair.systems.some((system) => system.of[image].some((k) => textIn(system, k)));
      this.pair.outcomes.forEach((outcome, image) => {
        if (outcome === null || !spoken(image) || (s.outcome && !matches(outcome, s.outcome))) return;
        rows.push(image);
        wrong.set(
          image,
          sum(this.pair.systems[0].of[image].map((k) => this.pair.systems[0].sets[k].hallucinated.size)),
        );
      });
    } else
      for (let image = 0; image < this.images.length; image++) {
        let hit = false,
          count = 0;
        for (const system of systems)
          for (const k of system.of[image])
            if (says(system, k, image)) {
              hit = true;
              count += system.sets[k].hallucinated.size;
            }
        if (hit) {
          rows.push(image);
          wrong.set(image, count);
        }
      }
    const most = (a, b) => wrong.get(b) - wrong.get(a) || a - b;
    if (s.order === "worst" && !this.pair) rows.sort(most);
    if (s.order === "worst" && this.pair) rows.splice(0, rows.length, ...byInfluence(rows, this.pair));
    if (s.order === "disagreement") rows.sort((a, b) => this.disagreement[b] - this.disagreement[a] || a - b);
    if (s.order === "random") shuffled(rows, Number(s.seed) || 0);
    this.rows = rows;
    this.shownSystems = this.pair
      ? [...this.pair.systems].reverse()
      : s.system && systems.length
        ? systems
        : this.systems.filter((each) => !isAside(each.name, this.aside));
    byId("captions-count").textContent =
      `${rows.length.toLocaleString("en")} of ${this.images.length.toLocaleString("en")} images` +
      (labels && !labels.length ? "; label not found" : "") +
      (alias ? `; “${alias}” is an alias of ${this.labels[labels[0]]}` : "") +
      (this.pair ? this.pairSaid(rows) : "");
    for (const name of ["outcome", "by"]) this.form.elements[name].parentElement.hidden = !s.against;
    for (const name of ["verdict", "use", "word"]) this.form.elements[name].disabled = Boolean(this.pair);
    this.wrong = wrong;
    for (const button of byId("captions-look").querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.look === this.look));
    byId("captions-grid").hidden = this.look !== "grid";
    byId("captions-browser").hidden = this.look === "grid";
    byId("reward-legend").hidden = !s.rewards;
    if (this.look === "grid") this.grid(GRID_STEP);
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

  /** The two systems that are compared, image by image, by what is chosen; null where there are no two. */
  pairOf(s, labels) {
    const named = (name) => this.systems.find((system) => wellFormed(system.name) === name);
    const theirs = named(s.against),
      ours = named(s.system) || this.systems.find((system) => system !== theirs);
    if (!theirs || !ours || ours === theirs) return null;
    const label = labels && labels.length ? labels[0] : null,
      known = label === null ? OF_SYSTEM : OF_LABEL;
    for (const option of this.form.elements.by.options) option.hidden = option.disabled = !known.includes(option.value);
    if (!known.includes(this.form.elements.by.value)) this.form.elements.by.value = known[0];
    const by = this.form.elements.by.value,
      { count, figure } = measureOf(by, label);
    const rowsOf = (system) =>
      this.images.map((_, image) =>
        summed(
          system.of[image]
            .filter((k) => this.inSlice(system, k, s.slice))
            .map((k) => count({ ...system.sets[k], present: this.present[image] })),
        ),
      );
    return { ...paired(rowsOf(ours), rowsOf(theirs), figure), systems: [ours, theirs], by, label };
  }

  /** Whether a caption belongs to the slice of that name; where none is chosen, each does. */
  inSlice(system, k, name) {
    return !name || this.slices[system.slice[k]] === name;
  }

  /** What the images in view come to: how many of each outcome, the figure, and the figure without them. */
  pairSaid(rows) {
    const { outcomes, ours, theirs, difference, systems, label } = this.pair;
    const n = (name) => outcomes.filter((each) => each === name).length.toLocaleString("en");
    const title = this.form.elements.by.selectedOptions[0].textContent;
    const of = label === null ? title : `${this.labels[label]}, ${title}`;
    const said = `; ${systems[0].name} compared with ${systems[1].name}: ${n("mended")} improved, ${n("spoiled")} regressed, ${n("both")} with errors in both`;
    if (difference === null) return said;
    const left = this.pair.without(rows);
    return (
      `${said}. ${of}: ${percent(theirs)} → ${percent(ours)}, ${signed(difference)} points` +
      (left === null ? "." : `; ${signed(left)} without the images shown.`)
    );
  }

  remember(image) {
    if (shown !== "captions") return;
    const target = this.target && image === this.target.image ? this.target : {};
    remember(this.linkValues(image, target.of, target.n));
  }

  /** Says where the reader is, when the keys have come to rest: one sentence, not the captions. */
  say() {
    clearTimeout(this.saying);
    this.saying = setTimeout(() => {
      const image = this.rows[this.at];
      byId("captions-said").textContent =
        image === undefined ? "" : `Image ${this.images[image]}, ${this.at + 1} of ${this.rows.length}`;
    }, 500);
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
    this.say();
  }

  window() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 4),
      last = Math.min(this.rows.length, first + Math.ceil((this.list.clientHeight || 400) / ROW) + 9);
    const made = [];
    for (let k = first; k < last; k++) {
      const image = this.rows[k],
        said = [];
      const badges = this.shownSystems
        .filter((s) => s.of[image].length)
        .map((s) => {
          const wrong = sum(s.of[image].map((c) => s.sets[c].hallucinated.size)),
            right = sum(s.of[image].map((c) => s.sets[c].supported.size));
          said.push(`${s.name}: ${right} supported, ${wrong} hallucinated`);
          return el(
            "span",
            {},
            systemMark(s.name),
            el("span", { class: "right" }, String(right)),
            " ",
            el("span", { class: wrong ? "wrong" : "" }, String(wrong)),
          );
        });
      const id = this.images[image];
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
            "aria-label": `${this.images[image]}; ${said.join("; ")}`,
            title: said.join("\n"),
            css: { top: k * ROW + "px" },
          },
          Object.hasOwn(this.pictures, id) ? el("img", { src: this.pictures[id], alt: "", loading: "lazy" }) : null,
          el("b", { dir: "auto" }, id),
          el("div", {}, badges),
        ),
      );
    }
    this.space.replaceChildren(...made);
    if (this.at >= first && this.at < last) this.list.setAttribute("aria-activedescendant", "row" + this.at);
    else this.list.removeAttribute("aria-activedescendant");
  }

  /** Pictures of the first images that pass the filter, each a link to its captions. */
  grid(most) {
    const shownNow = this.rows.slice(0, most);
    byId("grid").replaceChildren(
      ...shownNow.map((image) => {
        const id = this.images[image],
          wrong = this.wrong.get(image);
        return el(
          "a",
          { href: link({ ...this.linkOf(image), look: "" }) },
          Object.hasOwn(this.pictures, id)
            ? el("img", { src: this.pictures[id], alt: "", loading: "lazy" })
            : el("span", { class: "blank" }, "no picture"),
          el("bdi", {}, id),
          el("small", {}, wrong ? `${wrong} hallucinated` : "no hallucinations"),
        );
      }),
    );
    byId("grid-more").hidden = shownNow.length >= this.rows.length;
  }

  detail(image) {
    const rewards = this.form.elements.rewards.checked,
      named = this.form.elements.names.checked;
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
          : "none",
      );
    const cards = this.shownSystems.flatMap((s) =>
      s.of[image].map((k, n) => {
        const { supported: right, hallucinated: wrong, unknown } = s.sets[k],
          href = link(this.linkOf(image, s.name, n));
        const target =
          this.target && this.target.image === image && this.target.of === wellFormed(s.name) && this.target.n === n;
        return el(
          "article",
          { class: target ? "caption target" : "caption", "aria-label": s.name },
          el(
            "h4",
            {},
            systemMark(s.name),
            el("bdi", {}, s.name),
            s.of[image].length > 1 ? ` (${n + 1})` : null,
            el("a", { href, title: "Link to this caption" }, `line ${s.line[k]} #`),
          ),
          this.readable(s, k, image, rewards, named),
          wrong.size ? labelList("hallucinated", [...wrong]) : null,
          labelList(
            "missed",
            [...this.present[image]].filter((label) => !right.has(label)),
          ),
          unknown.size ? labelList("unknown", [...unknown]) : null,
        );
      }),
    );
    const id = this.images[image];
    byId("picture").replaceChildren(
      ...(Object.hasOwn(this.pictures, id)
        ? [
            el(
              "div",
              {},
              el("img", { src: this.pictures[id], alt: "Image " + id }),
              el("div", { class: "boxes", "aria-hidden": "true" }),
            ),
          ]
        : []),
    );
    byId("detail").replaceChildren(
      el(
        "header",
        {},
        el("h3", {}, "Image ", el("bdi", {}, id)),
        el("button", { type: "button", "aria-keyshortcuts": "ArrowLeft", onclick: () => this.step(-1) }, "Previous"),
        el("button", { type: "button", "aria-keyshortcuts": "ArrowRight", onclick: () => this.step(1) }, "Next"),
        labelList("in the image", [...this.present[image]]),
      ),
      el("div", { class: "columns" }, cards),
    );
    this.marks.painted();
  }

  /** Shows on the picture where a label is by the truth; of one that is absent, what is there in its place. */
  point(image, label, verdict) {
    const all = label === null ? [] : this.boxes[this.images[image]],
      own = all.filter(([of]) => of === label);
    byId("picture")
      .querySelector(".boxes")
      ?.replaceChildren(
        ...(verdict === "hallucinated" ? all : own).map(([of, x, y, w, h]) =>
          el(
            "span",
            { css: { left: 100 * x + "%", top: 100 * y + "%", width: 100 * w + "%", height: 100 * h + "%" } },
            el("small", {}, this.labels[of]),
          ),
        ),
      );
  }

  /** A caption whose hallucinated mentions can be read and marked one by one. */
  readable(system, k, image, rewards, named) {
    const text = system.texts.render(k, rewards, named),
      there = [...this.present[image]].map((label) => this.labels[label]).sort();
    const marks = system.texts.marksOf(k);
    for (const node of text.querySelectorAll("mark")) {
      const { label, verdict } = marks[+node.dataset.m];
      if (label < 0 || !Object.hasOwn(this.boxes, this.images[image])) continue;
      for (const kind of ["pointerenter", "focus"])
        node.addEventListener(kind, () => this.point(image, label, verdict));
      for (const kind of ["pointerleave", "blur"]) node.addEventListener(kind, () => this.point(image, null));
    }
    for (const node of text.querySelectorAll("mark.v-hallucinated")) {
      node.title += there.length
        ? `; in the image according to the ground truth: ${there.join(", ")}`
        : "; no object in the ground truth";
      this.marks.offer(node, system, k, +node.dataset.m);
    }
    return text;
  }
}

let captions = null;
export function captionsPage(data, pictures, boxes, title) {
  captions = new Captions(data, pictures, boxes, title);
  addPage("captions", { arrive: () => captions.fromAddress() });
  if (shown === "captions") captions.fromAddress();
}

/** Where a word is hallucinated as a label: {system, line, image_id, caption} of each caption. */
export function hallucinatedCaptions(word, label) {
  return captions.systems.flatMap((s) =>
    s.texts.text.flatMap((caption, k) =>
      s.sets[k].hallucinated.has(label) &&
      s.texts
        .marksOf(k)
        .some(
          (mark) =>
            mark.label === label &&
            mark.verdict === "hallucinated" &&
            folded(caption.slice(mark.start, mark.end)) === word,
        )
        ? [{ system: s.name, line: s.line[k], image_id: captions.images[s.image[k]], caption }]
        : [],
    ),
  );
}
