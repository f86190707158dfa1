"""The joint verdict on a system: better in one metric, worse in none, as one test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .benchmark import find_benchmark
from .intervals import t_tail
from .metric import MetricSet

MARGIN = 0.01
"""A loss up to which a system is not worse, unless another margin is asked for: one point."""

CAP_SCORE = "cap_score"
"""The metric that is made of two others."""


def component_rates(metric_set: MetricSet) -> tuple[str, ...]:
    """Returns the two rates that a set's Cap. Score is made of; empty if it has none."""
    record = find_benchmark(metric_set.name)
    frontiers = record.frontiers if record else ()
    return tuple(frontiers[0][:2]) if frontiers and CAP_SCORE in metric_set.formulas else ()


def judged_metrics(metric_set: MetricSet) -> tuple[str, ...]:
    """Returns the metrics of a joint verdict: the two rates of Cap. Score, or a benchmark's headline.

    Cap. Score itself is a function of its rates: to test it beside them would ask the same question twice.
    """
    if rates := component_rates(metric_set):
        return rates
    record = find_benchmark(metric_set.name)
    names = [name for name in (record.headline if record else ()) if name in metric_set.formulas] or list(
        metric_set.formulas
    )
    return tuple(name for name in names if metric_set.higher_is_better.get(name) is not None)


def joint_verdict(
    rows: Sequence[Mapping[str, Any]], metric_set: MetricSet, margin: float | None = None
) -> dict[str, Any] | None:
    """Returns whether a system is better than the baseline in one metric and worse in none.

    An intersection-union test (Berger 1982): the claim is made only where each of its parts holds by itself, so its
    p-value is the largest of theirs. The parts: better in at least one metric (one-sided tests, the smallest p-value
    times their number), and in no metric worse by the margin or more (one-sided tests against the margin).

    Args:
        rows: one system's comparisons.
        metric_set: the metrics.
        margin: None: MARGIN.

    Returns:
        ``system, baseline, metrics, margin, p_better, p_not_worse, p_value`` (their larger one); None if nothing
        is tested.
    """
    margin = MARGIN if margin is None else margin
    by_metric = {row["metric"]: row for row in rows}
    judged = [by_metric[name] for name in judged_metrics(metric_set) if name in by_metric]
    tested = [row for row in judged if row["p_value"] is not None and row["standard_error"]]
    if not tested or len(tested) < len(judged):
        return None
    better, not_worse = [], []
    for row in tested:
        gain = row["difference"] if metric_set.higher_is_better[row["metric"]] else -row["difference"]
        freedom = max(1.0, row["n_images"] - 1)
        slack = margin if row["metric"] not in metric_set.plain_numbers else 100 * margin
        better.append(t_tail(gain / row["standard_error"], freedom))
        not_worse.append(t_tail((gain + slack) / row["standard_error"], freedom))
    p_better, p_not_worse = min(1.0, min(better) * len(better)), max(not_worse)
    return {
        "system": rows[0]["system"],
        "baseline": rows[0]["baseline"],
        "metrics": [row["metric"] for row in tested],
        "margin": margin,
        "p_better": p_better,
        "p_not_worse": p_not_worse,
        "p_value": max(p_better, p_not_worse),
    }
