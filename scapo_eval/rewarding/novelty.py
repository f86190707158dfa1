"""Detection of repeated wording, based on the share of a piece's word pairs that are new in the response."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns, SpanColumns

_WORD = re.compile(r"[^\W_]+")
_THING, _BORDER = "\0", "\1"  # replaces each mention; precedes and follows a piece


def fresh_share(texts: Sequence[str], spans: SpanColumns, mentions: MentionColumns) -> NDArray[np.float64]:
    """Returns, for each piece, the share of its word pairs that do not occur in any earlier piece of the response.

    A word pair is a pair of neighboring words. The start and end of a piece count as words. All mentions count as the
    same word, so "A dog." and "A frisbee." have the same word pairs.

    Args:
        texts: n responses.
        spans: Pieces of the responses.
        mentions: Mentions in the responses.

    Returns:
        (pieces,) array of shares from 0 (every pair occurred before) to 1 (every pair is new). The share of the first
        piece of a response is 1.
    """
    fresh = np.ones(len(spans.start))
    starts, ends = spans.start.tolist(), spans.end.tolist()
    for k, text in enumerate(texts):
        first, stop = int(spans.indptr[k]), int(spans.indptr[k + 1])
        if stop - first < 2:
            continue
        rows = mentions.row(k)
        things = list(zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), strict=True))
        seen: set[tuple[str, str]] = set()
        for piece in range(first, stop):
            words = _words(text, starts[piece], ends[piece], things)
            pairs = set(zip(words, words[1:], strict=False))
            fresh[piece] = len(pairs - seen) / len(pairs)
            seen |= pairs
    return fresh


def _words(text: str, start: int, end: int, things: Sequence[tuple[int, int]]) -> list[str]:
    words, at = [_BORDER], start
    for begin, stop in things:
        if start <= begin < end:
            words += [*_WORD.findall(text[at:begin].lower()), _THING]
            at = stop
    return [*words, *_WORD.findall(text[at:end].lower()), _BORDER]
