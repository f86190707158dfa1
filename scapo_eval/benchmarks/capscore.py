"""Hal. Rate, Cover Rate, Cap. Score and CHAIR with the project's own matcher (paper, Eq. 4 and 5).

Hal. and Cover Rate count SETS of labels per caption, CHAIR_i counts mentions with multiplicity; the paper
equates the two, real captions do not, so both are always reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import FaultList, InputError, InputErrors
from ..base.hashes import digest
from ..base.reprs import fields_in_short
from ..base.verdicts import Verdict
from ..files.files import display_name, is_stream
from ..files.records import Given, Readable, Records
from ..matching.matcher import AliasMatcher
from ..matching.uses import Claims
from ..matching.vocabulary import Vocabulary
from ..readers.captions import Captions, caption_blocks, parsed
from ..results.benchmark import Benchmark, OnEngine, Option
from ..results.metric import Formula, MetricSet, Sums, divide, harmonic_mean, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from .scoring import (
    OnBlock,
    OnUnknownImage,
    ScoredBlock,
    Scorer,
    ScoringOptions,
    Tally,
    bad_file_notes,
    tally,
    truth_notes,
)
from .systems import Systems, drawn

COLUMNS = (
    "captions",
    "generated",
    "hallucinated",
    "covered",
    "truth",
    "mentions",
    "hallucinated_mentions",
    "hallucinated_captions",
    "unknown",
)
"""Per caption: 1; claimed known labels; of these absent, present; labels present in the image; mentions of
known labels; of these hallucinated; 1 if there is one; claimed labels whose cell is unknown."""

DOPA_VOCABULARY = "dopa160"

INLINE = "inline objects"
"""Source name of the truth that captions carry in ``objects``."""


def cap_score(hal_rate: float, cover_rate: float) -> float:
    """Harmonic mean of ``1 - hal_rate`` and ``cover_rate`` (paper, Eq. 5).

    Args:
        hal_rate, cover_rate: fractions in [0, 1].

    Returns:
        The score in [0, 1]; 0.0 where both terms are 0.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    for name, rate in (("hal_rate", hal_rate), ("cover_rate", cover_rate)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name} must be a fraction in [0, 1], got {rate}")
    return float(harmonic_mean(np.float64(1 - hal_rate), np.float64(cover_rate)))


def _cap_score(suffix: str) -> Formula:
    def formula(sums: Sums) -> NDArray[np.float64]:
        hal = divide(sums[f"hallucinated{suffix}"], sums[f"generated{suffix}"])
        return harmonic_mean(1 - hal, divide(sums[f"covered{suffix}"], sums[f"truth{suffix}"]))

    return formula


def _set_formulas(suffix: str) -> dict[str, Formula]:
    return {
        f"hal_rate{suffix}": ratio(f"hallucinated{suffix}", f"generated{suffix}"),
        f"cover_rate{suffix}": ratio(f"covered{suffix}", f"truth{suffix}"),
        f"cap_score{suffix}": _cap_score(suffix),
    }


DAGGER = "_dagger"

SET_BOUNDS = (("hallucinated", "generated"), ("covered", "truth"), ("hallucinated_mentions", "mentions"))
"""Columns of which the first cannot exceed the second."""


def capscore_metrics(*, dagger: bool = False) -> MetricSet:
    """The metric set; with ``dagger`` also the set metrics against a second vocabulary and matrix (DOPA)."""
    formulas = _set_formulas("") | {
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "chair_s": ratio("hallucinated_captions", "captions"),
    }
    columns: tuple[str, ...] = COLUMNS
    if dagger:
        formulas |= _set_formulas(DAGGER)
        columns += tuple(f"{name}{DAGGER}" for name in COLUMNS[1:])
    better = {name: name.startswith(("cover", "cap")) for name in formulas}
    at_most = tuple((f"{a}{suffix}", f"{b}{suffix}") for suffix in ("", DAGGER)[: 1 + dagger] for a, b in SET_BOUNDS)
    return MetricSet("capscore", columns, formulas, better, at_most=(*at_most, ("hallucinated_captions", "captions")))


