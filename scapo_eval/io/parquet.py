"""Parquet files, opened where they lie; pyarrow (extra ``formats``) is imported when one is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import MissingExtra
from .files import check_decoded, decoding, display_name, is_remote, is_stream, open_remote, read_bytes

MAGIC = b"PAR1"


@contextmanager
def open_parquet(path: str | Path) -> Iterator[Any]:
    """A parquet file as pyarrow's ``ParquetFile``; a plain one is read in parts, a compressed one as a whole.

    Raises:
        InputError: the file is damaged or cannot be read.
        MissingExtra: pyarrow is not installed.
    """
    name = display_name(path)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("formats", f"{name} (a parquet file)") from None
    with decoding("parquet file", path), _seekable(path) as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        file = pyarrow.parquet.ParquetFile(stream)
        check_parquet(file.metadata, size, name)
        yield file


def check_parquet(metadata: Any, packed: int, name: str, *, whole: bool = False) -> None:
    """Refuses a parquet file that would unpack to more than the limit; a cell takes a byte at least.

    Args:
        metadata: pyarrow's, of the file.
        packed: bytes of the file.
        name: of the source, for messages.
        whole: it is read as one table, not group of rows by group.

    Raises:
        InputError: it is too large.
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    sizes = [max(group.total_byte_size, group.num_rows * group.num_columns) for group in groups]
    check_decoded((sum if whole else max)(sizes or [0]), packed, name)


@contextmanager
def _seekable(path: str | Path) -> Iterator[BinaryIO]:
    if is_stream(path) or not _is_plain(path):
        yield io.BytesIO(read_bytes(path))
        return
    with open_remote(str(path)) if is_remote(path) else open(path, "rb") as stream:
        yield stream


def _is_plain(path: str | Path) -> bool:
    with open_remote(str(path)) if is_remote(path) else open(path, "rb") as stream:
        return bytes(stream.read(len(MAGIC))) == MAGIC
