"""The one scoring loop: blocks of captions (or responses) become rows of counts, summed per image.

A :class:`Scorer` says what is counted. Blocks are independent, so they are counted in this process or in several,
and only sums are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .claims import CLAIMS, Claims
from .counts import CountBuilder, CountTable
from .errors import InputError, check_choice, short_repr
from .io.captions import Captions, FileChecks
from .io.containers import OnError
from .io.files import FaultList
from .oracle import Truth
from .reprs import fields_in_short
from .unfinished import without_unfinished


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """How a file is scored, whatever is counted.

    Attributes:
        claims: which mentions count, see :mod:`scapo_eval.claims`.
        skip_bad: leave faulty lines out and count them, in place of stopping.
        on_unknown_image: stop at captions of images that a truth does not know, or leave them out and count them.
        any_fingerprint: accept a matrix that was made for another vocabulary.
        workers: processes that parse and match; None: this one.
        drop_unfinished: drop the last sentence of a text where it has no end, see :mod:`scapo_eval.unfinished`.
    """

    claims: Claims = "all"
    skip_bad: bool = False
    on_unknown_image: Literal["error", "skip"] = "error"
    any_fingerprint: bool = False
    workers: int | None = None
    drop_unfinished: bool = False

    def __post_init__(self) -> None:
        check_choice("claims", self.claims, CLAIMS)
        check_choice("on_unknown_image", self.on_unknown_image, ("error", "skip"))
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 1):
            raise InputError(f"workers must be a whole number of at least 1, got {short_repr(self.workers)}")


class Block(Protocol):
    """Some records of a file."""

    @property
    def name(self) -> str:
        """Display name of the file."""

    @property
    def size(self) -> int:
        """Raw bytes, for the progress bar."""

    def parse(self, faults: FaultList) -> Captions:
        """The records; faulty ones go to ``faults`` and are left out."""


class UnknownImage(InputError):
    """A caption of an image that a truth does not know; not a faulty record, so ``skip_bad`` does not pass over it."""


Reader = Callable[["OnError | None"], Iterable[Block]]
"""Opens a file; the argument is called with each record that is unreadable already there (None: raise)."""


@dataclass(frozen=True, slots=True)
class ScoredBlock:
    """Counts of a block of captions.

    Attributes:
        captions: those that were scored.
        counts: (captions, columns) int64, in the order of the scorer's columns.
        mentioned: (labels,) how often each label of the first truth's vocabulary is mentioned.
        evidence: what was found in the captions, as the scorer keeps it.
        unknown_images: captions left out because a truth does not know their image.
        unfinished: captions whose last sentence was dropped.
    """

    captions: Captions
    counts: NDArray[np.int64]
    mentioned: NDArray[np.int64]
    evidence: Any = None
    unknown_images: int = 0
    unfinished: int = 0

    __repr__ = fields_in_short

    def without_evidence(self) -> ScoredBlock:
        """Only what sums need, for the way between processes: no texts and no mentions."""
        captions = replace(self.captions, captions=[], objects=[])
        return replace(self, captions=captions, evidence=None)


@dataclass(frozen=True)
class Scorer(ABC):
    """Everything that turns captions into counts; picklable, so that worker processes can have one.

    Attributes:
        truths: what is in the images; a caption is scored where all of them know its image.
        skip_unknown_images: leave captions of other images out and count them.
    """

    truths: tuple[Truth, ...]
    skip_unknown_images: bool = False

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the counts."""

    @abstractmethod
    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """The counts of captions.

        Args:
            captions: n captions of known images.
            rows: per truth, (n,) row of each caption's image.
        """

    def score(self, captions: Captions, name: str, faults: FaultList) -> ScoredBlock:
        """Counts of parsed captions; those of unknown images go to ``faults`` or are skipped."""
        rows = [truth.oracle.find_rows(captions.image_ids) for truth in self.truths]
        known = np.logical_and.reduce([r >= 0 for r in rows])
        unknown_images = 0
        if not known.all():
            for k in np.flatnonzero(~known).tolist():
                if self.skip_unknown_images:
                    unknown_images += 1
                    continue
                lacking = next(t for t, r in zip(self.truths, rows, strict=True) if r[k] < 0)
                reason = f"unknown image id '{captions.image_ids[k]}' (not in {lacking.oracle.source})"
                faults.add(UnknownImage(reason, path=name, line=captions.numbers[k]))
            captions = captions.only(known)
            rows = [r[known] for r in rows]
        return replace(self.count(captions, rows), unknown_images=unknown_images)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over a file.

    Attributes:
        table: counts per image.
        n_records: captions scored.
        skipped: faulty records left out.
        unknown_images: captions of unknown images left out.
        mentioned: (labels,) how often each label of the first truth's vocabulary is mentioned.
        unfinished: captions whose last sentence was dropped; None where none was to be.
    """

    table: CountTable
    n_records: int
    skipped: int
    unknown_images: int
    mentioned: NDArray[np.int64]
    unfinished: int | None = None

    __repr__ = fields_in_short

    @property
    def left_out(self) -> int:
        """All records left out."""
        return self.skipped + self.unknown_images

    @property
    def other_counts(self) -> dict[str, int]:
        """For a run: ``skipped`` and ``unknown_images``, and ``unfinished`` where such sentences are dropped."""
        found = {"skipped": self.skipped, "unknown_images": self.unknown_images}
        return found if self.unfinished is None else {**found, "unfinished": self.unfinished}

    @property
    def decisive(self) -> dict[str, str]:
        """Fields of the signature that say what of the texts was scored."""
        return {} if self.unfinished is None else {"unfinished": "dropped"}


OnBlock = Callable[[ScoredBlock], None]


def tally(
    read: Reader,
    scorer: Scorer,
    options: ScoringOptions,
    *,
    source: str,
    on_block: OnBlock | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Tally:
    """Scores every block of a file, in memory that grows with images only.

    Args:
        read: opens the file.
        scorer: what is counted.
        options: what becomes of faulty records, and how many processes count.
        source: the file's name in messages.
        on_block: called with each scored block in the order of the file, while there is no fault.
        on_progress: called with the raw bytes of each block that has been scored.

    Raises:
        InputErrors, InputError: faults by file and line.
    """
    skipped: list[InputError] = []
    faults = FaultList()
    builder, checks = CountBuilder(scorer.columns), FileChecks(source)
    mentioned: NDArray[np.int64] | None = None
    n_records = unknown_images = unfinished = 0
    blocks = read(skipped.append if options.skip_bad else None)
    work = _Work(scorer, options.drop_unfinished, on_block is not None)
    outcomes = _scored_blocks(work, blocks, options.workers or 1)
    with closing(outcomes):
        for size, (block, errors) in outcomes:
            for error in errors:
                if options.skip_bad and not isinstance(error, UnknownImage):
                    skipped.append(error)
                else:
                    faults.add(error)
            builder.add(block.captions.image_ids, block.counts)
            checks.add(block.captions)
            n_records += len(block.counts)
            unknown_images += block.unknown_images
            unfinished += block.unfinished
            mentioned = block.mentioned if mentioned is None else mentioned + block.mentioned
            if on_block is not None and not faults.errors:
                on_block(block)
            if on_progress is not None:
                on_progress(size)
    faults.raise_if_any()
    checks.check()
    if not n_records or mentioned is None:
        raise InputError("no caption is left to score", path=source)
    dropped = unfinished if options.drop_unfinished else None
    return Tally(builder.table(), n_records, len(skipped), unknown_images, mentioned, dropped)


Outcome = tuple[ScoredBlock, list[InputError]]


@dataclass(frozen=True, slots=True)
class _Work:
    """What is done with every block.

    Attributes:
        scorer: what is counted.
        drop_unfinished: whether the last sentence goes where it has no end.
        evidence: whether texts and mentions are wanted back from another process.
    """

    scorer: Scorer
    drop_unfinished: bool
    evidence: bool

    def __call__(self, block: Block) -> Outcome:
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
        return scored, sorted(errors, key=lambda error: error.line or 0)


_work: _Work


def _start_worker(work: _Work) -> None:
    import signal

    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, in one message


def _score_block(block: Block) -> Outcome:
    scored, errors = _work(block)
    return scored if _work.evidence else scored.without_evidence(), errors


def _scored_blocks(work: _Work, blocks: Iterable[Block], workers: int) -> Generator[tuple[int, Outcome], None, None]:
    """``(raw bytes, outcome)`` of every block, in order, from this process or from several."""
    if workers <= 1:
        for block in blocks:
            yield block.size, work(block)
        return
    from collections import deque
    from concurrent.futures import Future, ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(work,))
    pending: deque[tuple[int, Future[Outcome]]] = deque()
    try:
        for block in blocks:
            pending.append((block.size, pool.submit(_score_block, block)))
            if len(pending) > 2 * workers:  # bounded: a fast reader must not fill the memory
                size, future = pending.popleft()
                yield size, future.result()
        for size, future in pending:
            yield size, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def truth_notes(truth: Truth, mentioned: NDArray[np.int64]) -> Iterator[str]:
    """What a reader of values against this truth must know, one sentence each.

    Args:
        truth: the truth.
        mentioned: (labels,) how often the captions mention each label of its vocabulary.
    """
    yield from truth.notes
    if truth.oracle.world != "open-axis":
        return
    known = (truth.states == 1).any(axis=0)
    never = [truth.vocabulary.labels[k] for k in np.flatnonzero((mentioned > 0) & ~known).tolist()]
    if never:
        shown = ", ".join(f"'{label}'" for label in never[:10]) + (", ..." if len(never) > 10 else "")
        yield (
            f"{truth.oracle.source} does not name its label set, so whatever it does not list counts as absent; "
            f"claimed but never in it: {shown} (give the label set as 'labels' if these were not annotated)"
        )
