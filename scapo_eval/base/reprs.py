"""One-line ``repr`` of objects that hold much: what a notebook or a log shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields
from typing import Any

import numpy as np

from .errors import short_repr

LIMIT = 200
"""Characters of the longest ``repr``."""


def one_line(thing: object, text: str) -> str:
    """Returns ``<Type text>`` on one line and cut to LIMIT characters."""
    head = f"<{type(thing).__name__} "
    text = " ".join(text.split())
    room = LIMIT - len(head) - 1
    return f"{head}{text if len(text) <= room else text[: room - 3] + '...'}>"


def listed(names: list[str] | tuple[str, ...], shown: int = 4) -> str:
    """Returns the first names, and ``...`` if there are more."""
    return ", ".join(names[:shown]) + (", ..." if len(names) > shown else "")


def fields_in_short(thing: Any) -> str:
    """Returns a ``__repr__`` for dataclasses: small values as they are, of large ones only how many there are."""
    return one_line(
        thing, ", ".join(f"{field.name}={_in_short(getattr(thing, field.name))}" for field in fields(thing))
    )


def _in_short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (tuple, list, Mapping, Set)):
        return f"{len(value):,} items"
    return short_repr(value)
