"""Reader for ground truth in COCO's ``instances_*.json`` and in LVIS files, which have the same structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..files.json_text import json_fault, parse_json
from .truth_columns import TruthColumns, columns_of_cells, refuse_duplicates

_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # type of the elements of an array


class _Image(msgspec.Struct, gc=False):
    id: _Id
    neg_category_ids: list[_Id] | None = None


class Category(msgspec.Struct, gc=False):
    """A category of COCO, or of LVIS, whose categories may have synonyms."""

    id: _Id
    name: str
    synonyms: list[str] | None = None


class _Annotation(msgspec.Struct, gc=False):
    image_id: _Id
    category_id: _Id


class _Instances(msgspec.Struct, gc=False):
    """The required fields of a COCO file. Polygons, which take up nine tenths of the file, are skipped."""

    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[Category]


_KEYS = (b'"images"', b'"annotations"', b'"categories"')


def is_coco(data: bytes) -> bool:
    """Returns True if JSON data is a COCO instances file."""
    return data[:64].lstrip()[:1] == b"{" and b'"annotations"' in data and b'"categories"' in data


def read_coco(data: bytes, source: str) -> TruthColumns:
    """Reads COCO instances, which have a closed label set that consists of the file's categories, or LVIS annotations,
    which have a partial label set.

    The annotators of LVIS verified only some categories per image. Annotated categories are present, categories in
    ``neg_category_ids`` are absent, and all other categories are unknown. Categories in ``not_exhaustive_category_ids``
    are present, although not every instance is annotated. Names and synonyms are matched with aliases; see
    :func:`names_of`.

    Args:
        data: Content of the file.
        source: Name of the source, for error messages.

    Raises:
        InputError: If the data is not a valid COCO instances file.
    """
    try:
        coco = msgspec.json.decode(data, type=_Instances)
    except (ValueError, RecursionError) as error:  # ValueError: msgspec's own, and bytes that are not UTF-8
        raise InputError(f"not a valid COCO instances file: {error}", path=source) from None
    if data.count(b'"category_id"') != len(coco.annotations) or any(data.count(key) != 1 for key in _KEYS):
        try:  # exact but slow check
            parse_json(data, unique=True)
        except ValueError as error:
            raise json_fault(source, data, error) from None
    labels = [category.name for category in coco.categories]
    refuse_duplicates("category", labels, source)
    images, categories = [image.id for image in coco.images], [category.id for category in coco.categories]
    refuse_duplicates("the id of a category", list(map(str, categories)), source)
    present = _cells(
        np.fromiter((a.image_id for a in coco.annotations), np.int64, len(coco.annotations)),
        np.fromiter((a.category_id for a in coco.annotations), np.int64, len(coco.annotations)),
        images,
        categories,
        "an annotation",
        source,
    )
    listed = [(image.id, category) for image in coco.images for category in image.neg_category_ids or ()]
    if coco.images and not coco.annotations and not listed:
        raise InputError(
            "not a valid truth: 'annotations' is empty, so every object would count as absent", path=source
        )
    is_lvis = any(image.neg_category_ids is not None for image in coco.images)
    pairs = np.array(listed, dtype=np.int64).reshape(-1, 2)
    absent = _cells(pairs[:, 0], pairs[:, 1], images, categories, "'neg_category_ids'", source) if is_lvis else None
    return columns_of_cells(
        source,
        "partial" if is_lvis else "closed",
        list(map(str, dict.fromkeys(images))),
        labels,
        present,
        absent,
        [names_of(category) for category in coco.categories] if is_lvis else None,
    )


def _cells(
    image_ids: NDArray[np.int64],
    category_ids: NDArray[np.int64],
    images: Sequence[int],
    categories: Sequence[int],
    what: str,
    source: str,
) -> NDArray[np.int64]:
    """Returns the flat matrix positions of given (image, category) pairs."""
    row_of = {image: k for k, image in enumerate(dict.fromkeys(images))}
    position = {category: k for k, category in enumerate(categories)}
    try:
        rows = np.fromiter(map(row_of.__getitem__, image_ids.tolist()), np.int64, len(image_ids))
        columns = np.fromiter(map(position.__getitem__, category_ids.tolist()), np.int64, len(category_ids))
    except KeyError as error:
        reason = f"{what} refers to the image or category {error}, which the file does not list"
        raise InputError(reason, path=source) from None
    return rows * len(categories) + columns


def names_of(category: Category) -> tuple[str, ...]:
    """Returns the name and the synonyms of an LVIS category, with every ``_`` replaced by a space. A name that contains
    a remark in parentheses (``bat_(animal)``) equals no alias, so only the other names match a vocabulary.
    """
    return tuple(dict.fromkeys(name.replace("_", " ") for name in (category.name, *(category.synonyms or ()))))
