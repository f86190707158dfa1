"""The batch version of the matcher, which searches about a thousand captions at once with NumPy.

Each step of the search is one array operation over all words of the batch. Word boundaries are found by comparing
neighboring bytes. An exact hash table identifies the words that occur in the vocabulary (about one word in ten). The
trie, stored as arrays, is then searched only for these words. Captions that contain non-ASCII characters other than
typographic marks are searched word by word.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.text import HYPHENS, fold, is_unspaced, join_of, word_spans
from .context import CLOSED_WORDS, QUOTE_REACH
from .trie import NO_END, AliasTrie
from .visible import all_marked_up, disguises, is_disguised

BATCH = 1024
"""Number of captions per NumPy pass. Much larger batches do not fit into the processor cache."""

_NO_ASCII, _UNREAD = 254, 255  # values in a table of ASCII characters: no character; not yet looked up
_SEPARATOR = "\0"  # separator of captions, which no alias can span
# padding of a batch, so that eight bytes can be read at the start and before the end of every word
_BORDER = _SEPARATOR * 8
_END = _SEPARATOR * 80  # padding after a batch, for reads beyond a word, such as the text between a cue and a mention

Ints = NDArray[Any]  # of any integer type


class _ToAscii:
    """A converter that replaces each non-ASCII character with one ASCII character, so that offsets do not change.

    A letter, digit or mark is replaced by ``_``, which does not split the word and matches no alias. A space,
    apostrophe, hyphen or quotation mark is replaced by its ASCII form, and other punctuation by a character that
    separates words. Three groups of characters are not replaced: characters that could match an ASCII alias (the long
    s, ligatures), characters that occur in aliases, and letters of scripts without spaces. Texts that contain
    characters without a replacement are searched word by word.

    Args:
        trie: Trie of the aliases to find.
        watch: Additional words to report.
    """

    def __init__(self, trie: AliasTrie, watch: Iterable[str]) -> None:
        words = (*trie.words, *watch)
        characters = set("".join((*words, *trie.joins)))
        self._kept = {character for character in characters if not character.isascii()}
        self._quotes = '"' in characters
        self._with_underscore = [word for word in words if "_" in word]
        # by code point, filled when a character first occurs
        self._table = np.full(sys.maxunicode + 1, _UNREAD, dtype=np.uint8)
        self._table[:128] = range(128)
        self._disguises = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
        self._disguises[[*map(ord, disguises())]] = True

    def __call__(self, texts: Sequence[str]) -> list[str | None]:
        """Returns the texts converted to ASCII, or None for each text that must be searched word by word."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        wide = (codes > 127).nonzero()[0]
        characters = codes[wide]
        read = self._table[characters]
        if new := set(characters[read == _UNREAD].tolist()):
            self._table[list(new)] = [self._read(chr(code)) for code in new]
            read = self._table[characters]
        ascii_codes = codes.astype(np.uint8)
        ascii_codes[wide] = read
        joined = ascii_codes.tobytes().decode("latin-1")
        ends = list(accumulate(map(len, texts)))
        ascii_texts: list[str | None] = [joined[end - len(text) : end] for text, end in zip(texts, ends, strict=True)]
        disguises = wide[self._disguises[characters]]
        for k in set(np.searchsorted(ends, disguises, side="right").tolist()) if len(disguises) else ():
            if is_disguised(texts[k]):
                ascii_texts[k] = None
        # only a letter or mark can change the preceding character
        for k in set(np.searchsorted(ends, wide[(read == _NO_ASCII) | (read == ord("_"))], side="right").tolist()):
            ascii_text = joined[ends[k] - len(texts[k]) : ends[k]]
            if ascii_texts[k] is not None and (
                not ascii_text.isascii()
                or not unicodedata.is_normalized("NFC", texts[k])
                or any(map(ascii_text.lower().__contains__, self._with_underscore))
            ):
                ascii_texts[k] = None
        return ascii_texts

    def _read(self, character: str) -> int:
        spelled = join_of(character)
        if character in self._kept or is_unspaced(character) or not unicodedata.is_normalized("NFC", character):
            return _NO_ASCII
        if len(word_spans(character)) == 1:
            return _NO_ASCII if self._kept or fold(character).isascii() else ord("_")
        if character.isspace():
            return ord(" ")
        if character in "\u201c\u201d":
            return _NO_ASCII if self._quotes else ord('"')
        return ord("-") if character in HYPHENS else ord("'") if spelled == "'" else 1


