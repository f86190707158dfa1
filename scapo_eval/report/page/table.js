// Tables that sort by a click on a column's head.

import { el } from "./dom.js";

export function table(caption, columns, rows, order) {
  const head = el("tr"),
    body = el("tbody");
  let by = order.by,
    down = order.down;
  const paintRows = () => {
    const value = columns[by].value;
    const sorted = rows
      .map((row, k) => [value(row), k, row])
      .sort((a, b) => {
        if (a[0] === b[0]) return a[1] - b[1];
        if (a[0] === null || b[0] === null) return a[0] === null ? 1 : -1; // no value is last in either direction
        return (a[0] < b[0] ? -1 : 1) * (down ? -1 : 1);
      });
    body.replaceChildren(
      ...sorted.map(([, , row]) =>
        el(
          "tr",
          {},
          columns.map((column, k) =>
            el(k ? "td" : "th", { class: column.left && "left", scope: k ? null : "row" }, column.cell(row)),
          ),
        ),
      ),
    );
    [...head.children].forEach((th, k) => {
      if (k === by) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
  };
  columns.forEach((column, k) =>
    head.append(
      el(
        "th",
        { scope: "col", class: column.left && "left" },
        el(
          "button",
          {
            type: "button",
            onclick: () => {
              down = k === by ? !down : !column.left;
              by = k;
              order.by = by;
              order.down = down;
              paintRows();
            },
          },
          column.title,
        ),
      ),
    ),
  );
  paintRows();
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, head), body),
  );
}
