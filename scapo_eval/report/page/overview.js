// The first page: which system is better, where, and why. Every word of it comes from a test (report/sentences.py).

import { ticks } from "./axes.js";
import { address, link } from "./address.js";
import { asideNames, baselines, chosenBaseline, isAside } from "./baseline.js";
import { draw, el, keepFocus } from "./dom.js";
import { doorOf, pairLink } from "./doors.js";
import { forestPlot } from "./forest.js";
import { shortMiddle, shownChange, shownValue, signed, wellFormed } from "./format.js";
import { frontier, shownPlane } from "./frontier.js";
import { addPage } from "./pages.js";
import { saveButton } from "./saveimage.js";
import { common, systemMark } from "./systems.js";
import { term } from "./terms.js";
import { Texts } from "./texts.js";

const MANY = 8; // systems from which they are ranked, and differences drawn before ellipses
const SIGNS = { better: "▲ ", worse: "▼ ", untested: "" };

/**
 * What the test says of a difference: the class of its color.
 * @param {Difference} row
 * @param {boolean | null} higher
 */
export const toneOf = (row, higher) =>
  !row.stars || (higher !== true && higher !== false) ? "untested" : row.difference > 0 === higher ? "better" : "worse";

/** The verdict of one comparison, with a sign, so that it does not hang on a color. */
export const verdictOf = (entry) => el("strong", { class: "verdict " + entry.tone }, SIGNS[entry.tone] + entry.verdict);
/** The sentence of one comparison, clause by clause in the colors of their tests. */
export const sentenceOf = (entry, doorTo) =>
  el(
    "span",
    { class: "said" },
    entry.said.flatMap(({ text, tone, metric }) => {
      const [, lead, rest] = text.match(/^([;,] )?(.*)$/s),
        door = metric && doorTo(metric);
      return [
        lead || "",
        door ? el("a", { class: "door " + tone, href: door }, rest) : el("span", { class: tone }, rest),
      ];
    }),
    ".",
  );

/** The select with which a baseline is chosen; it stands on several pages and says the same on each. */
export function baselineSelect(argument, choose) {
  const chosen = chosenBaseline(argument),
    several = new Set(argument.natural).size > 1;
  if (argument.against.filter(Boolean).length < 2) return null;
  const select = el(
    "select",
    { onchange: () => choose(select.value) },
    several ? el("option", { value: "" }, "first system of each image set") : null,
    argument.systems.map((s, k) =>
      el("option", { value: wellFormed(s.name), selected: k === (chosen < 0 && !several ? 0 : chosen) }, s.name),
    ),
  );
  return el("label", {}, "Baseline ", select);
}

// How many images, and whether the systems share them

function dataLine(argument) {
  const images = argument.systems.map((s) => s.images),
    low = Math.min(...images),
    high = Math.max(...images);
  const count = (n, word) => `${n.toLocaleString("en-US")} ${word}${n === 1 ? "" : "s"}`;
  const shared = argument.against.filter(Boolean).flatMap((row) => row.filter(Boolean).map((entry) => entry.n));
  const parts = [count(argument.systems.length, "system")];
  if (argument.counted)
    parts.push(
      low === high
        ? count(low, "image") + (images.length > 1 ? " each" : "")
        : `${low.toLocaleString("en-US")} to ${count(high, "image")} each`,
    );
  if (argument.counted && shared.length) {
    const least = Math.min(...shared);
    parts.push(
      least === high && low === high
        ? "all shared"
        : `each pair shares ${least === Math.max(...shared) ? "" : "at least "}${least.toLocaleString("en-US")}`,
    );
  }
  if (argument.data) parts.push(argument.data);
  return el("p", { class: "data" }, parts.join(" · "));
}

