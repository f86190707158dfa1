// The Scores page: tables against any baseline, sorted by any metric, with systems put aside, and any two side by side.

import { address, link } from "./address.js";
import { asideNames, baselines, comparable, isAside } from "./baseline.js";
import { el, keepFocus } from "./dom.js";
import { doorOf } from "./doors.js";
import { shownChange, shownValue, wellFormed } from "./format.js";
import { baselineSelect, sentenceOf, toneOf, verdictOf } from "./overview.js";
import { addPage } from "./pages.js";
import { slicesOf } from "./slices.js";
import { systemMark } from "./systems.js";
import { term } from "./terms.js";

const ARROWS = new Map([
  [true, " ↑"],
  [false, " ↓"],
]);
const goTo = (changes) => {
  const now = Object.fromEntries(["sort", "a", "b"].map((key) => [key, address().get(key)]));
  history.replaceState(null, "", link({ page: "scores", ...now, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
};

function cellOf(argument, bases, k, m) {
  const { key, higher, plain } = argument.metrics[m],
    { value, low, high } = argument.systems[k].values[m];
  const show = (v) => shownValue(v, plain);
  const parts = [el("b", {}, show(value))];
  if (low !== null) parts.push(el("span", { class: "interval" }, `${show(low)} – ${show(high)}`));
  if (bases[k] === k) return parts;
  const entry = argument.against[bases[k]][k],
    { difference, before, after, stars } = entry.rows[m];
  const sizes = [argument.systems[k].images, argument.systems[bases[k]].images];
  const words = [];
  if (difference !== null)
    words.push(shownChange(difference, plain) + stars + (entry.verdict === "not comparable" ? " ≠" : ""));
  if (argument.counted && sizes.some((n) => n !== entry.n)) {
    const images = `${entry.n.toLocaleString("en-US")} shared image${entry.n === 1 ? "" : "s"}`;
    words.push(before === null && after === null ? images : `${show(before)} → ${show(after)} on ${images}`);
  }
  const door = difference === null ? null : doorOf(argument, bases[k], k, key),
    tone = toneOf(entry.rows[m], higher);
  if (words.length)
    parts.push(
      el(
        "span",
        { class: tone },
        door ? el("a", { class: "door " + tone, href: door }, words.join("; ")) : words.join("; "),
      ),
    );
  return parts;
}

const metricHead = (argument, m) => {
  /** @type {Metric} */
  const { name, higher, meaning } = argument.metrics[m];
  return [name + (ARROWS.get(higher) || ""), meaning];
};

function sortedTable(argument, bases, shown, metrics) {
  const wanted = address().get("sort") || "",
    down = wanted.startsWith("-"),
    by = metrics.find((m) => argument.metrics[m].key === wanted.replace("-", ""));
  const value = (k) => argument.systems[k].values[by].value;
  const order = [...shown];
  if (by !== undefined) {
    const known = (k) => value(k) !== null;
    order.sort((a, b) => Number(known(b)) - Number(known(a)) || (value(a) - value(b)) * (down ? -1 : 1) || a - b);
  }
  const header = metrics.map((m) => {
    const { key, higher } = argument.metrics[m],
      [text, meaning] = metricHead(argument, m),
      on = m === by;
    const next = on
      ? down === (higher !== false)
        ? down
          ? key
          : "-" + key
        : ""
      : (higher === false ? "" : "-") + key;
    return el(
      "th",
      { scope: "col", "aria-sort": on ? (down ? "descending" : "ascending") : null },
      el("button", { type: "button", class: "term", "data-term": meaning, onclick: () => goTo({ sort: next }) }, text),
    );
  });
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": `Scores of ${argument.title}` },
    el(
      "table",
      { class: "scores" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "system"), header)),
      el(
        "tbody",
        {},
        order.map((k) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, systemLabel(argument, bases, k)),
            metrics.map((m) => el("td", {}, cellOf(argument, bases, k, m))),
          ),
        ),
      ),
    ),
  );
}

const systemLabel = (argument, bases, k) => [
  systemMark(argument.systems[k].name),
  el("bdi", {}, argument.systems[k].name),
  bases[k] === k && argument.systems.length > 1 ? el("small", {}, " baseline") : null,
];

const fullTable = (argument, bases, shown) =>
  el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": `All metrics of ${argument.title}` },
    el(
      "table",
      { class: "scores" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "metric"),
          shown.map((k) => el("th", { scope: "col" }, systemLabel(argument, bases, k))),
        ),
      ),
      el(
        "tbody",
        {},
        argument.metrics.map((_, m) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, term(...metricHead(argument, m))),
            shown.map((k) => el("td", {}, cellOf(argument, bases, k, m))),
          ),
        ),
      ),
    ),
  );

