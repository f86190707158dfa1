"""Joining of an answer file with the questions of a benchmark. Answers are joined by id and never by position.

If an answer contains the text of its question, this text must match the question with the same id. Therefore, no answer
is scored against the ground truth of another question. Missing, repeated and unknown answers are counted and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import InputError
from ..base.reprs import fields_in_short
from ..base.types import Answer
from ..files.records import Readable
from ..readers.parsers import Parser, YesNo, contains, parse_label
from ..results.benchmark import Benchmark, OnEngine
from ..results.results import Run
from .provenance import benchmark_of, hint
from .questions import Key, Question, image_key, plain_key
from .scoring import bad_file_notes

MISMATCHES = 0.05
"""Maximum share of a part's answers whose text may differ from the question (corrected typos). Beyond it, the file is
rejected.
"""


@dataclass(frozen=True, slots=True)
class Graded:
    """Question with its answer and the "yes" or "no" that was parsed from the answer."""

    question: Question
    answer: Answer
    said: YesNo | None

    __repr__ = fields_in_short

    @property
    def correct(self) -> bool:
        """True if the parsed answer is correct."""
        return self.said == self.question.label


@dataclass(frozen=True, slots=True)
class JoinedAnswers:
    """Answers of one system, joined with the questions.

    Attributes:
        graded: Answered questions, in the order of the questions.
        questions: All questions.
        duplicate: Number of repeated answers to a question; only the first answer counts.
        unknown: Number of answers that were omitted because they belong to no question of the benchmark.
        notes: Notes that a reader needs to interpret the values.
        bad_files: Number of files that could not be read and were omitted.
    """

    graded: tuple[Graded, ...]
    questions: tuple[Question, ...]
    duplicate: int
    unknown: int
    notes: tuple[str, ...]
    bad_files: int = 0

    __repr__ = fields_in_short

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of ``unparsed`` (neither yes nor no), ``missing`` (unanswered), ``duplicate`` and ``unknown``
        answers.

        The mapping also contains ``bad_files``, the number of unreadable files, unless it is 0.
        """
        counts = {
            "unparsed": sum(item.said is None for item in self.graded),
            "missing": len(self.questions) - len(self.graded),
            "duplicate": self.duplicate,
            "unknown": self.unknown,
        }
        return {**counts, "bad_files": self.bad_files} if self.bad_files else counts


@dataclass(slots=True)
class Matches:
    """Matches between a system's answers and the questions of a benchmark. The matches of several parts of a file can
    be concatenated to obtain the matches of the file.

    Attributes:
        question: For each matched answer, the position of its question.
        said: For each matched answer, the position of the parsed answer in SAYS.
        decided: For each matched answer, True if the most permissive parsing rule finds yes or no.
        relabeled: For each matched answer, True if the label in the answer's record differs from that of the question.
        named: Mapping from each part of the benchmark to the number of answers whose id belongs to a question of that
            part.
        differing: Mapping from each part of the benchmark to three values: the number of answers that contradict the
            question with the same id, the first of these answers, and its question.
        n_strangers: Number of answers that match no question of the benchmark.
        strangers: Answers that match no question of the benchmark, or only the first few of these answers.
        answers: Matched answers. The list of answers is empty if only counts are needed.
    """

    question: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    decided: list[bool] = field(default_factory=list)
    relabeled: list[bool] = field(default_factory=list)
    named: Counter[str] = field(default_factory=Counter)
    differing: dict[str, tuple[int, Answer, Question]] = field(default_factory=dict)
    n_strangers: int = 0
    strangers: list[Answer] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    __repr__ = fields_in_short

    def among(self, questions: Sequence[int]) -> Matches:
        """Returns the matches of answers to the given questions. Positions in the result are indices into the given
        list of questions. Answers without a question remain in the result.
        """
        position = {question: k for k, question in enumerate(questions)}
        kept = [k for k, question in enumerate(self.question) if question in position]
        return replace(
            self,
            question=[position[self.question[k]] for k in kept],
            said=[self.said[k] for k in kept],
            decided=[self.decided[k] for k in kept],
            relabeled=[self.relabeled[k] for k in kept],
            answers=[self.answers[k] for k in kept] if self.answers else [],
        )


SAYS: tuple[YesNo | None, ...] = (None, "no", "yes")


def join(
    answers: Sequence[Answer],
    questions: Sequence[Question],
    parse: Parser,
    *,
    source: str,
    benchmark: str | None = None,
    key: Key = plain_key,
    notes: Sequence[str] = (),
) -> JoinedAnswers:
    """Finds the question that each answer belongs to, and parses the answer.

    If the text or the image in an answer contradicts the question with the same id, the answer is assigned to the
    question with the same text and image, provided that there is exactly one such question. If there is no such
    question or more than one, the answer counts as unknown. Answers from a file with a missing line or with other ids
    are therefore never scored against the wrong ground truth.

    Args:
        answers: Answers in reading order.
        questions: Questions with correct answers and unique ids.
        parse: Function that converts a response to "yes", "no" or None.
        source: Name of the answer file, as used in messages.
        benchmark: Name of the benchmark. Answers whose records name another benchmark count as unknown.
        key: Function that returns the id of an answer's question.
        notes: Additional notes for the run.

    Raises:
        InputError: If there are no answers, or if most answers match no question. The error is also raised if many
            answers in one part of the benchmark contradict the questions with the same ids.
    """
    matches = match(answers, Index(questions), parse, benchmark=benchmark, key=key)
    return joined(matches, questions, source=source, benchmark=benchmark, notes=notes)


