"""Reader for JSON documents and JSON Lines that reports every fault with the file and line.

The reader also accepts compressed files, NUL and lone surrogates inside strings, and a JSON array instead of lines.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec
import orjson

from ..base.errors import FaultList, InputError, NoRecords
from .account import counted
from .files import iter_lines, not_utf8, read_bytes
from .limits import check_values
from .records import Readable, Records
from .source import Input, display_name

_LENIENT = 256 * 2**20  # bytes; larger documents must not contain unpaired surrogates or bare NULs
Typed = TypeVar("Typed")


def read_json(path: Input, *, unique: bool = False) -> Any:
    """Returns the JSON value of a file.

    Args:
        path: Path of the file.
        unique: True to reject JSON in which a key appears twice in an object.

    Raises:
        InputError: If the JSON is invalid. The message names the invalid line.
    """
    data = read_bytes(path)
    name = display_name(path)
    if not data or data.isspace():
        raise InputError("the file is empty", path=name)
    try:
        return parse_json(data, unique=unique)
    except ValueError as error:
        raise json_fault(name, data, error) from None


def read_as(path: Input, form: type[Typed]) -> Typed:
    """Returns the JSON value of a file, converted to a type that msgspec supports.

    Raises:
        InputError: If the file cannot be read, or if the value does not match the type. The message states the position
            of the fault.
    """
    return convert_as(read_json(path), form, path)


def convert_as(value: Any, form: type[Typed], path: Input) -> Typed:
    """Converts a value from a file to a type that msgspec supports; see :func:`read_as`."""
    try:
        return msgspec.convert(value, form)
    except ValueError as error:  # an error of msgspec, or an unpaired surrogate in its message
        raise InputError(f"damaged: {error}", path=display_name(path)) from None


def parse_json(data: bytes, *, unique: bool = False) -> Any:
    """Parses a single JSON value. Lone surrogates and NUL inside strings are accepted, but NaN and Infinity are not.

    Args:
        data: JSON text as bytes.
        unique: True to reject JSON in which a key appears twice in an object, because JSON parsers silently overwrite
            the first value.

    Raises:
        ValueError: If the JSON is invalid.
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


def _parse_leniently(data: bytes, refused: ValueError, *, unique: bool = False) -> Any:
    """Parses JSON that contains a lone surrogate (valid, but rejected by orjson) or a raw NUL (which some models
    write).
    """
    hook = _once if unique else None
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, strict=b"\0" not in data, object_pairs_hook=hook)
    except (UnicodeDecodeError, RecursionError):
        raise refused from None


def _may_repeat_keys(data: bytes, value: Any) -> bool:
    """Returns True if a text may contain a duplicate key. The check is fast, but may return True for a text without
    duplicate keys.
    """
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
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"key {twice!r} appears twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def json_fault(name: str, data: bytes, error: ValueError, numbers: Sequence[int] | None = None) -> InputError:
    """Returns the error for invalid JSON, with the position and the cause of the fault: the encoding, NaN, or the
    syntax.

    Args:
        name: Display name of the source.
        data: Bytes that were parsed.
        error: Exception from :func:`parse_json`.
        numbers: Line number in the file for each line of ``data``. If ``numbers`` is omitted, ``data`` is the whole
            file.
    """
    bad = not_utf8(data)
    if bad is not None:
        line = data.count(b"\n", 0, bad)
        column = bad - data.rfind(b"\n", 0, bad)
        reason = f"not UTF-8 (byte 0x{data[bad]:02x} at column {column}); convert the file to UTF-8"
    else:
        line = getattr(error, "lineno", 1) - 1
        place = getattr(error, "pos", 0)
        near = getattr(error, "doc", "")[place : place + 9]
        constant = next((c for c in ("NaN", "Infinity") if near.startswith(c)), None)
        why = f"{constant} is not JSON" if constant else str(getattr(error, "msg", error))
        reason = f"not valid JSON: {why}" + (" (an id or text is missing?)" if "is not JSON" in why else "")
        if name.lower().endswith((".yaml", ".yml")):
            reason = "not valid JSON; only vocabularies can be YAML"
        elif data.lstrip(b"[ \t\r\n").startswith(b"{'"):
            reason = "not valid JSON but a printed Python dict; write each record with json.dumps"
        elif "after document" in why and data.split(b"\n")[line].rstrip().endswith((b"},", b"],")):
            reason = "not valid JSON: a comma follows the record; remove the commas at the ends of lines"
    return InputError(reason, path=name, line=numbers[line] if numbers else line + 1)


def iter_records(
    path: Readable, *, on_error: Callable[[InputError], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the JSON objects of a JSON Lines file or a JSON array, each with the number of its line or element.

    Args:
        path: File, ``-`` for standard input, or records in memory.
        on_error: Callback for each fault. Reading continues after the callback. If ``on_error`` is None, the first 20
            faults are raised together at the end of the file.

    Raises:
        InputErrors: If lines are not JSON objects or contain a duplicate key, and ``on_error`` is not given.
        InputError: If the file cannot be read, or if it contains no record.
    """
    faults, name = FaultList(on_error), display_name(path)
    if isinstance(path, Records):
        yield from _objects(name, _nonempty(path), faults)
    else:
        yield from counted(path, _objects(name, _values(name, iter_lines(path), faults, unique=True), faults))


def _nonempty(records: Records) -> Iterator[tuple[int, Any]]:
    if not records.rows:
        raise InputError("there are no records", path=records.name)
    return records.numbered()


def records_of(
    data: bytes, name: str, *, on_error: Callable[[InputError], None] | None = None, unique: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Returns an iterator over the records of a file that has already been read, which yields the same tuples as
    :func:`iter_records`.

    The argument ``unique`` has the same meaning as for :func:`parse_json`.
    """
    faults = FaultList(on_error)
    return _objects(name, _values(name, _lines_of(data), faults, unique=unique), faults)


def _lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the non-blank lines with their numbers, one at a time. The lines are not collected in a list, because such
    a list could need much more memory than the bytes.
    """
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
    """Yields the value of every line, or the elements of the array if all lines together form a single array."""
    first = next(lines, None)
    if first is None:
        raise NoRecords("the file contains no record (empty or only blank lines)", path=name)
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


def parse_array(
    name: str, lines: Iterable[tuple[int, bytes]], *, unique: bool = False, once: Sequence[bytes] = ()
) -> list[Any]:
    """Parses the JSON array that the numbered lines of a file form, and returns its elements.

    Args:
        name: Display name of the file.
        lines: Numbered lines of the file.
        unique: True to reject duplicate keys, as for :func:`parse_json`.
        once: Keys, in quotation marks, that no element may contain twice. Checking only the keys in ``once`` is faster
            than checking all keys with ``unique``.

    Raises:
        InputError: If the JSON is invalid, or if the array is empty. The message names the invalid line.
    """
    sink, at = io.BytesIO(), 1
    for number, line in lines:  # blank lines are kept, so that line numbers equal those of the file
        sink.write(b"\n" * (number - at))
        sink.write(line)
        at = number
    data = sink.getvalue()
    try:
        values: list[Any] = parse_json(data, unique=unique)
        if any(data.count(key) > len(values) for key in once):
            parse_json(data, unique=True)
    except ValueError as error:
        raise json_fault(name, data, error) from None
    if not values:
        raise NoRecords("the file contains no record (an empty JSON array)", path=name)
    return values


def json_type(value: object) -> str:
    """Returns the JSON name of the type of a Python value."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "true/false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def dump_json(value: Any) -> bytes:
    """Returns a value as JSON on a single line. Strings with lone surrogates are escaped, as JSON allows."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
