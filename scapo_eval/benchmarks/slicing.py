"""Division of captions into slices, by a column of their records or by their length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.errors import InputError, short_repr
from ..files.containers import open_rows
from ..files.records import Readable
from ..results.parts import Parts
from .scoring import ScoredBlock

LENGTH = "length"
"""Column that exists for every caption: its number of words (white-space chunks)."""


class Slicer:
    """Collector that sums the counts of a file's captions for each value of a column.

    Args:
        path: Caption file. The records are read a second time unless the column is ``length``. If the input is a pipe,
            :meth:`~scapo_eval.files.source.Source.keep` must therefore be called first.
        column: Key in the records, or in their ``meta``.

    Raises:
        InputError: If no record has the column.
    """

    def __init__(self, path: Readable, column: str) -> None:
        self.column, self.path = column, path
        self._known = None if column == LENGTH else _column(path, column)
        self._rows: list[tuple[list[str], list[Any], Any]] = []

    def add(self, block: ScoredBlock) -> None:
        """Adds the counts of one scored block."""
        captions = block.captions
        if self._known is None:
            values: list[Any] = [len(text.split()) for text in captions.captions]
        else:
            values = [self._known.get(number) for number in captions.numbers]
        self._rows.append((captions.image_ids, values, block.counts))

    @property
    def values(self) -> list[Any]:
        """Value of the column for every caption, or None for captions whose record has no value."""
        return [value for _, values, _ in self._rows for value in values]

    def parts(self) -> Parts:
        """Returns the counts for each image and each value of the column, in order of first occurrence."""
        sums: dict[tuple[str, Any], Any] = {}
        for images, values, counts in self._rows:
            for key, row in zip(zip(images, values, strict=True), counts, strict=True):
                sums[key] = sums[key] + row if key in sums else row
        keys = list(sums)
        rows = np.array(list(sums.values()), dtype=np.int64) if sums else np.zeros((0, 0), dtype=np.int64)
        return Parts(self.column, tuple(image for image, _ in keys), tuple(value for _, value in keys), rows)


def _reported(_: object) -> None:
    """Ignores a fault, which was reported when the file was read for the first time."""


def _column(path: Readable, column: str) -> Mapping[int, Any]:
    values: dict[int, Any] = {}
    keys: set[str] = set()
    for number, record in open_rows(path, on_error=_reported, warn=_reported):
        meta = record.get("meta")
        inside = meta if isinstance(meta, dict) else {}
        value = record.get(column, inside.get(column))
        keys |= record.keys() | inside.keys()
        if value not in (None, "") and value == value:  # empty cells are "" in CSV and NaN in parquet
            if isinstance(value, (dict, list)):
                raise InputError(
                    f"column '{column}' must contain strings or numbers, got {short_repr(value)}", path=str(path)
                )
            values[number] = value
    if not values:
        known = ", ".join([*sorted(keys - {"caption"})[:20], LENGTH])
        raise InputError(f"column '{column}' not found (found: {known})", path=str(path))
    return values
