"""``scapo-eval augmented PLAIN AUGMENTED...``: what a description in the prompt gains (the paper's Table 4)."""

from __future__ import annotations

import click

from ..benchmarks.augmented import augmented_runs
from ..benchmarks.yesno import YesNoBenchmark
from ..results.benchmark import benchmarks
from .emit import emit
from .files import INPUT, named_files
from .options import Output, output_options

BENCHMARKS = ("amber", *(each.name for each in benchmarks() if isinstance(each, YesNoBenchmark)))


@click.command("augmented")
@click.argument("answers", type=INPUT, nargs=-1, required=True, metavar="PLAIN AUGMENTED...")
@click.option("--benchmark", type=click.Choice(BENCHMARKS), default="amber", show_default=True, help="What was asked.")
@click.option("--data", type=INPUT, metavar="PATH", help="amber: the repository's checkout; phd: data.json.")
@click.option("--questions", type=INPUT, multiple=True, metavar="FILE", help="pope, yesno: files of questions.")
@click.option("--parser", "parser_name", metavar="NAME", help="Whose rule reads yes or no.  [default: the benchmark's]")
@output_options
def command(
    answers: tuple[str, ...],
    benchmark: str,
    data: str | None,
    questions: tuple[str, ...],
    parser_name: str | None,
    output: Output,
) -> int:
    """Accuracy, precision, recall and F1 of plain against description-augmented answers, with paired tests.

    The first file is the baseline, for example: base.jsonl base_described.jsonl ours_described.jsonl. AMBER's positive
    class is "no", that of the others "yes". The published discriminative values of SCAPO are description-augmented:
    set your own beside them only if they are.
    """
    if len(answers) < 2:
        raise click.UsageError("give the plain answers, then augmented ones")
    if benchmark == "amber" and data is None:
        raise click.UsageError("--benchmark amber needs --data, a checkout of AMBER's repository")
    named = dict(named_files(answers))
    truth = questions or ((data,) if data else ())
    runs = augmented_runs(
        benchmark, named, truth, parser_name=parser_name, resampling=output.resampling, warn=output.warn
    )
    return emit(runs, output)
