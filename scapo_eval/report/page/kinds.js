// The Claims by kind page: captions in which every claim is marked, with its evidence from the scenes.

import { byId, el } from "./dom.js";
import { filteredPage } from "./filters.js";
import { percent, signed, wellFormed } from "./format.js";
import { OUTCOMES, byInfluence, matches, paired, ratioOf } from "./paired.js";
import { systemMark } from "./systems.js";

const CHECKED = 20; // images that are shown at once, and more at each press
const CHOICES = ["system", "first", "kind", "verdict", "outcome", "text"];

/**
 * What is claimed, each claim once: where a source decides it first.
 * @param {CheckedClaim[]} claims
 * @returns {CheckedClaim[]}
 */
function distinct(claims) {
  const first = new Map();
  for (const claim of claims) {
    const key = claim.kind + " " + claim.said;
    if ((first.get(key)?.verdict || "unknown") === "unknown") first.set(key, claim);
  }
  return [...first.values()];
}

/**
 * Captions of one image as counts: distinct claims of a kind that are false, and all that a source decides; null
 * without captions.
 * @param {CheckedCaption[]} captions
 * @param {string} kind empty for every kind
 */
function countOfKind(captions, kind) {
  if (!captions.length) return null;
  let wrong = 0,
    known = 0;
  for (const caption of captions)
    for (const { verdict } of distinct(caption.claims.filter((claim) => !kind || claim.kind === kind))) {
      wrong += verdict === "hallucinated" ? 1 : 0;
      known += verdict === "unknown" ? 0 : 1;
    }
  return [wrong, wrong, known];
}
const shareFalse = (total) => ratioOf(total[0], total[1]);

/**
 * A text cut where marks begin and end; each part has the claims over it, widest first.
 * @param {string} text
 * @param {CheckedClaim[]} claims
 * @returns {{ text: string, over: CheckedClaim[], begins: CheckedClaim[] }[]}
 */
function partsOf(text, claims) {
  const cuts = [...new Set([0, text.length, ...claims.flatMap(({ start, end }) => [start, end])])].sort(
    (a, b) => a - b,
  );
  return cuts.slice(0, -1).map((from, k) => ({
    text: text.slice(from, cuts[k + 1]),
    over: claims
      .filter(({ start, end }) => start <= from && end >= cuts[k + 1])
      .sort((a, b) => b.end - b.start - (a.end - a.start)),
    begins: claims.filter(({ start }) => start === from),
  }));
}

