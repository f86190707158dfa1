"""Training on several ranks: equal gradients, equal runs, and common exit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from scapo_train.data import indices_of_step  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("warm"),
]
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "train_ranks.py"
FIRST_ONLY = "<NO_OTHER_FAILURES>"  # torchrun of torch 2.9 reports the first rank that left


def trained(lab: Any, ranks: int, *changes: str, per_machine: int | None = None) -> list[dict[str, Any]]:
    """Returns the results of the program for each list of changes."""
    imagined = {} if per_machine is None else {"RANKS_PER_MACHINE": str(per_machine)}
    out = lab.folder / f"{ranks}.pt"
    done = subprocess.run(
        lab.forked(ranks, str(PROGRAM), str(out), str(lab.config), *changes),
        capture_output=True, text=True, timeout=600, env={**os.environ, **imagined},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return torch.load(out, weights_only=True)


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Returns the relative norm of the difference over all tensors, in float64."""
    assert one.keys() == other.keys()
    apart = sum(float((one[name].double() - other[name].double()).square().sum()) for name in one)
    size = sum(float(one[name].double().square().sum()) for name in one)
    assert size > 0
    return (apart / size) ** 0.5


CUTS = ("", "optim.micro_batch_tokens=64", "optim.micro_batch_tokens=1", "rollout.prompts_per_batch=2")
NORMALISERS = [
    f"loss.normaliser={name},optim.micro_batch_tokens={size}"
    for name in ("sequences", "constant")
    for size in (8192, 64)
]
FEW = "data.prompts_per_step=1"  # the second rank has none
RUN = "run.steps=4,run.snr_every=4,optim.mini_batches=2,optim.inner_epochs=2"
EXACT = "model.dtype=float64"
SAME_GRADIENT = 1e-12  # sums of some 1e4 float64 terms in another order: 1e4 times 2^-53 at the very most
SAME_WEIGHTS = 1e-8  # Adam makes of an error of 1e-12 at most 1e-12 / 1e-8 of the learning rate, 1e-3; 16 updates


def test_gradients_and_whole_runs_do_not_depend_on_ranks_and_micro_batches(lab: Any) -> None:
    first = f"{EXACT},run.steps=1,optim.clip=0,loss.kl=0.5"
    changes = [f"{first},{change}".rstrip(",") for change in (*CUTS, *NORMALISERS, FEW)]
    changes.append(f"{EXACT},{RUN}")
    # on two ranks each kind once, and what gives the ranks different numbers of micro-batches
    twice = [k for k, each in enumerate(changes) if k in (0, 2, 5, 7) or each.endswith((FEW, RUN))]
    one = trained(lab, 1, *changes)
    two = dict(zip(twice, trained(lab, 2, *(changes[k] for k in twice)), strict=True))
    responses = one[0]["responses"]
    assert len(responses) == 5
    assert all(len({tuple(each) for each in group}) == 3 for group in responses.values())
    tokens, sequences, constant = slice(0, 4), slice(4, 6), slice(6, 8)
    for same in (tokens, sequences, constant, slice(8, 9), slice(9, 10)):
        expected = one[same.start]
        for found in (*one[same], *(two[k] for k in range(len(changes))[same] if k in two)):
            assert found["responses"] == expected["responses"]
            assert difference(expected["gradient"], found["gradient"]) <= SAME_GRADIENT
    for other in (4, 6):  # the normalisers do differ
        assert difference(one[0]["gradient"], one[other]["gradient"]) > 1e-2
    assert difference(one[-1]["weights"], two[len(changes) - 1]["weights"]) <= SAME_WEIGHTS  # after 16 updates
    (ratio,) = one[-1]["snr"]
    assert two[len(changes) - 1]["snr"] == [pytest.approx(ratio, rel=1e-4)]
    assert difference(one[-1]["weights"], one[0]["weights"]) > 1e-3


