// @ts-check
// The slices of a benchmark: every metric (or every difference to the baseline) slice by slice, with the test of
// whether it is the same in all of them.

import { el } from "./dom.js";
import { sliceDoor } from "./doors.js";
import { forestPlot } from "./forest.js";
import { fixed, shortMiddle, shownChange, shownValue } from "./format.js";
import { saveButton } from "./saveimage.js";
import { systemMark } from "./systems.js";

/**
 * @typedef {[system: number, slice: number, images: number, metrics: (number | null)[][]]} Cell
 * @typedef {object} Sliced
 * @property {string} by
 * @property {string[]} slices
 * @property {Cell[]} cells
 * @property {[system: number, baseline: number | null, metric: number, p: number][]} tests
 */

/**
 * What a test of equal values in all slices found, in a few words.
 * @param {Sliced} sliced
 * @param {number} system
 * @param {boolean} compared
 * @param {number} metric
 */
function interaction(sliced, system, compared, metric) {
  const found = sliced.tests.find(
    ([s, baseline, m]) => s === system && m === metric && (baseline !== null) === compared,
  );
  if (!found) return { note: "not tested: fewer than two slices of 30 images", strong: false };
  const p = found[3];
  const shown = p < 0.001 ? "p < 0.001" : `p = ${fixed(p, 3)}`;
  return p < 0.05
    ? { note: `differs between slices, ${shown}`, strong: true }
    : { note: `no significant difference between slices, ${shown}`, strong: false };
}

/**
 * The rows of one system in one metric: its differences where it is compared, else its values.
 * @param {Sliced} sliced
 * @param {number} system
 * @param {boolean} compared
 * @param {number} at place of the metric among those that are spoken of
 */
const sliceRows = (sliced, system, compared, at) =>
  sliced.cells.flatMap(([s, slice, own, metrics]) => {
    const [value, low, high, shared] = compared ? metrics[at].slice(3) : metrics[at];
    const images = compared ? shared : own;
    return s === system && value !== null && value !== undefined ? [{ slice, images, value, low, high }] : [];
  });

/**
 * A card with a forest plot of each system.
 * @param {any} argument a benchmark's systems, as report/overview.py writes them
 */
export function slicesOf(argument) {
  /** @type {Sliced | null} */
  const sliced = argument.sliced;
  if (!sliced) return [];
  const first = argument.systems[0].name;
  /**
   * @param {number} k
   * @param {boolean} compared
   */
  const figureOf = (k, compared) => {
    const name = argument.systems[k].name;
    const panels = argument.spoken
      .map((/** @type {number} */ m, /** @type {number} */ at) => {
        const { key, name: title, higher, plain } = argument.metrics[m];
        const rows = sliceRows(sliced, k, compared, at).map(({ slice, images, value, low, high }) => {
          const own = `${sliced.slices[slice]} (${images.toLocaleString("en-US")} images)`,
            door = sliceDoor(argument, compared ? 0 : null, k, key, sliced.slices[slice]);
          /** @type {import("./forest.js").ForestRow} */
          const row = {
            name: own,
            short: shortMiddle(own, 32),
            mark: null,
            value,
            low,
            high,
            dot: "untested",
            door,
            doorName: own,
          };
          return row;
        });
        const show = (/** @type {number} */ v) => (compared ? shownChange : shownValue)(v, plain);
        const least = compared ? (plain ? 0.05 : 0.005) : null;
        return { title, higher, rows, show, least, ...interaction(sliced, k, compared, m) };
      })
      .filter((/** @type {{ rows: unknown[] }} */ panel) => panel.rows.length);
    if (!panels.length) return null;
    const named = (/** @type {string} */ system) => [systemMark(system), el("bdi", {}, system)];
    const title = compared ? [...named(name), " against ", ...named(first), ", points"] : named(name);
    const figure = el("figure", { class: "plane" });
    figure.append(
      el(
        "figcaption",
        {},
        el("span", {}, title),
        saveButton(figure, `${name}${compared ? " against " + first : ""} by ${sliced.by}`),
      ),
      forestPlot(panels, 230),
    );
    return figure;
  };
  const places = [...argument.systems.keys()];
  const figures = [...places.slice(1).map((k) => figureOf(k, true)), ...places.map((k) => figureOf(k, false))].filter(
    Boolean,
  );
  return [
    el(
      "details",
      { class: "card", open: argument.systems.length < 4 },
      el("summary", {}, "By ", el("bdi", {}, sliced.by)),
      el(
        "p",
        { class: "hint" },
        "95 % intervals. The test beside a metric shows whether its values are equal in all slices. If an interval contains zero in only one of two slices, this does not show that the slices differ.",
      ),
      el("div", { class: "slices" }, figures),
    ),
  ];
}
