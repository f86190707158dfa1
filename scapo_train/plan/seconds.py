"""Seconds per phase of a step, from FLOPs, bandwidths and the efficiencies of :class:`~.job.Assumptions`."""

from __future__ import annotations

import math

from .hardware import GPUS_PER_MACHINE, NETWORK
from .job import GpuShare


class Seconds(GpuShare):
    """Duration of the work of one GPU."""

    @property
    def forward_flops(self) -> float:
        """FLOPs of one forward pass over the batch of this GPU, including attention and the output layer."""
        shape = self.shape
        inner = self.mean_response - 1
        tokens = self.rows * self.prompt_tokens + self.responses * inner
        scores = self.rows * self.prompt_tokens**2 / 2 + self.responses * inner * (self.prompt_tokens + inner)
        share = shape.chosen / next(number for number, _, _ in shape.stacks.values()) if shape.stacks else 0
        adapters = self.adapters - (1 - share) * self.stack_adapters
        linear = 2 * tokens * (shape.active * shape.layers + adapters)
        attention = 4 * scores * shape.heads * shape.head_dim * shape.layers
        tower = 0 if shape.shared else self.responses * self.tower_flops
        return linear + attention + 2 * self.responses * self.mean_response * shape.embedding + tower

    @property
    def tower_flops(self) -> float:
        """FLOPs of one picture in the tower."""
        return 2 * self.shape.tower * self.picture.patches

    @property
    def update_flops(self) -> float:
        """FLOPs of a forward and a backward pass, without recomputation and without gradients of frozen weights."""
        shape = self.shape
        tokens = self.rows * self.prompt_tokens + self.responses * (self.mean_response - 1)
        weights = 2 * tokens * shape.active * shape.layers + 2 * self.responses * self.mean_response * shape.embedding
        tower = 0 if shape.shared else self.responses * self.tower_flops  # no backward pass
        return 3 * self.forward_flops - (weights if self.lora else 0) - 2 * tower

    def seconds(self) -> dict[str, float]:
        """Returns the seconds per step by phase."""
        config, shape, gpu, assume = self.config, self.shape, self.gpu, self.job.assume
        rate, bandwidth = gpu.flops * assume.efficiency, gpu.bandwidth * assume.bandwidth
        rate /= 1 if self.value_bytes == 2 else 2  # TF32 at best
        micros = math.ceil(self.responses / self.passes[1].responses)
        gather = self.value_bytes * shape.language / self._link()
        reduce = 4 * self.trained / self._link()
        forward = self.forward_flops
        head = 2 * self.responses * self.mean_response * shape.embedding
        again = forward - head if config.model.gradient_checkpointing else 0
        passes = int(self.kl) + int(config.updates_per_batch > 1)
        update = max((self.update_flops + again + head) / rate, micros * (2 * gather + reduce))
        weights = 28 if config.optim.optimizer == "adamw" else 16  # bytes that a step reads and writes per weight
        step = weights * self.trained / self.count / bandwidth
        epochs = config.optim.inner_epochs
        return {
            "vision": self.pictures * self.tower_flops / rate if shape.shared else 0,
            "rollout": 0 if self.job.pairs else self._rollout_seconds(rate, bandwidth) + gather,
            "reward": 0 if self.job.pairs else assume.reward * self.responses,
            "logprob": passes * max(forward / rate, micros * gather),
            "update": epochs * (update + config.optim.mini_batches * step),
        }

    def _rollout_seconds(self, rate: float, bandwidth: float) -> float:
        shape, rollout, assume = self.shape, self.config.rollout, self.job.assume
        weights = shape.language - shape.embedding * (not shape.tied)  # including all experts, since many rows use all
        active = weights - (shape.layer - shape.active) * shape.layers
        prefill = 2 * self.prompts * self.prompt_tokens * shape.active * shape.layers / rate
        prefill += 0 if shape.shared else self.prompts * self.tower_flops / rate
        steps = min(assume.longest * self.mean_response, rollout.max_new_tokens)

        def step(rows: float) -> float:
            read = (
                self.value_bytes * weights
                + rows * (self.prompt_tokens + self.mean_response / 2) * self.cache_per_token()
            )
            return max(read / bandwidth, 2 * active * rows / rate)

        if self.job.vllm:  # a new response starts when another ends
            rows = min(self.responses, self.vllm_sequences())
            return prefill + self.responses / rows * steps * (step(rows) + assume.vllm_step) if rows else math.inf
        rows = min(rollout.prompts_per_batch if shape.shared else 1, self.prompts) * rollout.group
        batches = math.ceil(self.responses / rows)
        return prefill + batches * steps * max(step(rows), assume.launch * shape.layers)

    def _link(self) -> float:
        """Returns the bytes per second of collective operations, which are infinite on a single GPU."""
        if not self.sharded:
            return math.inf
        return (
            self.gpu.link if self.count <= GPUS_PER_MACHINE else min(self.gpu.link, NETWORK)
        ) * self.job.assume.bandwidth
