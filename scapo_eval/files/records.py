"""Records in memory: what Python users hand over where a file could stand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..base.errors import InputError


class Frame(Protocol):
    """A pandas DataFrame, as far as it is used here."""

    @property
    def iloc(self) -> Any:
        """Rows by position."""

    def to_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the rows as mappings, with ``orient="records"``."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records that a program holds, read like the lines of a file; faults name them by number, from 1.

    Attributes:
        name: of the source in messages, ``<DataFrame>`` for example.
        rows: the records.
    """

    name: str
    rows: Sequence[Any]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Records {self.name}: {len(self.rows):,}>"

    def numbered(self) -> Iterator[tuple[int, Any]]:
        """Returns number, from 1, and record."""
        return enumerate(self.rows, 1)


Readable = str | os.PathLike[str] | Records
"""What readers open: a path, ``-``, a :class:`~scapo_eval.files.source.Source`, or records in memory."""

Given = str | os.PathLike[str] | Records | Frame | Iterable[Mapping[str, Any]]
"""What a Python user may hand over as captions, answers or questions."""


def readable(given: Given) -> Readable:
    """Returns what a reader can open: a path unchanged, anything else as records of plain values.

    Missing values (NaN, None, pandas' NA) become None, numpy's scalars and arrays numbers and lists. A Hugging
    Face Dataset is read without its images, sounds and videos, which nothing here looks at.

    Args:
        given: a path, a list (or any iterable) of mappings, a pandas DataFrame, a Hugging Face Dataset.

    Raises:
        InputError: for anything else.
    """
    if isinstance(given, (str, os.PathLike, Records)):
        return given
    name = f"<{type(given).__name__}>"
    if hasattr(given, "iloc") and hasattr(given, "to_dict"):
        return Records(name, _rows_of_frame(given, name))
    if isinstance(given, Mapping):
        keys = ", ".join(map(str, list(given)[:5]))
        raise InputError(f"one mapping (keys: {keys}), not records; give a list of records, or one split of it")
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        kinds = "a path, a list of records, a DataFrame or a Dataset"
        raise InputError(f"expected {kinds}, found {type(given).__name__}")
    return Records(name, [_plain_record(record) for record in _without_media(given)])


def _rows_of_frame(frame: Any, name: str) -> list[Any]:
    columns = [str(column) for column in getattr(frame, "columns", ())]
    if duplicate := next((column for column in columns if columns.count(column) > 1), None):
        raise InputError(f"column '{duplicate}' appears twice", path=name)
    if not columns:
        raise InputError("the frame has no columns", path=name)
    filled = frame.astype(object).where(frame.notna(), None)
    return [_plain_record(record) for record in filled.to_dict("records")]


def _without_media(dataset: Any) -> Any:
    """Returns a Hugging Face Dataset without the columns that iterating would decode; anything else unchanged."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or not hasattr(dataset, "remove_columns"):
        return dataset
    return dataset.remove_columns([name for name, feature in features.items() if hasattr(feature, "decode_example")])


def _plain_record(record: Any) -> Any:
    return {str(key): _plain(value) for key, value in record.items()} if isinstance(record, Mapping) else record


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return _plain_record(value)
    missing = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    return None if missing else value
