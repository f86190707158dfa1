"""Colocated training with vLLM itself (``bash .ci/engines vllm``, on a CPU, in float32). Otherwise, it is skipped.

There is one engine per family, because a start takes half a minute. The measurements are written to
``$SCAPO_ENGINE_TABLE``, as one row of a Markdown table per family.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
pytest.importorskip("peft")
import torch
import vllm
from vllm.distributed import cleanup_dist_env_and_memory

from scapo_train.checkpoint.save import export
from scapo_train.config import Config, Lora, load
from scapo_train.data import Prompts, Response, read_prompts
from scapo_train.distributed import ProcessGroup
from scapo_train.families.policy import EncodedPrompt, Policy
from scapo_train.model import load_policy, processor_of
from scapo_train.rollout import PolicySampler, encode
from scapo_train.samplers.vllm import LARGEST_GAP, VllmSampler, _unpacked

pytestmark = pytest.mark.usefixtures("quiet_loggers")
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
SETTINGS = ("rollout.engine=vllm", "rollout.sleep=false", "rollout.gpu_memory=0.2")
GROUP = ProcessGroup(0, 1, torch.device("cpu"))
RANKS = Path(__file__).resolve().parents[2] / "programs" / "vllm_real_ranks.py"


class Bench:
    """Policy of a family, and prompts."""

    def __init__(self, lab: Any, tiny: ModuleType, family: str, *changes: str) -> None:
        path = tiny.build(lab.folder / family, family)
        self.config: Config = load(lab.config, [f"model.path={path}", *SETTINGS, *changes])
        self.policy: Policy = load_policy(self.config.model, 1.0, GROUP)
        self.processor = processor_of(self.config.model)
        self.encoded = self.prepared(self.policy)

    def prepared(self, policy: Policy) -> list[EncodedPrompt]:
        maker = Prompts(read_prompts(self.config.data.train, self.config.data.images), self.processor, 0)
        encoded = encode(policy, maker.take(range(4)), GROUP.device)
        maker.close()
        return encoded

    @torch.no_grad()
    def gap(self, responses: Sequence[Response], policy: Policy | None = None) -> float:
        """Returns the largest difference of log-probabilities, in nats."""
        policy, each = policy or self.policy, len(responses) // len(self.encoded)
        rows = [
            prompt.row([one.ids for one in responses[each * k : each * k + each]])
            for k, prompt in enumerate(self.encoded)
        ]
        own = policy(policy.batch(rows, GROUP.device)).logprob.numpy()
        given = np.concatenate([one.logprobs for one in responses if one.logprobs is not None])
        return float(np.abs(own - given).max())

    def same_greedy(self, sampler: VllmSampler) -> float:
        """Returns the share of prompts whose greedy response equals the trainer's."""
        own = PolicySampler(self.policy, GROUP.device, self.config.rollout.max_new_tokens, 4)
        pairs = zip(own.sample(self.encoded, 0, 1, 0.0), sampler.sample(self.encoded, 0, 1, 0.0), strict=True)
        return float(np.mean([one.ids == other.ids for one, other in pairs]))

    @torch.no_grad()
    def change(self) -> None:
        """Changes every weight of the language model."""
        generator = torch.Generator().manual_seed(1)
        for parameter in self.policy.language_model.parameters():
            parameter += 0.5 * parameter.std() * torch.randn(parameter.shape, generator=generator)


