"""Limits on decoding (``--max-decoded``): the size of a file, the length of a line, and the number of values in a JSON
document.
"""

from __future__ import annotations

import numpy as np

from ..base.errors import InputError

MAX_LINE = 16 * 2**20
"""Maximum line length in bytes. A longer line indicates a broken file."""

MAX_WHOLE = 4 * 2**30
"""Maximum size in bytes of a file that is read as a whole, unless :func:`limit_decoded` sets another limit."""

MAX_UNPACKED, MAX_RATIO = 32 * 2**20, 50
"""Maximum decompressed size of a file in bytes, and maximum compression ratio (3 to 20 is typical of text). The larger
limit applies.
"""

MAX_VALUES, MAX_SPREAD = 512 * 2**20, 12
"""Maximum memory for the values of a JSON document in bytes, and maximum ratio to its size (1 to 8 is typical of data).
The larger limit applies.
"""

_max_decoded: int | None = None


def limit_decoded(size: int | None) -> None:
    """Sets the maximum decoded size of a file in this process (``--max-decoded``).

    Args:
        size: Maximum size in bytes. If ``size`` is None, the defaults are restored: MAX_WHOLE or, for compressed files,
            the larger of MAX_UNPACKED and MAX_RATIO times the compressed size.
    """
    global _max_decoded
    _max_decoded = size


def check_decoded(size: int, packed: int | None, name: str) -> None:
    """Rejects data whose decoded size exceeds the limit.

    Args:
        size: Decoded size in bytes.
        packed: Size of the compressed file or archive in bytes, or None for uncompressed files.
        name: Name of the source, for the error message.

    Raises:
        InputError: If the data is too large.
    """
    usual = MAX_WHOLE if packed is None else max(MAX_UNPACKED, MAX_RATIO * packed)
    limit = usual if _max_decoded is None else _max_decoded
    if size > limit:
        how = f", {MAX_RATIO} times its own size" if packed and _max_decoded is None and limit > MAX_UNPACKED else ""
        shown = f"{limit / 2**20:,.0f} MiB" if limit >= 2**20 else f"{limit:,} bytes"
        raise InputError(f"contains more than {shown} when decoded{how}; allow more with --max-decoded SIZE", path=name)


def check_values(data: bytes) -> None:
    """Rejects JSON with too many small values (such as ``[[],[],[]...``), which may need 25 times as much memory as the
    text.

    Raises:
        ValueError: If the values would need more memory than the limit.
    """
    if len(data) * 25 <= MAX_VALUES:
        return
    counts = dict.fromkeys(b'[{",:.', 0)
    for start in range(0, len(data), 2**20):
        part = np.frombuffer(data, np.uint8, min(2**20, len(data) - start), start)
        for mark in counts:
            counts[mark] += int(np.count_nonzero(part == mark))
    lists, objects, quotes, commas, colons, points = counts.values()
    texts = max(0, quotes // 2 - colons)  # objects share their keys
    size = 8 * (commas + lists + objects) + 56 * (lists + texts) + 64 * objects + 24 * points
    size += 120 * min(objects, colons)  # without empty objects
    limit = max(MAX_VALUES, MAX_SPREAD * len(data)) if _max_decoded is None else _max_decoded
    if size > limit:
        took = f"its values would need about {size / 2**30:.1f} GiB, {size // len(data)} times its own size"
        raise ValueError(f"{took}; allow more with --max-decoded SIZE")
