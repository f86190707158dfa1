"""The batch form of the matcher: the walk of ``trie.py`` over the words of about a thousand captions at once in numpy.

Each step is one operation over all words of the batch: word borders by comparing neighboring bytes, an exact hash table
for the words that occur in the vocabulary (one word in ten), then the trie as arrays for those. A caption that is not
ASCII, typographic marks apart, takes the plain walk.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .context import CLOSED_WORDS, QUOTE_REACH
from .text import GAP, HYPHENS, fold, is_unspaced, join_of, word_spans
from .trie import NO_END, AliasTrie

BATCH = 1024
"""Captions per numpy pass; much larger batches fall out of the processor's cache."""

_NO_ASCII, _UNREAD = 254, 255  # in a table of ASCII characters: there is none; not asked for yet
_SEPARATOR = "\0"  # between captions: a border that no alias can span
_BORDER = _SEPARATOR * 8  # around a batch: the eight bytes at, and before the end of, any word

Ints = NDArray[Any]  # of some integer type


class _ToAscii:
    """One ASCII character for each character outside ASCII, so that every offset stays.

    A letter, digit or mark becomes ``_``, which keeps the word whole and matches no alias; a space, an apostrophe, a
    hyphen and a quotation mark become themselves in ASCII, other borders a border. What could match an ASCII alias (the
    long s, ligatures), what an alias itself holds and letters of scripts without spaces have no such character, and the
    text takes the plain walk.

    Args:
        trie: the aliases.
        watch: the watched words.
    """

    def __init__(self, trie: AliasTrie, watch: Iterable[str]) -> None:
        words = {*trie.roots, *watch, *(part for _, join, word in trie.edges for part in (join, word))}
        self._kept = {character for word in words for character in word if not character.isascii()}
        self._quotes = any('"' in word for word in words)
        self._keeps_words = any("_" in word or not word.isascii() for word in words)
        self._table = np.full(sys.maxunicode + 1, _UNREAD, dtype=np.uint8)  # by code point, filled as they are met
        self._table[:128] = range(128)

    def __call__(self, texts: Sequence[str]) -> list[str | None]:
        """The texts in ASCII, None for what takes the plain walk."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        read = self._table[codes]
        if new := np.unique(codes[read == _UNREAD]).tolist():
            self._table[new] = [self._read(chr(code)) for code in new]
            read = self._table[codes]
        joined = read.tobytes().decode("latin-1")
        ends = list(accumulate(map(len, texts)))
        found = [joined[end - len(text) : end] for text, end in zip(texts, ends, strict=True)]
        return [
            own if own.isascii() and unicodedata.is_normalized("NFC", text) else None
            for own, text in zip(found, texts, strict=True)
        ]

    def _read(self, character: str) -> int:
        spelled = join_of(character)
        if character in self._kept or is_unspaced(character):
            return _NO_ASCII
        if len(word_spans(character)) == 1:
            return _NO_ASCII if self._keeps_words or fold(character).isascii() else ord("_")
        if character.isspace():
            return ord(" ")
        if character in "\u201c\u201d":
            return _NO_ASCII if self._quotes else ord('"')
        return ord("-") if character in HYPHENS else ord("'") if spelled == "'" else 1


class Found(NamedTuple):
    """What a batch holds.

    Attributes:
        mentions: of the aliases.
        watched: the watched words, inside of mentions or not.
        look: (mentions,) bool, False where neither a noun can stand behind a mention nor it is written in capitals;
            all True unless asked for.
        quoting: captions, all those among them with a mention between near quotation marks, if ``look`` is asked for.
    """

    mentions: MentionColumns
    watched: MentionColumns
    look: NDArray[np.bool_]
    quoting: list[int]


class BatchMatcher:
    """Finds the mentions of many captions, equal to the plain walk on each.

    Args:
        trie: the aliases.
        watch: further words that are reported, each with its position.
        look: whether ``Found.look`` is asked for.
    """

    def __init__(self, trie: AliasTrie, watch: Mapping[str, int], *, look: bool = False) -> None:
        self._trie = trie
        self._watch = watch
        self._to_ascii = _ToAscii(trie, watch)
        self._tables = _TrieTables(trie, watch, look)

    def find(self, texts: Sequence[str]) -> Found:
        """The mentions and the watched words of captions, in passes of about BATCH."""
        size = max(1, -(-len(texts) // max(1, round(len(texts) / BATCH))))  # near BATCH, and no small rest
        passes = [self._find_pass(texts[k : k + size]) for k in range(0, len(texts), size)]
        if len(passes) == 1:
            return passes[0]
        return Found(
            MentionColumns.concatenate([part.mentions for part in passes]),
            MentionColumns.concatenate([part.watched for part in passes]),
            np.concatenate([np.zeros(0, dtype=bool), *(part.look for part in passes)]),
            [size * k + row for k, part in enumerate(passes) for row in part.quoting],
        )

    def _find_pass(self, texts: Sequence[str]) -> Found:
        wide = [k for k, text in enumerate(texts) if not text.isascii()]
        if not wide:
            return self._tables.find(texts)
        ascii_texts = list(texts)
        plain: list[int] = []  # left to the plain walk
        for k, text in zip(wide, self._to_ascii([texts[k] for k in wide]), strict=True):
            ascii_texts[k] = text or ""
            if text is None:
                plain.append(k)
        mentions, watched, look, quoting = self._tables.find(ascii_texts)
        if plain:
            read = [(k, *self._trie.matches_and_watched(texts[k], self._watch)) for k in plain]
            mentions = mentions.with_captions(
                [(k, *match) for k, matches, _ in read for match in matches if match[2] >= 0]
            )
            watched = watched.with_captions([(k, *word) for k, _, words in read for word in words])
            in_plain = np.isin(mentions.caption, plain)
            everywhere = np.ones(len(in_plain), dtype=bool)
            everywhere[~in_plain] = look
            look = everywhere
        return Found(mentions, watched, look, [*quoting, *plain])


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a batch.

    Attributes:
        byte: the texts in one, in lower case.
        starts, ends: (words,) span of each word in ``byte``.
        eight_bytes: bytes ``k`` to ``k + 7`` of ``byte`` as one number at ``k``.
        head: (words,) first eight bytes of each word, zero-padded.
        slot: (words,) slot of the head in the hash table.
    """

    byte: NDArray[np.uint8]
    starts: Ints
    ends: Ints
    eight_bytes: NDArray[np.uint64]
    head: Ints
    slot: Ints


