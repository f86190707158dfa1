"""The one way in which plain text reaches the terminal: what captions, ids and file names hold cannot steer it."""

from __future__ import annotations

import click

from ..base.errors import in_short
from ..base.text import printable


def echo(message: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a text; control characters are shown as escapes, in a pipe, too, which often ends on a terminal.

    Args:
        message: the text; bytes (JSON) go out as they are.
        err: to standard error.
        nl: with a line end.
    """
    if isinstance(message, str):
        message = printable(message)
        if err:
            message = "\n".join(map(in_short, message.split("\n")))
    click.echo(message, err=err, nl=nl)
