"""Validation of results files before their counts are used. Error messages name the invalid field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, short_repr
from ..base.hashes import digest
from ..files.account import Account
from ..files.json_text import json_type
from ..files.source import Source
from .benchmark import metric_set_of
from .count_files import read_counts
from .counts import CountTable
from .harness import FINISHED
from .items import Items
from .signature import Signature


def with_counts(document: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """Returns a results file with the counts that are in parquet files beside it.

    Args:
        document: Content of the results file.
        source: The results file.

    Raises:
        InputError: If a parquet file is missing or does not belong to the results file.
    """
    evidence = document.get("per_image")
    if not isinstance(evidence, list) or not any(isinstance(entry, dict) and "counts" in entry for entry in evidence):
        return document
    read = []
    for k, entry in enumerate(evidence):
        if isinstance(entry, dict) and "counts" in entry:
            columns = _strings(entry, "columns", f"per_image[{k}]")
            entry = entry | read_counts(entry["counts"], columns, source, f"per_image[{k}].counts")
        read.append(entry)
    return {**document, "per_image": read}


def check_results(document: Mapping[str, Any]) -> None:
    """Checks the fields ``metric``, ``systems`` and ``per_image`` of a results file.

    Counts must be non-negative integers, rows must be complete, and image ids must be unique even if their spelling
    differs. The counts of a system must equal the sums over its rows. Columns must satisfy the constraints of the
    metric set (:attr:`scapo_eval.results.metric.MetricSet.at_most`, ``adds_up``). The rows must agree with what the
    file states about the system: its numbers of records and images, the hashes of its image ids and ground-truth cells,
    and its captions per image.

    Raises:
        InputError: If a check fails. The message names the invalid field, for example ``per_image[0].rows[3]``.
    """
    metric_set = _typed(document, "metric", str, "")
    systems = _typed(document, "systems", list, "")
    if not systems:
        raise InputError("systems: empty")
    if metric_set == FINISHED:
        for k, system in enumerate(systems):
            _check_system(system, f"systems[{k}]")
        return
    evidence = _typed(document, "per_image", list, "")
    if len(systems) != len(evidence):
        raise InputError(f"per_image: {len(evidence)} entries for {len(systems)} systems")
    for k, (system, entry) in enumerate(zip(systems, evidence, strict=True)):
        _check_system(system, f"systems[{k}]")
        counts = _check_evidence(entry, f"per_image[{k}]", metric_set)
        _check_sums(system, entry, counts, f"systems[{k}].counts")
        _check_proved(system, entry, counts, f"systems[{k}]", metric_set)


_MISSING = object()
_MOST = 2**53
_TYPES: dict[type, str] = {str: "a string", list: "an array", dict: "an object"}


def _typed(record: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
    where = f"{place}.{key}" if place else key
    value = record.get(key, _MISSING)
    if value is _MISSING:
        raise InputError(f"{where}: missing")
    if not isinstance(value, kind):
        raise InputError(f"{where}: must be {_TYPES[kind]}, not {json_type(value)}")
    return value


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{place}: must be an object, not {json_type(value)}")
    return value


def _check_count(value: Any, place: str) -> None:
    if type(value) is not int or not 0 <= value < _MOST:
        raise InputError(f"{place}: must be a non-negative whole number, got {short_repr(value)}")


def _check_system(system: Any, place: str) -> None:
    _object(system, place)
    _typed(system, "name", str, place)
    try:
        Signature.parse(_typed(system, "signature", str, place))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{place}.signature: {error}") from None
    _check_count(system.get("n_captions"), f"{place}.n_captions")
    for name, value in _typed(system, "counts", dict, place).items():
        _check_count(value, f"{place}.counts.{name}")
    for name, value in _typed(system, "metrics", dict, place).items():
        _object(value, f"{place}.metrics.{name}")
        for key in ("value", "ci_low", "ci_high", "printed"):
            if type(number := value.get(key)) not in (int, float, type(None)) or abs(number or 0) > _MOST:
                shown = short_repr(number)
                raise InputError(f"{place}.metrics.{name}.{key}: must be a number or null, got {shown}")
    if "account" in system:
        try:
            msgspec.convert(system["account"], Account)
        except msgspec.ValidationError as error:
            raise InputError(f"{place}.account: {error}") from None
    notes = system.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"{place}.notes: must be an array of strings")


def _check_evidence(evidence: Any, place: str, metric_set: str) -> NDArray[np.int64]:
    """Returns the (images, columns) counts after checking them."""
    _object(evidence, place)
    columns = _strings(evidence, "columns", place)
    ids = _strings(evidence, "image_ids", place)
    rows = evidence.get("rows")
    if not isinstance(rows, np.ndarray):
        rows = _typed(evidence, "rows", list, place)
    if len(rows) != len(ids):
        raise InputError(f"{place}.rows: {len(rows):,} rows for {len(ids):,} image_ids")
    counts = _matrix(rows, columns, ids, f"{place}.rows")
    position = {name: k for k, name in enumerate(columns)}
    metrics = metric_set_of(metric_set, columns)
    for few, many in metrics.at_most:
        over = np.flatnonzero(counts[:, position[few]] > counts[:, position[many]])
        if len(over):
            k = int(over[0])
            a, b = counts[k, [position[few], position[many]]].tolist()
            raise InputError(f"{place}.rows[{k}] (image {ids[k]}): {few} {a} is more than {many} {b}")
    for parts, whole in metrics.adds_up:
        off = np.flatnonzero(counts[:, [position[name] for name in parts]].sum(axis=1) != counts[:, position[whole]])
        if len(off):
            k = int(off[0])
            said = " + ".join(f"{name} {counts[k, position[name]]}" for name in parts)
            raise InputError(f"{place}.rows[{k}] (image {ids[k]}): {said} is not {whole} {counts[k, position[whole]]}")
    if "truth" in evidence:
        cells = evidence["truth"]
        read = isinstance(cells, np.ndarray) or all(
            isinstance(cell, str) and _CELL.fullmatch(cell) for cell in _typed(evidence, "truth", list, place)
        )
        if not read or len(cells) != len(ids):
            raise InputError(f"{place}.truth: must be 16 hexadecimal digits for each of {len(ids):,} image_ids")
    _check_verdicts(evidence.get("verdicts", {}), f"{place}.verdicts")
    if "items" in evidence:
        _check_items(_object(evidence["items"], f"{place}.items"), f"{place}.items", counts)
    if "by" in evidence:
        _check_parts(_object(evidence["by"], f"{place}.by"), f"{place}.by", columns, counts.sum(axis=0))
    return counts


def _check_parts(by: Mapping[str, Any], place: str, columns: list[str], total: NDArray[np.int64]) -> None:
    """Checks that the counts for each image and column value add up to the total counts."""
    _typed(by, "column", str, place)
    ids, values, rows = (_typed(by, key, list, place) for key in ("image_ids", "values", "rows"))
    if not len(ids) == len(values) == len(rows):
        raise InputError(f"{place}: {len(ids):,} image_ids, {len(values):,} values and {len(rows):,} rows")
    for key, given, kinds in (("image_ids", ids, (str,)), ("values", values, (str, int, float, bool, type(None)))):
        for k, value in enumerate(given):
            if not isinstance(value, kinds):
                raise InputError(f"{place}.{key}[{k}]: must not be {json_type(value)}")
    sums = _matrix(rows, columns, ids, f"{place}.rows").sum(axis=0)
    if (sums != total).any():
        k = int(np.flatnonzero(sums != total)[0])
        raise InputError(f"{place}.rows: {columns[k]} adds up to {sums[k]:,}, but that of the images to {total[k]:,}")


def _strings(record: Mapping[str, Any], key: str, place: str) -> list[str]:
    values: list[str] = _typed(record, key, list, place)
    seen: dict[str, int] = {}
    for k, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{place}.{key}[{k}]: must be a string, not {json_type(value)}")
        number = value.lstrip("0") or "0" if key == "image_ids" and value.isdecimal() else value
        if seen.setdefault(number, k) != k:
            first, again = (
                values[seen[number]],
                "" if values[seen[number]] == value else f", again as {short_repr(value)}",
            )
            raise InputError(f"{place}.{key}: {short_repr(first)} appears twice (at {seen[number]} and {k}{again})")
    return values


def _check_proved(
    system: Mapping[str, Any], evidence: Mapping[str, Any], counts: NDArray[np.int64], place: str, metric_set: str
) -> None:
    """Raises an error if a system's rows contradict what the file states about the system."""
    signature = Signature.parse(system["signature"])
    ids, n = evidence["image_ids"], system["n_captions"]
    fields = signature.fields

    def refuse(field: str, said: object, proved: object) -> InputError:
        return InputError(f"{place}.{field}: {said}, but the rows say {proved}")

    if signature.metric_set != metric_set:
        raise refuse("signature", signature.metric_set, metric_set)
    if type(system.get("n_images")) is not int or system["n_images"] != len(ids):
        raise refuse("n_images", short_repr(system.get("n_images")), len(ids))
    if fields.get("n", str(n)) != str(n):
        raise InputError(f"{place}.n_captions: {n}, but the signature says n:{fields['n']}")
    per_record = next((name for name in _RECORDS if name in evidence["columns"]), None)
    column = counts[:, evidence["columns"].index(per_record)] if per_record else np.zeros(0, dtype=np.int64)
    if per_record and column.sum() != n:
        raise refuse("n_captions", n, f"{column.sum()} ({per_record})")
    counted = CountTable(("captions",), tuple(ids), column.reshape(-1, 1))
    if len(column) and "per_image" in fields and fields["per_image"] != str(counted.per_image):
        raise refuse("signature", f"per_image:{fields['per_image']}", counted.per_image)
    span = system.get("account", {}).get("captions_per_image")
    extremes = [int(column.min()), int(column.max())] if len(column) else None
    if extremes and span not in (None, [0, 0], extremes):  # [0, 0] marks records other than captions
        raise refuse("account.captions_per_image", span, extremes)
    said = fields.get("ids", "none")
    of_images = not (metric_set == "amber" and evidence.get("verdicts")) and (metric_set not in _NAMED or n == len(ids))
    if said != "none" and of_images and said not in _hashes(ids):
        raise refuse("signature", f"ids:{said}", f"{_hashes(ids)[0]}: other images than those that were scored")
    if "truth" in evidence or "truth" in fields:
        table = CountTable((), (), np.zeros((0, 0), np.int64), cell_numbers(evidence.get("truth", ())))
        proved = table.truth if "truth" in evidence else None
        if fields.get("truth") != proved:
            raise refuse("signature", f"truth:{fields.get('truth')}", proved)


