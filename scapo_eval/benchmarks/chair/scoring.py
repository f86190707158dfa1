"""CHAIR values for a caption file, computed from the counts per caption and from the sums of these counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.hashes import digest
from ...base.reprs import fields_in_short
from ...files.files import display_name
from ...files.records import Readable, Records
from ...files.source import Source
from ...matching.uses import unjudged
from ...readers.captions import Captions, caption_blocks
from ...results.counts import CountTable
from ...results.metric import Floats, Formula, MetricSet, Sums, harmonic_mean, ratio
from ...results.results import Resampling, Run
from ...results.signature import Signature
from ...results.stats import values
from ...truths.oracle import PresenceOracle, Truth
from ..capscore import COLUMNS, SET_BOUNDS, SET_PARTS, caption_counts
from ..scoring import ScoredBlock, Scorer, ScoringOptions, Tally, ignored_lists, tally, truth_notes
from .profiles import Native, Profile

_hal_rate = ratio("hallucinated", "generated")
_recall = ratio("covered", "truth")


def _precision(sums: Sums) -> Floats:
    return 1 - _hal_rate(sums)


def _natively(formula: Formula) -> Formula:
    """Returns a formula that applies the given formula to the counts of the native profile."""
    return lambda sums: formula({name.removesuffix(NATIVE): value for name, value in sums.items() if NATIVE in name})


NATIVE = "_native"
"""Suffix of the metrics and counts from the project's own reading, if a script's reading is also reported."""


METRICS = MetricSet(
    name="chair",
    columns=(*COLUMNS, "words"),
    formulas={
        "chair_s": ratio("hallucinated_captions", "captions"),
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "recall": _recall,
        "precision": _precision,
        "f1": lambda sums: harmonic_mean(_precision(sums), _recall(sums)),
        "len": ratio("words", "captions"),
        "hal_rate": _hal_rate,
    },
    higher_is_better={
        "chair_s": False,
        "chair_i": False,
        "recall": True,
        "precision": True,
        "f1": True,
        "hal_rate": False,
    },
    plain_numbers=frozenset({"len"}),
    at_most=(*SET_BOUNDS, ("hallucinated_captions", "captions")),
    adds_up=SET_PARTS,
)
"""Metrics of CHAIR. ``hal_rate`` counts sets of objects, while ``chair_i`` counts mentions, and the two differ
considerably. ``precision`` and ``f1``, as printed by some scripts (PAI's), equal 1 - Hal. Rate and Cap. Score.
"""

METRICS_BESIDE = MetricSet(
    name="chair",
    columns=(*METRICS.columns, *(f"{name}{NATIVE}" for name in COLUMNS)),
    formulas={
        **METRICS.formulas,
        **{
            f"{name}{NATIVE}": _natively(METRICS.formulas[name])
            for name in ("chair_s", "chair_i", "recall", "precision", "f1")
        },
    },
    higher_is_better={
        **METRICS.higher_is_better,
        **{f"{name}{NATIVE}": higher for name, higher in METRICS.higher_is_better.items() if name != "hal_rate"},
    },
    plain_numbers=METRICS.plain_numbers,
    at_most=tuple((f"{a}{suffix}", f"{b}{suffix}") for suffix in ("", NATIVE) for a, b in METRICS.at_most),
    adds_up=tuple(
        (tuple(f"{name}{suffix}" for name in parts), f"{whole}{suffix}")
        for suffix in ("", NATIVE)
        for parts, whole in METRICS.adds_up
    ),
)
"""Metrics of a script's reading and of the project's own reading (``chair_s_native`` and so on)."""

PRINTED = {"reference": ("chair_s", "chair_i", "recall"), "opera": ("chair_s", "chair_i", "recall", "len")}
"""Profile -> metrics that the script prints."""


@dataclass(frozen=True)
class ChairScorer(Scorer):
    """Scorer that counts the objects found by a profile.

    Attributes:
        profile: Profile for reading captions; its objects are the labels of the first ground truth.
        native: Native profile, with the labels of the second ground truth, for additional metrics. If ``native`` is
            None, the additional metrics are omitted.
    """

    profile: Profile = field(kw_only=True)
    native: Native | None = field(default=None, kw_only=True)

    __repr__ = fields_in_short

    @classmethod
    def of(
        cls, profile: Profile, oracle: PresenceOracle, options: ScoringOptions, native: Native | None = None
    ) -> ChairScorer:
        """Creates a scorer that compares the objects of a profile with an oracle, and optionally also the objects of
        the native profile.
        """
        readings = [profile] if native is None else [profile, native]
        truths = [Truth.of(oracle, reading.vocabulary, any_fingerprint=options.any_fingerprint) for reading in readings]
        return cls(tuple(truths), options.on_unknown_image == "skip", profile=profile, native=native)

    @property
    def metric_set(self) -> MetricSet:
        """Metrics that the scorer computes."""
        return METRICS if self.native is None else METRICS_BESIDE

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return self.metric_set.columns

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`. The evidence is the ObjectColumns
        of the profile.
        """
        objects = self.profile.find_batch(captions.captions)
        counts = np.column_stack([caption_counts(objects, rows[0], self.truths[0]), objects.lengths])
        if self.native is not None:
            second = caption_counts(self.native.find_batch(captions.captions), rows[1], self.truths[1])
            counts = np.column_stack([counts, second])
        mentioned = np.bincount(objects.label_id, minlength=len(self.profile.vocabulary.labels))
        claims = objects.caption, objects.label_id
        native = self.native or self.profile
        missing = unjudged(native.claims, captions.captions) if isinstance(native, Native) else None
        return ScoredBlock(captions, counts, mentioned, objects, claims=claims, unjudged=missing)

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Yields the evidence for each caption: all objects in text order including repetitions, hallucinated objects,
        and missed objects.
        """
        truth, objects = self.truths[0], block.evidence
        labels = truth.vocabulary.labels
        for k, row in enumerate(truth.oracle.find_rows(block.captions.image_ids).tolist()):
            states = truth.states[row]
            label_ids = objects.label_id[objects.row(k)].tolist()
            yield {
                **block.captions.place(k),
                "caption": block.captions.captions[k],
                "generated": [labels[j] for j in label_ids if states[j] >= 0],
                "hallucinated": [labels[j] for j in label_ids if states[j] == 0],
                "missed": [labels[j] for j in np.flatnonzero(states == 1).tolist() if j not in label_ids],
                "unknown": [labels[j] for j in label_ids if states[j] < 0],
            }


def score_chair(
    path: Readable,
    profile: Profile,
    oracle: PresenceOracle,
    options: ScoringOptions | None = None,
    *,
    native: Native | None = None,
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[ChairScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Run:
    """Computes CHAIR of one caption file.

    Args:
        path: Captions in any layout described in docs/data.md, optionally compressed. ``-`` selects standard input.
            Records in memory are also accepted.
        profile: Profile with which captions are read.
        oracle: Ground truth.
        options: Settings; see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        native: Native profile whose metrics (``chair_s_native`` and so on) are added to those of ``profile``.
        name: Name of the system. The default is the name of the file.
        resampling: Resampling settings for the confidence intervals.
        on_block: Callback that receives the scorer and each scored block, in the order of the file.
        on_progress: Callback that receives the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    source = display_name(path)
    path = path if isinstance(path, Records) else Source.of(path)
    damage = ignored_lists(path)
    scorer = ChairScorer.of(profile, oracle, options, native)
    sums = tally(
        lambda on_error: caption_blocks(path, on_error=on_error, warn=damage.append),
        scorer,
        options,
        source=source,
        on_block=None if on_block is None else lambda block: on_block(scorer, block),
        on_progress=on_progress,
        given=path,
    )
    drawn = resampling or Resampling()
    return chair_of(sums, scorer, name or source, drawn, damage)


def chair_of(
    tally: Tally, scorer: ChairScorer, name: str, resampling: Resampling | None, damage: Iterable[str] = ()
) -> Run:
    """Computes the metrics from the sums over all captions. The arguments are those of
    :func:`~scapo_eval.benchmarks.capscore.scores_of`.
    """
    profile, truth = scorer.profile, scorer.truths[0]
    signature = Signature.of(
        "chair",
        profile=profile.name,
        **profile.fields,
        native=scorer.native.vocabulary.identity if scorer.native else None,
        oracle=truth.oracle.fingerprint,
        world=truth.oracle.world,
        **tally.decisive,
        n=tally.n_records,
        ids=digest(tally.table.image_ids),
        skip=tally.left_out,
        bad_files=len(tally.bad_files) or None,
    )
    return Run(
        name=name,
        signature=signature,
        metric_set=scorer.metric_set,
        table=tally.table,
        n_records=tally.n_records,
        other_counts=tally.other_counts,
        account=tally.account,
        printed=printed_digits(tally.table, profile.name),
        notes=(*damage, *tally.notes, *truth_notes(truth, tally.mentioned)),
        resampling=resampling or Resampling(),
    )


def printed_digits(table: CountTable, profile: str) -> dict[str, float]:
    """Returns the values that the official script of a profile prints: percentages with one decimal, and the rounded
    length.
    """
    printed = {name: value for name, value in values(METRICS, table).items() if name in PRINTED.get(profile, ())}
    return {
        name: float(f"{value:.1f}" if name in METRICS.plain_numbers else f"{value * 100:.1f}")
        for name, value in printed.items()
        if value is not None
    }
