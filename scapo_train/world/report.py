"""Report of the experiment's results, with tables of means over seeds and their intervals, and charts of the rates over
the training steps.

The unit of analysis is the seed, because trials with the same seed share their pictures and their start model. Results
with different CPU kernels are therefore averaged within each seed. Intervals are 95 % confidence intervals from
Student's t distribution, and differences are computed within seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json
from scapo_eval.report.data import ISO_LEVELS, iso_curve
from scapo_eval.report.plots import COLORS, Style, panels, picture_format, save

from .experiment import KERNELS, SCHEMES, Measured, Trial, measure, read_metrics
from .ideal import best_guesser, chances, guesser
from .pictures import World

_FIGURES = (("hal_rate", "Hal. Rate, %"), ("cover_rate", "Cover Rate, %"), ("cap_score", "Cap. Score, %"))

_COLUMNS = {
    "hal_rate": "Hal.", "cover_rate": "Cover", "cap_score": "Cap. Score", "words": "words", "fluency": "fluent",
    "repeats": "repeats", "cut": "cut", "judged": "judged",
}  # fmt: skip
"""Field of Rates -> column header."""

_DECODING = ("sampled", "greedy")

SILENT = 0.05
"""Cover Rate below which a model makes almost no claims."""

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1 to 30 degrees of freedom."""


@dataclass(frozen=True)
class SchemeRow:
    """Table row for one scheme and its settings, computed over all seeds and kernels.

    Attributes:
        name: Name that all trials of the line share. The models before alignment are named ``start``.
        title: Name of the line in tables and charts.
        trials: Trials of the line, one per combination of seed and kernels, or one per seed for start models.
        measured: Measured rates of each trial.
    """

    name: str
    title: str
    trials: Sequence[Trial]
    measured: Sequence[Measured]

    def values(self, decoding: str, name: str, kernels: str | None = None) -> dict[int, float]:
        """Returns, for each seed, the mean of one rate over the kernels. The means are in percent, except for the
        numbers of words. Seeds without a value are omitted.

        Args:
            decoding: Decoding method for the captions, ``sampled`` or ``greedy``.
            name: Name of the rate, which is a field of Rates.
            kernels: Kernels of the trials to include, or None to include all trials.
        """
        by_seed: dict[int, list[float]] = {}
        for trial, measured in zip(self.trials, self.measured, strict=True):
            value = getattr(getattr(measured, decoding), name)
            if value is not None and kernels in (None, trial.kernels):
                by_seed.setdefault(trial.seed, []).append(value if name == "words" else 100 * value)
        return {seed: float(np.mean(values)) for seed, values in by_seed.items()}


def outcomes(folder: Path) -> list[SchemeRow]:
    """Returns the table line of the start models and the lines of all schemes with finished trials, in the order of
    SCHEMES.
    """
    seeds = sorted(int(path.parent.parent.name[5:]) for path in folder.glob("seed-*/model/captions_0.jsonl"))
    starts = [Trial("start", seed) for seed in seeds]
    lines: dict[str, list[Trial]] = {}
    for path in sorted(folder.glob("seed-*/runs/*/model/captions_0.jsonl")):
        trial = trial_of(path.parent.parent)
        lines.setdefault(trial.name, []).append(trial)
    order = sorted(lines, key=lambda name: (list(SCHEMES).index(lines[name][0].scheme), name))
    return [
        SchemeRow("start", "start", starts, [measure(trial.start(folder)) for trial in starts]),
        *(
            SchemeRow(name, lines[name][0].title, lines[name], [measure(trial.run(folder)) for trial in lines[name]])
            for name in order
        ),
    ]


def trial_of(run: Path) -> Trial:
    """Returns the trial to which a run folder belongs. The function is the inverse of :meth:`Trial.run`."""
    name, _, kernels = run.name.partition("@")
    scheme, *settings = re.split(r",(?=[a-z_]+\.)", unquote(name))
    return Trial(scheme, int(run.parent.parent.name[5:]), tuple(settings), kernels)


def mean_and_margin(values: Iterable[float]) -> tuple[float, float | None]:
    """Returns the mean of the values, and half the width of the mean's 95 % confidence interval from Student's t
    distribution. For a single value, the half-width is None.
    """
    sample = np.fromiter(values, dtype=float)
    if len(sample) < 2:
        return float(sample.mean()), None
    return float(sample.mean()), float(student(len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample)))


