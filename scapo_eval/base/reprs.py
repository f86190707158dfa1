"""One-line ``repr`` texts of objects that contain much data, for notebooks and logs."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields
from typing import Any

import numpy as np

from .errors import short_repr

LIMIT = 200
"""Maximum length of a ``repr`` in characters."""


def one_line(thing: object, text: str) -> str:
    """Returns ``<Type text>`` on one line, truncated to LIMIT characters."""
    head = f"<{type(thing).__name__} "
    text = " ".join(text.split())
    room = LIMIT - len(head) - 1
    return f"{head}{text if len(text) <= room else text[: room - 3] + '...'}>"


def listed(names: list[str] | tuple[str, ...], shown: int = 4) -> str:
    """Returns the first names, separated by commas, followed by ``...`` if further names exist."""
    return ", ".join(names[:shown]) + (", ..." if len(names) > shown else "")


def fields_in_short(thing: Any) -> str:
    """Returns a short ``repr`` of a dataclass, with small values in full and only the sizes of large values."""
    return one_line(
        thing, ", ".join(f"{field.name}={_in_short(getattr(thing, field.name))}" for field in fields(thing))
    )


def _in_short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (tuple, list, Mapping, Set)):
        return f"{len(value):,} items"
    return short_repr(value)