function controls(argument, aside) {
  if (argument.systems.length < 2) return [];
  const toggles = el(
    "fieldset",
    { class: "toggles" },
    el("legend", {}, "Systems"),
    argument.systems.map((s) =>
      el(
        "label",
        {},
        el("input", {
          type: "checkbox",
          checked: !isAside(s.name, aside),
          onchange: (event) => {
            const names = new Set(aside);
            if (event.target.checked) names.delete(wellFormed(s.name));
            else names.add(wellFormed(s.name));
            goTo({ without: [...names] });
          },
        }),
        systemMark(s.name),
        el("bdi", {}, s.name),
      ),
    ),
  );
  return [baselineSelect(argument, (baseline) => goTo({ baseline })), toggles].filter(Boolean);
}

function pairCard(argument) {
  if (argument.systems.length < 3 || argument.against.filter(Boolean).length < 2) return [];
  const place = (key, other) => {
    const found = argument.systems.findIndex((s) => wellFormed(s.name) === address().get(key));
    return found < 0 ? other : found;
  };
  const b = place("b", 0),
    a = place("a", b === 1 ? 0 : 1);
  const select = (key, at, label) =>
    el(
      "label",
      {},
      label,
      el(
        "select",
        { onchange: (event) => goTo({ [key]: event.target.value }) },
        argument.systems.map((s, k) => el("option", { value: wellFormed(s.name), selected: k === at }, s.name)),
      ),
    );
  const entry = a === b ? null : argument.against[b][a];
  const rows =
    entry && comparable(argument, b, a) ? argument.metrics.map((metric, m) => ({ metric, row: entry.rows[m], m })) : [];
  return [
    el(
      "details",
      { class: "card", open: address().has("a") || address().has("b") },
      el("summary", {}, "Compare two systems"),
      el("div", { class: "controls" }, select("a", a, "System "), select("b", b, "compared with ")),
      entry
        ? el(
            "p",
            {},
            verdictOf(entry),
            ": ",
            sentenceOf(entry, (metric) => doorOf(argument, b, a, metric)),
          )
        : el("p", {}, "Choose two different systems."),
      rows.length
        ? el(
            "div",
            { class: "scroll", tabindex: 0, role: "region", "aria-label": "The two systems side by side" },
            el(
              "table",
              {},
              el(
                "thead",
                {},
                el(
                  "tr",
                  {},
                  ["metric", argument.systems[a].name, argument.systems[b].name, "difference", "95 % interval"].map(
                    (text) => el("th", { scope: "col" }, el("bdi", {}, text)),
                  ),
                ),
              ),
              el(
                "tbody",
                {},
                rows
                  .filter(({ row }) => row.difference !== null)
                  .map(({ metric: { higher, plain }, row, m }) =>
                    el(
                      "tr",
                      {},
                      el("th", { scope: "row" }, term(...metricHead(argument, m))),
                      el("td", {}, shownValue(row.after, plain)),
                      el("td", {}, shownValue(row.before, plain)),
                      el("td", { class: toneOf(row, higher) }, shownChange(row.difference, plain) + row.stars),
                      el(
                        "td",
                        {},
                        row.low === null ? "" : `${shownChange(row.low, plain)} … ${shownChange(row.high, plain)}`,
                      ),
                    ),
                  ),
              ),
            ),
          )
        : null,
    ),
  ];
}

export function scoresPage(charts) {
  const drawScores = () => {
    const aside = asideNames();
    for (const place of document.querySelectorAll("[data-scores]")) {
      const argument = charts.arguments.find((each) => each.set === place.dataset.scores);
      if (!argument) continue;
      const bases = baselines(argument);
      const shown = argument.systems.map((_, k) => k).filter((k) => !isAside(argument.systems[k].name, aside));
      const all = place.querySelector(".score-table-all"),
        metrics = all ? argument.spoken : argument.metrics.map((_, m) => m);
      keepFocus(place, () => {
        place.querySelector(".score-controls").replaceChildren(...controls(argument, aside));
        place.querySelector(".score-table").replaceChildren(sortedTable(argument, bases, shown, metrics));
        if (all) all.replaceChildren(fullTable(argument, bases, shown));
        place.querySelector(".score-pair").replaceChildren(...pairCard(argument));
        place.querySelector(".score-slices").replaceChildren(...slicesOf(argument));
      });
    }
  };
  addPage("scores", { draw: drawScores, arrive: drawScores });
}
