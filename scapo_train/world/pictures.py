"""The pictures: a few objects of one scene on a grid, some of them so blurred that only the scene shows.

Every noun has a pictogram. An *ambiguous* object is drawn as the average of its scene's pictograms, pixel by
pixel, so a picture holds no trace of which of them it is: what remains is a guess, whose chance of being right
follows from the rules of the world (``ideal.py``). That chance is what separates rewards: see ``docs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELL, SIDE = 28, 3
"""Pixels of a cell's side (four patches of 14, which the tower merges into one image token), and cells of a
picture's side."""

SCENES = ("kitchen", "garden", "street", "beach")

NOUNS = (
    "bottle", "bowl", "kettle", "oven", "table", "flower", "tree", "bench",
    "bicycle", "dog", "car", "lamp", "umbrella", "ball", "boat", "kite",
)  # fmt: skip
"""In the order of the scenes: each begins four nouns after the one before, and they overlap."""


@dataclass(frozen=True)
class World:
    """The rules by which scenes are drawn.

    Attributes:
        name: name of the world.
        nouns: number of nouns in a scene; neighboring scenes share what exceeds four.
        objects: fewest and most objects in a picture, all of different nouns.
        ambiguous: share of objects that are drawn as the average of their scene's pictograms.
        telling: whether pictures and captions have numbers, colors and places too (``telling.py``). Then ``objects``
            are the fewest and most nouns in a picture, each of which stands there once or twice.
    """

    name: str = "plain"
    nouns: int = 6
    objects: tuple[int, int] = (3, 5)
    ambiguous: float = 0.35
    telling: bool = False

    def of_scene(self, scene: int) -> list[int]:
        """Returns the nouns that occur in a scene."""
        return [(4 * scene + k) % len(NOUNS) for k in range(self.nouns)]


_PLAIN = World()
_RISKY = World("risky", nouns=10, objects=(6, 6))
_CROWDED = World("crowded", nouns=16, objects=(8, 8), ambiguous=0.25)
_TELLING = World("telling", objects=(2, 3), ambiguous=0.2, telling=True)

WORLDS = {world.name: world for world in (_PLAIN, _RISKY, _CROWDED, _TELLING)}
"""``plain``: some guesses pay for every reward, some for none. ``risky``: most have a chance for which a response's
Cap. Score pays and SCAPO does not. ``crowded``: none pays, and responses are long. ``telling``: captions say how many,
which color and where."""


@dataclass(frozen=True)
class Scene:
    """The content of one picture.

    Attributes:
        kind: index of the scene in SCENES.
        nouns: index in NOUNS of each object, in the order of their cells.
        cells: cell of each object, ascending, counted by rows.
        clear: per object, whether its pictogram is shown or the scene's average.
        colors: index in COLORS of each object; empty in a world whose things have colors of their own.
        faded: per object, whether it is drawn in gray, so that its color is a guess.
    """

    kind: int
    nouns: tuple[int, ...]
    cells: tuple[int, ...]
    clear: tuple[bool, ...]
    colors: tuple[int, ...] = ()
    faded: tuple[bool, ...] = ()


def draw_scene(world: World, random: np.random.Generator) -> Scene:
    """Returns a scene by the rules of the world."""
    kind = int(random.integers(len(SCENES)))
    number = int(random.integers(world.objects[0], world.objects[1] + 1))
    if world.telling:
        return _draw_telling_scene(world, kind, number, random)
    return Scene(
        kind=kind,
        nouns=tuple(random.permutation(world.of_scene(kind))[:number].tolist()),
        cells=tuple(sorted(random.permutation(SIDE**2)[:number].tolist())),
        clear=tuple((random.random(number) >= world.ambiguous).tolist()),
    )


