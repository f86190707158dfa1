// The Training page: samples under a slider, what decides first, guards beside it, the rest in groups.

import { address } from "./address.js";
import { byId, el } from "./dom.js";
import { curve } from "./linechart.js";
import { addPage, remember } from "./pages.js";
import { color } from "./systems.js";
import { Texts } from "./texts.js";

const HELD_OUT = "evaluation_";
const OPEN = "guards"; // the group that is not folded
const TITLES = { [OPEN]: "Guards against gaming" };
const odd = (n) => 2 * Math.round(n / 2) + 1;
/** Width of the mean, in logged steps, by their number. */
const SMOOTHING = { none: () => 1, "": (n) => odd(n / 30), strong: (n) => odd(n / 8) };

export function trainingPage(runs, quantities) {
  const texts = runs.map((run) => new Texts(run.texts, run.labels));
  const several = runs.length > 1;
  const slider = byId("step"),
    output = byId("step-shown"),
    smoothing = byId("smoothing"),
    checks = { logx: byId("log-steps"), logy: byId("log-values") };
  const steps = [...new Set(runs.flatMap((run) => [...run.step, ...run.columns.step]))].sort((a, b) => a - b);
  slider.max = Math.max(0, steps.length - 1);
  slider.value = slider.max;
  const hidden = new Set();
  const window_ = () => SMOOTHING[smoothing.value](Math.max(...runs.map((run) => run.columns.step.length)));
  const groups = new Map(quantities);
  const columns = new Set(runs.flatMap((run) => Object.keys(run.columns)));

  const toggles = runs.map((run, r) => {
    const box = el("input", { type: "checkbox", checked: true, onchange: () => (keep(), draw()) });
    const dot = el("i", { class: "swatch", css: { background: color(r + 1) } });
    return [run.name, box, el("label", { class: "check" }, box, dot, el("bdi", {}, run.name))];
  });
  if (several) byId("runs").replaceChildren(...toggles.map(([, , label]) => label));

  /** A quantity of a run as a line; one of every tenth step is a line, too, one missing now and then has a gap. */
  const line = (run, name) => {
    const y = run.columns[name] || [],
      there = [...y.keys()].filter((k) => y[k] !== null),
      x = run.columns.step;
    return 2 * there.length > y.length ? { x, y } : { x: there.map((k) => x[k]), y: there.map((k) => y[k]) };
  };

  const alarms = runs.flatMap((run) =>
    run.alarms.map(([step, name, metric, value, threshold, setting]) => {
      const short = (v) => String(+v.toPrecision(3));
      return {
        run: run.name,
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
    const row = (cells, tag, more) =>
      el(
        "tr",
        {},
        cells.map((cell) => el(tag, more, el("bdi", {}, cell))),
      );
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
      el("p", { class: "hint" }, "The step in which each began; marked in its chart, where it has one."),
      el(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Alarms" },
        el(
          "table",
          {},
          el("thead", {}, row(heads, "th", { scope: "col" })),
          el(
            "tbody",
            {},
            alarms.map((alarm) => row(alarm.cells, "td")),
          ),
        ),
      ),
    );
  }

  let moves = [];
  const move = (step) => moves.forEach((each) => each(step));
  const update = () => {
    const step = steps[+slider.value];
    output.textContent = String(step);
    slider.setAttribute("aria-valuetext", `step ${step}`);
    move(step);
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

  const chart = ([name, [title, , percent, meaning]], width) => {
    const held = HELD_OUT + name;
    const series = runs.flatMap((run, r) =>
      hidden.has(run.name) || !run.columns[name]
        ? []
        : [
            {
              name: several ? run.name : "",
              color: several ? r + 1 : 1,
              ...line(run, name),
              dots:
                groups.get("headline").some(([each]) => each === name) && run.columns[held] ? line(run, held) : null,
            },
          ],
    );
    return curve(title, series, {
      percent,
      meaning: columns.has(held) ? `${meaning} Dots: the held-out images.` : meaning,
      width,
      height: 160,
      window: window_(),
      logX: checks.logx.checked,
      logY: checks.logy.checked && !percent,
      marks: alarms.filter((a) => a.metric === name && !hidden.has(a.run)).map((a) => [a.step, a.value, a.text]),
      point: (step) => move(step === null ? steps[+slider.value] : step),
      choose: (step) => {
        slider.value = steps.indexOf(step);
        keep();
        update();
      },
    });
  };
  const draw = () => {
    hidden.clear();
    for (const [name, box] of toggles) if (!box.checked) hidden.add(name);
    const room = byId("curves").clientWidth || 700,
      count = Math.max(1, Math.floor((room + 12) / 284)),
      width = Math.floor((room - 13 * (count - 1)) / count) - 22;
    const made = (members) => members.map((member) => chart(member, width)).filter(Boolean);
    const headline = made(groups.get("headline") || []);
    byId("curves").replaceChildren(...headline.map((m) => m.figure));
    moves = headline.map((m) => m.move);
    const opened = new Set([...byId("more").querySelectorAll("details[open]")].map((d) => d.dataset.group));
    const first = !byId("more").firstChild;
    const rest = quantities.filter(([group]) => group !== "headline");
    byId("more").replaceChildren(
      ...rest.map(([group, members]) => {
        const own = made(members);
        moves.push(...own.map((m) => m.move));
        return el(
          "details",
          { "data-group": group, open: first ? group === OPEN : opened.has(group) },
          el("summary", {}, TITLES[group] || group, el("small", {}, ` ${own.length}`)),
          el(
            "div",
            { class: "curves" },
            own.map((m) => m.figure),
          ),
        );
      }),
    );
    const window_now = window_();
    byId("smoothing-hint").textContent =
      window_now > 1 ? `Thick lines are means over ${window_now} logged steps, thin ones every value.` : "";
    update();
  };

  const keep = () =>
    remember({
      step: +slider.value === +slider.max ? "" : steps[+slider.value],
      smoothing: smoothing.value,
      logx: checks.logx.checked ? 1 : "",
      logy: checks.logy.checked ? 1 : "",
      hide: toggles.filter(([, box]) => !box.checked).map(([name]) => name),
    });
  const arrive = () => {
    const now = address();
    const at = steps.indexOf(Number(now.get("step") || NaN));
    slider.value = at < 0 ? slider.max : at;
    smoothing.value = now.get("smoothing") in SMOOTHING ? now.get("smoothing") : "";
    for (const [name, box] of Object.entries(checks)) box.checked = now.get(name) === "1";
    for (const [name, box] of toggles) box.checked = !now.getAll("hide").includes(name);
    draw();
  };
  slider.addEventListener("input", update);
  slider.addEventListener("change", keep);
  for (const control of [smoothing, ...Object.values(checks)])
    control.addEventListener("change", () => (keep(), draw()));
  addPage("training", { draw, arrive, resized: true });
}
