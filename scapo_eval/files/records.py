"""Records in memory, which Python users can pass instead of a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..base.errors import InputError


class Frame(Protocol):
    """Protocol for the methods of a pandas DataFrame that this module uses."""

    @property
    def iloc(self) -> Any:
        """Indexer that accesses rows by their positions."""

    def to_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the rows as a list of mappings if called with ``orient="records"``."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in memory, which are read like the lines of a file. Error messages refer to the records by their numbers,
    counted from 1.

    Attributes:
        name: Name of the source for error messages, such as ``<DataFrame>``.
        rows: The records.
    """

    name: str
    rows: Sequence[Any]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Records {self.name}: {len(self.rows):,}>"

    def numbered(self) -> Iterator[tuple[int, Any]]:
        """Returns an iterator over pairs of a record number (counted from 1) and a record."""
        return enumerate(self.rows, 1)


Readable = str | os.PathLike[str] | Records
"""Input that readers open: a path, ``-`` for standard input, a :class:`~scapo_eval.files.source.Source`, or
:class:`Records`.
"""

Given = str | os.PathLike[str] | Records | Frame | Iterable[Mapping[str, Any]]
"""Accepted forms of captions, answers or questions in the Python interface."""


def readable(given: Given) -> Readable:
    """Converts an input to a type that the readers can open. A path remains unchanged, and any other input is converted
    to records of plain values.

    Missing values (NaN, None, pandas' NA) become None, and NumPy scalars and arrays become numbers and lists. Images,
    audio and videos in a Hugging Face Dataset are not read, because they are not used.

    Args:
        given: A path, an iterable of mappings, a pandas DataFrame, or a Hugging Face Dataset.

    Raises:
        InputError: If the type of the input is not supported.
    """
    if isinstance(given, (str, os.PathLike, Records)):
        return given
    name = f"<{type(given).__name__}>"
    if hasattr(given, "iloc") and hasattr(given, "to_dict"):
        return Records(name, _rows_of_frame(given, name))
    if isinstance(given, Mapping) and given and all(isinstance(value, str) for value in given.values()):
        return Records(name, [_plain_record(given)])  # captions by image
    if isinstance(given, Mapping):
        keys = ", ".join(map(str, list(given)[:5]))
        raise InputError(f"one mapping (keys: {keys}), not records; give a list of records, or one split of it")
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        kinds = "a path, a list of records, a DataFrame or a Dataset"
        raise InputError(f"expected {kinds}, found {type(given).__name__}")
    records = [*without_media(given)]
    if records and all(isinstance(record, str) and " " in record and not os.path.exists(record) for record in records):
        raise InputError('texts without image ids; give records: [{"image_id": 1, "caption": "A dog."}]', path=name)
    if records and all(isinstance(record, (str, os.PathLike)) for record in records):
        raise InputError(
            "a list of file names; if each is a system, score each and compare the runs; "
            "if they are parts of one system, give their folder or a pattern",
            path=name,
        )
    return Records(name, [_plain_record(record) for record in records])


def _rows_of_frame(frame: Any, name: str) -> list[Any]:
    columns = [str(column) for column in getattr(frame, "columns", ())]
    if duplicate := next((column for column in columns if columns.count(column) > 1), None):
        raise InputError(f"column '{duplicate}' appears twice", path=name)
    if not columns:
        raise InputError("the frame has no columns", path=name)
    filled = frame.astype(object).where(frame.notna(), None)
    return [_plain_record(record) for record in filled.to_dict("records")]


def without_media(dataset: Any) -> Any:
    """Returns a Hugging Face Dataset without the columns that would be decoded during iteration. All other input is
    returned unchanged.
    """
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or not hasattr(dataset, "remove_columns"):
        return dataset
    return dataset.remove_columns([name for name, feature in features.items() if hasattr(feature, "decode_example")])


def _plain_record(record: Any) -> Any:
    if isinstance(record, np.void) and record.dtype.names:  # a row of a structured array
        record = {name: record[name] for name in record.dtype.names}
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
