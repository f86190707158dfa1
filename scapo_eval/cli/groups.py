"""Groups of verbs with complete lines on their help pages."""

from __future__ import annotations

import click

_WHOLE = 10_000  # maximum length of a help line, so that no line is cut


class Group(click.Group):
    """Group whose help page wraps the lines of its verbs instead of cutting them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of verbs."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if command is not None]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)
