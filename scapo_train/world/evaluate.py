"""Command ``python -m scapo_train.world evaluate FILE``, which tests the hypotheses of a registered grid and writes a
page with the results.

The page depends only on the registration and the results file, so that the same command always writes the same page.
The statistical unit is the seed. Each seed yields one value, and each hypothesis is a statement about the mean of these
values.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapo_eval.base.errors import InputError
from scapo_eval.files.files import atomic_write
from scapo_eval.report.data import ISO_LEVELS, iso_curve
from scapo_eval.report.plots import COLORS, Style, panels, picture_format, save

from .experiment import SCHEMES, Trial
from .grid import FRONTIER, START, Cell, Hypothesis, Key, Registration, Result, load_registration, read_results
from .report import SchemeRow, markdown, mean_and_margin, paired, table

Points = NDArray[np.float64]

WIDEST_HAL = 50.0
"""Hal. Rate, in percent, up to which a frontier's area is taken."""

COLUMNS = 4
"""Maximum number of charts beside each other in a figure."""

_DRAWS = 20000


@dataclass(frozen=True)
class Decision:
    """Decision on one hypothesis of a registered grid.

    Attributes:
        hypothesis: Hypothesis that is tested.
        values: Mapping from each seed to the difference between two schemes, or, for the claim ``below``, to the value
            of one scheme.
        wanted: Number of registered seeds.
        p: One-sided p-value, or None if there are fewer than two seeds.
        p_holm: One-sided p-value after Holm's correction over all hypotheses.
        answer: Verdict on the hypothesis, which is ``yes``, ``no``, ``undecided`` or ``no trials``.
        interim: True if trials of the compared schemes are still missing. A seed may have no value even though its
            trials are finished.
    """

    hypothesis: Hypothesis
    values: Mapping[int, float]
    wanted: int
    p: float | None
    p_holm: float | None
    answer: str
    interim: bool


def rows_of(cell: Cell, results: Mapping[Key, Result]) -> dict[str, SchemeRow]:
    """Returns a mapping from each scheme to the table line for the finished trials of a cell. The first line is that of
    the start model.
    """
    found: dict[str, tuple[list[Trial], list[Any]]] = {}
    for seed in cell.numbers:
        for key in cell.keys(seed):
            result = results.get(key)
            if result is not None and result.measured is not None:
                trials, measured = found.setdefault(key.scheme, ([], []))
                trials.append(key.trial)
                measured.append(result.measured)
    titles = {START: START, **{name: scheme.title for name, scheme in SCHEMES.items()}}
    return {name: SchemeRow(name, titles[name], *found[name]) for name in (START, *cell.schemes) if name in found}


def values_of(hypothesis: Hypothesis, registration: Registration, rows: Mapping[str, SchemeRow]) -> dict[int, float]:
    """Returns, for each seed, the difference to which a hypothesis refers, in percentage points.

    For the claim ``below``, the result contains the values of the scheme instead of differences.
    """
    metric, responses = hypothesis.metric, hypothesis.responses
    if metric in FRONTIER:
        ours, theirs = (
            _points(registration.families[name], rows, responses) for name in (hypothesis.scheme, hypothesis.other)
        )
        found = {}
        for seed in sorted(ours.keys() & theirs.keys()):
            one, other = ours[seed], theirs[seed]
            gap = dominated(one) - dominated(other) if metric == "area" else matched_cover(one, other)
            if gap is not None:
                found[seed] = gap
        return found
    if hypothesis.scheme not in rows:
        return {}
    if hypothesis.claim == "below":
        return rows[hypothesis.scheme].values(responses, metric)
    return paired(rows[hypothesis.scheme], rows.get(hypothesis.other), responses, metric)


def _points(names: Sequence[str], rows: Mapping[str, SchemeRow], responses: str) -> dict[int, Points]:
    """Returns a mapping from seeds to (schemes, 2) arrays of ``hal_rate`` and ``cover_rate``, for each seed with
    results for all schemes of a family.
    """
    if any(name not in rows for name in names):
        return {}
    rates = [[rows[name].values(responses, rate) for rate in ("hal_rate", "cover_rate")] for name in names]
    seeds = set.intersection(*(set(values) for pair in rates for values in pair))
    return {seed: np.array([[values[seed] for values in pair] for pair in rates]) for seed in sorted(seeds)}


