// Tables that sort by a click on a column's head.

import { el } from "./dom.js";

/** Rows in the order of one column; no value is last in either direction, equal ones stay as they were. */
function inOrder(rows, value, down) {
  return rows
    .map((row, k) => [value(row), k, row])
    .sort((a, b) => {
      if (a[0] === b[0]) return a[1] - b[1];
      if (a[0] === null || b[0] === null) return a[0] === null ? 1 : -1;
      return (a[0] < b[0] ? -1 : 1) * (down ? -1 : 1);
    })
    .map(([, , row]) => row);
}

function showOrder(heads, order) {
  heads.forEach((th, k) => {
    if (k === order.by) th.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  });
}

const turned = (order, k, fromTop) => ({ by: k, down: k === order.by ? !order.down : fromTop });

/**
 * A table of rows. columns: {title, value(row), cell(row), left}; order: {by, down}, kept up to date;
 * changed: called when the reader has sorted it.
 */
export function table(caption, columns, rows, order, changed = null) {
  if (order.by >= columns.length) order.by = 0;
  const body = el("tbody");
  const paintRows = () =>
    body.replaceChildren(
      ...inOrder(rows, columns[order.by].value, order.down).map((row) =>
        el(
          "tr",
          {},
          columns.map((column, k) =>
            el(k ? "td" : "th", { class: column.left && "left", scope: k ? null : "row" }, column.cell(row)),
          ),
        ),
      ),
    );
  const sort = (k) => {
    Object.assign(order, turned(order, k, !columns[k].left));
    showOrder(heads, order);
    paintRows();
    if (changed) changed();
  };
  const heads = columns.map((column, k) =>
    el(
      "th",
      { scope: "col", class: column.left && "left" },
      el("button", { type: "button", onclick: () => sort(k) }, column.title),
    ),
  );
  showOrder(heads, order);
  paintRows();
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body),
  );
}

/**
 * Makes a table of the HTML sort in place. A cell's data-value is what it sorts by, else its text; a number where it is
 * one. order: {by, down}, by null for the order of the HTML; changed: called when the reader has sorted it. Returns what
 * puts the rows into the order after that has been changed from outside.
 */
export function sortable(node, order, changed = null) {
  const heads = [...node.tHead.querySelectorAll("th")].filter((th) => th.scope === "col"); // not those over several
  const body = node.tBodies[0];
  const rows = [...body.rows];
  const usual = new Map(rows.map((row, k) => [row, k]));
  const valueOf = (row) => {
    const cell = row.cells[order.by];
    const text = "value" in cell.dataset ? cell.dataset.value : cell.textContent.trim();
    const number = Number.parseFloat(text.replaceAll(",", "").replace("−", "-"));
    return order.by === 0 ? text.toLowerCase() : Number.isNaN(number) ? null : number;
  };
  const paintRows = () => {
    showOrder(heads, order);
    const value = order.by !== null && order.by < heads.length ? valueOf : (row) => usual.get(row);
    body.append(...inOrder(rows, value, order.by !== null && order.down));
  };
  heads.forEach((th, k) => {
    const sort = () => {
      Object.assign(order, turned(order, k, k > 0));
      paintRows();
      if (changed) changed();
    };
    const term = th.querySelector("[data-term]"), // its meaning goes to the button: nothing to focus inside of it
      meaning = term && { class: "term", "data-term": term.dataset.term };
    th.replaceChildren(el("button", { type: "button", onclick: sort, ...meaning }, th.textContent));
  });
  paintRows();
  return paintRows;
}
