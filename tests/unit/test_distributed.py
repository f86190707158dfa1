"""Counts of any batches and parts add up to what one process counts; no engine is needed for that."""

from __future__ import annotations

import gzip
import json
import logging
import pickle
import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scapo_eval
from scapo_eval import (
    InputError,
    InputErrors,
    MissingExtra,
    PresenceOracle,
    RewardConfig,
    SubsentenceReward,
    Vocabulary,
)
from scapo_eval.base.errors import ScapoError
from scapo_eval.base.odd_texts import OddTexts
from scapo_eval.distributed import batch
from scapo_eval.distributed.batch import Counter, check_columns, engine_errors, merged
from scapo_eval.distributed.engine import CountingEngine
from scapo_eval.distributed.files import files_of, name_of, parts_of
from scapo_eval.distributed.rewards import check_reward_columns, reward_fields, with_rewards
from scapo_eval.results.results import Resampling
from scapo_eval.results.workers import work

LABELS = ("dog", "cat", "car", "bus")
VOCABULARY = Vocabulary.from_mapping({label: [label] for label in LABELS}, name="four")
TRUTH = PresenceOracle.from_objects({k: [LABELS[k % 4], "tree"] for k in range(20)}, labels=[*LABELS, "tree"])
OPEN_TRUTH = PresenceOracle.from_objects({f"île {k}": ["dog"] for k in range(20)})  # its notes tell what is mentioned
DAGGER = PresenceOracle.from_objects({k: ["dog"] for k in range(20)}, labels=LABELS)


def records(seed: int, n: int = 300) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "id": k,
            "image_id": rng.randrange(20),
            "caption": ". ".join(f"A {rng.choice(LABELS)} is here" for _ in range(rng.randrange(4))),
            "model": "m",
        }
        for k in range(n)
    ]


OF_ONE_PROCESS = ("bytes", "crc32", "lines", "agreement")
"""Of an account: a cluster tells neither bytes nor lines, and agreement from sums."""


def said(run: Any) -> dict[str, Any]:
    account = run.account and {k: v for k, v in run.account.to_dict().items() if k not in OF_ONE_PROCESS}
    told = [note for note in run.account.notes if "belong" in note] if run.account else []
    notes = [note for note in run.notes if note not in told]
    return {**run.to_dict(), "name": "", "account": account, "notes": notes, "evidence": run.evidence()}


