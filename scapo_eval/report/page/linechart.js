// Line charts of a few values, such as histograms.

import { path, percentTick, ticks } from "./axes.js";
import { draw, el } from "./dom.js";
import { percent } from "./format.js";
import { color } from "./systems.js";

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"]; // distinguishable without colors
export const dashOf = (k) => DASHES[k % DASHES.length];

/** series: {name, color, x, y}, y in shares; null where there is nothing to draw. */
export function curve(title, series, { width, height }) {
  const W = Math.max(240, width),
    H = height,
    box = { left: 46, right: W - 10, top: 8, bottom: H - 24 };
  const xs = series.flatMap((s) => s.x),
    ys = series.flatMap((s) => s.y);
  if (!ys.length) return null;
  const shown = (v) => String(+percent(v));
  const y1 = Math.max(...ys) || 1,
    x0 = Math.min(...xs),
    x1 = Math.max(...xs, x0 + 1);
  const X = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left),
    Y = (v) => box.bottom - (v / y1) * (box.bottom - box.top);
  const svg = draw("svg", {
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    "aria-label":
      `${title}: ` + series.map((s) => `${s.name} from ${shown(s.y[0])} to ${shown(s.y[s.y.length - 1])}`).join("; "),
  });
  for (const v of ticks(0, y1, 4))
    svg.append(
      draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
      draw("text", { class: "faint", x: box.left - 6, y: Y(v) + 4, "text-anchor": "end" }, percentTick(v)),
    );
  for (const v of ticks(x0, x1, 4))
    svg.append(draw("text", { class: "faint", x: X(v), y: H - 6, "text-anchor": "middle" }, String(+v.toPrecision(3))));
  series.forEach((s, k) =>
    svg.append(
      draw("path", {
        d: path(s.x.map((x, j) => [X(x), Y(s.y[j])])),
        fill: "none",
        "stroke-width": 2,
        "stroke-dasharray": dash(series, k),
        css: { stroke: color(s.color) },
      }),
    ),
  );
  const legend = series.map((s, k) => el("span", {}, sample(s, dash(series, k)), el("bdi", {}, s.name)));
  const key = series.length > 1 ? el("div", { class: "key" }, legend) : null;
  return { figure: el("figure", {}, el("figcaption", {}, title, key), svg) };
}

const dash = (series, k) => (series.length > 1 ? dashOf(k) : "");

/** A piece of a line, for legends. */
export function sample(s, dashes) {
  const line = draw("path", {
    d: "M1 5H23",
    "stroke-width": 2.5,
    "stroke-dasharray": dashes,
    css: { stroke: color(s.color) },
  });
  return draw("svg", { class: "line", viewBox: "0 0 24 10", "aria-hidden": "true" }, line);
}
