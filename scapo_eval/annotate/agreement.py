"""Compares two runs on the same images: several labels per call against one, or one judge against another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.types import Interval
from ..base.verdicts import ABSENT, PRESENT, UNKNOWN
from ..results.counts import CountTable
from ..results.metric import MetricSet, ratio
from ..results.stats import bootstrap, values
from .store import Store

DISAGREEMENT = MetricSet(
    name="disagreement",
    columns=("cells", "differ", "only_first", "only_second", "present_second", "absent_second"),
    formulas={
        "disagreement": ratio("differ", "cells"),
        "only_first_of_absent": ratio("only_first", "absent_second"),
        "only_second_of_present": ratio("only_second", "present_second"),
    },
)
"""Shares of cells: of all that differ; of those absent in the second run that the first has present; of those
present in the second that the first has absent."""


@dataclass(frozen=True, slots=True)
class RunAgreement:
    """Agreement of two annotation runs on the cells that both have judged.

    Attributes:
        images: number of images with a cell that both runs judged.
        cells: number of cells that both runs judged.
        differ: number of these cells on which the two verdicts differ.
        shares: metric of ``DISAGREEMENT`` -> its value (None if its denominator is 0) and its bootstrap interval
            over images.
        labels: per label (name, cells, cells present in the first run only, in the second only), the label with the
            most differences first.
    """

    images: int
    cells: int
    differ: int
    shares: dict[str, tuple[float | None, Interval]]
    labels: list[tuple[str, int, int, int]]


def compare(first: Store, second: Store, *, resamples: int = 1000, seed: int = 12345) -> RunAgreement:
    """Compares two runs cell by cell, joined by image id and label.

    Args:
        first: the run that is compared.
        second: the run that it is compared with (the reference).
        resamples: number of bootstrap resamples for the intervals.
        seed: seed of the bootstrap.

    Raises:
        InputError: if no cell was judged in both runs.
    """
    a, b, images, labels = _joined(first, second)
    both = (a != UNKNOWN) & (b != UNKNOWN)
    if not both.any():
        raise InputError(f"no cell was judged both in this run and in {second.folder}", path=str(first.folder))
    only_a, only_b = both & (a == PRESENT) & (b == ABSENT), both & (a == ABSENT) & (b == PRESENT)
    counted = (both, only_a | only_b, only_a, only_b, both & (b == PRESENT), both & (b == ABSENT))
    rows = np.stack([cells.sum(axis=1, dtype=np.int64) for cells in counted], axis=1)
    table = CountTable(DISAGREEMENT.columns, tuple(images), rows)
    point = values(DISAGREEMENT, table)
    intervals = bootstrap(table, DISAGREEMENT, resamples=resamples, seed=seed)
    per_label = [
        (label, int(both[:, k].sum()), int(only_a[:, k].sum()), int(only_b[:, k].sum()))
        for k, label in enumerate(labels)
    ]
    return RunAgreement(
        images=int(both.any(axis=1).sum()),
        cells=int(both.sum()),
        differ=int((only_a | only_b).sum()),
        shares={name: (point[name], intervals[name]) for name in DISAGREEMENT.formulas},
        labels=sorted(per_label, key=lambda row: (-(row[2] + row[3]), row[0])),
    )


def _joined(first: Store, second: Store) -> tuple[NDArray[np.int8], NDArray[np.int8], list[str], list[str]]:
    rows = {image: k for k, image in enumerate(second.image_ids)}
    columns = second.vocabulary.label_ids
    images = [(k, rows[image]) for k, image in enumerate(first.image_ids) if image in rows]
    labels = [(k, columns[label]) for k, label in enumerate(first.labels) if label in columns]
    if not images or not labels:
        raise InputError(f"has no image or no label in common with {second.folder}", path=str(first.folder))
    left, right = np.array(images).T
    mine, theirs = np.array(labels).T
    return (
        first.matrix[np.ix_(left, mine)],
        second.matrix[np.ix_(right, theirs)],
        [first.image_ids[k] for k in left.tolist()],
        [first.labels[k] for k in mine.tolist()],
    )
