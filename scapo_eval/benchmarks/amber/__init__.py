"""AMBER (Wang et al. 2023): descriptions and yes/no answers for 1,004 images, scored by the rules of its official
script.

With ``mode="parity"``, nouns are found with NLTK, as in the script, and ``printed`` contains the values that the script
prints. ``mode="embedded"`` requires neither NLTK nor spaCy, and its values differ from those of the script by tenths of
a percentage point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from ...base.errors import InputError, OptionError, check_choice
from ...base.hashes import digest
from ...base.reprs import fields_in_short
from ...files.containers import Warn
from ...files.records import Given
from ...readers.parsers import Parser, YesNo
from ...results.benchmark import Benchmark, CommandExample, OnEngine, Option
from ...results.counts import CountBuilder, CountTable
from ...results.items import Items
from ...results.results import Resampling, Run
from ...results.signature import Signature
from ...results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from ..scoring import bad_file_notes
from ..systems import Systems, drawn, naming_inputs
from .data import KINDS, AmberData, AmberItem, Description, Query
from .formulas import (
    COLUMNS,
    CORRECT,
    DISCRIMINATIVE,
    GENERATIVE,
    METRICS,
    QUESTIONS,
    RIGHT_NO,
    SAID_NO,
    TRUE_NO,
    printed,
)
from .generative import DescriptionCredit, credit
from .nouns import NounFinder
from .responses import ANSWERS, AmberResponse, Responses, coverage, read_responses, recognize
from .similarity import Similarity
from .tagging import NltkNouns, Tagger

__all__ = [
    "ANSWERS",
    "BENCHMARK",
    "DEFAULT_ANSWERS",
    "Amber",
    "AmberCounts",
    "AmberData",
    "Mode",
    "NltkNouns",
    "ScoredResponses",
    "Similarity",
    "amber",
    "read_responses",
]

Mode = Literal["embedded", "parity"]

DEFAULT_ANSWERS = {"embedded": "first-word", "parity": "exact"}

_QUESTION_COUNTS = {
    (kind, count): COLUMNS.index(f"{kind}_{count}") for kind in KINDS for count in DISCRIMINATIVE
}  # (kind, count) -> column


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """Score of one answer: the credit for a description, or the verdict on the answer to a question.

    Attributes:
        response: The answer that was scored.
        credit: Credit that a description receives.
        nouns: Number of all nouns in a description; this number is counted only in parity mode.
        said: Parsed answer to a question, or None if it is neither yes nor no.
    """

    response: AmberResponse
    credit: DescriptionCredit | None = None
    nouns: int | None = None
    said: YesNo | None = None

    __repr__ = fields_in_short

    def record(self) -> dict[str, Any]:
        """Returns the evidence for one answer as a mapping, which becomes one line of the evidence file. The fields in
        the evidence of a description are named after the lists in the official script.
        """
        record: dict[str, Any] = {"line": self.response.line, "id": self.response.number}
        item = self.response.item
        if isinstance(item, Query):
            record |= {"kind": item.kind, "truth": item.truth, "said": self.said, "correct": self.said == item.truth}
        elif self.credit:
            record |= {"n_nouns": self.nouns} if self.nouns is not None else {}
            record |= {"vocab_nouns": list(self.credit.mentions), "flags": self.credit.flags}
            record |= {"cover": self.credit.cover, "cog": self.credit.cog}
        return record


@dataclass(frozen=True, slots=True)
class ScoredResponses:
    """Run of one system, including the verdict on every answer."""

    run: Run
    verdicts: Sequence[ScoredAnswer]

    __repr__ = fields_in_short

    def records(self) -> Iterator[dict[str, Any]]:
        """Returns the evidence, one record per answer."""
        return (verdict.record() for verdict in self.verdicts)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmberCounts:
    """Counts of all answers of one system. The counts of separate parts of a file can be added to obtain the counts of
    the file.

    Attributes:
        table: Counts per image.
        answers: Pair (item id, parsed answer to a question) for every answer.
        duplicate, unknown, skipped, unfinished, notes: Same as in :class:`Responses`.
    """

    table: CountTable
    answers: Sequence[tuple[int, YesNo | None]]
    duplicate: int = 0
    unknown: int = 0
    skipped: int = 0
    unfinished: int | None = None
    notes: Sequence[str] = ()

    __repr__ = fields_in_short


class Amber:
    """Scorer for AMBER answers, which can be reused for many systems.

    Args:
        data: Annotations and questions of AMBER.
        mode: ``embedded``, or ``parity`` to find nouns with NLTK, as the official script does.
        similarity: Relation that determines which words count as equal.
        answers: Name of the parsing rule for yes/no answers (one of ANSWERS), or None for the default of the mode.
        tagger: Noun finder for parity mode, or None for NLTK with its default settings.

    Raises:
        MissingExtra: If parity mode is requested and NLTK is not installed.
        InputError: If the mode or the parsing rule is unknown.
    """

    def __init__(
        self,
        data: AmberData,
        mode: Mode = "embedded",
        *,
        similarity: Similarity | None = None,
        answers: str | None = None,
        tagger: Tagger | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise InputError(f"unknown mode {mode!r}; known: {', '.join(get_args(Mode))}")
        self.data = data
        self.mode = mode
        self.similarity = similarity or Similarity()
        self.answers = answers or DEFAULT_ANSWERS[mode]
        if self.answers not in ANSWERS:
            raise InputError(f"unknown rule {self.answers!r}; known: {', '.join(ANSWERS)}")
        self._parse: Parser = ANSWERS[self.answers]
        self._tagger: Tagger | None = (tagger or NltkNouns()) if mode == "parity" else None
        self._finder = NounFinder(data.words)
        self._words = frozenset(data.words)

    def score(
        self,
        responses: Responses,
        name: str = "amber",
        *,
        resampling: Resampling | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> ScoredResponses:
        """Scores one system.

        Args:
            responses: Answers from :func:`read_responses`, which must be read with ``official=True`` in parity mode.
            name: Name of the system.
            resampling: Resampling settings for the confidence intervals.
            on_progress: Callback whose argument is described in :meth:`NltkNouns.find_batch`.
        """
        verdicts = self.verdicts(responses.scored, on_progress)
        return ScoredResponses(self.run(self.counted(responses, verdicts), name, resampling=resampling), verdicts)

    def counted(self, responses: Responses, verdicts: Sequence[ScoredAnswer]) -> AmberCounts:
        """Returns the counts that result from the answers and their verdicts."""
        rows = np.zeros((len(verdicts), len(COLUMNS)), dtype=np.int64)
        described = [k for k, verdict in enumerate(verdicts) if verdict.credit]
        rows[described, : len(GENERATIVE)] = np.array(
            [_generative_row(cast(DescriptionCredit, verdicts[k].credit)) for k in described], dtype=np.int64
        ).reshape(-1, len(GENERATIVE))
        cells = [
            (k, column)
            for k, verdict in enumerate(verdicts)
            if isinstance(item := verdict.response.item, Query)
            for column in _question_columns(item, verdict.said)
        ]
        rows[tuple(np.array(cells, dtype=np.int64).reshape(-1, 2).T)] = 1
        builder = CountBuilder(COLUMNS)
        builder.add([self._unit(response.number) for response in responses.scored], rows)
        return AmberCounts(
            table=builder.table(),
            answers=[(verdict.response.number, verdict.said) for verdict in verdicts],
            duplicate=responses.duplicate,
            unknown=responses.unknown,
            skipped=responses.skipped,
            unfinished=responses.unfinished,
            notes=responses.notes,
        )

    def run(
        self,
        found: AmberCounts,
        name: str = "amber",
        *,
        bad_files: Sequence[InputError] = (),
        resampling: Resampling | None = None,
    ) -> Run:
        """Computes the metrics from the counts of all answers.

        Args:
            found: Counts of all answers.
            name: Name of the system.
            bad_files: Errors for the files that could not be read and were omitted.
            resampling: Resampling settings for the confidence intervals.
        """
        questions = [(number, said) for number, said in found.answers if isinstance(self._item(number), Query)]
        unparsed = sum(said is None for _, said in questions)
        ids = [number for number, _ in found.answers]
        missing = self._missing(set(ids))
        return Run(
            name=name,
            signature=Signature.of(
                "amber",
                mode=self.mode,
                nltk=self._tagger and self._tagger.version,
                similarity=self.similarity.name,
                answers=self.answers,
                unfinished="dropped" if found.unfinished is not None else None,
                data=self.data.fingerprint,
                n=len(ids),
                ids=digest(map(str, sorted(ids))),
                missing=missing,
                skip=found.skipped,
                bad_files=len(bad_files) or None,
            ),
            metric_set=METRICS,
            table=found.table,
            n_records=len(ids),
            other_counts={
                "unparsed": unparsed,
                "missing": missing,
                "duplicate": found.duplicate,
                "unknown": found.unknown,
                "skipped": found.skipped,
                **({} if found.unfinished is None else {"unfinished": found.unfinished}),
                **({"bad_files": len(bad_files)} if bad_files else {}),
            },
            verdicts=self._right_and_wrong(questions),
            items=Items.of(found.table, self._items(found)),
            printed=printed(found.table.counts()) if self.mode == "parity" else {},
            notes=(*bad_file_notes(bad_files), *self._notes(found, set(ids), unparsed)),
            resampling=resampling or Resampling(),
        )

    def verdicts(
        self, responses: Sequence[AmberResponse], on_progress: Callable[[int], None] | None = None
    ) -> list[ScoredAnswer]:
        """Returns the verdict on every answer, in order."""
        texts = [response.text for response in responses if isinstance(response.item, Description)]
        nouns = iter(self._tagger.find_batch(texts, on_progress)) if self._tagger else map(self._finder.find, texts)
        safe, near, words = self.data.safe, self.similarity.near, self._words
        verdicts = []
        for response in responses:
            item = response.item
            if isinstance(item, Query):
                verdicts.append(ScoredAnswer(response, said=self._parse(response.text)))
                continue
            spoken = next(nouns)
            mentions = [noun for noun in spoken if noun in words] if self._tagger else spoken
            verdicts.append(
                ScoredAnswer(response, credit(item, mentions, safe, near), len(spoken) if self._tagger else None)
            )
        return verdicts

    def _unit(self, number: int) -> str:
        return self.data.images[number - 1] if self.data.images else f"item {number}"

    def _item(self, number: int) -> AmberItem:
        return self.data.items[number - 1]

    def _missing(self, answered: set[int]) -> int:
        """Returns the number of unanswered items in tasks with at least one answer."""
        tasks = {type(self._item(number)) for number in answered}
        return sum(type(item) in tasks for item in self.data.items) - len(answered)

    def _notes(self, counts: AmberCounts, answered: set[int], unparsed: int) -> Iterator[str]:
        yield from coverage(answered, self.data)
        yield from counts.notes
        if counts.duplicate:
            fate = "scored each time, as the official script does" if self.mode == "parity" else "scored once"
            yield f"{counts.duplicate:,} answers repeat an item; it is {fate}"
        if unparsed:
            yield f"{unparsed:,} answers are neither yes nor no by the rule '{self.answers}'; they count as wrong"
        if not self.data.images:
            yield "the data have no query folder, so items are resampled instead of images"

    def _items(self, found: AmberCounts) -> Iterator[tuple[str, str, dict[str, int]]]:
        """Yields the id, image and counts of every item. An image has at most one description."""
        position = {image: k for k, image in enumerate(found.table.image_ids)}
        described = set()
        for number, said in found.answers:
            item, image = self._item(number), self._unit(number)
            if isinstance(item, Query):
                yield str(number), image, {COLUMNS[k]: 1 for k in _question_columns(item, said)}
            elif number not in described:  # the row already contains repeated descriptions, which parity mode scores
                described.add(number)
                row = found.table.rows[position[image]].tolist()
                yield str(number), image, dict(zip(GENERATIVE, row[: len(GENERATIVE)], strict=True))

    def _right_and_wrong(self, questions: Iterable[tuple[int, YesNo | None]]) -> dict[str, dict[str, bool]]:
        """Returns, for each accuracy metric, a mapping from item ids to bools that are True if the item was answered
        correctly. McNemar's test compares these mappings.
        """
        right: dict[str, dict[str, bool]] = {}
        for number, said in questions:
            item = cast(Query, self._item(number))
            dimension = "attribute" if item.kind in ("state", "number", "action") else item.kind
            for name in ("accuracy", f"{dimension}_accuracy", f"{item.kind}_accuracy"):
                right.setdefault(name, {})[str(number)] = said == item.truth
        return right


def _generative_row(description_credit: DescriptionCredit) -> tuple[int, ...]:
    """Returns the counts of one description, one value per column of GENERATIVE."""
    wrong = sum(description_credit.flags)
    return (
        1,
        len(description_credit.flags),
        wrong,
        int(wrong > 0),
        sum(description_credit.cover),
        len(description_credit.cover),
        sum(description_credit.cog),
        len(description_credit.cog),
    )


def _question_columns(item: Query, said: YesNo | None) -> Iterator[int]:
    """Yields the indices of the columns in which the answer to one question is counted."""
    no, said_no = item.truth == "no", said == "no"
    counted = {
        QUESTIONS: True,
        CORRECT: said == item.truth,
        TRUE_NO: no,
        SAID_NO: said_no,
        RIGHT_NO: no and said_no,
    }
    yield from (_QUESTION_COUNTS[item.kind, count] for count, holds in counted.items() if holds)


def _score(
    systems: Systems,
    *,
    data: AmberData | str | Path,
    mode: Mode = "embedded",
    similarity: Similarity | str = "none",
    parser: str | None = None,
    drop_unfinished: bool = False,
    skip_bad: bool = False,
    per_answer: str | None = None,
    noun_cache: str | None = None,
    workers: int | None = None,
) -> list[Run]:
    systems.alone("--per-answer", per_answer, "file of responses")
    if parser is not None:
        check_choice("parser", parser, list(ANSWERS))
    named = systems.named()
    benchmark = data if isinstance(data, AmberData) else AmberData.load(data)
    scorer = Amber(
        benchmark,
        mode,
        similarity=similarity if isinstance(similarity, Similarity) else Similarity.load(similarity, benchmark.words),
        answers=parser,
        tagger=NltkNouns(workers, noun_cache) if mode == "parity" else None,
    )
    read = [read_responses(path, benchmark, official=mode == "parity", skip_bad=skip_bad) for path in named.values()]
    if drop_unfinished:
        read = [responses.without_unfinished() for responses in read]
    scored = []
    for (name, source), responses in zip(named.items(), read, strict=True):
        with systems.reading(name, source, sum(len(response.text) for response in responses.scored)) as advance:
            scored.append(scorer.score(responses, name, resampling=systems.resampling, on_progress=advance))
    runs = [score.run for score in scored]
    items = [{response.number for response in responses.scored} for responses in read]
    for run, answered in zip(runs, items, strict=True):
        if answered != items[0]:
            names = f"{run.name} and {runs[0].name}"
            systems.warn(f"{names} answer different items; differences use only the items that both answered")
    with systems.evidence(per_answer) as write:
        if write:
            write(scored[0].records())
    return runs


def _own_files(options: Mapping[str, Any]) -> Iterator[Path]:
    """Yields the benchmark's own data files, which no output may overwrite."""
    data = options["data"]
    folder = Path(data, "data") if Path(data, "data").is_dir() else Path(data)
    yield from (*folder.glob("*"), *folder.glob("query/*"))


