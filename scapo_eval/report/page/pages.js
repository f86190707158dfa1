// Which page is shown, and when each is drawn.

import { KEPT, address, link } from "./address.js";

const sections = [...document.querySelectorAll("section[data-page]")];
/** @type {[HTMLAnchorElement, string][]} */
const tabs = [...document.querySelectorAll("nav a")].map((a) => [
  /** @type {HTMLAnchorElement} */ (a),
  new URLSearchParams(a.hash.slice(1)).get("page"),
]);
const pages = []; // [name, {draw, arrive, resized}]
const drawn = new Set(); // those of them that are drawn
export let shown = null;

/**
 * Registers a page, or a part of one. draw: called when it is first shown (and, if resized, when the width has changed);
 * arrive: called whenever the address leads to it.
 */
export function addPage(name, { draw = null, arrive = null, resized = false }) {
  pages.push([name, { draw, arrive, resized }]);
}

/** Puts what a page shows into the address, and into its tab: who comes back to the page finds it so. */
export function remember(values) {
  history.replaceState(null, "", link({ page: shown, ...values }));
  updateTabs();
}

function updateTabs() {
  for (const [a, page] of tabs) {
    if (page === shown) {
      a.href = location.hash || "#page=" + page;
      a.setAttribute("aria-current", "page");
      continue;
    }
    a.removeAttribute("aria-current");
    const params = new URLSearchParams(a.hash.slice(1));
    for (const key of KEPT) params.delete(key);
    a.href = link(Object.fromEntries(params));
  }
}

function drawPage(name) {
  for (const part of pages) {
    if (part[0] !== name || !part[1].draw || drawn.has(part)) continue;
    drawn.add(part);
    part[1].draw();
  }
}
export const drawAll = () => sections.forEach((section) => drawPage(section.dataset.page));

export function show() {
  const wanted = address().get("page");
  const page = sections.some((s) => s.dataset.page === wanted) ? wanted : sections[0] && sections[0].dataset.page;
  for (const section of sections) section.hidden = section.dataset.page !== page;
  if (shown !== null && shown !== page) scrollTo(0, 0);
  shown = page;
  updateTabs();
  drawPage(page);
  for (const [name, { arrive }] of pages) if (name === page && arrive) arrive();
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const part of pages) if (part[1].resized) drawn.delete(part);
  if (shown) drawPage(shown);
});
addEventListener("hashchange", show);
