"""``scapo-eval yesno ANSWERS``: accuracy, precision, recall, F1 and yes ratio of any yes/no answers.

Also what ``pope`` and ``phd`` share with it: the options that say how answers are read, and the scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click

from ..benchmarks.join import AnsweredBenchmark, Graded
from ..benchmarks.yesno import BENCHMARK, Unparsed, YesNoBenchmark, paired
from ..files.files import STDIN
from ..readers.formats import recognize
from ..readers.parsers import PARSERS, parser, parser_identity
from ..results.results import Run
from .cluster import Cluster, cluster_options
from .emit import emit
from .files import INPUT, OUTPUT, named_files, split_name
from .options import Command, Output, evidence_file, output_options

QUESTIONS_LAYOUT = "questions"


def parsing_options(command: Command) -> Command:
    """Adds the options that say how answers are read."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--parser",
            "parser_name",
            type=click.Choice(list(PARSERS)),
            default="default",
            show_default=True,
            help="Whose rule reads yes or no out of an answer.",
        ),
        click.option("--yes", "yes_words", multiple=True, metavar="WORD", help="A further word for yes (oui, ja...)."),
        click.option("--no", "no_words", multiple=True, metavar="WORD", help="A further word for no (non, nein...)."),
        click.option("--model", metavar="NAME", help="The model to score where a file mixes several."),
        click.option(
            "--per-answer",
            type=OUTPUT,
            metavar="FILE",
            help="Write what each answer says as JSON Lines (one file only).",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def reading_options(command: Command) -> Command:
    """Adds the options that say how answers are read and where, and what becomes of those that say neither."""
    unparsed = click.option(
        "--unparsed",
        type=click.Choice(["wrong", "drop"]),
        default="wrong",
        show_default=True,
        help="An answer that says neither is wrong, or left out of every metric.",
    )
    return parsing_options(unparsed(cluster_options(command)))


@click.command("yesno")
@click.argument("answers", type=INPUT, nargs=-1, required=True)
@click.option(
    "--questions",
    "--labels",
    type=INPUT,
    multiple=True,
    metavar="FILE",
    help="Ids and labels; without it the answers' own labels.",
)
@reading_options
@output_options
def command(answers: tuple[str, ...], questions: tuple[str, ...], output: Output, **reading: Any) -> int:
    """Scores yes/no answers by the labels of their questions; several files are compared with the first.

    ANSWERS are own JSON Lines (id, response) or files of lmms-eval, VLMEvalKit, LLaVA, verl, TRL.
    """
    return score(BENCHMARK, *sorted_out(answers, questions), output, **reading)


def sorted_out(answers: tuple[str, ...], questions: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Answers and question files, for ``--questions a.json b.json``: the shell's list ends up among the answers."""
    if not questions:
        return answers, questions
    moved = tuple(path for path in answers if path != STDIN and recognize(split_name(path)[1]).name == QUESTIONS_LAYOUT)
    rest = tuple(path for path in answers if path not in moved)
    if not rest:
        raise click.UsageError("no answers: every file given holds questions")
    return rest, (*questions, *moved)


def score(
    benchmark: YesNoBenchmark,
    paths: Sequence[str],
    questions: Sequence[str],
    output: Output,
    *,
    parser_name: str,
    yes_words: tuple[str, ...],
    no_words: tuple[str, ...],
    unparsed: Unparsed,
    model: str | None,
    per_answer: str | None,
    cluster: Cluster,
) -> int:
    """Reads, joins, counts and shows; returns the exit code."""
    if per_answer and len(paths) > 1:
        raise click.UsageError("--per-answer takes one file of answers at a time")
    if cluster.engine:
        words = {"yes": yes_words, "no": no_words, "parser": parser_name, "model": model, "unparsed": unparsed}
        return emit(paired(on_engine(benchmark, paths, questions, output, cluster, per_answer, **words)), output)
    parse = parser(parser_name, yes=yes_words, no=no_words)
    truth = benchmark.read_questions(questions) if questions else None
    answers = {
        name: benchmark.read_answers(path, truth, parse, model=model, warn=output.warn)
        for name, path in named_files(paths)
    }
    with evidence_file(per_answer) as write:
        if write:
            write(evidence(next(iter(answers.values())).graded))
    runs = benchmark.runs(
        answers,
        parser=parser_identity(parser_name, yes=yes_words, no=no_words),
        unparsed=unparsed,
        resampling=output.resampling,
    )
    return emit(runs, output)


def on_engine(
    benchmark: AnsweredBenchmark,
    paths: Sequence[str],
    questions: Sequence[str],
    output: Output,
    cluster: Cluster,
    per_answer: str | None,
    **reading: Any,
) -> list[Run]:
    """The runs of all systems, counted on a cluster; ``reading`` as for :meth:`~scapo_eval.distributed.engine.Engine`.

    Raises:
        click.UsageError: no questions, or the evidence of single answers is asked for.
    """
    if per_answer or not questions:
        raise click.UsageError(f"--engine needs {benchmark.truth_option}, and takes no --per-answer")
    from ..distributed import ray

    return cluster.runs(paths, output, partial(ray.answers, benchmark=benchmark.name, questions=questions, **reading))


def evidence(items: Iterable[Graded]) -> Iterable[dict[str, Any]]:
    """Per answer: which question it answers, what it says, and whether that is right."""
    for item in items:
        question = item.question
        record: dict[str, Any] = {
            "line": item.answer.line,
            "id": item.answer.id,
            "image": question.image,
            "category": question.category,
            "mode": question.mode,
            "task": question.task,
            "question": question.prompt or question.text,
            "label": question.label,
            "said": item.said or "unknown",
            "correct": item.correct,
            "response": item.answer.response,
        }
        yield {key: value for key, value in record.items() if value is not None}
