"""Near misses: words that are no aliases and nearly are ("carr", "bycicle", "cha1r").

A policy that is charged for naming what is not there may learn to misspell it. A word is a near miss of an alias if
digits in it stand for letters, if it is the alias with a letter doubled or a double one single, or, of labels' own
long names, if one letter (from seven letters on, two) differs, both begin and end alike, and it is no inflection of a
known word. Words of the vocabulary, function words, the nouns and verbs that descriptions use, and the English words
that lie so near to a common label, are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from .context import CLOSED_WORDS, FUNCTION_WORDS, PRESUPPOSING
from .visible import plain_letters, shown
from .vocabulary import Vocabulary, tokenize_alias

ONE, TWO = 6, 7
"""Letters from which on a word may differ in one letter, and in two."""

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
    planets plans plant posture postures remove removes sand scissor scoreboard scoreboards shape stain stains state
    states street tables toilets tricks trucks workplace
""".split()
)


class NearMisses:
    """Finds the near misses of the aliases of a vocabulary that are single words of ASCII letters.

    Args:
        vocabulary: labels and aliases.
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
        self._shorter: dict[str, list[str]] = {}
        for alias in self._labels:
            self._single.setdefault(_DOUBLED.sub(r"\1", alias), alias)
        names = {name for label in vocabulary.labels for name in (label.lower(), f"{label.lower()}s")}
        for alias in names & self._labels.keys():
            for shorter in _without_letters(alias):
                self._shorter.setdefault(shorter, []).append(alias)
        self._remembered: dict[str, int | None] = {}

    def find(self, texts: Sequence[str]) -> list[tuple[int, int, int]]:
        """Index of the text, start and label id of every near miss."""
        found = []
        for k, text in enumerate(texts):
            lowered = plain_letters(shown(text)).lower()
            suspects = {
                word for word in _WORD.findall(lowered) if word not in self._known and self._of_word(word) is not None
            }
            if suspects and len(lowered) == len(text):
                for match in _WORD.finditer(lowered):
                    if match.group() in suspects:
                        label = self._of_word(match.group())
                        assert label is not None
                        found.append((k, match.start(), label))
        return found

    def _of_word(self, word: str) -> int | None:
        if len(self._remembered) > _REMEMBERED:
            self._remembered.clear()
        if word not in self._remembered:
            self._remembered[word] = self._find_word(word)
        return self._remembered[word]

    def _find_word(self, word: str) -> int | None:
        """Label id of the alias that a word nearly is."""
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
        for shorter in _without_letters(word):
            for alias in self._shorter.get(shorter, ()):
                if alias[0] == word[0] and alias[-1] == word[-1] and _differs_little(word, alias):
                    return self._labels[alias]
        return None


def _without_letters(word: str) -> Iterator[str]:
    """A word of at least ONE letters without one letter, from TWO letters on also without two."""
    if len(word) < ONE:
        return
    yield word
    for n in (1, 2) if len(word) >= TWO else (1,):
        for gone in combinations(range(len(word)), n):
            yield "".join(letter for k, letter in enumerate(word) if k not in gone)


def _differs_little(word: str, alias: str) -> bool:
    """Whether two words differ in one letter, from TWO letters on in two."""
    from rapidfuzz.distance import OSA

    most = 2 if min(len(word), len(alias)) >= TWO else 1
    return bool(OSA.distance(word, alias, score_cutoff=most) <= most)


def _stems(word: str) -> Iterable[str]:
    """What a word may be an inflection of."""
    for ending in ("s", "es", "ed", "d", "ing", "er", "ers", "ly", "y", "'s"):
        if word.endswith(ending):
            yield word.removesuffix(ending)
            yield word.removesuffix(ending) + "e"