def frontier_of(points: Points) -> Points:
    """Returns the points on the frontier, in ascending order of ``hal_rate``.

    A point is not on the frontier if another point has at most the same ``hal_rate`` and at least the same
    ``cover_rate``.
    """
    order = points[np.lexsort((-points[:, 1], points[:, 0]))]
    best = np.maximum.accumulate(np.concatenate([[-np.inf], order[:-1, 1]]))
    kept: Points = order[order[:, 1] > best]
    return kept


def dominated(points: Points) -> float:
    """Returns the area that a set of points dominates in the plane of ``hal_rate`` and ``cover_rate``.

    The area is given as a percentage of the whole area up to a ``hal_rate`` of ``WIDEST_HAL``.
    """
    line = frontier_of(points)
    line = line[line[:, 0] < WIDEST_HAL]
    until = np.append(line[1:, 0], WIDEST_HAL) if len(line) else np.zeros(0)
    return float(((until - line[:, 0]) * line[:, 1]).sum() / WIDEST_HAL)


def matched_cover(one: Points, other: Points) -> float | None:
    """Returns the mean difference in ``cover_rate`` between two frontiers at equal ``hal_rate``.

    The mean is taken over the range of ``hal_rate`` that both frontiers span, with linear interpolation between points.
    The result is None if the frontiers have no common range.
    """
    a, b = frontier_of(one), frontier_of(other)
    low, high = max(a[0, 0], b[0, 0]), min(a[-1, 0], b[-1, 0])
    if low >= high:
        return None
    grid = np.unique(np.concatenate([[low, high], a[:, 0], b[:, 0]]).clip(low, high))
    gap = np.interp(grid, a[:, 0], a[:, 1]) - np.interp(grid, b[:, 0], b[:, 1])
    return float(((gap[1:] + gap[:-1]) / 2 * np.diff(grid)).sum() / (high - low))


def student_tail(t: float, freedom: int) -> float:
    """Returns P(T > t) for Student's t distribution with an integer number of degrees of freedom, computed with a
    finite series.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term, total = (sine, sine) if freedom % 2 == 0 else (sine * math.cos(angle), sine * math.cos(angle))
    for k in range(2 if freedom % 2 else 1, freedom - 1, 2):
        term *= square * k / (k + 1)
        total += term
    if freedom % 2 == 0:
        return (1 - total) / 2
    return (1 - 2 / math.pi * (angle + (total if freedom > 1 else 0.0))) / 2


def p_value(hypothesis: Hypothesis, values: Iterable[float]) -> float | None:
    """Returns the one-sided p-value of a claim, or None if there are fewer than two values."""
    sample = np.fromiter(values, dtype=float)
    if len(sample) < 2:
        return None
    by = hypothesis.by
    shifts = {
        "higher": [sample - by], "lower": [-sample - by], "not lower": [sample + by], "below": [by - sample],
        "equivalent": [sample + by, by - sample],
    }[hypothesis.claim]  # fmt: skip
    return max(_mean_is_positive(shifted) for shifted in shifts)


def _mean_is_positive(sample: Points) -> float:
    """Returns the one-sided p-value for the claim that the mean of the values is above 0."""
    error = sample.std(ddof=1) / math.sqrt(len(sample))
    if error == 0:
        return 0.0 if sample[0] > 0 else 1.0
    return student_tail(float(sample.mean() / error), len(sample) - 1)


def _is_excluded(hypothesis: Hypothesis, values: Iterable[float]) -> bool:
    """Returns True if the claim is false for all values in the 95 % interval."""
    mean, margin = mean_and_margin(values)
    if margin is None:
        return False
    low, high, by = mean - margin, mean + margin, hypothesis.by
    return {
        "higher": high < by, "lower": low > -by, "not lower": high < -by, "below": low > by,
        "equivalent": low > by or high < -by,
    }[hypothesis.claim]  # fmt: skip


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Returns p-values after Holm's correction, in which hypotheses without a p-value are treated as having a p-value
    of 1.
    """
    known = sorted((value, k) for k, value in enumerate(values) if value is not None)
    corrected, largest = list[float | None]([None] * len(values)), 0.0
    for rank, (value, k) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(values) - rank)))
        corrected[k] = largest
    return corrected


