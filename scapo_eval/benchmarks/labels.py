"""Statistics of hallucinated and missed labels, and of labels that are hallucinated together.

Rates are shares of captions, with Wilson's 95 % score interval (Wilson 1927). Wilson's interval assumes that captions
are independent, so it is slightly too narrow if there are several captions per image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.reprs import fields_in_short, one_line
from ..files.records import Readable
from ..files.source import Input
from ..matching.vocabulary import Vocabulary
from ..results.intervals import wilson as score_interval
from ..results.results import Resampling
from ..truths.oracle import PresenceOracle, Truth
from .capscore import CaptionScorer, CaptionScores, score_file
from .scoring import ScoredBlock, ScoringOptions


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Counts of captions and mentions for each label of a vocabulary.

    Attributes:
        labels: The L labels of the vocabulary, in order.
        mentions: (L,) number of mentions of each label.
        hallucinated: (L,) number of captions that claim the label although it is absent.
        supported: (L,) number of captions that claim the label and whose image contains it.
        unknown: (L,) number of captions that claim the label although its presence in the image is unknown.
        truth: (L,) number of captions whose image contains the label.
        both: (L, L) number of captions that hallucinate both the label of the row and the label of the column.
        beside: (L, L) number of captions that hallucinate the row's label and claim the column's label, which is
            present.
    """

    labels: tuple[str, ...]
    mentions: NDArray[np.int64]
    hallucinated: NDArray[np.int64]
    supported: NDArray[np.int64]
    unknown: NDArray[np.int64]
    truth: NDArray[np.int64]
    both: NDArray[np.int64]
    beside: NDArray[np.int64]

    __repr__ = fields_in_short

    @classmethod
    def of(
        cls,
        labels: Sequence[str],
        claimed: NDArray[np.bool_],
        states: NDArray[np.int8],
        mentions: NDArray[np.int64],
    ) -> LabelCounts:
        """Returns the label counts of n captions.

        Args:
            labels: Names of the L labels.
            claimed: (n, L) array that is True if a caption claims a label.
            states: (n, L) states of the labels in each caption's image: 1 present, 0 absent, -1 unknown.
            mentions: (L,) number of mentions of each label.
        """
        wrong, right = claimed & (states == 0), claimed & (states == 1)
        a, b = wrong.astype(np.float64), right.astype(np.float64)  # float for a BLAS product; exact below 2**53
        return cls(
            labels=tuple(labels),
            mentions=mentions,
            hallucinated=wrong.sum(axis=0),
            supported=right.sum(axis=0),
            unknown=(claimed & (states == -1)).sum(axis=0),
            truth=(states == 1).sum(axis=0),
            both=(a.T @ a).astype(np.int64),
            beside=(a.T @ b).astype(np.int64),
        )

    def __add__(self, other: LabelCounts) -> LabelCounts:
        summed = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("mentions", "hallucinated", "supported", "unknown", "truth", "both", "beside")
        }
        return replace(self, **summed)


@dataclass(frozen=True, slots=True)
class LabelRun:
    """Scores and label counts of one system.

    Attributes:
        scores: Scores of the captions.
        counts: Counts of each label.
    """

    scores: CaptionScores
    counts: LabelCounts

    def __repr__(self) -> str:
        rows, scores = self.rows, self.scores
        invented, missed = (sum(row[column] > 0 for row in rows) for column in ("hallucinated", "missed"))
        labels = f"{len(rows):,} labels ({invented:,} hallucinated, {missed:,} missed)"
        return one_line(self, f"{scores.name}: {labels}, {scores.n_records:,} captions, {scores.n_images:,} images")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows for the labels that are mentioned or present, with counts and rates; the rows can be passed to
        ``pandas.DataFrame``.
        """
        counts, columns = self.counts, label_rows(self.counts)
        return [
            {"label": label, **{name: values[k] for name, values in columns.items()}}
            for k, label in enumerate(counts.labels)
            if counts.mentions[k] or counts.truth[k]
        ]

    def to_pandas(self) -> Any:
        """Returns a data frame with one row per label that is mentioned or present, and the columns of ``rows``.
        Undefined rates are NaN.

        Raises:
            MissingExtra: If pandas is not installed.
        """
        from ..results.frames import to_frame

        return to_frame(self.rows, ("label", *label_rows(self.counts)), RATES)

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Returns the labels that are mentioned or present, the hallucinated and the missed ones among them, and the
        labels that are hallucinated together, for ``--json``.

        Args:
            top: Maximum length of each list, or None to list all labels.
        """
        counts, table = self.counts, self.rows
        most, both, beside = together(counts, top or len(counts.labels))
        names = [counts.labels[k] for k in most]
        pairs = [
            {"labels": [names[i], names[j]], "captions": both[i][j]}
            for i in range(len(most))
            for j in range(i + 1, len(most))
            if both[i][j]
        ]
        return {
            "name": self.scores.name,
            "signature": str(self.scores.signature),
            "n_captions": self.scores.n_records,
            "n_images": self.scores.n_images,
            "interval": "wilson_95",
            "labels": table[:top],
            "invented": _ranked(table, "hallucinated", top),
            "missed": _ranked(table, "missed", top),
            "invented_together": sorted(pairs, key=lambda pair: -int(pair["captions"]))[:top],  # type: ignore[call-overload]
            "invented_beside": [
                {"invented": counts.labels[a], "present": counts.labels[b], "captions": n} for a, b, n in beside
            ][:top],
        }


