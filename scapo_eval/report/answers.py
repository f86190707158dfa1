"""Answers to questions, for display in the report. The answers have either ratings from a judge, or labels that state
the correct yes/no answers.

For yes/no questions, the prompts of some answers may contain the model's description of the image. For each question,
the page displays a model's original answer and its description-augmented answer side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError
from ..benchmarks.answered import AnsweredQuestion
from ..benchmarks.provenance import benchmark_of
from ..files.containers import Warn
from ..files.source import Input, Source
from ..readers.answers import answers_of
from ..readers.formats import KnownFile, open_layout
from ..results.benchmark import benchmark, benchmarks, find_benchmark
from ..results.results import Resampling, Run

ANSWERS = "answers"
"""Kind of file in which the answers themselves identify their benchmark."""


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """Answers of one system to the questions of a benchmark, with their scores.

    Attributes:
        benchmark: Name of the benchmark.
        name: Name of the system.
        answers: Answers in the order of the file.
    """

    benchmark: str
    name: str
    answers: tuple[AnsweredQuestion, ...]


def answers_in(path: Input, known: KnownFile) -> str | None:
    """Returns the name of the benchmark that the answers in a file belong to, or None for a file of another kind.

    Args:
        path: Path of the file to inspect.
        known: Recognized kind of the file.
    """
    for record in benchmarks():
        if record.view is not None and known.kind.name != ANSWERS and known.kind.name in record.takes:
            return record.name
    if known.layout is None or known.layout.format.answer is None or known.kind.name == "captions":
        return None
    try:
        first = next(answers_of(open_layout(path, warn=lambda text: None)))
    except InputError:
        return None
    if first.label is None:
        return None
    named = find_benchmark(benchmark_of(first) or "")
    return named.name if named and named.view and ANSWERS in named.takes else "yesno"


def read_answer_evidence(
    name: str, files: Mapping[str, Input], resampling: Resampling, warn: Warn
) -> list[tuple[Run, AnswerEvidence]]:
    """Scores the answers of several systems to one benchmark, and returns the answers together with the scores.

    Args:
        name: Name of the benchmark, as returned by :func:`answers_in`.
        files: Mapping from the names of the systems to their files.
        resampling: Settings for the intervals.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If a file cannot be read.
    """
    sources = {system: Source.of(path) for system, path in files.items()}
    for source in sources.values():
        source.keep()  # the answers are read for their values, and again for their texts
    record = benchmark(name)
    assert record.view is not None
    viewed = record.view(sources, resampling, warn)
    return [(run, AnswerEvidence(name, run.name, tuple(answers))) for run, answers in viewed]


def columns_of(evidence: Sequence[AnswerEvidence]) -> list[dict[str, Any]]:
    """Returns the questions of every benchmark and each system's answers to them, in the page's format.

    A missing answer is represented by None.
    """
    made = []
    for name in dict.fromkeys(system.benchmark for system in evidence):
        systems = [system for system in evidence if system.benchmark == name]
        questions: dict[str, AnsweredQuestion] = {}
        for system in systems:
            for case in system.answers:
                questions.setdefault(case.key, case)
        own = [{case.key: case for case in system.answers} for system in systems]
        made.append(
            {
                "set": name,
                "systems": [system.name for system in systems],
                "questions": [_named(question, _QUESTION) for question in questions.values()],
                "answers": [[_named(cases.get(key), _ANSWER) for key in questions] for cases in own],
            }
        )
    return made


_QUESTION = ("image", "part", "question", "truth", "content")
_ANSWER = ("verdict", "right", "response", "description", "judgment")


def _named(case: AnsweredQuestion | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if case is None else {name: getattr(case, name) for name in names}
