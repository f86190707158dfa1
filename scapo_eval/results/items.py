"""Counts of single items, such as answers to questions, from which the counts per image are summed.

Two systems that answered different questions about the same images can be compared only on the questions that both of
them answered. The counts per image do not suffice for this comparison, so runs on questions also keep their items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.reprs import fields_in_short
from .counts import CountTable


@dataclass(frozen=True, slots=True)
class Items:
    """Counts of the items of a run.

    Attributes:
        ids: Distinct ids of the items, sorted. An item is an answer to a question, or a unit of several answers.
        images: (items,) int64 position of each item's image in the table of the run.
        cells: (3, n) int64 array whose columns state the position of an item, the position of a count in the table, and
            the number that the item adds to this count.
    """

    ids: tuple[str, ...]
    images: NDArray[np.int64]
    cells: NDArray[np.int64]

    __repr__ = fields_in_short

    @classmethod
    def of(cls, table: CountTable, items: Iterable[tuple[str, str, Mapping[str, int]]]) -> Items:
        """Returns items for a table.

        Args:
            table: Counts per image.
            items: Id, image id, and counts by the names of the table's columns. Counts of a repeated id are added.
        """
        image_at = {image: k for k, image in enumerate(table.image_ids)}
        column_at = {name: k for k, name in enumerate(table.columns)}
        position: dict[str, int] = {}
        images: list[int] = []
        cells: list[tuple[int, int, int]] = []
        for name, image, counts in sorted(items, key=lambda item: item[0]):
            k = position.setdefault(name, len(position))
            if k == len(images):
                images.append(image_at[image])
            cells += [(k, column_at[column], number) for column, number in counts.items() if number]
        return cls(
            tuple(position),
            np.array(images, dtype=np.int64),
            np.ascontiguousarray(np.array(cells, dtype=np.int64).reshape(-1, 3).T),
        )

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Items:
        """Returns the items from a results file."""
        cells = np.array(record["cells"], dtype=np.int64).reshape(3, -1)
        return cls(tuple(record["ids"]), np.array(record["images"], dtype=np.int64), cells)

    def to_dict(self) -> dict[str, Any]:
        """Returns the items as an entry of a results file."""
        return {"ids": list(self.ids), "images": self.images.tolist(), "cells": self.cells.tolist()}

    def summed(self, shape: tuple[int, int], kept: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Returns the (images, columns) sums over the items, or over those items for which ``kept`` is True."""
        rows = np.zeros(shape, dtype=np.int64)
        item, column, number = self.cells if kept is None else self.cells[:, kept[self.cells[0]]]
        np.add.at(rows, (self.images[item], column), number)
        return rows

    def answers(self, columns: Sequence[str], positives: Collection[str]) -> dict[str, bool]:
        """Returns, for each item with a count, whether it is in one of the columns ``positives``."""
        is_positive = [name in positives for name in columns]
        item, column, _ = self.cells.tolist()
        return {self.ids[k]: is_positive[at] for k, at in zip(item, column, strict=True)}

    def among(self, table: CountTable, ids: Collection[str], images: Collection[str]) -> CountTable:
        """Returns the table restricted to items with given ids. Images outside ``images`` remain unchanged, and other
        images without such an item are removed.
        """
        ours = np.fromiter((image not in images for image in table.image_ids), dtype=bool, count=len(table.image_ids))
        kept = np.fromiter((name in ids for name in self.ids), dtype=bool, count=len(self.ids))
        kept |= ours[self.images]
        remaining = ours.copy()
        remaining[self.images[kept]] = True
        rows = self.summed(table.rows.shape, kept)
        rest = tuple(image for image, remains in zip(table.image_ids, remaining.tolist(), strict=True) if remains)
        return CountTable(table.columns, rest, rows[remaining])


def on_shared_items(tables: Sequence[CountTable], items: Sequence[Items | None]) -> tuple[CountTable, CountTable]:
    """Returns the tables of two systems, restricted on their shared images to the items that both systems have.

    The tables are returned unchanged if both systems have the same items, or if one of the systems has none.
    """
    ours, theirs = tables
    a, b = items
    if a is None or b is None or set(a.ids) == set(b.ids):
        return ours, theirs
    shared, images = set(a.ids) & set(b.ids), set(ours.image_ids) & set(theirs.image_ids)
    return a.among(ours, shared, images), b.among(theirs, shared, images)
