"""Files on the command line: an output that is an input, or another output, is refused before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..files.files import STDIN, refuse_replacing
from ..results.results import system_names

_INPUTS, _OUTPUTS = f"{__name__}.inputs", f"{__name__}.outputs"


class _File(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A file name; every one of a command line is known to the others through the context."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of files, from the shell."""
        return [CompletionItem(incomplete, type="file")]

    def _seen(self, ctx: click.Context | None, own: str, path: str) -> None:
        if ctx is None or ctx.resilient_parsing or path == STDIN:
            return
        ctx.meta.setdefault(own, []).append(path)
        refuse_replacing(outputs=ctx.meta.get(_OUTPUTS, ()), inputs=ctx.meta.get(_INPUTS, ()))


class InputFile(_File):
    """A file (or the name of something that is shipped) that is read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as it is; with ``NAME=FILE`` it is FILE that is read."""
        self._seen(ctx, _INPUTS, split_name(str(value))[1])
        return value


class OutputFile(_File):
    """A file that is written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as it is."""
        self._seen(ctx, _OUTPUTS, str(value))
        return value


INPUT, OUTPUT = InputFile(), OutputFile()


def split_name(argument: str) -> tuple[str | None, str]:
    """``NAME=FILE`` as name and file; an existing file of that very name is a file."""
    name, equals, path = argument.partition("=")
    if not equals or not name or not path or Path(argument).exists():
        return None, argument
    return name, path


def named_files(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Name of the system and file of each argument; without ``NAME=`` the file's name gives it.

    Raises:
        click.UsageError: two systems have one name.
    """
    split = [split_name(argument) for argument in arguments]
    short = iter(system_names([path for name, path in split if name is None]))
    found = [(name if name is not None else next(short), path) for name, path in split]
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"system '{name}' appears twice; name one of them: OTHER=FILE")
    return found
