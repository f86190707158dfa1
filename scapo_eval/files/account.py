"""Bookkeeping of all records in an input, so that no omission, repetition or truncation goes unnoticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from ..base.odd_texts import ODD, OddTexts, odd_texts

NumberedRecords = Iterator[tuple[int, dict[str, Any]]]

SHOWN_CUT = 0.01
"""Minimum share of truncated captions that is reported. Fewer truncated captions do not indicate a length limit."""


NOTHING = frozenset(("", "nan", "none", "null"))
"""Texts that count as empty, stripped and in lower case. Tables write missing values in this way."""

SHORT = 100
"""Minimum length in characters at which a text is never treated as empty."""

TEXTS = ("prediction", "model_prediction", "response", "model_answer", "caption", "text", "answer")
"""Keys of a model's text in a record. The first key that the record contains counts."""

AT_CHANCE = 3.0
"""Number of standard deviations below which captions agree with their images no better than by chance."""


@dataclass(frozen=True, slots=True)
class IdAgreement:
    """Agreement between captions and the images to which their ids refer (:mod:`scapo_eval.benchmarks.agreement`).

    Attributes:
        confirmed: Share of the claims in a sample of captions that are true of the caption's own image.
        chance: Share of the same claims that are true if the captions are shuffled among the images.
        z: Difference between the two shares, in standard deviations of the chance distribution, or 0 if all captions
            make the same claims.
    """

    confirmed: float
    chance: float
    z: float

    @property
    def at_chance(self) -> bool:
        """True if there is no evidence that the captions belong to their images."""
        return self.z < AT_CHANCE