def reload_from(sampler: VllmSampler, folder: Path) -> None:
    """Loads the files of another model with vLLM's own loader."""
    sampler._llm.apply_model(_unpacked)
    sampler._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
    sampler._llm.reset_prefix_cache()
    sampler._llm.llm_engine.reset_encoder_cache()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Yields the rows of the table."""
    rows: list[str] = []
    yield rows
    if path := os.environ.get("SCAPO_ENGINE_TABLE"):
        head = "family | vLLM | greedy answers equal | gap before an update | after it | export | adapters | sync"
        lines = [head, "|".join(["---"] * len(head.split("|"))), *rows]
        Path(path).write_text("".join(f"| {line} |\n" for line in lines))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_has_the_policys_weights_before_and_after_an_update(
    lab: Any, tiny: ModuleType, family: str, table: list[str]
) -> None:
    bench = Bench(lab, tiny, family)
    sampler = VllmSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check
    try:
        sampler.sync()
        first = sampler.sample(bench.encoded, 1, 4, 1.0)
        before = bench.gap(first)
        assert before < LARGEST_GAP
        assert [one.ids for one in sampler.sample(bench.encoded, 1, 4, 1.0)] == [one.ids for one in first]
        assert len({tuple(one.ids) for one in first}) > 8
        assert not {token for one in first for token in one.ids} & set(bench.policy.never)
        same = bench.same_greedy(sampler)
        assert same == 1.0

        bench.change()
        assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) > 0.1  # vLLM has the former weights
        start = time.perf_counter()
        sampler.sync()
        seconds = time.perf_counter() - start
        after = bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0))
        assert after < LARGEST_GAP
        assert bench.same_greedy(sampler) == 1.0

        adapted = load_policy(bench.config.model, 1.0, GROUP, lora=Lora(rank=4), seed=3)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if ".lora_B." in name:
                    parameter.normal_(std=0.03)
        policy, sampler._policy = sampler._policy, adapted
        sampler.sync()
        drawn = sampler.sample(bench.encoded, 3, 4, 1.0)
        of_adapters = bench.gap(drawn, adapted)
        assert of_adapters < LARGEST_GAP
        assert bench.gap(drawn) > 0.01
        sampler._policy = policy

        served = lab.folder / "export"
        export(bench.policy.vlm, Path(bench.config.model.path), served, torch.float32)
        reload_from(sampler, served)
        of_export = bench.gap(sampler.sample(bench.encoded, 4, 4, 1.0))
        assert of_export < LARGEST_GAP
    finally:
        sampler.close()
        cleanup_dist_env_and_memory()
    gaps = " | ".join(f"{gap:.1e}" for gap in (before, after, of_export, of_adapters))
    table.append(f"{family} | {vllm.__version__} | {same:.0%} | {gaps} | {seconds:.2f} s")


@pytest.mark.parametrize("size", [1, 2], ids=["an-engine-each", "tensor-parallel"])
def test_two_ranks(lab: Any, size: int) -> None:
    out = lab.folder / "out.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, str(RANKS), str(out), str(lab.config), str(size)], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in json.loads(out.read_text()):
        before, stale, after = rank["gaps"]
        assert before < LARGEST_GAP
        assert stale > 0.1
        assert after < LARGEST_GAP


def test_a_run_that_is_killed_goes_on_to_the_same_end(lab: Any) -> None:
    """Kills the complete command with SIGKILL (rollouts, update, synchronization, checkpoints, export), and runs it
    again.
    """
    changes = [*SETTINGS, "optim.lr=0.01", "run.steps=3"]

    def command(name: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "scapo_train", *lab.run(name, *changes), *more]

    whole = subprocess.run(command("whole"), capture_output=True, text=True, timeout=1200)
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert "log-probabilities as the trainer's" in whole.stderr
    process = subprocess.Popen(command("killed"), stderr=subprocess.DEVNULL, start_new_session=True)
    while not (lab.folder / "killed/checkpoints/step-000001/state.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again = subprocess.run(command("killed", "--resume", "auto"), capture_output=True, text=True, timeout=1200)
    assert again.returncode == 0, again.stderr[-3000:]
    one, other = (
        [json.loads(line) for line in (lab.folder / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    assert [row["step"] for row in one] == [row["step"] for row in other] == [1, 2, 3]
    for row, same in zip(one, other, strict=True):
        assert row["mismatch"] < LARGEST_GAP
        assert {k: v for k, v in row.items() if "second" not in k} == {
            k: v for k, v in same.items() if "second" not in k
        }
