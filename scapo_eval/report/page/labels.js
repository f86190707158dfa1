// The Labels page: hallucinated and missed labels, their surface forms, and what is hallucinated together.

import { address, link, orderFrom, orderText } from "./address.js";
import { comparable } from "./baseline.js";
import { hallucinatedCaptions } from "./captions.js";
import { byId, el } from "./dom.js";
import { pairLink } from "./doors.js";
import { percent, signed, wellFormed } from "./format.js";
import { addPage, remember } from "./pages.js";
import { saveFile } from "./save.js";
import { table } from "./table.js";

const VIEWS = ["label", "alias", "together"];
const USUAL = { label: { by: 3, down: true }, alias: { by: 7, down: true }, together: { by: 2, down: true } };
const MARKED = "labels-marks"; // id of what holds the export's button

/** A rate as a bar with its interval. */
const bar = (rate, low, high) =>
  rate === null
    ? null
    : el(
        "span",
        { class: "bar" },
        el("i", { css: { left: 0, width: 100 * rate + "%" } }),
        el("i", { class: "range", css: { left: 100 * low + "%", width: 100 * (high - low) + "%" } }),
      );
const number = (title, value) => ({ title, value, cell: (row) => value(row).toLocaleString("en") });

/** @param {SurfaceForm} form */
const formKey = (form) => form.surface + "\n" + form.label;
const change = (value) => (value === null ? "" : signed(value));

/** The rows of a system's table of labels. */
const labelRows = (t) =>
  t.label.map((label, k) => {
    const row = { label };
    for (const name of ["mentions", "claims", "hallucinated", "rate", "low", "high", "truth", "missed", "unknown"])
      row[name] = t[name][k];
    row.missRate = row.truth ? row.missed / row.truth : null;
    return row;
  });

/** @returns {SurfaceForm[]} */
const formsOf = ({ surface, ...columns }) =>
  surface.map((word, k) => {
    const form = { surface: word };
    for (const name in columns) form[name] = columns[name][k];
    return form;
  });

