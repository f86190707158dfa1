"""The doctor on two CPU ranks, which passes on a correct machine and fails on a faulty one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval.base.errors import InputError
from scapo_train import doctor, launch
from scapo_train.__main__ import main
from scapo_train.data import Prompts
from scapo_train.model import processor_of
from scapo_train.monitoring.log import open_folder
from scapo_train.plan.planner import Plan

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


STAND_IN = """
import sys
sys.path.insert(0, {tests!r})
import stand_in_vllm
stand_in_vllm.install("0.33.0")
"""


def test_the_steps_use_vllm(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the checks with a stand-in for vLLM (``tests/stand_in_vllm.py``)."""
    (tmp_path / "vllm.py").write_text(STAND_IN.format(tests=str(Path(__file__).resolve().parents[1])))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert doctor.main(lab.run("run", "rollout.engine=vllm")) == 0
    findings = json.loads((lab.folder / "run" / "doctor.json").read_bytes())["findings"]
    assert [each["name"] for each in findings] == [*CHECKS[:3], "vLLM", *CHECKS[3:]]
    said = findings[3]["said"]
    assert re.match(r"vllm 0\.33\.0: weights synchronized in \S+ s; log-probabilities as the trainer's: \S+ nats", said)


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
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (0, 79 * 2**30))
    memory = {"rollout": {"vLLM": 30 * 2**30, "weights": 2**30}, "update": {"weights": 10 * 2**30}}
    planned = Plan(memory, {"update": 1.0}, "rollout", 31 * 2**30, 0, 0, 8192, 0, 0)
    jobs: list[Any] = []
    monkeypatch.setattr("scapo_train.plan.planner.plan", lambda job: jobs.append(job) or planned)
    config = doctor.load(lab.config, ["data.max_bad=0"])
    (found, _) = doctor._planned(config, 1, tmp_path)
    assert found.ok is ok
    prompts = Prompts(doctor.read_task(config).sources, processor_of(config.model), 0)
    lengths = [len(prompt.ids) for prompt in prompts.take(range(12))]
    prompts.close()
    assert (jobs[0].kind, jobs[0].memory, jobs[0].prompt_tokens) == ("A100-80", 79 * 2**30, max(lengths))


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_processes_in_other_sessions_are_killed_as_well(tmp_path: Path) -> None:
    holder = "import time; from scapo_train.monitoring.log import *; cm = open_folder(Path('run'), resume=True)"
    grandchild = f"{holder}; cm.__enter__(); Path('held').touch(); time.sleep(600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", child], cwd=tmp_path)
    while not (tmp_path / "held").exists():
        assert process.poll() is None
        time.sleep(0.05)
    with pytest.raises(InputError, match="another process is training"), open_folder(tmp_path / "run", resume=True):
        pass
    doctor._kill(process)
    process.wait()
    doctor._wait_until_unlocked(tmp_path / "run")
    with open_folder(tmp_path / "run", resume=True):
        pass


def test_an_interrupt_leaves_neither_a_run_nor_its_files(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started, folders = list[subprocess.Popen[str]](), list[Path]()

    def interrupted(config: Any, ranks: int, scratch: Path, tell: Any) -> None:
        folders.append(scratch)
        with doctor._started(1, "scapo_train", output=subprocess.DEVNULL) as process:
            started.append(process)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(doctor, "_command", lambda *_: [sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(doctor, "examine", interrupted)
    assert doctor.main(lab.run("run")) == 130
    assert capsys.readouterr().err.endswith("scapo_train.doctor: interrupted\n")
    assert started[0].returncode == -signal.SIGKILL
    assert not folders[0].exists()


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


def test_a_signal_to_the_launcher_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException

    def stopped(_: Any) -> None:
        raise SignalException("Process 1 got signal: 15", signal.SIGTERM)

    monkeypatch.setattr("torch.distributed.run.run", stopped)
    assert launch.main(["config.toml"]) == 130
    assert capsys.readouterr().err == "scapo_train.launch: interrupted by SIGTERM\n"
