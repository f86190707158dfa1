"""Writes docs/cli.md with all commands, arguments and options: python benchmarks/cli_page.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import click

from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.cli.cluster import Cluster
from scapo_eval.cli.main import GROUPS, cli
from scapo_eval.cli.options import Output

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

HEAD = """\
# Command line

<!-- Made by benchmarks/cli_page.py from the command line itself; a test holds the two equal. -->

`scapo-eval FILE...` without a verb scores captions (`score`), or does what the [kind of file](data.md) calls for. `scapo-eval VERB --help` prints what stands here. Exit codes: 0, done; 2, the input or the command cannot be used, with the reason on standard error; 3, a bound of `--fail-under` or `--fail-above` is not kept; 4, some items failed (`describe`, `answer`, `judge`, `annotate`); 130, interrupted.
"""

COMMON = ("max_decoded", "guard_cells")
"""Options of all commands, which are listed only once."""

SHARED = {field.name for record in (Output, ScoringOptions, Cluster) for field in fields(record)}
"""Options of all scoring commands, which are listed only once."""


def page() -> str:
    """Returns the page."""
    top = click.Context(cli, info_name="scapo-eval")
    parts = [HEAD]
    for heading, verbs in GROUPS.items():
        parts.append(f"## {heading}\n")
        for verb in verbs:
            command = cli.get_command(top, verb)
            assert command is not None
            parts.extend(section(command, click.Context(command, info_name=verb, parent=top), 3))
    common = cli.get_command(top, "score")
    assert common is not None
    options = [option for option in common.params if option.name in COMMON]
    shared = [option for option in common.params if option.name in SHARED]
    parts += ["## Options of scoring\n", table(shared, click.Context(common, info_name="score", parent=top))]
    parts += ["## Options of every verb\n", table(options, click.Context(common, info_name="score", parent=top))]
    return "\n".join(parts)


def section(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yields the parts of one command, including its subcommands."""
    yield f"{'#' * level} {context.command_path.removeprefix('scapo-eval ')}\n"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {pieces}\n```\n"
    yield "\n\n".join(" ".join(text.split()) for text in (command.help or "").split("\n\n")) + "\n"
    options = [option for option in command.params if option.name not in COMMON]
    elsewhere = [option for option in options if option.name in SHARED and told(option, context) in shared_rows()]
    if written := table([option for option in options if option not in elsewhere], context):
        yield written
    if elsewhere:
        names = ", ".join(f"`{option.opts[-1]}`" for option in elsewhere)
        yield f"Also, as in [options of scoring](#options-of-scoring): {names}.\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from section(inner, click.Context(inner, info_name=name, parent=context), level + 1)


@cache
def shared_rows() -> frozenset[tuple[str, str] | None]:
    """Returns the rows of the common scoring options."""
    top = click.Context(cli, info_name="scapo-eval")
    score = cli.get_command(top, "score")
    assert score is not None
    context = click.Context(score, info_name="score", parent=top)
    return frozenset(told(option, context) for option in score.params if option.name in SHARED)


def told(option: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Returns an option and its help text, or None for a hidden option."""
    return option.get_help_record(context)


def table(options: list[click.Parameter], context: click.Context) -> str:
    """Returns a table of options with their help texts. Empty if there are no options."""
    records = [record for option in options if (record := told(option, context)) is not None]
    if not records:
        return ""
    rows = [f"| `{cell(flag)}` | {cell(text)} |" for flag, text in records]
    return "\n".join(["| option | |", "|---|---|", *rows]) + "\n"


def cell(text: str) -> str:
    """Returns a text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
