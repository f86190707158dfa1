"""Best possible descriptions in the small world, and the guesses that increase each reward.

A picture shows the scene in which an ambiguous object occurs, but not the object's noun. Each noun of the scene that is
not clearly visible is a candidate. If all nouns are equally frequent, the probability that a candidate is present is
the number of ambiguous objects divided by the number of candidates. An ideal describer names all clear objects. The
describer also names the candidates of a picture if their probability ``p`` is high enough to increase the expected
reward:

- With SCAPO, the expected reward of a piece that names one new object is ``p - (1 - p)``, so the describer guesses if
  ``p > 1/2``.
- The ``cap_score`` of a response is ``F = 2 C / (G + T)`` (C correct labels, G named labels, T true labels). A further
  guess increases ``F`` if ``p > F / 2``, and this threshold is below 1/2. A reward based on ``cap_score`` therefore
  leads to more guesses and more hallucinations.

The two rewards prefer different descriptions only if there are guesses with a probability between ``F / 2`` and
``1/2``. The command ``python -m scapo_train.world ideal`` prints the rates of ideal describers in each world.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from math import comb, prod

from scapo_eval import cap_score

from .pictures import WORLDS, World


@dataclass(frozen=True)
class Situation:
    """Type of picture, which is defined by the number of clear and ambiguous objects and by the candidates'
    probabilities.

    Attributes:
        probability: Probability of the type.
        clear: Number of clear objects.
        hidden: Number of ambiguous objects.
        chances: Probability that each candidate is one of the ambiguous objects.
    """

    probability: float
    clear: int
    hidden: int
    chances: tuple[float, ...]


@dataclass(frozen=True)
class Ideal:
    """Rates of a describer over all pictures of a world, as fractions."""

    hal_rate: float
    cover_rate: float

    @property
    def cap_score(self) -> float:
        """Harmonic mean of ``1 - hal_rate`` and ``cover_rate``."""
        return cap_score(self.hal_rate, self.cover_rate)


@lru_cache(maxsize=16)
def situations(world: World) -> tuple[Situation, ...]:
    """Returns all types of pictures with their probabilities."""
    low, high = world.objects
    kinds = []
    for number in range(low, high + 1):
        for hidden in range(number + 1):
            clear = number - hidden
            chance = comb(number, hidden) * world.ambiguous**hidden * (1 - world.ambiguous) ** clear
            for share, chances in _candidates(world, clear, hidden):
                kinds.append(Situation(chance * share / (high - low + 1), clear, hidden, chances))
    return tuple(kinds)


def _candidates(world: World, clear: int, hidden: int) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Yields pairs of a share of the pictures and the probabilities of the candidates in these pictures.

    If nouns have different frequencies, the chances depend on which nouns are clear. Each object is equally likely to
    be ambiguous, so each subset of the drawn nouns is equally likely to be clear.
    """
    if not world.rarity:
        candidates = world.nouns - clear
        yield 1.0, (hidden / candidates,) * candidates if candidates else ()
        return
    nouns, number = range(world.nouns), clear + hidden
    drawn = {frozenset(nouns_of): _probability(world, nouns_of) for nouns_of in combinations(nouns, number)}
    for seen in map(frozenset, combinations(nouns, clear)):
        possible = {others - seen: chance / comb(number, clear) for others, chance in drawn.items() if seen <= others}
        total = sum(possible.values())
        unseen = sorted(set(nouns) - seen)
        yield total, tuple(sum(p for others, p in possible.items() if noun in others) / total for noun in unseen)


def _probability(world: World, nouns: tuple[int, ...]) -> float:
    """Returns the probability that a picture contains exactly the given nouns, which are drawn without replacement."""
    weights = world.weights().tolist()
    return sum(
        prod(weights[noun] / (1 - sum(weights[before] for before in order[:k])) for k, noun in enumerate(order))
        for order in permutations(nouns)
    )


def guesser(world: World, threshold: float) -> Ideal:
    """Returns the rates of a describer that names all clear objects and all candidates whose probability exceeds the
    threshold.
    """
    covered = named = true = 0.0
    for situation in situations(world):
        guessed = [chance for chance in situation.chances if chance > threshold]
        covered += situation.probability * (situation.clear + sum(guessed))
        named += situation.probability * (situation.clear + len(guessed))
        true += situation.probability * (situation.clear + situation.hidden)
    return Ideal(1 - covered / named, min(1.0, covered / true))  # the quotient is rounded


def best_guesser(world: World) -> tuple[float, Ideal]:
    """Returns the threshold at which a describer has the highest ``cap_score``, and the rates at this threshold."""
    thresholds = sorted({chance for situation in situations(world) for chance in situation.chances} - {0.0})
    tried = [(threshold - 1e-9, guesser(world, threshold - 1e-9)) for threshold in [*thresholds, 1.0]]
    return max(tried, key=lambda pair: pair[1].cap_score)


def chances(world: World) -> list[tuple[float, float]]:
    """Returns pairs (probability of a candidate, share of all ambiguous objects with this probability) in ascending
    order.
    """
    share: dict[float, float] = {}
    for situation in situations(world):
        for chance in situation.chances:
            if chance:
                share[chance] = share.get(chance, 0.0) + situation.probability * chance
    total = sum(share.values())
    return [(chance, share[chance] / total) for chance in sorted(share)]


def command(arguments: Sequence[str]) -> int:
    """Prints a Markdown table of ideal describers in each world, and returns the exit code, which is always 0."""
    summary = "Prints hal_rate / cover_rate = cap_score of ideal describers in each world, in percent."
    argparse.ArgumentParser(prog="scapo_train.world ideal", description=summary).parse_args(arguments)
    describers: dict[str, Callable[[World], Ideal]] = {
        "Names only unambiguous objects": lambda world: guesser(world, 1.0),
        "Also guesses if the chance exceeds 1/2 (optimal for SCAPO)": lambda world: guesser(world, 0.5),
        "Highest possible Cap. Score": lambda world: best_guesser(world)[1],
        "Names every noun that may be present": lambda world: guesser(world, 0.0),
    }
    print(f"| World | Nouns per scene, objects, ambiguous objects | {' | '.join(describers)} |")
    print(f"| --- | --- |{' ---: |' * len(describers)}")
    for world in WORLDS.values():
        objects = "-".join(map(str, dict.fromkeys(world.objects)))
        cells = [f"`{world.name}`", f"{world.nouns}, {objects}, {100 * world.ambiguous:g} %"]
        for describer in describers.values():
            ideal = describer(world)
            cells.append(f"{100 * ideal.hal_rate:.1f} / {100 * ideal.cover_rate:.1f} = {100 * ideal.cap_score:.1f}")
        print(f"| {' | '.join(cells)} |")
    return 0
