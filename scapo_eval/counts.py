"""Counts per image: what a run is reduced to, and all that intervals, tests and reports need of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reprs import fields_in_short


@dataclass(frozen=True, slots=True)
class CountTable:
    """Counts summed per image: all that intervals, tests and reports need of a run.

    Attributes:
        columns: names of the counts.
        image_ids: canonical image ids, sorted.
        rows: (images, columns) int64.
    """

    columns: tuple[str, ...]
    image_ids: tuple[str, ...]
    rows: NDArray[np.int64]

    __repr__ = fields_in_short

    @property
    def total(self) -> NDArray[np.int64]:
        """(columns,) sums over all images."""
        return np.asarray(self.rows.sum(axis=0, dtype=np.int64))

    def counts(self) -> dict[str, int]:
        """Column name -> sum over all images."""
        return dict(zip(self.columns, self.total.tolist(), strict=True))

    def select(self, image_ids: Iterable[str]) -> CountTable:
        """The rows of these images, in the order given (KeyError for one that is not there)."""
        position = {image: k for k, image in enumerate(self.image_ids)}
        ids = tuple(image_ids)
        return CountTable(self.columns, ids, self.rows[[position[image] for image in ids]])


class CountBuilder:
    """Adds rows of records up per image; memory grows with images, not with records."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._index: dict[str, int] = {}
        self._rows = np.zeros((64, len(self.columns)), dtype=np.int64)

    def add(self, image_ids: Iterable[str], rows: NDArray[Any]) -> None:
        """Adds one row per record.

        Args:
            image_ids: canonical id of each record's image.
            rows: (records, columns) integer counts.
        """
        index = self._index
        where = np.fromiter((index.setdefault(image, len(index)) for image in image_ids), dtype=np.int64)
        if len(index) > len(self._rows):
            grown = np.zeros((max(len(index), 2 * len(self._rows)), len(self.columns)), dtype=np.int64)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        # astype: an array from another process has a dtype object of its own, with which add.at is five times slower
        np.add.at(self._rows, where, rows.astype(np.int64))

    def table(self) -> CountTable:
        """The table so far, images sorted by id."""
        ids = sorted(self._index)
        order = np.fromiter((self._index[image] for image in ids), dtype=np.int64, count=len(ids))
        return CountTable(self.columns, tuple(ids), self._rows[order])
