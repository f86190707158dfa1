"""World whose captions state not only the objects but also their numbers, colors and sides.

A caption names each kind of object with its number ("There are two dogs in view."). For some of them it also states the
color ("The dogs are red.") and, for single objects at a side of the picture, the side ("The bowl is on the left.").
Each of these sentences is a piece. The captions for supervised training contain errors in numbers, colors and sides,
just as they omit and invent objects. Some objects are drawn in gray, so that their color can only be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .language import (
    ALIAS_SHARE,
    ALIASES,
    FILLER,
    FILLER_SHARE,
    MENTION_ABSENT,
    MENTION_AMBIGUOUS,
    MENTION_CLEAR,
    ONE,
    one_of,
    plural,
)
from .pictures import CELL, COLORS, MOST_OF_A_NOUN, NOUNS, SIDE, Scene, World

TELL_COLOR, TELL_PLACE = 0.6, 0.6
"""How often a caption says the color of what it names, and the side of what stands there once and at a side."""

WRONG_NUMBER, WRONG_COLOR, WRONG_PLACE = 0.2, 0.2, 0.2
"""How often the describer says another number or color than is true (a gray thing: than a guess), or the other side."""

CLAIMED = ("count", "attribute", "relation")
"""The kinds of claims, beyond presence, that captions of this world make."""

_NUMBERS = ("one", "two")
_SIDES = {0: "left", 2: "right"}
_MANY = tuple(form.replace("There is", "There are") for form in ONE)
_COLOR, _COLORS, _PLACE = "The {} is {}.", "The {} are {}.", "The {} is on the {}."

GRAMMAR = re.compile(
    "|".join(
        (
            *(re.escape(form).replace(r"\{\}", "one [a-z]+") for form in ONE),
            *(re.escape(form).replace(r"\{\}", "two [a-z]+s") for form in _MANY),
            f"The [a-z]+ is (?:{'|'.join(COLORS)})\\.",
            f"The [a-z]+s are (?:{'|'.join(COLORS)})\\.",
            r"The [a-z]+ is on the (?:left|right)\.",
            *map(re.escape, FILLER),
        )
    )
)
"""What the sentences of this world look like, for :func:`~scapo_train.world.language.fluency`."""


def caption(world: World, scene: Scene, random: np.random.Generator) -> str:
    """Returns a caption for supervised training, with the number of each named object and, for some objects, color and
    side.
    """
    pieces: list[str] = []
    for noun in _named(world, scene, random):
        cells = [cell for cell, other in zip(scene.cells, scene.nouns, strict=True) if other == noun]
        number = len(cells) or 1
        if random.random() < WRONG_NUMBER:
            number = int(random.choice([other for other in range(1, MOST_OF_A_NOUN + 1) if other != number]))
        word = _word(noun, number, random)
        pieces.append(one_of(ONE if number == 1 else _MANY, random).format(f"{_NUMBERS[number - 1]} {word}"))
        if random.random() < TELL_COLOR:
            color = list(COLORS)[_color_said(noun, scene, random)]
            pieces.append((_COLOR if number == 1 else _COLORS).format(word, color))
        side = cells[0] % SIDE if len(cells) == 1 else int(random.integers(SIDE))
        if number == 1 and side in _SIDES and random.random() < TELL_PLACE:
            wrong = random.random() < WRONG_PLACE
            pieces.append(_PLACE.format(word, _SIDES[SIDE - 1 - side if wrong else side]))
    if not pieces or random.random() < FILLER_SHARE:
        pieces.insert(int(random.integers(len(pieces) + 1)), one_of(FILLER, random))
    return " ".join(pieces)


def scene_graph(scene: Scene, image: int) -> dict[str, Any]:
    """Returns the complete content of a picture as a record of a scene graph (docs/claims.md)."""
    colors = list(COLORS)
    things = []
    for noun, cell, color in zip(scene.nouns, scene.cells, scene.colors, strict=True):
        box = [CELL * (cell % SIDE), CELL * (cell // SIDE), CELL, CELL]
        things.append({"name": NOUNS[noun], "attributes": [colors[color]], "box": box})
    width = CELL * SIDE
    return {"image_id": image, "width": width, "height": width, "complete": list(NOUNS), "objects": things}


def _named(world: World, scene: Scene, random: np.random.Generator) -> Iterator[int]:
    """Yields the nouns that a caption names: most nouns in the picture, in the order of their cells, and some absent
    nouns.
    """
    clear = dict(zip(scene.nouns, scene.clear, strict=True))
    named = [noun for noun, shown in clear.items() if random.random() < (MENTION_CLEAR if shown else MENTION_AMBIGUOUS)]
    for noun in world.of_scene(scene.kind):
        if noun not in clear and random.random() < MENTION_ABSENT:
            named.insert(int(random.integers(len(named) + 1)), noun)
    yield from named


def _color_said(noun: int, scene: Scene, random: np.random.Generator) -> int:
    if noun not in scene.nouns:
        return int(random.integers(len(COLORS)))
    at = scene.nouns.index(noun)
    if scene.faded[at] or random.random() < WRONG_COLOR:
        return int(random.integers(len(COLORS)))
    return scene.colors[at]


def _word(noun: int, number: int, random: np.random.Generator) -> str:
    name = NOUNS[noun]
    word = ALIASES[name] if random.random() < ALIAS_SHARE else name
    return word if number == 1 else plural(word)
