"""Sentences that summarize the tests of one system against another and state only tested differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..results.metric import MetricSet
from ..results.names import CHANGES, metric_name
from ..results.render import ComparisonRow, headline, is_better, number, stars
from ..results.stats import MIN_SHARED_IMAGES
from ..results.verdict import CAP_SCORE, component_rates

Tone = Literal["better", "worse", "untested"]
"""Test result that a color represents on every page: better, worse, or undecided."""

Named = Callable[[str], str]
"""Function from a metric to its displayed name."""

LENGTH = "len"
"""Mean length of captions, for which neither direction is better."""

PRICES = {
    "hal_rate": "at the cost of {} points more absent objects",
    "cover_rate": "at the cost of {} points of coverage",
}
"""Metric -> wording of a significant loss that accompanies a significant gain in Cap. Score."""


@dataclass(frozen=True, slots=True)
class Clause:
    """Clause of a sentence.

    Attributes:
        text: Text of the clause.
        tone: Result of the test on which the clause is based.
        metric: Name of the metric that the clause describes, or an empty string if it does not describe a single
            metric.
        fell: True if the metric is lower than the baseline's.
    """

    text: str
    tone: Tone = "untested"
    metric: str = ""
    fell: bool = False


@dataclass(frozen=True, slots=True)
class Sentence:
    """Sentence that compares one system with one baseline.

    Attributes:
        system, baseline: Names of the two systems.
        verdict: Summary in one or two words, based only on the tests.
        tone: Result of the tests (``better``, ``worse`` or ``untested``), which determines the color of the verdict.
        parts: Clauses of the sentence, in order.
        n_images: Number of shared images on which all values were measured.
    """

    system: str
    baseline: str
    verdict: str
    tone: Tone
    parts: tuple[Clause, ...]
    n_images: int

    def __str__(self) -> str:
        return "".join(self.pieces())

    def pieces(self) -> list[str]:
        """Returns the clauses with separators between them: commas between clauses about metrics, and semicolons
        otherwise.
        """
        made: list[str] = []
        for k, part in enumerate(self.parts):
            alike = k > 0 and (part.metric in CHANGES) == (self.parts[k - 1].metric in CHANGES)
            listed = alike and bool(part.metric) and LENGTH not in (part.metric, self.parts[k - 1].metric)
            made.append(("" if k == 0 else ", " if listed and self.parts[k - 1].metric else "; ") + part.text)
        return made


def spoken_metrics(metric_set: MetricSet) -> list[str]:
    """Returns the metrics to mention in a sentence: the headline metrics of a benchmark, and the caption score if it is
    available.
    """
    names = headline(metric_set)
    if CAP_SCORE in metric_set.formulas and CAP_SCORE not in names:
        at = 1 + max((names.index(name) for name in component_rates(metric_set) if name in names), default=-1)
        names = [*names[:at], CAP_SCORE, *names[at:]]
    return names


def sentence(
    rows: Sequence[ComparisonRow],
    metric_set: MetricSet,
    length: ComparisonRow | None = None,
    *,
    same_images: bool,
    verdict: ComparisonRow | None = None,
    named: Named = metric_name,
) -> Sentence:
    """Returns the sentence that compares one system with one baseline.

    Args:
        rows: Comparisons of the two systems, one per metric.
        metric_set: Metrics of the benchmark.
        length: Comparison of caption lengths in words, if there are captions.
        same_images: True if both systems were scored on exactly the same images.
        verdict: Joint test of the hypothesis "better in one metric and worse in none", if available.
        named: Function that returns the display name of a metric, with a mark if the project's own parser was used.
    """
    row_of = {row["metric"]: row for row in rows}
    first = rows[0]
    names = [name for name in spoken_metrics(metric_set) if name in row_of]
    n = first["n_images"]

    def ended(verdict: str, *texts: str) -> Sentence:
        return Sentence(first["system"], first["baseline"], verdict, "untested", tuple(map(Clause, texts)), n)

    other = [row for row in rows if row["difference"] is not None]
    if not metric_set.counted:
        return ended("not tested", "values computed by another harness; differences are not tested")
    if not same_images and n < MIN_SHARED_IMAGES:
        shared = "no image is shared" if not n else f"only {n} image{'s are' if n > 1 else ' is'} shared"
        return ended("not compared", f"{shared}: too few to compare")
    if first.get("differing"):
        fields = ", ".join(first["differing"])
        return ended("not comparable", f"different settings ({fields}) may explain a difference")
    if n < MIN_SHARED_IMAGES:
        return ended("not tested", f"only {n} image{'s' if n > 1 else ''}: too few to test")
    if not any(row["test"] for row in other):
        return ended("not tested", "no resamples, so no tests")
    measured = [*other, *([length] if length is not None and length["difference"] is not None else [])]
    if all(row["difference"] == 0 and not row["n_differing"] for row in measured):
        return ended("no difference", f"identical in every metric on each of the {n:,} shared images")
    tones = {name: _tone(row_of[name], metric_set) for name in names}
    paid = _paid(tones, metric_set)
    parts = [
        _changed(row_of[name], metric_set, tones[name], name in paid, named) for name in names if stars(row_of[name])
    ]
    if undecided := [n for n in names if row_of[n]["difference"] is not None and not stars(row_of[n])]:
        metrics = _or(_with_power([row_of[name] for name in undecided], metric_set, named))
        parts.append(Clause(f"no difference shown in {metrics}"))
    if alone := [
        named(n) for n in names if (row_of[n]["system_value"] is None) != (row_of[n]["baseline_value"] is None)
    ]:
        parts.append(Clause(f"{_or(alone)} not compared: one of the two has no value"))
    if length is not None and LENGTH not in names and stars(length):
        parts.append(_changed(length, metric_set, "untested"))
    conclusion, tone = _verdict(tones, metric_set, verdict, named)
    return Sentence(first["system"], first["baseline"], conclusion, tone, tuple(parts), n)


def _with_power(rows: Sequence[ComparisonRow], metric_set: MetricSet, named: Named) -> list[str]:
    """Returns the names of metrics, each followed by the difference that the test detects with a power of 80 %."""
    texts, what = [], "detectable with 80 % power: "
    for row in rows:
        name = named(row["metric"])
        if row["detectable"] is not None:
            name += f" ({what}{number(row['detectable'], row['metric'] in metric_set.plain_numbers)})"
            what = ""
        texts.append(name)
    return texts


def _tone(row: ComparisonRow, metric_set: MetricSet) -> Tone:
    better = is_better(row, metric_set.higher_is_better.get(row["metric"]))
    return "untested" if better is None else "better" if better else "worse"


def _paid(tones: Mapping[str, Tone], metric_set: MetricSet) -> tuple[str, ...]:
    """Returns the rates that are significantly worse although the caption score, which combines them, is significantly
    better.
    """
    return tuple(n for n in component_rates(metric_set) if tones.get(CAP_SCORE) == "better" and tones.get(n) == "worse")


def _changed(
    row: ComparisonRow, metric_set: MetricSet, tone: Tone, paid: bool = False, named: Named = metric_name
) -> Clause:
    """Returns the wording for a significant change. ``paid`` is True for a loss that accompanies a larger gain."""
    name, change = row["metric"], row["difference"]
    if name == LENGTH:
        share = abs(change) / row["baseline_value"] if row["baseline_value"] else 0.0
        amount = f"{100 * share:.0f} %" if share >= 0.005 else f"{abs(change):.1f} words"
        return Clause(f"captions {amount} {'longer' if change > 0 else 'shorter'}", tone, name)
    plain = name in metric_set.plain_numbers
    amount = number(abs(change), plain)
    if not float(amount):
        amount = number(abs(change), plain, 3)
    if name in CHANGES:
        words = PRICES[name] if paid else CHANGES[name][change > 0]
        return Clause(words.format(amount), tone, name, change < 0)
    lower = " (lower is better)" if metric_set.higher_is_better.get(name) is False else ""
    return Clause(f"{named(name)} {'+' if change > 0 else '−'}{amount}{lower}", tone, name)


def _verdict(
    tones: Mapping[str, Tone], metric_set: MetricSet, joint: ComparisonRow | None, named: Named
) -> tuple[str, Tone]:
    """Returns the verdict and its color.

    If the test for the caption score is significant, the verdict is based on this score and not on its two component
    rates. The verdict includes the word "overall" if one of the rates is significantly worse. All other metrics that
    have a preferred direction also count.
    """
    spared = component_rates(metric_set) if tones.get(CAP_SCORE, "untested") != "untested" else ()
    judged = [n for n in tones if n not in spared and metric_set.higher_is_better.get(n) is not None]
    better, worse = ([name for name in judged if tones[name] == tone] for tone in ("better", "worse"))
    if better and worse:
        return "trade-off", "untested"
    if not better and not worse:
        return "no significant difference", "untested"
    tone: Tone = "better" if better else "worse"
    decided = better or worse
    if len(decided) == len(judged):
        return f"{tone} overall" if _paid(tones, metric_set) else tone, tone
    none_worse = ", worse in none" if better and joint is not None and joint["p_value"] < 0.05 else ""
    return f"{tone} in {_and(map(named, decided))}{none_worse}", tone


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _and(names: Any) -> str:
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
