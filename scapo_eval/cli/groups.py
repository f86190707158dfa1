"""Groups of commands whose help pages show complete lines."""

from __future__ import annotations

import click

_WHOLE = 10_000  # maximum length of a help line, so that no line is cut


class Group(click.Group):
    """Group of commands whose help page wraps the line of each command instead of truncating it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands on the help page."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if command is not None]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)
