"""What a run needs before it is started: bytes per GPU at each moment of a step, and seconds per phase.

    python -m scapo_train.plan qwen2_5_vl_7b --gpus 8xH100

The model is built on the meta device, so its sizes are exact and nothing is downloaded. Bytes follow from what
the code of this package keeps: the coefficients of :func:`_saved_per_token` were counted from the tensors that
autograd saves, and ``tests/unit/test_train_plan.py`` measures them again. Seconds follow from arithmetic,
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
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from scapo_eval.errors import InputError, ScapoError

from . import config as settings
from .config import Config
from .logprob import CHUNK_ELEMENTS
from .model import Policy
from .shapes import model_config

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
class Shape:
    """The sizes of a model, counted in parameters where no unit is named.

    Attributes:
        tower: of the frozen vision tower, its merger included.
        layer: of one decoder layer; layers: how many.
        root: of everything else that is trained: embedding, output layer, last norm.
        embedding: of the embedding (vocabulary x hidden), which is the output layer as well if ``tied``.
        hidden, inner: widths; heads, kv_heads, head_dim: of attention; qk_norm: whether it norms them.
        deepstack: further features per image token (Qwen3-VL).
        token_side: pixels along one side of an image token.
    """

    tower: int
    layer: int
    layers: int
    root: int
    embedding: int
    tied: bool
    vocabulary: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool
    deepstack: int
    token_side: int

    @property
    def trained(self) -> int:
        """Parameters that the optimiser changes."""
        return self.layer * self.layers + self.root

    @property
    def total(self) -> int:
        """All parameters."""
        return self.trained + self.tower


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


CONTEXT = 1.5 * GIB
"""CUDA context, NCCL's buffers and cuBLAS's workspace: memory that is not PyTorch's tensors."""

FRAGMENTATION = 0.04
"""Share of the peak that PyTorch's allocator holds and cannot hand out."""

ASLEEP = 1.5 * GIB
"""What a sleeping vLLM keeps: its context and CUDA graphs."""

VLLM_WORK = 3 * GIB
"""What vLLM needs beside weights and cache: its context, graphs and largest batch."""

PICTURES = 16
"""Pictures that are encoded at once (:func:`scapo_train.rollout.encode`)."""

MOMENTS = ("vision", "rollout", "logprob", "gradient", "optimiser")


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes:
        memory: moment of a step -> kind -> bytes per GPU.
        seconds: phase -> seconds per step.
        peak: largest sum of a moment: what ``torch.cuda.max_memory_allocated`` will show.
        needed: with the context and fragmentation.
        available: of the GPU.
        mfu: share of the GPU's rate that the update's model arithmetic (without recomputation) makes.
        steps: of the run.
        notes: what the user should know.
        remedies: sets of ``--set`` values, or other GPUs, with which it would fit; empty if it fits.
    """

    memory: dict[str, dict[str, float]]
    seconds: dict[str, float]
    peak: float
    peak_moment: str
    needed: float
    available: float
    mfu: float
    steps: int
    notes: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether the GPU has the memory."""
        return self.needed <= self.available and all(math.isfinite(each) for each in self.seconds.values())


def shape_of(path: str) -> Shape:
    """The sizes of a model, from its class built on the meta device.

    Args:
        path: folder with a ``config.json``, or the name of a model in :mod:`scapo_train.shapes`.

    Raises:
        ScapoError: it is not known, or not built as ``scapo_train`` needs it.
    """
    config = model_config(path)
    with torch.device("meta"):
        vlm = AutoModelForImageTextToText.from_config(config)
    Policy(vlm, [], 1.0)  # says what is missing
    text, vision = vlm.config.get_text_config(), vlm.config.vision_config
    if getattr(text, "num_experts", None):
        raise ScapoError(f"{path} is a mixture of experts, which this plan does not know")
    layers = vlm.model.language_model.layers
    attention = layers[0].self_attn
    tower = sum(each.numel() for each in vlm.model.visual.parameters())
    layer = sum(each.numel() for each in layers[0].parameters())
    return Shape(
        tower=tower,
        layer=layer,
        layers=len(layers),
        root=sum(each.numel() for each in vlm.parameters()) - tower - layer * len(layers),
        embedding=vlm.get_input_embeddings().weight.numel(),
        tied=vlm.lm_head.weight is vlm.get_input_embeddings().weight,
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        inner=text.intermediate_size,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=attention.head_dim,
        qk_norm=hasattr(attention, "q_norm"),
        deepstack=len(getattr(vision, "deepstack_visual_indexes", None) or ()),
        token_side=vision.patch_size * vision.spatial_merge_size,
    )


