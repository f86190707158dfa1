"""Captions and truth for the benchmarks, invented by template from a vocabulary and a seed.

They have the length, the share of vocabulary words and of characters outside ASCII of captions by today's
vision-language models, and no other likeness to them: figures that matter come from real captions.
"""

from __future__ import annotations

import random

from scapo_eval import Vocabulary

_SCENES = (
    "The image shows a busy scene in which {a} stands close to {b}.",
    "In the foreground, there is {a}, partly hidden behind {b} and surrounded by a soft, even light.",
    "The photo captures a quiet moment: {a} rests beside {b}, while the rest of the frame stays empty.",
    "On the left side of the picture one can see {a}, and a little further back, {b}.",
    "Toward the right, {a} takes up much of the space, which gives the composition a certain weight.",
)
_DETAILS = (
    "A second look reveals {a} near the edge of the frame, slightly out of focus.",
    "There are also several smaller things scattered around, such as {a}, {b} and {c}.",
    "The color of the {a} stands out against the muted tones of the background.",
    "Further away, {a} and {b} add depth to the view.",
    "It is not clear whether the {a} belongs to the same group, but it is placed right next to it.",
)
_ENDINGS = (
    "Overall, the atmosphere is calm and ordinary, as if taken on any late afternoon.",
    "The lighting suggests that it is early in the day, and nothing appears to be staged.",
    "Taken together, these elements create a lively impression \u2014 simple, but well balanced.",
    "The whole arrangement looks lived in, and it\u2019s easy to imagine what happens next.",
    "There is no visible text, and the mood of the scene remains relaxed.",
)


def invented_captions(vocabulary: Vocabulary, count: int, *, seed: int) -> list[str]:
    """Captions of three to six sentences.

    Args:
        vocabulary: whose aliases (for the most part a label's first ones) and ignore phrases the sentences name.
        count: number of captions.
        seed: equal seeds give equal captions.
    """
    rng = random.Random(seed)
    common: dict[str, list[str]] = {label: [] for label in vocabulary.labels}
    for alias, label in vocabulary.aliases.items():
        common[label].append(alias)

    def thing() -> str:
        if vocabulary.ignore and rng.random() < 0.05:
            return rng.choice(vocabulary.ignore)
        aliases = common[rng.choice(vocabulary.labels)]
        return rng.choice(aliases[:4] if rng.random() < 0.9 else aliases)

    def sentence(templates: tuple[str, ...]) -> str:
        return rng.choice(templates).format(a=thing(), b=thing(), c=thing())

    def caption() -> str:
        parts = [sentence(_SCENES), *(sentence(_DETAILS) for _ in range(rng.randint(1, 4)))]
        if rng.random() < 0.7:
            parts.append(rng.choice(_ENDINGS))
        return ("\n\n" if rng.random() < 0.1 else " ").join(parts)

    return [caption() for _ in range(count)]


def invented_truth(vocabulary: Vocabulary, images: int, *, seed: int) -> dict[str, list[str]]:
    """Image id -> two to eight labels that are present."""
    rng = random.Random(seed)
    return {str(k): rng.sample(vocabulary.labels, rng.randint(2, 8)) for k in range(1, images + 1)}
