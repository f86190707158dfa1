// Which page is shown, and when each is drawn.

import { address, link } from "./address.js";

const sections = [...document.querySelectorAll("section[data-page]")];
const tabs = [...document.querySelectorAll("nav a")].map((a) => [a, new URLSearchParams(a.hash.slice(1)).get("page")]);
const pages = {}; // name -> {draw, arrive, resized}
const drawn = new Set();
const shared = ["base", "hide"]; // what one page chooses for all
export let shown = null;

/**
 * Registers a page. draw: called when it is first shown (and, if resized, when the width has changed);
 * arrive: called whenever the address leads to it.
 */
export function addPage(name, { draw = null, arrive = null, resized = false }) {
  pages[name] = { draw, arrive, resized };
}

/** Puts what a page shows into the address, and into its tab: who comes back to the page finds it so. */
export function remember(values) {
  history.replaceState(null, "", link({ page: shown, ...values }));
  updateTabs();
}

function updateTabs() {
  const now = address();
  for (const [a, page] of tabs) {
    if (page === shown) {
      a.href = location.hash || "#page=" + page;
      a.setAttribute("aria-current", "page");
      continue;
    }
    a.removeAttribute("aria-current");
    const params = new URLSearchParams(a.hash.slice(1));
    for (const key of shared) {
      if (now.get(key)) params.set(key, now.get(key));
      else params.delete(key);
    }
    a.href = "#" + params;
  }
}

function drawPage(name) {
  if (!pages[name] || !pages[name].draw || drawn.has(name)) return;
  drawn.add(name);
  pages[name].draw();
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
  if (pages[page] && pages[page].arrive) pages[page].arrive();
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const name of Object.keys(pages)) if (pages[name].resized) drawn.delete(name);
  if (shown) drawPage(shown);
});
addEventListener("hashchange", show);
