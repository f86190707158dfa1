"""The words of many captions as codes, to which the claim rules are applied.

Words that no rule distinguishes have the same code. Each word in the lists of ``cues.yaml`` has its own code. Any other
word has the code of its form. The form states the word's ending and whether the word consists of letters. Each code is
represented by a word with this code, so that the rules compare words rather than numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cues import shipped_claim_cues

AHEAD = 8
"""Number of empty words between two captions, more than any rule looks ahead."""

ANCHORS = frozenset(
    "left right background distance foreground center centre middle top bottom image picture photo photograph frame "
    "scene".split()
)
"""Nouns in phrases for a position in the image."""

READ_BY_RULES = frozenset(
    (*", . ! ? ; : \" “ ” ' – - # $".split(), "\n", "\n\n")
    + ("because", "called", "camera", "color", "colour", "constructed", "frame", "him", "hue", "if", "known", "often")
    + ("others", "pairs", "photographer", "relatively", "resembling", "shade", "slightly", "specifically", "them")
    + ("air", "blend", "combination", "opposite", "tones")
    + ("colors", "see", "viewer", "ward", "we", "well", "what", "whose", "you")
)
"""Words that the rules compare with, in addition to the lists of ``cues.yaml``."""

_WORD_BYTE, _LINE_BYTE, _MARK_BYTE, _OWNER_S = (
    1,
    2,
    3,
    4,
)  # classes of bytes; a possessive s belongs to the apostrophe before it
_OTHER = {"“": "\x02", "”": "\x03", "–": "\x04", "’": "\x06"}  # bytes that replace characters outside ASCII
_TOKEN = re.compile(
    r"([a-z0-9_QZ]+(?:(?!(?<=[0-9])-[0-9])-[a-z0-9_QZ]+)*|['\x06]s(?![a-z0-9_QZ])|[^a-z0-9_QZ \t\r\f\v\n*]|\n+)"
)


class Tokens(NamedTuple):
    """The words of a batch of captions, with AHEAD empty words before, between and after the captions.

    Attributes:
        lowered: The captions in lower case, separated by AHEAD NUL characters. Every character is mapped to a single
            ASCII character.
        base: (captions,) offset of each caption in ``lowered``.
        code: (words,) code of each word. The code of an empty word is 0.
        start, end: (words,) span of each word in ``lowered``.
    """

    lowered: str
    base: NDArray[np.int64]
    code: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


@cache
def _stand_in(character: str) -> str:
    """Returns an ASCII character that the rules treat like a given character outside ASCII.

    A letter becomes _LETTER, and another word character becomes _WORD.
    """
    lower = character.lower()
    if character.isspace():
        return " "
    if len(lower) == 1 and lower.isascii():
        return lower
    return _OTHER.get(character) or (_LETTER if lower.isalpha() else _WORD if character.isalnum() else "\x01")


_LETTER, _WORD = "\x05", "\x07"
_LOWERED = bytes(range(256)).lower().replace(_LETTER.encode(), b"Q").replace(_WORD.encode(), b"Z")
"""Table of the lower-case bytes. Lower-case text contains neither Q nor Z."""
_REPLACED = re.compile("[^\\x00-\\x1b\\x20-\\x7f]")
_RESERVED = "\0\x02\x03\x04\x06" + _LETTER + _WORD


def _lowered(texts: Sequence[str]) -> bytearray:
    """Returns the texts in lower-case ASCII, with AHEAD NUL characters before, between and after them. The lengths of
    the texts do not change.
    """
    together = "".join(texts)
    for character in filter(together.__contains__, _RESERVED):
        texts = [text.replace(character, "\x01") for text in texts]
    if not together.isascii():
        texts = [text if text.isascii() else _in_ascii(text) for text in texts]
    return bytearray(("\0" * AHEAD).join(["", *texts, ""]), "ascii").translate(_LOWERED)


def _in_ascii(text: str) -> str:
    for character in {*_REPLACED.findall(text)}:
        text = text.replace(character, _stand_in(character))
    return text


class Codes:
    """Table of the codes of words.

    Attributes:
        words: Representative of each code.
        of_word: Mapping from each word in ``words``, spelled as in ``Tokens.lowered``, to its code.
    """

    def __init__(self) -> None:
        cues = shipped_claim_cues()
        lists = [*cues.sets.values(), *cues.words.values(), READ_BY_RULES, ANCHORS]
        known = {part for words in lists for word in words for part in (word.split() or [word])} - {""}
        self._colors = {word for word, (cue, _) in cues.words["attributes"].items() if cue.category == "color"}
        self._shades = cues.sets["shades"]
        endings = ("", "ing", "ed", "ly", "ward", "short ing", "short ly")
        plain = [_of_form(first, ending) for first in _FIRSTS for ending in endings]
        dashed = [f"{first}-q" for first in ("q", "_", *ANCHORS)] + [f"light-{color}" for color in self._colors]
        forms = [word + ending for word in dashed for ending in ("", "ing", "ed", "ly", "ward")]
        forms += [f"{color}-{end}" for color in self._colors for end in ("brown", "colored")]
        forms += [f"light-{color}-colored" for color in self._colors] + ["q-ly", "_-ly"]
        self.words = ["", *sorted(known), *sorted({*plain, *forms, "%"} - known)]
        self.of_word = {"\0": 0, **{_spelled(word): code for code, word in enumerate(self.words) if code}}
        self.of_word |= {"\x06": self.of_word["'"], "\x06s": self.of_word["'s"]}
        self._by_form = np.array([self.of_word[word] for word in plain]).reshape(len(_FIRSTS), len(endings))
        spelled = {word: code for word, code in self.of_word.items() if self.words[code] in known or not code}
        raw = [word.encode() for word in spelled]  # at most 16 bytes each, so that their ends distinguish them
        self._entry_code = np.fromiter(spelled.values(), dtype=np.int64)
        self._length = np.fromiter(map(len, raw), dtype=np.int64)
        self._head = np.array([word[:8] for word in raw], dtype="S8").view("<u8")
        self._tail = np.array([word[-8:] if len(word) > 8 else b"" for word in raw], dtype="S8").view("<u8")
        rng, slots = np.random.default_rng(0), np.zeros(2, dtype=np.int64)
        while len(np.unique(slots)) < len(slots):  # until no two words of the lists have the same place in the table
            self._factors = rng.integers(1, 1 << 63, size=2, dtype=np.uint64) | np.uint64(1)
            slots = self._slots(self._head, self._tail)
        self._entry = np.zeros(1 << _BITS, dtype=np.int16)
        self._entry[slots] = np.arange(len(slots))

    def _slots(self, head: NDArray[np.uint64], tail: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the positions of words in the hash table, given the first eight bytes of each word and, for longer
        words, the last eight bytes.
        """
        hashed: NDArray[np.uint64] = (head * self._factors[0] + tail * self._factors[1]) >> np.uint64(64 - _BITS)
        return hashed.view(np.int64)

    def of(self, word: str) -> int:
        """Returns the code of a lower-case word."""
        code = self.of_word.get(word)
        return self.of_word[self._stand(word)] if code is None else code

    @lru_cache(maxsize=1 << 14)  # noqa: B019 (there is one object, which lives as long as the process)
    def _stand(self, word: str) -> str:
        """Returns the representative of a word that no list contains."""
        if word[0] == "\n":
            return "\n\n"
        ending = next((end for end in ("ing", "ed", "ly", "ward", "wards") if word.endswith(end)), "").rstrip("s")
        if "-" in word[1:]:
            color = self.color_in(word)
            if color:
                tried = (f"{color}-brown", f"{color}-colored", f"light-{color}", f"light-{color}-colored")
                return next(w for w in tried if self.color_in(w) == color and w.endswith("ed") == (ending == "ed"))
            first = word.split("-")[0]
            first = first if first in ANCHORS else "_" if word[0] == "_" else "q"
            if len(word) < 5:
                return f"{first}-ly" if ending == "ly" else f"{first}-q"
            return f"{first}-q{ending}"
        if not (word[0].isalnum() or word[0] == "_"):
            return "%"
        first = "q" if word.isalpha() and "Z" not in word else "_" if word[0] == "_" else "0"
        if len(word) < 5:
            ending = f"short {ending}" if ending in ("ing", "ly") else ""
        return _of_form(first, ending)

    def color_in(self, word: str) -> str:
        """Returns the color in a hyphenated word such as "light-brown" or "brown-colored".

        The result is empty for all other words.
        """
        if "-" not in word:
            return ""
        parts = [part for part in word.split("-") if part not in ("colored", "coloured")]
        named = [part for part in parts if part not in self._shades] or parts[-1:]
        return named[0] if named and self._colors.issuperset(named) else ""

    def of_spans(
        self,
        byte: NDArray[np.uint8],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        odd: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Returns the code of each word in a lower-case text.

        Args:
            byte: Text in ASCII, with at least eight bytes before the first and after the last word.
            start, end: (words,) span of each word.
            odd: Positions of the bytes in words that are not letters.
        """
        eight = np.ndarray(shape=len(byte) - 7, dtype="<u8", buffer=byte, strides=(1,))
        length = end - start
        head = eight[start] & _MASK.take(length, mode="clip")
        longer = np.flatnonzero(length > 8)
        tail = np.zeros(len(head), dtype=np.uint64)
        tail[longer] = eight[end[longer] - 8]
        entry = self._entry.take(self._slots(head, tail))
        same = self._head.take(entry) == head
        of_longer = entry[longer]
        same[longer] &= (self._tail[of_longer] == tail[longer]) & (self._length[of_longer] == length[longer])
        code = self._entry_code.take(entry)
        rest = np.flatnonzero(~same)
        code[rest] = self._of_rest(byte, eight, start[rest], end[rest], odd)
        return code

    def _of_rest(
        self,
        byte: NDArray[np.uint8],
        eight: NDArray[np.uint64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        odd: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Returns the codes of words that are in no list."""
        is_alpha = np.ones(len(start), dtype=bool)
        within = np.searchsorted(end, odd, side="right")
        is_alpha[within[np.append(start, len(byte))[within] <= odd]] = False
        last = eight[end - 8]  # bytes of the word in reverse order
        is_long = end - start > 4
        ending = np.zeros(len(start), dtype=np.int64)
        for spelled, number, short in _ENDINGS:
            found = np.flatnonzero(last >> np.uint64(64 - 8 * len(spelled)) == _integer(spelled))
            found = found[(end - start)[found] >= len(spelled)]
            ending[found] = np.where(is_long[found], number, short)
        first = byte[start]
        kind = np.where(is_alpha, 0, np.where(first == ord("_"), 2, 1))
        code: NDArray[np.int64] = self._by_form[kind, ending]
        of_first = _CLASS.take(first)
        code[of_first == _MARK_BYTE] = self.of_word["%"]
        code[of_first == _LINE_BYTE] = self.of_word["\n\n"]
        for k in np.flatnonzero(~is_alpha).tolist():
            code[k] = self.of(byte[start[k] : end[k]].tobytes().decode("ascii"))
        return code


@cache
def codes() -> Codes:
    """Returns the codes of the words in the shipped lists."""
    return Codes()


_FIRSTS = ("q", "0", "_")
_ENDINGS = ((b"ing", 1, 5), (b"ed", 2, 0), (b"ly", 3, 6), (b"ward", 4, 0), (b"wards", 4, 0))
"""Endings with their numbers for words with more than four letters, and for others."""
_BITS = 20  # of a place in the hash table: with 17, some 100,000 random factors were tried for 1,700 words
_MASK = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_CLASS = np.array([_MARK_BYTE] * 256, dtype=np.uint8)
_CLASS[[*b" \t\r\f\v*"]] = 0
_CLASS[[*b"abcdefghijklmnopqrstuvwxyz0123456789_QZ"]] = _WORD_BYTE
_CLASS[ord("\n")] = _LINE_BYTE
_CLASSES = _CLASS.tobytes()
_IS_DIGIT = np.isin(np.arange(256), [*b"0123456789"])


def _of_form(first: str, ending: str) -> str:
    """Returns the representative of a form."""
    short = ending.startswith("short ")
    ending = ending.removeprefix("short ")
    return first + "q" * (4 - short - len(ending) if short else 4) + ending


def _integer(spelled: bytes) -> int:
    return int.from_bytes(spelled, "little")


def _spelled(word: str) -> str:
    return "".join(_OTHER.get(character, character) for character in word)


def tokens_of(texts: Sequence[str]) -> Tokens:
    """Returns the words of a batch of captions."""
    raw = _lowered(texts)
    lowered = raw.decode("ascii")
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    base = np.cumsum(lengths + AHEAD) - lengths
    if len(texts) < _FEW:
        spans = [(match.start(), match.end()) for match in _TOKEN.finditer(lowered)]
        of_word, of = codes().of_word, codes().of
        code = np.array([of_word[w] if w in of_word else of(w) for w in (lowered[a:b] for a, b in spans)])
        start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        return Tokens(lowered, base, code.astype(np.int64), start, end)
    raw += b" " * 8
    byte, kind = np.frombuffer(raw, dtype=np.uint8), np.frombuffer(raw.translate(_CLASSES), dtype=np.uint8)
    np.empty(32 * len(byte), dtype=np.uint8)  # reserves memory for the arrays of the batch, as in matcher_batch.py
    is_word = kind == _WORD_BYTE
    dash = np.flatnonzero(byte == ord("-"))
    dash = dash[~(_IS_DIGIT.take(byte[dash - 1]) & _IS_DIGIT.take(byte[dash + 1]))]  # "2-3 dogs" are two numbers
    owner = np.flatnonzero((byte[:-2] == ord("'")) | (byte[:-2] == ord("\x06")))
    owner = owner[(byte[owner + 1] == ord("s")) & ~is_word[owner + 2]]
    kind[owner + 1] = _OWNER_S
    kind[dash[(kind[dash - 1] == _WORD_BYTE) & is_word[dash + 1]]] = _WORD_BYTE
    changes = kind[1:] != kind[:-1]
    is_mark = kind == _MARK_BYTE
    begins = np.empty(len(kind), dtype=bool)
    begins[0] = True
    np.logical_or(changes, is_mark[1:], out=begins[1:])
    begins &= (kind > 0) & (kind != _OWNER_S)
    closes = np.empty(len(kind), dtype=bool)
    closes[-1] = True
    np.logical_or(changes, is_mark[:-1], out=closes[:-1])
    closes &= kind > 0
    closes[owner] = False
    start, end = np.flatnonzero(begins), np.flatnonzero(closes) + 1
    odd = np.flatnonzero((byte < ord("a")) & (byte != ord("Q")) & (kind == _WORD_BYTE))
    return Tokens(lowered, base, codes().of_spans(byte, start, end, odd), start, end)


_FEW = 32
"""Number of captions below which an expression splits them faster than NumPy."""
