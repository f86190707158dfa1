"""Readers and writers for all ground truth formats.

Input formats are recognized by content, and output formats by file extension.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base.errors import FaultList, InputError, ScapoError
from ..files.fields import caption_key, image_key, keys_named, only_text
from ..files.files import read_bytes
from ..files.json_text import iter_records, records_of
from ..files.parquet import refuse_feather
from ..files.records import Given, Records, readable
from ..files.source import HEAD, Source
from ..readers.advice import is_list_of_labels
from ..readers.data_set import DataSet, input_at, naming_files
from ..readers.formats import BY_IMAGE, recognize_file
from .truth_advice import XML
from .truth_coco import is_coco, read_coco
from .truth_columns import TruthColumns
from .truth_json import read_json_truth, read_truth_records, write_json, write_json_lines
from .truth_matrix import read_npz, read_parquet, write_npz, write_parquet
from .truth_table import LABEL_KEYS, as_cells, read_table_rows, read_table_truth
from .truth_visual_genome import is_visual_genome, read_visual_genome

ZIP = b"PK\x03\x04"
_WRITERS = {".npz": write_npz, ".parquet": write_parquet, ".json": write_json, ".jsonl": write_json_lines}


def read_truth(given: Given) -> TruthColumns:
    """Reads a ground truth file in any format that :meth:`scapo_eval.PresenceOracle.load` lists. A folder or pattern is
    read as one ground truth, whose files contain tables, records, or maps from image ids to labels.

    Raises:
        InputError: If the input is neither a file with a valid ground truth nor records.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    path = readable(given)
    if isinstance(path, Records):
        faults = FaultList()
        return read_truth_records(iter_records(path, on_error=faults.add), path.name, faults)
    file = input_at(path)
    if isinstance(file, DataSet):
        with naming_files([file]):
            return _read_files(file)
    if file.head.lstrip()[:4] == ZIP:
        with file.file() as stream:
            return read_npz(stream, file.name)
    data = read_bytes(file)
    try:
        return _read(data, file.name)
    except ScapoError as error:
        if reason := _no_truth(file):
            raise InputError(reason, path=file.name) from error
        raise


def _read_files(file: DataSet) -> TruthColumns:
    """Reads a ground truth that consists of several files: tables, records, or maps from image ids to labels."""
    if reason := _no_truth(file):
        raise InputError(reason, path=file.name)
    _, first = next(iter_records(file))
    if not any(isinstance(value, (list, dict)) for value in first.values()):
        return read_table_rows(lambda: as_cells(iter_records(file)), file.name)
    faults = FaultList()
    return read_truth_records(_by_image(iter_records(file, on_error=faults.add)), file.name, faults)


def _by_image(records: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the records, with one record per image in place of a map from image ids to labels."""
    for number, record in records:
        if all(isinstance(value, list) for value in record.values()):
            yield from ((number, {"image_id": image, "objects": labels}) for image, labels in record.items())
        else:
            yield number, record


_NO_TRUTH = (
    *("captions", "rollouts", "answers", "AMBER responses", "object lists", "ratings", "claims", "results"),
    *("questions", "PhD questions", "prompts", "scenes", "references", "vocabulary", "judgements"),
)


def _no_truth(file: Source) -> str | None:
    """Returns the reason why a recognized file is not a ground truth, for example if captions and ground truth are
    swapped.
    """
    try:
        known = recognize_file(file)
    except ScapoError:
        return None
    if known is not None and known.layout and known.layout.format is BY_IMAGE:
        texts = [only_text(value) or "" for value in known.layout.rows.first.values()]
        if all(map(is_list_of_labels, texts)):
            return None
    if known is None or known.kind.name not in _NO_TRUTH or (known.layout and "objects" in known.layout.rows.first):
        return None
    return f"not a valid truth: recognized as {known.title}{known.kind.advice(file)}"


def _read(data: bytes, source: str) -> TruthColumns:
    head = data[:HEAD].lstrip()
    if not head and not data.strip():
        raise InputError("the file is empty", path=source)
    refuse_feather(data, source)
    if data[:4] == b"PAR1":
        return read_parquet(data, source)
    first_line = head.partition(b"\n")[0]
    if head[:1] == b"<":
        raise InputError(f"not a valid truth: {XML}", path=source)
    if head[:1] not in (b"{", b"["):
        if any(mark in first_line for mark in (b",", b"\t", b";")):
            return read_table_truth(data, source)
        lines = [line.strip() for line in head.decode("utf-8", "replace").splitlines()[:100] if line.strip()]
        if all(map(is_list_of_labels, lines)) and not _JSON.fullmatch("".join(lines)):
            raise _list_of_words(source)
    elif len(data) <= HEAD and _WORD_IN_LIST.match(head):
        raise _list_of_words(source)
    if is_visual_genome(data):
        return read_visual_genome(data, source)
    if is_coco(data):
        return read_coco(data, source)
    if _is_table(head):
        return read_table_rows(lambda: as_cells(records_of(data, source, unique=True)), source)
    return read_json_truth(data, source)


def _is_table(head: bytes) -> bool:
    """Returns True if the first JSON record has an image and labels, and no value that is a list or an object."""
    try:
        first, _ = json.JSONDecoder().raw_decode(head.decode("utf-8", "replace").lstrip("[ \r\n\t"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(first, dict) or any(isinstance(value, (list, dict)) for value in first.values()):
        return False
    with suppress(ValueError):
        return image_key(first) is not None and bool(keys_named(first, LABEL_KEYS)) and caption_key(first) is None
    return False


_JSON = re.compile(r"null|true|false|[\d.]+")
_WORD_IN_LIST = re.compile(rb'\[\s*"')


def _list_of_words(source: str) -> InputError:
    if source.endswith(".npz"):
        return InputError("damaged: not an .npz file", path=source)
    example = '{"1.jpg": ["dog", "cat"]}'
    reason = f"a list of words is not a truth, which lists the objects of each image: {example}"
    return InputError(f"{reason}; to match captions with the words: --vocabulary {shlex.quote(source)}", path=source)


def write_truth(truth: TruthColumns, path: str | Path) -> None:
    """Writes a ground truth as ``.npz``, ``.parquet``, ``.json`` or ``.jsonl``, depending on the file extension.

    Raises:
        InputError: If the extension is unknown, if unknown cells would be written to JSON, or if the file cannot be
            written.
    """
    name = str(path).removesuffix(".gz").removesuffix(".zst")
    writer = next((writer for ending, writer in _WRITERS.items() if name.endswith(ending)), None)
    if writer is None:
        raise InputError("unknown format: use a name that ends in .npz, .parquet, .json or .jsonl", path=str(path))
    writer(truth, path)