def caption_counts(mentions: MentionColumns, rows: NDArray[np.int64], truth: Truth) -> NDArray[np.int64]:
    """The counts of each caption.

    Args:
        mentions: of n captions.
        rows: (n,) row of each caption's image in the truth.
        truth: what is in the images, on the matcher's label axis.

    Returns:
        (n, 9) int64 in the order of COLUMNS.
    """
    n = len(mentions)
    caption, label = mentions.caption, mentions.label_id
    state = truth.states[rows[caption], label]
    claimed = np.zeros((n, len(truth.vocabulary.labels)), dtype=bool)
    claimed[caption, label] = True
    states = truth.states[rows]
    counts = np.empty((n, len(COLUMNS)), dtype=np.int64)
    counts[:, 0] = 1
    counts[:, 2] = (claimed & (states == 0)).sum(axis=1)
    counts[:, 3] = (claimed & (states == 1)).sum(axis=1)
    counts[:, 1] = counts[:, 2] + counts[:, 3]
    counts[:, 4] = truth.n_present[rows]
    counts[:, 5] = np.bincount(caption[state >= 0], minlength=n)
    counts[:, 6] = np.bincount(caption[state == 0], minlength=n)
    counts[:, 7] = counts[:, 6] > 0
    counts[:, 8] = (claimed & (states == -1)).sum(axis=1)
    return counts


