"""Contradictions between rollouts and the judge: cells to ask about again, and labels that need their own prompts.

Each rollout of an image is treated as a separate piece of evidence about the labels of the image. Two rates, which are
estimated from all images, describe the reliability of the rollouts. The rate ``p1`` is the share of rollouts that
mention a label, computed over the images in which the judge calls the label present. The rate ``p1`` is estimated per
label. The rate ``p0`` is the share of rollouts that mention a label, computed over the images in which the judge calls
the label absent. The rate ``p0`` is estimated over all labels. If ``p0`` were estimated per label, a judge that always
misses a label would go unnoticed. The evidence against the verdict of a cell is the log-likelihood ratio of the
mentions in the image's rollouts. Both kinds of disagreement are ranked by the log-likelihood ratio. In cases of the
first kind, many rollouts claim a label that is judged absent. In cases of the second kind, no rollout mentions a label
that is judged present, although rollouts usually mention this label. Rollouts from one model repeat each other's
errors. Therefore, the ranking shows which cells to check, but not which of the two sides is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.verdicts import ABSENT, PRESENT
from ..matching.matcher import AliasMatcher
from ..readers.captions_foreign import read_foreign_captions
from .store import Store

LEAST_EVIDENCE = 1.0
"""Minimum evidence of a disputed cell, in nats. At 1, the rollouts are e times as likely under the opposite verdict."""

_BATCH = 4096
_PRIOR = 8.0  # weight, in rollouts, of the mean rate of all labels in a label's own rate


@dataclass(frozen=True)
class RolloutMentions:
    """Per-image counts of the rollouts that mention each label.

    Attributes:
        claims: (images, labels) array with the number of rollouts for an image that mention a label.
        rollouts: (images,) array with the number of rollouts of each image.
        texts: Texts of all rollouts, which are searched for words that the vocabulary does not cover.
        unknown: Number of rollouts whose image is not part of the run.
    """

    claims: NDArray[np.int32]
    rollouts: NDArray[np.int32]
    texts: list[str]
    unknown: int


@dataclass(frozen=True, slots=True)
class DisputedCell:
    """A cell on which the judge and the rollouts disagree.

    Attributes:
        row: Row index of the image in the matrix.
        column: Column of the label in the matrix.
        verdict: Verdict of the judge: 1 for present or 0 for absent.
        claims: Number of the image's rollouts that mention the label.
        rollouts: Number of the image's rollouts.
        evidence: Log-likelihood ratio against the verdict, in nats.
    """

    row: int
    column: int
    verdict: int
    claims: int
    rollouts: int
    evidence: float


@dataclass(frozen=True, slots=True)
class LabelConfusion:
    """Agreement between the judge and the rollouts on one label.

    Attributes:
        label: Name of the label.
        present: Number of images in which the judge calls the label present.
        claimed_absent: Number of disputed cells that are judged absent.
        silent_present: Number of disputed cells that are judged present.
        claim_rate_present: Share of rollouts that mention the label, among the rollouts for images in which the label
            is judged present (NaN if there are no such rollouts).
        claim_rate_absent: Share of rollouts that mention the label, among the rollouts for images in which the label is
            judged absent (NaN if there are no such rollouts).
        with_label: Label that may be confused with ``label``: the label whose frequency in the disputed images exceeds
            its frequency in all images by the largest amount. The value is an empty string if no other label is present
            in at least half of the disputed images.
    """

    label: str
    present: int
    claimed_absent: int
    silent_present: int
    claim_rate_present: float
    claim_rate_absent: float
    with_label: str


def read_rollouts(store: Store, paths: Iterable[str]) -> RolloutMentions:
    """Counts the mentions in rollout or caption files, image by image.

    Args:
        store: Run that provides the vocabulary and the images.
        paths: Caption or rollout files in any format that ``scapo-eval`` reads, with one or several texts per image.

    Raises:
        InputError: If a file cannot be read.
        InputErrors: If a file contains faulty records.
    """
    matcher = AliasMatcher(store.vocabulary)
    rows = {image: k for k, image in enumerate(store.image_ids)}
    claims = np.zeros(store.matrix.shape, dtype=np.int32)
    rollouts = np.zeros(len(rows), dtype=np.int32)
    texts: list[str] = []
    owners: list[int] = []
    unknown = 0
    for path in paths:
        for _, image_id, caption in read_foreign_captions(path):
            if image_id in rows:
                owners.append(rows[image_id])
                texts.append(caption)
            else:
                unknown += 1
    owner = np.array(owners, dtype=np.int64)
    np.add.at(rollouts, owner, 1)
    for begin in range(0, len(texts), _BATCH):
        mentions = matcher.find_batch(texts[begin : begin + _BATCH])
        # a rollout claims a label at most once
        cells = np.unique(np.stack([mentions.caption, mentions.label_id], axis=1), axis=0)
        np.add.at(claims, (owner[begin + cells[:, 0]], cells[:, 1]), 1)
    return RolloutMentions(claims, rollouts, texts, unknown)


def disputed(store: Store, mentions: RolloutMentions, *, min_rollouts: int = 2) -> list[DisputedCell]:
    """Returns the cells that several rollouts contradict, sorted by decreasing evidence.

    Args:
        store: Run that contains the verdicts.
        mentions: Mentions in the rollouts.
        min_rollouts: Minimum number of rollouts that contradict the verdict on a cell.
    """
    evidence = _evidence(store.matrix, mentions)
    silent = mentions.rollouts[:, None] - mentions.claims
    against = np.where(store.matrix == ABSENT, mentions.claims, silent)
    candidates = np.argwhere((evidence >= LEAST_EVIDENCE) & (against >= min_rollouts))
    cells = [
        DisputedCell(
            row, column, int(store.matrix[row, column]), int(mentions.claims[row, column]), int(mentions.rollouts[row]),
            float(evidence[row, column]),
        )
        for row, column in candidates.tolist()
    ]  # fmt: skip
    return sorted(cells, key=lambda cell: (-cell.evidence, cell.row, cell.column))


def _evidence(matrix: NDArray[np.int8], mentions: RolloutMentions) -> NDArray[np.float64]:
    """Returns an (images, labels) array of log-likelihood ratios against the verdicts.

    The ratio is 0 for cells without a verdict or without rollouts.
    """
    claims, rollouts = mentions.claims, np.broadcast_to(mentions.rollouts[:, None], mentions.claims.shape)
    present, absent = matrix == PRESENT, matrix == ABSENT
    over_all, p0 = ((claims[where].sum() + 0.5) / (rollouts[where].sum() + 1.0) for where in (present, absent))
    p1 = ((claims * present).sum(axis=0) + _PRIOR * over_all) / ((rollouts * present).sum(axis=0) + _PRIOR)
    for_present = claims * np.log(p1 / p0) + (rollouts - claims) * np.log((1 - p1) / (1 - p0))
    evidence: NDArray[np.float64] = np.where(absent, for_present, np.where(present, -for_present, 0.0))
    return evidence


def confusion(store: Store, mentions: RolloutMentions, cells: Sequence[DisputedCell]) -> list[LabelConfusion]:
    """Returns the agreement between the judge and the rollouts for each label, starting with the most disputed labels.

    Args:
        store: Run that contains the verdicts.
        mentions: Mentions in the rollouts.
        cells: Disputed cells from :func:`disputed`.
    """
    present, absent = store.matrix == PRESENT, store.matrix == ABSENT
    rollouts = np.broadcast_to(mentions.rollouts[:, None], mentions.claims.shape)
    number = np.zeros((2, len(store.labels)), dtype=np.int64)
    for cell in cells:
        number[cell.verdict, cell.column] += 1
    in_dispute = np.zeros(store.matrix.shape, dtype=bool)
    for cell in cells:
        in_dispute[cell.row, cell.column] = True
    usual = present.mean(axis=0)
    rows = []
    for k, label in enumerate(store.labels):
        beside = present[in_dispute[:, k]]  # labels that the judge calls present in the image
        lift = beside.mean(axis=0) - usual if len(beside) else np.zeros(len(store.labels))
        lift[k] = -1.0
        best = int(lift.argmax())
        rows.append(
            LabelConfusion(
                label, int(present[:, k].sum()), int(number[ABSENT, k]), int(number[PRESENT, k]),
                _share(mentions.claims[:, k], rollouts[:, k], present[:, k]),
                _share(mentions.claims[:, k], rollouts[:, k], absent[:, k]),
                store.labels[best] if len(beside) and beside[:, best].mean() >= 0.5 and lift[best] > 0 else "",
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: (-(row.claimed_absent + row.silent_present), row.label))


def _share(claims: NDArray[np.int32], rollouts: NDArray[np.int32], where: NDArray[np.bool_]) -> float:
    asked = int(rollouts[where].sum())
    return float(claims[where].sum()) / asked if asked else float("nan")


def suggested(labels: Sequence[LabelConfusion], *, least: int = 3) -> list[LabelConfusion]:
    """Returns the labels that need their own prompts.

    A label needs its own prompt if at least ``least`` of its cells are disputed, and if the number of disputed cells
    exceeds 5 % of the number of cells in which the label is judged present.
    """
    return [
        label
        for label in labels
        if (disputes := label.claimed_absent + label.silent_present) >= least and disputes > 0.05 * label.present
    ]
