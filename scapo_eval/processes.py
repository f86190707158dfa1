"""Worker processes of one machine; one that is killed is one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from .errors import ScapoError


@contextmanager
def process_pool(workers: int, **settings: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, which drops what is not begun when its block is left.

    Args:
        workers: how many.
        settings: as for ``ProcessPoolExecutor``.

    Raises:
        ScapoError: a process was killed.
    """
    pool = ProcessPoolExecutor(workers, **settings)
    try:
        yield pool
    except BrokenProcessPool:
        raise ScapoError(
            f"one of {workers} worker processes was killed, as a rule because the memory was full (every one holds the "
            "truth and the vocabulary); try fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