@dataclass(frozen=True)
class CaptionScorer(Scorer):
    """Counts labels and mentions, found by the project's matcher; a second truth is the dagger's.

    Attributes:
        claims: which mentions count, see :mod:`scapo_eval.matching.uses`.
    """

    claims: Claims = "all"

    __repr__ = fields_in_short

    @classmethod
    def of(cls, truth: Truth, dagger: Truth | None, options: ScoringOptions) -> CaptionScorer:
        """Scores against one truth or two."""
        truths = (truth, dagger) if dagger else (truth,)
        return cls(truths, options.on_unknown_image == "skip", options.claims)

    @cached_property
    def matchers(self) -> tuple[AliasMatcher, ...]:
        """One matcher per truth."""
        return tuple(AliasMatcher(truth.vocabulary, self.claims) for truth in self.truths)

    def prepare(self) -> None:
        """See :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        super().prepare()
        _ = self.matchers

    @property
    def columns(self) -> tuple[str, ...]:
        """See :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return capscore_metrics(dagger=len(self.truths) > 1).columns

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """See :class:`~scapo_eval.benchmarks.scoring.Scorer`; the evidence is the mentions per truth."""
        texts = captions.captions
        found = [matcher.find_batch(texts) for matcher in self.matchers]
        counts = [caption_counts(m, r, t) for m, r, t in zip(found, rows, self.truths, strict=True)]
        mentioned = np.bincount(found[0].label_id, minlength=len(self.truths[0].vocabulary.labels))
        return ScoredBlock(captions, np.hstack([counts[0], *(c[:, 1:] for c in counts[1:])]), mentioned, found)

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Evidence per caption: mentions with spans and verdicts, missed labels, counts (first truth)."""
        truth, mentions = self.truths[0], block.evidence[0]
        labels = truth.vocabulary.labels
        for k, image in enumerate(block.captions.image_ids):
            states = truth.states[truth.oracle.index[image]]
            rows = mentions.row(k)
            said = mentions.label_id[rows].tolist()
            spans = zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), said, strict=True)
            yield {
                **block.captions.place(k),
                "caption": block.captions.captions[k],
                "mentions": [
                    {"start": start, "end": end, "label": labels[label], "verdict": Verdict(int(states[label])).word}
                    for start, end, label in spans
                ],
                "missed": [labels[j] for j in np.flatnonzero(states == 1).tolist() if j not in said],
                "counts": dict(zip(COLUMNS, block.counts[k, : len(COLUMNS)].tolist(), strict=True)),
            }


@dataclass(frozen=True, repr=False)
class CaptionScores(Run):
    """A run of captions, with its metrics as attributes."""

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


def score_file(
    path: Readable,
    vocabulary: Vocabulary,
    oracle: PresenceOracle | None,
    options: ScoringOptions | None = None,
    *,
    dagger: Truth | None = None,
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[CaptionScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> CaptionScores:
    """Scores a caption file of any length in memory that grows with images only.

    Args:
        path: captions in any layout of docs/data.md, compressed or not; ``-`` for standard input; or records
            in memory.
        vocabulary, oracle: what is matched, and the truth; None takes the truth from ``objects`` inline.
        options: see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        dagger: a second vocabulary and matrix for the ``*_dagger`` metrics.
        name: of the system; by default the file's display name.
        resampling: of the intervals.
        on_block: called with the scorer and each scored block in the order of the file.
        on_progress: called with the number of raw bytes of each block that has been scored.

    Raises:
        InputErrors, InputError: faults by file and line.
    """
    options = options or ScoringOptions()
    source = display_name(path)
    if oracle is None:
        oracle = _inline_oracle(path, source, options.skip_bad)
    truth = Truth.of(oracle, vocabulary, any_fingerprint=options.any_fingerprint)
    scorer = CaptionScorer.of(truth, dagger, options)
    damage: list[str] = []
    found = tally(
        lambda on_error: caption_blocks(path, on_error=on_error, warn=damage.append),
        scorer,
        options,
        source=source,
        on_block=_with_scorer(on_block, scorer),
        on_progress=on_progress,
    )
    drawn = resampling or Resampling()
    return scores_of(found, scorer, name or source, drawn, damage)


def worst_captions(
    path: str | Path, vocabulary: Vocabulary, oracle: PresenceOracle | None, options: ScoringOptions, n: int
) -> list[tuple[dict[str, Any], CaptionScorer]]:
    """The evidence of a file's worst captions: most hallucinated labels first, then lowest Cap. Score.

    Args:
        path, vocabulary, oracle, options: as for :func:`score_file`.
        n: number of captions; what the truth cannot judge at all is passed over.

    Raises:
        InputErrors, InputError: as :func:`score_file`.
    """
    worst: list[tuple[tuple[int, float, int], dict[str, Any], CaptionScorer]] = []
    formula = _cap_score("")

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        sums = {name: block.counts[:, k].astype(np.float64) for k, name in enumerate(COLUMNS)}
        score = np.nan_to_num(formula(sums), nan=1.0)
        known = sums["generated"] + sums["truth"] > 0
        order = np.lexsort((score, -sums["hallucinated"], ~known))[:n]
        chosen = {k: (-int(sums["hallucinated"][k]), float(score[k])) for k in order.tolist() if known[k]}
        for k, record in enumerate(scorer.records(block)):
            if k in chosen:
                worst.append(((*chosen[k], record["line"]), record, scorer))
        worst.sort(key=lambda each: each[0])
        del worst[n:]

    score_file(path, vocabulary, oracle, options, resampling=Resampling(0), on_block=keep)
    return [(record, scorer) for _, record, scorer in worst]


def _with_scorer(
    on_block: Callable[[CaptionScorer, ScoredBlock], None] | None, scorer: CaptionScorer
) -> OnBlock | None:
    return None if on_block is None else lambda block: on_block(scorer, block)


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
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions in memory; :func:`scapo_eval.score` takes files, too.

    Args:
        records: mappings with ``image_id`` and ``caption`` (and ``objects`` where there is no oracle).
        vocabulary: a Vocabulary, or what :meth:`Vocabulary.load` takes.
        oracle: a PresenceOracle, a file, or None for inline ``objects``.
        skip_unknown_images: leave captions of images unknown to the oracle out and count them.
        claims: which mentions count, see :mod:`scapo_eval.matching.uses`.
        resamples, seed: of the intervals.

    Raises:
        InputErrors: faulty records, named by position.
    """
    return score_file(
        Records("records", list(records)),
        vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary.load(vocabulary),
        oracle if oracle is None or isinstance(oracle, PresenceOracle) else PresenceOracle.load(oracle),
        ScoringOptions(claims=claims, on_unknown_image="skip" if skip_unknown_images else "error"),
        name="captions",
        resampling=Resampling(resamples, seed),
    )


