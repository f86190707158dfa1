"""Files as bytes and as JSON records, with every fault named by file and line.

Read without complaint: ``.gz`` and ``.zst`` (recognized by content, not by name), standard input
(``-``), a byte-order mark, CRLF, blank lines, NUL and lone surrogates inside strings, and a JSON array in
place of lines.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import stat
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import msgspec
import numpy as np
import orjson

from ..errors import InputError, InputErrors, MissingExtra, ScapoError
from .records import Readable, Records

MAX_LINE = 16 * 2**20
"""Bytes; a longer line is a broken file, not a caption."""

MAX_WHOLE = 4 * 2**30
"""Bytes; the largest file that is read whole, unless :func:`limit_decoded` says otherwise."""

MAX_UNPACKED, MAX_RATIO = 32 * 2**20, 50
"""Bytes; a compressed file may unpack to so many, or to so many times its own size (texts: 3 to 20 times)."""

MAX_VALUES, MAX_SPREAD = 512 * 2**20, 12
"""Bytes; the values of one JSON document may take so much memory, or so many times its size (data: 1 to 8 times)."""

MAX_FAULTS = 100_000
"""Faults of one input after which reading stops."""

_LENIENT = 256 * 2**20  # bytes; in larger documents no lone surrogate and no bare NUL is put up with

STDIN = "-"
Form = TypeVar("Form")
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


_max_decoded: int | None = None


def limit_decoded(size: int | None) -> None:
    """Sets how many bytes a file may hold when it is decoded, in this process (``--max-decoded``).

    Args:
        size: bytes; None for MAX_WHOLE, and for compressed files MAX_UNPACKED or MAX_RATIO times their size.
    """
    global _max_decoded
    _max_decoded = size


def check_decoded(size: int, packed: int | None, name: str) -> None:
    """Refuses what would decode to more than the limit.

    Args:
        size: bytes when decoded.
        packed: bytes of the compressed file or archive; None for a file that is not compressed.
        name: of the source, for the message.

    Raises:
        InputError: it is too large.
    """
    usual = MAX_WHOLE if packed is None else max(MAX_UNPACKED, MAX_RATIO * packed)
    limit = usual if _max_decoded is None else _max_decoded
    if size > limit:
        how = f", {MAX_RATIO} times its own size" if packed and _max_decoded is None and limit > MAX_UNPACKED else ""
        shown = f"{limit / 2**20:,.0f} MiB" if limit >= 2**20 else f"{limit:,} bytes"
        raise InputError(f"holds more than {shown} when decoded{how}; allow more with --max-decoded SIZE", path=name)


@contextmanager
def decoding(what: str, path: Readable) -> Iterator[None]:
    """Around a decoder that does not document what it raises: whatever it is, the file is damaged.

    Args:
        what: what the file should be, for the message.
        path: the file.

    Raises:
        InputError: in place of any exception but the project's own.
    """
    try:
        yield
    except (ScapoError, BrokenPipeError):
        raise
    except MemoryError:
        raise InputError(f"damaged {what}, or too large for the memory", path=display_name(path)) from None
    except Exception as error:
        why = " ".join(str(error).split())[:160]
        reason = f"{type(error).__name__}: {why}" if why else type(error).__name__
        raise InputError(f"damaged {what} ({reason})", path=display_name(path)) from None


def display_name(path: Readable) -> str:
    """How a source is called in messages."""
    return "<stdin>" if str(path) == STDIN else str(path)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for ``-``, as plain bytes, decompressing gzip and zstandard.

    Raises:
        InputError: file not found, a directory, or it may not or cannot be read.
    """
    name = display_name(path)
    if str(path) == STDIN and sys.stdin is None:
        raise InputError("standard input is closed", path=name)
    try:
        raw: BinaryIO = sys.stdin.buffer if str(path) == STDIN else _open(path)
    except OSError as error:
        raise InputError(_os_reason(error), path=name) from None
    except ValueError:
        raise InputError("not a valid file name (it holds a NUL)", path=name.replace("\0", "\\0")) from None
    try:
        yield _decompressed(raw, name)
    except BrokenPipeError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(_os_reason(error), path=name) from None
    finally:
        if str(path) != STDIN:
            raw.close()


def _open(path: str | Path) -> BinaryIO:
    return open_remote(str(path)) if is_remote(path) else open(path, "rb")


