"""Comparison of hallucinated mentions with the spans of captions that annotators marked as wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..claiming.claim import KINDS
from ..claiming.extract import ClaimExtractor
from ..matching.matcher import AliasMatcher
from ..matching.uses import Reading
from ..matching.vocabulary import Vocabulary
from ..truths.oracle import Truth
from .judgements import Judgements, RatedText

SPAN_SHARE = "span_share"
SPAN_METRICS = ("span_precision", "span_recall", "span_f1")


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
        counts[k] = _counts(item, places)
    return counts


def span_claims(judgements: Judgements, vocabulary: Vocabulary) -> dict[str, NDArray[np.int64]]:
    """Counts, for each kind of claim, the spans that are marked as wrong and overlap such a claim. A metric with a
    ground truth for this kind of claim could detect the errors in these spans.

    Args:
        judgements: Captions with marked spans.
        vocabulary: Vocabulary of the claims.

    Returns:
        A mapping from each kind of claim (and from ``any`` and ``beyond presence``) to an (items, 2) array. The two
        columns contain the number of spans marked as wrong, and the number of these spans that overlap a claim of this
        kind, regardless of the use of the claim.
    """
    of_items = ClaimExtractor(vocabulary).find_batch([item.caption for item in judgements.items])
    counts = {name: np.zeros((len(of_items), 2), dtype=np.int64) for name in ("any", "beyond presence", *KINDS)}
    for k, (item, claims) in enumerate(zip(judgements.items, of_items, strict=True)):
        for span in item.spans or ():
            if not span.wrong:
                continue
            at = span.start, span.end
            held: set[str] = {claim.kind for claim in claims if _overlap((claim.start, claim.end), at)}
            held |= ({"any"} if held else set()) | ({"beyond presence"} if held - {"presence"} else set())
            for name, column in counts.items():
                column[k] += 1, name in held
    return counts


def _counts(item: RatedText, places: Sequence[tuple[int, int]]) -> tuple[int, int, int, int]:
    wrong = [(span.start, span.end) for span in item.spans or () if span.wrong]
    right = sum(any(_overlap(place, span) for span in wrong) for place in places)
    seen = sum(any(_overlap(place, span) for place in places) for span in wrong)
    return len(places), right, len(wrong), seen


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
