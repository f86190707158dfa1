"""The aliases of a vocabulary as a trie of words, and the walk that defines what a mention is.

An alias is the path ``word, join, word...`` of :func:`scapo_eval.vocabulary.tokenize_alias`. A match is a path that the
words of a text follow to a node at which an alias or an ignore phrase ends: leftmost, then longest, never overlapping.
The batch form in ``matcher_batch.py`` makes the same walk over many texts at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .text import fold, join_of, nfc_with_map, word_spans
from .vocabulary import Vocabulary, tokenize_alias

NO_END = -1
"""In place of a label id: no alias ends at this node."""

IGNORED = -2
"""In place of a label id: an ignore phrase ends at this node."""

_NfcMap: TypeAlias = tuple[str, list[int], list[int]]  # what nfc_with_map returns


class AliasTrie:
    """Aliases and ignore phrases as paths of words.

    Args:
        vocabulary: labels, aliases and ignore phrases.
        watch: further words, reported by :meth:`matches_and_watched`.

    Attributes:
        roots: first word of an alias -> its node.
        edges: (node, join, next word) -> node; an edge into a node comes before the edges out of it.
        labels: node -> id of the label whose alias ends there, IGNORED or NO_END.
        inner: nodes that have edges.
        watch: watched word -> its position.
    """

    def __init__(self, vocabulary: Vocabulary, watch: Sequence[str] = ()) -> None:
        self.roots: dict[str, int] = {}
        self.edges: dict[tuple[int, str, str], int] = {}
        self.labels: list[int] = []
        for alias, label in vocabulary.aliases.items():
            self._add(tokenize_alias(alias), vocabulary.label_ids[label])
        for phrase in vocabulary.ignore:
            self._add(tokenize_alias(phrase), IGNORED)
        self.inner = {node for node, _, _ in self.edges}
        self.watch = {word: k for k, word in enumerate(watch)}

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
        return iter(self._matches(*_words(text)))

    def matches_and_watched(self, text: str) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """As ``matches``, and ``(start, end, position in watch)`` of every watched word."""
        read = _words(text)
        body, spans, nfc_map = read
        watched = [
            (*_original(start, end, nfc_map), self.watch[word])
            for start, end in (spans if self.watch else ())
            if (word := fold(body[start:end])) in self.watch
        ]
        return self._matches(*read), watched

    def _matches(self, body: str, spans: list[tuple[int, int]], nfc_map: _NfcMap | None) -> list[tuple[int, int, int]]:
        words = [fold(body[start:end]) for start, end in spans]
        found: list[tuple[int, int, int]] = []
        first = 0
        while first < len(words):
            longest = None
            last = first
            node = self.roots.get(words[first])
            while node is not None:
                if self.labels[node] != NO_END:
                    longest = last, self.labels[node]
                if node not in self.inner or last + 1 == len(words):
                    break
                join = join_of(body[spans[last][1] : spans[last + 1][0]])
                node = self.edges.get((node, join, words[last + 1]))
                last += 1
            if longest is None:
                first += 1
                continue
            last, label = longest
            found.append((*_original(spans[first][0], spans[last][1], nfc_map), label))
            first = last + 1
        return found


def _words(text: str) -> tuple[str, list[tuple[int, int]], _NfcMap | None]:
    """The text in NFC, the spans of its words, and the way back to the original (None where they are the same)."""
    nfc_map = None if text.isascii() else nfc_with_map(text)
    body = nfc_map[0] if nfc_map else text
    return body, word_spans(body), nfc_map


def _original(start: int, end: int, nfc_map: _NfcMap | None) -> tuple[int, int]:
    """The span in the original text of a span of the NFC text."""
    return (nfc_map[1][start], nfc_map[2][end - 1]) if nfc_map else (start, end)
