// Line charts over steps.

import { path, ticks } from "./axes.js";
import { draw, el } from "./dom.js";
import { color, key } from "./systems.js";

export function curve(title, series, options = {}) {
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
