"""Reader for ground truth in tables: ``image_id,label[,present]``, Open Images CSV files, and data frames."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import UNFIT, FaultList, InputError, short_repr, unfit
from ..base.ids import canonical_image_id
from ..base.types import LabelSet
from ..files.account import NOTHING
from ..files.containers import NumberedRecord, table_rows
from ..files.fields import RECORD_KEYS, image_key, keys_named, label_of, names_image, plain_key, state_of
from ..files.files import display_name, read_bytes
from ..files.json_text import json_type
from ..files.records import without_media
from ..readers.advice import is_image_file
from .truth_columns import TruthColumns, TruthRows, columns_of_cells, columns_of_matrix, sorted_unique
from .truth_json import OBJECT_KEYS

LABEL_KEYS = ("label", "object", "class", "category")
"""Accepted names of the column that contains a label."""

_OPEN_IMAGES = ("ImageID", "LabelName", "Confidence")
_CLASSES = "not a valid file of class names: expected a code and its name (/m/01yrx,Cat)"
_CODE = re.compile(r"/[a-z]/\w+")


class _Cells:
    """A collector that checks cells, each of which consists of an image, a label and a state.

    Args:
        source: Name of the source, for error messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.faults = FaultList()
        self.images: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self._rows: dict[Any, int] = {}  # image ids as written -> row
        self._written: dict[str, str] = {}  # image id -> how it is written in the file
        self._cells = {state: (array("q"), array("q")) for state in (1, 0, -1)}

    def row(self, image_id: object) -> int:
        """Returns the matrix row of an image.

        Raises:
            ValueError: If the id is invalid, or if the file also contains the id in another spelling.
        """
        key = image_id if type(image_id) in (str, int) else None
        row = self._rows.get(key) if key is not None else None
        if row is None:
            try:
                image = canonical_image_id(image_id)
            except ValueError as error:
                raise ValueError(f"image id {error}") from None
            row = self._rows[key] = self.images.setdefault(image, len(self.images))
            written = str(image_id)
            if self._written.setdefault(image, written) != written:
                spellings = f"{short_repr(self._written[image])} and {short_repr(written)}"
                raise ValueError(f"{spellings} are the same image, {image}; write it in one way")
        return row

    def add(self, row: int, label: str, state: int) -> None:
        """Adds a cell with the state 1, 0 or -1."""
        rows, labels = self._cells[state]
        rows.append(row)
        labels.append(self.labels.setdefault(label, len(self.labels)))

    @property
    def n_given(self) -> int:
        """Number of cells that were added, including repeated cells."""
        return sum(len(rows) for rows, _ in self._cells.values())

    def keys(self, state: int) -> Any:
        """Returns the distinct flat positions of the cells that have a given state."""
        rows, labels = (np.frombuffer(column, dtype=np.int64) for column in self._cells[state])
        return sorted_unique(rows * len(self.labels) + labels)


def read_table_truth(data: bytes, source: str) -> TruthColumns:
    """Reads a table with the columns ``image_id,label[,present]`` or an Open Images table.

    Args:
        data: Content of the file.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the table does not have the required columns. The message lists the columns that were found.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    first = next(table_rows(data, source), None)
    if first and first[1].keys() >= set(_OPEN_IMAGES):
        return read_open_images([source], classes=None, data=data)
    return read_table_rows(lambda: table_rows(data, source), source)


def as_cells(records: Iterable[NumberedRecord]) -> Iterator[NumberedRecord]:
    """Yields records whose values are written as the cells of a table."""
    for number, record in records:
        yield number, {key: "" if value is None else _cell(value) for key, value in record.items()}


def _cell(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_table_rows(open_table: Callable[[], Iterator[NumberedRecord]], source: str) -> TruthColumns:
    """Reads a table with the columns ``image_id,label[,present]``, one column per label, or lists of labels.

    Args:
        open_table: Function that returns all rows, which are read twice.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the table does not have the required columns. The message lists the columns that were found.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    first = next(open_table(), None)
    columns = set(first[1]) if first else set()
    if (first and any(_CODE.fullmatch(column) for column in columns)) or columns == {"LabelName", "DisplayName"}:
        reason = "Open Images' class names are no truth; pass them with --classes to scapo-eval oracle open-images"
        raise InputError(reason, path=source)
    if first is None:
        raise InputError("the ground truth has no images (a header and no row)", path=source)
    image = image_column(first[1], source)
    if image is not None and not keys_named(columns, LABEL_KEYS):
        if listed := keys_named(columns, [plain_key(key) for key in OBJECT_KEYS]):
            return _read_lists(open_table(), source, image, listed[0])
        table = list(open_table())
        if states := _state_columns(table, image, source):
            return _read_wide(table, source, image, states)
    return _read_cells(open_table(), source, columns, image)


