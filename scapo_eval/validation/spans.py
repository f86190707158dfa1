"""Comparison of hallucinated mentions with the parts of captions that people marked as wrong."""

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
    """Returns the counts per item.

    Args:
        judgements: Marked captions. Unmarked text is considered correct.
        truth: Ground truth of the images.
        claims: Mentions that count.

    Returns:
        (items, 4) counts: hallucinated mentions, those of them in a part marked as wrong, parts marked as wrong, and
        those of them with a hallucinated mention. All counts are 0 if the image is not in the ground truth, or nobody
        marked the caption.
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
    """Counts the parts marked as wrong that contain a claim, by kind. A ground truth for these claims could find these
    errors.

    Args:
        judgements: Marked captions.
        vocabulary: Vocabulary of the claims.

    Returns:
        Kind (including ``any`` and ``beyond presence``) -> (items, 2) counts: parts marked as wrong, and those of them
        that contain a word of such a claim with any use.
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
