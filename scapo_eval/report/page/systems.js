// The systems of the report: their colors, markers and short names.

import { draw } from "./dom.js";

const MARKERS = [
  "M-6-6H6V6H-6Z",
  "M0-7.5L7.5 0 0 7.5-7.5 0Z",
  "M0-7.5L7 5.5H-7Z",
  "M-6.5 0a6.5 6.5 0 1 0 13 0 6.5 6.5 0 1 0-13 0Z",
  "M0 7.5L7-5.5H-7Z",
  "M-2.2-7H2.2V-2.2H7V2.2H2.2V7H-2.2V2.2H-7V-2.2H-2.2Z",
];

export let names = []; // of all systems, for colors and markers
export let common = 0; // length of the common prefix of all names, up to a separator; omitted if space is short

export function nameSystems(all) {
  names = all;
  const alike = names.length > 1 ? [...names[0]].findIndex((c, k) => names.some((name) => name[k] !== c)) : 0;
  common = Math.max(0, ...[..."_-./ "].map((c) => (names[0] || "").slice(0, Math.max(0, alike)).lastIndexOf(c) + 1));
}
export const color = (k) => `var(--s${k % 8})`;
export const colorOf = (name) => color(Math.max(0, names.indexOf(name)));
export const markerOf = (name) => MARKERS[Math.max(0, names.indexOf(name)) % MARKERS.length];
const swatch = (k) =>
  draw(
    "svg",
    { class: "glyph", viewBox: "-9 -9 18 18", "aria-hidden": "true" },
    draw("path", { d: MARKERS[k % MARKERS.length], css: { fill: color(k) } }),
  );
/** A system's marker in its color, for legends, tables and headings. */
export const systemMark = (name) => swatch(Math.max(0, names.indexOf(name)));
