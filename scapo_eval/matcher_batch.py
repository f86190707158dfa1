"""The batch form of the matcher: the walk of ``trie.py`` over the words of about a thousand captions at once in numpy.

Each step is one operation over all words of the batch: word borders by comparing neighboring bytes, an exact hash table
for the words that occur in the vocabulary (one word in ten), then the trie as arrays for those. A caption that is not
ASCII, typographic marks apart, takes the plain walk.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .context import CLOSED_WORDS
from .text import GAP, HYPHENS, fold, is_unspaced, join_of, word_spans
from .trie import NO_END, AliasTrie

BATCH = 1024
"""Captions per numpy pass; much larger batches fall out of the processor's cache."""

_UNSPACED = "\x02"  # stands for a letter of a script without spaces
_SEPARATOR = "\0"  # between captions: a border that no alias can span
_NOT_ASCII = 255

Ints = NDArray[Any]  # of some integer type


class _ToAscii(dict[int, int]):
    """Code of a character outside ASCII -> code of the one in ASCII that takes its place, so that every offset stays.

    A letter, digit or mark becomes ``_``, which keeps the word whole and matches no alias; a space, an apostrophe and a
    hyphen become themselves in ASCII, other borders a border. What could match an ASCII alias (the long s, ligatures)
    or what an alias itself holds becomes _NOT_ASCII, and its text takes the plain walk.

    Args:
        trie: the aliases and watched words.
    """

    def __init__(self, trie: AliasTrie) -> None:
        super().__init__()
        words = {*trie.roots, *trie.watch, *(part for _, join, word in trie.edges for part in (join, word))}
        self._kept = {character for word in words for character in word if not character.isascii()}
        self._keeps_words = any("_" in word or not word.isascii() for word in words)

    def __missing__(self, code: int) -> int:
        character = chr(code)
        spelled = join_of(character)
        new = None
        if character in self._kept:
            pass
        elif is_unspaced(character):
            new = _UNSPACED
        elif len(word_spans(character)) == 1:
            if not self._keeps_words and not fold(character).isascii():
                new = "_"
        elif character.isspace():
            new = " "
        else:
            new = "-" if character in HYPHENS else spelled if spelled == "'" else "\x01"
        self[code] = _NOT_ASCII if new is None else ord(new)
        return self[code]

    def forms(self, texts: Sequence[str]) -> list[str]:
        """The texts with all characters replaced; those that cannot be are not ASCII."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        above = np.flatnonzero(codes > 127)
        different, which = np.unique(codes[above], return_inverse=True)
        written = codes.astype(np.uint8)
        written[above] = np.array([self[code] for code in different.tolist()], dtype=np.uint8)[which]
        joined = written.tobytes().decode("latin-1")
        ends = accumulate(map(len, texts))
        return [joined[end - len(text) : end] for text, end in zip(texts, ends, strict=True)]


class Found(NamedTuple):
    """What a batch holds.

    Attributes:
        mentions: of the aliases.
        watched: the watched words, inside of mentions or not.
        look: (mentions,) bool, False where neither a noun can stand behind a mention nor it is written in capitals;
            all True unless asked for.
    """

    mentions: MentionColumns
    watched: MentionColumns
    look: NDArray[np.bool_]


class BatchMatcher:
    """Finds the mentions of many captions, equal to the plain walk on each.

    Args:
        trie: the aliases and watched words.
        look: whether ``Found.look`` is asked for.
    """

    def __init__(self, trie: AliasTrie, *, look: bool = False) -> None:
        self._trie = trie
        self._to_ascii = _ToAscii(trie)
        self._tables = _TrieTables(trie, look)

    def find(self, texts: Sequence[str]) -> Found:
        """The mentions and the watched words of captions, in passes of about BATCH."""
        size = max(1, -(-len(texts) // max(1, round(len(texts) / BATCH))))  # near BATCH, and no small rest
        passes = [self._find_pass(texts[k : k + size]) for k in range(0, len(texts), size)]
        return Found(
            MentionColumns.concatenate([part.mentions for part in passes]),
            MentionColumns.concatenate([part.watched for part in passes]),
            np.concatenate([np.zeros(0, dtype=bool), *(part.look for part in passes)]),
        )

    def _find_pass(self, texts: Sequence[str]) -> Found:
        ascii_texts = list(texts)
        normal: list[int] = []
        plain: list[int] = []  # left to the plain walk
        for k, text in enumerate(texts):
            if not text.isascii():
                (normal if unicodedata.is_normalized("NFC", text) else plain).append(k)
        for k, form in zip(normal, self._to_ascii.forms([texts[k] for k in normal]), strict=True):
            ascii_texts[k] = form
            # the letter of a script without spaces takes a mark behind it to itself, which no ASCII says
            if not form.isascii() or f"{_UNSPACED}_" in form:
                plain.append(k)
        plain.sort()
        for k in plain:
            ascii_texts[k] = ""
        mentions, watched, look = self._tables.find(ascii_texts)
        if plain:
            read = [(k, *self._trie.matches_and_watched(texts[k])) for k in plain]
            mentions = mentions.with_captions(
                [(k, *match) for k, matches, _ in read for match in matches if match[2] >= 0]
            )
            watched = watched.with_captions([(k, *word) for k, _, words in read for word in words])
            in_plain = np.isin(mentions.caption, plain)
            everywhere = np.ones(len(in_plain), dtype=bool)
            everywhere[~in_plain] = look
            look = everywhere
        return Found(mentions, watched, look)


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


def _where(mask: NDArray[np.bool_], *columns: Ints) -> list[Ints]:
    return [column[mask] for column in columns]


class _TrieTables:
    """The trie as arrays, and the walk over all words of a batch at once."""

    _SLOTS = 1 << 16  # of the hash table of words
    _PREFIXES = 1 << 20  # entries of the prefix filter
    _FACTOR = np.uint64(0x9E3779B97F4A7C15)

    def __init__(self, trie: AliasTrie, look: bool) -> None:
        words = sorted({*trie.roots, *(word for _, _, word in trie.edges), *trie.watch})
        words = [word for word in words if word.isascii()]
        ids = {word: k for k, word in enumerate(words)}
        raw = [word.encode() for word in words]
        self._long = {k: word for k, word in enumerate(raw) if len(word) > 16}
        self._length = np.array([len(word) for word in raw], dtype=np.int64)
        self._head, self._tail = self._ends(raw)
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
        # words that no noun phrase goes on with, by slot: a clash leaves one out, which costs a closer look only
        self._closed = np.zeros((2, self._SLOTS if look else 0), dtype=np.uint64)
        if look:
            head, tail = self._ends([word.encode() for word in CLOSED_WORDS])
            self._closed[:, self._hash(head)] = head, tail
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
        return (node * len(self._joins) + join) * self._n_words + word

    def find(self, texts: Sequence[str]) -> Found:
        """The mentions and the watched words of ASCII captions."""
        written = _SEPARATOR.join(["", *texts, ""]).encode("ascii")
        joined = written.lower()
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
        first, last = first[named], last[named]
        return Found(
            self._columns(offsets, starts[first], ends[last], label[named]),
            self._columns(offsets, starts[begin[at]], ends[begin[at]], watch[at]),
            self._look(written, text, first, last) if self._closed.size else np.ones(len(first), dtype=bool),
        )

    def _look(self, written: bytes, text: _Words, first: Ints, last: Ints) -> NDArray[np.bool_]:
        """(mentions,) bool: a word that may be a noun stands behind, or the second letter is a capital."""
        byte = np.frombuffer(written, dtype=np.uint8)
        look: NDArray[np.bool_] = _gather(byte, _gather(text.starts, first) + 1) - ord("A") < 26
        end = _gather(text.ends, last)
        between = _gather(byte, end)
        rows = np.flatnonzero((between == ord(" ")) | (between == ord("-")))
        rows = rows[last[rows] + 1 < len(text.starts)]
        following = last[rows] + 1
        rows, following = _where(text.starts[following] == end[rows] + 1, rows, following)
        slot, stop = text.slot[following], text.ends[following]
        tail = np.where(stop - text.starts[following] > 8, text.eight_bytes[np.maximum(stop - 8, 0)], 0)
        closed = (self._closed[0][slot] == text.head[following]) & (self._closed[1][slot] == tail)
        look[rows[~closed | (between[rows] == ord("-"))]] = True
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
