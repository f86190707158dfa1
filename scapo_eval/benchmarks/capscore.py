"""Hallucination rate, cover rate, caption score and CHAIR, computed with the project's own matcher (paper, Eq. 4 and
5).

Hallucination rate and cover rate count each label once per caption, while CHAIR_i counts every mention. The paper
treats CHAIR_i and hallucination rate as equal, but they differ on real captions, so both are always reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ..files.files import display_name
from ..files.records import Given, Readable, Records
from ..files.source import STDIN, Input, Source
from ..matching.matcher import AliasMatcher
from ..matching.uses import Reading, reading_fields, unjudged
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import Captions, caption_blocks, parsed
from ..results.benchmark import Benchmark, CommandExample, OnEngine, Option
from ..results.metric import Formula, MetricSet, Sums, divide, harmonic_mean, of_version, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from ..truths.references import UNNAMED, Beside, ReferencesGiven, ReferenceWords, Unnamed, WeightedTruth
from .people import UNIT, Card, Term, card_of, joint_score, word_terms
from .scoring import (
    OnBlock,
    OnUnknownImage,
    ScoredBlock,
    Scorer,
    ScoringOptions,
    Tally,
    ignored_lists,
    tally,
    truth_notes,
)
from .systems import Systems, drawn, naming_inputs

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
"""Counts per caption: 1; claimed known labels; hallucinated labels; covered labels; labels present in the image;
mentions of known labels; hallucinated mentions; 1 if any mention is hallucinated; claimed labels with unknown cells.
"""

WEIGHTED_COLUMNS = ("covered_weight", "truth_weight", "absent")
"""Counts with weights: weight of the covered labels and of the present labels, in millionths, and the number of absent
labels in the image, which is 0 if the ground truth marks no absences.
"""

WORD_COLUMNS = ("named_labels", "named_words", "covered_words", "word_captions", "among_references")
"""Counts with references: claimed labels that a reference names; shares of content words in millionths; 1 if the
caption has these shares; 1 if the caption is one of its references.
"""

PEOPLE_COLUMNS = ("people", "people_captions")
"""Counts with ``cap_people``: the score in millionths, and 1 if the caption has a score."""

DOPA_VOCABULARY = "dopa160"

INLINE = "inline objects"
"""Name of the ground truth that captions carry in ``objects``."""


def cap_score(hal_rate: float, cover_rate: float) -> float:
    """Returns the harmonic mean of ``1 - hal_rate`` and ``cover_rate`` (paper, Eq. 5).

    Args:
        hal_rate, cover_rate: Fractions in [0, 1].

    Returns:
        The score in [0, 1], or 0.0 if both terms are 0.

    Raises:
        ValueError: If a rate is outside [0, 1].

    Example:
        >>> import scapo_eval
        >>> round(scapo_eval.cap_score(0.2, 0.6), 4)
        0.6857
    """
    for name, rate in (("hal_rate", hal_rate), ("cover_rate", cover_rate)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name} must be a fraction in [0, 1], got {rate}")
    return float(harmonic_mean(np.float64(1 - hal_rate), np.float64(cover_rate)))


def cap_score_of(suffix: str = "") -> Formula:
    """Returns the formula of the caption score for the columns with a suffix."""

    def formula(sums: Sums) -> NDArray[np.float64]:
        hal = divide(sums[f"hallucinated{suffix}"], sums[f"generated{suffix}"])
        return harmonic_mean(1 - hal, divide(sums[f"covered{suffix}"], sums[f"truth{suffix}"]))

    return formula


def _set_formulas(suffix: str) -> dict[str, Formula]:
    return {
        f"hal_rate{suffix}": ratio(f"hallucinated{suffix}", f"generated{suffix}"),
        f"cover_rate{suffix}": ratio(f"covered{suffix}", f"truth{suffix}"),
        f"cap_score{suffix}": cap_score_of(suffix),
    }


DAGGER = "_dagger"

SET_BOUNDS = (
    ("hallucinated", "generated"),
    ("covered", "truth"),
    ("hallucinated_mentions", "mentions"),
    ("hallucinated", "hallucinated_mentions"),
    ("hallucinated_captions", "hallucinated"),
)
"""Pairs of columns. The first count is at most the second count."""

SET_PARTS: tuple[tuple[tuple[str, ...], str], ...] = ((("hallucinated", "covered"), "generated"),)
"""Columns whose counts add up to another column."""


def capscore_metrics(
    *, dagger: bool = False, weighted: bool = False, words: bool = False, people: bool = False
) -> MetricSet:
    """Returns the metric set for captions.

    Args:
        dagger: True to include the metrics for a second vocabulary and matrix (DOPA), which are marked with a dagger.
        weighted: True to include the metrics that weight labels.
        words: True to include the metrics that require a ground truth from references.
        people: True to include ``cap_people``.
    """
    formulas = _set_formulas("") | {
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "chair_s": ratio("hallucinated_captions", "captions"),
    }
    columns: tuple[str, ...] = COLUMNS
    at_most, adds_up = [*SET_BOUNDS, ("hallucinated_captions", "captions")], SET_PARTS
    if weighted:
        columns += WEIGHTED_COLUMNS
        at_most.append(("covered_weight", "truth_weight"))
        formulas |= {
            "cover_weighted": ratio("covered_weight", "truth_weight"),
            "cap_weighted": _cap_weighted,
        }
        formulas |= {name: _where_absent(formulas[name]) for name in _OF_ABSENCE}
    if words:
        columns += WORD_COLUMNS
        at_most.append(("named_labels", "covered"))
        formulas |= {
            "named_rate": lambda sums: divide(sums["named_labels"], sums["generated"] + sums["unknown"]),
            "named_words": _mean("named_words", "word_captions"),
            "cover_words": _mean("covered_words", "word_captions"),
        }
    if people:
        columns += PEOPLE_COLUMNS
        formulas |= {"cap_people": _mean("people", "people_captions")}
    if dagger:
        formulas |= _set_formulas(DAGGER)
        columns += tuple(f"{name}{DAGGER}" for name in COLUMNS[1:])
        at_most += [(f"{a}{DAGGER}", f"{b}{DAGGER}") for a, b in SET_BOUNDS]
        adds_up += tuple((tuple(f"{name}{DAGGER}" for name in parts), f"{a}{DAGGER}") for parts, a in SET_PARTS)
    better = {name: name.startswith(("cover", "cap", "named")) for name in formulas}
    weights = frozenset({"covered_weight", "truth_weight"}.intersection(columns))
    return MetricSet("capscore", columns, formulas, better, at_most=tuple(at_most), adds_up=adds_up, weights=weights)


def _metrics_of(columns: Sequence[str]) -> MetricSet:
    """Returns the metric set for the counts in a file. Files from version 0.2 of the package do not contain the counts
    for ``named_rate``.
    """
    metrics = capscore_metrics(
        dagger=f"truth{DAGGER}" in columns,
        weighted="truth_weight" in columns,
        words="word_captions" in columns,
        people="people_captions" in columns,
    )
    return of_version(metrics, columns, [name for name in metrics.columns if name != "named_labels"])


_OF_ABSENCE = ("hal_rate", "cap_score", "chair_i", "chair_s", "cap_weighted")


def _where_absent(formula: Formula) -> Formula:
    """Returns a formula that is undefined if no label is known to be absent, because a hallucination rate of 0 would
    then be meaningless.
    """
    return lambda sums: np.where(sums["absent"] > 0, formula(sums), np.nan)


def _cap_weighted(sums: Sums) -> NDArray[np.float64]:
    hal = divide(sums["hallucinated"], sums["generated"])
    return harmonic_mean(1 - hal, divide(sums["covered_weight"], sums["truth_weight"]))


def _mean(column: str, captions: str) -> Formula:
    return lambda sums: divide(sums[column], UNIT * sums[captions])


def caption_counts(mentions: MentionColumns, rows: NDArray[np.int64], truth: Truth) -> NDArray[np.int64]:
    """Returns the counts of labels and mentions for each caption.

    Args:
        mentions: Mentions found in n captions.
        rows: (n,) row of each caption's image in the ground truth.
        truth: Ground truth for the labels of the matcher.

    Returns:
        (n, 9) int64 counts in the order of COLUMNS.
    """
    n = len(mentions)
    caption, label = mentions.caption, mentions.label_id
    state = truth.states[rows[caption], label]
    claimed = _claimed(mentions, truth)
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


def _claimed(mentions: MentionColumns, truth: Truth) -> NDArray[np.bool_]:
    """Returns a (captions, labels) mask of the labels that each caption claims."""
    claimed = np.zeros((len(mentions), len(truth.vocabulary.labels)), dtype=bool)
    claimed[mentions.caption, mentions.label_id] = True
    return claimed


def weight_counts(mentions: MentionColumns, rows: NDArray[np.int64], truth: WeightedTruth) -> NDArray[np.int64]:
    """Returns an (n, 3) array with the weighted counts of n captions, in the order of WEIGHTED_COLUMNS.

    The arguments are the same as in :func:`caption_counts`.
    """
    claimed = _claimed(mentions, truth)
    weights, states = truth.weights[rows], truth.states[rows]
    absent = (states == 0).sum(axis=1) if truth.says_absent else np.zeros(len(rows), dtype=np.int64)
    return np.stack([(weights * claimed).sum(axis=1), weights.sum(axis=1), absent], axis=1, dtype=np.int64)


def in_units(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Converts fractions to integers in units of one millionth, so that their sums are exact in any order. NaN becomes
    0.
    """
    return np.rint(np.nan_to_num(values) * UNIT).astype(np.int64)