class Found(NamedTuple):
    """The mentions and watched words that were found in a batch.

    Attributes:
        mentions: Mentions of aliases in the batch.
        watched: Watched words in the batch, inside or outside mentions.
        look: (mentions,) bool mask, which is False for mentions that are not in capitals and whose next word cannot be
            a noun that they modify. All values of the mask are true if ``look`` was not requested.
        quoting: Indices of the captions that may contain a mention between two nearby quotation marks. The list is
            empty if ``look`` was not requested.
        asking: Indices of the captions that may contain a question mark.
        marking: Indices of the captions that may contain a check mark, a box or an empty value. They include all
            captions with one of the characters "[{|~/" and all captions that are not ASCII.
        wide: Indices of the captions that are not ASCII.
        plain: Indices of the captions that were searched word by word.
        byte: Bytes of the captions that are not in ``plain``, converted to ASCII, with separators and borders. The
            value is empty if no words are watched.
        offset: (captions,) position of each caption in ``byte``. Captions in ``plain`` are empty there.
    """

    mentions: MentionColumns
    watched: MentionColumns
    look: NDArray[np.bool_]
    quoting: list[int]
    asking: list[int]
    marking: list[int]
    wide: list[int]
    plain: list[int]
    byte: NDArray[np.uint8]
    offset: Ints

    def of(self, kept: NDArray[np.bool_]) -> Found:
        """Returns the mentions and watched words in the captions that a (captions,) mask selects."""

        def only(captions: list[int]) -> list[int]:
            return [k for k in captions if kept[k]]

        rows = kept[self.mentions.caption]
        return self._replace(
            mentions=self.mentions.only(rows),
            watched=self.watched.only(kept[self.watched.caption]),
            look=self.look[rows],
            quoting=only(self.quoting),
            asking=only(self.asking),
            marking=only(self.marking),
            plain=only(self.plain),
        )


