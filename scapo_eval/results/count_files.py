"""Counts per image in parquet files beside a results file.

A results file with many images would be large and slow to read as JSON. The counts of a run with more than
COUNTS_IN_JSON images are therefore written to a parquet file in the same folder. The results file contains the name of
this file and its SHA-256 hash. The hash is also part of the name, so a results file that is replaced never refers to
counts of another version, even if writing is interrupted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, ScapoError
from ..files.files import STDIN, atomic_write
from ..files.parquet import open_parquet
from ..files.source import Source
from .counts import CountTable, in_few_bytes

COUNTS_IN_JSON = 1_000_000
"""Largest number of images whose counts are written as JSON."""

ROWS = 1 << 18
"""Rows of a row group, and rows that are read at once."""

_ID, _CELLS = "image_id", "ground_truth"


def in_file(table: CountTable, path: str | Path) -> bool:
    """Returns True if the counts of a results file are written to a parquet file beside it."""
    if len(table.image_ids) <= COUNTS_IN_JSON or str(path) == STDIN or not _replaceable(Path(path)):
        return False
    return find_spec("pyarrow") is not None  # without it: JSON, which is larger and slower, but complete


def _replaceable(path: Path) -> bool:
    return path.is_file() or not path.exists()


def write_counts(table: CountTable, path: str | Path) -> dict[str, str]:
    """Writes the counts of a run to a parquet file beside a results file.

    The file contains the columns ``image_id`` (bytes if an id is not valid Unicode), ``ground_truth`` (fingerprint of
    the image's cells, if known), and one column for each count.

    Args:
        table: Counts per image.
        path: Path of the results file.

    Returns:
        The name of the file and its hash, for :func:`read_counts`.
    """
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        ids = pa.array(table.image_ids, pa.string())
    except UnicodeEncodeError:  # lone surrogates
        ids = pa.array([image.encode("utf-8", "surrogatepass") for image in table.image_ids], pa.binary())
    cells = [] if table.cells is None else [(_CELLS, pa.array(table.cells))]
    counts = [
        (f"count:{name}", pa.array(in_few_bytes(column)))
        for name, column in zip(table.columns, table.rows.T, strict=True)
    ]
    names, arrays = zip((_ID, ids), *cells, *counts, strict=True)
    content = io.BytesIO()
    pq.write_table(pa.table(list(arrays), names=list(names)), content, row_group_size=ROWS, compression="zstd")
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    target = Path(path)
    name = f"{target.name}.{digest[:16]}.counts.parquet"
    with atomic_write(target.with_name(name)) as stream:
        stream.write(content.getbuffer())
    return {"file": name, "sha256": digest}


def remove_others(path: str | Path, kept: Iterable[str]) -> None:
    """Removes the count files of a results file that was replaced.

    Args:
        path: Path of the results file.
        kept: Names of the count files to keep.
    """
    target, names = Path(path), set(kept)
    pattern = re.compile(re.escape(target.name) + r"\.[0-9a-f]{16}\.counts\.parquet")
    for other in target.absolute().parent.iterdir():
        if pattern.fullmatch(other.name) and other.name not in names:
            other.unlink(missing_ok=True)


def read_counts(given: Any, columns: list[str], results: Source, place: str) -> dict[str, Any]:
    """Reads the counts of a run from the parquet file beside a results file.

    Args:
        given: Name and hash of the file, as in the results file.
        columns: Names of the counts.
        results: The results file.
        place: Field of the results file that contains ``given``, for messages.

    Returns:
        The fields ``image_ids``, ``rows`` (an (images, columns) array) and, if recorded, ``truth`` (an array) of
        ``per_image``.

    Raises:
        InputError: If the file is missing or was changed, or has other columns.
    """
    name = given.get("file") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not re.fullmatch(r"[^/\\\0]+\.counts\.parquet", name):
        raise InputError(f"{place}: must name a file *.counts.parquet in the folder of the results file")
    if results.path == STDIN:
        raise InputError(f"{place}: the counts are in {name}: give the results file by its path, not as a stream")
    folder, slash, _ = results.path.rpartition("/")
    source = Source(f"{folder}{slash}{name}")
    try:
        with source.file() as stream:
            digest = hashlib.sha256()
            while block := stream.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != given.get("sha256"):
            raise InputError("other counts than those of the results file (the hash differs)")
        with open_parquet(source) as file:
            batches = list(file.batches(ROWS))
            names = file.names
    except ScapoError as error:
        reason = error.reason if isinstance(error, InputError) else str(error)
        raise InputError(f"{place}: {name}: {reason}; keep this file beside the results file") from None
    counts = [f"count:{column}" for column in columns]
    if set(names) - {_CELLS} != {_ID, *counts}:
        raise InputError(f"{place}: {name}: has other columns than {', '.join(columns)}")
    ids = [image for batch in batches for image in batch.column(_ID).to_pylist()]
    arrays = {column: [batch.column(column) for batch in batches] for column in names if column != _ID}
    if None in ids or any(
        part.null_count or part.to_numpy(zero_copy_only=False).dtype.kind not in "iu"
        for parts in arrays.values()
        for part in parts
    ):
        raise InputError(f"{place}: {name}: has cells that are not whole numbers")
    rows = np.empty((len(ids), len(columns)), dtype=np.int64)
    for k, column in enumerate(counts):
        rows[:, k] = np.concatenate([part.to_numpy(zero_copy_only=False) for part in arrays[column]] or [rows[:, k]])
    fields: dict[str, Any] = {
        "image_ids": [image if isinstance(image, str) else image.decode("utf-8", "surrogatepass") for image in ids],
        "rows": rows,
    }
    if _CELLS in names:
        fields["truth"] = np.concatenate([part.to_numpy() for part in arrays[_CELLS]]).astype(np.uint64)
    return fields
