// The report's own script: unpacks the columns, draws the pages. Text enters the page as text nodes only.
"use strict";
(() => {
  const ROW = 44; // height of a row of the list in pixels, as in page.css
  const VERDICTS = ["supported", "hallucinated", "unknown", "ignored"];
  const MARKERS = [
    "M-6-6H6V6H-6Z",
    "M0-7.5L7.5 0 0 7.5-7.5 0Z",
    "M0-7.5L7 5.5H-7Z",
    "M-6.5 0a6.5 6.5 0 1 0 13 0 6.5 6.5 0 1 0-13 0Z",
    "M0 7.5L7-5.5H-7Z",
    "M-2.2-7H2.2V-2.2H7V2.2H2.2V7H-2.2V2.2H-7V-2.2H-2.2Z",
  ];
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const percent = (x, digits = 1) => (x === null || x === undefined ? "n/a" : (100 * x).toFixed(digits));
  const signed = (x) => (x >= 0 ? "+" : "−") + Math.abs(100 * x).toFixed(1);
  const short = (text, most) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
  const wellFormed = (text) => text.replace(/\p{Cs}/gu, "\ufffd"); // as URLs carry it
  let names = []; // of all systems, for colors and markers
  let common = 0; // characters that all names begin with, up to a separator: left out where room is short

  function fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "css") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  }
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const color = (k) => `var(--s${k % 8})`;
  const colorOf = (name) => color(Math.max(0, names.indexOf(name)));
  const markerOf = (name) => MARKERS[Math.max(0, names.indexOf(name)) % MARKERS.length];

  async function unpack(name) {
    const packed = atob(byId("data-" + name).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let k = 0; k < packed.length; k++) bytes[k] = packed.charCodeAt(k);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // Address: everything that a link must bring back stands in the hash

  const address = () => new URLSearchParams(location.hash.slice(1));
  function link(values) {
    const params = new URLSearchParams();
    for (const [key, value] of Object.entries(values))
      if (value !== "" && value !== null && value !== undefined && value !== false) params.set(key, value);
    return "#" + params;
  }

  // Theme: the reader's system decides until the button does

  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = null;
  const paintTheme = () => {
    document.documentElement.dataset.theme = theme || (dark.matches ? "dark" : "light");
  };
  paintTheme();
  dark.addEventListener("change", paintTheme);
  byId("theme").addEventListener("click", () => {
    theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    paintTheme();
  });
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    for (const details of document.querySelectorAll("details")) details.open = true;
    drawAll();
  });
  addEventListener("afterprint", paintTheme);

  // Pages

  const sections = [...document.querySelectorAll("section[data-page]")];
  const painters = {}; // page -> function that draws it; called when it is first shown and when the width changes
  const painted = new Set();
  const paint = (page) => {
    if (painters[page] && !painted.has(page)) {
      painted.add(page);
      painters[page]();
    }
  };
  const drawAll = () => sections.forEach((section) => paint(section.dataset.page));
  let shown = null;

  function show() {
    const wanted = address().get("page");
    const page = sections.some((s) => s.dataset.page === wanted) ? wanted : sections[0] && sections[0].dataset.page;
    for (const section of sections) section.hidden = section.dataset.page !== page;
    for (const a of document.querySelectorAll("nav a")) {
      if (a.hash === "#page=" + page) a.setAttribute("aria-current", "page");
      else a.removeAttribute("aria-current");
    }
    if (shown !== null && shown !== page) scrollTo(0, 0);
    shown = page;
    paint(page);
    if (page === "captions" && captions) captions.fromAddress();
    if (page === "labels" && labelsFromAddress) labelsFromAddress();
  }

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const page of ["frontier", "guards", "training"]) painted.delete(page);
    if (shown) paint(shown);
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    const text = button.dataset.text || code.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // no permission: select it, so that the reader can copy
      if (code) getSelection().selectAllChildren(code);
      button.textContent = code ? "Selected" : "Not allowed";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });

  // Frontier

  function ticks(low, high, count = 6) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
    const out = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
      out.push(Math.abs(v) < step / 1e6 ? 0 : v);
    return out;
  }
  const path = (points) => points.map((p, k) => (k ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");
  const key = (list) =>
    el(
      "div",
      { class: "key" },
      list.map(([name, k]) => el("span", {}, swatch(k), el("bdi", {}, name))),
    );
  const swatch = (k) => el("span", { class: "swatch", css: { background: color(k) } });

  function frontier(figure, plane, iso, index) {
    const W = Math.max(300, (figure.clientWidth || 740) - 20),
      H = Math.min(560, Math.max(340, W * 0.62));
    const box = { left: 62, right: W - 16, top: 14, bottom: H - 46 };
    const all = plane.points.flatMap((p) => [[p[1], p[2]], ...p[4]]);
    const range = (k) => {
      const low = Math.min(...all.map((p) => p[k])),
        high = Math.max(...all.map((p) => p[k]));
      const pad = Math.max(0.3 * (high - low), 0.02);
      return [Math.max(0, low - pad), Math.min(1, high + pad)];
    };
    const [x0, x1] = range(0),
      [y0, y1] = range(1);
    const X = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left);
    const Y = (v) => box.bottom - ((v - y0) / (y1 - y0)) * (box.bottom - box.top);
    const clip = "clip" + index,
      arrow = "arrow" + index;
    const inner = draw("g", { "clip-path": `url(#${clip})` });
    const [, bx, by] = plane.points[0];
    inner.append(draw("rect", { class: "shade", x: X(x0), y: Y(by), width: X(bx) - X(x0), height: Y(y0) - Y(by) }));
    const front = draw("g");
    const placed = []; // boxes of labels, so that none covers another
    const covered = (a, b, w, h) => placed.some(([c, d, e, f]) => a < c + e && c < a + w && b < d + f && d < b + h);
    const axes = draw("g");
    for (const v of ticks(x0, x1, W < 520 ? 4 : 8)) {
      axes.append(
        draw("line", { class: "grid", x1: X(v), x2: X(v), y1: box.top, y2: box.bottom }),
        draw("text", { class: "faint", x: X(v), y: box.bottom + 18, "text-anchor": "middle" }, percent(v)),
      );
    }
    for (const v of ticks(y0, y1)) {
      axes.append(
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
        draw("text", { class: "faint", x: box.left - 7, y: Y(v) + 4, "text-anchor": "end" }, percent(v)),
      );
    }
    axes.append(
      draw("path", { class: "axis", fill: "none", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }),
      draw(
        "text",
        { class: "faint", x: box.right, y: H - 8, "text-anchor": "end" },
        "Hal. Rate, % — more faithful to the left",
      ),
      draw(
        "text",
        { class: "faint", x: -box.top, y: 13, transform: "rotate(-90)", "text-anchor": "end" },
        "Cover Rate, %",
      ),
    );
    const corner = (x, y, anchor, text, extra) => {
      front.append(draw("text", { class: "corner halo " + extra, x, y, "text-anchor": anchor }, text));
      placed.push([anchor === "end" ? x - 150 : x, y - 14, 150, 18]);
    };
    corner(box.left + 10, box.bottom - 12, "start", "saying less", "less");
    corner(box.left + 10, box.top + 18, "start", "saying right", "");
    corner(box.right - 8, box.bottom - 12, "end", "worse on both", "faint");
    if (W > 480) corner(box.right - 8, box.top + 18, "end", "saying more, wrong more", "faint");
    for (const [level, points] of iso) {
      if (Math.max(x1 - x0, y1 - y0) > 0.5 && Math.round(100 * level) % 10) continue; // half as many curves in a wide view
      const inside = points.filter(([x, y]) => x >= x0 && x <= x1 && y >= y0 && y <= y1);
      if (inside.length < 2) continue;
      inner.append(draw("path", { class: "iso", d: path(points.map(([x, y]) => [X(x), Y(y)])) }));
      const [x, y] = inside[inside.length - 1];
      const right = Math.min(X(x), box.right - 4),
        low = Math.max(Y(y) - 5, box.top + 12);
      if (right - 52 < box.left || covered(right - 52, low - 12, 52, 16)) continue;
      front.append(
        draw("text", { class: "faint halo", x: right, y: low, "text-anchor": "end" }, "Cap. " + percent(level, 0)),
      );
      placed.push([right - 52, low - 12, 52, 16]);
    }
    for (const trail of plane.trails) {
      inner.append(
        draw("path", {
          d: path(trail.map((k) => [X(plane.points[k][1]), Y(plane.points[k][2])])),
          fill: "none",
          "stroke-width": 2,
          css: { stroke: colorOf(plane.points[trail[trail.length - 1]][0]) },
        }),
      );
    }
    for (const k of plane.arrows) {
      const [name, x, y] = plane.points[k];
      const dx = X(x) - X(bx),
        dy = Y(y) - Y(by),
        length = Math.hypot(dx, dy);
      if (length > 26) {
        inner.append(
          draw("line", {
            x1: X(bx) + (dx / length) * 10,
            y1: Y(by) + (dy / length) * 10,
            x2: X(x) - (dx / length) * 12,
            y2: Y(y) - (dy / length) * 12,
            "stroke-width": 1.6,
            "marker-end": `url(#${arrow})`,
            css: { stroke: colorOf(name), color: colorOf(name) },
          }),
        );
      }
    }
    const inTrail = new Set(plane.trails.flatMap((trail) => trail.slice(0, -1)));
    plane.points.forEach(([name, x, y, score, ellipse], k) => {
      const tint = colorOf(name);
      if (ellipse.length && !inTrail.has(k))
        inner.append(
          draw("path", {
            d: path(ellipse.map(([a, b]) => [X(a), Y(b)])) + "Z",
            "fill-opacity": 0.13,
            "stroke-opacity": 0.7,
            css: { fill: tint, stroke: tint },
          }),
        );
      front.append(
        draw(
          "g",
          { transform: `translate(${X(x)} ${Y(y)})${inTrail.has(k) ? " scale(.6)" : ""}` },
          draw(
            "path",
            { d: markerOf(name), "stroke-width": 1.5, css: { fill: tint, stroke: "var(--surface)" } },
            draw("title", {}, `${name}: Hal. ${percent(x)}, Cover ${percent(y)}, Cap. Score ${percent(score)}`),
          ),
        ),
      );
      placed.push([X(x) - 8, Y(y) - 8, 16, 16]);
    });
    plane.points.forEach(([name, x, y, score], k) => {
      if (inTrail.has(k) && k !== 0) return;
      const text = `${short(name.slice(common), W < 520 ? 14 : 34)} ${percent(score)}`;
      const w = 7 * text.length,
        free = ([a, b]) =>
          a > box.left && a + w < box.right && b > box.top && b + 16 < box.bottom + 4 && !covered(a, b, w, 16);
      const spots = [];
      for (const dy of [-8, -24, 10, -40, 26, 42, -56, 58])
        spots.push([X(x) + 12, Y(y) + dy], [X(x) - 12 - w, Y(y) + dy]);
      const spot = spots.find(free) || [Math.max(box.left + 4, Math.min(X(x) + 12, box.right - w)), Y(y) - 8];
      placed.push([...spot, w, 16]);
      front.append(draw("text", { class: "halo", x: spot[0], y: spot[1] + 13 }, text));
    });
    figure.replaceChildren(
      el("figcaption", {}, plane.title, key(plane.points.map((p) => [p[0], Math.max(0, names.indexOf(p[0]))]))),
      draw(
        "svg",
        {
          viewBox: `0 0 ${W} ${H}`,
          role: "img",
          "aria-label":
            `${plane.title}: ` +
            plane.points.map((p) => `${p[0]} Hal. ${percent(p[1])} Cover ${percent(p[2])}`).join("; "),
        },
        draw(
          "defs",
          {},
          draw(
            "clipPath",
            { id: clip },
            draw("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }),
          ),
          draw(
            "marker",
            {
              id: arrow,
              viewBox: "0 0 10 10",
              refX: 8,
              refY: 5,
              markerWidth: 7,
              markerHeight: 7,
              orient: "auto-start-reverse",
            },
            draw("path", { d: "M0 0L10 5 0 10z", fill: "context-stroke" }),
          ),
        ),
        axes,
        inner,
        front,
      ),
    );
  }

  // Tables that sort

  function table(caption, columns, rows, order) {
    const head = el("tr"),
      body = el("tbody");
    let by = order.by,
      down = order.down;
    const paintRows = () => {
      const value = columns[by].value;
      const sorted = rows
        .map((row, k) => [value(row), k, row])
        .sort((a, b) => {
          if (a[0] === b[0]) return a[1] - b[1];
          if (a[0] === null || b[0] === null) return a[0] === null ? 1 : -1; // no value is last in either direction
          return (a[0] < b[0] ? -1 : 1) * (down ? -1 : 1);
        });
      body.replaceChildren(
        ...sorted.map(([, , row]) =>
          el(
            "tr",
            {},
            columns.map((column, k) =>
              el(k ? "td" : "th", { class: column.left && "left", scope: k ? null : "row" }, column.cell(row)),
            ),
          ),
        ),
      );
      [...head.children].forEach((th, k) => {
        if (k === by) th.setAttribute("aria-sort", down ? "descending" : "ascending");
        else th.removeAttribute("aria-sort");
      });
    };
    columns.forEach((column, k) =>
      head.append(
        el(
          "th",
          { scope: "col", class: column.left && "left" },
          el(
            "button",
            {
              type: "button",
              onclick: () => {
                down = k === by ? !down : !column.left;
                by = k;
                order.by = by;
                order.down = down;
                paintRows();
              },
            },
            column.title,
          ),
        ),
      ),
    );
    paintRows();
    return el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", {}, el("thead", {}, head), body),
    );
  }

  // Labels

  let labelsFromAddress = null;
  function labelsPage(tables, systems) {
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
    labelsFromAddress = () => {
      const at = address();
      current = ["alias", "together"].find((v) => v === at.get("view")) || "label";
      select.value = Math.max(0, systems.map(wellFormed).indexOf(at.get("system")));
      search.value = at.get("search") || "";
      update();
    };
    painters.labels = labelsFromAddress;
  }

  // Marked texts

  const starts = (lengths) => {
    const out = new Uint32Array(lengths.length + 1);
    lengths.forEach((n, k) => {
      out[k + 1] = out[k] + n;
    });
    return out;
  };
  class Texts {
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

  // Captions

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

  let captions = null;
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
      for (const s of this.systems)
        this.form.elements.system.append(el("option", { value: wellFormed(s.name) }, s.name));
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

  // Curves

  function curve(title, series, options = {}) {
    const W = Math.max(240, options.width || 300),
      H = options.height || 190,
      box = { left: 46, right: W - 10, top: 8, bottom: H - 24 };
    const xs = series.flatMap((s) => s.x),
      ys = series.flatMap((s) => s.y.filter((v) => v !== null));
    if (!ys.length) return null;
    const x0 = Math.min(...xs),
      x1 = Math.max(...xs, x0 + 1);
    let y0 = Math.min(...ys),
      y1 = Math.max(...ys);
    if (options.zero) y0 = Math.min(0, y0);
    if (y0 === y1) {
      y0 -= Math.abs(y0) * 0.1 || 0.5;
      y1 += Math.abs(y1) * 0.1 || 0.5;
    }
    const X = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left),
      Y = (v) => box.bottom - ((v - y0) / (y1 - y0)) * (box.bottom - box.top);
    const tick = (v) =>
      options.percent
        ? +(100 * v).toFixed(1)
        : Math.abs(v) >= 1e4 || (v && Math.abs(v) < 1e-3)
          ? v.toExponential(0)
          : +v.toPrecision(3);
    const svg = draw("svg", {
      viewBox: `0 0 ${W} ${H}`,
      role: "img",
      "aria-label":
        `${title}: ` +
        series
          .map((s) => {
            const y = s.y.filter((v) => v !== null);
            return y.length ? `${s.name} from ${tick(y[0])} to ${tick(y[y.length - 1])}` : "";
          })
          .join("; "),
    });
    for (const v of ticks(y0, y1, 4))
      svg.append(
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
        draw("text", { class: "faint", x: box.left - 6, y: Y(v) + 4, "text-anchor": "end" }, String(tick(v))),
      );
    for (const v of ticks(x0, x1, 4))
      svg.append(
        draw(
          "text",
          { class: "faint", x: X(v), y: H - 6, "text-anchor": "middle" },
          String(tick(options.percent ? v / 100 : v)) + (options.unit || ""),
        ),
      );
    for (const s of series) {
      const runs = [[]]; // a gap where a step has no value
      s.x.forEach((x, k) => {
        if (s.y[k] === null) runs.push([]);
        else runs[runs.length - 1].push([X(x), Y(s.y[k])]);
      });
      for (const run of runs.filter((r) => r.length))
        svg.append(
          draw(
            "path",
            {
              d: path(run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1]]]),
              fill: "none",
              "stroke-width": 2,
              css: { stroke: color(s.color) },
            },
            draw("title", {}, s.name),
          ),
        );
    }
    for (const [x, y, text] of options.marks || [])
      svg.append(draw("path", { class: "alarm", d: `M${X(x) - 5} ${Y(y) - 9}h10l-5 8z` }, draw("title", {}, text)));
    const cursor = draw("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
    svg.append(cursor);
    const move = (step) => {
      cursor.setAttribute("visibility", step >= x0 && step <= x1 ? "visible" : "hidden");
      cursor.setAttribute("x1", X(step));
      cursor.setAttribute("x2", X(step));
    };
    return {
      figure: el(
        "figure",
        {},
        el("figcaption", {}, title, series.length > 1 ? key(series.map((s) => [s.name, s.color])) : null),
        svg,
      ),
      move,
    };
  }

  function trainingPage(runs) {
    const texts = runs.map((run) => new Texts(run.texts, run.labels));
    const slider = byId("step"),
      output = byId("step-shown");
    const all = [...new Set(runs.flatMap((run) => (run.step.length ? run.step : run.columns.step)))].sort(
      (a, b) => a - b,
    );
    slider.max = Math.max(0, all.length - 1);
    slider.value = slider.max;
    const known = new Set();
    const columns = [...new Set(runs.flatMap((run) => Object.keys(run.columns)))].filter((name) => name !== "step");
    const group = (title, members, options) => {
      members.forEach((name) => known.add(name));
      return [title, members.filter((name) => columns.includes(name)), options || {}];
    };
    const charts = [
      group("Hal. Rate, %", ["hal_rate"], { percent: true }),
      group("Cover Rate, %", ["cover_rate"], { percent: true }),
      group("Cap. Score, %", ["cap_score"], { percent: true }),
      group("Held out: Hal. Rate, %", ["evaluation_hal_rate"], { percent: true }),
      group("Held out: Cover Rate, %", ["evaluation_cover_rate"], { percent: true }),
      group("Held out: Cap. Score, %", ["evaluation_cap_score"], { percent: true }),
      group("Reward", ["reward"]),
      group("Reward parts", ["reward_new", "reward_hal", "reward_reg"]),
      group("Length, tokens", ["length"]),
      group("KL to the reference", ["kl"]),
      group("Gradient norm", ["grad_norm"]),
      group(
        "Seconds per phase",
        columns.filter((name) => name.startsWith("seconds")),
        { zero: true },
      ),
    ];
    for (const name of columns) if (!known.has(name)) charts.push([name, [name], {}]);
    if (runs.length > 1)
      charts.splice(
        0,
        charts.length,
        ...charts.flatMap(([title, members, options]) =>
          members.length > 1 ? members.map((m) => [m, [m], options]) : [[title, members, options]],
        ),
      );
    const line = (run, name) => {
      // a value at every tenth step is a line; one that is missing now and then leaves a gap
      const y = run.columns[name],
        there = y.map((v, k) => k).filter((k) => y[k] !== null),
        x = run.columns.step;
      return 2 * there.length > y.length ? { x, y } : { x: there.map((k) => x[k]), y: there.map((k) => y[k]) };
    };
    const short = (v) => String(+v.toPrecision(3));
    const alarms = runs.flatMap((run) =>
      run.alarms.map(([step, name, metric, value, threshold, setting]) => ({
        cells: [
          ...(runs.length > 1 ? [run.name] : []),
          String(step),
          name,
          metric,
          short(value),
          short(threshold),
          setting,
        ],
        step,
        metric,
        value,
        text: `${runs.length > 1 ? run.name + ", " : ""}step ${step}: ${name}: ${short(value)}, threshold ${short(threshold)}`,
      })),
    );
    if (alarms.length) {
      const heads = ["Step", "Alarm", "Quantity", "Value", "Threshold", "Setting"];
      if (runs.length > 1) heads.unshift("Run");
      byId("alarms").replaceChildren(
        el("h3", {}, "Alarms"),
        el("p", { class: "hint" }, "The step in which each began; marked in its chart, where it has one."),
        el(
          "div",
          { class: "scroll", tabindex: 0, role: "region", "aria-label": "Alarms" },
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
              alarms.map((alarm) =>
                el(
                  "tr",
                  {},
                  alarm.cells.map((cell) => el("td", {}, el("bdi", {}, cell))),
                ),
              ),
            ),
          ),
        ),
      );
    }
    let moves = [];
    const update = () => {
      const step = all[+slider.value];
      output.textContent = String(step);
      moves.forEach((move) => move(step));
      const cards = [];
      runs.forEach((run, r) => {
        for (const image of new Set(run.image)) {
          let best = -1;
          run.step.forEach((s, k) => {
            if (run.image[k] === image && s <= step) best = k;
          });
          if (best >= 0)
            cards.push(
              el(
                "section",
                { class: "caption" },
                el(
                  "h4",
                  {},
                  "Image ",
                  el("bdi", {}, image),
                  runs.length > 1 ? el("bdi", {}, " · " + run.name) : null,
                  el("small", {}, ` step ${run.step[best]}`),
                ),
                texts[r].render(best, false),
              ),
            );
        }
      });
      byId("samples").replaceChildren(
        cards.length
          ? el("div", { class: "columns" }, cards)
          : el("p", { class: "hint" }, "No samples up to this step."),
      );
    };
    slider.addEventListener("input", update);
    painters.training = () => {
      const place = byId("curves"),
        room = place.clientWidth || 700,
        wide = room < 340 ? room - 20 : 300;
      const made = charts
        .map(([title, members, options]) =>
          curve(
            title,
            runs.flatMap((run, r) =>
              members
                .filter((m) => run.columns[m])
                .map((m, j) => ({
                  name: runs.length > 1 ? run.name : m,
                  ...line(run, m),
                  color: (runs.length > 1 ? r : j) + 1,
                })),
            ),
            {
              ...options,
              width: wide,
              marks: alarms.filter((a) => members.includes(a.metric)).map((a) => [a.step, a.value, a.text]),
            },
          ),
        )
        .filter(Boolean);
      place.replaceChildren(...made.map((m) => m.figure));
      moves = made.map((m) => m.move);
      update();
    };
  }

  // Start: the head is there already; the charts next, captions last

  async function start() {
    show();
    const charts = await unpack("charts");
    names = charts.names;
    const alike = names.length > 1 ? [...names[0]].findIndex((c, k) => names.some((name) => name[k] !== c)) : 0;
    common = Math.max(0, ...[..."_-./ "].map((c) => (names[0] || "").slice(0, Math.max(0, alike)).lastIndexOf(c) + 1));
    for (const node of document.querySelectorAll("[data-system]")) node.style.background = colorOf(node.dataset.system);
    const systems = charts.captions;
    painters.frontier = () =>
      document
        .querySelectorAll("[data-plane]")
        .forEach((figure) => frontier(figure, charts.planes[+figure.dataset.plane], charts.iso, figure.dataset.plane));
    if (charts.labels.length) {
      labelsPage(charts.labels, systems);
      painters.guards = () => {
        const place = byId("lengths"),
          last = Math.max(...charts.lengths.map((h) => h.length));
        const made = curve(
          "share of captions, %, by words",
          charts.lengths.map((h, k) => ({
            name: systems[k],
            color: Math.max(0, names.indexOf(systems[k])),
            x: Array.from({ length: last }, (_, j) => 10 * j + 5),
            y: Array.from({ length: last }, (_, j) => (h[j] || 0) / sum(h)),
          })),
          { percent: true, zero: true, width: Math.min(900, place.clientWidth || 700), height: 240 },
        );
        place.replaceChildren(...(made ? [made.figure] : []));
      };
    }
    if (charts.training.length) trainingPage(charts.training);
    show();
    if (charts.labels.length) {
      await new Promise((done) => setTimeout(done)); // let the browser paint
      captions = new Captions(await unpack("captions"));
      captions.pictures = await unpack("pictures");
      if (shown === "captions") captions.fromAddress();
    }
    document.documentElement.dataset.ready = "yes";
  }

  addEventListener("hashchange", show);
  if (typeof DecompressionStream === "undefined") {
    byId("trouble").hidden = false;
    byId("trouble").textContent =
      "This browser cannot unpack the charts and captions (it lacks DecompressionStream); the scores below are complete.";
  } else {
    start().catch((error) => {
      byId("trouble").hidden = false;
      byId("trouble").textContent = "The report could not be unpacked: " + error.message;
      throw error;
    });
  }
})();
