// The quality-control page: one question at a time, by keyboard. Text enters the page as text nodes only.
// Or MANY pictures of a label at once, of which the odd ones are pressed (grid.js).
import { MANY, answersOf, openPairs, pressed, step } from "./grid.js";

const AHEAD = 4; // pictures fetched before they are asked about
const LISTED = 200; // errors shown in the table; the command line lists all
const MOST = 20; // times a picture can be enlarged
/** @type {(id: string) => any} an element of whatever kind */
const byId = (id) => document.getElementById(id);
let round = null; // as the server tells it
let at = 0; // the pair in view; round.pairs.length: the end
let mine = []; // groups of pairs answered here, for undo: what was taken at once is taken back at once
let busy = false;
let kept = 12; // pictures held for looking back
let many = false; // whether MANY pictures are shown
const marks = new Map(); // pair -> what was pressed in the grid

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat());
  return node;
}

// Theme: the reader's system decides until the button does

const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const paintTheme = () => {
  document.documentElement.dataset.theme = theme || (dark.matches ? "dark" : "light");
};
paintTheme();
dark.addEventListener("change", paintTheme);
byId("theme").addEventListener("click", () => {
  theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  paintTheme();
});

// The server

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

// Gives {ok, body}; ok is false where the server refused, and a server that is gone is said on the page.
async function ask(place, body) {
  const options =
    body === undefined
      ? {}
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const response = await fetch(place, options);
    return { ok: response.ok, status: response.status, body: await response.json() };
  } catch {
    trouble(
      "The server does not answer. Every answer before this one is kept: start `scapo-eval annotate qc serve` again and open the address it prints.",
    );
    return { ok: false, status: 0, body: {} };
  }
}

async function sync() {
  const found = await ask("answers");
  if (!found.ok) return;
  take(found.body);
  draw();
}

function take({ state, answers, versions, order, events }) {
  if (state !== round.state) location.reload(); // somebody has finished the round
  Object.assign(round, { answers, versions, order, events });
}

// Pictures: fetched ahead, held as object URLs

const pictures = new Map(); // row -> promise of {url} or {fault}

function picture(row) {
  if (!pictures.has(row)) {
    pictures.set(
      row,
      (async () => {
        try {
          const response = await fetch(`image/${row}`);
          if (!(response.headers.get("Content-Type") || "").startsWith("image/"))
            return { fault: (await response.json()).fault || "refused" };
          return { url: URL.createObjectURL(await response.blob()) };
        } catch {
          pictures.delete(row);
          return { fault: "the server does not answer" };
        }
      })(),
    );
    for (const old of [...pictures.keys()].slice(0, Math.max(0, pictures.size - kept - AHEAD))) {
      const gone = pictures.get(old);
      pictures.delete(old);
      gone.then((held) => {
        if (held.url) URL.revokeObjectURL(held.url);
      });
    }
  }
  return pictures.get(row);
}

// Zoom and pan

const view = { scale: 1, x: 0, y: 0 };
const stage = byId("stage"),
  image = byId("picture");

function place() {
  const width = stage.clientWidth,
    height = stage.clientHeight;
  view.x = Math.min(0, Math.max(width * (1 - view.scale), view.x));
  view.y = Math.min(0, Math.max(height * (1 - view.scale), view.y));
  image.style.setProperty("transform-origin", "0 0");
  image.style.setProperty("transform", `translate(${view.x}px, ${view.y}px) scale(${view.scale})`);
  byId("zoom").textContent = view.scale > 1 ? `× ${view.scale.toFixed(1)}` : "";
}
function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const scale = Math.min(MOST, Math.max(1, view.scale * factor));
  view.x = x - (x - view.x) * (scale / view.scale);
  view.y = y - (y - view.y) * (scale / view.scale);
  view.scale = scale;
  place();
}
function fit() {
  Object.assign(view, { scale: 1, x: 0, y: 0 });
  place();
}
function pan(x, y) {
  view.x += x;
  view.y += y;
  place();
}

stage.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.clientX - box.left, event.clientY - box.top);
  },
  { passive: false },
);
stage.addEventListener("pointerdown", (event) => {
  if (event.target === image) image.setPointerCapture(event.pointerId);
});
stage.addEventListener("pointermove", (event) => {
  if (image.hasPointerCapture(event.pointerId)) pan(event.movementX, event.movementY);
});
stage.addEventListener("dblclick", () => (view.scale > 1 ? fit() : zoom(2.5)));
addEventListener("resize", place);

