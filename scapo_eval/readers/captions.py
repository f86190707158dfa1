"""Caption files as blocks of raw lines, which one process reads and several processes parse and score.

The project's own format has one JSON object per line with ``image_id`` and ``caption`` (docs/data.md).
:mod:`scapo_eval.readers.formats` recognizes files from other tools and converts them while they are read.
:func:`caption_blocks` selects the reader for a file.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, InputErrors, NoRecords
from ..base.ids import MergedImages, canonical_image_id, is_in_folder, plain_id
from ..base.reprs import fields_in_short
from ..files.containers import Container, ErrorHandler, Rows, Warn, is_open, warn_user
from ..files.fields import mixed_models, only_text, split_by_import
from ..files.files import iter_line_blocks, refuse_foreign_encoding, split_lines
from ..files.json_text import dump_json, json_fault, json_type, parse_array, parse_json
from ..files.parquet import open_parquet
from ..files.records import Readable, Records
from ..files.source import Input, Source, Span, display_name
from .advice import advice_on_keys, jq_command, nested_records, records_of_columns, several_captions
from .captions_foreign import captions_of as foreign_captions_of
from .formats import (
    CHAT_KEYS,
    Recognized,
    keys_of_captions,
    kind_of,
    layout_of,
    open_layout,
    several_keys,
    wrong_kind,
)
from .kinds import KINDS
from .parsers import first_word, is_answer

BLOCK_BYTES = 1 << 20
"""Size of a block in bytes: about two passes of the matcher, and small compared with the ground truth in memory."""

ARRAY_BLOCK = 2048
"""Number of records per block of a JSON array."""

PARSED_BLOCK = 1024
"""Number of captions per block of a file from another tool: one pass of the matcher."""

ARROW_BLOCK = 4096
"""Number of captions per block of Arrow columns: a few passes of the matcher, or some MB."""

READ = ("image_id", "caption", "id", "model", "prompt", "max_tokens")
"""Table columns that are read. Other columns are skipped."""

OWN_LAYOUTS = ("captions", "coco-results")
"""Layouts that the fast reader supports, as JSON Lines or as one JSON array."""

LIMITS = ("length", "content_filter")
"""Values of ``meta.finish`` in a record that mark a truncated text."""

_FAULTY: Any = object()


@dataclass(frozen=True, slots=True)
class Block:
    """Unparsed lines of a file, either as bytes or as a reference to their position in the file.

    A reference can be sent to other processes without copying the lines.

    Attributes:
        name: Display name of the file.
        lines: Bytes of the lines (or of the elements of a JSON array, one per line), or the position of the lines in an
            uncompressed file.
        blank: Number of blank lines at the beginning of the file for the first block, and 0 for all other blocks.
    """

    name: str
    lines: bytes | Span
    blank: int = 0

    __repr__ = fields_in_short

    @property
    def size(self) -> int:
        """Size of the lines in bytes."""
        return self.lines.size if isinstance(self.lines, Span) else len(self.lines)

    def parse(self, faults: FaultList) -> Captions:
        """Parses and checks the records. The line numbers in the result are relative to the block. The errors for
        faulty records are added to ``faults``.
        """
        data = self.lines.read() if isinstance(self.lines, Span) else self.lines
        numbers, lines = split_lines(1 + self.blank, data)
        try:
            captions = _parsed(data, numbers, lines)
        except (ValueError, RecursionError):  # a fault, a lone surrogate or a float as id, somewhere: look closely
            records = [_parse_line(self.name, *numbered, faults) for numbered in zip(numbers, lines, strict=True)]
            captions = captions_of(self.name, zip(numbers, records, strict=True), faults)
        count = len(numbers) if isinstance(numbers, range) else data.count(b"\n") + (data[-1:] != b"\n")
        captions.lines = self.blank + count
        return captions


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """A block of records in memory.

    Attributes:
        name: Name of the source in messages.
        first: Number of the block's first record, counted from 1.
        records: Records in the block.
    """

    name: str
    first: int
    records: Sequence[Any]

    __repr__ = fields_in_short

    @property
    def size(self) -> int:
        """The value is always 0, because no bytes are read from a file."""
        return 0

    def parse(self, faults: FaultList) -> Captions:
        """Checks the records. Faulty records are omitted from the result, and their errors are added to ``faults``."""
        return captions_of(self.name, enumerate(self.records, self.first), faults)


@dataclass(slots=True)
class Captions:
    """The parsed captions of one block.

    Attributes:
        image_ids: Canonical image id of each caption.
        captions: Text of each caption.
        numbers: Line number of each caption.
        ids: Explicit ``id`` of each caption, or None.
        objects: Inline ground truth of each caption, or None.
        models: Model that wrote each caption, or None if the record does not name the model.
        lines: Number of lines in the block if ``numbers`` are relative to the block, or 0 if ``numbers`` are line
            numbers of the file.
        cut: Number of records that are marked as truncated, or None if no record states why generation stopped.
        prompts: Prompt texts and generation limits (such as ``max_tokens=512``) in the records.
        paths: Distinct image ids that contain a folder and are shortened to a number, as written.
    """

    image_ids: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    objects: list[list[str] | None] = field(default_factory=list)
    models: list[str | None] = field(default_factory=list)
    lines: int = 0
    cut: int | None = None
    prompts: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()

    __repr__ = fields_in_short

    def only(self, mask: NDArray[np.bool_]) -> Captions:
        """Returns the captions that a Boolean mask selects."""
        keep = np.flatnonzero(mask).tolist()
        kept = Captions(lines=self.lines, prompts=self.prompts, paths=self.paths)
        for values, all_of_them in zip(kept._columns(), self._columns(), strict=True):
            values.extend(all_of_them[k] for k in keep)
        return kept

    def extend(self, more: Captions) -> None:
        """Appends captions from the same file."""
        for values, further in zip(self._columns(), more._columns(), strict=True):
            values.extend(further)
        self.prompts |= more.prompts
        self.paths |= more.paths

    def behind(self, lines: int) -> Captions:
        """Returns a copy in which all line numbers are increased by ``lines``."""
        return replace(self, numbers=[number + lines for number in self.numbers]) if lines else self

    def _columns(self) -> tuple[list[Any], ...]:
        return self.image_ids, self.captions, self.numbers, self.ids, self.objects, self.models

    def for_checks(self) -> Captions:
        """Returns a copy with only the data that :class:`FileChecks` needs."""
        if self.ids.count(None) < len(self.ids):
            return Captions(
                numbers=self.numbers, ids=self.ids, models=self.models, prompts=self.prompts, paths=self.paths
            )
        models = list(dict.fromkeys(self.models))
        numbers = [self.numbers[self.models.index(model)] for model in models]
        return Captions(
            numbers=numbers, ids=[None] * len(models), models=models, prompts=self.prompts, paths=self.paths
        )

    def place(self, k: int) -> dict[str, Any]:
        """Returns the ``line``, the ``image_id`` and, if available, the ``id`` of caption ``k``."""
        place: dict[str, Any] = {"line": self.numbers[k], "image_id": self.image_ids[k]}
        return place if self.ids[k] is None else {**place, "id": self.ids[k]}


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block of parsed captions that were read from another tool's file or from memory.

    Attributes:
        name: Display name of the file.
        captions: Parsed captions in the block.
        size: Always 0, because the size in bytes is unknown.
    """

    name: str
    captions: Captions
    size: int = 0

    def parse(self, faults: FaultList) -> Captions:
        """Returns the captions, which are already parsed."""
        return self.captions


