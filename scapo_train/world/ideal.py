"""Best possible descriptions in the small world, and the guesses that increase each reward.

A picture shows the scene of an ambiguous object, but not its noun. Each noun of the scene that is not clearly visible
is a candidate. The probability that a candidate is present is ``hidden / candidates``, which is the number of ambiguous
objects divided by the number of candidates. An ideal describer names all clear objects. The describer also names the
candidates of a picture if their probability ``p`` is high enough to increase the expected reward:

- With SCAPO, the expected reward of a piece that names one new object is ``p - (1 - p)``, so the describer guesses if
  ``p > 1/2``.
- The ``cap_score`` of a response is ``F = 2 C / (G + T)`` (C correct labels, G named labels, T true labels). A further
  guess increases ``F`` if ``p > F / 2``, a threshold below 1/2. A reward by ``cap_score`` therefore leads to more
  guesses and more hallucinations.

The two rewards prefer different descriptions only if there are guesses with a probability between ``F / 2`` and
``1/2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from scapo_eval import cap_score

from .pictures import World


@dataclass(frozen=True)
class Situation:
    """Type of picture, with its probability and its numbers of clear objects, ambiguous objects and candidates."""

    probability: float
    clear: int
    hidden: int
    candidates: int

    @property
    def chance(self) -> float:
        """Probability that a candidate is present."""
        return self.hidden / self.candidates if self.candidates else 0.0


@dataclass(frozen=True)
class Ideal:
    """Rates of a describer over all pictures of a world, as fractions."""

    hal_rate: float
    cover_rate: float

    @property
    def cap_score(self) -> float:
        """Harmonic mean of ``1 - hal_rate`` and ``cover_rate``."""
        return cap_score(self.hal_rate, self.cover_rate)


def situations(world: World) -> list[Situation]:
    """Returns all types of pictures with their probabilities."""
    low, high = world.objects
    kinds = []
    for number in range(low, high + 1):
        for hidden in range(number + 1):
            clear = number - hidden
            chance = comb(number, hidden) * world.ambiguous**hidden * (1 - world.ambiguous) ** clear
            kinds.append(Situation(chance / (high - low + 1), clear, hidden, world.nouns - clear))
    return kinds


def guesser(world: World, threshold: float) -> Ideal:
    """Returns the rates of a describer that names all clear objects, and all candidates whose probability exceeds the
    threshold.
    """
    covered = named = true = 0.0
    for situation in situations(world):
        guesses = situation.candidates if situation.chance > threshold else 0
        covered += situation.probability * (situation.clear + guesses * situation.chance)
        named += situation.probability * (situation.clear + guesses)
        true += situation.probability * (situation.clear + situation.hidden)
    return Ideal(1 - covered / named, covered / true)


def best_guesser(world: World) -> tuple[float, Ideal]:
    """Returns the threshold at which a describer has the highest ``cap_score``, and the rates at this threshold."""
    thresholds = sorted({situation.chance for situation in situations(world)} - {0.0})
    tried = [(threshold - 1e-9, guesser(world, threshold - 1e-9)) for threshold in [*thresholds, 1.0]]
    return max(tried, key=lambda pair: pair[1].cap_score)


def chances(world: World) -> list[tuple[float, float]]:
    """Returns pairs (probability of a candidate, share of all ambiguous objects with this probability) in ascending
    order.
    """
    share: dict[float, float] = {}
    for situation in situations(world):
        if situation.hidden:
            share[situation.chance] = share.get(situation.chance, 0.0) + situation.probability * situation.hidden
    total = sum(share.values())
    return [(chance, share[chance] / total) for chance in sorted(share)]
