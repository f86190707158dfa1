"""Distribution of resampling: an engine's workers compute the sums for parts of the images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import in_few_bytes

Work = tuple[Callable[..., NDArray[Any]], tuple[Any, ...]]
"""Function at module level and its arguments, which can be pickled. The function returns the sums for a part. Its
tables may have any number format.
"""

Workers = Callable[[list[Work]], Iterable[NDArray[Any]]]
"""Returns the result of :func:`work` for every part, in any order."""

PART = 1 << 16
"""Images in a part that a worker resamples, which takes half a second."""

_WORKERS: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def resampled_by(workers: Workers) -> Iterator[None]:
    """Runs resampling in worker processes instead of the current process inside the ``with`` block."""
    token = _WORKERS.set(workers)
    try:
        yield
    finally:
        _WORKERS.reset(token)


def work(part: Work) -> NDArray[Any]:
    """Returns the sums for one part."""
    function, arguments = part
    return function(*arguments)


def sum_of_parts(images: int, of_part: Callable[[slice], Work]) -> NDArray[Any]:
    """Returns the sum over all images. With workers and more than PART images, the workers sum the parts.

    Args:
        images: Number of images.
        of_part: Function that returns the work for the given images.
    """
    workers = _WORKERS.get()
    if workers is None or images <= PART:
        return work(of_part(slice(0, images)))
    parts = [_packed(of_part(slice(first, min(first + PART, images)))) for first in range(0, images, PART)]
    return np.asarray(sum(workers(parts)))


def _packed(part: Work) -> Work:
    """Returns the work with its tables of whole numbers in as few bytes as possible, for the transfer to a worker."""
    function, arguments = part
    return function, tuple(_small(value) if np.ndim(value) == 2 else value for value in arguments)


def _small(table: NDArray[Any]) -> NDArray[Any]:
    whole = table.astype(np.int64)
    return in_few_bytes(whole) if (whole == table).all() else table
