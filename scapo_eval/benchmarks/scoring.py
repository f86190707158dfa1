"""Loop shared by all scorers. The loop converts blocks of captions or responses to rows of counts and sums these rows
per image.

A :class:`Scorer` defines what is counted. Blocks are independent, so one or several processes can work on them. The
loop keeps only these sums.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, check_choice, short_repr
from ..base.hashes import digest
from ..base.odd_texts import OddTexts, odd_texts
from ..base.reprs import fields_in_short
from ..files.account import NOTHING, SHORT, Account, add_odd
from ..files.containers import ErrorHandler
from ..files.mapped import Mapped
from ..files.records import Readable
from ..files.source import Source
from ..matching.uses import Reading, check_reading
from ..readers.captions import Captions, FileChecks, bytes_behind
from ..results.counts import CountBuilder, CountTable, in_few_bytes, summed_by
from ..segmenting.unfinished import without_unfinished
from ..truths.oracle import Truth
from .agreement import LEAST, MANY, Claims, Fit, checked, likely_ids

OnUnknownImage = Literal["error", "skip"]


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """Settings for scoring a file, which all scorers share.

    Attributes:
        claims: Reading, which selects the mentions to count; see :mod:`scapo_eval.matching.uses`.
        skip_bad: True to omit and count faulty records instead of raising an error.
        on_unknown_image: ``error`` to raise an error for captions whose image has no ground truth, or ``skip`` to omit
            and count them.
        any_fingerprint: True to accept a matrix that was made for another vocabulary.
        workers: Number of processes for parsing and matching, or None to use only the current process.
        drop_unfinished: True to remove an unfinished last sentence (:mod:`scapo_eval.segmenting.unfinished`).
        strict: True to reject files with unusual captions (repeated, empty or cut off) or with different numbers of
            captions per image.
        any_ids: True to score captions even if their claims indicate that they belong to other images
            (:mod:`scapo_eval.benchmarks.agreement`).
    """

    claims: Reading = "all"
    skip_bad: bool = False
    on_unknown_image: OnUnknownImage = "error"
    any_fingerprint: bool = False
    workers: int | None = None
    drop_unfinished: bool = False
    strict: bool = False
    any_ids: bool = False

    def __post_init__(self) -> None:
        check_reading(self.claims)
        check_choice("on_unknown_image", self.on_unknown_image, ("error", "skip"))
        check_workers(self.workers)


def check_workers(workers: object) -> None:
    """Checks a number of workers.

    Raises:
        InputError: If the number is neither None nor a whole number of at least 1.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers must be a whole number of at least 1, got {short_repr(workers)}")


class ScorableBlock(Protocol):
    """Interface of a block of records in a file."""

    @property
    def name(self) -> str:
        """Display name of the file."""

    @property
    def size(self) -> int:
        """Number of raw bytes in the block, for the progress bar."""

    def parse(self, faults: FaultList) -> Captions:
        """Returns the valid records of the block. Faulty records are omitted, and their faults are added to
        ``faults``.
        """


class UnknownImage(InputError):
    """Error for a caption whose image has no ground truth. The record itself is valid, so ``skip_bad`` does not skip
    it.
    """

    alike = "another image that is not in the ground truth; check that it is the ground truth of these images, or omit "
    alike += "them with --on-unknown-image skip"


BlockReader = Callable[["ErrorHandler | None"], Iterable[ScorableBlock]]
"""Function that opens a file. Its argument is a callback for records that cannot be read at all (None raises the
error).
"""