def _ranked(table: Sequence[dict[str, Any]], column: str, top: int | None) -> list[dict[str, Any]]:
    return sorted((row for row in table if row[column]), key=lambda row: (-row[column], row["label"]))[:top]


def score_labels(
    path: Readable,
    vocabulary: Vocabulary,
    oracle: PresenceOracle | Truth | None,
    options: ScoringOptions | None = None,
    *,
    name: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> LabelRun:
    """Counts the labels of a caption file; see :func:`scapo_eval.benchmarks.capscore.score_file`.

    Args:
        path: Caption file.
        vocabulary: Vocabulary to match.
        oracle: Ground truth, or None for the ``objects`` in the captions' records.
        options: Settings for scoring.
        name: Name of the system.
        on_progress: Callback that receives the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    summed: list[LabelCounts] = []

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        truth, mentions = scorer.truths[0], block.evidence[0]
        images, texts = block.captions.image_ids, block.captions.captions
        states = truth.states[truth.rows_of(images, texts, truth.rows(images))]
        claimed = np.zeros(states.shape, dtype=bool)
        claimed[mentions.caption, mentions.label_id] = True
        counts = LabelCounts.of(truth.vocabulary.labels, claimed, states, block.mentioned)
        summed[:] = [summed[0] + counts] if summed else [counts]

    scores = score_file(
        path,
        vocabulary,
        oracle,
        options,
        name=name,
        resampling=Resampling(0),
        on_block=keep,
        on_progress=on_progress,
    )
    return LabelRun(scores, summed[0])


RATES = ("rate", "low", "high", "miss_rate", "miss_low", "miss_high")
"""Columns of :func:`label_rows` whose values are shares."""


def label_rows(counts: LabelCounts) -> dict[str, list[Any]]:
    """Returns the counts and rates of each label, as columns of a table.

    ``mentions`` is the number of mentions of the label. ``claims`` is the number of captions that claim the label,
    counting only captions of images for which the presence of the label is known. ``hallucinated`` is the number of
    captions among ``claims`` whose image does not contain the label. The share of these captions is ``rate``, with the
    Wilson interval from ``low`` to ``high``. ``truth`` is the number of captions whose image contains the label.
    ``missed`` is the number of captions among ``truth`` that do not claim the label. The share of these captions is
    ``miss_rate``; the bounds of its Wilson interval are ``miss_low`` and ``miss_high``. ``unknown`` is the number of
    captions that claim the label although its presence in the image is unknown.
    """
    claims = counts.hallucinated + counts.supported
    missed = counts.truth - counts.supported
    columns: dict[str, list[Any]] = {"mentions": counts.mentions.tolist(), "claims": claims.tolist()}
    columns["hallucinated"] = counts.hallucinated.tolist()
    columns |= _rates(counts.hallucinated, claims, RATES[:3])
    columns |= {"truth": counts.truth.tolist(), "missed": missed.tolist()}
    columns |= _rates(missed, counts.truth, RATES[3:])
    return {**columns, "unknown": counts.unknown.tolist()}


def _rates(hits: NDArray[np.int64], n: NDArray[np.int64], names: Sequence[str]) -> dict[str, list[float | None]]:
    pairs = list(zip(hits.tolist(), n.tolist(), strict=True))
    intervals = [wilson(k, total) for k, total in pairs]
    rates = [k / total if total else None for k, total in pairs]
    return dict(zip(names, (rates, [low for low, _ in intervals], [high for _, high in intervals]), strict=True))


def wilson(hits: int, n: int) -> tuple[float | None, float | None]:
    """Returns Wilson's 95 % score interval for a share (Wilson 1927). Both bounds are None if n is 0."""
    return score_interval(hits / n, n) if n else (None, None)


def together(counts: LabelCounts, top: int = 14) -> tuple[list[int], list[list[int]], list[tuple[int, int, int]]]:
    """Finds labels that are hallucinated in the same captions, and supported labels that accompany hallucinated labels.

    Returns:
        Three values: the labels that are hallucinated most often; a (top, top) matrix with the number of captions in
        which each pair of these labels is hallucinated; and the most frequent tuples ``(hallucinated label, supported
        label, captions)``.
    """
    total, beside = counts.hallucinated, counts.beside
    most = [k for k in np.argsort(-total, kind="stable")[:top].tolist() if total[k]]
    flat = np.argsort(-beside, axis=None, kind="stable")[: 3 * top].tolist()
    pairs = [(*divmod(k, beside.shape[1]), int(beside.flat[k])) for k in flat if beside.flat[k]]
    return most, counts.both[np.ix_(most, most)].tolist(), pairs


@dataclass(frozen=True, slots=True)
class AbsentClaims:
    """Counts for one label that captions claim for images in which the ground truth marks the label as absent.

    Attributes:
        label: Name of the label.
        annotated: Number of captioned images that contain the label according to the ground truth.
        claimed: Number of images for which a caption claims the label and the ground truth states whether it is
            present.
        absent: Number of images among ``claimed`` that do not contain the label.
        agreed: Number of images among ``absent`` for which at least two systems claim the label.
        images: Examples of images counted in ``absent``, sorted by decreasing number of systems that claim the label.
    """

    label: str
    annotated: int
    claimed: int
    absent: int
    agreed: int
    images: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns a mapping that contains the fields, ``share`` (absent divided by claimed), and the Wilson interval of
        the share (``low``, ``high``).
        """
        low, high = wilson(self.absent, self.claimed)
        counts = {name: getattr(self, name) for name in ("label", "annotated", "claimed", "absent", "agreed")}
        share = self.absent / self.claimed if self.claimed else None
        return {**counts, "share": share, "low": low, "high": high, "images": list(self.images)}


def absent_claims(
    paths: Sequence[Input],
    vocabulary: Vocabulary,
    oracle: PresenceOracle,
    options: ScoringOptions | None = None,
    *,
    examples: int = 5,
) -> list[AbsentClaims]:
    """Returns the labels that captions claim for images in which the ground truth marks them as absent. Labels that
    several systems claim for the same images come first.

    If several systems claim the same label for the same image, the image may contain the label although the ground
    truth marks it as absent. Only a person who checks the image can confirm that the ground truth is wrong.

    Args:
        paths: Caption files, one per system.
        vocabulary: Vocabulary to match.
        oracle: Ground truth.
        options: Settings for scoring.
        examples: Number of example images per label.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    claims: NDArray[np.int16] | None = None
    described: NDArray[np.bool_] | None = None
    truth: Truth | None = None
    for path in paths:
        seen: NDArray[np.bool_] | None = None

        def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
            nonlocal seen, described, truth
            truth, mentions = scorer.truths[0], block.evidence[0]
            if seen is None:
                seen = np.zeros(truth.states.shape, dtype=bool)
            if described is None:
                described = np.zeros(len(truth.states), dtype=bool)
            rows = truth.rows(block.captions.image_ids)
            described[rows] = True
            seen[rows[mentions.caption], mentions.label_id] = True

        score_file(path, vocabulary, oracle, options, resampling=Resampling(0), on_block=keep)
        assert seen is not None
        claims = seen.astype(np.int16) if claims is None else claims + seen
    if claims is None or described is None or truth is None:
        return []
    absent = (claims > 0) & (truth.states == 0)
    absent_labels = []
    for k in np.flatnonzero(absent.any(axis=0)).tolist():
        rows = np.flatnonzero(absent[:, k])
        most = rows[np.argsort(-claims[rows, k], kind="stable")][:examples]
        absent_labels.append(
            AbsentClaims(
                label=vocabulary.labels[k],
                annotated=int((described & (truth.states[:, k] == 1)).sum()),
                claimed=int(((claims[:, k] > 0) & (truth.states[:, k] >= 0)).sum()),
                absent=len(rows),
                agreed=int((claims[rows, k] > 1).sum()),
                images=tuple(oracle.image_ids[row] for row in most.tolist()),
            )
        )
    return sorted(absent_labels, key=lambda claim: (-claim.agreed, -claim.absent, claim.label))
