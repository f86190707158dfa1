// The Labels page: hallucinated and missed labels, their surface forms, and what is hallucinated together.

import { address, link } from "./address.js";
import { byId, el } from "./dom.js";
import { percent, signed, wellFormed } from "./format.js";
import { addPage } from "./pages.js";
import { table } from "./table.js";

export function labelsPage(tables, systems) {
  const select = byId("labels-system"),
    search = byId("labels-search"),
    view = byId("labels-view");
  const buttons = [...document.querySelectorAll("[data-view]")];
  const orders = { label: { by: 3, down: true }, alias: { by: 3, down: true }, beside: { by: 2, down: true } };
  systems.forEach((name, k) => select.append(el("option", { value: k }, name)));
  let current = "label";
  const toCaptions = (label, verdict, text) =>
    el(
      "a",
      { href: link({ page: "captions", system: systems[select.value], label, verdict }) },
      el("bdi", {}, text || label),
    );
  const bar = (rate, low, high) =>
    rate === null
      ? null
      : el(
          "span",
          { class: "bar" },
          el("i", { css: { left: 0, width: 100 * rate + "%" } }),
          el("i", { class: "range", css: { left: 100 * low + "%", width: 100 * (high - low) + "%" } }),
        );
  const number = (title, value) => ({ title, value, cell: (row) => String(value(row)) });

  function labelView(t, base) {
    const earlier = new Map(base.label.map((label, k) => [label, base.rate[k]]));
    const rows = t.label.map((label, k) =>
      Object.fromEntries([
        ["label", label],
        ...["mentions", "claims", "hallucinated", "rate", "low", "high", "truth", "missed", "unknown"].map((n) => [
          n,
          t[n][k],
        ]),
      ]),
    );
    for (const row of rows) {
      const before = earlier.get(row.label);
      row.missRate = row.truth ? row.missed / row.truth : null;
      row.change =
        t === base || row.rate === null || before === null || before === undefined ? null : row.rate - before;
    }
    const columns = [
      {
        title: "label",
        left: true,
        value: (r) => r.label,
        cell: (r) => toCaptions(r.label, r.hallucinated ? "hallucinated" : ""),
      },
      number("mentions", (r) => r.mentions),
      number("captions", (r) => r.claims),
      number("hallucinated", (r) => r.hallucinated),
      { title: "rate, %", value: (r) => r.rate, cell: (r) => [percent(r.rate), bar(r.rate, r.low, r.high)] },
      {
        title: "95 %",
        value: (r) => r.high,
        cell: (r) => (r.rate === null ? "" : `${percent(r.low)} – ${percent(r.high)}`),
      },
      number("present", (r) => r.truth),
      {
        title: "missed",
        value: (r) => r.missed,
        cell: (r) =>
          r.missed
            ? el(
                "a",
                {
                  href: link({ page: "captions", system: systems[select.value], label: r.label, verdict: "missed" }),
                },
                String(r.missed),
              )
            : "0",
      },
      { title: "missed, %", value: (r) => r.missRate, cell: (r) => percent(r.missRate) },
    ];
    if (t !== base)
      columns.push({
        title: "rate − baseline",
        value: (r) => r.change,
        cell: (r) =>
          r.change === null
            ? ""
            : el("span", { class: r.change > 0 ? "bad" : r.change < 0 ? "good" : "" }, signed(r.change)),
      });
    if (rows.some((r) => r.unknown)) columns.push(number("unknown", (r) => r.unknown));
    const kept = rows.filter((r) => r.label.toLowerCase().includes(search.value.toLowerCase()));
    return [
      el(
        "p",
        { class: "hint" },
        "Captions that name the label, of these hallucinated, with Wilson’s 95 % interval; images that have it, of these missed. Follow a label or a number to its captions.",
      ),
      table("By label", columns, kept, orders.label),
    ];
  }

  function aliasView(t) {
    const columns = [
      {
        title: "surface form",
        left: true,
        value: (r) => r[0],
        cell: (r) =>
          el(
            "a",
            { href: link({ page: "captions", system: systems[select.value], label: r[1], text: r[0] }) },
            el("bdi", {}, r[0]),
          ),
      },
      { title: "label", left: true, value: (r) => r[1], cell: (r) => toCaptions(r[1], "") },
      number("mentions", (r) => r[2]),
      number("hallucinated", (r) => r[3]),
      {
        title: "rate, %",
        value: (r) => (r[2] - r[4] ? r[3] / (r[2] - r[4]) : null),
        cell: (r) => percent(r[2] - r[4] ? r[3] / (r[2] - r[4]) : null),
      },
      number("unknown", (r) => r[4]),
    ];
    const wanted = search.value.toLowerCase();
    const kept = t.aliases.filter((r) => r[0].includes(wanted) || r[1].toLowerCase().includes(wanted));
    return [
      el(
        "p",
        { class: "hint" },
        "A surface form that is wrong far more often than its label’s others points at the matcher, not at the model.",
      ),
      table("By alias", columns, kept, orders.alias),
    ];
  }

  function togetherView(t) {
    const [labels, counts] = t.together;
    if (!labels.length) return [el("p", {}, "This system hallucinates nothing.")];
    const most = Math.max(1, ...counts.map((row, k) => Math.max(0, ...row.filter((_, j) => j !== k))));
    const heat = el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Hallucinated together" },
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
      { title: "hallucinated", left: true, value: (r) => r[0], cell: (r) => toCaptions(r[0], "hallucinated") },
      { title: "beside (supported)", left: true, value: (r) => r[1], cell: (r) => r[1] },
      number("captions", (r) => r[2]),
    ];
    const wanted = search.value.toLowerCase();
    return [
      el(
        "p",
        { class: "hint" },
        "Captions that hallucinate both labels (the diagonal: captions that hallucinate the label), and the supported labels beside which hallucinations stand.",
      ),
      heat,
      el("h3", {}, "Hallucinated beside"),
      table(
        "Hallucinated beside",
        columns,
        t.beside.filter((r) => r[0].includes(wanted) || r[1].includes(wanted)),
        orders.beside,
      ),
    ];
  }

  const update = () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.view === current));
    const t = tables[select.value];
    view.replaceChildren(
      ...(current === "label" ? labelView(t, tables[0]) : current === "alias" ? aliasView(t) : togetherView(t)),
    );
  };
  const remember = () => {
    history.replaceState(
      null,
      "",
      link({
        page: "labels",
        view: current === "label" ? "" : current,
        system: +select.value ? systems[select.value] : "",
        search: search.value,
      }),
    );
    update();
  };
  for (const button of buttons)
    button.addEventListener("click", () => {
      current = button.dataset.view;
      remember();
    });
  select.addEventListener("change", remember);
  search.addEventListener("input", remember);
  const arrive = () => {
    const at = address();
    current = ["alias", "together"].find((v) => v === at.get("view")) || "label";
    select.value = Math.max(0, systems.map(wellFormed).indexOf(at.get("system")));
    search.value = at.get("search") || "";
    update();
  };
  addPage("labels", { draw: arrive, arrive });
}
