// @ts-check
// Values with their intervals in panels one below the other: differences of systems, or of slices.

import { axisOf, ticks } from "./axes.js";
import { draw } from "./dom.js";

/**
 * @typedef {object} ForestRow
 * @property {string} name
 * @property {string} short
 * @property {SVGElement | null} mark
 * @property {number} value
 * @property {number | null} low
 * @property {number | null} high
 * @property {string} dot what the test says: better, worse, changed or untested
 * @property {string | null} door
 * @property {string} doorName
 *
 * @typedef {object} Panel
 * @property {string} title
 * @property {string} note text after the title
 * @property {boolean} strong whether the note is a finding
 * @property {boolean | null | undefined} higher which direction is better
 * @property {ForestRow[]} rows
 * @property {(value: number) => string} show
 * @property {number | null} least half of the axis at least, around zero; null: an axis of values, not of differences
 */

const FOREST_WIDTH = 620,
  FOREST_ROW = 19;

/**
 * @param {Panel[]} panels
 * @param {number} left where the axis begins: names stand before it
 * @returns {SVGElement}
 */
export function forestPlot(panels, left) {
  const right = FOREST_WIDTH - 16;
  const heights = panels.map((p) => 40 + FOREST_ROW * p.rows.length),
    height = heights.reduce((a, b) => a + b, 0);
  const said = (/** @type {Panel} */ p) =>
    `${p.title}${p.note ? ` (${p.note})` : ""}: ${p.rows.map((row) => `${row.name} ${p.show(row.value)}`).join(", ")}`;
  const svg = draw("svg", {
    class: "chart",
    viewBox: `0 0 ${FOREST_WIDTH} ${height}`,
    role: "group",
    "aria-label": panels.map(said).join("; "),
  });
  let top = 0;
  panels.forEach((p, n) => {
    const [from, to] = axisOf(p.rows, p.least),
      centered = p.least !== null;
    const X = (/** @type {number} */ v) => left + ((v - from) / (to - from)) * (right - left);
    const low = top + 20 + FOREST_ROW * p.rows.length;
    const title = draw("text", { class: "axis-name", x: 4, y: top + 14 }, p.title);
    if (p.note) title.append(draw("tspan", { class: p.strong ? "finding" : "faint", dx: 8 }, p.note));
    svg.append(title);
    if (centered && p.higher !== null && p.higher !== undefined) {
      const atRight = p.higher || p.note;
      svg.append(
        draw(
          "text",
          { class: "faint", x: atRight ? right : left, y: top + 14, "text-anchor": atRight ? "end" : "start" },
          p.higher ? "better →" : "← better",
        ),
      );
    }
    for (const v of ticks(from, to, 4))
      svg.append(
        draw("line", { class: v || !centered ? "grid" : "axis", x1: X(v), x2: X(v), y1: top + 20, y2: low }),
        draw(
          "text",
          { class: "faint", x: X(v), y: low + 13, "text-anchor": "middle" },
          v || !centered ? p.show(v) : "0",
        ),
      );
    p.rows.forEach((row, j) => {
      const y = top + 29 + FOREST_ROW * j;
      if (row.mark) {
        for (const [key, value] of Object.entries({ x: 4, y: y - 7, width: 13, height: 13 }))
          row.mark.setAttribute(key, String(value));
        svg.append(row.mark);
      }
      svg.append(draw("text", { x: row.mark ? 22 : 4, y: y + 4 }, draw("title", {}, row.name), row.short));
      if (row.low !== null && row.high !== null)
        svg.append(draw("line", { class: "whisker", x1: X(row.low), x2: X(row.high), y1: y, y2: y }));
      const dot = draw(
        "circle",
        { class: "dot-" + row.dot, cx: X(row.value), cy: y, r: 4.5 },
        draw("title", {}, `${row.name}: ${p.show(row.value)}`),
      );
      svg.append(row.door ? draw("a", { href: row.door, "aria-label": row.doorName }, dot) : dot);
    });
    top += heights[n];
  });
  return svg;
}
