"""Counts by the values of a column: what a run keeps so that it can be sliced together with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.reprs import fields_in_short
from .counts import CountBuilder, CountTable

MOST_VALUES = 8
"""Numbers of more different values than this are cut into quarters of about equal size."""

MOST_SLICES = 50


@dataclass(frozen=True, slots=True)
class Parts:
    """Counts of one system, a row per image and value of a column.

    Attributes:
        column: its name.
        image_ids: image of each row.
        values: text, number or truth value of each row; None if a record has none.
        rows: (rows, columns) counts.
    """

    column: str
    image_ids: tuple[str, ...]
    values: tuple[Any, ...]
    rows: NDArray[np.int64]

    __repr__ = fields_in_short

    def tables(self, columns: Sequence[str], label: Callable[[Any], str]) -> dict[str, CountTable]:
        """Returns a mapping: slice -> counts per image, in the order of the labels.

        Args:
            columns: names of the counts.
            label: what the slice of a value is called, see :func:`labels_of`.

        Raises:
            InputError: if there are too many slices to read.
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
    """Names values the same for all systems: as they are, or by the quarter that a number falls into."""
    values = [value for each in parts for value in each.values if value is not None]
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(set(numbers)) <= MOST_VALUES:
        return lambda value: "(none)" if value is None else str(value)
    cuts = sorted({float(cut) for cut in np.quantile(numbers, [0.25, 0.5, 0.75], method="higher")})
    names = [f"below {cuts[0]:g}", *(f"{a:g} to below {b:g}" for a, b in zip(cuts, cuts[1:], strict=False))]
    names.append(f"{cuts[-1]:g} and more")

    def label(value: Any) -> str:
        return "(none)" if value is None else names[int(np.searchsorted(cuts, value, side="right"))]

    return label


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by their size, quarters in order, words by the alphabet."""
    words = name.split()
    if name.startswith("below "):
        return 0, float("-inf"), name
    try:
        return 0, float(words[0]), name
    except (ValueError, IndexError):
        return 1, 0.0, name
