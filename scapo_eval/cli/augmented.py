"""``scapo-eval augmented PLAIN AUGMENTED...``: what a description in the prompt gains (the paper's Table 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import click

from ..answers import PARSERS, parser
from ..errors import InputError
from ..io.files import display_name, iter_records
from ..metrics.amber import ANSWERS, Amber, AmberData, read_responses
from ..metrics.phd import read_phd, read_phd_answers
from ..metrics.pope import read_pope, read_pope_questions
from ..metrics.questions import read_questions
from ..metrics.yesno import part_of, read_yesno, systems, yesno_metric
from ..results import System
from .common import Output, emit, output_options, system_names

BENCHMARKS = ("amber", "phd", "pope", "yesno")
FIGURES = ("accuracy", "precision", "recall", "f1")


@click.command("augmented")
@click.argument("answers", nargs=-1, required=True, metavar="PLAIN AUGMENTED...")
@click.option("--benchmark", type=click.Choice(BENCHMARKS), default="amber", show_default=True, help="What was asked.")
@click.option("--data", metavar="PATH", help="amber: the repository's checkout; phd: data.json.")
@click.option("--questions", multiple=True, metavar="FILE", help="pope, yesno: files of questions.")
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
    class is "no", that of the others "yes". The published discriminative figures of SCAPO are description-augmented:
    set your own beside them only if they are.
    """
    if len(answers) < 2:
        raise click.UsageError("give the plain answers, then augmented ones")
    names = system_names(answers)
    if benchmark == "amber":
        if data is None:
            raise click.UsageError("--benchmark amber needs --data, a checkout of AMBER's repository")
        found = _amber(answers, names, data, parser_name, output)
    else:
        found = _yesno(answers, names, benchmark, data, questions, parser_name or "default", output)
    described = [_described(path) for path in answers]
    if described[0] and not all(described):
        output.warn(f"{names[0]} is the baseline, and it is the augmented one: put the plain answers first")
    elif not any(described[1:]):
        output.warn("no file after the first says that its answers had a description (field 'description')")
    shown = [
        replace(system, notes=(*system.notes, *_note(augmented)))
        for system, augmented in zip(found, described, strict=True)
    ]
    return emit(shown, output)


def _note(augmented: bool) -> tuple[str, ...]:
    return (
        ("answers with a description in the prompt (as SCAPO's published discriminative figures)",) if augmented else ()
    )


def _amber(
    paths: Sequence[str], names: Sequence[str], data: str, parser_name: str | None, output: Output
) -> list[System]:
    if parser_name is not None and parser_name not in ANSWERS:
        raise InputError(f"no parser {parser_name!r} for amber; there are {', '.join(ANSWERS)}")
    benchmark = AmberData.load(data)
    scorer = Amber(benchmark, answers=parser_name)
    found = []
    for path, name in zip(paths, names, strict=True):
        run = scorer.score(read_responses(path, benchmark), name, resamples=output.resamples, seed=output.seed)
        found.append(_reduced(run.system))
    return found


def _yesno(
    paths: Sequence[str],
    names: Sequence[str],
    benchmark: str,
    data: str | None,
    questions: Sequence[str],
    parser_name: str,
    output: Output,
) -> list[System]:
    if parser_name not in PARSERS:
        raise InputError(f"no parser {parser_name!r}; there are {', '.join(PARSERS)}")
    parse = parser(parser_name)
    if benchmark == "phd":
        read, truth = read_phd_answers, read_phd(data) if data else None
    elif benchmark == "pope":
        read, truth = read_pope, read_pope_questions(questions) if questions else None
    else:
        read, truth = read_yesno, [each for path in questions for each in read_questions(path)] or None
    runs = {name: read(path, truth, parse, warn=output.warn) for name, path in zip(names, paths, strict=True)}
    made = systems(runs, yesno_metric, part_of, parser=parser_name, resamples=output.resamples, seed=output.seed)
    return [_reduced(system) for system in made]


def _reduced(system: System) -> System:
    """The system with the figures of the paper's Table 4 only."""
    metric = replace(
        system.metric,
        formulas={name: system.metric.formulas[name] for name in FIGURES},
        higher_is_better=dict.fromkeys(FIGURES, True),
    )
    printed = {name: value for name, value in system.printed.items() if name in FIGURES}
    return replace(system, metric=metric, printed=printed)


def _described(path: str) -> bool:
    """Whether answers of the file say that a description stood in their prompts."""
    records: Iterable[dict[str, object]] = (record for _, record in iter_records(path, on_error=lambda error: None))
    if display_name(path) == "<stdin>":
        raise InputError("augmented reads files, not standard input")
    return any(record.get("description") for record in records)
