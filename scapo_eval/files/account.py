"""Accounts for every record of an input: nothing is omitted, repeated or cut without a note."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

NumberedRecords = Iterator[tuple[int, dict[str, Any]]]

SHOWN_CUT = 0.01
"""Share of cut captions from which on it is said: single ones are no sign of a limit."""


NOTHING = frozenset(("", "nan", "none", "null"))
"""Texts, without blanks and in lower case, that say nothing: tables write missing ones so."""

SHORT = 100
"""Characters from which on no text is looked at for saying nothing."""

TEXTS = ("prediction", "model_prediction", "response", "model_answer", "caption", "text", "answer")
"""Keys under which records hold a model's words; the first that a record has counts."""

AT_CHANCE = 3.0
"""Standard deviations below which captions agree with their images no better than with others."""


@dataclass(frozen=True, slots=True)
class IdAgreement:
    """Agreement of captions with the images whose ids they carry (:mod:`scapo_eval.benchmarks.agreement`).

    Attributes:
        confirmed: share of a sample of captions' claims that are true of the image.
        chance: the same with the captions among the images at random.
        z: how many standard deviations of chance lie between; 0 if all captions claim the same.
    """

    confirmed: float
    chance: float
    z: float

    @property
    def at_chance(self) -> bool:
        """Whether nothing shows that the captions belong to their images."""
        return self.z < AT_CHANCE


@dataclass(frozen=True, slots=True)
class Account:
    """The records of one input of captions or responses.

    Attributes:
        bytes: read of it, as they lie on disk or came through a pipe; 0 if it was in memory.
        lines: read; of a table or an array its rows.
        records: read, of whatever became of them.
        skipped: faulty ones that were omitted.
        duplicates: those with the same image and text as an earlier one.
        empty: those whose text is one of :data:`NOTHING`.
        cut: those that a limit cut off: as the file says (``meta.finish``), or else by their last sentence, which has
            no end though others have.
        unmatched_ids: those omitted because the truth does not know their image.
        captions_per_image: least and most; 0 and 0 of other records than captions.
        crc32: of those bytes, in 8 hexadecimal digits; with their number it tells that a file is still the same. None
            if only parts of the file were read (the columns of a parquet file), of several files, or in memory.
        agreement: of the captions with their images; None for fewer than 20 with a claim, where labels do not count,
            and where all images have the same of what is claimed.
        contradicting: records with an object of their own (``objects``) that is absent from the ground truth.
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

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for results files and JSON."""
        values = asdict(self)
        if self.agreement is None:
            del values["agreement"]
        if not self.contradicting:
            del values["contradicting"]
        return {**values, "captions_per_image": list(self.captions_per_image)}

    @property
    def notes(self) -> list[str]:
        """One sentence for whatever is unusual."""
        notes = []
        if self.duplicates:
            notes.append(
                f"{self.duplicates:,} of {self.records:,} records repeat an earlier one of their image word for word "
                "(was a job resumed?); each counts"
            )
        least, most = self.captions_per_image
        if least != most:
            notes.append(f"{least} to {most:,} captions per image: an image counts as often as it is described")
        if self.empty:
            notes.append(f"empty captions: {self.empty:,} (or 'nan', 'None'); each counts as one that claims nothing")
        if self.cut > SHOWN_CUT * self.records:
            notes.append(
                f"{self.cut:,} of {self.records:,} captions were cut off by a limit; --drop-unfinished scores them "
                "without their last sentence"
            )
        if self.contradicting:
            notes.append(
                f"{self.contradicting:,} of {self.records:,} records have 'objects' that are absent by the truth, "
                "which is what counts"
            )
        if self.agreement is not None and self.agreement.at_chance:
            notes.append(
                f"do the captions belong to their images? {self.agreement.confirmed:.0%} of what they claim is there, "
                f"and {self.agreement.chance:.0%} in images taken at random"
            )
        return notes


class RecordCount:
    """Counts the records of a file as they are read, each time from its beginning.

    Attributes:
        lines: number of the last one.
        records: how many there are.
        empty: those whose text is one of :data:`NOTHING`.
        prints: a number for each different record, the same in every process.
    """

    lines = records = empty = 0
    prints: frozenset[int] | set[int] = frozenset()

    def of(self, rows: Iterable[tuple[int, dict[str, Any]]]) -> NumberedRecords:
        """Yields the same rows, counted."""
        self.lines = self.records = self.empty = 0
        self.prints = prints = set()
        for number, record in rows:
            self.lines = number
            self.records += 1
            digest = blake2b(repr(record).encode("utf-8", "surrogatepass"), digest_size=8).digest()
            prints.add(int.from_bytes(digest, "little", signed=True))
            self.empty += says_nothing(record)
            yield number, record

    @property
    def duplicates(self) -> int:
        """Records that equal an earlier one."""
        return self.records - len(self.prints)

    @property
    def notes(self) -> list[str]:
        """One sentence for whatever is unusual."""
        several = {"repeat an earlier one word for word": self.duplicates}
        several["have an empty text (or 'nan', 'None')"] = self.empty
        return [f"{n:,} of {self.records:,} records {what}" for what, n in several.items() if n]

    def account(self, size: int, crc32: str | None, skipped: int, unmatched: int) -> Account:
        """Returns the account of a file.

        Args:
            size: its bytes.
            crc32: of them.
            skipped: records that were omitted.
            unmatched: those with an id that nothing asks for.
        """
        return Account(
            size, self.lines, self.records, skipped, self.duplicates, self.empty, 0, unmatched, (0, 0), crc32
        )


def says_nothing(record: Mapping[str, Any]) -> bool:
    """Returns whether a record has a text, and that is missing or one of :data:`NOTHING`."""
    text = next((record[key] for key in TEXTS if key in record), record)
    if isinstance(text, str):
        return len(text) < SHORT and text.strip().casefold() in NOTHING
    return text is None or text != text


def counted(path: object, rows: Iterator[tuple[int, dict[str, Any]]]) -> NumberedRecords:
    """Returns the rows of an input, counted where somebody wants to know
    (:meth:`~scapo_eval.files.source.Source.count`).
    """
    count = getattr(path, "counts", None)
    return count.of(rows) if isinstance(count, RecordCount) else rows
