"""Reader that returns the rows of a file in any container format: JSON Lines, a JSON array or object, an Excel
workbook, a CSV or TSV table, or parquet.

The type of a container is determined by its content and not by the file name, because many ``.json`` files contain JSON
Lines.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from ..base.errors import InputError, MissingExtra, NoRecords
from .account import counted
from .files import decoding, not_utf8, read_bytes
from .json_text import iter_records, read_json
from .limits import check_decoded
from .parquet import MAGIC, open_parquet, refuse_feather
from .records import Readable, Records
from .source import Input, Source, display_name

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

Container = Literal["JSON lines", "JSON array", "JSON object", "xlsx workbook", "table", "parquet", "records"]
NumberedRecord = tuple[int, dict[str, Any]]
"""A record with its position in the file (line, array element or sheet row, from 1)."""

ErrorHandler = Callable[[InputError], None]
Warn = Callable[[str], None]

XLSX_CELL_LIMIT = 32_767
"""Excel's limit for the number of characters in a cell. Excel writers silently truncate longer texts."""

_MAX_HEADER = 2**20
_MAX_ROW = 2**26
_CONTENT_TYPES = "[Content_Types].xml"  # member of every workbook
_MAX_CELL = 2**27  # tables of VLMEvalKit contain whole images in a cell
_CONTROL = re.compile(r"_x00([01][0-9A-Fa-f])_")  # representation of control characters in a workbook
_OPEN_OBJECT = (b"{", b"[", b",", b":")


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of a file in any container format. The first record can be accessed before the others are read.

    Attributes:
        path: Name of the source, for error messages.
        container: Type of the container, such as ``JSON lines`` or ``parquet``.
        first: First record. For a JSON object, ``first`` is the object itself.
        rest: All records in order, including the first.
    """

    path: str
    container: Container
    first: dict[str, Any]
    rest: Iterator[NumberedRecord]

    def __iter__(self) -> Iterator[NumberedRecord]:
        return self.rest


def warn_user(message: str) -> None:
    """Issues a Python warning, which a program may catch or suppress. This function is the default for the callback
    ``warn``.
    """
    warnings.warn(message, UserWarning, stacklevel=3)


def open_rows(path: Readable, *, on_error: ErrorHandler | None = None, warn: Warn = warn_user) -> Rows:
    """Opens a file in any container format that evaluation tools commonly write.

    Args:
        path: Any input that a :class:`~scapo_eval.files.source.Source` accepts, or records in memory. Files may be
            compressed with gzip (``.gz``) or Zstandard (``.zst``).
        on_error: Callback for each unreadable record. If ``on_error`` is None, all faults are raised together at the
            end.
        warn: Callback for readable but damaged data, such as truncated workbook cells.

    Raises:
        InputError: If the container is unknown, or if the file is empty or damaged.
        InputErrors: If lines are not JSON objects.
        MissingExtra: If the package for workbooks or parquet is not installed.
    """
    name = display_name(path)
    if isinstance(path, Records):
        records = iter_records(path, on_error=on_error)
        first_record = next(records, None)
        if first_record is None:
            raise InputError("there are no records", path=name)
        return Rows(name, "records", first_record[1], chain([first_record], records))
    faults = list[InputError]()

    def noted(fault: InputError) -> None:
        if not faults:
            faults.append(fault)
        if on_error is not None:
            on_error(fault)

    source = Source.of(path)
    head = source.head
    refuse_feather(head, name)
    text = head.lstrip()
    if name.endswith(".parquet") and head[:4] != MAGIC:
        raise InputError("not a parquet file", path=name)
    container: Container
    if head[:4] == MAGIC:
        container, rows = "parquet", _parquet(source)
    elif head[:4] == b"PK\x03\x04":
        container, rows = "xlsx workbook", _workbook(source, name, warn)
    elif head[:4] == b"\xd0\xcf\x11\xe0":
        raise InputError("an old Excel workbook (.xls); save it as .xlsx or .tsv", path=name)
    elif head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 1:
        raise InputError("a pickle, which can run any code when read; save it as .tsv, .xlsx or .json", path=name)
    elif text[:1] == b"{" and is_open(text):
        container, rows = "JSON object", iter(((1, _object(source, name)),))
    elif text[:1] in (b"{", b"[", b""):
        container = "JSON array" if text[:1] == b"[" else "JSON lines"
        rows = iter_records(source, on_error=None if on_error is None else noted)
    else:
        container, rows = "table", table_rows(read_bytes(source), name)
    if container in ("parquet", "xlsx workbook", "table"):
        rows = counted(source, rows)
    first = next(rows, None)
    if first is None:
        raise faults[0] if faults else NoRecords("the file contains no record", path=name)
    if container == "JSON lines" and any(isinstance(first[1].get(key), (dict, list)) for key in ("results", "logs")):
        container = "JSON object"  # a whole document on one line
    return Rows(name, container, first[1], chain([first], rows))


def is_open(text: bytes) -> bool:
    """Returns True if the first line ends inside an object, which indicates that the file is a single pretty-printed
    value.
    """
    line, newline, _ = text.partition(b"\n")
    return bool(newline) and line.rstrip().endswith(_OPEN_OBJECT)


def _object(path: Input, name: str) -> dict[str, Any]:
    value = read_json(path, unique=True)
    if not isinstance(value, dict):
        raise InputError("expected a JSON object", path=name)
    return value


def table_rows(data: bytes, name: str) -> Iterator[NumberedRecord]:
    """Yields the rows of a table with a header line. The cells are separated by tabs, commas or semicolons. The memory
    use is proportional to the size of the input.

    Args:
        data: Content of the file.
        name: Name of the source, for error messages.

    Raises:
        InputError: If the table is not UTF-8, if it has no header with at least two columns, or if a row has more cells
            than the header.
    """
    if (bad := not_utf8(data)) is not None:
        line = data.count(b"\n", 0, bad) + 1
        remedy = "for the supported formats, see scapo-eval import"
        if b"\0" not in data:
            remedy = "convert it, for example with iconv -f WINDOWS-1252 -t UTF-8"
        raise InputError(f"neither JSON nor UTF-8 text; {remedy}", path=name, line=line)
    at = 0
    while len(data) - at > _MAX_ROW:
        end = data.rfind(b"\n", at, at + _MAX_ROW) + 1
        if not end:
            number = data.count(b"\n", 0, at) + 1
            raise InputError(f"a line of more than {_MAX_ROW >> 20} MiB is not a valid row", path=name, line=number)
        at = end
    if len(data) > _MAX_HEADER and data.find(b"\n", 0, _MAX_HEADER) < 0:
        raise InputError("neither JSON nor a table: its first line does not end", path=name, line=1)
    header_line = data[: data.find(b"\n") + 1 or len(data)]
    delimiter = "\t" if b"\t" in header_line else ";" if header_line.count(b";") > header_line.count(b",") else ","
    reader = csv_reader(data, delimiter)
    header: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            if header is None:
                header = _header(cells, name)
            elif (inner := _record_inside(cells, delimiter, len(header))) is not None:
                reason = (
                    f"a cell continues on line {line + inner}, which looks like a record: check for an unclosed quote, "
                    "or write the table as JSON Lines"
                )
                raise InputError(reason, path=name, line=line)
            elif len(cells) > len(header):
                raise InputError(f"{len(cells)} cells under {len(header)} columns", path=name, line=line)
            elif any(cells):
                yield line, dict(zip(header, cells, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"not a valid table: {error}", path=name, line=line) from None


_RUN = re.compile(r"[0-9]+|[^\W\d]+")


def _record_inside(cells: Sequence[str], delimiter: str, columns: int) -> int | None:
    """Returns the offset of the second record inside a multi-line row, or None if the row is a single record.

    After an unclosed quote, a row contains the lines of several records. All further lines then have as many cells as
    the header and the same pattern of digits and letters in the first cell. The text after ``1, `` in a caption begins
    with a space, but the cell of a record only if the first one does, too.
    """
    opened = next((k for k, cell in enumerate(cells[:columns]) if "\n" in cell), None)
    if opened is None:
        return None

    def layout(row: Sequence[str]) -> tuple[str, bool]:
        spelling = _RUN.sub(lambda match: "0" if match[0].isdigit() else "a", row[0].strip())
        return spelling, row[opened].startswith(" ")

    lines = delimiter.join(cells).split("\n")
    rows = [line.split(delimiter) for line in lines]
    others = [k for k, line in enumerate(lines) if k and line.strip()]
    alike = all(len(rows[k]) == columns and layout(rows[k]) == layout(rows[0]) for k in others)
    return others[0] if others and alike and len(rows[0]) >= columns else None


def csv_reader(data: bytes, delimiter: str) -> CsvReader:
    """Returns a CSV reader for UTF-8 text with the project's limit for cell sizes.

    The default limit of the csv module is 128 KiB and applies to the whole process.
    """
    csv.field_size_limit(_MAX_CELL)
    if sys.version_info < (3, 11):
        data = data.replace(b"\0", b"")  # the csv module of Python 3.10 refuses a NUL
    return csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=delimiter, strict=True)


def _header(cells: Sequence[Any], name: str) -> list[str]:
    header = ["" if cell is None else str(cell).strip() for cell in cells]
    if len(header) < 2:
        kind = "JSON, not" if header and header[0].startswith(("{", "[")) else "neither JSON nor"
        raise InputError(f"{kind} a table with at least two columns", path=name, line=1)
    twice = sorted({column for column in header if column and header.count(column) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} appears twice", path=name, line=1)
    return header


def _workbook(path: Input, name: str, warn: Warn) -> Iterator[NumberedRecord]:
    """Yields the rows of a workbook's first sheet, whose first row is the header, and warns about cells that Excel
    truncated.
    """
    cut: list[int] = []
    header: list[str] | None = None
    for number, (title, cells) in enumerate(_sheet(path, name), 1):
        if header is None:
            try:
                header = _header(cells, name)
            except InputError as error:
                reason = f"{error.reason} (sheet {title!r}; only the first sheet is read)"
                raise InputError(reason, path=name, line=number) from None
            continue
        if cells.count(None) == len(cells):  # a row at the end of the sheet can follow a million empty rows
            continue
        values = [_CONTROL.sub(_character, cell) if isinstance(cell, str) else cell for cell in cells]
        if any(value is not None for value in values):
            cut.extend(number for cell in cells if isinstance(cell, str) and len(cell) >= XLSX_CELL_LIMIT)
            yield number, {key: value for key, value in zip(header, values, strict=False) if key}
    if cut:
        shown = ", ".join(map(str, cut[:10])) + (", ..." if len(cut) > 10 else "")
        warn(
            f"{name}: {len(cut)} cell{'s' * (len(cut) > 1)} (row {shown}) of {XLSX_CELL_LIMIT:,} characters, "
            "where Excel cuts a text: what follows is lost; use the tsv or json of the same run"
        )


def _sheet(path: Input, name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields the title of a workbook's first sheet and the cells of a row, for each row. A text that starts with ``=``
    is returned as text, not evaluated.
    """
    data = read_bytes(path)
    with decoding("xlsx workbook", path):
        check_archive(io.BytesIO(data), name)
        refuse_zip(io.BytesIO(data), _CONTENT_TYPES, name)
    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("formats", f"{name} (an xlsx workbook)") from None
    with decoding("xlsx workbook", path):
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=False)
        sheet = book.worksheets[0]
        yield from ((sheet.title, cells) for cells in sheet.iter_rows(values_only=True))


