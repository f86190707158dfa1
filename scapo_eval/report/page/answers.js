// The Answers page: what systems answer to a benchmark's questions, beside what is true; plain and described answers.

import { address } from "./address.js";
import { byId, el } from "./dom.js";
import { percent, signed, wellFormed } from "./format.js";
import { addPage, remember, shown } from "./pages.js";
import { OUTCOMES, matches, paired, ratioOf } from "./paired.js";
import { systemMark } from "./systems.js";

const CASES = 40; // questions that are shown at once, and more at each press
const FIELDS = ["set", "part", "system", "first", "outcome", "text"];

/** @param {boolean | null} right */
const markOf = (right) => (right === null ? "v-unknown" : right ? "v-supported" : "v-hallucinated");
const fold = (title, text) =>
  text ? el("details", {}, el("summary", {}, title), el("blockquote", { dir: "auto" }, text)) : null;

/** An answer as counts: whether it is wrong, whether it is right, one answer; null where nobody can tell. */
const countOf = (/** @type {Answer | null} */ answer) =>
  answer && answer.right !== null ? [answer.right ? 0 : 1, answer.right ? 1 : 0, 1] : null;
const shareRight = (total) => ratioOf(total[0], total[1]);

export function answersPage(sets, pictures) {
  const form = byId("answers-controls"),
    f = form.elements,
    list = byId("answers-list");
  let rows = [];

  const options = (select, values, chosen) => {
    select.replaceChildren(...values.map(([value, text]) => el("option", { value }, text)));
    select.value = values.some(([value]) => value === chosen) ? chosen : values[0][0];
  };
  const current = () => sets.find((set) => set.set === f.set.value) || sets[0];

  /** The choices that depend on the benchmark. */
  function offer(part, system, first) {
    const set = current();
    const parts = [...new Set(set.questions.map((q) => q.part).filter(Boolean))].sort();
    const systems = set.systems.map((name) => [wellFormed(name), name]);
    options(f.part, [["", "all"], ...parts.map((each) => [each, each])], part);
    options(f.system, systems, system || (systems[1] || systems[0])[0]);
    options(f.first, systems, first || systems[0][0]);
    f.part.parentElement.hidden = !parts.length;
    f.system.parentElement.hidden = f.first.parentElement.hidden = systems.length < 2;
    f.set.parentElement.hidden = sets.length < 2;
  }

  function filter() {
    const set = current(),
      text = f.text.value.toLowerCase();
    const place = (select) => set.systems.map(wellFormed).indexOf(select.value);
    const now = set.answers[place(f.system)],
      before = set.answers[place(f.first)];
    const says = (k) =>
      Object.values(set.questions[k]).some((part) => part && part.toLowerCase().includes(text)) ||
      set.answers.some((answers) => answers[k] && answers[k].response.toLowerCase().includes(text));
    const inPart = (question) => !f.part.value || question.part === f.part.value;
    const counts = (answers) => set.questions.map((question, k) => (inPart(question) ? countOf(answers[k]) : null));
    const own = counts(now);
    const pair = paired(own, counts(before), shareRight),
      wanted = f.outcome.value;
    rows = [];
    set.questions.forEach((question, k) => {
      if (!inPart(question) || (text && !says(k))) return;
      if (wanted === "wrong" ? !(own[k] && own[k][0]) : wanted && !matches(pair.outcomes[k], wanted)) return;
      rows.push(k);
    });
    byId("answers-count").textContent =
      `${rows.length.toLocaleString("en")} of ${set.questions.length.toLocaleString("en")} questions` +
      (now === before ? "" : said(pair, rows));
    list.replaceChildren();
    more();
  }

  /** What the questions in view come to: how many of each outcome, the share of right answers, and that without them. */
  function said(pair, shownRows) {
    const n = (name) => pair.outcomes.filter((each) => each === name).length.toLocaleString("en");
    const text = `; ${f.system.value} compared with ${f.first.value}: ${n("mended")} improved, ${n("spoiled")} regressed, ${n("both")} wrong in both`;
    if (pair.difference === null) return text;
    const left = pair.without(shownRows);
    return (
      `${text}. Correct: ${percent(pair.theirs)} → ${percent(pair.ours)}, ${signed(pair.difference)} points` +
      (left === null ? "." : `; ${signed(left)} without the questions shown.`)
    );
  }

  function more() {
    const set = current(),
      from = list.childElementCount;
    list.append(...rows.slice(from, from + CASES).map((k) => caseOf(set, k)));
    byId("answers-more").hidden = from + CASES >= rows.length;
  }

  function caseOf(set, k) {
    /** @type {Question} */
    const { image, part, question, truth, content } = set.questions[k];
    return el(
      "article",
      { class: "case", "aria-label": question || `question ${k + 1}` },
      image !== null && Object.hasOwn(pictures, image)
        ? el("img", { src: pictures[image], alt: "Image " + image, loading: "lazy" })
        : null,
      el("h3", { dir: "auto" }, question || `Question ${k + 1}`),
      el("p", { class: "facts" }, [part, image && "image " + image].filter(Boolean).join(" · ")),
      truth ? el("p", { class: "facts" }, el("b", {}, "correct answer: "), el("bdi", {}, truth)) : null,
      content ? el("p", { class: "facts" }, el("b", {}, "in the image: "), el("bdi", {}, content)) : null,
      el(
        "div",
        { class: "columns" },
        set.systems.map((name, s) => {
          const answer = set.answers[s][k];
          return el(
            "div",
            {},
            el("h4", {}, systemMark(name), " ", el("bdi", {}, name)),
            answer
              ? [
                  el(
                    "p",
                    { class: "facts" },
                    el("mark", { class: markOf(answer.right) }, answer.verdict),
                    answer.description ? " with a description in the prompt" : null,
                  ),
                  el("blockquote", { dir: "auto" }, answer.response || "(empty)"),
                  fold("Description in the prompt", answer.description),
                  fold("The judge’s text", answer.judgment),
                ]
              : el("p", { class: "facts" }, "not answered"),
          );
        }),
      ),
    );
  }

  const changed = () => {
    filter();
    const first = current().systems.map(wellFormed);
    remember({
      set: f.set.value === sets[0].set ? "" : f.set.value,
      part: f.part.value,
      system: f.system.value === (first[1] || first[0]) ? "" : f.system.value,
      first: f.first.value === first[0] ? "" : f.first.value,
      outcome: f.outcome.value,
      text: f.text.value,
    });
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target === f.set) offer("", "", "");
    changed();
  });
  form.addEventListener("reset", () =>
    setTimeout(() => {
      offer("", "", "");
      changed();
    }),
  );
  byId("answers-more").addEventListener("click", more);
  const arrive = () => {
    const at = Object.fromEntries(FIELDS.map((name) => [name, address().get(name) || ""]));
    f.set.value = sets.some((set) => set.set === at.set) ? at.set : sets[0].set;
    offer(at.part, at.system, at.first);
    f.outcome.value = at.outcome in OUTCOMES || at.outcome === "wrong" ? at.outcome : "";
    f.text.value = at.text;
    filter();
  };
  addPage("answers", { arrive });
  if (shown === "answers") arrive();
}
