"""Samples with the stand-in for vLLM on several ranks that shard the policy. Started by torchrun.

    torchrun --nproc-per-node 2 vllm_ranks.py OUT.json CONFIG

The first rank has two prompts, and the second rank has one prompt. For every rank, with separate engines, with a shared
engine, and with adapters that are sent alone, the program writes the greedy responses, the requests to the engine, the
names of the weights that it received, and the greedy responses of vLLM and of the trainer after a change of the
weights.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from scapo_eval.engines.hf import load_processor
from scapo_train.config import Config, load
from scapo_train.data import Prompts, read_prompts
from scapo_train.distributed import ProcessGroup, join_process_group, leave
from scapo_train.model import load_policy
from scapo_train.rollout import PolicySampler, encode
from scapo_train.samplers.vllm import VllmSampler, shapes, weights


def found(config: Config, process_group: ProcessGroup, vllm: Any) -> dict[str, Any]:
    """Returns the results of a rank."""
    policy = load_policy(config.model, config.rollout.temperature, process_group, lora=config.lora, seed=3)
    processor = load_processor(config.model.path)
    maker = Prompts(read_prompts(config.data.train, config.data.images), processor, 0)
    encoded = encode(policy, maker.take([[0, 1], [2]][process_group.rank]), process_group.device)
    maker.close()
    sampler = VllmSampler(config, policy, processor, process_group)
    engine = vllm.made[-1]
    engine.asked.clear()
    own = PolicySampler(policy, process_group.device, config.rollout.max_new_tokens, 4)

    def greedy(by: Any) -> list[list[int]]:
        return [each.ids for each in by.sample(encoded, 0, 1, 0.0)]

    sampler.sync()
    first, asked = greedy(sampler), list(engine.asked)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.mul_(-1).add_(0.02)  # an adapter's second matrix is zero
    sampler.sync()
    return {
        "executor": engine.given["distributed_executor_backend"],
        "names": [(name, list(weight.shape)) for name, weight in weights(policy, torch.float64)],
        "declared": list(shapes(policy)),
        "asked": asked,
        "greedy": first,
        "learned": greedy(sampler),
        "trainer": greedy(own),
    }


def main() -> None:
    """Runs the program."""
    out, path = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("stand_in_vllm", Path(__file__).parents[1] / "stand_in_vllm.py")
    assert spec is not None
    assert spec.loader is not None
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    package = stand_in.install(list(stand_in.releases())[-1])
    with join_process_group() as process_group:
        cases = {size: [f"rollout.tensor_parallel={size}"] for size in ("1", "2")}
        if find_spec("peft"):
            cases["adapters"] = ["lora.rank=4", "rollout.sleep_level=1", "rollout.adapters=request"]
        both = {}
        for case, changes in cases.items():
            config = load(path, ["rollout.engine=vllm", "model.dtype=float64", *changes])
            both[case] = process_group.gather(found(config, process_group, package))
        if process_group.main:
            Path(out).write_text(json.dumps(both))


if __name__ == "__main__":
    main()
    leave(0)
