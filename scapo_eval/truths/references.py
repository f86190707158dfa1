"""Reference captions as ground truth. Captions by several people indicate which objects an image contains and how
important each object is.

A label that a reference names is present, and its weight is the share of the references that name it. An object that
everybody mentions is more important than an object that only one of five people mentions. A label that no reference
names is unknown rather than absent, because people omit most of an image's content. A label that no reference names is
absent only in three cases: another ground truth marks the label as absent; a reference denies the object ("an empty
street, no cars") and there is no other ground truth; or ``unnamed="absent"`` treats the references as complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, check_choice, short_repr
from ..base.hashes import digest
from ..base.ids import canonical_image_id
from ..base.reprs import one_line
from ..base.text import fold
from ..files.files import display_name, read_bytes
from ..files.json_text import convert_as, dump_json, iter_records, json_fault, json_type, parse_json, records_of
from ..files.records import Given, Readable, Records, readable
from ..matching.matcher import AliasMatcher
from ..matching.uses import USES, Reading, left_out_codes
from ..matching.vocabulary import Vocabulary
from ..matching.words import content_words, tokens
from .oracle import PresenceOracle, Truth, did_you_mean, ignored_labels
from .truth_coco import is_coco

Unnamed = Literal["unknown", "absent"]
"""State of a label that no reference names."""

UNNAMED: tuple[Unnamed, ...] = ("unknown", "absent")

WEIGHT_UNIT = 1_000_000
"""Number of integer weight units per 1.0. Integer weights have exact sums in any order."""


@dataclass(frozen=True)
class References:
    """Reference captions of images.

    Attributes:
        source: Display name of the file.
        texts: Mapping from canonical image ids to references, in file order.
    """

    source: str
    texts: Mapping[str, tuple[str, ...]]

    def __repr__(self) -> str:
        n = sum(map(len, self.texts.values()))
        return one_line(self, f"{len(self.texts):,} images, {n:,} references: {self.source}")

    @classmethod
    def load(cls, path: Readable) -> References:
        """Reads references from a file whose format is recognized by its content.

        The following formats are supported:

        - JSON Lines or a JSON array with ``image_id`` and ``references`` (a list), or with ``image_id`` and ``caption``
          or ``reference`` (one record per reference).
        - COCO's ``captions_*.json``.
        - A JSON object ``{id: [references]}``.

        The image id may have the key ``image_id``, ``image``, ``image_name`` or ``id``.

        Raises:
            InputError: If the format of the file is unsupported.
            InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
        """
        name = display_name(path)
        if isinstance(path, Records):
            return cls.of_records(iter_records(path), name)
        data = read_bytes(path)
        head = data.lstrip()[:1]
        first, _, rest = data.strip().partition(b"\n")
        is_row = first.rstrip().endswith(b"}") and (rest or any(key in first for key in _ROW_KEYS))
        if head == b"[" or (is_row and b'"annotations"' not in first):
            return cls.of_records(records_of(data, name), name)
        try:
            document = parse_json(data, unique=True)
        except ValueError as error:
            raise json_fault(name, data, error) from None
        if not isinstance(document, dict):
            raise InputError(f"not a valid file of references: found {json_type(document)}", path=name)
        if "annotations" in document:
            if "categories" in document:
                raise InputError("COCO's instances are a ground truth (--truth FILE), not references", path=name)
            written = convert_as(document["annotations"], list[_Caption], name)
            return cls.of_records(enumerate((msgspec.to_builtins(caption) for caption in written), 1), name)
        rows = ({"image_id": image, "references": given} for image, given in document.items())
        return cls.of_records(enumerate(rows, 1), name)

    @classmethod
    def of(cls, given: ReferencesGiven) -> References:
        """Converts a References object, a mapping, records or a file to references. Raises the same errors as
        :meth:`load`.
        """
        if isinstance(given, References):
            return given
        if isinstance(given, Mapping):
            rows = ({"image_id": image, "references": texts} for image, texts in given.items())
            return cls.of_records(enumerate(rows, 1), "references")
        return cls.load(readable(given))

    @classmethod
    def of_records(cls, records: Iterable[tuple[int, Mapping[str, Any]]], source: str) -> References:
        """Builds references from numbered records in the format of :meth:`load`.

        Raises:
            InputErrors: If records are invalid. The error lists all faults with their record numbers.
            InputError: If there are no records.
        """
        faults, by_image = FaultList(), dict[str, list[str]]()
        for number, record in records:
            try:
                image, texts = _row(record)
            except InputError as error:
                faults.add(InputError(error.reason, path=source, line=number))
                continue
            by_image.setdefault(image, []).extend(texts)
        faults.raise_if_any()
        if not by_image:
            raise InputError("there are no references", path=source)
        return cls(source, {image: tuple(texts) for image, texts in by_image.items()})

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the image ids and the texts of the references. The order of the references does not
        change the hash.
        """
        return digest(sorted(dump_json([image, *sorted(texts)]) for image, texts in self.texts.items()))

    @property
    def flat(self) -> tuple[list[str], NDArray[np.int64]]:
        """All references, and a (references,) array with the position of each reference's image in ``texts``."""
        sizes = [len(texts) for texts in self.texts.values()]
        return [text for texts in self.texts.values() for text in texts], np.repeat(np.arange(len(sizes)), sizes)

    def has(self, image: str, caption: str) -> bool:
        """Returns True if a caption equals a reference of its image, ignoring case, white space and punctuation."""
        return written_alike(caption) in self._written[image]

    @cached_property
    def _written(self) -> Mapping[str, frozenset[str]]:
        return {image: frozenset(map(written_alike, texts)) for image, texts in self.texts.items()}

    def without(self, image: str, caption: str) -> tuple[str, ...]:
        """Returns the references of an image except those that equal a caption."""
        left_out = written_alike(caption)
        return tuple(text for text in self.texts[image] if written_alike(text) != left_out)


