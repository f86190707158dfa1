"""Limits what may be decoded: the size of a file, of a line and of the values of a JSON document
(``--max-decoded``).
"""

from __future__ import annotations

import numpy as np

from ..base.errors import InputError

MAX_LINE = 16 * 2**20
"""Bytes; a longer line is a broken file, not a caption."""

MAX_WHOLE = 4 * 2**30
"""Bytes; the largest file that is read whole, unless :func:`limit_decoded` says otherwise."""

MAX_UNPACKED, MAX_RATIO = 32 * 2**20, 50
"""Bytes; a compressed file may unpack to so many, or to so many times its own size (texts: 3 to 20 times)."""

MAX_VALUES, MAX_SPREAD = 512 * 2**20, 12
"""Bytes; the values of one JSON document may take so much memory, or so many times its size (data: 1 to 8 times)."""

_max_decoded: int | None = None


def limit_decoded(size: int | None) -> None:
    """Sets how many bytes a file may hold when it is decoded, in this process (``--max-decoded``).

    Args:
        size: bytes; None for MAX_WHOLE, and for compressed files MAX_UNPACKED or MAX_RATIO times their size.
    """
    global _max_decoded
    _max_decoded = size


def check_decoded(size: int, packed: int | None, name: str) -> None:
    """Refuses what would decode to more than the limit.

    Args:
        size: bytes when decoded.
        packed: bytes of the compressed file or archive; None for a file that is not compressed.
        name: of the source, for the message.

    Raises:
        InputError: if it is too large.
    """
    usual = MAX_WHOLE if packed is None else max(MAX_UNPACKED, MAX_RATIO * packed)
    limit = usual if _max_decoded is None else _max_decoded
    if size > limit:
        how = f", {MAX_RATIO} times its own size" if packed and _max_decoded is None and limit > MAX_UNPACKED else ""
        shown = f"{limit / 2**20:,.0f} MiB" if limit >= 2**20 else f"{limit:,} bytes"
        raise InputError(f"holds more than {shown} when decoded{how}; allow more with --max-decoded SIZE", path=name)


def check_values(data: bytes) -> None:
    """Refuses JSON of small parts without end (``[[],[],[]...``), whose values take 25 times the memory of the text.

    Raises:
        ValueError: if they take more than the limit.
    """
    if len(data) * 25 <= MAX_VALUES:
        return
    counts = dict.fromkeys(b'[{",:.', 0)
    for start in range(0, len(data), 2**20):
        part = np.frombuffer(data, np.uint8, min(2**20, len(data) - start), start)
        for mark in counts:
            counts[mark] += int(np.count_nonzero(part == mark))
    lists, objects, quotes, commas, colons, points = counts.values()
    texts = max(0, quotes // 2 - colons)  # the keys of objects are shared
    size = 8 * (commas + lists + objects) + 56 * (lists + texts) + 64 * objects + 24 * points
    size += 120 * min(objects, colons)  # those that are not empty
    limit = max(MAX_VALUES, MAX_SPREAD * len(data)) if _max_decoded is None else _max_decoded
    if size > limit:
        took = f"its values would take about {size / 2**30:.1f} GiB, {size // len(data)} times its own size"
        raise ValueError(f"{took}; allow more with --max-decoded SIZE")
