"""The letters with which matches of an expression begin or end, to decide about places before an expression is tried.

The expressions of the cues match next to a word and mostly continue with a space and one of a few words. The two
letters after the space therefore exclude most places, and an array operation compares them for all places at once. The
letters are read from the expression.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_parse: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse").parse

LETTERS = 26
SECOND = LETTERS + 1
"""Number of second characters: the letters, and one for all other characters."""

COMMA = LETTERS * SECOND
"""Code of a place with a comma in place of the space."""

OTHER = COMMA + 1
"""Code of all other places. Nothing is decided about them."""

_ROW = (1 << SECOND) - 1
_PAIRS = (1 << COMMA) - 1
_EVERY_LETTER = (1 << LETTERS) - 1

_Codes = int  # a set of codes, one bit for each
_Prefix = tuple[int, ...]  # what has been read: nothing, (-1,) for a space, or (-1, letter)
_Rest = Callable[[_Prefix], _Codes]


class _Characters(NamedTuple):
    """A set of characters: whether it contains the space and the comma, its letters as bits, and whether it may
    contain others.
    """

    space: bool
    comma: bool
    letters: int
    other: bool = True


_CATEGORIES = {
    "SPACE": _Characters(True, False, 0),
    "NOT_SPACE": _Characters(False, True, _EVERY_LETTER),
    "WORD": _Characters(False, False, _EVERY_LETTER),
    "NOT_WORD": _Characters(True, True, 0),
    "DIGIT": _Characters(False, False, 0),
    "NOT_DIGIT": _Characters(True, True, _EVERY_LETTER),
}


def codes_at(byte: NDArray[np.uint8], at: NDArray[np.int64], step: int = 1) -> NDArray[np.int64]:
    """Returns the codes of places in ASCII text: a space and the two characters behind it, or before it.

    Args:
        byte: Text.
        at: Positions of the spaces.
        step: 1 to read forward, -1 to read backward.
    """
    first = (byte[at + step] | 0x20) - ord("a")  # wraps for what comes before "a"
    second = (byte[at + 2 * step] | 0x20) - ord("a")
    codes: NDArray[np.int64] = first * np.int64(SECOND) + np.minimum(second, LETTERS)
    head = byte[at]
    unclear = (head != ord(" ")) | (first >= LETTERS) | (byte[at + 2 * step] == ord("_"))  # for any other letter
    codes[unclear] = OTHER
    codes[head == ord(",")] = COMMA
    return codes


def may_begin(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the places at which a match may begin."""
    return _mask(pattern, _Reader(1), True)