@dataclass(frozen=True, slots=True)
class BlockAccount:
    """Properties of the captions in a block that are used to detect unusual files.

    Attributes:
        prints: (captions,) hash of the image and the text of each caption.
        images: Row indices of the distinct images in the first ground truth.
        captions: Number of captions of each distinct image.
        empty: Number of captions without text.
        cut: Number of captions that were cut off by a token limit.
        rows: (captions,) row index of each caption's image in the first ground truth.
        claims: Claims of the block's first captions, or None if the scorer does not count labels.
        contradicting: Number of captions whose record lists an object that the first ground truth marks as absent.
        odd: Captions with a ``failed`` text, and captions with ``markup``, with line numbers relative to the block.
    """

    prints: NDArray[np.int64]
    images: NDArray[np.int64]
    captions: NDArray[np.int64]
    empty: int
    cut: int
    rows: NDArray[np.int32]
    claims: Claims | None = None
    contradicting: int = 0
    odd: Mapping[str, OddTexts] = field(default_factory=dict)

    @classmethod
    def of(cls, captions: Captions, scored: ScoredBlock, number: Callable[[str], int], truth: Truth) -> BlockAccount:
        """Creates the account of the captions in a block.

        Args:
            captions: All captions of the block.
            scored: Scored captions, with one row per caption.
            number: Hash function for texts.
            truth: Ground truth.
        """
        texts, rows = scored.captions.captions, scored.images
        numbers = np.fromiter(map(number, texts), np.int64, len(texts))
        open_ended = [text for text in texts if not text.endswith(_ENDS)]
        cut = captions.cut
        if cut is None:
            cut = sum(without_unfinished(text) is not text for text in open_ended)
        empty = sum(len(text) < SHORT and text.strip().casefold() in NOTHING for text in open_ended)
        images, counts = np.unique(rows, return_counts=True)
        claims = None if scored.claims is None else Claims.of_first(len(texts), *scored.claims)
        prints = numbers ^ (rows.astype(np.int64) * _MIXED)
        contradicting = _contradicting(scored.captions.objects, rows, truth)
        odd = odd_texts(texts, scored.captions.numbers, scored.captions.image_ids)
        return cls(prints, images, counts, empty, cut, rows.astype(np.int32), claims, contradicting, odd)


def _contradicting(objects: Sequence[Sequence[str] | None], rows: NDArray[np.int64], truth: Truth) -> int:
    if objects.count(None) == len(objects):
        return 0
    ids = truth.vocabulary.label_ids
    named = [[ids[name] for name in names or () if name in ids] for names in objects]
    return sum(bool((truth.states[row, found] == 0).any()) for row, found in zip(rows.tolist(), named, strict=True))


MOST_PROMPTS = 8
"""Maximum number of distinct prompts per file in a signature. With more prompts, they are specific to images."""

_ENDS = (".", "!", "?")
_MIXED = np.int64(0x1E3779B97F4A7C15)


def crc(text: str) -> int:
    """Returns a hash of a text; the hash is the same in every process."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class ScoredBlock:
    """Counts for the captions in a block.

    Attributes:
        captions: Scored captions.
        counts: (captions, columns) int64 counts, in the order of the scorer's columns.
        mentioned: (labels,) number of mentions of each label in the first ground truth's vocabulary.
        evidence: Evidence for the captions, whose data type depends on the scorer.
        unknown_images: Number of captions that were omitted because their image has no ground truth.
        strange: The first few image ids that have no ground truth.
        unfinished: Number of captions from which an unfinished last sentence was removed.
        images: (captions,) row index of each caption's image in the first ground truth.
        n_captions: Number of captions.
        said: Account of the block's captions, or None if it was not requested.
        unjudged: Number of captions that the judge of the uses of mentions has not judged, or None if there is no such
            judge.
        by_image: True if ``counts`` has one summed row per image instead of one row per caption.
        claims: Two (mentions,) arrays with the caption and the label of each mention, limited to labels that the first
            ground truth contains. The value is None if the scorer does not count labels.
    """

    captions: Captions
    counts: NDArray[np.int64]
    mentioned: NDArray[np.int64]
    evidence: Any = None
    unknown_images: int = 0
    strange: tuple[str, ...] = ()
    unfinished: int = 0
    images: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    n_captions: int = 0
    said: BlockAccount | None = None
    by_image: bool = False
    unjudged: int | None = None
    claims: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None

    __repr__ = fields_in_short

    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the distinct images of the block, and for each image the sum of its captions' counts."""
        return (self.images, self.counts) if self.by_image else summed_by(self.images, self.counts)

    def summed(self) -> ScoredBlock:
        """Returns a copy, for transfer between processes, that has one row per image and no texts or mentions."""
        images, counts = map(in_few_bytes, self.sums())
        checks = self.captions.for_checks()
        return replace(self, captions=checks, images=images, counts=counts, evidence=None, by_image=True, claims=None)


