// The Training page: metrics and samples over the steps of training runs.

import { byId, el } from "./dom.js";
import { curve } from "./linechart.js";
import { addPage } from "./pages.js";
import { Texts } from "./texts.js";

export function trainingPage(runs) {
  const texts = runs.map((run) => new Texts(run.texts, run.labels));
  const slider = byId("step"),
    output = byId("step-shown");
  const all = [...new Set(runs.flatMap((run) => (run.step.length ? run.step : run.columns.step)))].sort(
    (a, b) => a - b,
  );
  slider.max = Math.max(0, all.length - 1);
  slider.value = slider.max;
  const known = new Set();
  const columns = [...new Set(runs.flatMap((run) => Object.keys(run.columns)))].filter((name) => name !== "step");
  const group = (title, members, options) => {
    members.forEach((name) => known.add(name));
    return [title, members.filter((name) => columns.includes(name)), options || {}];
  };
  const charts = [
    group("Hal. Rate, %", ["hal_rate"], { percent: true }),
    group("Cover Rate, %", ["cover_rate"], { percent: true }),
    group("Cap. Score, %", ["cap_score"], { percent: true }),
    group("Held out: Hal. Rate, %", ["evaluation_hal_rate"], { percent: true }),
    group("Held out: Cover Rate, %", ["evaluation_cover_rate"], { percent: true }),
    group("Held out: Cap. Score, %", ["evaluation_cap_score"], { percent: true }),
    group("Reward", ["reward"]),
    group("Reward parts", ["reward_new", "reward_hal", "reward_reg"]),
    group("Length, tokens", ["length"]),
    group("KL to the reference", ["kl"]),
    group("Gradient norm", ["grad_norm"]),
    group(
      "Seconds per phase",
      columns.filter((name) => name.startsWith("seconds")),
      { zero: true },
    ),
  ];
  for (const name of columns) if (!known.has(name)) charts.push([name, [name], {}]);
  if (runs.length > 1)
    charts.splice(
      0,
      charts.length,
      ...charts.flatMap(([title, members, options]) =>
        members.length > 1 ? members.map((m) => [m, [m], options]) : [[title, members, options]],
      ),
    );
  const line = (run, name) => {
    // a value at every tenth step is a line; one that is missing now and then leaves a gap
    const y = run.columns[name],
      there = y.map((v, k) => k).filter((k) => y[k] !== null),
      x = run.columns.step;
    return 2 * there.length > y.length ? { x, y } : { x: there.map((k) => x[k]), y: there.map((k) => y[k]) };
  };
  const short = (v) => String(+v.toPrecision(3));
  const alarms = runs.flatMap((run) =>
    run.alarms.map(([step, name, metric, value, threshold, setting]) => ({
      cells: [
        ...(runs.length > 1 ? [run.name] : []),
        String(step),
        name,
        metric,
        short(value),
        short(threshold),
        setting,
      ],
      step,
      metric,
      value,
      text: `${runs.length > 1 ? run.name + ", " : ""}step ${step}: ${name}: ${short(value)}, threshold ${short(threshold)}`,
    })),
  );
  if (alarms.length) {
    const heads = ["Step", "Alarm", "Quantity", "Value", "Threshold", "Setting"];
    if (runs.length > 1) heads.unshift("Run");
    byId("alarms").replaceChildren(
      el("h3", {}, "Alarms"),
      el("p", { class: "hint" }, "The step in which each began; marked in its chart, where it has one."),
      el(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Alarms" },
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
          el(
            "tbody",
            {},
            alarms.map((alarm) =>
              el(
                "tr",
                {},
                alarm.cells.map((cell) => el("td", {}, el("bdi", {}, cell))),
              ),
            ),
          ),
        ),
      ),
    );
  }
  let moves = [];
  const update = () => {
    const step = all[+slider.value];
    output.textContent = String(step);
    moves.forEach((move) => move(step));
    const cards = [];
    runs.forEach((run, r) => {
      for (const image of new Set(run.image)) {
        let best = -1;
        run.step.forEach((s, k) => {
          if (run.image[k] === image && s <= step) best = k;
        });
        if (best >= 0)
          cards.push(
            el(
              "section",
              { class: "caption" },
              el(
                "h4",
                {},
                "Image ",
                el("bdi", {}, image),
                runs.length > 1 ? el("bdi", {}, " · " + run.name) : null,
                el("small", {}, ` step ${run.step[best]}`),
              ),
              texts[r].render(best, false),
            ),
          );
      }
    });
    byId("samples").replaceChildren(
      cards.length ? el("div", { class: "columns" }, cards) : el("p", { class: "hint" }, "No samples up to this step."),
    );
  };
  slider.addEventListener("input", update);
  const draw = () => {
    const place = byId("curves"),
      room = place.clientWidth || 700,
      wide = room < 340 ? room - 20 : 300;
    const made = charts
      .map(([title, members, options]) =>
        curve(
          title,
          runs.flatMap((run, r) =>
            members
              .filter((m) => run.columns[m])
              .map((m, j) => ({
                name: runs.length > 1 ? run.name : m,
                ...line(run, m),
                color: (runs.length > 1 ? r : j) + 1,
              })),
          ),
          {
            ...options,
            width: wide,
            marks: alarms.filter((a) => members.includes(a.metric)).map((a) => [a.step, a.value, a.text]),
          },
        ),
      )
      .filter(Boolean);
    place.replaceChildren(...made.map((m) => m.figure));
    moves = made.map((m) => m.move);
    update();
  };
  addPage("training", { draw, resized: true });
}
