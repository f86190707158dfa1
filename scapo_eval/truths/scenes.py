"""Scene graphs with counts, boxes, attributes and relations of objects, from COCO, LVIS, Visual Genome or a generic
format.
Reference captions are scene graphs that contain only claims.

The generic format is JSON Lines or another file of records, with one image per record::

    {"image_id": 7, "width": 640, "height": 480, "complete": ["dog"], "counts": {"sheep": 12},
     "objects": [{"name": "dog", "attributes": ["brown"], "box": [10, 20, 100, 80], "text": "REX"}, {"name": "couch"}],
     "relations": [{"subject": 0, "predicate": "on", "object": 1}],
     "claims": [{"kind": "attribute", "label": "couch", "value": "leather", "other": "", "answer": "yes"}]}

Only ``image_id`` and ``objects`` are required. ``claims`` contains a judge's answers (``scapo-eval judge claims``).
``complete`` lists the labels whose objects are all annotated. For all other labels, the image may contain objects that
are not listed. ``counts`` contains exact numbers of objects. A name that is narrower than its label, such as "man" for
*person*, does not complete the label, and its number is a lower bound. A box consists of x, y, width and height in
pixels.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from ..base.errors import UNFIT, FaultList, InputError, misspelled, short_repr, unfit
from ..base.hashes import digest
from ..base.ids import canonical_image_id, file_name_of, positions_by_file_name
from ..base.reprs import one_line
from ..base.types import State
from ..claiming.claim import KINDS, ClaimKey, asked_as, count_range
from ..claiming.extract import ClaimExtractor
from ..files.containers import open_rows
from ..files.fields import image_id_in
from ..files.files import display_name, read_bytes
from ..files.json_text import iter_records
from ..files.records import Readable, Records
from ..files.source import Source
from ..matching.vocabulary import Vocabulary
from . import scenes_visual_genome as visual_genome
from .claim_matrix import ClaimMatrix
from .oracle import positions_of_names
from .references import References
from .truth_coco import Category, is_coco, names_of
from .whole_names import names_all, singular

ANSWERS: Mapping[str, State] = {"yes": 1, "no": 0, "absent": -1, "unsure": -1}
"""Possible answers of a judge. ``absent`` means that the object is missing, so claims about its attributes are
undecided.
"""

_HEAD = 1 << 16
_REFERENCES = re.compile(rb'"references"\s*:')

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
        answers: Mapping from claims to a judge's answers; see :func:`~scapo_eval.claiming.claim.asked_as`. The judge's
            answers are used only for claims that the other data of the scene graph does not decide.
        by_references: True if ``answers`` are not a judge's answers, but the claims of reference captions.
        at_least: Mapping from labels to lower bounds, from numbers of narrower names, that exceed the number of listed
            objects.
    """

    width: float
    height: float
    things: tuple[Thing, ...]
    relations: tuple[tuple[int, str, int], ...]
    counts: Mapping[str, int]
    complete: frozenset[str]
    answers: Mapping[ClaimKey, State] | None = None
    by_references: bool = False
    at_least: Mapping[str, int] | None = None


