"""From captions to mentions: whole words, leftmost then longest, exact on any Unicode text.

There are two ways to the same result. ``find`` walks the words of one caption through a trie of alias
words; it defines what a match is. ``find_batch`` does the same walk for about a thousand ASCII captions
at once in numpy, where each step is one operation over all words of the batch: word borders by
comparing neighbours, an exact hash table for the words that occur in the vocabulary (one word in ten),
then the trie for those. A caption that is not ASCII takes the first way. Tests hold the two equal, and
equal to a third, slow and obvious one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .text import GAP, fold, join_of, nfc_with_map, word_spans
from .types import Mention
from .vocabulary import Vocabulary, tokenize_alias

BATCH = 1024
"""Captions per numpy pass; much larger batches fall out of the processor's cache."""

_NO_END = -1  # a trie node at which no alias ends
_IGNORED = -2  # a trie node at which an ignore phrase ends

# Characters outside ASCII that are borders and common in captions. Replacing them one for one keeps
# every offset and lets most captions that are not ASCII take the fast way.
_TO_ASCII = {
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u2010\u2011", "-"),
    **dict.fromkeys("\u00a0\u202f", " "),
    **dict.fromkeys("\u201c\u201d\u2013\u2014\u2026\u2022\u00b0\u00d7\u2192", "\x01"),
}
_SEPARATOR = "\0"  # between captions: a border that no alias can span