def scores_of(
    found: Tally, scorer: CaptionScorer, name: str, resampling: Resampling | None, damage: Iterable[str] = ()
) -> CaptionScores:
    """The metrics of sums.

    Args:
        found: sums over the captions.
        scorer: what counted them.
        name: of the system.
        resampling: of the intervals.
        damage: sentences on what was read all the same.
    """
    first, *rest = scorer.truths
    signature = Signature.of(
        "capscore",
        vocab=first.vocabulary.identity,
        oracle=first.oracle.fingerprint,
        world=first.oracle.world,
        dagger_vocab=rest[0].vocabulary.identity if rest else None,
        dagger_oracle=rest[0].oracle.fingerprint if rest else None,
        claims=scorer.claims,
        **found.decisive,
        n=found.n_records,
        ids=digest(found.table.image_ids),
        skip=found.left_out,
        bad_files=len(found.bad_files) or None,
    )
    further = (note for truth in rest for note in truth.notes)
    notes = (*damage, *bad_file_notes(found.bad_files), *truth_notes(first, found.mentioned), *further)
    return CaptionScores(
        name=name,
        signature=signature,
        metric_set=capscore_metrics(dagger=bool(rest)),
        table=found.table,
        n_records=found.n_records,
        other_counts=found.other_counts,
        notes=notes,
        resampling=resampling or Resampling(),
    )


def _inline_oracle(path: Readable, source: str, skip_bad: bool) -> PresenceOracle:
    """The truth from ``objects`` in the captions file itself, by a first reading of the file."""
    if is_stream(path):
        raise InputError("give the truth with --truth: inline 'objects' take a file that is read twice", path=source)
    faults = FaultList()
    blocks = caption_blocks(path, on_error=faults.add, warn=lambda _: None)
    try:
        return _oracle_of(parsed(blocks, faults), source)
    finally:  # a faulty line goes before what it leads to, such as no caption at all
        if not skip_bad:
            faults.raise_if_any()


def _oracle_of(blocks: Iterable[Captions], source: str) -> PresenceOracle:
    objects: dict[str, list[str]] = {}
    faults = FaultList()
    for captions in blocks:
        for image, present, number in zip(captions.image_ids, captions.objects, captions.numbers, strict=True):
            if present is None:
                reason = "no truth: give --truth FILE (in Python truth=), or 'objects' in every record"
                faults.add(InputError(reason, path=source, line=number))
            elif set(objects.setdefault(image, present)) != set(present):
                reason = f"image {image} has other 'objects' than in an earlier record"
                faults.add(InputError(reason, path=source, line=number))
    faults.raise_if_any()
    if not objects:
        raise InputErrors([InputError("no caption is left to score", path=source)])
    return PresenceOracle.from_objects(objects, source=f"{source} ({INLINE})")