def decide(registration: Registration, results: Mapping[Key, Result]) -> list[Decision]:
    """Returns the decision on every hypothesis of a registration."""
    rows = {cell.name: rows_of(cell, results) for cell in registration.cells}
    values = [values_of(claimed, registration, rows[claimed.cell]) for claimed in registration.hypotheses]
    raw = [p_value(claimed, found.values()) for claimed, found in zip(registration.hypotheses, values, strict=True)]
    decisions = []
    for claimed, found, p, corrected in zip(registration.hypotheses, values, raw, holm(raw), strict=True):
        if corrected is None:
            answer = "no trials" if not found else "undecided"
        elif corrected < registration.level:
            answer = "yes"
        else:
            answer = "no" if _is_excluded(claimed, found.values()) else "undecided"
        cell = registration.cell(claimed.cell)
        sides = (claimed.scheme, claimed.other)
        compared = {scheme for side in sides for scheme in registration.families.get(side, (side,))}
        interim = any(key.scheme in compared and key not in results for seed in cell.numbers for key in cell.keys(seed))
        decisions.append(Decision(claimed, found, len(cell.numbers), p, corrected, answer, interim))
    return decisions


def power(hypothesis: Hypothesis, seeds: int, level: float, true: float) -> float:
    """Returns the simulated probability that the test confirms a claim.

    The simulation assumes that the true mean is ``true``, and that the standard deviation between seeds equals the
    registered value. The simulation ignores Holm's correction, so the result is an upper bound.
    """
    random = np.random.default_rng(0)
    drawn = random.normal(true, hypothesis.spread, (_DRAWS, seeds))
    means, errors = drawn.mean(1), drawn.std(1, ddof=1) / math.sqrt(seeds)
    by, need = hypothesis.by, _critical(level, seeds - 1)
    low, high = means - need * errors, means + need * errors
    shown = {
        "higher": low > by, "lower": high < -by, "not lower": low > -by, "below": high < by,
        "equivalent": (low > -by) & (high < by),
    }[hypothesis.claim]  # fmt: skip
    return float(shown.mean())


