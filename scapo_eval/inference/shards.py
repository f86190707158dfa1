"""Functions that distribute work over any number of machines without a coordinator, and that merge the machines'
outputs.

Every machine receives the same list of items and the number of its own shard, such as ``3/64``. Each item (an image, a
question or an answer) is assigned to a shard by a hash of its content. No coordinator is therefore needed, and a shard
that is run again contains the same items. The file ``OUTPUT.shard.json`` identifies the work to which a shard belongs,
and the positions of the shard's rows in the merged output.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import orjson

from ..base.errors import InputError
from ..base.hashes import digest
from ..files.files import atomic_write, iter_lines, refuse_replacing
from ..files.json_text import convert_as, dump_json, parse_json, read_as
from .journal import SUFFIX

SHARD_SUFFIX = ".shard.json"
CARD_SUFFIX = ".run.json"
FAILED_SUFFIX = ".failed.jsonl"
DESCRIPTIONS_SUFFIX = ".descriptions.jsonl"
"""Suffix of the descriptions that ``answer --describe`` writes beside the answers. Both share a journal."""
FORMAT = "scapo-shard/1"

_OF_THE_RUN = frozenset(
    {
        "output", "environment", "images", "started", "finished", "counts", "requests_per_second",
        "completion_tokens_per_second", "images_with_identical_samples", "sampling_in_force",
    }
)  # fmt: skip
"""Facts of a run card that may differ between the shards of the same work."""

Item = TypeVar("Item")
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """Content of the file ``OUTPUT.shard.json``; see :meth:`Share.write`."""

    format: Literal["scapo-shard/1"]
    number: int
    of: int
    work: str
    rows_in_all: Count | None
    rows: list[Count]
    failed: list[Count]
    crc32: list[Count] | None = None  # one per row; missing in shards of version 0.2

    def __post_init__(self) -> None:
        Shard(self.number, self.of)


class _Images(msgspec.Struct):
    n: Count


class _Card(msgspec.Struct):
    """The entries of a run card that are combined in a merge."""

    environment: Any
    images: _Images
    counts: dict[str, int | float]
    started: str
    finished: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the ``of`` shards into which the work is divided.

    Attributes:
        number: Number of the shard, starting at 1.
        of: Number of shards.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"not a valid shard: {self} (expected NUMBER/OF, from 1/64 to 64/64)")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parses a shard specification of the form ``3/64``.

        Raises:
            ValueError: If the text does not have the form ``number/of``.
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None:
            raise ValueError(f"not a valid shard: '{text}' (expected NUMBER/OF, from 1/64 to 64/64)")
        return cls(int(match[1]), int(match[2]))

    def has(self, key: str) -> bool:
        """Returns True if the item with the given key belongs to this shard."""
        state = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8)
        return int.from_bytes(state.digest(), "little") % self.of == self.number - 1

    def path(self, output: str) -> str:
        """Returns the path of this shard's output, such as ``captions.3-of-64.jsonl``."""
        path = Path(output)
        return str(path.with_name(f"{path.stem}.{self.number}-of-{self.of}{path.suffix}"))

    def share(self, items: Sequence[Item], key: Callable[[Item], str]) -> Share[Item]:
        """Returns the items of this shard.

        Args:
            items: All items, in the same order on every machine.
            key: Function that returns the text whose hash assigns an item to a shard. Items with equal requests must
                have equal keys, so that they are assigned to the same shard.
        """
        keys = [key(item) for item in items]
        positions = [k for k, content in enumerate(keys) if self.has(content)]
        return Share(self, [items[k] for k in positions], positions, len(items), digest(keys))


