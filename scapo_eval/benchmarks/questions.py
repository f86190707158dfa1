"""Yes/no questions with their correct answers, from a separate file or from the labels in the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import FaultList, InputError
from ..base.ids import canonical_image_id, plain_id
from ..base.reprs import fields_in_short
from ..base.types import Answer
from ..files.containers import open_rows
from ..files.files import display_name
from ..files.records import Readable
from ..readers.parsers import YesNo, parse_label
from .provenance import benchmark_of, hint


@dataclass(frozen=True, slots=True)
class Question:
    """Yes/no question with a known answer.

    Attributes:
        id: Unique id that joins the question with its answers.
        label: Correct answer.
        image: File name or id of the image, or None if the source contains neither.
        text: Text of the question alone.
        prompt: Prompt for the model, if it differs from ``text``.
        category: Category of the question, such as ``adversarial``, ``popular`` or ``random``.
        mode: Mode of the question in PhD.
        task: Task of the question in PhD.
    """

    id: str
    label: YesNo
    image: str | None = None
    text: str | None = None
    prompt: str | None = None
    category: str | None = None
    mode: str | None = None
    task: str | None = None

    __repr__ = fields_in_short

    @property
    def part(self) -> str:
        """Part of the benchmark to which the question belongs, or an empty string."""
        return self.category or self.mode or ""

    @property
    def image_id(self) -> str:
        """Unit for resampling: the image, or the question itself if the image is unknown."""
        return image_key(self.image, self.mode) or f"question {self.id}"


def image_key(image: str | None, mode: str | None) -> str | None:
    """Returns the normalized image id, or None if there is no image."""
    if image is None or not image.strip():
        return None
    # PhD's counter-common-sense images are numbered from 0, as COCO's images are
    return f"ccs/{canonical_image_id(image)}" if mode == "ccs" else canonical_image_id(image)


Key = Callable[[Answer], str]
"""Function from an answer to the id of its question."""


def plain_key(answer: Answer) -> str:
    """Returns the question id that an answer contains, with normalized numbers."""
    return plain_id(answer.id)


OWN_LABELS = "scored by the answers' own labels, so missing questions cannot be detected"


def questions_of(
    answers: Sequence[Answer], *, source: str, remedy: str, benchmark: str | None = None
) -> tuple[list[Question], Key]:
    """Returns the questions that a file of answers contains. The correct answers are read from the ``label`` fields.

    Args:
        answers: Answers in one file.
        source: Name of the file, for messages.
        remedy: Advice to include in the message if labels are missing.
        benchmark: Name of the expected benchmark, or None to accept any benchmark.

    Returns:
        The questions, and the function that computes their ids, which are unique within a mode and category.

    Raises:
        InputError: If some answers have no label.
        InputErrors: If an id refers to two different questions.
    """
    answers = [answer for answer in answers if benchmark is None or benchmark_of(answer) in (None, benchmark)]
    labels = [None if answer.label is None else parse_label(answer.label) for answer in answers]
    if None in labels:
        first_without = answers[labels.index(None)]
        reason = f"{labels.count(None):,} of {len(answers):,} answers have no label yes or no; {remedy}"
        reason += hint(answers, benchmark)
        raise InputError(reason, path=source, line=first_without.line or None)
    faults = FaultList()
    questions: dict[str, Question] = {}
    for answer, label in zip(answers, labels, strict=True):
        assert label is not None
        question = Question(
            id=_own_key(answer),
            label=label,
            image=answer.image,
            text=answer.question,
            category=answer.category,
            mode=answer.mode,
            task=answer.task,
        )
        first = questions.setdefault(question.id, question)
        if (first.label, first.text) != (question.label, question.text):
            reason = f"id {answer.id!r} has two different questions; {remedy}"
            faults.add(InputError(reason, path=source, line=answer.line or None))
    faults.raise_if_any()
    return list(questions.values()), _own_key


def _own_key(answer: Answer) -> str:
    return "/".join(part for part in (answer.mode, answer.category, plain_id(answer.id)) if part)


def read_questions(path: Readable, category: str | None = None) -> list[Question]:
    """Reads a file of questions with labels, in the format of a benchmark or in the project's own format.

    Args:
        path: JSON Lines, a JSON array, parquet, a table or records in memory with the fields ``{"question_id" or "id",
            "label" or "answer"}`` and the optional fields ``image``, ``text`` or ``question``, and ``category`` or
            ``split``.
        category: Category assigned to every question whose record does not specify one.

    Returns:
        The questions, whose ids are ``category/id``, or ``id`` if there is no category.

    Raises:
        InputErrors: If questions are invalid, or an id is repeated.
    """
    source = display_name(path)
    faults = FaultList()
    questions: dict[str, Question] = {}
    for line, record in open_rows(path):
        try:
            question = _question(record, category)
        except ValueError as error:
            fault = InputError(str(error), path=source, line=line)
            if not questions:  # the first record is already invalid: another kind of file
                raise fault from None
            faults.add(fault)
            continue
        if questions.setdefault(question.id, question) is not question:
            faults.add(InputError(f"the id {question.id!r} appears twice", path=source, line=line))
    faults.raise_if_any()
    return list(questions.values())


def _question(record: Mapping[str, Any], category: str | None) -> Question:
    number = _first(record, "question_id", "id", "index")
    label = _first(record, "label", "answer")
    if number is None or label is None:
        missing = "question_id' or 'id" if number is None else "label"
        raise ValueError(f"missing key '{missing}' (found: {', '.join(record) or 'nothing'})")
    truth = parse_label(str(label))
    if truth is None:
        raise ValueError(f"the label must be yes or no, not {label!r}")
    image = _first(record, "image", "image_id", "image_source", "image_path")
    text = _first(record, "text", "question")
    own_category = _first(record, "category", "split")
    category = str(own_category) if own_category is not None else category
    key = plain_id(str(number))
    return Question(
        id=f"{category}/{key}" if category else key,
        label=truth,
        image=None if image is None else str(image),
        text=None if text is None else str(text),
        category=category,
    )


def _first(record: Mapping[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)
