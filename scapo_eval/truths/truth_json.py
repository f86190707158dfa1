"""Reader and writer for ground truth in JSON, such as maps from image ids to labels, records, and
AMBER's annotations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import FaultList, InputError, short_repr
from ..base.types import LabelSet
from ..files.fields import image_key
from ..files.files import atomic_write
from ..files.json_text import dump_json, json_fault, json_type, parse_json, records_of
from .truth_advice import advice_on_labels, advice_on_map, advice_on_record
from .truth_columns import TruthColumns, TruthRows, read_world

OBJECT_KEYS = ("objects", "labels", "classes", "categories", "object_list")
"""Accepted keys of the list of objects in an image."""


def read_json_truth(data: bytes, source: str) -> TruthColumns:
    """Reads ``{id: [labels]}``, ``{"objects": {...}, "labels": [...]}``, or records (lines or an array).

    Args:
        data: Content of the file.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the format is unsupported.
        InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
    """
    text = data.lstrip()
    first_line, _, rest = text.partition(b"\n")
    first_line = first_line.strip()
    complete = first_line[:1] == b"{" and first_line.endswith(b"}")
    if text[:1] == b"[" or (complete and (b"image_id" in first_line or rest.lstrip()[:1] == b"{")):
        faults = FaultList()
        return read_truth_records(records_of(data, source, on_error=faults.add, unique=True), source, faults)
    try:
        document = parse_json(data, unique=True)
    except ValueError as error:
        raise json_fault(source, data, error) from None
    if not isinstance(document, dict):
        raise InputError(
            f"not a valid truth file: expected an object or a list, found {json_type(document)}", path=source
        )
    _refuse_captions(document, source)
    labels = document.get("labels") if isinstance(document.get("objects"), dict) else None
    objects = document["objects"] if isinstance(document.get("objects"), dict) else document
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise InputError("'labels' must be a list of strings", path=source)
    if objects is document and any(not isinstance(value, list) for value in document.values()):
        key, value = next((key, value) for key, value in document.items() if not isinstance(value, list))
        keys = ", ".join(list(document)[:5])
        known = 'COCO instances, {id: [labels]}, {"objects": {id: [labels]}, "labels": [...]} '
        known += "or lines of image_id and objects"
        reason = f"{short_repr(key)} has {json_type(value)} where a list of labels is expected"
        raise InputError(
            f"not a valid truth file: expected {known} (found keys: {keys}; {reason}){advice_on_map(document, source)}",
            path=source,
        )
    if objects is document and (inverted := advice_on_labels(document, source)):
        raise InputError(inverted, path=source)
    rows = TruthRows(source, FaultList())
    for image_id, present in objects.items():
        rows.add(None, image_id, present)
    world = read_world(None if labels is None else document.get("world"), "closed", source)
    return rows.columns(labels) if labels is None else replace(rows.columns(labels), world=world)


def read_truth_records(records: Iterable[tuple[int, dict[str, Any]]], source: str, faults: FaultList) -> TruthColumns:
    """Reads numbered records with ``image_id`` and ``objects``, or AMBER's annotations.

    A record may contain ``label_set``, the label axis of all records, and ``world``, the meaning of unlisted labels.
    :func:`write_json_lines` writes both in the first record.

    Args:
        records: Pairs of a record number, counted from 1, and a record.
        source: Name of the source, for error messages.
        faults: List that collects the faults of records. The list of faults may already contain faults.

    Raises:
        InputErrors: If the input contains invalid data. The error lists all faults with their record numbers.
        InputError: If there are no images.
    """
    rows = TruthRows(source, faults)
    hallucinated: set[str] = set()  # AMBER's words for absent objects
    is_amber = False
    axis: list[str] | None = None
    world: LabelSet = "closed"
    for number, record in records:
        if "label_set" in record:
            given = record["label_set"]
            if not isinstance(given, list) or not all(isinstance(label, str) for label in given):
                faults.add(InputError("'label_set' must be a list of strings", path=source, line=number))
            elif axis not in (None, given):
                faults.add(InputError("another 'label_set' than in an earlier record", path=source, line=number))
            else:
                axis, world = given, read_world(record.get("world"), "closed", source)
        if "image_id" in record and "objects" in record:
            rows.add(number, record["image_id"], record["objects"])
        elif "id" in record and "type" in record:  # AMBER: generative entries carry word lists, the rest are questions
            is_amber = True
            if record["type"] == "generative":
                rows.add(number, record["id"], record.get("truth"))
                words = record.get("hallu") or []
                if isinstance(words, list) and all(isinstance(word, str) for word in words):
                    hallucinated.update(words)
                else:
                    faults.add(InputError("'hallu' must be a list of strings", path=source, line=number))
        else:
            try:
                image = image_key(record)
            except ValueError as error:
                faults.add(InputError(str(error).partition(";")[0], path=source, line=number))
                continue
            listed = [key for key in OBJECT_KEYS if isinstance(record.get(key), list)]
            if image is not None and len(listed) == 1:
                rows.add(number, record[image], record[listed[0]])
                continue
            _refuse_captions(record, source)
            keys = ", ".join(map(str, list(record)[:6]))
            missing = "'objects'" if "image_id" in record else "'image_id'"
            advice = advice_on_record(record, source)
            faults.add(InputError(f"missing key {missing} (found: {keys}){advice}", path=source, line=number))
    if axis is not None:
        return replace(rows.columns(axis), world=world)
    return rows.columns(sorted(hallucinated.union(*rows.rows.values())) if is_amber else None)


def _refuse_captions(document: dict[str, Any], source: str) -> None:
    if {"images", "annotations"} <= document.keys():
        hint = (
            "COCO's captions are references (--references FILE), joined with its instances by scapo-eval oracle chair"
        )
        raise InputError(f"not a valid COCO instances file: missing key 'categories'; {hint}", path=source)


def write_json(truth: TruthColumns, path: str | Path) -> None:
    """Writes ``{"objects": {id: [labels]}, "labels": [...]}``, without ``labels`` for an open label set.

    The key ``world`` is added if the ground truth was read from a matrix that defines every cell.

    Raises:
        InputError: If the ground truth has unknown cells, or if the file cannot be written.
    """
    _refuse_unknown(truth, path)
    document: dict[str, Any] = {"objects": truth.objects()}
    if truth.world != "open-axis":
        document["labels"] = list(truth.labels)
    if truth.world == "total":  # a map with labels is closed by default
        document["world"] = truth.world
    with atomic_write(path) as stream:
        stream.write(dump_json(document) + b"\n")


def write_json_lines(truth: TruthColumns, path: str | Path) -> None:
    """Writes JSON Lines with records of the form ``{"image_id", "objects"}``. The first line also contains the label
    axis (``label_set``) and the meaning of unlisted labels (``world``).

    Raises:
        InputError: If the ground truth has unknown cells, or if the file cannot be written.
    """
    _refuse_unknown(truth, path)
    axis: dict[str, Any] = {}
    if truth.world != "open-axis":
        axis = {"label_set": list(truth.labels), "world": truth.world}
    with atomic_write(path) as stream:
        for image, objects in truth.objects().items():
            stream.write(dump_json({"image_id": image, "objects": objects, **axis}) + b"\n")
            axis = {}


def _refuse_unknown(truth: TruthColumns, path: str | Path) -> None:
    if truth.n_unknown:
        raise InputError(
            "JSON cannot represent unknown cells; use a name that ends in .npz or .parquet", path=str(path)
        )
