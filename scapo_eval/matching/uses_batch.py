"""Decides what many captions do with their mentions: the batch form of ``uses.py``, equal to it on each caption.

Numpy finds the few mentions near a cue, a quotation mark or a noun; these are read as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.types import Use
from .cues import shipped_cues
from .uses import (
    SPECIAL,
    SpecialWords,
    behind,
    by_form,
    highest,
    in_questions,
    in_quotes,
    in_scope,
    of_color_or_kin,
    shipped_rules,
)

_BASE, _NOWHERE = 32, np.iinfo(np.int64).max  # bits of a place before its caption's index; behind all places


class _Tables(NamedTuple):
    """Of each rule, by row.

    Attributes:
        before: characters of its cue before the watched word: "n't" is watched as its "t".
        reach: see ``Rule``; -1 for SPECIAL.
        is_back: whether it speaks of the mention before it.
        back_reach: characters behind that mention within which its cue begins.
    """

    before: NDArray[np.int64]
    reach: NDArray[np.int64]
    is_back: NDArray[np.bool_]
    back_reach: NDArray[np.int64]


@cache
def _tables() -> _Tables:
    rules = shipped_rules()
    before = np.zeros(len(rules.rules), dtype=np.int64)
    before[rules.row["t"]] = 2
    reach = np.array([rule.reach for rule in rules.rules])
    backward = shipped_cues().backward
    back_reach = [max([-1, *(backward[name].within for name in rule.cue.back)]) for rule in rules.rules]
    return _Tables(before, reach, np.array([bool(rule.cue.back) for rule in rules.rules]), np.array(back_reach))


def find_uses(
    texts: Sequence[str],
    mentions: MentionColumns,
    cues: MentionColumns,
    look: NDArray[np.bool_],
    quoting: Sequence[int],
    asking: Sequence[int],
    uses: tuple[Use, ...],
    words: SpecialWords,
) -> NDArray[np.uint8]:
    """Returns the uses of captions' mentions, as far as some uses are asked for.

    Args:
        texts: the captions.
        mentions: of them.
        cues: the ``cue_words`` of the uses in them.
        look: (mentions,) bool, False if no noun follows a mention and it is not in capitals.
        asking: the same of those with a question mark.
        quoting: indices of captions, all those among them that may have a mention between quotation marks.
        uses: those that are looked for.
        words: of the vocabulary.

    Returns:
        (mentions,) positions in USES; 0, a claim, for what is none of the uses.
    """
    if not uses or not len(mentions.start):
        return np.zeros(len(mentions.start), dtype=np.uint8)
    tables = _tables()
    caption, which = mentions.caption, cues.label_id
    starts, ends, indptr = mentions.start.data, mentions.end.data, mentions.indptr.data  # give plain integers
    base, owner = caption << _BASE, cues.caption << _BASE
    place = np.append(base + mentions.start, _NOWHERE)
    begin = cues.start - tables.before[which]
    following = np.searchsorted(place, owner + begin)

    row_uses: list[Iterable[tuple[int, int]]] = []
    if "quoted" in uses:
        row_uses += [in_quotes(texts[k], starts, indptr[k], indptr[k + 1]) for k in quoting]
    if "question" in uses:
        row_uses += [in_questions(texts[k], starts, indptr[k], indptr[k + 1]) for k in asking]
    if "modifier" in uses:
        row = look.nonzero()[0]
        row = row[~_listed(mentions, row, place, base + mentions.end)]
        row_uses.append(by_form(texts, _rows(caption[row], row, mentions.start[row], mentions.end[row])))
        row = following[which == SPECIAL]
        row = row[row < len(caption)]
        special = _rows(caption[row], row, mentions.start[row], mentions.end[row])
        row_uses.append(of_color_or_kin(texts, starts, ends, mentions.label_id.data, indptr, special, words))
    gap = place[following] - owner - cues.end
    near = ((gap >= 0) & (gap <= tables.reach[which])).nonzero()[0]
    row = following[near]
    scopes = _rows(caption[row], cues.end[near], mentions.start[row], row, which[near])
    row_uses.append(in_scope(texts, starts, ends, indptr, scopes))
    back = tables.is_back[which].nonzero()[0]
    row, begin = following[back] - 1, begin[back]
    distance = owner[back] + begin - base[row] - mentions.end[row]
    near = ((row >= 0) & (distance <= tables.back_reach[which[back]])).nonzero()[0]
    row = row[near]
    row_uses.append(behind(texts, starts, ends, _rows(caption[row], begin[near], row, which[back[near]])))
    return np.frombuffer(highest(len(starts), row_uses), dtype=np.uint8)


def _rows(*columns: NDArray[Any]) -> Iterator[Any]:
    """Returns the rows of columns, as plain integers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _listed(
    mentions: MentionColumns, row: NDArray[np.int64], place: NDArray[np.int64], until: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns (rows,) bool: whether mentions are in a list without commas: three side by side, or two that begin a
    text.

    In such a list nothing modifies.

    Args:
        mentions: of captions.
        row: which of them.
        place: (mentions + 1,) where each begins among all captions, and a place behind all.
        until: (mentions,) where each ends.
    """
    # whether the mention k rows on stands right behind the one before it
    before, itself, behind, further = (
        place.take(row + k, mode="clip") == until.take(row + k - 1, mode="clip") + 1 for k in (-1, 0, 1, 2)
    )
    listed: NDArray[np.bool_] = (itself & (before | behind)) | (behind & further)
    listed |= behind & (mentions.start[row] == 0)
    return listed
