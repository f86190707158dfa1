"""``scapo-eval pope ANSWERS --questions coco_pope_*.json``: POPE, over all questions and per category."""

from __future__ import annotations

from typing import Any

import click

from ..metrics.pope import pope_metric, read_pope, read_pope_questions
from ..metrics.yesno import part_of
from .common import Output, output_options
from .yesno import apart, reading_options, score


@click.command("pope")
@click.argument("answers", nargs=-1, required=True)
@click.option(
    "--questions",
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
    answers, questions = apart(answers, questions)
    truth = read_pope_questions(questions) if questions else None
    return score(answers, truth, read_pope, pope_metric, part_of, output, **reading)