@dataclass(frozen=True, slots=True)
class ArrowBlock:
    """A block of captions in Arrow columns.

    Attributes:
        name: Name of the source in messages.
        first: Number of the block's first row, from 1.
        batch: pyarrow ``RecordBatch`` or ``Table`` with ``image_id``, ``caption`` and any other columns in READ.
    """

    name: str
    first: int
    batch: Any

    __repr__ = fields_in_short

    @property
    def size(self) -> int:
        """Number of bytes that the columns need in memory."""
        return int(self.batch.nbytes)

    def parse(self, faults: FaultList) -> Captions:
        """Checks the rows. Faulty rows are omitted from the result, and their errors are added to ``faults``."""
        n = self.batch.num_rows
        values = {name: self.batch.column(name).to_pylist() for name in READ if name in self.batch.schema.names}
        for name, kinds in ("id", (int, str)), ("model", (str,)):  # a table's missing value may be empty, or NaN
            if name in values:
                values[name] = [v if type(v) in kinds and v != "" else None for v in values[name]]
        try:
            if set(map(type, values["caption"])) != {str}:
                raise TypeError
            canonical = {raw: canonical_image_id(raw) for raw in set(values["image_id"])}
        except (KeyError, TypeError, ValueError):  # a fault: look at every row
            rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
            return captions_of(self.name, enumerate(rows, self.first), faults)
        none: list[Any] = [None] * n
        return Captions(
            image_ids=[canonical[raw] for raw in values["image_id"]],
            captions=values["caption"],
            numbers=list(range(self.first, self.first + n)),
            ids=values.get("id", none),
            objects=none,
            models=values.get("model", none),
            prompts=_asked_with(values.get("prompt", ()), values.get("max_tokens", ())),
            paths=_shortened(canonical),
        )


