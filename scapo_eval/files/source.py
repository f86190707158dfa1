"""Inputs that are opened once, inspected, and then read from the beginning any number of times.

Paths, ``-``, ``/dev/stdin``, named pipes, process substitutions and URIs are handled in the same way. Data that is
compressed with gzip or zstandard is recognized by its content and decompressed. The code that recognizes a file and the
code that reads it share one :class:`Source`, so that no data from a pipe is lost.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..base.errors import InputError, MissingExtra, in_one_line, in_short
from .account import RecordCount
from .limits import MAX_LINE, check_decoded

STDIN = "-"
BOM = b"\xef\xbb\xbf"
HEAD = 65_536
"""Number of decompressed bytes that suffice to recognize a file."""

Input = str | os.PathLike[str]
"""Input that is read as bytes: a path, ``-`` for standard input, or a :class:`Source`."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NOT_READ = {
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "7-Zip": re.compile(rb"7z\xbc\xaf"),
}
_ALWAYS_KEPT = 4 * 2**20  # compressed bytes of a pipe: more than any format check needs
_HASHED = 2**16  # number of bytes per read, which fit into the processor cache
_IN_MEMORY = 64 * 2**20  # maximum bytes in memory of a pipe that is read twice; the rest is in a temporary file


@dataclass(frozen=True, slots=True)
class Identity:
    """Properties that identify a file as long as it is not changed.

    Attributes:
        place: Device number and inode number of the file.
        size: Size of the file in bytes.
        modified: Time of the last modification, in nanoseconds.
    """

    place: tuple[int, int]
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Returns the identity of a file, computed from its status."""
        return cls((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)

    def check(self, now: Identity, name: str) -> None:
        """Raises an error if a file was replaced, truncated or modified.

        Raises:
            InputError: If the file was changed. The message states whether the file was replaced, truncated or written
                to.
        """
        if now.place != self.place:
            raise InputError("was replaced while it was read", path=name)
        if now.size < self.size:
            raise InputError("was cut off while it was read", path=name)
        if now != self:
            how = f"{now.size - self.size:,} bytes longer" if now.size > self.size else "as long as before"
            raise InputError(f"was written to while it was read (it is {how}); read it when it is complete", path=name)


class Source:
    """An input that is opened on first use.

    A regular file can be read from its beginning any number of times, even by several readers at once. For a pipe, only
    the beginning is kept for later readers, unless :meth:`keep` is called before reading.

    Args:
        path: Path of a file, ``-`` for standard input, or a URI (``s3://bucket/captions.jsonl``).

    Attributes:
        path: The path as given.
        name: Name of the input in messages.
        counts: Counter of the records, or None before :meth:`count` is called.
    """

    _bytes: _Bytes | None = None
    counts: RecordCount | None = None

    def __init__(self, path: Input) -> None:
        self.path = os.fspath(path)
        self.name = display_name(self.path)
        self._head: bytes | None = None
        self._keep = self._hash = False

    @classmethod
    def of(cls, given: Input) -> Source:
        """Returns the given source unchanged, or creates a source for a path."""
        return given if isinstance(given, Source) else cls(given)

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<Source {self.name}>"

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the input. If the input is accessed after it was closed, it is opened again."""
        opened, self._bytes = self._bytes, None
        if opened is not None:
            opened.close()

    @property
    def head(self) -> bytes:
        """The first bytes of the input, decompressed and without a byte-order mark. The first bytes suffice to
        recognize the format of the input.
        """
        if self._head is None:
            with self.stream() as stream:
                self._head = stream.read(HEAD)
        return self._head.removeprefix(BOM)

    @property
    def is_folder(self) -> bool:
        """True if the path is a folder."""
        return os.path.isdir(self.path)

    @property
    def packed(self) -> bool:
        """True if the input is compressed."""
        with self._faults():
            return _packing(self._opened()) is not None

    @property
    def size(self) -> int | None:
        """Size of an uncompressed regular file in bytes, or None for other inputs, whose size is unknown."""
        opened = self._opened()
        return opened.identity.size if isinstance(opened, _File) and not self.packed else None

    @property
    def taken(self) -> int:
        """Number of bytes in the input before decompression. For a file, the number is the size of the file; for a
        pipe, it is the number of bytes read so far.
        """
        return self._opened().taken

    def keep(self) -> None:
        """Keeps all data from a pipe, so that it can be read again. The method must be called before any data is read.

        Raises:
            InputError: If data that was not kept has already been read.
        """
        self._keep = True
        if isinstance(self._bytes, _Piped):
            self._bytes.keep()

    def hash(self) -> None:
        """Enables hashing of the bytes as they are read, before they are decompressed.

        This method must be called before any data is read.
        """
        self._hash = True
        if self._bytes is not None and self._bytes.digest is None:
            self._bytes.digest = _Digest()

    def count(self) -> None:
        """Enables counting of the records, and hashing of the bytes that are read."""
        self.counts = RecordCount()
        self.hash()

    @property
    def crc32(self) -> str | None:
        """CRC-32 of the entire input as 8 hexadecimal digits. The value is None if hashing was not enabled with
        :meth:`hash` or if only part of the input was read.
        """
        opened = self._bytes
        if opened is None or opened.digest is None or opened.digest.size != opened.taken:
            return None
        return f"{opened.digest.crc:08x}"

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """Opens a stream of the decompressed bytes of the input, starting from the beginning.

        Raises:
            InputError: If the file is not found, is a directory, cannot be read, or was changed during reading.
        """
        with self._faults():
            yield _unpacked(self._opened(), self.name)
            self.check()

    @contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """Opens the decompressed bytes as a seekable file: the file on disk if possible, and a copy in memory
        otherwise.

        Raises:
            InputError: If :meth:`stream` fails, or if the content is larger than the limit.
        """
        opened = self._opened()
        with self._faults():
            if not isinstance(opened, _Piped) and not self.packed:
                opened.digest, self._hash = None, False  # seeking means that only parts are read
            if isinstance(opened, _File) and not self.packed:
                with open(opened.descriptor, "rb", closefd=False) as stream:
                    stream.seek(0)
                    yield stream
            elif isinstance(opened, _Remote) and not self.packed:
                yield io.BufferedReader(_View(opened))
            else:
                yield io.BytesIO(self.read())
            self.check()

    def read(self) -> bytes:
        """Returns the entire decompressed content of the input.

        Raises:
            InputError: If :meth:`stream` fails, or if the content is larger than the limit.
        """
        with self.stream() as stream:
            if self.size is not None:
                check_decoded(self.size, None, self.name)
            sink = io.BytesIO()  # in pieces, without another copy of the content
            while chunk := stream.read(2**20):
                sink.write(chunk)
                check_decoded(sink.tell(), None, self.name)
        return sink.getvalue()

    def spans(self, size: int) -> Iterator[Span]:
        """Yields spans of whole lines of a regular file, as references to their positions in the file. Only the bytes
        around the boundaries of the spans are read.

        Args:
            size: Approximate size of a span in bytes, at most MAX_LINE.

        Raises:
            InputError: If a line is longer than MAX_LINE, or if the file can no longer be read.
        """
        opened = self._opened()
        assert isinstance(opened, _File)
        itself, whole = os.path.realpath(self.path), opened.identity.size
        begin = len(BOM) if opened.at(0, len(BOM)) == BOM else 0
        with self._faults():
            stream = io.BufferedReader(_View(opened))
            while begin < whole:
                stream.seek(begin + size - 1)
                end = min(begin + size - 1 + len(stream.readline(MAX_LINE + 1)), whole)
                if end - begin > MAX_LINE:
                    _refuse_long_line(stream, self.name, begin, end)
                if opened.digest is not None:
                    opened.digest.read_to(end, opened.descriptor)
                yield Span(self.name, itself, opened.descriptor, opened.identity, begin, end - begin, whole - end)
                begin = end

    def check(self) -> None:
        """Raises an error if the file was changed or replaced after it was opened.

        Raises:
            InputError: If the file was changed. The message states whether the file was replaced, truncated or written
                to.
        """
        if isinstance(self._bytes, _File):
            self._bytes.identity.check(Identity.of(os.fstat(self._bytes.descriptor)), self.name)
            try:
                now = Identity.of(os.stat(self.path))
            except OSError:  # unlinked: the data that was read is complete
                return
            self._bytes.identity.check(now, self.name)

    def _opened(self) -> _Bytes:
        if self._bytes is None:
            with self._faults():
                self._bytes = _open(self.path)
            if self._keep and isinstance(self._bytes, _Piped):
                self._bytes.keep()
            if self._hash:
                self._bytes.digest = _Digest()
        return self._bytes

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(os_reason(error), path=self.name) from None


def display_name(path: object) -> str:
    """Returns the name by which messages refer to an input."""
    return "<stdin>" if str(path) == STDIN else str(path)


@dataclass(frozen=True, slots=True)
class Span:
    """A reference to whole lines of a regular file. The lines are read on demand.

    Attributes:
        name: Display name of the file.
        path: Resolved path of the file. A link such as ``/dev/stdin`` would refer to another file in another process.
        descriptor: Descriptor of the open file, which forked processes inherit.
        identity: Identity of the file when it was opened.
        begin: Byte offset of the first line.
        size: Size of the lines in bytes.
        left: Number of bytes in the file after the referenced lines.
    """

    name: str
    path: str
    descriptor: int
    identity: Identity
    begin: int
    size: int
    left: int

    def read(self) -> bytes:
        """Returns the lines.

        Raises:
            InputError: If the file cannot be read, or if it has changed since it was opened.
        """
        try:
            if _place_of(self.descriptor) == self.identity.place:
                return self._read(self.descriptor)
            with open(self.path, "rb") as stream:  # another process, or the source is closed
                return self._read(stream.fileno())
        except OSError as error:
            raise InputError(os_reason(error), path=self.name) from None

    def _read(self, descriptor: int) -> bytes:
        data = bytearray(self.size)
        filled = 0
        while n := _read_at(descriptor, memoryview(data)[filled:], self.begin + filled):
            filled += n
        self.identity.check(Identity.of(os.fstat(descriptor)), self.name)
        return bytes(data)


def _place_of(file: int | BinaryIO) -> tuple[int, int] | None:
    try:
        status = os.fstat(file if isinstance(file, int) else file.fileno())
    except OSError:  # closed, or a notebook's stand-in
        return None
    return status.st_dev, status.st_ino


class _Digest:
    """CRC-32 of a source's bytes in file order.

    The CRC-32 depends neither on the number of readers nor on the order in which they read. Its computation takes about
    2 % of the scoring time. SHA-256 would take 4 to 10 %, because OpenSSL hashes 1.5 GiB/s with hardware support and a
    third of this rate without hardware support.

    Attributes:
        crc: CRC-32 of the bytes that have been added so far.
        size: Number of bytes that have been added so far.
    """

    def __init__(self) -> None:
        self.crc = self.size = 0
        self._buffer = bytearray(_HASHED)

    def add(self, offset: int, data: memoryview) -> None:
        """Adds those bytes of a chunk that have not been added yet, given the chunk's offset in the file. Chunks that
        would leave a gap after the previous bytes are ignored.
        """
        if offset <= self.size < offset + len(data):
            self.crc = zlib.crc32(data[self.size - offset :], self.crc)
            self.size = offset + len(data)

    def read_to(self, end: int, descriptor: int) -> None:
        """Reads a file up to an offset and adds the new bytes, because the spans may be read by other processes."""
        view = memoryview(self._buffer)
        while self.size < end and (n := _read_at(descriptor, view[: end - self.size], self.size)):
            self.add(self.size, view[:n])


class _Bytes(Protocol):
    """Protocol for random access to the raw bytes of a source."""

    digest: _Digest | None
    """Checksum of the bytes. The value is None if hashing is disabled."""

    @property
    def taken(self) -> int:
        """For files, the total number of bytes; for pipes, the number of bytes read so far."""

    def at(self, offset: int, size: int) -> bytes:
        """Returns up to ``size`` bytes starting at an offset, or no bytes at the end of the input."""

    def close(self) -> None:
        """Releases the operating-system resources."""


class _File:
    """A regular file with random access."""

    digest: _Digest | None = None

    def __init__(self, descriptor: int, status: os.stat_result) -> None:
        self.descriptor = descriptor
        self.identity = Identity.of(status)
        self.taken = status.st_size

    def at(self, offset: int, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: _read_at(self.descriptor, memoryview(data), offset)])

    def close(self) -> None:
        os.close(self.descriptor)


