"""Joint verdict on a system. A single test decides whether the system is better in at least one metric and worse in
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .benchmark import find_benchmark
from .intervals import t_tail
from .metric import MetricSet

MARGIN = 0.01
"""Default margin: a system with a smaller loss is not worse. The value is one point."""

CAP_SCORE = "cap_score"
"""Metric that combines two other metrics."""


def component_rates(metric_set: MetricSet) -> tuple[str, ...]:
    """Returns the names of the two rates that the caption score combines, or an empty tuple if the metric set has
    none.
    """
    record = find_benchmark(metric_set.name)
    frontiers = record.frontiers if record else ()
    return tuple(frontiers[0][:2]) if frontiers and CAP_SCORE in metric_set.formulas else ()


def judged_metrics(metric_set: MetricSet) -> tuple[str, ...]:
    """Returns the metrics that a joint verdict compares: the two rates that the caption score combines, or the headline
    metrics of a benchmark.

    The caption score itself is a function of its two rates, so including it would test the same hypothesis twice.
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
    """Tests the joint hypothesis that a system is better than the baseline in at least one metric and worse in none.

    The test is an intersection-union test (Berger 1982). The verdict requires both of its parts, so its p-value is the
    larger of the p-values of the two parts. The first part states that the system is better in at least one metric
    (one-sided tests, whose smallest p-value is multiplied by the number of metrics). The second part states that the
    loss in every metric is smaller than the margin (one-sided tests against the margin).

    Args:
        rows: Comparisons of one system with the baseline, one per metric.
        metric_set: Metric set.
        margin: Largest loss that is not counted as a deterioration, or None for MARGIN. :meth:`MetricSet.margin`
            converts it to the unit of each metric.

    Returns:
        A mapping with ``system, baseline, metrics, margin, p_better, p_not_worse, p_value``. ``p_value`` is the larger
        of the two other p-values. The result is None if one of the metrics of the verdict was not tested.
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
        slack = metric_set.margin(row["metric"], margin, row["baseline_value"])
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
