"""Reader and writer for ground truth as DOPA matrices in ``.npz`` and ``.parquet`` files.

``docs/specification.md#formats`` describes the formats.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, MissingExtra, short_repr
from ..files.containers import check_archive, refuse_zip
from ..files.fields import names_image
from ..files.files import atomic_write, decoding
from ..files.json_text import dump_json, parse_json
from ..files.mapped import stored_array
from ..files.parquet import Parquet, check_parquet
from .truth_columns import TruthColumns, columns_of_matrix, read_world, with_probabilities, written_world
from .truth_table import image_column, read_frame

MATRIX_VERSION = "1"

_PROBABILITIES = "P(present)"
"""Column of a parquet matrix with the probabilities of all labels, in the order of their columns."""


def read_npz(stream: BinaryIO, source: str) -> TruthColumns:
    """Reads the arrays ``matrix``, ``image_ids`` and ``labels``, and optionally ``vocabulary_fingerprint``, ``world``
    and ``probabilities``.

    Args:
        stream: Binary stream of the file. An uncompressed matrix in a local file is memory-mapped.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the data is not a valid DOPA matrix.
    """
    with decoding("npz file", source):
        refuse_zip(stream, ".npy", source)
        check_archive(stream, source)
        cells = stored_array(stream, "matrix")
        with np.load(stream, allow_pickle=False) as arrays:
            missing = {"matrix", "image_ids", "labels"} - set(arrays.files)
            if {"names", "starts"} <= set(arrays.files):
                raise InputError("a claim matrix, not a presence matrix: use it with --scenes", path=source)
            if missing:
                raise InputError(f"not a valid DOPA matrix: missing {', '.join(sorted(missing))}", path=source)
            fingerprint = str(arrays["vocabulary_fingerprint"]) if "vocabulary_fingerprint" in arrays.files else ""
            world = str(arrays["world"]) if "world" in arrays.files else ""
            image_ids, labels = arrays["image_ids"], arrays["labels"]
            probabilities = arrays["probabilities"] if "probabilities" in arrays.files else None
            matrix = arrays["matrix"] if cells is None else cells
    for name, array in (("image_ids", image_ids), ("labels", labels)):
        if array.ndim != 1 or array.dtype.kind not in "USiuf":
            raise InputError(f"not a valid DOPA matrix: '{name}' must be a list of texts or numbers", path=source)
    columns = columns_of_matrix(matrix, image_ids, labels, fingerprint, source, read_world(world, "total", source))
    columns = with_probabilities(columns, probabilities)
    return columns if cells is None or cells.dtype != np.int8 else replace(columns, cells=cells)


def write_npz(truth: TruthColumns, path: str | Path) -> None:
    """Writes the arrays that :func:`read_npz` reads, and the ``version`` of the format.

    Raises:
        InputError: If the file cannot be written.
    """
    arrays = {
        "matrix": truth.matrix(),
        "image_ids": np.array(truth.image_ids, dtype=np.str_),
        "labels": np.array(truth.labels, dtype=np.str_),
        "vocabulary_fingerprint": np.array(truth.vocabulary_fingerprint or ""),
        "version": np.array(MATRIX_VERSION),
        "world": np.array(written_world(truth.world)),
    }
    if truth.probabilities is not None:
        arrays["probabilities"] = truth.probabilities
    with atomic_write(path) as stream:
        stream.write(npz_bytes(arrays))


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Returns arrays in NumPy's ``savez_compressed`` format, but without timestamps, so that equal arrays yield equal
    bytes.
    """
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, member.getvalue())
    return buffer.getvalue()


def read_parquet(data: bytes, source: str) -> TruthColumns:
    """Reads a parquet file with ``image_id`` and one int8 column per label, or a table that :func:`read_frame` accepts.

    Args:
        data: Content of the file.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the data is not a valid DOPA matrix.
        MissingExtra: If pyarrow is not installed.
    """
    pa, _ = _pyarrow("reading a parquet matrix")
    with decoding("parquet file", source):
        file = Parquet(io.BytesIO(data), len(data), source)
        check_parquet(file.metadata, len(data), source, whole=True)
        table, names = pa.Table.from_batches(file.batches(2**16), file.schema), file.names
        if any(name in names and not _is_state(table.schema.field(name).type) for name in ("label", "objects")):
            return read_frame(table, source)
        probabilities = None
        if _PROBABILITIES in names:
            listed = table.column(_PROBABILITIES).to_pylist()
            table, names = table.drop_columns([_PROBABILITIES]), [name for name in names if name != _PROBABILITIES]
            probabilities = np.array(listed, dtype=np.float32)
        named = {name: table.column(name).slice(0, 1).to_pylist() for name in names if names_image(name)}
        columns = [column.to_numpy() for column in table.columns]
        metadata = parse_json((table.schema.metadata or {}).get(b"scapo", b"{}"))
    image = image_column({name: value for name, values in named.items() for value in values}, source) or "image_id"
    if image not in names:
        shown = ", ".join(names[:5])
        raise InputError(f"not a valid DOPA matrix: missing column 'image_id' (found: {shown})", path=source)
    image_ids = columns.pop(names.index(image)).tolist()
    names.remove(image)
    if odd := [name for name, column in zip(names, columns, strict=True) if column.dtype.kind not in "iub"]:
        states = "cells must be 1 (present), 0 (absent) or -1 (unknown)"
        raise InputError(f"column {short_repr(odd[0])}: {states}", path=source)
    matrix = np.stack(columns, axis=1) if columns else np.zeros((len(image_ids), 0), dtype=np.int8)
    said = metadata if isinstance(metadata, dict) else {}
    fingerprint, world = str(said.get("vocabulary_fingerprint", "")), read_world(said.get("world"), "total", source)
    return with_probabilities(columns_of_matrix(matrix, image_ids, names, fingerprint, source, world), probabilities)


def write_parquet(truth: TruthColumns, path: str | Path) -> None:
    """Writes a parquet file with the columns that :func:`read_parquet` reads. The metadata key ``scapo`` contains the
    fingerprint of the vocabulary and the version of the format.

    Raises:
        InputError: If the file cannot be written.
        MissingExtra: If pyarrow is not installed.
    """
    pa, pq = _pyarrow("writing a parquet matrix")
    matrix = truth.matrix()
    columns = {"image_id": pa.array(truth.image_ids)}
    columns |= {label: pa.array(matrix[:, k]) for k, label in enumerate(truth.labels)}
    if truth.probabilities is not None:
        width = truth.probabilities.shape[1]
        columns[_PROBABILITIES] = pa.FixedSizeListArray.from_arrays(pa.array(truth.probabilities.ravel()), width)
    metadata = {
        "vocabulary_fingerprint": truth.vocabulary_fingerprint or "",
        "version": MATRIX_VERSION,
        "world": written_world(truth.world),
    }
    table = pa.table(columns).replace_schema_metadata({"scapo": dump_json(metadata)})
    with atomic_write(path) as stream:
        pq.write_table(table, stream)


def _is_state(kind: Any) -> bool:
    """Returns True if a column contains states of a label rather than label names."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_boolean(kind))


def _pyarrow(needed_for: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("formats", needed_for) from None
    return pyarrow, pyarrow.parquet