@dataclass(frozen=True)
class CaptionScorer(Scorer):
    """Scorer that counts labels and mentions found by the project's matcher. If there is a second ground truth, the
    metrics that are marked with a dagger are added.

    Attributes:
        claims: Reading, which selects the mentions to count; see :mod:`scapo_eval.matching.uses`.
        card: Terms and powers of ``cap_people``, or None to omit this metric.
    """

    claims: Reading = "all"
    card: Card | None = None

    __repr__ = fields_in_short

    @classmethod
    def of(cls, truth: Truth, dagger: Truth | None, options: ScoringOptions, *, people: bool = False) -> CaptionScorer:
        """Creates a scorer for one or two ground truths. With ``people`` or with references, the scorer also computes
        ``cap_people``.
        """
        truths = (truth, dagger) if dagger else (truth,)
        weighted = truth if isinstance(truth, WeightedTruth) else None
        referenced = weighted is not None and weighted.words is not None
        judged = weighted is None or weighted.joined
        card = card_of(references=referenced, truth=judged) if people or referenced else None
        return cls(truths, options.on_unknown_image == "skip", options.claims, card)

    @property
    def metric_set(self) -> MetricSet:
        """Metrics that are computed from the counted columns."""
        return capscore_metrics(
            dagger=len(self.truths) > 1,
            weighted=isinstance(self.truths[0], WeightedTruth),
            words=self.words is not None,
            people=self.card is not None,
        )

    @property
    def words(self) -> ReferenceWords | None:
        """Words of the references, or None if the ground truth does not come from references."""
        truth = self.truths[0]
        return truth.words if isinstance(truth, WeightedTruth) else None

    @cached_property
    def matchers(self) -> tuple[AliasMatcher, ...]:
        """Matchers for the labels of each ground truth."""
        return tuple(AliasMatcher(truth.vocabulary, self.claims) for truth in self.truths)

    def prepare(self) -> None:
        """Implements ``prepare``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        super().prepare()
        _ = self.matchers

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return self.metric_set.columns

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`. The evidence contains the mentions
        for each ground truth.
        """
        texts = captions.captions
        mentions = [matcher.find_batch(texts) for matcher in self.matchers]
        rows = [t.rows_of(captions.image_ids, texts, r) for t, r in zip(self.truths, rows, strict=True)]
        first, *daggers = [caption_counts(m, r, t) for m, r, t in zip(mentions, rows, self.truths, strict=True)]
        counts = [first, *self._further(captions, mentions[0], rows[0], first), *(more[:, 1:] for more in daggers)]
        mentioned = np.bincount(mentions[0].label_id, minlength=len(self.truths[0].vocabulary.labels))
        claims = mentions[0].caption, mentions[0].label_id
        missing = unjudged(self.claims, texts)
        return ScoredBlock(captions, np.hstack(counts), mentioned, mentions, claims=claims, unjudged=missing)

    def _further(
        self, captions: Captions, mentions: MentionColumns, rows: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Yields the counts of weights, of words and of ``cap_people``, if they were requested."""
        truth = self.truths[0]
        if isinstance(truth, WeightedTruth):
            yield weight_counts(mentions, rows, truth)
        if self.card is None:
            return
        named = dict(zip(COLUMNS, counts.T.astype(np.float64), strict=True))
        terms: dict[Term, NDArray[np.float64]] = {
            "cover": (named["covered"] + 1) / (named["truth"] + 1),
            "faithful": 1 - named["hallucinated"] / (named["generated"] + 1),
        }
        if isinstance(truth, WeightedTruth) and truth.words is not None:
            images = truth.oracle.own_ids(captions.image_ids)
            columns = word_terms(truth.words, images, captions.captions)
            terms |= {"overlap": columns[:, 2], "repetition": columns[:, 3], "brevity": columns[:, 4]}
            references = truth.words.references
            named_labels = (_claimed(mentions, truth) & (truth.weights[rows] > 0)).sum(axis=1)
            is_reference = [*map(references.has, images, captions.captions)]
            shares = in_units(columns[:, 0]), in_units(columns[:, 1])
            known = ~np.isnan(columns[:, 0])
            counts_of_words = [named_labels, *shares, known, np.array(is_reference, dtype=bool)]
            yield np.stack(counts_of_words, axis=1, dtype=np.int64)
        score = joint_score(self.card, terms)
        yield np.stack([in_units(score), ~np.isnan(score)], axis=1, dtype=np.int64)

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Yields the evidence for each caption, based on the first ground truth.

        A record contains the mentions with spans and verdicts, the missed labels, and the counts.
        """
        truth, mentions = self.truths[0], block.evidence[0]
        labels = truth.vocabulary.labels
        columns = self.columns[: len(self.columns) - (len(self.truths) - 1) * (len(COLUMNS) - 1)]
        images, texts = block.captions.image_ids, block.captions.captions
        held_against = truth.rows_of(images, texts, truth.oracle.find_rows(images))
        for k in range(len(images)):
            states = truth.states[held_against[k]]
            rows = mentions.row(k)
            label_ids = mentions.label_id[rows].tolist()
            spans = zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), label_ids, strict=True)
            yield {
                **block.captions.place(k),
                "caption": block.captions.captions[k],
                "mentions": [
                    {"start": start, "end": end, "label": labels[label], "verdict": Verdict(int(states[label])).word}
                    for start, end, label in spans
                ],
                "missed": [labels[j] for j in np.flatnonzero(states == 1).tolist() if j not in label_ids],
                "counts": dict(zip(columns, block.counts[k, : len(columns)].tolist(), strict=True)),
            }