ReferencesGiven = Given | References | Mapping[Any, Sequence[str]]
"""Accepted forms of references: a file, References, ``{image id: [texts]}``, or records of ``image_id`` and
``references``.
"""

_ROW_KEYS = (b'"image_id"', b'"references"', b'"reference"', b'"caption"')


class _Caption(msgspec.Struct, gc=False):
    image_id: int | str
    caption: str


def _row(record: Mapping[str, Any]) -> tuple[str, list[str]]:
    key = next((key for key in ("image_id", "image", "image_name", "id") if record.get(key) is not None), None)
    if key is None:
        raise InputError(f"references without the image: missing key 'image_id' (found: {_keys(record)})")
    try:
        image = canonical_image_id(record[key])
    except ValueError as error:
        raise InputError(f"image id {error}") from None
    name = next((name for name in ("references", "reference", "caption") if record.get(name) is not None), None)
    if name is None:
        raise InputError(f"missing key 'references' (found: {_keys(record)})")
    given = record[name]
    texts = [given] if isinstance(given, str) else given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"'{name}' of image {image}: expected a string or a list of strings, got {short_repr(given)}")
    if not any(text.strip() for text in texts):
        raise InputError(f"image {image} has no reference")
    return image, [text for text in texts if text.strip()]


def _keys(record: Mapping[str, Any]) -> str:
    return ", ".join(map(str, list(record)[:6]))


def written_alike(text: str) -> str:
    """Returns a normalized copy of a caption for comparisons that ignore case, white space and punctuation."""
    return " ".join(tokens(text)) or fold(text).strip()


@dataclass(frozen=True)
class WordCounts:
    """The content words in the references of one image.

    Attributes:
        named: Mapping from words to the number of references that contain the word.
        n: Number of references.
        length: Mean number of words per reference, at least 1.
    """

    named: Mapping[str, int]
    n: int
    length: float

    @classmethod
    def of(cls, texts: Sequence[str]) -> WordCounts:
        """Counts the words in the references of one image."""
        words = [tokens(text) for text in texts]
        named = Counter(word for reference in words for word in content_words(reference))
        return cls(named, len(texts), max(1.0, sum(map(len, words)) / max(1, len(words))))


@dataclass(frozen=True)
class ReferenceWords:
    """The content words in references, and the rarity of each word across images.

    Attributes:
        references: Reference captions.
        leave_out_self: True to exclude a reference that equals the scored caption.
    """

    references: References
    leave_out_self: bool = False

    @cached_property
    def _counts(self) -> Mapping[str, WordCounts]:
        return {image: WordCounts.of(texts) for image, texts in self.references.texts.items()}

    @cached_property
    def _frequency(self) -> Counter[str]:
        return Counter(word for counts in self._counts.values() for word in counts.named)

    def prepare(self) -> None:
        """Computes the cached word frequencies."""
        _ = self._frequency

    def rarity(self, word: str) -> float:
        """Returns the rarity of a word, which is the positive number ``log(1 + N / (n + 1))`` if the references of n of
        N images contain the word.
        """
        return float(np.log1p(len(self._counts) / (self._frequency[word] + 1)))

    def of(self, image: str, caption: str) -> WordCounts:
        """Returns the reference words with which a caption of an image is compared."""
        if self.leave_out_self and self.references.has(image, caption):
            return WordCounts.of(self.references.without(image, caption))
        return self._counts[image]