def arrow_blocks(name: str, batch: Any, first: int = 1) -> Iterator[ArrowBlock]:
    """Splits a record batch or table of any size into blocks."""
    for k in range(0, batch.num_rows, ARROW_BLOCK):
        yield ArrowBlock(name, first + k, batch.slice(k, ARROW_BLOCK))


def parquet_blocks(path: Input, row_group: int | None = None) -> Iterator[ArrowBlock]:
    """Yields the captions in a parquet file in the project's format, or in one row group of the file, as blocks in file
    order.

    Raises:
        InputError: If the file is damaged or cannot be read.
    """
    with open_parquet(path) as file:
        first = 1 + sum(file.metadata.row_group(k).num_rows for k in range(row_group or 0))
        columns = [name for name in READ if name in file.names]
        groups = range(file.metadata.num_row_groups) if row_group is None else [row_group]
        for batch in file.batches(ARROW_BLOCK, groups, columns):
            yield ArrowBlock(display_name(path), first, batch)
            first += batch.num_rows


AnyBlock = Block | RecordBlock | ArrowBlock | ParsedBlock


def caption_blocks(
    path: Readable, *, rollouts: bool = False, on_error: ErrorHandler | None = None, warn: Warn = warn_user
) -> Iterator[AnyBlock]:
    """Yields the captions of a file in any supported layout, as blocks in file order.

    Blocks of JSON Lines in the project's format and of COCO results contain unparsed lines. Blocks of parquet files in
    the project's format contain columns. Files in any other layout that ``scapo-eval import`` recognizes are converted
    to captions.

    Args:
        path: Path of a file or folder, glob pattern, another input, or records in memory.
        rollouts: True if the texts are responses of a policy, which may consist of yes or no. If ``rollouts`` is False,
            a file with yes/no answers is rejected.
        on_error: Callback for each unreadable record in a layout from another tool. Reading continues after the call.
            If ``on_error`` is None, the first 20 faults are raised together at the end. For the project's own format,
            the method ``parse`` of a block reports the faults.
        warn: Callback for warnings about damage that does not prevent reading.

    Raises:
        InputError: If the layout is unknown or contains no captions, or if the file contains yes/no answers or captions
            from several models.
        InputErrors: If records are unreadable.
    """
    blocks: Iterator[AnyBlock]
    source = path if isinstance(path, Records) else Source.of(path)
    if _are_own(source) if isinstance(source, Records) else _is_own(source.head):
        blocks = iter_blocks(source)
        first = source.rows[:1] if isinstance(source, Records) else [_first_record(source.head)]
        yield from _without_answers(blocks, source.name) if not rollouts and _is_answer(first) else blocks
        return
    file = open_layout(source, on_error=on_error, warn=warn)
    if file.format.captions is None:
        raise wrong_kind(file, "captions")
    if keys := taken_keys(file):
        warn(f"{file.rows.path}: image ids are taken from '{keys[0]}', captions from '{keys[1]}'")
    elif not rollouts and kind_of(file) == "answers":
        remedy = f"convert them: scapo-eval import {file.rows.path} --as captions -o captions.jsonl"
        if isinstance(source, Records):
            remedy = "name the keys 'image_id' and 'caption'"
        raise InputError(
            f"recognized as {file.format.title}: they seem to be answers to questions, not captions; if they are "
            f"captions, {remedy}",
            path=file.rows.path,
        )
    blocks = (
        parquet_blocks(source)
        if not isinstance(source, Records) and is_own_parquet(file)
        else _converted_blocks(file, on_error, warn)
    )
    yield from blocks if rollouts else _without_answers(blocks, file.rows.path, kind_of(file) == "answers")


def _is_answer(records: Iterable[Any]) -> bool:
    return any(isinstance(record, Mapping) and is_answer(str(record.get("caption"))) for record in records)


_NOT_READABLE = "rename the keys of each record to id and response: scapo-eval yesno ANSWERS --questions QUESTIONS"