@dataclass(frozen=True, repr=False)
class Scenes:
    """The scene graphs in one file.

    Attributes:
        source: Name of the source, for error messages.
        scenes: Mapping from canonical image ids to scene graphs.
        fingerprint: Hash of the content of the file or records.
        notes: One-sentence remarks that state how many objects and boxes in the file are not used.

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

    @property
    def answers_presence(self) -> bool:
        """True if a judge or reference captions answer claims of presence."""
        if isinstance(self.scenes, _JudgedScenes):
            return bool((self.scenes.matrix.columns["kind"] == KINDS.index("presence")).any())
        return any(kind == "presence" for scene in self.scenes.values() for kind, *_ in scene.answers or ())

    def chances(self, image: str) -> Mapping[ClaimKey, float]:
        """Returns the claims about an image for which a judge's probability is known, with P(true).

        Only claim matrices contain probabilities; see :class:`~scapo_eval.truths.claim_matrix.ClaimMatrix`.

        Args:
            image: Canonical image id, which ``scenes`` contains.
        """
        return self.scenes.matrix.chances(image) if isinstance(self.scenes, _JudgedScenes) else {}

    def id_of(self, image: str) -> str | None:
        """Returns the id under which the source contains an image, or None if it lacks the image. As in ground truths
        of presence, the folder and the extension may differ (``val/cat.jpg``, ``cat``) if only one image matches.

        Args:
            image: Canonical image id.
        """
        if image in self.scenes:
            return image
        ids, positions = self._files
        at = positions.get(file_name_of(image), -1)
        return ids[at] if at >= 0 else None

    @cached_property
    def _files(self) -> tuple[list[str], Mapping[str, int]]:
        ids = list(self.scenes)
        return ids, positions_by_file_name(ids)

    @classmethod
    def load(cls, path: Readable, vocabulary: Vocabulary) -> Scenes:
        """Reads COCO's ``instances_*.json``, LVIS, Visual Genome's files, a file of generic scene graphs, a claim
        matrix, or reference captions.

        A claim that a reference caption asserts is true. Reference captions make no claim false.

        Args:
            path: File, folder with Visual Genome's files, or records in memory.
            vocabulary: Labels and aliases that are matched with the names of objects. Objects with other names are
                counted and skipped.

        Raises:
            InputError: If the format or the type of the input is unsupported.
            InputErrors: If the input is invalid, for example if a count is negative or a relation refers to no object.
                The error lists all faults with their line numbers.
        """
        if not isinstance(path, (str, os.PathLike, Records)):
            raise InputError(f"scenes must be a file or Records, got {short_repr(path)}")
        name = display_name(path)
        reader = _Reader(name, vocabulary)
        if not isinstance(path, Records) and os.path.isdir(path):
            genome = visual_genome.files_in(path)
            return cls(name, reader.genome(genome), digest(list(genome.values())), tuple(reader.notes()))
        data = b""
        if not isinstance(path, Records):
            path = Source.of(path)
            path.keep()  # a pipe is read twice: to recognize its format, and line by line
            data = read_bytes(path)
        scenes: Mapping[str, SceneGraph]
        if data.startswith(b"PK"):
            scenes = reader.judged(ClaimMatrix.load(data, name))
        elif is_coco(data):
            scenes = reader.coco(data)
        elif visual_genome.is_visual_genome_scenes(data):
            scenes = reader.genome({name: data})
        elif _are_references(path, data):
            references = References.load(path)
            scenes = reader.stated(references)
            data = data or references.fingerprint.encode()
        else:
            scenes = reader.graphs(path)
            # in sorted order, because the order of a set differs between processes
            data = data or repr(msgspec.to_builtins(sorted(scenes.items()), order="sorted")).encode()
        return cls(name, scenes, digest([data]), tuple(reader.notes()))


def _are_references(path: Readable, data: bytes) -> bool:
    """Returns True for records with references and for COCO's captions."""
    if isinstance(path, Records):
        return any("references" in record and "objects" not in record for _, record in islice(iter_records(path), 1))
    head = data[:_HEAD]
    is_coco_captions = head.lstrip()[:1] == b"{" and b'"annotations"' in data and b'"caption"' in data
    return is_coco_captions or (_REFERENCES.search(head) is not None and b'"objects"' not in head)


def state_of(kind: str, answer: str) -> State:
    """Returns the state of a claim as determined by a judge's answer.

    If the object is absent, a claim about its count is false, and a claim about an attribute or a relation is
    undecided.
    """
    return 0 if answer == "absent" and kind in ("presence", "count") else ANSWERS[answer]


class _JudgedScenes(Mapping[str, SceneGraph]):
    """Scene graphs that contain only the answers in a claim matrix. Each scene graph is built when it is first used."""

    def __init__(self, matrix: ClaimMatrix) -> None:
        self.matrix = matrix
        self.built = dict[str, SceneGraph]()

    def __getitem__(self, image: str) -> SceneGraph:
        scene = self.built.get(image)
        if scene is None:
            answers = self.matrix.states(image)
            scene = self.built[image] = SceneGraph(0, 0, (), (), {}, frozenset(), answers)
        return scene

    def __contains__(self, image: object) -> bool:
        return image in self.matrix.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.matrix.image_ids)

    def __len__(self) -> int:
        return len(self.matrix.image_ids)


