"""Files as bytes and lines of bytes: opened, unpacked, read, and written whole or not at all.

Read without complaint: ``.gz`` and ``.zst`` (recognized by content, not by name), standard input (``-``), URIs, a
byte-order mark, CRLF and blank lines.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from ..base.errors import InputError, MissingExtra, ScapoError
from .limits import MAX_LINE, check_decoded
from .records import Readable, Records

STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


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
                raise _long_line(name, following if len(rest) > MAX_LINE else first)
            if data:
                yield first, data
            first = following
            chunk = stream.read(size) if chunk else b""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole lines of a plain file, read where and when they are needed.

    Attributes:
        name: display name of the file.
        path: itself, not a link to it: ``/dev/stdin`` is another file in another process.
        identity: its device and inode.
        begin: where the lines begin.
        size: their bytes.
        left: bytes of the file behind them.
    """

    name: str
    path: str
    identity: tuple[int, int]
    begin: int
    size: int
    left: int

    def read(self) -> bytes:
        """The lines.

        Raises:
            InputError: the file cannot be read, or is another than it was, or shorter.
        """
        try:
            with open(self.path, "rb") as stream:
                same = _file_identity(stream) == self.identity
                stream.seek(self.begin)
                data = stream.read(self.size)
        except OSError as error:
            raise InputError(_os_reason(error), path=self.name) from None
        if not same or len(data) < self.size:
            raise InputError(f"was {'cut off' if same else 'replaced'} while it was read", path=self.name)
        return data


def line_spans(path: str | Path, start: bytes, size: int) -> Iterator[Span]:
    """The spans of a plain file, of which only the places between them are read; none of anything else.

    Args:
        path: the file.
        start: the lines that it begins with, behind a byte-order mark: whatever does not hold them as they are, such as
            a gzip or a pipe, has no spans.
        size: bytes of a span, about; at most MAX_LINE.

    Raises:
        InputError: a line longer than MAX_LINE, or it can no longer be read.
    """
    name, itself = str(path), os.path.realpath(path)
    if name == STDIN or not os.path.isfile(itself):
        return
    with open_bytes(path) as stream:
        if not isinstance(stream.raw, io.FileIO):  # type: ignore[attr-defined]
            return
        found = stream.read(len(start) + len(_BOM))
        begin = next((k for k in (0, len(_BOM)) if found[k : k + len(start)] == start), None)
        identity, whole = _file_identity(stream), os.fstat(stream.fileno()).st_size  # of a file in /proc 0
        while begin is not None and begin < whole:
            stream.seek(begin + size - 1)
            end = min(begin + size - 1 + len(stream.readline(MAX_LINE + 1)), whole)
            if end - begin > MAX_LINE:
                _refuse_long_line(stream, name, begin, end)
            yield Span(name, itself, identity, begin, end - begin, whole - end)
            begin = end


def _file_identity(stream: BinaryIO) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino


def _refuse_long_line(stream: BinaryIO, name: str, begin: int, end: int) -> None:
    stream.seek(begin)
    lines = stream.read(end - begin).split(b"\n")
    found = next((k for k, line in enumerate(lines) if len(line) > MAX_LINE), None)
    if found is not None:
        stream.seek(0)
        before = sum(stream.read(min(2**20, begin - k)).count(b"\n") for k in range(0, begin, 2**20))
        raise _long_line(name, before + found + 1)


def _long_line(name: str, number: int) -> InputError:
    return InputError(f"a line of more than {MAX_LINE >> 20} MiB is not a valid record", path=name, line=number)


def split_lines(first: int, data: bytes) -> tuple[Sequence[int], list[bytes]]:
    """The non-blank lines of a block, without line ends.

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


def _refuse_foreign_encoding(head: bytes, name: str) -> None:
    if head[:1] == b"\0":
        raise InputError("begins with a NUL: binary data, or UTF-16 or UTF-32, not a UTF-8 text", path=name, line=1)
    if head[:2] in _UTF16 or (len(head) >= 2 and head[1:2] == b"\x00" and head[:1] in b"{["):
        raise InputError(
            "is UTF-16 or UTF-32, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8", path=name, line=1
        )


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
        import tempfile

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
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    from importlib import resources

    return resources.files("scapo_eval") / name  # in a zip file