def _read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    if not len(buffer):
        return 0
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


class _Remote:
    """A remote file that was opened with pyarrow."""

    digest: _Digest | None = None

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.taken = stream.seek(0, os.SEEK_END)

    def at(self, offset: int, size: int) -> bytes:
        self._stream.seek(offset)
        return bytes(self._stream.read(size))

    def close(self) -> None:
        self._stream.close()


class _Piped:
    """An input that can be read only once: a pipe, a device or standard input.

    The first bytes are always kept, whereas the remaining bytes are kept only on request.

    Args:
        stream: Stream from which the bytes are read.
        name: Name of the source, for error messages.
        lasts: True if the stream remains open after the source is closed, as standard input does. The bytes that the
            source has already read are then lost to later readers.
    """

    digest: _Digest | None = None

    def __init__(self, stream: Any, name: str, *, lasts: bool) -> None:
        self._stream, self._name = stream, name
        self._place = _place_of(stream) if lasts else None
        if self._place is not None and self._place in _BEGUN:
            self._end()
            raise InputError("is a pipe that has already been read, and can be read only once", path=name)
        self._read = getattr(stream, "read1", stream.read)
        self._kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (closed with the source)
        self._n_kept = self._n_read = 0
        self._keeps = False

    @property
    def taken(self) -> int:
        return self._n_read

    def keep(self) -> None:
        if self._n_kept < self._n_read:
            raise InputError(
                "can be read only once (a pipe), and has been read; write it to a file first", path=self._name
            )
        self._keeps = True

    def at(self, offset: int, size: int) -> bytes:
        if offset < self._n_kept:
            self._kept.seek(offset)
            return self._kept.read(min(size, self._n_kept - offset))
        if offset < self._n_read:
            raise InputError("can be read only once (a pipe); write it to a file first", path=self._name)
        data: bytes = self._read(size) or b""
        if self._n_kept == self._n_read and (self._keeps or self._n_read < _ALWAYS_KEPT):
            self._kept.seek(self._n_kept)
            self._kept.write(data)
            self._n_kept += len(data)
        self._n_read += len(data)
        return data

    def close(self) -> None:
        self._kept.close()
        if self._n_read and self._place is not None:
            _BEGUN.add(self._place)
        self._end()

    def _end(self) -> None:
        if self._name != display_name(STDIN):
            self._stream.close()


