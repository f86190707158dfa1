"""Tests of the differences between two systems' captions in hallucinated labels and in length, based on counts per
image, and the selection of an example image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..results.counts import CountTable
from ..results.families import tarone_holm
from ..results.metric import MetricSet, ratio
from ..results.results import Resampling
from ..results.stats import MIN_SHARED_IMAGES, Comparison, mcnemar, paired_differences
from .data import CaptionEvidence
from .sentences import LENGTH, Tone

SAYS_LESS = 0.2
"""Share of words or objects below the baseline from which a system is marked in the guards."""

_AMOUNTS = ("captions", "words", "objects")
_LENGTHS = MetricSet("length", _AMOUNTS, {LENGTH: ratio("words", "captions")}, {}, frozenset({LENGTH}))


@dataclass(frozen=True, slots=True)
class LabelChange:
    """Change in a label's hallucination rate between the baseline and a system.

    Attributes:
        label: Name of the label.
        difference: Difference in the share of captions that hallucinate the label (system minus baseline), on the
            shared images.
        low, high: Bounds of the 95 % interval, computed by the same method as for metrics. The bounds are None if there
            are no resamples, or if the label is not among those with the largest changes.
        p_holm: Corrected p-value of an exact sign test over the images in which the two systems differ. The p-value is
            corrected for all labels that changed, except those that are too rare to be significant
            (:func:`~scapo_eval.results.families.tarone_holm`).
    """

    label: str
    difference: float
    low: float | None
    high: float | None
    p_holm: float

    @property
    def tone(self) -> Tone:
        """Result of the test: ``better``, ``worse`` or ``untested``. A decrease in hallucinations counts as better."""
        return "untested" if self.p_holm >= 0.05 else "better" if self.difference < 0 else "worse"


def label_changes(
    system: CaptionEvidence, baseline: CaptionEvidence, resampling: Resampling, top: int = 5
) -> list[LabelChange]:
    """Returns the labels whose hallucination rate changed, with the largest change first.

    The list is empty if there are fewer than MIN_SHARED_IMAGES shared images.

    Args:
        system, baseline: Captions of two systems, matched with the same vocabulary.
        resampling: Settings for the intervals.
        top: Number of labels for which an interval is computed.
    """
    labels = system.truth.vocabulary.labels
    ours, theirs = system.hallucinated, baseline.hallucinated
    shared = sorted(set(ours.image_ids) & set(theirs.image_ids))
    if len(shared) < MIN_SHARED_IMAGES or labels != baseline.truth.vocabulary.labels:
        return []
    a, b = ours.select(shared), theirs.select(shared)
    rate_a, rate_b = (table.rows[:, 1:] / table.rows[:, :1] for table in (a, b))
    up, down = (rate_a > rate_b).sum(axis=0).tolist(), (rate_a < rate_b).sum(axis=0).tolist()
    changed = [k for k in range(len(labels)) if up[k] + down[k]]
    p_values = [mcnemar(up[k], down[k]) for k in changed]
    smallest = [mcnemar(up[k] + down[k], 0) for k in changed]
    corrected = dict(zip(changed, tarone_holm(p_values, smallest), strict=True))
    total_a, total_b = a.total, b.total
    difference = total_a[1:] / total_a[0] - total_b[1:] / total_b[0]
    ranked = sorted(changed, key=lambda k: (-abs(difference[k]), labels[k]))
    bounds = [(row.interval.low, row.interval.high) for row in _intervals(a, b, ranked[:top], resampling)]
    bounds += [(None, None)] * len(ranked[top:])
    return [
        LabelChange(labels[k], float(difference[k]), low, high, corrected[k])
        for k, (low, high) in zip(ranked, bounds, strict=True)
    ]


def _intervals(a: CountTable, b: CountTable, labels: Sequence[int], resampling: Resampling) -> list[Comparison]:
    names = [str(k) for k in labels]
    metrics = MetricSet("labels", ("captions", *names), {name: ratio(name, "captions") for name in names})
    keep = [0, *(k + 1 for k in labels)]
    if not names:
        return []
    ours, theirs = (CountTable(metrics.columns, table.image_ids, table.rows[:, keep]) for table in (a, b))
    return paired_differences(
        ours,
        theirs,
        metrics,
        resamples=resampling.resamples,
        seed=resampling.seed,
        confidence=resampling.confidence,
        interval=resampling.interval,
    )


def length_difference(system: CaptionEvidence, baseline: CaptionEvidence, resampling: Resampling) -> Comparison:
    """Returns the difference in words per caption between two systems, together with its interval and test."""
    (difference,) = paired_differences(
        system.lengths,
        baseline.lengths,
        _LENGTHS,
        resamples=resampling.resamples,
        seed=resampling.seed,
        interval=resampling.interval,
    )
    return difference


def amount_changes(system: CaptionEvidence, baseline: CaptionEvidence) -> dict[str, float | None]:
    """Returns the relative changes in ``words`` and ``objects`` per caption compared with the baseline, on the shared
    images.

    A change is None if there are no shared images, or if the baseline's value is 0.
    """
    shared = sorted(set(system.lengths.image_ids) & set(baseline.lengths.image_ids))
    if not shared:
        return {"words": None, "objects": None}
    ours, theirs = (run.lengths.select(shared).total for run in (system, baseline))
    return {
        name: float(ours[k] / ours[0] / (theirs[k] / theirs[0]) - 1) if theirs[k] else None
        for k, name in enumerate(("words", "objects"), 1)
    }


def telling_captions(
    system: CaptionEvidence, baseline: CaptionEvidence, *, better: bool, label: str | None = None, covered: bool = False
) -> tuple[int, int] | None:
    """Returns the positions of the system's caption and the baseline's caption of one image that illustrates a tested
    change.

    The function considers the images that show the change and on which the other kind of labels is not worse. Among
    these images, it selects the one with the largest difference in hallucinated labels (or in covered labels). Short
    captions are preferred to long captions. The example illustrates the change but is not evidence of it.

    Args:
        system, baseline: Captions of the two systems.
        better: True if the system is better, False if the baseline is better.
        label: Label that exactly one of the two captions must hallucinate, or None for any label.
        covered: True if the change concerns covered labels, False if it concerns hallucinated labels.
    """
    good, bad = (system, baseline) if better else (baseline, system)
    first_good, first_bad = _first_captions(good), _first_captions(bad)
    pairs = [(first_good[image], first_bad[image]) for image in first_good if image in first_bad]
    if not pairs:
        return None
    at_good, at_bad = np.array(pairs).T
    wrong_good, wrong_bad = (good.claimed & (good.states == 0))[at_good], (bad.claimed & (bad.states == 0))[at_bad]
    right_good, right_bad = (good.claimed & (good.states == 1))[at_good], (bad.claimed & (bad.states == 1))[at_bad]
    fewer = wrong_bad.sum(axis=1) - wrong_good.sum(axis=1)
    more = right_good.sum(axis=1) - right_bad.sum(axis=1)
    shown, other = (more, fewer) if covered else (fewer, more)
    seen: NDArray[np.bool_] = shown > 0
    if label is not None:
        k = good.truth.vocabulary.labels.index(label)
        seen = wrong_bad[:, k] & ~wrong_good[:, k]
    candidates = np.flatnonzero(seen)
    if not len(candidates):
        return None
    length = np.array([len(good.texts[i]) + len(bad.texts[j]) for i, j in pairs])
    gain = shown + np.minimum(0, other) - length / 150
    i, j = pairs[int(candidates[np.argmax(gain[candidates])])]
    return (i, j) if better else (j, i)


def _first_captions(run: CaptionEvidence) -> dict[str, int]:
    first: dict[str, int] = {}
    for k, image in enumerate(run.image_ids):
        first.setdefault(image, k)
    return first
