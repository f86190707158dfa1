"""Training with vLLM itself, killed and resumed, and the doctor (``bash .ci/engines vllm``). Otherwise, the tests are
skipped.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
from vllm_bench import GLOO, SETTINGS

from scapo_train import doctor
from scapo_train.config import load
from scapo_train.samplers.vllm import LARGEST_GAP

pytestmark = pytest.mark.usefixtures("quiet_loggers")


def test_the_doctor_is_green(lab: Any) -> None:
    assert doctor.main(lab.run("run", *SETTINGS)) == 0
    findings = json.loads((lab.folder / "run" / "doctor.json").read_bytes())["findings"]
    passed = {each["name"]: each["said"] for each in findings if each["ok"]}
    assert list(passed) == ["collectives", "sharded step", "steps", "vLLM", "kill and resume"]
    seen = re.match(
        r"vllm \S+: weights synchronized in \S+ s; log-probabilities as the trainer's: (\S+) ", passed["vLLM"]
    )
    assert seen is not None
    assert float(seen[1]) < LARGEST_GAP


@pytest.mark.parametrize("way", ["colocated", "look-ahead", "transfer"])
def test_a_run_that_is_killed_goes_on_to_the_same_end(
    lab: Any, gloo: None, serve: Callable[..., str], way: str
) -> None:
    """Kills the complete command with SIGKILL (rollouts, update, synchronization, checkpoints, export), and runs it
    again. A transfer is killed when the server has received a part of the weights.
    """
    engine = list(SETTINGS)
    if way == "look-ahead":
        url = serve(load(lab.config).model.path)
        engine = ["rollout.engine=vllm", f"rollout.server={url}", "rollout.lookahead=1", "loss.engine_correction=2"]
    if way == "transfer":
        url = serve(load(lab.config).model.path, *GLOO)
        engine = ["rollout.engine=vllm", f"rollout.server={url}", "rollout.transfer=gloo"]
    changes = [*engine, "optim.lr=0.01", "run.steps=3"]

    def command(name: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "scapo_train", *lab.run(name, *changes), *more]

    whole = subprocess.run(command("whole"), capture_output=True, text=True, timeout=1200)
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert "log-probabilities as the trainer's" in whole.stderr
    environment = {**os.environ, "GLOO_KILL": "4"}  # of the check, of the start, and of the first two steps
    process = subprocess.Popen(command("killed"), stderr=subprocess.DEVNULL, start_new_session=True, env=environment)
    if way != "transfer":
        while not (lab.folder / "killed/checkpoints/step-000001/state.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(600) == -signal.SIGKILL
    again = subprocess.run(command("killed", "--resume", "auto"), capture_output=True, text=True, timeout=1200)
    assert again.returncode == 0, again.stderr[-3000:]
    one, other = (
        [json.loads(line) for line in (lab.folder / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    assert [row["step"] for row in one] == [row["step"] for row in other] == [1, 2, 3]
    for row, same in zip(one, other, strict=True):
        assert row["mismatch"] is None if row["staleness"] else row["mismatch"] < LARGEST_GAP
        assert {k: v for k, v in row.items() if "second" not in k} == {
            k: v for k, v in same.items() if "second" not in k
        }
