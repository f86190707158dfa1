"""Reader that yields the yes/no answers in any supported file as a stream of :class:`~scapo_eval.base.types.Answer`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.types import Answer
from ..files.containers import ErrorHandler, Warn, warn_user
from ..files.fields import mixed_models
from ..files.records import Readable
from .formats import LMMS_EVAL, LMMS_EVAL_LOG, Recognized, lmms_doc_id, open_layout, wrong_kind


def read_answers(
    path: Readable, *, model: str | None = None, on_error: ErrorHandler | None = None, warn: Warn = warn_user
) -> Iterator[Answer]:
    """Yields the answers of a file in any supported layout, in file order. If several answers have the same id, all of
    them are yielded.

    The id of an answer is the question id in the file. If the layout has no ids, the line number (from 1) is used as
    the id and may differ from the question's id. Answers without ids can be matched to questions by a comparison of the
    question texts.

    Args:
        path: Path of the file, ``-`` for standard input, or records in memory.
        model: Name of the model whose answers are returned. This argument is required if the file contains answers from
            several models.
        on_error: Callback for each unreadable record, after which reading continues. If ``on_error`` is None, the first
            20 faults are raised together at the end.
        warn: Callback for warnings about damage that does not prevent reading, such as truncated workbook cells.

    Raises:
        InputError: If the layout is unknown or contains no answers, or if the file contains several models and
            ``model`` is None.
        InputErrors: If records are unreadable.
    """
    yield from answers_of(open_layout(path, on_error=on_error, warn=warn), model=model, on_error=on_error)


def answers_of(
    source: Recognized, *, model: str | None = None, on_error: ErrorHandler | None = None
) -> Iterator[Answer]:
    """Yields the answers of an open file; see :func:`read_answers`."""
    faults = FaultList(on_error)
    answers = _converted(source, faults)
    if source.format in (LMMS_EVAL, LMMS_EVAL_LOG):
        answers = _distinguished(answers)
    first: Answer | None = None
    for answer, _ in answers:
        if model is not None and answer.model != model:
            continue
        first = first or answer
        if answer.model != first.model:
            raise mixed_models(
                source.rows.path, answer.line, [first.model, answer.model, *(other.model for other, _ in answers)]
            )
        yield answer
    faults.raise_if_any()
    if first is None:
        raise InputError(f"no answer of the model {model!r}" if model else "no answer", path=source.rows.path)


def _converted(source: Recognized, faults: FaultList) -> Iterator[tuple[Answer, str]]:
    """Yields each answer with its document id from lmms-eval, or with an empty string if the record has no such id."""
    layout, path = source.format, source.rows.path
    if layout.answer is None:
        raise wrong_kind(source, "answers")
    for line, record in source.rows:
        try:
            yield layout.answer(record, line), lmms_doc_id(record) if "doc_id" in record else ""
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=path, line=line))


def _distinguished(answers: Iterable[tuple[Answer, str]]) -> Iterator[tuple[Answer, str]]:
    """Replaces the question ids with document ids if a question id occurs more than once.

    Some data sets number the questions of each category from 1, and lmms-eval v0.5 and later do not write the category.
    If the category is missing, only the document id distinguishes the questions.
    """
    known = list(answers)
    times = Counter((answer.category, answer.id) for answer, _ in known)
    repeat = any(count > 1 for count in times.values())
    for answer, document in known:
        yield (replace(answer, id=document) if repeat else answer), document


def unique(answers: Iterable[Answer], path: str) -> Iterator[Answer]:
    """Yields the answers and rejects repeated answers to a question.

    Raises:
        InputErrors: If a question has several answers. Each error message states the line numbers of both answers.
    """
    faults = FaultList()
    seen: dict[tuple[str | None, ...], int] = {}
    for answer in answers:
        earlier = seen.setdefault((answer.benchmark, answer.category, answer.mode, answer.id), answer.line)
        if earlier != answer.line:
            faults.add(
                InputError(f"id {answer.id!r} is answered again (first on line {earlier})", path=path, line=answer.line)
            )
        yield answer
    faults.raise_if_any()