def image_column(first: Mapping[str, Any], source: str) -> str | None:
    """Returns the column with the image ids, or None if no column has a known name.

    Raises:
        InputError: If several columns name different images, or if only a column without a name can be the ids.
    """
    try:
        image = image_key(first)
    except ValueError as error:
        raise InputError(str(error).partition(";")[0] + "; keep one of the columns", path=source) from None
    if image is None and "" in first:
        raise InputError("not a valid truth: the column of the image ids has no name; name it image_id", path=source)
    return image


_INDEX = re.compile(r"|Unnamed: \d+")
"""Names of columns with pandas' row numbers."""


def _state_columns(table: Sequence[NumberedRecord], image: str, source: str) -> list[str]:
    """Returns the columns of a wide table that contain states. Row numbers and further ids of the record are omitted.

    Raises:
        InputError: If the table has a column with text beside columns with states.
    """
    columns = [
        name
        for name in table[0][1]
        if name != image and not _INDEX.fullmatch(name) and (plain_key(name) not in RECORD_KEYS or name == "key")
    ]
    states, texts = [], {}
    for column in columns:
        cells = [cell for _, record in table if (cell := (record.get(column) or "").strip())]
        if not cells or any(_known_state(cell) is not None for cell in cells):
            states.append(column)
        elif not names_image(column):
            texts[column] = cells[0]
    if texts and any((record.get(column) or "").strip() for _, record in table for column in states):
        named = ", ".join(f"'{column}' ({short_repr(cell)})" for column, cell in texts.items())
        reason = "a table with one column per label contains only image ids and 1, 0 or -1"
        raise InputError(f"columns with text: {named}; remove them: {reason}", path=source)
    return [] if texts else states


def _known_state(cell: str) -> int | None:
    """Returns the state that a cell of a wide table contains, or None if the cell contains none. A count of objects
    means present, and an empty cell means unknown.
    """
    word = cell.strip().casefold()
    if word in ("", "nan"):
        return -1
    state = state_of(word)
    return 1 if state is None and _COUNT.fullmatch(word) else state


_COUNT = re.compile(r"[1-9]\d*(?:\.0+)?")


def _read_wide(table: Sequence[NumberedRecord], source: str, image: str, labels: Sequence[str]) -> TruthColumns:
    """Reads a table that has one column per label, with the values 1, 0 or -1, counts, or empty cells."""
    faults, matrix, images = FaultList(), [], []
    for number, record in table:
        row = [_known_state(record.get(label) or "") for label in labels]
        try:
            if None in row:
                label = labels[row.index(None)]
                expected = "1, 0, -1 (unknown), a count or empty (unknown)"
                raise ValueError(f"column '{label}' must be {expected}, not {short_repr(record[label])}")
            canonical_image_id(record.get(image))
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=source, line=number))
            continue
        images.append(record[image])
        matrix.append(row)
    faults.raise_if_any()
    return columns_of_matrix(np.array(matrix, dtype=np.int8), images, labels, "", source)


def _read_lists(rows: Iterable[NumberedRecord], source: str, image: str, column: str) -> TruthColumns:
    """Reads a table in which one cell contains all labels of an image, separated by commas, semicolons or bars, or as a
    list in Python's or JSON's notation.
    """
    read = TruthRows(source, FaultList())
    for number, record in rows:
        read.add(number, record.get(image), _labels_in(record.get(column) or ""))
    return read.columns(None)


_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_IN_BRACKETS = re.compile(r"\[[^][]*\]|\([^()]*\)|\{[^{}]*\}")


def _labels_in(cell: str) -> list[str]:
    cell = cell.strip()
    if cell.casefold() in NOTHING:
        return []
    if cell[:1] in "[({":
        inner = cell[1:-1].strip()
        if not inner or _QUOTED.search(inner):
            return [label for pair in _QUOTED.findall(inner) for label in map(str.strip, pair) if label]
        if _IN_BRACKETS.fullmatch(cell):
            cell = inner
    labels = re.split(r"[;,|]", cell)
    return [label.strip() for label in labels if label.strip()]


