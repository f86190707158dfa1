"""Context of all commands, whose help pages do not break lines at hyphens."""

from __future__ import annotations

from collections.abc import Iterable

import click

_UNBROKEN = "\N{NON-BREAKING HYPHEN}"


class _Formatter(click.HelpFormatter):
    """Formatter of help pages that wraps lines only at spaces, so that the names of options stay whole."""

    def write_text(self, text: str) -> None:
        """Writes a wrapped text."""
        super().write_text(text.replace("-", _UNBROKEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Writes terms with their wrapped descriptions."""
        super().write_dl([(term, text.replace("-", _UNBROKEN)) for term, text in rows], col_max, col_spacing)

    def write(self, string: str) -> None:
        """Adds a text to the page."""
        super().write(string.replace(_UNBROKEN, "-"))


class Context(click.Context):
    """Context of all commands."""

    formatter_class = _Formatter
