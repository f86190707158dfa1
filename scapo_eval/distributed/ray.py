"""Computation of scores and rewards on Ray Data, on any number of machines and with Ray's retries and progress bars
(extra ``ray``).

The work is divided into Ray tasks, not actors. Nodes may therefore join and leave, and a task runs again if its worker
is killed. The vocabulary and the ground truth are stored once in Ray's object store, and each worker process creates
its matcher once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from ..base.errors import MissingExtra, ScapoError
from ..benchmarks.scoring import check_workers
from ..results.results import Run
from ..results.workers import Work, resampled_by, work
from ..rewarding.reward import SubsentenceReward

try:
    import ray
    import ray.data
    import ray.exceptions
except ImportError:
    raise MissingExtra("ray", "the engine ray (scapo_eval.distributed.ray)") from None

from .batch import TASKS_PER_CPU, Counted, Result, engine_errors, pa, summed
from .engine import CountingEngine
from .rewards import check_reward_columns, with_rewards


class RayEngine(CountingEngine["ray.data.Dataset"]):
    """Engine for Ray Data. The public functions of this module are its methods."""

    kind = ray.data.Dataset

    def columns(self, data: ray.data.Dataset) -> list[str]:
        """Implements ``columns`` of :class:`CountingEngine`."""
        with _ray_errors():  # this may compute a first block
            return list(data.columns() or [])

    def select(self, data: ray.data.Dataset, names: Sequence[str]) -> ray.data.Dataset:
        """Implements ``select`` of :class:`CountingEngine`."""
        return data.select_columns(list(names))

    def spread(self, parts: Any) -> ray.data.Dataset:
        """Implements ``spread`` of :class:`CountingEngine`."""
        if not ray.is_initialized():
            _connect(None)
        with _ray_errors():
            most = TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))
            return ray.data.from_items(parts.to_pylist(), override_num_blocks=max(1, min(parts.num_rows, most)))

    def counts(self, data: ray.data.Dataset, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Implements ``counts`` of :class:`CountingEngine`. Tables are summed as they arrive."""
        tables = data.map_batches(
            _count,
            fn_kwargs={"counter": ray.put(counter), "of_files": of_files},
            batch_format="pyarrow",
            batch_size=None,
            concurrency=workers,
        )
        with _ray_errors():
            return summed([counter.schema.empty_table()], tables.iter_batches(batch_format="pyarrow", batch_size=None))

    def resampled(self, parts: list[Work]) -> Iterable[NDArray[Any]]:
        """Implements ``resampled`` of :class:`CountingEngine`."""
        task = ray.remote(work)
        with _ray_errors():
            return ray.get([task.remote(part) for part in parts])  # type: ignore[no-any-return]


_engine = RayEngine()
score, chair, answers, amber = _engine.score, _engine.chair, _engine.answers, _engine.amber
compare = _engine.compare


@contextmanager
def connected(address: str | None = None, *, quiet: bool = False) -> Iterator[None]:
    """Connects to a Ray cluster, or starts a cluster on this machine, for the duration of the ``with`` block.
    The workers of the cluster also compute the sums of resamples.

    Args:
        address: Address of the cluster (``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``). If ``address`` is None, the
            first available of the following is used: the address in ``RAY_ADDRESS``, a running cluster on this machine,
            or a new cluster.
        quiet: True to disable progress bars. The logs of Ray and its workers are always written to Ray's log files, and
            never to the terminal.

    Raises:
        ScapoError: If no cluster can be reached.
    """
    with _silenced(quiet):
        _connect(address)
        try:
            with resampled_by(_engine.resampled):
                yield
        finally:
            ray.shutdown()


@contextmanager
def _silenced(quiet: bool) -> Iterator[None]:
    """Silences the log of Ray Data and, if requested, its progress bars, for the duration of the ``with`` block."""
    log, settings = logging.getLogger("ray.data"), ray.data.DataContext.get_current()
    level, bars = log.level, settings.enable_progress_bars
    log.setLevel(logging.ERROR)
    if quiet:
        settings.enable_progress_bars = False
    try:
        yield
    finally:
        log.setLevel(level)
        if quiet:
            settings.enable_progress_bars = bars


def reward(
    responses: ray.data.Dataset,
    reward: SubsentenceReward,
    *,
    image_id: str = "image_id",
    response: str = "response",
    workers: int | None = None,
) -> ray.data.Dataset:
    """Adds columns with SCAPO's reward to a dataset of responses. The rewards are computed when the dataset is
    consumed.

    Args:
        responses: A Ray Dataset with one response per row.
        reward: Reward to compute. Custom subclasses, and functions in the reward settings, are sent to the workers with
            cloudpickle.
        image_id: Name of the column with the image ids.
        response: Name of the column with the responses.
        workers: Number of parallel tasks. The default is the number of processors in the cluster.

    Returns:
        A dataset with the same rows and the additional columns of
        :func:`~scapo_eval.distributed.rewards.reward_fields`.

    Raises:
        InputError: If ``responses`` is not a Ray Dataset, a required column is missing, or the dataset already contains
            a column that would be added. Unless the reward was created with ``on_error="zero"``, invalid rows cause an
            exception of Ray while the dataset is consumed; its message contains the InputError.
    """
    check_workers(workers)
    check_reward_columns(_engine.checked_columns(responses), image_id, response)
    return responses.map_batches(
        _reward,
        fn_kwargs={"reward": ray.put(reward), "image_id": image_id, "response": response},
        batch_format="pyarrow",
        batch_size=None,
        concurrency=workers,
    )


def _connect(address: str | None) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # warnings about future changes of Ray
            dashboard = False if not address else None
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, include_dashboard=dashboard)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ScapoError(f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}") from None


@lru_cache(maxsize=4)
def _get(reference: Any) -> Any:
    """Returns the object that a Ray reference points to. Each worker process caches the object, so that the object's
    matcher is created only once per process.
    """
    return ray.get(reference)


def _count(batch: Any, counter: Any, of_files: bool) -> Any:
    local: Counted[Run] = _get(counter)
    return local.of_parts(batch) if of_files else local.of_batches([batch])


def _reward(batch: Any, reward: Any, image_id: str, response: str) -> Any:
    return with_rewards(_get(reward), batch, image_id, response)


def _ray_errors() -> AbstractContextManager[None]:
    return engine_errors("Ray", (ray.exceptions.RayError, pa.ArrowException))  # blocks whose types cannot be merged
