"""Counts per image. Intervals, tests and reports require only these counts from a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.hashes import digest
from ..base.reprs import fields_in_short


@dataclass(frozen=True, slots=True)
class CountTable:
    """Table of the counts of a run, summed per image.

    Attributes:
        columns: Names of the counts.
        image_ids: Canonical image ids, sorted.
        rows: (images, columns) int64 counts.
        cells: (images,) uint64 fingerprint of each image's ground-truth cells; see
            :meth:`scapo_eval.truths.oracle.Truth.prints`. ``cells`` is None if the images have no ground truth, or if
            no fingerprints were recorded.
    """

    columns: tuple[str, ...]
    image_ids: tuple[str, ...]
    rows: NDArray[np.int64]
    cells: NDArray[np.uint64] | None = None

    __repr__ = fields_in_short

    @property
    def total(self) -> NDArray[np.int64]:
        """(columns,) sums over all images."""
        return np.asarray(self.rows.sum(axis=0, dtype=np.int64))

    def counts(self) -> dict[str, int]:
        """Returns a mapping from column name to the sum over all images."""
        return dict(zip(self.columns, self.total.tolist(), strict=True))

    def select(self, image_ids: Iterable[str]) -> CountTable:
        """Returns the rows of the given images, in the given order. KeyError is raised if an image is missing."""
        position = {image: k for k, image in enumerate(self.image_ids)}
        ids = tuple(image_ids)
        places = [position[image] for image in ids]
        return CountTable(self.columns, ids, self.rows[places], None if self.cells is None else self.cells[places])

    @property
    def truth(self) -> str | None:
        """Hash of the ground-truth cells of all images, which is stored in the signature."""
        return None if self.cells is None else digest([self.cells.astype("<u8").tobytes()])

    @property
    def per_image(self) -> int | None:
        """Most frequent number of captions per image, or None if captions are not counted."""
        if "captions" not in self.columns or not len(self.rows):
            return None
        numbers, images = np.unique(self.rows[:, self.columns.index("captions")], return_counts=True)
        return int(numbers[images.argmax()])


def summed_by(where: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the sorted distinct values of ``where`` and, for each value, the sum of the corresponding rows."""
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[starts], np.add.reduceat(rows[order], starts, axis=0) if len(starts) else rows


def in_few_bytes(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Converts counts to the smallest integer type that can represent them, for transfer between processes."""
    extremes = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    return numbers.astype(np.result_type(*map(np.min_scalar_type, extremes)))


class CountBuilder:
    """Builder that sums the rows of records per image and thus creates a count table. The memory use grows with the
    number of images, not with the number of records.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._index: dict[str, int] = {}
        self._rows = np.zeros((64, len(self.columns)), dtype=np.int64)
        self._known: Sequence[str] = ()
        self._sums = np.zeros((0, len(self.columns)), dtype=np.int64)  # sums for the images of a fixed list
        self._given = np.zeros(0, dtype=bool)

    def add(self, image_ids: Iterable[str], rows: NDArray[Any]) -> None:
        """Adds the rows of records, one row per record.

        Args:
            image_ids: Canonical image id of each record.
            rows: (records, columns) integer array of counts.
        """
        index = self._index
        where = np.fromiter((index.setdefault(image, len(index)) for image in image_ids), dtype=np.int64)
        self._grow()
        np.add.at(self._rows, where, rows)

    def add_known(self, known: Sequence[str], where: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Adds summed rows for distinct images from a fixed list, without processing the image ids.

        Args:
            known: Canonical ids. Every call must pass the same list as ``known``.
            where: (n,) distinct positions in ``known``.
            rows: (n, columns) counts.
        """
        if len(self._sums) != len(known):
            self._known, self._given = known, np.zeros(len(known), dtype=bool)
            self._sums = np.zeros((len(known), len(self.columns)), dtype=np.int64)
        self._sums[where] += rows
        self._given[where] = True

    def _grow(self) -> None:
        if len(self._index) > len(self._rows):
            grown = np.zeros((max(len(self._index), 2 * len(self._rows)), len(self.columns)), dtype=np.int64)
            grown[: len(self._rows)] = self._rows
            self._rows = grown

    def table(self) -> CountTable:
        """Returns a table of the rows added so far, with images sorted by id."""
        given = np.flatnonzero(self._given)
        ids, rows = [self._known[k] for k in given.tolist()], self._sums
        if self._index:
            self.add(ids, rows[given])
            self._sums, self._given = self._sums[:0], self._given[:0]
            ids, rows, given = list(self._index), self._rows, np.arange(len(self._index))
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return CountTable(self.columns, tuple(map(ids.__getitem__, order)), rows[given[order]])
