"""A training step on a real GPU with the shapes of real models: speed, peak memory, and maximum size of allocations.

The tests are skipped without a CUDA device. ``benchmarks/train_step.py`` implements the step with random weights.
Models that are too large for the GPU have fewer layers, which affects neither the MFU nor the memory per layer.
"""

from __future__ import annotations

import gc
import importlib.util
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
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.plan.hardware import GIB  # noqa: E402
from scapo_train.plan.job import Job, Pass  # noqa: E402
from scapo_train.plan.planner import plan  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default")]  # torch's and transformers' own warnings are theirs

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "train_step.py"
THREE = "Qwen/Qwen2.5-VL-3B-Instruct"
SEVEN = "Qwen/Qwen2.5-VL-7B-Instruct"
EIGHT = "Qwen/Qwen3-VL-8B-Instruct"


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


@pytest.fixture
def process_group() -> ProcessGroup:
    """Returns a group of one process on the first GPU, whose memory is empty."""
    gc.collect()  # the trainers of earlier tests
    torch.cuda.empty_cache()
    return ProcessGroup(0, 1, torch.device("cuda", 0))


def fitting(bench: ModuleType, process_group: ProcessGroup, folder: Path, model: str, *options: str) -> Job:
    """Returns the job with as many layers as fit into the memory of the GPU."""
    layers = bench.model_config(model).get_text_config().num_hidden_layers
    total = torch.cuda.mem_get_info(process_group.device)[1]
    while layers > 1:
        folder.mkdir(exist_ok=True)
        args = bench.options().parse_args(["--model", model, "--layers", str(layers), *options])
        job: Job = bench.job_of(args, folder, process_group)
        if plan(job).needed < 0.92 * total:
            return job
        layers -= 1
    pytest.skip(f"{total / GIB:.0f} GiB hold no layer of {model}")


@pytest.mark.parametrize("model", [THREE, SEVEN, EIGHT])
def test_an_update_reaches_forty_percent_of_the_matrix_rate_in_the_planned_memory(
    bench: ModuleType, process_group: ProcessGroup, tmp_path: Path, model: str
) -> None:
    job = fitting(bench, process_group, tmp_path / "model", model, "--no-kl")
    found = bench.measure(job, process_group, rollout=False, steps=3)
    assert found.peak == pytest.approx(found.planned, rel=0.1)
    # not reached so far: 27 to 36 % on an H100 (docs/lab/training.md)
    assert found.mfu >= 0.4, f"{found.mfu:.1%} of {found.rate / 1e12:.0f} TFLOP/s"


@pytest.mark.parametrize(
    "options",  # at least two passes, since the plan counts the gradients of an earlier pass
    [
        ["--response", "64", "--prompts", "16"],
        ["--reference", "cpu", "--response", "64", "--prompts", "16"],
        ["--no-checkpointing", "--micro-batch-tokens", "2048", "--response", "64", "--prompts", "8"],
        ["--micro-batch-tokens", "16384", "--response", "64", "--prompts", "40"],
        ["--lora", "16", "--response", "64", "--prompts", "16"],
    ],
    ids=["reference", "reference-on-host", "no-checkpointing", "long-passes", "lora"],
)
def test_the_peak_of_a_whole_step_is_within_a_tenth_of_the_plan(
    bench: ModuleType, process_group: ProcessGroup, tmp_path: Path, options: list[str]
) -> None:
    job = fitting(bench, process_group, tmp_path / "model", THREE, *options)
    found = bench.measure(job, process_group, rollout=True, steps=2)
    assert found.peak == pytest.approx(found.planned, rel=0.1)


def test_the_rollouts_alone_stay_within_the_plan(
    bench: ModuleType, process_group: ProcessGroup, tmp_path: Path
) -> None:
    job = fitting(bench, process_group, tmp_path / "model", THREE, "--no-kl", "--prompts", "16", "--response", "128")
    trainer = bench.RandomTrainer(job, process_group)
    assert isinstance(trainer.sampler, PolicySampler)
    encoded = encode(trainer.policy, trainer.prompts.take(range(16)), process_group.device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trainer._sample(encoded, attempt=0)
    expected = dict(plan(job).memory["rollout"])
    expected.pop("optimizer moments")  # there has been no step yet
    assert torch.cuda.max_memory_allocated() == pytest.approx(sum(expected.values()), rel=0.1)


def allocations(snapshot: dict[str, Any]) -> list[int]:
    """Returns the sizes of all tensor allocations in a memory snapshot."""
    return [event["size"] for trace in snapshot["device_traces"] for event in trace if event["action"] == "alloc"]


def test_no_allocation_is_as_large_as_the_logits_of_a_pass(
    bench: ModuleType, process_group: ProcessGroup, tmp_path: Path
) -> None:
    job = fitting(bench, process_group, tmp_path / "model", THREE, "--prompts", "16", "--response", "192")
    trainer = bench.RandomTrainer(job, process_group, rollout=False)
    trainer.train_step()
    torch.cuda.memory._record_memory_history(context=None, max_entries=2_000_000)
    try:
        trainer.train_step()
        sizes = allocations(torch.cuda.memory._snapshot())
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    passes = Pass.within(8192, job.prompt_tokens, 192, 8, 16)
    logits = 2 * passes.responses * passes.length * job.shape.vocabulary  # in bfloat16: the least that they could take
    assert len(sizes) > 1000
    assert max(sizes) <= 1.01 * 4 * job.shape.embedding < logits  # the output layer's own gradient is the largest


def test_bfloat16_statistics_are_those_of_float32(
    bench: ModuleType, process_group: ProcessGroup, tmp_path: Path
) -> None:
    job = fitting(bench, process_group, tmp_path / "model", THREE, "--layers", "4", "--no-kl", "--prompts", "2")
    trainer = bench.RandomTrainer(job, process_group, rollout=False)
    encoded = encode(trainer.policy, trainer.prompts.take(range(2)), process_group.device)
    responses = trainer._sample(encoded, attempt=0)
    rows = [each.row([response.ids for response in responses[8 * k : 8 * k + 8]]) for k, each in enumerate(encoded)]
    batch = batch_of(rows, process_group.device)
    with torch.no_grad():
        half = trainer.policy(batch)
        trainer.policy.compute = nullcontext  # no autocast: the float32 weights themselves
        full = trainer.policy(batch)
    assert half.logprob.dtype == full.logprob.dtype == torch.float32
    assert float((half.logprob - full.logprob).abs().mean()) < 0.02
    assert float((half.entropy - full.entropy).abs().mean()) < 0.02


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU only")
def test_sharded_over_all_gpus(bench: ModuleType, tmp_path: Path) -> None:
    ranks = torch.cuda.device_count()
    job = fitting(bench, ProcessGroup(0, ranks, torch.device("cuda", 0)), tmp_path / "model", SEVEN, "--no-rollout")
    command = ["torchrun", "--nproc-per-node", str(ranks), str(PROGRAM), "--model", SEVEN, "--no-rollout"]
    command += ["--layers", str(job.shape.layers), "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    print(done.stdout, done.stderr[-2000:])
    peak = re.search(r"peak: ([0-9.]+) GiB, planned ([0-9.]+)", done.stdout)
    assert peak is not None, done.stderr[-2000:]
    assert float(peak[1]) == pytest.approx(float(peak[2]), rel=0.1)
