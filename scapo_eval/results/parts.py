"""Counts by the values of a column, which make it possible to slice a run later together with other runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.reprs import fields_in_short
from .counts import CountBuilder, CountTable

MOST_VALUES = 8
"""Maximum number of distinct numbers in a column. Columns with more are divided into quarters of about equal size."""

MOST_SLICES = 50


@dataclass(frozen=True, slots=True)
class Parts:
    """Counts for one system, with one row for each image and column value.

    Attributes:
        column: Name of the column that defines slices.
        image_ids: Image id of each row.
        values: Text, number or Boolean value of each row, or None if the record has no value.
        rows: (rows, columns) counts.
    """

    column: str
    image_ids: tuple[str, ...]
    values: tuple[Any, ...]
    rows: NDArray[np.int64]

    __repr__ = fields_in_short

    def tables(self, columns: Sequence[str], label: Callable[[Any], str]) -> dict[str, CountTable]:
        """Returns a mapping from each slice to its counts per image, sorted by the name of the slice.

        Args:
            columns: Names of the counts.
            label: Function that maps a value to the name of its slice (see :func:`labels_of`).

        Raises:
            InputError: If there are more than MOST_SLICES slices.
        """
        builders: dict[str, CountBuilder] = {}
        labels = np.array([label(value) for value in self.values], dtype=object)
        for name in dict.fromkeys(labels.tolist()):
            rows = np.flatnonzero(labels == name)
            builders[name] = CountBuilder(columns)
            builders[name].add([self.image_ids[k] for k in rows], self.rows[rows])
            if len(builders) > MOST_SLICES:
                n = len(set(labels.tolist()))
                raise InputError(f"column '{self.column}' has {n:,} values; {MOST_SLICES} slices at most")
        return {name: builders[name].table() for name in sorted(builders, key=_natural)}


def labels_of(parts: Sequence[Parts]) -> Callable[[Any], str]:
    """Returns a function that maps a value to the name of its slice. All systems share this function.

    The name of a slice is the value itself or, if the column contains many distinct numbers, a range that contains a
    quarter of the values.
    """
    values = [value for each in parts for value in each.values if value is not None]
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(set(numbers)) <= MOST_VALUES:
        return lambda value: "(none)" if value is None else str(value)
    cuts = sorted({float(cut) for cut in np.quantile(numbers, [0.25, 0.5, 0.75], method="higher")})
    digits = next(n for n in range(6, 18) if len({f"{cut:.{n}g}" for cut in cuts}) == len(cuts))  # 17 tell floats apart
    bounds = [f"{cut:.{digits}g}" for cut in cuts]
    names = [f"below {bounds[0]}", *(f"{a} to below {b}" for a, b in pairwise(bounds)), f"{bounds[-1]} and more"]

    def label(value: Any) -> str:
        return "(none)" if value is None else names[int(np.searchsorted(cuts, value, side="right"))]

    return label


def _natural(name: str) -> tuple[int, float, str]:
    """Returns a sort key that orders numbers by size, ranges by their bounds, and words alphabetically."""
    words = name.split()
    if name.startswith("below "):
        return 0, float("-inf"), name
    try:
        number = float(words[0])
    except (ValueError, IndexError):
        number = math.nan
    return (1, 0.0, name) if math.isnan(number) else (0, number, name)
