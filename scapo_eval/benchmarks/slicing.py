"""Which slice a caption belongs to: a column of its record, or the length of the caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError, short_repr
from ..files.json_text import iter_records
from ..files.records import Readable
from ..results.counts import CountBuilder, CountTable
from .scoring import ScoredBlock

LENGTH = "length"
"""The column that every caption has: its number of words (white-space chunks)."""

MOST_VALUES = 8
"""Numbers of more different values than this are cut into quarters of about equal size."""

MOST_SLICES = 50


class Slicer:
    """Collects the counts of one file's captions by the values of a column.

    Args:
        path: the caption file, whose records are read once more unless the column is ``length``
            (:meth:`~scapo_eval.files.source.Source.keep`, where it is a pipe).
        column: key of the records, or of their ``meta``.

    Raises:
        InputError: no record has the column.
    """

    def __init__(self, path: Readable, column: str) -> None:
        self.column, self.path = column, path
        self._known = None if column == LENGTH else _column(path, column)
        self._rows: list[tuple[list[str], list[Any], Any]] = []

    def add(self, block: ScoredBlock) -> None:
        """Takes one scored block."""
        captions = block.captions
        if self._known is None:
            values: list[Any] = [len(text.split()) for text in captions.captions]
        else:
            values = [self._known.get(number) for number in captions.numbers]
        self._rows.append((captions.image_ids, values, block.counts))

    @property
    def values(self) -> list[Any]:
        """The value of every caption; None where its record has none."""
        return [value for _, values, _ in self._rows for value in values]

    def tables(self, columns: Sequence[str], label: Callable[[Any], str]) -> dict[str, CountTable]:
        """Slice -> counts per image, in the order of the labels."""
        builders: dict[str, CountBuilder] = {}
        for images, values, counts in self._rows:
            labels = np.array([label(value) for value in values], dtype=object)
            for name in dict.fromkeys(labels.tolist()):
                rows = np.flatnonzero(labels == name)
                builders.setdefault(name, CountBuilder(columns)).add([images[k] for k in rows], counts[rows])
        if len(builders) > MOST_SLICES:
            raise InputError(f"column '{self.column}' has {len(builders):,} values; {MOST_SLICES} slices at most")
        return {name: builders[name].table() for name in sorted(builders, key=_natural)}


def labels_of(slicers: Sequence[Slicer]) -> Callable[[Any], str]:
    """How values are named, the same for all systems: as they are, or the quarter that a number falls into."""
    values = [value for slicer in slicers for value in slicer.values if value is not None]
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


def _column(path: Readable, column: str) -> Mapping[int, Any]:
    values: dict[int, Any] = {}
    keys: set[str] = set()
    for number, record in iter_records(path, on_error=lambda fault: None):
        meta = record.get("meta")
        inside = meta if isinstance(meta, dict) else {}
        value = record.get(column, inside.get(column))
        keys |= record.keys() | inside.keys()
        if value is not None:
            if isinstance(value, (dict, list)):
                raise InputError(
                    f"column '{column}' must hold a text or a number, got {short_repr(value)}", path=str(path)
                )
            values[number] = value
    if not values:
        known = ", ".join(sorted(keys - {"caption"})[:20])
        raise InputError(f"column '{column}' not found (there are {known}; and {LENGTH})", path=str(path))
    return values
