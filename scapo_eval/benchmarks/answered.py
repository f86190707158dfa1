"""Contains what benchmarks of yes/no answers share on the command line: the rule that reads them, and the file of
evidence.
"""

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
"""Question files (one, or a list of paths), or records."""

AUGMENTED = "answers with a description in the prompt (as SCAPO's published discriminative values)"


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question with one system's answer.

    Attributes:
        key: what the answers of several systems are joined by.
        image: id of the image, None if the file names none.
        part: category of the question, empty if there is none.
        question: its text, empty if the file does not tell it.
        truth: the true answer.
        content: what is in the image, as a judge was told.
        verdict: what the answer comes to, in words.
        right: whether that is right, None if nobody can tell.
        response: the answer's own words.
        description: the description in the prompt, empty without one.
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


READING: Mapping[str, Option] = {
    "parser": Option(choices=tuple(PARSERS), help="Whose rule reads yes or no out of an answer."),
    "yes": Option(repeated=True, metavar="WORD", help="A further word for yes (oui, ja...)."),
    "no": Option(repeated=True, metavar="WORD", help="A further word for no (non, nein...)."),
    "model": Option(metavar="NAME", help="The model to score where a file mixes several."),
    "per_answer": Option(
        file="written", metavar="FILE", help="Write what each answer says as JSON Lines (one file only)."
    ),
}
"""The options that say how answers are read."""


def evidence(items: Iterable[Graded]) -> Iterable[dict[str, Any]]:
    """Returns for each answer which question it answers, what it says, and whether that is right."""
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