def _draw_telling_scene(world: World, kind: int, number: int, random: np.random.Generator) -> Scene:
    """Returns a scene whose nouns stand there once or twice, all of one color."""
    times = random.integers(1, MOST_OF_A_NOUN + 1, size=number)
    each = [
        np.repeat(values, times)
        for values in (
            random.permutation(world.of_scene(kind))[:number],
            random.random(number) >= world.ambiguous,
            random.integers(len(COLORS), size=number),
            random.random(number) < FADED,
        )
    ]
    nouns, clear, colors, faded = (tuple(values.tolist()) for values in each)
    cells = tuple(random.permutation(SIDE**2)[: len(nouns)].tolist())
    order = sorted(range(len(cells)), key=cells.__getitem__)
    nouns, cells, clear, colors, faded = (
        tuple(values[k] for k in order) for values in (nouns, cells, clear, colors, faded)
    )
    return Scene(kind, nouns, cells, clear, colors, faded)


def number_of_looks(world: World) -> int:
    """Returns the number of values of :func:`appearances`."""
    return (len(NOUNS) + len(SCENES)) * (len(COLORS) + 1 if world.telling else 1) + 1


def appearances(world: World, scene: Scene) -> NDArray[np.int64]:
    """Returns (cells,): what each cell looks like: a noun, ``len(NOUNS) + kind`` for an average, or one more for
    nothing. In a telling world each look has a variant per color and one in gray.
    """
    looks = np.full(SIDE**2, number_of_looks(world) - 1)
    for noun, cell, clear in zip(scene.nouns, scene.cells, scene.clear, strict=True):
        looks[cell] = noun if clear else len(NOUNS) + scene.kind
    if world.telling:
        shown = [len(COLORS) if faded else color for color, faded in zip(scene.colors, scene.faded, strict=True)]
        looks[list(scene.cells)] = looks[list(scene.cells)] * (len(COLORS) + 1) + shown
    return looks


def render(world: World, scene: Scene, random: np.random.Generator) -> NDArray[np.uint8]:
    """Returns the picture, (84, 84, 3), with noise and a light of its own."""
    tiles = np.concatenate([_pictograms(), _averages(world)])
    if world.telling:
        tiles = np.concatenate([_tinted(tile) for tile in tiles])
    tiles = np.concatenate([tiles, np.zeros((1, CELL, CELL, 4))])
    shown = tiles[appearances(world, scene)].reshape(SIDE, SIDE, CELL, CELL, 4)
    width = SIDE * CELL
    shown = shown.transpose(0, 2, 1, 3, 4).reshape(width, width, 4)
    color, opacity = shown[..., :3], shown[..., 3:]
    picture = np.array(_GROUND[scene.kind]) * (1 - opacity) + color
    picture = picture * random.uniform(0.85, 1.1) + random.normal(0, 6, picture.shape)
    pixels: NDArray[np.uint8] = picture.clip(0, 255).astype(np.uint8)
    return pixels


COLORS = {"red": (214, 48, 49), "blue": (28, 84, 214), "green": (32, 150, 62), "yellow": (236, 190, 20)}
"""Colors of things in a telling world."""

MOST_OF_A_NOUN, FADED = 2, 0.25
"""Of a telling world: how often a noun stands there at most, and the share of nouns drawn in gray."""

_GRAY = (120, 120, 120)

_GROUND = ((232, 226, 214), (206, 226, 196), (208, 210, 216), (240, 228, 188))

