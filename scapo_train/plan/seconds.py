"""Duration of each phase of a step, based on FLOPs, bandwidths and efficiencies (:class:`~.job.Assumptions`)."""

from __future__ import annotations

import math

from ..samplers.adapters import obstacle
from .hardware import GPUS_PER_MACHINE, HOST_LINK, HOST_MEMORY, HOST_SUM, NETWORK
from .job import GpuShare


def decode_seconds(*, responses: float, mean: float, longest: float, at_once: float, step: float, row: float) -> float:
    """Returns the time, in seconds, that decoding takes with continuous batching. A new response starts when one ends.

    Args:
        responses: Number of responses.
        mean: Average number of tokens per response.
        longest: Number of tokens in the longest response.
        at_once: Maximum number of simultaneous responses.
        step: Seconds per step that do not depend on the number of responses.
        row: Additional seconds per step for each response.
    """
    if not at_once:
        return math.inf
    return max(longest, responses * mean / at_once) * step + responses * mean * row


class Seconds(GpuShare):
    """Duration of one GPU's work."""

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
    def expert_flops(self) -> float:
        """FLOPs of the experts' products in one forward pass over the batch of this GPU."""
        tokens = self.rows * self.prompt_tokens + self.responses * (self.mean_response - 1)
        chosen = sum(self.shape.chosen * inputs * outputs for _, inputs, outputs in self.shape.stacks.values())
        return 2 * tokens * chosen * self.shape.layers

    @property
    def tower_flops(self) -> float:
        """FLOPs that the tower needs for one picture."""
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
        """Returns the duration of each phase of a step, in seconds."""
        config, shape, gpu, assume = self.config, self.shape, self.gpu, self.job.assume
        rate, bandwidth = gpu.flops * assume.efficiency, gpu.bandwidth * assume.bandwidth
        rate /= 1 if self.value_bytes == 2 else 2  # TF32 at best
        micros = math.ceil(self.responses / self.passes[1].responses)
        gather = gather_reference = self.value_bytes * shape.language / self._link()
        reduce = 4 * self.trained / self._link()
        if self.shards < self.count:  # the all-reduce of shards across machines: they send and receive each number
            reduce += 2 * 4 * self.trained / self.shards / (NETWORK * assume.bandwidth)
        host = HOST_LINK * assume.bandwidth * self.shards
        if self.offload:
            gather += (self.value_bytes * shape.language if self.lora else 4 * self.trained) / host
            reduce += 4 * self.trained / (HOST_SUM * self.shards)
        if config.model.reference == "cpu":
            gather_reference += self.value_bytes * shape.language / host
        forward = self.forward_flops
        slower = (1 / assume.experts - 1) * self.expert_flops  # experts reach a smaller share of the rate
        head = 2 * self.responses * self.mean_response * shape.embedding
        checkpointing = config.model.gradient_checkpointing
        again = forward - head if checkpointing else 0
        through = micros * shape.layers * assume.launch  # once through all layers
        gathers = [gather if self.lora else gather_reference] * self.kl + [gather] * (config.updates_per_batch > 1)
        computing = (2 + checkpointing) * through
        computing += (self.update_flops + again + head + (3 - self.lora + checkpointing) * slower) / rate
        copying = micros * (2 * gather + reduce)
        # a single process copies to and from host memory while the GPU waits
        update = computing + copying if self.offload and self.count == 1 else max(computing, copying)
        weights = 28 if config.optim.optimizer == "adamw" else 16  # bytes that a step reads and writes per weight
        shared = HOST_MEMORY / min(self.count, GPUS_PER_MACHINE)
        step = weights * self.trained / self.shards / (shared * assume.bandwidth if self.offload else bandwidth)
        pairs, vllm = self.job.pairs, self.job.vllm
        width, height = self.job.work.image
        reads = (
            self.pictures * (1 / config.data.workers + vllm) * width * height / (640 * 480)
        )  # vLLM reads each picture again
        return {
            "vision": self.pictures * self.tower_flops / rate if shape.shared else 0,
            "sync": self._sync_seconds(gather, bandwidth) if vllm else 0 if pairs else gather,
            "rollout": 0 if pairs else self._rollout_seconds(rate, bandwidth),
            "reward": 0 if pairs else assume.reward * self.responses,
            "logprob": sum(max(through + (forward + slower) / rate, micros * each) for each in gathers),
            "update": config.optim.inner_epochs * (update + config.optim.mini_batches * step),
            "host": assume.picture * reads + (0 if pairs else assume.response * self.responses),
        }

    def _sync_seconds(self, gather: float, bandwidth: float) -> float:
        """Returns the time in seconds for passing the weights, or the adapters alone, to vLLM and, if vLLM sleeps, for
        copying its weights to and from host memory.
        """
        rollout, experts = self.config.rollout, bool(self.shape.stacks)
        own = self.value_bytes * self.shape.total / rollout.tensor_parallel
        copies = 2 * own / HOST_LINK if rollout.sleep and rollout.sleep_level == 1 else 0
        if self.lora and rollout.adapters != "merge" and obstacle(self.config, experts, "cuda") is None:
            return self.value_bytes * self.trained * (1 / self._link() + 2 / HOST_LINK) + copies
        return gather + 2 * own / bandwidth + copies + self.job.assume.vllm_sync * self.shape.layers

    def _rollout_seconds(self, rate: float, bandwidth: float) -> float:
        shape, rollout, assume = self.shape, self.config.rollout, self.job.assume
        weights = shape.language - shape.embedding * (not shape.tied)  # including all experts, since many rows use all
        active = weights - (shape.layer - shape.active) * shape.layers
        prefill = 2 * self.prompts * self.prompt_tokens * shape.active * shape.layers / rate
        longest = min(assume.longest * self.mean_response, rollout.max_new_tokens)
        read = self.value_bytes * weights / bandwidth
        row = (self.prompt_tokens + self.mean_response / 2) * self.cache_per_token() / bandwidth + 2 * active / rate
        if self.job.vllm:
            prefill += self.pictures * self.tower_flops / rate  # vLLM encodes the pictures itself
            parallel = rollout.tensor_parallel
            responses = self.responses * parallel
            decoding = decode_seconds(
                responses=responses,
                mean=self.mean_response,
                longest=longest,
                at_once=min(responses, self.vllm_sequences()),
                step=read / parallel + assume.vllm_step,
                row=row / parallel,
            )
            return prefill + decoding
        prefill += 0 if shape.shared else self.prompts * self.tower_flops / rate
        rows = min(rollout.prompts_per_batch if shape.shared else 1, self.prompts) * rollout.group
        batches = math.ceil(self.responses / rows)
        return prefill + batches * longest * max(read + rows * row, assume.launch * shape.layers)

    def _link(self) -> float:
        """Returns the bandwidth of collective operations in bytes per second, which is infinite on a single GPU."""
        if self.count == 1:
            return math.inf
        return (
            self.gpu.link if self.shards <= GPUS_PER_MACHINE else min(self.gpu.link, NETWORK)
        ) * self.job.assume.bandwidth
