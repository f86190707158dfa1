"""Code shared by the benchmarks that use a judge: the origin of verdicts, and the reading of files with verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import FaultList, InputError
from ..base.hashes import digest
from ..files.account import counted
from ..files.containers import NumberedRecord, Warn, open_rows
from ..files.fields import optional_text
from ..files.files import display_name
from ..files.json_text import read_json
from ..files.records import Readable, Records
from ..files.source import Source
from .provenance import file_looks_like


@dataclass(frozen=True, slots=True)
class Judging:
    """Origin of verdicts: the judge, the verifier and their settings. Every field affects the verdicts, so runs with
    different origins are not compared.

    Attributes:
        judge: Name of the judge model, or None if the file does not contain it.
        verifier: Name of the model, if any, that verifies the statements listed by the judge.
        prompt: Hash of the prompts.
        sampling: Sampling settings that differ from the defaults, or ``default``.
        against: Source against which claims are verified.
    """

    judge: str | None = None
    verifier: str | None = None
    prompt: str | None = None
    sampling: str | None = None
    against: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any], **known: str | None) -> Judging:
        """Returns the origin of the verdicts, as stated in a record. Values in ``known`` take precedence over values in
        the record.
        """
        told = {name: optional_text(record.get(key)) for name, key in _KEYS.items()}
        return cls(**{**told, **known})

    def to_record(self) -> dict[str, str]:
        """Returns the origin as fields of a record that :meth:`of` can read."""
        return {key: value for name, key in _KEYS.items() if (value := getattr(self, name)) is not None}

    @classmethod
    def fields(cls, judgings: Iterable[Judging]) -> dict[str, str | None]:
        """Returns the signature fields that state the origins of a run's verdicts. If a field has several values, they
        are joined by ``+``.
        """
        several = set(judgings)
        joined = {
            name: "+".join(sorted({value for one in several if (value := getattr(one, name))})) or None
            for name in _KEYS
        }
        return {**joined, "judge": joined["judge"] or "unnamed"}

    @classmethod
    def notes(cls, judgings: Iterable[Judging]) -> list[str]:
        """Returns one sentence for each field of the origin that has several values within a file."""
        several = set(judgings)
        values = {
            name: sorted({str(getattr(one, name) or "unnamed") for one in several}) for name in ("judge", "prompt")
        }
        return [f"several {name}s in one file ({', '.join(found)})" for name, found in values.items() if len(found) > 1]


UNTOLD = Judging()
"""Origin of verdicts without any information."""

_KEYS = {
    "judge": "judge_model",
    "verifier": "verifier_model",
    "prompt": "judge_prompt",
    "sampling": "judge_sampling",
    "against": "against",
}


def digest_of(images: Iterable[str | None]) -> str:
    """Returns a hash of the image names, or ``none`` if some names are missing."""
    named = list(images)
    known = sorted(image for image in named if image is not None)
    return digest(known) if len(known) == len(named) else "none"


def raise_faults(path: Readable, faults: FaultList, wanted: str, *, nothing: bool) -> None:
    """Raises the collected faults. If no record is of the expected kind, a single error about the file is raised
    instead.
    """
    if nothing and faults.total > 1:
        first = faults.errors[0]
        looks = file_looks_like(path)
        reason = f"{first.reason}; none of the {faults.total:,} records contains {wanted}"
        raise InputError(f"{reason}; they look like {looks}" if looks else reason, path=first.path, line=first.line)
    faults.raise_if_any()


def judged_records(path: Readable, key: str, warn: Warn) -> Iterator[NumberedRecord]:
    """Yields the records in a file of any format. Array elements that are not objects are converted to objects with the
    single key ``key``.
    """
    if isinstance(path, Records):
        yield from open_rows(path, warn=warn)
        return
    source = Source.of(path)
    if source.head.lstrip()[:1] != b"[":
        yield from open_rows(source, warn=warn)
        return
    values: Any = read_json(source)
    if not isinstance(values, list) or not values:
        raise InputError("the file contains no record (an empty JSON array)", path=display_name(path))
    yield from counted(source, ((k, v if isinstance(v, dict) else {key: v}) for k, v in enumerate(values, 1)))
