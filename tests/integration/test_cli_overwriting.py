"""Outputs that are also an input or another output, which every writing command rejects before it reads anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Outcome = tuple[int, str, str]
ScapoEval = Callable[..., Outcome]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes files that must not be lost. They contain only ``precious``, so that no command can read them."""
    monkeypatch.chdir(tmp_path)
    for name in ("precious.jsonl", "truth.json", "precious.npz", "precious.svg"):
        (tmp_path / name).write_text("precious, and not to be read")
    (tmp_path / "link.jsonl").symlink_to("precious.jsonl")
    os.link(tmp_path / "precious.jsonl", tmp_path / "hard.jsonl")
    (tmp_path / "folder").mkdir()
    for name in ("metrics.jsonl", "alarms.jsonl", "config.toml"):
        (tmp_path / "folder" / name).write_text("precious")
    (tmp_path / "folder" / "annotations.json").write_text("precious")
    return tmp_path


P = "precious.jsonl"
COMMANDS = {
    "score -o": f"{P} --truth truth.json -o {P}",
    "score NAME=FILE": f"x={P} --truth truth.json -o {P}",
    "score --truth": f"x.jsonl --truth {P} -o {P}",
    "score --per-caption": f"{P} --truth truth.json --per-caption {P}",
    "score, another spelling": f"{P} --truth truth.json -o folder/../{P}",
    "score, a link": f"{P} --truth truth.json -o link.jsonl",
    "score, a hard link": f"{P} --truth truth.json -o hard.jsonl",
    "score, the option first": f"score -o {P} {P} --truth truth.json",
    "chair": f"chair {P} --truth truth.json -o {P}",
    "amber": f"amber {P} --data folder --per-answer {P}",
    "pope": f"pope x.jsonl --questions {P} -o {P}",
    "phd": f"phd --data {P} --prompts {P}",
    "yesno": f"yesno {P} --per-answer {P}",
    "mmhal": f"mmhal {P} -o {P}",
    "faithscore": f"faithscore base/detailed={P} -o {P}",
    "augmented": f"augmented {P} x.jsonl --benchmark yesno -o {P}",
    "density": f"density {P} --truth truth.json -o {P}",
    "amber --data": f"amber {P} --data folder -o folder/annotations.json",
    "report of a training run": "report folder -o folder/metrics.jsonl",
    "report of a training run, its alarms": "report folder -o folder/alarms.jsonl",
    "report of a training run, its settings": "report folder -o folder/config.toml",
    "compare": f"compare a.json {P} -o {P}",
    "compare --benchmark": f"compare a.json {P} --benchmark chair --truth truth.json -o {P}",
    "report": f"report {P} -o {P}",
    "plot": "plot labels precious.svg -o precious.svg",
    "plot --style": f"plot labels {P} --style precious.svg -o precious.svg",
    "reward": f"reward {P} --truth truth.json -o {P}",
    "import": f"import {P} -o {P}",
    "vocab mine": f"vocab mine {P} -o {P}",
    "vocab build": f"vocab build {P} -o {P}",
    "oracle convert": "oracle convert precious.npz -o precious.npz",
    "oracle chair": f"oracle chair --instances {P} --captions truth.json -o {P}",
    "describe": f"describe {P} -o {P} --model m",
    "answer": f"answer {P} -o {P} --model m",
    "judge mmhal": f"judge mmhal {P} -o {P} --model m",
    "annotate sample": f"annotate sample {P} -n 1 -o {P}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_never_replaced(run: ScapoEval, world: Path, name: str) -> None:
    before = {path.name: path.read_bytes() for path in world.rglob("*") if path.is_file()}
    code, out, err = run(*COMMANDS[name].split())
    assert (code, out) == (2, "")
    assert "also an input and would be overwritten" in err
    assert {path.name: path.read_bytes() for path in world.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "command",
    [
        f"{P} --truth truth.json -o new.json --per-caption new.json",
        f"{P} --truth truth.json -o new.json --per-caption ./folder/../new.json",
        f"yesno {P} -o new.json --per-answer new.json",
    ],
)
def test_two_outputs_are_never_one_file(run: ScapoEval, world: Path, command: str) -> None:
    code, _, err = run(*command.split())
    assert code == 2
    assert "is specified for two outputs" in err
    assert not (world / "new.json").exists()


def test_an_output_of_before_is_replaced_and_devices_are_let_through(run: ScapoEval, world: Path) -> None:
    (world / "truth.json").write_text(json.dumps({"1": ["dog"]}))
    (world / "c.jsonl").write_text('{"image_id": 1, "caption": "A dog."}\n')
    for _ in range(2):
        assert run("c.jsonl", "--truth", "truth.json", "-o", "r.json", "--per-caption", "e.jsonl")[0] == 0
    assert run("c.jsonl", "--truth", "truth.json", "-o", "/dev/null", "--per-caption", "/dev/null")[0] == 0
