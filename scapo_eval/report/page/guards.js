// The Guards page: caption lengths.

import { address, orderFrom, orderText } from "./address.js";
import { asideNames, isAside } from "./baseline.js";
import { byId } from "./dom.js";
import { sum } from "./format.js";
import { curve } from "./linechart.js";
import { addPage, remember } from "./pages.js";
import { names, systemMark } from "./systems.js";
import { sortable } from "./table.js";

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
  const order = { by: null, down: false };
  const paintRows = sortable(byId("guards").querySelector("table"), order, () => remember({ sort: orderText(order) }));
  for (const row of byId("guards").querySelectorAll("tbody tr")) row.cells[0].prepend(systemMark(row.dataset.name));
  const arrive = () => {
    Object.assign(order, orderFrom(address().get("sort"), { by: null, down: false }));
    const aside = asideNames();
    for (const row of byId("guards").querySelectorAll("tbody tr")) row.hidden = isAside(row.dataset.name, aside);
    paintRows();
  };
  addPage("guards", { draw, arrive, resized: true });
}
