"""The doctor on two CPU ranks, which passes on a correct machine and fails on a faulty one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train import doctor
from scapo_train.__main__ import main

pytestmark = pytest.mark.usefixtures("quiet_loggers")
CHECKS = ["collectives", "sharded step", "steps", "kill and resume", "plan"]


def test_green_on_two_ranks(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = lab.run("run", "data.prompts_per_step=4")
    assert doctor.main([*arguments, "--nproc-per-node", "2"]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    report = json.loads((lab.folder / "run" / "doctor.json").read_bytes())
    assert report["ok"] is True
    assert [each["name"] for each in report["findings"]] == CHECKS
    assert [each["ok"] for each in report["findings"]] == [True, True, True, True, None]
    assert f"this machine trains correctly: {lab.folder / 'run' / 'doctor.json'}" in said
    assert main([*arguments, "--set", "run.steps=1"]) == 0


def test_red_stops_at_the_first_fault_and_training_is_refused(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(lab.run("run", "data.oracle=nowhere.json")) == 2  # no fault of the machine
    assert "scapo_train.doctor: nowhere.json: file not found" in capsys.readouterr().err
    assert not (lab.folder / "run" / "doctor.json").exists()
    arguments = lab.run("run", f"model.path={lab.folder / 'images'}")
    assert doctor.main(arguments) == 1
    report = json.loads((lab.folder / "run" / "doctor.json").read_bytes())
    assert [(each["name"], each["ok"]) for each in report["findings"]] == [
        ("collectives", True), ("sharded step", True), ("steps", False),
    ]  # fmt: skip
    assert "FAILED steps: exit code 2: scapo_train: " in capsys.readouterr().out
    assert main(lab.run("run")) == 2
    assert "doctor.json: steps failed: fix the problem and run the doctor again" in capsys.readouterr().err


def test_too_few_gpus_are_named(lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert doctor.main(["--on-ranks", "ranks.json"]) == 2
    said = "scapo_train: 2 processes need a GPU each, but this machine has 1: --nproc-per-node 1"
    assert capsys.readouterr().err.strip() == said


@pytest.mark.parametrize(("peak", "ok"), [(0.1, True), (10.0, True), (12.0, False)])
def test_memory_above_the_plan_is_a_fault_and_memory_below_is_not(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peak: float, ok: bool
) -> None:
    (tmp_path / "whole").mkdir()
    row = {"step": 3, "peak_memory": peak * 2**30, "seconds_update": 1.0}
    (tmp_path / "whole" / "metrics.jsonl").write_text(json.dumps(row))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    planned = SimpleNamespace(peak=10 * 2**30, seconds={"update": 1.0})
    monkeypatch.setattr("scapo_train.plan.planner.plan", lambda job: planned)
    (memory, _) = doctor._planned(doctor.load(lab.config), 1, tmp_path)
    assert memory.ok is ok


def test_gradients_of_ranks_that_do_not_add_up_are_a_fault(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the effect of a broken collective operation."""
    seen = {"device": "cuda", "sum_ok": True, "seconds": 0.1, "gradient_gap": 0.5}

    def ran(ranks: int, module: str, *arguments: str) -> Any:
        (tmp_path / "ranks.json").write_text(json.dumps(seen))
        return doctor.subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(doctor, "_run", ran)
    found = doctor.examine(doctor.load(lab.config), 8, tmp_path, lambda _: None)
    assert [each.ok for each in found] == [True, False]
    assert str(found[1]) == "FAILED sharded step: gradients 5.0e-01 from those of one process (0.0001)"