def is_remote(path: str | Path) -> bool:
    """Whether a path is a URI (``s3://bucket/captions.jsonl``), which pyarrow's file systems open."""
    return isinstance(path, str) and "://" in path


def open_remote(uri: str) -> BinaryIO:
    """Opens a URI on any of pyarrow's file systems: ``s3``, ``gs``, ``abfs``, ``hdfs``, ``file``.

    Raises:
        InputError: an unknown kind of URI, or the path on it is not known.
        OSError: it cannot be read.
        MissingExtra: pyarrow is not installed.
    """
    system, path = file_system(uri)
    stream: BinaryIO = system.open_input_file(path)
    return stream


def file_system(uri: str) -> tuple[Any, str]:
    """Pyarrow's file system of a URI, and the path on it.

    Raises:
        InputError: an unknown kind of URI.
        MissingExtra: pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    except ImportError:
        raise MissingExtra("formats", f"{uri} (a URI)") from None
    try:
        found: tuple[Any, str] = FileSystem.from_uri(uri)
    except (ArrowException, ValueError) as error:
        raise InputError(f"not a URI that can be read ({error})", path=uri) from None
    return found


def _decompressed(raw: BinaryIO, name: str) -> BinaryIO:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    magic = buffered.peek(4)[:4]
    packed = _Counted(buffered)
    if magic[:2] == b"\x1f\x8b":
        return io.BufferedReader(_Unpacked(gzip.GzipFile(fileobj=packed, mode="rb"), packed, name), 2**20)  # type: ignore[call-overload]
    if magic == b"\x28\xb5\x2f\xfd":
        return io.BufferedReader(_Unpacked(_ZstdFrames(packed), packed, name), 2**20)  # type: ignore[arg-type]
    return buffered


class _Counted:
    """A stream whose bytes are counted as they are read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._stream.read(size)
        self.count += len(data)
        return data


