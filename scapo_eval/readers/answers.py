"""Yes/no answers from whichever file the user has, as one stream of :class:`~scapo_eval.base.types.Answer`."""

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
    """Yields the answers of a file in any understood layout, in its order; repeated ids are passed on.

    Ids are the question's as written in the file. Layouts without ids number by line from 1,
    which may or may not be the question's id: compare the question's text when joining those.

    Args:
        path: file, ``-``, or records in memory.
        model: only this model's answers, for a file that mixes several.
        on_error: called with each unreadable record, and reading goes on; without it the first 20 are
            raised together at the end.
        warn: told of damage that does not prevent reading (cut cells of a workbook).

    Raises:
        InputError: for an unknown layout, a layout without answers, or several models in one file.
        InputErrors: for unreadable records.
    """
    yield from answers_of(open_layout(path, on_error=on_error, warn=warn), model=model, on_error=on_error)


def answers_of(
    source: Recognized, *, model: str | None = None, on_error: ErrorHandler | None = None
) -> Iterator[Answer]:
    """Yields the answers of a file that is open already; see :func:`read_answers`."""
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
    """Yields each answer, and the number of lmms-eval's document."""
    layout, path = source.format, source.rows.path
    if layout.answer is None:
        raise wrong_kind(source, "answers")
    for line, record in source.rows:
        try:
            yield layout.answer(record, line), lmms_doc_id(record) if "doc_id" in record else ""
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=path, line=line))


def _distinguished(answers: Iterable[tuple[Answer, str]]) -> Iterator[tuple[Answer, str]]:
    """Names questions by their document where question ids repeat.

    Some data sets number the questions of each category from 1, and lmms-eval stopped writing the
    category in v0.5: there only the document tells them apart.
    """
    known = list(answers)
    times = Counter((answer.category, answer.id) for answer, _ in known)
    repeat = any(count > 1 for count in times.values())
    for answer, document in known:
        yield (replace(answer, id=document) if repeat else answer), document


def unique(answers: Iterable[Answer], path: str) -> Iterator[Answer]:
    """Yields the same answers, refusing those to a question answered before.

    Raises:
        InputErrors: for questions answered several times, with both lines.
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
