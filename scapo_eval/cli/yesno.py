"""``scapo-eval yesno ANSWERS``: accuracy, precision, recall, F1 and yes ratio of any yes/no answers.

Also what ``pope`` and ``phd`` share with it: the options that say how answers are read, and the scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import click

from ..answers import PARSERS, Parser, parser
from ..io.containers import Warn
from ..io.files import STDIN, atomic_write, dump_json
from ..io.formats import recognise
from ..metric import MetricSet
from ..metrics.join import Graded, Run
from ..metrics.questions import Question, read_questions
from ..metrics.yesno import GroupOf, Unparsed, part_of, read_yesno, systems, yesno_metric
from .common import Command, Output, emit, output_options, system_names

QUESTIONS_LAYOUT = "questions"


class ReadRun(Protocol):
    """Reads and joins one file of answers."""

    def __call__(  # noqa: D102
        self, path: str, questions: Sequence[Question] | None, parse: Parser, *, model: str | None, warn: Warn
    ) -> Run: ...


def reading_options(command: Command) -> Command:
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
        click.option(
            "--unparsed",
            type=click.Choice(["wrong", "drop"]),
            default="wrong",
            show_default=True,
            help="An answer that says neither is wrong, or left out of every figure.",
        ),
        click.option("--model", metavar="NAME", help="The model to score where a file mixes several."),
        click.option("--per-answer", metavar="FILE", help="Write what each answer says as JSON Lines (one file only)."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("yesno")
@click.argument("answers", nargs=-1, required=True)
@click.option(
    "--questions", "--labels", multiple=True, metavar="FILE", help="Ids and labels; without it the answers' own labels."
)
@reading_options
@output_options
def command(answers: tuple[str, ...], questions: tuple[str, ...], output: Output, **reading: Any) -> int:
    """Scores yes/no answers by the labels of their questions; several files are compared with the first.

    ANSWERS are own JSON Lines (id, response) or files of lmms-eval, VLMEvalKit, LLaVA, verl, TRL.
    """
    answers, questions = apart(answers, questions)
    truth = [question for path in questions for question in read_questions(path)] if questions else None
    return score(answers, truth, read_yesno, yesno_metric, part_of, output, **reading)


def apart(answers: tuple[str, ...], questions: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Answers and question files, for ``--questions a.json b.json``: the shell's list ends up among the answers."""
    if not questions:
        return answers, questions
    moved = tuple(path for path in answers if path != STDIN and recognise(path).name == QUESTIONS_LAYOUT)
    rest = tuple(path for path in answers if path not in moved)
    if not rest:
        raise click.UsageError("no answers: every file given holds questions")
    return rest, (*questions, *moved)


def score(
    paths: Sequence[str],
    questions: Sequence[Question] | None,
    read: ReadRun,
    metric_of: Callable[[Sequence[str]], MetricSet],
    group_of: GroupOf,
    output: Output,
    *,
    parser_name: str,
    yes_words: tuple[str, ...],
    no_words: tuple[str, ...],
    unparsed: Unparsed,
    model: str | None,
    per_answer: str | None,
) -> int:
    """Reads, joins, counts and shows; returns the exit code."""
    if per_answer and len(paths) > 1:
        raise click.UsageError("--per-answer takes one file of answers at a time")
    parse = parser(parser_name, yes=yes_words, no=no_words)
    named = system_names(paths)
    runs = {
        name: read(path, questions, parse, model=model, warn=output.warn)
        for name, path in zip(named, paths, strict=True)
    }
    if per_answer:
        with atomic_write(per_answer) as stream:
            stream.writelines(dump_json(record) + b"\n" for record in evidence(runs[named[0]].graded))
    words = "".join(f"+{word}={said}" for said, given in (("yes", yes_words), ("no", no_words)) for word in given)
    return emit(
        systems(
            runs,
            metric_of,
            group_of,
            parser=parser_name + words,
            unparsed=unparsed,
            resamples=output.resamples,
            seed=output.seed,
        ),
        output,
    )


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