_BEGUN: set[tuple[int, int]] = set()
"""Device and inode of unnamed pipes that a source has read from.

These pipes cannot be read from the beginning again.
"""


def _open(path: str) -> _Bytes:
    if path == STDIN:
        if sys.stdin is None:
            raise InputError("standard input is closed", path=display_name(path))
        return _Piped(sys.stdin.buffer, display_name(path), lasts=True)
    if is_remote(path):
        return _Remote(open_remote(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError:
        raise InputError("not a valid file name (it contains a NUL)", path=path.replace("\0", "\\0")) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size:  # a file in /proc has no size
        return _File(descriptor, status)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise IsADirectoryError
    unnamed = stat.S_ISFIFO(status.st_mode) and not os.path.exists(os.path.realpath(path))  # /proc/7/fd/pipe:[123]
    return _Piped(open(descriptor, "rb"), path, lasts=unnamed)


class _View(io.RawIOBase):
    """A stream over the bytes of a source with a read position of its own."""

    def __init__(self, source: _Bytes) -> None:
        self._source = source
        self.offset = 0

    def readable(self) -> bool:
        """Returns True, because the stream can always be read."""
        return True

    def seekable(self) -> bool:
        """Returns False for pipes, and True for all other inputs."""
        return not isinstance(self._source, _Piped)

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with the next bytes and returns their number."""
        if isinstance(self._source, _File):
            size = _read_at(self._source.descriptor, memoryview(buffer), self.offset)
        else:
            data = self._source.at(self.offset, len(buffer))
            size = len(data)
            buffer[:size] = data
        if self._source.digest is not None:
            self._source.digest.add(self.offset, memoryview(buffer)[:size])
        self.offset += size
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position in the input and returns the new offset."""
        if whence == os.SEEK_END:
            assert isinstance(self._source, _Remote)
            offset += self._source.taken
        self.offset = offset + self.offset if whence == os.SEEK_CUR else offset
        return self.offset

    def tell(self) -> int:
        """Returns the current offset in the input."""
        return self.offset


def _packing(source: _Bytes) -> bytes | None:
    magic = io.BufferedReader(_View(source)).read(4)
    return next((known for known in (_GZIP, _ZSTD) if magic.startswith(known)), None)


def _unpacked(source: _Bytes, name: str) -> BinaryIO:
    view = _View(source)
    packing = _packing(source)
    magic = io.BufferedReader(_View(source)).read(10)
    if other := next((known for known, start in _NOT_READ.items() if start.match(magic)), None):
        raise InputError(f"compressed with {other}; unpack it, or use gzip or zstandard", path=name)
    if packing == _GZIP:
        packed = gzip.GzipFile(fileobj=io.BufferedReader(view), mode="rb")
        return io.BufferedReader(_Unpacked(packed, view, name), 2**20)
    if packing == _ZSTD:
        return io.BufferedReader(_Unpacked(_ZstdFrames(io.BufferedReader(view)), view, name), 2**20)
    return io.BufferedReader(view)


class _Unpacked(io.RawIOBase):
    """The decompressed content of a file, whose size is limited by :func:`check_decoded`."""

    def __init__(self, source: Any, packed: _View, name: str) -> None:
        self._source = source
        self._packed = packed
        self._name = name
        self._size = 0

    def readable(self) -> bool:
        """Returns True, because the stream can always be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with the next bytes, and raises an InputError if the limit is exceeded."""
        size: int = self._source.readinto(buffer)
        self._size += size
        check_decoded(self._size, self._packed.offset, self._name)
        return size


class _ZstdFrames(io.RawIOBase):
    """A stream that decompresses zstandard frames. Unlike the reader of the zstandard package, this stream detects
    truncated files.
    """

    def __init__(self, source: BinaryIO) -> None:
        import zstandard

        self._source = source
        self._damage = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """Returns True, because the stream can always be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with the next bytes, and raises an EOFError if the file ends inside a frame."""
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


def is_remote(path: Input) -> bool:
    """Returns True if a path is a URI such as ``s3://bucket/captions.jsonl``, which is opened with pyarrow's file
    systems.
    """
    return not isinstance(path, Path) and "://" in os.fspath(path)


def open_remote(uri: str) -> BinaryIO:
    """Opens a URI on one of pyarrow's file systems (``s3``, ``gs``, ``abfs``, ``hdfs``, ``file`` or ``hf``), or a data
    set that the package ``datasets`` reads.

    Raises:
        InputError: If the URI scheme or the path is unknown.
        OSError: If the file cannot be read.
        MissingExtra: If pyarrow is not installed.
    """
    from .hub import is_hub_dataset, open_hub_dataset

    if is_hub_dataset(uri):
        return open_hub_dataset(uri)
    system, path = file_system(uri)
    try:
        stream: BinaryIO = system.open_input_file(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and uri.lower().startswith("hf://"):
            raise InputError(f"file not found{HUB_REMEDY}", path=uri) from None
        raise
    except Exception as error:  # any error of a Python file system, such as Hugging Face's
        reason = f"cannot be opened ({in_short(str(error) or type(error).__name__)})"
        raise InputError(reason + (HUB_REMEDY if uri.lower().startswith("hf://") else ""), path=uri) from None
    return stream


def file_system(uri: str) -> tuple[Any, str]:
    """Returns pyarrow's file system for a URI, and the path within this file system.

    Raises:
        InputError: If the URI scheme is unknown, or if the Hub's packages are not installed.
        MissingExtra: If pyarrow is not installed.
    """
    from .hub import refuse_other_forms, refuse_without_packages

    refuse_other_forms(uri)
    refuse_without_packages(uri)
    try:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    except ImportError:
        raise MissingExtra("formats", f"{uri} (a URI)") from None
    scheme = uri.partition("://")[0].lower()
    if scheme in ("http", "https", "ftp"):
        raise InputError(
            f"{scheme}:// is not supported; download the file and use its path: curl -LO '{uri}'", path=uri
        )
    try:
        opened: tuple[Any, str] = FileSystem.from_uri(uri)
    except (ArrowException, ValueError) as error:
        remedy = HUB_REMEDY if scheme == "hf" else f"; {_SCHEMES} are"
        raise InputError(f"{scheme}:// cannot be read here ({in_one_line(error)}){remedy}", path=uri) from None
    except Exception as error:  # from any file-system library: no network, no such bucket, no permission
        advice = "; check the name, the network and the credentials, or download it first"
        remedy = HUB_REMEDY if scheme == "hf" else advice
        raise InputError(f"cannot be reached ({in_one_line(error)}){remedy}", path=uri) from None
    return opened


_SCHEMES = "s3://, gs://, abfs://, hdfs:// and file://"
HUB_REMEDY = "; download it first: hf download NAMESPACE/NAME FILE --repo-type dataset"
"""Remedy for a file on the Hub that cannot be read directly."""


def _similar(path: object) -> str:
    """Returns ``; did you mean FILE?`` if the folder of a missing file contains a file with a similar name."""
    if not isinstance(path, str):
        return ""
    if path.startswith("~"):
        return "; the shell does not expand ~ in quotation marks"
    if " -" in path:
        return "; it contains an option: remove the quotation marks"
    files = path.replace(",", " ").split()
    if len(files) > 1 and all(map(os.path.exists, files)):
        return "; it contains several files: separate them with spaces, without quotation marks"
    import difflib

    folder, name = os.path.split(path)
    try:
        names = {other.lower(): other for other in sorted(os.listdir(folder or "."))[:_COMPARED]}
    except OSError:
        return ""
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.8)
    return f"; did you mean {os.path.join(folder, names[close[0]])}?" if close else ""


_COMPARED = 1000  # files of a folder


def os_reason(error: BaseException) -> str:
    """Returns the reason for an operating-system error, in the project's wording for messages."""
    if isinstance(error, FileNotFoundError):
        return "file not found" + _similar(error.filename)
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return f"damaged or truncated compressed file ({error})"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def _refuse_long_line(stream: BinaryIO, name: str, begin: int, end: int) -> None:
    stream.seek(begin)
    lines = stream.read(end - begin).split(b"\n")
    too_long = next((k for k, line in enumerate(lines) if len(line) > MAX_LINE), None)
    if too_long is not None:
        stream.seek(0)
        before = sum(stream.read(min(2**20, begin - k)).count(b"\n") for k in range(0, begin, 2**20))
        raise long_line(name, before + too_long + 1)


def long_line(name: str, number: int) -> InputError:
    """Returns the error for a line that exceeds the maximum length."""
    return InputError(f"a line of more than {MAX_LINE >> 20} MiB is not a valid record", path=name, line=number)
