"""Captions and responses on Ray Data: any number of machines, Ray's retries, Ray's progress (extra ``ray``).

Work is in tasks, not in actors: nodes may come and go, and a task whose worker was killed runs again. Vocabulary and
truth are put into the object store once, and each worker process makes its matcher once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..api import TruthGiven
from ..errors import MissingExtra, ScapoError, check_choice
from ..io.records import Given
from ..metrics.amber import AmberData, Similarity
from ..metrics.capscore import CaptionScores
from ..results import Resampling, Run
from ..reward import SubsentenceReward
from ..stats import DEFAULT_RESAMPLES, DEFAULT_SEED

try:
    import ray
    import ray.data
    import ray.exceptions
except ImportError:
    raise MissingExtra("ray", "scapo_eval.distributed.ray") from None

from .amber import AmberCounter, AmberReading
from .answers import AnswerCounter, AnswerReading
from .batch import TASKS_PER_CPU, Counted, Counter, OnBadFile, Reading, Result, check_columns, engine_errors, summed
from .files import files_of, name_of, parts_of
from .rewards import check_reward_columns, with_rewards

if TYPE_CHECKING:
    from typing_extensions import Unpack

Recorded = Union["ray.data.Dataset", str, "os.PathLike[str]", Sequence["str | os.PathLike[str]"]]
"""A Ray Dataset, or files: a path, a pattern, a URI, or several."""


def score(
    captions: Recorded,
    *,
    truth: TruthGiven,
    name: str | None = None,
    workers: int | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[Reading],
) -> CaptionScores:
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions, counted on a Ray cluster.

    The counts are those of :func:`scapo_eval.score` over the same captions, whatever the blocks, workers and retries.

    Args:
        captions: a Ray Dataset with the columns ``image_id`` and ``caption`` (``id`` and ``model`` are read, too); or
            files of any layout that :func:`scapo_eval.score` reads: a path, a pattern (``captions/*.parquet``), a URI
            (``s3://bucket/captions/*.jsonl``), or several. Workers open the files, so every node must see them.
        truth: what is in the images.
        name: of the system; by default the file's, the pattern's folder, or ``captions``.
        workers: tasks at a time; None: as many as the cluster has processors for.
        on_bad_file: a file that cannot be read is an error that names it, or is left out, counted and named.
        resamples, seed: of the intervals.
        reading: ``vocabulary``, ``dopa``, ``dopa_vocabulary``, ``claims``, ``skip_bad``, ``on_unknown_image``,
            ``any_fingerprint``, ``drop_unfinished``, as for :func:`scapo_eval.score`.

    Raises:
        InputErrors, InputError: faults by file and line.
        ScapoError: Ray gave up (workers killed again and again, the cluster lost).
    """
    counter = Counter.of(_source(captions), truth, **reading)
    return _run(captions, counter, name, workers, on_bad_file, Resampling(resamples, seed))


def answers(
    answers: Recorded,
    *,
    benchmark: str,
    questions: Given | Sequence[str | os.PathLike[str]],
    name: str | None = None,
    workers: int | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[AnswerReading],
) -> Run:
    """POPE, PhD or any yes/no questions, on a Ray cluster.

    The run is that of :func:`scapo_eval.pope`, ``phd`` or ``yesno`` over the same answers. A question that is answered
    in two files, or twice in a data set, is refused: nobody can tell which answer is the first.

    Args:
        answers: a Ray Dataset with the columns ``id`` and ``response`` (and others of own answers, docs/data.md); or
            files of any layout that those functions read, as for :func:`score`. A file is read by one worker.
        benchmark: whose questions they answer: ``pope``, ``phd`` or ``yesno``.
        questions: question files, or records, as for :func:`scapo_eval.pope`.
        name, workers, on_bad_file, resamples, seed: as for :func:`score`.
        reading: ``parser``, ``yes``, ``no``, ``unparsed``, ``model``, as for :func:`scapo_eval.pope`.

    Raises:
        InputErrors, InputError: faults by file and line.
        ScapoError: Ray gave up.
    """
    counter = AnswerCounter.of(_source(answers), benchmark, questions, **reading)
    return _run(answers, counter, name, workers, on_bad_file, Resampling(resamples, seed))


