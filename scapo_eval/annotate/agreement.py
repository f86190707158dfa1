"""Comparison of two annotation runs on the same images, for example of runs by two judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.types import Interval
from ..base.verdicts import ABSENT, PRESENT, UNKNOWN
from ..claiming.claim import ClaimKey
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
"""Metrics of the disagreement between two runs, as shares of cells.

- ``disagreement``: share of cells with different verdicts.
- ``only_first_of_absent``: share of the second run's absent cells that the first run marks as present.
- ``only_second_of_present``: share of the second run's present cells that the first run marks as absent.
"""


@dataclass(frozen=True, slots=True)
class RunAgreement:
    """Agreement between two annotation runs on the cells that both runs judged.

    Attributes:
        images: Number of images in which both runs judged at least one cell.
        cells: Number of cells that both runs judged.
        differ: Number of cells with different verdicts.
        shares: Mapping from each metric in ``DISAGREEMENT`` to its value (None if the denominator is 0) and its
            interval from a bootstrap over images.
        labels: (name, number of cells, cells present only in the first run, cells present only in the second run) for
            each label, sorted by decreasing number of differences.
    """

    images: int
    cells: int
    differ: int
    shares: dict[str, tuple[float | None, Interval]]
    labels: list[tuple[str, int, int, int]]


def compare(first: Store, second: Store, *, resamples: int = 1000, seed: int = 12345) -> RunAgreement:
    """Compares two runs cell by cell. Cells are identified by image id and label, or by image id and claim.

    Args:
        first: Run that is compared with the reference run.
        second: Run that serves as the reference.
        resamples: Number of bootstrap resamples for the intervals.
        seed: Seed of the bootstrap's random numbers.

    Raises:
        InputError: If there is no cell that both runs judged.
    """
    a, b, images, labels = _joined(first, second)
    both = (a != UNKNOWN) & (b != UNKNOWN)
    if not both.any():
        raise InputError(f"no cell was judged both in this run and in {second.folder}", path=str(first.folder))
    only_a, only_b = both & (a == PRESENT) & (b == ABSENT), both & (a == ABSENT) & (b == PRESENT)
    counted = (both, only_a | only_b, only_a, only_b, both & (b == PRESENT), both & (b == ABSENT))
    place = {image: k for k, image in enumerate(dict.fromkeys(images))}
    rows = np.zeros((len(place), len(counted)), dtype=np.int64)
    of_cells = np.stack([cells.sum(axis=1, dtype=np.int64) for cells in counted], axis=1)
    np.add.at(rows, [place[image] for image in images], of_cells)
    table = CountTable(DISAGREEMENT.columns, tuple(place), rows)
    point = values(DISAGREEMENT, table)
    intervals = bootstrap(table, DISAGREEMENT, resamples=resamples, seed=seed)
    per_label = [
        (label, int(both[:, k].sum()), int(only_a[:, k].sum()), int(only_b[:, k].sum()))
        for k, label in enumerate(labels)
    ]
    return RunAgreement(
        images=int((rows[:, 0] > 0).sum()),
        cells=int(both.sum()),
        differ=int((only_a | only_b).sum()),
        shares={name: (point[name], intervals[name]) for name in DISAGREEMENT.formulas},
        labels=sorted(per_label, key=lambda row: (-(row[2] + row[3]), row[0])),
    )


def _joined(first: Store, second: Store) -> tuple[NDArray[np.int8], NDArray[np.int8], list[str], list[str]]:
    rows, columns = {cell: k for k, cell in enumerate(_cells(second))}, second.columns
    images = [(k, rows[cell]) for k, cell in enumerate(_cells(first)) if cell in rows]
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


def _cells(store: Store) -> Iterator[tuple[str, ClaimKey | None]]:
    """Yields the image id and the claim of every row. The claim is None if each cell is an image-label pair."""
    yield from zip(store.image_ids, store.claims or repeat(None), strict=False)
