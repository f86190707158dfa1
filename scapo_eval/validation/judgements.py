"""Reader for sets of human judgments: five public sets in their published formats, or custom sets as JSON Lines.

An item is a caption (or a statement, or a pair of captions) about an image, with one rating per dimension. The package
includes no judgments, so users must supply the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, short_repr
from ..base.ids import canonical_image_id
from ..base.reprs import one_line
from ..files.fields import Record
from ..files.files import display_name
from ..files.json_text import iter_records
from ..files.records import Readable
from .halves import Half, half_of

MIN_ITEMS = 30
"""Minimum number of items for a meaningful correlation."""

Range = tuple[float, float]


@dataclass(frozen=True)
class MarkedSpan:
    """Span of a caption that an annotator marked.

    Attributes:
        start, end: Character offsets in the caption.
        wrong: True if the text in the span does not match the image.
    """

    start: int
    end: int
    wrong: bool


@dataclass(frozen=True)
class RatedText:
    """Text that people judged.

    Attributes:
        id: Id by which external scores are joined with the text.
        image: Canonical id of the image, or the id of the item if there is no image. Images are the units of
            resampling.
        caption: Text of the caption.
        ratings: Mapping from each dimension to its rating, or to None if the rating is missing.
        system: Name of the system that wrote the text, or None if it is unknown.
        rival: Second text about the same image, for pairs. The ratings of a pair state by how much ``caption`` is
            better than ``rival``.
        spans: Marked spans of the text, or None if no annotator marked the text.
        references: Reference captions of the image, if the set contains them.
        line: Line number in the file.
    """

    id: str
    image: str
    caption: str
    ratings: Mapping[str, float | None]
    system: str | None = None
    rival: str | None = None
    spans: tuple[MarkedSpan, ...] | None = None
    references: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True)
class Judgements:
    """Set of human judgments.

    Attributes:
        name: Name of the set, such as ``thumb``, or ``own`` for custom sets.
        source: Display name of the file.
        items: Judged texts, in the order of the file.
        ranges: Mapping from each dimension to its minimum and maximum rating, for dimensions with a known range.
    """

    name: str
    source: str
    items: tuple[RatedText, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def __repr__(self) -> str:
        images = len({item.image for item in self.items})
        return one_line(self, f"{self.name}: {len(self.items):,} items, {images:,} images: {self.source}")

    @classmethod
    def load(cls, path: Readable, *, name: str | None = None, ranges: Mapping[str, Range] | None = None) -> Judgements:
        """Reads a set of human judgments and recognizes the set by the fields of its records.

        The data of THumB and FAITHSCORE can be read in their published formats. THumB, FAITHSCORE, HaELM, Composite and
        IIW-400 can be read with the fields that docs/validity.md lists. Custom sets have the fields ``image_id``,
        ``caption`` and ``rating`` (or ``ratings`` with one value per dimension), and optionally ``id``, ``system`` and
        ``references``. Pairs also have the field ``rival``, and captions with marked spans have the field ``spans`` (a
        list of ``start``, ``end`` and ``wrong``).

        Args:
            path: Path of a JSON Lines file or a JSON array, optionally compressed (``.gz`` or ``.zst``), or records in
                memory.
            name: Name of the set, for files whose fields match several sets (such as ``faithscore-answers``). If
                ``name`` is None, the first set that matches is used.
            ranges: Mapping from each dimension to its minimum and maximum rating, for custom sets.

        Raises:
            InputErrors: If records are invalid. The error lists the faults by line.
            InputError: If the name of the set is unknown, or if the fields of the file match no set.
        """
        source = display_name(path)
        records = list(iter_records(path))
        kinds = [kind for kind in SETS if kind.fits(records[0][1]) and name in (None, kind.name)]
        if name is not None and name not in [kind.name for kind in SETS]:
            raise InputError(f"set must be one of {', '.join(dict.fromkeys(kind.name for kind in SETS))}, got {name!r}")
        if not kinds:
            fields = ", ".join(map(str, list(records[0][1])[:8]))
            wanted = f"the set '{name}'" if name else "human judgments"
            raise InputError(
                f"not valid as {wanted}: expected image_id, caption and rating (found: {fields})", path=source
            )
        kind = kinds[0]
        known = {**kind.ranges, **(ranges or {})}
        faults, items = FaultList(), list[RatedText]()
        for number, record in records:
            try:
                items += [_checked(replace(item, line=number), known) for item in kind.items(record, number)]
            except InputError as error:
                faults.add(InputError(error.reason, path=source, line=number))
        for item in items:
            if (said := _kind_of(item)) != (first := _kind_of(items[0])):
                reason = f"{said}, but line {items[0].line} has {first}: a file contains only one kind of judgment"
                faults.add(InputError(reason, path=source, line=item.line))
        faults.raise_if_any()
        _refuse_twice(items, source)
        judgements = cls(kind.name, source, tuple(items), known)
        for dimension in ranges or ():
            if dimension not in judgements.dimensions:
                there = ", ".join(judgements.dimensions) or "none"
                reason = f"no rating '{dimension}', for which a range is given (there are: {there})"
                raise InputError(reason, path=source)
        return judgements

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions, in the order of their first occurrence."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.ratings))

    @property
    def references(self) -> dict[str, tuple[str, ...]]:
        """Mapping from each image to its reference captions in the set."""
        return {item.image: item.references for item in self.items if item.references}

    @property
    def pairs(self) -> bool:
        """True if the ratings compare two texts."""
        return any(item.rival is not None for item in self.items)

    @property
    def statements(self) -> bool:
        """True if the items are single statements. A statement that claims no label has no verdict."""
        return self.name == "faithscore"

    @property
    def marked(self) -> bool:
        """True if annotators marked spans of the texts."""
        return any(item.spans is not None for item in self.items)

    def rating(self, dimension: str) -> NDArray[np.float64]:
        """Returns the (items,) ratings in one dimension, with NaN for missing ratings.

        Raises:
            InputError: If the dimension is unknown or has fewer than MIN_ITEMS ratings, or if all its ratings are
                equal.
        """
        if dimension not in self.dimensions:
            known = ", ".join(self.dimensions) or "none"
            raise InputError(f"rating '{dimension}' not found (there are: {known})", path=self.source)
        given = (item.ratings.get(dimension) for item in self.items)
        values = np.array([np.nan if value is None else value for value in given], dtype=np.float64)
        there = values[~np.isnan(values)]
        if len(there) < MIN_ITEMS:
            missing = f" ({len(values) - len(there):,} are missing)" if len(there) < len(values) else ""
            reason = f"rating '{dimension}': {len(there)} items{missing}; a correlation requires at least {MIN_ITEMS}"
            raise InputError(reason, path=self.source)
        if there.min() == there.max():
            raise InputError(
                f"rating '{dimension}' is {there[0]:g} for every item, so agreement cannot be measured",
                path=self.source,
            )
        return values

    def half(self, half: Half) -> Judgements:
        """Returns the subset of the judgments whose images are in one half; see
        :func:`~scapo_eval.validation.halves.half_of`.
        """
        return replace(self, items=tuple(item for item in self.items if half_of(item.image) == half))

    def without_systems(self, names: Sequence[str]) -> Judgements:
        """Returns the set without the texts of the given systems.

        Raises:
            InputError: If a system is not in the set.
        """
        there = {item.system for item in self.items if item.system is not None}
        for name in names:
            if name not in there:
                raise InputError(f"system '{name}' not found (there are: {', '.join(sorted(there))})", path=self.source)
        return replace(self, items=tuple(item for item in self.items if item.system not in names))


def _kind_of(item: RatedText) -> str:
    return "a pair" if item.rival is not None else "marked spans" if item.spans is not None else "a rating"


def _checked(item: RatedText, ranges: Mapping[str, Range]) -> RatedText:
    for name, value in item.ratings.items():
        if value is None:
            continue
        low, high = ranges.get(name, (-np.inf, np.inf))
        if not low <= value <= high or not np.isfinite(value):
            raise InputError(f"rating '{name}' is {value:g}, not in [{low:g}, {high:g}]")
    return item


def _refuse_twice(items: Sequence[RatedText], source: str) -> None:
    first: dict[str, int] = {}
    for item in items:
        if item.id in first:
            raise InputError(f"id '{item.id}' appears twice (lines {first[item.id]} and {item.line})", path=source)
        first[item.id] = item.line


@dataclass(frozen=True)
class _Set:
    """Published set of judgments, with the function that reads its records.

    Attributes:
        name: Name of the set.
        keys: Fields by which the set is recognized.
        items: Function that converts a record and its line number to items.
        ranges: Mapping from each dimension to its minimum and maximum rating.
    """

    name: str
    keys: tuple[str, ...]
    items: Callable[[Record, int], Iterable[RatedText]]
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def fits(self, record: Record) -> bool:
        return all(key in record for key in self.keys)


def _id(record: Record, key: str, number: int) -> str:
    given = record.get(key)
    return str(number if given is None else given)


def _image(record: Record, *keys: str) -> str:
    given = next((record[key] for key in keys if record.get(key) is not None), None)
    if given is None:
        raise InputError(f"missing key '{keys[0]}' (found: {', '.join(map(str, list(record)[:8]))})")
    try:
        return canonical_image_id(given)
    except ValueError as error:
        raise InputError(f"image id {error}") from None


def _text(record: Record, *keys: str) -> str:
    given = next((record[key] for key in keys if key in record), None)
    if not isinstance(given, str):
        raise InputError(f"'{keys[0]}' must be a text, got {short_repr(given)}")
    return given


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"rating '{name}' must be a number, got {short_repr(value)}")
    return float(value)


def _references(record: Record) -> tuple[str, ...]:
    given = record.get("references") or []
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise InputError(f"'references' must be a list of texts, got {short_repr(given)}")
    return tuple(text for text in given if text.strip())


_THUMB_PUBLISHED = {"precision": "P", "recall": "R", "total": "human_score", "fluency": "Fl", "conciseness": "Con"}


def _thumb(record: Record, number: int) -> Iterator[RatedText]:
    published = "hyp" in record
    ratings = {name: _number(record.get(key if published else name), name) for name, key in _THUMB_PUBLISHED.items()}
    image, system = _image(record, "image_id", "image"), _text(record, "system", "SYS")
    yield RatedText(f"{image}/{system}", image, _text(record, "caption", "hyp"), ratings, system)


def _facts(record: Record) -> list[tuple[str, float | None]]:
    given = record.get("facts", record.get("stage 2"))
    if isinstance(given, Mapping):  # published format
        given = [{"text": text, "label": label} for text, label in given.items()]
    if not isinstance(given, list) or not all(isinstance(fact, Mapping) for fact in given):
        raise InputError(f"'facts' must be a list of objects, got {short_repr(given)}")
    return [(_text(fact, "text"), _number(fact.get("label"), "label")) for fact in given]


_COUNTS = frozenset("two three four five six seven eight nine ten several many multiple few some numerous no".split())


def _object_fact(text: str) -> bool:
    """Returns True if a fact states that an object is present, without stating a number of objects."""
    return text.startswith(("There is ", "There are ")) and _COUNTS.isdisjoint(text.lower().rstrip(".").split())


def _faithscore(record: Record, number: int) -> Iterator[RatedText]:
    image = _image(record, "image_id", "id")
    for k, (text, true) in enumerate(_facts(record)):
        ratings = {"object": true if _object_fact(text) else None, "true": true}
        yield RatedText(f"{number}/{k}", image, text, ratings)


def _faithscore_answers(record: Record, number: int) -> Iterator[RatedText]:
    labeled = [(text, label) for text, label in _facts(record) if label is not None]
    true = [label for _, label in labeled]
    objects = [label for text, label in labeled if _object_fact(text)]
    ratings = {
        "true": float(np.mean(true)) if true else None,
        "objects": float(np.mean(objects)) if objects else None,
    }
    yield RatedText(str(number), _image(record, "image_id", "id"), _text(record, "answer"), ratings)


def _haelm(record: Record, number: int) -> Iterator[RatedText]:
    accurate = record.get("accurate")
    if accurate not in ("yes", "no"):
        raise InputError(f"'accurate' must be yes or no, got {short_repr(accurate)}")
    item = _id(record, "id", number)
    yield RatedText(
        item, item, _text(record, "caption"), {"accurate": float(accurate == "yes")}, references=_references(record)
    )


def _composite(record: Record, number: int) -> Iterator[RatedText]:
    ratings = {"rating": _number(record.get("rating"), "rating")}
    yield RatedText(_id(record, "row", number), _image(record, "image_id"), _text(record, "caption"), ratings)


def _iiw(record: Record, number: int) -> Iterator[RatedText]:
    given = record.get("sxs_p5b")
    if not isinstance(given, Mapping) or not isinstance(record.get("p5b"), str):
        return
    ratings = {
        str(name): _number(rating.get("score") if isinstance(rating, Mapping) else rating, str(name))
        for name, rating in given.items()
    }
    image = _image(record, "image")
    yield RatedText(image, image, _text(record, "human"), ratings, rival=_text(record, "p5b"))


def _own(record: Record, number: int) -> Iterator[RatedText]:
    given = record.get("ratings", {} if "spans" in record else {"rating": record.get("rating")})
    if not isinstance(given, Mapping):
        raise InputError(f"'ratings' must be an object, got {short_repr(given)}")
    rival = None if record.get("rival") is None else _text(record, "rival")
    caption = _text(record, "caption")
    yield RatedText(
        _id(record, "id", number),
        _image(record, "image_id", "image"),
        caption,
        {str(name): _number(value, str(name)) for name, value in given.items()},
        None if record.get("system") is None else _text(record, "system"),
        rival,
        _spans(record["spans"], caption) if "spans" in record else None,
        _references(record),
    )


def _spans(given: object, caption: str) -> tuple[MarkedSpan, ...]:
    if not isinstance(given, list):
        raise InputError(f"'spans' must be a list, got {short_repr(given)}")
    spans = []
    for part in given:
        start, end = (part.get("start"), part.get("end")) if isinstance(part, Mapping) else (None, None)
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end <= len(caption):
            raise InputError(f"span {short_repr(part)}: 'start' and 'end' must be characters of the caption")
        if not isinstance(part.get("wrong"), bool):
            raise InputError(f"span {start}-{end}: 'wrong' must be true or false")
        spans.append(MarkedSpan(start, end, part["wrong"]))
    return tuple(spans)


_FIVE, _YES = (1.0, 5.0), (0.0, 1.0)

SETS = (
    _Set("thumb", ("hyp", "human_score"), _thumb, {"precision": _FIVE, "recall": _FIVE}),
    _Set("thumb", ("caption", "precision", "recall", "total"), _thumb, {"precision": _FIVE, "recall": _FIVE}),
    _Set("faithscore", ("answer", "facts"), _faithscore, {"object": _YES, "true": _YES}),
    _Set("faithscore", ("answer", "stage 2"), _faithscore, {"object": _YES, "true": _YES}),
    _Set("faithscore-answers", ("answer", "facts"), _faithscore_answers, {"objects": _YES, "true": _YES}),
    _Set("faithscore-answers", ("answer", "stage 2"), _faithscore_answers, {"objects": _YES, "true": _YES}),
    _Set("haelm", ("caption", "accurate"), _haelm, {"accurate": _YES}),
    _Set("composite", ("row", "image_id", "caption", "rating"), _composite, {"rating": _FIVE}),
    _Set("iiw400", ("human", "sxs_p5b"), _iiw),
    _Set("own", ("caption", "rating"), _own),
    _Set("own", ("caption", "ratings"), _own),
    _Set("own", ("caption", "spans"), _own),
)
"""Known sets. A file belongs to the first set that fits."""
