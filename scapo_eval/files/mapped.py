"""Large arrays in memory-mapped files that all processes share. Each process loads only the pages that it accesses."""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import struct
import tempfile
from types import TracebackType
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")

_ALIGNED = 64


class Mapped(Generic[Value]):
    """A wrapper for a value whose arrays are shared between processes in a memory-mapped file.

    Pickling writes the arrays to a file once, and unpickling maps this file into memory. A forked process inherits the
    value, so no file is written. With ``spawn`` or ``forkserver``, all processes on the machine share the pages, which
    are read-only.

    Args:
        value: Any picklable value.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        self._pickled: tuple[str, bytes, list[tuple[int, int]]] | None = None

    def __enter__(self) -> Mapped[Value]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pickled is not None:
            os.unlink(self._pickled[0])

    def __reduce__(self) -> tuple[object, ...]:
        if self._pickled is None:
            buffers: list[pickle.PickleBuffer] = []
            data = pickle.dumps(self.value, protocol=5, buffer_callback=buffers.append)
            spans = []
            with tempfile.NamedTemporaryFile(prefix="scapo-", delete=False) as stream:
                for buffer in buffers:
                    stream.write(bytes(-stream.tell() % _ALIGNED))
                    spans.append((stream.tell(), buffer.raw().nbytes))
                    stream.write(buffer.raw())
                stream.write(b"\0")  # an empty file cannot be mapped
            self._pickled = stream.name, data, spans
        return _opened, self._pickled


def _opened(path: str, data: bytes, spans: list[tuple[int, int]]) -> Mapped[object]:
    with open(path, "rb") as stream:
        file = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    return Mapped(pickle.loads(data, buffers=[file[start : start + size] for start, size in spans]))


def stored_array(stream: BinaryIO, name: str) -> NDArray[Any] | None:
    """Returns an array from an ``.npz`` file as a read-only memory map, or None if the array cannot be mapped.

    Args:
        stream: Open file, positioned at its beginning. The position of the stream is restored.
        name: Name of the array.

    Raises:
        BadZipFile, ValueError: If the file is damaged. Damaged files may also cause other zipfile or NumPy exceptions.
    """
    import zipfile

    if not isinstance(stream, io.BufferedReader):
        return None
    with zipfile.ZipFile(stream) as archive:
        member = archive.NameToInfo.get(f"{name}.npy")
        if member is None or member.compress_type != zipfile.ZIP_STORED:
            return None
        with archive.open(member) as content:
            if np.lib.format.read_magic(content) != (1, 0):
                return None
            shape, by_columns, kind = np.lib.format.read_array_header_1_0(content)
            begin = content.tell()
            if by_columns or kind.hasobject or begin + kind.itemsize * math.prod(shape) != member.file_size:
                return None
            while content.read(1 << 20):  # read to the end, where the checksum is compared
                pass
    stream.seek(member.header_offset)
    header = stream.read(30)
    begin += stream.tell() + sum(struct.unpack("<HH", header[26:]))  # file name and extra fields
    stream.seek(0)
    file = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    array: NDArray[Any] = np.ndarray(shape, kind, buffer=file, offset=begin)
    return array
