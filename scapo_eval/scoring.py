"""Captions to counts: the one path behind ``score_captions`` and ``scapo-eval score``.

A block of lines becomes a block of count rows; blocks are independent, so they run in this process or in
several, and only per-image sums are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .claims import Claims, cue_words, find_claims
from .columns import MentionColumns
from .counts import CountBuilder, CountTable
from .errors import InputError, InputErrors
from .io.captions import Block, Captions, FileChecks, captions_of, iter_blocks, parse_block
from .io.files import STDIN, FaultList, display_name
from .matcher import AliasMatcher
from .metrics.capscore import capscore_metric, caption_counts
from .oracle import PresenceOracle, Truth
from .results import System
from .signature import digest, signature
from .stats import DEFAULT_RESAMPLES, DEFAULT_SEED, bootstrap, figures
from .types import Interval
from .vocabulary import Vocabulary

INLINE = "inline objects"
"""Source name of the truth that captions carry in ``objects``."""


@dataclass(frozen=True)
class Scorer:
    """Everything that turns captions into counts; picklable, so that worker processes can have one.

    Attributes:
        truths: the truth, and a second one for the dagger figures (paper, Cap. Score dagger).
        skip_unknown_images: leave captions of images that a truth does not know out, counted.
        claims: which mentions count: all, or without the negated (and hedged) ones.
    """

    truths: tuple[Truth, ...]
    skip_unknown_images: bool = False
    claims: Claims = "all"

    @cached_property
    def matchers(self) -> tuple[AliasMatcher, ...]:
        """One matcher per truth."""
        return tuple(AliasMatcher(truth.vocabulary, cue_words(self.claims)) for truth in self.truths)

    def count(self, captions: Captions, name: str, faults: FaultList) -> ScoredBlock:
        """Counts of parsed captions; captions of unknown images go to ``faults`` or are skipped."""
        rows = [self._rows(truth, captions) for truth in self.truths]
        known = np.logical_and.reduce([r >= 0 for r in rows])
        unknown_images = 0
        if not known.all():
            for k in np.flatnonzero(~known).tolist():
                if self.skip_unknown_images:
                    unknown_images += 1
                    continue
                lacking = next(t for t, r in zip(self.truths, rows, strict=True) if r[k] < 0)
                reason = f"unknown image id '{captions.image_ids[k]}' (not in {lacking.oracle.source})"
                faults.add(InputError(reason, path=name, line=captions.numbers[k]))
            keep = np.flatnonzero(known).tolist()
            captions = Captions(*([getattr(captions, f)[k] for k in keep] for f in Captions.__slots__))
            rows = [r[known] for r in rows]
        texts = captions.captions
        found = [m.find_batch(texts) if self.claims == "all" else find_claims(m, texts) for m in self.matchers]
        counts = [caption_counts(m, r, t) for m, r, t in zip(found, rows, self.truths, strict=True)]
        claimed_labels = np.bincount(found[0].label_id, minlength=len(self.truths[0].vocabulary.labels))
        table = np.hstack([counts[0], *(c[:, 1:] for c in counts[1:])])
        return ScoredBlock(captions, found, table, claimed_labels, unknown_images)

    @staticmethod
    def _rows(truth: Truth, captions: Captions) -> NDArray[np.int64]:
        index = truth.oracle.index
        return np.fromiter(
            (index.get(i, -1) for i in captions.image_ids), dtype=np.int64, count=len(captions.image_ids)
        )

    def evidence(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Per caption: mentions with spans and verdicts, missed labels, counts (first truth)."""
        truth, mentions = self.truths[0], block.mentions[0]
        labels = truth.vocabulary.labels
        names = capscore_metric().columns
        for k, image in enumerate(block.captions.image_ids):
            states = truth.states[truth.oracle.index[image]]
            rows = mentions.row(k)
            said = mentions.label_id[rows].tolist()
            spans = zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), said, strict=True)
            record: dict[str, Any] = {"line": block.captions.numbers[k], "image_id": image}
            if block.captions.ids[k] is not None:
                record["id"] = block.captions.ids[k]
            record["caption"] = block.captions.captions[k]
            record["mentions"] = [
                {"start": start, "end": end, "label": labels[label], "verdict": VERDICTS[int(states[label])]}
                for start, end, label in spans
            ]
            record["missed"] = [labels[j] for j in np.flatnonzero(states == 1).tolist() if j not in said]
            record["counts"] = dict(zip(names, block.counts[k, : len(names)].tolist(), strict=True))
            yield record