def refuse_zip(stream: BinaryIO, member: str, name: str) -> None:
    """Rejects a zip archive that is not of the expected kind.

    Args:
        stream: Content of the archive.
        member: Ending of the name of a member that each archive of the expected kind contains.
        name: Name of the source, for error messages.

    Raises:
        InputError: If the archive has no such member. For a damaged archive, the exceptions of zipfile are raised.
    """
    import zipfile

    with zipfile.ZipFile(stream) as archive:
        if not any(found.endswith(member) for found in archive.namelist()):
            raise InputError("a zip archive; unpack it and give the files in it", path=name)
    stream.seek(0)


def check_archive(stream: BinaryIO, name: str) -> None:
    """Rejects a zip archive whose members would decompress to more than the limit.

    The declared sizes can be trusted, because a member cannot decompress to more than its declared size.

    Raises:
        InputError: If the archive is too large. For a damaged archive, the exceptions of zipfile are raised.
    """
    import zipfile

    with zipfile.ZipFile(stream) as archive:
        check_decoded(sum(member.file_size for member in archive.infolist()), stream.seek(0, io.SEEK_END), name)
    stream.seek(0)


def _character(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16))


def _parquet(path: Input) -> Iterator[NumberedRecord]:
    number = 0
    with open_parquet(path) as file:
        for batch in file.batches(4096):
            for record in batch.to_pylist():
                number += 1
                yield number, record
