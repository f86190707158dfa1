"""Short hashes of the data on which a score depends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby

HASH_DIGITS = 8


def digest(parts: Iterable[str | bytes]) -> str:
    """Returns the first hexadecimal digits of the SHA-256 hash of the given parts, each followed by a newline.

    Lone surrogates, which ids in JSON may contain, are encoded with ``surrogatepass``.
    """
    state = hashlib.sha256()
    for kind, run in groupby(parts, type):  # one hash of the joined ids is faster than a call for each id
        if kind is bytes:
            state.update(b"\n".join([*run, b""]))  # type: ignore[list-item]
        else:
            state.update("\n".join([*run, ""]).encode("utf-8", "surrogatepass"))  # type: ignore[list-item]
    return state.hexdigest()[:HASH_DIGITS]