@dataclass(frozen=True, slots=True)
class Share(Generic[Item]):
    """The items of one shard.

    Attributes:
        shard: Number of this shard and total number of shards.
        items: Items of the shard, in order.
        positions: Positions of the shard's items among all items.
        total: Total number of items.
        work: Hash of all items, which shows whether shards belong to the same work.
    """

    shard: Shard
    items: list[Item]
    positions: list[int]
    total: int
    work: str

    def write(self, output: str | Path, made: Sequence[int | None]) -> None:
        """Writes ``OUTPUT.shard.json``.

        Args:
            output: Path of the shard's output.
            made: CRC-32 of the line of each row in the output, in order, or None for rows that were written to the file
                of failures. The number of rows must be the same for every item.
        """
        per_item = len(made) // len(self.items) if self.items else 1
        rows = [position * per_item + k for position in self.positions for k in range(per_item)]
        document = {
            "format": FORMAT, "number": self.shard.number, "of": self.shard.of, "work": self.work,
            "rows_in_all": None if not self.items else self.total * per_item,
            "rows": [row for row, line in zip(rows, made, strict=True) if line is not None],
            "failed": [row for row, line in zip(rows, made, strict=True) if line is None],
            "crc32": [line for line in made if line is not None],
        }  # fmt: skip
        with atomic_write(f"{output}{SHARD_SUFFIX}") as stream:
            stream.write(dump_json(document) + b"\n")


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of merging shards.

    Attributes:
        shards: Number of shards.
        rows: Number of rows in the output.
        failed: Number of rows in the merged file of failures.
        completions: Number of completions in the merged journal.
        differing: Number of requests for which several shards received different answers. If answers differ, the merged
            journal keeps the first answer.
    """

    shards: int
    rows: int
    failed: int
    completions: int
    differing: int


def merge_outputs(paths: Sequence[str], output: str) -> Merged:
    """Merges the outputs of all shards of the same work into the output that a single machine would have written.

    Args:
        paths: Outputs of the shards, in any order.
        output: Path of the merged output. The journal, the run card and the failures are written to files whose names
            begin with the path of the output. The descriptions of ``answer --describe`` are also merged.

    Raises:
        InputError: If a shard is missing, appears twice, belongs to another job, was made with different settings,
            is damaged, or has been changed. The error is also raised if two shards contain the same row, if only some
            shards have descriptions, or if the output exists and contains rows that are in no shard.
    """
    described = [f"{path}{DESCRIPTIONS_SUFFIX}" for path in paths]
    any_described = any(Path(f"{path}{SHARD_SUFFIX}").is_file() for path in described)
    whole = _whole(paths, output)
    descriptions = _whole(described, f"{output}{DESCRIPTIONS_SUFFIX}") if any_described else None
    # first the part that may fail on damaged files, before anything else is written; completed requests are kept
    journals = [f"{path}{SUFFIX}" for path in (*whole.paths, output)]
    completions, differing = merge_journals(journals, f"{output}{SUFFIX}")
    for each in filter(None, (descriptions, whole)):
        _write_lines(each.output, each.made)
        _write_lines(f"{each.output}{FAILED_SUFFIX}", each.failed, keep_empty=False)
        with atomic_write(f"{each.output}{CARD_SUFFIX}") as stream:
            stream.write(orjson.dumps(each.card, option=orjson.OPT_INDENT_2) + b"\n")
    return Merged(len(paths), len(whole.made), len(whole.failed), completions, differing)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Checked rows of all shards.

    Attributes:
        output: Path of the merged output.
        paths: Outputs of the shards, ordered by the number of the shard.
        made, failed: Mappings from row numbers to lines.
        card: Run card of the merged output.
    """

    output: str
    paths: list[str]
    made: dict[int, bytes]
    failed: dict[int, bytes]
    card: dict[str, Any]


def _whole(paths: Sequence[str], output: str) -> _Whole:
    """Reads and checks the outputs of all shards. Raises the errors of :func:`merge_outputs`."""
    shards = {path: _read(path) for path in paths}
    check_complete([(path, Shard(shards[path].number, shards[path].of)) for path in paths])
    paths = sorted(paths, key=lambda path: shards[path].number)
    read = [name for path in paths for name in (*files_of_output(path), f"{path}{SHARD_SUFFIX}")]
    refuse_replacing(files_of_output(output), read)
    cards = [read_as(f"{path}{CARD_SUFFIX}", dict[str, Any]) for path in paths]
    _check_alike(paths, [shards[path] for path in paths], cards)
    card = _whole_card(output, paths, cards)
    made = _ordered(paths, {path: shards[path].rows for path in paths}, "")
    failed = _ordered(paths, {path: shards[path].failed for path in paths}, FAILED_SUFFIX)
    whole = next((shard.rows_in_all for shard in shards.values() if shard.rows_in_all is not None), 0)
    if both := made.keys() & failed.keys():
        raise InputError(f"row {min(both) + 1} has failed in one shard and not in another", path=output)
    if len(made) + len(failed) != whole:
        raise InputError(f"{whole - len(made) - len(failed):,} of {whole:,} rows are missing", path=output)
    for path in paths:
        _check_unchanged(path, shards[path], made)
    _refuse_other_work(output, made)
    return _Whole(output, paths, made, failed, card)


def check_complete(shards: Sequence[tuple[str, Shard]]) -> None:
    """Checks that the shards belong to the same division of the work, and that none is missing or duplicated.

    Args:
        shards: Pairs of the path of an output and its shard.

    Raises:
        InputError: If a shard is missing, appears twice, or states a different total number of shards.
    """
    seen: dict[int, str] = {}
    first_path, first = shards[0]
    for path, shard in shards:
        if shard.of != first.of:
            raise InputError(f"is shard {shard}, but {first_path} is shard {first}: a different division", path=path)
        if shard.number in seen:
            raise InputError(f"shard {shard} appears twice ({seen[shard.number]} and {path})", path=path)
        seen[shard.number] = path
    if missing := first.of - len(seen):
        named = islice((number for number in count(1) if number not in seen), min(missing, 10))
        shown = ", ".join(map(str, named)) + (", ..." if missing > 10 else "")
        raise InputError(f"{missing:,} of {first.of:,} shards are missing: {shown}")