def _augmented(
    answers: Mapping[str, str], truth: Sequence[str], parser: str | None, resampling: Resampling, warn: Warn
) -> list[Run]:
    """Implements ``Benchmark.augmented``; see :mod:`scapo_eval.benchmarks.augmented`."""
    if parser is not None and parser not in ANSWERS:
        raise InputError(f"unknown parser {parser!r} for amber; known: {', '.join(ANSWERS)}")
    if not truth:
        raise OptionError("--benchmark amber needs --data, a checkout of AMBER's repository")
    data = AmberData.load(truth[0])
    scorer = Amber(data, answers=parser)
    return [scorer.score(read_responses(path, data), name, resampling=resampling).run for name, path in answers.items()]


@naming_inputs
def amber(
    responses: Given,
    *,
    data: AmberData | str | Path,
    mode: Mode = "embedded",
    similarity: Similarity | str = "none",
    parser: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    drop_unfinished: bool = False,
) -> Run:
    """Computes AMBER's generative and discriminative metrics.

    Args:
        responses: Records with ``id`` and ``response``.
        data: Folder of AMBER's repository, or its subfolder ``data``.
        mode: ``embedded``, or ``parity`` to find nouns with NLTK and to report the values that the official script
            prints (extra ``nltk``).
        similarity: Words that count as equal: ``none``, ``spacy:MODEL``, a JSON file of word pairs, or a similarity
            object.
        parser: Rule for yes/no answers, ``first-word`` or ``exact``. The default depends on the mode.
        name, resamples, seed, bootstrap, skip_bad, drop_unfinished: Same as in :func:`scapo_eval.score`.
        workers: Number of tagging processes in parity mode, or None for one per processor.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.
        MissingExtra: If parity mode is requested and NLTK is not installed.

    Example:
        >>> import scapo_eval
        >>> from scapo_eval.benchmarks.amber.data import AmberData, Query
        >>> data = AmberData((Query("state", "yes"), Query("state", "no")), (), frozenset(), None, "two questions")
        >>> answers = [{"id": 1, "response": "Yes."}, {"id": 2, "response": "Yes."}]
        >>> scapo_eval.amber(answers, data=data).values["accuracy"]
        0.5
    """
    systems = Systems.of(responses, name, "responses", drawn(resamples, seed, bootstrap))
    systems.count()
    runs = _score(
        systems,
        data=data,
        mode=mode,
        similarity=similarity,
        parser=parser,
        drop_unfinished=drop_unfinished,
        skip_bad=skip_bad,
        workers=workers,
    )
    [run] = systems.accounted(runs)
    return run


