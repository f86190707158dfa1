"""Code shared by the benchmarks with yes/no answers: parsing options, evidence records and the display of questions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..files.records import Given
from ..readers.parsers import PARSERS
from ..results.benchmark import Option
from .join import Graded

QuestionFiles = Given | Sequence[str | os.PathLike[str]]
"""Question files (one path or a list of paths), or records."""

AUGMENTED = "answers with a description in the prompt (as SCAPO's published discriminative values)"


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question with the answer of one system.

    Attributes:
        key: Key that identifies the question when the answers of several systems are joined.
        image: Id of the image, or None if the file contains none.
        part: Category of the question, or an empty string.
        question: Text of the question, or an empty string if the file does not contain the text.
        truth: Correct answer.
        content: Description of the image's content that a judge received.
        verdict: Verdict on the answer, as text.
        right: True if the answer is correct, or None if its correctness is unknown.
        response: Text of the answer.
        description: Description that the prompt contained, or an empty string.
        judgment: Text returned by the judge.
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


READING: Mapping[str, Option] = {
    "parser": Option(choices=tuple(PARSERS), help="Rule for parsing yes or no."),
    "yes": Option(repeated=True, metavar="WORD", help="Additional word for yes (oui, ja...)."),
    "no": Option(repeated=True, metavar="WORD", help="Additional word for no (non, nein...)."),
    "model": Option(metavar="NAME", help="Model to score if a file contains several."),
    "per_answer": Option(
        file="written", metavar="FILE", help="Write the parsed answers as JSON Lines (one file only)."
    ),
}
"""Options for parsing answers."""


def evidence(items: Iterable[Graded]) -> Iterable[dict[str, Any]]:
    """Yields one record per answer, with the question, the parsed answer, and a flag that is True if the answer is
    correct.
    """
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
