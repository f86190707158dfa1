"""``scapo-eval compare``: systems side by side, from results files or (``--benchmark``) from what they were made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..base.errors import InputError
from ..results.benchmark import benchmarks
from ..results.results import NotResults, Run
from .emit import emit
from .files import INPUT
from .options import Output, output_options
from .show import runs_of
from .verbs import command_of

SETS = {benchmark.verb: benchmark for benchmark in benchmarks() if benchmark.several and benchmark.metric_set}
"""Verbs that score several raw files and compare them with the first, and their benchmarks."""

VERBS = tuple(SETS)


class Compare(click.Command):
    """Becomes the verb that ``--benchmark`` names, wherever that option stands; the rest is that verb's to parse."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the verb's own context, with at least two files, or that of ``compare`` for results files."""
        benchmark, rest = _take_benchmark(args)  # also while the shell completes: the options are that verb's
        if benchmark is None:
            return super().make_context(info_name, args, parent, **extra)
        command = command_of(SETS[benchmark])
        context = command.make_context(f"{info_name} --benchmark {benchmark}", rest, parent, **extra)
        files = next(parameter.name for parameter in command.params if isinstance(parameter, click.Argument))
        if len(context.params[files or ""]) < 2 and not context.resilient_parsing:
            raise click.UsageError(f"one file is nothing to compare; to score it: scapo-eval {benchmark}", context)
        return context


def _take_benchmark(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the value of ``--benchmark``, and the arguments without it."""
    for k, word in enumerate(args):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option == "--benchmark":
            value = value if equals else "".join(args[k + 1 : k + 2])
            if value not in VERBS:
                raise click.UsageError(f"unknown benchmark '{value}'; --benchmark takes one of {', '.join(VERBS)}")
            return value, [*args[:k], *args[k + (1 if equals else 2) :]]
    return None, list(args)


@click.command("compare", cls=Compare)
@click.argument("results", type=INPUT, nargs=-1, required=True)
@click.option(
    "--benchmark",
    metavar="NAME",
    expose_value=False,
    help=f"Compare captions or answers themselves: {', '.join(VERBS)}. Takes that verb's options, too.",
)
@output_options
def command(results: tuple[str, ...], output: Output) -> int:
    """Compares systems; the first is the baseline.

    RESULTS are results files (written by -o of a scoring verb); with --benchmark NAME they are the files that
    the verb NAME scores, followed by its options, for example: compare a.jsonl b.jsonl --benchmark chair
    --truth truth.json
    """
    runs = _runs_of(results, output)
    if len(runs) < 2:
        raise click.UsageError(
            "one system is nothing to compare; give several results files, or one with several systems; "
            f"to show it: scapo-eval show {results[0]}"
        )
    return emit(runs, output)


def _runs_of(results: Sequence[str], output: Output) -> list[Run]:
    """Reads runs as :func:`~scapo_eval.cli.show.runs_of`; the error for another kind of file names its command."""
    try:
        return runs_of(results, output)
    except NotResults as error:
        hint = f"compare captions or answers with --benchmark NAME ({', '.join(VERBS)})"
        reason = f"{error.reason}; {hint}, or write results files with -o of that verb first"
        raise InputError(reason, path=error.path) from None