function sharingBanner(argument) {
  const heads = [...new Set(argument.natural)];
  if (!argument.counted || heads.length < 2) return null;
  const least = Math.max(...heads.slice(1).map((head) => (argument.against[heads[0]] || [])[head]?.n || 0));
  return el(
    "p",
    { class: "note banner" },
    el("b", {}, `${heads.length} sets of images`),
    ` that share ${least ? `only ${least}` : "no"} image${least === 1 ? "" : "s"}. Systems are compared only within a set, and each set has its own baseline.`,
  );
}

// The sentences

/** A system alone: its headline metrics, since there is nothing to compare it with. */
function ownFigures(argument) {
  const [system] = argument.systems;
  return el(
    "div",
    { class: "claims" },
    el("p", { class: "claims-head" }, systemMark(system.name), el("bdi", { class: "system" }, system.name)),
    el(
      "ul",
      {},
      argument.spoken.map((m) => {
        const { name, plain, meaning } = argument.metrics[m],
          { value, low, high } = system.values[m];
        const interval =
          low === null ? null : el("small", {}, ` ${shownValue(low, plain)} – ${shownValue(high, plain)}`);
        return el("li", {}, term(name, meaning), interval, el("span", { class: "value" }, shownValue(value, plain)));
      }),
    ),
    el("p", { class: "hint" }, "To compare systems, create the report from several files."),
  );
}

/** What a system alone gets wrong most: labels that it invents and misses, and the captions with most inventions. */
function ownFaults(argument, table, texts) {
  const [system] = argument.systems;
  const toCaptions = (values) => link({ page: "captions", system: wellFormed(system.name), ...values });
  const list = (title, counts, verdict) => {
    const rows = table.label.map((label, k) => [label, counts[k]]).sort((a, b) => b[1] - a[1]);
    const shown = rows.slice(0, 10).filter(([, n]) => n);
    const most = shown.length ? shown[0][1] : 1;
    return el(
      "section",
      {},
      el("h4", {}, title),
      shown.length
        ? el(
            "ol",
            { class: "faults" },
            shown.map(([label, n]) =>
              el(
                "li",
                {},
                el("a", { href: toCaptions({ label, verdict }) }, label),
                el("span", { class: "bar" }, el("i", { css: { left: 0, width: (100 * n) / most + "%" } })),
                el("span", { class: "value" }, n.toLocaleString("en")),
              ),
            ),
          )
        : el("p", { class: "hint" }, "none"),
    );
  };
  const lists = [
    list("Most hallucinated labels (captions)", table.hallucinated, "hallucinated"),
    list("Most missed labels (captions)", table.missed, "missed"),
  ];
  const worst = argument.worst.map(({ image, text }) =>
    el(
      "div",
      {},
      el("h4", {}, el("a", { href: toCaptions({ image }) }, "Image ", el("bdi", {}, image))),
      texts.render(text, false),
    ),
  );
  const captions = [
    el("p", { class: "example-head" }, el("b", {}, "Captions with the most hallucinated objects")),
    el("div", { class: "pair" }, worst),
  ];
  return [el("div", { class: "own" }, lists), worst.length ? el("div", { class: "plane example" }, captions) : null];
}

/** The order of two systems by their difference to the baseline in a metric: the better first. */
function ranked(argument, base, m, a, b) {
  const of = (k) => argument.against[base][k].rows[m].difference,
    better = argument.metrics[m].higher === false ? 1 : -1;
  if (of(a) === null || of(b) === null) return Number(of(a) === null) - Number(of(b) === null);
  return better * (of(a) - of(b)) || a - b;
}