def _score(
    systems: Systems,
    *,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    dopa: TruthGiven | None = None,
    dopa_vocabulary: Vocabulary | str | Path = DOPA_VOCABULARY,
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[CaptionScores]:
    scoring = scoring or ScoringOptions()
    labels = Vocabulary.of(vocabulary)
    oracle = None if truth is None else PresenceOracle.of(truth)
    dagger = None
    if dopa is not None:
        matrix, second = PresenceOracle.of(dopa), Vocabulary.of(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=scoring.any_fingerprint)
    return systems.each(
        partial(score_file, vocabulary=labels, oracle=oracle, options=scoring, dagger=dagger), per_caption
    )


def score(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    dopa: TruthGiven | None = None,
    dopa_vocabulary: Vocabulary | str | Path = DOPA_VOCABULARY,
    name: str | None = None,
    claims: Claims = "all",
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    on_unknown_image: OnUnknownImage = "error",
    any_fingerprint: bool = False,
    drop_unfinished: bool = False,
) -> CaptionScores:
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions.

    Args:
        captions: records of ``image_id`` and ``caption`` (and ``objects`` where there is no truth).
        truth: what is in the images; None takes every record's ``objects``.
        vocabulary: labels and their aliases: an object, a shipped name or a file.
        dopa: a DOPA matrix, which adds the ``*_dagger`` metrics.
        dopa_vocabulary: its vocabulary.
        name: of the system; by default the file's, or ``captions``.
        claims: which mentions count, see :mod:`scapo_eval.matching.uses`; ``all`` is the paper's protocol, ``visual``
            is right on captions of recent models.
        workers: processes that parse and match; None: this one.
        resamples: bootstrap resamples for intervals; 0 for none.
        seed: of the resampling.
        bootstrap: how images are resampled, see :class:`~scapo_eval.results.results.Resampling`; None: by their number.
        skip_bad: leave faulty records out and count them, in place of an error.
        on_unknown_image: what becomes of captions whose image the truth does not know.
        any_fingerprint: accept a matrix that was made for another vocabulary.
        drop_unfinished: drop the last sentence of a caption where it has no end (cut off by a token limit).

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
    """
    [run] = _score(
        Systems.of(captions, name, "captions", drawn(resamples, seed, bootstrap)),
        truth=truth,
        vocabulary=vocabulary,
        dopa=dopa,
        dopa_vocabulary=dopa_vocabulary,
        scoring=ScoringOptions(claims, skip_bad, on_unknown_image, any_fingerprint, workers, drop_unfinished),
    )
    return run


BENCHMARK = Benchmark(
    name="capscore",
    title="Captions",
    help="""Scores caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input. Captions of a billion: docs/scale.md.
    """,
    verb="score",
    headline=("hal_rate", "cover_rate", "cap_score"),
    metric_set=lambda columns: capscore_metrics(dagger=f"truth{DAGGER}" in columns),
    meanings={
        "hal_rate": "claimed labels that are absent",
        "cover_rate": "present labels that are claimed",
        "cap_score": "harmonic mean of 1 - hal_rate and cover_rate",
        "chair_i": "mentions that are hallucinated",
        "chair_s": "captions with a hallucinated mention",
    },
    frontiers=(
        ("hal_rate", "cover_rate", "Hal. Rate and Cover Rate"),
        (f"hal_rate{DAGGER}", f"cover_rate{DAGGER}", "Hal. Rate and Cover Rate against DOPA"),
    ),
    score=_score,
    function=score,
    files="captions",
    captions=True,
    scoring=True,
    options={
        "truth": Option(
            file="read", metavar="FILE", help="What is in the images; without it every record needs 'objects'."
        ),
        "vocabulary": Option(file="read", metavar="NAME|FILE", help="Labels and their aliases."),
        "dopa": Option(file="read", metavar="MATRIX", help="A DOPA matrix: adds the metrics against it (*_dagger)."),
        "dopa_vocabulary": Option(file="read", metavar="NAME|FILE", help="Vocabulary of --dopa."),
        "per_caption": Option(
            file="written",
            metavar="FILE",
            help="Write mentions, verdicts and counts of every caption as JSON Lines (one system only).",
        ),
    },
    engine=OnEngine(function="score", needs=("truth",), refuses=("per_caption",)),
)
