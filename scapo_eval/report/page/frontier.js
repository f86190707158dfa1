// The frontier: coverage over hallucination, one point a system, and four corners around the baseline.

import { path, percentTick, ticks } from "./axes.js";
import { asideNames, baselines, isAside } from "./baseline.js";
import { draw, el } from "./dom.js";
import { doorOf } from "./doors.js";
import { percent, shortMiddle } from "./format.js";
import { dashOf } from "./linechart.js";
import { addPage } from "./pages.js";
import { saveButton } from "./saveimage.js";
import { colorOf, common, markerOf, systemMark } from "./systems.js";

const ruler = document.createElement("canvas").getContext("2d");
const widthOf = (text, size = 13, weight = 400) => {
  ruler.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
};

/** Boxes that hold something already: a label that meets one is put elsewhere, or left out. */
class Room {
  constructor(left, top, right, bottom) {
    this.left = left;
    this.top = top;
    this.right = right;
    this.bottom = bottom;
    this.taken = [];
  }
  free(x, y, w, h) {
    if (x < this.left || x + w > this.right || y < this.top || y + h > this.bottom) return false;
    return !this.taken.some(([a, b, c, d]) => x < a + c && a < x + w && y < b + d && b < y + h);
  }
  take(x, y, w, h) {
    this.taken.push([x, y, w, h]);
  }
  /** The nearest free box around a point: its place, and whether it needs a line; null where there is none. */
  near(x, y, w, h) {
    for (const far of [11, 20, 32, 46, 62, 80, 100, 124, 150])
      for (const [n, turn] of [0, 180, -35, 35, 215, 145, -90, 90, -62, 62, 242, 118].entries()) {
        const a = (turn * Math.PI) / 180,
          ax = x + far * Math.cos(a),
          ay = y + far * Math.sin(a);
        const left = Math.abs(Math.cos(a)) < 0.3 ? ax - w / 2 : Math.cos(a) > 0 ? ax : ax - w,
          top = Math.abs(Math.sin(a)) < 0.3 ? ay - h / 2 : Math.sin(a) > 0 ? ay : ay - h;
        if (this.free(left, top, w, h)) return { left, top, apart: far > 11 || n > 1 };
      }
    return null;
  }
}

/**
 * Draws one plane into a figure. options: base (position of the baseline among the points; null where the reader put it
 * aside), compared (names of the systems that are compared with it; the others are drawn faint), height, legend, id.
 */
