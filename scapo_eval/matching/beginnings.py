"""Sets of letter pairs with which the matches of a regular expression can begin or end. A position in a text is checked
against these sets before the expression is tried there.

The expressions of a cue are matched next to a word. Most of them begin or end with a space and one of a few words.
Array operations therefore exclude most positions. They compare the first two letters of the next word, or the last two
letters of the preceding word, at all positions at once. The possible letters are derived from the parsed expression.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_parse: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse").parse

_LETTERS = 26
_NO_LETTER = 2 * _LETTERS
_SECOND = _NO_LETTER + 1  # second characters: letters within a word, letters that end a word, and all others

_COMMA = _LETTERS * _SECOND
OTHER = _COMMA + 1
"""Code of a place where no space and word, and no comma, follow. Nothing is decided about it."""


def _tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns two tables that map pairs of characters to the two summands of a code: one for the space and the first
    letter, and one for the next two characters.

    A sum below 0 means that the position is undecided (OTHER), and a sum of at least 10,000 means that a comma follows.
    """
    letter = np.full(256, -1)
    for k in range(_LETTERS):
        letter[[ord("a") + k, ord("A") + k]] = k
    in_word = (letter >= 0) | np.isin(np.arange(256), [*b"0123456789"])
    head = np.full((256, 256), -20_000)
    head[ord(" ")] = np.where(letter >= 0, letter * _SECOND, -20_000)
    head[ord(",")] = 20_000
    tail = np.where(letter < 0, _NO_LETTER, letter)[:, None] + _LETTERS * ((letter >= 0)[:, None] & ~in_word)
    tail[ord("_")] = tail[:, ord("_")] = -9_999  # can represent any other letter or mark
    return head, tail


_HEAD, _TAIL = _tables()
_FORWARD = _HEAD.T.astype(np.int16).ravel(), _TAIL.T.astype(np.int16).ravel()
_BACKWARD = _HEAD.astype(np.int16).ravel(), _TAIL.astype(np.int16).ravel()


def codes_at(byte: NDArray[np.uint8], at: NDArray[Any], step: int = 1) -> NDArray[np.int64]:
    """Returns the codes of positions in an ASCII text. A code represents a comma, a space and the first two letters of
    the following word, or anything else (OTHER). If ``step`` is -1, the code represents the last two letters of the
    preceding word instead.

    Args:
        byte: Text.
        at: Positions of the characters next to a word.
        step: 1 to read forward, -1 to read backward.
    """
    pairs = np.ndarray(len(byte) - 1, dtype="<u2", buffer=byte, strides=(1,))
    head, tail = _FORWARD if step > 0 else _BACKWARD
    low = at if step > 0 else at - 1
    codes: NDArray[np.int64] = head[pairs[low]].astype(np.int64)
    codes += tail[pairs[low + 2 * step]]
    codes[codes < 0] = OTHER
    codes[codes >= 10_000] = _COMMA
    return codes


@lru_cache(maxsize=1024)
def may_begin(pattern: re.Pattern[str], known: str = "") -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the codes with which a match may begin.

    Args:
        pattern: Expression.
        known: Lower-case text before the position, with which the match begins.
    """
    return _mask(pattern, _Reader(1, known=known), True)


def may_end(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the codes with which a match may end, read backward."""
    return _mask(pattern, _Reader(-1), True)