def _without_answers(blocks: Iterator[AnyBlock], name: str, readable: bool = False) -> Iterator[AnyBlock]:
    """Yields all blocks of a file, unless each text in the file is an answer to a yes/no question.

    Args:
        blocks: Blocks of the file.
        name: Display name of the file.
        readable: True if the file can also be read as a file of answers.

    Raises:
        InputError: If all texts are answers.
    """
    begun: list[AnyBlock] = []
    n_answers = 0
    for block in blocks:
        begun.append(block)
        texts = block.parse(FaultList(lambda fault: None)).captions
        n_answers += len(texts)
        if not all(map(is_answer, texts)):
            break
    else:
        if n_answers:
            reason = f"every text answers yes or no ({n_answers:,} records), so these are answers, not captions"
            advice = KINDS["answers"].advice(name) if readable else f"; {_NOT_READABLE}"
            raise InputError(reason + advice, path=name)
    yield from begun
    yield from blocks


def taken_keys(source: Recognized) -> tuple[str, str] | None:
    """Returns the keys of the image id and the caption in a file's records if these keys differ from the project's,
    otherwise None.
    """
    name, first = source.format.name, source.rows.first
    if name == "captions-other-keys" or (name == "answers" and set(first) <= {"id", "response", "model", "prompt"}):
        return keys_of_captions(first) if first_word(str(first.get("response", ""))) is None else None
    return None


def is_own_parquet(source: Recognized) -> bool:
    """Returns True if a file is a parquet file in the project's caption format without inline ground truth."""
    own = source.format.name == "captions" and "objects" not in source.rows.first
    return own and source.rows.container == "parquet"


def _is_own(head: bytes) -> bool:
    """Returns True if a file that begins with ``head`` should be passed to the fast reader.

    The fast reader handles captions in the project's format, and reports the errors of malformed JSON.
    """
    text = head.lstrip()
    if not text:  # empty
        return True
    if text[:1] not in (b"{", b"["):
        return False
    if text[:1] == b"{" and is_open(text):  # one object over many lines
        return False
    record = _first_record(head)
    if record is None:  # a broken line is the fast reader's to name, one cut off here may be fine
        return b"\n" in text
    return _is_own_record(record, "JSON array" if text[:1] == b"[" else "JSON lines")


def _are_own(records: Records) -> bool:
    """Returns True if records in memory have the project's own keys, or keys that no layout has."""
    return not records.rows or _is_own_record(records.rows[0], "records")


def _is_own_record(record: Any, container: Container) -> bool:
    if not isinstance(record, dict):
        return True
    layout = layout_of(Rows("", container, record, iter(())))
    return layout is None or layout.name in OWN_LAYOUTS


def _first_record(head: bytes) -> Any:
    """Returns the first JSON value of a file that begins with ``head``, or None if the value is invalid or cut off."""
    start = head.lstrip().removeprefix(b"[").lstrip().decode("utf-8", "replace")
    try:
        return json.JSONDecoder(strict=False).raw_decode(start)[0]
    except (ValueError, RecursionError):
        return None


def _converted_blocks(source: Recognized, on_error: ErrorHandler | None, warn: Warn) -> Iterator[ParsedBlock]:
    name = source.rows.path
    captions = foreign_captions_of(source, remedy=split_by_import(name), on_error=on_error, warn=warn)
    while rows := list(islice(captions, PARSED_BLOCK)):
        yield ParsedBlock(
            name,
            Captions(
                image_ids=[row.image_id for row in rows],
                captions=[row.caption for row in rows],
                numbers=[row.line for row in rows],
                ids=[row.id for row in rows],
                objects=[row.objects for row in rows],
                models=[row.model for row in rows],
                prompts=_asked_with(row.prompt for row in rows),
            ),
        )


def iter_blocks(path: Readable) -> Iterator[Block | RecordBlock]:
    """Yields blocks with the lines of a file, the elements of its JSON array, or the records in memory, in order.

    Raises:
        InputError: If the file cannot be read or contains no record.
    """
    name = display_name(path)
    if isinstance(path, Records):
        for k in range(0, len(path.rows), ARRAY_BLOCK):
            yield RecordBlock(name, k + 1, path.rows[k : k + ARRAY_BLOCK])
        return
    source = Source.of(path)
    begin = source.head.lstrip()
    if begin and begin[:1] != b"[" and source.size is not None:
        refuse_foreign_encoding(begin, name)
        yield from (Block(name, span) for span in source.spans(BLOCK_BYTES))
        return
    blocks = iter_line_blocks(source, BLOCK_BYTES)
    head = next((block for block in blocks if block[1].strip()), None)
    if head is None:
        raise NoRecords("the file contains no record (empty or only blank lines)", path=name)
    if head[1].lstrip()[:1] != b"[":
        yield Block(name, head[1], blank=head[0] - 1)
        yield from (Block(name, data) for _, data in blocks)
        return
    blocks = chain([head], blocks)
    lines = chain.from_iterable(zip(*split_lines(first, data), strict=True) for first, data in blocks)
    values = parse_array(name, lines, once=_ONCE)
    for k in range(0, len(values), ARRAY_BLOCK):
        yield Block(name, b"\n".join(dump_json(value) for value in values[k : k + ARRAY_BLOCK]))


