"""What the engines' tests share: captions in files of two kinds, and what one process says of them.

These tests run on real local clusters (``bash .ci/engines``); elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import CaptionScores, PresenceOracle, Run, Vocabulary

LABELS = ("dog", "cat", "car", "bus")
N = 2000


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Four labels."""
    return Vocabulary.from_mapping({label: [label] for label in LABELS}, name="four")


@pytest.fixture(scope="session")
def truth() -> PresenceOracle:
    """One label in each of 50 images."""
    return PresenceOracle.from_objects({k: [LABELS[k % 4]] for k in range(50)}, labels=LABELS)


@pytest.fixture(scope="session")
def records() -> list[dict[str, Any]]:
    """Captions with ids."""
    rng = random.Random(0)
    texts = (". ".join(f"A {rng.choice(LABELS)} is here" for _ in range(rng.randrange(4))) for _ in range(N))
    return [{"id": k, "image_id": rng.randrange(50), "caption": text} for k, text in enumerate(texts)]


@pytest.fixture(scope="session")
def one(records: list[dict[str, Any]], truth: PresenceOracle, vocabulary: Vocabulary) -> CaptionScores:
    """What one process says, with the bootstrap that engines take by default."""
    return scapo_eval.score(records, truth=truth, vocabulary=vocabulary, resamples=50, bootstrap="poisson")


@pytest.fixture(scope="session")
def folder(records: list[dict[str, Any]], truth: PresenceOracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captions in parquet files of two row groups and in files of lines; the same captions in one file; a truth."""
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
    """Yes/no questions on the images."""
    return [{"id": k, "label": "yes" if k % 3 else "no", "image": f"{k % 50}.jpg"} for k in range(N)]


@pytest.fixture(scope="session")
def replies() -> list[dict[str, Any]]:
    """Answers to them."""
    rng = random.Random(1)
    return [{"id": k, "response": rng.choice(("Yes.", "No, none", "There is one"))} for k in range(N)]


@pytest.fixture(scope="session")
def answered(replies: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Run:
    """What one process says of the answers."""
    return scapo_eval.yesno(replies, questions=questions, resamples=50, bootstrap="poisson")


@pytest.fixture(scope="session")
def replies_folder(replies: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The answers in a thousand files, of which the 500th is corrupt; and in one file."""
    path = tmp_path_factory.mktemp("answers")
    (path / "parts").mkdir()
    for k in range(1000):
        rows = replies[k * N // 1000 : (k + 1) * N // 1000]
        (path / "parts" / f"{k:04}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (path / "parts.jsonl").write_text("\n".join(map(json.dumps, replies)))
    (path / "parts" / "0500.jsonl").write_bytes(b"\x1f\x8b" + bytes(9))
    return path


OF_ONE_PROCESS = ("bytes", "crc32", "lines", "agreement")
"""Of an account: a cluster tells neither bytes nor lines, and agreement from sums."""


def said(run: Any) -> dict[str, Any]:
    """Everything that a run says but its name."""
    return {**of_any_engine(run.to_dict() | {"notes": run.notes}), "name": "", "evidence": run.evidence()}


def of_any_engine(system: dict[str, Any]) -> dict[str, Any]:
    """What results say of a system wherever it was counted."""
    account = system.get("account")
    notes = [note for note in system["notes"] if "belong to their images" not in note]
    return {
        **system,
        "notes": notes,
        "account": account and {k: v for k, v in account.items() if k not in OF_ONE_PROCESS},
    }


def results_of(path: Path) -> dict[str, Any]:
    """A results file, with what is the same wherever it was counted."""
    results: dict[str, Any] = json.loads(path.read_text())
    return {**results, "systems": [of_any_engine(system) for system in results["systems"]]}


def killer(marker: Path) -> Callable[[Any], Any]:
    """Passes batches on; the first process that gets one is killed in the middle of it."""
    place = str(marker)

    def kill_once(batch: Any) -> Any:
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return batch
        os.kill(os.getpid(), signal.SIGKILL)

    return kill_once