def _critical(level: float, freedom: int) -> float:
    """Returns the value that a variable with Student's t distribution exceeds with a probability of ``level``."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > level else (low, middle)
    return high


def _supposed(hypothesis: Hypothesis) -> float:
    """Returns the true mean for which the power is computed.

    The value is twice the margin (or 1 percentage point if there is no margin) for claims of a difference, 0 for claims
    of no difference, and half of the bound for the claim ``below``.
    """
    by = hypothesis.by
    return {"higher": 2 * by or 1.0, "lower": -2 * by or -1.0, "not lower": 0.0, "equivalent": 0.0, "below": by / 2}[
        hypothesis.claim
    ]


def registered_table(registration: Registration) -> str:
    """Returns a Markdown table of the hypotheses with their expected answers and their power."""
    lines = []
    for claimed in registration.hypotheses:
        seeds, true = len(registration.cell(claimed.cell).numbers), _supposed(claimed)
        chance = power(claimed, seeds, registration.level, true)
        lines.append([
            claimed.name, _sentence(claimed), claimed.expected, str(seeds), f"{claimed.spread:g}", f"{true:+g}",
            f"{100 * chance:.0f} %",
        ])  # fmt: skip
    return markdown(["", "hypothesis", "expected", "seeds", "spread", "if the truth is", "power"], lines, 3)


def _sentence(claimed: Hypothesis) -> str:
    title = SCHEMES[claimed.scheme].title if claimed.scheme in SCHEMES else claimed.scheme
    other = SCHEMES[claimed.other].title if claimed.other in SCHEMES else claimed.other
    names = {"area": "dominated area", "matched": "Cover at matched Hal.", "hal_rate": "Hal.", "cover_rate": "Cover",
             "cap_score": "Cap. Score", "repeats": "repeating captions", "cut": "captions cut"}  # fmt: skip
    what = f"`{claimed.cell}`, {claimed.responses}: {names.get(claimed.metric, claimed.metric)} of {title}"
    more = f" by more than {claimed.by:g}" if claimed.by else ""
    words = {
        "higher": f"is higher than that of {other}{more}",
        "lower": f"is lower than that of {other}{more}",
        "not lower": f"is not lower than that of {other} by {claimed.by:g}",
        "equivalent": f"is within {claimed.by:g} of that of {other}",
        "below": f"is below {claimed.by:g} %",
    }
    return f"{what} {words[claimed.claim]}"


def value_of(decision: Decision) -> str:
    """Returns the mean of a hypothesis over its seeds with its 95 % interval, or ``n/a`` if there is no value. A
    difference has a sign.
    """
    values = list(decision.values.values())
    if not values:
        return "n/a"
    mean, margin = mean_and_margin(values)
    sign = "" if decision.hypothesis.claim == "below" else "+"
    return f"{mean:{sign}.1f}" + ("" if margin is None else f" ± {margin:.1f}")


def answer_of(decision: Decision) -> str:
    """Returns the answer to a hypothesis, which is marked if it is interim."""
    return decision.answer + (" (interim)" if decision.interim and decision.values else "")


def decisions_table(decisions: Sequence[Decision]) -> str:
    """Returns a Markdown table of all hypotheses with their values, p-values and answers."""
    lines = []
    for decision in decisions:
        p = "n/a" if decision.p_holm is None else f"{decision.p_holm:.3f}"
        seeds = f"{len(decision.values)} of {decision.wanted}"
        sentence = _sentence(decision.hypothesis)
        lines.append([decision.hypothesis.name, sentence, answer_of(decision), value_of(decision), p, seeds])
    return markdown(["", "hypothesis", "answer", "value", "p (Holm)", "seeds"], lines, 3)


def page(registration: Registration, results: Mapping[Key, Result], file: str, command: str, picture: str) -> str:
    """Returns the page of a registration as Markdown.

    Args:
        registration: Registered grid.
        results: Results of the trials of the grid.
        file: Name of the registration's file.
        command: Command that writes the page.
        picture: Path of the figure, relative to the page, or an empty string for a page without a figure.
    """
    cells, keys = [], {key for cell in registration.cells for seed in cell.numbers for key in cell.keys(seed)}
    done = {key: results[key] for key in keys if key in results and results[key].measured is not None}
    for cell in registration.cells:
        rows = rows_of(cell, results)
        told = (
            f"These trials use the world `{cell.world}`, {cell.lessons} lessons, {cell.steps} steps, and the seeds "
            f"{cell.seeds[0]} to {cell.seeds[1]}. {_missing(cell, results)}"
        )
        body = table(list(rows.values())) if rows else ""
        cells.append("\n\n".join(filter(None, [f"### {cell.name}", told, body])))
    hours = sum(result.seconds for result in done.values()) / 3600
    failed = [key for key in keys if key in results and results[key].measured is None]
    state = (
        f"{len(done)} of {len(keys)} trials are finished, {len(failed)} have failed, and "
        f"{len(keys) - len(done) - len(failed)} are missing. The durations of the finished trials add up to "
        f"{hours:.1f} hours."
    )
    faults = [f"- {key.scheme}, `{key.world}`, seed {key.seed}: {results[key].failed}" for key in sorted(failed)]
    figure = f"![Hal. and Cover Rate of every scheme, with the seeds behind the means]({picture})" if picture else ""
    parts = [
        f"# {registration.title}",
        f"<!-- written by {command} -->",
        registration.question.strip(),
        "## Registration",
        f"The hypotheses were registered on {registration.registered}, before the first trial. "
        f"{registration.rule.strip()}",
        "The column `power` shows the probability that the test confirms a hypothesis before Holm's correction. The "
        "columns `if the truth is` and `spread` state the true value and the standard deviation between seeds that "
        "are assumed for this probability.",
        registered_table(registration),
        f"The following commands, run in the folder of `{file}`, repeat all trials and test the hypotheses again. An "
        "interrupted `grid` continues with the missing trials:",
        f"```bash\npython -m scapo_train.world grid {file} --results again.jsonl\n"
        f"python -m scapo_train.world evaluate {file} --results again.jsonl\n```",
        "## Answers",
        state,
        decisions_table(decide(registration, results)),
        registration.reading.strip(),
        figure,
        "## Results",
        "The tables show means over seeds with Student's 95 % intervals. All values except the numbers of words are in "
        "percent. `judged` is the share of all sentences, including incomplete ones, that are fluent according to an "
        "n-gram model.",
        *cells,
        "\n".join(["Failed trials:", "", *faults]) if faults else "",
        "## Limits",
        registration.limits.strip(),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _missing(cell: Cell, results: Mapping[Key, Result]) -> str:
    """Returns a sentence that states for which seeds of a cell all trials are complete."""

    def is_complete(seed: int) -> bool:
        return all(key in results and results[key].measured is not None for key in cell.keys(seed))

    complete = [seed for seed in cell.numbers if is_complete(seed)]
    if len(complete) == len(cell.numbers):
        return "All seeds are complete."
    if not complete:
        return "So far, no seed is complete."
    return f"So far, {len(complete)} of {len(cell.numbers)} seeds are complete."


def draw(path: Path, registration: Registration, results: Mapping[Key, Result]) -> None:
    """Draws ``hal_rate`` and ``cover_rate`` of each scheme in one chart per cell.

    Large markers show means over seeds, small markers show single seeds, and lines connect the schemes of a family.
    """
    cells = [cell for cell in registration.cells if rows_of(cell, results)]
    columns = min(len(cells), COLUMNS)
    lines = -(-len(cells) // COLUMNS)
    with Style(4.8 * columns).applied(), atomic_write(path) as stream:
        figure, places = panels(4.8 * columns, 4.4 * lines, lines, columns)
        for axes in places[len(cells) :]:
            axes.remove()
        for axes, cell in zip(places[: len(cells)], cells, strict=True):
            rows = rows_of(cell, results)
            for level in ISO_LEVELS:
                curve = 100 * np.array(iso_curve(level))
                axes.plot(curve[:, 0], curve[:, 1], color="#9aa3ad", linestyle="--", linewidth=0.6, zorder=0)
            looks = dict(zip(rows, product("s^D", COLORS), strict=False))
            means = {}
            for name, row in rows.items():
                rates = [row.values("sampled", rate) for rate in ("hal_rate", "cover_rate")]
                seeds = sorted(rates[0].keys() & rates[1].keys())
                if not seeds:  # without a claim, there is no Hal. Rate
                    continue
                points = np.array([[values[seed] for values in rates] for seed in seeds])
                axes.plot(points[:, 0], points[:, 1], ".", ms=3, color=looks[name][1], alpha=0.5)
                means[name] = points.mean(0)
                axes.plot(*means[name], looks[name][0], ms=6, color=looks[name][1], label=row.title)
            for family in registration.families.values():
                line = np.array([means[name] for name in family if name in means])
                if len(line) > 1:
                    axes.plot(line[:, 0], line[:, 1], "-", lw=0.8, color="#55606c", zorder=1)
            axes.set(title=f"{cell.name}, sampled", xlabel="Hal. Rate, %", ylabel="Cover Rate, %")
            axes.set(xlim=(0, 50), ylim=(0, 100))
            if means:
                axes.legend(fontsize=7, loc="lower right")
        save(figure, stream, picture_format(str(path)))


def command(arguments: Sequence[str]) -> int:
    """Runs the command ``evaluate`` and returns the exit code, which is always 0."""
    parser = argparse.ArgumentParser(prog="scapo_train.world evaluate", description=__doc__)
    parser.add_argument("registration", type=Path, help="TOML file")
    parser.add_argument("--results", type=Path, help="results (default: beside the registration, .jsonl)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page and, beside it, images/NAME.svg")
    given = parser.parse_args(arguments)
    registration = load_registration(given.registration)
    if given.results and not given.results.exists():
        raise InputError("results not found", path=str(given.results))
    results = read_results(given.results or given.registration.with_suffix(".jsonl"))
    others = f" --results {given.results.as_posix()}" if given.results else ""
    words = f"python -m scapo_train.world evaluate {given.registration.as_posix()}{others} --page"
    finished = any(rows_of(cell, results) for cell in registration.cells)
    picture = f"images/{given.registration.stem}.svg" if finished else ""
    if given.page is None:
        print(registered_table(registration), decisions_table(decide(registration, results)), sep="\n\n")
        return 0
    if picture:
        (given.page.parent / "images").mkdir(exist_ok=True)
        draw(given.page.parent / picture, registration, results)
    with atomic_write(given.page) as stream:
        text = page(registration, results, given.registration.name, f"{words} {given.page.as_posix()}", picture)
        stream.write(text.encode())
    return 0