class _Unpacked(io.RawIOBase):
    """What a compressed file unpacks to, as far as :func:`check_decoded` allows."""

    def __init__(self, source: Any, packed: _Counted, name: str) -> None:
        self._source = source
        self._packed = packed
        self._name = name
        self._size = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer; InputError beyond the limit."""
        size: int = self._source.readinto(buffer)
        self._size += size
        check_decoded(self._size, self._packed.count, self._name)
        return size


class _ZstdFrames(io.RawIOBase):
    """Zstandard frames as one stream; unlike zstandard's own reader it notices a file that is cut off."""

    def __init__(self, source: BinaryIO) -> None:
        import zstandard

        self._source = source
        self._damage = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer; EOFError in the middle of a frame."""
        while not self._content:
            data = self._frame.unused_data or self._source.read(2**10)  # may unpack to 2**25
            if self._frame.eof:
                if not data:
                    return 0
                self._frame = self._new_frame()
            elif not data:
                raise EOFError("it ends in the middle of a frame")
            try:
                self._content = memoryview(self._frame.decompress(data))
            except self._damage as error:
                raise EOFError(str(error)) from None
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size


def _os_reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "file not found"
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return f"damaged or truncated compressed file ({error})"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """A whole file that other files name, as it is: no device or pipe, whose end may never come.

    Args:
        path: the file.
        most: bytes that it may have; None: as :func:`limit_decoded` says.

    Raises:
        InputError: it cannot be read, is no file, or larger.
    """
    name = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # of a pipe that nobody writes to it returns, too
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise InputError("is a directory, not a file", path=name)
            if not stat.S_ISREG(status.st_mode):
                raise InputError("is no file (a device, pipe or socket)", path=name)
            if most is not None and status.st_size > most:
                raise InputError(f"is larger than {most >> 20:,} MiB", path=name)
            check_decoded(status.st_size, None, name)
            with open(descriptor, "rb", closefd=False) as stream:
                return stream.read(status.st_size + 1 if most is None else most)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(_os_reason(error), path=name) from None
    except ValueError as error:
        if isinstance(error, ScapoError):
            raise
        raise InputError("not a valid file name", path=name) from None  # a NUL, a lone surrogate


def read_text(path: str | Path) -> str:
    """A text in UTF-8, such as a prompt.

    Raises:
        InputError: it cannot be read, or is not UTF-8, with the line.
    """
    data = read_bytes(path)
    if (bad := not_utf8(data)) is not None:
        raise InputError("not a valid UTF-8 text", path=display_name(path), line=data.count(b"\n", 0, bad) + 1)
    return data.decode("utf-8")


def read_bytes(path: str | Path) -> bytes:
    """The whole file, decompressed, without a byte-order mark.

    Raises:
        InputError: it cannot be read, is larger than the limit, or not UTF-8 from its first bytes on.
    """
    name = display_name(path)
    with open_bytes(path) as stream:
        head = stream.read(4)
        _refuse_foreign_encoding(head, name)
        if str(path) != STDIN and isinstance(stream.raw, io.FileIO):  # type: ignore[attr-defined]
            check_decoded(os.fstat(stream.fileno()).st_size, None, name)
        sink = io.BytesIO()  # in pieces, and its content without another copy
        sink.write(head)
        while chunk := stream.read(2**20):
            sink.write(chunk)
            check_decoded(sink.tell(), None, name)
    data = sink.getvalue()
    return data.removeprefix(_BOM)


def read_json(path: str | Path, *, unique: bool = False) -> Any:
    """The file's one JSON value.

    Args:
        path: the file.
        unique: refuse a key that appears twice in one object.

    Raises:
        InputError: with the line where the JSON breaks.
    """
    data = read_bytes(path)
    name = display_name(path)
    if not data or data.isspace():
        raise InputError("the file is empty", path=name)
    try:
        return parse_json(data, unique=unique)
    except ValueError as error:
        raise json_fault(name, data, error) from None


def read_as(path: str | Path, form: type[Form]) -> Form:
    """The file's one JSON value, as a type that msgspec knows.

    Raises:
        InputError: it cannot be read, or is of another form, with the place in it.
    """
    return convert_as(read_json(path), form, path)


def convert_as(value: Any, form: type[Form], path: str | Path) -> Form:
    """A value of a file as a type that msgspec knows; see :func:`read_as`."""
    try:
        return msgspec.convert(value, form)
    except ValueError as error:  # msgspec's, or of a lone surrogate in what it would say
        raise InputError(f"damaged: {error}", path=display_name(path)) from None


def parse_json(data: bytes, *, unique: bool = False) -> Any:
    """One JSON value; escaped lone surrogates and NUL inside strings pass, NaN and Infinity do not.

    Args:
        data: the JSON.
        unique: refuse a key that appears twice in one object, which JSON readers silently overwrite.

    Raises:
        ValueError: not valid JSON.
    """
    check_values(data)
    try:
        value = orjson.loads(data)
        if not unique or not _may_repeat_keys(data, value):
            return value
    except orjson.JSONDecodeError as error:
        ended = "after document" in error.msg or "trailing" in error.msg
        lenient = b"\0" in data or rb"\ud" in data or rb"\uD" in data
        if ended or not lenient or len(data) > _LENIENT:
            raise
        return _parse_leniently(data, error)
    return _parse_leniently(data, ValueError("nested too deeply"), unique=True)


def check_values(data: bytes) -> None:
    """Refuses JSON of small parts without end (``[[],[],[]...``), whose values take 25 times the memory of the text.

    Raises:
        ValueError: they take more than the limit.
    """
    if len(data) * 25 <= MAX_VALUES:
        return
    counts = dict.fromkeys(b'[{",:.', 0)
    for start in range(0, len(data), 2**20):
        part = np.frombuffer(data, np.uint8, min(2**20, len(data) - start), start)
        for mark in counts:
            counts[mark] += int(np.count_nonzero(part == mark))
    lists, objects, quotes, commas, colons, points = counts.values()
    texts = max(0, quotes // 2 - colons)  # the keys of objects are shared
    size = 8 * (commas + lists + objects) + 56 * (lists + texts) + 64 * objects + 24 * points
    size += 120 * min(objects, colons)  # those that are not empty
    limit = max(MAX_VALUES, MAX_SPREAD * len(data)) if _max_decoded is None else _max_decoded
    if size > limit:
        took = f"its values would take about {size / 2**30:.1f} GiB, {size // len(data)} times its own size"
        raise ValueError(f"{took}; allow more with --max-decoded SIZE")


def _parse_leniently(data: bytes, refused: ValueError, *, unique: bool = False) -> Any:
    """With a lone surrogate, which orjson refuses and JSON allows, or a bare NUL, which some models write."""
    hook = _once if unique else None
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, strict=b"\0" not in data, object_pairs_hook=hook)
    except (UnicodeDecodeError, RecursionError):
        raise refused from None


def _may_repeat_keys(data: bytes, value: Any) -> bool:
    """Whether the text may hold more keys than its value: a quick look before the exact, slow one."""
    keys, stack = 0, [value]
    while stack:
        inner = stack.pop()
        if isinstance(inner, dict):
            keys += len(inner)
            stack += inner.values()
        elif isinstance(inner, list) and inner and not isinstance(inner[0], str):
            stack += inner
    return data.count(b":") != keys


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"key {twice!r} appears twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def not_utf8(data: bytes) -> int | None:
    """Where bytes stop being UTF-8, None where they do not; in slices, so that no second copy is made of a file."""
    size, pending = 2**20, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), size):
        try:
            decoder.decode(data[start : start + size], start + size >= len(data))
        except UnicodeDecodeError as error:
            return start - pending + error.start
        pending = len(decoder.getstate()[0])
    return None


def json_fault(name: str, data: bytes, error: ValueError, numbers: Sequence[int] | None = None) -> InputError:
    """Where and why JSON could not be parsed: its encoding, a NaN, or the JSON itself.

    Args:
        name: display name of the source.
        data: the bytes that were parsed.
        error: what :func:`parse_json` raised.
        numbers: the line number of each line of ``data`` in its file; without it ``data`` is the file.
    """
    bad = not_utf8(data)
    if bad is not None:
        line = data.count(b"\n", 0, bad)
        column = bad - data.rfind(b"\n", 0, bad)
        reason = f"not UTF-8 (byte 0x{data[bad]:02x} at column {column}); convert the file to UTF-8"
    else:
        line = getattr(error, "lineno", 1) - 1
        place = getattr(error, "pos", 0)
        found = getattr(error, "doc", "")[place : place + 9]
        constant = next((c for c in ("NaN", "Infinity") if found.startswith(c)), None)
        why = f"{constant} is not JSON" if constant else str(getattr(error, "msg", error))
        reason = f"not valid JSON: {why}" + (" (an id or text is missing?)" if "is not JSON" in why else "")
    return InputError(reason, path=name, line=numbers[line] if numbers else line + 1)


def is_stream(path: Readable) -> bool:
    """Whether a source can be read only once: standard input, a named pipe."""
    return not isinstance(path, Records) and (str(path) == STDIN or (not is_remote(path) and Path(path).is_fifo()))


def iter_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines of a file with their 1-based numbers, without line ends; see :func:`iter_line_blocks`."""
    for first, data in iter_line_blocks(path, 1 << 20):
        yield from zip(*split_lines(first, data), strict=True)


def iter_line_blocks(path: str | Path, size: int) -> Iterator[tuple[int, bytes]]:
    """A file in blocks of whole lines, without its byte-order mark.

    Args:
        path: file or ``-``.
        size: bytes of a block, about; at most MAX_LINE.

    Yields:
        1-based number of a block's first line, and the block.

    Raises:
        InputError: a line longer than MAX_LINE, an encoding that is not UTF-8, an unreadable file.
    """
    name = display_name(path)
    with open_bytes(path) as stream:
        first = 1
        rest = b""  # the beginning of a line whose end has not been read
        chunk = stream.read(size)
        _refuse_foreign_encoding(chunk[:4], name)
        chunk = chunk.removeprefix(_BOM)
        while chunk or rest:
            data = rest + chunk
            end = data.rfind(b"\n") + 1 if chunk else len(data)
            data, rest = data[:end], data[end:]
            following = first + data.count(b"\n")
            if data.find(b"\n") > MAX_LINE or len(rest) > MAX_LINE:
                number = following if len(rest) > MAX_LINE else first
                raise InputError(
                    f"a line of more than {MAX_LINE >> 20} MiB is not a valid record", path=name, line=number
                )
            if data:
                yield first, data
            first = following
            chunk = stream.read(size) if chunk else b""


def split_lines(first: int, data: bytes) -> tuple[list[int], list[bytes]]:
    """The non-blank lines of a block, without line ends.

    Args:
        first: number of the block's first line.
        data: the block.

    Returns:
        Their numbers, and the lines.
    """
    lines = [line.strip(b" \t\r\n") for line in data.removesuffix(b"\n").split(b"\n")]
    numbers = list(range(first, first + len(lines)))
    if b"" in lines:
        numbers = [number for number, line in zip(numbers, lines, strict=True) if line]
        lines = [line for line in lines if line]
    return numbers, lines


def _refuse_foreign_encoding(head: bytes, name: str) -> None:
    if head[:1] == b"\0":
        raise InputError("begins with a NUL: binary data, or UTF-16 or UTF-32, not a UTF-8 text", path=name, line=1)
    if head[:2] in _UTF16 or (len(head) >= 2 and head[1:2] == b"\x00" and head[:1] in b"{["):
        raise InputError(
            "is UTF-16 or UTF-32, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8", path=name, line=1
        )


def iter_records(
    path: Readable, *, on_error: Callable[[InputError], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a JSON Lines file or of a JSON array, with the line (array: the element) number.

    Args:
        path: file, ``-``, or records in memory.
        on_error: called with each fault, and reading goes on with the next line; without it the first
            20 faults are collected and raised together at the end of the file.

    Raises:
        InputErrors: lines that are not JSON objects (without ``on_error``).
        InputError: the file cannot be read or holds no record at all.
    """
    faults, name = FaultList(on_error), display_name(path)
    if isinstance(path, Records):
        yield from _objects(name, _nonempty(path), faults)
    else:
        yield from _objects(name, _values(name, iter_lines(path), faults), faults)


def _nonempty(records: Records) -> Iterator[tuple[int, Any]]:
    if not records.rows:
        raise InputError("there are no records", path=records.name)
    return records.numbered()


def records_of(
    data: bytes, name: str, *, on_error: Callable[[InputError], None] | None = None, unique: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """As :func:`iter_records`, for a file that has been read already; ``unique`` as for :func:`parse_json`."""
    faults = FaultList(on_error)
    return _objects(name, _values(name, _lines_of(data), faults, unique=unique), faults)


def _lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines with their numbers, one at a time: a list of them may be far larger than the bytes."""
    for number, line in enumerate(io.BytesIO(data), 1):
        if line := line.strip():
            yield number, line


def _objects(name: str, values: Iterator[tuple[int, Any]], faults: FaultList) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, value in values:
        if isinstance(value, dict):
            yield number, value
        else:
            faults.add(InputError(f"expected a JSON object, found {json_type(value)}", path=name, line=number))
    faults.raise_if_any()


def _values(
    name: str, lines: Iterator[tuple[int, bytes]], faults: FaultList, *, unique: bool = False
) -> Iterator[tuple[int, Any]]:
    """The value of every line, or the elements of the one array that the lines make."""
    first = next(lines, None)
    if first is None:
        raise InputError("the file holds no record (empty or only blank lines)", path=name)
    if first[1][:1] == b"[":
        yield from enumerate(parse_array(name, chain([first], lines), unique=unique), 1)
        return
    for number, line in chain([first], lines):
        try:
            value = parse_json(line, unique=unique)
        except ValueError as error:
            faults.add(json_fault(name, line, error, [number]))
            continue
        yield number, value


class FaultList:
    """Collects faults, or hands each to a callback; raises what it collected, one fault per file and reason."""

    def __init__(self, on_error: Callable[[InputError], None] | None = None) -> None:
        self.total = 0
        self._lines: dict[tuple[str | None, str], list[int]] = {}  # first and last line of each, and how many
        self._first: list[InputError] = []
        self._on_error = on_error

    @property
    def errors(self) -> list[InputError]:
        """The first faults that were collected; one that occurs in several lines is there once, with its count."""
        return [self._said(error) for error in self._first]

    @property
    def records(self) -> list[int]:
        """How many records each of :attr:`errors` stands for."""
        return [self._lines[error.path, error.reason][2] for error in self._first]

    def add(self, error: InputError) -> None:
        """Takes a fault."""
        self.total += 1
        if self._on_error is not None:
            self._on_error(error)
            return
        key = (error.path, error.reason)
        line = error.line or 0
        if known := self._lines.get(key):
            known[:] = min(known[0], line), max(known[1], line), known[2] + 1
        elif len(self._lines) < InputErrors.SHOWN:
            self._lines[key] = [line, line, 1]
            self._first.append(error)
        if self.total >= MAX_FAULTS:
            self.raise_if_any()

    def _said(self, error: InputError) -> InputError:
        first, last, count = self._lines[error.path, error.reason]
        if count == 1 or not error.line:
            return error
        return InputError(f"{error.reason} ({count:,} records, lines {first}-{last})", path=error.path, line=first)

    def raise_if_any(self) -> None:
        """Raises InputErrors when faults were collected."""
        if self._first:
            raise InputErrors(self.errors, self.total, sum(self.records))


def parse_array(name: str, lines: Iterable[tuple[int, bytes]], *, unique: bool = False) -> list[Any]:
    """The elements of the JSON array that a file's numbered lines make.

    Raises:
        InputError: not valid JSON, with its line, or an empty array.
    """
    sink, at = io.BytesIO(), 1
    for number, line in lines:  # blank ones come back: a fault's line in these bytes is its line in the file
        sink.write(b"\n" * (number - at))
        sink.write(line)
        at = number
    data = sink.getvalue()
    try:
        values: list[Any] = parse_json(data, unique=unique)
    except ValueError as error:
        raise json_fault(name, data, error) from None
    if not values:
        raise InputError("the file holds no record (an empty JSON array)", path=name)
    return values


def json_type(value: object) -> str:
    """JSON's name of a Python value's type."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "true/false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name only when it is complete; a failure leaves nothing behind.

    ``-`` is standard output, a name that ends in ``.gz`` or ``.zst`` is compressed (gzip without a time
    stamp, so that equal content gives equal bytes).

    Raises:
        InputError: the target cannot be written (folder not found, no permission, disk full).
    """
    if str(path) == STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    temporary: str | None = None
    try:
        if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing to replace
            if target.is_dir():
                raise IsADirectoryError(f"{target} is a directory")
            with open(target, "wb") as stream:
                yield stream
            return
        descriptor, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(descriptor, "wb") as stream:
            with _compressed(stream, target.suffix) as sink:
                yield sink
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
        temporary = None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=str(path)) from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def refuse_replacing(outputs: Sequence[str | Path], inputs: Sequence[str | Path]) -> None:
    """Refuses an output that is an input or another output: writing it would destroy the other.

    Files are the same if their paths lead to one place (links followed) or are one file on disk (hard links).
    ``-``, devices and pipes, which can be written over and over, are let through.

    Raises:
        InputError: names the output.
    """
    written = [(path, identity) for path in outputs if (identity := _identity(path)) is not None]
    read = [identity for path in inputs if (identity := _identity(path)) is not None]
    for k, (path, identity) in enumerate(written):
        if any(identity & other for other in read):
            raise InputError("is an input, too, and would be lost; write the output to another file", path=path)
        if any(identity & other for _, other in written[:k]):
            raise InputError("is given for two outputs; one would replace the other", path=path)


def _identity(path: str | Path) -> frozenset[object] | None:
    """What tells that two paths are one file: the resolved path, and device and inode of a file that exists."""
    if str(path) == STDIN:
        return None
    try:
        place = Path(path).resolve()
        status = place.stat()
    except FileNotFoundError:
        return frozenset({str(place)})
    except (OSError, ValueError, RuntimeError):  # what cannot be opened is said when it is opened
        return None
    return frozenset({str(place), (status.st_dev, status.st_ino)}) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _compressed(stream: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as sink:
            yield sink  # type: ignore[misc]
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
            yield writer
    else:
        yield stream


def dump_json(value: Any) -> bytes:
    """One line of JSON; strings with lone surrogates are escaped as JSON allows."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def input_size(path: str) -> int | None:
    """Bytes of a plain file; None for standard input, URIs and compressed files, whose progress has no end."""
    if path == STDIN or is_remote(path) or path.endswith((".gz", ".zst")):
        return None
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise InputError(
            "file not found" if isinstance(error, FileNotFoundError) else str(error.strerror), path=path
        ) from None


def shipped_folder(name: str) -> Any:
    """A folder of data that comes with the project: inside the installed package, beside it in a checkout."""
    packaged = resources.files("scapo_eval") / name
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / name