def read_frame(frame: Any, source: str) -> TruthColumns:
    """Reads a data frame; see :meth:`scapo_eval.PresenceOracle.from_frame`.

    Args:
        frame: Pandas or polars DataFrame, Hugging Face Dataset, pyarrow Table, or mapping of lists.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the input is not a table with the required columns. The message lists the columns that were
            found.
        InputErrors: If the input contains invalid data. The error lists all faults with their row numbers.
    """
    frame = without_media(frame)
    own = frame if isinstance(frame, Mapping) else None
    listed = (getattr(frame, "column_names", None), getattr(frame, "columns", None), own)
    found = next((columns for columns in listed if columns is not None), None)
    if not isinstance(found, Iterable):
        raise InputError(f"expected a data frame or a mapping of lists, found {type(frame).__name__}", path=source)
    names = list(map(str, found))
    values = {name: _values(frame, name, source) for name in names if names_image(name)}
    image = image_column({name: next(iter(column), None) for name, column in values.items()}, source) or "image_id"
    lists_objects = image in names and "label" not in names and "objects" in names
    used = [name for name in names if name == image or keys_named([name], (*LABEL_KEYS, "present"))]
    used = [image, "objects"] if lists_objects else used
    columns = [_values(frame, name, source) for name in used]
    if len({len(column) for column in columns}) > 1:
        raise InputError("the columns have different lengths", path=source)
    numbered = enumerate(zip(*columns, strict=True), 1)
    if lists_objects:
        rows = TruthRows(source, FaultList())
        for number, (image_id, objects) in numbered:
            rows.add(number, image_id, objects)
        return rows.columns(None)
    return _read_cells(
        ((number, dict(zip(used, row, strict=True))) for number, row in numbered), source, set(names), image
    )


def _values(frame: Any, name: str, source: str) -> list[Any]:
    """Returns a column of a table from any library as a list of plain Python values."""
    column = frame[name]
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise InputError(f"column '{name}' must be a list of values, not {short_repr(column)}", path=source)
    listed = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]


