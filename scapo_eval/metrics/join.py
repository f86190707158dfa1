"""The join of a file of answers with the questions: by id, never by position.

Nothing is scored against a truth that may not be its own: an answer that carries its question's text must
carry the one that its id asks. Missing, repeated and unknown answers are counted and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..answers import Parser, Said, contains, parse_label
from ..errors import InputError
from ..reprs import fields_in_short
from ..types import Answer
from .provenance import benchmark_of, hint
from .questions import Key, Question, image_key, plain_key

MISMATCHES = 0.05
"""Share of a part's answers that may carry another text than their id asks (mended typos) before all is refused."""


@dataclass(frozen=True, slots=True)
class Graded:
    """A question, the answer to it, and what that answer says."""

    question: Question
    answer: Answer
    said: Said | None

    __repr__ = fields_in_short

    @property
    def correct(self) -> bool:
        """Whether the answer says what is true."""
        return self.said == self.question.label


@dataclass(frozen=True, slots=True)
class JoinedAnswers:
    """One system's answers, joined with the questions.

    Attributes:
        graded: the answered questions, in the order of the questions.
        questions: all that were to be answered.
        duplicate: further answers to an answered question; the first counts.
        unknown: answers to no question of the set, left out.
        notes: what a reader of the values should know, one sentence each.
    """

    graded: tuple[Graded, ...]
    questions: tuple[Question, ...]
    duplicate: int
    unknown: int
    notes: tuple[str, ...]

    __repr__ = fields_in_short

    @property
    def counts(self) -> dict[str, int]:
        """``unparsed`` (says neither yes nor no), ``missing`` (not answered), ``duplicate``, ``unknown``."""
        return {
            "unparsed": sum(item.said is None for item in self.graded),
            "missing": len(self.questions) - len(self.graded),
            "duplicate": self.duplicate,
            "unknown": self.unknown,
        }


def join(
    answers: Sequence[Answer],
    questions: Sequence[Question],
    parse: Parser,
    *,
    source: str,
    benchmark: str | None = None,
    key: Key = plain_key,
    out_of_scope: int = 0,
    notes: Sequence[str] = (),
) -> JoinedAnswers:
    """Finds each answer's question and reads what the answer says.

    Where text or image of an answer disagree with the question that its id names, the answer belongs to the one
    question of its image with that text, or to none. So a file that lost a line, or whose ids count something
    else, is never scored against the wrong truth.

    Args:
        answers: in reading order.
        questions: the truth; ids are unique.
        parse: response -> yes, no or None.
        source: the answers' file, for messages.
        benchmark: answers that name another benchmark are unknown.
        key: the question id that an answer's id means.
        out_of_scope: answers left aside before, which count as unknown.
        notes: further ones for the run.

    Raises:
        InputError: no answers, most belong to no question, or many of one part ask something else.
    """
    if not answers:
        raise InputError("the file holds no answers", path=source)
    index = _Index(questions)
    found: dict[str, Graded] = {}
    duplicates: list[Answer] = []
    strangers: list[Answer] = []
    named_by_id: Counter[str] = Counter()
    differing: dict[str, list[tuple[Answer, Question]]] = {}
    relabeled = 0
    for answer in answers:
        if benchmark and benchmark_of(answer) not in (None, benchmark):
            strangers.append(answer)
            continue
        named = index.by_id.get(key(answer))
        question = index.find(answer, named)
        if named:
            named_by_id[named.part] += 1
            if question is None:
                differing.setdefault(named.part, []).append((answer, named))
        if question is None:
            strangers.append(answer)
        elif question.id in found:
            duplicates.append(answer)
        else:
            relabeled += answer.label is not None and parse_label(answer.label) not in (None, question.label)
            found[question.id] = Graded(question, answer, parse(answer.response))
    for part, pairs in differing.items():
        if len(pairs) > MISMATCHES * named_by_id[part]:
            raise _other_questions(source, pairs, named_by_id[part], part)
    if 2 * len(strangers) > len(answers):
        raise _other_benchmark(source, strangers, len(answers), benchmark)

    graded = tuple(found[question.id] for question in questions if question.id in found)
    decided = sum(contains(item.answer.response) is not None for item in graded)
    if 5 * decided < len(graded) and (looks := hint(answers, benchmark)):
        raise InputError(f"only {decided:,} of {len(graded):,} answers say yes or no at all{looks}", path=source)
    return JoinedAnswers(
        graded=graded,
        questions=tuple(questions),
        duplicate=len(duplicates),
        unknown=len(strangers) + out_of_scope,
        notes=(*notes, *_notes(questions, graded, strangers, duplicates, relabeled)),
    )


