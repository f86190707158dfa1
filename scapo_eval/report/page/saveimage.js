// A chart as a file of its own: the SVG with the page's colors and fonts written into it.

import { el } from "./dom.js";

const PAINT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "stroke-linejoin",
  "paint-order",
  "font-size",
  "font-family",
  "font-weight",
  "opacity",
];

function standalone(svg) {
  const copy = svg.cloneNode(true),
    from = [svg, ...svg.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, k) => {
    const style = getComputedStyle(node);
    to[k].removeAttribute("class");
    to[k].setAttribute("style", PAINT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  const box = svg.viewBox.baseVal;
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  copy.style.background = getComputedStyle(document.documentElement).getPropertyValue("--surface");
  return new XMLSerializer().serializeToString(copy);
}

/** A button that saves the chart in a figure under a name. */
export const saveButton = (figure, name) =>
  el(
    "button",
    {
      type: "button",
      class: "save",
      "aria-label": `Save the chart as SVG: ${name}`,
      onclick: () => {
        const text = standalone(figure.querySelector("svg:not(.glyph)"));
        el("a", {
          href: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text),
          download: name.toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".svg",
        }).click();
      },
    },
    "SVG",
  );
