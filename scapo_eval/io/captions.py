"""Caption files: blocks of raw lines, so that one process reads and any number parse and score.

Own format: one JSON object a line with ``image_id`` and ``caption`` (SPEC section 8). Other tools' files
are recognised and converted by :mod:`scapo_eval.io.formats`.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ..errors import InputError, InputErrors
from ..ids import canonical_image_id
from .files import FaultList, display_name, dump_json, iter_line_blocks, json_fault, json_type, parse_array, parse_json

BLOCK_BYTES = 1 << 20
"""Raw bytes per block: about two passes of the matcher, small beside the tables of the truth."""

ARRAY_BLOCK = 2048
"""Records per block of a file that is one JSON array."""


_FAULTY: Any = object()


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a file, unparsed.

    Attributes:
        name: the file's display name.
        lines: the lines, or the elements of a JSON array written as lines.
        numbers: 1-based number of each.
    """

    name: str
    lines: list[bytes]
    numbers: list[int]


@dataclass(slots=True)
class Captions:
    """Parsed captions of one block.

    Attributes:
        image_ids: canonical ids; captions: texts; numbers: line numbers, all of one length.
        ids: the explicit ``id`` of each, None where there is none.
        objects: inline truth of each, None where there is none.
    """

    image_ids: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    objects: list[list[str] | None] = field(default_factory=list)


def iter_blocks(path: str | Path) -> Iterator[Block]:
    """The lines of a file, or the elements of its one JSON array, in blocks and in order.

    Raises:
        InputError: the file cannot be read, or holds no record.
    """
    name = display_name(path)
    blocks = iter_line_blocks(path, BLOCK_BYTES)
    first = next(blocks, None)
    if first is None:
        raise InputError(name, None, "the file holds no record (empty or only blank lines)")
    blocks = chain([first], blocks)
    if first[1][0][:1] != b"[":
        yield from (Block(name, lines, numbers) for numbers, lines in blocks)
        return
    values = parse_array(name, chain.from_iterable(zip(numbers, lines, strict=True) for numbers, lines in blocks))
    for k in range(0, len(values), ARRAY_BLOCK):
        lines = [dump_json(value) for value in values[k : k + ARRAY_BLOCK]]
        yield Block(name, lines, list(range(k + 1, k + 1 + len(lines))))


def parse_block(block: Block, faults: FaultList) -> Captions:
    """Parses and checks the records of a block; faulty ones go to ``faults`` and are left out."""
    try:
        records = [orjson.loads(line) for line in block.lines]
    except orjson.JSONDecodeError:  # a fault, or a lone surrogate, somewhere
        records = [_parse_line(block, k, faults) for k in range(len(block.lines))]
    return captions_of(block.name, zip(block.numbers, records, strict=True), faults)


def captions_of(name: str, records: Iterable[tuple[int, Any]], faults: FaultList) -> Captions:
    """Checks numbered records; faulty ones go to ``faults`` and are left out."""
    out = Captions()
    canonical: dict[Any, str] = {}
    for number, record in records:
        if record is _FAULTY:
            continue
        try:
            caption, raw = record["caption"], record["image_id"]
            image = canonical.get(raw) if type(raw) in (int, str) else canonical_image_id(raw)
            if image is None:
                image = canonical[raw] = canonical_image_id(raw)
            if type(caption) is not str:
                raise TypeError
        except (KeyError, TypeError, ValueError) as error:
            faults.add(InputError(name, number, _record_reason(record, error)))
            continue
        objects = record.get("objects")
        if objects is not None and not (isinstance(objects, list) and all(isinstance(o, str) for o in objects)):
            faults.add(InputError(name, number, "'objects' must be a list of strings"))
            continue
        out.image_ids.append(image)
        out.captions.append(caption)
        out.numbers.append(number)
        out.ids.append(record.get("id"))
        out.objects.append(objects)
    return out


def _parse_line(block: Block, k: int, faults: FaultList) -> Any:
    try:
        return parse_json(block.lines[k])
    except ValueError as error:
        faults.add(json_fault(block.name, block.lines[k], error, [block.numbers[k]]))
        return _FAULTY


def _record_reason(record: Any, error: Exception) -> str:
    if not isinstance(record, Mapping):
        return f"expected a JSON object, found {json_type(record)}"
    found = ", ".join(map(str, list(record)[:8])) or "nothing"
    for key in ("image_id", "caption"):
        if key not in record:
            hint = "; is it a rollout? use scapo-eval reward" if key == "caption" and "response" in record else ""
            return f"missing key '{key}' (found: {found}){hint}"
    if isinstance(error, ValueError):
        return f"'image_id' {error}"
    return f"'caption' must be a string, found {json_type(record['caption'])}"


class DuplicateIds:
    """Finds an explicit ``id`` that stands twice, at 16 bytes per id whatever the ids look like."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hashes = array("q")
        self._numbers = array("q")

    def add(self, captions: Captions) -> None:
        """Takes the ids of one block; call in the order of the file."""
        for identity, number in zip(captions.ids, captions.numbers, strict=True):
            if identity is not None:
                state = hashlib.blake2b(repr(identity).encode("utf-8", "surrogatepass"), digest_size=8)
                self._hashes.append(int.from_bytes(state.digest(), "little", signed=True))
                self._numbers.append(number)

    def check(self) -> None:
        """Raises InputErrors that name the second line of every doubled id."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64) if self._hashes else np.zeros(0, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        doubled = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        faults = sorted((self._numbers[order[k + 1]], self._numbers[order[k]]) for k in doubled.tolist())
        if faults:
            raise InputErrors(
                [
                    InputError(self._name, second, f"the id of line {first} stands here again")
                    for second, first in faults
                ]
            )
