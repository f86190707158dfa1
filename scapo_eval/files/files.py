"""Functions that open, decompress and read files as bytes or as lines of bytes, and that write files atomically.

The functions accept all inputs that a :class:`~scapo_eval.files.source.Source` supports, including files with
byte-order marks, CRLF line endings or blank lines.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..base.errors import InputError, ScapoError
from .limits import MAX_LINE, check_decoded
from .records import Readable
from .source import BOM, Input, Source, long_line, os_reason
from .source import STDIN as STDIN
from .source import display_name as display_name

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def decoding(what: str, path: Readable) -> Iterator[None]:
    """Wraps a decoder that raises undocumented exceptions. Any exception of the wrapped decoder means that the file is
    damaged.

    Args:
        what: Expected kind of file, for the error message.
        path: Path of the file.

    Raises:
        InputError: If the decoder raises any exception other than the project's own.
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


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """Returns the content of a regular file to which another file refers. Devices and pipes are rejected, because they
    may never end.

    Args:
        path: Path of the file.
        most: Maximum size in bytes, or None for the limit that :func:`limit_decoded` sets.

    Raises:
        InputError: If the file cannot be read, if it is not a regular file, or if it is too large.
    """
    name = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # also returns for a pipe without a writer
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise InputError("is a directory, not a file", path=name)
            if not stat.S_ISREG(status.st_mode):
                raise InputError("is not a file (but a device, pipe or socket)", path=name)
            if most is not None and status.st_size > most:
                raise InputError(f"is larger than {most >> 20:,} MiB", path=name)
            check_decoded(status.st_size, None, name)
            with open(descriptor, "rb", closefd=False) as stream:
                return stream.read(status.st_size + 1 if most is None else most)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(os_reason(error), path=name) from None
    except ValueError as error:
        if isinstance(error, ScapoError):
            raise
        raise InputError("not a valid file name", path=name) from None  # a NUL or an unpaired surrogate


def read_text(path: Input) -> str:
    """Returns the content of a UTF-8 text file, such as a prompt.

    Raises:
        InputError: If the file cannot be read or is not UTF-8. The message names the invalid line.
    """
    data = read_bytes(path)
    if (bad := not_utf8(data)) is not None:
        raise InputError("not a valid UTF-8 text", path=display_name(path), line=data.count(b"\n", 0, bad) + 1)
    return data.decode("utf-8")


def read_bytes(path: Input) -> bytes:
    """Returns the entire input, decompressed and without a byte-order mark.

    Raises:
        InputError: If the input cannot be read, if it is larger than the limit, or if its first bytes indicate binary
            data, UTF-16 or UTF-32.
    """
    source = Source.of(path)
    refuse_foreign_encoding(source.head[:4], source.name)
    return source.read().removeprefix(BOM)


def not_utf8(data: bytes) -> int | None:
    """Returns the offset of the first byte that is not UTF-8, or None if there is none.

    The data is decoded in slices to avoid a second copy in memory.
    """
    size, pending = 2**20, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), size):
        try:
            decoder.decode(data[start : start + size], start + size >= len(data))
        except UnicodeDecodeError as error:
            return start - pending + error.start
        pending = len(decoder.getstate()[0])
    return None


def iter_lines(path: Input) -> Iterator[tuple[int, bytes]]:
    """Yields the non-blank lines of a file with their line numbers, counted from 1. Line endings are removed.

    The docstring of :func:`iter_line_blocks` describes the supported files.
    """
    for first, data in iter_line_blocks(path, 1 << 20):
        yield from zip(*split_lines(first, data), strict=True)