def merge_journals(paths: Sequence[str], output: str) -> tuple[int, int]:
    """Merges journals and keeps the first completion of each request.

    Returns:
        The number of completions, and the number of requests for which another journal contains a different text.
    """
    kept: dict[str, bytes] = {}
    different: set[str] = set()
    with atomic_write(output) as stream:
        for path in paths:
            completions: dict[str, tuple[bytes, bytes]] = {}
            for _, line in iter_lines(path) if os.path.exists(path) and os.path.getsize(path) else ():
                try:
                    row = parse_json(line)
                    key, text = str(row["key"]), row.get("text")
                except (ValueError, KeyError, TypeError):  # damaged: the request is repeated
                    continue
                if row.get("error") is None:
                    completions[key] = line, blake2b(dump_json(text), digest_size=8).digest()
            for key, (line, text_hash) in completions.items():
                if key not in kept:
                    kept[key] = text_hash
                    stream.write(line + b"\n")
                elif kept[key] != text_hash:
                    different.add(key)
    return len(kept), len(different)


def files_of_output(output: str) -> list[str]:
    """Returns the paths of an output, and of its failures, its journal and its run card."""
    return [output, f"{output}{FAILED_SUFFIX}", f"{output}{SUFFIX}", f"{output}{CARD_SUFFIX}"]


def _read(path: str) -> _Part:
    beside = f"{path}{SHARD_SUFFIX}"
    if not Path(beside).is_file():
        raise InputError(f"not a shard's output: {beside} not found (--shard writes it)", path=path)
    return read_as(beside, _Part)


def _check_alike(paths: Sequence[str], shards: Sequence[_Part], cards: Sequence[dict[str, Any]]) -> None:
    first = {key: value for key, value in cards[0].items() if key not in _OF_THE_RUN}
    for path, shard, card in zip(paths, shards, cards, strict=True):
        if shard.work != shards[0].work:
            raise InputError(
                f"does not belong to the same run as {paths[0]} (other images, questions or answers)", path=path
            )
        settings = {key: value for key, value in card.items() if key not in _OF_THE_RUN}
        differing = sorted(key for key in {*settings, *first} if settings.get(key) != first.get(key))
        if differing:
            raise InputError(f"was made with other settings than {paths[0]}: {', '.join(differing)} differ", path=path)


def _ordered(paths: Sequence[str], named: Mapping[str, list[int]], suffix: str) -> dict[int, bytes]:
    """Returns a mapping from row numbers to lines, over all shards."""
    ordered: dict[int, bytes] = {}
    owner: dict[int, str] = {}
    for path in paths:
        rows, file = named[path], f"{path}{suffix}"
        lines = [line for _, line in iter_lines(file)] if rows else []
        if len(lines) != len(rows):
            raise InputError(
                f"damaged: contains {len(lines):,} records, but its shard file lists {len(rows):,}", path=file
            )
        for row, line in zip(rows, lines, strict=True):
            if row in ordered:
                same = "the same record" if ordered[row] == line else "contradicting records"
                raise InputError(f"row {row + 1} is in two shards, with {same} ({owner[row]} and {path})", path=file)
            ordered[row], owner[row] = line, path
    return ordered


def _check_unchanged(path: str, shard: _Part, made: Mapping[int, bytes]) -> None:
    for number, (row, crc32) in enumerate(zip(shard.rows, shard.crc32 or (), strict=False), 1):
        if zlib.crc32(made[row]) != crc32:
            reason = "was changed after the shard was written (another id, text or order); make the shard again"
            raise InputError(reason, path=path, line=number)


def _refuse_other_work(output: str, made: Mapping[int, bytes]) -> None:
    """Rejects an existing output that contains rows which are in no shard, because these rows may have been expensive
    to compute.
    """
    if not os.path.exists(output) or not os.path.getsize(output):
        return
    merged = set(made.values())
    others = sum(line not in merged for _, line in iter_lines(output))
    if others:
        raise InputError(
            f"exists and has {others:,} rows that these shards do not have; write to another file, or remove it",
            path=output,
        )


def _write_lines(output: str, rows: dict[int, bytes], *, keep_empty: bool = True) -> None:
    if not rows and not keep_empty:
        Path(output).unlink(missing_ok=True)
        return

    def lines() -> Iterator[bytes]:
        for row in sorted(rows):
            yield rows[row] + b"\n"

    with atomic_write(output) as stream:
        stream.writelines(lines())


def _whole_card(output: str, paths: Sequence[str], cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the run card of the merged output. Counts are summed over the shards, and the settings are taken from the
    first shard.
    """
    parts = [convert_as(card, _Card, f"{path}{CARD_SUFFIX}") for path, card in zip(paths, cards, strict=True)]
    counts: dict[str, Any] = {}
    for part in parts:
        for name, value in part.counts.items():
            counts[name] = counts.get(name, 0) + value
    return {
        **cards[0], "output": Path(output).name, "environment": [part.environment for part in parts],
        "images": {"n": sum(part.images.n for part in parts)}, "counts": counts,
        "started": min(part.started for part in parts), "finished": max(part.finished for part in parts),
        "requests_per_second": None, "completion_tokens_per_second": None, "shards": len(parts),
    }  # fmt: skip
