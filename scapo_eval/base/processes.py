"""Worker processes of one machine; one that is killed is one clear error."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import parent_process
from threading import Thread
from typing import Any

from .errors import ScapoError


@contextmanager
def process_pool(
    workers: int, *, option: str = "--workers", initializer: Callable[..., None] | None = None, **settings: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of processes. It drops pending work when its block is left, and ends if this process is killed.

    Args:
        workers: how many.
        option: what the caller calls that number.
        initializer, settings: as for ``ProcessPoolExecutor``.

    Raises:
        ScapoError: if a process was killed.
    """
    pool = ProcessPoolExecutor(workers, initializer=partial(_begin, initializer), **settings)
    try:
        yield pool
    except BrokenProcessPool:
        raise ScapoError(
            f"one of {workers} worker processes was killed, as a rule because the memory was full (every one holds all "
            f"that it works with); try fewer {option}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(initializer: Callable[..., None] | None, *given: Any) -> None:
    """Runs in a new worker, which would otherwise go on with its work, and then wait for ever, without its parent."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()
    gc.freeze()  # what it has inherited is no garbage: to look for some there would copy every page of it
    if initializer is not None:
        initializer(*given)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