def iter_line_blocks(path: Input, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields a file in blocks of whole lines, without its byte-order mark.

    Args:
        path: File, ``-`` for standard input, or source.
        size: Approximate size of a block in bytes, at most MAX_LINE.

    Yields:
        The number of the block's first line (counted from 1), followed by the block.

    Raises:
        InputError: If a line is longer than MAX_LINE, or if the file is unreadable or not UTF-8.
    """
    source = Source.of(path)
    with source.stream() as stream:
        name, first = source.name, 1
        rest = b""  # beginning of a line whose end has not yet been read
        chunk = stream.read(size)
        refuse_foreign_encoding(chunk[:4], name)
        chunk = chunk.removeprefix(BOM)
        while chunk or rest:
            data = rest + chunk
            end = data.rfind(b"\n") + 1 if chunk else len(data)
            data, rest = data[:end], data[end:]
            following = first + data.count(b"\n")
            if data.find(b"\n") > MAX_LINE or len(rest) > MAX_LINE:
                raise long_line(name, following if len(rest) > MAX_LINE else first)
            if data:
                yield first, data
            first = following
            chunk = stream.read(size) if chunk else b""


def split_lines(first: int, data: bytes) -> tuple[Sequence[int], list[bytes]]:
    """Splits a block into its non-blank lines and removes the line endings.

    Args:
        first: Line number of the block's first line.
        data: Bytes of the block.

    Returns:
        The line numbers (a range if no line is blank), and the lines.
    """
    lines = [line.strip(b" \t\r\n") for line in data.removesuffix(b"\n").split(b"\n")]
    numbers = range(first, first + len(lines))
    if b"" not in lines:
        return numbers, lines
    return [number for number, line in zip(numbers, lines, strict=True) if line], [line for line in lines if line]


def refuse_foreign_encoding(head: bytes, name: str) -> None:
    """Rejects a text whose first bytes indicate binary data, UTF-16 or UTF-32."""
    if head[:1] == b"\0":
        raise InputError("begins with a NUL: binary data, or UTF-16 or UTF-32, not a UTF-8 text", path=name, line=1)
    if head[:2] in _UTF16 or (len(head) >= 2 and head[1:2] == b"\x00" and head[:1] in b"{["):
        raise InputError(
            "is UTF-16 or UTF-32, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8", path=name, line=1
        )


def refuse_unwritable(path: str | Path) -> None:
    """Raises an error if a file cannot be written because its folder does not exist or because its name is a folder.

    Raises:
        InputError: If the file cannot be written.
    """
    if not str(path):
        raise InputError("the name of an output is empty")
    folder = os.path.dirname(path)
    if folder and not os.path.exists(folder):
        reason = f"cannot be written: folder not found; create it: mkdir -p {shlex.quote(str(folder))}"
        raise InputError(reason, path=str(path))
    if os.path.isdir(path):
        raise InputError(f"cannot be written: {path} is a directory", path=str(path))


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a binary file for writing, which appears under its final name only when it is complete. If writing fails,
    no file is left behind.

    The name ``-`` means standard output. Files whose names end in ``.gz`` or ``.zst`` are compressed. Gzip files
    contain no time stamp, so that equal content yields equal bytes. If the name is a symbolic link, the target of the
    link is replaced. A file that is replaced keeps its permissions.

    Raises:
        InputError: If the target cannot be written (folder not found, no permission, disk full).
    """
    number = _descriptor(path)
    if str(path) == STDIN or number == 1:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if number is not None:
        try:
            with os.fdopen(os.dup(number), "wb") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", path=str(path)) from None
        return
    refuse_unwritable(path)
    target = Path(path)
    temporary: str | None = None
    try:
        if target.is_symlink():
            target = Path(os.path.realpath(target))
        if target.exists() and not target.is_file():  # a pipe or a device: nothing to replace
            with open(target, "wb") as stream:
                yield stream
            return
        import tempfile

        descriptor, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(descriptor, "wb") as stream:
            with _compressed(stream, target.suffix) as sink:
                yield sink
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _mode_of(target))
        os.replace(temporary, target)
        temporary = None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=str(path)) from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


_OPEN = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,6})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def _descriptor(path: str | Path) -> int | None:
    """Returns the number of the open file that a name such as ``/dev/stdout`` or ``/dev/fd/63`` refers to. Such a file
    is written where it is, and not replaced.
    """
    opened = _OPEN.fullmatch(str(path))
    return int(opened[1]) if opened else _STANDARD.get(str(path))


def _mode_of(target: Path) -> int:
    """Returns the permissions of the file that is replaced, or the default permissions of a new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def refuse_replacing(outputs: Sequence[str | Path], inputs: Sequence[str | Path]) -> None:
    """Rejects an output that is also an input or another output, because writing the output would destroy the other
    file.

    Two paths refer to the same file if they resolve to the same path or are hard links to the same file. Devices, pipes
    and the name ``-`` are always allowed.

    Raises:
        InputError: If an output would replace another file. The message names this output.
    """
    written = [(path, identity) for path in outputs if (identity := _identity(path)) is not None]
    read = [identity for path in inputs if (identity := _identity(path)) is not None]
    for k, (path, identity) in enumerate(written):
        if any(identity & other for other in read):
            raise InputError("is also an input and would be overwritten; write the output to another file", path=path)
        if any(identity & other for _, other in written[:k]):
            raise InputError(
                "is specified for two outputs, and one would overwrite the other; use two files", path=path
            )


def _identity(path: str | Path) -> frozenset[object] | None:
    """Returns a set that identifies a file, consisting of the resolved path and, if the file exists, its device and
    inode.
    """
    if str(path) == STDIN:
        return None
    try:
        place = Path(path).resolve()
        status = place.stat()
    except FileNotFoundError:
        return frozenset({str(place)})
    except (OSError, ValueError, RuntimeError):  # errors are reported when the file is opened
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


def shipped_folder(name: str) -> Any:
    """Returns a folder of the data that is shipped with the package, either inside the installed package or next to it
    in a checkout.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    from importlib import resources

    return resources.files("scapo_eval") / name  # in a zip file
