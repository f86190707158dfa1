"""Scores and rewards on a real Ray cluster with two nodes, with killed workers and a lost node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # a busy machine
ray = pytest.importorskip("ray", reason="ray is not installed: bash .ci/engines ray")
pytest.importorskip("ray.data", reason="ray[data] is not installed: bash .ci/engines ray")

from ray.cluster_utils import Cluster  # noqa: E402

import scapo_eval  # noqa: E402
from scapo_eval import InputError, InputErrors, MissingExtra, ScapoError, SubsentenceReward  # noqa: E402
from scapo_eval.distributed import ray as on_ray  # noqa: E402
from scapo_eval.results import workers  # noqa: E402
from scapo_eval.results.results import Resampling  # noqa: E402

from .conftest import killer, results_of, said  # noqa: E402

STORE = 100 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yields a cluster with two nodes of one processor each. The tests connect to the first node."""
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE})
    found.second = found.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(found.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def reading(truth: Any, vocabulary: Any) -> dict[str, Any]:
    return {"truth": truth, "vocabulary": vocabulary, "resamples": 50}


@pytest.mark.parametrize("blocks", [1, 7])
def test_a_dataset_of_any_blocks(cluster: Cluster, records: Any, one: Any, reading: Any, blocks: int) -> None:
    data = ray.data.from_items(records, override_num_blocks=blocks)
    assert said(on_ray.score(data, **reading)) == said(one)
    assert one.signature.fields["interval"] == "wilson"
    if blocks == 7:
        other = on_ray.score(data, workers=1, bootstrap="multinomial", **reading)
        assert said(other) == said(scapo_eval.score(records, bootstrap="multinomial", **reading))
        chair = {"truth": reading["truth"], "vocabulary": reading["vocabulary"], "resamples": 50}
        assert said(on_ray.chair(data, **chair)) == said(scapo_eval.chair(records, bootstrap="poisson", **chair))
        with pytest.raises(InputError, match=r"<Dataset>: 2,000 ids appear twice"):
            on_ray.score(data.union(data), **reading)
        with pytest.raises(InputError, match=r"column 'caption' not found \(found: id, image_id\)"):
            on_ray.score(data.drop_columns(["caption"]), **reading)
        with pytest.raises(ScapoError, match="Ray failed: ZeroDivisionError: integer division or modulo by zero"):
            on_ray.score(data.map_batches(lambda batch: 1 // 0), **reading)
        of_two_types = ray.data.from_items([{**records[0], "caption": caption} for caption in ("A dog.", 5)])
        with pytest.raises(ScapoError, match=r"Ray failed: .*incompatible types"):
            on_ray.score(of_two_types, **reading)


def test_files_and_a_corrupt_one_among_them(
    cluster: Cluster, folder: Path, one: Any, reading: Any, tmp_path: Path
) -> None:
    for file in (folder / "parts").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert said(on_ray.score(tmp_path / "*", **reading)) == said(one)
    (tmp_path / "4.parquet").write_bytes(b"PAR1" + bytes(99))
    with pytest.raises(InputErrors, match=r"4\.parquet: damaged parquet file"):
        on_ray.score(tmp_path / "*", **reading)
    left = on_ray.score(tmp_path / "*", on_bad_file="skip", **reading)
    assert (left.n_records, left.other_counts["bad_files"]) == (1800, 1)
    assert "4.parquet" in left.notes[0]


def test_files_without_a_connection(folder: Path) -> None:
    """Checks that the first use of Ray connects to a cluster or starts one, also for files."""
    code = (
        "from scapo_eval.distributed import ray as on_ray;"
        "print(on_ray.score('parts/*', truth='truth.npz', vocabulary='four.yaml', resamples=50).n_records)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout.split()[-1:] == ["2000"], done.stderr


def test_the_workers_resample(
    cluster: Cluster, records: Any, reading: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PART", 20)  # images
    one = scapo_eval.score(records, **reading).redrawn(Resampling(50, bootstrap="poisson", interval="percentile"))
    run = on_ray.score(ray.data.from_items(records), interval="percentile", **reading)
    assert run.__dict__["metrics"] == one.metrics  # already drawn, on the cluster
    scored = ["--truth", "truth.npz", "--vocabulary", "four.yaml", "--resamples", "50", "--interval", "percentile"]
    command = [sys.executable, "-m", "scapo_eval.cli.main", "score", "parts/*", *scored, "-q", "-o", "percentile.json"]
    subprocess.run([*command, "--engine", "ray", "--address", cluster.address], cwd=folder, check=True)
    found = json.loads((folder / "percentile.json").read_text())["systems"][0]["metrics"]["hal_rate"]
    assert (found["ci_low"], found["ci_high"]) == (one.metrics["hal_rate"].low, one.metrics["hal_rate"].high)


def test_the_workers_compare(
    cluster: Cluster, systems: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {interval: scapo_eval.compare(systems, interval=interval) for interval in ("wilson", "percentile")}
    monkeypatch.setattr(workers, "PART", 2048)  # images
    asked = []
    monkeypatch.setattr(on_ray._engine, "resampled", lambda parts: asked.append(len(parts)) or drawn(parts))
    drawn = type(on_ray._engine).resampled.__get__(on_ray._engine)
    for interval, results in expected.items():
        found = on_ray.compare(systems, interval=interval)
        assert (found.comparisons, found.to_dict()) == (results.comparisons, results.to_dict())
    # two tests, which toss coins for the 3,415 images whose counts differ, and three intervals, which draw all images
    assert asked == [2, 3, 2, 3, 3]


def test_counts_in_parquet(cluster: Cluster, systems: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scapo_eval.results.count_files.COUNTS_IN_JSON", 4999)
    for run in systems:
        run.save(tmp_path / f"{run.name}.json")
    assert len(list(tmp_path.glob("*.counts.parquet"))) == 2
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    assert on_ray.compare(files).to_dict() == scapo_eval.compare(systems).to_dict()


def test_a_worker_that_is_killed(cluster: Cluster, records: Any, one: Any, reading: Any, tmp_path: Path) -> None:
    data = ray.data.from_items(records, override_num_blocks=8)
    deadly = data.map_batches(killer(tmp_path / "killed"), batch_format="pyarrow")
    assert said(on_ray.score(deadly, **reading)) == said(one)
    assert (tmp_path / "killed").exists()


def test_rewards(cluster: Cluster, records: Any, truth: Any, vocabulary: Any) -> None:
    reward = SubsentenceReward(vocabulary, truth)
    data = ray.data.from_items(records, override_num_blocks=3).rename_columns({"caption": "response"})
    found = {row["id"]: row for row in on_ray.reward(data, reward).take_all()}
    expected = reward([r["image_id"] for r in records], [r["caption"] for r in records])
    assert [found[r["id"]]["reward"] for r in records] == [each.total for each in expected]
    assert found[3]["parts"] == [part._asdict() for part in expected[3].parts]


def test_answers_of_any_blocks(cluster: Cluster, replies: Any, questions: Any, answered: Any, tmp_path: Path) -> None:
    asked = {"benchmark": "yesno", "questions": questions, "resamples": 50}
    data = ray.data.from_items(replies, override_num_blocks=7)
    assert said(on_ray.answers(data, **asked)) == said(answered)
    deadly = data.map_batches(killer(tmp_path / "killed"), batch_format="pyarrow")
    assert said(on_ray.answers(deadly, **asked)) == said(answered)
    assert (tmp_path / "killed").exists()
    with pytest.raises(InputError, match="2,000 questions are answered twice"):
        on_ray.answers(data.union(data), **asked)
    with pytest.raises(InputError, match=r"column 'response' not found \(found: id\)"):
        on_ray.answers(data.drop_columns(["response"]), **asked)


def test_answers_in_a_thousand_files(
    cluster: Cluster, replies_folder: Path, replies: Any, questions: Any, answered: Any
) -> None:
    asked = {"benchmark": "yesno", "questions": questions, "resamples": 50}
    assert said(on_ray.answers(replies_folder / "parts.jsonl", **asked)) == said(answered)
    with pytest.raises(InputErrors, match=r"0500\.jsonl: damaged or truncated"):
        on_ray.answers(replies_folder / "parts" / "05*", **asked)
    left = on_ray.answers(replies_folder / "parts" / "*", on_bad_file="skip", **asked)
    kept = [row for row in replies if row["id"] // 2 != 500]
    one = scapo_eval.yesno(kept, questions=questions, resamples=50)
    assert (left.table.counts(), left.verdicts) == (one.table.counts(), one.verdicts)
    assert (left.other_counts["bad_files"], left.other_counts["missing"]) == (1, 2)


def test_answers_from_the_command_line(cluster: Cluster, replies_folder: Path, questions: Any) -> None:
    (replies_folder / "q.json").write_text("\n".join(map(json.dumps, questions)))
    described = [{"id": 1, "type": "generative", "truth": ["dog", "car"], "hallu": ["cat"]}]
    asked = [{"id": k, "type": "discriminative-relation", "truth": "yes"} for k in range(2, 9)]
    files = {"annotations.json": json.dumps(described + asked), "relation.json": '{"dog": [], "car": [], "cat": []}'}
    responses = [{"id": 1, "response": "A cat."}, *({"id": k, "response": "Yes"} for k in range(2, 7))]
    files |= {"safe_words.txt": "", "responses.jsonl": "\n".join(map(json.dumps, responses))}
    for name, text in files.items():
        (replies_folder / name).write_text(text)
    verbs = {
        "yesno": ["parts.jsonl", "again=parts.jsonl", "--questions", "q.json", "--unparsed", "drop"],
        "amber": ["responses.jsonl", "--data", "."],
    }
    figures = [{"id": f"VS/map/{k}/{k}/{k % 2}/0", "label": "yes", "response": "Yes" * (k % 3)} for k in range(40)]
    (replies_folder / "figures.jsonl").write_text("\n".join(map(json.dumps, figures)))
    verbs["hallusionbench"] = ["figures.jsonl", "--questions", "figures.jsonl", "--text-only", "out"]
    engine = ["--engine", "ray", "--address", cluster.address]
    for verb, given in verbs.items():
        command = [sys.executable, "-m", "scapo_eval.cli.main", verb, *given, "--resamples", "50", "-q"]
        for more in (["--bootstrap", "poisson", "-o", f"{verb}.one.json"], [*engine, "-o", f"{verb}.ray.json"]):
            subprocess.run([*command, *more], cwd=replies_folder, check=True, capture_output=True)
        one, other = (results_of(replies_folder / f"{verb}.{name}.json") for name in ("one", "ray"))
        assert one == other


def test_the_command_line(cluster: Cluster, folder: Path) -> None:
    scored = ["--truth", "truth.npz", "--vocabulary", "four.yaml", "--resamples", "50"]
    command = [sys.executable, "-m", "scapo_eval.cli.main", "score"]
    engine = ["--engine", "ray", "--address", cluster.address, "-q"]
    alone = [*command, "parts.jsonl", *scored, "--bootstrap", "poisson", "-o", "one.json"]
    subprocess.run(alone, cwd=folder, check=True, capture_output=True)
    done = subprocess.run(
        [*command, "parts/*", *engine, *scored, "-o", "ray.json"], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert results_of(folder / "one.json") == results_of(folder / "ray.json")
    done = subprocess.run([*command, "none/*", *engine, *scored], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scapo-eval: none/*: no file matches\n"


def test_ray_without_its_llm_part_says_what_to_install() -> None:
    """Checks that the packages of the extra ``ray`` do not suffice for vLLM on Ray."""
    from scapo_eval.engines.ray_vllm import RayVllmEngine

    with pytest.raises(MissingExtra, match=r"pip install .*\[ray-llm\]"):
        RayVllmEngine("some/model")


def comes_true(condition: Callable[[], bool]) -> bool:
    """Waits for a condition that a cluster reaches asynchronously."""
    return any(condition() or time.sleep(0.1) for _ in range(1800))


@pytest.mark.parametrize("what", ["answers", "captions"])  # the node that is lost last does not come back
def test_a_node_that_is_lost(
    cluster: Cluster,
    records: Any,
    one: Any,
    reading: Any,
    replies: Any,
    questions: Any,
    answered: Any,
    tmp_path: Path,
    what: str,
) -> None:
    first = ray.get_runtime_context().get_node_id()
    begun, lost = tmp_path / "begun", tmp_path / "lost"

    def wait_for_the_loss(batch: Any) -> Any:
        if ray.get_runtime_context().get_node_id() != first:
            begun.touch()
        while not lost.exists():
            time.sleep(0.1)
        return batch

    rows = ray.data.from_items(records if what == "captions" else replies, override_num_blocks=6)
    data = rows.map_batches(wait_for_the_loss, batch_format="pyarrow")

    def score() -> Any:
        if what == "captions":
            return on_ray.score(data, **reading)
        return on_ray.answers(data, benchmark="yesno", questions=questions, resamples=50)

    runs: list[Any] = []
    scoring = threading.Thread(target=lambda: runs.append(score()), daemon=True)
    scoring.start()
    assert comes_true(begun.exists), "no task ran on the second node"
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert comes_true(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    lost.touch()
    scoring.join(300)
    assert said(runs[0]) == said(one if what == "captions" else answered)
    if what == "answers":
        cluster.second = cluster.add_node(num_cpus=1, object_store_memory=STORE)
        assert comes_true(lambda: ray.cluster_resources().get("CPU") == 2)
