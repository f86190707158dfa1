"""Comparison of hallucinated mentions with the spans of captions that annotators marked as wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..claiming.claim import KINDS
from ..claiming.extract import ClaimExtractor
from ..matching.matcher import AliasMatcher
from ..matching.uses import Reading
from ..truths.claim_oracle import ClaimOracle
from ..truths.oracle import Truth
from .judgements import Judgements, MarkedSpan

SPAN_SHARE = "span_share"
SPAN_DECIDED = "span_decided"
SPAN_METRICS = ("span_precision", "span_recall", "span_f1")

_Place = tuple[int, int]


def marked_facts(judgements: Judgements) -> Judgements:
    """Returns facts that people judged true or false as captions in which either nothing or everything is marked as
    wrong.
    """
    items = tuple(
        replace(item, spans=(MarkedSpan(0, len(item.caption), item.ratings["true"] == 0),))
        for item in judgements.items
        if item.ratings.get("true") is not None
    )
    return replace(judgements, items=items)


def span_counts(judgements: Judgements, truth: Truth, claims: Reading) -> NDArray[np.int64]:
    """Counts, for each item, the hallucinated mentions, the spans marked as wrong, and the overlaps between the two.

    Args:
        judgements: Captions with marked spans. Text outside the marked spans is considered correct.
        truth: Ground truth of the images.
        claims: Reading that determines which mentions count.

    Returns:
        An (items, 4) array. The columns count the hallucinated mentions, those that overlap a span marked as wrong, the
        spans marked as wrong, and those that overlap a hallucinated mention. All counts of an item are 0 if its image
        is not in the ground truth, or if no annotator marked its caption.
    """
    mentions = AliasMatcher(truth.vocabulary, claims).find_batch([item.caption for item in judgements.items])
    rows = truth.oracle.find_rows([item.image for item in judgements.items])
    counts = np.zeros((len(judgements.items), 4), dtype=np.int64)
    for k, item in enumerate(judgements.items):
        if rows[k] < 0 or item.spans is None:
            continue
        of_caption = mentions.row(k)
        flagged = truth.states[rows[k], mentions.label_id[of_caption]] == 0
        places = list(
            zip(mentions.start[of_caption][flagged].tolist(), mentions.end[of_caption][flagged].tolist(), strict=True)
        )
        counts[k] = _overlaps([(span.start, span.end) for span in item.spans if span.wrong], places)
    return counts


def span_claims(judgements: Judgements, oracle: ClaimOracle) -> dict[str, NDArray[np.int64]]:
    """Counts, for each kind of claim, the spans that are marked as wrong and overlap such a claim, and the claims that
    the oracle calls false. An oracle that decides claims of this kind could detect the errors in these spans.

    Args:
        judgements: Captions with marked spans. Text outside the marked spans is considered correct.
        oracle: Oracle that decides the claims.

    Returns:
        A mapping from each kind of claim (and from ``any`` and ``beyond presence``) to an (items, 6) array. The columns
        contain the number of spans marked as wrong; of these, the spans that overlap a claim of this kind, and those
        that overlap a claim that the oracle decides, both regardless of the use of the claim; the asserted claims that
        the oracle calls false, and those of them that overlap a span marked as wrong; and the spans marked as wrong
        that overlap such a false claim.
    """
    items = [item for item in judgements.items if item.spans is not None]
    of_items = ClaimExtractor(oracle.vocabulary).find_batch([item.caption for item in items])
    states = oracle.states([item.image for item in items], of_items)
    counts = {name: np.zeros((len(items), 6), dtype=np.int64) for name in ("any", "beyond presence", *KINDS)}
    for k, (item, claims, verdicts) in enumerate(zip(items, of_items, states, strict=True)):
        wrong = [(span.start, span.end) for span in item.spans or () if span.wrong]
        for name, column in counts.items():
            said = [
                (claim, state)
                for claim, state in zip(claims, verdicts, strict=True)
                if name in ("any", claim.kind) or (name == "beyond presence" and claim.kind != "presence")
            ]
            places = [[(claim.start, claim.end) for claim, _ in said]]
            places.append([(claim.start, claim.end) for claim, state in said if state >= 0])
            false = [(claim.start, claim.end) for claim, state in said if state == 0 and claim.use == "claim"]
            held = (sum(any(_overlap(place, span) for place in of) for span in wrong) for of in places)
            flagged, right, _, seen = _overlaps(wrong, false)
            column[k] = len(wrong), *held, flagged, right, seen
    return counts


def _overlaps(wrong: Sequence[_Place], places: Sequence[_Place]) -> tuple[int, int, int, int]:
    right = sum(any(_overlap(place, span) for span in wrong) for place in places)
    seen = sum(any(_overlap(place, span) for place in places) for span in wrong)
    return len(places), right, len(wrong), seen


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
