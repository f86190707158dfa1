"""Processes and checkpoints on GPUs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from scapo_train.checkpoint.save import Checkpoints  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch's own warnings are its
]
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "checkpoint_ranks.py"


def test_more_processes_than_gpus_is_a_fault_with_a_remedy(tmp_path: Path) -> None:
    gpus = torch.cuda.device_count()
    (tmp_path / "config.toml").write_text('[model]\npath = "x"\n[data]\ntrain = "x"\noracle = "x"\n')
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus + 1)]
    done = subprocess.run(
        [*launcher, "-m", "scapo_train", str(tmp_path / "config.toml")], capture_output=True, text=True, timeout=300
    )
    reason = f"{gpus + 1} processes need a GPU each, but this machine has {gpus}: --nproc-per-node {gpus}"
    assert done.stderr.count(f"scapo_train: {reason}") == 1
    assert "exitcode  : 2" in done.stderr


def test_a_checkpoint_of_a_gpu_is_read_on_the_cpu_bit_for_bit(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("checkpoint_ranks", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    toys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toys)
    toy, _ = toys.made(0)
    toy.cuda()
    optimizer = torch.optim.AdamW([p for p in toy.parameters() if p.requires_grad], lr=0.1)
    toy(torch.arange(4).cuda(), torch.ones(4, 3).cuda()).logsumexp(-1).mean().backward()
    optimizer.step()
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, toy, optimizer, {})
    latest = checkpoints.latest()
    assert latest is not None
    other, moments = toys.made(5)
    checkpoints.load(latest, other, moments)
    one, two = toys.tensors(toy, optimizer), toys.tensors(other, moments)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name].cpu(), two[name]) for name in one if "tower" not in name)
