"""Files as bytes and as JSON records, with every fault named by file and line.

Read without complaint: ``.gz`` and ``.zst`` (recognised by content, not by name), standard input
(``-``), a byte-order mark, CRLF, blank lines, NUL and lone surrogates inside strings, and a JSON array in
place of lines.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import orjson

from ..errors import InputError, InputErrors

MAX_LINE = 16 * 2**20
"""Bytes; a longer line is no caption but a broken file (SPEC section 8)."""

STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def display_name(path: str | Path) -> str:
    """How a source is called in messages."""
    return "<stdin>" if str(path) == STDIN else str(path)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for ``-``, as plain bytes, decompressing gzip and zstandard.

    Raises:
        InputError: there is no such file, it is a directory, or it may not or cannot be read.
    """
    name = display_name(path)
    try:
        raw: BinaryIO = sys.stdin.buffer if str(path) == STDIN else open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(name, None, _os_reason(error)) from None
    try:
        yield _decompressed(raw)
    except (OSError, EOFError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(name, None, _os_reason(error)) from None
    except Exception as error:
        if type(error).__name__ in {"ZstdError", "error"}:  # zstandard's and zlib's own classes
            raise InputError(name, None, f"damaged compressed file ({error})") from None
        raise
    finally:
        if str(path) != STDIN:
            raw.close()


def _decompressed(raw: BinaryIO) -> BinaryIO:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    magic = buffered.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=buffered), 2**20)
    if magic == b"\x28\xb5\x2f\xfd":
        import zstandard

        stream = zstandard.ZstdDecompressor().stream_reader(buffered, read_across_frames=True)
        return io.BufferedReader(stream, 2**20)
    return buffered


def _os_reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, (gzip.BadGzipFile, EOFError)):
        return f"damaged or truncated compressed file ({error})"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def read_bytes(path: str | Path) -> bytes:
    """The whole file, decompressed, without a byte-order mark."""
    with open_bytes(path) as stream:
        data = stream.read()
    _refuse_foreign_encoding(data[:4], display_name(path))
    return data.removeprefix(_BOM)


def read_json(path: str | Path) -> Any:
    """The file's one JSON value.

    Raises:
        InputError: with the line where the JSON breaks.
    """
    data = read_bytes(path)
    name = display_name(path)
    if not data.strip():
        raise InputError(name, None, "the file is empty")
    try:
        return parse_json(data)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise InputError(name, line, f"broken JSON: {json_reason(error)}") from None


def parse_json(data: bytes) -> Any:
    """One JSON value; escaped lone surrogates pass, NaN and Infinity do not.

    Raises:
        ValueError: the bytes are no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if rb"\ud" not in data.lower():
            raise
        try:  # a lone surrogate, which orjson refuses and JSON allows
            return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            raise error from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def json_reason(error: ValueError) -> str:
    """What is wrong with a piece of JSON, in one line without the text itself."""
    return str(getattr(error, "msg", None) or error).split(": line ")[0]


def iter_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines of a file with their 1-based numbers, without line ends and byte-order mark.

    Raises:
        InputError: a line longer than MAX_LINE, an encoding that is not UTF-8, an unreadable file.
    """
    name = display_name(path)
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if number == 1:
                _refuse_foreign_encoding(line[:4], name)
                line = line.removeprefix(_BOM)
            if len(line) > MAX_LINE:
                raise InputError(name, number, f"a line of more than {MAX_LINE >> 20} MiB is no caption record")
            line = line.strip(b" \t\r\n")
            if line:
                yield number, line


def _refuse_foreign_encoding(head: bytes, name: str) -> None:
    if head[:2] in _UTF16 or (len(head) >= 2 and head[1:2] == b"\x00" and head[:1] in b"{["):
        raise InputError(
            name, 1, "is UTF-16 or UTF-32, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8"
        )


def iter_records(
    path: str | Path, *, on_error: Callable[[InputError], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a JSON Lines file or of a JSON array, with the line (array: the element) number.

    Args:
        path: file or ``-``.
        on_error: called with each fault, and reading goes on with the next line; without it the first
            20 faults are collected and raised together at the end of the file.

    Raises:
        InputErrors: lines that are no JSON object (without ``on_error``).
        InputError: the file cannot be read or holds no record at all.
    """
    yield from _records(display_name(path), iter_lines(path), FaultList(on_error))


def records_of(data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """As :func:`iter_records`, for a file that has been read already."""
    numbered = ((number, line.strip()) for number, line in enumerate(data.split(b"\n"), 1))
    return _records(name, ((number, line) for number, line in numbered if line), FaultList())


def _records(name: str, lines: Iterator[tuple[int, bytes]], faults: FaultList) -> Iterator[tuple[int, dict[str, Any]]]:
    found = False
    for number, line in lines:
        if not found and line[:1] == b"[":
            yield from _array_records(name, number, line, lines, faults)
            faults.raise_if_any()
            return
        found = True
        try:
            record = parse_json(line)
        except ValueError as error:
            faults.add(InputError(name, number, line_reason(line, error)))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            faults.add(InputError(name, number, f"expected a JSON object, found {json_type(record)}"))
    if not found:
        raise InputError(name, None, "the file holds no record (empty or only blank lines)")
    faults.raise_if_any()


class FaultList:
    """Collects faults, or hands each to a callback; raises what it collected."""

    def __init__(self, on_error: Callable[[InputError], None] | None = None) -> None:
        self.errors: list[InputError] = []
        self.total = 0
        self._on_error = on_error

    def add(self, error: InputError) -> None:
        """Takes a fault."""
        self.total += 1
        if self._on_error is not None:
            self._on_error(error)
        elif len(self.errors) < InputErrors.SHOWN:
            self.errors.append(error)

    def raise_if_any(self) -> None:
        """Raises InputErrors when faults were collected."""
        if self.errors:
            raise InputErrors(self.errors, self.total)


def line_reason(line: bytes, error: ValueError) -> str:
    """Why a line could not be parsed: its encoding, a NaN, or the JSON itself."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"not UTF-8 (byte 0x{line[bad.start]:02x} at column {bad.start + 1}); convert the file to UTF-8"
    for constant in (b"NaN", b"Infinity"):
        if constant in line:
            return f"broken JSON: {constant.decode()} is not JSON (an id or text is missing?)"
    return f"broken JSON: {json_reason(error)}"


def _array_records(
    name: str, number: int, line: bytes, rest: Iterator[tuple[int, bytes]], faults: FaultList
) -> Iterator[tuple[int, dict[str, Any]]]:
    data = b"\n".join([line, *(text for _, text in rest)])
    try:
        values = parse_json(data)
    except ValueError as error:
        faults.add(InputError(name, number, line_reason(data, error)))
        return
    if not values:
        raise InputError(name, None, "the file holds no record (an empty JSON array)")
    for index, record in enumerate(values, 1):
        if isinstance(record, dict):
            yield index, record
        else:
            faults.add(InputError(name, index, f"expected a JSON object, found {json_type(record)}"))


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
        InputError: the target cannot be written (no such directory, no permission, disk full).
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
        raise InputError(str(path), None, f"cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


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
