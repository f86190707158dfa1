"""Truths in COCO's ``instances_*.json``."""

from __future__ import annotations

import msgspec
import numpy as np

from ..errors import InputError
from .truth_columns import TruthColumns, refuse_duplicates


class _Image(msgspec.Struct, gc=False):
    id: int


class _Category(msgspec.Struct, gc=False):
    id: int
    name: str


class _Annotation(msgspec.Struct, gc=False):
    image_id: int
    category_id: int


class _Instances(msgspec.Struct, gc=False):
    """Only the fields that matter: polygons, nine tenths of the file, are skipped and never built."""

    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


def is_coco(data: bytes) -> bool:
    """Whether JSON data is COCO's."""
    return data.lstrip()[:1] == b"{" and b'"annotations"' in data and b'"categories"' in data


def read_coco(data: bytes, source: str) -> TruthColumns:
    """Reads COCO instances: closed over the file's categories.

    Args:
        data: the file.
        source: name for messages.

    Raises:
        InputError: the data is not a valid COCO instances file, with the reason.
    """
    try:
        coco = msgspec.json.decode(data, type=_Instances)
    except msgspec.DecodeError as error:
        raise InputError(f"not a valid COCO instances file: {error}", path=source) from None
    labels = [category.name for category in coco.categories]
    position = {category.id: k for k, category in enumerate(coco.categories)}
    refuse_duplicates("category", labels, source)
    row_of = {image: k for k, image in enumerate(dict.fromkeys(image.id for image in coco.images))}
    try:
        cells = np.fromiter(
            (row_of[a.image_id] * len(labels) + position[a.category_id] for a in coco.annotations),
            dtype=np.int64,
            count=len(coco.annotations),
        )
    except KeyError as error:
        raise InputError(
            f"an annotation names the image or category {error}, which the file does not list", path=source
        ) from None
    if not row_of:
        raise InputError("the truth has no images", path=source)
    cells = np.unique(cells)
    rows = cells // max(1, len(labels))
    return TruthColumns(
        source=source,
        world="closed",
        image_ids=tuple(map(str, row_of)),
        labels=tuple(labels),
        indptr=np.searchsorted(rows, np.arange(len(row_of) + 1)),
        label_ids=(cells % max(1, len(labels))).astype(np.int32),
        unknown=np.zeros((0, 2), dtype=np.int64),
    )
