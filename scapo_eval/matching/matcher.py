"""From captions to mentions: whole words, leftmost then longest, exact on any Unicode text.

The walk of ``trie.py`` over the words of one caption defines a match; ``find`` is that walk. ``find_batch`` does the
same for many captions at once (``matcher_batch.py``). Tests check that the two are equal, and equal to a third, slow
and obvious search. ``uses.py`` decides what a caption does with a mention, and which mentions count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import check_choice
from ..base.reprs import one_line
from ..base.types import Mention, Use
from .matcher_batch import BatchMatcher
from .trie import IGNORED, AliasTrie
from .uses import LEFT_OUT, READINGS, USES, Reading, SpecialWords, cue_words, find_uses_of, left_out_codes
from .uses_batch import find_uses
from .visible import all_shown, shown
from .vocabulary import Vocabulary, vocabulary_of


class AliasMatcher:
    """Finds the labels of a vocabulary in text.

    Immutable after construction, so it can be shared between threads and pickled.

    Args:
        vocabulary: labels, aliases and ignore phrases; the name of a shipped one, or a file.
        claims: which mentions the batch form counts, see :mod:`scapo_eval.matching.uses`.

    Raises:
        InputError: for an unknown reading.

    Example:
        >>> import scapo_eval
        >>> matcher = scapo_eval.AliasMatcher("coco80")
        >>> [(m.label, m.start, m.end) for m in matcher.find("Two puppies on a sofa.")]
        [('dog', 4, 11), ('couch', 17, 21)]
    """

    def __init__(self, vocabulary: Vocabulary | str | Path, claims: Reading = "all") -> None:
        check_choice("claims", claims, READINGS)
        self.vocabulary = vocabulary_of(vocabulary)
        self.claims = claims
        self._compile()

    def __repr__(self) -> str:
        return one_line(self, repr(self.vocabulary))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the tables, which are faster to rebuild than to send; the attributes of subclasses
        are included.
        """
        return {name: value for name, value in vars(self).items() if name not in ("_trie", "_batch", "_words")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def _compile(self) -> None:
        self._trie, self._batch, self._words = _compiled(_Identity(self.vocabulary), LEFT_OUT[self.claims])

    def find(self, text: str) -> list[Mention]:
        """Returns every mention of one caption in text order, and how the caption uses it.

        Args:
            text: any string, lone surrogates and NUL included.

        Returns:
            Mentions whose spans index ``text`` itself; they never overlap.
        """
        labels = self.vocabulary.labels
        mentions, uses = self._read(shown(text), USES)
        return [
            Mention(start, end, labels[label], text[start:end], USES[use])
            for (start, end, label), use in zip(mentions, uses, strict=True)
        ]

    def _read(self, text: str, uses: tuple[Use, ...]) -> tuple[list[tuple[int, int, int]], bytearray]:
        """Returns the start, end and label id of the mentions of one caption, and what it does with each, as positions
        in USES.
        """
        matches, cues = self._trie.matches_and_watched(text, _watch(uses, self._words))
        mentions = [match for match in matches if match[2] != IGNORED]
        return mentions, find_uses_of(text, mentions, cues, uses, self._words)

    def find_ignored(self, text: str) -> list[tuple[int, int]]:
        """Returns ``(start, end)`` of every ignore phrase in a caption: text that only looks like a mention."""
        return [(start, end) for start, end, label in self._trie.matches(shown(text)) if label == IGNORED]

    def find_batch(self, texts: Sequence[str]) -> MentionColumns:
        """Returns the mentions of many captions that count, as columns: those of ``find`` that the reading does not
        omit.

        Args:
            texts: the captions.
        """
        mentions, counts = self.find_all(texts)
        return mentions if counts.all() else mentions.only(counts)

    def find_all(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.bool_]]:
        """Returns every mention of many captions, and whether it counts.

        Args:
            texts: the captions.

        Returns:
            Mentions, and a (mentions,) bool of those that the reading does not omit.
        """
        mentions, uses = self.find_left_out(texts)
        return mentions, ~left_out_codes(self.claims)[uses]

    def find_left_out(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Returns every mention of many captions, and which of the uses that the reading omits it has.

        Args:
            texts: the captions.

        Returns:
            Mentions, and (mentions,) positions in :data:`~scapo_eval.matching.uses.USES`; 0 for all other uses.
        """
        left_out = LEFT_OUT[self.claims]
        texts = all_shown(texts)
        if len(texts) == 1:  # for one text the plain walk is faster
            matches, uses = self._read(texts[0], left_out)
            rows = np.array(matches, dtype=np.int32).reshape(-1, 3)
            mentions = MentionColumns(np.array([0, len(rows)], dtype=np.int64), rows[:, 0], rows[:, 1], rows[:, 2])
            return mentions, np.frombuffer(uses, dtype=np.uint8)
        batch = self._batch.find(texts)
        return batch.mentions, find_uses(texts, *batch, left_out, self._words)

    def find_all_uses(self, texts: Sequence[str]) -> tuple[MentionColumns, NDArray[np.uint8]]:
        """Returns every mention of many captions, as of :meth:`find`, and what its caption does with it.

        Args:
            texts: the captions.

        Returns:
            Mentions, and (mentions,) positions in :data:`~scapo_eval.matching.uses.USES`.
        """
        texts = all_shown(texts)
        _, batch, words = _compiled(_Identity(self.vocabulary), USES)
        matches = batch.find(texts)
        return matches.mentions, find_uses(texts, *matches, USES, words)


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
    """Returns the tables of a vocabulary that tell some uses; systems of one run share them. They are only read."""
    trie, words = AliasTrie(key.vocabulary), SpecialWords.of(key.vocabulary)
    return trie, BatchMatcher(trie, _watch(uses, words), look="modifier" in uses), words


def _watch(uses: tuple[Use, ...], words: SpecialWords) -> Mapping[str, int]:
    return {**cue_words(uses), **words.watch} if "modifier" in uses else cue_words(uses)
