// Line charts over steps: values, smoothed ones over them, dots, a cursor, and the values at it.

import { path, ticks } from "./axes.js";
import { draw, el } from "./dom.js";
import { color } from "./systems.js";
import { term } from "./terms.js";

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"]; // told apart without colors

/** Means over a centered window of so many values; null where there is none. */
function movingMean(values, window) {
  const before = Math.floor((window - 1) / 2),
    after = window - 1 - before;
  return values.map((value, k) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, k - before), k + after + 1).filter((v) => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

/** Ticks of an axis of logarithms: 1, 2 and 5 times powers of ten, powers alone where they are many. */
function powers(low, high) {
  const from = Math.floor(Math.log10(low)),
    to = Math.ceil(Math.log10(high)),
    out = [];
  for (let p = from; p <= to; p++) for (const m of to - from > 3 ? [1] : [1, 2, 5]) out.push(m * 10 ** p);
  return out.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
}

/**
 * series: {name, color, x, y (null: a gap), dots: {x, y}}. options: percent, zero (the axis begins there), unit, width, height,
 * window (of the smoothing), logX, logY, marks [x, y, text], meaning, point(x or null), choose(x).
 * Returns {figure, move(step)}, or null where there is nothing to draw.
 */
export function curve(title, series, options = {}) {
  const W = Math.max(240, options.width || 300),
    H = options.height || 190,
    box = { left: 46, right: W - 10, top: 8, bottom: H - 24 };
  const xs = series.flatMap((s) => [...s.x, ...(s.dots ? s.dots.x : [])]),
    ys = series.flatMap((s) => [...s.y, ...(s.dots ? s.dots.y : [])]).filter((v) => v !== null);
  if (!ys.length) return null;
  const shown = (v) => {
    if (options.percent) return String(+(100 * v).toFixed(1));
    return Math.abs(v) >= 1e5 || (v && Math.abs(v) < 1e-3)
      ? v.toExponential(1).replace(".0", "")
      : String(+v.toPrecision(3));
  };
  const caption = options.meaning ? term(title, options.meaning) : title;
  let y0 = Math.min(...ys),
    y1 = Math.max(...ys);
  if (y0 === y1 && options.window !== undefined)
    return {
      figure: el(
        "figure",
        { class: "constant" },
        el("figcaption", {}, caption),
        el("p", { class: "hint" }, `${shown(y0)} in every step`),
      ),
      move: () => {},
    };
  const logY = options.logY && y0 > 0,
    logX = options.logX && Math.min(...xs) >= 0;
  if (options.zero) y0 = Math.min(0, y0);
  if (y0 === y1) y1 = y0 + (Math.abs(y0) * 0.1 || 0.5);
  const x0 = Math.min(...xs),
    x1 = Math.max(...xs, x0 + 1);
  const along = logX ? (v) => Math.log1p(v) : (v) => v,
    up = logY ? Math.log : (v) => v;
  const X = (v) => box.left + ((along(v) - along(x0)) / (along(x1) - along(x0))) * (box.right - box.left),
    Y = (v) => box.bottom - ((up(v) - up(y0)) / (up(y1) - up(y0))) * (box.bottom - box.top);
  const svg = draw("svg", {
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    "aria-label":
      `${title}: ` +
      series
        .map((s) => {
          const y = s.y.filter((v) => v !== null);
          return y.length ? `${s.name} from ${shown(y[0])} to ${shown(y[y.length - 1])}` : "";
        })
        .join("; "),
  });
  const levels = logY ? powers(y0, y1) : ticks(y0, y1, 4);
  for (const v of levels.length > 1 ? levels : [y0, y1])
    svg.append(
      draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
      draw("text", { class: "faint", x: box.left - 6, y: Y(v) + 4, "text-anchor": "end" }, shown(v)),
    );
  for (const v of logX ? [...new Set([x0, ...powers(Math.max(1, x0), x1)])] : ticks(x0, x1, 4))
    svg.append(
      draw(
        "text",
        { class: "faint", x: X(v), y: H - 6, "text-anchor": "middle" },
        String(+v.toPrecision(3)) + (options.unit || ""),
      ),
    );
  const line = (s, y, width, more) => {
    const parts = [[]]; // a gap where a step has no value
    s.x.forEach((x, k) => {
      if (y[k] === null) parts.push([]);
      else parts[parts.length - 1].push([X(x), Y(y[k])]);
    });
    for (const part of parts.filter((p) => p.length))
      svg.append(
        draw("path", {
          d: path(part.length > 1 ? part : [part[0], [part[0][0] + 1, part[0][1]]]),
          fill: "none",
          "stroke-width": width,
          css: { stroke: color(s.color) },
          ...more,
        }),
      );
  };
  const smooth = series.map((s) => (options.window > 1 ? movingMean(s.y, options.window) : s.y));
  if (options.window > 1) for (const s of series) line(s, s.y, 1, { opacity: 0.25 });
  series.forEach((s, k) => line(s, smooth[k], 2, { "stroke-dasharray": dash(series, k) }));
  for (const s of series)
    (s.dots ? s.dots.x : []).forEach((x, k) =>
      svg.append(draw("circle", { class: "dot", cx: X(x), cy: Y(s.dots.y[k]), r: 3.5, css: { fill: color(s.color) } })),
    );
  for (const [x, y, text] of options.marks || [])
    svg.append(draw("path", { class: "alarm", d: `M${X(x) - 5} ${Y(y) - 9}h10l-5 8z` }, draw("title", {}, text)));
  const cursor = draw("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  svg.append(cursor);

  const values = series.map(() => el("b", {}));
  const move = (step) => {
    const inside = step !== null && step >= x0 && step <= x1;
    cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, inside ? X(step) : 0);
    series.forEach((s, k) => {
      let at = -1;
      s.x.forEach((x, j) => {
        if (x <= step && smooth[k][j] !== null) at = j;
      });
      values[k].textContent = at < 0 ? "" : shown(smooth[k][at]);
    });
  };
  if (options.point) {
    const steps = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
    const nearest = (event) => {
      const bounds = svg.getBoundingClientRect(),
        x = ((event.clientX - bounds.left) / bounds.width) * W;
      return steps.reduce((a, b) => (Math.abs(X(b) - x) < Math.abs(X(a) - x) ? b : a));
    };
    svg.addEventListener("pointermove", (event) => options.point(nearest(event)));
    svg.addEventListener("pointerleave", () => options.point(null));
    svg.addEventListener("click", (event) => options.choose(nearest(event)));
  }
  const legend = series.map((s, k) =>
    el("span", {}, sample(s, dash(series, k)), el("bdi", {}, s.name), options.point ? values[k] : null),
  );
  const labeled = series.length > 1 || options.point;
  return {
    figure: el("figure", {}, el("figcaption", {}, caption, labeled ? el("div", { class: "key" }, legend) : null), svg),
    move,
  };
}

const dash = (series, k) => (series.length > 1 ? DASHES[k % DASHES.length] : "");

/** A piece of a line, for legends. */
function sample(s, dashes) {
  const line = draw("path", {
    d: "M1 5H23",
    "stroke-width": 2.5,
    "stroke-dasharray": dashes,
    css: { stroke: color(s.color) },
  });
  return draw("svg", { class: "line", viewBox: "0 0 24 10", "aria-hidden": "true" }, line);
}
