"""The matcher, which finds mentions in captions. The matcher finds whole words, prefers leftmost and then longest
matches, and gives exact offsets for any Unicode text.

The search in ``trie.py`` over the words of one caption defines what a match is. The method ``find`` performs the search
in one caption. The method ``find_batch`` returns the same mentions for many captions at once (``matcher_batch.py``).
Tests compare both methods with a third implementation, which is slow and simple. ``uses.py`` determines the use of each
mention, and thus which mentions count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import InputError
from ..base.reprs import one_line
from ..base.types import Mention, Use
from .matcher_batch import BatchMatcher
from .trie import IGNORED, AliasTrie
from .uses import (
    NO_MENTION,
    UNJUDGED,
    USES,
    Reading,
    SpecialWords,
    check_reading,
    codes_of,
    cue_words,
    find_uses_of,
    left_out,
    left_out_codes,
)
from .uses_batch import find_uses
from .visible import all_shown, listed, shown
from .vocabulary import Vocabulary, VocabularyGiven


class AliasMatcher:
    """A matcher that finds the labels of a vocabulary in text.

    The matcher is immutable, so it can be shared between threads and pickled.

    Args:
        vocabulary: Labels, aliases and ignore phrases, in any form that :meth:`Vocabulary.of` accepts, such as the name
            of a shipped vocabulary or a file.
        claims: Reading that determines which mentions the batch methods count; see :mod:`scapo_eval.matching.uses`. A
            reading with uses from a judge (:class:`~scapo_eval.matching.judged_uses.JudgedUses`) also determines the
            uses that all methods return, and words that the judge does not consider mentions are not returned.

    Raises:
        InputError: If the name of the reading is unknown, or if a judge's uses belong to another vocabulary.

    Example:
        >>> import scapo_eval
        >>> matcher = scapo_eval.AliasMatcher("coco80")
        >>> [(m.label, m.start, m.end) for m in matcher.find("Two puppies on a sofa.")]
        [('dog', 4, 11), ('couch', 17, 21)]
    """

    def __init__(self, vocabulary: VocabularyGiven, claims: Reading = "all") -> None:
        check_reading(claims)
        self.vocabulary = Vocabulary.of(vocabulary)
        if not isinstance(claims, str) and claims.vocabulary != self.vocabulary.identity:
            reason = f"the uses are those of mentions of {claims.vocabulary}, not of {self.vocabulary.identity}"
            raise InputError(f"{reason}; judge the captions with this vocabulary", path=claims.source)
        self.claims = claims
        self._compile()

    def __repr__(self) -> str:
        return one_line(self, repr(self.vocabulary))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the pickled state without the search tables, because rebuilding the tables is faster than
        transferring them.

        The state includes the attributes of subclasses.
        """
        return {name: value for name, value in vars(self).items() if name not in ("_trie", "_batch", "_words")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def _compile(self) -> None:
        self._trie, self._batch, self._words = _compiled(_Identity(self.vocabulary), left_out(self.claims))

    def find(self, text: str) -> list[Mention]:
        """Returns all mentions in a caption, each with its use, in text order.

        Args:
            text: Any string, including strings with lone surrogates and NUL characters.

        Returns:
            Non-overlapping mentions whose spans refer to ``text``.

        Raises:
            InputError: If ``text`` is not a string.
        """
        labels = self.vocabulary.labels
        mentions, uses = self._read(shown(text), USES)
        if not isinstance(self.claims, str):
            columns, codes = self._judged([text], *_columns_of_one(mentions, uses), USES)
            spans = columns.start.tolist(), columns.end.tolist(), columns.label_id.tolist()
            mentions, uses = [*zip(*spans, strict=True)], bytearray(codes.tolist())
        return [
            Mention(start, end, labels[label], text[start:end], USES[use])
            for (start, end, label), use in zip(mentions, uses, strict=True)
        ]

    def _read(self, text: str, uses: tuple[Use, ...]) -> tuple[list[tuple[int, int, int]], bytearray]:
        """Returns the start, end and label id of each mention in one caption, and the uses of the mentions as positions
        in USES.
        """
        matches, cues = self._trie.matches_and_watched(text, _watch(uses, self._words))
        mentions = [match for match in matches if match[2] != IGNORED]
        return mentions, find_uses_of(text, mentions, cues, uses, self._words)

    def find_ignored(self, text: str) -> list[tuple[int, int]]:
        """Returns the pair ``(start, end)`` of every ignore phrase in a caption."""
        return [(start, end) for start, end, label in self._trie.matches(shown(text)) if label == IGNORED]

    def find_batch(self, texts: Sequence[str]) -> MentionColumns:
        """Returns those mentions in many captions that count under the reading, as columns.

        Args:
            texts: Captions.

        Raises:
            InputError: If ``texts`` is a string, or one of the texts is not a string.
        """
        mentions, counts = self.find_all(texts)
        return mentions if counts.all() else mentions.only(counts)

    def find_all(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.bool_]]:
        """Returns all mentions in many captions, and a mask of the mentions that the reading counts.

        Args:
            texts: Captions.

        Returns:
            All mentions, and a (mentions,) bool mask of the counted mentions.
        """
        mentions, uses = self.find_left_out(texts)
        return mentions, ~left_out_codes(self.claims)[uses]

    def find_left_out(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Returns all mentions in many captions, with the uses of those mentions that the reading omits.

        Args:
            texts: Captions.

        Returns:
            All mentions, and their (mentions,) uses as positions in :data:`~scapo_eval.matching.uses.USES`. The
            position is 0 for mentions that the reading does not omit.
        """
        texts = listed(texts)
        omitted, visible = left_out(self.claims), all_shown(texts)
        if len(texts) == 1:  # for one text, the simple loop is faster
            return self._judged(texts, *_columns_of_one(*self._read(visible[0], omitted)), omitted)
        batch = self._batch.find(visible)
        return self._judged(texts, batch.mentions, find_uses(visible, batch, omitted, self._words), omitted)

    def find_both_uses(
        self, texts: Sequence[str], uses: tuple[Use, ...]
    ) -> tuple[MentionColumns, NDArray[np.uint8], NDArray[np.uint8]]:
        """Returns, from a single search, the result of :meth:`find_left_out` and the uses of the same mentions for
        another set of uses. If the reading omits no uses, the uses are determined only in captions with a modifier.
        """
        texts = listed(texts)
        omitted, visible = left_out(self.claims), all_shown(texts)
        _, batch, words = _compiled(_Identity(self.vocabulary), uses)
        matches = batch.find(visible)
        mentions, codes = matches.mentions, np.zeros(len(matches.mentions.start), dtype=np.uint8)
        by_reading = find_uses(visible, matches, omitted, self._words)
        kept = np.ones(len(texts), dtype=bool)
        if not omitted:
            modifies = find_uses(visible, matches, ("modifier",), words) > 0
            kept = np.bincount(mentions.caption[modifies], minlength=len(texts)) > 0
        codes[kept[mentions.caption]] = find_uses(visible, matches.of(kept), uses, words)
        judged, codes = self._judged(texts, mentions, codes, uses)
        return judged, self._judged(texts, mentions, by_reading, omitted)[1], codes

    def find_all_uses(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Returns all mentions in many captions, with their uses.

        Args:
            texts: Captions.

        Returns:
            All mentions, as returned by :meth:`find`, and a (mentions,) array with the positions of their uses in
            :data:`~scapo_eval.matching.uses.USES`.
        """
        texts = listed(texts)
        visible = all_shown(texts)
        if len(texts) == 1:
            return self._judged(texts, *_columns_of_one(*self._read(visible[0], USES)), USES)
        _, batch, words = _compiled(_Identity(self.vocabulary), USES)
        matches = batch.find(visible)
        return self._judged(texts, matches.mentions, find_uses(visible, matches, USES, words), USES)

    def _judged(
        self, texts: Sequence[str], mentions: MentionColumns, codes: NDArray[np.uint8], uses: tuple[Use, ...]
    ) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Returns mentions and their uses after a judge's uses have replaced those of the rules. Without a judge, the
        arguments are returned.

        Args:
            texts: Captions, including hidden text.
            mentions: All mentions in the captions.
            codes: (mentions,) use of each mention according to the rules.
            uses: Uses to which the codes are restricted. Mentions with other uses have the code 0.
        """
        if isinstance(self.claims, str):
            return mentions, codes
        judged = self.claims.uses_of(texts, mentions)
        is_wanted = np.append(codes_of(uses), False)[judged]  # the last element is that of NO_MENTION and UNJUDGED
        codes = np.where(judged == UNJUDGED, codes, np.where(is_wanted, judged, 0)).astype(np.uint8)
        is_mention = judged != NO_MENTION
        return (mentions, codes) if is_mention.all() else (mentions.only(is_mention), codes[is_mention])


def _columns_of_one(
    matches: Sequence[tuple[int, int, int]], uses: bytearray
) -> tuple[MentionColumns, NDArray[np.uint8]]:
    rows = np.array(matches, dtype=np.int32).reshape(-1, 3)
    mentions = MentionColumns(np.array([0, len(rows)], dtype=np.int64), rows[:, 0], rows[:, 1], rows[:, 2])
    return mentions, np.frombuffer(uses, dtype=np.uint8)


class _Identity:
    """A cache key that identifies a vocabulary by object identity, so that its content need not be compared."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __hash__(self) -> int:
        return id(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.vocabulary is self.vocabulary


@lru_cache(maxsize=8)
def _compiled(key: _Identity, uses: tuple[Use, ...]) -> tuple[AliasTrie, BatchMatcher, SpecialWords]:
    """Returns the search tables of a vocabulary for a given set of uses. All matchers in a process share these
    read-only tables.
    """
    trie, words = AliasTrie(key.vocabulary), SpecialWords.of(key.vocabulary)
    return trie, BatchMatcher(trie, _watch(uses, words), look="modifier" in uses), words


def _watch(uses: tuple[Use, ...], words: SpecialWords) -> Mapping[str, int]:
    return {**cue_words(uses), **words.watch} if "modifier" in uses else cue_words(uses)