export function labelsPage(charts) {
  const { labels: packed, captions: systems, suspects, all_labels: allLabels } = charts;
  const tables = packed.map((t) => ({ ...t, forms: formsOf(t.forms) }));
  const select = byId("labels-system"),
    baseline = byId("labels-base"),
    search = byId("labels-search"),
    view = byId("labels-view");
  const buttons = [...document.querySelectorAll("[data-view]")];
  const suspected = new Map(suspects.map((form) => [formKey(form), form]));
  let current = "label",
    order = { ...USUAL.label },
    marks = null; // keys of the surface forms that the reader has marked; null: those that are suspected
  systems.forEach((name, k) => {
    select.append(el("option", { value: k }, name));
    baseline.append(el("option", { value: k }, name));
  });

  const captionsOf = (system, values, ...text) =>
    el("a", { href: link({ page: "captions", system: systems[system], ...values }) }, ...text);
  const toCaptions = (label, verdict, text) =>
    captionsOf(select.value, { label, verdict }, el("bdi", {}, text || label));
  const door = (label, by, value) =>
    value
      ? el("a", { href: pairLink(systems[select.value], systems[baseline.value], { label, by }) }, change(value))
      : change(value);
  /** Label -> its tested change in one system's captions against another's; null where it was not compared. */
  function testedAgainst(k, base) {
    const argument = charts.arguments.find((each) => each.set === "capscore");
    const at = (n) => argument.systems.findIndex((system) => system.name === systems[n]);
    if (!argument || !comparable(argument, at(base), at(k))) return null;
    return new Map(argument.against[at(base)][at(k)].tested.map((row) => [row.label, row]));
  }
  const found = (row) => row.toLowerCase().includes(search.value.toLowerCase());

  function labelView(t, base) {
    const rows = labelRows(t);
    const before = new Map(labelRows(base).map((row) => [row.label, row]));
    const tested = testedAgainst(select.value, baseline.value);
    const minus = (a, b) => (a === null || b === null || b === undefined ? null : a - b);
    for (const row of rows) {
      row.before = t === base ? null : before.get(row.label) || null;
      const { difference, tone } = (tested && tested.get(row.label)) || {
        difference: tested ? 0 : null,
        tone: "untested",
      };
      Object.assign(row, { share: difference, tone });
      row.missChange = row.before && minus(row.missRate, row.before.missRate);
    }
    const counted = (name, verdict) => ({
      title: verdict,
      value: (r) => r[name],
      cell: (r) => (r[name] ? toCaptions(r.label, verdict, r[name].toLocaleString("en")) : "0"),
    });
    const columns = [
      { title: "label", left: true, value: (r) => r.label, cell: (r) => toCaptions(r.label, "") },
      number("mentions", (r) => r.mentions),
      number("captions", (r) => r.claims),
      counted("hallucinated", "hallucinated"),
      { title: "rate, %", value: (r) => r.rate, cell: (r) => [percent(r.rate), bar(r.rate, r.low, r.high)] },
      {
        title: "95 %",
        value: (r) => r.high,
        cell: (r) => (r.rate === null ? "" : `${percent(r.low)} – ${percent(r.high)}`),
      },
      number("present", (r) => r.truth),
      counted("missed", "missed"),
      { title: "missed, %", value: (r) => r.missRate, cell: (r) => percent(r.missRate) },
    ];
    if (t !== base)
      columns.push(
        {
          title: "baseline: hallucinated",
          value: (r) => r.before && r.before.hallucinated,
          cell: (r) =>
            r.before && r.before.hallucinated
              ? captionsOf(
                  baseline.value,
                  { label: r.label, verdict: "hallucinated" },
                  r.before.hallucinated.toLocaleString("en"),
                )
              : "0",
        },
        {
          title: "change, % of captions",
          value: (r) => r.share,
          cell: (r) =>
            el("span", { class: r.tone }, door(r.label, "share", r.share), r.tone === "untested" ? "" : " *"),
        },
        {
          title: "change in missed, %",
          value: (r) => r.missChange,
          cell: (r) => door(r.label, "missed", r.missChange),
        },
      );
    if (rows.some((r) => r.unknown)) columns.push(number("unknown", (r) => r.unknown));
    return [
      el(
        "p",
        { class: "hint" },
        "Rate: share of captions naming the label that hallucinate it, with a 95 % Wilson interval. Missed: share of captions of images with the label that do not name it. " +
          "Change, % of captions: difference from the baseline in the share of captions of shared images that hallucinate the label; " +
          "* marks significant changes (exact sign test over images, corrected for all labels by Tarone and Holm). The change in missed is not tested. " +
          "Click a label or a number to see its captions.",
      ),
      table(
        "By label",
        columns,
        rows.filter((r) => found(r.label)),
        order,
        changed,
      ),
    ];
  }

  // By alias: [surface, label, mentions, hallucinated, unknown, unclaimed] of one system

  const isMarked = (key) => (marks ? marks.has(key) : suspected.has(key));
  const marksText = () => (marks === null ? "" : [...marks].map((key) => key.replace("\n", "@")).join(";") || "none");

  function exportMarks() {
    const forms = [...(marks || suspected.keys())].map((key) => key.split("\n"));
    const lines = forms.flatMap(([surface, label]) => {
      const all = tables.flatMap((t) => t.forms.filter((form) => form.surface === surface && form.label === +label));
      const counts = {};
      for (const key of ["mentions", "hallucinated", "unknown", "unclaimed"])
        counts[key] = all.reduce((n, form) => n + form[key], 0);
      return hallucinatedCaptions(surface, +label).map((place) =>
        JSON.stringify({ surface, label: allLabels[label], ...counts, ...place }),
      );
    });
    saveFile("matcher_faults.jsonl", lines.map((line) => line + "\n").join(""), "application/jsonl");
  }

  function aliasView(t) {
    const rate = (form) => (form.mentions - form.unknown ? form.hallucinated / (form.mentions - form.unknown) : null);
    const mark = (form) => {
      const key = formKey(form),
        row = suspected.get(key);
      return [
        el("input", {
          type: "checkbox",
          checked: isMarked(key),
          "aria-label": `matcher error: ${form.surface} as ${allLabels[form.label]}`,
          onchange: (event) => {
            marks = marks || new Set(suspected.keys());
            if (event.target.checked) marks.add(key);
            else marks.delete(key);
            showMarks();
            changed();
          },
        }),
        row
          ? ` ${percent(row.hallucinated / row.known, 0)} % hallucinated in all systems, other aliases ${percent(row.others_hallucinated / row.others_known, 0)} %`
          : null,
      ];
    };
    const columns = [
      {
        title: "alias",
        left: true,
        value: (form) => form.surface,
        cell: (form) =>
          captionsOf(select.value, { label: allLabels[form.label], word: form.surface }, el("bdi", {}, form.surface)),
      },
      {
        title: "label",
        left: true,
        value: (form) => allLabels[form.label],
        cell: (form) => toCaptions(allLabels[form.label], ""),
      },
      number("mentions", (form) => form.mentions),
      {
        title: "hallucinated",
        value: (form) => form.hallucinated,
        cell: (form) =>
          form.hallucinated
            ? captionsOf(
                select.value,
                { label: allLabels[form.label], word: form.surface, verdict: "hallucinated" },
                form.hallucinated.toLocaleString("en"),
              )
            : "0",
      },
      { title: "rate, %", value: rate, cell: (form) => percent(rate(form)) },
      number("unknown", (form) => form.unknown),
      number("not a claim", (form) => form.unclaimed),
      {
        title: "likely matcher error",
        left: true,
        value: (form) => (suspected.get(formKey(form))?.hallucinated ?? 0) + (isMarked(formKey(form)) ? 1 : 0),
        cell: mark,
      },
    ];
    const showMarks = () => {
      const n = (marks || suspected).size;
      byId(MARKED).replaceChildren(
        el(
          "button",
          { type: "button", disabled: n === 0, onclick: exportMarks },
          `Save captions of ${n} marked aliases as JSON Lines`,
        ),
      );
    };
    setTimeout(showMarks);
    return [
      el(
        "p",
        { class: "hint" },
        "If one alias of a label is hallucinated far more often than the others, the matcher is probably wrong, not the model. An alias is marked if, over all systems, it has at least 5 hallucinated mentions, at least twice the rate of the label’s other aliases, and an interval that does not overlap theirs. You can change the marks. Each line of the saved file contains one caption. Check the file with ",
        el("code", {}, "scapo-eval vocab check VOCABULARY --captions matcher_faults.jsonl"),
        ". “Not a claim” counts mentions that are negated, hedged, compared or quoted, for example.",
      ),
      el("p", { id: MARKED }),
      table(
        "By alias",
        columns,
        t.forms.filter((form) => found(form.surface) || found(allLabels[form.label])),
        order,
        changed,
      ),
    ];
  }

  function togetherView(t) {
    const { labels, counts } = t.together;
    if (!labels.length) return [el("p", {}, "This system has no hallucinated labels.")];
    const most = Math.max(1, ...counts.map((row, k) => Math.max(0, ...row.filter((_, j) => j !== k))));
    const heat = el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Hallucinated in the same caption" },
      el(
        "table",
        { class: "heat" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "both hallucinated"),
            labels.map((label) => el("th", { scope: "col" }, label)),
          ),
        ),
        el(
          "tbody",
          {},
          labels.map((label, k) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, toCaptions(label, "hallucinated")),
              counts[k].map((n, j) =>
                el(
                  "td",
                  {
                    class: k === j && "dim",
                    css:
                      k === j || !n
                        ? {}
                        : {
                            background: `color-mix(in srgb, var(--v1b) ${Math.round(20 + (80 * n) / most)}%, var(--surface))`,
                          },
                  },
                  n ? String(n) : "",
                ),
              ),
            ),
          ),
        ),
      ),
    );
    const columns = [
      {
        title: "hallucinated",
        left: true,
        value: (r) => r.hallucinated,
        cell: (r) => toCaptions(r.hallucinated, "hallucinated"),
      },
      { title: "supported", left: true, value: (r) => r.present, cell: (r) => r.present },
      number("captions", (r) => r.captions),
    ];
    return [
      el(
        "p",
        { class: "hint" },
        "The first table counts captions that hallucinate both labels; the diagonal counts captions that hallucinate the label. The second table counts captions that hallucinate one label and correctly name the other.",
      ),
      heat,
      el("h3", {}, "Supported labels in captions with hallucinations"),
      table(
        "Supported labels in captions with hallucinations",
        columns,
        t.beside.filter((r) => found(r.hallucinated) || found(r.present)),
        order,
        changed,
      ),
    ];
  }

  const update = () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.view === current));
    baseline.parentElement.hidden = current !== "label" || systems.length < 2;
    const t = tables[select.value];
    view.replaceChildren(
      ...(current === "label"
        ? labelView(t, tables[baseline.value])
        : current === "alias"
          ? aliasView(t)
          : togetherView(t)),
    );
  };
  const changed = () =>
    remember({
      view: current === "label" ? "" : current,
      system: +select.value ? systems[select.value] : "",
      baseline: +baseline.value ? systems[baseline.value] : "",
      search: search.value,
      sort: orderText(order) === orderText(USUAL[current]) ? "" : orderText(order),
      marks: marksText(),
    });
  const redraw = () => {
    changed();
    update();
  };
  for (const button of buttons)
    button.addEventListener("click", () => {
      current = button.dataset.view;
      order = { ...USUAL[current] };
      redraw();
    });
  select.addEventListener("change", redraw);
  baseline.addEventListener("change", redraw);
  search.addEventListener("input", redraw);
  const arrive = () => {
    const at = address(),
      place = (name) => Math.max(0, systems.map(wellFormed).indexOf(at.get(name)));
    current = VIEWS.includes(at.get("view")) ? at.get("view") : "label";
    order = orderFrom(at.get("sort"), USUAL[current]);
    select.value = place("system");
    baseline.value = place("baseline");
    search.value = at.get("search") || "";
    marks = at.get("marks")
      ? new Set(
          at
            .get("marks")
            .split(";")
            .map((mark) => mark.replace(/@(\d+)$/, "\n$1"))
            .filter((mark) => mark.includes("\n")),
        )
      : null;
    update();
  };
  addPage("labels", { draw: arrive, arrive });
}