class BatchMatcher:
    """A matcher that searches many captions at once. The matcher returns the same results as the word-by-word search.

    Args:
        trie: Trie of the aliases to find.
        watch: Mapping from additional words to report to the values that are reported for these words.
        look: True to compute ``Found.look`` and ``Found.quoting``.
    """

    def __init__(self, trie: AliasTrie, watch: Mapping[str, int], *, look: bool = False) -> None:
        self._trie = trie
        self._watch = watch
        self._to_ascii = _ToAscii(trie, watch)
        self._tables = _TrieTables(trie, watch, look)

    def find(self, texts: Sequence[str]) -> Found:
        """Returns the mentions and watched words in captions, which are searched in groups of about BATCH captions."""
        size = max(1, -(-len(texts) // max(1, round(len(texts) / BATCH))))  # close to BATCH, without a small last part
        passes = [self._find_pass(texts[k : k + size]) for k in range(0, len(texts), size)]
        if len(passes) == 1:
            return passes[0]
        return Found(
            MentionColumns.concatenate([part.mentions for part in passes]),
            MentionColumns.concatenate([part.watched for part in passes]),
            np.concatenate([np.zeros(0, dtype=bool), *(part.look for part in passes)]),
            [size * k + row for k, part in enumerate(passes) for row in part.quoting],
            [size * k + row for k, part in enumerate(passes) for row in part.asking],
            [size * k + row for k, part in enumerate(passes) for row in part.marking],
            [size * k + row for k, part in enumerate(passes) for row in part.wide],
            [size * k + row for k, part in enumerate(passes) for row in part.plain],
            np.concatenate([np.zeros(0, dtype=np.uint8), *(part.byte for part in passes)]),
            np.concatenate(
                [
                    np.zeros(0, dtype=np.int64),
                    *(part.offset + sum(len(before.byte) for before in passes[:k]) for k, part in enumerate(passes)),
                ]
            ),
        )

    def _find_pass(self, texts: Sequence[str]) -> Found:
        plain = all_marked_up(texts)  # texts for the simple loop
        wide = [k for k, text in enumerate(texts) if not text.isascii()]
        if not (wide or plain):
            return self._tables.find(texts)
        ascii_texts = list(texts)
        for k in plain:
            ascii_texts[k] = ""
        wide = [k for k in wide if ascii_texts[k]]
        marked_up = plain[:]
        for k, text in zip(wide, self._to_ascii([texts[k] for k in wide]), strict=True):
            ascii_texts[k] = text or ""
            if text is None:
                plain.append(k)
        found = self._tables.find(ascii_texts)
        if plain:
            mentions, watched, look = found[:3]
            read = [(k, *self._trie.matches_and_watched(texts[k], self._watch)) for k in plain]
            mentions = mentions.with_captions(
                [(k, *match) for k, matches, _ in read for match in matches if match[2] >= 0]
            )
            watched = watched.with_captions([(k, *word) for k, _, words in read for word in words])
            in_plain = np.isin(mentions.caption, plain)
            everywhere = np.ones(len(in_plain), dtype=bool)
            everywhere[~in_plain] = look
            found = found._replace(mentions=mentions, watched=watched, look=everywhere, plain=plain)
        wide = sorted([*wide, *marked_up])
        return found._replace(marking=sorted({*found.marking, *wide}), wide=wide)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a batch.

    Attributes:
        byte: Bytes of the concatenated texts.
        starts: (words,) offset of the first byte of each word in ``byte``.
        ends: (words,) offset after the last byte of each word in ``byte``.
        eight_bytes: (positions,) integers. Entry ``k`` contains the bytes ``k`` to ``k + 7``.
        head: (words,) first eight bytes of each word, converted to lower case, padded with zeros and interpreted as an
            integer.
        slot: (words,) hash-table slot of each word's head.
    """

    byte: NDArray[np.uint8]
    starts: Ints
    ends: Ints
    eight_bytes: NDArray[np.uint64]
    head: Ints
    slot: Ints


def _gather(table: Any, index: Ints) -> Any:
    """Returns ``table[index]``, but faster. An index beyond the end of the table selects the last entry.

    The table must be contiguous in memory.
    """
    return table.take(index, mode="clip")


_ONE_CASE = np.uint64(0x2020202020202020)
"""Bit mask for eight bytes that converts letters to lower case and leaves digits unchanged."""

_FULL = 1 << 56
"""Smallest integer that represents eight nonzero bytes."""

_SLOTS = 1 << 16  # size of a hash table


def _hash(keys: Ints) -> Ints:
    """Maps 64-bit integers to the slots of a hash table."""
    slots: Ints = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    slots >>= np.uint64(48)
    return slots.view(np.int64)


class _HashTable:
    """A hash table whose entries are numbered from 1. The number 0 means that no entry was found.

    Args:
        slots: (1 + entries,) array with the slot of each entry. Element 0 of the array is not used.
    """

    def __init__(self, slots: Ints) -> None:
        self._first = np.zeros(_SLOTS, dtype=np.int64)
        self._next = np.zeros(len(slots), dtype=np.int64)  # of the same slot
        order = np.argsort(slots[1:], kind="stable") + 1
        again = np.diff(slots[order], prepend=-1) == 0
        self._first[slots[order[~again]]] = order[~again]
        self._next[order[np.flatnonzero(again) - 1]] = order[again]

    def find(self, slots: Ints, is_same: Callable[[Any, Ints], NDArray[np.bool_]]) -> Ints:
        """Returns the first entry in each slot for which ``is_same(rows of the slots, entries)`` is true, or 0 if there
        is none.
        """
        entries: Ints = _gather(self._first, slots)
        candidate = entries
        rows: Any = slice(None)
        while True:
            rest = ((candidate > 0) & ~is_same(rows, candidate)).nonzero()[0]
            if not len(rest):
                return entries
            candidate = self._next[candidate[rest]]
            rows = rest if isinstance(rows, slice) else rows[rest]
            entries[rows] = candidate


_ALONE, _PHRASE, _LONGER = 1, 2, 4
"""Flags for matches that may begin at a word: a one-word alias or watched word, an alias of several words, and an alias
of more than two words.
"""


class _TrieTables:
    """The trie, stored as arrays so that all words of a batch can be searched for at once.

    The words of the vocabulary are numbered from 1. The number 0 represents any word outside the vocabulary.
    """

    _PREFIXES = 1 << 18  # number of entries of the prefix filter

    def __init__(self, trie: AliasTrie, watch: Mapping[str, int], look: bool) -> None:
        # the words of the trie, in the same order
        ids = {word: k for k, word in enumerate(dict.fromkeys((*trie.words, *watch)), 1)}
        raw = [b"", *(word.encode() for word in ids)]
        self._long = {k: word for k, word in enumerate(raw) if len(word) > 16}
        self._length = np.fromiter(map(len, raw), dtype=np.int64)
        self._mask = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
        self._head, self._tail = self._ends(raw)
        slots = _hash(self._head)
        self._by_head = _HashTable(slots)

        self._label = trie.labels
        nodes = len(trie.labels)
        self._inner = np.bincount(trie.before[1:], minlength=nodes) > 0
        first, second, third = (np.flatnonzero(trie.depth == k) for k in (1, 2, 3))
        self._root = np.full(len(raw), -1)
        self._root[trie.word[first]] = first
        self._alone = np.where(self._root < 0, NO_END, self._label[self._root])
        self._joins = trie.joins
        self._join_of_byte = np.array([self._joins.get(join_of(chr(c)), -1) for c in range(128)], dtype=np.int64)
        begins = {join[0] for join in self._joins if len(join) > 1}
        self._begins_long_join = np.array([chr(c).isspace() or chr(c) in begins for c in range(128)])
        edges = np.flatnonzero(trie.depth > 1)
        self._edge_keys = np.append(-1, self._edge(trie.before, trie.join, trie.word)[edges])
        self._edge_targets = np.append(-1, edges)
        self._by_edge = _HashTable(_hash(self._edge_keys))

        # Filters of the first one, two and three words of aliases, by hash. "In the", which begins aliases and is
        # frequent, is therefore looked up only where an alias can continue.
        self._one = np.zeros(_SLOTS, dtype=np.uint8)
        self._two = np.full(self._PREFIXES, _ALONE, dtype=np.uint8)
        self._three = np.zeros(self._PREFIXES, dtype=bool)
        prefix = slots[trie.word]
        for level in (second, third):
            prefix[level] = self._prefix_hash(prefix[trie.before[level]], slots[trie.word[level]])
        ends = self._label != NO_END
        watched = [ids[word] for word in watch]
        self._one[slots[watched]] = _ALONE
        self._one[prefix[first][ends[first]]] |= _ALONE
        self._one[prefix[first][self._inner[first]]] |= _PHRASE | _LONGER
        self._two[prefix[second][ends[second]]] |= _PHRASE
        self._two[prefix[trie.before[third]]] |= _LONGER
        self._three[prefix[third]] = True

        # words that cannot continue a noun phrase, by slot: a collision omits one, which only costs an exact check
        self._closed = np.zeros((2, _SLOTS if look else 0), dtype=np.uint64)
        if look:
            head, tail = self._ends([word.encode() for word in CLOSED_WORDS])
            self._closed[:, _hash(head)] = head, tail
        self._watch = np.full(len(raw), -1)
        self._watch[watched] = list(watch.values())
        self._is_watching = bool(watch)

    def _ends(self, words: Sequence[bytes]) -> tuple[Ints, Ints]:
        """Returns the first eight and the last eight bytes of lower-cased words as integers.

        Shorter words are padded with zero bytes on the right.
        """
        one_case = _ONE_CASE & self._mask[np.minimum(np.fromiter(map(len, words), dtype=np.int64), 8)]
        head = np.array([word[:8] for word in words], dtype="S8").view("<u8")
        tail = np.array([word[-8:] for word in words], dtype="S8").view("<u8")
        return head | one_case, tail | one_case

    def _prefix_hash(self, before: Any, slot: Any) -> Any:
        """Returns the hash of a prefix extended by the word in a slot. The hash of a prefix of one word is the slot of
        this word.
        """
        return (before * 40503 + slot) & (self._PREFIXES - 1)

    def _edge(self, node: Any, join: Any, word: Any) -> Any:
        return (node * len(self._joins) + join) * len(self._length) + word

    def find(self, texts: Sequence[str]) -> Found:
        """Returns the mentions and watched words of ASCII captions."""
        joined = _SEPARATOR.join([_BORDER, *texts, _END])
        byte = np.frombuffer(joined.encode("ascii"), dtype=np.uint8)
        # A block that is freed immediately: glibc then keeps as much memory for the arrays below. Otherwise, it would
        # return the memory to the system after each pass and request it again, for up to half of a pass's time.
        np.empty(8 * len(byte), dtype=np.uint8)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        offsets = np.cumsum(lengths + 1) - lengths + len(_BORDER)
        starts, ends = self._words(byte)
        eight = np.ndarray(shape=len(byte) - 7, dtype="<u8", buffer=byte, strides=(1,))
        head: Ints = eight[starts]  # without _gather, which would first write all groups of eight bytes
        head |= _ONE_CASE
        head &= _gather(self._mask, ends - starts)  # longer than 8: the last, full mask
        text = _Words(byte, starts, ends, eight, head, _hash(head))
        begin, phrases = self._begins(text.slot)
        word = self._lookup(text, begin)
        first, last, label = self._walk(text, begin, word, phrases)
        start, end = starts[first], ends[last]
        watch = self._watch[word]
        at = (watch >= 0).nonzero()[0]
        return Found(
            self._columns(offsets, start, end, label),
            self._columns(offsets, starts[begin[at]], ends[begin[at]], watch[at]),
            self._look(text, end, last + 1) if self._closed.size else np.ones(len(first), dtype=bool),
            self._quoting(joined, offsets, start) if self._closed.size else [],
            self._owners(offsets, _places(joined, "?")),
            self._owners(offsets, np.sort(np.concatenate([_places(joined, mark) for mark in "[{|~/"]))),
            [],
            [],
            byte if self._is_watching else byte[:0],
            offsets,
        )

    @staticmethod
    def _quoting(joined: str, offsets: Ints, start: Ints) -> list[int]:
        """Returns the indices of the captions in which a mention lies between two nearby quotation marks."""
        marks = _places(joined, '"')
        mention = np.searchsorted(start, marks)
        near = (np.diff(marks) <= QUOTE_REACH + 1) & (np.diff(mention) > 0)
        return _TrieTables._owners(offsets, marks[:-1][near])

    @staticmethod
    def _owners(offsets: Ints, places: Ints) -> list[int]:
        """Returns the indices of the captions that contain the given positions in the joined text."""
        owner: list[int] = np.searchsorted(offsets, places, side="right").tolist()
        return [k - 1 for k in dict.fromkeys(owner)]

    def _look(self, text: _Words, end: Ints, following: Ints) -> NDArray[np.bool_]:
        """Returns a (mentions,) mask of the mentions that may be followed by a noun, or that do not end in a lower-case
        letter.

        Args:
            text: Words of the batch.
            end: End offset of each mention.
            following: Index of the word after each mention.
        """
        around = text.eight_bytes[end - 1].view(np.uint8).reshape(-1, 8)
        gap, behind = around[:, 1], around[:, 2]
        is_close = _in_range(behind | 0x20, "a", "z") | _in_range(behind, "0", "9") | (behind == ord("_"))
        look: NDArray[np.bool_] = ~_in_range(around[:, 0], "a", "z") | (is_close & (gap == ord("-")))
        rows = (is_close & (gap == ord(" "))).nonzero()[0]
        following = following[rows]
        head = text.head[following]
        slot = _hash(head)
        closed = self._closed[0][slot] == head
        longer = (closed & (head >= _FULL)).nonzero()[0]
        closed[longer] = self._closed[1][slot[longer]] == self._tails(text, following[longer])
        look[rows[~closed]] = True
        return look

    @staticmethod
    def _columns(offsets: Ints, start: Ints, end: Ints, label: Ints) -> MentionColumns:
        """Converts spans in the joined text to columns whose offsets are relative to the individual captions."""
        indptr = np.append(np.searchsorted(start, offsets), len(start))
        shift = np.repeat(offsets, np.diff(indptr))
        return MentionColumns(
            indptr, (start - shift).astype(np.int32), (end - shift).astype(np.int32), label.astype(np.int32)
        )

    @staticmethod
    def _words(byte: NDArray[np.uint8]) -> tuple[Ints, Ints]:
        """Returns the start and end of every word, determined by comparing the class of each byte with that of its
        neighbor.
        """
        inside = _in_range(byte | 0x20, "a", "z")
        inside |= _in_range(byte, "0", "9")
        inside |= byte == ord("_")
        is_border = np.zeros(len(byte), dtype=bool)
        np.not_equal(inside[1:], inside[:-1], out=is_border[1:])
        borders = is_border.nonzero()[0]
        return borders[0::2], borders[1::2]

    @staticmethod
    def _tails(text: _Words, at: Ints) -> Ints:
        """Returns the last eight bytes of lower-cased words as integers, for words of at least eight bytes."""
        tails: Ints = text.eight_bytes[text.ends[at] - 8]
        tails |= _ONE_CASE
        return tails

    def _lookup(self, text: _Words, at: Ints) -> Ints:
        """Returns the number of the vocabulary word at each position, or 0 for words outside the vocabulary. Words are
        compared in full, not only by their hashes.
        """
        head = text.head[at]

        def is_same(rows: Any, word: Ints) -> NDArray[np.bool_]:
            same: NDArray[np.bool_] = self._head[word] == head[rows]
            longer = (same & (self._length[word] >= 8)).nonzero()[0]
            same[longer] = self._is_whole(text, at[rows][longer], word[longer])
            return same

        return self._by_head.find(text.slot[at], is_same)

    def _is_whole(self, text: _Words, at: Ints, word: Ints) -> NDArray[np.bool_]:
        """Returns a mask of the words that equal the given vocabulary words. All given words must have at least eight
        bytes.
        """
        length = text.ends[at] - text.starts[at]
        same: NDArray[np.bool_] = (self._tail[word] == self._tails(text, at)) & (self._length[word] == length)
        for k in (same & (length > 16)).nonzero()[0] if self._long else ():  # the middle of very long words
            middle = text.byte[text.starts[at[k]] : text.ends[at[k]]].tobytes()
            same[k] = middle.lower() == self._long[int(word[k])]
        return same

    def _begins(self, slot: Ints) -> tuple[Ints, Ints]:
        """Returns the positions of words that may begin a match or may be watched.

        Returns:
            The positions of the words, and the indices of those positions at which an alias of several words may begin.
        """
        what = _gather(self._one, slot)
        prefix = self._prefix_hash(slot[:-1], slot[1:])
        what[:-1] &= _gather(self._two, prefix)
        what[-1:] &= _ALONE
        longer = (what & _LONGER > 0).nonzero()[0]
        three = self._prefix_hash(prefix[longer], _gather(slot, longer + 2))
        what[longer[_gather(self._three, three)]] |= _PHRASE
        begin = (what & (_ALONE | _PHRASE) > 0).nonzero()[0]
        return begin, (what[begin] & _PHRASE > 0).nonzero()[0]

    def _walk(self, text: _Words, begin: Ints, word: Ints, phrases: Ints) -> tuple[Ints, Ints, Ints]:
        """Returns the first word, last word and label id of every mention. Leftmost matches have priority, followed by
        longest matches.

        Args:
            text: Words of the batch.
            begin: Positions of the words at which a match may begin.
            word: (begin,) vocabulary number of the word at each position in ``begin``.
            phrases: Indices into ``begin`` of the positions at which an alias of several words may begin.
        """
        label, last = self._alone[word], begin.copy()
        node = self._root[word[phrases]]
        known = (node >= 0).nonzero()[0]
        active, node, following = phrases[known], node[known], begin[phrases[known]]
        while len(active):  # one step: extend every path that can go on by its next word
            following = following + 1
            goes_on = (following < len(text.slot)).nonzero()[0]
            active, node, following = active[goes_on], node[goes_on], following[goes_on]
            word = self._lookup(text, following)
            known = word.nonzero()[0]
            active, node, following, word = active[known], node[known], following[known], word[known]
            edge = self._edge_after(node, self._join(text.byte, text.ends[following - 1], text.starts[following]), word)
            exists = edge.nonzero()[0]
            active, following, node = active[exists], following[exists], self._edge_targets[edge[exists]]
            ends = self._label[node]
            ending = (ends != NO_END).nonzero()[0]
            label[active[ending]], last[active[ending]] = ends[ending], following[ending]
            inner = self._inner[node].nonzero()[0]
            active, node, following = active[inner], node[inner], following[inner]
        matched = (label != NO_END).nonzero()[0]
        begin, last, label = begin[matched], last[matched], label[matched]
        kept = (self._leftmost(begin, last) & (label >= 0)).nonzero()[0]
        return begin[kept], last[kept], label[kept]

    def _edge_after(self, node: Ints, join: Ints, word: Ints) -> Ints:
        """Returns the node that is reached from each node through a join and a word, or 0 if there is no such edge.
        There is never an edge for the join -1.
        """
        key = self._edge(node, join, word)
        edge = self._by_edge.find(_hash(key), lambda rows, edge: self._edge_keys[edge] == key[rows])
        edge[join < 0] = 0
        return edge

    def _join(self, byte: NDArray[np.uint8], left: Ints, right: Ints) -> Ints:
        """Returns the id of the join that the text between neighboring words represents, or -1 if no alias contains the
        join.
        """
        first = byte[left]
        longer = right - left > 1
        join = np.where(longer, -1, self._join_of_byte[first])
        for k in (longer & self._begins_long_join[first]).nonzero()[0]:  # rare: line breaks, double spaces
            between = byte[left[k] : right[k]].tobytes().decode("ascii")
            join[k] = self._joins.get(between if between in self._joins else join_of(between), -1)
        return join

    @staticmethod
    def _leftmost(begin: Ints, last: Ints) -> NDArray[np.bool_]:
        """Returns a mask of the matches that are kept. A match that is kept excludes all matches that
        begin inside it.
        """
        kept = np.ones(len(begin), dtype=bool)
        np.greater(begin[1:], np.maximum.accumulate(last)[:-1], out=kept[1:])  # not covered by a previous match
        # of several overlapping matches, the first is hidden by the previous match, which is kept
        rows = (~kept[1:] & ~kept[:-1]).nonzero()[0] + 1
        before, reach = -1, -1
        for k, first, final in zip(rows.tolist(), begin[rows].tolist(), last[rows].tolist(), strict=True):
            if k - 1 != before:
                reach = int(last[k - 2])
            if first > reach:
                kept[k] = True
                reach = final
            before = k
        return kept


def _places(joined: str, mark: str) -> Ints:
    """Returns all offsets at which a character occurs in a text."""
    places = []
    at = joined.find(mark)
    while at >= 0:
        places.append(at)
        at = joined.find(mark, at + 1)
    return np.array(places, dtype=np.int64)


def _in_range(byte: Ints, low: str, high: str) -> NDArray[np.bool_]:
    """Returns a mask of the bytes that lie in the range between two characters. Unsigned differences wrap around, so
    that a single comparison is sufficient.
    """
    return byte - ord(low) <= ord(high) - ord(low)