def may_end(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the places at which a match may end, read backward."""
    return _mask(pattern, _Reader(-1), True)


def must_end(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the places at which a match ends in any case, read backward."""
    return _mask(pattern, _Reader(-1, certain=True), False)


def _mask(pattern: re.Pattern[str], reader: _Reader, other: bool) -> NDArray[np.bool_]:
    codes = reader.read(_parse(pattern.pattern, pattern.flags), 0, (), _open)
    bits = np.frombuffer(codes.to_bytes(OTHER // 8 + 1, "little"), dtype=np.uint8)
    mask = np.unpackbits(bits, bitorder="little")[: OTHER + 1].astype(bool)
    mask[OTHER] = other
    return mask


def _open(prefix: _Prefix) -> _Codes:
    """Returns all codes with a prefix."""
    if not prefix:
        return _PAIRS | 1 << COMMA
    return _ROW << (prefix[1] * SECOND) if len(prefix) == 2 else _PAIRS


class _Reader:
    """A reader of parsed expressions in one direction.

    Args:
        step: 1 to read beginnings, -1 to read ends.
        certain: True to omit codes for which the rest of the text decides.
    """

    def __init__(self, step: int, *, certain: bool = False) -> None:
        self._step, self._certain = step, certain

    def read(self, nodes: Sequence[Any], done: int, prefix: _Prefix, rest: _Rest) -> _Codes:
        """Returns the codes of the matches of a sequence that continue after a prefix.

        Args:
            nodes: Sequence of operations.
            done: Number of operations that have been read.
            prefix: Characters that have been read.
            rest: Function that returns the codes of what follows the sequence.
        """
        if done == len(nodes):
            return rest(prefix)
        operation, value = nodes[done if self._step > 0 else len(nodes) - 1 - done]
        name = str(operation)

        def onward(prefix: _Prefix) -> _Codes:
            return self.read(nodes, done + 1, prefix, rest)

        if name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            return self._consumed(_characters(name, value), prefix, onward)
        if name == "BRANCH":
            return _union(self.read(branch, 0, prefix, onward) for branch in value[1])
        if name in ("SUBPATTERN", "ATOMIC_GROUP"):
            return self.read(value[-1] if name == "SUBPATTERN" else value, 0, prefix, onward)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, repeated = value
            return self._repeated(least, most, repeated, prefix, onward)
        if self._certain:
            return onward(prefix) if not prefix and str(value) == "AT_END" else 0
        if name == "ASSERT" and value[0] == self._step:
            return self.read(value[1], 0, prefix, _open) & onward(prefix)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return onward(prefix)
        return _open(prefix)

    def _repeated(self, least: int, most: int, nodes: Sequence[Any], prefix: _Prefix, rest: _Rest) -> _Codes:
        codes = 0 if least else rest(prefix)
        if not most:
            return codes

        def again(longer: _Prefix) -> _Codes:
            if longer == prefix:
                return rest(prefix)
            return self._repeated(max(least - 1, 0), most - 1, nodes, longer, rest)

        return codes | self.read(nodes, 0, prefix, again)

    def _consumed(self, characters: _Characters, prefix: _Prefix, onward: _Rest) -> _Codes:
        """Returns the codes after one character of a set."""
        if not prefix:
            codes = onward((-1,)) if characters.space else 0
            # what is behind a comma is not read
            return codes | 1 << COMMA if characters.comma and not self._certain else codes
        if len(prefix) == 1:
            return _union(onward((-1, letter)) for letter in range(LETTERS) if characters.letters >> letter & 1)
        if self._certain:
            return 0
        second = characters.letters | characters.other << LETTERS
        return second << (prefix[1] * SECOND)


def _union(codes: Any) -> _Codes:
    union = 0
    for part in codes:
        union |= part
    return union


def _characters(name: str, value: Any) -> _Characters:
    if name == "ANY":
        return _Characters(True, True, _EVERY_LETTER)
    if name == "LITERAL":
        character = chr(value).lower()
        is_letter = "a" <= character <= "z"
        letters = 1 << ord(character) - ord("a") if is_letter else 0
        return _Characters(character == " ", character == ",", letters, not is_letter)
    if name == "NOT_LITERAL":
        return _without(_characters("LITERAL", value))
    is_negated = str(value[0][0]) == "NEGATE"
    parts = [_item(str(operation), item) for operation, item in value[is_negated:]]
    letters = _union(part.letters for part in parts)
    inside = _Characters(any(part.space for part in parts), any(part.comma for part in parts), letters)
    return _without(inside) if is_negated else inside


def _without(characters: _Characters) -> _Characters:
    return _Characters(not characters.space, not characters.comma, _EVERY_LETTER & ~characters.letters)


def _item(name: str, item: Any) -> _Characters:
    if name == "LITERAL":
        return _characters(name, item)
    if name == "CATEGORY":
        return _CATEGORIES[str(item).removeprefix("CATEGORY_")]
    low, high = item  # RANGE
    inside = {chr(k).lower() for k in range(low, min(high, 127) + 1)}
    letters = _union(1 << ord(c) - ord("a") for c in inside if "a" <= c <= "z")
    return _Characters(" " in inside, "," in inside, letters)
