// The frontier: Cover Rate over Hal. Rate, one point a system.

import { path, ticks } from "./axes.js";
import { draw, el } from "./dom.js";
import { percent, short } from "./format.js";
import { addPage } from "./pages.js";
import { colorOf, common, key, markerOf, names } from "./systems.js";

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

export function frontierPage(charts) {
  const drawPlanes = () =>
    document
      .querySelectorAll("[data-plane]")
      .forEach((figure) => frontier(figure, charts.planes[+figure.dataset.plane], charts.iso, figure.dataset.plane));
  addPage("frontier", { draw: drawPlanes, resized: true });
}
