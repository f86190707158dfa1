// The Guards page: signs of gaming, compared with each system's baseline, and caption lengths.

import { address, link, orderFrom, orderText } from "./address.js";
import { asideNames, baselines, comparable, isAside } from "./baseline.js";
import { byId, el, keepFocus } from "./dom.js";
import { percent, sum } from "./format.js";
import { curve } from "./linechart.js";
import { baselineSelect } from "./overview.js";
import { addPage, remember } from "./pages.js";
import { names, systemMark } from "./systems.js";
import { sortable } from "./table.js";

const SAYS_LESS = {
  better: "Cap. Score significantly better",
  worse: "Cap. Score significantly worse",
  untested: "no difference in Cap. Score shown",
};

export function guardsPage(charts) {
  const systems = charts.captions,
    argument = charts.arguments.find((each) => each.set === "capscore"),
    table = byId("guards").querySelector("table"),
    rows = [...table.tBodies[0].rows];
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
      { width: Math.min(900, place.clientWidth || 700), height: 240 },
    );
    place.replaceChildren(...(made ? [made.figure] : []));
  };

  /** Writes how each system's words and objects differ from its baseline's; nothing where too few images are shared. */
  const paintChanges = () => {
    const bases = baselines(argument);
    for (const row of rows) {
      const k = argument.systems.findIndex((system) => system.name === row.dataset.name),
        compared = bases[k] !== k && comparable(argument, bases[k], k),
        found = compared ? argument.against[bases[k]][k].guards : null;
      for (const cell of row.querySelectorAll("[data-change]")) {
        const value = found ? found[cell.dataset.change] : null;
        cell.textContent = value === null ? "" : `${percent(value, 0, true)} %`;
      }
      const said = found ? found.says_less : "";
      row
        .querySelector(".marks")
        .replaceChildren(
          ...(said
            ? [
                el("strong", { class: said === "worse" ? "worse" : "untested" }, "fewer words or objects"),
                " ",
                el("small", {}, SAYS_LESS[said]),
              ]
            : bases[k] === k && argument.systems.length > 1
              ? [el("small", {}, "baseline")]
              : []),
        );
    }
    const select = baselineSelect(argument, (baseline) => {
      location.hash = link({ page: "guards", baseline });
    });
    keepFocus(byId("guards-controls"), () => byId("guards-controls").replaceChildren(...(select ? [select] : [])));
  };
  const order = { by: null, down: false };
  const paintRows = sortable(table, order, () => remember({ sort: orderText(order) }));
  for (const row of rows) row.cells[0].prepend(systemMark(row.dataset.name));
  const arrive = () => {
    Object.assign(order, orderFrom(address().get("sort"), { by: null, down: false }));
    const aside = asideNames();
    for (const row of rows) row.hidden = isAside(row.dataset.name, aside);
    paintChanges();
    paintRows();
  };
  addPage("guards", { draw, arrive, resized: true });
}
