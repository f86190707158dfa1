"""Fluency judge that is independent of the reference model. The judge is an n-gram model of captions that were not used
to train any other model.

The judge uses neither the grammar of the world (``language.fluency``) nor the reference model. The judge counts single
words, pairs of words and triples of words, and treats all object names as the same word. A sentence is fluent if the
probability of its least probable word is at least a threshold that 99.5 % of genuine sentences reach. An incomplete
last sentence is also judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from .language import vocabulary
from .pictures import World, draw_scene
from .pretrain import caption_of

_WORD = re.compile(r"\w+|[^\w\s]")
_BEGIN = ("", "")
_WEIGHTS = (0.6, 0.25, 0.1, 0.05)
"""Weights of the estimates by two words before, one, none, and of a word that was never seen."""

_UNSEEN = 1e-4
_CAPTIONS, _SEED, _GENUINE = 1500, 777, 0.995


class Judge:
    """Trigram model of captions.

    Args:
        texts: Captions whose words are counted.
        held_out: Captions from which the threshold for fluent sentences is computed.
        names: Object names, with synonyms and plural forms.
    """

    def __init__(self, texts: Sequence[str], held_out: Sequence[str], names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.counts = tuple(Counter[tuple[str, ...]]() for _ in range(3))
        self.contexts = tuple(Counter[tuple[str, ...]]() for _ in range(3))
        for words in self._sentences(texts):
            for k in range(2, len(words)):
                for before in range(3):
                    context = words[k - before : k]
                    self.counts[before][words[k - before : k + 1]] += 1
                    self.contexts[before][context] += 1
        self.highest = float(np.quantile([self.surprisal(words) for words in self._sentences(held_out)], _GENUINE))

    def surprisal(self, words: tuple[str, ...]) -> float:
        """Returns the surprisal of a sentence's least probable word, in nats.

        Args:
            words: Words of the sentence, preceded by two empty words.
        """
        return max(-float(np.log(self._chance(words, k))) for k in range(2, len(words)))

    def _chance(self, words: tuple[str, ...], k: int) -> float:
        chance = _WEIGHTS[3] * _UNSEEN
        for weight, before in zip(_WEIGHTS, (2, 1, 0), strict=False):
            context = words[k - before : k]
            chance += weight * self.counts[before][words[k - before : k + 1]] / max(1, self.contexts[before][context])
        return chance

    def fluent(self, texts: Sequence[str]) -> float | None:
        """Returns the share of sentences that are fluent, or None if the texts contain no sentences."""
        verdicts = [self.surprisal(words) <= self.highest for words in self._sentences(texts)]
        return sum(verdicts) / len(verdicts) if verdicts else None

    def _sentences(self, texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yields the words of each sentence, preceded by two empty words and including the period.

        If the last sentence has no period, an end marker replaces the period.
        """
        for text in texts:
            for sentence in re.findall(r"[^.]+\.?", text.strip()):
                words = ("<name>" if word in self.names else word for word in _WORD.findall(sentence))
                yield (*_BEGIN, *words, *(() if sentence.endswith(".") else ("</s>",)))


@lru_cache(maxsize=4)
def judge_of(world: World) -> Judge:
    """Returns a judge for a world. The judge's counts come from captions on which no start model was trained."""
    random = np.random.default_rng([_SEED, 5])
    texts = [caption_of(world, draw_scene(world, random), random) for _ in range(2 * _CAPTIONS)]
    return Judge(texts[:_CAPTIONS], texts[_CAPTIONS:], vocabulary(world).aliases)
