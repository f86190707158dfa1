"""Shared fixtures of the engines' tests: captions in files of two formats, and the results of a single process.

These tests run on real local clusters (``bash .ci/engines``). In other environments, they are skipped.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import CaptionScores, PresenceOracle, Run, Vocabulary

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
LABELS = ("dog", "cat", "car", "bus")
N = 2000


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Returns a vocabulary with four labels."""
    return Vocabulary.from_mapping({label: [label] for label in LABELS}, name="four")


@pytest.fixture(scope="session")
def truth() -> PresenceOracle:
    """Returns a ground truth with one label in each of 50 images."""
    return PresenceOracle.from_objects({k: [LABELS[k % 4]] for k in range(50)}, labels=LABELS)


@pytest.fixture(scope="session")
def records() -> list[dict[str, Any]]:
    """Returns captions with ids."""
    rng = random.Random(0)
    texts = (". ".join(f"A {rng.choice(LABELS)} is here" for _ in range(rng.randrange(4))) for _ in range(N))
    return [{"id": k, "image_id": rng.randrange(50), "caption": text} for k, text in enumerate(texts)]


@pytest.fixture(scope="session")
def one(records: list[dict[str, Any]], truth: PresenceOracle, vocabulary: Vocabulary) -> CaptionScores:
    """Returns the scores of a single process, with the default bootstrap of the engines."""
    return scapo_eval.score(records, truth=truth, vocabulary=vocabulary, resamples=50, bootstrap="poisson")


@pytest.fixture(scope="session")
def folder(records: list[dict[str, Any]], truth: PresenceOracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the captions as Parquet files with two row groups and as JSON Lines files, all captions in one file, and a
    ground truth.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("captions")
    (path / "parts").mkdir()
    for k in range(10):
        rows = records[k * N // 10 : (k + 1) * N // 10]
        if k % 2:
            (path / "parts" / f"{k}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path / "parts" / f"{k}.parquet", row_group_size=N // 20)
    (path / "parts.jsonl").write_text("\n".join(map(json.dumps, records)))
    truth.save(path / "truth.npz")
    labels = {label: {"aliases": [label]} for label in LABELS}
    (path / "four.yaml").write_text(json.dumps({"name": "four", "labels": labels}))  # JSON is YAML
    return path


@pytest.fixture(scope="session")
def questions() -> list[dict[str, Any]]:
    """Returns yes/no questions on the images."""
    return [{"id": k, "label": "yes" if k % 3 else "no", "image": f"{k % 50}.jpg"} for k in range(N)]


@pytest.fixture(scope="session")
def replies() -> list[dict[str, Any]]:
    """Returns answers to the questions."""
    rng = random.Random(1)
    return [{"id": k, "response": rng.choice(("Yes.", "No, none", "There is one"))} for k in range(N)]


@pytest.fixture(scope="session")
def answered(replies: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Run:
    """Returns the run of a single process for the answers."""
    return scapo_eval.yesno(replies, questions=questions, resamples=50, bootstrap="poisson")


@pytest.fixture(scope="session")
def replies_folder(replies: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the answers to a thousand files, of which the 500th is corrupt, and to one file."""
    path = tmp_path_factory.mktemp("answers")
    (path / "parts").mkdir()
    for k in range(1000):
        rows = replies[k * N // 1000 : (k + 1) * N // 1000]
        (path / "parts" / f"{k:04}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (path / "parts.jsonl").write_text("\n".join(map(json.dumps, replies)))
    (path / "parts" / "0500.jsonl").write_bytes(b"\x1f\x8b" + bytes(9))
    return path


@pytest.fixture(scope="session")
def systems(vocabulary: Vocabulary) -> list[Run]:
    """Returns the runs of two systems on 5,000 images."""
    rng = random.Random(2)
    many = PresenceOracle.from_objects({k: [LABELS[k % 4]] for k in range(5000)}, labels=LABELS)
    rows = [
        [{"image_id": k, "caption": f"A {rng.choice(LABELS)} and a {rng.choice(LABELS[:n])}."} for k in range(5000)]
        for n in (4, 3)
    ]
    return [
        scapo_eval.score(captions, truth=many, vocabulary=vocabulary, name=name, resamples=100, bootstrap="poisson")
        for name, captions in zip("ab", rows, strict=True)
    ]


OF_ONE_PROCESS = ("bytes", "crc32", "lines", "agreement")
"""Fields of an account that a cluster does not provide: bytes and lines are unknown, and agreement is computed from
sums.
"""


def said(run: Any) -> dict[str, Any]:
    """Returns all data of a run except its name."""
    return {**of_any_engine(run.to_dict() | {"notes": run.notes}), "name": "", "evidence": run.evidence()}


def of_any_engine(system: dict[str, Any]) -> dict[str, Any]:
    """Returns the data of a system that do not depend on the engine."""
    account = system.get("account")
    notes = [note for note in system["notes"] if "belong to their images" not in note]
    return {
        **system,
        "notes": notes,
        "account": account and {k: v for k, v in account.items() if k not in OF_ONE_PROCESS},
    }


def results_of(path: Path) -> dict[str, Any]:
    """Returns the data in a results file that do not depend on the engine."""
    results: dict[str, Any] = json.loads(path.read_text())
    return {**results, "systems": [of_any_engine(system) for system in results["systems"]]}


def killer(marker: Path) -> Callable[[Any], Any]:
    """Returns a function that passes batches on, and kills the first process that receives a batch."""
    place = str(marker)

    def kill_once(batch: Any) -> Any:
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return batch
        os.kill(os.getpid(), signal.SIGKILL)

    return kill_once


@pytest.fixture
def serve(lab: Any) -> Iterator[Callable[..., str]]:
    """Starts a vLLM server for the trainer, as ``scapo_train.samplers.connection.START`` describes, with further
    options, and returns its address.
    """
    from scapo_train.samplers.server import UPDATING

    running: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1", UPDATING: "1"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # otherwise, each process of a server needs its own NUMA node

    def start(model: str, *options: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, *options]
        command += ["--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--dtype", "float32"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--gpu-memory-utilization", "0.1"]
        with open(lab.folder / "server.log", "wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True))
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[dict[str, Any]]]:
    """Yields the measurements of a module by family. They are written to ``$SCAPO_ENGINE_TABLE``, and those of the
    server to the same name with ``.server``, because other processes run its tests.
    """
    rows: list[dict[str, Any]] = []
    yield rows
    if path := os.environ.get("SCAPO_ENGINE_TABLE"):
        versions = {name: importlib.import_module(name).__version__ for name in ("vllm", "torch", "transformers")}
        measured = {"day": datetime.now(timezone.utc).date().isoformat(), **versions, "families": rows}
        suffix = ".server" if request.module.__name__.endswith("server") else ""
        Path(path + suffix).write_text(json.dumps(measured, indent=1) + "\n")


@pytest.fixture
def gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers an engine for weight transfer over gloo in this process, and as a plugin of vLLM in those it starts."""
    record = tmp_path / "vllm_gloo-0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-gloo\nVersion: 0\n")
    (record / "entry_points.txt").write_text("[vllm.general_plugins]\ngloo = vllm_gloo:register\n")
    (tmp_path / "vllm_gloo.py").write_bytes((PROGRAMS / "vllm_gloo.py").read_bytes())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("vllm_gloo").register()