def _read_cells(rows: Iterable[NumberedRecord], source: str, columns: set[str], image: str | None) -> TruthColumns:
    named = next(iter(keys_named(columns, LABEL_KEYS)), "label")
    state = next(iter(keys_named(columns, ["present"])), None)
    image = image or "image_id"
    missing = [column for column in (image, named) if column not in columns]
    if missing and any(map(is_image_file, columns)):
        raise InputError("a table without a header line: add the line image_id,label", path=source)
    if missing:
        expected = (
            "expected image_id,label[,present], image_id,objects, image_id and a column of 0 and 1 per label, or Open "
            "Images' ImageID,Source,LabelName,Confidence"
        )
        shown = ", ".join(sorted(columns)[:8])
        raise InputError(f"not a valid truth: missing column '{missing[0]}' (found: {shown}); {expected}", path=source)
    cells = _Cells(source)
    for number, record in rows:
        try:
            row = cells.row(record.get(image))
            label = record.get(named)
            if label is None or label == "":  # an image in which nothing is
                continue
            if not isinstance(label, str):
                raise ValueError(f"'{named}' must be a string, not {_kind(label)}")
            present = _state(record.get(state)) if state else 1
        except UNFIT as error:
            cells.faults.add(InputError(unfit(error), path=source, line=number))
            continue
        cells.add(row, label.strip(), present)
    cells.faults.raise_if_any()
    if plain_key(image) in RECORD_KEYS and cells.labels and all(map(label_of, cells.labels)):
        raise InputError(f"not a valid truth: the labels under '{named}' are yes and no", path=source)
    ones, absent, unknown = cells.keys(1), cells.keys(0), cells.keys(-1)
    for keys, others in ((ones, absent), (ones, unknown), (absent, unknown)):
        twice = np.intersect1d(keys, others, assume_unique=True)
        if len(twice):
            image_id, label = (
                list(cells.images)[twice[0] // len(cells.labels)],
                list(cells.labels)[twice[0] % len(cells.labels)],
            )
            raise InputError(f"image {image_id}: '{label}' is given different states", path=source)
    world: LabelSet = "partial" if state else "open-axis"
    states = absent if state else None
    truth = columns_of_cells(source, world, list(cells.images), list(cells.labels), ones, states)
    return replace(truth, repeated=cells.n_given - len(ones) - len(absent) - len(unknown))


def _kind(value: object) -> str:
    return "NaN" if isinstance(value, float) and value != value else json_type(value)


def _state(value: object) -> int:
    state = state_of(value)
    if state is None:
        raise ValueError(f"'present' must be 1, 0 or -1 (unknown), not {short_repr(value)}")
    return state


def read_open_images(
    paths: Sequence[str | Path], classes: str | Path | None, data: bytes | None = None
) -> TruthColumns:
    """Reads Open Images annotations. Only labels that people have verified are treated as known.

    A confidence of 1 means present, a confidence of 0 means absent, and a class that is not listed is unknown. Labels
    that were assigned only by a model are unknown, and so are labels for which two rows disagree. A bounding box marks
    its class as present.

    Args:
        paths: Files with image-level labels and boxes (``ImageID,Source,LabelName,Confidence,...``); the contents of
            these files are combined.
        classes: File of class descriptions whose rows contain a code and a name, or None to keep the codes as labels.
        data: Content of the only file in ``paths``, if it has already been read.

    Raises:
        InputError: If the columns differ, if no label is verified, or if the class descriptions name none of the codes.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    source = " + ".join(map(display_name, paths))
    cells = _Cells(source)
    for path in paths:
        name = display_name(path)
        rows = table_rows(read_bytes(path) if data is None else data, name)
        first = next(rows, (1, {}))
        missing = [column for column in _OPEN_IMAGES if column not in first[1]]
        if missing:
            shown = ", ".join(list(first[1])[:8]) or "no row"
            raise InputError(f"not a file of Open Images: missing column '{missing[0]}' (found: {shown})", path=name)
        for line, record in chain([first], rows):
            if record.get("Source") == "machine":
                continue
            try:
                row = cells.row(record.get("ImageID"))
                code, confidence = record.get("LabelName"), record.get("Confidence")
                if not code:
                    raise ValueError("'LabelName' is empty")
                if confidence not in ("0", "1", "0.0", "1.0"):
                    given = short_repr(confidence)
                    raise ValueError(f"'Confidence' of a verified label must be 0 or 1, not {given}")
            except UNFIT as error:
                cells.faults.add(InputError(unfit(error), path=name, line=line))
                continue
            cells.add(row, code, int(confidence[0]))
    cells.faults.raise_if_any()
    if not cells.images:
        raise InputError("no label that people verified (only Source 'machine', or no row)", path=source)
    present, absent = cells.keys(1), cells.keys(0)
    disputed = np.intersect1d(present, absent, assume_unique=True)
    present, absent = (np.setdiff1d(keys, disputed, assume_unique=True) for keys in (present, absent))
    codes = list(cells.labels)
    if classes is None:
        return columns_of_cells(source, "partial", list(cells.images), codes, present, absent)
    names = _class_names(classes)
    if names.keys().isdisjoint(codes):
        raise InputError(f"names none of the classes of {source} (such as {codes[0]})", path=display_name(classes))
    words = [names.get(code, code) for code in codes]
    uses = Counter(words)
    labels = [word if uses[word] == 1 else f"{word} ({code})" for word, code in zip(words, codes, strict=True)]
    return columns_of_cells(source, "partial", list(cells.images), labels, present, absent, [(word,) for word in words])


def _class_names(path: str | Path) -> Mapping[str, str]:
    """Reads Open Images' class descriptions as a mapping from codes to names."""
    name = display_name(path)
    header = b"code,name\n"  # older files have no header, newer ones LabelName,DisplayName
    names: dict[str, str] = {}
    faults = FaultList()
    rows = enumerate(table_rows(header + read_bytes(path), name), 1)
    try:
        for line, (_, record) in rows:
            code, words = record["code"], record.get("name", "")
            if line == 1 and code == "LabelName":
                continue
            if not _CODE.fullmatch(code) or not words:
                given = short_repr(",".join(record.values()))
                faults.add(InputError(f"{_CLASSES}, found {given}", path=name, line=line))
            elif names.setdefault(code, words) != words:
                faults.add(InputError(f"'{code}' appears twice with different names", path=name, line=line))
    except InputError as error:
        raise InputError(_CLASSES, path=name, line=None if error.line is None else error.line - 1) from None
    faults.raise_if_any()
    return names