def amber(
    responses: Recorded,
    *,
    data: AmberData | str | Path,
    similarity: Similarity | str = "none",
    name: str | None = None,
    workers: int | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[AmberReading],
) -> Run:
    """AMBER's metrics, on a Ray cluster; the run is that of :func:`scapo_eval.amber`.

    Args:
        responses: a Dataset with the columns ``id`` and ``response``; or files, as for :func:`answers`.
        data: the checkout of AMBER's repository, or its ``data`` folder, where this runs.
        name, workers, on_bad_file, resamples, seed: as for :func:`score`.
        similarity, reading: ``mode``, ``parser``, ``skip_bad``, ``drop_unfinished``, as for :func:`scapo_eval.amber`.

    Raises:
        InputErrors, InputError: faults by file and line; an item that is answered twice (as for :func:`answers`).
        ScapoError: Ray gave up.
    """
    counter = AmberCounter.of(_source(responses), data, similarity, **reading)
    return _run(responses, counter, name, workers, on_bad_file, Resampling(resamples, seed))


def _source(records: Recorded) -> str:
    return "<Dataset>" if isinstance(records, ray.data.Dataset) else name_of(records)


def _run(
    records: Recorded,
    counter: Counted[Result],
    name: str | None,
    workers: int | None,
    on_bad_file: OnBadFile,
    resampling: Resampling,
) -> Result:
    check_choice("on_bad_file", on_bad_file, ("fail", "skip"))
    of_files = not isinstance(records, ray.data.Dataset)
    if isinstance(records, ray.data.Dataset):
        names = _columns(records)
        check_columns(names, counter.needed)
        data = records.select_columns([name for name in names if name in counter.read])
    else:
        parts = parts_of(files_of(records), row_groups=counter.row_groups).to_pylist()
        most = TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))
        data = ray.data.from_items(parts, override_num_blocks=max(1, min(len(parts), most)))
    tables = data.map_batches(
        _count,
        fn_kwargs={"counter": ray.put(counter), "of_files": of_files},
        batch_format="pyarrow",
        batch_size=None,
        concurrency=workers,
    )
    name = name or (counter.source if of_files else counter.records)
    return counter.run(_summed(tables, counter), name, on_bad_file=on_bad_file, resampling=resampling)


@contextmanager
def connected(address: str | None = None, *, quiet: bool = False) -> Iterator[None]:
    """A connection to a cluster, or a cluster of this machine, which ends with it.

    Args:
        address: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``; None: ``RAY_ADDRESS``, a cluster that runs on this
            machine, or a new one.
        quiet: no progress and no log of Ray.

    Raises:
        ScapoError: no cluster is reached.
    """
    level = logging.ERROR if quiet else logging.WARNING
    if quiet:
        logging.getLogger("ray.data").setLevel(level)
        ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        ray.init(
            address, logging_level=level, log_to_driver=not quiet, include_dashboard=False if not address else None
        )
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
        InputError: a column is not found, or one of the new ones is there already; when consumed, faulty rows (unless
            the reward is made with ``on_error="zero"``).
    """
    check_reward_columns(_columns(responses), image_id, response)
    return responses.map_batches(
        _reward,
        fn_kwargs={"reward": ray.put(reward), "image_id": image_id, "response": response},
        batch_format="pyarrow",
        batch_size=None,
        concurrency=workers,
    )


@lru_cache(maxsize=4)
def _get(reference: Any) -> Any:
    """The object, made once in every worker process: matchers are made at its first use and stay."""
    return ray.get(reference)


def _count(batch: Any, counter: Any, of_files: bool) -> Any:
    own: Counted[Run] = _get(counter)
    return own.of_parts(batch) if of_files else own.of_batches([batch])


def _reward(batch: Any, reward: Any, image_id: str, response: str) -> Any:
    return with_rewards(_get(reward), batch, image_id, response)


def _summed(tables: ray.data.Dataset, counter: Counted[Run]) -> Any:
    """All tables of counts, summed while they arrive."""
    with _ray_errors():
        return summed([counter.schema.empty_table()], tables.iter_batches(batch_format="pyarrow", batch_size=None))


def _columns(data: ray.data.Dataset) -> list[str]:
    with _ray_errors():  # it may take a first block
        return list(data.columns() or [])


def _ray_errors() -> AbstractContextManager[None]:
    return engine_errors("Ray", (ray.exceptions.RayError,))
