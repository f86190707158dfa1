"""Groups of commands, whose help pages show complete lines and whose messages list the commands."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from .base import Verb
from .common import with_help
from .context import Context

_WHOLE = 10_000  # maximum length of a help line, so that no line is cut
_FOR_FILES = ("check", "status")
"""Commands that are suggested for a file without a command."""


class Group(click.Group):
    """Group of commands whose help page wraps the line of each command instead of truncating it."""

    command_class = Verb
    context_class = Context

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands on the help page."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if command is not None]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line. The word ``help`` is equivalent to ``--help``."""
        return super().parse_args(ctx, with_help(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the name of the command, the command, and its arguments.

        Raises:
            click.UsageError: If the command is unknown. The message lists all commands.
        """
        word, names = args[0], self.list_commands(ctx)
        if ctx.resilient_parsing or word.startswith("-") or word in names:
            return super().resolve_command(ctx, args)
        listed = f"{ctx.command_path} has the verbs {', '.join(names)}"
        if Path(word).exists():
            example = next(
                (f"; for example: {ctx.command_path} {name} {word}" for name in _FOR_FILES if name in names), ""
            )
            raise click.UsageError(f"a verb is missing before the file '{word}': {listed}{example}", ctx)
        close = difflib.get_close_matches(word, names, n=1)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        raise click.UsageError(f"no such verb '{word}': {listed}{meant}", ctx)
