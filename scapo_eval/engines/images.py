"""Decoder that converts image files to the format that models receive: validated, upright, 8-bit RGB images. A file
that is not a readable image raises :class:`ImageFault`.

All engines share this decoder and therefore process the same pixels. Animated files are reduced to their first frame,
transparency becomes white, 16-bit values are scaled (not clipped), and EXIF rotation is applied.
"""

from __future__ import annotations

import base64
import hashlib
import io
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

from ..base.errors import InputError, MissingExtra, ScapoError
from ..files.files import read_regular

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS, MAX_FILE = 100 * 2**20, 256 * 2**20
"""Maximum number of pixels, and maximum size of a file in bytes. Larger pictures would need more than 1 GiB of memory
during processing. The pixels are limited separately, because even a small file may declare any number of pixels.
"""

_FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Supported formats. Pillow supports more, but its EPS format starts another program (Ghostscript) on the content of
the file.
"""

_STRIP = 2**22  # number of pixels per strip, for conversions that need several times the memory of their input

_LARGE, _LARGE_FROM = threading.Lock(), 2**24
"""Lock for the decoding of large pictures, and the number of pixels above which it is used. Each such picture needs up
to 600 MiB before it is RGB.
"""

_EXIF_ORIENTATION = 0x0112
_PASSED_ON = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
"""Formats that servers can read. Files in these formats are sent unchanged if possible."""

Value = TypeVar("Value")


class ImageFault(ScapoError):
    """Error that is raised if a file cannot be used as an image. Only the requests that use this file fail, and the run
    continues.
    """


def fingerprint(path: str) -> str:
    """Returns a hash of the bytes of a file.

    Raises:
        ImageFault: If the file is missing, unreadable or empty.
    """
    return hashlib.sha256(file_bytes(path)).hexdigest()[:16]


def load(path: str) -> Image:
    """Returns the picture in a file as an upright RGB image.

    Raises:
        ImageFault: If the file is not a readable image.
        MissingExtra: If Pillow is not installed.
    """
    return _decode(file_bytes(path), path)[0]


def check(path: str) -> None:
    """Checks that the picture in a file can be read.

    Raises:
        ImageFault: If the file is not a readable image.
        MissingExtra: If Pillow is not installed.
    """
    load(path)


def data_url(path: str) -> str:
    """Returns the picture as a ``data:`` URL, with the unchanged bytes of the file if possible, and as lossless PNG
    otherwise.

    Raises:
        ImageFault: If the file is not a readable image.
        MissingExtra: If Pillow is not installed.
    """
    data = file_bytes(path)
    image, as_is = _decode(data, path)
    if as_is is None:
        sink = io.BytesIO()
        image.save(sink, "PNG", compress_level=1)
        data, as_is = sink.getvalue(), "image/png"
    return f"data:{as_is};base64,{base64.b64encode(data).decode('ascii')}"


def file_bytes(path: str) -> bytes:
    """Returns the content of the file unchanged.

    Raises:
        ImageFault: If the path is not found or not a file, or if the file is unreadable, empty or too large.
    """
    try:
        data = read_regular(path, MAX_FILE)
    except InputError as error:
        raise ImageFault(str(error)) from None
    if not data:
        raise ImageFault(f"{path}: the file is empty (0 bytes)")
    return data


def _decode(data: bytes, path: str) -> tuple[Image, str | None]:
    """Returns the upright RGB picture and the MIME type of the file. The MIME type is None if the file must not be sent
    unchanged, because some readers would decode it to a different picture.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("http", "reading images") from None
    Image.init()
    formats = [name for name in _FORMATS if name in Image.OPEN]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings about damaged metadata and the number of pixels
            image: Image.Image = Image.open(io.BytesIO(data), formats=formats)
            if image.width * image.height > MAX_PIXELS:
                raise ImageFault(f"{path}: {image.width} x {image.height} pixels are too many")
            with _LARGE if image.width * image.height > _LARGE_FROM else nullcontext():
                return _decoded(image)
    except ImageFault:
        raise
    except UnidentifiedImageError:
        raise ImageFault(f"{path}: not a valid image, or of an unknown format") from None
    except Image.DecompressionBombError:
        raise ImageFault(f"{path}: too many pixels") from None
    except MemoryError:
        raise ImageFault(f"{path}: damaged image, or too large for the memory") from None
    except Exception as error:  # Pillow does not document the errors of its decoders for damaged files
        raise ImageFault(f"{path}: damaged image ({str(error) or type(error).__name__})") from None


def _decoded(image: Image) -> tuple[Image, str | None]:
    """Returns the result of :func:`_decode` for a picture whose pixels have not been read."""
    from PIL import ImageOps

    image.load()
    plain = (
        image.mode in ("RGB", "L")
        and not getattr(image, "is_animated", False)
        and image.getexif().get(_EXIF_ORIENTATION, 1) == 1
        and "transparency" not in image.info
    )
    as_is = _PASSED_ON.get(image.format or "") if plain else None
    ImageOps.exif_transpose(image, in_place=True)
    return _rgb(image), as_is


def _rgb(image: Image) -> Image:
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":  # 16 bits: convert("RGB") would clip at 255
        import numpy as np

        top = 255.0 if max(np.nan_to_num(strip).max(initial=0.0) for strip in _strips(image)) <= 255 else 65535.0

        def scaled(strip: Image.Image) -> Image.Image:
            values = np.nan_to_num(np.asarray(strip, dtype=np.float64))
            return Image.fromarray(np.clip(values * (255.0 / top), 0, 255).round().astype(np.uint8)).convert("RGB")

        return _by_strips(image, scaled)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:

        def on_white(strip: Image.Image) -> Image.Image:
            white = Image.new("RGBA", strip.size, "white")
            return Image.alpha_composite(white, strip.convert("RGBA")).convert("RGB")

        return _by_strips(image, on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image, change: Callable[[Image], Image]) -> Image:
    """Applies a change to the image strip by strip, which avoids several full copies in memory, and returns the result
    as a new RGB image.
    """
    from PIL import Image

    made = Image.new("RGB", image.size)
    top = 0
    for strip in _strips(image):
        made.paste(change(strip), (0, top))
        top += strip.height
    return made


def _strips(image: Image) -> Iterator[Image]:
    rows = max(1, _STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


class Cache(Generic[Value]):
    """Thread-safe cache that keeps the most recently used values of a function of a path. All threads share the cache,
    so that an image that several requests use is processed only once.

    If several threads request the same path at the same time, the value is computed only once. Errors are not cached.
    """

    def __init__(self, function: Callable[[str], Value], size: int) -> None:
        self._function = function
        self._size = size
        self._values: OrderedDict[str, Future[Value]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, path: str) -> Value:
        """Returns the value for a path, computing it if it is not among the last ``size`` values."""
        with self._lock:
            known = self._values.get(path)
            if known is not None:
                self._values.move_to_end(path)
            else:
                made: Future[Value] = Future()
                self._values[path] = made
                while len(self._values) > self._size:
                    self._values.popitem(last=False)
        if known is not None:
            return known.result()
        try:
            made.set_result(self._function(path))
        except BaseException as error:
            with self._lock:
                self._values.pop(path, None)
            made.set_exception(error)
        return made.result()
