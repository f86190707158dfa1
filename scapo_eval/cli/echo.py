"""Output of unformatted text to the terminal, in which control characters of captions, ids and file names are
escaped.
"""

from __future__ import annotations

import click

from ..base.errors import in_short
from ..base.text import printable


def echo(message: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a text with escaped control characters, also into a pipe, whose end is often a terminal.

    Args:
        message: Text to print. Bytes (JSON) are written unchanged.
        err: True for standard error.
        nl: True to append a line end.
    """
    if isinstance(message, str):
        message = printable(message)
        if err:
            message = "\n".join(map(in_short, message.split("\n")))
    click.echo(message, err=err, nl=nl)