def plan(
    config: Config,
    shape: Shape,
    gpu: Gpu,
    count: int,
    workload: Workload | None = None,
    assumptions: Assumptions | None = None,
) -> Plan:
    """Bytes and seconds of a run.

    Args:
        config: of the run.
        shape: of its model.
        gpu: kind of GPU; count: how many.
        workload: prompts and responses.
        assumptions: efficiencies.

    Raises:
        InputError: these GPUs cannot share this work at all.
    """
    if count > config.data.prompts_per_step:
        reason = f"{count} GPUs, but data.prompts_per_step is {config.data.prompts_per_step}: some would have no work"
        raise InputError(None, None, reason)
    if config.rollout.engine == "vllm" and count % config.rollout.tensor_parallel:
        raise InputError(None, None, f"rollout.tensor_parallel = {config.rollout.tensor_parallel} does not divide {count}")
    run = _Run(config, shape, gpu, count, workload or Workload(), assumptions or Assumptions())
    memory = {moment: run.bytes_at(moment) for moment in MOMENTS}
    sums = {moment: sum(kinds.values()) for moment, kinds in memory.items()}
    peak_moment = max(sums, key=lambda moment: sums[moment])
    own = {moment: total - memory[moment].get("vLLM", 0) for moment, total in sums.items()}
    needed = max(total + CONTEXT + FRAGMENTATION * own[moment] for moment, total in sums.items())
    seconds = run.seconds()
    data = config.data
    return Plan(
        memory=memory,
        seconds=seconds,
        peak=sums[peak_moment],
        peak_moment=peak_moment,
        needed=needed,
        available=gpu.memory,
        mfu=3 * run.update_flops / seconds["update"] / gpu.flops,
        steps=config.run.steps or data.epochs * (run.work.prompts // data.prompts_per_step),
        notes=run.notes(),
    )


class _Run:
    """A configuration on some GPUs, with the quantities that several formulas share."""

    def __init__(
        self, config: Config, shape: Shape, gpu: Gpu, count: int, workload: Workload, assumptions: Assumptions
    ) -> None:
        self.config, self.shape, self.gpu, self.count = config, shape, gpu, count
        self.work, self.assume = workload, assumptions
        self.compute = 4 if config.model.dtype == "float32" else 2
        self.autocast = count == 1 and self.compute == 2
        self.sharded = count > 1
        self.kl = config.effective_loss.kl > 0
        self.prompts = math.ceil(config.data.prompts_per_step / count)
        self.responses = self.prompts * config.rollout.group
        self.picture = _image_tokens(config, shape, workload.image)
        self.prompt = self.picture + workload.prompt_tokens
        self.mean = min(workload.response_tokens, config.rollout.max_new_tokens)
        # tokens of a pass at most: rows are cut at the budget, but never within a response
        shortest = self.prompt + config.rollout.max_new_tokens - 1
        self.longest_row = self.prompt + config.rollout.group * (config.rollout.max_new_tokens - 1)
        self.budget = max(config.optim.micro_batch_tokens, shortest)
        self.longest_row = min(self.longest_row, self.budget)
        self.row = self.prompt + config.rollout.group * (self.mean - 1)
        self.rows = self.prompts * math.ceil(self.row / self.budget)

    # --- bytes ----------------------------------------------------------------------------------------------------

    def bytes_at(self, moment: str) -> dict[str, float]:
        """Bytes per GPU by kind at a moment of a step; only what is not 0."""
        found = self._resting()
        if self.config.rollout.engine == "vllm" and moment != "rollout":
            found["vLLM"] = ASLEEP
        if moment != "optimiser":
            features = self.prompts * self.picture * self.shape.hidden * (1 + self.shape.deepstack)
            found["picture features"] = features * self.compute
        if moment in ("logprob", "gradient", "optimiser"):
            found["masks"] = self._masks()
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
        prefill = prompts * self.prompt * self._forward_per_token()
        drawing = 6 * rows * shape.vocabulary * 4  # logits, masked logits, noise twice, quotient, difference
        return {
            "working copies": self._whole_copy(),
            "cache of keys and values": cache * (1 + 1 / (2 * shape.layers)),  # a layer's keys are copied to grow
            "activations": max(prefill, drawing),
        }

    def _at_logprob(self) -> dict[str, float]:
        if not self.kl and self.config.updates_per_batch == 1:
            return {}
        if self.sharded:
            copies: float = self.compute * (self.shape.root + 2 * self.shape.layer)
        else:
            on_host = self.kl and self.config.model.reference == "cpu"
            copies = max(
                self.compute * self.shape.trained if on_host else 0,
                self._whole_copy() if self.config.updates_per_batch > 1 else 0,
            )
        return {
            "working copies": copies,
            "activations": self.budget * self._forward_per_token() + self._mask_copy(),
            "log-softmax chunk": 12 * self._chunk(),
        }

    def _at_gradient(self) -> dict[str, float]:
        """The worst of: end of the forward pass, output layer's backward, a layer's, and the reduction."""
        shape, b = self.shape, self.compute
        kept = self._kept()
        layer = self.budget * self._saved_per_token() + self._mask_copy()
        backward = self.budget * (2 * b * shape.inner + 2.5 * shape.hidden)
        norm = 25 * self.budget * shape.hidden
        chunk = self._chunk()
        head = b * shape.embedding  # the output layer in the dtype of the computation, or its gradient in it
        if self.sharded:
            copies: float = b * (shape.root + 2 * shape.layer)
            reduced = (b + 4) * shape.layer  # a layer's gradient, and as it is reduced in float32
            root = (b + 4) * shape.root
        else:
            copies = self._whole_copy()
            reduced = (b + 4) * shape.hidden * shape.inner if self.autocast else 0
            root = 4 * shape.embedding  # of the embedding, before it is added
        checkpointing = self.config.model.gradient_checkpointing
        recomputed = layer + backward + (b * shape.layer if self.autocast else 0)
        lasting = copies if self.sharded or not checkpointing else 0  # autocast's copies go with the forward pass
        ending = (head if self.sharded else 0) + kept
        moments: list[tuple[float, float, float]] = [  # copies, activations, chunk
            (copies + (head if self.autocast else 0), kept, 12 * chunk),
            (lasting + (head if self.autocast else 0), kept, 4 * shape.embedding + head + 6 * chunk),
            (lasting + reduced, ending + max(norm, recomputed if checkpointing else backward), 0),
            ((b * shape.root if self.sharded else 0) + root, 0, 0),
        ]
        copies, activations, chunks = max(moments, key=sum)
        return {
            "gradients": 4 * shape.trained / self.count,
            "working copies": copies,
            "activations": activations,
            "log-softmax chunk": chunks,
        }

    def _at_optimiser(self) -> dict[str, float]:
        trained = self.shape.trained / self.count
        return {"gradients": 4 * trained, "working copies": 4 * trained if self.config.optim.optimizer == "adamw" else 0}

    def _whole_copy(self) -> float:
        """The unsharded weights in the dtype of the computation; under autocast those of matrix products."""
        shape = self.shape
        if self.sharded:
            return self.compute * shape.trained
        return self.compute * (shape.trained - shape.embedding * (not shape.tied)) if self.autocast else 0

    def _saved_per_token(self) -> float:
        """Bytes per token that a decoder layer's forward pass keeps for its backward pass, masks apart."""
        shape, b = self.shape, self.compute
        attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        if self.autocast:  # the residual stream is float32, and each linear layer casts its input
            norms = 2 * (4 + 4) * shape.hidden + 5 * b * shape.hidden
        else:
            norms = 2 * (4 + 2 * b) * shape.hidden
        found = norms + 4 * b * attention + 4 * b * shape.inner + 4 * shape.heads + 8
        if shape.qk_norm:
            found += (4 + b) * (attention + keys) + 4 * (shape.heads + shape.kv_heads)
        return found

    def _kept(self) -> float:
        """Bytes of activations at the end of a micro-batch's forward pass."""
        stream = 4 if self.autocast else self.compute
        if self.config.model.gradient_checkpointing:
            return self.shape.layers * self.budget * stream * self.shape.hidden
        return self.shape.layers * (self.budget * self._saved_per_token() + self._mask_copy())

    def _forward_per_token(self) -> float:
        """Bytes per token at the worst place of a forward pass without gradient."""
        return self.compute * (3 * self.shape.inner + 5 * self.shape.hidden)

    def _mask_copy(self) -> float:
        """A micro-batch's mask as attention adds it to the scores."""
        return self.budget * self.longest_row * self.compute

    def _masks(self) -> float:
        """The boolean masks of all micro-batches of a step, and what it takes to make the largest."""
        return self.prompts * self.longest_row**2 + 3 * self.budget * self.longest_row

    def _chunk(self) -> float:
        """Elements of the logits that exist at once."""
        return min(max(CHUNK_ELEMENTS["cuda"], self.shape.vocabulary), self.budget * self.shape.vocabulary)

    def _cache_per_token(self) -> float:
        return self.shape.layers * 2 * self.shape.kv_heads * self.shape.head_dim * self.compute

    # --- seconds --------------------------------------------------------------------------------------------------

    @property
    def update_flops(self) -> float:
        """Arithmetic of one forward pass over a batch of this GPU, attention and output layer included."""
        shape = self.shape
        row = min(self.row, self.budget)
        linear = 2 * self.rows * row * shape.layer * shape.layers
        attention = 4 * self.rows * row**2 * shape.heads * shape.head_dim * shape.layers
        return linear + attention + 2 * self.responses * self.mean * shape.embedding

    def seconds(self) -> dict[str, float]:
        """Seconds per step by phase."""
        config, shape, gpu, assume = self.config, self.shape, self.gpu, self.assume
        rate, bandwidth = gpu.flops * assume.efficiency, gpu.bandwidth * assume.bandwidth
        rate /= 1 if self.compute == 2 else 2  # TF32 at best
        micros = math.ceil(self.rows * min(self.row, self.budget) / self.budget)
        gather = self.compute * shape.trained / self._link()
        reduce = 4 * shape.trained / self._link()
        forward = self.update_flops
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
        shape, rollout, assume = self.shape, self.config.rollout, self.assume
        weights = shape.trained - shape.embedding * (not shape.tied)
        steps = min(assume.longest * self.mean, rollout.max_new_tokens)
        if rollout.engine == "vllm":
            at_once = min(self.responses, self._vllm_sequences())
            if at_once < 1:
                return math.inf
            overhead = assume.vllm_step
        else:
            at_once = min(rollout.prompts_per_batch, self.prompts) * rollout.group
            overhead = assume.launch * shape.layers
        batches = self.responses / at_once if rollout.engine == "vllm" else math.ceil(self.responses / at_once)
        read = self.compute * weights + at_once * (self.prompt + self.mean / 2) * self._cache_per_token()
        step = max(read / bandwidth, 2 * weights * at_once / rate, 0 if rollout.engine == "vllm" else overhead)
        if rollout.engine == "vllm":
            step += overhead
        prefill = 2 * self.prompts * self.prompt * shape.layer * shape.layers / rate
        return prefill + batches * steps * step

    def _vllm_sequences(self) -> int:
        """Responses of the average length that vLLM's cache holds at once."""
        rollout, shape = self.config.rollout, self.shape
        room = rollout.gpu_memory * self.gpu.memory - VLLM_WORK - self.compute * shape.total / rollout.tensor_parallel
        per_token = self._cache_per_token() / min(rollout.tensor_parallel, shape.kv_heads)
        return max(0, int(room / (per_token * (self.prompt / rollout.group + self.mean))))

    def _link(self) -> float:
        """Bytes per second of collectives; infinite on one GPU."""
        if not self.sharded:
            return math.inf
        return (self.gpu.link if self.count <= PER_MACHINE else min(self.gpu.link, NETWORK)) * self.assume.bandwidth

    def notes(self) -> list[str]:
        """What the figures do not say by themselves."""
        found = []
        if self.config.optim.micro_batch_tokens < self.budget:
            found.append(
                f"optim.micro_batch_tokens = {self.config.optim.micro_batch_tokens} is less than one prompt with one "
                f"response of full length ({self.budget}), which is the smallest pass there is"
            )
        if self.config.rollout.engine == "vllm":
            sequences = self._vllm_sequences()
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


def _image_tokens(config: Config, shape: Shape, image: tuple[int, int]) -> int:
    """Tokens of a picture after Qwen's resizing to whole tokens within the bounds of its pixels."""
    side, (width, height) = shape.token_side, image
    across, down = max(1, round(width / side)), max(1, round(height / side))
    pixels = across * down * side**2
    if config.model.max_pixels and pixels > config.model.max_pixels:
        scale = math.sqrt(width * height / config.model.max_pixels)
        across, down = (max(1, math.floor(each / scale / side)) for each in (width, height))
    elif pixels < config.model.min_pixels:
        scale = math.sqrt(config.model.min_pixels / (width * height))
        across, down = (math.ceil(each * scale / side) for each in (width, height))
    return across * down


# --- remedies -----------------------------------------------------------------------------------------------------


def remedies(
    config: Config, shape: Shape, gpu_name: str, count: int, workload: Workload, assumptions: Assumptions
) -> list[str]:
    """Ways to make it fit: a smallest set of settings, more GPUs of this kind, a larger kind."""

    def fits(candidate: Config, name: str = gpu_name, number: int = count) -> bool:
        return plan(candidate, shape, GPUS[name], number, workload, assumptions).fits

    found = []
    chosen: dict[tuple[str, str], Any] = {}
    for section, key, value in _changes(config, workload, shape):
        chosen[section, key] = value
        if fits(_with(config, chosen)):
            for change in list(chosen):  # what came before and turns out not to be needed
                rest = {other: chosen[other] for other in chosen if other != change}
                if fits(_with(config, rest)):
                    chosen = rest
            found.append(" ".join(f"--set {'.'.join(change)}={_plainly(value)}" for change, value in chosen.items()))
            break
    limit = config.data.prompts_per_step
    more = (number for number in (2, 4, 8, 16, 32, 64) if count < number <= limit)
    if (enough := next((number for number in more if fits(config, number=number)), None)) is not None:
        found.append(f"--gpus {enough}x{gpu_name}")
    larger = sorted((name for name in GPUS if GPUS[name].memory > GPUS[gpu_name].memory), key=lambda n: GPUS[n].memory)
    if (kind := next((name for name in larger if fits(config, name=name)), None)) is not None:
        found.append(f"--gpus {count}x{kind}")
    return found


def _changes(config: Config, workload: Workload, shape: Shape) -> Iterator[tuple[str, str, Any]]:
    """Settings (section, key, value) that save memory, those that cost least first."""
    if not config.model.gradient_checkpointing:
        yield "model", "gradient_checkpointing", True
    if config.effective_loss.kl and config.model.reference == "device":
        yield "model", "reference", "cpu"
    smallest = _image_tokens(config, shape, workload.image) + workload.prompt_tokens + config.rollout.max_new_tokens
    tokens = config.optim.micro_batch_tokens
    while tokens // 2 >= smallest:
        tokens //= 2
        yield "optim", "micro_batch_tokens", tokens
    prompts = config.rollout.prompts_per_batch
    while config.rollout.engine == "transformers" and prompts > 1:
        prompts //= 2
        yield "rollout", "prompts_per_batch", prompts
    if config.optim.optimizer == "adamw":
        yield "optim", "optimizer", "adamw8bit"
    if config.rollout.engine == "vllm":
        share = config.rollout.gpu_memory
        while share > 0.2:
            share = round(share - 0.05, 2)
            yield "rollout", "gpu_memory", share
        yield "rollout", "engine", "transformers"


def _with(config: Config, changes: Mapping[tuple[str, str], Any]) -> Config:
    for (section, key), value in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **{key: value})})
    return config


