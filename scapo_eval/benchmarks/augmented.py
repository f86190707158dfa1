"""Plain against description-augmented answers (the paper's Table 4): accuracy, precision, recall, F1 of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..base.errors import InputError
from ..files.containers import Warn, warn_user
from ..files.files import STDIN
from ..files.json_text import iter_records
from ..readers.parsers import PARSERS, parser
from ..results.benchmark import benchmark
from ..results.results import Resampling, Run
from .amber import ANSWERS, Amber, AmberData, read_responses
from .yesno import YesNoBenchmark, part_of, yesno_metrics

METRICS = ("accuracy", "precision", "recall", "f1")

AUGMENTED = "answers with a description in the prompt (as SCAPO's published discriminative values)"


def augmented_runs(
    name: str,
    answers: Mapping[str, str],
    truth: Sequence[str],
    *,
    parser_name: str | None = None,
    resampling: Resampling | None = None,
    warn: Warn = warn_user,
) -> list[Run]:
    """The four metrics of each file of answers; runs whose prompts held a description say so in their notes.

    Args:
        name: of the benchmark: ``amber``, or one of yes/no questions.
        answers: system name -> file; the first should be the plain one.
        truth: AMBER's checkout, PhD's data, or files of questions; empty: the answers' own labels.
        parser_name: the rule that reads yes or no; None: the benchmark's own.
        resampling: of the intervals.
        warn: told of a baseline that is not plain, and of damage that does not prevent reading.

    Raises:
        InputError, InputErrors: as the readers do; standard input, which cannot be read twice.
    """
    if STDIN in answers.values():
        raise InputError("augmented reads files, not standard input")
    found = _benchmark_runs(name)(answers, truth, parser_name, resampling or Resampling(), warn)
    described = [_has_description(path) for path in answers.values()]
    if described[0] and not all(described):
        warn(f"{found[0].name} is the baseline, and it is the augmented one: put the plain answers first")
    elif not any(described[1:]):
        warn("no file after the first says that its answers had a description (field 'description')")
    return [
        replace(_reduced(run), notes=(*run.notes, AUGMENTED) if augmented else run.notes)
        for run, augmented in zip(found, described, strict=True)
    ]


_Score = Callable[[Mapping[str, str], Sequence[str], "str | None", Resampling, Warn], "list[Run]"]


def _benchmark_runs(name: str) -> _Score:
    record = benchmark(name)
    return _yesno(record) if isinstance(record, YesNoBenchmark) else _amber


def _amber(
    answers: Mapping[str, str], truth: Sequence[str], parser_name: str | None, resampling: Resampling, warn: Warn
) -> list[Run]:
    if parser_name is not None and parser_name not in ANSWERS:
        raise InputError(f"unknown parser {parser_name!r} for amber; known: {', '.join(ANSWERS)}")
    data = AmberData.load(truth[0])
    scorer = Amber(data, answers=parser_name)
    return [scorer.score(read_responses(path, data), name, resampling=resampling).run for name, path in answers.items()]


def _yesno(record: YesNoBenchmark) -> _Score:
    def runs(
        answers: Mapping[str, str], truth: Sequence[str], parser_name: str | None, resampling: Resampling, warn: Warn
    ) -> list[Run]:
        parser_name = parser_name or "default"
        if parser_name not in PARSERS:
            raise InputError(f"unknown parser {parser_name!r}; known: {', '.join(PARSERS)}")
        questions = record.read_questions(truth) if truth else None
        read = {
            name: record.read_answers(path, questions, parser(parser_name), model=None, warn=warn)
            for name, path in answers.items()
        }
        four = replace(record, metrics_of=yesno_metrics, group_of=part_of)
        return four.runs(read, parser=parser_name, resampling=resampling)

    return runs


def _reduced(run: Run) -> Run:
    """The run with these metrics only."""
    metrics = replace(
        run.metric_set,
        formulas={name: run.metric_set.formulas[name] for name in METRICS},
        higher_is_better=dict.fromkeys(METRICS, True),
    )
    printed = {name: value for name, value in run.printed.items() if name in METRICS}
    return replace(run, metric_set=metrics, printed=printed)


def _has_description(path: str) -> bool:
    """Whether answers of the file say that a description stood in their prompts."""
    return any(record.get("description") for _, record in iter_records(path, on_error=lambda error: None))
