"""A judge of fluency that is not the reference model: an n-gram model of other captions.

The grammar (``language.fluency``) knows what the world can say, and the reference model was taught it. This judge is
neither: it counts words, pairs and triples of words in captions that no model was taught, all names of objects as one
word, and calls a sentence fluent if its least likely word is as likely as in 995 of 1,000 genuine sentences. The last
sentence counts even if it breaks off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from .language import caption, vocabulary
from .pictures import World, draw_scene

_WORD = re.compile(r"\w+|[^\w\s]")
_BEGIN = ("", "")
_WEIGHTS = (0.6, 0.25, 0.1, 0.05)
"""Weights of the estimates by two words before, one, none, and of a word that was never seen."""

_UNSEEN = 1e-4
_CAPTIONS, _SEED, _GENUINE = 1500, 777, 0.995
_NAMES = frozenset(vocabulary().aliases)


class Judge:
    """A model of three words in a row.

    Args:
        texts: captions that it counts.
        held_out: captions that set its threshold.
    """

    def __init__(self, texts: Sequence[str], held_out: Sequence[str]) -> None:
        self.counts = tuple(Counter[tuple[str, ...]]() for _ in range(3))
        self.contexts = tuple(Counter[tuple[str, ...]]() for _ in range(3))
        for words in _sentences(texts):
            for k in range(2, len(words)):
                for before in range(3):
                    context = words[k - before : k]
                    self.counts[before][words[k - before : k + 1]] += 1
                    self.contexts[before][context] += 1
        self.highest = float(np.quantile([self.surprisal(words) for words in _sentences(held_out)], _GENUINE))

    def surprisal(self, words: tuple[str, ...]) -> float:
        """Returns the surprisal of a sentence's least likely word, in nats.

        Args:
            words: the words, after two empty ones.
        """
        return max(-float(np.log(self._chance(words, k))) for k in range(2, len(words)))

    def _chance(self, words: tuple[str, ...], k: int) -> float:
        chance = _WEIGHTS[3] * _UNSEEN
        for weight, before in zip(_WEIGHTS, (2, 1, 0), strict=False):
            context = words[k - before : k]
            chance += weight * self.counts[before][words[k - before : k + 1]] / max(1, self.contexts[before][context])
        return chance

    def fluent(self, texts: Sequence[str]) -> float | None:
        """Returns the share of fluent sentences; None if there is no sentence."""
        verdicts = [self.surprisal(words) <= self.highest for words in _sentences(texts)]
        return sum(verdicts) / len(verdicts) if verdicts else None


def _sentences(texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields the words of each sentence after two empty ones, with its period; the end of a text has one, too."""
    for text in texts:
        for sentence in re.findall(r"[^.]+\.?", text.strip()):
            words = ("<name>" if word in _NAMES else word for word in _WORD.findall(sentence))
            yield (*_BEGIN, *words, *(() if sentence.endswith(".") else ("</s>",)))


@lru_cache(maxsize=4)
def judge_of(world: World) -> Judge:
    """Returns the judge of a world, whose captions no start model was taught."""
    random = np.random.default_rng([_SEED, 5])
    texts = [caption(world, draw_scene(world, random), random) for _ in range(2 * _CAPTIONS)]
    return Judge(texts[:_CAPTIONS], texts[_CAPTIONS:])
