"""Computation of scores and rewards on Spark, with ``DataFrame.mapInArrow`` and ``groupBy().sum()`` (extra ``spark``).

The vocabulary and the ground truth are broadcast once, and each Python worker creates its matcher once. If a task fails
or its worker is killed, the task runs again, up to ``spark.task.maxFailures`` times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from ..base.errors import MissingExtra
from ..results.workers import Work, work
from ..rewarding.reward import SubsentenceReward

try:
    from py4j.protocol import Py4JError  # type: ignore[import-not-found,unused-ignore]
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType
except ImportError:
    raise MissingExtra("spark", "the engine spark (scapo_eval.distributed.spark)") from None

from .batch import KEY, KIND, TASKS_PER_CPU, Counted, Result, engine_errors, pa
from .engine import CountingEngine
from .rewards import check_reward_columns, reward_fields, with_rewards


class SparkEngine(CountingEngine["DataFrame"]):
    """Engine for Spark. The public functions of this module are its methods. Files are opened by the executors of the
    active Spark session.
    """

    kind = DataFrame

    def columns(self, data: DataFrame) -> list[str]:
        """Implements ``columns`` of :class:`CountingEngine`."""
        return list(data.columns)

    def select(self, data: DataFrame, names: Sequence[str]) -> DataFrame:
        """Implements ``select`` of :class:`CountingEngine`."""
        return data.select(*names)

    def spread(self, parts: Any) -> DataFrame:
        """Implements ``spread`` of :class:`CountingEngine`."""
        session = SparkSession.builder.getOrCreate()
        most = TASKS_PER_CPU * session.sparkContext.defaultParallelism
        return session.createDataFrame(parts).repartition(max(1, min(parts.num_rows, most)))

    def counts(self, data: DataFrame, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Implements ``counts`` of :class:`CountingEngine`. The data set has at most one partition per worker."""
        shared = data.sparkSession.sparkContext.broadcast(counter)

        def count(batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            local = shared.value
            table = local.of_parts(_table(batches)) if of_files else local.of_batches(batches)
            yield from table.to_batches()

        data = data.coalesce(workers) if workers else data
        sums = [sql.sum(column).alias(column) for column in counter.schema.names[2:]]
        counts = data.mapInArrow(count, from_arrow_schema(counter.schema)).groupBy(KIND, KEY).agg(*sums)
        try:
            with engine_errors("Spark", (PySparkException, Py4JError)):
                return counts.toArrow().cast(counter.schema)
        finally:
            shared.destroy()

    def resampled(self, parts: list[Work]) -> Iterable[NDArray[Any]]:
        """Implements ``resampled`` of :class:`CountingEngine`."""
        context = SparkSession.builder.getOrCreate().sparkContext
        with engine_errors("Spark", (PySparkException, Py4JError)):
            return list(context.parallelize(parts, len(parts)).map(work).collect())


_engine = SparkEngine()
score, chair, answers, amber = _engine.score, _engine.chair, _engine.answers, _engine.amber
compare = _engine.compare


def reward(
    responses: DataFrame, reward: SubsentenceReward, *, image_id: str = "image_id", response: str = "response"
) -> DataFrame:
    """Adds columns with SCAPO's reward to a DataFrame of responses. The rewards are computed when the DataFrame is
    consumed.

    Args:
        responses: A DataFrame with one response per row.
        reward: Reward to compute. Custom subclasses, and functions in the settings of the reward, are sent to the
            workers with cloudpickle.
        image_id: Name of the column with the image ids.
        response: Name of the column with the responses.

    Returns:
        A DataFrame with the same rows and the additional columns of
        :func:`~scapo_eval.distributed.rewards.reward_fields`.

    Raises:
        InputError: If ``responses`` is not a DataFrame of Spark, a required column is missing, or the DataFrame already
            contains a column that would be added. Unless the reward was created with ``on_error="zero"``, invalid rows
            cause an exception of Spark while the DataFrame is consumed; its message contains the InputError.
    """
    check_reward_columns(_engine.checked_columns(responses), image_id, response)
    shared = responses.sparkSession.sparkContext.broadcast(reward)
    schema = StructType([*responses.schema.fields, *from_arrow_schema(pa.schema(reward_fields())).fields])

    def rewarded(batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield from with_rewards(shared.value, batch, image_id, response).to_batches()

    return responses.mapInArrow(rewarded, schema)


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    listed = list(batches)
    return pa.Table.from_batches(listed) if listed else pa.table({"path": [], "row_group": []})
