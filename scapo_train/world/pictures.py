"""Pictures that show a few objects of one scene on a grid. Some of the objects are so blurred that only the scene is
recognizable.

Each noun has a pictogram. An *ambiguous* object is drawn as the pixel average of all pictograms of its scene, so the
picture contains no information about the actual noun. A describer can only guess, with a probability of success that
follows from the rules of the world (``ideal.py``). The rewards differ in how probable a guess must be to pay off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELL = 28
"""Side length of a cell in pixels. A cell has four 14-pixel patches, which the tower merges into one image token."""

SCENES = ("kitchen", "garden", "street", "beach")

NOUNS = (
    "bottle", "bowl", "kettle", "oven", "table", "flower", "tree", "bench",
    "bicycle", "dog", "car", "lamp", "umbrella", "ball", "boat", "kite",
    "cup", "plate", "spoon", "pan", "jar", "basket", "chair", "sofa",
    "bed", "pillow", "curtain", "clock", "candle", "book", "rug", "door",
    "fence", "bucket", "shovel", "hammer", "rope", "wheel", "truck", "plane",
    "rocket", "tent", "house", "tower", "bridge", "cat", "horse", "cow",
    "pig", "bird", "crab", "frog", "bee", "spider", "snake", "bear",
    "rabbit", "lemon", "cake", "hat", "coat", "glove", "drum", "flag",
)  # fmt: skip
"""Nouns of all worlds. A world has the first ``World.words`` of them, in the order of its scenes."""


@dataclass(frozen=True)
class World:
    """Rules for drawing scenes.

    Attributes:
        name: Name of the world.
        nouns: Number of nouns per scene. If the number exceeds a quarter of ``words``, neighboring scenes share nouns.
        objects: Minimum and maximum number of objects in a picture. All objects have different nouns.
        ambiguous: Share of objects that are drawn as the average of their scene's pictograms.
        telling: True if the pictures and captions convey numbers, colors and places (``telling.py``). ``objects`` then
            limits the number of nouns in a picture. Each noun has its own cell, in which the noun appears once or
            twice.
        rarity: Exponent of Zipf's law, according to which the nouns of a scene are drawn without replacement. If the
            value is 0, all nouns are equally frequent. With 1, the k-th noun of a scene has a weight of 1 / k.
        side: Side length of a picture in cells.
        words: Number of nouns of all scenes together, a multiple of 4.
        base: Name of the world whose start model is trained further to obtain the start model of this world. The start
            model of a telling world, or of a world that is its own base, is built from random weights.
        lists: Number of steps in which the language model learns to list the objects in a picture before it learns
            captions. In pictures with many cells, captions alone do not teach the model to look at the picture.
    """

    name: str = "plain"
    nouns: int = 6
    objects: tuple[int, int] = (3, 5)
    ambiguous: float = 0.35
    telling: bool = False
    rarity: float = 0.0
    side: int = 3
    words: int = 16
    base: str = "plain"
    lists: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Nouns of all scenes together."""
        return NOUNS[: self.words]

    @property
    def has_base(self) -> bool:
        """True if the start model is obtained from that of ``base``, False if it is built from random weights."""
        return self.base != self.name and not self.telling

    def weights(self) -> NDArray[np.float64]:
        """Returns the (nouns,) weights with which the nouns of a scene are drawn, in the order of the scene."""
        ranked: NDArray[np.float64] = np.arange(1, self.nouns + 1, dtype=np.float64) ** -self.rarity
        return ranked / ranked.sum()

    def of_scene(self, scene: int) -> list[int]:
        """Returns the indices of the nouns in a scene, which starts a quarter of the nouns after the previous scene."""
        return [(self.words // len(SCENES) * scene + k) % self.words for k in range(self.nouns)]


_PLAIN = World()
_RISKY = World("risky", nouns=10, objects=(6, 6))
_CROWDED = World("crowded", nouns=16, objects=(8, 8), ambiguous=0.25)
_TELLING = World("telling", nouns=4, objects=(2, 3), ambiguous=0.2, telling=True)

_RARE = World("rare", rarity=1.5)

_PLAIN_32 = World("plain_32", nouns=8, side=4, words=32, base="plain_32", lists=400)
_PLAIN_64 = World("plain_64", nouns=16, side=6, words=64, base="plain_64", lists=600)
_CROWDED_16 = World(
    "crowded_16", nouns=32, objects=(16, 16), ambiguous=0.25, side=4, words=32, base="plain_32", lists=400
)
_CROWDED_32 = World(
    "crowded_32", nouns=64, objects=(32, 32), ambiguous=0.25, side=6, words=64, base="plain_64", lists=1000
)

_ALL = (_PLAIN, _RISKY, _CROWDED, _TELLING, _RARE, _PLAIN_32, _PLAIN_64, _CROWDED_16, _CROWDED_32)

WORLDS = {world.name: world for world in _ALL}
"""Worlds by name.

- ``plain``: some guesses pay under every reward, some under none.
- ``risky``: most guesses pay under a response's Cap. Score, but not under SCAPO.
- ``crowded``: no guess pays, and responses are long.
- ``telling``: captions also state numbers, colors and places.
- ``rare``: as ``plain``, but some nouns are frequent and some are rare in each scene.
- ``crowded_16``, ``crowded_32``: as ``crowded``, but with two and four times the objects and nouns.
- ``plain_32``, ``plain_64``: as ``plain``, but with the nouns and cells of ``crowded_16`` and ``crowded_32``, whose
  start models are obtained from those of these worlds. In ``plain_64``, no guess pays.
"""


@dataclass(frozen=True)
class Scene:
    """Objects in one picture, with their positions and appearance.

    Attributes:
        kind: Index of the scene in SCENES.
        nouns: Index of each object in NOUNS, in the order of the cells.
        cells: Cell number of each object, in ascending order; cells are numbered row by row.
        clear: For each object, True if it is drawn as its own pictogram, False if it is drawn as the average of the
            scene.
        colors: Index of each object in COLORS. The tuple is empty in worlds in which objects have fixed colors.
        faded: For each object, True if it is drawn in gray, so that its color can only be guessed.
        numbers: Number of objects that each cell shows. The tuple is empty in worlds in which a cell shows one object.
    """

    kind: int
    nouns: tuple[int, ...]
    cells: tuple[int, ...]
    clear: tuple[bool, ...]
    colors: tuple[int, ...] = ()
    faded: tuple[bool, ...] = ()
    numbers: tuple[int, ...] = ()


def draw_scene(world: World, random: np.random.Generator) -> Scene:
    """Draws a random scene according to the rules of the world."""
    kind = int(random.integers(len(SCENES)))
    number = int(random.integers(world.objects[0], world.objects[1] + 1))
    scene = Scene(
        kind=kind,
        nouns=tuple(_drawn(world, kind, number, random)),
        cells=tuple(sorted(random.permutation(world.side**2)[:number].tolist())),
        clear=tuple((random.random(number) >= world.ambiguous).tolist()),
    )
    if not world.telling:
        return scene
    return replace(
        scene,
        colors=tuple(random.integers(len(COLORS), size=number).tolist()),
        faded=tuple((random.random(number) < FADED).tolist()),
        numbers=tuple(random.integers(1, MOST_OF_A_NOUN + 1, size=number).tolist()),
    )


def _drawn(world: World, kind: int, number: int, random: np.random.Generator) -> list[int]:
    """Draws distinct nouns from a scene."""
    nouns = world.of_scene(kind)
    if world.rarity:
        return random.choice(nouns, size=number, replace=False, p=world.weights()).tolist()
    return random.permutation(nouns)[:number].tolist()


def aspects(world: World) -> tuple[int, ...]:
    """Returns the number of possible values in each row of the array from :func:`appearances`."""
    looks = world.words + len(SCENES) + 1
    return (looks, len(COLORS) + 2, MOST_OF_A_NOUN + 1) if world.telling else (looks,)


def appearances(world: World, scene: Scene) -> NDArray[np.int64]:
    """Returns the appearance of each cell as an array of shape (aspects, cells).

    The first row contains the index of a noun, ``words + kind`` for an average, or ``words + len(SCENES)`` for an empty
    cell. In a telling world, the second row contains the index of a color, ``len(COLORS)`` for gray, or
    ``len(COLORS) + 1`` for an empty cell. The third row contains the number of objects.
    """
    sizes = aspects(world)
    looks = np.repeat(np.array([[size - 1] for size in sizes[:2]] + [[0]] * len(sizes[2:])), world.side**2, axis=1)
    cells = list(scene.cells)
    looks[0, cells] = [
        noun if clear else world.words + scene.kind for noun, clear in zip(scene.nouns, scene.clear, strict=True)
    ]
    if world.telling:
        looks[1, cells] = [
            len(COLORS) if faded else color for color, faded in zip(scene.colors, scene.faded, strict=True)
        ]
        looks[2, cells] = scene.numbers
    return looks


def render(world: World, scene: Scene, random: np.random.Generator) -> NDArray[np.uint8]:
    """Renders a scene as a (width, width, 3) picture with random noise and brightness, where the width is
    ``CELL * world.side`` pixels.
    """
    tiles = np.concatenate([_pictograms()[: world.words], _averages(world), np.zeros((1, CELL, CELL, 4))])
    looks, *told = appearances(world, scene)
    shown = tiles[looks]
    if told:
        shown = np.stack([_as_told(tile, color, number) for tile, color, number in zip(shown, *told, strict=True)])
    shown = shown.reshape(world.side, world.side, CELL, CELL, 4)
    width = world.side * CELL
    shown = shown.transpose(0, 2, 1, 3, 4).reshape(width, width, 4)
    color, opacity = shown[..., :3], shown[..., 3:]
    picture = np.array(_GROUND[scene.kind]) * (1 - opacity) + color
    picture = picture * random.uniform(0.85, 1.1) + random.normal(0, 6, picture.shape)
    pixels: NDArray[np.uint8] = picture.clip(0, 255).astype(np.uint8)
    return pixels


COLORS = {"red": (214, 48, 49), "blue": (28, 84, 214), "green": (32, 150, 62), "yellow": (236, 190, 20)}
"""Colors of things in a telling world."""

MOST_OF_A_NOUN, FADED = 2, 0.25
"""Maximum number of objects of a noun in a telling world, and the share of nouns drawn in gray."""

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

_CHANNELS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
"""Order of the color channels in each block of pictograms. The first block shows the nouns that have shapes."""


@lru_cache(maxsize=1)
def _pictograms() -> NDArray[np.float64]:
    """Returns the (nouns, 28, 28, 4) pictograms, whose channels are the color multiplied by the opacity, followed by
    the opacity itself.

    The nouns without shapes have those of the first nouns, rotated and in other colors.
    """
    from PIL import Image, ImageDraw

    tiles = []
    for shapes in _SHAPES.values():
        tile = Image.new("RGBA", (CELL, CELL))
        pen = ImageDraw.Draw(tile)
        for shape, place, color in shapes:
            _draw(pen, shape, place, color)
        values = np.asarray(tile, dtype=np.float64)
        opacity = values[..., 3:] / 255
        tiles.append(np.concatenate([values[..., :3] * opacity, opacity], axis=-1))
    drawn = np.stack(tiles)
    return np.concatenate([
        np.rot90(drawn, turns, axes=(1, 2))[..., [*channels, 3]] for turns, channels in enumerate(_CHANNELS)
    ])  # fmt: skip


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
    """Returns the (scenes, 28, 28, 4) mean pictograms of the nouns in each scene."""
    return np.stack([_pictograms()[world.of_scene(scene)].mean(axis=0) for scene in range(len(SCENES))])


def _as_told(tile: NDArray[np.float64], color: int, number: int) -> NDArray[np.float64]:
    """Returns a pictogram in another color, drawn once or twice, as an array of shape (28, 28, 4).

    The pictogram keeps its shading. Two objects are drawn at half the size, in opposite corners of the cell.

    Args:
        tile: Pictogram.
        color: Index of a color, or any other index for gray.
        number: Number of objects.
    """
    tint = [*COLORS.values(), _GRAY][min(color, len(COLORS))]
    opacity = tile[..., 3:]
    light = tile[..., :3].mean(axis=-1, keepdims=True) / 255 + 0.5 * opacity
    once = np.concatenate([light * np.array(tint), opacity], axis=-1)
    if number < 2:
        return once
    half = CELL // 2
    twice = np.zeros_like(once)
    twice[:half, :half] = twice[half:, half:] = once.reshape(half, 2, half, 2, 4).mean(axis=(1, 3))
    return twice
