"""Data sets that consist of all files in a folder or of all files that match a glob pattern. Files are read in the
order of their names.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from glob import escape, glob, has_magic
from itertools import accumulate
from typing import Any, BinaryIO

from ..base.errors import InputError, InputErrors, NoRecords
from ..files.containers import open_rows
from ..files.fields import plain_value
from ..files.files import iter_line_blocks
from ..files.json_text import dump_json
from ..files.source import Input, Source, is_remote
from .captions import OWN_LAYOUTS
from .formats import recognize_file

_ENDINGS = (".jsonl", ".json", ".parquet", ".csv", ".tsv")
_PACKED = (".gz", ".zst")
_CONTAINERS = ("JSON lines", "JSON array", "parquet", "table")
_BLOCK = 1 << 20
_BOX = re.compile(r"\d+(?: [\d.]+){4,}\s*$")


def is_data_set(path: str) -> bool:
    """Returns True if a path is either a folder that is not recognized as another kind of input, or a pattern that is
    not the name of an existing file.
    """
    if is_remote(path) or "\0" in path:
        return False
    if os.path.isdir(path):
        return recognize_file(path) is None
    return has_magic(path) and not os.path.lexists(path)


def files_at(path: str) -> list[str]:
    """Returns a list of the path itself and, if it is a folder or a pattern, the files to which it refers, sorted by
    name.
    """
    several = not is_remote(path) and "\0" not in path and (os.path.isdir(path) or has_magic(path))
    return [path, *(_members(path) if several else ())]


def _members(path: str) -> list[str]:
    if not os.path.isdir(path):
        return sorted(name for name in glob(path, recursive=True) if os.path.isfile(name))
    files = (os.path.join(path, name) for name in sorted(os.listdir(path)) if not name.startswith("."))
    return [name for name in files if _unpacked_name(name).endswith(_ENDINGS) and os.path.isfile(name)]


def _labels_of_boxes(folder: str) -> str:
    """Returns a remedy if a folder contains text files with boxes (YOLO), or an empty string."""
    for path in sorted(glob(os.path.join(escape(folder), "*.txt")))[:1]:
        with open(path, encoding="utf-8", errors="replace") as file:
            if _BOX.match(file.readline()):
                return ", but labels in YOLO's format; convert them to COCO's instances (JSON)"
    return ""


def _unpacked_name(name: str) -> str:
    return next((name.removesuffix(ending) for ending in _PACKED if name.endswith(ending)), name)


@contextmanager
def sharing_inputs(opened: dict[str, Source]) -> Iterator[None]:
    """Makes :func:`input_at` open each regular file only once.

    Args:
        opened: Path -> input. Inputs that are opened inside the ``with`` block are added.
    """
    token = _OPENED.set(opened)
    try:
        yield
    finally:
        _OPENED.reset(token)


def input_at(path: Input) -> Source:
    """Returns the input at a path: a file, all files in a folder, or all files that match a pattern. A ``Source`` is
    returned unchanged.

    Raises:
        InputError: If ``path`` is neither a path nor a ``Source``, or if no file matches a pattern.
    """
    if isinstance(path, Source):
        return path
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"expected a path, found {type(path).__name__}")
    name, opened = os.fspath(path), _OPENED.get()
    if opened is None or not os.path.isfile(name):  # the data of a pipe cannot be read again
        return DataSet(name) if is_data_set(name) else Source(name)
    if name not in opened:
        opened[name] = Source(name)
    return opened[name]


class DataSet(Source):
    """Several files of one kind (JSON Lines, JSON arrays, CSV, TSV or parquet), combined into one JSON Lines input.

    Lines are numbered across all files. :func:`naming_files` translates the line number of a fault into the file name
    and the line number within that file.

    Args:
        path: Folder, or a pattern (``parts/*.parquet``; ``**`` matches nested folders).

    Attributes:
        files: Paths of the files, sorted by name.

    Raises:
        InputError: If no file matches.
    """

    def __init__(self, path: Input) -> None:
        super().__init__(path)
        self.files = _members(self.path)
        if saved := {"state.json", "dataset_dict.json"}.intersection(map(os.path.basename, self.files)):
            split = "['SPLIT']" if "dataset_dict.json" in saved else ""
            loaded = f"datasets.load_from_disk({os.fspath(self.path)!r}){split}"
            command = shlex.join(["python", "-c", f"import datasets; {loaded}.to_parquet('data.parquet')"])
            raise InputError(f"Arrow files of the package datasets; write them as Parquet: {command}", path=self.name)
        if not self.files:
            endings = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
            reason = f"the folder contains no file in {endings}" if os.path.isdir(self.path) else "no file matches"
            raise InputError(reason + _labels_of_boxes(self.path), path=self.path)
        self._lines: list[int] = []
        self._numbers: list[array[int]] = []  # of the records of a table or array; records of JSON Lines are lines
        self._sizes: list[int] = []
        self._checked = False

    @property
    def system(self) -> str:
        """Name of the system, which is the last folder in the path, or the whole pattern if the pattern contains no
        folder.
        """
        folder = self.path
        while has_magic(folder):
            folder = os.path.dirname(folder)
        return os.path.basename(os.path.abspath(folder)) if folder else self.path

    @property
    def is_folder(self) -> bool:
        """Always False, because the data set represents the files in the folder."""
        return False

    @property
    def packed(self) -> bool:
        """Always False, because each file may be compressed individually."""
        return False

    @property
    def size(self) -> None:
        """Always None, because the size is unknown."""

    @property
    def taken(self) -> int:
        """Total size in bytes of the files that have been read."""
        return sum(self._sizes)

    def keep(self) -> None:
        """Does nothing, because files can be read again."""

    def check(self) -> None:
        """Does nothing, because each file is checked while it is read."""

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """Opens all records as one JSON Lines stream.

        Raises:
            InputError: If a file cannot be read, or its kind or layout differs from that of the first file.
        """
        self._check_kinds()
        yield io.BufferedReader(_Chunks(self._chunks()))

    def place(self, line: int) -> tuple[str, int]:
        """Returns the file name of a line that has been read, and the number of the line, array element or parquet row
        in this file.
        """
        begins = [0, *accumulate(self._lines)]
        k = min(bisect_right(begins, line - 1), len(self.files)) - 1
        at = line - begins[k]
        of_records = self._numbers[k]
        return self.files[k], of_records[at - 1] if 0 < at <= len(of_records) else at

    def _chunks(self) -> Iterator[bytes]:
        self._lines, self._sizes, self._numbers = [], [], []
        for path in self.files:
            source = Source(path)
            self._lines.append(0)
            self._numbers.append(array("q"))
            self._sizes.append(source.taken)
            for chunk in _as_lines(source, self._numbers[-1]):
                self._lines[-1] += chunk.count(b"\n")
                yield chunk
            source.close()

    def _check_kinds(self) -> None:
        if self._checked:
            return
        first: tuple[str, str, str] | None = None
        for path in self.files:
            source = Source(path)
            known = recognize_file(source)
            try:
                rows = known.layout.rows if known and known.layout else open_rows(source, warn=lambda message: None)
            except NoRecords:  # a shard without records, such as the first one that Spark writes
                source.close()
                continue
            results = known is not None and known.kind.name == "results"
            if rows.container not in _CONTAINERS and not results:
                accepted = "JSON Lines, JSON arrays, CSV, TSV or parquet"
                reason = f"a {rows.container}; the files of a folder or pattern are {accepted}"
                raise InputError(reason, path=path)
            source.close()
            if known is None:  # whoever reads it says what is wrong
                continue
            layout = known.layout.format.name if known.layout else known.title
            layout = "captions" if layout in OWN_LAYOUTS else layout
            first = first or (path, known.title, layout)
            if layout != first[2]:
                found = f"{os.path.basename(first[0])} ({first[1]}) and {os.path.basename(path)} ({known.title})"
                reason = f"the files of one data set are of one kind, but it contains {found}"
                raise InputError(f"{reason}; give a pattern, or move the other files", path=self.name)
        self._checked = True


def _as_lines(source: Source, numbers: array[int]) -> Iterator[bytes]:
    """Yields the records of a file as whole lines. Lines of JSON Lines files, including blank lines, are yielded
    unchanged. For other files, the number of each record in its file is appended to ``numbers``.
    """
    if source.head.lstrip()[:1] in (b"{", b""):
        for _, data in iter_line_blocks(source, _BLOCK):
            yield data if data.endswith(b"\n") else data + b"\n"
        return
    try:
        rows = open_rows(source, warn=lambda message: None)
    except NoRecords:
        return
    for number, record in rows:
        numbers.append(number)
        values = ((key, plain_value(value)) for key, value in record.items())
        yield dump_json({key: value for key, value in values if value is not None and value == value}) + b"\n"


class _Chunks(io.RawIOBase):
    """A binary stream over an iterator of byte chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Returns True, because the stream can always be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with bytes of the stream and returns the number of bytes written."""
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


_OPENED: ContextVar[dict[str, Source] | None] = ContextVar("opened", default=None)


@contextmanager
def naming_files(sources: Collection[object]) -> Iterator[None]:
    """Translates the line numbers of faults in data sets to file names and line numbers in these files.

    Args:
        sources: Inputs that are read inside the ``with`` block. More inputs may be added while the ``with`` block runs.
    """
    try:
        yield
    except InputErrors as errors:
        placed = [_placed(error, sources) for error in errors.errors]
        raise InputErrors(placed, errors.total, errors.said, errors.remedy) from None
    except InputError as error:
        raise _placed(error, sources) from None


def _placed(error: InputError, sources: Collection[object]) -> InputError:
    source = next((each for each in sources if isinstance(each, DataSet) and each.name == error.path), None)
    if source is None or error.line is None:
        return error
    file, line = source.place(error.line)

    def local(number: re.Match[str]) -> str:
        other, at = source.place(int(number[0]))
        return str(at) if other == file else f"{at} of {other}"

    reason = re.sub(
        r"\blines? \d+(?:(?:-| and )\d+)?", lambda lines: re.sub(r"\d+", local, lines[0]), error.reason
    )  # a fault may name others
    return type(error)(reason, path=file, line=line)
