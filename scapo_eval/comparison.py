"""Runs side by side: the difference of every metric to the first run, with interval and paired test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .errors import InputError
from .results import Resampling, Results, Run
from .stats import Test, holm, paired_differences


def compare(
    runs: Sequence[Run],
    *,
    allow_different: bool = False,
    resampling: Resampling | None = None,
    test: Test = "approximate_randomization",
) -> Results:
    """Compares runs of one benchmark with the first.

    Args:
        runs: the first is the baseline.
        allow_different: go on where runs were scored in different ways (another truth, vocabulary, parser...).
        resampling: of all intervals and tests; None takes the first run's.
        test: where p-values come from, see :func:`scapo_eval.stats.paired_differences`.

    Returns:
        The runs, their intervals drawn alike, and the comparisons: ``system, baseline, metric, difference, ci_low,
        ci_high, p_value, test, n_images`` and, with three runs or more, ``p_holm``, corrected over the systems
        that are compared in that metric.

    Raises:
        InputError: runs of different benchmarks or parts of one, or scored in different ways;
            McNemar's test of metrics without single verdicts.
    """
    drawn = resampling or runs[0].resampling
    baseline, *others = [run.redrawn(drawn) for run in runs]
    if not allow_different:
        for run in others:
            _check_same_scoring(run, baseline)
    comparisons = [row for run in others for row in _comparisons(run, baseline, drawn, test)]
    if len(others) > 1:
        for name in baseline.metric_set.formulas:
            family = [row for row in comparisons if row["metric"] == name]
            for row, corrected in zip(family, holm([row["p_value"] for row in family]), strict=True):
                row["p_holm"] = corrected
    return Results((baseline, *others), tuple(comparisons))


def _check_same_scoring(run: Run, baseline: Run) -> None:
    differing = run.signature.differences(baseline.signature)
    if differing:
        shown = "; ".join(f"{field}: {theirs} and {ours}" for field, (ours, theirs) in differing.items())
        reason = f"{baseline.name} and {run.name} are scored in different ways, so a difference says nothing: {shown}"
        raise InputError(f"{reason} (compare them all the same with --allow-different, allow_different=True in Python)")


def _comparisons(run: Run, baseline: Run, drawn: Resampling, test: Test) -> Iterator[dict[str, Any]]:
    _check_comparable(run, baseline, test)
    for row in paired_differences(
        run.table,
        baseline.table,
        baseline.metric_set,
        resamples=drawn.resamples,
        seed=drawn.seed,
        confidence=drawn.confidence,
        test=test,
        verdicts=(run.verdicts, baseline.verdicts),
    ):
        yield {
            "system": run.name,
            "baseline": baseline.name,
            "metric": row.metric,
            "difference": row.difference,
            "ci_low": row.interval.low,
            "ci_high": row.interval.high,
            "p_value": row.p_value,
            "test": row.test,
            "n_images": row.n_images,
        }


def _check_comparable(run: Run, baseline: Run, test: Test) -> None:
    ours, theirs = run.metric_set, baseline.metric_set
    if test == "mcnemar" and not (run.verdicts and baseline.verdicts):
        raise InputError(f"McNemar's test compares right and wrong items; {theirs.name} runs have none")
    if ours.name != theirs.name:
        raise InputError(f"{run.name} is a run of {ours.name}, {baseline.name} of {theirs.name}")
    if differing := set(run.table.columns) ^ set(baseline.table.columns):
        reason = f"{run.name} and {baseline.name} cover different parts: only one of them has counts of "
        raise InputError(reason + ", ".join(sorted(differing)[:6]))
