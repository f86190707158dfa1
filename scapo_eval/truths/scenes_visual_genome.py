"""Reader that converts Visual Genome's files, versions 1.0 to 1.4, to records of generic scene graphs.

``objects.json``, ``attributes.json``, ``relationships.json`` and ``scene_graphs.json`` each contain names and boxes of
objects. A folder with several of these files is read as one source, and ``image_data.json`` in the same folder provides
the image sizes. No label is considered exhaustively annotated, because annotators named only the objects that they
noticed. The files are at https://homes.cs.washington.edu/~ranjay/visualgenome/ (``api_readme.html``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec

from ..base.errors import FaultList, InputError
from ..files.files import read_bytes

FILES = ("objects.json", "attributes.json", "relationships.json", "scene_graphs.json")
SIZES = "image_data.json"

_HEAD = 1 << 20
_OWN_KEYS = re.compile(rb'"(names|object_names|relationships)"\s*:')


class _Thing(msgspec.Struct, gc=False):
    """An object in a Visual Genome file. The versions of Visual Genome use different keys for the number and the names
    of an object.
    """

    object_id: int | None = None
    id: int | None = None
    names: list[str] | None = None
    object_names: list[str] | None = None
    name: str | None = None
    x: float | None = None
    y: float | None = None
    w: float | None = None
    h: float | None = None
    attributes: list[str] | None = None
    merged_object_ids: list[int] | None = None

    @property
    def number(self) -> int | None:
        return self.id if self.object_id is None else self.object_id

    @property
    def called(self) -> list[str]:
        names = self.names or self.object_names or ([self.name] if self.name else [])
        return [name for name in dict.fromkeys(" ".join(each.casefold().split()) for each in names) if name]


class _Relationship(msgspec.Struct, gc=False):
    predicate: str
    subject: _Thing | None = None
    object: _Thing | None = None
    subject_id: int | None = None
    object_id: int | None = None


class _Image(msgspec.Struct, gc=False):
    image_id: int | None = None
    id: int | None = None
    objects: list[_Thing] = []
    attributes: list[_Thing] = []
    relationships: list[_Relationship] = []

    @property
    def number(self) -> int | None:
        return self.id if self.image_id is None else self.image_id


class _Size(msgspec.Struct, gc=False):
    image_id: int | None = None
    id: int | None = None
    width: float = 0
    height: float = 0


_decode = msgspec.json.Decoder(_Image).decode


def is_visual_genome_scenes(data: bytes) -> bool:
    """Returns True if JSON data is a Visual Genome file with objects. Generic scene graphs use other keys."""
    head = data[:_HEAD]
    return head.lstrip()[:1] == b"[" and _OWN_KEYS.search(head) is not None


def files_in(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """Reads Visual Genome's files in a folder and returns their contents by file name.

    Raises:
        InputError: If the folder contains none of Visual Genome's files.
    """
    found = [name for name in (*FILES, SIZES) if os.path.isfile(os.path.join(folder, name))]
    if not set(found) & set(FILES):
        raise InputError(f"the folder holds none of Visual Genome's {', '.join(FILES)}", path=folder)
    return {name: read_bytes(os.path.join(folder, name)) for name in found}


def records(files: Mapping[str, bytes]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields the position, image id and record of each image. The module :mod:`~scapo_eval.truths.scenes` describes the
    records.

    Args:
        files: Mapping from file names to file contents.

    Raises:
        InputErrors: If images are invalid. The error lists all faults with their positions in the array.
        InputError: If a file is not a JSON array.
    """
    sizes = _sizes(files[SIZES]) if SIZES in files else {}
    pictures: dict[int, _Picture] = {}
    faults = FaultList()
    for name in files:
        if name == SIZES:
            continue
        seen = set[int]()
        for place, raw in enumerate(_array(files[name], name, msgspec.Raw), 1):
            try:
                image = _decode(raw)
            except (ValueError, RecursionError) as error:
                faults.add(InputError(f"not a valid Visual Genome image: {error}", path=name, line=place))
                continue
            number = image.number
            if number is None or number in seen:
                reason = "missing key 'image_id'" if number is None else f"image {number} appears twice"
                faults.add(InputError(reason, path=name, line=place))
                continue
            seen.add(number)
            pictures.setdefault(number, _Picture(place)).add(image)
    faults.raise_if_any()
    for number, picture in pictures.items():
        width, height = sizes.get(number, (0, 0))
        yield picture.place, str(number), {"width": width, "height": height, **picture.record()}


class _Picture:
    """The objects of one image, merged from several files by object number."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.objects: list[dict[str, Any]] = []
        self.numbers: dict[int, list[int]] = {}  # thing -> its positions, one for each of its names
        self.relations: dict[tuple[int, str, int], None] = {}

    def add(self, image: _Image) -> None:
        for thing in (*image.objects, *image.attributes):
            self.places(thing)
        for relation in image.relationships:
            ends = [
                self.places(thing) if thing is not None else self.numbers.get(-1 if number is None else number, [])
                for thing, number in ((relation.subject, relation.subject_id), (relation.object, relation.object_id))
            ]
            for subject, other in product(*ends):
                self.relations[subject, relation.predicate, other] = None

    def places(self, thing: _Thing) -> list[int]:
        """Returns the positions of an object in the object list, one for each of its names. A new object is appended to
        the list. An object that is already in the list receives the additional attributes.
        """
        places = self.numbers.get(-1 if thing.number is None else thing.number, [])
        if not places:
            corner = thing.x, thing.y, thing.w, thing.h
            box = None if None in corner else list(corner)
            places = [len(self.objects) + k for k in range(len(thing.called))]
            self.objects += [{"name": name, "box": box, "attributes": []} for name in thing.called]
            for number in (thing.number, *(thing.merged_object_ids or ())):
                if number is not None:
                    self.numbers.setdefault(number, places)
        for place in places:
            self.objects[place]["attributes"] += thing.attributes or ()
        return places

    def record(self) -> dict[str, Any]:
        relations = [{"subject": a, "predicate": words, "object": b} for a, words, b in self.relations]
        return {"objects": self.objects, "relations": relations}


def _array(data: bytes, name: str, of: type[Any]) -> list[Any]:
    try:
        return msgspec.json.decode(data, type=list[of])  # type: ignore[valid-type]
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a valid Visual Genome file: {error}", path=name) from None


def _sizes(data: bytes) -> dict[int, tuple[float, float]]:
    images: list[_Size] = _array(data, SIZES, _Size)
    numbers = (image.id if image.image_id is None else image.image_id for image in images)
    return {n: (image.width, image.height) for n, image in zip(numbers, images, strict=True) if n is not None}
