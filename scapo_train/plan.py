"""What a run needs before it is started: bytes per GPU at each moment of a step, and seconds per phase.

    python -m scapo_train.plan qwen2_5_vl_7b --gpus 8xH100

The model is built on the meta device, so its sizes are exact and nothing is downloaded. Bytes follow from what
the code of this package keeps: what a layer saves was counted from the tensors that autograd keeps, and
``tests/unit/test_train_plan.py`` measures it again, with the peak of a whole pass. Seconds follow from arithmetic,
bandwidth and the efficiencies of :class:`Assumptions`; they tell minutes from hours, no more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from scapo_eval.errors import InputError, ScapoError

from .config import Config, load
from .logprob import CHUNK_ELEMENTS
from .shapes import Shape, shape_of

GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: what PyTorch can use of its memory, and the maker's figures.

    Attributes:
        memory: bytes that ``torch.cuda.mem_get_info`` shows as the total.
        flops: dense bfloat16 matrix products, per second.
        bandwidth: of its memory, bytes per second.
        link: to the other GPUs of its machine, bytes per second in one direction.
    """

    memory: float
    flops: float
    bandwidth: float
    link: float


GPUS = {
    "A100-40": Gpu(39.4 * GIB, 312e12, 1.56e12, 300e9),
    "A100-80": Gpu(79.2 * GIB, 312e12, 2.04e12, 300e9),
    "H100": Gpu(79.2 * GIB, 989e12, 3.35e12, 450e9),
    "H200": Gpu(139.8 * GIB, 989e12, 4.8e12, 450e9),
    "B200": Gpu(178.0 * GIB, 2250e12, 7.7e12, 900e9),
    "L40S": Gpu(44.4 * GIB, 362e12, 0.864e12, 25e9),
    "A6000": Gpu(47.4 * GIB, 155e12, 0.768e12, 25e9),
    "RTX4090": Gpu(23.5 * GIB, 165e12, 1.01e12, 25e9),
    "RTX5090": Gpu(31.4 * GIB, 209e12, 1.79e12, 50e9),
}
"""NVIDIA's data sheets (SXM where there are several); L40S and the RTX cards talk over PCIe."""

PER_MACHINE = 8
NETWORK = 50e9
"""Bytes per second and GPU between machines: a 400 Gbit/s adapter each."""


@dataclass(frozen=True)
class Workload:
    """What the prompts and responses are like.

    Attributes:
        image: width and height in pixels (640x480: most of COCO).
        prompt_tokens: of the text around the picture, the chat template's included.
        response_tokens: of an average response; memory is planned for ``rollout.max_new_tokens``.
        prompts: in the training file.
    """

    image: tuple[int, int] = (640, 480)
    prompt_tokens: int = 30
    response_tokens: int = 192
    prompts: int = 5000


@dataclass(frozen=True)
class Assumptions:
    """What the seconds rest on.

    Attributes:
        efficiency: share of the bfloat16 rate that forward and backward passes reach.
        bandwidth: share of the memory's and the links' bandwidth.
        launch: seconds per decoder layer and token that transformers' decoding takes to start its kernels.
        vllm_step: seconds that vLLM adds to each decoding step.
        longest: how many times the average the longest response of a batch is.
        reward: seconds per response (measured: docs/performance.md).
    """

    efficiency: float = 0.45
    bandwidth: float = 0.7
    launch: float = 0.9e-3
    vllm_step: float = 3e-3
    longest: float = 1.6
    reward: float = 23e-6