@dataclass(frozen=True)
class Scored:
    """Captions of a run and the settings with which they were scored, so that they can be read again.

    Attributes:
        captions: Path of the captions, or records in memory.
        vocabulary: Vocabulary that was matched.
        oracle: Ground truth, or None for the ``objects`` in the records.
        options: Settings for scoring.
    """

    captions: Readable
    vocabulary: Vocabulary
    oracle: PresenceOracle | Truth | None
    options: ScoringOptions

    __repr__ = fields_in_short


@dataclass(frozen=True, repr=False)
class CaptionScores(Run):
    """Run of one system on captions, with its metrics as attributes.

    Attributes:
        scored: Captions and settings of the run, for :func:`scapo_eval.evidence`, :func:`scapo_eval.show` and
            :func:`scapo_eval.labels`. ``scored`` is None if the captions cannot be read again.

    Example:
        >>> import scapo_eval
        >>> run = scapo_eval.score([{"image_id": 1, "caption": "A dog and a cat."}], truth={1: ["dog"]})
        >>> run.hal_rate, run.cover_rate
        (0.5, 1.0)
    """

    scored: Scored | None = field(default=None, compare=False)

    @property
    def hal_rate(self) -> float | None:
        """Share of claimed labels that are absent, counting each label once per caption."""
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
        """Share of mentions that are hallucinated, counting repeated mentions."""
        return self.values["chair_i"]

    @property
    def chair_s(self) -> float | None:
        """Share of captions that contain a hallucinated mention."""
        return self.values["chair_s"]