function claims(argument, bases, focus) {
  const aside = asideNames();
  const cap = argument.metrics.findIndex((metric) => metric.key === "cap_score"),
    shown = cap >= 0 ? cap : argument.spoken[0];
  const row = (system, k, content, extra) =>
    el(
      "li",
      { class: extra },
      systemMark(system.name),
      el("bdi", { class: "system" }, system.name),
      el(
        "span",
        { class: "value", title: argument.metrics[shown].name },
        shownValue(system.values[shown].value, argument.metrics[shown].plain),
      ),
      content,
    );
  const heads = [...new Set(bases)];
  if (argument.systems.length === 1) return ownFigures(argument);
  return el(
    "div",
    { class: "claims" },
    el(
      "p",
      { class: "claims-head" },
      el("span", {}, "System"),
      term(argument.metrics[shown].name, argument.metrics[shown].meaning),
    ),
    heads.map((head) => {
      const others = argument.systems
        .map((s, k) => k)
        .filter((k) => bases[k] === head && k !== head && !isAside(argument.systems[k].name, aside));
      if (argument.systems.length > MANY) others.sort((a, b) => ranked(argument, head, shown, a, b));
      return el(
        "ul",
        {},
        row(
          argument.systems[head],
          head,
          el("small", {}, others.length ? "baseline" : heads.length > 1 ? "shares too few images with the others" : ""),
          "base",
        ),
        others.map((k) => {
          const entry = argument.against[head][k];
          const li = row(
            argument.systems[k],
            k,
            el(
              "div",
              {},
              verdictOf(entry),
              ": ",
              sentenceOf(entry, (metric) => doorOf(argument, head, k, metric)),
            ),
            k === focus ? "focused" : "",
          );
          if (entry.labels && others.length > 1) {
            const button = el(
              "button",
              {
                type: "button",
                class: "why",
                "aria-pressed": String(k === focus),
                "aria-label": `Why: the labels and captions of ${argument.systems[k].name}`,
                onclick: () => {
                  location.hash = link({ page: "overview", focus: argument.systems[k].name });
                },
              },
              "why",
            );
            li.querySelector(".said").append(" ", button);
          }
          return li;
        }),
      );
    }),
  );
}

// The labels that changed most

const CHANGES_MEANING =
  "Change in the share of captions that hallucinate the label, in percentage points. " +
  "Filled bars: significant in an exact sign test over the images in which the systems differ, Holm-corrected for all labels.";

function changeBars(figure, argument, base, k) {
  /** @type {LabelChange[]} */
  const changes = argument.against[base][k].labels,
    system = argument.systems[k].name;
  const W = Math.max(280, Math.min(560, figure.clientWidth - 20)),
    left = 96,
    right = W - 62,
    rowHeight = 23,
    H = changes.length * rowHeight + 40;
  const ends = changes.flatMap(({ difference: d, low, high }) => [d, low ?? d, high ?? d]),
    most = Math.max(...ends.map(Math.abs), 0.01);
  const X = (v) => left + ((v + most) / (2 * most)) * (right - left);
  const svg = draw("svg", {
    class: "chart",
    viewBox: `0 0 ${W} ${H}`,
    role: "group",
    "aria-label": `Labels whose hallucination changed most from ${argument.systems[base].name} to ${system}`,
  });
  for (const v of ticks(-most, most, 4))
    svg.append(
      draw("line", { class: v ? "grid" : "axis", x1: X(v), x2: X(v), y1: 4, y2: H - 34 }),
      draw(
        "text",
        { class: "faint", x: X(v), y: H - 20, "text-anchor": "middle" },
        v ? signed(v).replace(".0", "") : "0",
      ),
    );
  svg.append(
    draw("text", { class: "faint", x: X(0) - 8, y: H - 4, "text-anchor": "end" }, "← fewer"),
    draw("text", { class: "faint", x: X(0) + 8, y: H - 4 }, "more → (% of captions)"),
  );
  changes.forEach(({ label, difference: d, low, high, tone }, n) => {
    const y = 6 + n * rowHeight;
    const to = pairLink(system, argument.systems[base].name, { label, by: "share" });
    svg.append(
      draw(
        "a",
        { href: to, "aria-label": `${label} ${shownChange(d, false)} points: the captions that differ` },
        draw("rect", {
          class: "bar-" + tone,
          x: Math.min(X(0), X(d)),
          y: y + 2,
          width: Math.max(1, Math.abs(X(d) - X(0))),
          height: 13,
        }),
        draw("text", { x: left - 8, y: y + 13, "text-anchor": "end", class: "label-name" }, label),
      ),
      low === null
        ? ""
        : draw("path", {
            class: "whisker",
            d: `M${X(low)} ${y + 8.5}H${X(high)}M${X(low)} ${y + 5}v7M${X(high)} ${y + 5}v7`,
          }),
      draw("text", { class: tone, x: W, y: y + 13, "text-anchor": "end" }, SIGNS[tone] + shownChange(d, false)),
    );
  });
  figure.append(
    el(
      "figcaption",
      {},
      el("span", {}, "Hallucinated labels with the largest changes"),
      saveButton(figure, "labels that changed most"),
    ),
    el(
      "p",
      { class: "hint" },
      systemMark(system),
      el("bdi", {}, system),
      " compared with ",
      systemMark(argument.systems[base].name),
      el("bdi", {}, argument.systems[base].name),
      ". ",
      term("95 % intervals; filled: significant change", CHANGES_MEANING),
    ),
    svg,
  );
}