class _Record(msgspec.Struct, gc=False):
    """The decoded fields of a JSON line. All other fields are ignored."""

    image_id: int | str
    caption: str
    id: Any = None
    objects: list[str] | None = None
    model: Any = None
    prompt: Any = None
    max_tokens: Any = None
    meta: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Record).decode
_FINISH = b'"finish"'
_PROMPT = b'"prompt"'
_MAX_TOKENS = b'"max_tokens"'
_ONCE = (b'"image_id"', b'"caption"', b'"objects"')
"""Keys that must not appear twice in a record. The search is reliable, because quotes inside strings are escaped."""


def _asked_with(prompts: Iterable[Any], limits: Iterable[Any] = ()) -> frozenset[str]:
    texts = {value for value in prompts if type(value) is str and value}
    return frozenset(texts | {f"max_tokens={limit}" for limit in limits if type(limit) is int})


def _parsed(data: bytes, numbers: Iterable[int], lines: list[bytes]) -> Captions:
    """Parses a block of valid records in half the time that checking each record individually would take.

    Raises:
        ValueError, RecursionError: If any record is invalid or can be parsed only by the individual checks.
    """
    if any(data.count(key) > len(lines) for key in _ONCE):
        raise ValueError("a key may appear twice")
    if not data.isascii():
        data.decode()  # the decoder does not look at the strings that it passes over
    records = [_decode(line) for line in lines]
    canonical = {raw: canonical_image_id(raw) for raw in {record.image_id for record in records}}
    return Captions(
        image_ids=[canonical[record.image_id] for record in records],
        captions=[record.caption for record in records],
        numbers=list(numbers),
        ids=[record.id for record in records],
        objects=[record.objects for record in records],
        models=[record.model if type(record.model) is str else None for record in records],
        prompts=_asked_with(
            (record.prompt for record in records) if _PROMPT in data else (),
            (record.max_tokens for record in records) if _MAX_TOKENS in data else (),
        ),
        paths=_shortened(canonical) if b"/" in data or b"\\\\" in data else frozenset(),
        cut=_cut_off([record.meta for record in records if _FINISH in bytes(record.meta)] if _FINISH in data else ()),
    )


def _shortened(canonical: Mapping[Any, str]) -> frozenset[str]:
    """Returns the image ids, as written, that differ from their canonical spelling and contain a folder."""
    return frozenset(raw for raw, image in canonical.items() if is_in_folder(raw) and raw != image)


def _cut_off(said: Sequence[msgspec.Raw]) -> int | None:
    """Returns the number of truncated records, or None if no record states why generation stopped."""
    if not said:
        return None
    metas = map(msgspec.json.decode, said)
    return sum(isinstance(meta, dict) and meta.get("finish") in LIMITS for meta in metas)


def bytes_behind(block: object) -> int:
    """Returns the number of bytes that follow a block in its file, or 0 if the block stores its lines as bytes."""
    return block.lines.left if isinstance(block, Block) and isinstance(block.lines, Span) else 0


def parsed(blocks: Iterable[AnyBlock], faults: FaultList) -> Iterator[Captions]:
    """Yields the parsed captions of each block in order, with line numbers in the file. The errors for faulty records
    are added to ``faults``.
    """
    before = 0
    for block in blocks:
        faulty: list[InputError] = []
        captions = block.parse(FaultList(faulty.append))
        for error in faulty:
            faults.add(error.behind(before))
        yield captions.behind(before)
        before += captions.lines


