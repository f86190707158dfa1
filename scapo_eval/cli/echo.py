"""Output of unformatted text to the terminal. Control characters in captions, ids and file names are escaped."""

from __future__ import annotations

import click

from ..base.errors import in_short
from ..base.text import printable


def echo(message: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a text with escaped control characters. Control characters are also escaped in a pipe, because the last
    command of a pipe often prints to a terminal.

    Args:
        message: Text to print. Bytes (JSON) are written unchanged.
        err: True to print to standard error.
        nl: True to print a line break at the end.
    """
    if isinstance(message, str):
        message = printable(message)
        if err:
            message = "\n".join(map(in_short, message.split("\n")))
    click.echo(message, err=err, nl=nl)