// One pair of captions

function captionPair(argument, texts, base, k) {
  const example = argument.against[base][k].example;
  if (!example)
    return el(
      "div",
      { class: "plane example" },
      el(
        "p",
        { class: "hint" },
        "No label changed significantly, so no pair of captions is shown as an example. ",
        el("a", { href: link({ page: "captions", order: "disagreement" }) }, "See the captions that disagree most"),
        ".",
      ),
    );
  return el(
    "div",
    { class: "plane example" },
    el(
      "p",
      { class: "example-head" },
      el("b", {}, "An example"),
      ": ",
      example.label
        ? [el("mark", { class: "v-hallucinated" }, example.label), " is the label with the largest tested change. "]
        : [systemMark(argument.systems[k].name), example.what + ". "],
      el(
        "a",
        { href: link({ page: "captions", image: example.image, of: argument.systems[k].name }) },
        "Image ",
        el("bdi", {}, example.image),
      ),
    ),
    el(
      "div",
      { class: "pair" },
      [base, k].map((at, n) =>
        el(
          "div",
          {},
          el("h4", {}, systemMark(argument.systems[at].name), el("bdi", {}, argument.systems[at].name)),
          texts.render(example.texts[n], false),
        ),
      ),
    ),
  );
}

// Differences with their intervals, ranked where they are many; where there is no frontier, or before it

function forest(argument, bases) {
  const aside = asideNames();
  const many = argument.systems.length > MANY;
  const rankedBy = argument.spoken.find((m) => argument.metrics[m].key === "cap_score") ?? argument.spoken[0];
  const shown = many ? [rankedBy] : argument.spoken.slice(0, 4);
  const systems = argument.systems
    .map((s, k) => k)
    .filter((k) => bases[k] !== k && !isAside(argument.systems[k].name, aside));
  const panels = shown
    .map((m) => {
      const { key, name: title, higher, plain } = argument.metrics[m];
      const found = systems
        .map((k) => ({ k, row: argument.against[bases[k]][k].rows[m] }))
        .filter(({ row }) => row && row.difference !== null);
      if (many) found.sort((a, b) => bases[a.k] - bases[b.k] || ranked(argument, bases[a.k], m, a.k, b.k));
      const rows = found.map(({ k, row }) => {
        const name = argument.systems[k].name,
          tone = toneOf(row, higher);
        return {
          name,
          short: shortMiddle(name.slice(common), many ? 26 : 20),
          mark: systemMark(name),
          value: row.difference,
          low: row.low,
          high: row.high,
          dot: row.stars && tone === "untested" ? "changed" : tone,
          door: doorOf(argument, bases[k], k, key),
          doorName: `${name}: images that cause the difference in ${title}`,
        };
      });
      const show = (v) => shownChange(v, plain);
      return { title, note: "", strong: false, higher, rows, show, least: plain ? 0.05 : 0.005 };
    })
    .filter((p) => p.rows.length);
  if (!panels.length) return null;
  const figure = el("figure", { class: "plane" });
  figure.append(
    el(
      "figcaption",
      {},
      el("span", {}, "Difference from the baseline, points"),
      saveButton(figure, argument.title + " differences"),
    ),
    el("p", { class: "hint" }, "95 % intervals. Filled: significant difference; hollow: no significant difference."),
    forestPlot(panels, many ? 210 : 170),
  );
  return figure;
}