class _CocoImage(msgspec.Struct, gc=False):
    id: int
    width: float = 0
    height: float = 0
    neg_category_ids: list[int] | None = None
    not_exhaustive_category_ids: list[int] | None = None


class _CocoAnnotation(msgspec.Struct, gc=False):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float] | None = None
    iscrowd: int = 0


class _Coco(msgspec.Struct, gc=False):
    images: list[_CocoImage]
    annotations: list[_CocoAnnotation]
    categories: list[Category]


def _numbers_in_lvis(coco: _Coco, whole: Mapping[int, str]) -> Iterator[dict[str, int]]:
    """Yields, for each image of LVIS, the numbers of objects with the labels whose objects are all annotated.

    Args:
        coco: Content of the file.
        whole: Mapping from each category that denotes all objects with a label to this label.
    """
    numbers = {image.id: Counter(dict.fromkeys(image.neg_category_ids or (), 0)) for image in coco.images}
    partial = {image.id: {*(image.not_exhaustive_category_ids or ())} for image in coco.images}
    for annotation in coco.annotations:
        numbers[annotation.image_id][annotation.category_id] += 1
        if annotation.iscrowd:
            partial[annotation.image_id].add(annotation.category_id)
    for image, of_image in numbers.items():
        yield {whole[k]: n for k, n in of_image.items() if k in whole and k not in partial[image]}


