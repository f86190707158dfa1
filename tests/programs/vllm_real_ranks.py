"""Samples with vLLM itself on several ranks that shard the policy. Started by torchrun.

    torchrun --nproc-per-node 2 vllm_real_ranks.py OUT.json CONFIG SETTING...

The first rank has two prompts, and the second rank has one prompt. For every rank, the program writes the largest
difference from the trainer's log-probabilities before an update, after it with the old weights, and after it with the
new weights. It also writes the tokens of the responses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scapo_train.config import load
from scapo_train.data import Prompts, Response, read_prompts
from scapo_train.distributed import ProcessGroup, join_process_group, leave
from scapo_train.model import load_policy, processor_of
from scapo_train.rollout import encode
from scapo_train.samplers.server import ServerSampler
from scapo_train.samplers.vllm import VllmSampler


def found(path: str, changes: list[str], group: ProcessGroup) -> dict[str, Any]:
    """Returns the results of a rank."""
    config = load(path, ["rollout.engine=vllm", "rollout.sleep=false", "rollout.gpu_memory=0.15", *changes])
    policy = load_policy(config.model, config.rollout.temperature, group)
    processor = processor_of(config.model)
    maker = Prompts(read_prompts(config.data.train, config.data.images), processor, 0)
    encoded = encode(policy, maker.take([[0, 1], [2]][group.rank]), group.device)
    maker.close()
    kind = ServerSampler if config.rollout.server else VllmSampler
    sampler = kind(config, policy, processor, group)  # with its own check

    @torch.no_grad()
    def gap(responses: list[Response]) -> float:
        rows = [each.row([one.ids]) for each, one in zip(encoded, responses, strict=True)]
        own = policy(policy.batch(rows, group.device)).logprob.numpy()
        given = np.concatenate([one.logprobs for one in responses if one.logprobs is not None])
        return float(np.abs(own - given).max())

    sampler.sync()
    first = sampler.sample(encoded, 1, 1, 1.0)
    gaps = [gap(first)]
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.mul_(-1)
    gaps.append(gap(sampler.sample(encoded, 1, 1, 1.0)))
    sampler.sync()
    gaps.append(gap(sampler.sample(encoded, 1, 1, 1.0)))
    if config.rollout.server:
        sampler.close()
    return {"gaps": gaps, "ids": [one.ids for one in first]}


def main() -> None:
    """Runs the program."""
    out, path, *changes = sys.argv[1:]
    with join_process_group() as group:
        both = group.gather(found(path, changes, group))
        if group.main:
            Path(out).write_text(json.dumps(both))


if __name__ == "__main__":
    main()
    leave(0)
