"""Comparison of runs. For every metric, the comparison contains the difference from the first run, the interval of the
difference, and a paired test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from ..base.errors import InputError, check_choice
from ..base.types import Interval
from .families import holm
from .items import on_shared_items
from .results import Resampling, Results, Run, same_metrics
from .signature import TRUTH
from .slices import Sliced
from .stats import Comparison, Test, paired_differences
from .verdict import joint_verdict


def compare(
    runs: Sequence[Run],
    *,
    resampling: Resampling | None = None,
    test: Test = "studentized_permutation",
    allow_different: bool = False,
    margin: float | None = None,
) -> Results:
    """Compares runs of one benchmark with the first run.

    Args:
        runs: Runs to compare. The first run is the baseline.
        resampling: Settings for all intervals and tests, or None to use the settings of the first run.
        test: Method for the p-values; see :func:`scapo_eval.results.stats.paired_differences`.
        allow_different: True to compare runs that were scored with different settings, and to list the differing
            settings in every row.
        margin: Largest difference at which two systems count as equivalent (0.01 is one point), for ``p_equivalence``.
            One point is a hundredth of a metric's range, or of the baseline's value if a plain number has no range.

    Returns:
        The runs (with intervals computed by the same method), a joint verdict on every system
        (:func:`~scapo_eval.results.verdict.joint_verdict`), and the comparisons. Each comparison contains the fields
        ``system, baseline, metric``. The values ``system_value``, ``baseline_value`` and ``difference`` are computed
        from the ``n_images`` shared images. ``n_differing`` is the number of shared images with different counts for
        the metric. If the systems answered different questions, only the ``n_questions`` questions that both answered
        count. The test results are ``ci_low, ci_high, p_value, test`` and ``p_holm``, which is corrected for the
        number of systems that are compared on the metric. ``standard_error`` is the standard error of the difference,
        and ``detectable`` is the smallest difference that a sample of this size detects with a power of 80 %. If a
        margin is given, each comparison also contains ``p_equivalence`` and the ``margin`` in the metric's unit. With
        ``allow_different``, each comparison also contains ``differing``, which lists the differing fields of the two
        signatures.

    Raises:
        InputError: If the runs belong to different benchmarks, or were scored with different settings (for example
            ground truths, vocabularies, readings or parsers). The error is also raised if McNemar's test is requested
            for metrics without verdicts on single items, or if the systems answered different questions and their
            results files were written by a version that did not store the counts of single questions.
    """
    check_choice("test", test, get_args(Test))
    drawn = replace(resampling or runs[0].resampling, test=test if len(runs) > 1 else None)
    if margin is not None and not margin > 0:
        raise InputError(f"the margin of equivalence must be above 0, got {margin}")
    baseline, *others = [run.redrawn(drawn) for run in same_metrics(runs)]
    for run in others:
        _check_comparable(run, baseline, test, allow_different)
    comparisons = [row for run in others for row in _comparisons(run, baseline, drawn, margin)]
    for name in baseline.metric_set.formulas:
        family = [row for row in comparisons if row["metric"] == name]
        for row, corrected in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row["p_holm"] = corrected
    verdicts = []
    for run in others:
        rows = [row for row in comparisons if row["system"] == run.name]
        if rows and not rows[0].get("differing") and (verdict := joint_verdict(rows, baseline.metric_set, margin)):
            verdicts.append(verdict)
    sliced = Sliced.of([baseline, *others])
    return Results(
        (baseline, *others),
        tuple(comparisons),
        tuple(verdicts),
        sliced=None if sliced is None else sliced.to_dict(baseline.metric_set, drawn),
    )


def differences(run: Run, other: Run) -> dict[str, tuple[str | None, str | None]]:
    """Returns a mapping from each setting in which two runs differ to the two values of the setting.

    The comparison covers the fields of the signatures (:meth:`~scapo_eval.results.signature.Signature.differences`),
    the ground-truth cells of the shared images, and the most frequent number of captions per image. If the runs share
    images, the ground-truth cells of these images are compared instead of the names and label sets of the ground
    truths.
    """
    differing = run.signature.differences(other.signature)
    differing.pop("per_image", None)
    ours, theirs = run.table, other.table
    if None not in (counted := (ours.per_image, theirs.per_image)) and counted[0] != counted[1]:
        differing["per_image"] = str(counted[0]), str(counted[1])
    if ours.cells is None or theirs.cells is None:
        return differing
    cells = dict(zip(theirs.image_ids, theirs.cells.tolist(), strict=True))
    shared = [
        (cell, cells[image]) for image, cell in zip(ours.image_ids, ours.cells.tolist(), strict=True) if image in cells
    ]
    if shared:
        differing = {name: values for name, values in differing.items() if name not in TRUTH}
    if changed := sum(a != b for a, b in shared):
        differing["truth"] = (
            ours.truth,
            f"{theirs.truth} (other labels in {changed:,} of {len(shared):,} shared images)",
        )
    return differing


def _comparisons(run: Run, baseline: Run, drawn: Resampling, margin: float | None) -> Iterator[dict[str, Any]]:
    differing = list(differences(run, baseline))
    ours, theirs = _questions(run), _questions(baseline)
    for row in _differences(run, baseline, drawn, margin):
        record: dict[str, Any] = {
            "system": run.name,
            "baseline": baseline.name,
            "metric": row.metric,
            "system_value": row.system_value,
            "baseline_value": row.baseline_value,
            "difference": row.difference,
            "ci_low": row.interval.low,
            "ci_high": row.interval.high,
            "p_value": row.p_value,
            "test": row.test,
            "n_images": row.n_images,
            "n_differing": row.n_differing,
            "standard_error": row.standard_error,
            "detectable": row.detectable,
        }
        if ours and theirs and ours != theirs:
            record["n_questions"] = len(ours & theirs)
        if margin is not None:
            in_unit = baseline.metric_set.margin(row.metric, margin, row.baseline_value)
            record |= {"margin": in_unit, "p_equivalence": row.p_equivalence}
        yield {**record, "differing": differing} if differing else record


def _differences(run: Run, baseline: Run, drawn: Resampling, margin: float | None) -> list[Comparison]:
    if run.finished is None:
        return paired_differences(
            *on_shared_items((run.table, baseline.table), (run.items, baseline.items)),
            baseline.metric_set,
            resamples=drawn.resamples,
            seed=drawn.seed,
            confidence=drawn.confidence,
            test=drawn.test or "studentized_permutation",
            interval=drawn.interval,
            margin=margin,
            verdicts=(run.verdicts, baseline.verdicts),
            kind=drawn.bootstrap,
        )
    rows = []
    for name, theirs in baseline.values.items():
        ours = run.values[name]
        difference = None if ours is None or theirs is None else ours - theirs
        rows.append(Comparison(name, ours, theirs, difference, Interval(None, None), None, None, 0))
    return rows


def _questions(run: Run) -> set[str]:
    """Returns the ids of the questions that a system answered, or an empty set if the benchmark has no questions."""
    return {item for right in run.verdicts.values() for item in right}


def _labels(run: Run) -> dict[str, bool]:
    """Returns whether the correct answer to each question is "yes", as far as the counts of the questions state it."""
    if run.items is None or not run.metric_set.positives:
        return {}
    return run.items.answers(run.table.columns, run.metric_set.positives)


def _check_comparable(run: Run, baseline: Run, test: Test, allow_different: bool) -> None:
    ours, theirs = run.metric_set, baseline.metric_set
    if test == "mcnemar" and not (run.verdicts and baseline.verdicts):
        raise InputError(f"McNemar's test compares right and wrong items; {theirs.name} runs have none")
    if ours.name != theirs.name:
        raise InputError(f"{run.name} is a run of {ours.name}, {baseline.name} of {theirs.name}")
    differing = differences(run, baseline)
    if differing and not allow_different:
        fields = "; ".join(f"{name}: {a or 'none'} against {b or 'none'}" for name, (a, b) in differing.items())
        raise InputError(
            f"{run.name} and {baseline.name} were scored differently and cannot be compared: {fields} "
            "(to compare anyway and mark every line: --allow-different, in Python allow_different=True)"
        )
    asked = _questions(run), _questions(baseline)
    if None in (run.items, baseline.items) and all(asked) and asked[0] != asked[1]:
        raise InputError(
            f"{run.name} and {baseline.name} answered different questions, and their results files do not state the "
            "counts of each question, because an earlier version wrote them; score the answers again with -o"
        )
    labels, others = _labels(run), _labels(baseline)
    wrong = sorted(name for name in labels.keys() & others.keys() if labels[name] != others[name])
    if wrong and not allow_different:
        reason = f"have different labels for {len(wrong):,} of the questions that both answered (first: {wrong[0]})"
        raise InputError(f"{run.name} and {baseline.name} {reason}")
    if parts := set(run.table.columns) ^ set(baseline.table.columns):
        reason = f"{run.name} and {baseline.name} cover different parts: only one of them has counts of "
        raise InputError(reason + ", ".join(sorted(parts)[:6]))