Ints = NDArray[Any]  # of some integer type
_Mapped = tuple[str, list[int], list[int]]  # the NFC text and where it came from


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
        self._trie = _Trie(vocabulary, self.watch)
        decisive = {character for _, join, _ in self._trie.edges for character in join}
        self._to_ascii = {old: new for old, new in _TO_ASCII.items() if old not in decisive}
        self._fast = _BatchTables(self._trie)

    def __reduce__(self) -> tuple[type[AliasMatcher], tuple[Vocabulary, tuple[str, ...]]]:
        return type(self), (self.vocabulary, self.watch)

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
            if label >= 0
        ]

    def find_ignored(self, text: str) -> list[tuple[int, int]]:
        """``(start, end)`` of every ignore phrase in a caption: what looked like a mention and is none."""
        return [(start, end) for start, end, label in self._trie.matches(text) if label == _IGNORED]

    def find_batch(self, texts: Sequence[str]) -> MentionColumns:
        """The mentions of many captions as columns, equal to ``find`` on each.

        Args:
            texts: captions; cut into passes of about BATCH.
        """
        return self.find_watched(texts)[0]

    def find_watched(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        """As ``find_batch``, and the words of ``watch`` that the same pass met, inside of mentions or not.

        Args:
            texts: captions; cut into passes of about BATCH.
        """
        size = max(1, -(-len(texts) // max(1, round(len(texts) / BATCH))))  # near BATCH, and no small rest
        passes = [self._find_pass(texts[k : k + size]) for k in range(0, len(texts), size)]
        mentions, watched = ([part[kind] for part in passes] for kind in (0, 1))
        return MentionColumns.concatenate(mentions), MentionColumns.concatenate(watched)

    def _find_pass(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        ascii_texts = list(texts)
        slow: list[int] = []
        for k, text in enumerate(texts):
            if not text.isascii():
                for character, replacement in self._to_ascii.items():
                    if character in text:
                        text = text.replace(character, replacement)
                ascii_texts[k] = text
                if not text.isascii():
                    ascii_texts[k] = ""
                    slow.append(k)
        mentions, watched = self._fast.find(ascii_texts)
        if slow:
            matches = [(k, *match) for k in slow for match in self._trie.matches(texts[k]) if match[2] >= 0]
            mentions = mentions.with_captions(matches)
            watched = watched.with_captions([(k, *word) for k in slow for word in self._trie.watched(texts[k])])
        return mentions, watched


class _Trie:
    """Aliases and ignore phrases as paths ``word, join, word...``, and the plain walk over one text."""

    def __init__(self, vocabulary: Vocabulary, watch: Sequence[str]) -> None:
        self.watch = {word: k for k, word in enumerate(watch)}
        self.ends: list[int] = []  # node -> label id, _IGNORED or _NO_END
        self.first: dict[str, int] = {}  # first word -> node
        self.edges: dict[tuple[int, str, str], int] = {}  # (node, join, next word) -> node
        for alias, label in vocabulary.aliases.items():
            self._add(tokenize_alias(alias), vocabulary.label_ids[label])
        for phrase in vocabulary.ignore:
            self._add(tokenize_alias(phrase), _IGNORED)
        self.inner = {node for node, _, _ in self.edges}

    def _add(self, parts: tuple[str, ...], end: int) -> None:
        if parts[0] not in self.first:
            self.first[parts[0]] = self._new_node()
        node = self.first[parts[0]]
        for join, word in zip(parts[1::2], parts[2::2], strict=True):
            if (node, join, word) not in self.edges:
                self.edges[node, join, word] = self._new_node()
            node = self.edges[node, join, word]
        self.ends[node] = end

    def _new_node(self) -> int:
        self.ends.append(_NO_END)
        return len(self.ends) - 1

    def matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """``(start, end, label id or _IGNORED)`` of every match, leftmost then longest."""
        body, spans, mapped = self._words(text)
        words = [fold(body[start:end]) for start, end in spans]
        k = 0
        while k < len(words):
            node = self.first.get(words[k])
            best = None
            last = k
            while node is not None:
                if self.ends[node] != _NO_END:
                    best = (last, self.ends[node])
                if node not in self.inner or last + 1 == len(words):
                    break
                join = join_of(body[spans[last][1] : spans[last + 1][0]])
                node = self.edges.get((node, join, words[last + 1]))
                last += 1
            if best is None:
                k += 1
                continue
            yield *_original(spans[k][0], spans[best[0]][1], mapped), best[1]
            k = best[0] + 1

    def watched(self, text: str) -> Iterator[tuple[int, int, int]]:
        """``(start, end, position in watch)`` of every watched word."""
        body, spans, mapped = self._words(text)
        for start, end in spans if self.watch else ():
            at = self.watch.get(fold(body[start:end]))
            if at is not None:
                yield *_original(start, end, mapped), at

    @staticmethod
    def _words(text: str) -> tuple[str, list[tuple[int, int]], _Mapped | None]:
        mapped = None if text.isascii() else nfc_with_map(text)
        body = mapped[0] if mapped else text
        return body, word_spans(body), mapped


def _original(start: int, end: int, mapped: _Mapped | None) -> tuple[int, int]:
    """Where a span of the NFC text stands in the text as it was."""
    return (mapped[1][start], mapped[2][end - 1]) if mapped else (start, end)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a batch.

    Attributes:
        joined: the lower-cased texts in one.
        starts, ends: (words,) span of each word in ``joined``.
        eight: bytes ``k`` to ``k + 7`` of ``joined`` as one number at ``k``.
        head: (words,) first eight bytes of each word, zero-padded.
        slot: (words,) slot of the head in the hash table.
    """

    joined: bytes
    starts: Ints
    ends: Ints
    eight: NDArray[np.uint64]
    head: Ints
    slot: Ints


def _gather(table: Any, index: Ints) -> Any:
    """``table[index]``, faster; an index beyond the end gives the last entry."""
    return np.take(table, index, mode="clip")


class _BatchTables:
    """The trie as arrays, and the walk over all words of a batch at once."""

    _SLOTS = 1 << 16
    _HOPES = 1 << 20
    _FACTOR = np.uint64(0x9E3779B97F4A7C15)

    def __init__(self, trie: _Trie) -> None:
        words = sorted({*trie.first, *(word for _, _, word in trie.edges), *trie.watch})
        words = [word for word in words if word.isascii()]
        ids = {word: k for k, word in enumerate(words)}
        raw = [word.encode() for word in words]
        self._long = {k: word for k, word in enumerate(raw) if len(word) > 16}
        self._length = np.array([len(word) for word in raw], dtype=np.int64)
        self._head = np.array([int.from_bytes(word[:8], "little") for word in raw], dtype=np.uint64)
        self._tail = np.array(
            [int.from_bytes(word[-8:], "little") if len(word) > 8 else 0 for word in raw], dtype=np.uint64
        )
        self._mask = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
        # a hash table with chains: slot -> one word, word -> the next word of the same slot
        self._slot = np.full(self._SLOTS, -1, dtype=np.int64)
        self._chain = np.full(len(words), -1, dtype=np.int64)
        slots = self._hash(self._head)
        for k, slot in enumerate(slots.tolist()):
            self._chain[k], self._slot[slot] = self._slot[slot], k
        # a filter by slots, so that "in the", which begins an alias everywhere, is looked at only where one may go on:
        # the aliases of one and two words, and the first three words of longer ones
        self._hopes = np.zeros(self._HOPES, dtype=bool)
        paths: dict[int, tuple[int, ...]] = {
            node: (int(slots[ids[word]]),) for word, node in trie.first.items() if word in ids
        }
        for (node, _, word), target in trie.edges.items():  # an edge into a node stands before the edges out of it
            if node in paths and word in ids:
                paths[target] = (*paths[node], int(slots[ids[word]]))
        for node, path in paths.items():
            if len(path) == 3 or (len(path) < 3 and trie.ends[node] != _NO_END):
                self._hopes[functools.reduce(self._hope, path)] = True

        self._hopes[slots[[ids[word] for word in trie.watch]]] = True
        self._watch = np.array([-1, *(trie.watch.get(word, -1) for word in words)], dtype=np.int64)  # by word + 1

        self._ends = np.array(trie.ends, dtype=np.int64)
        self._first = np.array([-1, *(trie.first.get(word, -1) for word in words)], dtype=np.int64)  # by word + 1
        self._inner = np.zeros(len(trie.ends), dtype=bool)
        self._inner[list(trie.inner)] = True
        self._joins = {join: k for k, join in enumerate(sorted({GAP} | {join for _, join, _ in trie.edges}))}
        self._join_of_byte = np.array([self._joins.get(join_of(chr(c)), -1) for c in range(128)], dtype=np.int64)
        begins = {join[0] for join in self._joins if len(join) > 1}
        self._begins_join = np.array([chr(c).isspace() or chr(c) in begins for c in range(128)])
        self._n_words = len(words)
        edges = sorted(
            (self._edge(node, self._joins[join], ids[word]), target)
            for (node, join, word), target in trie.edges.items()
            if word in ids
        )
        self._edge_keys = np.array([key for key, _ in edges], dtype=np.int64)
        self._edge_targets = np.array([target for _, target in edges], dtype=np.int64)

    def _hash(self, head: Ints) -> Ints:
        slots: Ints = (head * self._FACTOR) >> np.uint64(48)
        return slots.view(np.int64)

    def _hope(self, before: Any, slot: Any) -> Any:
        return (before * 40503 + slot) & (self._HOPES - 1)

    def _edge(self, node: Any, join: Any, word: Any) -> Any:
        return (node * len(self._joins) + join) * self._n_words + word

    def find(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        """The mentions and the watched words of ASCII captions."""
        joined = _SEPARATOR.join(["", *texts, ""]).lower().encode("ascii")
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        offsets = np.cumsum(lengths + 1) - lengths
        starts, ends = self._words(joined)
        eight = np.ndarray(shape=len(joined), dtype="<u8", buffer=joined + bytes(8), strides=(1,))  # bytes k..k+7 at k
        head: Ints = _gather(eight, starts) & _gather(self._mask, ends - starts)  # longer than 8: the last, full mask
        text = _Words(joined, starts, ends, eight, head, self._hash(head))
        goes_on = self._goes_on(text)
        begin = np.flatnonzero(_gather(self._hopes, text.slot) | goes_on)
        word = self._lookup(text, begin) + 1
        first, last, label = self._walk(text, goes_on, begin, self._first[word])
        named = label >= 0
        watch = self._watch[word]
        at = np.flatnonzero(watch >= 0)
        return (
            self._columns(offsets, starts[first[named]], ends[last[named]], label[named]),
            self._columns(offsets, starts[begin[at]], ends[begin[at]], watch[at]),
        )

    @staticmethod
    def _columns(offsets: Ints, start: Ints, end: Ints, label: Ints) -> MentionColumns:
        """Columns of spans in the joined text, where each caption begins at its offset."""
        indptr = np.append(np.searchsorted(start, offsets), len(start))
        shift = np.repeat(offsets, np.diff(indptr))
        return MentionColumns(
            indptr, (start - shift).astype(np.int32), (end - shift).astype(np.int32), label.astype(np.int32)
        )

    @staticmethod
    def _words(joined: bytes) -> tuple[Ints, Ints]:
        """Start and end of every word, by comparing each byte's class with its neighbour's."""
        byte = np.frombuffer(joined, dtype=np.uint8)
        # lower-cased ASCII; unsigned differences wrap, so that each range is one comparison
        inside = (byte - ord("a") < 26) | (byte - ord("0") < 10) | (byte == ord("_"))
        borders = np.flatnonzero(inside[1:] != inside[:-1])
        return borders[0::2] + 1, borders[1::2] + 1

    def _lookup(self, text: _Words, at: Ints) -> Ints:
        """Vocabulary word of the words at some positions, -1 where there is none. Exact: compared in full."""
        word: Ints = np.full(len(at), -1, dtype=np.int64)
        candidate: Any = self._slot[text.slot[at]]
        where: Any = np.flatnonzero(candidate >= 0)
        candidate = candidate[where]
        while len(where):
            start, end = text.starts[at[where]], text.ends[at[where]]
            length = end - start
            same = self._head[candidate] == text.head[at[where]]  # zero padding: up to 7 bytes, this is the whole word
            more = np.flatnonzero(same & (length >= 8))
            tail = np.where(length[more] > 8, text.eight[end[more] - 8], 0)
            same[more] = (self._length[candidate[more]] == length[more]) & (self._tail[candidate[more]] == tail)
            for k in np.flatnonzero(same & (length > 16)) if self._long else ():  # the middle of very long words
                same[k] = text.joined[start[k] : end[k]] == self._long[int(candidate[k])]
            word[where[same]] = candidate[same]
            candidate = self._chain[candidate]
            rest = np.flatnonzero(~same & (candidate >= 0))
            where, candidate = where[rest], candidate[rest]
        return word

    def _goes_on(self, text: _Words) -> NDArray[np.bool_]:
        """(words,) where an alias of more than one word may begin."""
        goes_on = np.zeros(len(text.slot), dtype=bool)
        path = text.slot
        for depth in (1, 2):
            path = self._hope(path[:-1], text.slot[depth:])
            goes_on[: len(path)] |= _gather(self._hopes, path)
        return goes_on

    def _walk(self, text: _Words, goes_on: NDArray[np.bool_], begin: Ints, node: Ints) -> tuple[Ints, Ints, Ints]:
        """First word, last word and label (or _IGNORED) of every match, leftmost then longest.

        Args:
            text: the words of the batch.
            goes_on: from ``_goes_on``.
            begin: words at which a match may begin.
            node: (begin,) node of the path that each of them alone makes, -1 where there is none.
        """
        begin, node = begin[node >= 0], node[node >= 0]
        label = self._ends[node]
        last = np.where(label != _NO_END, begin, -1)
        active: Any = np.flatnonzero(self._inner[node] & goes_on[begin])
        step = 1
        while len(active):  # one step: extend every path that can go on by its next word
            active = active[begin[active] + step < len(text.slot)]
            following: Any = begin[active] + step
            word: Any = self._lookup(text, following)
            known = np.flatnonzero(word >= 0)
            active, following, word = active[known], following[known], word[known]
            join = self._join(text.joined, text.ends[following - 1], text.starts[following])
            key = self._edge(node[active], join, word.astype(np.int64))
            at = np.minimum(np.searchsorted(self._edge_keys, key), len(self._edge_keys) - 1)
            exists = (self._edge_keys[at] == key) & (join >= 0)
            active, following = active[exists], following[exists]
            node[active] = self._edge_targets[at[exists]]
            ending = self._ends[node[active]] != _NO_END
            label[active[ending]] = self._ends[node[active[ending]]]
            last[active[ending]] = following[ending]
            active = active[self._inner[node[active]]]
            step += 1
        matched = last >= 0
        begin, last, label = begin[matched], last[matched], label[matched]
        kept = self._leftmost(begin, last)
        return begin[kept], last[kept], label[kept]

    def _join(self, joined: bytes, left: Ints, right: Ints) -> Ints:
        """Join id of the text between two neighbouring words, -1 where no alias has such a join."""
        byte = np.frombuffer(joined, dtype=np.uint8)[left]
        longer = right - left > 1
        join = np.where(longer, -1, self._join_of_byte[byte])
        for k in np.flatnonzero(longer & self._begins_join[byte]):  # rare: line breaks, double spaces
            join[k] = self._joins.get(join_of(joined[left[k] : right[k]].decode("ascii")), -1)
        return join

    @staticmethod
    def _leftmost(begin: Ints, last: Ints) -> Ints:
        """Which matches stay when each one hides those that begin inside it."""
        touched = np.flatnonzero(begin[1:] <= np.maximum.accumulate(last)[:-1]) + 1  # by any match before it
        starts_anew = np.append(True, np.diff(touched) > 1)[: len(touched)]
        columns = (touched, starts_anew, last[touched - 1], begin[touched], last[touched])
        hidden: list[int] = []
        reach = -1
        for k, anew, last_before, first, final in zip(*(column.tolist() for column in columns), strict=True):
            if anew:  # the match before it is untouched, so it stays
                reach = last_before
            if first <= reach:
                hidden.append(k)
            else:
                reach = final
        return np.delete(np.arange(len(begin)), hidden)
