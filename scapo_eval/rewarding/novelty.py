"""Measures the new share of a piece's wording, since sentences from one template repeat their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns, SpanColumns

_WORD = re.compile(r"[^\W_]+")
_THING, _BORDER = "\0", "\1"  # in place of each mention; before and behind a piece


def fresh_share(texts: Sequence[str], spans: SpanColumns, mentions: MentionColumns) -> NDArray[np.float64]:
    """Returns the share of the pairs of neighboring words of each piece that no earlier piece of its response has.

    All mentions count as the same word, and the borders of a piece count as words: "A dog." and "A frisbee." are the
    same.

    Args:
        texts: n responses.
        spans: their pieces.
        mentions: mentions in the responses.

    Returns:
        (pieces,) from 0 (all pairs occurred in earlier pieces) to 1; the first piece of a response has 1.
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
