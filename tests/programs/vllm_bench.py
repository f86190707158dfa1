"""Policy of a small model and its prompts, which the tests of training with vLLM itself compare with an engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from scapo_train.config import Config, load
from scapo_train.data import Prompts, Response, read_prompts
from scapo_train.distributed import ProcessGroup
from scapo_train.families.policy import EncodedPrompt, Policy
from scapo_train.model import load_policy, processor_of
from scapo_train.rollout import PolicySampler, encode
from scapo_train.samplers.server import ServerSampler
from scapo_train.samplers.vllm import LARGEST_GAP, VllmSampler

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
SETTINGS = ("rollout.engine=vllm", "rollout.sleep=false", "rollout.gpu_memory=0.2")
GROUP = ProcessGroup(0, 1, torch.device("cpu"))
GLOO = ("--weight-transfer-config", json.dumps({"backend": "gloo"}))
RANKS = Path(__file__).with_name("vllm_real_ranks.py")


def with_calm_attention(folder: Path) -> None:
    """Gives Qwen3's attention the usual scale.

    The tiny model's norms are of three, which multiplies its attention logits by nine: rounding then becomes up to
    1e-4 in log-probabilities (of the trainer against itself in float64, 2e-5).
    """
    file = folder / "model.safetensors"
    weights = load_file(file)
    calm = {name: weight / 3 if name.endswith(("q_norm.weight", "k_norm.weight")) else weight
            for name, weight in weights.items()}  # fmt: skip
    save_file(calm, file, {"format": "pt"})


class Bench:
    """Policy of a family, and prompts."""

    def __init__(self, lab: Any, tiny: ModuleType, family: str, *changes: str) -> None:
        path = tiny.build(lab.folder / family, family)
        with_calm_attention(path)
        self.config: Config = load(lab.config, [f"model.path={path}", *SETTINGS, *changes])
        self.policy: Policy = load_policy(self.config.model, 1.0, GROUP, lora=self.config.lora, seed=3)
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

    def same_greedy(self, sampler: VllmSampler | ServerSampler) -> float:
        """Returns the share of prompts whose greedy response equals the trainer's."""
        own = PolicySampler(self.policy, GROUP.device, self.config.rollout.max_new_tokens, 4)
        pairs = zip(own.sample(self.encoded, 0, 1, 0.0), sampler.sample(self.encoded, 0, 1, 0.0), strict=True)
        return float(np.mean([one.ids == other.ids for one, other in pairs]))

    @torch.no_grad()
    def learn(self, seed: int) -> None:
        """Gives the adapters new values."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.policy.named_parameters():
            if parameter.requires_grad:
                scale = 0.03 if ".lora_B." in name else 0.1
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))

    @torch.no_grad()
    def change(self) -> None:
        """Changes every weight of the language model."""
        generator = torch.Generator().manual_seed(1)
        for parameter in self.policy.language_model.parameters():
            parameter += 0.5 * parameter.std() * torch.randn(parameter.shape, generator=generator)


def check_two_ranks(lab: Any, *changes: str) -> None:
    """Checks that the engines of two ranks have the policy's weights before and after an update."""
    out = lab.folder / "out.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, str(RANKS), str(out), str(lab.config), *changes], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in json.loads(out.read_text()):
        before, stale, after = rank["gaps"]
        assert before < LARGEST_GAP
        assert stale > 0.1
        assert after < LARGEST_GAP