def _gather(table: Any, index: Ints) -> Any:
    """``table[index]``, faster; an index beyond the end gives the last entry."""
    return np.take(table, index, mode="clip")


_ALONE, _PHRASE, _LONGER = 1, 2, 4
"""What may begin at a word: an alias of one word, or a watched word; an alias of several; one of more than two."""


class _TrieTables:
    """The trie as arrays, and the walk over all words of a batch at once.

    Words of the vocabulary are numbered from 1; 0 is any other word.
    """

    _SLOTS = 1 << 16  # of the hash table of words
    _PREFIXES = 1 << 20  # entries of the prefix filter
    _FACTOR = np.uint64(0x9E3779B97F4A7C15)

    def __init__(self, trie: AliasTrie, watch: Mapping[str, int], look: bool) -> None:
        words = sorted({*trie.roots, *(word for _, _, word in trie.edges), *watch})
        words = [word for word in words if word.isascii()]
        ids = {word: k for k, word in enumerate(words, 1)}
        raw = [b"", *(word.encode() for word in words)]
        self._long = {k: word for k, word in enumerate(raw) if len(word) > 16}
        self._length = np.array([len(word) for word in raw], dtype=np.int64)
        self._head, self._tail = self._ends(raw)
        self._mask = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
        # a hash table with chains: slot -> one word, word -> the next word of the same slot
        self._slot = np.zeros(self._SLOTS, dtype=np.int32)
        self._chain = np.zeros(len(raw), dtype=np.int32)
        slots = self._hash(self._head)
        for k, slot in enumerate(slots[1:].tolist(), 1):
            self._chain[k], self._slot[slot] = self._slot[slot], k

        # Filters of the beginnings of aliases, by hash: of one word, two, three. So "in the", which begins aliases and
        # occurs everywhere, is looked up only where an alias may go on behind it.
        self._one = np.zeros(self._SLOTS, dtype=np.uint8)
        self._two = np.zeros(self._PREFIXES, dtype=np.uint8)
        self._three = np.zeros(self._PREFIXES, dtype=bool)
        paths: dict[int, tuple[int, ...]] = {
            node: (int(slots[ids[word]]),) for word, node in trie.roots.items() if word in ids
        }
        for (node, _, word), target in trie.edges.items():
            if node in paths and word in ids:
                paths[target] = (*paths[node], int(slots[ids[word]]))
        for node, path in paths.items():
            prefix = functools.reduce(self._prefix_hash, path)
            if len(path) == 3:
                self._two[functools.reduce(self._prefix_hash, path[:2])] |= _LONGER
                self._three[prefix] = True
            elif len(path) == 2 and trie.labels[node] != NO_END:
                self._two[prefix] |= _PHRASE
            elif len(path) == 1 and trie.labels[node] != NO_END:
                self._one[prefix] |= _ALONE
        self._one[slots[[ids[word] for word in watch if word in ids]]] |= _ALONE

        # words that no noun phrase goes on with, by slot: a clash leaves one out, which costs a closer look only
        self._closed = np.zeros((2, self._SLOTS if look else 0), dtype=np.uint64)
        if look:
            head, tail = self._ends([word.encode() for word in CLOSED_WORDS])
            self._closed[:, self._hash(head)] = head, tail
        self._watch = np.array([-1, *(watch.get(word, -1) for word in words)], dtype=np.int64)

        self._label = np.array(trie.labels, dtype=np.int64)
        self._root = np.array([-1, *(trie.roots.get(word, -1) for word in words)], dtype=np.int64)
        self._inner = np.zeros(len(trie.labels), dtype=bool)
        self._inner[list(trie.inner)] = True
        self._joins = {join: k for k, join in enumerate(sorted({GAP} | {join for _, join, _ in trie.edges}))}
        self._join_of_byte = np.array([self._joins.get(join_of(chr(c)), -1) for c in range(128)], dtype=np.int64)
        begins = {join[0] for join in self._joins if len(join) > 1}
        self._begins_long_join = np.array([chr(c).isspace() or chr(c) in begins for c in range(128)])
        edges = sorted(
            (self._edge(node, self._joins[join], ids[word]), target)
            for (node, join, word), target in trie.edges.items()
            if word in ids
        )
        self._edge_keys = np.array([key for key, _ in edges], dtype=np.int64)
        self._edge_targets = np.array([target for _, target in edges], dtype=np.int64)

    @staticmethod
    def _ends(words: Sequence[bytes]) -> tuple[Ints, Ints]:
        """First and last eight bytes of words as numbers; the last are 0 for a word that the first hold whole."""
        head = np.array([int.from_bytes(word[:8], "little") for word in words], dtype=np.uint64)
        tail = [int.from_bytes(word[-8:], "little") if len(word) > 8 else 0 for word in words]
        return head, np.array(tail, dtype=np.uint64)

    def _hash(self, head: Ints) -> Ints:
        slots: Ints = (head * self._FACTOR) >> np.uint64(48)
        return slots.view(np.int64)

    def _prefix_hash(self, before: Any, slot: Any) -> Any:
        """Hash of a prefix that goes on with the word in a slot; that of one word is its slot."""
        return (before * 40503 + slot) & (self._PREFIXES - 1)

    def _edge(self, node: Any, join: Any, word: Any) -> Any:
        return (node * len(self._joins) + join) * len(self._length) + word

    def find(self, texts: Sequence[str]) -> Found:
        """The mentions and the watched words of ASCII captions."""
        joined = _SEPARATOR.join([_BORDER, *texts, _BORDER])
        quotes = _near_quotes(joined) if self._closed.size else []
        written = np.frombuffer(joined.encode("ascii"), dtype=np.uint8)
        del joined  # its memory is wanted again
        byte = written | (_in_range(written, "A", "Z").view(np.uint8) << np.uint8(5))
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        offsets = np.cumsum(lengths + 1) - lengths + len(_BORDER)
        starts, ends = self._words(byte)
        eight = np.ndarray(shape=len(byte) - 7, dtype="<u8", buffer=byte, strides=(1,))
        head: Ints = _gather(eight, starts) & _gather(self._mask, ends - starts)  # longer than 8: the last, full mask
        text = _Words(byte, starts, ends, eight, head, self._hash(head))
        begin, is_phrase = self._begins(text.slot)
        word = self._lookup(text, begin)
        first, last, label = self._walk(text, begin, self._root[word], is_phrase)
        named = label >= 0
        watch = self._watch[word]
        at = np.flatnonzero(watch >= 0)
        first, last = first[named], last[named]
        return Found(
            self._columns(offsets, starts[first], ends[last], label[named]),
            self._columns(offsets, starts[begin[at]], ends[begin[at]], watch[at]),
            self._look(written, text, first, last) if self._closed.size else np.ones(len(first), dtype=bool),
            self._quoting(quotes, offsets, starts[first]) if quotes else [],
        )

    @staticmethod
    def _quoting(quotes: Sequence[tuple[int, int]], offsets: Ints, start: Ints) -> list[int]:
        """The captions in which a mention stands between two quotation marks."""
        marks = np.array(quotes)
        first, stop = np.searchsorted(start, marks.T)
        owner: list[int] = np.searchsorted(offsets, marks[first < stop, 0], side="right").tolist()
        return [k - 1 for k in dict.fromkeys(owner)]

    def _look(self, written: NDArray[np.uint8], text: _Words, first: Ints, last: Ints) -> NDArray[np.bool_]:
        """(mentions,) bool: a word that may be a noun stands behind, or the second letter is a capital."""
        look: NDArray[np.bool_] = _in_range(written[text.starts[first] + 1], "A", "Z")
        end, following = text.ends[last], last + 1
        is_close = _gather(text.starts, following) == end + 1  # the last word of all has itself behind it
        between = written[end]
        look |= is_close & (between == ord("-"))
        rows = np.flatnonzero(is_close & (between == ord(" ")))
        following = following[rows]
        head, slot = text.head[following], text.slot[following]
        closed = self._closed[0][slot] == head
        longer = np.flatnonzero(closed & (head >= 1 << 56))  # eight letters or more
        tail = self._tails(text, following[longer])
        closed[longer] = self._closed[1][slot[longer]] == tail
        look[rows[~closed]] = True
        return look

    @staticmethod
    def _columns(offsets: Ints, start: Ints, end: Ints, label: Ints) -> MentionColumns:
        """Columns of spans in the joined text, where each caption begins at its offset."""
        indptr = np.append(np.searchsorted(start, offsets), len(start))
        shift = np.repeat(offsets, np.diff(indptr))
        return MentionColumns(
            indptr, (start - shift).astype(np.int32), (end - shift).astype(np.int32), label.astype(np.int32)
        )

    @staticmethod
    def _words(byte: NDArray[np.uint8]) -> tuple[Ints, Ints]:
        """Start and end of every word, by comparing each byte's class with its neighbor's."""
        inside = _in_range(byte, "a", "z") | _in_range(byte, "0", "9") | (byte == ord("_"))
        is_border = np.zeros(len(byte), dtype=bool)
        np.not_equal(inside[1:], inside[:-1], out=is_border[1:])
        borders = np.flatnonzero(is_border)
        return borders[0::2].copy(), borders[1::2].copy()

    @staticmethod
    def _tails(text: _Words, at: Ints) -> Ints:
        """The last eight bytes of some words, 0 for a word that its head holds whole."""
        tail = np.zeros(len(at), dtype=np.uint64)
        rows = np.flatnonzero(text.ends[at] - text.starts[at] > 8)
        tail[rows] = text.eight_bytes[text.ends[at[rows]] - 8]
        return tail

    def _lookup(self, text: _Words, at: Ints) -> Ints:
        """Vocabulary word of the words at some positions, 0 where there is none. Exact: compared in full."""
        word = candidate = self._slot[text.slot[at]]
        head, tail, length = text.head[at], self._tails(text, at), text.ends[at] - text.starts[at]
        rows: Any = np.arange(len(at))
        while len(rows):
            same = (self._head[candidate] == head) & (self._tail[candidate] == tail)
            same &= self._length[candidate] == length
            for k in np.flatnonzero(same & (length > 16)) if self._long else ():  # the middle of very long words
                start = text.starts[at[rows[k]]]
                same[k] = text.byte[start : start + length[k]].tobytes() == self._long[int(candidate[k])]
            rest = np.flatnonzero(~same & (candidate > 0))
            columns = rows, self._chain[candidate], head, tail, length
            rows, candidate, head, tail, length = (column[rest] for column in columns)
            word[rows] = candidate
        return word

    def _begins(self, slot: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """The words at which a match may begin, or that may be watched, and whether one of several words may."""
        what = _gather(self._one, slot)
        prefix = self._prefix_hash(slot[:-1], slot[1:])
        what[:-1] |= _gather(self._two, prefix)
        longer = np.flatnonzero(what & _LONGER > 0)
        three = self._prefix_hash(prefix[longer], _gather(slot, longer + 2))
        what[longer[_gather(self._three, three)]] |= _PHRASE
        begin = np.flatnonzero(what & (_ALONE | _PHRASE) > 0)
        return begin, what[begin] & _PHRASE > 0

    def _walk(self, text: _Words, begin: Ints, node: Ints, is_phrase: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """First word, last word and label id (or IGNORED) of every match, leftmost then longest.

        Args:
            text: the words of the batch.
            begin: words at which a match may begin.
            node: (begin,) node of the path that each of them alone makes, -1 where there is none.
            is_phrase: (begin,) whether an alias of more than one word may begin there.
        """
        rooted = node >= 0
        begin, node, is_phrase = begin[rooted], node[rooted], is_phrase[rooted]
        label = self._label[node]
        last = np.where(label != NO_END, begin, -1)
        active: Any = np.flatnonzero(self._inner[node] & is_phrase)
        step = 1
        while len(active):  # one step: extend every path that can go on by its next word
            active = active[begin[active] + step < len(text.slot)]
            following: Any = begin[active] + step
            word: Any = self._lookup(text, following)
            known = np.flatnonzero(word)
            active, following, word = active[known], following[known], word[known]
            join = self._join(text.byte, text.ends[following - 1], text.starts[following])
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

    def _join(self, byte: NDArray[np.uint8], left: Ints, right: Ints) -> Ints:
        """Join id of the text between two neighboring words, -1 where no alias has such a join."""
        first = byte[left]
        longer = right - left > 1
        join = np.where(longer, -1, self._join_of_byte[first])
        for k in np.flatnonzero(longer & self._begins_long_join[first]):  # rare: line breaks, double spaces
            join[k] = self._joins.get(join_of(byte[left[k] : right[k]].tobytes().decode("ascii")), -1)
        return join

    @staticmethod
    def _leftmost(begin: Ints, last: Ints) -> NDArray[np.bool_]:
        """Which matches are kept when each one hides those that begin inside it."""
        kept = np.ones(len(begin), dtype=bool)
        np.greater(begin[1:], np.maximum.accumulate(last)[:-1], out=kept[1:])  # reached by none before it
        # of several in a row that are reached, the first is hidden by the match before it, which is kept
        rows = np.flatnonzero(~kept[1:] & ~kept[:-1]) + 1
        before, reach = -1, -1
        for k, first, final in zip(rows.tolist(), begin[rows].tolist(), last[rows].tolist(), strict=True):
            if k - 1 != before:
                reach = int(last[k - 2])
            if first > reach:
                kept[k] = True
                reach = final
            before = k
        return kept


def _near_quotes(text: str) -> list[tuple[int, int]]:
    """The places of neighboring quotation marks that are near each other."""
    pairs = []
    at, mark = -QUOTE_REACH, text.find('"')
    while mark >= 0:
        if mark - at <= QUOTE_REACH + 1:
            pairs.append((at, mark))
        at, mark = mark, text.find('"', mark + 1)
    return pairs


def _in_range(byte: NDArray[np.uint8], low: str, high: str) -> NDArray[np.bool_]:
    """Which bytes lie between two characters; unsigned differences wrap, so that it is one comparison."""
    return byte - ord(low) <= ord(high) - ord(low)