def test_offloaded_weights_and_moments_get_the_same_updates(lab: Any) -> None:
    changes = [f"{RUN},model.reference=cpu,optim.offload={there}" for there in ("false", "true")]
    changes.append(f"{changes[1]},lora.rank=4")
    for ranks in (1, 2):
        plain, offloaded, adapters = trained(lab, ranks, *changes)
        assert offloaded["responses"] == plain["responses"]
        assert difference(plain["gradient"], offloaded["gradient"]) <= 1e-7
        assert difference(plain["weights"], offloaded["weights"]) <= 1e-7
        assert not any(plain["offloads"])
        for found in (offloaded, adapters):
            assert len(found["offloads"]) > 1
            assert all(found["offloads"])
        assert adapters["gradient"].keys() != plain["gradient"].keys()


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="experts' adapters need transformers 5")
def test_adapters_of_experts_do_not_depend_on_ranks(lab: Any, tiny: ModuleType) -> None:
    pytest.importorskip("peft")
    path = tiny.build(lab.folder / "moe", "qwen3_vl_moe")
    change = f"model.path={path},lora.rank=4,run.steps=2,optim.clip=0,loss.kl=0.5"  # float32: the kernel of experts
    (one,), (two,) = trained(lab, 1, change), trained(lab, 2, change)
    assert sum(".experts." in name for name in one["gradient"]) == 2 * 2 * 2
    assert two["responses"] == one["responses"]
    assert difference(one["gradient"], two["gradient"]) <= 1e-5
    assert difference(one["weights"], two["weights"]) <= 1e-4


def test_shards_within_a_machine_get_the_same_updates(lab: Any) -> None:
    changes = [f"{EXACT},{RUN},model.shard_within={within}" for within in ("world", "machine")]
    changes.append(f"{changes[1]},optim.offload=true")
    world, *others = trained(lab, 4, *changes, per_machine=2)
    assert world["mesh"] == [4]
    for found in others:
        assert found["mesh"] == [2, 2]
        assert found["responses"] == world["responses"]
        assert difference(world["gradient"], found["gradient"]) <= SAME_GRADIENT
        assert difference(world["weights"], found["weights"]) <= SAME_WEIGHTS


def test_another_attention_on_two_ranks(lab: Any, tiny: ModuleType) -> None:
    path = tiny.build(lab.folder / "llava", "llava")
    change = f"model.path={path},run.steps=1,optim.clip=0,loss.kl=0.5,data.prompts_per_step=2"
    (one,), (two,) = trained(lab, 1, change), trained(lab, 2, f"{change},model.attention=eager")
    assert two["responses"] == one["responses"]
    assert difference(one["gradient"], two["gradient"]) <= 1e-4