def must_end(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the codes with which a match, read backward, certainly ends."""
    return _mask(pattern, _Reader(-1, certain=True), False)


@lru_cache(maxsize=1024)
def _parsed(pattern: re.Pattern[str]) -> Any:
    return _parse(pattern.pattern, pattern.flags)


def _mask(pattern: re.Pattern[str], reader: _Reader, other: bool) -> NDArray[np.bool_]:
    codes = reader.read(_parsed(pattern), 0, reader.first, _open)
    bits = np.frombuffer(codes.to_bytes(OTHER // 8 + 1, "little"), dtype=np.uint8)
    mask = np.unpackbits(bits, bitorder="little")[: OTHER + 1].astype(bool)
    mask[OTHER] = other
    return mask


# State after each prefix. Sets of codes are integers with one bit for each code. At "x" and "x.", they are sets of
# second characters. At "y" and "y.", they state whether a word can continue (1) or end (2).
_State = str
_Codes = int
_Rest = Callable[[_State], _Codes]

_PAIRS, _COMMA_BIT, _ROW = (1 << _COMMA) - 1, 1 << _COMMA, (1 << _SECOND) - 1
_EVERY_LETTER = (1 << _LETTERS) - 1
_OPEN: dict[_State, _Codes] = {
    "start": _PAIRS | _COMMA_BIT,
    "space": _PAIRS,
    "x": _ROW,
    "x.": 1 << _NO_LETTER,
    "y": 3,
    "y.": 2,
}
_AT_BOUNDARY = {"x": "x.", "y": "y."}


class _Characters(NamedTuple):
    """A set of characters, represented by flags for the space and the comma, by bits for its letters, and by a flag
    that states whether the set may contain other characters.
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


class _Reader:
    """A reader that derives the possible codes from a parsed expression, in one direction.

    Args:
        step: 1 to read beginnings, -1 to read ends.
        certain: True to return only the codes that guarantee a match.
        known: Known text with which a match begins. A state within the known text is the number of its characters that
            follow.
    """

    def __init__(self, step: int, *, certain: bool = False, known: str = "") -> None:
        self._step, self._certain, self._known = step, certain, known
        self.first = str(len(known)) if known else "start"

    def read(self, nodes: Sequence[Any], done: int, state: _State, rest: _Rest) -> _Codes:
        """Returns the codes with which a match of a sequence can continue from a state.

        Args:
            nodes: Sequence of operations.
            done: Number of operations that have been read.
            state: State that the preceding operations have reached.
            rest: Function that returns the codes that follow the sequence.
        """
        nodes = nodes if self._step > 0 or done else [*nodes][::-1]
        if done == len(nodes):
            return rest(state)
        operation, value = nodes[done]
        name = str(operation)
        known: dict[_State, _Codes] = {}

        def onward(state: _State) -> _Codes:
            if state not in known:  # several ways lead to the same state
                known[state] = self.read(nodes, done + 1, state, rest)
            return known[state]

        if name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            characters = _characters(name, value)
            if self._certain:
                if name == "LITERAL" or (name == "IN" and any(item == ord(" ") for _, item in value)):
                    characters = characters._replace(space=False)  # another space can follow
                return _surely(characters, state, onward)
            if state.isdigit():
                return self._through_known(characters, state, onward)
            return _possibly(characters, state, onward)
        if name == "BRANCH":
            codes = 0
            for branch in value[1]:
                codes |= self.read(branch, 0, state, onward)
                if codes == _open(state):
                    break
            return codes
        if name in ("SUBPATTERN", "ATOMIC_GROUP"):
            return self.read(value[-1] if name == "SUBPATTERN" else value, 0, state, onward)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, repeated = value
            return self._repeated(least, most, repeated, state, onward)
        if name == "AT" and str(value) == "AT_BOUNDARY":
            if self._certain and state == "x":
                return 0  # a digit can follow
            if state.isdigit():
                at = len(self._known) - int(state)
                is_boundary = (not at or self._known[at - 1].isalnum()) != self._known[at].isalnum()
                return onward(state) if is_boundary else 0
            return onward(_AT_BOUNDARY.get(state, state))
        if self._certain:
            return onward(state) if name == "AT" and str(value) == "AT_END" and state == "start" else 0
        if name in ("ASSERT", "ASSERT_NOT") and value[0] == self._step:
            if name == "ASSERT":
                return self.read(value[1], 0, state, _open) & onward(state)
            if state.isdigit():
                return onward(state)
            surely = _Reader(self._step, certain=True).read(value[1], 0, state, _open)
            return onward(state) & ~surely
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return onward(state)
        return _open(state)

    def _through_known(self, characters: _Characters, state: _State, onward: _Rest) -> _Codes:
        left = int(state)
        character = self._known[len(self._known) - left]
        if character == " ":
            fits = characters.space
        elif "a" <= character <= "z":
            fits = bool(characters.letters >> ord(character) - ord("a") & 1)
        else:
            fits = characters.other
        return onward(str(left - 1) if left > 1 else "start") if fits else 0

    def _repeated(self, least: int, most: int, nodes: Sequence[Any], state: _State, rest: _Rest) -> _Codes:
        codes = 0 if least else rest(state)
        if not most or codes == _open(state):
            return codes
        known: dict[_State, _Codes] = {}

        def again(further: _State) -> _Codes:
            if further == state:
                return rest(state)
            if further not in known:
                known[further] = self._repeated(max(least - 1, 0), most - 1, nodes, further, rest)
            return known[further]

        return codes | self.read(nodes, 0, state, again)


def _open(state: _State) -> _Codes:
    return _OPEN["start" if state.isdigit() else state]


def _union(codes: Any) -> _Codes:
    union = 0
    for part in codes:
        union |= part
    return union


def _possibly(characters: _Characters, state: _State, onward: _Rest) -> _Codes:
    """Returns the codes that are possible after one character from a set."""
    space, comma, letters, other = characters
    if state in ("space", "x"):
        codes = _surely(characters, state, onward)
        return codes | 1 << _NO_LETTER if state == "x" and (space or comma or other) else codes
    if state == "y":
        return bool(letters) | 2 * (space or comma) | 3 * other
    if state != "start":
        return _OPEN[state] if space or comma or other else 0
    return (_COMMA_BIT if comma else 0) | (onward("space") if space else 0)


def _surely(characters: _Characters, state: _State, onward: _Rest) -> _Codes:
    """Returns the codes that are certain after one character of a set."""
    letters = [k for k in range(_LETTERS) if characters.letters >> k & 1]
    if state == "start":
        return onward("space") if characters.space else 0
    if state == "space":
        row = onward("x") if letters else 0
        return _union(row << k * _SECOND for k in letters)
    if state == "x":
        ways = onward("y") if letters else 0
        return _union((ways & 1) << k | (ways >> 1) << k + _LETTERS for k in letters)
    return 0


def _characters(name: str, value: Any) -> _Characters:
    if name == "ANY":
        return _Characters(True, True, _EVERY_LETTER)
    if name == "LITERAL":
        character = chr(value).lower()
        is_letter = "a" <= character <= "z"
        letters = 1 << ord(character) - ord("a") if is_letter else 0
        other = not is_letter and character not in " ,"
        return _Characters(character == " ", character == ",", letters, other)
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
