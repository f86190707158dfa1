"""``scapo-eval hallusionbench ANSWERS --questions HallusionBench.json``: accuracy per question, figure and pair."""

from __future__ import annotations

from typing import get_args

import click

from ..benchmarks.hallusionbench import (
    BENCHMARK,
    TextOnly,
    hallusionbench_runs,
    is_right,
    read_hallusionbench,
    read_questions,
)
from ..readers.parsers import parser, parser_identity
from .cluster import Cluster, cluster_options
from .emit import emit
from .files import INPUT, named_files
from .options import Output, evidence_file, output_options
from .yesno import evidence, on_engine, parsing_options, sorted_out


@click.command("hallusionbench")
@click.argument("answers", type=INPUT, nargs=-1, required=True)
@click.option(
    "--questions",
    type=INPUT,
    multiple=True,
    metavar="FILE",
    help="HallusionBench.json; without it the answers' own labels.",
)
@click.option(
    "--text-only",
    type=click.Choice(get_args(TextOnly)),
    default="auto",
    show_default=True,
    help="Questions asked without a figure: in (1,129 questions), out (951), or in if any is answered.",
)
@cluster_options
@parsing_options
@output_options
def command(
    answers: tuple[str, ...],
    questions: tuple[str, ...],
    text_only: TextOnly,
    parser_name: str,
    yes_words: tuple[str, ...],
    no_words: tuple[str, ...],
    model: str | None,
    per_answer: str | None,
    cluster: Cluster,
    output: Output,
) -> int:
    """Scores HallusionBench answers per question, figure and pair; several files are compared with the first.

    ANSWERS are the official result file (model_prediction), VLMEvalKit's or lmms-eval's predictions, or own JSON
    Lines with ids such as VD/illusion/1/0/0/0.
    """
    paths, questions = sorted_out(answers, questions)
    if per_answer and len(paths) > 1:
        raise click.UsageError("--per-answer takes one file of answers at a time")
    if cluster.engine:
        words = {"yes": yes_words, "no": no_words, "parser": parser_name, "model": model, "text_only": text_only}
        return emit(on_engine(BENCHMARK, paths, questions, output, cluster, per_answer, **words), output)
    parse = parser(parser_name, yes=yes_words, no=no_words)
    truth = read_questions(questions) if questions else None
    found = {
        name: read_hallusionbench(path, truth, parse, text_only=text_only, model=model, warn=output.warn)
        for name, path in named_files(paths)
    }
    with evidence_file(per_answer) as write:
        if write:
            graded = next(iter(found.values())).graded
            write({**record, "correct": is_right(item)} for record, item in zip(evidence(graded), graded, strict=True))
    identity = parser_identity(parser_name, yes=yes_words, no=no_words)
    return emit(hallusionbench_runs(found, parser=identity, resampling=output.resampling), output)