VERDICTS = {1: "supported", 0: "hallucinated", -1: "unknown"}


@dataclass(frozen=True, slots=True)
class ScoredBlock:
    """Counts of a block of captions.

    Attributes:
        captions: those that were scored.
        mentions: per truth, found in them.
        counts: (captions, columns) int64, see :func:`capscore_metric`.
        claims: (labels,) how often each label of the first truth's vocabulary is mentioned.
        unknown_images: captions left out because a truth does not know their image.
    """

    captions: Captions
    mentions: list[MentionColumns]
    counts: NDArray[np.int64]
    claims: NDArray[np.int64]
    unknown_images: int

    def without_evidence(self) -> ScoredBlock:
        """Only what sums need, for the way between processes: no texts and no mentions."""
        captions = replace(self.captions, captions=[], objects=[])
        return replace(self, captions=captions, mentions=[])


@dataclass(frozen=True)
class CaptionScores:
    """Scores of a set of captions, with the counts that they come from.

    Attributes:
        table: counts per image.
        metric_values: figure name -> value, None where it has none.
        n_captions: captions scored.
        skipped: faulty or unknown-image captions that were left out on request.
        warnings: what a reader of the figures must know.
        signature: one line that makes the figures reproducible.
    """

    table: CountTable
    n_captions: int
    signature: str
    skipped: int = 0
    unknown_images: int = 0
    warnings: tuple[str, ...] = ()
    name: str = "captions"
    resamples: int = DEFAULT_RESAMPLES
    seed: int = DEFAULT_SEED

    @cached_property
    def values(self) -> Mapping[str, float | None]:
        """Figure name -> fraction, None where it has no value."""
        return figures(self._metric, self.table)

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """Figure name -> 95 % bootstrap interval by image."""
        return bootstrap(self.table, self._metric, resamples=self.resamples, seed=self.seed)

    @property
    def counts(self) -> dict[str, int]:
        """The integers behind the figures."""
        return self.table.counts()

    @property
    def _metric(self) -> Any:
        return capscore_metric(dagger="truth_dagger" in self.table.columns)

    @property
    def n_images(self) -> int:
        """Number of different images."""
        return len(self.table.image_ids)

    @property
    def hal_rate(self) -> float | None:
        """Share of claimed labels that are absent (sets)."""
        return self.values["hal_rate"]

    @property
    def cover_rate(self) -> float | None:
        """Share of present labels that are claimed."""
        return self.values["cover_rate"]

    @property
    def cap_score(self) -> float | None:
        """Harmonic mean of 1 - hal_rate and cover_rate."""
        return self.values["cap_score"]

    @property
    def chair_i(self) -> float | None:
        """Share of mentions that are hallucinated (with multiplicity)."""
        return self.values["chair_i"]

    @property
    def chair_s(self) -> float | None:
        """Share of captions with a hallucinated mention."""
        return self.values["chair_s"]

    def system(self) -> System:
        """As one system of a results object."""
        counts = {"skipped": self.skipped, "unknown_images": self.unknown_images}
        return System(self.name, self.signature, self._metric, self.table, self.n_captions, counts, notes=self.warnings)


