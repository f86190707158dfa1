"""``scapo-eval compare``: compares systems, given their results files or (with ``--benchmark``) their raw files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from ..base.errors import InputError
from ..results.benchmark import benchmarks
from ..results.results import NotResults, Run
from .base import Verb, misplaced
from .common import completing
from .emit import emit
from .files import INPUT
from .options import Output, output_options
from .show import runs_of
from .verbs import command_of

SETS = {benchmark.verb: benchmark for benchmark in benchmarks() if benchmark.several and benchmark.metric_set}
"""Verb -> benchmark, for verbs that score several raw files and compare them with the first."""

VERBS = tuple(SETS)


class Compare(Verb):
    """Implementation of ``compare``, which passes its arguments to the command of the benchmark that ``--benchmark``
    names. The benchmark's own command parses all other arguments.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the context of the command of the benchmark that ``--benchmark`` names, or the context of ``compare``
        without this option. The benchmark's command requires at least two files.
        """
        # also for shell completion of that verb
        benchmark, rest = _take_benchmark(args, lenient=bool(extra.get("resilient_parsing")))
        if benchmark is None:
            given = [*args]
            try:
                return super().make_context(info_name, args, parent, **extra)
            except click.NoSuchOption as error:
                if not any(error.option_name in option.opts for option in command_of(SETS["score"]).params):
                    raise
                scoring = shlex.join(["scapo-eval", "compare", "--benchmark", "score", *given])
                reason = f"{error.option_name} is an option for captions; to score and compare them: {scoring}"
                raise click.UsageError(reason, error.ctx) from None
        again, without = _take_benchmark(rest, lenient=bool(extra.get("resilient_parsing")))
        if again not in (None, benchmark):
            raise click.UsageError(f"--benchmark accepts one value, and is given 2: {benchmark}, {again}")
        rest = without
        command = command_of(SETS[benchmark])
        context = command.make_context(f"{info_name} --benchmark {benchmark}", [*rest], parent, **extra)
        files = next(parameter.name for parameter in command.params if isinstance(parameter, click.Argument))
        if not context.resilient_parsing and len(context.params[files or ""]) < 2:
            words = (misplaced(context) or ("", "", rest))[2]
            scoring = shlex.join(["scapo-eval", benchmark, *words])
            raise click.UsageError(f"only one file, so there is nothing to compare; to score it: {scoring}", context)
        return context


def _take_benchmark(args: Sequence[str], *, lenient: bool) -> tuple[str | None, list[str]]:
    """Returns the value of ``--benchmark``, and the remaining arguments. An unknown value is an error, except while the
    shell completes it.
    """
    for k, word in enumerate(args):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option == "--benchmark":
            value = value if equals else "".join(args[k + 1 : k + 2])
            if lenient and value not in VERBS:
                break
            if value not in VERBS:
                reason = f"unknown benchmark '{value}'" if value else "--benchmark requires a name"
                raise click.UsageError(f"{reason}; --benchmark accepts {', '.join(VERBS)}")
            return value, [*args[:k], *args[k + (1 if equals else 2) :]]
    return None, list(args)


@click.command("compare", cls=Compare)
@click.argument("results", type=INPUT, nargs=-1, required=True)
@click.option(
    "--benchmark",
    metavar="NAME",
    expose_value=False,
    shell_complete=completing(lambda ctx: VERBS),
    help=f"Compare captions or answers themselves: {', '.join(VERBS)}. Accepts that verb's options, too.",
)
@output_options
def command(results: tuple[str, ...], output: Output) -> int:
    """Compares systems with the first system, which is the baseline.

    RESULTS are results files, which a scoring verb writes with -o. With --benchmark NAME, give the raw files that the
    verb NAME scores, and the options of this verb, for example: compare a.jsonl b.jsonl --benchmark chair --truth
    truth.json
    """
    runs = _runs_of(results, output)
    if len(runs) < 2:
        raise click.UsageError(
            "only one system, so there is nothing to compare; use several results files, or one with several systems; "
            f"to show it: scapo-eval show {results[0]}"
        )
    return emit(runs, output)


def _runs_of(results: Sequence[str], output: Output) -> list[Run]:
    """Reads runs from results files, as :func:`~scapo_eval.cli.show.runs_of` does. If a file is of another kind, the
    error message suggests the appropriate command.
    """
    try:
        return runs_of(results, output)
    except NotResults as error:
        reason, semicolon, advice = error.reason.partition("; ")
        hint = f"compare captions or answers with --benchmark NAME ({', '.join(VERBS)})"
        raise InputError(f"{reason}; {hint}{semicolon}{advice}", path=error.path) from None
