"""Verification of claims about images. Presence claims are verified by a presence oracle and then by scene graphs, and
all other claims only by scene graphs.

Each source answers true, false or unknown, and the first answer that is not unknown decides. A claim is true or false
only under the following conditions:

- **count**: a count is known to be true or false only if every object with the label is annotated. If a caption may
  count only some of the objects, further objects do not make the claim false. Crowds, and labels whose objects are not
  all annotated, yield only a lower bound on the number of objects.
- **attribute**: a claim is true if an object with the label has the attribute. A claim about color is false if every
  object with the label has other colors, none of which may describe the same surface (``colors`` in ``cues.yaml``).
- **relation**: a claim is true if the scene graph contains the relation. The relations left, right, above and below are
  determined from the boxes if the box centers are more than a tenth of the image size apart. Relations between touching
  objects (on, in, holding, wearing...) are false if no boxes of the two labels are close to each other. The position of
  an object in the image is the position of the center of its box. The position is unknown if the center is in the
  middle fifth of the image.
- **text**: a claim is true if the text is written on an object with the label. A text claim without a label is true if
  the text is written on any object.

An attribute or relation of an absent object is unknown, because the presence claim is already false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, check_choice, short_repr
from ..base.ids import checked_image_id
from ..base.reprs import one_line
from ..base.types import State
from ..claiming.claim import KINDS, Claim, ClaimKey, ClaimKind, asked_as, count_range
from ..claiming.cues import shipped_claim_cues
from ..claiming.reduce import canonical_relation, reduced_attributes, reduced_relation, turned
from ..matching.vocabulary import Vocabulary
from .oracle import PresenceOracle, Truth
from .scenes import SceneGraph, Scenes, Thing

TRUE: State = 1
FALSE: State = 0
UNKNOWN: State = -1

APART = 0.1
"""Minimum distance between two box centers, or between a box center and the image center, as a share of the image size.
"""

NEAR = 0.05
"""Maximum distance between two boxes that count as touching, as a share of the image size."""

ABOVE = {"on": "above"}
"""Relation that is the same fact as another one, although it does not confirm the other one: a picture is on a wall,
but not above it.
"""

_TOUCHING = frozenset(("on", "in", "holding", "riding", "eating", "wearing", "attached to", "filled with"))
_Box = tuple[float, float, float, float]


@dataclass(frozen=True, repr=False)
class ClaimOracle:
    """An oracle that verifies claims. The object can be pickled.

    Attributes:
        vocabulary: Vocabulary that contains the labels in the claims.
        presence: Presence oracle, which is the first source for presence claims.
        scenes: Sources for all claims that ``presence`` does not decide, in the order of lookup.

    ``vocabulary`` and ``presence`` can also be given in any form that :meth:`scapo_eval.Vocabulary.of` and
    :meth:`scapo_eval.PresenceOracle.of` accept, and ``scenes`` can be a single source.

    Raises:
        InputError: If an attribute has another type.

    Example:
        >>> import scapo_eval
        >>> words = scapo_eval.Vocabulary.load("coco80")
        >>> truth = scapo_eval.PresenceOracle.from_objects({7: ["dog"]}, labels=words.labels)
        >>> claims = scapo_eval.ClaimExtractor(words, kinds=("presence",)).find("A dog and a cat.")
        >>> scapo_eval.ClaimOracle(words, truth).states([7], [claims])
        [[1, 0]]
    """

    vocabulary: Vocabulary
    presence: PresenceOracle | None = None
    scenes: tuple[Scenes, ...] = ()

    def __post_init__(self) -> None:
        scenes = tuple(self.scenes) if isinstance(self.scenes, Iterable) else (self.scenes,)
        if not all(isinstance(source, Scenes) for source in scenes):
            raise InputError(f"scenes must be Scenes objects, got {short_repr(self.scenes)}")
        object.__setattr__(self, "scenes", scenes)
        object.__setattr__(self, "vocabulary", Vocabulary.of(self.vocabulary))
        if self.presence is not None:
            object.__setattr__(self, "presence", PresenceOracle.of(self.presence))

    def __repr__(self) -> str:
        return one_line(self, self.signature)

    @property
    def signature(self) -> str:
        """The sources in the order of lookup, each with its hash."""
        named = [f"presence:{self.presence.fingerprint}"] if self.presence is not None else []
        return "+".join([*named, *(f"scenes:{scenes.fingerprint}" for scenes in self.scenes)])

    @property
    def notes(self) -> tuple[str, ...]:
        """One-sentence remarks about data in the sources that is not used."""
        return tuple(note for scenes in self.scenes for note in scenes.notes)

    def __getstate__(self) -> dict[str, object]:
        """Returns the attributes to pickle, without those that are computed on demand."""
        return {name: value for name, value in vars(self).items() if name not in ("_truth", "_known")}

    @cached_property
    def _truth(self) -> Truth | None:
        return None if self.presence is None else Truth.of(self.presence, self.vocabulary)

    @cached_property
    def _known(self) -> dict[str, list[_Known]]:
        """Mapping, filled on demand, from each image to its scene graphs with their lookup tables."""
        return {}

    def _scenes_of(self, image: str) -> list[_Known]:
        known = self._known.get(image)
        if known is None:
            ids = ((scenes, scenes.id_of(image)) for scenes in self.scenes)
            known = self._known.setdefault(image, [_Known(scenes, own) for scenes, own in ids if own is not None])
        return known

    def states(self, image_ids: Sequence[object], claims: Sequence[Sequence[Claim]]) -> list[list[State]]:
        """Verifies the claims of many captions.

        Args:
            image_ids: One image id per caption, in any spelling that :func:`~scapo_eval.base.ids.canonical_image_id`
                accepts.
            claims: Claims of each caption.

        Returns:
            For each caption and claim, 1 (true), 0 (false) or -1 (unknown). If no source contains an image, the claims
            about this image are unknown.

        Raises:
            InputError: If an image id is invalid, if the numbers of image ids and of captions differ, or if the
                vocabulary lacks the label of a claim that ``presence`` would decide.
        """
        return [self.states_in(image, of_caption) for image, of_caption in _by_caption(image_ids, claims)]

    def facts(self, image_id: object, kind: ClaimKind) -> frozenset[tuple[str, ...]]:
        """Returns the facts about an image that captions can cover, according to the first source of scene graphs that
        contains annotations of the image. Answers of a judge and reference captions are not annotations.

        Args:
            image_id: Image id in any spelling that :func:`~scapo_eval.base.ids.canonical_image_id` accepts.
            kind: Claim kind. For ``presence``, the facts are the labels of objects; for ``count``, labels with a known
                number; for ``attribute``, labels with attributes; for ``relation``, triples of label, predicate and
                label; for ``text``, written texts.

        Returns:
            The set of facts, each of which is a tuple of strings. The set is empty if no source contains the image.

        Raises:
            InputError: If the image id is invalid or the kind is unknown.
        """
        check_choice("kind", kind, KINDS)
        image = checked_image_id(image_id)
        scene = next(filter(_is_annotated, (known.scene for known in self._scenes_of(image))), None)
        return frozenset() if scene is None else frozenset(_FACTS[kind](scene))

    def state(self, image_id: object, claim: Claim) -> State:
        """Returns 1 (true), 0 (false) or -1 (unknown) for one claim about an image."""
        return self.states_in(checked_image_id(image_id), [claim])[0]

    def states_in(
        self, image: str, claims: Iterable[Claim], presence: Mapping[str, State] | None = None
    ) -> list[State]:
        """Returns the states of several claims about the image with a given canonical id.

        Args:
            image: Canonical image id.
            claims: Claims about the image.
            presence: States of labels according to a source that precedes those of the oracle.
        """
        scenes = self._scenes_of(image)
        if len(scenes) == 1 and self.presence is None and not presence and not scenes[0].scene.answers:
            return list(map(scenes[0].state, claims))  # nothing else can decide a claim about an absent label
        absent = {label: state == FALSE for label, state in (presence or {}).items() if state != UNKNOWN}

        def is_absent(label: str) -> bool:
            if label not in absent:
                absent[label] = self._is_absent(image, label)
            return absent[label]

        return [next(self._asked(image, claim, is_absent), (UNKNOWN, None))[0] for claim in claims]

    def _is_absent(self, image: str, label: str) -> bool:
        """Returns True if the first source that decides whether a label is present decides that it is absent."""
        return next(self._asked(image, _present(label)), (UNKNOWN, None))[0] == FALSE

    def probabilities(
        self, image_ids: Sequence[object], claims: Sequence[Sequence[Claim]]
    ) -> list[NDArray[np.float64]]:
        """Returns the probability that each claim of many captions is true.

        The source that decides a claim determines its probability: P(true) according to the judge if the source is a
        claim matrix with probabilities, and otherwise 1 or 0. If no source decides a claim, the first claim matrix that
        contains its probability is used.

        Args:
            image_ids: One image id per caption, in any spelling that :func:`~scapo_eval.base.ids.canonical_image_id`
                accepts.
            claims: Claims of each caption.

        Returns:
            For each caption, an array with one probability per claim. The value is NaN if a claim is unknown and has no
            probability.

        Raises:
            InputError: As for :meth:`states`.
        """
        return [
            np.array([self._chance(image, claim) for claim in of_caption], dtype=np.float64)
            for image, of_caption in _by_caption(image_ids, claims)
        ]

    def probability(self, image_id: object, claim: Claim) -> float:
        """Returns the probability that one claim about an image is true, or NaN; see :meth:`probabilities`."""
        return self._chance(checked_image_id(image_id), claim)

    def _chance(self, image: str, claim: Claim) -> float:
        for state, known in self._asked(image, claim):
            chance = math.nan if known is None else known.chance(claim)
            return float(state) if math.isnan(chance) else chance
        chances = (known.chance(claim) for known in self._scenes_of(image))
        return next((chance for chance in chances if not math.isnan(chance)), math.nan)

    def evidence(self, image_id: object, claim: Claim) -> str:
        """Returns a description of the data that decides a claim, or of the relevant data in all scene graphs if no
        source decides the claim.

        Returns:
            A text such as ``dog: 3, all annotated``, ``bus: red, large`` or ``judged: yes (P(yes) 0.83)``, or an empty
            string if no source contains the image.
        """
        image = checked_image_id(image_id)
        for state, known in self._asked(image, claim):
            if known is None:
                return f"the ground truth {'has' if state else 'has no'} {claim.label}"
            return _said(known, claim)
        if claim.kind in _OF_OBJECTS:
            for label in filter(None, (claim.label, claim.other)):
                if self._is_absent(image, label):
                    return self.evidence(image, _present(label))
        said = (_said(known, claim) for known in self._scenes_of(image))
        return "; ".join(dict.fromkeys(filter(None, said)))

    def _asked(
        self, image: str, claim: Claim, is_absent: Callable[[str], bool] | None = None
    ) -> Iterator[tuple[State, _Known | None]]:
        """Yields each known answer to a claim, together with the scene graph that gives the answer, or None for the
        presence oracle. No answer about an attribute or relation of an absent object is used.
        """
        if claim.kind in _OF_OBJECTS:
            is_absent = is_absent or partial(self._is_absent, image)
            if any(map(is_absent, filter(None, (claim.label, claim.other)))):
                return
        if claim.kind == "presence" and self._truth is not None:
            row = int(self._truth.oracle.find_rows([image])[0])
            if row >= 0:
                label = self.vocabulary.label_ids.get(claim.label)
                if label is None:
                    raise InputError(f"the vocabulary '{self.vocabulary.name}' has no label {short_repr(claim.label)}")
                cell = int(self._truth.states[row, label])
                if cell >= 0:
                    yield TRUE if cell else FALSE, None
        for known in self._scenes_of(image):
            state = known.state(claim)
            if state != UNKNOWN:
                yield state, known


def _by_caption(
    image_ids: Sequence[object], claims: Sequence[Sequence[Claim]]
) -> Iterator[tuple[str, Sequence[Claim]]]:
    """Returns an iterator over the canonical image id and the claims of each caption."""
    if len(image_ids) != len(claims):
        raise InputError(f"{len(image_ids)} image ids for the claims of {len(claims)} captions")
    return zip(map(checked_image_id, image_ids), claims, strict=True)


_OF_OBJECTS = frozenset(("attribute", "relation"))
"""Claim kinds that are unknown if an object of the claim is absent."""


@lru_cache(maxsize=1 << 12)
def _present(label: str) -> Claim:
    """Returns the claim that a label is present."""
    return Claim("presence", label, "", "", "", 0, 0, "claim", ())


def presence_in(scenes: Sequence[Scenes], vocabulary: Vocabulary) -> PresenceOracle:
    """Returns a presence oracle that is computed from scene graphs. If several sources contain an image, the first of
    these sources that contains annotations is used. The folder and the extension of the image may differ between the
    sources (:meth:`Scenes.id_of`).

    A label is present if the source lists an object with the label or a count above 0. A label is absent if the source
    annotates all objects with the label and lists none. All labels that are neither present nor absent are unknown.

    Args:
        scenes: One or more sources of scene graphs.
        vocabulary: Vocabulary whose labels form the label axis.

    Raises:
        InputError: If the scene graphs contain no image.
    """
    graphs: dict[str, SceneGraph] = {}
    for of_file in scenes:
        for image, graph in of_file.scenes.items():
            if not _is_annotated(graphs.get(image)):
                graphs[image] = graph
    for image, graph in graphs.items():
        if not _is_annotated(graph):  # another source may annotate the image under the name of its file
            own = ((of_file, of_file.id_of(image)) for of_file in scenes)
            named = (of_file.scenes[other] for of_file, other in own if other is not None)
            graphs[image] = next(filter(_is_annotated, named), graph)
    states = np.full((len(graphs), len(vocabulary.labels)), UNKNOWN, dtype=np.int8)
    for row, scene in enumerate(graphs.values()):
        known = {**dict.fromkeys(scene.complete, FALSE), **{label: int(n > 0) for label, n in scene.counts.items()}}
        known |= {label: TRUE for (label,) in _labels(scene)}
        states[row, [vocabulary.label_ids[label] for label in known]] = list(known.values())
    source = " + ".join(of_file.source for of_file in scenes)
    return PresenceOracle.from_matrix(states, list(graphs), vocabulary.labels, source=source)


def fact_of(claim: Claim) -> tuple[str, ...]:
    """Returns the fact that a true claim covers, as a tuple like those that :meth:`ClaimOracle.facts` returns.

    Two claims that state the same have the same fact, such as "a dog on a couch" and "a couch below a dog".
    """
    if claim.kind == "text":
        return (" ".join(claim.value.casefold().split()),)
    return {
        "presence": (claim.label,),
        "count": (claim.label,),
        "attribute": (claim.label, claim.value),
        "relation": _relation_fact(claim.label, claim.value, claim.other),
    }[claim.kind]


def _relation_fact(label: str, value: str, other: str) -> tuple[str, str, str]:
    """Returns the fact that a relation states. An object that is on another one is also above it."""
    label, value, other = canonical_relation(label, value, other)
    return label, ABOVE.get(value, value) if other else value, other


def _is_annotated(scene: SceneGraph | None) -> bool:
    """Returns False for a scene graph that contains at most answers to claims."""
    return scene is not None and bool(scene.things or scene.counts or scene.complete or scene.at_least)


class _Known:
    """A scene graph with lookup tables for the objects, attributes and relations.

    Attributes:
        scene: The scene graph.
        things: Mapping from each label to the objects with this label.
    """

    def __init__(self, scenes: Scenes, image: str) -> None:
        self.scene = scenes.scenes[image]
        self._source = scenes, image
        self.things: dict[str, list[Thing]] = {}
        for thing in self.scene.things:
            self.things.setdefault(thing.label, []).append(thing)

    @cached_property
    def relations(self) -> set[tuple[str, str, str]]:
        """Set of the relations in their canonical form, each as (label, word, label) with the labels of both objects
        and the canonical word of the relation.
        """
        scene = self.scene
        return {
            canonical_relation(scene.things[subject].label, reduced_relation(words)[0], scene.things[other].label)
            for subject, words, other in scene.relations
        }

    @cached_property
    def chances(self) -> Mapping[ClaimKey, float]:
        """P(true) of each claim, according to a judge."""
        scenes, image = self._source
        return scenes.chances(image)

    def chance(self, claim: Claim) -> float:
        """Returns P(true) of a claim according to a judge, or NaN if the probability is unknown.

        A judge is asked about a lower bound instead of a restricted count. P(true) of the bound is that of the count
        only if the bound is false.
        """
        answers = self.scene.answers or {}
        asked = _asked_in(answers, claim)
        if claim.restricted and asked != claim.key and answers.get(asked) != FALSE:
            return math.nan
        return self.chances.get(asked, math.nan)

    @cached_property
    def attributes(self) -> Mapping[str, Sequence[set[str]]]:
        """Mapping from each label to the canonical attributes of each object with this label."""
        attributes = dict[str, list[set[str]]]()
        for thing, words in zip(self.scene.things, _attributes_of(self.scene), strict=True):
            attributes.setdefault(thing.label, []).append(words)
        return attributes

    def is_crowd(self, *labels: str) -> bool:
        """Returns True if an object of one of the labels is a crowd."""
        return any(thing.crowd for label in labels for thing in self.things.get(label, ()))

    def state(self, claim: Claim) -> State:
        """Returns 1 (true), 0 (false) or -1 (unknown) for a claim."""
        state = _JUDGES[claim.kind](self, claim)
        return _answered(self.scene, claim) if state == UNKNOWN and self.scene.answers else state


def _answered(scene: SceneGraph, claim: Claim) -> State:
    answers = scene.answers or {}
    asked = _asked_in(answers, claim)
    state = answers.get(asked, UNKNOWN)
    return UNKNOWN if state == TRUE and claim.restricted and asked != claim.key else state


def _asked_in(answers: Mapping[ClaimKey, State], claim: Claim) -> ClaimKey:
    """Returns the claim whose answer decides a given claim. For a relation without an answer, this is the relation that
    states the same.
    """
    asked = asked_as(claim)
    if claim.kind != "relation" or answers.get(asked, UNKNOWN) != UNKNOWN:
        return asked
    other_form = turned(claim.label, claim.value, claim.other)
    key = (claim.kind, *other_form) if other_form else asked
    return key if key in answers else asked


def _presence(known: _Known, claim: Claim) -> State:
    scene = known.scene
    if scene.counts.get(claim.label, 0) or claim.label in known.things or claim.label in (scene.at_least or ()):
        return TRUE
    return FALSE if claim.label in scene.counts or claim.label in scene.complete else UNKNOWN


def _count(known: _Known, claim: Claim) -> State:
    scene = known.scene
    least, most = count_range(claim.value)
    number = scene.counts.get(claim.label)
    exact = number is not None or (claim.label in scene.complete and not known.is_crowd(claim.label))
    if number is None:
        at_least = (scene.at_least or {}).get(claim.label, 0)
        exact = exact and not at_least
        number = at_least or len(known.things.get(claim.label, ()))
    if number < least:
        return FALSE if exact else UNKNOWN
    if most is None or (exact and number <= most):
        return TRUE
    return FALSE if number > most and not claim.restricted else UNKNOWN


def _attribute(known: _Known, claim: Claim) -> State:
    said, cues = known.attributes.get(claim.label, ()), shipped_claim_cues()
    shades = cues.shades.get(claim.value, {claim.value})
    if any(not words.isdisjoint(shades) for words in said):
        return TRUE
    if claim.category != "color" or not said or claim.label not in known.scene.complete:
        return UNKNOWN
    overlapping = cues.overlaps[claim.value]
    others = (words & cues.color_words and words.isdisjoint(overlapping) for words in said)
    return FALSE if all(others) and not known.is_crowd(claim.label) else UNKNOWN


def _attributes_of(scene: SceneGraph) -> list[set[str]]:
    """Returns the canonical attributes of each object, including those in relations, such as "sitting on"."""
    said = [{value for words in thing.attributes for value in reduced_attributes(words)} for thing in scene.things]
    for subject, words, _ in scene.relations:
        said[subject] |= reduced_relation(words)[1]
    return said


def _relation(known: _Known, claim: Claim) -> State:
    scene = known.scene
    things = known.things.get(claim.label, ())
    if not claim.other:
        return _place(scene, claim, things)
    others = known.things.get(claim.other, ())
    if canonical_relation(claim.label, claim.value, claim.other) in known.relations:
        return TRUE
    if not things or not others or not scene.width or not scene.height:
        return UNKNOWN
    if claim.value not in _SIDES and claim.value not in _TOUCHING:
        return UNKNOWN
    complete = {claim.label, claim.other} <= scene.complete and not known.is_crowd(claim.label, claim.other)
    pairs = [
        (a.box, b.box) if a.box is not None and b.box is not None else None
        for a in things
        for b in others
        if a is not b
    ]
    boxed = [pair for pair in pairs if pair is not None]
    if claim.value in _SIDES:
        sides = [_SIDES[claim.value](a, b, scene) for a, b in boxed]
        if any(side > APART for side in sides):
            return TRUE
        return FALSE if complete and pairs and len(boxed) == len(pairs) and max(sides) < -APART else UNKNOWN
    if complete and pairs and len(boxed) == len(pairs):
        return UNKNOWN if any(_near(a, b, scene) for a, b in boxed) else FALSE
    return UNKNOWN


def _place(scene: SceneGraph, claim: Claim, things: Sequence[Thing]) -> State:
    boxes = [thing.box for thing in things if thing.box is not None]
    parts = claim.value.split()  # two for a corner, such as "top left"
    if not _PLACES.keys() >= set(parts) or not boxes or not scene.width or not scene.height:
        return UNKNOWN
    sides = [min(_PLACES[part](box, scene) for part in parts) for box in boxes]
    if any(side > APART for side in sides):
        return TRUE
    complete = claim.label in scene.complete and len(boxes) == len(things) and not any(t.crowd for t in things)
    return FALSE if complete and max(sides) < -APART else UNKNOWN


def _text(known: _Known, claim: Claim) -> State:
    said = " ".join(claim.value.casefold().split())
    written = (thing.text for thing in known.scene.things if thing.text and claim.label in ("", thing.label))
    return TRUE if any(" ".join(text.casefold().split()) == said for text in written) else UNKNOWN


def _x(box: _Box, scene: SceneGraph) -> float:
    return (box[0] + box[2]) / 2 / scene.width


def _y(box: _Box, scene: SceneGraph) -> float:
    return (box[1] + box[3]) / 2 / scene.height


def _near(a: _Box, b: _Box, scene: SceneGraph) -> bool:
    x, y = NEAR * scene.width, NEAR * scene.height
    return a[0] <= b[2] + x and b[0] <= a[2] + x and a[1] <= b[3] + y and b[1] <= a[3] + y


_SIDES: dict[str, Callable[[_Box, _Box, SceneGraph], float]] = {
    "left of": lambda a, b, scene: _x(b, scene) - _x(a, scene),
    "right of": lambda a, b, scene: _x(a, scene) - _x(b, scene),
    "above": lambda a, b, scene: _y(b, scene) - _y(a, scene),
    "below": lambda a, b, scene: _y(a, scene) - _y(b, scene),
}
_PLACES: dict[str, Callable[[_Box, SceneGraph], float]] = {
    "left": lambda box, scene: 0.5 - _x(box, scene),
    "right": lambda box, scene: _x(box, scene) - 0.5,
    "top": lambda box, scene: 0.5 - _y(box, scene),
    "bottom": lambda box, scene: _y(box, scene) - 0.5,
}
_JUDGES: dict[ClaimKind, Callable[[_Known, Claim], State]] = {
    "presence": _presence,
    "count": _count,
    "attribute": _attribute,
    "relation": _relation,
    "text": _text,
}


def _of(scene: SceneGraph, label: str) -> list[Thing]:
    return [thing for thing in scene.things if thing.label == label]


_LISTED = 4
"""Maximum number of objects whose attributes, relations or texts the evidence lists."""


def _said(known: _Known, claim: Claim) -> str:
    """Returns, as readable text, the data of a scene graph about the objects that a claim names."""
    scene = known.scene
    asked, judged = _asked_in(scene.answers or {}, claim), list[str]()
    if (answer := (scene.answers or {}).get(asked)) is not None:
        details = [f"at least {count_range(asked[2])[0]}"] if claim.restricted and asked != claim.key else []
        if (chance := known.chances.get(asked)) is not None:
            details.append(f"P(yes) {chance:.2f}")
        by = "a reference" if scene.by_references else f"judged: {_ANSWERS[answer]}"
        judged.append(f"{by} ({', '.join(details)})" if details else by)
    if scene.answers and not _is_annotated(scene):  # a file from a judge
        return "; ".join(judged)
    if claim.kind == "text":
        texts = [f"“{thing.text}”" for thing in scene.things if thing.text and claim.label in ("", thing.label)]
        return "; ".join([*_listed(texts), *judged])
    parts = [_number(scene, claim.label)]
    if claim.kind == "attribute":
        words = [", ".join(sorted(thing.attributes)) for thing in _of(scene, claim.label) if thing.attributes]
        parts += [f"{claim.label}: {said}" for said in _listed(words)]
    if claim.kind == "relation":
        if claim.other and claim.other != claim.label:
            parts.append(_number(scene, claim.other))
        named = [(scene.things[a].label, words, scene.things[b].label) for a, words, b in scene.relations]
        ends = (claim.label, claim.other), (claim.other, claim.label)
        own = [" ".join(each) for each in named if (each[0], each[2]) in ends or (each[0], "") == ends[0]]
        parts += [*_listed(own), *_measured(scene, claim)]
    return "; ".join(filter(None, [*parts, *judged]))


_ANSWERS: dict[State, str] = {TRUE: "yes", FALSE: "no", UNKNOWN: "undecided"}


def _listed(said: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(said))
    return [*distinct[:_LISTED], *([f"{len(distinct) - _LISTED} more"] if len(distinct) > _LISTED else [])]


def _number(scene: SceneGraph, label: str) -> str:
    """Returns a readable text that states how many objects have a label and whether all of them are annotated."""
    things = _of(scene, label)
    at_least = (scene.at_least or {}).get(label, 0)
    number = scene.counts.get(label, at_least or len(things))
    complete = label in scene.counts or (label in scene.complete and not at_least)
    if not number:
        return f"no {label}" if complete else f"no {label} annotated"
    if any(thing.crowd for thing in things) and label not in scene.counts:
        return f"{label}: {number} annotated, one or more of them a crowd"
    return f"{label}: {number}" + (", all annotated" if complete else " annotated, maybe more")


def _measured(scene: SceneGraph, claim: Claim) -> Iterator[str]:
    """Yields, as readable text, the box measurements that are relevant to a relation."""
    boxes = [thing.box for thing in _of(scene, claim.label) if thing.box is not None]
    if not boxes or not scene.width or not scene.height:
        return
    if not claim.other and _PLACES.keys() >= set(claim.value.split()):
        at = ", ".join(f"{100 * _x(box, scene):.0f} % | {100 * _y(box, scene):.0f} %" for box in boxes[:_LISTED])
        yield f"center from the left | from the top: {at}"
        return
    others = [thing.box for thing in _of(scene, claim.other) if thing.box is not None]
    pairs = [(a, b) for a in boxes for b in others if a is not b]
    if pairs and claim.value in _SIDES:
        side = max(_SIDES[claim.value](a, b, scene) for a, b in pairs)
        yield f"{claim.value} by {100 * side:.0f} % of the picture, by the boxes"
    elif pairs and claim.value in _TOUCHING:
        yield "boxes touch" if any(_near(a, b, scene) for a, b in pairs) else "no boxes come near"


def _labels(scene: SceneGraph) -> Iterator[tuple[str, ...]]:
    yield from ((thing.label,) for thing in scene.things)
    yield from ((label,) for label, number in scene.counts.items() if number)
    yield from ((label,) for label in scene.at_least or ())


def _counted(scene: SceneGraph) -> Iterator[tuple[str, ...]]:
    crowds = {thing.label for thing in scene.things if thing.crowd}
    yield from ((label,) for label, number in scene.counts.items() if number)
    exact = scene.complete - crowds - (scene.at_least or {}).keys()
    yield from ((thing.label,) for thing in scene.things if thing.label in exact)


def _attributes(scene: SceneGraph) -> Iterator[tuple[str, ...]]:
    said = zip(scene.things, _attributes_of(scene), strict=True)
    yield from ((thing.label, value) for thing, values in said for value in values)


def _relations(scene: SceneGraph) -> Iterator[tuple[str, ...]]:
    for subject, predicate, other in scene.relations:
        yield _relation_fact(scene.things[subject].label, reduced_relation(predicate)[0], scene.things[other].label)


def _texts(scene: SceneGraph) -> Iterator[tuple[str, ...]]:
    yield from ((" ".join(thing.text.casefold().split()),) for thing in scene.things if thing.text)


_FACTS: dict[ClaimKind, Callable[[SceneGraph], Iterator[tuple[str, ...]]]] = {
    "presence": _labels,
    "count": _counted,
    "attribute": _attributes,
    "relation": _relations,
    "text": _texts,
}