def captions_of(name: str, records: Iterable[tuple[int, Any]], faults: FaultList) -> Captions:
    """Checks records with their line numbers and returns the valid captions. The errors for faulty records are added to
    ``faults``.
    """
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
            if type(caption) is not str and (caption := only_text(caption)) is None:
                raise TypeError
        except (KeyError, TypeError, ValueError) as error:
            faults.add(InputError(_record_reason(name, record, error), path=name, line=number))
            continue
        objects = record.get("objects")
        if objects is not None and not (isinstance(objects, list) and all(isinstance(o, str) for o in objects)):
            faults.add(InputError("'objects' must be a list of strings", path=name, line=number))
            continue
        out.image_ids.append(image)
        out.captions.append(caption)
        out.numbers.append(number)
        out.ids.append(record.get("id"))
        out.objects.append(objects)
        model = record.get("model")
        out.models.append(model if type(model) is str else None)
        if "prompt" in record or "max_tokens" in record:
            out.prompts |= _asked_with([record.get("prompt")], [record.get("max_tokens")])
        meta = record.get("meta")
        if isinstance(meta, Mapping) and "finish" in meta:
            out.cut = (out.cut or 0) + (meta["finish"] in LIMITS)
    out.paths = _shortened(canonical)
    return out


def _parse_line(name: str, number: int, line: bytes, faults: FaultList) -> Any:
    try:
        return parse_json(line, unique=True)
    except ValueError as error:
        faults.add(json_fault(name, line, error, [number]))
        return _FAULTY


def _record_reason(name: str, record: Any, error: Exception) -> str:
    if not isinstance(record, Mapping):
        return f"expected a JSON object, found {json_type(record)}"
    keys = ", ".join(map(str, list(record)[:8])) or "nothing"
    if chat := next((key for key in CHAT_KEYS if isinstance(record.get(key), list)), None):
        return f"no turn of the assistant in {chat!r}"
    if nested := nested_records(name, record):
        return nested
    if listed := several_captions(name, record):
        return listed
    if not {"image_id", "caption"} <= record.keys() and (several := several_keys(record)):
        return several
    for key in ("image_id", "caption"):
        if key not in record:
            rollout = key == "caption" and "response" in record
            hint = "; is it a rollout? use scapo-eval reward" if rollout else advice_on_keys(name, record)
            return f"missing key '{key}' (found: {keys}){hint}"
    if isinstance(error, ValueError):
        program = records_of_columns(record)
        return f"'image_id' {error}" + (f"; write records: {jq_command(program, name)}" if program else "")
    return f"'caption' must be a string, found {json_type(record['caption'])}"


class FileChecks:
    """Checks that require the whole file: for duplicate ``id`` values, for captions from several models, and for images
    that differ only in their folders.

    The checks use 16 bytes of memory per id, regardless of the length of the ids. Image names that contain a folder are
    kept.

    Attributes:
        merged: Images that differ only in their folders.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._hashes = array("q")
        self._numbers = array("q")
        self._models: dict[str, int] = {}
        self.merged = MergedImages()

    def add(self, captions: Captions, before: int = 0) -> None:
        """Adds the captions of one block, which is preceded by ``before`` lines. Blocks must be added in file order."""
        for identity, number in zip(captions.ids, captions.numbers, strict=True):
            if identity is not None:
                state = hashlib.blake2b(plain_id(identity).encode("utf-8", "surrogatepass"), digest_size=8)
                self._hashes.append(int.from_bytes(state.digest(), "little", signed=True))
                self._numbers.append(before + number)
        for path in sorted(captions.paths):
            self.merged.add(path, canonical_image_id(path))
        for model in dict.fromkeys(captions.models):
            if model is not None and model not in self._models:
                self._models[model] = before + captions.numbers[captions.models.index(model)]

    @property
    def hashes(self) -> NDArray[np.int64]:
        """(ids,) hashes of all ``id`` values added so far."""
        return np.frombuffer(self._hashes, dtype=np.int64) if self._hashes else np.zeros(0, dtype=np.int64)

    @property
    def models(self) -> Sequence[str]:
        """Names of the models in all captions added so far."""
        return tuple(self._models)

    def check(self) -> None:
        """Raises an error if ids are duplicated or the file contains captions from several models.

        Raises:
            InputErrors: If ids are duplicated. The error lists the line of each id's second occurrence.
            InputError: If the file contains several models.
        """
        if len(self._models) > 1:
            second = list(self._models.values())[1]
            raise mixed_models(self._name, second, self._models, split_by_import(self._name))
        hashes = self.hashes
        order = np.argsort(hashes, kind="stable")
        doubled = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        faults = sorted((self._numbers[order[k + 1]], self._numbers[order[k]]) for k in doubled.tolist())
        if faults:
            raise InputErrors(
                [
                    InputError(f"the same id appears twice (lines {first} and {second})", path=self._name, line=second)
                    for second, first in faults
                ]
            )
