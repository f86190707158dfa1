"""Functions that find the images that the user specifies as folders, globs, files, lists or COCO annotations."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import UNFIT, InputError, InputErrors, short_repr, unfit
from ..base.ids import canonical_image_id
from ..files.containers import open_rows
from ..files.fields import find_image, image_id_in
from ..files.json_text import iter_records, read_json
from ..files.source import Source

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_OWN_NUMBERS = "CCS_images"
"""Folder of PhD whose images are numbered from 0 and differ from the COCO images with the same numbers."""

_LIST_SUFFIXES = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image and its file.

    Attributes:
        image_id: Canonical id of the image.
        name: Name of the image as it appears in the list or folder, which is written to the output.
        path: Expected path of the image file.
    """

    image_id: str
    name: str
    path: str


class ImageFolder:
    """Lookup of image files by the file names or ids that a benchmark uses.

    Args:
        root: Folder that contains the images at any depth, or None if the names are paths.
    """

    def __init__(self, root: str | Path | None) -> None:
        if root is not None and not Path(root).is_dir():
            raise InputError("folder not found", path=str(root))
        self._root = Path(root) if root is not None else Path()
        self._search = root is not None
        self._index: dict[str, list[str]] | None = None

    def find(self, name: str) -> str:
        """Returns the path of an image: either the name relative to the root, or the only file in a subfolder that has
        this name or id.

        If no file or several files match, the returned path does not exist, so that the item fails with an error that
        contains its name. If a name points outside the root (an absolute path or ``..``), only its last component is
        used.
        """
        if not self._search:
            return str(self._root / name)
        path = Path(name)
        direct = self._root / (path.name if path.is_absolute() or ".." in path.parts else name)
        if os.path.isfile(direct):  # unlike Path.is_file(), False for an impossible file name
            return str(direct)
        if self._index is None:
            self._index = _index(self._root)
        paths = self._index.get(Path(name).name) or (
            self._index.get(canonical_image_id(name)) if name.strip() and "/" not in name else None
        )
        return paths[0] if paths and len(paths) == 1 else str(direct)


def _index(root: Path) -> dict[str, list[str]]:
    """Returns a mapping from file names (with and without extension) and canonical ids to paths."""
    index: dict[str, list[str]] = {}
    for path in _files_in(root):
        if path.parent.name == _OWN_NUMBERS:
            continue
        for key in {path.name, path.stem, canonical_image_id(path.name)}:
            index.setdefault(key, []).append(str(path))
    return index


