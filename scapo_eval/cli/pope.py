"""``scapo-eval pope ANSWERS --questions coco_pope_*.json``: POPE, over all questions and per category."""

from __future__ import annotations

from typing import Any

import click

from ..benchmarks.pope import BENCHMARK
from .files import INPUT
from .options import Output, output_options
from .yesno import reading_options, score, sorted_out


@click.command("pope")
@click.argument("answers", type=INPUT, nargs=-1, required=True)
@click.option(
    "--questions",
    type=INPUT,
    multiple=True,
    metavar="FILE...",
    help="POPE's question files, one per category; without them the answers' own labels.",
)
@reading_options
@output_options
def command(answers: tuple[str, ...], questions: tuple[str, ...], output: Output, **reading: Any) -> int:
    """Scores POPE answers; several files are compared with the first.

    ANSWERS are own JSON Lines, POPE's own answers, or files of LLaVA, lmms-eval, VLMEvalKit.
    """
    return score(BENCHMARK, *sorted_out(answers, questions), output, **reading)
