"""Names that will go: what is said to who still uses them (``docs/stability.md`` is the promise behind it)."""

from __future__ import annotations

import warnings


class ScapoDeprecationWarning(FutureWarning):
    """Something of scapo is used that a later version will not have. Shown by default, unlike DeprecationWarning."""


def warn_deprecated(old: str, *, instead: str, removed_in: str, stacklevel: int = 2) -> None:
    """Warns at the line that uses something deprecated.

    Options and verbs of the command line take click's own ``deprecated=`` with the same words.

    Args:
        old: what is used, as users write it: ``AliasMatcher(watch=...)``.
        instead: what takes its place, likewise.
        removed_in: the first version without it, ``major.minor.patch``.
        stacklevel: frames from the caller of this function to the line to be named; 2: its direct caller's.
    """
    message = f"{old} is deprecated and will be removed in scapo {removed_in}; use {instead}"
    warnings.warn(message, ScapoDeprecationWarning, stacklevel=stacklevel + 1)