@dataclass(frozen=True, slots=True)
class Keyed:
    """Answers from a file, or from a part of a file, prepared for joining with the questions of a benchmark.

    Attributes:
        answers: Answers to join.
        key: Function that returns the id of an answer's question.
        left_out: Mapping from each category without questions to the number of answers in this category, which are
            omitted.
        numbering: Numbering scheme of the ids, if it can be determined from the answers themselves. The numbering must
            be the same in all parts of a system's answers.
    """

    answers: Sequence[Answer]
    key: Key = plain_key
    left_out: Mapping[str, int] = field(default_factory=dict)
    numbering: str = ""

    __repr__ = fields_in_short


KeyedBy = Callable[[Sequence[Answer], "Index", str], Keyed]
"""Function that prepares answers for joining, given the answers, the questions and the name of the file."""


RunOf = Callable[..., Run]
"""Function that creates the run of a system from the matches of all answers, all questions and the system's name.

Its keyword arguments are ``parser`` (name of the parser, for the signature), ``resampling``, the options of the
benchmark, and the other arguments of :func:`joined`.
"""


ANSWERS_ON_ENGINE = OnEngine(function="answers", needs=("questions",), refuses=("per_answer",))


@dataclass(frozen=True, kw_only=True, repr=False)
class AnsweredBenchmark(Benchmark):
    """Benchmark of yes/no questions in which each answer is matched with its question independently (:func:`match`).

    Attributes:
        read_questions: Function that reads the questions and their correct answers from files.
        keyed: Function that prepares answers for joining.
        decides: Names of the options, other than the parsing rule, that affect the values of a run. The default of each
            option is its first choice.
        run_of: Function that creates a run from matched answers.
    """

    read_questions: Callable[[Sequence[Readable]], list[Question]]
    keyed: KeyedBy
    decides: Sequence[str]
    run_of: RunOf
    files: str = "answers"
    takes: Sequence[str] = ("answers",)
    listed: str = "questions"
    engine: OnEngine | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        engine = self.engine or ANSWERS_ON_ENGINE
        object.__setattr__(self, "engine", replace(engine, given={"benchmark": self.name}))


def join_keyed(
    answers: Sequence[Answer],
    questions: Sequence[Question],
    parse: Parser,
    keyed: KeyedBy,
    *,
    source: str,
    benchmark: str | None = None,
) -> JoinedAnswers:
    """Joins answers as :func:`join` does, after the benchmark's ``keyed`` function has prepared them."""
    index = Index(questions)
    part = keyed(answers, index, source)
    matches = match(part.answers, index, parse, benchmark=benchmark, key=part.key)
    return joined(matches, questions, source=source, benchmark=benchmark, left_out=part.left_out)


def match(
    answers: Iterable[Answer], index: Index, parse: Parser, *, benchmark: str | None = None, key: Key = plain_key
) -> Matches:
    """Finds the question to which each answer belongs, independently of all other answers. The arguments are those of
    :func:`join`.
    """
    matches = Matches()
    for answer in answers:
        if benchmark and benchmark_of(answer) not in (None, benchmark):
            matches.strangers.append(answer)
            continue
        named = index.by_id.get(key(answer))
        question = index.find(answer, named)
        if named:
            matches.named[named.part] += 1
            if question is None:
                n, first, asked = matches.differing.get(named.part, (0, answer, named))
                matches.differing[named.part] = (n + 1, first, asked)
        if question is None:
            matches.strangers.append(answer)
            continue
        matches.question.append(index.position[question.id])
        matches.said.append(SAYS.index(parse(answer.response)))
        matches.decided.append(contains(answer.response) is not None)
        matches.relabeled.append(answer.label is not None and parse_label(answer.label) not in (None, question.label))
        matches.answers.append(answer)
    matches.n_strangers = len(matches.strangers)
    return matches


