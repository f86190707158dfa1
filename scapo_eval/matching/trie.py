"""The aliases of a vocabulary as a trie of words, and the search that defines mentions.

An alias is represented by the path ``word, join, word...`` from :func:`scapo_eval.matching.vocabulary.tokenize_alias`.
A sequence of words in a text matches if it leads to a node at which an alias or an ignore phrase ends. The leftmost
match has priority, then the longest one; matches never overlap.

The module ``matcher_batch.py`` performs the same search on many texts at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ..base.text import GAP, fold, join_of, nfc_with_map, word_spans
from .visible import displayed, has_markup
from .vocabulary import PART, Vocabulary, alias_path

NO_END = -1
"""Value in place of a label id for nodes at which no alias ends."""

IGNORED = -2
"""Value in place of a label id for nodes at which an ignore phrase ends."""


class AliasTrie:
    """Aliases and ignore phrases of a vocabulary, represented as paths of words.

    Node 0 is the root of the trie. Every other node is reached by exactly one edge.

    Args:
        vocabulary: Vocabulary with labels, aliases and ignore phrases.

    Attributes:
        words: Mapping from words to their numbers, counted from 1. The number 0 represents any other word.
        joins: Mapping from joins to their numbers, counted from 0.
        labels: (nodes,) id of the label whose alias ends at each node, or IGNORED or NO_END.
        before: (nodes,) array with the node at which the edge to each node begins. The entry of node 0 is not used.
        join: (nodes,) join of the edge to each node.
        word: (nodes,) word of the edge to each node.
        depth: (nodes,) number of words on the path from the root to each node.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        named = {**vocabulary.aliases, **vocabulary.compounds}
        paths = [f"{GAP}{PART}{alias_path(phrase)}" for phrase in (*named, *vocabulary.ignore)]
        ends = [vocabulary.label_ids[label] for label in named.values()] + [IGNORED] * len(vocabulary.ignore)
        steps = PART.join(paths).split(PART)  # a join and a word in turn
        self.joins = {join: k for k, join in enumerate(dict.fromkeys((GAP, *steps[0::2])))}
        self.words = {word: k for k, word in enumerate(dict.fromkeys(steps[1::2]), 1)}
        # one number identifies an edge; the additional join represents all other joins
        self._of_join = len(self.words) + 1
        self._of_node = (len(self.joins) + 1) * self._of_join
        joins = np.fromiter(map(self.joins.__getitem__, steps[0::2]), dtype=np.int64)
        words = np.fromiter(map(self.words.__getitem__, steps[1::2]), dtype=np.int64)
        lengths = np.array([path.count(PART) for path in paths], dtype=np.int64) // 2 + 1
        step = np.cumsum(lengths) - lengths
        node = np.zeros(len(paths), dtype=np.int64)  # nodes that each path has reached
        keys = [np.zeros(1, dtype=np.int64)]  # of the edges to the nodes of each depth
        rest = np.arange(len(paths))
        while len(rest):
            at = step[rest] + len(keys) - 1
            key = node[rest] * self._of_node + joins[at] * self._of_join + words[at]
            key, to = np.unique(key, return_inverse=True)
            node[rest] = sum(map(len, keys)) + to
            keys.append(key)
            rest = rest[lengths[rest] >= len(keys)]
        self.depth = np.repeat(np.arange(len(keys)), [len(key) for key in keys])
        key = np.concatenate(keys)
        self.before, key_in_node = np.divmod(key, self._of_node)
        self.join, self.word = np.divmod(key_in_node, self._of_join)
        self.labels = np.full(len(key), NO_END, dtype=np.int64)
        self.labels[node] = ends

        # the same for single texts
        self._next = dict(zip(key.tolist(), range(len(key)), strict=True))
        names = [*self.words]
        self._roots = {names[self.word[node] - 1]: node for node in np.flatnonzero(self.depth == 1).tolist()}
        self._label = self.labels.tolist()
        self._inner = np.bincount(self.before[1:], minlength=len(key)).astype(bool).tobytes()

    def matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Returns an iterator over ``(start, end, label id or IGNORED)`` of every match, in text order."""
        return iter(self._matches(_words(text)))

    def matches_and_watched(
        self, text: str, watch: Mapping[str, int]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """Returns the result of :meth:`matches`, and ``(start, end, value)`` for each word in the text that is a key of
        ``watch``.
        """
        read = _words(text)
        return self._matches(read), _watched(read, watch)

    def _matches(self, text: _Words) -> list[tuple[int, int, int]]:
        words, spans = text.words, text.spans
        numbers, joins, label, next_node = self.words, self.joins, self._label, self._next.get
        of_node, of_join = self._of_node, self._of_join
        matches: list[tuple[int, int, int]] = []
        free = 0  # first word after the matches so far
        for first in [k for k, word in enumerate(words) if word in self._roots]:
            if first < free:
                continue
            longest = NO_END
            last = first
            node: int | None = self._roots[words[first]]
            while node is not None:
                if label[node] != NO_END:
                    longest, free = label[node], last + 1
                last += 1
                if not self._inner[node] or last == len(words) or words[last] not in numbers:
                    break
                join = joins.get(join_of(text.body[spans[last - 1][1] : spans[last][0]]), len(joins))
                node = next_node(node * of_node + join * of_join + numbers[words[last]])
            if longest != NO_END:
                matches.append((*text.original(first, free - 1), longest))
        return matches


def watched(text: str, watch: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Returns ``(start, end, value)`` for every word in a text that is a key of ``watch``."""
    return _watched(_words(text), watch)


class _Words(NamedTuple):
    """The words of a text.

    Attributes:
        body: Visible form of the text (see ``visible.py``), in NFC.
        spans: Spans of the words in ``body``.
        words: Case-folded words of the text.
        nfc_map: Mapping from positions in ``body`` to positions in the original text, or None if the positions are
            equal.
    """

    body: str
    spans: list[tuple[int, int]]
    words: list[str]
    nfc_map: tuple[str, list[int], list[int]] | None

    def original(self, first: int, last: int) -> tuple[int, int]:
        """Returns the span in the original text from the start of word ``first`` to the end of word ``last``."""
        start, end = self.spans[first][0], self.spans[last][1]
        return (self.nfc_map[1][start], self.nfc_map[2][end - 1]) if self.nfc_map else (start, end)


def _words(text: str) -> _Words:
    if text.isascii() and not has_markup(text):
        spans, lower = word_spans(text), fold(text)
        return _Words(text, spans, [lower[start:end] for start, end in spans], None)
    visible = displayed(text)
    nfc_map = nfc_with_map(visible[0] if visible else text)
    if visible and nfc_map:
        _, starts, ends = nfc_map
        nfc_map = nfc_map[0], [visible[1][start] for start in starts], [visible[2][end - 1] for end in ends]
    nfc_map = nfc_map or visible
    body = nfc_map[0] if nfc_map else text
    spans = word_spans(body)
    return _Words(body, spans, [fold(body[start:end]) for start, end in spans], nfc_map)


def _watched(text: _Words, watch: Mapping[str, int]) -> list[tuple[int, int, int]]:
    return [(*text.original(k, k), watch[word]) for k, word in enumerate(text.words) if word in watch]