class _Index:
    """Questions by id, and by image and text where an id does not tell."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.by_id = {question.id: question for question in questions}
        self._by_image: dict[str, list[Question]] = {}
        for question in questions:
            image = image_key(question.image, question.mode)
            if image is not None:
                self._by_image.setdefault(image, []).append(question)

    def find(self, answer: Answer, named: Question | None) -> Question | None:
        """The question that the answer answers.

        Args:
            answer: the answer.
            named: the question that its id means, if there is one.
        """
        image = image_key(answer.image, answer.mode)
        if named is not None and _asks(answer, named):
            strange = image is None or image not in self._by_image  # says nothing against the id
            if strange or image == image_key(named.image, named.mode):
                return named
        if image is None or answer.question is None:
            return None
        asked = [
            question
            for question in self._by_image.get(image, ())
            if question.text is not None
            and answer.mode in (None, question.mode)
            and (answer.category in (None, question.category) or question.category is None)
            and _asks(answer, question)
        ]
        return asked[0] if len(asked) == 1 else None


def _asks(answer: Answer, question: Question) -> bool:
    if answer.question is None or question.text is None:
        return True
    return _letters(question.text) in _letters(answer.question)


def _letters(text: str) -> str:
    return " ".join(text.casefold().replace("imange", "image").split())  # POPE's typo, which some copies mend


def _notes(
    questions: Sequence[Question],
    graded: Sequence[Graded],
    strangers: Sequence[Answer],
    duplicates: Sequence[Answer],
    relabeled: int,
) -> Iterable[str]:
    if len(graded) < len(questions):
        asked = Counter(question.part for question in questions)
        answered = Counter(item.question.part for item in graded)
        parts = [f"{part} {answered[part]:,} of {n:,}" for part, n in asked.items() if part and answered[part] < n]
        share = min(99.9, 100 * len(graded) / len(questions))  # a partial run is never 100.0 %
        note = f"partial run: {len(graded):,} of {len(questions):,} questions answered ({share:.1f} %)"
        yield f"{note}: {', '.join(parts)}" if len(asked) > 1 else note
    if strangers:
        yield f"left out: {_many(len(strangers), 'answer')} to no known question (first: {_place(strangers[0])})"
    if duplicates:
        repeated = _many(len(duplicates), "repeated answer")
        yield f"left out: {repeated}, a question's first answer counts (first: {_place(duplicates[0])})"
    if relabeled:
        yield f"{_many(relabeled, 'answer')} with another label than the question's, which counts"
    if graded and not any(item.question.image for item in graded):
        yield "no image is named, so every question is resampled on its own"


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _place(answer: Answer) -> str:
    return f"line {answer.line}, id {answer.id!r}" if answer.line else f"id {answer.id!r}"


def _other_questions(source: str, pairs: Sequence[tuple[Answer, Question]], total: int, part: str) -> InputError:
    answer, question = pairs[0]
    what, ours, theirs = ("image", answer.image, question.image)
    if answer.question is not None and not _asks(answer, question):
        what, ours, theirs = ("question", answer.question, question.text)
    return InputError(
        f"{len(pairs):,} of {total:,} answers{f' of {part}' if part else ''} carry another {what} than their id names "
        f"({answer.id!r}: {_short(ours)} against {_short(theirs)}): the ids count something else, or the questions are "
        f"another version; if only the wording differs, leave the {what} out of the answers",
        path=source,
        line=answer.line or None,
    )


def _other_benchmark(source: str, strangers: Sequence[Answer], total: int, benchmark: str | None) -> InputError:
    own_labels = "; to score by the answers' own labels, leave the questions out"
    return InputError(
        f"{len(strangers):,} of {total:,} answers belong to no question of the set (first: id {strangers[0].id!r})"
        + hint(strangers, benchmark)
        + (own_labels if all(answer.label for answer in strangers) else ""),
        path=source,
        line=strangers[0].line or None,
    )


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else f"{text[:57]}...")
