"""Parquet files, opened where they lie; pyarrow (extra ``formats``) is imported when one is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError, MissingExtra
from .files import display_name, is_remote, is_stream, open_remote, read_bytes

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
    try:
        with _seekable(path) as stream:
            yield pyarrow.parquet.ParquetFile(stream)
    except InputError:
        raise
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise InputError(f"damaged parquet file ({' '.join(str(error).split())[:120]})", path=name) from None


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
