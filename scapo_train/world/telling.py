"""World whose captions state not only the objects but also their numbers, colors and sides.

A caption names each kind of object with its number or its color ("There are two dogs in view.", "We can also see a red
bowl."). For an object that is named once and lies at one side of the picture, a caption may also state the side ("The
bowl is on the left."). Each of these sentences is a piece. The captions for supervised training contain errors in
numbers, colors and sides, and also omit and invent objects. Some objects are drawn in gray, so that their colors must
be guessed.
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
from .pictures import CELL, COLORS, MOST_OF_A_NOUN, NOUNS, Scene, World

TELL_COLOR, TELL_PLACE = 0.5, 0.6
"""How often a caption states the color of what it names (otherwise its number), and the side of what it names once and
at a side.
"""

WRONG_NUMBER, WRONG_COLOR, WRONG_PLACE = 0.2, 0.2, 0.2
"""How often the describer says another number or color than is true (a gray thing: than a guess), or the other side."""

CLAIMED = ("count", "attribute", "relation")
"""The kinds of claims, beyond presence, that captions of this world make."""

_NUMBERS = ("one", "two")
_SIDES = {0: "left", 2: "right"}
_SINGLE = tuple(form for form in ONE if "one" not in form.split())  # if it were a number
_MANY = tuple(form.replace("There is", "There are") for form in _SINGLE)
_PLACE = "The {} is on the {}."
_COLOR = f"(?:{'|'.join(COLORS)})"

GRAMMAR = re.compile(
    "|".join(
        (
            *(re.escape(form).replace(r"\{\}", f"(?:one|a {_COLOR}) [a-z]+") for form in _SINGLE),
            *(re.escape(form).replace(r"\{\}", f"(?:two|{_COLOR}) [a-z]+s") for form in _MANY),
            r"The [a-z]+ is on the (?:left|right)\.",
            *map(re.escape, FILLER),
        )
    )
)
"""What the sentences of this world look like, for :func:`~scapo_train.world.language.fluency`."""


def caption(world: World, scene: Scene, random: np.random.Generator) -> str:
    """Returns a caption for supervised training, with the number, the color or the side of named objects."""
    pieces: list[str] = []
    for noun in _named(world, scene, random):
        at = scene.nouns.index(noun) if noun in scene.nouns else None
        number = int(random.integers(1, MOST_OF_A_NOUN + 1)) if at is None else scene.numbers[at]
        if random.random() < WRONG_NUMBER:
            number = int(random.choice([other for other in range(1, MOST_OF_A_NOUN + 1) if other != number]))
        word = _word(noun, number, random)
        told = _NUMBERS[number - 1]
        if random.random() < TELL_COLOR:
            color = list(COLORS)[_color_said(noun, scene, random)]
            told = f"a {color}" if number == 1 else color
        pieces.append(one_of(_SINGLE if number == 1 else _MANY, random).format(f"{told} {word}"))
        side = int(random.integers(world.side)) if at is None else scene.cells[at] % world.side
        if number == 1 and side in _SIDES and random.random() < TELL_PLACE:
            wrong = random.random() < WRONG_PLACE
            pieces.append(_PLACE.format(word, _SIDES[world.side - 1 - side if wrong else side]))
    if not pieces or random.random() < FILLER_SHARE:
        pieces.insert(int(random.integers(len(pieces) + 1)), one_of(FILLER, random))
    return " ".join(pieces)


def scene_graph(world: World, scene: Scene, image: int) -> dict[str, Any]:
    """Returns the complete scene graph of a picture as a record (docs/claims.md)."""
    colors = list(COLORS)
    things = []
    for noun, cell, color, number in zip(scene.nouns, scene.cells, scene.colors, scene.numbers, strict=True):
        size = CELL // number
        for k in range(number):
            box = [CELL * (cell % world.side) + size * k, CELL * (cell // world.side) + size * k, size, size]
            things.append({"name": NOUNS[noun], "attributes": [colors[color]], "box": box})
    width = CELL * world.side
    return {"image_id": image, "width": width, "height": width, "complete": list(world.names), "objects": things}


def _named(world: World, scene: Scene, random: np.random.Generator) -> Iterator[int]:
    """Yields the nouns that a caption names: most of the nouns that are in the picture, in the order of their cells,
    and some absent nouns.
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
