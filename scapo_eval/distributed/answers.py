"""Conversion of yes/no answers in Arrow format to rows that can be summed. The rows contain the question and the parsed
result of each answer.

A worker reads answers, finds their questions and extracts yes or no (:func:`scapo_eval.benchmarks.join.match`). The
worker sends five bytes per answer to the calling process, which treats the answers from all workers like answers from a
single file.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, InputErrors, NoRecords, check_choice
from ..base.reprs import fields_in_short
from ..base.types import Answer
from ..benchmarks.hallusionbench import TextOnly
from ..benchmarks.join import AnsweredBenchmark, Index, Matches, match
from ..benchmarks.questions import Question
from ..benchmarks.systems import sources_of, with_account
from ..benchmarks.yesno import Unparsed
from ..files.account import RecordCount
from ..files.json_text import dump_json, parse_json
from ..files.records import Given, Readable, Records
from ..files.source import Source
from ..readers.answers import read_answers
from ..readers.parsers import PARSERS, Parser, parser_identity
from ..readers.parsers import parser as parser_of
from ..results.benchmark import benchmark, benchmarks
from ..results.results import Resampling, Run
from .batch import KEY, KIND, Counted, N, OnBadFile, first_of, numbers, odd_of, odd_rows, of_kind, pa, packed

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ANSWER = np.dtype([("question", "<i4"), ("flags", "u1")])
"""Answer to a question: the position of the question (or its id in AMBER), and flags with two bits for the index in
SAYS, and one bit each for decided and relabeled.
"""

_SHOWN = 20
"""Maximum number of unmatched answers that a worker keeps per part, for messages."""

OF_A_FILE, OF_A_BATCH = "answers", "answers of a batch"
"""Kinds of rows with answers, in the order of their file or without an order."""


class Replies(Counted[Run]):
    """Converter from answers to tables of results. Each file or batch is read in the same way as a file in a single
    process.
    """

    records = "answers"
    needed = ("id", "response")
    row_groups = False

    def of_batches(self, batches: Iterable[Any]) -> Any:
        """Implements ``of_batches`` of :class:`Counted`. :meth:`answers` rejects questions with answers in several
        batches.
        """
        tables = [self.schema.empty_table()]
        for batch in batches:
            if batch.num_rows:
                name = f"{self.source} (a batch that begins with id {batch.column('id')[0]})"
                rows = [{key: value for key, value in row.items() if value is not None} for row in batch.to_pylist()]
                tables.append(self._of(Records(name, rows), OF_A_BATCH))
        return pa.concat_tables(tables)

    def of_parts(self, parts: Any) -> Any:
        """Implements ``of_parts`` of :class:`Counted`. Every part is a complete file."""
        paths = parts.column("path").to_pylist()
        return pa.concat_tables([self.schema.empty_table(), *(self._of(Source(path), OF_A_FILE) for path in paths)])

    def _of(self, source: Records | Source, kind: str) -> Any:
        if isinstance(source, Source):
            source.count()
        try:
            return pa.concat_tables([self.part(source, kind), self.table(_count_rows(source))])
        except InputErrors as error:
            # one row may represent several answers
            n = [error.said - len(error.errors) + 1, *[1] * (len(error.errors) - 1)]
            faults = [("fault", packed(fault), times) for fault, times in zip(error.errors, n, strict=True)]
            of_file = [("bad_file", packed(first_of(error, str(source))), 1)] if kind == OF_A_FILE else []
            return self.table([("total", b"faults", error.total), *faults, *of_file])
        except NoRecords as error:
            return self.table([("empty_file", packed(error), 1)])
        except InputError as error:
            error = first_of(error, str(source))
            if kind == OF_A_FILE:
                return self.table([("bad_file", packed(error), 1)])
            return self.table([("total", b"faults", 1), ("fault", packed(error), 1)])

    @abstractmethod
    def part(self, source: Readable, kind: str) -> Any:
        """Returns the table of counts of one file or batch.

        Args:
            source: Records or file to read.
            kind: Kind of the table's rows, OF_A_FILE or OF_A_BATCH.

        Raises:
            InputErrors: If records are invalid.
            InputError: If the source cannot be read.
        """

    def accounted(self, counts: Any, run: Run) -> Run:
        """Adds the account of the records to a run. The account equals that of a single process, except that the
        numbers of bytes and of lines are unknown.
        """
        totals = of_kind(counts, "total")
        count = RecordCount()
        count.lines = count.records = totals.get(b"records", 0)
        count.empty = totals.get(b"empty", 0)
        count.odd = odd_of(counts)
        count.prints = set(numbers(of_kind(counts, "prints")).tolist())
        return with_account(run, count) if count.records else run

    def answers(self, counts: Any, *, refuse_twice: bool = True) -> NDArray[Any]:
        """Returns the answers of all files and batches. The answers keep their order in the file.

        Args:
            counts: Summed counts.
            refuse_twice: True to reject several answers to a question, unless all of them are in one file.

        Raises:
            InputError: If ``refuse_twice`` is True and a question has answers in two files, or has two answers in one
                data set.
        """
        every, within = [np.zeros(0, dtype=_ANSWER)], 0
        kinds, keys, times = (counts.column(name).to_pylist() for name in (KIND, KEY, N))
        for kind, key, n in zip(kinds, keys, times, strict=True):
            if kind in (OF_A_FILE, OF_A_BATCH):
                part = np.frombuffer(key, dtype=_ANSWER)
                every += [part] * n  # n times for a part that was read n times
                within += n * (len(part) - len(np.unique(part["question"]))) * (kind == OF_A_FILE)
        answers = np.concatenate(every)
        twice = len(answers) - len(np.unique(answers["question"])) - within
        if twice > 0 and refuse_twice:
            raise InputError(
                f"{twice:,} questions are answered twice, in different files or in a data set, which has no order: "
                "a file or a block was given twice, or a question has several answers: keep one",
                path=self.source,
            )
        return answers


def _count_rows(source: Records | Source) -> list[tuple[str, bytes, int]]:
    counts = source.counts if isinstance(source, Source) and source.counts is not None else RecordCount()
    if isinstance(source, Records):
        deque(counts.of(source.numbered()), maxlen=0)
    prints = np.array(sorted(counts.prints), dtype=np.int64).tobytes()
    totals = [("total", b"records", counts.records), ("total", b"empty", counts.empty), ("prints", prints, 1)]
    return [*totals, *odd_rows(counts.odd)]


def packed_answers(questions: Sequence[int], flags: NDArray[Any]) -> bytes:
    """Returns answers packed into bytes, which are used as the key of a row."""
    rows = np.zeros(len(questions), dtype=_ANSWER)
    rows["question"], rows["flags"] = questions, flags
    return rows.tobytes()


class AnswerReading(TypedDict, total=False):
    """Settings that determine how answers are read, as in :func:`scapo_eval.yesno`.

    ``text_only`` is an option of HallusionBench, and ``unparsed`` is an option of all other benchmarks.
    """

    parser: str
    yes: tuple[str, ...]
    no: tuple[str, ...]
    model: str | None
    unparsed: Unparsed
    text_only: TextOnly


@dataclass(frozen=True)
class AnswerCounter(Replies):
    """Converter from answers to tables of results.

    Attributes:
        benchmark: Name of an :class:`~scapo_eval.benchmarks.join.AnsweredBenchmark`.
        questions: Questions with their ground truth.
        parser: Name of the rule that parses answers; see :func:`scapo_eval.yesno`.
        yes: Additional words that the parser reads as yes.
        no: Additional words that the parser reads as "no".
        model: Name of the model to score in files with answers from several models.
        options: Options of the benchmark.
    """

    benchmark: str
    questions: tuple[Question, ...]
    parser: str = "default"
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    read = ("id", "response", "image", "question", "label", "benchmark", "category", "split", "mode", "task", "model")

    __repr__ = fields_in_short

    def __post_init__(self) -> None:
        check_choice("parser", self.parser, list(PARSERS))
        known = [record.name for record in benchmarks() if isinstance(record, AnsweredBenchmark)]
        if self.benchmark not in known:
            listed = ", ".join(known)
            raise InputError(f"answers to '{self.benchmark}' are not counted on an engine (known: {listed})")
        for name, value in self.options.items():
            check_choice(f"option of {self.benchmark}", name, list(self._record.decides))
            check_choice(name, value, self._record.options[name].choices)
        parser_of(self.parser, yes=self.yes, no=self.no)  # invalid words are reported here, not on a worker

    @classmethod
    def of(
        cls,
        source: str,
        benchmark: str,
        questions: Given | Sequence[str | os.PathLike[str]],
        **reading: Unpack[AnswerReading],
    ) -> AnswerCounter:
        """Returns a counter of yes/no answers. The arguments are those of :func:`scapo_eval.yesno`.

        Raises:
            InputError: If the questions cannot be read, if the benchmark or the parser is unknown, or if an additional
                word is invalid.
        """
        options = {name: str(value) for name, value in reading.items() if name not in cls.__dataclass_fields__}
        general: dict[str, Any] = {name: value for name, value in reading.items() if name not in options}
        counter = cls(source, benchmark, (), options=options, **general)
        return replace(counter, questions=tuple(counter._record.read_questions(sources_of(questions))))

    @property
    def _record(self) -> AnsweredBenchmark:
        record = benchmark(self.benchmark)
        assert isinstance(record, AnsweredBenchmark)
        return record

    @property
    def _named(self) -> str | None:
        return None if self.benchmark == "yesno" else self.benchmark

    @cached_property
    def _index(self) -> Index:
        return Index(self.questions)

    @cached_property
    def _parse(self) -> Parser:
        return parser_of(self.parser, yes=self.yes, no=self.no)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def part(self, source: Readable, kind: str) -> Any:
        """Implements ``part`` of :class:`Replies`."""
        notes: list[str] = []
        answers = list(read_answers(source, model=self.model, warn=notes.append))
        name = str(source)
        part = self._record.keyed(answers, self._index, name)
        matches = match(part.answers, self._index, self._parse, benchmark=self._named, key=part.key)
        rows = [("note", note.encode(), 1) for note in notes]
        rows += [("model", (answer.model or "").encode(), 1) for answer in answers[:1]]
        rows += [("total", b"strangers", matches.n_strangers)]
        rows += [("stranger", _packed_answer(stranger, name), 1) for stranger in matches.strangers[:_SHOWN]]
        rows += [("named", category.encode(), n) for category, n in matches.named.items()]
        for n, answer, question in matches.differing.values():
            rows += [("differing", question.part.encode(), n)]
            rows += [("differs", _packed_answer(answer, name, self._index.position[question.id]), 1)]
        rows += [("left_out", category.encode(), n) for category, n in part.left_out.items()]
        rows += [("numbering", part.numbering.encode(), 1)] if part.numbering else []
        decided, relabeled = np.array(matches.decided, dtype=bool), np.array(matches.relabeled, dtype=bool)
        flags = np.array(matches.said, dtype=np.uint8) | decided * np.uint8(4) | relabeled * np.uint8(8)
        return self.table([*rows, (kind, packed_answers(matches.question, flags), 1)])

    def run(self, counts: Any, name: str, *, on_bad_file: OnBadFile = "fail", resampling: Resampling) -> Run:
        """Implements ``run`` of :class:`Counted`."""
        bad_files = self.bad_files(counts, on_bad_file)
        if len(ways := of_kind(counts, "numbering")) > 1:
            listed = " and ".join(sorted(way.decode() for way in ways))
            raise InputError(f"ids are counted {listed} in different parts; name the category", path=self.source)
        run = self._record.run_of(
            self._matches(counts),
            self.questions,
            name,
            parser=parser_identity(self.parser, yes=self.yes, no=self.no),
            resampling=resampling,
            source=self.source,
            benchmark=self._named,
            left_out={category.decode(): n for category, n in of_kind(counts, "left_out").items()},
            bad_files=bad_files,
            notes=sorted(note.decode() for note in of_kind(counts, "note")),
            **{**{name: self._record.options[name].choices[0] for name in self._record.decides}, **self.options},
        )
        return self.accounted(counts, run)

    def _matches(self, counts: Any) -> Matches:
        every = self.answers(counts)
        flags = every["flags"]
        strangers = sorted((_answer(key) for key in of_kind(counts, "stranger")), key=lambda stranger: stranger[:2])
        differs = [_answer(key) for key in of_kind(counts, "differs")]
        first: dict[str, tuple[Answer, Question]] = {}
        for _, _, answer, position in sorted(differs, key=lambda difference: difference[:2]):
            question = self.questions[position]
            first.setdefault(question.part, (answer, question))
        differing = {part.decode(): n for part, n in of_kind(counts, "differing").items()}
        matches = Matches(
            question=every["question"].tolist(),
            said=(flags & 3).tolist(),
            decided=(flags & 4 > 0).tolist(),
            relabeled=(flags & 8 > 0).tolist(),
            differing={part: (n, *first[part]) for part, n in differing.items()},
            n_strangers=of_kind(counts, "total").get(b"strangers", 0),
            strangers=[answer for _, _, answer, _ in strangers],
        )
        matches.named.update({part.decode(): n for part, n in of_kind(counts, "named").items()})
        return matches


def _packed_answer(answer: Answer, source: str, question: int = 0) -> bytes:
    return dump_json([source, answer.line, asdict(answer), question])


def _answer(key: bytes) -> tuple[str, int, Answer, int]:
    source, line, fields, question = parse_json(key)
    return source, line, Answer(**fields), question