def _plainly(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the command --------------------------------------------------------------------------------------------------


def parse_gpus(text: str) -> tuple[int, str]:
    """``8xH100``, or ``H100`` for one.

    Raises:
        InputError: another form, or a kind that is not in :data:`GPUS`.
    """
    match = re.fullmatch(r"(?:([0-9]+)\s*[x*])?\s*(.+)", text.strip(), re.IGNORECASE)
    kinds = {_plain(name): name for name in GPUS}
    name = kinds.get(_plain(match[2])) if match else None
    if match is None or name is None:
        raise InputError(None, None, f"--gpus {text!r}: expected COUNTxKIND, such as 8xH100 (kinds: {', '.join(GPUS)})")
    if (count := int(match[1] or 1)) < 1:
        raise InputError(None, None, f"--gpus {text!r}: at least one GPU")
    return count, name


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|gb$", "", name.lower())


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan; returns 0 if it fits, 3 if not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m scapo_train.plan", description=__doc__.partition("\n")[0])
    parser.add_argument("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    parser.add_argument("--gpus", required=True, metavar="8xH100", help=f"how many of which: {', '.join(GPUS)}")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--image", default="640x480", metavar="WxH", help="pixels of a picture (default: 640x480)")
    work, assume = Workload(), Assumptions()
    for name, text in (
        ("prompt-tokens", "text tokens of a prompt, the chat template's included"),
        ("response-tokens", "tokens of an average response"),
        ("prompts", "prompts of the training file"),
    ):
        default = getattr(work, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default: {default})")
    parser.add_argument(
        "--efficiency", type=float, default=assume.efficiency, help=f"of matrix products (default: {assume.efficiency})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, bytes and seconds unrounded")
    given = parser.parse_args(arguments)
    try:
        count, name = parse_gpus(given.gpus)
        workload = Workload(_size(given.image), given.prompt_tokens, given.response_tokens, given.prompts)
        assumptions = dataclasses.replace(assume, efficiency=given.efficiency)
        _check(workload, assumptions)
        config = settings.load(given.config, given.set)
        if not config.model.path:
            raise InputError(given.config, None, "model.path is not set: --set model.path=...")
        shape = shape_of(config.model.path)
        found = plan(config, shape, GPUS[name], count, workload, assumptions)
        if not found.fits:
            ways = remedies(config, shape, name, count, workload, assumptions)
            found = dataclasses.replace(found, remedies=ways)
    except ScapoError as error:
        print(f"scapo_train.plan: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(_table(found, config, shape, count, name, workload, assumptions), indent=2))
    else:
        print(_text(found, config, shape, count, name, workload, assumptions))
    return 0 if found.fits else 3


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)[x*]([0-9]+)", text.strip())
    if match is None:
        raise InputError(None, None, f"--image {text!r}: expected WIDTHxHEIGHT, such as 640x480")
    return int(match[1]), int(match[2])


def _check(workload: Workload, assumptions: Assumptions) -> None:
    for name, value, least in (
        ("image", min(workload.image), 1),
        ("prompt-tokens", workload.prompt_tokens, 0),
        ("response-tokens", workload.response_tokens, 1),
        ("prompts", workload.prompts, 1),
    ):
        if value < least:
            raise InputError(None, None, f"--{name}: at least {least}, got {value}")
    if not 0 < assumptions.efficiency <= 1:
        raise InputError(None, None, f"--efficiency: a share of 1, got {assumptions.efficiency}")


def _table(found: Plan, config: Config, shape: Shape, count: int, name: str, *rest: Any) -> dict[str, Any]:
    workload, assumptions = rest
    return {
        "model": config.model.path,
        "gpus": {"count": count, "kind": name, **asdict(GPUS[name])},
        "shape": asdict(shape),
        "workload": asdict(workload),
        "assumptions": asdict(assumptions),
        **asdict(found),
        "fits": found.fits,
        "seconds_per_step": sum(found.seconds.values()),
    }


def _text(found: Plan, config: Config, shape: Shape, count: int, name: str, *rest: Any) -> str:
    workload, assumptions = rest
    picture = _image_tokens(config, shape, workload.image)
    lines = [
        f"{config.model.path}: {shape.total:,} parameters, {shape.trained:,} trained, on {count} x {name}",
        f"{config.data.prompts_per_step} prompts x {config.rollout.group} responses a step; a picture of "
        f"{workload.image[0]} x {workload.image[1]} is {picture} tokens, an average response {workload.response_tokens}",
        "",
        f"{'GiB per GPU':<26}" + "".join(f"{moment:>11}" for moment in MOMENTS),
    ]
    kinds = list(dict.fromkeys(kind for moment in MOMENTS for kind in found.memory[moment]))
    for kind in kinds:
        cells = [found.memory[moment].get(kind, 0.0) / GIB for moment in MOMENTS]
        lines.append(f"{kind:<26}" + "".join(f"{cell:>11.2f}" if cell else f"{'-':>11}" for cell in cells))
    sums = [sum(found.memory[moment].values()) / GIB for moment in MOMENTS]
    lines.append(f"{'together':<26}" + "".join(f"{cell:>11.2f}" for cell in sums))
    verdict = "it fits" if found.fits else "IT DOES NOT FIT"
    lines += [
        "",
        f"peak {found.peak / GIB:.1f} GiB ({found.peak_moment}), with context and fragmentation "
        f"{found.needed / GIB:.1f} of {found.available / GIB:.1f} GiB: {verdict}",
    ]
    lines += [f"  note: {note}" for note in found.notes]
    if not found.fits:
        lines += [f"  would fit: {way}" for way in found.remedies] or ["  nothing that this plan knows would help"]
    total = sum(found.seconds.values())
    phases = ", ".join(f"{phase} {seconds:.2g}" for phase, seconds in found.seconds.items())
    if math.isfinite(total):
        lines += [
            "",
            f"seconds per step {total:.0f} ({phases}); {found.steps} steps {found.steps * total / 3600:.1f} h; "
            f"update at {found.mfu:.0%} of {GPUS[name].flops / 1e12:.0f} TFLOP/s",
            f"  assumed: {assumptions.efficiency:.0%} of the matrix rate, {assumptions.bandwidth:.0%} of bandwidth, "
            f"longest response {assumptions.longest:g} x the average",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["GPUS", "Assumptions", "Gpu", "Plan", "Shape", "Workload", "parse_gpus", "plan", "remedies", "shape_of"]
