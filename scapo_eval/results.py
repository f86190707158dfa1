"""From per-image counts to the results object that every scoring verb prints and every report reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .counts import CountTable
from .errors import InputError
from .metric import MetricSet
from .stats import CONFIDENCE, DEFAULT_RESAMPLES, DEFAULT_SEED, Test, Verdicts, bootstrap, compare, figures, holm

FORMAT = "scapo-results/1"


@dataclass(frozen=True, slots=True)
class System:
    """One system's run of one benchmark, reduced to counts.

    Attributes:
        name: shown in tables, unique in a run (usually the file's name without suffixes).
        signature: see :mod:`scapo_eval.signature`.
        metric: the figures; systems of one run share it.
        table: per-image counts.
        n_captions: number of scored records (captions, answers).
        counts: further whole-run counts that no figure needs (``unparsed``, ``missing``, ``dropped``...).
        verdicts: for McNemar's test, where single items are right or wrong (yes/no answers).
        printed: the official script's own digits, where there is a parity mode.
        notes: whatever a reader of the results should know, one sentence each.
    """

    name: str
    signature: str
    metric: MetricSet
    table: CountTable
    n_captions: int
    counts: Mapping[str, int] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=dict)
    printed: Mapping[str, float | str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def results(
    systems: Sequence[System],
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    test: Test = "approximate_randomization",
) -> dict[str, Any]:
    """The results object: figures with intervals per system, differences to the first system.

    Returns:
        ``{"systems": [...], "comparisons": [...]}`` as in SPEC section 7, values unrounded fractions,
        None where a figure has no value. With three systems or more each comparison carries
        ``p_holm``, corrected over the systems compared in that figure.
    """
    baseline = systems[0]
    comparisons: list[dict[str, Any]] = []
    for system in systems[1:]:
        if test == "mcnemar" and not (system.verdicts and baseline.verdicts):
            reason = f"McNemar's test compares right and wrong items; a {baseline.metric.name} run has none"
            raise InputError(reason)
        if system.metric.name != baseline.metric.name:
            reason = f"{system.name} is a {system.metric.name} run, {baseline.name} is {baseline.metric.name}"
            raise InputError(reason)
        if differing := set(system.table.columns) ^ set(baseline.table.columns):
            reason = f"{system.name} and {baseline.name} cover different parts: only one of them has counts of "
            raise InputError(reason + ", ".join(sorted(differing)[:6]))
        for row in compare(
            system.table,
            baseline.table,
            baseline.metric,
            resamples=resamples,
            seed=seed,
            confidence=confidence,
            test=test,
            verdicts=(system.verdicts, baseline.verdicts),
        ):
            comparisons.append(
                {
                    "system": system.name,
                    "baseline": baseline.name,
                    "metric": row.metric,
                    "difference": row.difference,
                    "ci_low": row.interval.low,
                    "ci_high": row.interval.high,
                    "p_value": row.p_value,
                    "test": row.test,
                    "n_images": row.n_images,
                }
            )
    if len(systems) > 2:
        for name in baseline.metric.formulas:
            family = [comparison for comparison in comparisons if comparison["metric"] == name]
            for comparison, corrected in zip(family, holm([each["p_value"] for each in family]), strict=True):
                comparison["p_holm"] = corrected
    return {
        "systems": [_system_object(s, resamples, seed, confidence) for s in systems],
        "comparisons": comparisons,
    }


def _system_object(system: System, resamples: int, seed: int, confidence: float) -> dict[str, Any]:
    intervals = bootstrap(system.table, system.metric, resamples=resamples, seed=seed, confidence=confidence)
    metrics: dict[str, dict[str, Any]] = {}
    for name, value in figures(system.metric, system.table).items():
        metrics[name] = {"value": value, "ci_low": intervals[name].low, "ci_high": intervals[name].high}
        if name in system.printed:
            metrics[name]["printed"] = system.printed[name]
    result: dict[str, Any] = {
        "name": system.name,
        "signature": system.signature,
        "n_captions": system.n_captions,
        "n_images": len(system.table.image_ids),
        "metrics": metrics,
        "counts": {**system.table.counts(), **system.counts},
    }
    if system.notes:
        result["notes"] = list(system.notes)
    return result


def per_image(system: System) -> dict[str, Any]:
    """What lets a later run compare or report without the captions: every image's counts, every item's verdict."""
    evidence: dict[str, Any] = {
        "columns": list(system.table.columns),
        "image_ids": list(system.table.image_ids),
        "rows": system.table.rows.tolist(),
    }
    if system.verdicts:
        evidence["verdicts"] = {name: dict(right) for name, right in system.verdicts.items()}
    return evidence


def table_from(per_image_object: Mapping[str, Any]) -> CountTable:
    """The inverse of :func:`per_image`."""
    columns = tuple(per_image_object["columns"])
    rows = np.asarray(per_image_object["rows"], dtype=np.int64).reshape(-1, len(columns))
    return CountTable(columns, tuple(per_image_object["image_ids"]), rows)
