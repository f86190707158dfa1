// Words with a meaning: one tooltip for all of them, on hover and on focus.

import { el } from "./dom.js";

const tip = el("div", { id: "tip", role: "tooltip", hidden: true });
document.body.append(tip);
let owner = null;

function showTip(node) {
  owner = node;
  tip.textContent = node.dataset.term;
  tip.hidden = false;
  node.setAttribute("aria-describedby", "tip");
  const place = node.getBoundingClientRect(),
    size = tip.getBoundingClientRect();
  const below = place.bottom + 6 + size.height < innerHeight;
  tip.style.left = Math.max(6, Math.min(place.left, innerWidth - size.width - 6)) + "px";
  tip.style.top = (below ? place.bottom + 6 : place.top - size.height - 6) + "px";
}
function hideTip() {
  if (owner) owner.removeAttribute("aria-describedby");
  owner = null;
  tip.hidden = true;
}
const termAt = (event) => event.target.closest && event.target.closest("[data-term]");
for (const kind of ["mouseover", "focusin"])
  document.addEventListener(kind, (event) => {
    const node = termAt(event);
    if (node && node.dataset.term) showTip(node);
  });
for (const kind of ["mouseout", "focusout"])
  document.addEventListener(kind, (event) => {
    if (termAt(event) === owner) hideTip();
  });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
addEventListener("scroll", hideTip, { capture: true, passive: true });

/** A word that says what it means when it is pointed at or focused. */
export const term = (text, meaning) =>
  meaning ? el("span", { class: "term", tabindex: 0, "data-term": meaning }, text) : el("span", {}, text);
