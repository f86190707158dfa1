"""Conversion of text offsets to UTF-16 units, which browsers use."""

from __future__ import annotations

import numpy as np


def utf16_offsets(text: str) -> list[int] | None:
    """Returns the number of UTF-16 units before each character and at the end of the text, or None if every number
    equals the character's index.
    """
    if text.isascii() or max(text) <= "\uffff":
        return None
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return [0, *np.cumsum(1 + (codes > 0xFFFF)).tolist()]
