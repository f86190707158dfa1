"""Finds where rollouts contradict the judge: cells worth a second question, labels worth a prompt of their own.

Several rollouts of an image are several witnesses. Their reliability is estimated from all images: how often they
mention a label where the judge calls it present (``p1``, per label) and where absent (``p0``, over all labels: a
label's own rate would excuse a judge that misses it everywhere). The evidence against a cell's verdict is the
log-likelihood ratio of what its image's rollouts say, so that one number ranks both kinds of disagreement: claimed by
many though judged absent, and mentioned by none though judged present and usually mentioned. Rollouts of one model
repeat each other's errors: the ranking says where to look, not who is right.
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
"""Evidence, in nats, from which a cell is disputed: at 1 the rollouts are e times as likely under the other verdict."""

_BATCH = 4096
_PRIOR = 8.0  # weight, in rollouts, of the mean rate of all labels in a label's own rate


@dataclass(frozen=True)
class RolloutMentions:
    """Counts of how often the rollouts of each image mention each label.

    Attributes:
        claims: (images, labels) number of the image's rollouts that mention the label.
        rollouts: (images,) number of the image's rollouts.
        texts: the text of every rollout, to be searched for words that the vocabulary does not cover.
        unknown: number of rollouts whose image the run does not have.
    """

    claims: NDArray[np.int32]
    rollouts: NDArray[np.int32]
    texts: list[str]
    unknown: int


@dataclass(frozen=True, slots=True)
class DisputedCell:
    """A cell on which judge and rollouts disagree.

    Attributes:
        row: row of the image in the matrix.
        column: column of the label in the matrix.
        verdict: the judge's verdict, 1 present or 0 absent.
        claims: number of the image's rollouts that mention the label.
        rollouts: number of the image's rollouts.
        evidence: log-likelihood ratio against the verdict, in nats.
    """

    row: int
    column: int
    verdict: int
    claims: int
    rollouts: int
    evidence: float


@dataclass(frozen=True, slots=True)
class LabelConfusion:
    """Agreement of judge and rollouts on one label.

    Attributes:
        label: name of the label.
        present: number of images in which the judge calls it present.
        claimed_absent: number of disputed cells that are judged absent.
        silent_present: number of disputed cells that are judged present.
        claim_rate_present: share of the rollouts that mention it, of images where it is judged present; NaN without
            such a rollout.
        claim_rate_absent: the same of images where it is judged absent.
        with_label: the label that is judged present in most of the disputed images, beyond what its frequency
            explains (what this one may be confused with); empty if no label is present in half of them.
    """

    label: str
    present: int
    claimed_absent: int
    silent_present: int
    claim_rate_present: float
    claim_rate_absent: float
    with_label: str


def read_rollouts(store: Store, paths: Iterable[str]) -> RolloutMentions:
    """Counts the mentions of rollout or caption files, image by image.

    Args:
        store: the run whose vocabulary and images count.
        paths: captions or rollouts in any format that ``scapo-eval`` reads, one or several per image.

    Raises:
        InputError: if a file cannot be read.
        InputErrors: if a file has faulty records.
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
        # a rollout claims a label once
        cells = np.unique(np.stack([mentions.caption, mentions.label_id], axis=1), axis=0)
        np.add.at(claims, (owner[begin + cells[:, 0]], cells[:, 1]), 1)
    return RolloutMentions(claims, rollouts, texts, unknown)


def disputed(store: Store, mentions: RolloutMentions, *, min_rollouts: int = 2) -> list[DisputedCell]:
    """Returns the cells that several rollouts contradict, the strongest evidence first.

    Args:
        store: the run with the verdicts.
        mentions: what the rollouts mention.
        min_rollouts: least number of rollouts that mention a label judged absent, or do not mention one judged
            present.
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
    """Returns the (images, labels) log-likelihood ratio against the verdict; 0 for cells without a verdict or without a
    rollout.
    """
    claims, rollouts = mentions.claims, np.broadcast_to(mentions.rollouts[:, None], mentions.claims.shape)
    present, absent = matrix == PRESENT, matrix == ABSENT
    over_all, p0 = ((claims[where].sum() + 0.5) / (rollouts[where].sum() + 1.0) for where in (present, absent))
    p1 = ((claims * present).sum(axis=0) + _PRIOR * over_all) / ((rollouts * present).sum(axis=0) + _PRIOR)
    for_present = claims * np.log(p1 / p0) + (rollouts - claims) * np.log((1 - p1) / (1 - p0))
    evidence: NDArray[np.float64] = np.where(absent, for_present, np.where(present, -for_present, 0.0))
    return evidence


def confusion(store: Store, mentions: RolloutMentions, cells: Sequence[DisputedCell]) -> list[LabelConfusion]:
    """Returns the agreement of judge and rollouts per label, the most disputed first.

    Args:
        store: the run with the verdicts.
        mentions: what the rollouts mention.
        cells: the disputed cells of :func:`disputed`.
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
        beside = present[in_dispute[:, k]]  # what the judge calls present there
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
    """Returns the labels that deserve a prompt of their own: at least ``least`` disputed cells and more than 5 % of
    their presences.
    """
    return [
        label
        for label in labels
        if (disputes := label.claimed_absent + label.silent_present) >= least and disputes > 0.05 * label.present
    ]