@dataclass
class _Tally:
    """Sums of blocks that come in order."""

    scorer: Scorer
    source: str
    builder: CountBuilder
    checks: FileChecks
    n_captions: int = 0
    skipped: int = 0
    unknown_images: int = 0
    claims: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def start(cls, scorer: Scorer, source: str) -> _Tally:
        columns = capscore_metric(dagger=len(scorer.truths) > 1).columns
        labels = len(scorer.truths[0].vocabulary.labels)
        return cls(scorer, source, CountBuilder(columns), FileChecks(source), claims=np.zeros(labels, dtype=np.int64))

    def add(self, block: ScoredBlock) -> None:
        self.builder.add(block.captions.image_ids, block.counts)
        self.checks.add(block.captions)
        self.n_captions += len(block.counts)
        self.unknown_images += block.unknown_images
        self.claims += block.claims

    def finish(self, *, resamples: int, seed: int, name: str | None = None) -> CaptionScores:
        self.checks.check()
        if not self.n_captions:
            raise InputError("no caption is left to score", path=self.source)
        table = self.builder.table()
        first, *rest = self.scorer.truths
        dagger = f"{rest[0].vocabulary.name}@{rest[0].vocabulary.fingerprint}" if rest else None
        line = signature(
            "capscore",
            vocab=f"{first.vocabulary.name}@{first.vocabulary.fingerprint}",
            oracle=first.oracle.fingerprint,
            world=first.oracle.world,
            dagger_vocab=dagger,
            dagger_oracle=rest[0].oracle.fingerprint if rest else None,
            claims=None if self.scorer.claims == "all" else self.scorer.claims,
            n=self.n_captions,
            ids=digest(table.image_ids),
            skip=self.skipped + self.unknown_images,
            bs=resamples,
            seed=seed,
        )
        return CaptionScores(
            table=table,
            n_captions=self.n_captions,
            signature=line,
            skipped=self.skipped,
            unknown_images=self.unknown_images,
            warnings=tuple(self._warnings()),
            name=name or self.source,
            resamples=resamples,
            seed=seed,
        )

    def _warnings(self) -> Iterator[str]:
        first, *rest = self.scorer.truths
        yield from truth_warnings(first, self.claims)
        yield from (truth.warning for truth in rest if truth.warning)


def truth_warnings(truth: Truth, claims: NDArray[np.int64]) -> Iterator[str]:
    """What a reader of figures against this truth must know, one sentence each.

    Args:
        truth: the truth.
        claims: (labels,) how often the captions claim each label of its vocabulary.
    """
    if truth.warning:
        yield truth.warning
    if truth.oracle.world != "open-axis":
        return
    known = (truth.states == 1).any(axis=0)
    never = [truth.vocabulary.labels[k] for k in np.flatnonzero((claims > 0) & ~known).tolist()]
    if never:
        shown = ", ".join(f"'{label}'" for label in never[:10]) + (", ..." if len(never) > 10 else "")
        yield (
            f"{truth.oracle.source} names no label axis, so whatever it does not list counts as absent; claimed "
            f"but never in it: {shown} (give the axis as 'labels' if it was not annotated)"
        )


