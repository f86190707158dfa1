"""Warnings about deprecated names. ``docs/stability.md`` describes the deprecation policy."""

from __future__ import annotations

import warnings


class ScapoDeprecationWarning(FutureWarning):
    """A warning about a feature that a later version will remove. Unlike a DeprecationWarning, this warning is shown by
    default.
    """


def warn_deprecated(old: str, *, instead: str, removed_in: str, stacklevel: int = 2) -> None:
    """Issues a deprecation warning for the line that uses a deprecated feature.

    Deprecated options and commands use click's parameter ``deprecated=`` with the same wording.

    Args:
        old: Deprecated feature in the user's notation, such as ``AliasMatcher(watch=...)``.
        instead: Replacement for the deprecated feature, in the same notation as ``old``.
        removed_in: First version without the feature, as ``major.minor.patch``.
        stacklevel: Number of stack frames between this function and the line that the warning names. With the default
            of 2, the warning names the line that calls the deprecated function.
    """
    message = f"{old} is deprecated and will be removed in scapo {removed_in}; use {instead}"
    warnings.warn(message, ScapoDeprecationWarning, stacklevel=stacklevel + 1)
