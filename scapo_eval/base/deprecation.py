"""Warnings about deprecated names. ``docs/stability.md`` describes the deprecation policy."""

from __future__ import annotations

import warnings


class ScapoDeprecationWarning(FutureWarning):
    """A warning about a feature that a later version will remove. Unlike DeprecationWarning, it is shown by default."""


def warn_deprecated(old: str, *, instead: str, removed_in: str, stacklevel: int = 2) -> None:
    """Issues a deprecation warning for the line that uses a deprecated feature.

    Options and commands use click's ``deprecated=`` with the same words.

    Args:
        old: Deprecated feature in the user's notation, such as ``AliasMatcher(watch=...)``.
        instead: Replacement, in the same notation.
        removed_in: First version without the feature, as ``major.minor.patch``.
        stacklevel: Number of frames from this function to the line to report. The default 2 reports the line that calls
            the deprecated function.
    """
    message = f"{old} is deprecated and will be removed in scapo {removed_in}; use {instead}"
    warnings.warn(message, ScapoDeprecationWarning, stacklevel=stacklevel + 1)
