"""Uses of mentions in many captions at once: the batch form of ``uses.py``, with equal results.

NumPy selects the few mentions near a cue, a quotation mark or a noun. The functions of ``uses.py`` then examine the
selected mentions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.types import Use
from .uses import (
    SPECIAL,
    USES,
    SpecialWords,
    behind,
    by_form,
    crossed_out,
    highest,
    in_questions,
    in_quotes,
    in_scope,
    of_color_or_kin,
    shipped_rules,
)

_BASE, _NOWHERE = 32, np.iinfo(np.int64).max  # bits of a place before its caption's index; behind all places


class _Tables(NamedTuple):
    """The properties of the cue rules as arrays, indexed by rule.

    Attributes:
        before: Number of characters of the cue before the watched word. For example, "n't" is watched as its "t".
        reach: Reach of the rule, or -1 for SPECIAL.
        is_back: True if the rule applies to the mention before the cue.
        back_reach: Maximum distance in characters from this mention to the cue.
        other: Index of the next rule of the same words, or SPECIAL.
        use: Position of the use in USES.
    """

    before: NDArray[np.int64]
    reach: NDArray[np.int64]
    is_back: NDArray[np.bool_]
    back_reach: NDArray[np.int64]
    other: NDArray[np.int64]
    use: NDArray[np.int64]


@cache
def _tables() -> _Tables:
    rules = shipped_rules()
    before = np.zeros(len(rules.rules), dtype=np.int64)
    before[list(rules.of(rules.row["t"]))] = 2
    reach = np.array([rule.reach for rule in rules.rules])
    back_reach = [max([-1, *(back.within for back in rule.backs)]) for rule in rules.rules]
    is_back = np.array([bool(rule.cue.back) for rule in rules.rules])
    other, use = (np.array([getattr(rule, name) for rule in rules.rules]) for name in ("other", "use"))
    return _Tables(before, reach, is_back, np.array(back_reach), other, use)


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
    """Returns the uses of all mentions in many captions, restricted to some uses.

    Args:
        texts: Captions.
        mentions: Mentions in the captions.
        cues: Cue words of the uses in the captions; see :func:`~scapo_eval.matching.uses.cue_words`.
        look: (mentions,) bool, false for mentions that no noun follows and that are not in capitals.
        quoting: Indices of captions, including all captions with a mention between quotation marks.
        asking: Indices of captions, including all captions with a question mark.
        uses: Uses to find.
        words: Special words of the vocabulary.

    Returns:
        (mentions,) positions in USES. Mentions with none of the uses are claims, coded 0.
    """
    if not uses or not len(mentions.start):
        return np.zeros(len(mentions.start), dtype=np.uint8)
    tables = _tables()
    caption = mentions.caption
    starts, ends, indptr = mentions.start.data, mentions.end.data, mentions.indptr.data  # give plain integers
    base = caption << _BASE
    place = np.append(base + mentions.start, _NOWHERE)
    of_cue, which = _rules_of(cues.label_id, uses)
    owner, cue_end = cues.caption[of_cue] << _BASE, cues.end[of_cue]
    begin = cues.start[of_cue] - tables.before[which]
    following = np.searchsorted(place, owner + begin)

    row_uses: list[Iterable[tuple[int, int]]] = []
    if "quoted" in uses:
        row_uses += [in_quotes(texts[k], starts, ends, indptr[k], indptr[k + 1]) for k in quoting]
    if "question" in uses:
        row_uses += [in_questions(texts[k], starts, indptr[k], indptr[k + 1]) for k in asking]
    if "negated" in uses:
        row_uses += [
            crossed_out(text, starts, ends, indptr[k], indptr[k + 1])
            for k, text in enumerate(texts)
            if "[" in text or "|" in text or "~~" in text or not text.isascii()
        ]
    if "modifier" in uses:
        row = look.nonzero()[0]
        row = row[~_listed(mentions, row, place, base + mentions.end)]
        row_uses.append(by_form(texts, _rows(caption[row], row, mentions.start[row], mentions.end[row])))
        row = following[which == SPECIAL]
        row = row[row < len(caption)]
        special = _rows(caption[row], row, mentions.start[row], mentions.end[row])
        row_uses.append(of_color_or_kin(texts, starts, ends, mentions.label_id.data, indptr, special, words))
    gap = place[following] - owner - cue_end
    near = ((gap >= 0) & (gap <= tables.reach[which])).nonzero()[0]
    row = following[near]
    scopes = _rows(caption[row], cue_end[near], mentions.start[row], row, which[near])
    row_uses.append(in_scope(texts, starts, ends, indptr, scopes))
    back = tables.is_back[which].nonzero()[0]
    row, begin = following[back] - 1, begin[back]
    distance = owner[back] + begin - base[row] - mentions.end[row]
    near = ((row >= 0) & (distance <= tables.back_reach[which[back]])).nonzero()[0]
    row = row[near]
    row_uses.append(behind(texts, starts, ends, indptr, _rows(caption[row], begin[near], row, which[back[near]])))
    return np.frombuffer(highest(len(starts), row_uses), dtype=np.uint8)


def _rules_of(first: NDArray[Any], uses: tuple[Use, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns all rules of some cue words that assign one of some uses.

    Args:
        first: (words,) index of the first rule of each word.
        uses: Uses to find.

    Returns:
        (rules,) position in ``first`` of each rule's word, and the index of the rule. Special words keep their SPECIAL.
    """
    tables = _tables()
    words, rules = [np.arange(len(first))], [first.astype(np.int64)]
    while len(words[-1]):
        further = tables.other[rules[-1]]
        kept = further.nonzero()[0]  # SPECIAL is 0 and has no further rules
        words.append(words[-1][kept])
        rules.append(further[kept])
    word, rule = np.concatenate(words), np.concatenate(rules)
    is_asked = np.isin(tables.use, [USES.index(use) for use in uses])
    is_asked[SPECIAL] = True
    kept = is_asked[rule].nonzero()[0]
    return word[kept], rule[kept]


def _rows(*columns: NDArray[Any]) -> Iterator[Any]:
    """Returns an iterator over the rows of several columns, with plain Python integers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _listed(
    mentions: MentionColumns, row: NDArray[np.int64], place: NDArray[np.int64], until: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns a (rows,) mask of the mentions in a list without commas.

    Such a list consists of three adjacent mentions, or of two adjacent mentions at the beginning of a text. Mentions in
    a list are not modifiers.

    Args:
        mentions: Mentions in captions.
        row: Indices of the mentions to check.
        place: (mentions + 1,) start of each mention in the concatenated captions, followed by a position after all
            captions.
        until: (mentions,) end of each mention in the concatenated captions.
    """
    # whether the mention k rows on stands right behind the one before it
    before, itself, behind, further = (
        place.take(row + k, mode="clip") == until.take(row + k - 1, mode="clip") + 1 for k in (-1, 0, 1, 2)
    )
    listed: NDArray[np.bool_] = (itself & (before | behind)) | (behind & further)
    listed |= behind & (mentions.start[row] == 0)
    return listed
