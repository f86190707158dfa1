"""Bounding boxes of COCO instances to draw on the pictures of a page, if the ground truth contains boxes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..base.errors import InputError
from ..base.ids import canonical_image_id
from ..files.files import read_bytes
from .data import Report

MOST_BOXES = 60
"""Maximum number of boxes per image on a page, largest first."""

Box = tuple[int, float, float, float, float]
"""Index of the label in the vocabulary, and left, top, width and height as shares of the picture."""


class _Annotation(msgspec.Struct):
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]


class _Image(msgspec.Struct):
    id: int | str
    width: float
    height: float


class _Category(msgspec.Struct):
    id: int
    name: str


class _Instances(msgspec.Struct):
    annotations: list[_Annotation]
    images: list[_Image]
    categories: list[_Category]


def boxes_of(report: Report, images: Iterable[str]) -> dict[str, list[Box]]:
    """Returns the boxes of each image if the captions' ground truth is a file of COCO instances, otherwise an empty
    mapping.

    Args:
        report: Report to display.
        images: Image ids.
    """
    if not report.captions:
        return {}
    truth = report.captions[0].truth
    try:
        instances = msgspec.json.decode(read_bytes(truth.oracle.source), type=_Instances)
    except (msgspec.DecodeError, InputError, OSError, UnicodeDecodeError):
        return {}  # a ground truth without boxes
    wanted = set(images)
    place = {label: k for k, label in enumerate(truth.vocabulary.labels)}
    labels = {category.id: place[category.name] for category in instances.categories if category.name in place}
    sizes = {
        picture.id: (picture.width, picture.height)
        for picture in instances.images
        if picture.width > 0 and picture.height > 0
    }
    boxes: dict[str, list[Box]] = {}
    for annotation in sorted(instances.annotations, key=lambda box: -box.bbox[2] * box.bbox[3]):
        if annotation.category_id not in labels or annotation.image_id not in sizes:
            continue
        image = canonical_image_id(annotation.image_id)
        if image not in wanted or len(boxes.setdefault(image, [])) >= MOST_BOXES:
            continue
        wide, high = sizes[annotation.image_id]
        x, y, w, h = annotation.bbox
        shares = (round(v, 4) for v in (x / wide, y / high, w / wide, h / high))
        boxes[image].append((labels[annotation.category_id], *shares))  # type: ignore[arg-type]
    return boxes