def scattered(table: pa.Table, seed: int) -> list[pa.Table]:
    """Pieces of any size in any order."""
    rng = random.Random(seed)
    cuts = sorted({0, table.num_rows, *(rng.randrange(table.num_rows) for _ in range(rng.randrange(9)))})
    pieces = [table.slice(a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    rng.shuffle(pieces)
    return pieces


READINGS: list[dict[str, Any]] = [
    {"truth": TRUTH},
    {"truth": TRUTH, "drop_unfinished": True, "claims": "asserted"},
    {"truth": TRUTH, "dopa": DAGGER, "dopa_vocabulary": VOCABULARY},
    {"truth": DAGGER, "on_unknown_image": "skip"},
]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_batches_add_up_to_one_process(reading: dict[str, Any], seed: int) -> None:
    rows = records(seed)
    if "on_unknown_image" in reading:
        rows[5]["image_id"] = 99
    one = scapo_eval.score(rows, vocabulary=VOCABULARY, resamples=20, **reading)
    counter = Counter.of("<x>", vocabulary=VOCABULARY, **reading)
    worker: Counter = pickle.loads(pickle.dumps(counter))
    tables = [worker.of_batches([piece]) for piece in scattered(pa.Table.from_pylist(rows), seed)]
    if seed == 2:  # summed on the way, and a worker that got nothing
        tables = [merged(tables[:2]), worker.of_batches([]), merged(tables[2:] or [counter.schema.empty_table()])]
    assert said(counter.run(merged(tables), "x", resampling=one.resampling)) == said(one)


@pytest.mark.parametrize("profile", ["native", "reference"])
def test_chair_adds_up_to_one_process(profile: str, tmp_path: Path) -> None:
    reading: dict[str, Any] = {"vocabulary": VOCABULARY}
    if profile == "reference":
        (tmp_path / "synonyms.txt").write_text("\n".join(f"{label}, {label}let" for label in LABELS))
        reading = {"synonyms": tmp_path / "synonyms.txt"}
    rows = records(8)
    one = scapo_eval.chair(rows, truth=TRUTH, profile=profile, drop_unfinished=True, resamples=20, **reading)  # type: ignore[arg-type]
    counter = pickle.loads(pickle.dumps(Counter.of_chair("<x>", TRUTH, profile, **reading, drop_unfinished=True)))
    tables = [counter.of_batches([piece]) for piece in scattered(pa.Table.from_pylist(rows), 8)]
    assert said(counter.run(merged(tables), "x", resampling=one.resampling)) == said(one)
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"\x1f\x8b" + bytes(9))
    tables.append(counter.of_parts(parts_of([str(bad)])))
    left = counter.run(merged(tables), "x", on_bad_file="skip", resampling=one.resampling)
    assert (left.values, left.signature.fields["bad_files"]) == (one.values, "1")
    assert "bad.jsonl" in left.notes[0]


def test_notes_of_an_open_truth_are_those_of_one_process() -> None:
    rows = [{**row, "image_id": f"île {row['image_id']}"} for row in records(3)]
    one = scapo_eval.score(rows, vocabulary=VOCABULARY, truth=OPEN_TRUTH, resamples=0)
    assert any("claimed but never in it: 'cat'" in note for note in one.notes)
    counter = Counter.of("<x>", OPEN_TRUTH, vocabulary=VOCABULARY)
    tables = [counter.of_batches([piece]) for piece in scattered(pa.Table.from_pylist(rows), 3)]
    assert said(counter.run(merged(tables), "x", resampling=one.resampling)) == said(one)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Captions in files of four kinds; 300 of them."""
    rows = records(4)
    (tmp_path / "c").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:120]), tmp_path / "c" / "a.parquet", row_group_size=50)
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "c" / "b.jsonl").write_text("\n".join(lines[120:200]))
    (tmp_path / "c" / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[200:260]).encode()))
    table = ["id,image_id,caption,model", *(f"{r['id']},{r['image_id']},{r['caption']},m" for r in rows[260:])]
    (tmp_path / "c" / "d.csv").write_text("\n".join(table))
    return tmp_path / "c"


def of_files(given: Any, **reading: Any) -> Any:
    on_bad_file = reading.pop("on_bad_file", "fail")
    parts = parts_of(files_of(given))
    counter = Counter.of("c", reading.pop("truth", TRUTH), vocabulary=VOCABULARY, **reading)
    tables = [counter.of_parts(parts.slice(k, 1)) for k in range(parts.num_rows + 1)]  # the last has none
    return counter.run(merged(tables), "c", on_bad_file=on_bad_file)


def test_files_of_any_layout_and_their_row_groups(folder: Path) -> None:
    one = scapo_eval.score(records(4), truth=TRUTH, vocabulary=VOCABULARY)
    assert said(of_files(folder / "*")) == said(one)
    assert parts_of(files_of(folder / "*")).column("row_group").to_pylist() == [0, 1, 2, -1, -1, -1]
    assert said(of_files(f"file://{folder}/[a-d].*")) == said(one)
    assert said(of_files([folder / "a.parquet", folder / "[!a]*"])) == said(one)
    assert (name_of(folder / "*.parquet"), name_of("*.jsonl"), name_of(["x/run.jsonl"])) == ("c", "captions", "run")


def test_many_parts_of_one_task_are_summed_on_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter.of("c", TRUTH, vocabulary=VOCABULARY)
    parts = parts_of(files_of(folder / "*"))
    at_once = counter.of_parts(parts)
    sums: list[int] = []
    monkeypatch.setattr(batch, "MERGE_ROWS", 60)
    monkeypatch.setattr(batch, "merged", lambda tables: sums.append(len(tables)) or merged(tables))
    found = counter.of_parts(parts)
    assert len(sums) > 2
    assert said(counter.run(found, "x")) == said(counter.run(at_once, "x"))


def test_files_that_are_not_there(folder: Path) -> None:
    with pytest.raises(InputError, match="no file matches"):
        files_of(folder / "*.tsv")
    with pytest.raises(InputError, match=r"a\.parquet: the file is given twice"):
        files_of([folder / "*", folder / "a.parquet"])
    with pytest.raises(InputErrors, match=r"gone\.jsonl: file not found"):
        of_files(folder / "gone.jsonl")


def test_files_without_records_are_shards_of_nothing(folder: Path) -> None:
    one = of_files(folder / "*")
    pq.write_table(pq.read_table(folder / "a.parquet")[:0], folder / "0.parquet")
    (folder / "1.jsonl").write_bytes(b"\n")
    (folder / "2.json").write_text("[]")
    (folder / "3.csv").write_text("id,image_id,caption,model\n")
    for on_bad_file in ("fail", "skip"):
        assert said(of_files(folder / "*", on_bad_file=on_bad_file)) == said(one)
        with pytest.raises(InputError, match=r"0\.parquet: the file contains no record"):
            of_files(folder / "[0-9]*", on_bad_file=on_bad_file)


def test_a_corrupt_file_is_named_or_left_out(folder: Path) -> None:
    data = (folder / "c.jsonl.gz").read_bytes()
    (folder / "c.jsonl.gz").write_bytes(data[: len(data) // 2])
    (folder / "a.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(InputErrors, match=r"a\.parquet: damaged parquet(.|\n)*c\.jsonl\.gz: damaged or truncated"):
        of_files(folder / "*")
    left = of_files(folder / "*", on_bad_file="skip")
    rows = records(4)
    assert (
        left.table.counts()
        == scapo_eval.score(rows[120:200] + rows[260:], truth=TRUTH, vocabulary=VOCABULARY).table.counts()
    )
    assert left.other_counts["bad_files"] == 2
    assert "|bad_files:2|" in str(left.signature)
    [note] = [note for note in left.notes if "2 files could not be read and are omitted" in note]
    assert "a.parquet" in note
    assert "c.jsonl.gz" in note


def test_faults_are_named_by_file_and_line(folder: Path) -> None:
    table = pa.table({"image_id": [1, 2, 3, 99], "caption": ["a dog", None, "a cat", "a cat"]})
    pq.write_table(table, folder / "a.parquet", row_group_size=1)
    with (folder / "b.jsonl").open("a") as stream:
        stream.write("\n{broken\n")
    with pytest.raises(InputErrors) as caught:
        of_files(folder / "*")
    assert [(Path(str(error.path)).name, error.line) for error in caught.value.errors] == [
        ("a.parquet", 2), ("a.parquet", 4), ("b.jsonl", 81)
    ]  # fmt: skip
    found = of_files(folder / "*", skip_bad=True, on_unknown_image="skip")
    assert found.other_counts == {"skipped": 2, "unknown_images": 1}


def test_rows_of_a_data_set_are_named_by_their_batch() -> None:
    counter = Counter.of("<Dataset>", TRUTH, vocabulary=VOCABULARY)
    table = counter.of_batches([pa.table({"image_id": [7, None], "caption": ["a dog", "a cat"]})])
    with pytest.raises(InputErrors, match=r"\(a batch that begins with image_id 7\):2: 'image_id' must be"):
        counter.run(table, "x")
    with pytest.raises(InputError, match=r"column 'caption' not found \(found: image_id, text\)"):
        check_columns(["image_id", "text"], ("image_id", "caption"))


def test_a_block_that_is_given_twice_is_refused_where_it_has_ids() -> None:
    counter = Counter.of("<x>", TRUTH, vocabulary=VOCABULARY)
    table = counter.of_batches([pa.Table.from_pylist(records(5))])
    assert counter.run(table, "x").n_records == 300
    with pytest.raises(InputError, match="<x>: 300 ids appear twice"):
        counter.run(merged([table, table]), "x")
    half = counter.of_batches([pa.Table.from_pylist(records(5)[:150])])
    with pytest.raises(InputError, match="<x>: 150 ids appear twice"):
        counter.run(merged([half, table]), "x")


def test_several_models_are_refused_and_nothing_is_not_a_score() -> None:
    counter = Counter.of("<x>", TRUTH, vocabulary=VOCABULARY)
    rows = [{**row, "id": None} for row in records(6)]
    tables = [counter.of_batches([pa.Table.from_pylist([{**row, "model": model} for row in rows])]) for model in "ab"]
    with pytest.raises(InputError, match=r"several models in one file \('a', 'b'\); score the captions of each"):
        counter.run(merged(tables), "x")
    with pytest.raises(InputError, match="<x>: no caption is left to score"):
        counter.run(counter.of_batches([]), "x")


# ---- rewards ----


def test_rewards_are_columns_of_the_same_rows() -> None:
    reward = SubsentenceReward(VOCABULARY, TRUTH, RewardConfig(rule="discourse", r_rep=0.5), on_error="zero")
    rows = [{"image_id": r["image_id"], "response": r["caption"], "step": k} for k, r in enumerate(records(7, 2500))]
    found = with_rewards(pickle.loads(pickle.dumps(reward)), pa.Table.from_pylist(rows), "image_id", "response")
    expected = reward([row["image_id"] for row in rows], [row["response"] for row in rows])
    assert found.column_names == ["image_id", "response", "step", *(field.name for field in reward_fields())]
    assert found.column("step").to_pylist() == list(range(2500))
    assert found.column("reward").to_pylist() == [each.total for each in expected]
    assert found.column("hallucinated").to_pylist() == [each.hallucinated for each in expected]
    assert found.column("parts").to_pylist() == [[part._asdict() for part in each.parts] for each in expected]
    assert found.column("error").null_count == 2500


def test_a_batch_of_faulty_responses_alone() -> None:
    batch = pa.RecordBatch.from_pydict({"image": ["77", "x"], "text": pa.array([None, "a dog"])})
    reward = SubsentenceReward(VOCABULARY, TRUTH, on_error="zero")
    found = with_rewards(reward, batch, "image", "text")
    assert found.column("reward").to_pylist() == [0.0, 0.0]
    assert ["unknown image id" in error for error in found.column("error").to_pylist()] == [True, True]
    with pytest.raises(InputErrors, match="unknown image id"):
        with_rewards(SubsentenceReward(VOCABULARY, TRUTH), batch, "image", "text")


def test_columns_of_a_data_set_for_rewards() -> None:
    check_reward_columns(["image_id", "response"], "image_id", "response")
    with pytest.raises(InputError, match=r"column 'response' not found \(found: image_id, text\)"):
        check_reward_columns(["image_id", "text"], "image_id", "response")
    with pytest.raises(InputError, match="has a column 'reward' already"):
        check_reward_columns(["image_id", "response", "reward"], "image_id", "response")


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_an_engine_that_is_not_installed(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, {"ray": "ray", "spark": "pyspark"}[engine], None)
    monkeypatch.setitem(sys.modules, {"ray": "ray.data", "spark": "pyspark.errors"}[engine], None)
    monkeypatch.delitem(sys.modules, f"scapo_eval.distributed.{engine}", raising=False)
    with pytest.raises(MissingExtra, match=rf"pip install .*\[{engine}\]'"):
        __import__(f"scapo_eval.distributed.{engine}")


@pytest.mark.parametrize(
    ("engine", "message", "named"),
    [
        ("Spark", "ModuleNotFoundError: No module named 'scapo_eval'", True),
        ("Spark", "[PYTHON_VERSION_MISMATCH] Python in worker has different version", True),
        ("Spark", 'An error occurred.\n: a.B: x\nCaused by: c.D: Cannot run program "p"\nCaused by: e.F: y', True),
        ("Spark", "ValueError: no", False),
        ("Ray", "ModuleNotFoundError: No module named 'mine'", False),
    ],
)
def test_another_python_of_sparks_workers_is_named(engine: str, message: str, named: bool) -> None:
    with pytest.raises(ScapoError, match=f"{engine} failed: ") as error, engine_errors(engine, (RuntimeError,)):
        raise RuntimeError(message)
    assert ("export PYSPARK_PYTHON=" in str(error.value)) == named


def test_the_first_cause_in_a_trace_of_java_is_named() -> None:
    trace = "An error.\n: a.B: x: \n\tat g.H\nCaused by: c.D: Task 0 failed\n\tat g.H\nCaused by: e.F: y\n\t... 9 more"
    with (
        pytest.raises(ScapoError, match=r"Spark failed: c\.D: Task 0 failed \(see"),
        engine_errors("Spark", (OSError,)),
    ):
        raise OSError(trace)


class Tables(CountingEngine[pa.Table]):
    """An engine whose data sets are Arrow tables, without workers."""

    kind = pa.Table

    def columns(self, data: pa.Table) -> list[str]:
        return list(data.column_names)

    def select(self, data: pa.Table, names: Sequence[str]) -> pa.Table:
        return data.select(names)

    def spread(self, parts: pa.Table) -> pa.Table:
        return parts

    def counts(self, data: pa.Table, counter: Any, of_files: bool, workers: int | None) -> pa.Table:
        return counter.of_parts(data) if of_files else counter.of_batches([data])

    def resampled(self, parts: list[Any]) -> Iterable[Any]:
        return map(work, parts)


@pytest.mark.parametrize(
    ("given", "more", "reason"),
    [
        (pd.DataFrame(), {}, r"expected paths or a pyarrow\.lib\.Table, found a pandas\.[\w.]*DataFrame$"),
        ([{"image_id": 1, "caption": "A dog."}], {}, "found a list$"),
        (None, {}, "found a NoneType$"),
        ([], {}, "the list of paths is empty"),
        ("-", {}, "<stdin>: the workers cannot read standard input"),
        ("c.jsonl", {"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ("c.jsonl", {"workers": 1.5}, "workers must be a whole number of at least 1, got 1.5"),
    ],
)
def test_what_an_engine_cannot_score(given: Any, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Tables().score(given, truth=TRUTH, vocabulary=VOCABULARY, **more)


@pytest.mark.parametrize("fails", [False, True])
def test_a_quiet_connection_to_ray_leaves_no_setting(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, log = SimpleNamespace(enable_progress_bars=True), logging.getLogger("ray.data")
    data = ModuleType("ray.data")
    data.Dataset, data.DataContext = object, SimpleNamespace(get_current=lambda: settings)  # type: ignore[attr-defined]
    ray = ModuleType("ray")
    ray.data, ray.shutdown = data, lambda: None  # type: ignore[attr-defined]

    def init(*_: object, **__: object) -> None:
        assert (settings.enable_progress_bars, log.level) == (False, logging.ERROR)
        if fails:
            raise ConnectionError("none")

    ray.init = init  # type: ignore[attr-defined]
    for module in (ray, data, ModuleType("ray.exceptions")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "scapo_eval.distributed.ray", raising=False)
    level = log.level
    connected = __import__("scapo_eval.distributed.ray", fromlist=["connected"]).connected
    with suppress(ScapoError), connected(quiet=True):
        assert not fails
    assert (settings.enable_progress_bars, log.level) == (True, level)
    monkeypatch.delitem(sys.modules, "scapo_eval.distributed.ray")


def test_data_of_another_engine_get_no_reward() -> None:
    assert Tables().checked_columns(pa.table({"a": [1]})) == ["a"]
    with pytest.raises(InputError, match=r"expected a pyarrow\.lib\.Table, found a dict"):
        Tables().checked_columns({"a": [1]})


def test_the_account_of_a_cluster() -> None:
    rng = random.Random(3)
    truth = {str(k): rng.sample(LABELS, 2) for k in range(60)}
    rows = [{"image_id": k, "caption": f"A {truth[str(k)][0]} and a {truth[str(k)][1]}."} for k in range(60)]
    oracle = PresenceOracle.from_objects(truth, labels=LABELS)

    def notes(rows: list[dict[str, Any]]) -> Any:
        counter = Counter.of("<x>", oracle, vocabulary=VOCABULARY)
        tables = [counter.of_batches([piece]) for piece in scattered(pa.Table.from_pylist(rows), 5)]
        return counter.run(merged(tables), "x", resampling=Resampling(20))

    fits = notes(rows)
    assert (fits.notes, fits.account.records, fits.account.agreement.confirmed) == ((), 60, 1.0)
    resumed = notes([*rows, *rows[:7], {"image_id": 7, "caption": ""}])
    assert "7 of 68 records are identical to an earlier record" in " ".join(resumed.notes)
    assert "1 to 2 captions per image" in " ".join(resumed.notes)
    assert "empty captions: 1 " in " ".join(resumed.notes)
    odd = ["Error: a", "Error code: 429", "A <think> here"]
    odd_rows = [{"image_id": k, "caption": text} for k, text in enumerate(odd)]
    strange = notes([*rows, *odd_rows]).account
    assert (strange.failed, strange.markup) == (OddTexts(2, odd[0], None, "0"), OddTexts(1, odd[2], None, "2"))
    shifted = notes([{**row, "image_id": (k + 1) % 60} for k, row in enumerate(rows)])
    assert "do the captions belong to their images?" in " ".join(shifted.notes)
    one = scapo_eval.score(rows, truth=oracle, vocabulary=VOCABULARY, resamples=20)
    assert one.account.agreement.confirmed == fits.account.agreement.confirmed
    assert one.account.agreement.chance == pytest.approx(fits.account.agreement.chance, abs=0.01)