def started(lab: Any, *changes: str) -> subprocess.Popen[str]:
    """Starts a run on two ranks, and returns after its first step."""
    arguments = lab.run("run", "run.steps=100000", "run.save_every=1", *changes)
    process = subprocess.Popen(lab.command(2, *arguments), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 6000
    metrics = lab.folder / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def workers(process: subprocess.Popen[str]) -> list[int]:
    """Returns the process ids of the ranks, in order."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return sorted(map(int, text.split()))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_when_a_rank_is_killed_all_leave_and_say_which(lab: Any, rank: int) -> None:
    process = started(lab)
    ranks = workers(process)
    os.kill(ranks[rank], signal.SIGKILL)
    _, said = process.communicate(timeout=600)  # well below the timeout of a collective operation
    assert process.returncode == 1  # torchrun's own
    assert f"scapo_train: rank {rank} (process {ranks[rank]} on " in said
    assert "has exited without a message: it was killed" in said
    assert said.count("has exited without a message") == 1
    assert "resume from the last checkpoint with --resume auto" in said
    assert "exitcode  : 75" in said or FIRST_ONLY in said
    before_torchrun = said.partition("all ranks exit")[0]
    assert "Traceback" not in before_torchrun
    assert all(not Path(f"/proc/{each}").exists() for each in ranks)


def test_a_fault_of_one_rank_ends_all_with_its_reason(lab: Any) -> None:
    """A fault of which the ranks do not tell each other."""
    fault = BROKEN.replace("KeyError('mine')", "InputError('its fault')")
    (lab.folder / "mine.py").write_text(f"from scapo_eval.base.errors import InputError\n{fault}")
    arguments = lab.run("run", f"credit.scheme={lab.folder / 'mine.py'}:broken", "run.samples=0")
    done = subprocess.run(lab.forked(2, "-m", "scapo_train", *arguments), capture_output=True, text=True, timeout=600)
    said = done.stderr
    assert done.returncode == 1
    reason = "scapo_train: rank 1: its fault"
    assert reason in said
    assert "Traceback" not in said.partition(reason)[0]
    codes = re.findall(r"exitcode  : (-?\d+)", said)
    assert "2" in codes
    assert {*codes} <= {"2", "-15"}, codes  # torchrun ends what has not left by itself when it sees the first
    assert len(codes) == (1 if FIRST_ONLY in said else 2)


def test_a_prompt_that_is_too_long_for_one_rank_is_said_once(lab: Any) -> None:
    lines = (lab.folder / "train.jsonl").read_text().splitlines(keepends=True)
    (lab.folder / "train.jsonl").write_text(lines[0] + lines[1].replace("Describe", "a " * 600))
    arguments = lab.run("run", "data.prompts_per_step=2", "optim.micro_batch_tokens=8192", "run.samples=0")
    done = subprocess.run(lab.forked(2, "-m", "scapo_train", *arguments), capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert done.stderr.count(f"scapo_train: {lab.folder}/images/2.png: its prompt has ") == 1


def test_too_many_bad_pictures_of_one_rank_end_all_ranks_together(lab: Any) -> None:
    """The reason is printed once, and the completed steps are saved."""
    settings = ("data.prompts_per_step=2", "data.max_bad=0", "run.samples=0", "run.save_every=0", "run.export=false")
    late = indices_of_step(2, 12, 2, 0)[0]
    picture = lab.folder / "images" / f"{late + 1}.png"
    content = picture.read_bytes()
    picture.write_text("hello")
    command = lab.forked(2, "-m", "scapo_train", *lab.run("run", *settings))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    reason = (
        f"scapo_train: {picture}: cannot be read, like 0 others: more than data.max_bad = 0; after step 2: continue"
    )
    assert done.returncode == 1
    assert done.stderr.count(reason) == 1
    picture.write_bytes(content)
    done = subprocess.run([*command, "--resume", "auto"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "resumed after step 2" in done.stderr


BROKEN = """import os
import numpy as np
def broken(sampled):
    if os.environ['RANK'] == '1':
        raise KeyError('mine')
    return [np.zeros(len(each), dtype=np.float32) for each in sampled.offsets]
"""


def test_an_error_of_one_rank_is_shown_with_its_trace_and_ends_all(lab: Any) -> None:
    (lab.folder / "mine.py").write_text(BROKEN)
    done = subprocess.run(
        lab.forked(2, "-m", "scapo_train", *lab.run("run", f"credit.scheme={lab.folder / 'mine.py'}:broken")),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    said = done.stderr
    assert "scapo_train: KeyError on rank 1:" in said
    assert "raise KeyError('mine')" in said
    codes = re.findall(r"exitcode +: (-?\d+)", said)
    assert "1" in codes
    assert {*codes} <= {"1", "-15"}, codes  # torchrun ends what has not left by itself when it sees the first
    assert len(codes) == (1 if FIRST_ONLY in said else 2)


def test_a_fault_that_all_ranks_see_is_said_once(lab: Any) -> None:
    done = subprocess.run(
        lab.forked(2, "-m", "scapo_train", *lab.run("run", "model.path=/nowhere")),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stderr.count("scapo_train: /nowhere: folder not found") == 1
    assert "rank 1:" not in done.stderr
    assert "Traceback" not in done.stderr.partition("/nowhere")[0]
    codes = re.findall(r"exitcode +: (-?\d+)", done.stderr)
    assert "2" in codes
    assert set(codes) <= {"2", "-15"}  # torchrun ends a rank that is slower to say it


def test_sigterm_to_torchrun_saves_and_leaves(lab: Any) -> None:
    process = started(lab, "run.save_every=0")
    process.terminate()
    _, said = process.communicate(timeout=600)
    assert process.returncode != 0
    steps = len((lab.folder / "run" / "metrics.jsonl").read_text().splitlines())
    assert f"scapo_train: stopped after step {steps} of 100000: continue with --resume auto" in said
    assert [path.name for path in (lab.folder / "run" / "checkpoints").iterdir()] == [f"step-{steps:06d}"]
    assert "has exited without a message" not in said
