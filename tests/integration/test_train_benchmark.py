"""Benchmark of a step and code paths of a GPU, run on a CPU so that faults in the code for ``tests/gpu`` are
noticed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train import logprob  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families import packing  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.rollout import encode  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "train_step.py"
GROUP = ProcessGroup(0, 1, torch.device("cpu"))
PHASES = {"data", "vision", "rollout", "logprob", "reward", "update", "sync"}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """Returns the benchmark as a module."""
    spec = importlib.util.spec_from_file_location("train_step", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_step"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def job(bench: ModuleType, folder: Path, *options: str) -> Any:
    """Returns a job with the small model."""
    return bench.job_of(bench.options().parse_args(["--tiny", *options]), folder, GROUP)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--reference", "cpu"],
        ["--no-checkpointing", "--no-kl"],
        ["--micro-batch-tokens", "64"],
        ["--lora", "4"],
    ],
    ids=["default", "reference-on-host", "no-checkpointing", "short-passes", "lora"],
)
def test_a_step_runs(bench: ModuleType, tmp_path: Path, options: list[str]) -> None:
    if "--lora" in options:
        pytest.importorskip("peft")
    found = bench.measure(job(bench, tmp_path, *options), GROUP, rollout="--lora" not in options, steps=2)
    assert found.seconds.keys() == PHASES
    assert math.isfinite(found.loss)
    assert found.planned > 0


def test_weights_that_stay_in_host_memory_are_made_there(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU would otherwise hold a copy, and ``load_policy`` receives weights in host memory from files."""
    places: list[bool] = []

    def noted(_: Any, *, on_host: bool) -> Any:
        places.append(on_host)
        return nullcontext()

    monkeypatch.setattr(bench, "random_weights", noted)
    monkeypatch.setattr(bench, "load_policy", lambda *_, **__: None)
    for options in ([], ["--reference", "cpu"], ["--offload"]):
        trainer = object.__new__(bench.RandomTrainer)
        trainer.config, trainer.process_group = job(bench, tmp_path, *options).config, GROUP
        trainer.load_models()
    assert places == [False, False, False, True, True, False]  # of the policy and of the reference


@pytest.mark.parametrize("options", [[], ["--no-rollout", "--no-kl", "--offload"]], ids=["default", "offload"])
@pytest.mark.usefixtures("warm")
def test_two_ranks_run_a_step(lab: Any, options: list[str]) -> None:
    done = subprocess.run(lab.forked(2, str(PROGRAM), "--tiny", *options), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    loss = re.search(r"2 x cpu; 4 prompts x 8 responses of 24 tokens a rank; loss (\S+)", done.stdout)
    assert loss is not None
    assert math.isfinite(float(loss[1]))
    assert {line.split()[0] for line in done.stdout.splitlines() if line.strip()} >= PHASES


def gradients(trainer: Any) -> tuple[float, dict[str, Any]]:
    """Returns the loss and the gradients of the first update, before clipping."""
    found: dict[str, Any] = {}

    def keep(*_: Any) -> None:
        named = trainer.policy.named_parameters()
        found.update({name: each.grad.clone() for name, each in named if each.grad is not None})

    trainer.optimizer.register_step_pre_hook(keep)
    return float(trainer.train_step()["loss"]), found


def test_the_branches_of_a_gpu_compute_the_same(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares the code paths of a GPU: its chunk sizes, no tensors kept for backward, keys and values repeated for its
    kernel, and fused norms.
    """
    made = job(bench, tmp_path)
    made = dataclasses.replace(
        made,
        config=dataclasses.replace(
            made.config,
            model=dataclasses.replace(made.config.model, dtype="float32"),
            optim=dataclasses.replace(made.config.optim, clip=0.0),
        ),
    )
    runs = []
    for forced in (False, True):
        if forced:
            monkeypatch.setattr(logprob, "CHUNK_ELEMENTS", {"cpu": logprob.CHUNK_ELEMENTS["cuda"] // 2**10})
            monkeypatch.setattr(logprob, "CHUNK_TOKENS", {})
            monkeypatch.setattr(logprob, "KEPT_ELEMENTS", {})
            monkeypatch.setattr(packing, "takes_groups", lambda query: False)
            monkeypatch.setattr(packing, "takes_fused_norms", lambda hidden: True)
        torch.manual_seed(0)
        runs.append(gradients(bench.RandomTrainer(made, GROUP, rollout=False)))
    (loss, own), (forced_loss, other) = runs
    assert loss == pytest.approx(forced_loss, abs=1e-6)
    assert own.keys() == other.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(other[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()))


def test_bfloat16_statistics_are_those_of_float32(bench: ModuleType, tmp_path: Path) -> None:
    trainer = bench.RandomTrainer(job(bench, tmp_path, "--no-kl"), GROUP, rollout=False)
    encoded = encode(trainer.policy, trainer.prompts.take(range(2)), GROUP.device)
    responses = trainer._sample(encoded, attempt=0)
    rows = [each.row([response.ids for response in responses[8 * k : 8 * k + 8]]) for k, each in enumerate(encoded)]
    batch = batch_of(rows, GROUP.device)
    with torch.no_grad():
        half = trainer.policy(batch)
        trainer.policy.compute = nullcontext  # no autocast: the float32 weights themselves
        full = trainer.policy(batch)
    assert half.logprob.dtype == full.logprob.dtype == torch.float32
    assert float((half.logprob - full.logprob).abs().mean()) < 0.02
    assert float((half.entropy - full.entropy).abs().mean()) < 0.02
