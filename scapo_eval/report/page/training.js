// The Training page: samples under a slider, what decides first, guards beside it, the rest in groups, settings.

import { address } from "./address.js";
import { chartOf } from "./curves.js";
import { byId, el } from "./dom.js";
import { addPage, remember } from "./pages.js";
import { bandOf, differing, hoursOf, lineOf, placeAt, shownNumber, smoothed, tokensOf } from "./series.js";
import { color } from "./systems.js";
import { Texts } from "./texts.js";

const HELD_OUT = "evaluation_";
const OPEN = "guards"; // the group that is not folded
const TITLES = { [OPEN]: "Guards: signs of gaming" };
/** Steps over which a line is a mean, by the steps of the longest run. */
const SMOOTHING = { none: () => 0, "": (span) => 2 * Math.ceil(span / 60), strong: (span) => 2 * Math.ceil(span / 16) };
const ALONG = { "": (run) => run.steps, hours: hoursOf, tokens: tokensOf };

const region = (label, table) =>
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
const rowOf = (cells, tag, more) =>
  el(
    "tr",
    {},
    cells.map((cell) => el(tag, more, el("bdi", {}, cell))),
  );
const tableOf = (heads, rows) =>
  el(
    "table",
    {},
    el("thead", {}, rowOf(heads, "th", { scope: "col" })),
    el(
      "tbody",
      {},
      rows.map((cells) => rowOf(cells, "td")),
    ),
  );