BENCHMARK = Benchmark(
    name="amber",
    title="AMBER",
    help="""Scores AMBER responses. Several files are compared with the first.

    RESPONSES are JSON arrays or JSON Lines of {"id", "response"}, plain, .gz or .zst. A task that is not in the
    file has no value; precision and recall have "no" as their positive class.
    """,
    metric_set=lambda columns: METRICS,
    metric_names={"amber_score": "AMBER Score", "cog": "Cog"},
    meanings={
        "chair": "mentions that are hallucinated",
        "cover": "annotated objects that are mentioned",
        "hal": "responses with a hallucination",
        "cog": "hallucinations that are also typical of people",
    },
    canonical={"accuracy": "accuracy"},
    dataset={"source_type": "url", "url": ["https://github.com/junyangwang0410/AMBER"]},
    headline=("chair", "cover", "hal", "cog", "accuracy", "f1"),
    frontiers=(("chair", "cover", "AMBER: CHAIR and Cover"),),
    score=_score,
    function=amber,
    files="responses",
    takes=("AMBER responses", "answers"),
    own_files=_own_files,
    options={
        "data": Option(metavar="DIR", help="Checkout of AMBER's repository, or its data folder."),
        "mode": Option(
            choices=get_args(Mode),
            help="parity: NLTK's nouns and the official script's digits; embedded: neither NLTK nor spaCy.",
        ),
        "similarity": Option(
            file="read",
            metavar="none|spacy:MODEL|FILE",
            help="Words that count as equal: from a spaCy model (computed once and cached), or a JSON file of pairs.",
        ),
        "parser": Option(
            flags=("--answers",),
            choices=tuple(ANSWERS),
            help="Rule for yes/no answers.  [default: first-word, or exact with --mode parity]",
        ),
        "drop_unfinished": Option(help="Remove the last sentence of a description if it is unfinished."),
        "skip_bad": Option(help="Omit faulty records and count them in the signature."),
        "per_answer": Option(
            file="written",
            metavar="FILE",
            help="Write the verdict on every answer as JSON Lines (one system only).",
        ),
        "noun_cache": Option(
            file="written",
            metavar="FILE",
            help="Cache NLTK's nouns in a file for the next run with --mode parity.",
        ),
        "workers": Option(
            at_least=1, help="Number of tagging processes with --mode parity.  [default: one per processor]"
        ),
    },
    engine=OnEngine(function="amber", refuses=("per_answer", "noun_cache")),
    asked="AMBER's query files",
    recognizes_file=recognize,
    augmented=_augmented,
    command_example=CommandExample(("scapo-eval amber responses.jsonl --data AMBER/",), runs=False),
)