@dataclass(frozen=True, slots=True)
class Account:
    """Record counts and other facts about one input of captions or responses.

    Attributes:
        bytes: Number of bytes read from disk or a pipe, before decompression, or 0 for input in memory.
        lines: Number of lines that were read. For tables and arrays, ``lines`` is the number of rows or elements.
        records: Number of records that were read, including records that were omitted later.
        skipped: Number of faulty records that were omitted.
        duplicates: Number of records with the same image and text as an earlier record.
        empty: Number of records whose text is one of :data:`NOTHING`.
        cut: Number of records whose text is truncated, as stated in the file (``meta.finish``). A record without
            ``meta.finish`` counts as truncated if its last sentence is incomplete but an earlier sentence is complete.
        unmatched_ids: Number of records that were omitted because the ground truth lacks their image.
        captions_per_image: Minimum and maximum number of captions per image. Both values are 0 for records that are not
            captions.
        crc32: CRC-32 of the bytes as 8 hexadecimal digits. Together with ``bytes``, the CRC-32 identifies an unchanged
            file. The CRC-32 is None if the input consists of several files, is in memory, or was read only partially
            (selected columns of a parquet file).
        agreement: Agreement between the captions and their images. The agreement is None if there are fewer than 20
            captions with a claim, if the metric has no labels, or if all images have the same claimed labels.
        contradicting: Number of records whose own ``objects`` field includes an object that is absent according to the
            ground truth.
        failed: Records whose text is an error message or a refusal, or None if there are none.
        markup: Records whose text contains tags of reasoning, tool calls or a chat template, or None if there are none.
    """

    bytes: int
    lines: int
    records: int
    skipped: int
    duplicates: int
    empty: int
    cut: int
    unmatched_ids: int
    captions_per_image: tuple[int, int]
    crc32: str | None = None
    agreement: IdAgreement | None = None
    contradicting: int = 0
    failed: OddTexts | None = None
    markup: OddTexts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the account as a dictionary, for results files and JSON."""
        values = asdict(self)
        for name in ("agreement", "contradicting", "failed", "markup"):
            if not values[name]:
                del values[name]
        return {**values, "captions_per_image": list(self.captions_per_image)}

    @property
    def notes(self) -> list[str]:
        """Remarks on unusual properties of the input, with one sentence for each property."""
        notes = []
        if self.duplicates:
            notes.append(
                f"{self.duplicates:,} of {self.records:,} records are identical to an earlier record of their image "
                "(was a job resumed?); each counts"
            )
        least, most = self.captions_per_image
        if least != most:
            notes.append(f"{least} to {most:,} captions per image: images with more captions have more weight")
        if self.empty:
            notes.append(f"empty captions: {self.empty:,} (or 'nan', 'None'); each counts as a caption without claims")
        if self.cut > SHOWN_CUT * self.records:
            notes.append(
                f"{self.cut:,} of {self.records:,} captions were cut off by a limit; --drop-unfinished scores them "
                "without their last sentence"
            )
        odd = {"failed": self.failed, "markup": self.markup}
        notes += [texts.note(kind, self.records) for kind, texts in odd.items() if texts is not None]
        if self.contradicting:
            notes.append(
                f"{self.contradicting:,} of {self.records:,} records have 'objects' that are absent in the "
                "ground truth, which is used instead"
            )
        if self.agreement is not None and self.agreement.at_chance:
            notes.append(
                f"do the captions belong to their images? {self.agreement.confirmed:.0%} of their claims are true, "
                f"and {self.agreement.chance:.0%} would be true of random images"
            )
        return notes


class RecordCount:
    """Counter for the records in a file, which is reset whenever the file is read again from its beginning.

    Attributes:
        lines: Line number of the last record that was read.
        records: Number of records that were read.
        empty: Number of records whose text is one of :data:`NOTHING`.
        prints: Hashes of the distinct records, which do not vary between processes.
        odd: Records with a ``failed`` text, and records with ``markup``.
    """

    lines = records = empty = 0
    prints: frozenset[int] | set[int] = frozenset()
    odd: Mapping[str, OddTexts] = MappingProxyType({})

    def of(self, rows: Iterable[tuple[int, dict[str, Any]]]) -> NumberedRecords:
        """Yields the given rows and counts them."""
        self.lines = self.records = self.empty = 0
        self.prints = prints = set()
        odd: dict[str, OddTexts] = {}
        self.odd = odd
        for number, record in rows:
            self.lines = number
            self.records += 1
            digest = blake2b(repr(record).encode("utf-8", "surrogatepass"), digest_size=8).digest()
            prints.add(int.from_bytes(digest, "little", signed=True))
            self.empty += says_nothing(record)
            if isinstance(text := text_of(record), str):
                add_odd(odd, odd_texts([text], [number]))
            yield number, record

    @property
    def duplicates(self) -> int:
        """Number of records that equal an earlier record."""
        return self.records - len(self.prints)

    @property
    def notes(self) -> list[str]:
        """Remarks on unusual properties of the file, with one sentence for each property."""
        several = {"are identical to an earlier record": self.duplicates}
        several["have an empty text (or 'nan', 'None')"] = self.empty
        notes = [f"{n:,} of {self.records:,} records {what}" for what, n in several.items() if n]
        return notes + [odd.note(kind, self.records) for kind, odd in sorted(self.odd.items())]

    def account(self, size: int, crc32: str | None, skipped: int, unmatched: int) -> Account:
        """Returns the account of the file.

        Args:
            size: Size of the file in bytes.
            crc32: CRC-32 of the file.
            skipped: Number of omitted records.
            unmatched: Number of records whose image id is unknown.
        """
        counts = self.lines, self.records, skipped, self.duplicates, self.empty, 0, unmatched
        failed, markup = map(self.odd.get, ODD)
        return Account(size, *counts, (0, 0), crc32, failed=failed, markup=markup)


def add_odd(odd: dict[str, OddTexts], more: Mapping[str, OddTexts]) -> None:
    """Adds the odd texts of a later part of a file to those of the earlier parts."""
    for kind, texts in more.items():
        odd[kind] = odd[kind].plus(texts) if kind in odd else texts


def text_of(record: Mapping[str, Any]) -> Any:
    """Returns the text of a record, or the record itself if it contains none."""
    return next((record[key] for key in TEXTS if key in record), record)


def says_nothing(record: Mapping[str, Any]) -> bool:
    """Returns True if the text of a record is missing or is one of the texts in :data:`NOTHING`."""
    text = text_of(record)
    if isinstance(text, str):
        return len(text) < SHORT and text.strip().casefold() in NOTHING
    return text is None or text != text


def counted(path: object, rows: Iterator[tuple[int, dict[str, Any]]]) -> NumberedRecords:
    """Returns the rows of an input, and counts them if :meth:`~scapo_eval.files.source.Source.count` was called."""
    count = getattr(path, "counts", None)
    return count.of(rows) if isinstance(count, RecordCount) else rows