class _Reader:
    """A reader of scene graphs that counts the objects and boxes that it skips."""

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        self.source = source
        self.vocabulary = vocabulary
        self.labels = vocabulary.label_ids
        self.aliases = vocabulary.aliases
        self.unnamed = Counter[str]()
        self.narrower = Counter[str]()
        self.outside = 0
        self.first_outside = ""
        self.confirms = False
        self.unit = "objects"
        self.made_for = ""

    def notes(self) -> Iterator[str]:
        """Yields remarks about the objects and boxes that were skipped, and about reference captions."""
        if self.confirms:
            yield f"{self.source}: reference captions make claims true, but none false"
        if self.made_for not in ("", self.vocabulary.fingerprint):
            matched = f"labels are matched with those of '{self.vocabulary.name}' by name"
            yield f"{self.source}: made for a vocabulary with fingerprint {self.made_for}; {matched}"
        if self.unnamed:
            names = ", ".join(f"'{name}'" for name, _ in self.unnamed.most_common(5))
            unused = f"{self.unit} not used, because their names are not in the vocabulary"
            yield f"{self.source}: {unused}: {self.unnamed.total()} ({names})"
        if self.narrower:
            names = ", ".join(name for name, _ in self.narrower.most_common(5))
            bounds = (
                "names of annotated or counted objects that are narrower than their label, so they give lower bounds"
            )
            yield f"{self.source}: {bounds}: {self.narrower.total()} ({names})"
        if self.outside:
            unused = "boxes not used, because they exceed their image"
            yield f"{self.source}: {unused}: {self.outside} (first: {self.first_outside})"

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
        if not isinstance(box, (list, tuple)) or len(box) != 4 or not all(map(_is_number, box)):
            raise ValueError(f"a box must be four numbers, found {short_repr(box)}")
        x, y, w, h = box
        beyond = width and height and (x + w > width + SLACK or y + h > height + SLACK)
        if x < -SLACK or y < -SLACK or w < 0 or h < 0 or beyond:
            self.outside += 1
            self.first_outside = self.first_outside or f"{short_repr(list(box))} in image {image}"
            return None
        return x, y, x + w, y + h

    def coco(self, data: bytes) -> dict[str, SceneGraph]:
        """Reads the scene graphs of COCO instances, in which all objects of every category are annotated, except in
        crowds, or of LVIS, whose annotators verified only some categories per image.

        In LVIS, an object may be annotated under several categories that have the same label ("bird" and "duck").
        Therefore, the number of a label is that of the category that denotes all objects with the label.
        """
        try:
            coco = msgspec.json.decode(data, type=_Coco)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a valid COCO instances file: {error}", path=self.source) from None
        is_lvis = any(image.neg_category_ids is not None for image in coco.images)
        called = {category.id: names_of(category) if is_lvis else (category.name,) for category in coco.categories}
        try:
            if is_lvis:
                labels = [*self.vocabulary.labels, None]  # position -1: not in the vocabulary
                positions = positions_of_names(called.values(), self.vocabulary)
                named = {category: labels[k] for category, k in zip(called, positions, strict=True)}
            else:
                named = {category: self.label(name) for category, (name,) in called.items()}
            ids = [canonical_image_id(image.id) for image in coco.images]
        except ValueError as error:
            raise InputError(f"not a valid COCO instances file: {error}", path=self.source) from None
        self.unnamed.clear()
        images = {image.id: image for image in coco.images}
        for name, listed, distinct in (("categories", coco.categories, named), ("images", ids, images)):
            if len(listed) > len(distinct):
                raise InputError(
                    f"{len(listed) - len(distinct)} {name} have an id that occurs before", path=self.source
                )
        for image in coco.images:
            if image.width < 0 or image.height < 0:
                raise InputError(f"the size of image {image.id} is negative", path=self.source)
            for category in (*(image.neg_category_ids or ()), *(image.not_exhaustive_category_ids or ())):
                if category not in named:
                    reason = f"image {image.id} refers to category {category}, which the file does not list"
                    raise InputError(reason, path=self.source)
        things: dict[int, list[Thing]] = {image: [] for image in images}
        for annotation in coco.annotations:
            if annotation.image_id not in images or annotation.category_id not in named:
                reason = f"an annotation refers to image {annotation.image_id} or category {annotation.category_id}"
                raise InputError(f"{reason}, which the file does not list", path=self.source)
            if annotation.iscrowd not in (0, 1):
                reason = f"'iscrowd' must be 0 or 1, found {annotation.iscrowd}"
                raise InputError(f"{reason} for image {annotation.image_id}", path=self.source)
            label = named[annotation.category_id]
            if label is None:
                self.unnamed[called[annotation.category_id][0].casefold()] += 1
            else:
                image = images[annotation.image_id]
                box = self.box(annotation.bbox, image.width, image.height, image.id)
                things[image.id].append(Thing(label, frozenset(), box, bool(annotation.iscrowd)))
        whole = {
            category.id: label
            for category in coco.categories
            if (label := named[category.id]) is not None and self.is_whole(label, *called[category.id])
        }
        if is_lvis:
            known = [(numbers, frozenset(numbers)) for numbers in _numbers_in_lvis(coco, whole)]
        else:
            known = [(dict[str, int](), frozenset(whole.values()))] * len(ids)
        return {
            image: SceneGraph(given.width, given.height, tuple(things[given.id]), (), numbers, complete)
            for image, given, (numbers, complete) in zip(ids, coco.images, known, strict=True)
        }

    def genome(self, files: Mapping[str, bytes]) -> dict[str, SceneGraph]:
        """Reads the scene graphs from Visual Genome's files, given as a mapping from file names to contents."""
        faults, scenes = FaultList(), dict[str, SceneGraph]()
        for place, image, record in visual_genome.records(files):
            try:
                scenes[image] = self.graph(record, image)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=self.source, line=place))
        faults.raise_if_any()
        return scenes

    def graphs(self, path: Readable) -> dict[str, SceneGraph]:
        """Reads the scene graphs from a file in the generic format."""
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

    def stated(self, references: References) -> dict[str, SceneGraph]:
        """Returns scene graphs that contain only the claims that reference captions assert."""
        texts, image_of = references.flat
        answers: list[dict[ClaimKey, State]] = [{} for _ in references.texts]
        for k, claims in zip(image_of.tolist(), ClaimExtractor(self.vocabulary).find_batch(texts), strict=True):
            answers[k].update((asked_as(claim), 1) for claim in claims if claim.use == "claim")
        self.confirms = True
        given = zip(references.texts, answers, strict=True)
        return {image: SceneGraph(0, 0, (), (), {}, frozenset(), said, True) for image, said in given}

    def judged(self, matrix: ClaimMatrix) -> _JudgedScenes:
        """Returns the scene graphs of a claim matrix, with the labels converted to those of the vocabulary.

        Claims about labels that are not in the vocabulary are omitted, but counted.
        """
        self.unit, self.made_for = "claims about objects", matrix.vocabulary_fingerprint
        labels = list[str | None]()
        for k, name in enumerate(matrix.labels):
            labels.append(self.label(name) if name else "")
            if labels[k] is None:
                of_label = (matrix.columns["label"] == k) | (matrix.columns["other"] == k)
                self.unnamed[name.casefold()] += int(of_label.sum()) - 1
        return _JudgedScenes(matrix.with_labels(labels))

    def graph(self, record: Mapping[str, Any], image: str) -> SceneGraph:
        """Converts one record to the scene graph of an image."""
        if not isinstance(record.get("objects"), list):
            raise ValueError("not a scene graph: 'objects' must be a list")
        _refuse_misspelled(record, _KEYS)
        width, height = (_checked(record, name, _is_size, "a number >= 0", 0) for name in ("width", "height"))
        things, words_of_things, place = list[Thing](), list[str](), dict[int, int]()
        for k, given in enumerate(record["objects"]):
            if not isinstance(given, Mapping):
                raise ValueError(
                    f"not a valid record: a thing must be an object with a 'name', found {short_repr(given)}"
                )
            _refuse_misspelled(given, _KEYS_OF_OBJECT)
            if given.get("name") is None:
                raise ValueError(f"an object has no 'name': {short_repr(given)}")
            label = self.label(given["name"])
            if label is None:
                continue
            place[k] = len(things)
            words = _checked(given, "attributes", _is_words, "a list of words", ())
            attributes = frozenset(" ".join(word.casefold().split()) for word in words)
            box = self.box(given.get("box"), width, height, image)
            crowd = _checked(given, "crowd", lambda value: value in (0, 1), "true or false", False)
            text = _checked(given, "text", lambda value: isinstance(value, str), "a string", "")
            things.append(Thing(label, attributes, box, bool(crowd), text))
            words_of_things.append(singular(given["name"]))
        relations = []
        for given in _checked(record, "relations", _is_list, "a list", ()):
            if not isinstance(given, Mapping) or not {"subject", "predicate", "object"} <= given.keys():
                form = "an object with 'subject', 'predicate' and 'object'"
                raise ValueError(f"not a valid record: a relation must be {form}, found {short_repr(given)}")
            subject, predicate, other = given["subject"], given["predicate"], given["object"]
            for name, end in (("subject", subject), ("object", other)):
                if not _is_index(end) or end >= len(record["objects"]):
                    raise ValueError(f"the {name} of a relation does not exist: {short_repr(given)}")
            if not isinstance(predicate, str):
                raise ValueError(f"'predicate' of a relation must be a string, found {short_repr(predicate)}")
            if subject in place and other in place:
                relations.append((place[subject], " ".join(predicate.casefold().split()), place[other]))
        counts, at_least = self.counts(record.get("counts") or {}, things, words_of_things)
        names = _checked(record, "complete", _is_list, "a list", ())
        complete = frozenset(
            label for name in names if (label := self.label(name)) is not None and self.is_whole(label, name)
        )
        answers: dict[ClaimKey, State] = {}
        for claim, state in filter(None, map(self.answer, _checked(record, "claims", _is_list, "a list", ()))):
            if answers.setdefault(claim, state) != state:
                raise ValueError(f"two different answers to the claim {' '.join(filter(None, claim))!r}")
        return SceneGraph(
            width, height, tuple(things), tuple(relations), counts, complete, answers, at_least=at_least or None
        )

    def is_whole(self, label: str, *names: str) -> bool:
        """Returns True if one of the synonyms denotes every object with a label. Narrower names are counted."""
        is_whole = any(names_all(name, label) for name in names)
        if not is_whole:
            self.narrower[f"'{names[0]}' of '{label}'"] += 1
        return is_whole

    def counts(
        self, given: Mapping[str, Any], things: Sequence[Thing], words: Sequence[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the exact numbers of objects by label, and the lower bounds that follow from narrower names.

        Args:
            given: Mapping from names to numbers.
            things: Objects of the scene graph.
            words: Name of each object in the singular.
        """
        listed, called = Counter(thing.label for thing in things), Counter(words)
        exact, narrower = dict[str, tuple[str, int]](), dict[str, dict[str, tuple[str, int]]]()
        for name, number in given.items():
            if not _is_index(number):
                raise ValueError(
                    f"a count must be a non-negative whole number, found {short_repr(number)} for '{name}'"
                )
            label = self.label(name)
            if label is None:
                continue
            is_whole, word = self.is_whole(label, name), singular(name)
            present = listed[label] if is_whole else called[word]
            if number < present:
                raise ValueError(f"the count of '{name}' is {number}, but {present} objects have this name")
            rank = exact if is_whole else narrower.setdefault(label, {})
            other, its = rank.setdefault(label if is_whole else word, (name, number))
            if its != number:
                raise ValueError(f"the counts of '{other}' ({its}) and '{name}' ({number}) contradict each other")
        at_least = dict[str, int]()
        for label, numbers in narrower.items():
            name, number = max(numbers.values(), key=lambda each: each[1])
            if label in exact and exact[label][1] < number:
                whole, its = exact[label]
                raise ValueError(f"the counts of '{whole}' ({its}) and '{name}' ({number}) contradict each other")
            of_things = (word for thing, word in zip(things, words, strict=True) if thing.label == label)
            others = sum(word not in numbers and not names_all(word, label) for word in of_things)
            at_least[label] = max(listed[label], sum(number for _, number in numbers.values()) + others)
        return {label: number for label, (_, number) in exact.items()}, {
            k: n for k, n in at_least.items() if n > listed[k]
        }

    def answer(self, given: Mapping[str, Any]) -> tuple[ClaimKey, State] | None:
        """Returns a claim and the judge's answer, or None if the vocabulary lacks a label of the claim."""
        if not isinstance(given, Mapping) or not {"kind", "answer"} <= given.keys():
            raise ValueError(
                f"not a valid record: a claim must be an object with 'kind' and 'answer', found {short_repr(given)}"
            )
        kind, answer = given["kind"], given["answer"]
        if kind not in KINDS:
            raise ValueError(f"'kind' of a claim must be {', '.join(KINDS)}, found {short_repr(kind)}")
        if answer is not None and answer not in list(ANSWERS):
            raise ValueError(f"'answer' to a claim must be {', '.join(ANSWERS)} or null, found {short_repr(answer)}")
        if not given.get("label") and kind != "text":
            raise ValueError(f"a claim has no 'label': {short_repr(given)}")
        value = _checked(given, "value", lambda value: isinstance(value, str) or _is_index(value), "a string", "")
        if kind == "count":
            count_range(str(value))
        ends = [self.label(name) if name else "" for name in (given.get("label"), given.get("other"))]
        if ends[0] is None or ends[1] is None:
            return None
        state = state_of(kind, answer) if answer is not None else -1
        return (kind, ends[0], str(value), ends[1]), state


_KEYS = ("width", "height", "objects", "relations", "counts", "complete", "claims")
_KEYS_OF_OBJECT = ("name", "attributes", "box", "crowd", "text")
_OTHER_NAMES = {"bbox": "box", "color": "attributes", "colour": "attributes", "relationships": "relations"}


def _refuse_misspelled(record: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError if a key resembles a known key that is missing. Other unknown keys are ignored."""
    for key, meant in misspelled(record, known, _OTHER_NAMES):
        if meant not in record:
            raise ValueError(f"unknown key '{key}'; did you mean '{meant}'?")


def _checked(record: Mapping[str, Any], name: str, is_valid: Callable[[Any], bool], form: str, default: Any) -> Any:
    """Returns a field of a record, or the default if the field is missing or null.

    Raises:
        ValueError: If the value of the field is invalid.
    """
    value = record.get(name)
    if value is None:
        return default
    if not is_valid(value):
        raise ValueError(f"'{name}' must be {form}, found {short_repr(value)}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _is_words(value: Any) -> bool:
    return _is_list(value) and all(isinstance(word, str) for word in value)
