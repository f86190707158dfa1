"""Short hashes of the data that a score depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby

HASH_DIGITS = 8


def digest(parts: Iterable[str | bytes]) -> str:
    """Returns the first hexadecimal digits of the SHA-256 hash over the parts, each followed by a newline.

    Lone surrogates, which JSON ids may contain, are hashed as they are (``surrogatepass``).
    """
    state = hashlib.sha256()
    for kind, run in groupby(parts, type):  # joined: a hundred thousand ids are not hashed one by one
        if kind is bytes:
            state.update(b"\n".join([*run, b""]))  # type: ignore[list-item]
        else:
            state.update("\n".join([*run, ""]).encode("utf-8", "surrogatepass"))  # type: ignore[list-item]
    return state.hexdigest()[:HASH_DIGITS]
