// A chart as a file of its own: the SVG with the page's colors and fonts written into it.

import { draw, el } from "./dom.js";
import { saveFile } from "./save.js";

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
    for (const name of ["class", "style"]) to[k].removeAttribute(name);
    for (const name of PAINT) to[k].setAttribute(name, style.getPropertyValue(name)); // attributes: the policy allows no style
  });
  const { width, height } = svg.viewBox.baseVal,
    paper = getComputedStyle(document.documentElement).getPropertyValue("--surface");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(draw("rect", { width, height, fill: paper.trim() }));
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
        saveFile(name.toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".svg", text, "image/svg+xml");
      },
    },
    "SVG",
  );
