"""From captions to mentions: whole words, leftmost then longest, exact on any Unicode text.

What a match is, the walk of ``trie.py`` over the words of one caption says; ``find`` is that walk. ``find_batch`` gives
the same for many captions at once (``matcher_batch.py``). Tests hold the two equal, and equal to a third, slow and
obvious search. What a caption does with a mention, and which mentions count, ``claims.py`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .claims import CLAIMS, LEFT_OUT, USES, Claims, SpecialWords, cue_words, find_uses, left_out_codes
from .columns import MentionColumns
from .errors import check_choice
from .matcher_batch import BatchMatcher
from .reprs import one_line
from .trie import IGNORED, AliasTrie
from .types import Mention, Use
from .vocabulary import Vocabulary


class AliasMatcher:
    """Finds the labels of a vocabulary in text.

    Immutable after construction, so it can be shared between threads and pickled.

    Args:
        vocabulary: labels, aliases and ignore phrases.
        claims: which mentions the batch form counts, see :mod:`scapo_eval.claims`.

    Raises:
        InputError: an unknown reading.
    """

    def __init__(self, vocabulary: Vocabulary, claims: Claims = "all") -> None:
        check_choice("claims", claims, CLAIMS)
        self.vocabulary = vocabulary
        self.claims = claims
        self._compile()

    def __repr__(self) -> str:
        return one_line(self, repr(self.vocabulary))

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables, which are made faster than they travel; with all that a subclass holds."""
        return {name: value for name, value in vars(self).items() if name not in ("_trie", "_batch", "_words")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def _compile(self) -> None:
        self._trie, self._batch, self._words = _compiled(_Identity(self.vocabulary), LEFT_OUT[self.claims])

    def find(self, text: str) -> list[Mention]:
        """Every mention of one caption in text order, with what the caption does with it.

        Args:
            text: any string, lone surrogates and NUL included.

        Returns:
            Mentions whose spans index ``text`` itself; they never overlap.
        """
        labels = self.vocabulary.labels
        found = [match for match in self._trie.matches(text) if match[2] != IGNORED]
        uses = find_uses_of(text, found, self._words)
        return [
            Mention(start, end, labels[label], text[start:end], USES[use])
            for (start, end, label), use in zip(found, uses, strict=True)
        ]

    def find_ignored(self, text: str) -> list[tuple[int, int]]:
        """``(start, end)`` of every ignore phrase of a caption: text that looks like a mention and is not one."""
        return [(start, end) for start, end, label in self._trie.matches(text) if label == IGNORED]

    def find_batch(self, texts: Sequence[str]) -> MentionColumns:
        """The mentions of many captions that count, as columns: those of ``find`` that the reading does not leave out.

        Args:
            texts: the captions.
        """
        mentions, counts = self.find_all(texts)
        return mentions if counts.all() else mentions.only(counts)

    def find_all(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.bool_]]:
        """Every mention of many captions, and whether it counts.

        Args:
            texts: the captions.

        Returns:
            Mentions, and a (mentions,) bool of those that the reading does not leave out.
        """
        if len(texts) == 1 and self.claims == "all":  # for one text the plain walk is faster
            only = _columns_of([match for match in self._trie.matches(texts[0]) if match[2] != IGNORED])
            return only, np.ones(len(only.start), dtype=bool)
        mentions, cues, look = self._batch.find(texts)
        uses = find_uses(texts, mentions, cues, look, LEFT_OUT[self.claims], self._words)
        return mentions, ~left_out_codes(self.claims)[uses]

    def find_all_uses(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Every mention of many captions, as of :meth:`find`, and what its caption does with it.

        Args:
            texts: the captions.

        Returns:
            Mentions, and (mentions,) positions in :data:`~scapo_eval.claims.USES`.
        """
        _, batch, words = _compiled(_Identity(self.vocabulary), USES)
        mentions, cues, look = batch.find(texts)
        return mentions, find_uses(texts, mentions, cues, look, USES, words)


class _Identity:
    """A vocabulary as a key: equal to itself only, so that nothing of it has to be compared."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __hash__(self) -> int:
        return id(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.vocabulary is self.vocabulary


@lru_cache(maxsize=8)
def _compiled(key: _Identity, uses: tuple[Use, ...]) -> tuple[AliasTrie, BatchMatcher, SpecialWords]:
    """The tables of a vocabulary that tell some uses; systems of one run share them. They are only read."""
    trie = AliasTrie(key.vocabulary, cue_words(uses))
    return trie, BatchMatcher(trie, look="modifier" in uses), SpecialWords.of(key.vocabulary)


def find_uses_of(text: str, spans: Sequence[tuple[int, int, int]], words: SpecialWords | None = None) -> list[int]:
    """What one caption does with spans of it, as positions in USES.

    Args:
        text: the caption.
        spans: start, end and label id of each, in the order of the text.
        words: of the vocabulary that the labels belong to.
    """
    cues = _all_cues().matches_and_watched(text)[1]
    everywhere = np.ones(len(spans), dtype=bool)
    found = find_uses([text], _columns_of(spans), _columns_of(cues), everywhere, USES, words)
    return [int(use) for use in found]


def _columns_of(spans: Sequence[tuple[int, int, int]]) -> MentionColumns:
    """Spans of one text as columns."""
    rows = np.array(spans, dtype=np.int32).reshape(-1, 3)
    return MentionColumns(np.array([0, len(rows)], dtype=np.int64), rows[:, 0], rows[:, 1], rows[:, 2])


@lru_cache(maxsize=1)
def _all_cues() -> AliasTrie:
    return AliasTrie(Vocabulary.from_mapping({}, name="no labels"), cue_words(USES))
