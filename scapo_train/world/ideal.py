"""Computes the best that could be learned: the world's own chances, and what each reward makes of them.

All that a picture says of an ambiguous object is which nouns of its scene are not shown clearly. So the chance
that such a noun is there is ``hidden / candidates``: the number of ambiguous objects over the number of nouns
of the scene that are not shown. A describer who knows this names every clear object, and the candidates of a
picture where their chance is high enough *for the reward that taught it*:

- SCAPO pays a piece that names one new object ``p - (1 - p)``: guess where ``p > 1/2``.
- A response's Cap. Score ``F = 2 C / (G + T)`` (C right, G named, T true labels) grows by a further guess
  where ``p > F / 2``, which is less than 1/2: it pays for more guesses, and for more hallucinations.

So with chances between ``F / 2`` and ``1/2`` the two rewards want different descriptions, and elsewhere the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from scapo_eval import cap_score

from .pictures import World


@dataclass(frozen=True)
class Situation:
    """Pictures of one kind: how probable, how many clear and ambiguous objects, how many candidates."""

    probability: float
    clear: int
    hidden: int
    candidates: int

    @property
    def chance(self) -> float:
        """That one candidate is there."""
        return self.hidden / self.candidates if self.candidates else 0.0


@dataclass(frozen=True)
class Ideal:
    """Rates of a describer, over all pictures of a world; fractions."""

    hal_rate: float
    cover_rate: float

    @property
    def cap_score(self) -> float:
        """Harmonic mean of 1 - Hal. Rate and Cover Rate."""
        return cap_score(self.hal_rate, self.cover_rate)


def situations(world: World) -> list[Situation]:
    """Returns every kind of picture with its probability."""
    low, high = world.objects
    kinds = []
    for number in range(low, high + 1):
        for hidden in range(number + 1):
            clear = number - hidden
            chance = comb(number, hidden) * world.ambiguous**hidden * (1 - world.ambiguous) ** clear
            kinds.append(Situation(chance / (high - low + 1), clear, hidden, world.nouns - clear))
    return kinds


def guesser(world: World, threshold: float) -> Ideal:
    """Returns a describer who names what is clear, and every candidate whose chance is above the threshold."""
    covered = named = true = 0.0
    for situation in situations(world):
        guesses = situation.candidates if situation.chance > threshold else 0
        covered += situation.probability * (situation.clear + guesses * situation.chance)
        named += situation.probability * (situation.clear + guesses)
        true += situation.probability * (situation.clear + situation.hidden)
    return Ideal(1 - covered / named, covered / true)


def best_guesser(world: World) -> tuple[float, Ideal]:
    """Returns the threshold of the highest Cap. Score, and what it gives."""
    thresholds = sorted({situation.chance for situation in situations(world)} - {0.0})
    tried = [(threshold - 1e-9, guesser(world, threshold - 1e-9)) for threshold in [*thresholds, 1.0]]
    return max(tried, key=lambda pair: pair[1].cap_score)


def chances(world: World) -> list[tuple[float, float]]:
    """Returns the (chance, share of all ambiguous objects) ascending."""
    share: dict[float, float] = {}
    for situation in situations(world):
        if situation.hidden:
            share[situation.chance] = share.get(situation.chance, 0.0) + situation.probability * situation.hidden
    total = sum(share.values())
    return [(chance, share[chance] / total) for chance in sorted(share)]