@dataclass(frozen=True, repr=False)
class WeightedTruth(Truth):
    """A ground truth with label weights.

    Attributes:
        weights: (rows, labels) int32 array of weights in millionths, with 0 for labels that are not present. The first
            rows belong to the images of the oracle. Each additional row represents an image without one of its
            references, and is used for captions that equal this reference.
        weighting: Description of the weights, for use in signatures.
        words: Words in the references, or None if the weights do not come from references.
        unnamed: State of labels that no reference names.
        joined: True if a second ground truth determines the absent labels.
        own: Mapping from (image id, normalized caption) to the row of the image without this reference.
        given: Name of the file of weights.
        unweighted: Ids of the images for which the file contains no weights.
        strange: Mapping from labels of the file that the vocabulary lacks to their number of images.
    """

    weights: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    weighting: str = ""
    words: ReferenceWords | None = None
    unnamed: Unnamed = "unknown"
    joined: bool = True
    own: Mapping[tuple[str, str], int] = field(default_factory=dict)
    given: str = ""
    unweighted: frozenset[str] = frozenset()
    strange: Mapping[str, int] = field(default_factory=dict)

    def rows_of(self, image_ids: Sequence[str], captions: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the (n,) indices of the rows with which captions are compared; see :meth:`Truth.rows_of`.

        Raises:
            InputError: If the file of weights contains no weights for one of the images.
        """
        if self.unweighted and (
            lacking := next(filter(self.unweighted.__contains__, self.oracle.own_ids(image_ids)), None)
        ):
            raise InputError(f"no weights for image '{lacking}' of {self.oracle.source}", path=self.given)
        if not self.own:
            return rows
        given = zip(self.oracle.own_ids(image_ids), captions, rows.tolist(), strict=True)
        return np.array([self.own.get((image, written_alike(text)), row) for image, text, row in given], dtype=np.int64)

    @property
    def says_absent(self) -> bool:
        """True if absent labels are known well enough for a meaningful hallucination rate. If the only absent labels
        are those that references deny, the value is False.
        """
        return self.joined or self.unnamed == "absent"

    @property
    def signature_fields(self) -> dict[str, str | None]:
        """Additional signature fields for weights and references; see :class:`Truth`."""
        fields: dict[str, str | None] = {"weights": self.weighting}
        if self.words is not None:
            fields["references"] = self.words.references.fingerprint
            fields["unnamed"] = self.unnamed
            fields["self"] = "left-out" if self.words.leave_out_self else None
        return fields

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the interpretation of a ground truth from references; see :class:`Truth`."""
        if self.words is None:
            ignored = self.strange and f"{self.given}: {ignored_labels(self.strange, self.vocabulary, 'weights')}"
            return (*super().notes, *([ignored] if ignored else []))
        if self.joined and self.unnamed == "unknown":
            return super().notes
        note = (
            "labels that no reference names are absent: Hal. Rate is the share of claims that no reference names"
            if self.unnamed == "absent"
            else "labels that no reference names are unknown: Hal. Rate requires another ground truth "
            "(--truth), or --unnamed absent"
        )
        return (f"{self.words.references.source}: {note}", *filter(None, (self.warning,)))


def reference_truth(
    references: References,
    vocabulary: Vocabulary,
    *,
    oracle: PresenceOracle | None = None,
    claims: Reading = "all",
    unnamed: Unnamed = "unknown",
    leave_out_self: bool = False,
    any_fingerprint: bool = False,
) -> WeightedTruth:
    """Returns a ground truth that is built from references and can be joined with another ground truth.

    Args:
        references: Reference captions of the images.
        vocabulary: Labels to find in the references.
        oracle: Second ground truth, which is joined with the references. Labels that this ground truth marks as absent
            remain absent unless a reference names them. Images without references, and images that are missing from the
            second ground truth, are dropped.
        claims: Reading that determines which mentions in references count.
        unnamed: State of labels that are determined neither by a reference nor by the other ground truth.
        leave_out_self: True to compare a caption that equals a reference only with the other references.
        any_fingerprint: True to accept a matrix that was made for another vocabulary.

    Raises:
        InputError: If no image has both ground truth and references.
    """
    check_choice("unnamed", unnamed, UNNAMED)
    other = None if oracle is None else Truth.of(oracle, vocabulary, any_fingerprint=any_fingerprint)
    images = [image for image in references.texts if other is None or image in other.index]
    if not images:
        raise InputError(f"share no image with {oracle.source if oracle else ''}", path=references.source)
    kept = References(references.source, {image: references.texts[image] for image in images})
    rows = _rows(kept, leave_out_self)
    named, denied = _named(kept.flat[0], vocabulary, claims)
    row = np.repeat(np.arange(len(rows.members)), [len(members) for members in rows.members])
    member = np.array([k for members in rows.members for k in members], dtype=np.int64)
    shape = len(rows.members), len(vocabulary.labels)
    n_named, n_denied = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
    np.add.at(n_named, row, named[member])
    np.add.at(n_denied, row, denied[member])
    n = np.bincount(row, minlength=shape[0])[:, None]
    if other is None:
        states = np.where(n_denied > 0, 0, -1).astype(np.int8)
    else:
        states = other.states[[other.index[images[k]] for k in rows.image]]
    if unnamed == "absent":
        states[(states == -1) & (n > 0)] = 0
    states[n_named > 0] = 1
    joined = PresenceOracle.from_matrix(
        states[: len(images)], images, vocabulary.labels, vocabulary_fingerprint=vocabulary.fingerprint,
        source=" + ".join([*([oracle.source] if oracle else []), references.source]),
    )  # fmt: skip
    return WeightedTruth(
        oracle=joined,
        vocabulary=vocabulary,
        states=states,
        n_present=(states == 1).sum(axis=1, dtype=np.int64),
        dropped={} if other is None else other.dropped,
        weights=np.rint(n_named * WEIGHT_UNIT / np.maximum(n, 1)).astype(np.int32),
        weighting="references",
        words=ReferenceWords(references, leave_out_self),
        unnamed=unnamed,
        joined=other is not None,
        own=rows.own,
    )


def given_weights(
    weights: Readable, oracle: PresenceOracle, vocabulary: Vocabulary, *, any_fingerprint: bool = False
) -> WeightedTruth:
    """Returns a ground truth with label weights from a file.

    Args:
        weights: COCO ``instances_*.json``, JSON Lines with ``image_id`` and ``weights`` (``{label: number}``), or a
            JSON object ``{id: {label: number}}``. For COCO, the weight of a label is the share of the image area that
            the label's objects cover, capped at 1.
        oracle: Ground truth. The weight of a present label is 0 if the file contains no weight for the label.
        vocabulary: Vocabulary with the labels to weight.
        any_fingerprint: True to accept a matrix that was made for another vocabulary.

    Raises:
        InputError: If the weights are invalid, or if no present label has a weight. Captions of images without weights
            cause an error later; see :meth:`WeightedTruth.rows_of`.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    truth = Truth.of(oracle, vocabulary, any_fingerprint=any_fingerprint)
    name, given = display_name(weights), read_weights(weights)
    table = np.zeros(truth.states.shape, dtype=np.int32)
    ids, aliases = vocabulary.label_ids, vocabulary.aliases
    strange: Counter[str] = Counter()
    unweighted = frozenset(oracle.image_ids).difference(given)
    for row, image in enumerate(oracle.image_ids):
        for label, weight in given.get(image, {}).items():
            k = ids.get(label, ids.get(aliases.get(label, "")))
            if k is None:
                strange[label] += 1
            elif truth.states[row, k] == 1:
                table[row, k] = round(weight * WEIGHT_UNIT)
    if not table.any():
        if len(unweighted) == len(oracle.image_ids):
            raise InputError(f"no weights for image '{oracle.image_ids[0]}' of {oracle.source}", path=name)
        hint = did_you_mean(list(strange), vocabulary)
        raise InputError(f"no weight is above 0 for a present label of '{vocabulary.name}'{hint}", path=name)
    identity = f"{Path(name).name}@{digest([table.tobytes()])}"
    return WeightedTruth(
        **{f.name: getattr(truth, f.name) for f in fields(Truth)},
        weights=table,
        weighting=identity,
        given=name,
        unweighted=unweighted,
        strange=strange,
    )


DEFAULT_VOCABULARY, REFERENCE_VOCABULARY = "coco80", "open400"
"""Default vocabularies: COCO's labels for a ground truth, and a much larger vocabulary for references alone."""


@dataclass(frozen=True)
class Beside:
    """References or label weights that complement a ground truth, or references that replace it.

    Attributes:
        references: Reference captions, or None if no references are given.
        weights: File of label weights, or None if no weights are given.
        unnamed: State of labels that no reference names.
        leave_out_self: True to compare a caption that equals a reference only with the other references.
    """

    references: References | None = None
    weights: Readable | None = None
    unnamed: Unnamed = "unknown"
    leave_out_self: bool = False

    def __post_init__(self) -> None:
        check_choice("unnamed", self.unnamed, UNNAMED)
        if self.references is None and (self.unnamed != "unknown" or self.leave_out_self):
            option = "leave_out_self (--leave-out-self)" if self.leave_out_self else "unnamed (--unnamed)"
            raise InputError(f"{option} requires references (--references)")
        if self.references is not None and self.weights is not None:
            raise InputError("references are already weights; use either references or a file of weights (--weights)")

    @classmethod
    def of(
        cls,
        references: ReferencesGiven | None,
        weights: Given | None,
        unnamed: Unnamed | None,
        leave_out_self: bool,
    ) -> Beside:
        """Builds a :class:`Beside` from the arguments of a function or command.

        Raises:
            InputError: If references or weights are invalid, or if the options cannot be combined.
        """
        return cls(
            None if references is None else References.of(references),
            None if weights is None else readable(weights),
            unnamed or "unknown",
            leave_out_self,
        )

    def default_vocabulary(self, oracle: PresenceOracle | None) -> str:
        """Returns the name of the vocabulary that is used if none is given."""
        return REFERENCE_VOCABULARY if self.references and oracle is None else DEFAULT_VOCABULARY

    def truth(
        self, oracle: PresenceOracle | None, vocabulary: Vocabulary, claims: Reading, *, any_fingerprint: bool = False
    ) -> PresenceOracle | WeightedTruth | None:
        """Combines a ground truth with the given references or weights. If there are no references and no weights, the
        ground truth is returned unchanged.

        Args:
            oracle: Ground truth to combine with the references or weights, or None.
            vocabulary: Vocabulary with the labels that count.
            claims: Reading that determines which mentions in references count.
            any_fingerprint: True to accept a matrix that was made for another vocabulary.

        Raises:
            InputError: If weights are given without a ground truth, or if references and ground truth have no image in
                common.
        """
        if self.references is not None:
            return reference_truth(
                self.references,
                vocabulary,
                oracle=oracle,
                claims=claims,
                unnamed=self.unnamed,
                leave_out_self=self.leave_out_self,
                any_fingerprint=any_fingerprint,
            )
        if self.weights is None:
            return oracle
        if oracle is None:
            raise InputError("weights require a ground truth (--truth)")
        return given_weights(self.weights, oracle, vocabulary, any_fingerprint=any_fingerprint)


def read_weights(path: Readable) -> dict[str, dict[str, float]]:
    """Reads label weights as a nested mapping from canonical image ids to labels to weights in [0, 1].

    The docstring of :func:`given_weights` describes the formats.

    Raises:
        InputError: If the format of the file is unsupported.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    name = display_name(path)
    if isinstance(path, Records):
        return _weights_of(iter_records(path), name)
    data = read_bytes(path)
    if is_coco(data):
        return _areas(data, name)
    first = data.lstrip().partition(b"\n")[0]
    if data.lstrip()[:1] == b"[" or b'"weights"' in first:
        return _weights_of(records_of(data, name), name)
    try:
        document = parse_json(data, unique=True)
    except ValueError as error:
        raise json_fault(name, data, error) from None
    if not isinstance(document, dict):
        raise InputError(f"not a valid file of weights: found {json_type(document)}", path=name)
    rows = ({"image_id": image, "weights": given} for image, given in document.items())
    return _weights_of(enumerate(rows, 1), name)


class _Sized(msgspec.Struct, gc=False):
    id: int
    width: float
    height: float


class _Named(msgspec.Struct, gc=False):
    id: int
    name: str


class _Area(msgspec.Struct, gc=False):
    image_id: int
    category_id: int
    area: float


class _Areas(msgspec.Struct, gc=False):
    images: list[_Sized]
    annotations: list[_Area]
    categories: list[_Named]


def _areas(data: bytes, name: str) -> dict[str, dict[str, float]]:
    try:
        coco = msgspec.json.decode(data, type=_Areas)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a valid COCO instances file with areas: {error}", path=name) from None
    sizes = {image.id: image.width * image.height for image in coco.images}
    names = {category.id: category.name for category in coco.categories}
    for kind, listed, distinct in (("images", coco.images, sizes), ("categories", coco.categories, names)):
        if len(listed) > len(distinct):
            raise InputError(f"{len(listed) - len(distinct)} {kind} have an id that occurs before", path=name)
    try:
        ids = [canonical_image_id(image) for image in sizes]
    except ValueError as error:
        raise InputError(f"not a valid COCO instances file with areas: image id {error}", path=name) from None
    shares: dict[int, dict[str, float]] = {image: {} for image in sizes}
    for annotation in coco.annotations:
        size, label = sizes.get(annotation.image_id, 0), names.get(annotation.category_id)
        if size <= 0 or label is None or annotation.area < 0:
            raise InputError(
                f"not a valid annotation of image {annotation.image_id} (image, category or area)", path=name
            )
        covered = shares[annotation.image_id]
        covered[label] = min(1.0, covered.get(label, 0.0) + annotation.area / size)
    return dict(zip(ids, shares.values(), strict=True))


def _weights_of(records: Iterable[tuple[int, Mapping[str, Any]]], source: str) -> dict[str, dict[str, float]]:
    faults, by_image = FaultList(), dict[str, dict[str, float]]()
    for number, record in records:
        try:
            image, weights = canonical_image_id(record.get("image_id")), record.get("weights")
        except ValueError as error:
            faults.add(InputError(f"image id {error}", path=source, line=number))
            continue
        if not isinstance(weights, Mapping):
            faults.add(InputError(f"image {image}: missing key 'weights', an object", path=source, line=number))
        elif image in by_image:
            faults.add(InputError(f"image {image} appears twice", path=source, line=number))
        elif wrong := [item for item in weights.items() if not _is_weight(item[1])]:
            reason = f"image {image}, label '{wrong[0][0]}': {short_repr(wrong[0][1])} is not in [0, 1]"
            faults.add(InputError(reason, path=source, line=number))
        else:
            by_image[image] = dict(weights)
    faults.raise_if_any()
    return by_image


def _is_weight(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


class _Rows(NamedTuple):
    """Rows of a ground truth from references: first one row for each image with all of its references, then one row for
    each image and omitted reference.

    Attributes:
        image: Position of each row's image.
        members: Positions of the references of each row.
        own: Mapping from (image id, normalized caption) to the row of the image without this reference.
    """

    image: list[int]
    members: list[list[int]]
    own: dict[tuple[str, str], int]


def _rows(references: References, leave_out_self: bool) -> _Rows:
    firsts = np.cumsum([0, *map(len, references.texts.values())]).tolist()
    members = [list(range(low, high)) for low, high in pairwise(firsts)]
    rows = _Rows(list(range(len(members))), members, {})
    if leave_out_self:
        for k, (image, texts) in enumerate(references.texts.items()):
            written = [written_alike(text) for text in texts]
            for left_out in dict.fromkeys(written):
                rows.own[image, left_out] = len(rows.members)
                rows.image.append(k)
                rows.members.append([firsts[k] + j for j, reference in enumerate(written) if reference != left_out])
    return rows


def _named(
    texts: Sequence[str], vocabulary: Vocabulary, claims: Reading
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns two (references, labels) masks: the labels that each reference names, and the labels that each reference
    denies.
    """
    mentions, uses = AliasMatcher(vocabulary).find_all_uses(texts)
    named, denied = (np.zeros((len(texts), len(vocabulary.labels)), dtype=bool) for _ in range(2))
    counts = ~left_out_codes(claims)[uses]
    negated = uses == USES.index("negated")
    caption = mentions.caption
    named[caption[counts & ~negated], mentions.label_id[counts & ~negated]] = True
    denied[caption[negated], mentions.label_id[negated]] = True
    return named, denied
