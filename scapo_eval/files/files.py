"""Files as bytes and lines of bytes: opened, unpacked, read, and written whole or not at all.

Read without complaint: whatever a :class:`~scapo_eval.files.source.Source` is, a byte-order mark, CRLF and blank lines.
"""

from __future__ import annotations

import codecs
import gzip
import os
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
    """Wraps a decoder with undocumented exceptions: any exception means that the file is damaged.

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


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """Returns a whole file that other files name, as it is: no device or pipe, whose end may never come.

    Args:
        path: the file.
        most: bytes that it may have; None: as :func:`limit_decoded` says.

    Raises:
        InputError: if it cannot be read, is not a file, or is larger.
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
        raise InputError(os_reason(error), path=name) from None
    except ValueError as error:
        if isinstance(error, ScapoError):
            raise
        raise InputError("not a valid file name", path=name) from None  # a NUL, a lone surrogate


def read_text(path: Input) -> str:
    """Returns a text in UTF-8, such as a prompt.

    Raises:
        InputError: if it cannot be read, or is not UTF-8, with the line.
    """
    data = read_bytes(path)
    if (bad := not_utf8(data)) is not None:
        raise InputError("not a valid UTF-8 text", path=display_name(path), line=data.count(b"\n", 0, bad) + 1)
    return data.decode("utf-8")


def read_bytes(path: Input) -> bytes:
    """Returns the whole input, decompressed, without a byte-order mark.

    Raises:
        InputError: if it cannot be read, is larger than the limit, or not UTF-8 from its first bytes on.
    """
    source = Source.of(path)
    refuse_foreign_encoding(source.head[:4], source.name)
    return source.read().removeprefix(BOM)


def not_utf8(data: bytes) -> int | None:
    """Returns where bytes stop being UTF-8, None if they do not; in slices, so that no second copy is made of a
    file.
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
    """Yields the non-blank lines of a file with their 1-based numbers, without line ends; see
    :func:`iter_line_blocks`.
    """
    for first, data in iter_line_blocks(path, 1 << 20):
        yield from zip(*split_lines(first, data), strict=True)


def iter_line_blocks(path: Input, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields a file in blocks of whole lines, without its byte-order mark.

    Args:
        path: file, ``-`` or source.
        size: bytes of a block, about; at most MAX_LINE.

    Yields:
        1-based number of a block's first line, and the block.

    Raises:
        InputError: for a line longer than MAX_LINE, an encoding that is not UTF-8, an unreadable file.
    """
    source = Source.of(path)
    with source.stream() as stream:
        name, first = source.name, 1
        rest = b""  # the beginning of a line whose end has not been read
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
    """Returns the non-blank lines of a block, without line ends.

    Args:
        first: number of the block's first line.
        data: the block.

    Returns:
        Their numbers, a range where no line is blank, and the lines.
    """
    lines = [line.strip(b" \t\r\n") for line in data.removesuffix(b"\n").split(b"\n")]
    numbers = range(first, first + len(lines))
    if b"" not in lines:
        return numbers, lines
    return [number for number, line in zip(numbers, lines, strict=True) if line], [line for line in lines if line]


def refuse_foreign_encoding(head: bytes, name: str) -> None:
    """Refuses a text that is not UTF-8 from its first bytes on."""
    if head[:1] == b"\0":
        raise InputError("begins with a NUL: binary data, or UTF-16 or UTF-32, not a UTF-8 text", path=name, line=1)
    if head[:2] in _UTF16 or (len(head) >= 2 and head[1:2] == b"\x00" and head[:1] in b"{["):
        raise InputError(
            "is UTF-16 or UTF-32, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8", path=name, line=1
        )


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a binary file that appears under its name only when it is complete; a failure leaves nothing behind.

    ``-`` is standard output, a name that ends in ``.gz`` or ``.zst`` is compressed (gzip without a time
    stamp, so that equal content gives equal bytes). A link stays one: what it leads to is replaced. A file that is
    replaced keeps its permissions.

    Raises:
        InputError: if the target cannot be written (folder not found, no permission, disk full).
    """
    if str(path) == STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    temporary: str | None = None
    try:
        if target.is_symlink():
            target = Path(os.path.realpath(target))
        if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing to replace
            if target.is_dir():
                raise IsADirectoryError(f"{target} is a directory")
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


def _mode_of(target: Path) -> int:
    """Returns the permissions of a file that is replaced, or those that a new file gets."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def refuse_replacing(outputs: Sequence[str | Path], inputs: Sequence[str | Path]) -> None:
    """Refuses an output that is an input or another output: writing it would destroy the other.

    Files are the same if their paths lead to one place (links followed) or are one file on disk (hard links).
    ``-``, devices and pipes, which can be written over and over, are let through.

    Raises:
        InputError: with the name of the output.
    """
    written = [(path, identity) for path in outputs if (identity := _identity(path)) is not None]
    read = [identity for path in inputs if (identity := _identity(path)) is not None]
    for k, (path, identity) in enumerate(written):
        if any(identity & other for other in read):
            raise InputError("is an input, too, and would be lost; write the output to another file", path=path)
        if any(identity & other for _, other in written[:k]):
            raise InputError("is given for two outputs; one would replace the other", path=path)


def _identity(path: str | Path) -> frozenset[object] | None:
    """Returns what identifies a file: the resolved path, and device and inode of a file that exists."""
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


def shipped_folder(name: str) -> Any:
    """Returns a folder of data that comes with the project: inside the installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    from importlib import resources

    return resources.files("scapo_eval") / name  # in a zip file
