"""CHAIR's ground truth, which combines COCO's annotated objects with the objects in COCO's five captions per image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from ...base.errors import InputError
from ...files.containers import Warn, warn_user
from ...files.files import display_name, read_bytes
from ...matching.vocabulary import Vocabulary
from ...truths.truth_coco import is_coco, read_coco
from ...truths.truth_columns import TruthColumns, columns_of_cells
from .profiles import Profile

_BATCH = 4096


class _Caption(msgspec.Struct, gc=False):
    image_id: int
    caption: str


class _Captions(msgspec.Struct, gc=False):
    annotations: list[_Caption]


def joined_truth(
    instances: Sequence[str | Path], captions: Sequence[str | Path], profile: Profile, *, warn: Warn = warn_user
) -> TruthColumns:
    """Joins COCO's instances and captions as CHAIR does.

    Args:
        instances: ``instances_*.json`` files (CHAIR uses the files for the train and val splits).
        captions: ``captions_*.json`` files for the same images.
        profile: Profile that reads the captions, and whose objects are the labels.
        warn: Callback for a warning about images that occur only in the instances files or only in the captions files.
            These images are omitted.

    Returns:
        The ground truth, in which an image contains every object that is annotated or that one of its captions
        mentions. All other objects of the profile are absent.

    Raises:
        InputError: If a file is not a COCO file, if a category is unknown to the profile, or if no image occurs in both
            kinds of files.
    """
    vocabulary = profile.vocabulary
    objects: dict[str, set[int]] = {}
    for path in instances:
        source, data = display_name(path), read_bytes(path)
        if not is_coco(data):
            raise InputError("not a valid COCO instances file", path=source)
        marked = read_coco(data, source)
        columns = [_label_id(name, vocabulary, source) for name in marked.labels]
        for row, image in enumerate(marked.image_ids):
            ids = marked.label_ids[marked.indptr[row] : marked.indptr[row + 1]].tolist()
            objects.setdefault(image, set()).update(columns[k] for k in ids)
    told = _mentioned(captions, profile)
    both = [image for image in objects if image in told]
    if not both:
        raise InputError(
            f"share no image with {', '.join(map(display_name, instances))}",
            path=", ".join(map(display_name, captions)),
        )
    for files, others in ((objects, told), (told, objects)):
        if left_out := len(files.keys() - others.keys()):
            kind = "captions" if files is objects else "instances"
            warn(f"{left_out:,} images without {kind} are omitted")
    keys = [
        row * len(vocabulary.labels) + label for row, image in enumerate(both) for label in objects[image] | told[image]
    ]
    names = " + ".join(map(display_name, [*instances, *captions]))
    return columns_of_cells(names, "closed", both, vocabulary.labels, np.array(keys, dtype=np.int64))


def _label_id(category: str, vocabulary: Vocabulary, source: str) -> int:
    label = vocabulary.aliases.get(category, category)
    if label not in vocabulary.label_ids:
        raise InputError(f"category '{category}' is not in '{vocabulary.name}'", path=source)
    return vocabulary.label_ids[label]


def _mentioned(paths: Sequence[str | Path], profile: Profile) -> dict[str, set[int]]:
    """Returns a mapping from image id to the ids of the objects that its captions mention."""
    told: dict[str, set[int]] = {}
    for path in paths:
        try:
            written = msgspec.json.decode(read_bytes(path), type=_Captions).annotations
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a valid COCO captions file: {error}", path=display_name(path)) from None
        for begin in range(0, len(written), _BATCH):
            batch = written[begin : begin + _BATCH]
            objects = profile.find_batch([annotation.caption for annotation in batch])
            for k, annotation in enumerate(batch):
                told.setdefault(str(annotation.image_id), set()).update(objects.label_id[objects.row(k)].tolist())
    return told
