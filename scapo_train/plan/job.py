"""The question to the planner: a configuration on some GPUs, and what one of them has to do in a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scapo_eval.base.errors import InputError, ScapoError

from ..config import Config, Model
from ..families.lora import targets
from ..model import processor_of
from ..preference.loss import READ
from .hardware import GIB, GPUS, Gpu
from .shapes import Shape

VLLM_WORK = 3 * GIB
"""What vLLM needs beside weights and cache: its context, graphs and largest batch."""


@dataclass(frozen=True)
class Workload:
    """Sizes of prompts and responses.

    Attributes:
        image: width and height in pixels (640x480: most of COCO).
        prompt_tokens: number of tokens of the text around the image, the chat template's included.
        response_tokens: number of tokens of an average response; memory is planned for ``rollout.max_new_tokens``.
        prompts: number of prompts in the training file.
    """

    image: tuple[int, int] = (640, 480)
    prompt_tokens: int = 30
    response_tokens: int = 192
    prompts: int = 5000


@dataclass(frozen=True)
class Assumptions:
    """Assumptions behind the seconds.

    Attributes:
        efficiency: share of the bfloat16 rate that forward and backward passes reach.
        bandwidth: share of the memory's and the links' bandwidth that is reached.
        launch: seconds per decoder layer and token that transformers' decoding takes to start its kernels.
        vllm_step: seconds that vLLM adds to each decoding step.
        longest: how many times the average the longest response of a batch is.
        reward: seconds per response that the reward takes (measured: docs/performance.md).
    """

    efficiency: float = 0.45
    bandwidth: float = 0.7
    launch: float = 0.9e-3
    vllm_step: float = 3e-3
    longest: float = 1.6
    reward: float = 23e-6


@dataclass(frozen=True)
class Pass:
    """The largest size of one forward and backward pass, if every response has the same length.

    Attributes:
        prompts: number of prompts.
        responses: number of responses to them.
        prompt: tokens of each prompt.
        length: tokens of each response.
    """

    prompts: int
    responses: int
    prompt: int
    length: int

    @property
    def tokens(self) -> int:
        """Tokens of the forward pass: the last one of each response predicts nothing."""
        return self.prompts * self.prompt + self.responses * (self.length - 1)

    @property
    def keys(self) -> int:
        """Keys that the responses' attention reads: each its prompt and itself."""
        return self.responses * (self.prompt + self.length - 1)

    @property
    def scores(self) -> int:
        """Attention scores of the responses, per head."""
        return self.keys * (self.length - 1)

    @staticmethod
    def within(budget: int, prompt: int, length: int, group: int, prompts: int) -> Pass:
        """Returns the largest pass that :class:`scapo_train.update.Updater` makes: whole groups, or part of one."""
        row = prompt + group * (length - 1)
        if row <= budget:
            count = min(prompts, budget // row)
            return Pass(count, count * group, prompt, length)
        return Pass(1, max(1, (budget - prompt) // max(1, length - 1)), prompt, length)

    @staticmethod
    def separate(budget: int, prompt: int, length: int, group: int) -> Pass:
        """Returns the same on the general path: a group or part of it, each response with a prompt of its own."""
        count = max(1, min(group, budget // (prompt + length - 1)))
        return Pass(count, count, prompt, length)

    @staticmethod
    def of_pairs(budget: int, prompt: int, length: int, read: tuple[int, int], pairs: int) -> Pass:
        """Returns the largest pass that :class:`scapo_train.preference.trainer.PreferenceTrainer` makes: whole
        pairs.
        """
        count = max(1, min(pairs, budget // (read[0] * prompt + read[1] * (length - 1))))
        return Pass(count * read[0], count * read[1], prompt, length)


@dataclass(frozen=True)
class Picture:
    """The tokens and patches of a picture.

    Attributes:
        tokens: number of tokens in a prompt.
        patches: number of patches that the tower reads.
        pixels: bytes of what the processor makes of it, where a pass takes that.
    """

    tokens: int
    patches: int
    pixels: int = 0


@dataclass(frozen=True)
class Job:
    """The question: a configuration of a model, on some GPUs, with prompts and responses of some length.

    Attributes:
        config: settings of the training run.
        shape: sizes of its model.
        kind: name of the GPUs in :data:`~scapo_train.plan.hardware.GPUS`.
        count: number of GPUs.
        work: size of images, prompts and responses.
        assume: efficiencies that the seconds are computed from.
        pairs: whether it trains on pairs (:mod:`scapo_train.preference`) in place of rollouts.

    Raises:
        ScapoError: if these GPUs cannot share this work at all, the dtype is not one to train with, the model does not
            have a layer that ``lora.targets`` names, or no processor that says what becomes of a picture.
    """

    config: Config
    shape: Shape
    kind: str
    count: int = 1
    work: Workload = Workload()
    assume: Assumptions = Assumptions()
    pairs: bool = False

    def __post_init__(self) -> None:
        targets(self.config.lora, [*self.shape.linear, *self.shape.stacks])
        prompts, parallel = self.config.data.prompts_per_step, self.config.rollout.tensor_parallel
        if self.config.model.dtype == "float64":
            raise ScapoError("model.dtype = float64 is for comparing computations: a plan knows bfloat16 and float32")
        if self.count > prompts:
            reason = f"{self.count} GPUs, but data.prompts_per_step is {prompts}: some would have no work"
            raise InputError(reason)
        if self.vllm and not self.shape.shared:
            raise InputError('rollout.engine = "vllm" is not for models of the general path: set it to "transformers"')
        if self.vllm and self.count % parallel:
            raise InputError(f"rollout.tensor_parallel = {parallel} does not divide {self.count} GPUs")
        _ = self.picture

    @property
    def gpu(self) -> Gpu:
        """Memory and rates of this kind of GPU."""
        return GPUS[self.kind]

    @property
    def steps(self) -> int:
        """Steps of the whole training run."""
        data = self.config.data
        return self.config.run.steps or data.epochs * (self.work.prompts // data.prompts_per_step)

    @property
    def vllm(self) -> bool:
        """Whether vLLM samples; runs on pairs sample by the policy itself."""
        return self.config.rollout.engine == "vllm" and not self.pairs

    @property
    def picture(self) -> Picture:
        """The size of a picture: Qwen's resizing to whole tokens, or that of the model's own processor."""
        if not self.shape.shared:
            return picture_of(self.config.model, *self.work.image, self.shape.patch)
        side, bounds, (width, height) = self.shape.token_side, self.config.model, self.work.image
        across, down = max(1, round(width / side)), max(1, round(height / side))
        if bounds.max_pixels and across * down * side**2 > bounds.max_pixels:
            scale = math.sqrt(width * height / bounds.max_pixels)
            across, down = (max(1, math.floor(size / scale / side)) for size in (width, height))
        elif across * down * side**2 < bounds.min_pixels:
            scale = math.sqrt(bounds.min_pixels / (width * height))
            across, down = (math.ceil(size * scale / side) for size in (width, height))
        return Picture(across * down, 4 * across * down)

    @property
    def image_tokens(self) -> int:
        """Tokens of an image."""
        return self.picture.tokens

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt, its image included."""
        return self.image_tokens + self.work.prompt_tokens


@lru_cache(16)
def picture_of(model: Model, width: int, height: int, patch: int) -> Picture:
    """Returns the size of a picture by a model's own processor, of which one patch has so many numbers.

    Raises:
        ScapoError: if there is no processor in its folder.
    """
    from PIL import Image

    processor = processor_of(model)

    def made(*pictures: Any) -> Any:
        parts = [*({"type": "image"} for _ in pictures), {"type": "text", "text": "Describe this image."}]
        turns = [{"role": "user", "content": parts}]
        chat = processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return processor(text=[chat], images=list(pictures) or None, return_tensors="pt")

    with_picture, without = made(Image.new("RGB", (width, height))), made()
    numbers = with_picture["pixel_values"].numel()
    return Picture(with_picture["input_ids"].shape[1] - without["input_ids"].shape[1], numbers // patch, 4 * numbers)


class GpuShare:
    """The work of one GPU in a step of a job: the quantities from which bytes and seconds are computed.

    Attributes:
        value_bytes: bytes of a number in the computation.
        autocast: whether float32 weights are cast for each matrix product (on one GPU).
        sharded: whether the weights are spread over GPUs (FSDP).
        repeats_keys: whether attention copies keys and values for each of its query heads.
        kl: whether there is a reference.
        lora: whether the model is frozen and adapters are trained, which need no reference model.
        adapters: number of parameters of adapters.
        stack_adapters: of these, those of experts.
        trained: number of parameters that the optimizer changes.
        prompts: prompts of a step.
        responses: number of responses per step.
        pictures: pictures of a step.
        mean_response: tokens of a response on average.
        passes: the forward and backward pass with responses of full length, and with average ones.
        rows: prompts of a step, counted once for each pass that their groups are spread over.
    """

    def __init__(self, job: Job) -> None:
        config = job.config
        self.job, self.config, self.shape, self.gpu, self.count = job, config, job.shape, job.gpu, job.count
        self.value_bytes = 4 if config.model.dtype == "float32" else 2
        self.autocast = self.count == 1 and self.value_bytes == 2
        self.sharded = self.count > 1
        self.repeats_keys = True  # on CUDA: the kernel that takes a mask wants as many keys as queries
        self.kl = job.pairs or config.loss.kl > 0
        self.lora = config.lora.rank > 0
        self.adapters = self.shape.adapters(config.lora)
        self.stack_adapters = self.shape.stack_adapters(config.lora)
        self.trained = self.adapters if self.lora else self.shape.language
        self.picture = job.picture
        self.image_tokens, self.prompt_tokens = self.picture.tokens, self.picture.tokens + job.work.prompt_tokens
        longest = config.rollout.max_new_tokens
        self.mean_response = min(job.work.response_tokens, longest)
        per_gpu, group = math.ceil(config.data.prompts_per_step / self.count), config.rollout.group
        read = READ[config.preference.loss] if job.pairs else (1, group)
        self.prompts, self.responses = per_gpu * read[0], per_gpu * read[1]
        self.pictures = per_gpu * (2 if job.pairs and config.preference.loss == "mdpo" else 1)
        budget, prompt = config.optim.micro_batch_tokens, self.prompt_tokens
        # the most memory may be taken by long responses, or by many short ones that each read their prompt
        lengths = (longest, self.mean_response)
        if not self.shape.shared:  # a pair is one pass after another, all kept until the loss: planned as one
            self.passes = [Pass.separate(10**9 if job.pairs else budget, prompt, length, read[1]) for length in lengths]
            self.rows = self.responses
        elif job.pairs:
            self.passes = [Pass.of_pairs(budget, prompt, length, read, per_gpu) for length in lengths]
            self.rows = self.prompts
        else:
            self.passes = [Pass.within(budget, prompt, length, group, per_gpu) for length in lengths]
            self.rows = self.prompts * math.ceil(group / self.passes[1].responses)

    def cache_per_token(self) -> float:
        """Returns the bytes of the keys and values of one token, over all layers."""
        return self.shape.layers * 2 * self.shape.kv_heads * self.shape.head_dim * self.value_bytes

    def vllm_sequences(self) -> int:
        """Responses of the average length that vLLM's cache holds at once."""
        rollout, shape = self.config.rollout, self.shape
        room = (
            rollout.gpu_memory * self.gpu.memory - VLLM_WORK - self.value_bytes * shape.total / rollout.tensor_parallel
        )
        per_token = self.cache_per_token() / min(rollout.tensor_parallel, shape.kv_heads)
        return max(0, int(room / (per_token * (self.prompt_tokens / rollout.group + self.mean_response))))