def joined(
    found: Matches,
    questions: Sequence[Question],
    *,
    source: str,
    benchmark: str | None = None,
    left_out: Mapping[str, int] | None = None,
    bad_files: Sequence[InputError] = (),
    notes: Sequence[str] = (),
) -> JoinedAnswers:
    """Combines all answers of a system with their questions.

    Args:
        found: Matches of all answers.
        questions, source, benchmark, notes: Same as in :func:`join`.
        left_out: Category without questions -> number of answers in this category, which count as unknown.
        bad_files: Errors for the files that could not be read and were omitted.

    Raises:
        InputError: If joining fails, see :func:`join`.
    """
    n, aside = len(found.question) + found.n_strangers, sum((left_out or {}).values())
    if left_out and aside:
        note = f"{aside:,} answers omitted: no question file for {', '.join(sorted(left_out))}"
        if not n:
            raise InputError(f"nothing to score: {note}", path=source)
        notes = (note, *notes)
    if not n:
        raise InputError("the file contains no answers", path=source)
    for part, (differing, answer, named) in found.differing.items():
        if differing > MISMATCHES * found.named[part]:
            raise _other_questions(source, answer, named, differing, found.named[part], part)
    if 2 * found.n_strangers > n:
        raise _other_benchmark(source, found, n, benchmark)
    first: dict[int, int] = {}
    duplicates = [k for k, question in enumerate(found.question) if first.setdefault(question, k) != k]
    answered = [(questions[q], first[q]) for q in sorted(first)]
    whose = found.answers or [Answer(questions[q].id, "") for q in found.question]
    graded = tuple(Graded(question, whose[k], SAYS[found.said[k]]) for question, k in answered)
    decided = sum(found.decided[k] for k in first.values())
    if 5 * decided < len(graded) and (looks := hint([*whose, *found.strangers], benchmark)):
        raise InputError(f"only {decided:,} of {len(graded):,} answers contain yes or no{looks}", path=source)
    relabeled = sum(found.relabeled[k] for k in first.values())
    repeated = [whose[k] for k in duplicates]
    return JoinedAnswers(
        graded=graded,
        questions=tuple(questions),
        duplicate=len(duplicates),
        unknown=found.n_strangers + aside,
        notes=(*bad_file_notes(bad_files), *notes, *_notes(questions, graded, found, repeated, relabeled)),
        bad_files=len(bad_files),
    )


class Index:
    """Index of questions by id or, for ambiguous ids, by image and text."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = tuple(questions)
        self.by_id = {question.id: question for question in questions}
        self.position = {question.id: k for k, question in enumerate(questions)}
        self._by_image: dict[str, list[Question]] = {}
        for question in questions:
            image = image_key(question.image, question.mode)
            if image is not None:
                self._by_image.setdefault(image, []).append(question)

    def find(self, answer: Answer, named: Question | None) -> Question | None:
        """Returns the question to which an answer belongs, or None if there is none.

        Args:
            answer: Answer with its id, image and text.
            named: Question whose id is that of the answer, or None.
        """
        image = image_key(answer.image, answer.mode)
        if named is not None and _asks(answer, named):
            strange = image is None or image not in self._by_image  # an unknown image does not contradict the id
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
    # "imange" is a typo in published questions that some copies correct
    return " ".join(text.casefold().replace("imange", "image").split())


def _notes(
    questions: Sequence[Question],
    graded: Sequence[Graded],
    matches: Matches,
    duplicates: Sequence[Answer],
    relabeled: int,
) -> Iterable[str]:
    if len(graded) < len(questions):
        asked = Counter(question.part for question in questions)
        answered = Counter(item.question.part for item in graded)
        parts = [f"{part} {answered[part]:,} of {n:,}" for part, n in asked.items() if part and answered[part] < n]
        share = min(99.9, 100 * len(graded) / len(questions))  # a partial run is never displayed as 100.0 %
        note = f"partial run: {len(graded):,} of {len(questions):,} questions answered ({share:.1f} %)"
        yield f"{note}: {', '.join(parts)}" if len(asked) > 1 else note
    if matches.n_strangers:
        place = _place(matches.strangers[0])
        yield f"omitted: {_many(matches.n_strangers, 'answer')} to unknown questions (first: {place})"
    if duplicates:
        repeated = _many(len(duplicates), "repeated answer")
        yield f"omitted: {repeated}; only the first answer to a question counts (first: {_place(duplicates[0])})"
    if relabeled:
        yield f"{_many(relabeled, 'answer')} with another label than the question; the question's label counts"
    if graded and not any(item.question.image for item in graded):
        yield "the records contain no images, so questions are resampled instead of images"


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _place(answer: Answer) -> str:
    return f"line {answer.line}, id {answer.id!r}" if answer.line else f"id {answer.id!r}"


def _other_questions(
    source: str, answer: Answer, question: Question, differing: int, total: int, part: str
) -> InputError:
    what, ours, theirs = ("image", answer.image, question.image)
    if answer.question is not None and not _asks(answer, question):
        what, ours, theirs = ("question", answer.question, question.text)
    return InputError(
        f"{differing:,} of {total:,} answers{f' of {part}' if part else ''} have another {what} than the question "
        f"with their id ({answer.id!r}: {_short(ours)} against {_short(theirs)}): the ids have another meaning, or "
        f"the questions are another version; if only the wording differs, remove the {what} from the answers",
        path=source,
        line=answer.line or None,
    )


def _other_benchmark(source: str, matches: Matches, total: int, benchmark: str | None) -> InputError:
    strangers = matches.strangers
    own_labels = "; to score by the labels in the answers, omit the questions"
    return InputError(
        f"{matches.n_strangers:,} of {total:,} answers have an id that is not in the questions "
        f"(first: id {strangers[0].id!r})"
        + hint(strangers, benchmark)
        + (own_labels if all(answer.label for answer in strangers) else ""),
        path=source,
        line=strangers[0].line or None,
    )


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else f"{text[:57]}...")
