"""Reader for ground truth in Visual Genome's ``objects.json``."""

from __future__ import annotations

import re
from array import array

import msgspec
import numpy as np

from ..base.errors import FaultList, InputError
from .truth_columns import TruthColumns, columns_of_cells

_HEAD = 1 << 20


class _Object(msgspec.Struct, gc=False):
    names: list[str]


class _Image(msgspec.Struct, gc=False):
    objects: list[_Object]
    image_id: int | None = None
    id: int | None = None


_decode = msgspec.json.Decoder(_Image).decode


def is_visual_genome(data: bytes) -> bool:
    """Returns True if JSON data is a Visual Genome objects file, which is an array of images with named objects."""
    head = data[:_HEAD]
    return head.lstrip()[:1] == b"[" and b'"objects"' in head and re.search(rb'"names"\s*:', head) is not None


def read_visual_genome(data: bytes, source: str) -> TruthColumns:
    """Reads Visual Genome's ``objects.json``. Objects that are not listed count as absent. Object names may be
    arbitrary words.

    Images are identified by Visual Genome's own ``image_id``, which is the only id in the file. Visual Genome's
    ``image_data.json`` lists the corresponding COCO images (``coco_id``).

    Args:
        data: Content of the file. The file is decoded image by image, so that memory use grows only with the number of
            names and cells.
        source: Name of the source, for error messages.

    Raises:
        InputErrors: If images are invalid. The error lists all faults with their positions in the array.
        InputError: If the file is not a JSON array.
    """
    try:
        images = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a valid Visual Genome objects file: {error}", path=source) from None
    rows: dict[str, int] = {}
    labels: dict[str, int] = {}
    owner, name_ids = array("q"), array("q")
    faults = FaultList()
    for place, raw in enumerate(images, 1):
        try:
            image = _decode(raw)
        except (ValueError, RecursionError) as error:
            faults.add(InputError(f"not a valid Visual Genome image: {error}", path=source, line=place))
            continue
        number = image.id if image.image_id is None else image.image_id
        if number is None or str(number) in rows:
            reason = "missing key 'image_id'" if number is None else f"image {number} appears twice"
            faults.add(InputError(reason, path=source, line=place))
            continue
        row = rows.setdefault(str(number), len(rows))
        for thing in image.objects:
            for name in thing.names:
                if words := " ".join(name.casefold().split()):
                    owner.append(row)
                    name_ids.append(labels.setdefault(words, len(labels)))
    faults.raise_if_any()
    present = np.frombuffer(owner, dtype=np.int64) * len(labels) + np.frombuffer(name_ids, dtype=np.int64)
    return columns_of_cells(source, "open-axis", list(rows), list(labels), present, names=[(name,) for name in labels])