/** The system whose change is explained: the reader's, or the one with the clearest tested change. */
function focusOf(argument, bases) {
  const wanted = address().get("focus"),
    aside = asideNames();
  const others = argument.systems
    .map((s, k) => k)
    .filter((k) => bases[k] !== k && !isAside(argument.systems[k].name, aside));
  const chosen = others.find((k) => wellFormed(argument.systems[k].name) === wanted);
  if (chosen !== undefined) return chosen;
  const cap = argument.metrics.findIndex((metric) => metric.key === "cap_score");
  const weight = (k) => {
    const entry = argument.against[bases[k]][k],
      row = entry.rows[cap >= 0 ? cap : argument.spoken[0]];
    return (entry.example ? 10 : 0) + (row.stars ? 5 : 0) + Math.abs(row.difference || 0);
  };
  return others.length ? others.reduce((a, b) => (weight(b) > weight(a) ? b : a)) : null;
}

function drawArgument(place, argument, charts, id) {
  const bases = baselines(argument),
    focus = focusOf(argument, bases);
  const at = charts.planes.findIndex((plane) => plane.set === argument.set);
  const many = argument.systems.length > MANY;
  const plane = at >= 0 ? el("figure", { class: "plane", "data-plane": at }) : null;
  const figure = argument.systems.length > 1 && (many || !plane) ? forest(argument, bases) : plane;
  const below = plane && figure !== plane ? plane : null;
  const entry = focus === null ? null : argument.against[bases[focus]][focus];
  const why = entry && entry.labels && entry.labels.length;
  const texts = argument.texts ? new Texts(argument.texts, argument.labels) : null;
  const bars = el("figure", { class: "plane changes" });
  const said = claims(argument, bases, focus);
  const [own, worst] = argument.worst && texts ? ownFaults(argument, charts.labels[0], texts) : [null, null];
  if (own) said.append(own);
  place.replaceChildren(
    el(
      "div",
      { class: "headline" },
      el("h3", {}, argument.title),
      dataLine(argument),
      baselineSelect(argument, (baseline) => {
        location.hash = link({ page: "overview", baseline });
      }),
    ),
    ...[sharingBanner(argument)].filter(Boolean),
    el("div", { class: "first" + (figure ? "" : " alone") }, said, figure),
    ...[below, worst].filter(Boolean),
    ...(why ? [el("div", { class: "second" }, bars, captionPair(argument, texts, bases[focus], focus))] : []),
  );
  place.classList.toggle("many", many);
  if (why) changeBars(bars, argument, bases[focus], focus);
  if (at >= 0) {
    const { plane: drawn, ...rest } = shownPlane(
      charts.planes[at],
      argument,
      focus === null ? undefined : bases[focus],
    );
    if (drawn.points.length) {
      const wide = matchMedia("(min-width: 1000px)").matches;
      frontier(plane, drawn, charts.iso, {
        ...rest,
        id: "o" + id,
        legend: !wide,
        quiet: many,
        height:
          wide && !below ? Math.min(440, Math.max(300, place.querySelector(".claims").offsetHeight - 46)) : undefined,
      });
    }
  }
}

export function overviewPage(charts) {
  const places = [...document.querySelectorAll("[data-argument]")];
  const drawOverview = () =>
    places.forEach((place, k) =>
      keepFocus(place, () => drawArgument(place, charts.arguments[+place.dataset.argument], charts, k)),
    );
  addPage("overview", { draw: drawOverview, arrive: drawOverview, resized: true });
}
