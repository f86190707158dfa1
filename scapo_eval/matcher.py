"""From captions to mentions: whole words, leftmost then longest, exact on any Unicode text.

What a match is, the walk of ``trie.py`` over the words of one caption says; ``find`` is that walk. ``find_batch`` gives
the same for many captions at once (``matcher_batch.py``). Tests hold the two equal, and equal to a
third, slow and obvious search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .columns import MentionColumns
from .matcher_batch import BatchMatcher
from .reprs import one_line
from .trie import IGNORED, AliasTrie
from .types import Mention
from .vocabulary import Vocabulary


class AliasMatcher:
    """Finds the labels of a vocabulary in text.

    Immutable after construction, so it can be shared between threads and pickled.

    Args:
        vocabulary: labels, aliases and ignore phrases.
        watch: lower-case ASCII words that ``find_watched`` reports beside the mentions; they change none.
    """

    def __init__(self, vocabulary: Vocabulary, watch: Sequence[str] = ()) -> None:
        self.vocabulary = vocabulary
        self.watch = tuple(watch)
        self._compile()

    def __repr__(self) -> str:
        return one_line(self, repr(self.vocabulary))

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables, which are made faster than they travel; with all that a subclass holds."""
        return {name: value for name, value in vars(self).items() if name not in ("_trie", "_batch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def _compile(self) -> None:
        self._trie = AliasTrie(self.vocabulary, self.watch)
        self._batch = BatchMatcher(self._trie)

    def find(self, text: str) -> list[Mention]:
        """The mentions of one caption in text order.

        Args:
            text: any string, lone surrogates and NUL included.

        Returns:
            Mentions whose spans index ``text`` itself; they never overlap.
        """
        labels = self.vocabulary.labels
        return [
            Mention(start, end, labels[label], text[start:end])
            for start, end, label in self._trie.matches(text)
            if label != IGNORED
        ]

    def find_ignored(self, text: str) -> list[tuple[int, int]]:
        """``(start, end)`` of every ignore phrase of a caption: text that looks like a mention and is not one."""
        return [(start, end) for start, end, label in self._trie.matches(text) if label == IGNORED]

    def find_batch(self, texts: Sequence[str]) -> MentionColumns:
        """The mentions of many captions as columns, equal to ``find`` on each.

        Args:
            texts: the captions.
        """
        return self.find_watched(texts)[0]

    def find_watched(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        """As ``find_batch``, and the occurrences of the words of ``watch``, inside of mentions or not.

        Args:
            texts: the captions.

        Returns:
            Mentions, and watched words with their positions in ``watch`` as ``label_id``.
        """
        return self._batch.find(texts)
