"""Captions and responses on Spark: ``DataFrame.mapInArrow`` and ``groupBy().sum()`` (extra ``spark``).

Vocabulary and truth are broadcast once, and each Python worker makes its matcher once. A task that fails or whose
worker is killed runs again, as ``spark.task.maxFailures`` says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from ..api import TruthGiven
from ..errors import MissingExtra, check_choice
from ..io.records import Given
from ..metrics.amber import AmberData, Similarity
from ..metrics.capscore import CaptionScores
from ..results import Resampling, Run
from ..reward import SubsentenceReward
from ..stats import DEFAULT_RESAMPLES, DEFAULT_SEED

try:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
except ImportError:
    raise MissingExtra("spark", "scapo_eval.distributed.spark") from None

from .amber import AmberCounter, AmberReading
from .answers import AnswerCounter, AnswerReading
from .batch import (
    KEY,
    KIND,
    TASKS_PER_CPU,
    Counted,
    Counter,
    OnBadFile,
    Reading,
    Result,
    check_columns,
    engine_errors,
    pa,
)
from .files import files_of, name_of, parts_of
from .rewards import check_reward_columns, reward_fields, with_rewards

if TYPE_CHECKING:
    from typing_extensions import Unpack


Recorded = Union["DataFrame", str, "os.PathLike[str]", Sequence["str | os.PathLike[str]"]]
"""A DataFrame, or files: a path, a pattern, a URI, or several."""


def score(
    captions: Recorded,
    *,
    truth: TruthGiven,
    name: str | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[Reading],
) -> CaptionScores:
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions, counted on Spark.

    The counts are those of :func:`scapo_eval.score` over the same captions, whatever the partitions and retries.

    Args:
        captions: a DataFrame with the columns ``image_id`` and ``caption`` (``id`` and ``model`` are read, too); or
            files, as for :func:`scapo_eval.distributed.ray.score`, which the active session's executors open.
        truth: what is in the images.
        name: of the system; by default the file's, the pattern's folder, or ``captions``.
        on_bad_file: a file that cannot be read is an error that names it, or is left out, counted and named.
        resamples, seed: of the intervals.
        reading: ``vocabulary``, ``dopa``, ``dopa_vocabulary``, ``claims``, ``skip_bad``, ``on_unknown_image``,
            ``any_fingerprint``, ``drop_unfinished``, as for :func:`scapo_eval.score`.

    Raises:
        InputErrors, InputError: faults by file and line.
        ScapoError: Spark gave up.
    """
    return _run(
        captions, Counter.of(_source(captions), truth, **reading), name, on_bad_file, Resampling(resamples, seed)
    )


def answers(
    answers: Recorded,
    *,
    benchmark: str,
    questions: Given | Sequence[str | os.PathLike[str]],
    name: str | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[AnswerReading],
) -> Run:
    """POPE, PhD or any yes/no questions, on Spark; see :func:`scapo_eval.distributed.ray.answers`.

    Args:
        answers: a DataFrame with the columns ``id`` and ``response``; or files.
        benchmark, questions, reading: as there.
        name, on_bad_file, resamples, seed: as for :func:`score`.

    Raises:
        InputErrors, InputError: faults by file and line.
        ScapoError: Spark gave up.
    """
    counter = AnswerCounter.of(_source(answers), benchmark, questions, **reading)
    return _run(answers, counter, name, on_bad_file, Resampling(resamples, seed))


def amber(
    responses: Recorded,
    *,
    data: AmberData | str | Path,
    similarity: Similarity | str = "none",
    name: str | None = None,
    on_bad_file: OnBadFile = "fail",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    **reading: Unpack[AmberReading],
) -> Run:
    """AMBER's metrics, on Spark; the run is that of :func:`scapo_eval.amber`.

    Args:
        responses: a DataFrame with the columns ``id`` and ``response``; or files, as for :func:`answers`.
        data: the checkout of AMBER's repository, or its ``data`` folder, where this runs.
        name, on_bad_file, resamples, seed: as for :func:`score`.
        similarity, reading: ``mode``, ``parser``, ``skip_bad``, ``drop_unfinished``, as for :func:`scapo_eval.amber`.

    Raises:
        InputErrors, InputError: faults by file and line; an item that is answered twice (as for :func:`answers`).
        ScapoError: Spark gave up.
    """
    counter = AmberCounter.of(_source(responses), data, similarity, **reading)
    return _run(responses, counter, name, on_bad_file, Resampling(resamples, seed))


def _source(records: Recorded) -> str:
    return "<DataFrame>" if isinstance(records, DataFrame) else name_of(records)


def _run(
    records: Recorded, counter: Counted[Result], name: str | None, on_bad_file: OnBadFile, resampling: Resampling
) -> Result:
    check_choice("on_bad_file", on_bad_file, ("fail", "skip"))
    of_files = not isinstance(records, DataFrame)
    if isinstance(records, DataFrame):
        check_columns(records.columns, counter.needed)
        data = records.select(*(each for each in records.columns if each in counter.read))
    else:
        parts = parts_of(files_of(records), row_groups=counter.row_groups)
        session = SparkSession.builder.getOrCreate()
        most = TASKS_PER_CPU * session.sparkContext.defaultParallelism
        data = session.createDataFrame(parts).repartition(max(1, min(parts.num_rows, most)))
    shared = data.sparkSession.sparkContext.broadcast(counter)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        own = shared.value
        table = own.of_parts(_table(batches)) if of_files else own.of_batches(batches)
        yield from table.to_batches()

    sums = [sql.sum(column).alias(column) for column in counter.schema.names[2:]]
    counts = data.mapInArrow(count, from_arrow_schema(counter.schema)).groupBy(KIND, KEY).agg(*sums)
    try:
        with engine_errors("Spark", (PySparkException,)):
            found = counts.toArrow()
    finally:
        shared.destroy()
    name = name or (counter.source if of_files else counter.records)
    return counter.run(found.cast(counter.schema), name, on_bad_file=on_bad_file, resampling=resampling)


def reward(
    responses: DataFrame, reward: SubsentenceReward, *, image_id: str = "image_id", response: str = "response"
) -> DataFrame:
    """Responses with SCAPO's reward, computed when the frame is consumed.

    Args:
        responses: a DataFrame.
        reward: of the responses; a subclass or a function in its settings travels by cloudpickle.
        image_id, response: names of the columns.

    Returns:
        The same rows with the columns of :func:`~scapo_eval.distributed.rewards.reward_fields`.

    Raises:
        InputError: a column is not found, or one of the new ones is there already; when consumed, faulty rows (unless
            the reward is made with ``on_error="zero"``).
    """
    check_reward_columns(responses.columns, image_id, response)
    shared = responses.sparkSession.sparkContext.broadcast(reward)
    schema = pa.schema([*to_arrow_schema(responses.schema), *reward_fields()])

    def rewarded(batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield from with_rewards(shared.value, batch, image_id, response).to_batches()

    return responses.mapInArrow(rewarded, from_arrow_schema(schema))


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    listed = list(batches)
    return pa.Table.from_batches(listed) if listed else pa.table({"path": [], "row_group": []})
