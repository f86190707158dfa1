"""Scores and rewards on a real local Spark, whose Python workers are killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: bash .ci/engines spark")

from pyspark.sql import SparkSession

import scapo_eval
from scapo_eval import InputError, InputErrors, ScapoError, SubsentenceReward
from scapo_eval.distributed import spark as on_spark
from scapo_eval.results import workers
from scapo_eval.results.results import Resampling

from .conftest import killer, said


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """Yields a session with two workers, which retries failed tasks like a cluster."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2,4]").appName("scapo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture
def reading(truth: Any, vocabulary: Any) -> dict[str, Any]:
    return {"truth": truth, "vocabulary": vocabulary, "resamples": 50}


@pytest.mark.parametrize("partitions", [1, 7])
def test_a_frame_of_any_partitions(
    session: SparkSession, records: Any, one: Any, reading: Any, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = session.createDataFrame(records).repartition(partitions)
    assert said(on_spark.score(frame, **reading)) == said(one)
    monkeypatch.setattr(workers, "PART", 20)  # images
    drawn = on_spark.score(frame, interval="percentile", **reading)
    expected = one.redrawn(Resampling(50, bootstrap="poisson", interval="percentile"))
    assert drawn.__dict__["metrics"] == expected.metrics  # already drawn, by the executors
    if partitions == 7:
        other = on_spark.score(frame, workers=2, bootstrap="multinomial", **reading)
        assert said(other) == said(scapo_eval.score(records, bootstrap="multinomial", **reading))
        assert said(on_spark.chair(frame, **reading)) == said(scapo_eval.chair(records, bootstrap="poisson", **reading))
        with pytest.raises(InputError, match=r"<DataFrame>: 2,000 ids appear twice"):
            on_spark.score(frame.union(frame), **reading)
        with pytest.raises(ScapoError, match="Spark failed: ZeroDivisionError"):
            on_spark.score(frame.mapInArrow(lambda batches: 1 // 0, frame.schema), **reading)
        with pytest.raises(ScapoError, match=r"Spark failed: .*no captions"):  # in Java
            on_spark.score(frame.selectExpr("image_id", "raise_error('no captions') caption"), **reading)


def test_the_executors_compare(session: SparkSession, systems: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {interval: scapo_eval.compare(systems, interval=interval) for interval in ("wilson", "percentile")}
    monkeypatch.setattr(workers, "PART", 2048)  # images
    for interval, results in expected.items():
        assert on_spark.compare(systems, interval=interval).to_dict() == results.to_dict()


def test_files_and_a_corrupt_one_among_them(
    session: SparkSession, folder: Path, one: Any, reading: Any, tmp_path: Path
) -> None:
    for file in (folder / "parts").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert said(on_spark.score(tmp_path / "*", **reading)) == said(one)
    (tmp_path / "4.parquet").write_bytes(b"PAR1" + bytes(99))
    with pytest.raises(InputErrors, match=r"4\.parquet: damaged parquet file"):
        on_spark.score(tmp_path / "*", **reading)
    left = on_spark.score(tmp_path / "*", on_bad_file="skip", **reading)
    assert (left.n_records, left.other_counts["bad_files"]) == (1800, 1)


def test_a_worker_that_is_killed(session: SparkSession, records: Any, one: Any, reading: Any, tmp_path: Path) -> None:
    kill_once = killer(tmp_path / "killed")
    frame = session.createDataFrame(records).repartition(8)
    deadly = frame.mapInArrow(lambda batches: map(kill_once, batches), frame.schema)
    assert said(on_spark.score(deadly, **reading)) == said(one)
    assert (tmp_path / "killed").exists()


def test_rewards(session: SparkSession, records: Any, truth: Any, vocabulary: Any) -> None:
    reward = SubsentenceReward(vocabulary, truth)
    frame = session.createDataFrame(records).withColumnRenamed("caption", "response").repartition(3)
    rows = on_spark.reward(frame, reward).toArrow().to_pylist()
    found = {row["id"]: row for row in rows}
    expected = reward([r["image_id"] for r in records], [r["caption"] for r in records])
    assert [found[r["id"]]["reward"] for r in records] == [each.total for each in expected]
    assert found[3]["parts"] == [part._asdict() for part in expected[3].parts]


def test_rewards_keep_the_types_of_other_columns(session: SparkSession, truth: Any, vocabulary: Any) -> None:
    columns = "0 image_id", "'A dog.' response", "timestamp_ntz'2026-11-29 00:00' at", "interval 1 day passed"
    frame = session.range(1).selectExpr(*columns, "named_struct('x', map('y', 1)) more")
    rewarded = on_spark.reward(frame, SubsentenceReward(vocabulary, truth))
    assert rewarded.schema.fields[: len(frame.columns)] == frame.schema.fields
    [row] = rewarded.collect()
    assert (row["reward"], row["at"]) == (1.0, datetime(2026, 11, 29))


def test_answers(
    session: SparkSession, replies: Any, questions: Any, answered: Any, replies_folder: Path, tmp_path: Path
) -> None:
    asked = {"benchmark": "yesno", "questions": questions, "resamples": 50}
    frame = session.createDataFrame(replies).repartition(7)
    assert said(on_spark.answers(frame, **asked)) == said(answered)
    kill_once = killer(tmp_path / "killed")
    deadly = frame.mapInArrow(lambda batches: map(kill_once, batches), frame.schema)
    assert said(on_spark.answers(deadly, **asked)) == said(answered)
    assert (tmp_path / "killed").exists()
    with pytest.raises(InputError, match="2,000 questions are answered twice"):
        on_spark.answers(frame.union(frame), **asked)
    files = replies_folder / "parts" / "05*"  # of a thousand
    with pytest.raises(InputErrors, match=r"0500\.jsonl: damaged or truncated"):
        on_spark.answers(files, **asked)
    left = on_spark.answers(files, on_bad_file="skip", **asked)
    assert (left.n_records, left.other_counts["bad_files"]) == (198, 1)
