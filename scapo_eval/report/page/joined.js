// The table of several benchmarks: it sorts, puts systems aside, and leads to each benchmark's own scores.

import { address, orderFrom, orderText } from "./address.js";
import { asideNames, isAside } from "./baseline.js";
import { byId } from "./dom.js";
import { addPage, remember } from "./pages.js";
import { systemMark } from "./systems.js";
import { sortable } from "./table.js";

export function joinedTable() {
  const node = document.querySelector(".joined");
  if (!node) return;
  const rows = [...node.tBodies[0].rows],
    order = { by: null, down: false };
  for (const row of rows) row.cells[0].prepend(systemMark(row.dataset.name));
  const changed = () =>
    remember({
      order: orderText(order),
      ...Object.fromEntries(["benchmark", "sort", "a", "b"].map((key) => [key, address().get(key)])),
    });
  const paintRows = sortable(node, order, changed);
  const arrive = () => {
    Object.assign(order, orderFrom(address().get("order"), { by: null, down: false }));
    const aside = asideNames();
    for (const row of rows) row.hidden = isAside(row.dataset.name, aside);
    paintRows();
    const wanted = address().get("benchmark"),
      place = wanted && byId("scores-of-" + wanted);
    if (!place || place.open) return;
    place.open = true;
    place.scrollIntoView();
  };
  addPage("scores", { arrive });
}
