"""Options that all commands share: the size limit for files, and the protection of table cells that a spreadsheet would
treat as formulas. Also the shell completion of names, and the word ``help``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..base.text import guard_cells
from ..files.limits import limit_decoded

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
"""Function that returns the values of a parameter that complete a text."""


def completing(names: Callable[[click.Context], Iterable[str]]) -> Completion:
    """Returns a completion of names, including the last name in a comma-separated list. For options that set a bound
    (``METRIC=VALUE``), ``=`` is appended.

    Args:
        names: Function that returns all names for the context of the command.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",")
        end = "=" if "=" in str(param.metavar) else ""
        return [CompletionItem(f"{before}{comma}{name}{end}") for name in names(ctx) if name.startswith(begun)]

    return complete


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


class _Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Parameter type for a number of bytes: ``8GiB``, ``500M``, ``1000000``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Converts a text such as ``8GiB`` to a number of bytes."""
        match = _SIZE.fullmatch(str(value).strip())
        if match is None or not float(match[1]):
            self.fail(f"expected a size such as 8GiB, got {value!r}", param, ctx)
        return int(float(match[1]) * _UNITS[match[2].lower()])


def add_common_options(command: click.Command) -> None:
    """Adds the common options to a command, or to each command in a group, unless they are already present."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_common_options(inner)
    elif not any(option.name == "max_decoded" for option in command.params):
        command.params += [
            click.Option(
                ["--max-decoded"], type=_Size(), metavar="SIZE", expose_value=False, is_eager=True,
                callback=_setting(limit_decoded),
                help="Size limit for files that are read as a whole, after decompression.  [default: 4GiB; for "
                "compressed files 50 times their size, or 32MiB]",
            ),
            click.Option(
                ["--guard-cells/--plain-cells"], default=True, expose_value=False, is_eager=True,
                callback=_setting(guard_cells),
                help="In CSV and TSV, put ' before texts that a spreadsheet would treat as formulas.  [default: "
                "guard]",
            ),
        ]  # fmt: skip


def _setting(set_: Callable[[Any], None]) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Returns a callback that applies the value of an option, or its default, to this process."""
    return lambda ctx, param, value: None if ctx.resilient_parsing else set_(value)


def with_help(args: Sequence[str]) -> list[str]:
    """Returns the words of a command line, in which ``help`` as the first word is replaced with ``--help`` at the end,
    unless there is a file called ``help``.
    """
    asked = bool(args) and args[0] == "help" and not Path("help").exists()
    return [*args[1:], "--help"] if asked else list(args)
