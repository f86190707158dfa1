"""Captions and responses on Ray Data: any number of machines, Ray's retries, Ray's progress (extra ``ray``).

Work is in tasks, not in actors: nodes may come and go, and a task whose worker was killed runs again. Vocabulary and
truth are put into the object store once, and each worker process makes its matcher once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import MissingExtra, ScapoError
from ..results.poisson import Work, work
from ..results.results import Run
from ..rewarding.reward import SubsentenceReward

try:
    import ray
    import ray.data
    import ray.exceptions
except ImportError:
    raise MissingExtra("ray", "scapo_eval.distributed.ray") from None

from .batch import TASKS_PER_CPU, Counted, Result, engine_errors, summed
from .engine import CountingEngine
from .rewards import check_reward_columns, with_rewards


class RayEngine(CountingEngine["ray.data.Dataset"]):
    """Ray Data; its functions are those of this module."""

    kind = ray.data.Dataset

    def columns(self, data: ray.data.Dataset) -> list[str]:
        """Implements ``columns``: see :class:`CountingEngine`."""
        with _ray_errors():  # it may take a first block
            return list(data.columns() or [])

    def select(self, data: ray.data.Dataset, names: Sequence[str]) -> ray.data.Dataset:
        """Implements ``select``: see :class:`CountingEngine`."""
        return data.select_columns(list(names))

    def spread(self, parts: Any) -> ray.data.Dataset:
        """Implements ``spread``: see :class:`CountingEngine`."""
        most = TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))
        return ray.data.from_items(parts.to_pylist(), override_num_blocks=max(1, min(parts.num_rows, most)))

    def counts(self, data: ray.data.Dataset, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Implements ``counts``: see :class:`CountingEngine`; summed while they arrive."""
        tables = data.map_batches(
            _count,
            fn_kwargs={"counter": ray.put(counter), "of_files": of_files},
            batch_format="pyarrow",
            batch_size=None,
            concurrency=workers,
        )
        with _ray_errors():
            return summed([counter.schema.empty_table()], tables.iter_batches(batch_format="pyarrow", batch_size=None))

    def resampled(self, parts: list[Work]) -> Iterable[NDArray[np.int64]]:
        """Implements ``resampled``: see :class:`CountingEngine`."""
        task = ray.remote(work)
        with _ray_errors():
            return ray.get([task.remote(part) for part in parts])  # type: ignore[no-any-return]


_engine = RayEngine()
score, chair, answers, amber = _engine.score, _engine.chair, _engine.answers, _engine.amber


@contextmanager
def connected(address: str | None = None, *, quiet: bool = False) -> Iterator[None]:
    """Connects to a cluster, or starts one on this machine, which ends with the block.

    Args:
        address: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``; None: ``RAY_ADDRESS``, a cluster that runs on this
            machine, or a new one.
        quiet: no progress; logs of Ray and its workers stay in its own files either way.

    Raises:
        ScapoError: if no cluster is reached.
    """
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if quiet:
        ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what Ray will change
            dashboard = False if not address else None
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, include_dashboard=dashboard)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ScapoError(f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def reward(
    responses: ray.data.Dataset,
    reward: SubsentenceReward,
    *,
    image_id: str = "image_id",
    response: str = "response",
    workers: int | None = None,
) -> ray.data.Dataset:
    """Responses with SCAPO's reward, computed when the dataset is consumed.

    Args:
        responses: a Ray Dataset.
        reward: of the responses; a subclass or a function in its settings travels by cloudpickle.
        image_id, response: names of the columns.
        workers: tasks at a time; None: as many as the cluster has processors for.

    Returns:
        The same rows with the columns of :func:`~scapo_eval.distributed.rewards.reward_fields`.

    Raises:
        InputError: if a column is not found, or one of the new ones is there already; when consumed, faulty rows
            (unless the reward is made with ``on_error="zero"``).
    """
    check_reward_columns(_engine.columns(responses), image_id, response)
    return responses.map_batches(
        _reward,
        fn_kwargs={"reward": ray.put(reward), "image_id": image_id, "response": response},
        batch_format="pyarrow",
        batch_size=None,
        concurrency=workers,
    )


@lru_cache(maxsize=4)
def _get(reference: Any) -> Any:
    """Returns the object, made once in every worker process: matchers are made at its first use and stay."""
    return ray.get(reference)


def _count(batch: Any, counter: Any, of_files: bool) -> Any:
    local: Counted[Run] = _get(counter)
    return local.of_parts(batch) if of_files else local.of_batches([batch])


def _reward(batch: Any, reward: Any, image_id: str, response: str) -> Any:
    return with_rewards(_get(reward), batch, image_id, response)


def _ray_errors() -> AbstractContextManager[None]:
    return engine_errors("Ray", (ray.exceptions.RayError,))