export function trainingPage({ runs, quantities }, numbers) {
  const texts = runs.map((run) => new Texts(run.texts, run.labels));
  const several = runs.length > 1;
  const slider = byId("step"),
    output = byId("step-shown"),
    fields = { along: byId("along"), smoothing: byId("smoothing") },
    checks = { logx: byId("log-steps"), logy: byId("log-values") },
    seeds = byId("seeds"),
    whole = byId("whole");
  const steps = [...new Set(runs.flatMap((run) => [...run.step, ...run.steps]))].sort((a, b) => a - b);
  const span = steps.length ? steps[steps.length - 1] - steps[0] : 0;
  slider.max = Math.max(0, steps.length - 1);
  slider.value = slider.max;
  const hidden = new Set();
  const seeded = new Set(runs.map((run) => run.group)).size < runs.length;
  const groups = new Map(quantities);
  const columns = new Set(runs.flatMap((run) => Object.keys(run.columns)));
  const column = (run) => (name) => {
    const at = run.columns[name];
    return typeof at === "number" ? numbers.subarray(at, at + run.rows) : at;
  };
  const positions = new Map(); // name of an axis and run -> where each row stands on it
  const positionsOf = (run) => {
    const key = fields.along.value + "\n" + run.name;
    if (!positions.has(key)) {
      const made = fields.along.value
        ? ALONG[fields.along.value](run.steps, column(run), Object.keys(run.columns))
        : run.steps;
      positions.set(key, made || run.steps);
    }
    return positions.get(key);
  };
  for (const [name, count] of Object.entries({ hours: hoursOf, tokens: tokensOf }))
    if (!runs.every((run) => count(run.steps, column(run), Object.keys(run.columns))))
      fields.along.querySelector(`[value=${name}]`).remove();
  if (fields.along.options.length < 2) fields.along.parentElement.hidden = true;
  byId("seeds-field").hidden = !seeded;
  let zoom = [null, null],
    range = [0, 1]; // of the axis of every chart

  const toggles = runs.map((run, r) => {
    const box = el("input", { type: "checkbox", checked: true, onchange: () => (keep(), draw()) });
    const dot = el("i", { class: "swatch", css: { background: color(r + 1) } });
    return [run.name, box, el("label", { class: "check" }, box, dot, el("bdi", {}, run.name))];
  });
  if (several) byId("runs").replaceChildren(...toggles.map(([, , label]) => label));

  const alarms = runs.flatMap((run) =>
    run.alarms.map(([step, name, metric, value, threshold, setting]) => {
      const short = (v) => shownNumber(v, false);
      return {
        run,
        cells: [...(several ? [run.name] : []), String(step), name, metric, short(value), short(threshold), setting],
        step,
        metric,
        value,
        text: `${several ? run.name + ", " : ""}step ${step}: ${name}: ${short(value)}, threshold ${short(threshold)}`,
      };
    }),
  );
  if (alarms.length) {
    const heads = [...(several ? ["Run"] : []), "Step", "Alarm", "Quantity", "Value", "Threshold", "Setting"];
    byId("alarms-said").replaceChildren(
      `${alarms.length === 1 ? "1 alarm" : alarms.length + " alarms"}, first ${alarms.reduce((a, b) => (b.step < a.step ? b : a)).text}. `,
      el(
        "a",
        { href: "#alarms", onclick: (event) => (event.preventDefault(), byId("alarms").scrollIntoView()) },
        "All alarms",
      ),
    );
    byId("alarms").replaceChildren(
      el("h3", {}, "Alarms"),
      el(
        "p",
        { class: "hint" },
        "The table lists the step at which each alarm started. Alarms are also marked in the charts of their metrics.",
      ),
      region(
        "Alarms",
        tableOf(
          heads,
          alarms.map((alarm) => alarm.cells),
        ),
      ),
    );
  }

  const settings = runs.map((run) => run.settings);
  if (settings.some((each) => Object.keys(each).length)) {
    const place = byId("settings"),
      apart = differing(settings),
      keys = [...new Set(settings.flatMap((each) => Object.keys(each)))].sort();
    const heads = ["Setting", ...runs.map((run) => run.name)];
    const count = apart.length === 1 ? "one differs" : `${apart.length} differ`;
    place.hidden = false;
    place.firstElementChild.textContent = several ? `Settings: ${count} of ${keys.length}` : "Settings";
    place.lastElementChild.replaceChildren(
      ...(several
        ? [
            apart.length
              ? region(
                  "Settings that differ",
                  tableOf(
                    heads,
                    apart.map(([key, values]) => [key, ...values]),
                  ),
                )
              : el("p", {}, "The runs’ settings are equal."),
            el("h3", {}, "All settings"),
          ]
        : []),
      region(
        "All settings",
        tableOf(
          heads,
          keys.map((key) => [key, ...settings.map((each) => each[key] ?? "")]),
        ),
      ),
    );
  }

  let made = []; // the charts that are drawn
  /** Where a step stands on the axis: as the first run that is drawn has it. */
  const positionOf = (step) => {
    const run = runs.find((each) => !hidden.has(each.name)) || runs[0],
      at = placeAt(run.steps, run.steps, step);
    return at < 0 ? null : positionsOf(run)[at];
  };
  const stepAt = (position) => {
    const run = runs.find((each) => !hidden.has(each.name)) || runs[0],
      x = positionsOf(run);
    return run.steps[Math.max(0, placeAt(x, x, position))];
  };
  const move = (position) => made.forEach((each) => each.move(position));
  const update = () => {
    const step = steps[+slider.value];
    output.textContent = String(step);
    slider.setAttribute("aria-valuetext", `step ${step}`);
    move(positionOf(step));
    const cards = runs.flatMap((run, r) => {
      if (hidden.has(run.name)) return [];
      const latest = new Map(); // image -> its newest response up to this step
      run.step.forEach((s, k) => {
        if (s <= step) latest.set(run.image[k], k);
      });
      return [...latest].map(([image, k]) => {
        const of = several ? el("bdi", {}, " · " + run.name) : null;
        const head = el("h4", {}, "Image ", el("bdi", {}, image), of, el("small", {}, ` step ${run.step[k]}`));
        return [image, el("section", { class: "caption" }, head, texts[r].render(k, false))];
      });
    });
    const order = [...new Set(cards.map(([image]) => image))]; // an image's responses by all runs together
    cards.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
    byId("samples").replaceChildren(
      el("h3", {}, "The same images"),
      ...(cards.length ? cards.map(([, card]) => card) : [el("p", { class: "hint" }, "No samples up to this step.")]),
    );
  };

  /** A quantity of a run: what is logged, and its mean over steps where it is logged at nearly every one. */
  const lineFor = (run, name, width) => {
    const { x, y, sparse } = lineOf(run.steps, column(run)(name));
    const at = new Map(sparse ? run.steps.map((step, k) => [step, k]) : []);
    const where = positionsOf(run);
    const moved = sparse ? x.map((step) => where[at.get(step)]) : where;
    const mean = width && !sparse ? smoothed(x, y, width) : null;
    return { x: moved, y: mean || y, raw: mean && y, points: sparse };
  };

  /** The lines of a quantity: a run each, or a mean and a range for the seeds of one experiment. */
  const linesOf = (name, width) => {
    const shown = runs.map((run, r) => [run, r]).filter(([run]) => !hidden.has(run.name) && name in run.columns);
    const together = seeded && seeds.checked;
    const members = new Map();
    for (const each of shown) {
      const key = together ? each[0].group : each[0].name;
      if (!members.has(key)) members.set(key, []);
      members.get(key).push(each);
    }
    return [...members].map(([key, of], n) => {
      const lines = of.map(([run]) => lineFor(run, name, width));
      const line = lines.length > 1 ? { ...bandOf(lines), points: lines[0].points } : lines[0];
      const named = lines.length > 1 ? `${key}, ${lines.length} seeds` : several ? of[0][0].name : "";
      return { ...line, name: named, color: of[0][1] + 1, dash: n };
    });
  };

  const chart = ([name, [title, , percent, meaning]], room) => {
    const held = HELD_OUT + name,
      width = SMOOTHING[fields.smoothing.value](span);
    const beside = groups.get("headline")?.some(([each]) => each === name) && columns.has(held);
    const dots = beside
      ? linesOf(held, 0).map((line) => ({
          ...line,
          points: true,
          low: null,
          name: [line.name, "held out"].filter(Boolean).join(", "),
        }))
      : [];
    return chartOf([...linesOf(name, width), ...dots], {
      title,
      percent,
      meaning: beside ? `${meaning} Dots: held-out images.` : meaning,
      width: room,
      range,
      from: zoom[0],
      to: zoom[1],
      logX: checks.logx.checked,
      logY: checks.logy.checked && !percent,
      alarms: alarms
        .filter((a) => a.metric === name && !hidden.has(a.run.name))
        .map((a) => ({
          x: positionsOf(a.run)[Math.max(0, placeAt(a.run.steps, a.run.steps, a.step))],
          value: a.value,
          text: a.text,
        })),
      point: (position) => move(position === null ? positionOf(steps[+slider.value]) : position),
      choose: (position) => {
        slider.value = steps.indexOf(stepAt(position));
        keep();
        update();
      },
      zoom: (from, to) => {
        zoom = [from, to];
        for (const each of made) each.fit(from, to);
        whole.hidden = from === null;
        keep();
        move(positionOf(steps[+slider.value]));
      },
    });
  };
  const draw = () => {
    hidden.clear();
    for (const [name, box] of toggles) if (!box.checked) hidden.add(name);
    const room = byId("curves").clientWidth || 700,
      count = Math.max(1, Math.floor((room + 12) / 284)),
      width = Math.floor((room - 13 * (count - 1)) / count) - 22;
    const shown = runs.filter((run) => !hidden.has(run.name) && run.rows).map(positionsOf);
    range = [Math.min(...shown.map((x) => x[0])), Math.max(...shown.map((x) => x[x.length - 1]))];
    if (!(range[0] < range[1])) range = [range[0] - 0.5 || 0, range[0] + 0.5 || 1];
    for (const each of made) each.end();
    made = [];
    const drawn = (members) => {
      const own = members.map((member) => chart(member, width)).filter(Boolean);
      made.push(...own);
      return own.map((each) => each.figure);
    };
    byId("curves").replaceChildren(...drawn(groups.get("headline") || []));
    const opened = new Set([...byId("more").querySelectorAll("details[open]")].map((d) => d.dataset.group));
    const first = !byId("more").firstChild;
    const rest = quantities.filter(([group]) => group !== "headline"),
      later = []; // drawn when the first charts stand
    byId("more").replaceChildren(
      ...rest.map(([group, members]) => {
        const place = el("div", { class: "curves" });
        const fill = () => {
          if (place.firstChild) return;
          place.replaceChildren(...drawn(members));
          move(positionOf(steps[+slider.value]));
        };
        const open = first ? group === OPEN : opened.has(group);
        const node = el(
          "details",
          { "data-group": group, open, ontoggle: () => node.open && fill() },
          el("summary", {}, TITLES[group] || group, el("small", {}, ` ${members.length}`)),
          place,
        );
        if (open) later.push(fill);
        return node;
      }),
    );
    const over = SMOOTHING[fields.smoothing.value](span);
    byId("smoothing-hint").textContent =
      over > 1
        ? `Thick lines are means over ${over} steps, and thin lines are the logged values. Metrics that are logged only at some steps are not smoothed.`
        : "";
    whole.hidden = zoom[0] === null;
    update();
    setTimeout(() => later.forEach((fill) => fill()));
  };

  const keep = () =>
    remember({
      step: +slider.value === +slider.max ? "" : steps[+slider.value],
      smoothing: fields.smoothing.value,
      along: fields.along.value,
      logx: checks.logx.checked ? 1 : "",
      logy: checks.logy.checked ? 1 : "",
      seeds: seeds.checked ? "" : "apart",
      zoom: zoom[0] === null ? "" : zoom.map((v) => +v.toPrecision(6)).join(":"),
      hide: toggles.filter(([, box]) => !box.checked).map(([name]) => name),
    });
  const fromAddress = () => {
    const now = address();
    const at = steps.indexOf(Number(now.get("step") || NaN));
    slider.value = at < 0 ? slider.max : at;
    for (const [name, select] of Object.entries(fields))
      select.value = [...select.options].some((each) => each.value === now.get(name)) ? now.get(name) : "";
    for (const [name, box] of Object.entries(checks)) box.checked = now.get(name) === "1";
    seeds.checked = now.get("seeds") !== "apart";
    const span_ = /^([-\d.e+]+):([-\d.e+]+)$/.exec(now.get("zoom") || "");
    zoom = span_ && +span_[1] < +span_[2] ? [+span_[1], +span_[2]] : [null, null];
    for (const [name, box] of toggles) box.checked = !now.getAll("hide").includes(name);
    draw();
  };
  let fresh = false; // drawn for the address that the reader has just come to
  slider.addEventListener("input", update);
  slider.addEventListener("change", keep);
  fields.along.addEventListener("change", () => ((zoom = [null, null]), keep(), draw()));
  for (const control of [fields.smoothing, seeds, ...Object.values(checks)])
    control.addEventListener("change", () => (keep(), draw()));
  whole.addEventListener("click", () => ((zoom = [null, null]), keep(), draw()));
  document.addEventListener("themepainted", () => made.length && draw());
  addPage("training", {
    draw: () => (fromAddress(), (fresh = true)),
    arrive: () => (fresh || fromAddress(), (fresh = false)),
    resized: true,
  });
}