def cell_numbers(cells: Sequence[str] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the fingerprints of cells as numbers."""
    if isinstance(cells, np.ndarray):
        return cells
    return np.array([int(cell, 16) for cell in cells], dtype=np.uint64)


_CELL = re.compile("[0-9a-f]{16}")
_RECORDS = ("captions", "responses")
_NAMED = ("mmhal", "faithscore", "facts")
"""Metric sets whose signature hashes the image of every record. Rows can verify this hash only if each image has one
record. The hash of AMBER also covers question ids, which the rows do not contain.
"""


def _hashes(ids: list[str]) -> list[str]:
    """Returns the possible values of the hash ``ids`` for a set of image ids, which may have been sorted as text or as
    numbers.
    """
    hashes = [digest(sorted(ids))]
    if all(image.isascii() and image.isdecimal() for image in ids):
        hashes.append(digest(sorted(ids, key=int)))
    return hashes


def _matrix(rows: list[Any] | NDArray[np.int64], columns: list[str], ids: list[str], place: str) -> NDArray[np.int64]:
    """Returns the (images, columns) counts after checking that each count is valid."""
    if isinstance(rows, np.ndarray):
        if wrong := np.argwhere((rows < 0) | (rows >= _MOST)).tolist():
            k, j = wrong[0]
            _check_count(int(rows[k, j]), f"{place}[{k}].{columns[j]} (image {ids[k]})")
        return rows
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(columns):
            size = f"{len(row)} counts" if isinstance(row, list) else json_type(row)
            raise InputError(f"{place}[{k}] (image {ids[k]}): {size} for {len(columns)} columns")
        if not all(type(count) is int and 0 <= count < _MOST for count in row):
            j = next(j for j, count in enumerate(row) if type(count) is not int or not 0 <= count < _MOST)
            _check_count(row[j], f"{place}[{k}].{columns[j]} (image {ids[k]})")
            raise InputError(f"{place}[{k}].{columns[j]} (image {ids[k]}): too large")
    return np.asarray(rows, dtype=np.int64).reshape(-1, len(columns))


def _check_verdicts(verdicts: Any, place: str) -> None:
    for metric, items in _object(verdicts, place).items():
        for item, right in _object(items, f"{place}.{metric}").items():
            if not isinstance(right, bool):
                raise InputError(f"{place}.{metric}.{item}: must be true or false, got {short_repr(right)}")


def _check_items(items: Mapping[str, Any], place: str, counts: NDArray[np.int64]) -> None:
    """Checks that the counts of the items add up to the counts per image."""
    ids, images, cells = (_typed(items, key, list, place) for key in ("ids", "images", "cells"))
    if not all(isinstance(name, str) for name in ids) or len(set(ids)) < len(ids):
        raise InputError(f"{place}.ids: must be distinct strings")
    if len(images) != len(ids) or not _below(images, len(counts)):
        raise InputError(f"{place}.images: must be the position of an image for each of {len(ids):,} ids")
    lists = len(cells) == 3 and all(isinstance(column, list) and len(column) == len(cells[0]) for column in cells)
    if not lists or not all(map(_below, cells, (len(ids), counts.shape[1], _MOST))):
        raise InputError(f"{place}.cells: must be three arrays of equal length: items, columns and counts")
    if (Items.parse(items).summed(counts.shape) != counts).any():
        raise InputError(f"{place}.cells: the counts of the items do not add up to the rows")


def _below(numbers: list[Any], limit: int) -> bool:
    return all(type(number) is int and 0 <= number < limit for number in numbers)


def _check_sums(system: Mapping[str, Any], evidence: Mapping[str, Any], counts: NDArray[np.int64], place: str) -> None:
    for name, total in zip(evidence["columns"], counts.sum(axis=0).tolist(), strict=True):
        stated = system["counts"].get(name)
        if stated is None:
            raise InputError(f"{place}.{name}: missing")
        if stated != total:
            raise InputError(f"{place}.{name}: {stated:,}, but the rows add up to {total:,}")
