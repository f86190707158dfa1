"""Image files as a model sees them: checked, upright, 8-bit RGB; every other file is an :class:`ImageFault`.

One decoder serves all engines, so that each sees the same pixels. Animated files give their first
frame, transparency becomes white, 16-bit values are scaled (not clipped), EXIF rotation is applied.
"""

from __future__ import annotations

import base64
import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import MissingExtra, ScapoError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 178_956_970
"""Pillow's own limit of 2 x 2**29 / 6 pixels: a larger picture is a decompression bomb."""

_EXIF_ORIENTATION = 0x0112
_PASSED_ON = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
"""Formats that servers read; files of them that need no change are sent as they are."""

Value = TypeVar("Value")


class ImageFault(ScapoError):
    """A file that cannot be used as an image: the item fails, the run goes on."""


def fingerprint(path: str) -> str:
    """Hash of the file's bytes.

    Raises:
        ImageFault: the file is not found, unreadable or empty.
    """
    return hashlib.sha256(_bytes(path)).hexdigest()[:16]


def load(path: str) -> Image:
    """The picture as an upright RGB image.

    Raises:
        ImageFault: the file is not a readable image.
        MissingExtra: Pillow is not installed.
    """
    return _decode(_bytes(path), path)[0]


def check(path: str) -> None:
    """Reads the picture to see whether it can be read.

    Raises:
        ImageFault, MissingExtra: see :func:`load`.
    """
    load(path)


def data_url(path: str) -> str:
    """The picture as a ``data:`` URL: the file's own bytes where they need no change, else lossless PNG.

    Raises:
        ImageFault: the file is not a readable image.
        MissingExtra: Pillow is not installed.
    """
    data = _bytes(path)
    image, as_is = _decode(data, path)
    if as_is is None:
        sink = io.BytesIO()
        image.save(sink, "PNG", compress_level=1)
        data, as_is = sink.getvalue(), "image/png"
    return f"data:{as_is};base64,{base64.b64encode(data).decode('ascii')}"


def _bytes(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ImageFault(f"{path}: file not found") from None
    except OSError as error:
        raise ImageFault(f"{path}: {error.strerror}") from None
    if not data:
        raise ImageFault(f"{path}: the file is empty (0 bytes)")
    return data


def _decode(data: bytes, path: str) -> tuple[Image, str | None]:
    """The upright RGB picture, and the file's MIME type if its bytes show just that to any reader."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("http", "reading images") from None
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise ImageFault(f"{path}: {opened.width} x {opened.height} pixels are too many")
            opened.load()
            plain = (
                opened.mode in ("RGB", "L")
                and not getattr(opened, "is_animated", False)
                and opened.getexif().get(_EXIF_ORIENTATION, 1) == 1
                and "transparency" not in opened.info
            )
            as_is = _PASSED_ON.get(opened.format or "") if plain else None
            return _rgb(ImageOps.exif_transpose(opened)), as_is
    except UnidentifiedImageError:
        raise ImageFault(f"{path}: not a valid image, or of an unknown format") from None
    except Image.DecompressionBombError:
        raise ImageFault(f"{path}: too many pixels") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # what Pillow's decoders raise on damage
        raise ImageFault(f"{path}: damaged image ({error})") from None


def _rgb(image: Image) -> Image:
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":  # 16 bits: convert("RGB") would clip at 255
        import numpy as np

        values = np.asarray(image, dtype=np.float64)
        top = 255.0 if values.max(initial=0.0) <= 255 else 65535.0
        image = Image.fromarray(np.clip(values * (255.0 / top), 0, 255).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


class Cache(Generic[Value]):
    """Keeps the last few values of a function of a path, for all threads: benchmarks ask about an image many times."""

    def __init__(self, function: Callable[[str], Value], size: int) -> None:
        self._function = function
        self._size = size
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, path: str) -> Value:
        """The value, computed anew if it is not among the last ``size`` ones."""
        with self._lock:
            if path in self._values:
                self._values.move_to_end(path)
                return self._values[path]
        value = self._function(path)
        with self._lock:
            self._values[path] = value
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value
