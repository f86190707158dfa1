"""The batch form of the matcher: the walk of ``trie.py`` over the words of about a thousand captions at once in numpy.

Each step is one operation over all words of the batch: word borders by comparing neighboring bytes, an exact hash table
for the words that occur in the vocabulary (one word in ten), then the trie as arrays for those. A caption that is not
ASCII, typographic marks apart, takes the plain walk.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .text import GAP, join_of
from .trie import IGNORED, NO_END, AliasTrie

BATCH = 1024
"""Captions per numpy pass; much larger batches fall out of the processor's cache."""

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


class BatchMatcher:
    """Finds the mentions of many captions, equal to the plain walk on each.

    Args:
        trie: the aliases and watched words.
    """

    def __init__(self, trie: AliasTrie) -> None:
        self._trie = trie
        in_aliases = {character for _, join, _ in trie.edges for character in join}
        self._to_ascii = {old: new for old, new in _TO_ASCII.items() if old not in in_aliases}
        self._tables = _TrieTables(trie)

    def find(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        """The mentions and the watched words of captions, in passes of about BATCH."""
        size = max(1, -(-len(texts) // max(1, round(len(texts) / BATCH))))  # near BATCH, and no small rest
        passes = [self._find_pass(texts[k : k + size]) for k in range(0, len(texts), size)]
        mentions, watched = ([part[kind] for part in passes] for kind in (0, 1))
        return MentionColumns.concatenate(mentions), MentionColumns.concatenate(watched)

    def _find_pass(self, texts: Sequence[str]) -> tuple[MentionColumns, MentionColumns]:
        ascii_texts = list(texts)
        plain: list[int] = []  # left to the plain walk
        for k, text in enumerate(texts):
            if not text.isascii():
                for character, replacement in self._to_ascii.items():
                    if character in text:
                        text = text.replace(character, replacement)
                ascii_texts[k] = text
                if not text.isascii():
                    ascii_texts[k] = ""
                    plain.append(k)
        mentions, watched = self._tables.find(ascii_texts)
        mentions = self._heads_only(ascii_texts, mentions)
        if plain:
            matches = [(k, *match) for k in plain for match in self._trie.matches(texts[k]) if match[2] >= 0]
            mentions = mentions.with_captions(matches)
            watched = watched.with_captions([(k, *word) for k in plain for word in self._trie.watched(texts[k])])
        return mentions, watched

    def _heads_only(self, texts: Sequence[str], mentions: MentionColumns) -> MentionColumns:
        """The mentions without aliases that count only as the head of their noun phrase and are not."""
        rows = np.flatnonzero(mentions.label_id >= self._trie.n_labels)
        if not len(rows):
            return mentions
        label = mentions.label_id.copy()
        caption = np.searchsorted(mentions.indptr, rows, side="right") - 1
        for row, k, end in zip(rows.tolist(), caption.tolist(), mentions.end[rows].tolist(), strict=True):
            label[row] = self._trie.label_in(texts[k], end, int(label[row]))
        named = MentionColumns(mentions.indptr, mentions.start, mentions.end, label)
        return named.only(label != IGNORED)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a batch.

    Attributes:
        joined: the lower-cased texts in one.
        starts, ends: (words,) span of each word in ``joined``.
        eight_bytes: bytes ``k`` to ``k + 7`` of ``joined`` as one number at ``k``.
        head: (words,) first eight bytes of each word, zero-padded.
        slot: (words,) slot of the head in the hash table.
    """

    joined: bytes
    starts: Ints
    ends: Ints
    eight_bytes: NDArray[np.uint64]
    head: Ints
    slot: Ints


def _gather(table: Any, index: Ints) -> Any:
    """``table[index]``, faster; an index beyond the end gives the last entry."""
    return np.take(table, index, mode="clip")


class _TrieTables:
    """The trie as arrays, and the walk over all words of a batch at once."""

    _SLOTS = 1 << 16  # of the hash table of words
    _PREFIXES = 1 << 20  # entries of the prefix filter
    _FACTOR = np.uint64(0x9E3779B97F4A7C15)

    def __init__(self, trie: AliasTrie) -> None:
        words = sorted({*trie.roots, *(word for _, _, word in trie.edges), *trie.watch})
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
        # The prefix filter: hashes of the aliases of one and two words and of the first three words of longer ones. So
        # "in the", which begins aliases and occurs everywhere, is looked up only where an alias may go on behind it.
        self._prefix_filter = np.zeros(self._PREFIXES, dtype=bool)
        paths: dict[int, tuple[int, ...]] = {
            node: (int(slots[ids[word]]),) for word, node in trie.roots.items() if word in ids
        }
        for (node, _, word), target in trie.edges.items():
            if node in paths and word in ids:
                paths[target] = (*paths[node], int(slots[ids[word]]))
        for node, path in paths.items():
            if len(path) == 3 or (len(path) < 3 and trie.labels[node] != NO_END):
                self._prefix_filter[functools.reduce(self._prefix_hash, path)] = True

        self._prefix_filter[slots[[ids[word] for word in trie.watch]]] = True
        self._watch = np.array([-1, *(trie.watch.get(word, -1) for word in words)], dtype=np.int64)  # by word + 1

        self._label = np.array(trie.labels, dtype=np.int64)
        self._root = np.array([-1, *(trie.roots.get(word, -1) for word in words)], dtype=np.int64)  # by word + 1
        self._inner = np.zeros(len(trie.labels), dtype=bool)
        self._inner[list(trie.inner)] = True
        self._joins = {join: k for k, join in enumerate(sorted({GAP} | {join for _, join, _ in trie.edges}))}
        self._join_of_byte = np.array([self._joins.get(join_of(chr(c)), -1) for c in range(128)], dtype=np.int64)
        begins = {join[0] for join in self._joins if len(join) > 1}
        self._begins_long_join = np.array([chr(c).isspace() or chr(c) in begins for c in range(128)])
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

    def _prefix_hash(self, before: Any, slot: Any) -> Any:
        """Hash of a prefix that goes on with the word in a slot; that of one word is its slot."""
        return (before * 40503 + slot) & (self._PREFIXES - 1)

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
        phrase = self._phrase_may_begin(text)
        begin = np.flatnonzero(_gather(self._prefix_filter, text.slot) | phrase)
        word = self._lookup(text, begin) + 1
        first, last, label = self._walk(text, phrase, begin, self._root[word])
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
        """Start and end of every word, by comparing each byte's class with its neighbor's."""
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
            tail = np.where(length[more] > 8, text.eight_bytes[end[more] - 8], 0)
            same[more] = (self._length[candidate[more]] == length[more]) & (self._tail[candidate[more]] == tail)
            for k in np.flatnonzero(same & (length > 16)) if self._long else ():  # the middle of very long words
                same[k] = text.joined[start[k] : end[k]] == self._long[int(candidate[k])]
            word[where[same]] = candidate[same]
            candidate = self._chain[candidate]
            rest = np.flatnonzero(~same & (candidate >= 0))
            where, candidate = where[rest], candidate[rest]
        return word

    def _phrase_may_begin(self, text: _Words) -> NDArray[np.bool_]:
        """(words,) whether an alias of more than one word may begin there, by the prefix filter."""
        phrase = np.zeros(len(text.slot), dtype=bool)
        prefix = text.slot
        for depth in (1, 2):
            prefix = self._prefix_hash(prefix[:-1], text.slot[depth:])
            phrase[: len(prefix)] |= _gather(self._prefix_filter, prefix)
        return phrase

    def _walk(self, text: _Words, phrase: NDArray[np.bool_], begin: Ints, node: Ints) -> tuple[Ints, Ints, Ints]:
        """First word, last word and label id (or IGNORED) of every match, leftmost then longest.

        Args:
            text: the words of the batch.
            phrase: (words,) whether an alias of more than one word may begin there.
            begin: words at which a match may begin.
            node: (begin,) node of the path that each of them alone makes, -1 where there is none.
        """
        begin, node = begin[node >= 0], node[node >= 0]
        label = self._label[node]
        last = np.where(label != NO_END, begin, -1)
        active: Any = np.flatnonzero(self._inner[node] & phrase[begin])
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
            ending = self._label[node[active]] != NO_END
            label[active[ending]] = self._label[node[active[ending]]]
            last[active[ending]] = following[ending]
            active = active[self._inner[node[active]]]
            step += 1
        matched = last >= 0
        begin, last, label = begin[matched], last[matched], label[matched]
        kept = self._leftmost(begin, last)
        return begin[kept], last[kept], label[kept]

    def _join(self, joined: bytes, left: Ints, right: Ints) -> Ints:
        """Join id of the text between two neighboring words, -1 where no alias has such a join."""
        byte = np.frombuffer(joined, dtype=np.uint8)[left]
        longer = right - left > 1
        join = np.where(longer, -1, self._join_of_byte[byte])
        for k in np.flatnonzero(longer & self._begins_long_join[byte]):  # rare: line breaks, double spaces
            join[k] = self._joins.get(join_of(joined[left[k] : right[k]].decode("ascii")), -1)
        return join

    @staticmethod
    def _leftmost(begin: Ints, last: Ints) -> Ints:
        """Which matches are kept when each one hides those that begin inside it."""
        touched = np.flatnonzero(begin[1:] <= np.maximum.accumulate(last)[:-1]) + 1  # by any match before it
        new_group = np.append(True, np.diff(touched) > 1)[: len(touched)]
        columns = (touched, new_group, last[touched - 1], begin[touched], last[touched])
        hidden: list[int] = []
        reach = -1
        for k, is_new, last_before, first, final in zip(*(column.tolist() for column in columns), strict=True):
            if is_new:  # the match before it is untouched, so it is kept
                reach = last_before
            if first <= reach:
                hidden.append(k)
            else:
                reach = final
        return np.delete(np.arange(len(begin)), hidden)