// The question

const answered = () => round.answers.filter((answer) => answer !== null).length;
const finished = () => answered() === round.pairs.length;

// The first pair without an answer from `start` on, then from the beginning; the end where there is none.
function open(start) {
  const from = round.answers.indexOf(null, start);
  const found = from >= 0 ? from : round.answers.indexOf(null);
  return found >= 0 ? found : round.pairs.length;
}

function count() {
  const done = answered(),
    total = round.pairs.length;
  byId("progress").max = total;
  byId("progress").value = done;
  byId("count").textContent = `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  byId("undo").disabled = !mine.length;
  byId("back").disabled = at === 0;
  byId("forward").disabled = at >= total - (finished() ? 0 : 1);
}

let shown = null; // what is in view: pair and state, so that nothing is drawn twice
let shownLabel = null;
let ready = false; // whether the picture in view has been seen

async function draw() {
  count();
  const ended = at >= round.pairs.length;
  byId("asking").hidden = ended;
  byId("end").hidden = !ended;
  if (ended) {
    shown = null;
    drawEnd();
    return;
  }
  const [row, label] = round.pairs[at];
  const { definition } = round.labels[label];
  const name = nameOf(at);
  const within = round.pairs.map((pair, k) => (pair[1] === label ? k : -1)).filter((k) => k >= 0);
  const done = within.filter((k) => round.answers[k] !== null).length;
  byId("fresh").hidden = shownLabel === label && at !== within[0];
  byId("label").textContent = name;
  if (shownLabel !== label) {
    byId("definition").textContent = definition;
    shownLabel = label;
  }
  showMany(many);
  if (many) {
    drawLabels(label);
    await drawGrid(label);
    return;
  }
  byId("step").textContent =
    `${round.claims ? `${round.labels[label].name} ` : "pair "}${within.indexOf(at) + 1} of ${within.length}, ${done} answered`;
  for (const button of document.querySelectorAll("[data-answer]"))
    button.setAttribute("aria-pressed", String(button.dataset.answer === round.answers[at]));
  if (round.answers[at] === "missing") byId("said").textContent = "Skipped.";
  drawLabels(label);
  if (shown === at) return;
  shown = at;
  ready = false;
  delete stage.dataset.pair;
  fit();
  byId("image-id").textContent = "Image " + round.images[row];
  image.hidden = true;
  byId("gone").hidden = true;
  const pair = at;
  for (let k = at + 1, ahead = 0; k < round.pairs.length && ahead < AHEAD; k++)
    if (round.answers[k] === null) {
      picture(round.pairs[k][0]);
      ahead++;
    }
  let held = await picture(row);
  if (shown !== pair) return;
  if (held.url) {
    image.src = held.url;
    image.alt = `Image ${round.images[row]}: ${round.claims ? name : `is there a ${name}?`}`;
    try {
      await image.decode();
    } catch {
      held = { fault: "the browser cannot read it" };
    }
    if (shown !== pair) return;
  }
  image.hidden = !held.url;
  byId("gone").hidden = Boolean(held.url);
  byId("why").textContent = held.fault || "";
  ready = Boolean(held.url);
  stage.dataset.pair = String(pair);
}

function drawLabels(current) {
  const totals = round.labels.map(() => [0, 0]);
  round.pairs.forEach(([, label], k) => {
    totals[label][0] += round.answers[k] !== null;
    totals[label][1]++;
  });
  byId("labels").replaceChildren(
    ...totals.map(([done, all], k) =>
      el(
        "li",
        {},
        el(
          "button",
          { type: "button", "aria-current": k === current ? "true" : null, onclick: () => jump(k) },
          el("span", {}, round.labels[k].name),
          el("span", {}, done === all ? `${all} ✓` : `${done} of ${all}`),
        ),
      ),
    ),
  );
}

function jump(label) {
  const pairs = round.pairs.map((pair, k) => (pair[1] === label ? k : -1)).filter((k) => k >= 0);
  const left = pairs.find((k) => round.answers[k] === null);
  go(left === undefined ? pairs[0] : left);
}

function go(pair) {
  at = Math.min(round.pairs.length, Math.max(0, pair));
  byId("said").textContent = "";
  draw();
}

async function send(pair, answer) {
  if (busy) return false;
  busy = true;
  const sent = await ask("answer", { pair, answer, version: round.versions[pair] });
  busy = false;
  if (!sent.ok) {
    if (sent.status) trouble(sent.body.error);
    return false;
  }
  trouble("");
  if (sent.body.refused) {
    // another tab was faster: take over what it has done
    take(sent.body);
    if (round.answers[pair] !== null) at = open(pair);
    byId("said").textContent =
      `Answered in another window in the meantime: ${round.answers[pair] || "withdrawn"}. Your answer was not saved.`;
    draw();
    return false;
  }
  round.answers[pair] = answer;
  round.versions[pair] = sent.body.version;
  round.events++;
  if (round.events !== sent.body.events) await sync(); // somebody answers elsewhere, too
  return true;
}

async function answer(value) {
  const pair = at;
  if (pair >= round.pairs.length || busy) return;
  if (value !== "missing" && !ready) {
    byId("said").textContent = byId("gone").hidden
      ? "The picture is still loading."
      : "Nothing can be seen: skip it with S.";
    return;
  }
  if (value === "missing" && byId("gone").hidden) return;
  if (round.answers[pair] === value) {
    go(open(pair + 1));
    return;
  }
  if (!(await send(pair, value))) return;
  mine = [...mine.map((group) => group.filter((other) => other !== pair)).filter((group) => group.length), [pair]];
  const said = value === "missing" ? "skipped" : value;
  at = open(pair + 1);
  byId("said").textContent = `${round.labels[round.pairs[pair][1]].name}, image ${imageOf(pair)}: ${said}.`;
  draw();
}

async function undo() {
  if (!mine.length || busy) return;
  const group = mine[mine.length - 1];
  const pair = group[0];
  while (group.length) {
    const last = group[group.length - 1];
    if (round.answers[last] !== null && !(await send(last, null))) return;
    group.pop();
  }
  mine.pop();
  tiles = [];
  go(pair);
  byId("said").textContent = "Taken back.";
}

// Many at once

let tiles = []; // {pair, button, url, fault} of every picture in view, in their order
let taking = false;

const rest = () => /** @type {HTMLInputElement} */ (document.querySelector("[name=rest]:checked")).value;
const nameOf = (pair) => (round.claims ? round.claims[pair] : round.labels[round.pairs[pair][1]].name);
const imageOf = (pair) => round.images[round.pairs[pair][0]];

function showMany(on) {
  for (const id of ["stage", "answers"]) byId(id).hidden = on;
  for (const id of ["grid", "many"]) byId(id).hidden = !on;
  for (const id of ["back", "forward", "next"]) byId(id).hidden = on;
  byId("at-once").setAttribute("aria-pressed", String(on));
}

async function drawGrid(label) {
  if (taking) return;
  const pairs = openPairs(round.pairs, round.answers, label);
  if (!pairs.length) {
    at = open(at); // this label is done: the next one that is not
    tiles = [];
    await draw();
    return;
  }
  const left = round.pairs.filter((pair, k) => pair[1] === label && round.answers[k] === null).length;
  byId("step").textContent = `${left.toLocaleString("en")} without an answer`;
  byId("taken").textContent = pairs.length === 1 ? "Answer this one" : `Answer these ${pairs.length}`;
  if (tiles.map((tile) => tile.pair).join() === pairs.join()) {
    paintTiles();
    return;
  }
  shown = null;
  kept = 2 * MANY;
  tiles = pairs.map((pair) => ({ pair, button: tileOf(pair), url: null, fault: null }));
  delete byId("grid").dataset.pairs;
  byId("grid").replaceChildren(
    ...tiles.map((tile) =>
      el(
        "div",
        { class: "tile" },
        tile.button,
        el(
          "button",
          {
            type: "button",
            class: "closer",
            "aria-label": `Enlarge image ${imageOf(tile.pair)}`,
            onclick: () => closer(tile),
          },
          "+",
        ),
      ),
    ),
  );
  const current = tiles;
  paintTiles();
  current[0].button.focus();
  await Promise.all(current.map((tile) => fill(tile)));
  if (tiles !== current) return;
  byId("grid").dataset.pairs = pairs.join(" ");
  for (const pair of openPairs(round.pairs.slice(pairs.at(-1) + 1), round.answers.slice(pairs.at(-1) + 1), label))
    picture(round.pairs[pairs.at(-1) + 1 + pair][0]);
}

function tileOf(pair) {
  const button = el("button", { type: "button", class: "mark", "data-pair": pair }, el("img", { alt: "" }), el("span"));
  button.addEventListener("click", () => mark(pair, pressed(marks.get(pair) ?? rest(), rest())));
  return button;
}

async function fill(tile) {
  const held = await picture(round.pairs[tile.pair][0]);
  const small = tile.button.querySelector("img");
  if (held.url) {
    small.src = held.url;
    try {
      await small.decode();
    } catch {
      held.fault = "the browser cannot read it";
    }
  }
  tile.url = held.fault ? null : held.url;
  tile.fault = held.fault || null;
  paintTiles();
}

function paintTiles() {
  for (const { pair, button, url, fault } of tiles) {
    const says = fault ? "skipped" : (marks.get(pair) ?? rest());
    button.dataset.says = says;
    button.disabled = Boolean(fault);
    button.querySelector("span").textContent = fault ? `cannot be shown: ${fault}` : says === rest() ? "" : says;
    button.querySelector("img").hidden = !url;
    button.setAttribute("aria-label", `Image ${imageOf(pair)}, ${nameOf(pair)}: ${says}`);
  }
}

function mark(pair, says) {
  if (taking) return;
  marks.set(pair, says);
  byId("said").textContent = `Image ${imageOf(pair)}: ${says}.`;
  paintTiles();
}

function closer({ pair, url }) {
  if (url) enlarge(`${nameOf(pair)} in image ${imageOf(pair)}?`, imageOf(pair), url);
}

// Answers everything in view, one pair after the other; what somebody else has answered meanwhile stays theirs.
async function takeAll() {
  if (taking || busy || !tiles.length) return;
  if (tiles.some((tile) => !tile.url && !tile.fault)) {
    byId("said").textContent = "Pictures are still loading.";
    return;
  }
  taking = true;
  byId("take").disabled = true;
  const gone = new Set(tiles.filter((tile) => tile.fault).map((tile) => tile.pair));
  const label = nameOf(tiles[0].pair);
  const group = [];
  mine.push(group);
  for (const [pair, says] of answersOf(
    tiles.map((tile) => tile.pair),
    marks,
    rest(),
    gone,
  )) {
    if (round.answers[pair] === null && (await send(pair, says))) group.push(pair);
    if (!byId("trouble").hidden) break; // the server is gone, or refuses: the others stay open
    marks.delete(pair);
  }
  if (!group.length) mine.pop();
  taking = false;
  byId("take").disabled = false;
  if (!byId("trouble").hidden) {
    await draw();
    return;
  }
  at = open(at);
  await draw();
  byId("said").textContent = `${label}: ${group.length} answered.`;
}

function toggleMany() {
  if (taking) return;
  if (many) byId("grid").replaceChildren();
  many = !many;
  tiles = [];
  shown = null;
  kept = 12;
  at = open(at);
  byId("said").textContent = "";
  draw();
}

// A key among the tiles; gives whether it was one of theirs.
function keyInGrid(event, key) {
  if (event.target.closest("dialog")) return false;
  const focused = tiles.findIndex((tile) => tile.button === document.activeElement);
  if (key === "enter" && !event.target.closest("summary, .closer, .moves")) {
    if (!event.repeat) takeAll();
    return true;
  }
  if (key === "g" || key === "z") {
    if (!event.repeat) ({ g: toggleMany, z: undo })[key]();
    return true;
  }
  if (focused < 0) return false;
  const says = { y: "yes", n: "no", u: "unsure" }[key];
  if (says) mark(tiles[focused].pair, says);
  else if (key === "+" || key === "=") closer(tiles[focused]);
  else if (key.startsWith("arrow")) {
    const columns = getComputedStyle(byId("grid")).gridTemplateColumns.split(" ").length;
    tiles[step(key, focused, tiles.length, columns)].button.focus();
  } else return false;
  return true;
}

// The end of the round

function drawEnd() {
  const counts = ["yes", "no", "unsure", "missing"].map((name) => [
    name === "missing" ? "skipped" : name,
    round.answers.filter((answer) => answer === name).length,
  ]);
  byId("tally").replaceChildren(
    ...counts.map(([name, n]) => el("div", {}, el("dt", {}, name), el("dd", {}, n.toLocaleString("en")))),
  );
  byId("finish").focus();
}

async function finish() {
  if (busy) return;
  busy = true;
  byId("finish").disabled = true;
  const found = await ask("finish", {});
  busy = false;
  byId("finish").disabled = false;
  if (!found.ok) {
    if (found.status) trouble(found.body.error);
    return;
  }
  trouble("");
  round = found.body;
  drawResult();
}

// A bound in percent, rounded outwards.
function percent(x, outwards) {
  if (x === null || x === undefined) return "n/a";
  const digits = x > 0 && x < 0.001 ? 3 : 2;
  return `${(outwards(+(100 * x * 10 ** digits).toFixed(6)) / 10 ** digits).toFixed(digits)} %`;
}
const verdict = (value) => (round.claims ? ["false", "true"] : ["absent", "present"])[value];

function table(name, heads, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head) => el("th", { scope: "col" }, head)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}

function drawResult() {
  for (const id of ["asking", "end"]) byId(id).hidden = true;
  byId("result").hidden = false;
  count();
  const errors = round.errors || [];
  kept = Infinity;
  const unsure = round.answers.filter((answer) => answer === "unsure").length;
  byId("result-title").textContent = `Round ${round.round} is ${round.state}`;
  const line = round.people
    ? round.people.join("; ") + "."
    : errors.length
      ? `The judge differs from you in ${errors.length.toLocaleString("en")} of ${round.pairs.length.toLocaleString("en")} pairs.`
      : "Free of errors.";
  byId("verdict").replaceChildren(
    el("span", { class: errors.length ? "found" : round.people ? "" : "clean" }, line),
    unsure ? ` ${unsure} unsure.` : "",
  );
  const overall = round.overall;
  const kinds = [
    ["error", "all cells"],
    ["false_positive", `called ${verdict(1)}, but ${verdict(0)}`],
    ["false_negative", `called ${verdict(0)}, but ${verdict(1)}`],
  ];
  byId("bounds").replaceChildren(
    ...(overall
      ? [
          el("h3", {}, `Still wrong in the matrix, at ${(100 * round.confidence).toLocaleString("en")} % confidence`),
          table(
            "Bounds",
            ["", "cells", "wrong / drawn for this bound", "at least", "at most"],
            kinds.map(([key, text]) =>
              el(
                "tr",
                {},
                el("th", { scope: "row" }, text),
                el("td", {}, overall[key].cells.toLocaleString("en")),
                el("td", {}, `${overall[key].wrong} / ${overall[key].checked.toLocaleString("en")}`),
                el("td", {}, percent(overall[key].low, Math.floor)),
                el("td", {}, percent(overall[key].high, Math.ceil)),
              ),
            ),
          ),
          el(
            "p",
            { class: "hint" },
            "A bound rests on the pairs that were drawn at random for it, and on no others: an error in another draw counts in the list of errors, and is refined, but says nothing of the pairs that nobody has seen.",
          ),
        ]
      : round.overall_missing
        ? [el("p", { class: "hint" }, `No overall bounds: ${round.overall_missing}.`)]
        : []),
  );
  if (round.kinds) byId("bounds").append(...kindBounds(Object.entries(round.kinds)));
  const next = errors.length && round.command ? round.command : null;
  byId("advice").replaceChildren(
    ...(next
      ? [
          el("h3", {}, "Next: refine these labels, then draw again"),
          el("p", { class: "command" }, el("code", {}, next), copy(next)),
        ]
      : []),
  );
  byId("errors").replaceChildren(
    ...(errors.length
      ? [
          el("h3", {}, "Where the judge differs"),
          table(
            "Errors",
            ["picture", "image", round.claims ? "claim" : "label", "judge", "you", "asked with"],
            errors.slice(0, LISTED).map(errorRow),
          ),
          errors.length > LISTED
            ? el(
                "p",
                { class: "hint" },
                `${(errors.length - LISTED).toLocaleString("en")} more: scapo-eval annotate qc status --errors`,
              )
            : "",
        ]
      : []),
  );
  document.body.dataset.ready = "result";
}

// The bounds of every kind of claims.
function kindBounds(kinds) {
  const cells = ({ cells, wrong, unsure, checked, high }) =>
    [
      cells.toLocaleString("en"),
      `${wrong}${unsure ? ` (+${unsure}?)` : ""} / ${checked}`,
      percent(high, Math.ceil),
    ].map((text) => el("td", {}, text));
  const heads = ["true", "false"].flatMap((said) => [`called ${said}`, "wrong / checked", "at most"]);
  const rows = kinds.map(([kind, { present, absent }]) =>
    el("tr", {}, el("th", { scope: "row" }, kind), cells(present), cells(absent)),
  );
  return [el("h3", {}, "Still wrong, by kind of claim"), table("Bounds by kind", ["", ...heads], rows)];
}

function errorRow(error) {
  const row = round.pairs[error.pair][0];
  const small = el("img", { alt: `Image ${error.image_id}` });
  const button = el(
    "button",
    { type: "button", "aria-label": `Enlarge image ${error.image_id}`, onclick: () => enlargeError(error, small.src) },
    small,
  );
  picture(row).then((held) => {
    if (held.url) small.src = held.url;
    else button.replaceChildren("not shown");
  });
  return el(
    "tr",
    {},
    el("td", {}, button),
    el("td", {}, error.image_id),
    el("td", {}, error.claim ?? error.label),
    el("td", {}, verdict(error.judged)),
    el("td", {}, verdict(error.person)),
    el("td", {}, el("code", {}, error.prompt || "n/a")),
  );
}

function enlargeError(error, source) {
  const said = `the judge says ${verdict(error.judged)}, you say ${verdict(error.person)}`;
  enlarge(`${error.claim ?? error.label} in image ${error.image_id}: ${said}`, error.image_id, source);
}

function enlarge(text, image, source) {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el(
    "dialog",
    { "aria-label": text, onclose: () => dialog.remove() },
    el("img", { src: source, alt: `Image ${image}` }),
    el("p", {}, text, close),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function copy(text) {
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  return button;
}

// Keys and buttons

const STEP = 80; // pixels of one pan
const keys = {
  y: () => answer("yes"),
  n: () => answer("no"),
  u: () => answer("unsure"),
  s: () => answer("missing"),
  z: undo,
  g: () => {
    if (at < round.pairs.length && !round.claims) toggleMany(); // every claim has a question of its own
  },
  "+": () => zoom(1.4),
  "=": () => zoom(1.4),
  "-": () => zoom(1 / 1.4),
  0: fit,
  arrowleft: () => go(at - 1),
  arrowright: () => {
    if (!byId("forward").disabled) go(at + 1);
  },
};
const pans = { arrowleft: [STEP, 0], arrowright: [-STEP, 0], arrowup: [0, STEP], arrowdown: [0, -STEP] };

addEventListener("keydown", (event) => {
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey || event.altKey || !round || round.state !== "open") return;
  if (many && at < round.pairs.length) {
    if (keyInGrid(event, key)) event.preventDefault();
    return;
  }
  if (event.shiftKey && pans[key]) {
    pan(...pans[key]);
    event.preventDefault();
    return;
  }
  if (key === "enter" && !event.target.closest("button, summary")) {
    go(open(at + 1));
    event.preventDefault();
    return;
  }
  if (!keys[key] || (event.repeat && "ynuszg".includes(key))) return; // a key held down answers once
  keys[key]();
  event.preventDefault();
});
for (const button of document.querySelectorAll("[data-answer]"))
  button.addEventListener("click", () => answer(button.dataset.answer));
const clicks = {
  undo,
  skip: () => answer("missing"),
  back: keys.arrowleft,
  forward: keys.arrowright,
  next: () => go(open(at + 1)),
  finish,
  take: takeAll,
  "at-once": keys.g,
  review: () => {
    many = false;
    go(round.pairs.length - 1);
  },
};
for (const [id, act] of Object.entries(clicks)) byId(id).addEventListener("click", act);
for (const choice of document.querySelectorAll("[name=rest]"))
  choice.addEventListener("change", () => {
    marks.clear();
    paintTiles();
  });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && round && round.state === "open") sync();
});

(async () => {
  const found = await ask("state");
  if (!found.ok) {
    if (found.status) trouble(found.body.error);
    return;
  }
  round = found.body;
  mine = round.order.map((pair) => [pair]);
  document.title = `Quality control: ${round.run}, round ${round.round}`;
  if (round.claims) {
    document.body.classList.add("claims");
    byId("fresh").textContent = "New kind";
    byId("labels-card").querySelector("summary").textContent = "Kinds";
  }
  byId("run").textContent = `${round.run} · round ${round.round} · ${round.by}`;
  if (round.state !== "open") {
    drawResult();
    return;
  }
  at = open(0);
  await draw();
  document.body.dataset.ready = "asking";
})();
