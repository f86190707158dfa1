"""Normalization of image ids, after which all spellings of an id in COCO, AMBER and other data sets are equal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral

from .errors import InputError

_NUMBERED = re.compile(
    r"(?:COCO_(?:train|val|test)\d{4}_|AMBER_)?(\d+)(?:\.(?:jpe?g|png|webp|bmp|gif|tiff?|0))?",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)


def plain_id(value: object) -> str:
    """Normalizes a numeric id: ``7``, ``"7"``, ``" 7"``, ``007`` and ``7.0`` all become ``7``. For other ids, only
    surrounding white space is removed.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value.strip() if isinstance(value, str) else str(value)
    whole, point, zeros = text.partition(".")
    if whole.isdecimal() and whole.isascii() and (not point or (zeros and not zeros.strip("0"))):
        return whole.lstrip("0") or "0"
    return text


def canonical_image_id(value: object) -> str:
    """Returns the canonical spelling of an image id, by which images are looked up in all tables.

    ``226988``, ``"226988"``, ``"000000226988"``, ``"COCO_val2014_000000226988.jpg"`` and paths that end in one of these
    names become ``"226988"``. ``"226988.0"``, as pandas writes a column of ids with a missing value, also becomes
    ``"226988"``, and ``"AMBER_7.jpg"`` becomes ``"7"``. Any other string is unchanged.

    Args:
        value: An integer, a float or Decimal without a fractional part (as pandas and databases write ids), or a
            string. NumPy scalars and zero-dimensional tensors are accepted as well.

    Raises:
        ValueError: If the value is not a valid id. The message states the reason.
    """
    if isinstance(value, str):
        if value.isdecimal() and value.isascii():  # most ids, in a tenth of the time that the pattern needs
            return value.lstrip("0") or "0"
        match = _NUMBERED.fullmatch(value.strip().replace("\\", "/").rpartition("/")[2])
        if match:
            return match.group(1).lstrip("0") or "0"
        if not value.strip():
            raise ValueError("is an empty string")
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # numpy scalars and tensors from any library
        return canonical_image_id(value.item())
    if isinstance(value, bool) or value is None:
        raise ValueError(f"must be a number or a string, not {'null' if value is None else str(value).lower()}")
    if isinstance(value, (int, Integral)):  # also integers from numpy and pandas; a check for int alone is faster
        if value < 0:
            raise ValueError(f"must not be negative, got {value}")
        return str(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"must be a number or a string, not {value}")
        if value.is_integer() and 0 <= value < 2**53:
            return str(int(value))
        raise ValueError(f"must be a whole number, got {value}")
    if isinstance(value, Decimal) and value.is_finite():  # as databases write ids
        if value != value.to_integral_value():
            raise ValueError(f"must be a whole number, got {value}")
        return canonical_image_id(int(value))
    raise ValueError(f"must be a number or a string, not {type(value).__name__}")


def checked_image_id(value: object, path: str | None = None) -> str:
    """Returns the same as :func:`canonical_image_id`, for an id that a user gives in Python.

    Args:
        value: Image id in any spelling.
        path: Name of the source of the id, for the error message.

    Raises:
        InputError: If the value is not a valid id.
    """
    try:
        return canonical_image_id(value)
    except ValueError as error:
        raise InputError(f"image id {error}", path=path) from None


class MergedImages:
    """Collector of image names that have the same image id but lie in different folders, such as ``a/1.jpg`` and
    ``b/1.jpg``.
    """

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._merged: dict[str, str] = {}

    def add(self, written: object, image_id: str) -> None:
        """Adds an image name as it is written, and its canonical image id."""
        if not is_in_folder(written) or written == image_id:
            return
        first = self._first.setdefault(image_id, str(written))
        if _folder_of(first) != _folder_of(str(written)):
            self._merged.setdefault(image_id, str(written))

    @property
    def note(self) -> str | None:
        """Sentence that names the first two spellings and the number of such images, or None if there are none."""
        if not self._merged:
            return None
        image, second = next(iter(self._merged.items()))
        n = len(self._merged)
        return (
            f"{n:,} image id{'s' * (n > 1)} with files in several folders: '{self._first[image]}' and '{second}' are "
            f"both read as image {image}; if they are different images, rename them (a_{image}, b_{image})"
        )


def is_in_folder(written: object) -> bool:
    """Returns True if an image name contains a folder."""
    return isinstance(written, str) and ("/" in written or "\\" in written)


def _folder_of(written: str) -> str:
    return written.replace("\\", "/").rpartition("/")[0]


_ENDING = re.compile(r"\.(?:jpe?g|png|webp|bmp|gif|tiff?)$", re.IGNORECASE)


def file_name_of(image_id: str) -> str:
    """Removes the folder and the extension from an image id: ``val/cat.jpg`` and ``cat.png`` become ``cat``."""
    folder = max(image_id.rfind("/"), image_id.rfind("\\"))
    return _ENDING.sub("", image_id[folder + 1 :])


def positions_by_file_name(image_ids: Iterable[str]) -> dict[str, int]:
    """Returns a mapping from file names, without folder and extension, to the positions of their image ids. The
    position is -1 if several images have the same file name.
    """
    positions: dict[str, int] = {}
    for k, image in enumerate(image_ids):
        name = file_name_of(image)
        positions[name] = -1 if name in positions else k
    return positions