def score_file(
    path: Readable,
    vocabulary: Vocabulary,
    oracle: PresenceOracle | Truth | None,
    options: ScoringOptions | None = None,
    *,
    dagger: Truth | None = None,
    people: bool = False,
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[CaptionScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> CaptionScores:
    """Scores a caption file of any length. The memory use grows only with the number of images.

    Args:
        path: Captions in any layout from docs/data.md, optionally compressed. ``-`` selects standard input. Records in
            memory are also accepted.
        vocabulary: Vocabulary to match.
        oracle: Ground truth, or None for the ``objects`` in the captions' records. A ``Truth`` that is defined on the
            labels of the vocabulary, for example from references, is used unchanged.
        options: Settings; see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        dagger: Second ground truth and its vocabulary, for the ``*_dagger`` metrics.
        people: True to add ``cap_people``. ``cap_people`` is always added if the ground truth comes from references.
        name: Name of the system. The default is the name of the file.
        resampling: Resampling settings for the confidence intervals.
        on_block: Callback that receives the scorer and each scored block, in the order of the file.
        on_progress: Callback that receives the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    source = display_name(path)
    if not isinstance(path, Records):
        path = Source.of(path)
    scored = Scored(path if isinstance(path, Records) else path.path, vocabulary, oracle, options)
    if oracle is None:
        oracle = _inline_oracle(path, source, options.skip_bad)
    truth = (
        oracle if isinstance(oracle, Truth) else Truth.of(oracle, vocabulary, any_fingerprint=options.any_fingerprint)
    )
    scorer = CaptionScorer.of(truth, dagger, options, people=people)
    damage = ignored_lists(path)
    sums = tally(
        lambda on_error: caption_blocks(path, on_error=on_error, warn=damage.append),
        scorer,
        options,
        source=source,
        on_block=_with_scorer(on_block, scorer),
        on_progress=on_progress,
        given=path,
    )
    scores = scores_of(sums, scorer, name or source, resampling or Resampling(), damage)
    return replace(scores, scored=None if source == display_name(STDIN) else scored)


def worst_captions(
    path: Input, vocabulary: Vocabulary, oracle: PresenceOracle | None, options: ScoringOptions, n: int
) -> list[tuple[dict[str, Any], CaptionScorer]]:
    """Returns the evidence for the worst captions in a file. The captions with the most hallucinated labels come first,
    and ties are sorted by caption score, lowest first.

    Args:
        path, vocabulary, oracle, options: Same as in :func:`score_file`.
        n: Number of captions to return. Captions of images for which no label's presence is known are skipped.

    Raises:
        InputErrors, InputError: Same as in :func:`score_file`.
    """
    worst: list[tuple[tuple[int, float, int], dict[str, Any], CaptionScorer]] = []
    formula = cap_score_of()

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        sums = {name: block.counts[:, k].astype(np.float64) for k, name in enumerate(COLUMNS)}
        score = np.nan_to_num(formula(sums), nan=1.0)
        known = sums["generated"] + sums["truth"] > 0
        order = np.lexsort((score, -sums["hallucinated"], ~known))[:n]
        chosen = {k: (-int(sums["hallucinated"][k]), float(score[k])) for k in order.tolist() if known[k]}
        for k, record in enumerate(scorer.records(block)):
            if k in chosen:
                worst.append(((*chosen[k], record["line"]), record, scorer))
        worst.sort(key=lambda entry: entry[0])
        del worst[n:]

    score_file(path, vocabulary, oracle, options, resampling=Resampling(0), on_block=keep)
    return [(record, scorer) for _, record, scorer in worst]


def _with_scorer(
    on_block: Callable[[CaptionScorer, ScoredBlock], None] | None, scorer: CaptionScorer
) -> OnBlock | None:
    return None if on_block is None else lambda block: on_block(scorer, block)


def score_captions(
    records: Iterable[Mapping[str, Any]],
    vocabulary: VocabularyGiven = "coco80",
    oracle: PresenceOracle | str | Path | None = None,
    *,
    skip_unknown_images: bool = False,
    claims: Reading = "all",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> CaptionScores:
    """Computes caption score, hallucination rate, cover rate and CHAIR for records in memory. For captions in files,
    use :func:`scapo_eval.score`.

    Args:
        records: Mappings with ``image_id`` and ``caption``, and with ``objects`` if there is no oracle.
        vocabulary: Labels and their aliases, in any form that :meth:`scapo_eval.Vocabulary.of` accepts.
        oracle: PresenceOracle, path of a ground-truth file, or None for inline ``objects``.
        skip_unknown_images: True to omit and count captions whose image is unknown to the oracle.
        claims: Reading, which selects the mentions to count; see :mod:`scapo_eval.matching.uses`.
        resamples, seed: Resampling settings for the confidence intervals.

    Raises:
        InputErrors: If records are faulty. The error lists the faults with the positions of their records.

    Example:
        >>> import scapo_eval
        >>> record = {"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog"]}
        >>> round(scapo_eval.score_captions([record]).cap_score, 3)
        0.667
    """
    return score_file(
        Records("records", [dict(record) if isinstance(record, Mapping) else record for record in records]),
        Vocabulary.of(vocabulary),
        oracle if oracle is None or isinstance(oracle, PresenceOracle) else PresenceOracle.load(oracle),
        ScoringOptions(claims=claims, on_unknown_image="skip" if skip_unknown_images else "error"),
        name="captions",
        resampling=Resampling(resamples, seed),
    )


def scores_of(
    tally: Tally, scorer: CaptionScorer, name: str, resampling: Resampling | None, damage: Iterable[str] = ()
) -> CaptionScores:
    """Computes the metrics from the sums over all captions.

    Args:
        tally: Sums over all captions.
        scorer: Scorer that counted the captions.
        name: Name of the system.
        resampling: Resampling settings for the confidence intervals.
        damage: Sentences that describe damage in the input, if the input could still be read.
    """
    first, *rest = scorer.truths
    signature = Signature.of(
        "capscore",
        vocab=first.vocabulary.identity,
        oracle=first.oracle.fingerprint,
        world=first.oracle.world,
        dagger_vocab=rest[0].vocabulary.identity if rest else None,
        dagger_oracle=rest[0].oracle.fingerprint if rest else None,
        **reading_fields(scorer.claims),
        **first.signature_fields,
        people=scorer.card.identity if scorer.card else None,
        **tally.decisive,
        n=tally.n_records,
        ids=digest(tally.table.image_ids),
        skip=tally.left_out,
        bad_files=len(tally.bad_files) or None,
    )
    further = (note for truth in rest for note in truth.notes)
    notes = (*damage, *tally.notes, *truth_notes(first, tally.mentioned), *further)
    among = tally.table.counts().get("among_references", 0)
    if among and scorer.words is not None and not scorer.words.leave_out_self:
        remedy = "compare each with the other references only: --leave-out-self (leave_out_self=True in Python)"
        notes += (
            f"{among:,} captions are also references of their own images, and therefore agree with them; {remedy}",
        )
    return CaptionScores(
        name=name,
        signature=signature,
        metric_set=scorer.metric_set,
        table=tally.table,
        n_records=tally.n_records,
        other_counts=tally.other_counts,
        account=tally.account,
        notes=notes,
        resampling=resampling or Resampling(),
    )


def _inline_oracle(path: Readable, source: str, skip_bad: bool) -> PresenceOracle:
    """Reads the ground truth from the field ``objects`` of the captions, in an additional pass over the file."""
    if isinstance(path, Source):
        path.keep()
    faults = FaultList()
    blocks = caption_blocks(path, on_error=faults.add, warn=lambda _: None)
    try:
        return _oracle_of(parsed(blocks, faults), source)
    finally:  # report a faulty line before its consequences, such as missing captions
        if not skip_bad:
            faults.raise_if_any()


def _oracle_of(blocks: Iterable[Captions], source: str) -> PresenceOracle:
    objects: dict[str, list[str]] = {}
    faults = FaultList()
    for captions in blocks:
        for image, present, number in zip(captions.image_ids, captions.objects, captions.numbers, strict=True):
            if present is None:
                reason = "missing ground truth: use --truth FILE (in Python truth=), or add 'objects' to every record"
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
    vocabulary: VocabularyGiven | None = None,
    references: ReferencesGiven | None = None,
    leave_out_self: bool = False,
    unnamed: Unnamed | None = None,
    weights: Given | None = None,
    people: bool = False,
    dopa: TruthGiven | None = None,
    dopa_vocabulary: VocabularyGiven = DOPA_VOCABULARY,
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[CaptionScores]:
    scoring = scoring or ScoringOptions()
    beside = Beside.of(references, weights, unnamed, leave_out_self)
    oracle = None if truth is None else PresenceOracle.of(truth)
    labels = Vocabulary.of(beside.default_vocabulary(oracle) if vocabulary is None else vocabulary)
    held_against = beside.truth(oracle, labels, scoring.claims, any_fingerprint=scoring.any_fingerprint)
    dagger = None
    if dopa is not None:
        matrix, second = PresenceOracle.of(dopa), Vocabulary.of(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=scoring.any_fingerprint)
    elif dopa_vocabulary != DOPA_VOCABULARY:
        raise InputError("dopa_vocabulary requires dopa (--dopa-vocabulary requires --dopa)")
    how: dict[str, Any] = {"vocabulary": labels, "oracle": held_against, "dagger": dagger, "people": people}
    return systems.each(partial(score_file, options=scoring, **how), per_caption)


@naming_inputs
def score(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    vocabulary: VocabularyGiven | None = None,
    references: ReferencesGiven | None = None,
    leave_out_self: bool = False,
    unnamed: Unnamed | None = None,
    weights: Given | None = None,
    people: bool = False,
    dopa: TruthGiven | None = None,
    dopa_vocabulary: VocabularyGiven = DOPA_VOCABULARY,
    name: str | None = None,
    claims: Reading = "all",
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    on_unknown_image: OnUnknownImage = "error",
    any_fingerprint: bool = False,
    drop_unfinished: bool = False,
    any_ids: bool = False,
    strict: bool = False,
) -> CaptionScores:
    """Computes the caption score, the hallucination rate, the cover rate and CHAIR for captions.

    Args:
        captions: Records with ``image_id`` and ``caption``, and with ``objects`` if there is no other ground truth.
        truth: Ground truth of the images, or None to use the references or the ``objects`` in the records.
        vocabulary: Labels and their aliases, given as a :class:`Vocabulary`, the name of a shipped vocabulary, a file,
            a list of words, or ``{label: [aliases]}``. The default vocabulary is coco80, or open400 if there are
            references but no ``truth``.
        references: Reference captions, as ``{image id: [texts]}``, records with ``image_id`` and ``references``, a
            file, or :class:`~scapo_eval.truths.references.References`. References serve as weights and as ground truth,
            alone or in addition to ``truth``.
        leave_out_self: If True, a caption that is itself one of the references is compared only with the other
            references.
        unnamed: State of labels that no reference names, ``unknown`` (None) or ``absent``.
        weights: Label weights for ``cover_weighted``, given as COCO instances (weights by area), or as a file or
            records with ``image_id`` and ``weights``.
        people: True to add ``cap_people``. ``cap_people`` is always added if there are references.
        dopa: DOPA matrix, for the additional ``*_dagger`` metrics.
        dopa_vocabulary: Vocabulary of the DOPA matrix.
        name: Name of the system. The default is the name of the file, or ``captions``.
        claims: Reading, which selects the mentions to count; see :mod:`scapo_eval.matching.uses`. The reading ``all``
            is the paper's protocol, and ``visual`` is recommended for captions from recent models.
            :class:`~scapo_eval.matching.judged_uses.JudgedUses` is a reading with uses from a language model.
        workers: Number of processes for parsing and matching, or None to use only the current process.
        resamples: Number of bootstrap resamples for the intervals. 0 disables them.
        seed: Seed for the resampling.
        bootstrap: Resampling method; see :class:`~scapo_eval.results.results.Resampling`. By default, the number of
            images determines the resampling method.
        skip_bad: True to omit and count faulty records instead of raising an error.
        on_unknown_image: ``error`` to raise an error for captions whose image has no ground truth, or ``skip`` to omit
            and count them.
        any_fingerprint: True to accept a matrix that was made for another vocabulary.
        drop_unfinished: True to remove an unfinished last sentence (cut off by a token limit).
        any_ids: True to score captions even if they appear to belong to other images, for example because a line is
            missing.
        strict: True to reject files with unusual captions (repeated, empty or cut-off captions, or different numbers of
            captions per image).

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> scapo_eval.score(rows).values["hal_rate"]
        0.5
    """
    [run] = _score(
        Systems.of(captions, name, "captions", drawn(resamples, seed, bootstrap)),
        truth=truth,
        vocabulary=vocabulary,
        references=references,
        leave_out_self=leave_out_self,
        unnamed=unnamed,
        weights=weights,
        people=people,
        dopa=dopa,
        dopa_vocabulary=dopa_vocabulary,
        scoring=ScoringOptions(
            claims, skip_bad, on_unknown_image, any_fingerprint, workers, drop_unfinished, strict, any_ids
        ),
    )
    return run


_EXAMPLES = ("examples/captions_baseline.jsonl", "examples/captions_aligned.jsonl")

BENCHMARK = Benchmark(
    name="capscore",
    title="Captions",
    help="""Scores caption files. Several files are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input. For a billion captions, see docs/scale.md.
    """,
    headline=("hal_rate", "cover_rate", "cap_score"),
    metric_set=_metrics_of,
    metric_names={
        "cover_weighted": "Cover Rate, weighted",
        "cap_weighted": "Cap. Score, weighted",
        "named_rate": "Named",
        "named_words": "Named words",
        "cover_words": "Cover, words",
        "cap_people": "Cap. People",
    },
    meanings={
        "hal_rate": "claimed labels that are absent",
        "cover_rate": "present labels that are claimed",
        "cap_score": "harmonic mean of 1 - hal_rate and cover_rate",
        "chair_i": "mentions that are hallucinated",
        "chair_s": "captions with a hallucinated mention",
        "cover_weighted": "weighted share of present labels that are claimed",
        "cap_weighted": "harmonic mean of 1 - hal_rate and cover_weighted",
        "named_rate": "claimed labels that a reference names",
        "named_words": "content words that also occur in a reference, weighted by rarity, mean of captions",
        "cover_words": "covered content words of the references, by rarity and agreement, mean of captions",
        "cap_people": "joint score fitted to people's ratings, mean of captions (docs/validity.md)",
    },
    frontiers=(
        ("hal_rate", "cover_rate", "Hal. Rate and Cover Rate"),
        (f"hal_rate{DAGGER}", f"cover_rate{DAGGER}", "Hal. Rate and Cover Rate against DOPA"),
    ),
    score=_score,
    function=score,
    files="captions",
    takes=("captions", "object lists"),
    captions=True,
    scoring=True,
    options={
        "truth": Option(
            file="read",
            metavar="FILE",
            help="Ground truth. Without it and --references, every record needs 'objects'.",
        ),
        "vocabulary": Option(
            file="read",
            metavar="NAME|FILE",
            help="Labels and their aliases.  [default: coco80; with --references and no --truth open400]",
        ),
        "references": Option(
            file="read",
            metavar="FILE",
            help="Reference captions, used as ground truth (alone or with --truth) and as weights. Adds"
            " cover_weighted, cover_words and cap_people.",
        ),
        "leave_out_self": Option(help="Compare a caption that is one of the references only with the others."),
        "unnamed": Option(choices=UNNAMED, help="State of labels that no reference names.  [default: unknown]"),
        "weights": Option(
            file="read",
            metavar="FILE",
            help="Weights of labels for cover_weighted: COCO's instances (by area), or image_id and weights per line.",
        ),
        "people": Option(help="Add cap_people (docs/validity.md). --references always adds it."),
        "dopa": Option(file="read", metavar="MATRIX", help="DOPA matrix, which adds the *_dagger metrics."),
        "dopa_vocabulary": Option(file="read", metavar="NAME|FILE", help="Vocabulary of --dopa."),
        "per_caption": Option(
            file="written",
            metavar="FILE",
            help="Write mentions, verdicts and counts of every caption as JSON Lines (one system only).",
        ),
    },
    engine=OnEngine(
        function="score",
        needs=("truth",),
        refuses=("per_caption", "references", "leave_out_self", "unnamed", "weights", "people"),
    ),
    command_example=CommandExample((f"scapo-eval score {' '.join(_EXAMPLES)} --truth examples/truth.json",)),
)