@dataclass(frozen=True)
class Pass:
    """What one forward and backward pass takes at most, if every response has the same length.

    Attributes:
        prompts, responses: how many, of prompt and length tokens each.
        tokens: of all of them; a response's last one predicts nothing.
        keys: that the responses' attention reads: each its prompt and itself.
        scores: of responses with keys, per head.
    """

    prompts: int
    responses: int
    prompt: int
    length: int

    @property
    def tokens(self) -> int:
        return self.prompts * self.prompt + self.responses * (self.length - 1)

    @property
    def keys(self) -> int:
        return self.responses * (self.prompt + self.length - 1)

    @property
    def scores(self) -> int:
        return self.keys * (self.length - 1)

    @staticmethod
    def within(budget: int, prompt: int, length: int, group: int, prompts: int) -> Pass:
        """The largest pass that :meth:`scapo_train.trainer.Trainer` cuts: whole groups, or part of one."""
        row = prompt + group * (length - 1)
        if row <= budget:
            count = min(prompts, budget // row)
            return Pass(count, count * group, prompt, length)
        return Pass(1, max(1, (budget - prompt) // max(1, length - 1)), prompt, length)


CONTEXT = 1.5 * GIB
"""CUDA context, NCCL's buffers and cuBLAS's workspace: memory that is not PyTorch's tensors."""

FRAGMENTATION = 0.04
"""Share of the peak that PyTorch's allocator holds and cannot hand out."""

ASLEEP = 1.5 * GIB
"""What a sleeping vLLM keeps: its context and CUDA graphs."""

VLLM_WORK = 3 * GIB
"""What vLLM needs beside weights and cache: its context, graphs and largest batch."""

GATHERED = 3
"""Decoder layers that are unsharded at once: the one that computes, the next one, and the buffer it arrives in."""

PICTURES = 16
"""Pictures that are encoded at once (:func:`scapo_train.rollout.encode`)."""

DRAWING = 2**22 * 32
"""Bytes that drawing tokens takes beside the logits (:func:`scapo_train.rollout._drawn`)."""

MOMENTS = ("vision", "rollout", "logprob", "update")


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes:
        memory: moment of a step -> kind -> bytes per GPU.
        seconds: phase -> seconds per step.
        peak_moment, peak: the largest sum; without vLLM, what ``torch.cuda.max_memory_allocated`` will show.
        needed: with the context and fragmentation.
        available: of the GPU.
        mfu: share of the GPU's rate that the update's model arithmetic (without recomputation) makes.
        notes: what the user should know.
        remedies: sets of ``--set`` values, or other GPUs, with which it would fit; empty if it fits.
    """

    memory: dict[str, dict[str, float]]
    seconds: dict[str, float]
    peak_moment: str
    peak: float
    needed: float
    available: float
    mfu: float
    notes: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether the GPU has the memory."""
        return self.needed <= self.available and all(math.isfinite(each) for each in self.seconds.values())


@dataclass(frozen=True)
class Job:
    """The question: a configuration of a model, on some GPUs, with prompts and responses of some length.

    Attributes:
        config: of the run.
        shape: of its model.
        kind: name of the GPUs in :data:`GPUS`; count: how many.
        work: prompts and responses.
        assume: what the seconds rest on.

    Raises:
        ScapoError: these GPUs cannot share this work at all, or the dtype is not one to train with.
    """

    config: Config
    shape: Shape
    kind: str
    count: int = 1
    work: Workload = Workload()
    assume: Assumptions = Assumptions()

    def __post_init__(self) -> None:
        prompts, parallel = self.config.data.prompts_per_step, self.config.rollout.tensor_parallel
        if self.config.model.dtype == "float64":
            raise ScapoError("model.dtype = float64 is for comparing computations: a plan knows bfloat16 and float32")
        if self.count > prompts:
            reason = f"{self.count} GPUs, but data.prompts_per_step is {prompts}: some would have no work"
            raise InputError(None, None, reason)
        if self.config.rollout.engine == "vllm" and self.count % parallel:
            raise InputError(None, None, f"rollout.tensor_parallel = {parallel} does not divide {self.count} GPUs")

    @property
    def gpu(self) -> Gpu:
        """The kind's figures."""
        return GPUS[self.kind]

    @property
    def steps(self) -> int:
        """Of the whole run."""
        data = self.config.data
        return self.config.run.steps or data.epochs * (self.work.prompts // data.prompts_per_step)

    @property
    def picture(self) -> int:
        """Tokens of a picture after Qwen's resizing to whole tokens within the bounds of its pixels."""
        side, bounds, (width, height) = self.shape.token_side, self.config.model, self.work.image
        across, down = max(1, round(width / side)), max(1, round(height / side))
        if bounds.max_pixels and across * down * side**2 > bounds.max_pixels:
            scale = math.sqrt(width * height / bounds.max_pixels)
            across, down = (max(1, math.floor(each / scale / side)) for each in (width, height))
        elif across * down * side**2 < bounds.min_pixels:
            scale = math.sqrt(bounds.min_pixels / (width * height))
            across, down = (math.ceil(each * scale / side) for each in (width, height))
        return across * down

    @property
    def prompt(self) -> int:
        """Tokens of a prompt."""
        return self.picture + self.work.prompt_tokens


def plan(job: Job) -> Plan:
    """Bytes per GPU and seconds per step."""
    run = _Run(job)
    memory = {moment: run.bytes_at(moment) for moment in MOMENTS}
    sums = {moment: sum(kinds.values()) for moment, kinds in memory.items()}
    own = {moment: total - memory[moment].get("vLLM", 0) for moment, total in sums.items()}
    seconds = run.seconds()
    return Plan(
        memory=memory,
        seconds=seconds,
        peak_moment=max(sums, key=lambda moment: sums[moment]),
        peak=max(sums.values()),
        needed=max(total + CONTEXT + FRAGMENTATION * own[moment] for moment, total in sums.items()),
        available=job.gpu.memory,
        mfu=3 * run.forward_flops / (seconds["update"] / job.config.optim.inner_epochs) / job.gpu.flops,
        notes=run.notes(),
    )


class _Run:
    """A job's bytes and seconds, and the quantities that several formulas share."""

    def __init__(self, job: Job) -> None:
        config = job.config
        self.job, self.config, self.shape, self.gpu, self.count = job, config, job.shape, job.gpu, job.count
        self.compute = 4 if config.model.dtype == "float32" else 2
        self.autocast = self.count == 1 and self.compute == 2
        self.sharded = self.count > 1
        self.repeats_keys = True  # on CUDA: the kernel that takes a mask wants as many keys as queries
        self.kl = config.effective_loss.kl > 0
        self.prompts = math.ceil(config.data.prompts_per_step / self.count)
        self.responses = self.prompts * config.rollout.group
        self.picture, self.prompt = job.picture, job.prompt
        longest = config.rollout.max_new_tokens
        self.mean = min(job.work.response_tokens, longest)
        cut = partial(Pass.within, config.optim.micro_batch_tokens, self.prompt)
        # the most memory may be taken by long responses, or by many short ones that each read their prompt
        self.passes = [cut(each, config.rollout.group, self.prompts) for each in (longest, self.mean)]
        self.rows = self.prompts * math.ceil(config.rollout.group / self.passes[1].responses)

    # --- bytes ----------------------------------------------------------------------------------------------------

    def bytes_at(self, moment: str) -> dict[str, float]:
        """Bytes per GPU by kind at a moment of a step; only what is not 0."""
        found = self._resting()
        if self.config.rollout.engine == "vllm" and moment != "rollout":
            found["vLLM"] = ASLEEP
        features = self.prompts * self.picture * self.shape.hidden * (1 + self.shape.deepstack)
        found["picture features"] = features * self.compute
        if moment in ("logprob", "update"):
            longest = self.passes[0]
            found["masks"] = self.responses * (longest.length - 1) * (longest.prompt + longest.length - 1)
        found |= getattr(self, f"_at_{moment}")()
        return {kind: value for kind, value in found.items() if value}

    def _resting(self) -> dict[str, float]:
        """What is there at any moment of a step."""
        trained = self.shape.trained / self.count
        eight_bit = 2 + 2 * 4 / 256  # two bytes and the float32 scales of blocks of 256 (torchao)
        return {
            "weights, float32": 4 * trained,
            "optimiser moments": (8 if self.config.optim.optimizer == "adamw" else eight_bit) * trained,
            "vision tower": self.compute * self.shape.tower,
            "reference": self.compute * trained if self.kl and self.config.model.reference == "device" else 0,
        }

    def _at_vision(self) -> dict[str, float]:
        patches = min(PICTURES, self.prompts) * self.picture * 4
        # per patch: a few copies of the hidden state (about 1,280 wide) in float32, and the pixels
        return {"activations": patches * (self.compute * 12 * 1280 + 4 * 2 * 1176)}

    def _at_rollout(self) -> dict[str, float]:
        shape, rollout = self.shape, self.config.rollout
        if rollout.engine == "vllm":
            return {"vLLM": rollout.gpu_memory * self.gpu.memory}
        prompts = min(rollout.prompts_per_batch, self.prompts)
        rows = prompts * rollout.group
        cache = rows * (self.prompt + rollout.max_new_tokens) * self._cache_per_token()
        prefill = self._mlp(prompts * self.prompt)
        drawing = rows * shape.vocabulary * (self.compute + 4) + DRAWING
        return {
            "working copies": self._whole_copy(),
            "cache of keys and values": cache * (1 + 1 / shape.layers),  # a layer's is made longer at a time
            "activations": max(prefill, drawing),
        }

    def _at_logprob(self) -> dict[str, float]:
        if not self.kl and self.config.updates_per_batch == 1:
            return {}
        if self.sharded:
            copies: float = self.compute * (self.shape.root + GATHERED * self.shape.layer)
        else:
            on_host = self.kl and self.config.model.reference == "cpu"
            copies = max(
                self.compute * self.shape.trained if on_host else 0,
                self._whole_copy() if self.config.updates_per_batch > 1 else 0,
            )
        return {"working copies": copies, **self._forward()}

    def _at_update(self) -> dict[str, float]:
        """The worst of: end of the forward pass, backward of the output layer, of a layer, and of the embedding.

        The optimiser's step takes nothing more: it is fused.
        """
        found = max((self._update_of(each) for each in self.passes), key=lambda kinds: sum(kinds.values()))
        return {"gradients": 4 * self.shape.trained / self.count, **found}

    def _update_of(self, batch: Pass) -> dict[str, float]:
        shape, b, checkpointing = self.shape, self.compute, self.config.model.gradient_checkpointing
        stream = 4 if self.autocast else b
        layer, chunk = self._saved(batch), self._chunk(batch)
        kept = shape.layers * (batch.tokens * stream * shape.hidden if checkpointing else layer)
        norm = 25 * batch.tokens * shape.hidden
        backward = batch.tokens * (2 * b * shape.inner + 2.5 * shape.hidden)
        output = b * shape.embedding  # the output layer in the dtype of the computation, or its gradient in it
        if self.sharded:
            copies: float = b * (shape.root + GATHERED * shape.layer)
            lasting, own = copies, 0.0
            waiting: float = output  # gradients of the root's parameters wait, unsharded, for the last of them
            reduced = (b + 4 + 4 / self.count) * shape.layer  # a layer's, as it is, in float32, and reduced
            last = (b + 4 + 4 / self.count) * shape.root + output * shape.tied
        else:
            copies = self._whole_copy()
            own = output if self.autocast else 0.0
            lasting = 0.0 if checkpointing else copies  # autocast frees its copies after the forward pass
            waiting = 4 * shape.embedding * shape.tied
            reduced = (b + 4) * shape.hidden * shape.inner if self.autocast else 0.0
            last = 4 * shape.embedding * (1 + shape.tied)
        if checkpointing:
            backward += layer + (b * shape.layer if self.autocast else 0)
        moments: list[tuple[float, float, float]] = [  # working copies and gradients on their way, activations, chunk
            (copies + own, kept, 12 * chunk),
            (lasting + own, kept, 4 * shape.embedding + (output if b < 4 else 0) + (4 + b) * chunk),
            (lasting + reduced + waiting, kept + max(norm, backward), 0),
            (last, 0, 0),
        ]
        copies, activations, chunks = max(moments, key=sum)
        return {"working copies": copies, "activations": activations, "log-softmax chunk": chunks}

    def _whole_copy(self) -> float:
        """The unsharded weights in the dtype of the computation; under autocast those of matrix products."""
        shape = self.shape
        if self.sharded:
            return self.compute * shape.trained
        return self.compute * (shape.trained - shape.embedding * (not shape.tied)) if self.autocast else 0

    def _saved(self, batch: Pass) -> float:
        """Bytes that a decoder layer's forward pass keeps for its backward pass."""
        shape, b = self.shape, self.compute
        attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        # two norms: the input in float32, its normed form and the output; under autocast the residual stream is
        # float32, too, and each linear layer casts its input for itself
        norms = 2 * (4 + 4) + 5 * b if self.autocast else 2 * (4 + 2 * b)
        per_token = norms * shape.hidden + 3 * b * attention + 4 * b * shape.inner + 4 * shape.heads + 8
        if shape.qk_norm:
            per_token += (4 + b) * (attention + keys) + 4 * (shape.heads + shape.kv_heads)
        return batch.tokens * per_token + 2 * b * (batch.prompts * batch.prompt * keys) + self._read_by_responses(batch)

    def _read_by_responses(self, batch: Pass) -> float:
        """Bytes of keys, values and mask that the responses' attention reads."""
        heads = self.shape.heads if self.repeats_keys else self.shape.kv_heads
        return self.compute * (2 * batch.keys * heads * self.shape.head_dim + batch.scores)

    def _forward(self) -> dict[str, float]:
        """The worst of a forward pass without gradient: a layer's MLP, its attention, or the logits."""
        found = []
        for batch in self.passes:
            stream = batch.tokens * self.compute * self.shape.hidden
            layer = max(self._mlp(batch.tokens), 6 * stream + 2 * self._read_by_responses(batch))
            found += [("activations", layer), ("log-softmax chunk", 12 * self._chunk(batch) + 2 * stream)]
        return dict([max(found, key=lambda each: each[1])])

    def _mlp(self, tokens: float) -> float:
        """Bytes of a forward pass without gradient in an MLP."""
        return tokens * self.compute * (3 * self.shape.inner + 4.5 * self.shape.hidden)

    def _chunk(self, batch: Pass) -> float:
        """Elements of the logits that exist at once."""
        at_once = max(self.shape.vocabulary, CHUNK_ELEMENTS["cuda"])
        return min(at_once, batch.responses * batch.length * self.shape.vocabulary)

    def _cache_per_token(self) -> float:
        return self.shape.layers * 2 * self.shape.kv_heads * self.shape.head_dim * self.compute

    # --- seconds --------------------------------------------------------------------------------------------------

    @property
    def forward_flops(self) -> float:
        """Arithmetic of one forward pass over a batch of this GPU, attention and output layer included."""
        shape = self.shape
        inner = self.mean - 1
        tokens = self.rows * self.prompt + self.responses * inner
        scores = self.rows * self.prompt**2 / 2 + self.responses * inner * (self.prompt + inner)
        linear = 2 * tokens * shape.layer * shape.layers
        attention = 4 * scores * shape.heads * shape.head_dim * shape.layers
        return linear + attention + 2 * self.responses * self.mean * shape.embedding

    def seconds(self) -> dict[str, float]:
        """Seconds per step by phase."""
        config, shape, gpu, assume = self.config, self.shape, self.gpu, self.job.assume
        rate, bandwidth = gpu.flops * assume.efficiency, gpu.bandwidth * assume.bandwidth
        rate /= 1 if self.compute == 2 else 2  # TF32 at best
        micros = math.ceil(self.responses / self.passes[1].responses)
        gather = self.compute * shape.trained / self._link()
        reduce = 4 * shape.trained / self._link()
        forward = self.forward_flops
        head = 2 * self.responses * self.mean * shape.embedding
        again = forward - head if config.model.gradient_checkpointing else 0
        passes = int(self.kl) + int(config.updates_per_batch > 1)
        update = max((3 * forward + again + head) / rate, micros * (2 * gather + reduce))
        weights = 28 if config.optim.optimizer == "adamw" else 16  # bytes that a step reads and writes per weight
        step = weights * shape.trained / self.count / bandwidth
        epochs = config.optim.inner_epochs
        return {
            "vision": 2 * shape.tower * 4 * self.prompts * self.picture / rate,
            "rollout": self._rollout_seconds(rate, bandwidth) + gather,
            "reward": assume.reward * self.responses,
            "logprob": passes * max(forward / rate, micros * gather),
            "update": epochs * (update + config.optim.mini_batches * step),
        }

    def _rollout_seconds(self, rate: float, bandwidth: float) -> float:
        shape, rollout, assume = self.shape, self.config.rollout, self.job.assume
        weights = shape.trained - shape.embedding * (not shape.tied)
        prefill = 2 * self.prompts * self.prompt * shape.layer * shape.layers / rate
        steps = min(assume.longest * self.mean, rollout.max_new_tokens)

        def step(rows: float) -> float:
            read = self.compute * weights + rows * (self.prompt + self.mean / 2) * self._cache_per_token()
            return max(read / bandwidth, 2 * weights * rows / rate)

        if rollout.engine == "vllm":  # a new response begins where one has ended
            rows = min(self.responses, self.vllm_sequences())
            return prefill + self.responses / rows * steps * (step(rows) + assume.vllm_step) if rows else math.inf
        rows = min(rollout.prompts_per_batch, self.prompts) * rollout.group
        batches = math.ceil(self.responses / rows)
        return prefill + batches * steps * max(step(rows), assume.launch * shape.layers)

    def vllm_sequences(self) -> int:
        """Responses of the average length that vLLM's cache holds at once."""
        rollout, shape = self.config.rollout, self.shape
        room = rollout.gpu_memory * self.gpu.memory - VLLM_WORK - self.compute * shape.total / rollout.tensor_parallel
        per_token = self._cache_per_token() / min(rollout.tensor_parallel, shape.kv_heads)
        return max(0, int(room / (per_token * (self.prompt / rollout.group + self.mean))))

    def _link(self) -> float:
        """Bytes per second of collectives; infinite on one GPU."""
        if not self.sharded:
            return math.inf
        return (self.gpu.link if self.count <= PER_MACHINE else min(self.gpu.link, NETWORK)) * self.job.assume.bandwidth

    def notes(self) -> list[str]:
        """What the figures do not say by themselves."""
        found = []
        budget, least = self.config.optim.micro_batch_tokens, self.prompt + self.config.rollout.max_new_tokens - 1
        if budget < least:
            found.append(
                f"optim.micro_batch_tokens = {budget} is less than a prompt with one response of full length "
                f"({least}), which is the smallest pass there is"
            )
        if self.config.rollout.engine == "vllm":
            sequences = self.vllm_sequences()
            found.append(
                f"vLLM's cache holds {sequences} responses at once"
                if sequences
                else f"rollout.gpu_memory = {self.config.rollout.gpu_memory} does not hold the model's weights"
            )
        if self.count > PER_MACHINE:
            found.append(f"more than {PER_MACHINE} GPUs: {NETWORK / 1e9:.0f} GB/s a GPU between machines is assumed")
        if self.sharded and self.config.model.reference == "cpu" and self.kl:
            found.append("the reference's shards are copied from the host for every micro-batch")
        return found


# --- remedies -----------------------------------------------------------------------------------------------------


def remedies(job: Job) -> list[str]:
    """Ways to make it fit: a smallest set of settings, more GPUs of this kind, a larger kind."""

    def fits(**changes: Any) -> bool:
        return plan(dataclasses.replace(job, **changes)).fits

    found = []
    tried: dict[tuple[str, str], list[Any]] = {}
    for section, key, value in _changes(job):
        tried.setdefault((section, key), []).append(value)
        if fits(config=_with(job.config, {change: values[-1] for change, values in tried.items()})):
            chosen = {change: values[-1] for change, values in tried.items()}
            for change, values in tried.items():  # without it, else with its mildest value
                rest = {other: chosen[other] for other in chosen if other != change}
                milder = (
                    candidate for candidate in values if fits(config=_with(job.config, {**rest, change: candidate}))
                )
                chosen = rest if fits(config=_with(job.config, rest)) else {**rest, change: next(milder)}
            found.append(" ".join(f"--set {'.'.join(change)}={_plainly(value)}" for change, value in chosen.items()))
            break
    for count in (2, 4, 8, 16, 32, 64):
        if job.count < count <= job.config.data.prompts_per_step and fits(count=count):
            found.append(f"--gpus {count}x{job.kind}")
            break
    for kind in sorted(GPUS, key=lambda name: GPUS[name].memory):
        if GPUS[kind].memory > job.gpu.memory and fits(kind=kind):
            found.append(f"--gpus {job.count}x{kind}")
            break
    return found


def _changes(job: Job) -> Iterator[tuple[str, str, Any]]:
    """Settings (section, key, value) that save memory, those that cost least first."""
    config = job.config
    if not config.model.gradient_checkpointing:
        yield "model", "gradient_checkpointing", True
    if config.effective_loss.kl and config.model.reference == "device":
        yield "model", "reference", "cpu"
    tokens = config.optim.micro_batch_tokens
    while tokens // 2 >= job.prompt + config.rollout.max_new_tokens:
        tokens //= 2
        yield "optim", "micro_batch_tokens", tokens
    prompts = config.rollout.prompts_per_batch
    while config.rollout.engine == "transformers" and prompts > 1:
        prompts //= 2
        yield "rollout", "prompts_per_batch", prompts
    if config.optim.optimizer == "adamw":
        yield "optim", "optimizer", "adamw8bit"
    if config.rollout.engine == "vllm":
        share, more = config.rollout.gpu_memory, _Run(job).vllm_sequences() < 1
        while 0.2 < share < 0.9:
            share = round(share + (0.05 if more else -0.05), 2)
            yield "rollout", "gpu_memory", share
        yield "rollout", "engine", "transformers"


def _with(config: Config, changes: Mapping[tuple[str, str], Any]) -> Config:
    for (section, key), value in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **{key: value})})
    return config


def _plainly(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the command --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan; returns 0 if it fits, 3 if not, 2 for bad input."""
    work, assume = Workload(), Assumptions()
    parser = argparse.ArgumentParser(prog="python -m scapo_train.plan", description=(__doc__ or "").partition("\n")[0])
    option = parser.add_argument
    option("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    option("--gpus", required=True, metavar="8xH100", help=f"how many of which: {', '.join(GPUS)}")
    option("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    option("--image", default="640x480", metavar="WxH", help="pixels of a picture (%(default)s)")
    option("--prompt-tokens", type=int, default=work.prompt_tokens, help="of its text, with the template (%(default)s)")
    option("--response-tokens", type=int, default=work.response_tokens, help="of an average response (%(default)s)")
    option("--prompts", type=int, default=work.prompts, help="of the training file (%(default)s)")
    option("--efficiency", type=float, default=assume.efficiency, help="of matrix products (%(default)s)")
    option("--json", action="store_true", help="print one JSON object, bytes and seconds unrounded")
    given = parser.parse_args(arguments)
    try:
        count, kind = parse_gpus(given.gpus)
        work = Workload(_size(given.image), given.prompt_tokens, given.response_tokens, given.prompts)
        for name in ("prompt_tokens", "response_tokens", "prompts"):
            if getattr(work, name) < 1:
                raise InputError(None, None, f"--{name.replace('_', '-')} must be at least 1")
        if not 0 < given.efficiency <= 1:
            raise InputError(None, None, "--efficiency must be above 0 and at most 1")
        config = load(given.config, given.set)
        if not config.model.path:
            raise InputError(given.config, None, "model.path is not set: --set model.path=...")
        assume = dataclasses.replace(assume, efficiency=given.efficiency)
        job = Job(config, shape_of(config.model.path), kind, count, work, assume)
    except ScapoError as error:
        print(f"scapo_train.plan: {error}", file=sys.stderr)
        return 2
    found = plan(job)
    if not found.fits:
        found = dataclasses.replace(found, remedies=remedies(job))
    print(json.dumps(_table(job, found), indent=2) if given.json else _text(job, found))
    return 0 if found.fits else 3


def matrix_rate(device_name: str) -> float | None:
    """The data sheet's bfloat16 matrix products per second of a GPU, by PyTorch's name of it; None for other kinds."""
    words = re.findall(r"[A-Z]*[0-9]+[A-Z]*", re.sub(r"RTX (?=[0-9])", "RTX", device_name))
    return next((gpu.flops for kind, gpu in GPUS.items() if kind.partition("-")[0] in words), None)


def parse_gpus(text: str) -> tuple[int, str]:
    """``8xH100`` as (8, "H100"); without a number it is one.

    Raises:
        InputError: another form, or a kind that is not in :data:`GPUS`.
    """

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]|^rtx|gb$", "", name.lower())

    match = re.fullmatch(r"\s*(?:([0-9]+)\s*[x*])?\s*(.+)", text, re.IGNORECASE)
    found = [name for name in GPUS if match and plain(name) == plain(match[2])]
    if match is None or not found or (match[1] and int(match[1]) < 1):
        raise InputError(
            None, None, f"--gpus takes COUNTxKIND, such as 8xH100, got {text!r} (kinds: {', '.join(GPUS)})"
        )
    return int(match[1] or 1), found[0]


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)[x*]([1-9][0-9]*)", text.strip())
    if match is None:
        raise InputError(None, None, f"--image takes WIDTHxHEIGHT, such as 640x480, got {text!r}")
    return int(match[1]), int(match[2])


def _table(job: Job, found: Plan) -> dict[str, Any]:
    total = sum(found.seconds.values())
    return {
        "model": job.config.model.path,
        "gpus": {"count": job.count, "kind": job.kind, **asdict(job.gpu)},
        "shape": asdict(job.shape),
        "workload": asdict(job.work),
        "assumptions": asdict(job.assume),
        **asdict(found),
        "seconds": found.seconds if math.isfinite(total) else None,
        "fits": found.fits,
        "steps": job.steps,
    }


def _text(job: Job, found: Plan) -> str:
    def row(name: str, cells: Sequence[float]) -> str:
        return f"{name:<26}" + "".join(f"{cell / GIB:>11.2f}" if cell else f"{'-':>11}" for cell in cells)

    data, work, memory = job.config.data, job.work, found.memory
    kinds = dict.fromkeys(kind for moment in MOMENTS for kind in memory[moment])
    verdict = "it fits" if found.fits else "IT DOES NOT FIT"
    lines = [
        f"{job.config.model.path}: {job.shape.total:,} parameters, {job.shape.trained:,} trained",
        f"{job.count} x {job.kind}; {data.prompts_per_step} prompts x {job.config.rollout.group} responses a step; "
        f"{work.image[0]}x{work.image[1]} pixels: {job.picture} tokens; responses of {work.response_tokens} on average",
        "",
        f"{'GiB per GPU':<26}" + "".join(f"{moment:>11}" for moment in MOMENTS),
        *(row(kind, [memory[moment].get(kind, 0) for moment in MOMENTS]) for kind in kinds),
        row("together", [sum(memory[moment].values()) for moment in MOMENTS]),
        "",
        f"peak {found.peak / GIB:.1f} GiB ({found.peak_moment}), with context and fragmentation "
        f"{found.needed / GIB:.1f} of {found.available / GIB:.1f} GiB: {verdict}",
        *(f"  note: {note}" for note in found.notes),
    ]
    if not found.fits:
        lines += [f"  would fit: {way}" for way in found.remedies] or ["  nothing that this plan knows would help"]
    total = sum(found.seconds.values())
    if math.isfinite(total):
        phases = ", ".join(f"{phase} {seconds:.2g}" for phase, seconds in found.seconds.items())
        lines += [
            "",
            f"{total:.0f} seconds per step ({phases}); {job.steps} steps in {job.steps * total / 3600:.1f} hours",
            f"  assumed: {job.assume.efficiency:.0%} of {job.gpu.flops / 1e12:.0f} TFLOP/s and "
            f"{job.assume.bandwidth:.0%} of bandwidths; an update without recomputation counts {found.mfu:.0%}",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["GPUS", "Assumptions", "Gpu", "Job", "Plan", "Workload", "matrix_rate", "parse_gpus", "plan", "remedies"]
