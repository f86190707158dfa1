"""The aliases of a vocabulary as a trie of words, and the walk that defines what a mention is.

An alias is the path ``word, join, word...`` of :func:`scapo_eval.vocabulary.tokenize_alias`. A match is a path that the
words of a text follow to a node at which an alias or an ignore phrase ends: leftmost, then longest, never overlapping.
The batch form in ``matcher_batch.py`` makes the same walk over many texts at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .text import fold, join_of, nfc_with_map, word_spans
from .vocabulary import Vocabulary, tokenize_alias

NO_END = -1
"""In place of a label id: no alias ends at this node."""

IGNORED = -2
"""In place of a label id: an ignore phrase ends at this node."""


class AliasTrie:
    """Aliases and ignore phrases as paths of words.

    Args:
        vocabulary: labels, aliases and ignore phrases.

    Attributes:
        roots: first word of an alias -> its node.
        edges: (node, join, next word) -> node; an edge into a node comes before the edges out of it.
        labels: node -> id of the label whose alias ends there, IGNORED or NO_END.
        inner: nodes that have edges.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.roots: dict[str, int] = {}
        self.edges: dict[tuple[int, str, str], int] = {}
        self.labels: list[int] = []
        for alias, label in (*vocabulary.aliases.items(), *vocabulary.compounds.items()):
            self._add(tokenize_alias(alias), vocabulary.label_ids[label])
        for phrase in vocabulary.ignore:
            self._add(tokenize_alias(phrase), IGNORED)
        self.inner = {node for node, _, _ in self.edges}

    def _add(self, parts: tuple[str, ...], label: int) -> None:
        if parts[0] not in self.roots:
            self.roots[parts[0]] = self._new_node()
        node = self.roots[parts[0]]
        for join, word in zip(parts[1::2], parts[2::2], strict=True):
            if (node, join, word) not in self.edges:
                self.edges[node, join, word] = self._new_node()
            node = self.edges[node, join, word]
        self.labels[node] = label

    def _new_node(self) -> int:
        self.labels.append(NO_END)
        return len(self.labels) - 1

    def matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """``(start, end, label id or IGNORED)`` of every match in text order."""
        return iter(self._matches(_words(text)))

    def matches_and_watched(
        self, text: str, watch: Mapping[str, int]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """As ``matches``, and ``(start, end, its value)`` of every word that is in a mapping."""
        read = _words(text)
        return self._matches(read), _watched(read, watch)

    def _matches(self, text: _Words) -> list[tuple[int, int, int]]:
        words, spans = text.words, text.spans
        found: list[tuple[int, int, int]] = []
        free = 0  # the first word behind the matches so far
        for first in [k for k, word in enumerate(words) if word in self.roots]:
            if first < free:
                continue
            longest = NO_END
            last = first
            node: int | None = self.roots[words[first]]
            while node is not None:
                if self.labels[node] != NO_END:
                    longest, free = self.labels[node], last + 1
                if node not in self.inner or last + 1 == len(words):
                    break
                join = join_of(text.body[spans[last][1] : spans[last + 1][0]])
                node = self.edges.get((node, join, words[last + 1]))
                last += 1
            if longest != NO_END:
                found.append((*text.original(first, free - 1), longest))
        return found


def watched(text: str, watch: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """``(start, end, its value)`` of every word of a text that is in a mapping."""
    return _watched(_words(text), watch)


class _Words(NamedTuple):
    """The words of a text.

    Attributes:
        body: the text in NFC.
        spans: of its words.
        words: folded.
        nfc_map: the way back to the original; None where the two are the same.
    """

    body: str
    spans: list[tuple[int, int]]
    words: list[str]
    nfc_map: tuple[str, list[int], list[int]] | None

    def original(self, first: int, last: int) -> tuple[int, int]:
        """The span in the original text from one word to another."""
        start, end = self.spans[first][0], self.spans[last][1]
        return (self.nfc_map[1][start], self.nfc_map[2][end - 1]) if self.nfc_map else (start, end)


def _words(text: str) -> _Words:
    nfc_map = None if text.isascii() else nfc_with_map(text)
    body = nfc_map[0] if nfc_map else text
    spans = word_spans(body)
    if body.isascii():
        lower = fold(body)
        return _Words(body, spans, [lower[start:end] for start, end in spans], nfc_map)
    return _Words(body, spans, [fold(body[start:end]) for start, end in spans], nfc_map)


def _watched(text: _Words, watch: Mapping[str, int]) -> list[tuple[int, int, int]]:
    return [(*text.original(k, k), watch[word]) for k, word in enumerate(text.words) if word in watch]
