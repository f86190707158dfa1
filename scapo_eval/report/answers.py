"""Answers to questions with what is true of them: a judge's ratings (MMHal-Bench), and yes/no answers with labels.

Yes/no answers may have been given with a description of the image in the prompt: plain and described answers of one
model stand side by side, question by question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import InputError
from ..base.ids import canonical_image_id
from ..benchmarks.augmented import AUGMENTED
from ..benchmarks.join import Graded
from ..benchmarks.judged import judged_records
from ..benchmarks.mmhal import FAITHFUL_FROM, TOP_RATING, Rating, mmhal_run, read_ratings
from ..benchmarks.provenance import benchmark_of
from ..benchmarks.yesno import YesNoBenchmark
from ..files.containers import Warn
from ..files.fields import find_image, optional_text
from ..files.json_text import iter_records
from ..files.source import Input, Source
from ..readers.answers import answers_of
from ..readers.formats import KnownFile, open_layout
from ..readers.parsers import parser
from ..results.benchmark import benchmark, find_benchmark
from ..results.results import Resampling, Run

PARSER = "default"
"""The rule that reads yes or no, see :mod:`scapo_eval.readers.parsers`."""

MMHAL = "mmhal"


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question with one system's answer.

    Attributes:
        key: what the answers of several systems are joined by.
        image: id of the image, None where the file names none.
        part: category of the question, empty where there is none.
        question: its text, empty where the file does not tell it.
        truth: the true answer.
        content: what is in the image, as a judge was told.
        verdict: what the answer comes to, in words.
        right: whether that is right, None where nobody can tell.
        response: the answer's own words.
        description: the description that stood in the prompt, empty without one.
        judgment: the judge's own words.
    """

    key: str
    image: str | None
    part: str
    question: str
    truth: str
    content: str
    verdict: str
    right: bool | None
    response: str
    description: str = ""
    judgment: str = ""


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """One system's answers to the questions of a benchmark.

    Attributes:
        benchmark: its name.
        name: name of the system.
        answers: the answers, in the order of the file.
    """

    benchmark: str
    name: str
    answers: tuple[AnsweredQuestion, ...]


def answers_in(path: Input, known: KnownFile) -> str | None:
    """Which benchmark's answers a file holds, with what is true of them; None for a file of another kind.

    Args:
        path: the file.
        known: what it was recognized as.
    """
    if known.kind.name == "ratings":
        return MMHAL
    if known.layout is None or known.layout.format.answer is None or known.kind.name == "captions":
        return None
    try:
        first = next(answers_of(open_layout(path, warn=lambda text: None)))
    except InputError:
        return None
    if first.label is None:
        return None
    name = benchmark_of(first) or ""
    return name if isinstance(find_benchmark(name), YesNoBenchmark) else "yesno"


def read_answer_evidence(
    name: str, files: Mapping[str, Input], resampling: Resampling, warn: Warn
) -> list[tuple[Run, AnswerEvidence]]:
    """Scores the answers of several systems to one benchmark, and keeps them.

    Args:
        name: of the benchmark, as :func:`answers_in` says.
        files: system name -> file.
        resampling: of the intervals.
        warn: told of damage that does not prevent reading.

    Raises:
        InputError, InputErrors: as the readers do.
    """
    sources = {system: Source.of(path) for system, path in files.items()}
    for source in sources.values():
        source.keep()  # the answers are read for their values, and again for their texts
    if name == MMHAL:
        found = []
        for system, path in sources.items():
            ratings = read_ratings(path, warn=warn)
            found.append((mmhal_run(system, ratings, resampling), AnswerEvidence(name, system, _rated(path, ratings))))
        return found
    record = benchmark(name)
    assert isinstance(record, YesNoBenchmark)
    read = {
        system: record.read_answers(path, None, parser(PARSER), model=None, warn=warn)
        for system, path in sources.items()
    }
    runs = record.runs(read, parser=PARSER, resampling=resampling)
    made = []
    for run, (system, path) in zip(runs, sources.items(), strict=True):
        described = {line: str(row["description"]) for line, row in iter_records(path) if row.get("description")}
        cases = tuple(_graded(each, described.get(each.answer.line, "")) for each in read[system].graded)
        if described:
            run = replace(run, notes=(*run.notes, AUGMENTED))
        made.append((run, AnswerEvidence(name, system, cases)))
    return made


def _graded(each: Graded, description: str) -> AnsweredQuestion:
    question = each.question
    return AnsweredQuestion(
        key=question.id,
        image=None if question.image is None else canonical_image_id(question.image),
        part=question.part,
        question=question.text or each.answer.question or "",
        truth=question.label,
        content="",
        verdict=each.said or "neither yes nor no",
        right=each.correct,
        response=each.answer.response,
        description=description,
    )


def _rated(path: Input, ratings: Sequence[Rating]) -> tuple[AnsweredQuestion, ...]:
    rows = dict(judged_records(path, "judge_text", lambda text: None))
    return tuple(_rated_answer(k, rating, rows[rating.line]) for k, rating in enumerate(ratings, 1))


def _rated_answer(place: int, rating: Rating, row: Mapping[str, Any]) -> AnsweredQuestion:
    content = row.get("image_content")
    words = _judges_words(row)
    number, image = rating.rating, find_image(row)
    return AnsweredQuestion(
        key=str(row.get("id") or row.get("question_id") or place),
        image=None if image is None else canonical_image_id(image),
        part=rating.question_type or "",
        question=optional_text(row.get("question")) or "",
        truth=optional_text(row.get("gt_answer")) or "",
        content=", ".join(map(str, content)) if isinstance(content, list) else optional_text(content) or "",
        verdict="not rated" if number is None else f"rated {number} of {TOP_RATING}",
        right=None if number is None else number >= FAITHFUL_FROM,
        response=next((str(row[key]) for key in ("response", "model_answer") if row.get(key)), ""),
        judgment=words,
    )


def _judges_words(row: Mapping[str, Any]) -> str:
    if "choices" in row:
        return str(row["choices"][0]["message"]["content"] or "")
    return next((str(row[key]) for key in ("judge_text", "evaluation", "review", "unread") if row.get(key)), "")


def columns_of(evidence: Sequence[AnswerEvidence]) -> list[dict[str, Any]]:
    """The answers of every benchmark as the page takes them: its questions, and each system's answers to them.

    A question is ``[image, part, question, truth, content]``; an answer ``[verdict, right, response, description,
    judgment]``, None where the system did not answer.
    """
    made = []
    for name in dict.fromkeys(each.benchmark for each in evidence):
        systems = [each for each in evidence if each.benchmark == name]
        questions: dict[str, AnsweredQuestion] = {}
        for each in systems:
            for case in each.answers:
                questions.setdefault(case.key, case)
        own = [{case.key: case for case in each.answers} for each in systems]
        made.append(
            {
                "set": name,
                "systems": [each.name for each in systems],
                "questions": [[q.image, q.part, q.question, q.truth, q.content] for q in questions.values()],
                "answers": [[_answer(cases.get(key)) for key in questions] for cases in own],
            }
        )
    return made


def _answer(case: AnsweredQuestion | None) -> list[Any] | None:
    return None if case is None else [case.verdict, case.right, case.response, case.description, case.judgment]