def _files_in(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if Path(name).suffix.lower() in IMAGE_SUFFIXES:
                yield Path(folder) / name


def find_images(sources: Iterable[str], root: str | None = None, limit: int | None = None) -> list[ImageFile]:
    """Returns the images that the user specifies, in order.

    Args:
        sources: Folders, globs, image files, COCO annotation files, or lists (JSON Lines or a JSON array of
            ``{"image"}`` or ``{"image_id"}``).
        root: Folder that contains the images named in lists and annotation files, or None for the folder of the list
            itself.
        limit: Maximum number of images, or None for no limit.

    Raises:
        InputError: If a source is not found, if it has an unsupported type, or if it names no image.
        InputErrors: If two images have the same id.
    """
    images: list[ImageFile] = []
    first: dict[str, ImageFile] = {}
    faults = []
    for source in sources:
        of_source = list(_of_source(source, root))
        if not of_source:
            raise InputError("images not found", path=source)
        images += of_source
        for picture in of_source:
            earlier = first.setdefault(picture.image_id, picture)
            if earlier is not picture:
                reason = f"{picture.path} has the same image id {short_repr(picture.image_id)} as {earlier.path}"
                faults.append(InputError(reason, path=source))
    if faults:
        raise InputErrors(faults)
    return images[:limit]


def image_ids(source: str) -> frozenset[str]:
    """Returns the canonical ids of the images in a file or folder, so that they can be compared with the ids in other
    files.

    Args:
        source: Ground truth file of any format, captions, answers, questions, or any source that :func:`find_images`
            accepts.

    Raises:
        InputError: If the source is not found, or if it contains no image.
    """
    from ..truths.oracle import PresenceOracle

    if Path(source).is_file() and Path(source).suffix.lower() not in IMAGE_SUFFIXES:
        file = Source(source)
        try:
            return frozenset(PresenceOracle.load(file).image_ids)
        except (InputError, InputErrors):
            pass  # not a ground truth file: captions, answers, lists, other COCO annotations
        pictures = _of_list(file, None) if _is_list(Path(source)) else None
        ids = frozenset(_of_table(file) if pictures is None else (picture.image_id for picture in pictures))
    else:
        ids = frozenset(picture.image_id for picture in _of_source(source, None))
    if not ids:
        raise InputError("images not found", path=source)
    return ids


def _of_table(source: Source) -> Iterator[str]:
    """Yields the image ids of captions or answers in a Parquet file, a workbook or a table."""
    for line, record in open_rows(source):
        try:
            yield image_id_in(record)
        except ValueError as error:
            raise InputError(str(error), path=source.name, line=line) from None


def _is_list(path: Path) -> bool:
    return any(suffix in _LIST_SUFFIXES for suffix in path.suffixes[-2:])


def _of_source(source: str, root: str | None) -> Iterator[ImageFile]:
    path = Path(source)
    if path.is_dir():
        yield from (_image_file(file.relative_to(path).as_posix(), str(file)) for file in _files_in(path))
    elif path.is_file() and _is_list(path):
        yield from _of_list(Source(source), ImageFolder(root) if root else None)
    elif path.is_file():
        yield _image_file(path.name, source)
    elif glob.has_magic(source):
        yield from (_image_file(Path(name).name, name) for name in sorted(glob.glob(source, recursive=True)))
    else:
        raise InputError("file or folder not found", path=source)


def _image_file(name: str, path: str) -> ImageFile:
    try:
        return ImageFile(canonical_image_id(name), name, path)
    except ValueError as error:
        raise InputError(f"its name {error}", path=path) from None


def _of_list(file: Source, folder: ImageFolder | None) -> Iterator[ImageFile]:
    source = file.path

    def locate(name: str) -> str:
        return folder.find(name) if folder else str(Path(source).parent / name)

    if (images := _coco_images(file)) is not None:
        for number, entry in enumerate(images, 1):
            try:
                name, identity = str(entry.get("file_name") or entry["id"]), canonical_image_id(entry["id"])
            except UNFIT as error:
                raise InputError(f"images[{number - 1}]: {unfit(error)}", path=source) from None
            yield ImageFile(identity, name, locate(name))
        return
    for line, record in iter_records(file):
        named = _name(record)
        if named is None:
            raise InputError(f"missing key 'image' or 'image_id' (found: {', '.join(record)})", path=source, line=line)
        given = record.get("image_id")  # "id" is often the id of a question or an answer
        try:
            identity = canonical_image_id(named if given is None else given)
        except ValueError as error:
            raise InputError(f"'image_id' {error}", path=source, line=line) from None
        yield ImageFile(identity, named, locate(named))


def _coco_images(source: Source) -> list[Any] | None:
    """Returns the list of images in a COCO file, or None for any other file."""
    head = source.head.lstrip()
    if head[:1] != b"{" or (b'"images"' not in head and b'"annotations"' not in head and b'"info"' not in head):
        return None
    try:
        document = read_json(source)
    except InputError:  # several lines, not one object
        return None
    images = document.get("images") if isinstance(document, dict) else None
    return images if isinstance(images, list) else None


def _name(record: Mapping[str, Any]) -> str | None:
    for key in ("image", "path", "file_name", "image_path"):
        if isinstance(record.get(key), str) and record[key].strip():
            return str(record[key])
    return find_image(record)