def student(freedom: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution. For more than 30 degrees of freedom, the quantile for 30
    is returned.
    """
    return _STUDENT[min(freedom, len(_STUDENT)) - 1]


def _cell(values: Iterable[float], sign: str = "") -> str:
    known = list(values)
    if not known:
        return "n/a"
    mean, margin = mean_and_margin(known)
    return f"{mean:{sign}.1f}" + ("" if margin is None else f" ± {margin:.1f}")


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]], texts: int) -> str:
    """Returns a Markdown table whose first ``texts`` columns contain text and whose other columns contain numbers."""
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def table(rows: Sequence[SchemeRow]) -> str:
    """Returns a Markdown table of all lines, for sampled and greedy decoding. The values are means over seeds with 95 %
    confidence intervals, in percent.
    """
    lines = [
        [outcome.title, decoding, str(len(outcome.trials))]
        + [_cell(outcome.values(decoding, name).values()) for name in _COLUMNS]
        for outcome in rows
        for decoding in _DECODING
    ]
    return markdown(["", "responses", "trials", *_COLUMNS.values()], lines, 2)


def differences(rows: Sequence[SchemeRow], to: str = "scapo") -> str:
    """Returns a Markdown table of the differences between each line and the line ``to``, computed from trials with the
    same seed and kernels.

    The result is an empty string if there is no line to compare.
    """
    base = next((outcome for outcome in rows if outcome.name == to), None)
    lines = []
    for outcome in rows[1:]:
        for decoding in _DECODING if base is not None and outcome is not base else ():
            cells, seeds = list[str](), 0
            for name in _COLUMNS:
                pairs = paired(outcome, base, decoding, name)
                seeds = max(seeds, len(pairs))
                cells.append(_cell(pairs.values(), "+"))
            lines.append([outcome.title, decoding, str(seeds), *cells])
    if base is None or not lines:
        return ""
    return markdown([f"less {base.title}", "responses", "seeds", *_COLUMNS.values()], lines, 2)


def paired(one: SchemeRow, other: SchemeRow | None, decoding: str, name: str) -> dict[int, float]:
    """Returns, for each seed, the difference between two lines, averaged over the kernels that the lines share."""
    if other is None:
        return {}
    gaps: dict[int, list[float]] = {}
    for kernels in sorted({trial.kernels for trial in one.trials} & {trial.kernels for trial in other.trials}):
        ours, theirs = (outcome.values(decoding, name, kernels) for outcome in (one, other))
        for seed in ours.keys() & theirs.keys():
            gaps.setdefault(seed, []).append(ours[seed] - theirs[seed])
    return {seed: float(np.mean(values)) for seed, values in sorted(gaps.items())}


def kernels_table(rows: Sequence[SchemeRow]) -> str:
    """Returns a Markdown table of the spread over kernels and over seeds, for all lines whose trials ran with all
    kernels.

    The spread over kernels is the standard deviation within a seed, pooled over seeds. The spread over seeds is the
    standard deviation among runs with the same kernels, pooled over kernels. The result is an empty string if all
    trials used the same kernels.
    """
    names = [kernels for kernels in KERNELS if any(trial.kernels == kernels for line in rows for trial in line.trials)]
    if len(names) < 2:
        return ""
    lines = []
    for outcome in (line for line in rows[1:] if {trial.kernels for trial in line.trials}.issuperset(names)):
        for decoding in _DECODING:
            for name in ("cap_score", "fluency"):
                grid = np.full((len({t.seed for t in outcome.trials}), len(names)), np.nan)
                place = {seed: row for row, seed in enumerate(sorted({trial.seed for trial in outcome.trials}))}
                for column, kernels in enumerate(names):
                    for seed, value in outcome.values(decoding, name, kernels).items():
                        grid[place[seed], column] = value
                means = [_cell(column[~np.isnan(column)]) for column in grid.T]
                lines.append([outcome.title, decoding, _COLUMNS[name], *means, _spread(grid), _spread(grid.T)])
    head = ["", "responses", "", *names, "spread of kernels", "spread of seeds"]
    return markdown(head, lines, 3) if lines else ""


def _spread(grid: NDArray[np.float64]) -> str:
    """Returns the standard deviation within the rows of an array, pooled over rows. NaN represents a missing value."""
    squares, freedom = 0.0, 0
    for row in grid:
        known = row[~np.isnan(row)]
        if len(known) > 1:
            squares += float(((known - known.mean()) ** 2).sum())
            freedom += len(known) - 1
    return f"{np.sqrt(squares / freedom):.1f}" if freedom else "n/a"


def write(world: World, folder: Path) -> str:
    """Writes ``table.md``, ``results.json`` and ``dynamics.png`` for all trials in the folder, and returns the
    tables.
    """
    entries = outcomes(folder)
    text = "\n\n".join(filter(None, (table(entries), differences(entries), kernels_table(entries))))
    ideal = {"scapo": asdict(guesser(world, 0.5)), "cap": asdict(best_guesser(world)[1]), "chances": chances(world)}
    summary = {"world": asdict(world), "ideal": ideal, "outcomes": [asdict(outcome) for outcome in entries]}
    with atomic_write(folder / "results.json") as stream:
        stream.write(dump_json(summary) + b"\n")
    with atomic_write(folder / "table.md") as stream:
        stream.write((text + "\n").encode())
    draw(folder / "dynamics.png", world, folder, entries)
    return text


def draw(path: Path, world: World, folder: Path, found: Sequence[SchemeRow]) -> None:
    """Draws ``hal_rate``, ``cover_rate`` and ``cap_score`` over the training steps, and plots the final ``hal_rate``
    against the final ``cover_rate`` of all schemes.

    Thick lines show means over trials, and thin lines show single trials. ``hal_rate`` is omitted if ``cover_rate`` is
    below 5 %, because ``hal_rate`` is then computed from few claims. In the second plot, the dotted line shows ideal
    describers with increasing readiness to guess (``ideal.py``).

    Args:
        path: Image file to write.
        world: Rules for drawing the pictures.
        folder: Folder of the training runs.
        found: Lines of the results. The first line is for the model before alignment, and the other lines are for the
            schemes.
    """
    schemes = found[1:]
    with Style(9.6).applied(), atomic_write(path) as stream:
        figure, places = panels(9.6, 7.6, 2, 2)
        for axes, (name, title) in zip(places, _FIGURES, strict=False):
            for scheme in (scheme for scheme in schemes if not SCHEMES[scheme.trials[0].scheme].foreign):
                curves = [_curve(trial.run(folder), name) for trial in scheme.trials]
                steps = min((steps for steps, _ in curves), key=len)
                values = np.array([curve[: len(steps)] for _, curve in curves])
                style = _style(scheme)
                for curve in values if len(values) > 1 else ():
                    axes.plot(steps, curve, **style, lw=0.6, alpha=0.4)
                axes.plot(steps, values.mean(axis=0), **style, lw=1.8, label=scheme.title)
            axes.set(title=title, xlabel="step", xlim=(0, None), ylim=(0, None))
        places[0].legend(fontsize=8)
        _plane(places[3], world, found)
        save(figure, stream, picture_format(str(path)))


def _style(outcome: SchemeRow) -> dict[str, Any]:
    """Returns the color and line style of a scheme, which are the same in all charts. Schemes for which no color is
    left are drawn as dashed lines.
    """
    if outcome.name == "start":
        return {"color": COLORS[0]}
    round_, place = divmod(list(SCHEMES).index(outcome.trials[0].scheme), len(COLORS) - 1)
    return {"color": COLORS[1 + place], "linestyle": "--" if round_ else "-"}


def _curve(run: Path, name: str) -> tuple[list[float], list[float]]:
    """Returns the steps of a run and the values of one rate, in percent, on the held-out pictures. Missing values are
    NaN.
    """
    steps, values = list[float](), list[float | None]()
    for line in read_metrics(run):
        if "evaluation_cover_rate" in line:
            silent = name == "hal_rate" and line["evaluation_cover_rate"] < SILENT
            steps.append(line["step"])
            values.append(None if silent else line[f"evaluation_{name}"])
    return steps, [np.nan if value is None else 100 * value for value in values]


def _plane(axes: Any, world: World, entries: Sequence[SchemeRow]) -> None:
    thresholds = [1.0, *sorted({chance - 1e-9 for chance, _ in chances(world)}, reverse=True)]
    ideals = [guesser(world, threshold) for threshold in thresholds]
    line = 100 * np.array([(ideal.hal_rate, ideal.cover_rate) for ideal in ideals])
    for level in ISO_LEVELS:
        curve = 100 * np.array(iso_curve(level))
        axes.plot(curve[:, 0], curve[:, 1], color="#9aa3ad", linestyle="--", linewidth=0.6, zorder=0)
    axes.plot(line[:, 0], line[:, 1], color="#55606c", linestyle=":", marker=".", ms=3, lw=1.2, label="ideal guessers")
    for outcome in entries:
        rates = [measured.sampled for measured in outcome.measured]
        points = np.array([(rate.hal_rate, rate.cover_rate) for rate in rates], dtype=float) * 100
        color = _style(outcome)["color"]
        axes.plot(points[:, 0], points[:, 1], "o", ms=3, color=color, alpha=0.5)
        axes.plot(
            *points.mean(axis=0), "s", ms=7, color=color, label=outcome.title if outcome.name == "start" else None
        )
    axes.set(title="where they end (curves of equal Cap. Score)", xlim=(0, 50), ylim=(0, 100))
    axes.set(xlabel="Hal. Rate, %", ylabel="Cover Rate, %")
    axes.legend(fontsize=8, loc="lower right")