def score_file(
    path: str | Path,
    vocabulary: Vocabulary,
    oracle: PresenceOracle | None,
    *,
    dagger: Truth | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    skip_unknown_images: bool = False,
    claims: Claims = "all",
    any_fingerprint: bool = False,
    workers: int = 1,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    on_block: Callable[[Scorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> CaptionScores:
    """Scores a caption file of any length in memory that grows with images only.

    Args:
        path: JSON Lines (or a JSON array) of captions, compressed or not, ``-`` for standard input.
        vocabulary, oracle: what is matched, and the truth; None takes the truth from ``objects`` inline.
        dagger: a second vocabulary and matrix for the ``*_dagger`` figures.
        name: of the system; by default the file's display name.
        skip_bad: leave faulty lines out and count them, in place of stopping.
        skip_unknown_images: leave captions of images unknown to the truth out and count them.
        claims: which mentions count, see :mod:`scapo_eval.claims`.
        any_fingerprint: see :meth:`Truth.of`.
        workers: processes that parse and match; 1 is this one.
        resamples, seed: of the intervals.
        on_block: called with each scored block in the order of the file.
        on_progress: called with the number of raw bytes of each block that has been scored.

    Raises:
        InputErrors, InputError: faults by file and line.
    """
    source = display_name(path)
    if oracle is None:
        oracle = _inline_oracle(path, source, skip_bad)
    truths = (Truth.of(oracle, vocabulary, any_fingerprint=any_fingerprint), *([dagger] if dagger else []))
    scorer = Scorer(truths, skip_unknown_images, claims)
    tally = _Tally.start(scorer, source)
    faults = FaultList()
    with closing(_scored_blocks(scorer, iter_blocks(path), workers, evidence=on_block is not None)) as outcomes:
        for size, (block, errors) in outcomes:
            if skip_bad:
                tally.skipped += len(errors)
            else:
                for error in errors:
                    faults.add(error)
            tally.add(block)
            if on_block is not None and not faults.total:
                on_block(scorer, block)
            if on_progress is not None:
                on_progress(size)
    faults.raise_if_any()
    return tally.finish(resamples=resamples, seed=seed, name=name)


def score_captions(
    records: Iterable[Mapping[str, Any]],
    vocabulary: Vocabulary | str = "coco80",
    oracle: PresenceOracle | str | Path | None = None,
    *,
    skip_unknown_images: bool = False,
    claims: Claims = "all",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> CaptionScores:
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions in memory.

    Args:
        records: mappings with ``image_id`` and ``caption`` (and ``objects`` where there is no oracle).
        vocabulary: a Vocabulary, or what :meth:`Vocabulary.load` takes.
        oracle: a PresenceOracle, a file, or None for inline ``objects``.
        skip_unknown_images: leave captions of images unknown to the oracle out and count them.
        claims: which mentions count, see :mod:`scapo_eval.claims`.
        resamples, seed: of the intervals.

    Raises:
        InputErrors: faulty records, named by position.
    """
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary.load(vocabulary)
    faults = FaultList()
    captions = captions_of("records", enumerate(records, 1), faults)
    faults.raise_if_any()
    if oracle is None:
        oracle = _oracle_of([captions], "records")
    elif not isinstance(oracle, PresenceOracle):
        oracle = PresenceOracle.load(oracle)
    scorer = Scorer((Truth.of(oracle, vocabulary),), skip_unknown_images, claims)
    tally = _Tally.start(scorer, "records")
    tally.add(scorer.count(captions, "records", faults))
    faults.raise_if_any()
    return tally.finish(resamples=resamples, seed=seed)


Outcome = tuple[ScoredBlock, list[InputError]]


def _score_block(scorer: Scorer, block: Block) -> Outcome:
    errors: list[InputError] = []
    faults = FaultList(errors.append)
    scored = scorer.count(parse_block(block, faults), block.name, faults)
    return scored, sorted(errors, key=lambda error: error.line or 0)


_worker: tuple[Scorer, bool]


def _start_worker(scorer: Scorer, evidence: bool) -> None:
    import signal

    global _worker
    _worker = scorer, evidence
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, in one message


def _work(block: Block) -> Outcome:
    scorer, evidence = _worker
    scored, errors = _score_block(scorer, block)
    return scored if evidence else scored.without_evidence(), errors


def _scored_blocks(
    scorer: Scorer, blocks: Iterable[Block], workers: int, *, evidence: bool
) -> Generator[tuple[int, Outcome], None, None]:
    """``(raw bytes, outcome)`` of every block, in order, from this process or from several."""
    if workers <= 1:
        for block in blocks:
            yield len(block.data), _score_block(scorer, block)
        return
    from collections import deque
    from concurrent.futures import Future, ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(scorer, evidence))
    pending: deque[tuple[int, Future[Outcome]]] = deque()
    try:
        for block in blocks:
            pending.append((len(block.data), pool.submit(_work, block)))
            if len(pending) > 2 * workers:  # bounded: a fast reader must not fill the memory
                size, future = pending.popleft()
                yield size, future.result()
        for size, future in pending:
            yield size, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _inline_oracle(path: str | Path, source: str, skip_bad: bool) -> PresenceOracle:
    """The truth from ``objects`` in the captions file itself, by a first reading of the file."""
    if str(path) == STDIN or Path(path).is_fifo():
        raise InputError("give the truth with --truth: inline 'objects' take a file that is read twice", path=source)
    faults = FaultList()
    parsed = (parse_block(block, faults) for block in iter_blocks(path))
    try:
        return _oracle_of(parsed, source)
    finally:  # a faulty line goes before what it leads to, such as no caption at all
        if not skip_bad:
            faults.raise_if_any()


def _oracle_of(blocks: Iterable[Captions], source: str) -> PresenceOracle:
    objects: dict[str, list[str]] = {}
    faults = FaultList()
    for captions in blocks:
        for image, present, number in zip(captions.image_ids, captions.objects, captions.numbers, strict=True):
            if present is None:
                faults.add(
                    InputError("no truth: give --truth FILE, or 'objects' in every record", path=source, line=number)
                )
            elif set(objects.setdefault(image, present)) != set(present):
                faults.add(
                    InputError(f"image {image} has other 'objects' than in an earlier record", path=source, line=number)
                )
    faults.raise_if_any()
    if not objects:
        raise InputErrors([InputError("no caption is left to score", path=source)])
    return PresenceOracle.from_objects(objects, source=f"{source} ({INLINE})")
