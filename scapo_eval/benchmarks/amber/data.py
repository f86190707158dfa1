"""AMBER's own data: annotated objects, objects that models tend to hallucinate, and questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import UNFIT, InputError
from ...base.hashes import digest
from ...base.ids import canonical_image_id
from ...base.reprs import fields_in_short
from ...files.files import read_bytes
from ...files.json_text import dump_json, json_type, read_json
from ...readers.parsers import YesNo

OFFICIAL = "https://github.com/junyangwang0410/AMBER"

DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "existence": ("existence",),
    "attribute": ("state", "number", "action"),
    "state": ("state",),
    "number": ("number",),
    "action": ("action",),
    "relation": ("relation",),
}
"""Reported dimension -> kinds of questions that it covers."""

KINDS = ("existence", "state", "number", "action", "relation")

_KIND_OF_TYPE = {
    "discriminative-hallucination": "existence",
    "discriminative-attribute-state": "state",
    "discriminative-attribute-number": "number",
    "discriminative-attribute-action": "action",
    "discriminative-relation": "relation",
    "relation": "relation",
}


@dataclass(frozen=True, slots=True)
class Description:
    """Generative item: an image with its annotations.

    Attributes:
        truth: Annotated words in the official order, including repetitions. Each word is a slot that a caption can
            cover.
        imagined: Words for objects that models often hallucinate in this image, as chosen by people. Each word is a
            slot.
        supported: Word -> slot of ``truth`` that is covered if a description mentions the word. The official script
            checks the words associated with annotations before the annotations themselves. Many annotated words
            therefore occupy another word's slot.
        expected: Mapping from each word to the slot of ``imagined`` that is covered if a description mentions the word.
    """

    truth: tuple[str, ...]
    imagined: tuple[str, ...]
    supported: Mapping[str, int]
    expected: Mapping[str, int]

    __repr__ = fields_in_short


@dataclass(frozen=True, slots=True)
class Query:
    """Yes/no question with its kind (one of KINDS) and its correct answer."""

    kind: str
    truth: YesNo


AmberItem = Description | Query


@dataclass(frozen=True, slots=True)
class AmberData:
    """Annotations and questions of AMBER.

    Attributes:
        items: Generative items and yes/no questions. The item with id k is at position k - 1.
        words: Closed vocabulary, sorted.
        safe: Words that never count as hallucinated.
        images: Canonical image id of each item, or None if the query files are missing.
        fingerprint: Hash of annotations, associations and safe words.
    """

    items: tuple[AmberItem, ...]
    words: tuple[str, ...]
    safe: frozenset[str]
    images: tuple[str, ...] | None
    fingerprint: str

    __repr__ = fields_in_short

    @property
    def sizes(self) -> dict[str, int]:
        """Number of items per task: ``generative``, ``discriminative``."""
        descriptions = sum(isinstance(item, Description) for item in self.items)
        return {"generative": descriptions, "discriminative": len(self.items) - descriptions}

    @classmethod
    def load(cls, folder: str | Path) -> AmberData:
        """Reads AMBER's data from a copy of the official repository or of its folder ``data``. Any file may have the
        extension ``.gz``.

        Raises:
            InputError: If a file is missing, damaged, or inconsistent with the other files.
        """
        root = Path(folder)
        if not root.is_dir():
            raise InputError(f"folder not found; AMBER's data come with its repository, {OFFICIAL}", path=str(folder))
        if _find(root / "data", "annotations.json"):
            root = root / "data"
        associations = _associations(root)
        safe_file = _require(root, "safe_words.txt")
        safe = frozenset(read_bytes(safe_file).decode("utf-8", "replace").splitlines())
        source = _require(root, "annotations.json")
        entries = read_json(source)
        items = tuple(_items(entries, associations, str(source)))
        return cls(
            items=items,
            words=tuple(sorted({*associations, *(word for words in associations.values() for word in words)})),
            safe=safe,
            images=_images(root, len(entries)),
            fingerprint=digest([dump_json(entries), dump_json(associations), *sorted(safe)]),
        )


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _require(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        reason = f"contains neither {name} nor data/{name}; use the root of a checkout of {OFFICIAL}"
        raise InputError(reason, path=str(folder))
    return path


def _associations(root: Path) -> dict[str, list[str]]:
    path = _require(root, "relation.json")
    associations = read_json(path)
    if not isinstance(associations, dict) or not all(map(_is_words, associations.values())):
        raise InputError("expected AMBER's relation.json: {word: [associated words]}", path=str(path))
    return associations


def _is_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _items(entries: Any, associations: Mapping[str, Sequence[str]], source: str) -> Iterator[AmberItem]:
    if not isinstance(entries, list) or not entries:
        raise InputError(f"expected AMBER's annotations.json: a list, found {json_type(entries)}", path=source)
    for number, entry in enumerate(entries, 1):
        try:
            yield _item(entry, number, associations)
        except UNFIT as error:
            reason = f"not a valid AMBER annotation ({type(error).__name__}: {error})"
            raise InputError(reason, path=source, line=number) from None


def _item(entry: Any, number: int, associations: Mapping[str, Sequence[str]]) -> AmberItem:
    if entry["id"] != number:
        raise ValueError(f"id {entry['id']} is at position {number}")
    if entry["type"] != "generative":
        if entry["truth"] not in ("yes", "no"):
            raise ValueError(f"'truth' must be yes or no, not {entry['truth']!r}")
        return Query(_KIND_OF_TYPE[entry["type"]], entry["truth"])
    truth, imagined = tuple(entry["truth"]), tuple(entry["hallu"])
    return Description(truth, imagined, _slots(truth, associations), _slots(imagined, associations))


def _slots(words: Sequence[str], associations: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Returns a mapping from a word to the slot that it covers, in the lookup order of the official script."""
    slots: dict[str, int] = {}
    for slot, word in enumerate(words):
        if word not in associations:
            raise ValueError(f"AMBER's relation.json has no entry for {word!r}")
        for associated in associations[word]:
            slots.setdefault(associated, slot)
    for slot, word in enumerate(words):
        slots.setdefault(word, slot)
    return slots


def _images(root: Path, n: int) -> tuple[str, ...] | None:
    """Returns the image of every item. The images are read from the folder ``query``, which contains either one file
    with all queries or several files, each with some of the queries.
    """
    folder = root / "query"
    whole = _find(folder, "query_all.json")
    paths = [whole] if whole else sorted(folder.glob("query_*.json*"))
    images: list[str | None] = [None] * n
    for path in paths:
        queries = read_json(path)
        if not isinstance(queries, list):
            raise InputError(f"expected AMBER's queries: a list, found {json_type(queries)}", path=path)
        for number, query in enumerate(queries, 1):
            try:
                position = query["id"] - 1
                if not 0 <= position < n:
                    raise ValueError(f"item {query['id']} not found")
                images[position] = canonical_image_id(query["image"])
            except UNFIT as error:
                reason = f"not a valid AMBER query ({type(error).__name__}: {error})"
                raise InputError(reason, path=str(path), line=number) from None
    return None if None in images else tuple(images)  # type: ignore[arg-type]
