// The Claims page: the claims of each description with a judge's verdicts, systems side by side.

import { byId, el } from "./dom.js";
import { filteredPage } from "./filters.js";
import { percent, signed, wellFormed } from "./format.js";
import { byInfluence, matches, paired, ratioOf } from "./paired.js";
import { systemMark } from "./systems.js";

const DESCRIPTIONS = 20; // that are shown at once, and more at each press
const SETTINGS = ["system", "first", "outcome", "text"];

/** A description as counts: claims that are not true, those that are, all with a verdict. */
function countOfClaims(description) {
  if (!description) return null;
  /** @type {JudgedClaim[]} */
  const rows = description.rows;
  const judged = rows.filter((row) => row.true !== null),
    right = judged.filter((row) => row.true).length;
  return [judged.length - right, right, judged.length];
}
const shareTrue = (total) => ratioOf(total[0], total[1]);

export function claimsPage(systems) {
  const form = byId("claims-controls"),
    f = form.elements,
    list = byId("claims-list");
  const keys = [...new Set(systems.flatMap((s) => s.descriptions.map((each) => each.key)))];
  const of = systems.map((s) => new Map(s.descriptions.map((each) => [each.key, each])));
  let rows = [],
    columns = [];
  for (const s of systems)
    for (const field of [f.system, f.first]) field.append(el("option", { value: wellFormed(s.name) }, s.name));
  f.first.parentElement.hidden = f.system.parentElement.hidden = systems.length < 2;

  function filter() {
    const place = (select) => systems.map((s) => wellFormed(s.name)).indexOf(select.value);
    const ours = Math.max(0, place(f.system)),
      theirs = place(f.first),
      text = f.text.value.toLowerCase(),
      wanted = f.outcome.value;
    const counts = (s) => keys.map((key) => (s < 0 ? null : countOfClaims(of[s].get(key))));
    const own = counts(ours),
      pair = paired(own, counts(theirs), shareTrue);
    columns = theirs >= 0 && theirs !== ours ? [theirs, ours] : [ours];
    const says = (key) =>
      columns.some((s) => {
        const each = of[s].get(key);
        return each && [each.text, ...each.rows.map((row) => row.claim)].some((t) => t.toLowerCase().includes(text));
      });
    rows = [...keys.keys()].filter((k) => {
      if (!own[k] || (text && !says(keys[k]))) return false;
      return !wanted || (wanted === "wrong" ? own[k][0] > 0 : matches(pair.outcomes[k], wanted));
    });
    if (columns.length > 1) rows = byInfluence(rows, pair);
    else rows.sort((a, b) => own[b][0] - own[a][0] || a - b);
    const total = own.filter(Boolean).length;
    byId("claims-count").textContent =
      `${rows.length.toLocaleString("en")} of ${total.toLocaleString("en")} descriptions` +
      (columns.length > 1 && !columns.some((s) => systems[s].left_out) ? said(pair) : "");
    list.replaceChildren();
    more();
  }

  /** What the descriptions in view come to, and the share of true claims without them. */
  function said(pair) {
    if (pair.difference === null) return "; no shared descriptions";
    const n = (name) => pair.outcomes.filter((each) => each === name).length.toLocaleString("en"),
      left = pair.without(rows);
    return (
      `: ${n("mended")} improved, ${n("spoiled")} regressed. True claims: ${percent(pair.theirs)} → ${percent(pair.ours)}, ${signed(pair.difference)} points` +
      (left === null ? "." : `; ${signed(left)} without the descriptions shown.`)
    );
  }

  function more() {
    const from = list.childElementCount;
    list.append(...rows.slice(from, from + DESCRIPTIONS).map(caseOf));
    byId("claims-more").hidden = from + DESCRIPTIONS >= rows.length;
  }

  const claimOf = (row) =>
    el(
      "li",
      {},
      el(
        "mark",
        { class: row.true === null ? "v-unknown" : row.true ? "v-supported" : "v-hallucinated" },
        el("bdi", {}, row.claim),
      ),
      row.descriptive ? null : el("small", {}, " (comment)"),
      row.reference ? el("span", { class: "dim" }, " → ", el("bdi", {}, row.reference)) : null,
    );

  function caseOf(k) {
    return el(
      "article",
      { class: "case", "aria-label": keys[k] },
      el("h3", {}, el("bdi", {}, keys[k])),
      el(
        "div",
        { class: "columns" },
        columns.map((s) => {
          const each = of[s].get(keys[k]);
          const wrong = each ? countOfClaims(each)[0] : 0;
          return el(
            "div",
            {},
            el("h4", {}, systemMark(systems[s].name), " ", el("bdi", {}, systems[s].name)),
            each
              ? [
                  el(
                    "p",
                    { class: "facts" },
                    `${each.rows.length} claims, ${wrong} false${each.unread ? "; at least one verdict could not be read" : ""}`,
                  ),
                  each.text ? el("p", { dir: "auto" }, each.text) : null,
                  el("ul", {}, each.rows.map(claimOf)),
                  each.references.length
                    ? el(
                        "details",
                        {},
                        el("summary", {}, "Reference claims, and whether the description states them"),
                        el(
                          "ul",
                          {},
                          each.references.map(({ claim, answer }) =>
                            el("li", {}, el("bdi", {}, claim), " ", el("strong", {}, answer)),
                          ),
                        ),
                      )
                    : null,
                ]
              : el("p", { class: "facts" }, "not described"),
          );
        }),
      ),
    );
  }

  filteredPage("claims", SETTINGS, filter, more);
}
