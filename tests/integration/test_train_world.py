"""The small world in its quick form: the paper's claim, watched in training runs of the real trainer.

A few minutes on two cores. The assertions are those that held on every seed of the trial, relative to the model
before alignment; none depends on speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "scapo_train.world", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished quick experiment."""
    folder = tmp_path_factory.mktemp("world")
    done = run("--quick", "--jobs", "2", "--output", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == (folder / "table.md").read_text()
    return folder


@pytest.fixture(scope="module")
def rates(world: Path) -> dict[str, dict[str, Any]]:
    """Scheme -> percentages of one sampled response per held-out picture."""
    outcomes = json.loads((world / "results.json").read_text())["outcomes"]
    return {
        each["name"]: {
            name: value if name == "words" or value is None else 100 * value
            for name, value in each["sampled"][0].items()
        }
        for each in outcomes
    }


def test_the_model_before_alignment_omits_and_invents(rates: dict[str, dict[str, Any]]) -> None:
    assert 40 <= rates["start"]["cover_rate"] <= 65
    assert 15 <= rates["start"]["hal_rate"] <= 30


def test_subsentence_credit_says_more_and_invents_less(rates: dict[str, dict[str, Any]]) -> None:
    assert rates["scapo"]["cover_rate"] >= rates["start"]["cover_rate"] + 8
    assert rates["scapo"]["hal_rate"] <= rates["start"]["hal_rate"] - 2
    assert rates["scapo"]["fluency"] >= 80


def test_the_response_level_hal_rate_teaches_saying_less(rates: dict[str, dict[str, Any]]) -> None:
    assert rates["hal"]["cover_rate"] <= 25
    assert rates["hal"]["words"] < rates["start"]["words"]


def test_the_response_level_cap_score_teaches_guessing(rates: dict[str, dict[str, Any]]) -> None:
    assert rates["cap"]["hal_rate"] >= rates["start"]["hal_rate"] + 1
    assert rates["cap"]["cover_rate"] >= rates["start"]["cover_rate"] + 15


def test_a_finished_experiment_is_not_done_again(world: Path) -> None:
    written = {path: path.stat().st_mtime_ns for path in world.glob("runs/*/metrics.jsonl")}
    assert len(written) == 3
    table, picture = (world / "table.md").read_bytes(), (world / "dynamics.png").read_bytes()
    again = run("--quick", "--jobs", "2", "--output", str(world))
    assert again.returncode == 0, again.stderr[-3000:]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert (world / "table.md").read_bytes() == table
    assert (world / "dynamics.png").read_bytes() == picture
    other = run("--quick", "--world", "risky", "--output", str(world))
    assert other.returncode == 2
    assert "holds another world" in other.stderr