_SHAPES: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
    "bottle": [("rectangle", (11, 10, 17, 25), "#2c7a4b"), ("rectangle", (13, 3, 15, 10), "#2c7a4b")],
    "bowl": [("pieslice", (4, 2, 24, 24, 0, 180), "#c0592b")],
    "kettle": [("ellipse", (6, 10, 20, 25), "#7a7f88"), ("arc", (7, 3, 19, 17, 180, 360), "#33373d"),
               ("polygon", (19, 15, 26, 9, 24, 18), "#7a7f88")],
    "oven": [("rectangle", (4, 4, 24, 24), "#3a3f47"), ("rectangle", (7, 11, 21, 21), "#e08a2c")],
    "table": [("rectangle", (2, 9, 26, 13), "#8a5a2b"), ("rectangle", (4, 13, 7, 25), "#8a5a2b"),
              ("rectangle", (21, 13, 24, 25), "#8a5a2b")],
    "flower": [("ellipse", (8, 2, 20, 14), "#d6336c"), ("ellipse", (12, 6, 16, 10), "#f5d547"),
               ("rectangle", (13, 14, 15, 26), "#2f9e44")],
    "tree": [("polygon", (14, 1, 25, 18, 3, 18), "#1f6f3a"), ("rectangle", (12, 18, 16, 26), "#6b4423")],
    "bench": [("rectangle", (2, 14, 26, 17), "#b07d3a"), ("rectangle", (2, 7, 26, 9), "#b07d3a"),
              ("rectangle", (4, 17, 6, 24), "#55585e"), ("rectangle", (22, 17, 24, 24), "#55585e")],
    "bicycle": [("ring", (1, 12, 12, 23), "#1c3faa"), ("ring", (16, 12, 27, 23), "#1c3faa"),
                ("polygon", (6, 17, 12, 8, 21, 17), "#5c7cfa")],
    "dog": [("rectangle", (5, 12, 20, 18), "#9c6b3f"), ("ellipse", (17, 5, 26, 14), "#9c6b3f"),
            ("rectangle", (6, 18, 8, 25), "#9c6b3f"), ("rectangle", (17, 18, 19, 25), "#9c6b3f")],
    "car": [("rectangle", (2, 12, 26, 20), "#c92a2a"), ("rectangle", (8, 6, 20, 12), "#c92a2a"),
            ("ellipse", (4, 17, 10, 23), "#212529"), ("ellipse", (18, 17, 24, 23), "#212529")],
    "lamp": [("rectangle", (13, 8, 15, 26), "#495057"), ("ellipse", (9, 1, 19, 11), "#ffd43b")],
    "umbrella": [("pieslice", (2, 3, 26, 27, 180, 360), "#ae3ec9"), ("rectangle", (13, 15, 15, 26), "#343a40")],
    "ball": [("ellipse", (6, 7, 22, 23), "#f76707"), ("rectangle", (6, 14, 22, 16), "#ffffff")],
    "boat": [("polygon", (2, 18, 26, 18, 21, 25, 7, 25), "#1971c2"), ("polygon", (13, 2, 13, 16, 4, 16), "#f8f9fa")],
    "kite": [("polygon", (14, 2, 23, 11, 14, 20, 5, 11), "#0ca678"), ("rectangle", (13, 20, 14, 27), "#0b7285")],
}  # fmt: skip


@lru_cache(maxsize=1)
def _pictograms() -> NDArray[np.float64]:
    """Returns the (nouns, 28, 28, 4) color times opacity, and opacity."""
    from PIL import Image, ImageDraw

    tiles = []
    for noun in NOUNS:
        tile = Image.new("RGBA", (CELL, CELL))
        pen = ImageDraw.Draw(tile)
        for shape, place, color in _SHAPES[noun]:
            _draw(pen, shape, place, color)
        values = np.asarray(tile, dtype=np.float64)
        opacity = values[..., 3:] / 255
        tiles.append(np.concatenate([values[..., :3] * opacity, opacity], axis=-1))
    return np.stack(tiles)


def _draw(pen: Any, shape: str, place: tuple[int, ...], color: str) -> None:
    if shape in ("pieslice", "arc"):
        box, angles = place[:4], place[4:]
        getattr(pen, shape)(box, *angles, **({"fill": color} if shape == "pieslice" else {"fill": color, "width": 2}))
    elif shape == "ring":
        pen.ellipse(place, outline=color, width=2)
    else:
        getattr(pen, shape)(place, fill=color)


@lru_cache(maxsize=8)
def _averages(world: World) -> NDArray[np.float64]:
    """Returns the (scenes, 28, 28, 4) mean pictogram of each scene's nouns."""
    return np.stack([_pictograms()[world.of_scene(scene)].mean(axis=0) for scene in range(len(SCENES))])


def _tinted(tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns (colors + 1, 28, 28, 4): a pictogram in each color, and in gray, with its own light and dark."""
    opacity = tile[..., 3:]
    light = tile[..., :3].mean(axis=-1, keepdims=True) / 255 + 0.5 * opacity
    return np.stack([np.concatenate([light * np.array(tint), opacity], axis=-1) for tint in (*COLORS.values(), _GRAY)])