export function kindsPage(data, pictures) {
  const form = byId("kinds-controls"),
    f = form.elements,
    list = byId("kinds-list"),
    systems = data.systems,
    of = systems.map((s) => {
      const images = new Map(data.images.map((image) => [image, []]));
      for (const caption of s.captions) images.get(caption.image).push(caption);
      return images;
    });
  let rows = [],
    columns = [];
  for (const s of systems)
    for (const field of [f.system, f.first]) field.append(el("option", { value: wellFormed(s.name) }, s.name));
  f.first.parentElement.hidden = f.system.parentElement.hidden = systems.length < 2;
  const found = new Set(systems.flatMap((s) => s.captions.flatMap((c) => c.claims.map((claim) => claim.kind))));
  f.kind.append(...data.kinds.filter((kind) => found.has(kind)).map((kind) => el("option", { value: kind }, kind)));
  f.outcome.append(...Object.entries(OUTCOMES).map(([value, title]) => el("option", { value }, title)));

  const chosen = (claim) =>
    (!f.kind.value || claim.kind === f.kind.value) && (!f.verdict.value || claim.verdict === f.verdict.value);

  function filter() {
    const place = (select) => systems.map((s) => wellFormed(s.name)).indexOf(select.value);
    const ours = Math.max(0, place(f.system)),
      theirs = place(f.first),
      text = f.text.value.toLowerCase(),
      kind = f.kind.value;
    const counts = (s) => data.images.map((image) => (s < 0 ? null : countOfKind(of[s].get(image), kind)));
    const own = counts(ours),
      pair = paired(own, counts(theirs), shareFalse);
    columns = theirs >= 0 && theirs !== ours ? [theirs, ours] : [ours];
    f.outcome.parentElement.hidden = columns.length < 2;
    const captionsOf = (image) => columns.flatMap((s) => of[s].get(image));
    const says = (image) => captionsOf(image).some((each) => each.text.toLowerCase().includes(text));
    const has = (image) => captionsOf(image).some((each) => each.claims.some(chosen));
    rows = [...data.images.keys()].filter((k) => {
      const image = data.images[k];
      if (!own[k] || (text && !says(image)) || ((kind || f.verdict.value) && !has(image))) return false;
      return columns.length < 2 || !f.outcome.value || matches(pair.outcomes[k], f.outcome.value);
    });
    if (columns.length > 1) rows = byInfluence(rows, pair);
    else rows.sort((a, b) => own[b][0] - own[a][0] || a - b);
    const number = (n) => n.toLocaleString("en");
    byId("kinds-count").textContent =
      `${number(rows.length)} of ${number(own.filter(Boolean).length)} images` +
      (data.left_out ? ` (only the ${number(data.images.length)} with the most false claims are included)` : "") +
      (columns.length > 1 ? said(pair) : "");
    list.replaceChildren();
    more();
  }

  /** What the images in view come to, and the share of false claims without them. */
  function said(pair) {
    if (pair.difference === null) return "; no shared images with decided claims";
    const n = (name) => pair.outcomes.filter((each) => each === name).length.toLocaleString("en"),
      left = pair.without(rows);
    return (
      `: ${n("mended")} improved, ${n("spoiled")} regressed. False claims${f.kind.value ? " of " + f.kind.value : ""}: ` +
      `${percent(pair.theirs)} → ${percent(pair.ours)}, ${signed(pair.difference)} points` +
      (left === null ? "." : `; ${signed(left)} without the images shown.`)
    );
  }

  function more() {
    const from = list.childElementCount;
    list.append(...rows.slice(from, from + CHECKED).map(caseOf));
    byId("kinds-more").hidden = from + CHECKED >= rows.length;
  }

  /** @param {CheckedClaim} claim */
  const described = (claim) =>
    `${claim.kind}: ${claim.said}, ${claim.verdict}` +
    (claim.use ? `, ${claim.use}` : "") +
    ` (${claim.evidence || "no evidence"})`;
  const classOf = (claim) => (chosen(claim) ? "v-" + claim.verdict : "v-not-counted");

  function textOf(caption) {
    return el(
      "p",
      { class: "text", dir: "auto" },
      partsOf(caption.text, caption.claims.filter(chosen)).map(({ text, over, begins }) => {
        /** @type {any} */
        let node = text;
        for (const claim of [...over].reverse())
          node = el("mark", { class: classOf(claim), title: described(claim) }, node);
        const kinds = begins.map((claim) => claim.kind).filter((kind) => kind !== "presence");
        if (!f.names.checked || !kinds.length || text.length > 40) return node; // a ruby is one line
        return el("ruby", {}, node, el("rt", {}, kinds.join(", ")));
      }),
    );
  }

  function claimsOf(caption) {
    const rowsOf = distinct(caption.claims.filter(chosen));
    if (!rowsOf.length) return null;
    return el(
      "details",
      { open: Boolean(f.kind.value || f.verdict.value) },
      el("summary", {}, `${rowsOf.length} claim${rowsOf.length > 1 ? "s" : ""}, with evidence from the scenes`),
      el(
        "ul",
        { class: "checked" },
        rowsOf.map((claim) =>
          el(
            "li",
            {},
            el("small", {}, claim.kind),
            " ",
            el("mark", { class: classOf(claim) }, el("bdi", {}, claim.said)),
            claim.use ? el("small", {}, ` (${claim.use})`) : null,
            el("span", { class: "dim" }, " ", el("bdi", {}, claim.evidence || "the scenes do not contain this image")),
          ),
        ),
      ),
    );
  }

  function caseOf(k) {
    const image = data.images[k];
    return el(
      "article",
      { class: "case", "aria-label": "image " + image },
      Object.hasOwn(pictures, image)
        ? el("img", { src: pictures[image], alt: "Image " + image, loading: "lazy" })
        : null,
      el("h3", {}, "Image ", el("bdi", {}, image)),
      el(
        "div",
        { class: "columns" },
        columns.map((s) => {
          const captions = of[s].get(image);
          return el(
            "div",
            {},
            systems.length > 1 ? el("h4", {}, systemMark(systems[s].name), " ", el("bdi", {}, systems[s].name)) : null,
            captions.length
              ? captions.flatMap((caption) => [textOf(caption), claimsOf(caption)])
              : el("p", { class: "facts" }, "not described"),
          );
        }),
      ),
    );
  }

  filteredPage("kinds", CHOICES, filter, more);
}
