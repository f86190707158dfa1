// Charts of training runs, drawn by uPlot: thousands of steps, one cursor and one zoom for all of them.
/* global uPlot */

import { el } from "./dom.js";
import { dashOf, sample } from "./linechart.js";
import { placeAt, rangeOf, shownNumber } from "./series.js";
import { color } from "./systems.js";
import { term } from "./terms.js";

const HEIGHT = 170;

const painted = (variable) =>
  getComputedStyle(document.documentElement)
    .getPropertyValue(variable.replace(/^var\((.*)\)$/, "$1"))
    .trim();

/** All lines on one axis of positions: undefined where a line has no point, null where it has a gap. */
function aligned(lines) {
  const [first] = lines;
  if (
    lines.every(
      (line) => line.x === first.x || (line.x.length === first.x.length && line.x.every((v, k) => v === first.x[k])),
    )
  )
    return [first.x, ...lines.map((line) => line.y)];
  return uPlot.join(lines.map((line) => [line.x, line.y]));
}

/**
 * One chart. lines: {name, color, dash, x, y, raw: values behind a smoothed line, low, high: a band, points: values that
 * are drawn as dots}. options: title, meaning, percent, width, logX, logY, range (of the axis), from, to (of the
 * zoom), alarms {x, value, text}, point(x or null), choose(x), zoom(from, to).
 * Returns {figure, move(x), fit(from, to), end()}; null where there is nothing to draw.
 */
export function chartOf(lines, options) {
  const values = lines.flatMap((line) => [line.y, line.raw, line.low, line.high].filter(Boolean));
  let least = Infinity,
    most = -Infinity,
    positive = Infinity;
  for (const column of values)
    for (const v of column)
      if (v !== null) {
        if (v < least) least = v;
        if (v > most) most = v;
        if (v > 0 && v < positive) positive = v;
      }
  if (least > most) return null;
  const shown = (v) => shownNumber(v, options.percent);
  const caption = options.meaning ? term(options.title, options.meaning) : options.title;
  if (least === most && !options.alarms.length)
    return {
      figure: el(
        "figure",
        { class: "constant" },
        el("figcaption", {}, caption),
        el("p", { class: "hint" }, `${shown(least)} in every step`),
      ),
      move: () => {},
      fit: () => {},
      end: () => {},
    };
  const logY = options.logY && least > 0;
  const drawn = [], // what uPlot draws, in this order
    series = [{}],
    bands = [];
  const add = (line, y, more) => {
    drawn.push({ x: line.x, y });
    series.push({ stroke: painted(color(line.color)), width: 1, points: { show: false }, spanGaps: false, ...more });
    return drawn.length;
  };
  for (const line of lines) {
    const paint = painted(color(line.color));
    if (line.low) {
      const high = add(line, line.high, { width: 0 }),
        low = add(line, line.low, { width: 0 });
      bands.push({ series: [high, low], fill: paint + "33" });
    }
    if (line.raw) add(line, line.raw, { stroke: paint + "55" });
  }
  for (const line of lines) {
    const paint = painted(color(line.color)),
      dot = { show: true, size: 7, fill: paint, stroke: painted("var(--surface)") };
    if (line.points) add(line, line.y, { paths: () => null, points: dot });
    else add(line, line.y, { width: 2, dash: dashOf(line.dash).split(" ").filter(Boolean).map(Number) });
  }
  const box = el("div", { class: "plot", role: "img" });
  box.setAttribute(
    "aria-label",
    `${options.title}: ` +
      lines
        .map((line) => {
          const there = line.y.filter((v) => v !== null);
          return there.length ? `${line.name} from ${shown(there[0])} to ${shown(there[there.length - 1])}` : "";
        })
        .join("; "),
  );
  const [ink, faint] = [painted("var(--dim)"), painted("var(--line)")];
  const axis = {
    stroke: ink,
    grid: { stroke: faint, width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const marks = options.alarms.map((alarm) =>
    el("i", { class: "alarm", title: alarm.text, role: "img", "aria-label": alarm.text }),
  );
  const placeMarks = (u) => {
    options.alarms.forEach((alarm, k) => {
      const inside = alarm.x >= u.scales.x.min && alarm.x <= u.scales.x.max;
      marks[k].hidden = !inside;
      if (!inside) return;
      marks[k].style.left = u.valToPos(alarm.x, "x") + "px";
      marks[k].style.top = Math.max(8, Math.min(u.over.clientHeight, u.valToPos(alarm.value, "y"))) + "px";
    });
  };
  const [low, high] = rangeOf(
    logY ? positive : least,
    most,
    options.alarms.map((alarm) => alarm.value),
    logY,
  );
  let own = false; // whether a change of the zoom comes from the other charts
  const u = new uPlot(
    {
      width: options.width,
      height: HEIGHT,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      series,
      bands,
      scales: {
        x: { time: false, distr: options.logX ? 4 : 1, asinh: 1 },
        y: { range: [low, high], distr: logY ? 3 : 1 },
      },
      axes: [
        { ...axis, size: 26, space: 46, values: (_, ticks) => ticks.map((v) => (v === null ? "" : shownTick(v))) },
        { ...axis, size: 46, space: 28, values: (_, ticks) => ticks.map((v) => (v === null ? "" : shown(v))) },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: true } },
      hooks: {
        setScale: [
          (chart, key) => {
            if (key === "x" && !own && chart.status === 1) options.zoom(chart.scales.x.min, chart.scales.x.max);
          },
        ],
        draw: [placeMarks],
      },
    },
    aligned(drawn),
    box,
  );
  u.over.append(...marks);
  const xs = u.data[0],
    [first, last] = options.range;
  const nearest = (event) => xs[u.posToIdx(event.clientX - u.over.getBoundingClientRect().left)];
  let pressed = null;
  u.over.addEventListener("pointerdown", (event) => (pressed = event.clientX));
  u.over.addEventListener("pointermove", (event) => options.point(nearest(event)));
  u.over.addEventListener("pointerleave", () => options.point(null));
  u.over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - pressed) < 4) options.choose(nearest(event));
  });
  u.over.addEventListener("dblclick", () => options.zoom(null, null));
  const numbers = lines.map(() => el("b", {}));
  const legend = lines.map((line, k) =>
    el("span", {}, line.points ? dotOf(line) : sample(line, dashOf(line.dash)), el("bdi", {}, line.name), numbers[k]),
  );
  const fit = (from, to) => {
    own = true;
    u.setScale("x", { min: from ?? first, max: to ?? last });
    own = false;
  };
  fit(options.from, options.to);
  return {
    figure: el("figure", {}, el("figcaption", {}, caption, el("div", { class: "key" }, legend)), box),
    move: (x) => {
      const inside = x !== null && x >= u.scales.x.min && x <= u.scales.x.max;
      u.setCursor({ left: inside ? u.valToPos(x, "x") : -10, top: inside ? 1 : -10 }, false);
      lines.forEach((line, k) => {
        const at = x === null ? -1 : placeAt(line.x, line.y, x);
        numbers[k].textContent = at < 0 ? "" : shown(line.y[at]);
      });
    },
    fit,
    end: () => u.destroy(),
  };
}

const dotOf = (line) => el("i", { class: "swatch", css: { background: color(line.color) } });

const shownTick = (v) =>
  v >= 1e6 ? +(v / 1e6).toPrecision(3) + "M" : v >= 1e4 ? +(v / 1e3).toPrecision(3) + "k" : String(+v.toPrecision(4));
