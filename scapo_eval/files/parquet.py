"""Reader for parquet files. The library pyarrow (extra ``formats``) is imported on first use."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..base.errors import InputError, MissingExtra, short_repr
from .files import decoding
from .limits import check_decoded
from .source import Input, Source

MAGIC = b"PAR1"

_FEATHER = (b"ARROW1", b"FEA1")


def refuse_feather(head: bytes, name: str) -> None:
    """Rejects files in Arrow's own format (Feather), because its reader trusts the lengths and offsets in the file.

    Raises:
        InputError: If the file is in Arrow's format.
    """
    if head.startswith(_FEATHER):
        raise InputError(
            "an Arrow (Feather) file, which cannot be checked while it is read; convert it to parquet", path=name
        )


_AT_ONCE = 256 * 2**20  # number of bytes decoded at a time, except for some deliberately damaged files
_DICTIONARY = 2  # parquet's code of this page type


class Parquet:
    """An open parquet file.

    A text that is stored once in a column's dictionary may occur in a million cells. Therefore, the number of rows per
    batch is limited as if every cell contained the longest text. In addition, the decoded size is checked.

    Attributes:
        metadata: Metadata of the file, as read by pyarrow.
        names: Names of the columns, which are distinct.
    """

    def __init__(self, stream: Any, size: int, name: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingExtra("formats", f"{name} (a parquet file)") from None
        self._file = pyarrow.parquet.ParquetFile(stream)
        self._stream, self._size, self._name = stream, size, name
        self.metadata, self.schema = self._file.metadata, self._file.schema_arrow
        self.names: list[str] = self.schema.names
        if twice := [name for name, n in Counter(self.names).items() if n > 1]:
            raise InputError(f"column {short_repr(twice[0])} appears twice", path=name)

    def batches(
        self, rows: int, groups: Iterable[int] | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Yields record batches of at most ``rows`` rows, or of fewer rows if the cells are large.

        Args:
            rows: Maximum number of rows per batch.
            groups: Row groups to read. If ``groups`` is None, all row groups are read.
            columns: Names of the columns to read. If ``columns`` is None, all columns are read.

        Raises:
            InputError: If the decoded size exceeds the limit.
        """
        total = 0
        for group in range(self.metadata.num_row_groups) if groups is None else groups:
            step = max(1, min(rows, _AT_ONCE // max(1, self._dictionaries(group, columns))))
            parts: list[Any] = []
            for batch in self._file.iter_batches(step, [group], columns):
                total += sum(map(_decoded, batch.columns))
                check_decoded(total, self._size, self._name)
                if parts and sum(part.num_rows for part in parts) + batch.num_rows > rows:
                    yield from _together(parts)
                    parts = []
                parts.append(batch)
            if parts:
                yield from _together(parts)

    def _dictionaries(self, group: int, columns: Sequence[str] | None) -> int:
        """Returns the total size in bytes of all dictionaries in a row group."""
        size, row_group = 0, self.metadata.row_group(group)
        for column in map(row_group.column, range(row_group.num_columns)):
            if columns is None or column.path_in_schema.partition(".")[0] in columns:
                start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
                size += _dictionary_at(self._stream, start)
        return size


def _together(parts: list[Any]) -> list[Any]:
    import pyarrow

    return parts if len(parts) == 1 else list(pyarrow.Table.from_batches(parts).combine_chunks().to_batches())


def _decoded(column: Any) -> int:
    """Returns the total size in bytes of a column's cells. A dictionary value that occurs repeatedly is counted each
    time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    values = column.dictionary
    texts = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
    if not any(kind(values.type) for kind in texts):
        return len(column) * int(values.nbytes) // max(1, len(values))
    return int(pc.sum(pc.take(pc.binary_length(values), column.indices).cast("int64")).as_py() or 0)


def _dictionary_at(stream: Any, offset: int) -> int:
    """Returns the size in bytes of the dictionary page at an offset, or 0 for other pages.

    The size is read from the first two numbers of the page header.
    """
    stream.seek(offset)
    head = stream.read(16)
    kind, at = _varint(head, 1)
    size, _ = _varint(head, at + 1)
    return size // 2 if head[:1] == b"\x15" and kind // 2 == _DICTIONARY else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            break
    return value, at


@contextmanager
def open_parquet(path: Input) -> Iterator[Parquet]:
    """Opens a parquet file. An uncompressed file is read in parts, whereas a compressed file is read as a whole.

    Raises:
        InputError: If the file is damaged or cannot be read.
        MissingExtra: If pyarrow is not installed.
    """
    source = Source.of(path)
    with decoding("parquet file", source), source.file() as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        file = Parquet(stream, size, source.name)
        check_parquet(file.metadata, size, source.name)
        yield file


def check_parquet(metadata: Any, packed: int, name: str, *, whole: bool = False) -> None:
    """Rejects a parquet file whose decoded size exceeds the limit. For the size check, each cell counts as at least one
    byte.

    Args:
        metadata: Metadata of the file, as read by pyarrow.
        packed: Size of the file in bytes.
        name: Name of the source, for error messages.
        whole: True if the file is read as one table instead of row group by row group.

    Raises:
        InputError: If the file is too large.
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    sizes = [max(group.total_byte_size, group.num_rows * group.num_columns) for group in groups]
    check_decoded((sum if whole else max)(sizes or [0]), packed, name)