@dataclass(frozen=True)
class Scorer(ABC):
    """Base class of the objects that convert captions to counts. Scorers can be pickled and therefore sent to worker
    processes.

    Attributes:
        truths: Ground truths. A caption is scored only if all of these ground truths contain its image.
        skip_unknown_images: True to omit and count captions whose image has no ground truth.
    """

    truths: tuple[Truth, ...]
    skip_unknown_images: bool = False

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the counts."""

    @abstractmethod
    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Returns the counts of each caption.

        Args:
            captions: n captions of images that have a ground truth.
            rows: For each ground truth, an (n,) array with the row of each caption's image.
        """

    def prepare(self) -> None:
        """Computes cached data before processes are forked, so that all processes share the data."""
        for truth in self.truths:
            _ = truth.oracle.index

    def score(self, captions: Captions, name: str, faults: FaultList) -> ScoredBlock:
        """Returns the counts of parsed captions. Captions whose image has no ground truth are added to ``faults`` or
        skipped.
        """
        rows = [truth.oracle.find_rows(captions.image_ids) for truth in self.truths]
        known = np.logical_and.reduce([r >= 0 for r in rows])
        unknown_images = 0
        strange: tuple[str, ...] = ()
        if not known.all():
            unknown = np.flatnonzero(~known).tolist()
            strange = tuple(dict.fromkeys(captions.image_ids[k] for k in unknown[:MANY]))
            for k in unknown:
                if self.skip_unknown_images:
                    unknown_images += 1
                    continue
                lacking = next(t for t, r in zip(self.truths, rows, strict=True) if r[k] < 0)
                reason = f"unknown image id '{captions.image_ids[k]}' (not in {lacking.oracle.source})"
                faults.add(UnknownImage(reason, path=name, line=captions.numbers[k]))
            captions = captions.only(known)
            rows = [r[known] for r in rows]
        counted = self.count(captions, rows)
        n, images = len(counted.counts), rows[0]
        return replace(counted, images=images, n_captions=n, unknown_images=unknown_images, strange=strange)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over all records of a file.

    Attributes:
        table: Counts per image.
        n_records: Number of scored captions.
        skipped: Number of omitted faulty records.
        unknown_images: Number of captions that were omitted because their image has no ground truth.
        mentioned: (labels,) number of mentions of each label in the first ground truth's vocabulary.
        unfinished: Number of captions from which an unfinished last sentence was removed, or None if removal was not
            requested.
        bad_files: Errors of files that could not be read and were omitted.
        account: Properties of all records, used to detect unusual files.
        prompts: Distinct prompts that the records contain.
        strangers: Sentence about unknown images, if most captions have an unknown image.
        unjudged: Number of captions that the judge of the uses of mentions has not judged, or None if there is no such
            judge.
        merged: Sentence about images that differ only in their folders, if there are any.
    """

    table: CountTable
    n_records: int
    skipped: int
    unknown_images: int
    mentioned: NDArray[np.int64]
    unfinished: int | None = None
    bad_files: Sequence[InputError] = ()
    account: Account | None = None
    prompts: frozenset[str] = frozenset()
    strangers: str | None = None
    merged: str | None = None
    unjudged: int | None = None

    __repr__ = fields_in_short

    @property
    def left_out(self) -> int:
        """Number of records that were omitted for any reason."""
        return self.skipped + self.unknown_images

    @property
    def other_counts(self) -> dict[str, int]:
        """Counts for a run: ``skipped``, ``unknown_images`` and, if applicable, ``unfinished`` and ``bad_files``."""
        counts = {"skipped": self.skipped, "unknown_images": self.unknown_images}
        if self.unfinished is not None:
            counts["unfinished"] = self.unfinished
        if self.unjudged is not None:
            counts["unjudged"] = self.unjudged
        return {**counts, "bad_files": len(self.bad_files)} if self.bad_files else counts

    @property
    def notes(self) -> list[str]:
        """One sentence about each unusual property of the file."""
        said = [note for note in (self.strangers, self.merged) if note]
        if self.unjudged:
            said.append(
                f"{self.unjudged:,} of {self.n_records:,} captions are not in the file of --uses, so that rules "
                "determine the uses of their mentions; judge them with scapo-eval judge uses"
            )
        return [*bad_file_notes(self.bad_files), *said, *(self.account.notes if self.account else ())]

    @property
    def decisive(self) -> dict[str, str]:
        """Signature fields that describe the scored texts and the ground truth."""
        fields = {} if self.unfinished is None else {"unfinished": "dropped"}
        if 0 < len(self.prompts) <= MOST_PROMPTS:
            fields["asked_with"] = digest(sorted(self.prompts))
        if self.table.per_image not in (None, 1):
            fields["per_image"] = str(self.table.per_image)
        return fields if self.table.truth is None else {**fields, "truth": self.table.truth}


def bad_file_notes(bad_files: Sequence[InputError]) -> list[str]:
    """Returns one sentence that lists the files that could not be read, if there are any."""
    if not bad_files:
        return []
    shown = "; ".join(map(str, bad_files[:20])) + ("; ..." if len(bad_files) > 20 else "")
    return [f"{len(bad_files):,} files could not be read and are omitted: {shown}"]


OnBlock = Callable[[ScoredBlock], None]


class BlockOutcome(NamedTuple):
    """Result of scoring one block.

    Attributes:
        block: Scored block.
        errors: Faults in the block, sorted by line.
        lines: Number of lines in the block, for blocks whose line numbers are relative to the block
            (:class:`~scapo_eval.readers.captions.Captions`).
    """

    block: ScoredBlock
    errors: list[InputError]
    lines: int


class Sums:
    """Sums over scored blocks, to which further sums can be added. Adding the sums for the parts of a file gives the
    sums for the whole file.

    Attributes:
        counts: Counts per image.
        totals: Numbers of ``scored`` captions, ``skipped`` records, captions with ``unknown_images``, ``unfinished``
            captions, and ``unjudged`` captions.
        mentioned: (labels,) number of mentions of each label in the first ground truth's vocabulary.
        faults: Faults in records that are not skipped.
        checks: Checks for repeated ids and for several models.
        lines: Number of lines read so far, for blocks whose line numbers are relative to the block.
        prints: For every block, a (captions,) array with a hash of each caption's image and text.
        said: Numbers of ``empty``, ``cut`` and ``contradicting`` captions.
        odd: Captions with a ``failed`` text, and captions with ``markup``.
        prompts: Distinct prompts that the records contain.
        per_image: Number of captions of each image, in the order of the first ground truth. Sums that were merged from
            several parts may list the images in any order.
    """

    def __init__(self, scorer: Scorer, options: ScoringOptions, source: str) -> None:
        self.counts = CountBuilder(scorer.columns)
        self.totals = dict.fromkeys(("scored", "skipped", "unknown_images", "unfinished", "unjudged"), 0)
        self.mentioned: NDArray[np.int64] | None = None
        self.faults = FaultList()
        self.checks = FileChecks(source)
        self.lines = 0
        self.prints: list[NDArray[np.int64]] = []
        self.said = dict.fromkeys(("empty", "cut", "contradicting"), 0)
        self.odd: dict[str, OddTexts] = {}
        self.per_image = np.zeros(0, dtype=np.int64)
        self._truths = scorer.truths
        self.prompts: set[str] = set()
        self._truth = scorer.truths[0]
        self._known = self._truth.oracle.image_ids
        self._fit = Fit()
        self._strange: list[str] = []
        self._n_strange = 0
        self._options = options
        self._source = source

    @property
    def on_error(self) -> ErrorHandler | None:
        """Function that is called for each record that cannot be read, or None to raise the error."""
        return self.add_fault if self._options.skip_bad else None

    def add(self, outcome: BlockOutcome) -> None:
        """Adds a scored block. Blocks must be added in the order of the file."""
        block = outcome.block
        for error in outcome.errors:
            self.add_fault(error.behind(self.lines))
        self.counts.add_known(self._known, *block.sums())
        self.checks.add(block.captions, self.lines)
        if block.said is not None:
            self._add_said(block.said)
        if len(self.prompts) <= MOST_PROMPTS:
            self.prompts |= block.captions.prompts
        self.lines += outcome.lines
        self.totals["scored"] += block.n_captions
        self.totals["unknown_images"] += block.unknown_images
        self._n_strange += block.unknown_images
        self._strange.extend(block.strange[: MANY - len(self._strange)])
        self.totals["unfinished"] += block.unfinished
        self.totals["unjudged"] += block.unjudged or 0
        self.mentioned = block.mentioned if self.mentioned is None else self.mentioned + block.mentioned

    def _add_said(self, said: BlockAccount) -> None:
        if len(self.per_image) != len(self._known):
            self.per_image = np.zeros(len(self._known), dtype=np.int64)
        self.per_image[said.images] += said.captions
        self.prints.append(said.prints)
        self.said["empty"] += said.empty
        self.said["cut"] += said.cut
        self.said["contradicting"] += said.contradicting
        add_odd(self.odd, {kind: texts.behind(self.lines) for kind, texts in said.odd.items()})
        if said.claims is not None:
            self._fit.add(said.rows, said.claims)

    def account(self, given: Readable | None) -> Account:
        """Returns the account of all records in the file.

        Raises:
            InputError: If the captions do not belong to the images that their ids name.
        """
        file = given if isinstance(given, Source) else None
        prints = np.concatenate([np.zeros(0, dtype=np.int64), *self.prints])
        per_image = self.per_image[self.per_image > 0]
        records = self.totals["scored"] + self.totals["skipped"] + self.totals["unknown_images"]
        return Account(
            bytes=file.taken if file else 0,
            crc32=file.crc32 if file else None,
            lines=self.lines or records,
            records=records,
            skipped=self.totals["skipped"],
            duplicates=len(prints) - len(np.unique(prints)),
            unmatched_ids=self.totals["unknown_images"],
            captions_per_image=(int(per_image.min()), int(per_image.max())) if len(per_image) else (0, 0),
            agreement=checked(self._fit, self._truth, self._source, any_ids=self._options.any_ids),
            failed=self.odd.get("failed"),
            markup=self.odd.get("markup"),
            **self.said,
        )

    def add_fault(self, error: InputError) -> None:
        """Stores a fault that was found in a record. If faulty records are skipped, the faults are only counted."""
        if self._options.skip_bad and not isinstance(error, UnknownImage):
            self.totals["skipped"] += 1
            return
        self._n_strange += isinstance(error, UnknownImage)
        self.faults.add(error)

    @property
    def strangers(self) -> str | None:
        """Sentence about captions whose image has no ground truth, or None if most captions have a known image."""
        if not self._strange or self._n_strange <= self.totals["scored"]:
            return None
        known, hint = self._truth.oracle, likely_ids(self._strange, self._truth.oracle.image_ids)
        if not hint and self._n_strange + self.totals["scored"] < LEAST:
            return None
        n = self.totals["scored"] + self._n_strange
        share = f"only {self.totals['scored']:,}" if self.totals["scored"] else "none"
        return (
            f"{share} of {n:,} captions have the id of an image in {known.source}{hint or ''}"
            f" (unknown, for example: '{self._strange[0]}'; known: '{known.image_ids[0]}')"
        )

    def tally(self, bad_files: Sequence[InputError] = ()) -> Tally:
        """Returns the sums of a whole file.

        Args:
            bad_files: Errors of files that could not be read and were omitted.

        Raises:
            InputErrors, InputError: If the input is invalid, or all captions were omitted. The error lists the faults
                by file and line.
        """
        few = self.strangers
        if few and self._n_strange == self.faults.total:  # there are no other faults
            first = self.faults.errors[0].line
            remedy = "; --on-unknown-image skip omits the others" if self.totals["scored"] else ""
            raise InputError(few + remedy, path=self._source, line=first)
        self.faults.raise_if_any(SKIP if self.totals["scored"] and self.faults.total > self._n_strange else "")
        self.checks.check()
        if not self.totals["scored"] or self.mentioned is None:
            raise InputError(few or "no caption is left to score", path=self._source)
        table = self.counts.table()
        cells = sum((2 * k + 1) * truth.prints(table.image_ids) for k, truth in enumerate(self._truths))
        return Tally(
            replace(table, cells=np.asarray(cells, dtype=np.uint64)),
            self.totals["scored"],
            self.totals["skipped"],
            self.totals["unknown_images"],
            self.mentioned,
            self.totals["unfinished"] if self._options.drop_unfinished else None,
            bad_files,
            prompts=frozenset(self.prompts),
            strangers=few,
            merged=self.checks.merged.note,
            unjudged=None if isinstance(self._options.claims, str) else self.totals["unjudged"],
        )


SKIP = "to omit faulty records: --on-bad-record skip (in Python: skip_bad=True)"
"""Remedy for an input with some faulty records."""


_LISTS = re.compile(rb'"extracted"\s*:')


def ignored_lists(given: Readable) -> list[str]:
    """Returns a warning if records contain a judge's object lists, because benchmarks that read only the texts ignore
    these lists.
    """
    if not isinstance(given, Source) or given.is_folder or not _LISTS.search(given.head):
        return []
    return ["the judge's lists of objects ('extracted') are ignored; to score the lists, use scapo-eval objhal"]


def tally(
    read: BlockReader,
    scorer: Scorer,
    options: ScoringOptions,
    *,
    source: str,
    on_block: OnBlock | None = None,
    on_progress: Callable[[int], None] | None = None,
    given: Readable | None = None,
) -> Tally:
    """Scores every block of a file. Memory use grows with the number of images and by a further 12 bytes per caption.

    Args:
        read: Function that opens the file.
        scorer: Scorer that defines the counts.
        options: Settings for the treatment of faulty records and for the number of processes.
        source: Name of the file in messages.
        on_block: Callback that receives each scored block in the order of the file, until a fault occurs.
        on_progress: Callback that receives the number of raw bytes of each scored block.
        given: Input of the run, whose size and checksum are recorded in the account.

    Raises:
        InputErrors, InputError: If the input is invalid, or if captions do not belong to the images that are identified
            by their ids. With ``strict``, unusual captions also raise this error.
        ScapoError: If a worker process was killed.
    """
    if isinstance(given, Source):
        given.hash()
    sums = Sums(scorer, options, source)
    work = Work(scorer, options.drop_unfinished, on_block is not None, _number(options.workers))
    outcomes = _scored_blocks(work, read(sums.on_error), options.workers or 1)
    with closing(outcomes):
        for size, outcome in outcomes:
            before = sums.lines
            sums.add(outcome)
            if on_block is not None and not sums.faults.total:
                on_block(replace(outcome.block, captions=outcome.block.captions.behind(before)))
            if on_progress is not None:
                on_progress(size)
    totals = replace(sums.tally(), account=sums.account(given))
    if options.strict and totals.account is not None and (unusual := totals.notes):
        raise InputError(f"{'; '.join(unusual)} (--strict)", path=source)
    return totals


def _number(workers: int | None) -> Callable[[str], int]:
    """Returns the function that computes a hash of a text. The function is Python's own ``hash`` if all processes have
    the same hash seed, which is the case for forked processes.
    """
    if (workers or 1) <= 1:
        return hash
    from multiprocessing import get_start_method

    return hash if get_start_method() == "fork" else crc


@dataclass(frozen=True, slots=True)
class Work:
    """Function that scores a block and that can be pickled for other processes and machines.

    Attributes:
        scorer: Scorer that defines the counts.
        drop_unfinished: True to remove an unfinished last sentence.
        evidence: True to transfer texts and mentions back from worker processes.
        number: Hash function for texts, or None if no account is needed.
    """

    scorer: Scorer
    drop_unfinished: bool
    evidence: bool = False
    number: Callable[[str], int] | None = None

    def __call__(self, block: ScorableBlock) -> BlockOutcome:
        """Returns the counts of the captions in a block, and the faults sorted by line."""
        errors: list[InputError] = []
        faults = FaultList(errors.append)
        captions = block.parse(faults)
        texts = captions.captions
        if self.drop_unfinished:
            captions = replace(captions, captions=list(map(without_unfinished, texts)))
        scored = self.scorer.score(captions, block.name, faults)
        if self.drop_unfinished:
            unfinished = sum(a is not b for a, b in zip(texts, captions.captions, strict=True))
            scored = replace(scored, unfinished=unfinished)
        if self.number is not None:
            said = BlockAccount.of(captions, scored, self.number, self.scorer.truths[0])
            scored = replace(scored, said=said)
        return BlockOutcome(scored, sorted(errors, key=lambda error: error.line or 0), captions.lines)


_work: Work


def _start_worker(work: Mapped[Work]) -> None:
    import signal

    global _work
    _work = work.value
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C with a single message


def _score_blocks(blocks: list[ScorableBlock]) -> list[BlockOutcome]:
    outcomes = map(_work, blocks)
    return (
        list(outcomes) if _work.evidence else [outcome._replace(block=outcome.block.summed()) for outcome in outcomes]
    )


_TOGETHER = 8
"""Maximum number of blocks per task. A task costs this process 0.7 ms, and a block costs a worker 13 ms."""


def _tasks(blocks: Iterable[ScorableBlock], workers: int) -> Iterator[list[ScorableBlock]]:
    """Groups blocks into tasks for worker processes. Tasks become smaller toward the end of a file, so that all workers
    finish at about the same time.
    """
    left = iter(blocks)
    for block in left:
        further = bytes_behind(block) // (4 * workers * max(1, block.size))
        yield [block, *islice(left, min(_TOGETHER, further) - 1 if further else 0)]


def _scored_blocks(
    work: Work, blocks: Iterable[ScorableBlock], workers: int
) -> Generator[tuple[int, BlockOutcome], None, None]:
    """Yields ``(raw bytes, outcome)`` for every block in file order, using one or several processes."""
    if workers <= 1:
        for block in blocks:
            yield block.size, work(block)
        return
    from collections import deque
    from multiprocessing import get_start_method

    from ..base.processes import process_pool

    if get_start_method() == "fork":
        work.scorer.prepare()
    tasks = ([block] for block in blocks) if work.evidence else _tasks(blocks, workers)
    with Mapped(work) as shared, process_pool(workers, initializer=_start_worker, initargs=(shared,)) as pool:
        submitted = (([block.size for block in task], pool.submit(_score_blocks, task)) for task in tasks)
        pending = deque(islice(submitted, 2 * workers))  # bounded, so that a fast reader does not fill the memory
        while pending:
            sizes, future = pending.popleft()
            pending.extend(islice(submitted, 1))
            yield from zip(sizes, future.result(), strict=True)
            for truth in work.scorer.truths:  # compute hashes for the signature while the workers run
                _ = truth.identity, truth.vocabulary.identity


def truth_notes(truth: Truth, mentioned: NDArray[np.int64]) -> Iterator[str]:
    """Yields sentences with facts about this ground truth that a reader of the values should know.

    Args:
        truth: Ground truth.
        mentioned: (labels,) number of times that the captions mention each label of the vocabulary.
    """
    yield from truth.notes
    if truth.oracle.world != "open-axis":
        return
    known = (truth.states == 1).any(axis=0)
    never = [truth.vocabulary.labels[k] for k in np.flatnonzero((mentioned > 0) & ~known).tolist()]
    if never:
        shown = ", ".join(f"'{label}'" for label in never[:10]) + (", ..." if len(never) > 10 else "")
        yield (
            f"{truth.oracle.source} does not state its label set, so unlisted labels count as absent; "
            f"claimed but never in it: {shown} (if these were not annotated, state the label set: "
            '{"labels": [...], "objects": {image: [labels]}})'
        )
