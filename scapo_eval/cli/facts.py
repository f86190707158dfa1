"""``scapo-eval facts VERDICTS``: DCScore and CAPEval's values from verdicts on the claims of descriptions."""

from __future__ import annotations

import click

from ..benchmarks.facts import facts_run, read_descriptions
from .emit import emit
from .files import INPUT, named_files
from .options import Output, output_options


@click.command("facts")
@click.argument("verdicts", type=INPUT, nargs=-1, required=True)
@output_options
def command(verdicts: tuple[str, ...], output: Output) -> int:
    """Scores the claims of descriptions: precision, recall, F1, DCScore, CAPEval's C and P.

    VERDICTS are what scapo-eval judge facts wrote (claims, verified, matched, references, answers), files of facts
    (facts, verified), or DeCapBench's output (a file, or its folder); several are compared with the first.
    """
    runs = [
        facts_run(name, read_descriptions(path, warn=output.warn), output.resampling)
        for name, path in named_files(verdicts)
    ]
    return emit(runs, output)
