"""One line that makes a score reproducible: what was matched, against what, on which images, by which code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .version import __version__

HASH_DIGITS = 8


def digest(parts: Iterable[str | bytes]) -> str:
    """First hexadecimal digits of the SHA-256 over the parts, each closed by a newline.

    Lone surrogates, which JSON can carry into ids, are hashed as they are (``surrogatepass``).
    """
    state = hashlib.sha256()
    for part in parts:
        state.update(part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
        state.update(b"\n")
    return state.hexdigest()[:HASH_DIGITS]


def signature(metric: str, **fields: object) -> str:
    """``metric|key:value|...|v:VERSION``, fields in the order given, None left out.

    Args:
        metric: name of the metric.
        fields: what decides the figures: vocabulary, oracle, rule, number and hash of images...
    """
    parts = [f"{key}:{value}" for key, value in fields.items() if value is not None]
    return "|".join([metric, *parts, f"v:{__version__}"])
