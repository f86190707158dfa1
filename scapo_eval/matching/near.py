"""Detection of near misses, which are misspelled aliases such as "carr", "bycicle" and "cha1r".

A policy that is penalized for naming absent objects may learn to misspell their names. A word is a near miss of an
alias in the following three cases:

- Digits in the word replace letters of the alias.
- A letter of the alias is doubled in the word, or a double letter of the alias is single in the word.
- The alias is a label's name with at least seven letters, and the word is similar to the name. A word is similar to a
  name if it differs from the name in one letter, or contains the same letters in another order. In addition, the first
  and last letters must agree, and the word must not be an inflection of a known word.

Known words are never near misses. Known words are the words of the vocabulary, function words, nouns and verbs that are
common in descriptions, and English words that resemble a common label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..base.text import lower_in_place
from .context import CLOSED_WORDS, FUNCTION_WORDS, PRESUPPOSING
from .visible import plain_letters, shown
from .vocabulary import Vocabulary, tokenize_alias

LONG = 7
"""Minimum length of a label's name for which a word that differs in one letter is a near miss."""

_DIGITS = [str.maketrans("01345789", letters) for letters in ("oieastbg", "oleastbg")]
_WORD = re.compile(r"[^\W_]{3,}")
_REMEMBERED = 1 << 15  # words
_DOUBLED = re.compile(r"([a-z])\1+")


_ENGLISH = frozenset(
    """
    airline airlines binding bindings bracket breaks bridle carries cartons chocks cluster clusters clutching clutter
    coaster cutters defines divides elegant footrests pillars planks situation streaks toilettes
    backhand bandana bandanas basses battle battles better bitter bottom bottoms bowel bowels brooch busses butter
    castle
    certain chars clocks collage curtain dinning forks graphs harness hose hoses knifes panting picture pictures planet
    planets plans plant posture postures remove removes sand scissor beaches bunches caches
    coaches crouches parsons prisons scoreboard scoreboards shape stain stains state
    states street tables toilets tricks trucks workplace
""".split()
)


class NearMisses:
    """A detector for near misses of single-word ASCII aliases.

    Args:
        vocabulary: Vocabulary with the labels and aliases.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        words = {
            word
            for alias in (*vocabulary.aliases, *vocabulary.ignore, *vocabulary.compounds)
            for word in tokenize_alias(alias)[::2]
        }
        self._known = words | _ENGLISH | FUNCTION_WORDS | PRESUPPOSING | set(CLOSED_WORDS)
        self._labels = {
            alias.lower(): vocabulary.label_ids[label]
            for alias, label in vocabulary.aliases.items()
            if alias.isascii() and alias.isalpha() and len(alias) > 2
        }
        self._single: dict[str, str] = {}
        self._long: dict[str, list[str]] = {}
        for alias in self._labels:
            self._single.setdefault(_DOUBLED.sub(r"\1", alias), alias)
        labels = [label.lower() for label in vocabulary.labels]
        names = sorted({*labels, *(f"{label}s" for label in labels)} & self._labels.keys())  # the first of two decides
        for alias in names:
            for key in _keys(alias) if len(alias) >= LONG else ():
                self._long.setdefault(key, []).append(alias)
        self._lengths = range(LONG - 1, max(map(len, names), default=0) + 2)
        self._ends = {
            first + last for alias in self._labels for first in _spellings(alias[0]) for last in _spellings(alias[-1])
        }
        self._remembered: dict[str, int | None] = {}

    def find(self, texts: Sequence[str]) -> list[tuple[int, int, int]]:
        """Returns the text index, the start offset and the label id of every near miss."""
        misses = []
        for k, text in enumerate(texts):
            lowered = lower_in_place(plain_letters(shown(text)))
            suspects = {
                word
                for word in _WORD.findall(lowered)
                if word[0] + word[-1] in self._ends and word not in self._known and self._of_word(word) is not None
            }
            if suspects:
                for match in _WORD.finditer(lowered):
                    if match.group() in suspects:
                        label = self._of_word(match.group())
                        assert label is not None
                        misses.append((k, match.start(), label))
        return misses

    def _of_word(self, word: str) -> int | None:
        if len(self._remembered) > _REMEMBERED:
            self._remembered.clear()
        found = self._remembered.get(word, -1)
        if found == -1:
            found = self._remembered[word] = self._find_word(word)
        return found

    def _find_word(self, word: str) -> int | None:
        """Returns the label id of the alias that a word misspells, or None if the word is not a near miss."""
        if not word.isascii():
            return None
        if not word.isalpha():
            if not any(map(str.isalpha, word)):
                return None
            spelled = (word.translate(table) for table in _DIGITS)
            return next((self._labels[plain] for plain in spelled if plain in self._labels), None)
        alias = self._single.get(_DOUBLED.sub(r"\1", word))
        if alias is not None and alias[0] == word[0]:
            return self._labels[alias]
        if any(stem in self._known for stem in _stems(word)):
            return None
        for key in _keys(word) if len(word) in self._lengths else ():  # a word has as many keys as letters
            for alias in self._long.get(key, ()):
                if alias[0] == word[0] and alias[-1] == word[-1] and _differ_little(word, alias):
                    return self._labels[alias]
        return None


def _spellings(letter: str) -> str:
    """Returns a letter, followed by the digits that replace it."""
    return letter + "".join(chr(digit) for table in _DIGITS for digit, plain in table.items() if chr(plain) == letter)


def _keys(word: str) -> Iterator[str]:
    """Yields keys of a word. Two words have a key in common if they differ in one letter or only in the order of their
    letters.
    """
    yield from (word[:k] + word[k + 1 :] for k in range(len(word)))
    yield word
    yield "".join(["=", *sorted(word)])


def _differ_little(word: str, alias: str) -> bool:
    """Returns True if two words differ in at most one letter, or only in the order of their letters."""
    from rapidfuzz.distance import OSA

    return sorted(word) == sorted(alias) or bool(OSA.distance(word, alias, score_cutoff=1) <= 1)


def _stems(word: str) -> Iterable[str]:
    """Yields the possible stems of an inflected word."""
    for ending in ("s", "es", "ed", "d", "ing", "er", "ers", "ly", "y"):
        if word.endswith(ending):
            yield word.removesuffix(ending)
            yield word.removesuffix(ending) + "e"