export function frontier(figure, plane, iso, options) {
  const { id, legend = true } = options;
  const points = plane.points.map((p, k) => ({ ...p, k }));
  const base = options.base === null ? null : points[options.base];
  const compared = options.compared || new Set(points.map((p) => p.name));
  const W = Math.max(280, (figure.clientWidth || 740) - 20),
    H = options.height || Math.min(560, Math.max(340, W * 0.62));
  const box = { left: 52, right: W - 10, top: 10, bottom: H - 42 };
  const all = points.flatMap((p) => [[p.x, p.y], ...p.ellipse]);
  const range = (k) => {
    const low = Math.min(...all.map((p) => p[k])),
      high = Math.max(...all.map((p) => p[k]));
    const pad = Math.max(0.22 * (high - low), 0.02);
    return [Math.max(0, low - pad), Math.min(1, high + pad)];
  };
  const [x0, x1] = range(0),
    [y0, y1] = range(1);
  const X = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left);
  const Y = (v) => box.bottom - ((v - y0) / (y1 - y0)) * (box.bottom - box.top);
  const room = new Room(box.left + 2, box.top + 2, box.right, box.bottom - 2);
  const inner = draw("g", { "clip-path": `url(#clip${id})` }),
    front = draw("g"),
    axes = draw("g");
  const alone = !base || compared.size < 2; // then no system covers less than the baseline
  const bx = alone ? 0 : X(base.x),
    by = alone ? 0 : Y(base.y);
  if (!alone)
    inner.append(draw("rect", { class: "shade", x: box.left, y: by, width: bx - box.left, height: box.bottom - by }));
  for (const v of ticks(x0, x1, W < 520 ? 4 : 7))
    axes.append(
      draw("line", { class: "grid", x1: X(v), x2: X(v), y1: box.top, y2: box.bottom }),
      draw("text", { class: "faint", x: X(v), y: box.bottom + 16, "text-anchor": "middle" }, percentTick(v)),
    );
  for (const v of ticks(y0, y1))
    axes.append(
      draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
      draw("text", { class: "faint", x: box.left - 6, y: Y(v) + 4, "text-anchor": "end" }, percentTick(v)),
    );
  const [across, up] = plane.axes;
  axes.append(
    draw("path", { class: "axis", fill: "none", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }),
    draw(
      "text",
      { class: "axis-name", x: (box.left + box.right) / 2, y: H - 7, "text-anchor": "middle" },
      `${across.name}, %  (← more faithful)`,
    ),
    draw(
      "text",
      { class: "axis-name", x: -(box.top + box.bottom) / 2, y: 14, transform: "rotate(-90)", "text-anchor": "middle" },
      `${up.name}, %  (covers more →)`,
    ),
  );
  points.forEach((p) => room.take(X(p.x) - 8, Y(p.y) - 8, 16, 16));
  const corner = (right, low, text, extra) => {
    const w = widthOf(text, 13, 600),
      x = right ? box.right - 8 : box.left + 8,
      left = right ? x - w : x,
      y = low ? box.bottom - 10 : box.top + 16;
    const fits = (right ? box.right - bx : bx - box.left) > w + 12 && (low ? box.bottom - by : by - box.top) > 24;
    if (alone || !fits || !room.free(left, y - 12, w, 15)) return;
    front.append(draw("text", { class: "corner halo " + extra, x, y, "text-anchor": right ? "end" : "start" }, text));
    room.take(left - 4, y - 14, w + 8, 19);
  };
  corner(false, true, "more faithful, covers less", "less");
  corner(false, false, "more faithful, covers more", "");
  corner(true, true, "less faithful, covers less", "faint");
  corner(true, false, "less faithful, covers more", "faint");

  for (const trail of plane.trails)
    inner.append(
      draw("path", {
        d: path(trail.map((k) => [X(points[k].x), Y(points[k].y)])),
        fill: "none",
        "stroke-width": 2,
        css: { stroke: colorOf(points[trail[trail.length - 1]].name) },
      }),
    );
  const passed = new Set(plane.trails.flatMap((trail) => trail.slice(0, -1)));
  for (const p of points) {
    if (alone || p === base || passed.has(p.k) || !compared.has(p.name)) continue;
    const dx = X(p.x) - bx,
      dy = Y(p.y) - by,
      length = Math.hypot(dx, dy);
    if (length <= 26) continue;
    for (let far = 14; far < length - 10; far += 6)
      room.take(bx + (dx / length) * far - 3, by + (dy / length) * far - 3, 6, 6);
    inner.append(
      draw("line", {
        class: "arrow",
        x1: bx + (dx / length) * 10,
        y1: by + (dy / length) * 10,
        x2: X(p.x) - (dx / length) * 12,
        y2: Y(p.y) - (dy / length) * 12,
        "marker-end": `url(#arrow${id})`,
        css: { stroke: colorOf(p.name), color: colorOf(p.name) },
      }),
    );
  }
  /** Shows one system's region where those of many are hidden. */
  const said = (p, there) => inner.querySelector(`[data-of="${p.k}"]`)?.classList.toggle("shown", there);
  for (const p of points) {
    const tint = colorOf(p.name),
      faint = compared.has(p.name) ? 1 : 0.45;
    const door = p === base || !compared.has(p.name) || !options.door ? null : options.door(p.name);
    const behindDoor = (node) =>
      door ? draw("a", { href: door, "aria-label": `${p.name}: images that cause the difference` }, node) : node;
    if (p.ellipse.length && !passed.has(p.k))
      inner.append(
        draw("path", {
          class: options.quiet ? "region quiet" : "region",
          "data-of": p.k,
          "stroke-dasharray": dashOf(p.k),
          d: path(p.ellipse.map(([a, b]) => [X(a), Y(b)])) + "Z",
          "fill-opacity": 0.13 * faint,
          "stroke-opacity": 0.7 * faint,
          css: { fill: tint, stroke: tint },
        }),
      );
    front.append(
      draw(
        "g",
        {
          transform: `translate(${X(p.x)} ${Y(p.y)})${passed.has(p.k) ? " scale(.6)" : ""}`,
          opacity: faint,
          onpointerenter: () => said(p, true),
          onpointerleave: () => said(p, false),
          onfocusin: () => said(p, true),
          onfocusout: () => said(p, false),
        },
        behindDoor(
          draw(
            "path",
            { d: markerOf(p.name), "stroke-width": 1.5, css: { fill: tint, stroke: "var(--surface)" } },
            draw("title", {}, told(plane, p)),
          ),
        ),
      ),
    );
  }
  const order = points.filter((p) => !passed.has(p.k)).sort((a, b) => (a === base ? -1 : b === base ? 1 : a.y - b.y));
  for (const p of order) {
    const text = (W < 420 ? "" : shortMiddle(p.name.slice(common), options.quiet ? 18 : 30) + " ") + percent(p.score),
      w = widthOf(text) + 4,
      spot = room.near(X(p.x), Y(p.y), w, 16);
    if (!spot) continue; // the legend has it
    room.take(spot.left, spot.top, w, 16);
    if (spot.apart) {
      const ex = Math.max(spot.left, Math.min(X(p.x), spot.left + w)),
        ey = Math.max(spot.top + 2, Math.min(Y(p.y), spot.top + 14));
      front.prepend(draw("line", { class: "leader", x1: X(p.x), y1: Y(p.y), x2: ex, y2: ey }));
    }
    front.append(draw("text", { class: "halo point-name", x: spot.left + 2, y: spot.top + 13 }, text));
  }
  for (const [level, curve] of iso) {
    if (Math.max(x1 - x0, y1 - y0) > 0.5 && Math.round(100 * level) % 10) continue; // half as many curves in a wide view
    const inside = curve.filter(([x, y]) => x >= x0 && x <= x1 && y >= y0 && y <= y1);
    if (inside.length < 2) continue;
    inner.prepend(draw("path", { class: "iso", d: path(curve.map(([x, y]) => [X(x), Y(y)])) }));
    const text = "Cap. Score " + percent(level, 0),
      w = widthOf(text, 11) + 4;
    for (const [x, y] of [...inside].reverse()) {
      const left = Math.min(X(x), box.right - 2) - w,
        top = Math.max(Y(y) - 16, box.top + 2);
      if (!room.free(left, top, w, 14)) continue;
      front.prepend(draw("text", { class: "iso-name halo", x: left + 2, y: top + 11 }, text));
      room.take(left, top, w, 14);
      break;
    }
  }
  if (!alone) inner.prepend(inner.querySelector(".shade"));
  figure.replaceChildren(
    el(
      "figcaption",
      {},
      el("span", {}, plane.title),
      legend
        ? el(
            "div",
            { class: "key" },
            points.map((p) => el("span", {}, systemMark(p.name), el("bdi", {}, p.name))),
          )
        : null,
      saveButton(figure, plane.title),
    ),
    draw(
      "svg",
      {
        class: "chart",
        viewBox: `0 0 ${W} ${H}`,
        role: "group",
        "aria-label": `${plane.title}: ` + points.map((p) => told(plane, p)).join("; "),
      },
      draw(
        "defs",
        {},
        draw(
          "clipPath",
          { id: "clip" + id },
          draw("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }),
        ),
        draw(
          "marker",
          {
            id: "arrow" + id,
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

/**
 * @param {any} plane
 * @param {PlanePoint} p
 */
const told = (plane, p) =>
  `${p.name}: ${plane.axes[0].name} ${percent(p.x)}, ${plane.axes[1].name} ${percent(p.y)}, Cap. Score ${percent(p.score)}`;

/** The plane without the systems that the reader put aside, and who is compared with whom in it. */
export function shownPlane(plane, argument, focus) {
  const aside = asideNames(),
    keep = plane.points.map((p, k) => k).filter((k) => !isAside(plane.points[k].name, aside));
  const place = new Map(keep.map((k, n) => [k, n]));
  const points = keep.map((k) => plane.points[k]);
  const trails = plane.trails
    .map((t) => t.filter((k) => place.has(k)).map((k) => place.get(k)))
    .filter((t) => t.length > 1);
  const bases = argument ? baselines(argument) : [];
  const names = argument ? argument.systems.map((s) => s.name) : [];
  const counts = bases.map((b) => bases.filter((other) => other === b).length);
  const first = focus ?? bases[counts.indexOf(Math.max(...counts))] ?? 0;
  const compared = new Set(names.filter((_, k) => bases[k] === first));
  const baseName = names.length ? names[first] : plane.points[0].name;
  const base = points.findIndex((p) => p.name === baseName);
  const door = (name) => doorOf(argument, first, names.indexOf(name), "cap_score");
  return {
    plane: { ...plane, points, trails },
    base: base < 0 ? null : base,
    compared: names.length ? compared : null,
    door: names.length ? door : null,
  };
}

export function frontierPage(charts) {
  const figures = [...document.querySelectorAll("#frontier [data-plane]")];
  const drawPlanes = () => {
    for (const figure of figures) {
      const whole = charts.planes[+figure.dataset.plane],
        argument = charts.arguments.find((a) => a.set === whole.set),
        { plane, ...rest } = shownPlane(whole, argument);
      if (plane.points.length)
        frontier(figure, plane, charts.iso, {
          ...rest,
          id: "f" + figure.dataset.plane,
          quiet: plane.points.length > 8,
        });
    }
  };
  addPage("frontier", { draw: drawPlanes, arrive: drawPlanes, resized: true });
}
