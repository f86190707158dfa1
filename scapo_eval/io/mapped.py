"""A value with large arrays for processes that cannot inherit memory: the arrays in one file that all of them map."""

from __future__ import annotations

import os
import pickle
import tempfile
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np

Value = TypeVar("Value")

_ALIGNED = 64


class Mapped(Generic[Value]):
    """Holds a value; where it is pickled, its arrays are written to a file once, and whoever unpickles it maps them.

    A forked process inherits the value and nothing is written. Elsewhere (``spawn``, ``forkserver``) a process holds
    the pages that it reads, once for all processes of the machine, and cannot write to them.

    Args:
        value: anything that can be pickled.
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
    file = memoryview(np.memmap(path, dtype=np.uint8, mode="r"))
    return Mapped(pickle.loads(data, buffers=[file[start : start + size] for start, size in spans]))
