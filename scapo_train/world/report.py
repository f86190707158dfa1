"""What came out: a table of the final models, and the picture of Hal. and Cover Rate over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scapo_eval.io.files import atomic_write, dump_json
from scapo_eval.report.data import ISO_LEVELS, iso_curve
from scapo_eval.report.plots import COLORS, Plot, picture_format

from .experiment import SCHEMES, Rates, measure, read_metrics
from .ideal import best_guesser, chances, guesser
from .pictures import World

_FIGURES = (("hal_rate", "Hal. Rate, %"), ("cover_rate", "Cover Rate, %"), ("cap_score", "Cap. Score, %"))

SILENT = 0.05
"""Cover Rate below which a model says hardly anything."""


@dataclass(frozen=True)
class Outcome:
    """One scheme over its seeds.

    Attributes:
        name: name of the scheme; ``start`` for the model before alignment.
        title: name in the table.
        runs: names of the runs, one per seed.
        sampled: rates of one response per held-out picture at temperature 1, a model per seed.
        greedy: the same at temperature 0.
    """

    name: str
    title: str
    runs: Sequence[str]
    sampled: Sequence[Rates]
    greedy: Sequence[Rates]


def outcomes(folder: Path) -> list[Outcome]:
    """The start and every scheme that has runs, measured by ``scapo_eval`` on the held-out pictures."""

    def measured(name: str, title: str, runs: Sequence[Path]) -> Outcome:
        sampled, greedy = ([measure(run / "model", folder, temperature) for run in runs] for temperature in (1.0, 0.0))
        return Outcome(name, title, [run.name for run in runs], sampled, greedy)

    runs = {name: sorted(folder.glob(f"runs/{name}-*/model")) for name in SCHEMES}
    schemes = [
        measured(name, SCHEMES[name].title, [model.parent for model in runs[name]]) for name in SCHEMES if runs[name]
    ]
    return [measured("start", "start", [folder]), *schemes]


def table(found: Sequence[Outcome]) -> str:
    """Markdown: percent with one decimal, mean over the seeds, and their spread where there are several."""
    head = [
        "",
        "seeds",
        "Hal.",
        "Cover",
        "Cap. Score",
        "words",
        "fluent",
        "Hal., greedy",
        "Cover, greedy",
        "Cap. Score, greedy",
    ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for each in found:
        cells = [_cell([getattr(rates, name) for rates in each.sampled]) for name, _ in _FIGURES]
        words = f"{np.mean([rates.words for rates in each.sampled]):.1f}"
        fluent = _cell([rates.fluency for rates in each.sampled])
        greedy = [_cell([getattr(rates, name) for rates in each.greedy]) for name, _ in _FIGURES]
        lines.append([each.title, str(len(each.runs)), *cells, words, fluent, *greedy])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return "n/a"
    spread = f" ± {np.std(known, ddof=1):.1f}" if len(known) > 1 else ""
    return f"{np.mean(known):.1f}{spread}"


def write(world: World, folder: Path) -> str:
    """Writes ``table.md``, ``results.json`` and ``dynamics.png`` of all runs in the folder; returns the table."""
    found = outcomes(folder)
    text = table(found)
    ideal = {"scapo": asdict(guesser(world, 0.5)), "cap": asdict(best_guesser(world)[1]), "chances": chances(world)}
    summary = {"world": asdict(world), "ideal": ideal, "outcomes": [asdict(each) for each in found]}
    with atomic_write(folder / "results.json") as stream:
        stream.write(dump_json(summary) + b"\n")
    with atomic_write(folder / "table.md") as stream:
        stream.write((text + "\n").encode())
    draw(folder / "dynamics.png", world, folder, found)
    return text


def draw(path: Path, world: World, folder: Path, found: Sequence[Outcome]) -> None:
    """Hal., Cover Rate and Cap. Score over the steps, and where each scheme ends in their plane.

    Thick lines are means over seeds, thin ones the seeds. The Hal. Rate is not drawn where hardly anything is said
    (Cover Rate below 5 %): it is a ratio of a few claims there. In the plane, the dotted line is what describers
    without fault reach who guess more and more readily (``ideal.py``).

    Args:
        path: image file that is written.
        world: rules of the pictures.
        folder: folder of the training runs.
        found: the model before alignment first, then the schemes.
    """
    schemes = found[1:]
    with Plot(9.6, 7.6, 2, 2) as plot, open(path, "wb") as stream:
        for axes, (name, title) in zip(plot.axes, _FIGURES, strict=False):
            for each in schemes:
                curves = [_curve(folder / "runs" / run, name) for run in each.runs]
                steps = min((steps for steps, _ in curves), key=len)
                values = np.array([curve[: len(steps)] for _, curve in curves])
                style = _style(each)
                for one in values if len(values) > 1 else ():
                    axes.plot(steps, one, **style, lw=0.6, alpha=0.4)
                axes.plot(steps, values.mean(axis=0), **style, lw=1.8, label=each.title)
            axes.set(title=title, xlabel="step", xlim=(0, None), ylim=(0, None))
        plot.axes[0].legend(fontsize=8)
        _plane(plot.axes[3], world, found)
        plot.save(stream, picture_format(str(path)))


def _style(each: Outcome) -> dict[str, Any]:
    """A color of its own for every scheme of the chart, in every chart the same; further ones are dashed."""
    if each.name == "start":
        return {"color": COLORS[0]}
    round_, place = divmod(list(SCHEMES).index(each.name), len(COLORS) - 1)
    return {"color": COLORS[1 + place], "linestyle": "--" if round_ else "-"}


def _curve(run: Path, name: str) -> tuple[list[float], list[float]]:
    """Steps and percentages of the held-out pictures; what has no value leaves a gap."""
    steps, values = list[float](), list[float | None]()
    for line in read_metrics(run):
        if "evaluation_cover_rate" in line:
            silent = name == "hal_rate" and line["evaluation_cover_rate"] < SILENT
            steps.append(line["step"])
            values.append(None if silent else line[f"evaluation_{name}"])
    return steps, [np.nan if value is None else 100 * value for value in values]


def _plane(axes: Any, world: World, found: Sequence[Outcome]) -> None:
    thresholds = [1.0, *sorted({chance - 1e-9 for chance, _ in chances(world)}, reverse=True)]
    ideals = [guesser(world, threshold) for threshold in thresholds]
    line = 100 * np.array([(each.hal_rate, each.cover_rate) for each in ideals])
    for level in ISO_LEVELS:
        curve = 100 * np.array(iso_curve(level))
        axes.plot(curve[:, 0], curve[:, 1], color="#9aa3ad", linestyle="--", linewidth=0.6, zorder=0)
    axes.plot(line[:, 0], line[:, 1], color="#55606c", linestyle=":", marker=".", ms=3, lw=1.2, label="ideal guessers")
    for each in found:
        points = np.array([(rates.hal_rate, rates.cover_rate) for rates in each.sampled], dtype=float) * 100
        color = _style(each)["color"]
        axes.plot(points[:, 0], points[:, 1], "o", ms=3, color=color, alpha=0.5)
        axes.plot(*points.mean(axis=0), "s", ms=7, color=color, label=each.title if each.name == "start" else None)
    axes.set(title="where they end (curves of equal Cap. Score)", xlim=(0, 50), ylim=(0, 100))
    axes.set(xlabel="Hal. Rate, %", ylabel="Cover Rate, %")
    axes.legend(fontsize=8, loc="lower right")
