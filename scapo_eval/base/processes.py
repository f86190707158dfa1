"""Pools of local worker processes, which report a killed worker as a single error."""

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

_PER_PROCESSOR, _LEAST = 4, 8


@contextmanager
def process_pool(
    workers: int, *, option: str = "--workers", initializer: Callable[..., None] | None = None, **settings: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yields a process pool. Pending work is canceled when the ``with`` block exits, and the workers terminate if this
    process is killed.

    Args:
        workers: Number of worker processes. More than four per processor are not started.
        option: Name of the caller's option that sets the number of workers. The error message suggests a smaller number
            of workers.
        initializer: Function that each worker calls when it starts.
        settings: Further arguments of ``ProcessPoolExecutor``.

    Raises:
        ScapoError: If a worker was killed.
    """
    workers = min(workers, max(_LEAST, _PER_PROCESSOR * (os.cpu_count() or 1)))
    pool = ProcessPoolExecutor(workers, initializer=partial(_begin, initializer), **settings)
    try:
        yield pool
    except BrokenProcessPool:
        raise ScapoError(
            f"one of {workers} worker processes was killed, usually because the memory was full (each process has "
            f"its own copy of the data); use fewer {option}"
        ) from None
    except KeyboardInterrupt:
        for worker in (pool._processes or {}).values():  # otherwise, running tasks are finished first
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(initializer: Callable[..., None] | None, *given: Any) -> None:
    """Initializes a worker process, and terminates the worker when its parent process ends.

    An orphaned worker would otherwise wait forever.
    """
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()
    gc.freeze()  # inherited objects are excluded from garbage collection, which would copy their memory pages
    if initializer is not None:
        initializer(*given)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
