"""Division of one system's files, on local disks or in an object store, into parts for separate workers."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob, has_magic
from typing import Any

import pyarrow as pa

from ..base.errors import InputError, ScapoError
from ..files.parquet import open_parquet
from ..files.source import Source, file_system, is_remote
from ..readers.captions import is_own_parquet
from ..readers.data_set import DataSet, is_data_set
from ..readers.formats import open_layout
from ..results.results import system_names
from .batch import WHOLE_FILE

_THREADS = 16
"""Number of files that are inspected at the same time. The footer of a file on an object store takes 50 ms, mostly for
waiting.
"""


def files_of(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths of one system's files. The files that match a pattern are sorted by name.

    Args:
        given: A path, a folder, a pattern (``captions/*.parquet``; ``**`` matches nested folders), a URI with a path or
            pattern, or a list of these.

    Raises:
        InputError: If no file matches, or a file is given twice.
    """
    several = [given] if isinstance(given, (str, os.PathLike)) else given
    paths = [path for pattern in several for path in _matching(os.fspath(pattern))]
    for path, number in Counter(paths).items():
        if number > 1:
            raise InputError("the file is given twice", path=path)
    return paths


def _matching(pattern: str) -> list[str]:
    if pattern == "-":
        raise InputError("the workers cannot read standard input; write it to a file", path="<stdin>")
    if os.path.isdir(pattern) and is_data_set(pattern):
        return DataSet(os.path.abspath(pattern)).files
    if not has_magic(pattern):
        return [pattern if is_remote(pattern) else os.path.abspath(pattern)]
    paths = _matching_uris(pattern) if is_remote(pattern) else glob(os.path.abspath(pattern), recursive=True)
    if not paths:
        raise InputError("no file matches", path=pattern)
    return sorted(paths)


def _matching_uris(pattern: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    folder = pattern[: pattern.rindex("/", 0, min(pattern.index(mark) for mark in "*?[" if mark in pattern))]
    system, path = file_system(folder)
    try:
        listed = system.get_file_info(FileSelector(path, recursive=True))
    except OSError as error:
        raise InputError(f"cannot be listed: {error}", path=folder) from None
    prefix = folder.removesuffix(path.rstrip("/"))
    names = [prefix + file.path for file in listed if file.type == FileType.File]
    depth = None if "**" in pattern else pattern.count("/")
    return [name for name in names if fnmatch.fnmatchcase(name, pattern) and depth in (None, name.count("/"))]


def parts_of(paths: Sequence[str], *, row_groups: bool = True) -> Any:
    """Returns the file parts that separate workers read. The parts of a Parquet file in the project's caption format
    are its row groups; any other file is a single part.

    Args:
        paths: Paths of the system's files.
        row_groups: True if Parquet files may be split into row groups.

    Returns:
        A pyarrow Table with the columns ``path`` and ``row_group``.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        groups = list(pool.map(_row_groups, paths)) if row_groups else [[WHOLE_FILE]] * len(paths)
    rows = [(path, group) for path, of_file in zip(paths, groups, strict=True) for group in of_file]
    return pa.table(
        {"path": [path for path, _ in rows], "row_group": pa.array([group for _, group in rows], pa.int64())}
    )


def _row_groups(path: str) -> Sequence[int]:
    try:
        source = Source(path)
        if is_own_parquet(open_layout(source, warn=lambda _: None)):
            with open_parquet(source) as file:
                return range(file.metadata.num_row_groups)
    except ScapoError:  # the reader of the file reports the error
        pass
    return [WHOLE_FILE]


def name_of(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> str:
    """Returns the name of the system whose files are given: the name of the file or, for a pattern, the name of its
    folder.
    """
    first = os.fspath(given if isinstance(given, (str, os.PathLike)) else given[0])
    while has_magic(os.path.basename(first)):
        first = os.path.dirname(first)
    return system_names([first])[0] if first else "captions"
