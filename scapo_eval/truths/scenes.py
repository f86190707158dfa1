"""Scene graphs with counts, boxes, attributes and relations of objects, from COCO, Visual Genome or a generic format.

The generic format is JSON Lines or another file of records, with one image per record::

    {"image_id": 7, "width": 640, "height": 480, "complete": ["dog"], "counts": {"sheep": 12},
     "objects": [{"name": "dog", "attributes": ["brown"], "box": [10, 20, 100, 80], "text": "REX"}, {"name": "couch"}],
     "relations": [{"subject": 0, "predicate": "on", "object": 1}],
     "claims": [{"kind": "attribute", "label": "couch", "value": "leather", "other": "", "answer": "yes"}]}

Only ``image_id`` and ``objects`` are required. ``claims`` contains a judge's answers (``scapo-eval judge claims``).
``complete`` lists the labels whose objects are all annotated. For all other labels, the image may contain objects that
are not listed. ``counts`` are exact. A box consists of x, y, width and height in pixels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ..base.errors import UNFIT, FaultList, InputError, short_repr, unfit
from ..base.hashes import digest
from ..base.ids import canonical_image_id
from ..base.reprs import one_line
from ..base.types import State
from ..claiming.claim import KINDS, ClaimKey, count_range
from ..files.containers import open_rows
from ..files.fields import image_id_in
from ..files.files import display_name, read_bytes
from ..files.records import Readable, Records
from ..matching.vocabulary import Vocabulary
from . import scenes_visual_genome as visual_genome
from .truth_coco import is_coco

ANSWERS: Mapping[str, State] = {"yes": 1, "no": 0, "absent": -1, "unsure": -1}
"""Possible answers of a judge. ``absent`` means that the object is missing, so claims about its attributes are
undecided.
"""

SLACK = 1.0
"""Number of pixels by which a box may exceed the image, because annotation tools round coordinates."""


class Thing(NamedTuple):
    """One object in an image.

    Attributes:
        label: Label in the vocabulary.
        attributes: Attribute words in lower case.
        box: Left, top, right and bottom edge in pixels, or None if there is no box.
        crowd: True if the entry represents an unknown number of objects.
        text: Text that is written on the object.
    """

    label: str
    attributes: frozenset[str] = frozenset()
    box: tuple[float, float, float, float] | None = None
    crowd: bool = False
    text: str = ""


class SceneGraph(NamedTuple):
    """The scene graph of one image.

    Attributes:
        width: Width of the image in pixels, or 0 if unknown.
        height: Height of the image in pixels, or 0 if unknown.
        things: Objects in the image.
        relations: Triples of subject index, predicate and object index.
        counts: Mapping from labels to the exact number of objects.
        complete: Labels whose objects are all annotated.
        answers: Mapping from claims to a judge's answers; see :func:`~scapo_eval.claiming.claim.asked_as`. All other
            data of the scene graph takes precedence over the judge's answers.
    """

    width: float
    height: float
    things: tuple[Thing, ...]
    relations: tuple[tuple[int, str, int], ...]
    counts: Mapping[str, int]
    complete: frozenset[str]
    answers: Mapping[ClaimKey, State] | None = None


@dataclass(frozen=True, repr=False)
class Scenes:
    """The scene graphs of one file.

    Attributes:
        source: Name of the source, for error messages.
        scenes: Mapping from canonical image ids to scene graphs.
        fingerprint: Hash of the file's content.
        notes: Remarks about parts of the file that are not used, one sentence each, with numbers.

    Example:
        >>> import scapo_eval
        >>> words = scapo_eval.Vocabulary.load("coco80")
        >>> from scapo_eval.files.records import Records
        >>> scenes = scapo_eval.Scenes.load(Records("mine", [{"image_id": 7, "objects": [{"name": "dog"}]}]), words)
        >>> [thing.label for thing in scenes.scenes["7"].things]
        ['dog']
    """

    source: str
    scenes: Mapping[str, SceneGraph]
    fingerprint: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.scenes):,} images: {self.source}")

    @classmethod
    def load(cls, path: Readable, vocabulary: Vocabulary) -> Scenes:
        """Reads COCO's ``instances_*.json``, Visual Genome's files or a file of scene graphs.

        Args:
            path: File, folder of Visual Genome's files, or records in memory.
            vocabulary: Labels and aliases that are matched with the names of objects. Objects with other names are
                counted and skipped.

        Raises:
            InputError: If the format is unsupported.
            InputErrors: If the input is invalid, for example if a count is negative or a relation refers to no object.
                The error lists all faults with their line numbers.
        """
        name = display_name(path)
        reader = _Reader(name, vocabulary)
        if not isinstance(path, Records) and os.path.isdir(path):
            genome = visual_genome.files_in(path)
            return cls(name, reader.genome(genome), digest(list(genome.values())), tuple(reader.notes()))
        data = b"" if isinstance(path, Records) else read_bytes(path)
        if is_coco(data):
            scenes = reader.coco(data)
        elif visual_genome.is_visual_genome_scenes(data):
            scenes = reader.genome({name: data})
        else:
            scenes = reader.graphs(path)
            data = data or repr(sorted(scenes.items())).encode()
        return cls(name, scenes, digest([data]), tuple(reader.notes()))


class _CocoImage(msgspec.Struct, gc=False):
    id: int
    width: float = 0
    height: float = 0


class _CocoCategory(msgspec.Struct, gc=False):
    id: int
    name: str


class _CocoAnnotation(msgspec.Struct, gc=False):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float] | None = None
    iscrowd: int = 0


class _Coco(msgspec.Struct, gc=False):
    images: list[_CocoImage]
    annotations: list[_CocoAnnotation]
    categories: list[_CocoCategory]


class _Reader:
    """A reader of scene graphs that counts the parts of its input that it skips."""

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        self.source = source
        self.labels = vocabulary.label_ids
        self.aliases = vocabulary.aliases
        self.unnamed = Counter[str]()
        self.outside = 0
        self.first_outside = ""

    def notes(self) -> Iterator[str]:
        """Yields remarks about the parts of the input that were skipped."""
        if self.unnamed:
            names = ", ".join(f"'{name}'" for name, _ in self.unnamed.most_common(5))
            unnamed = f"{self.unnamed.total()} things with {len(self.unnamed)} names that the vocabulary does not know"
            yield f"{self.source}: {unnamed} ({names})"
        if self.outside:
            unused = f"{self.outside} boxes outside of their picture are not used"
            yield f"{self.source}: {unused} (first: {self.first_outside})"

    def label(self, name: object) -> str | None:
        """Returns the label that an object name refers to.

        Returns None if the vocabulary lacks the name. Names that the vocabulary lacks are counted.
        """
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the name of a thing must be a string, found {short_repr(name)}")
        words = " ".join(name.casefold().split())
        label = words if words in self.labels else self.aliases.get(words)
        if label is None:
            self.unnamed[words] += 1
        return label

    def box(
        self, box: Sequence[float] | None, width: float, height: float, image: object
    ) -> tuple[float, float, float, float] | None:
        """Converts a box to the positions of its left, top, right and bottom edges.

        Returns None if there is no box, or if the box exceeds the bounds of its image. Boxes that exceed the bounds of
        their image are counted.
        """
        if box is None:
            return None
        if len(box) != 4 or not all(isinstance(value, (int, float)) for value in box):
            raise ValueError(f"a box must be four numbers, found {short_repr(box)}")
        x, y, w, h = box
        beyond = width and height and (x + w > width + SLACK or y + h > height + SLACK)
        if x < -SLACK or y < -SLACK or w < 0 or h < 0 or beyond:
            self.outside += 1
            self.first_outside = self.first_outside or f"{short_repr(list(box))} in image {image}"
            return None
        return x, y, x + w, y + h

    def coco(self, data: bytes) -> dict[str, SceneGraph]:
        """Reads the scene graphs of COCO instances. All objects of every category are assumed to be annotated, except
        in crowds.
        """
        try:
            coco = msgspec.json.decode(data, type=_Coco)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a valid COCO instances file: {error}", path=self.source) from None
        named = {category.id: self.label(category.name) for category in coco.categories}
        self.unnamed.clear()
        images = {image.id: image for image in coco.images}
        things: dict[int, list[Thing]] = {image: [] for image in images}
        for annotation in coco.annotations:
            if annotation.image_id not in images or annotation.category_id not in named:
                reason = f"an annotation names image {annotation.image_id} or category {annotation.category_id}"
                raise InputError(f"{reason}, which the file does not list", path=self.source)
            label = named[annotation.category_id]
            if label is not None:
                image = images[annotation.image_id]
                box = self.box(annotation.bbox, image.width, image.height, image.id)
                things[image.id].append(Thing(label, frozenset(), box, bool(annotation.iscrowd)))
        complete = frozenset(label for label in named.values() if label is not None)
        return {
            canonical_image_id(image.id): SceneGraph(
                image.width, image.height, tuple(things[image.id]), (), {}, complete
            )
            for image in coco.images
        }

    def genome(self, files: Mapping[str, bytes]) -> dict[str, SceneGraph]:
        """Reads the scene graphs in Visual Genome's files, which are given by file name."""
        faults, scenes = FaultList(), dict[str, SceneGraph]()
        for place, image, record in visual_genome.records(files):
            try:
                scenes[image] = self.graph(record, image)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=self.source, line=place))
        faults.raise_if_any()
        return scenes

    def graphs(self, path: Readable) -> dict[str, SceneGraph]:
        """Reads the scene graphs of a file in the generic format."""
        faults, scenes = FaultList(), dict[str, SceneGraph]()
        for line, record in open_rows(path):
            try:
                image = image_id_in(record)
                if image in scenes:
                    raise ValueError(f"image {image!r} appears twice")
                scenes[image] = self.graph(record, image)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=self.source, line=line))
        faults.raise_if_any()
        return scenes

    def graph(self, record: Mapping[str, Any], image: str) -> SceneGraph:
        """Converts one record to the scene graph of an image."""
        if not isinstance(record.get("objects"), list):
            raise ValueError("not a scene graph: 'objects' must be a list")
        width, height = record.get("width") or 0, record.get("height") or 0
        things, place = list[Thing](), dict[int, int]()
        for k, given in enumerate(record["objects"]):
            label = self.label(given.get("name"))
            if label is None:
                continue
            place[k] = len(things)
            attributes = frozenset(" ".join(str(word).casefold().split()) for word in given.get("attributes") or ())
            box = self.box(given.get("box"), width, height, image)
            things.append(Thing(label, attributes, box, bool(given.get("crowd")), str(given.get("text") or "")))
        relations = []
        for given in record.get("relations") or ():
            subject, predicate, other = given["subject"], str(given["predicate"]), given["object"]
            if not all(isinstance(end, int) and 0 <= end < len(record["objects"]) for end in (subject, other)):
                raise ValueError(f"a relation leads to no object: {short_repr(given)}")
            if subject in place and other in place:
                relations.append((place[subject], " ".join(predicate.casefold().split()), place[other]))
        counts = {}
        for name, number in (record.get("counts") or {}).items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(
                    f"a count must be a non-negative whole number, found {short_repr(number)} for '{name}'"
                )
            label = self.label(name)
            if label is not None:
                counts[label] = number
        complete = frozenset(label for name in record.get("complete") or () if (label := self.label(name)) is not None)
        answers = dict(filter(None, map(self.answer, record.get("claims") or ())))
        return SceneGraph(width, height, tuple(things), tuple(relations), counts, complete, answers)

    def answer(self, given: Mapping[str, Any]) -> tuple[ClaimKey, State] | None:
        """Returns a claim and the judge's answer, or None if the vocabulary lacks a label of the claim."""
        kind, answer = given["kind"], given["answer"]
        if kind not in KINDS:
            raise ValueError(f"'kind' of a claim must be {', '.join(KINDS)}, found {short_repr(kind)}")
        if answer is not None and answer not in ANSWERS:
            raise ValueError(f"'answer' to a claim must be {', '.join(ANSWERS)} or null, found {short_repr(answer)}")
        if kind == "count":
            count_range(str(given.get("value")))
        ends = [self.label(name) if name else "" for name in (given.get("label"), given.get("other"))]
        if ends[0] is None or ends[1] is None:
            return None
        state: State = ANSWERS[answer] if answer is not None else -1
        if answer == "absent" and kind in ("presence", "count"):
            state = 0
        return (kind, ends[0], str(given.get("value") or ""), ends[1]), state
