"""The images that the user names by folders, globs, files, lists or COCO annotations, and where their files are."""

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
"""PhD's folder with images numbered from 0, which are not the COCO images of these numbers."""

_LIST_SUFFIXES = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image and its file.

    Attributes:
        image_id: canonical id of the image.
        name: name of the image in the list or folder, for the output.
        path: path where its file should be.
    """

    image_id: str
    name: str
    path: str


class ImageFolder:
    """Finds the file of an image that a benchmark names by file name or id.

    Args:
        root: folder with the images, at any depth; None for names that are paths themselves.
    """

    def __init__(self, root: str | Path | None) -> None:
        if root is not None and not Path(root).is_dir():
            raise InputError("folder not found", path=str(root))
        self._root = Path(root) if root is not None else Path()
        self._search = root is not None
        self._index: dict[str, list[str]] | None = None

    def find(self, name: str) -> str:
        """Returns the path of the image's file: the name below the root, else the only file with this name or id in any
        subfolder.

        Where no file or several match, it is a path that does not exist, so that the item fails with its name. A name
        that leads out of the root (an absolute path, ``..``) is looked for by its last part only.
        """
        if not self._search:
            return str(self._root / name)
        path = Path(name)
        direct = self._root / (path.name if path.is_absolute() or ".." in path.parts else name)
        if os.path.isfile(direct):  # unlike Path.is_file(), False for a name that no file can have
            return str(direct)
        if self._index is None:
            self._index = _index(self._root)
        paths = self._index.get(Path(name).name) or (
            self._index.get(canonical_image_id(name)) if name.strip() and "/" not in name else None
        )
        return paths[0] if paths and len(paths) == 1 else str(direct)


def _index(root: Path) -> dict[str, list[str]]:
    """Returns a mapping: file name (with and without its suffix) or canonical id -> paths."""
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
    """Returns the images that the user names, in order.

    Args:
        sources: folders, globs, image files, COCO annotation files, or lists (JSON Lines or a JSON array of
            ``{"image"}`` or ``{"image_id"}``).
        root: folder with the images of lists and annotation files; None looks beside the list.
        limit: take only the first images, this many; None takes all.

    Raises:
        InputError: if a source is not found, is none of these, or names no image.
        InputErrors: if two images have the same id.
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
    """Returns the canonical ids of the images that a file or folder names, to compare them with those of others.

    Args:
        source: a ground truth file of any format, captions, answers, questions, or anything :func:`find_images` takes.

    Raises:
        InputError: if it is not found, or names no image.
    """
    from ..truths.oracle import PresenceOracle

    if Path(source).is_file() and Path(source).suffix.lower() not in IMAGE_SUFFIXES:
        file = Source(source)
        try:
            return frozenset(PresenceOracle.load(file).image_ids)
        except (InputError, InputErrors):
            pass  # not a truth file: captions, answers, lists, COCO annotations of another kind
        pictures = _of_list(file, None) if _is_list(Path(source)) else None
        ids = frozenset(_of_table(file) if pictures is None else (picture.image_id for picture in pictures))
    else:
        ids = frozenset(picture.image_id for picture in _of_source(source, None))
    if not ids:
        raise InputError("images not found", path=source)
    return ids


def _of_table(source: Source) -> Iterator[str]:
    """Yields the image ids of captions or answers in parquet, a workbook or a table."""
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
        given = record.get("image_id", record.get("id"))
        try:
            identity = canonical_image_id(named if given is None else given)
        except ValueError as error:
            raise InputError(f"'image_id' {error}", path=source, line=line) from None
        yield ImageFile(identity, named, locate(named))


def _coco_images(source: Source) -> list[Any] | None:
    """COCO's list of images; None if the file is none of COCO's."""
    head = source.head.lstrip()
    if head[:1] != b"{" or (b'"images"' not in head and b'"annotations"' not in head and b'"info"' not in head):
        return None
    try:
        document = read_json(source)
    except InputError:  # lines, not one object
        return None
    images = document.get("images") if isinstance(document, dict) else None
    return images if isinstance(images, list) else None


def _name(record: Mapping[str, Any]) -> str | None:
    for key in ("image", "path", "file_name", "image_path"):
        if isinstance(record.get(key), str) and record[key].strip():
            return str(record[key])
    return find_image(record)
