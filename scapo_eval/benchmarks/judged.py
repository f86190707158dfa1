"""What readers of judges' verdicts share (MMHal-Bench ratings, FaithScore's facts)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..base.errors import FaultList, InputError
from ..base.hashes import digest
from ..files.account import counted
from ..files.containers import NumberedRecord, Warn, open_rows
from ..files.files import display_name
from ..files.json_text import read_json
from ..files.records import Readable, Records
from ..files.source import Source
from .provenance import file_looks_like


def digest_of(images: Iterable[str | None]) -> str:
    """Hash of the images' names; ``none`` where the file does not name them all."""
    named = list(images)
    known = sorted(image for image in named if image is not None)
    return digest(known) if len(known) == len(named) else "none"


def raise_faults(path: Readable, faults: FaultList, wanted: str, *, nothing: bool) -> None:
    """Raises what was found; once, where no record at all is of the wanted kind."""
    if nothing and faults.total > 1:
        first = faults.errors[0]
        looks = file_looks_like(path)
        reason = f"{first.reason}; none of the {faults.total:,} records holds {wanted}"
        raise InputError(f"{reason}; they look like {looks}" if looks else reason, path=first.path, line=first.line)
    faults.raise_if_any()


def judged_records(path: Readable, key: str, warn: Warn) -> Iterator[NumberedRecord]:
    """Records of any container; the elements of an array that are no objects stand under ``key``."""
    if isinstance(path, Records):
        yield from open_rows(path, warn=warn)
        return
    source = Source.of(path)
    if source.head.lstrip()[:1] != b"[":
        yield from open_rows(source, warn=warn)
        return
    values: Any = read_json(source)
    if not isinstance(values, list) or not values:
        raise InputError("the file holds no record (an empty JSON array)", path=display_name(path))
    yield from counted(source, ((k, v if isinstance(v, dict) else {key: v}) for k, v in enumerate(values, 1)))
