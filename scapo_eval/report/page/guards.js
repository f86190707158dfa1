// The Guards page: caption lengths.

import { byId } from "./dom.js";
import { sum } from "./format.js";
import { curve } from "./linechart.js";
import { addPage } from "./pages.js";
import { names } from "./systems.js";

export function guardsPage(charts) {
  const systems = charts.captions;
  const draw = () => {
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
  addPage("guards", { draw, resized: true });
}
