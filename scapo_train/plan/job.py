"""Input to the planner: a configuration for a given number of GPUs, and the work of one GPU in a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from torch import Tensor
from torch.nn import functional

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.engines.hf import without_second_bos

from ..config import Config, Model
from ..data import PromptRecord, chat_text
from ..families.lora import targets
from ..model import processor_of
from ..preference.loss import READ
from .hardware import GIB, GPUS, GPUS_PER_MACHINE, Gpu
from .shapes import Shape

VLLM_WORK = 3 * GIB
"""Bytes that vLLM needs in addition to weights and cache, for its context, CUDA graphs and largest batch."""

NO_PLAN = "a plan does not cover rollout.server; --set rollout.server='' plans for vLLM on the training GPUs"
"""Message for runs whose responses are sampled on other GPUs."""


@dataclass(frozen=True)
class Workload:
    """Sizes of prompts and responses.

    Attributes:
        image: Width and height of the image in pixels. Most COCO images have 640x480 pixels.
        prompt_tokens: Number of tokens in the text around the image, including the chat template.
        response_tokens: Number of tokens in an average response. Memory is planned for ``rollout.max_new_tokens``.
        prompts: Number of prompts in the training file.
    """

    image: tuple[int, int] = (640, 480)
    prompt_tokens: int = 30
    response_tokens: int = 192
    prompts: int = 5000


@dataclass(frozen=True)
class Assumptions:
    """Assumptions behind the estimated durations.

    ``efficiency`` and ``response`` are fitted to two published steps. ``benchmarks/published_steps.py`` contains these
    and the other published steps, on which the estimate is tested.

    Attributes:
        efficiency: Share of the bfloat16 rate that is reached in forward and backward passes.
        experts: Share of ``efficiency`` that the products of a mixture of experts reach, including the sorting of
            tokens, as measured on an H100 (docs/lab/training.md).
        bandwidth: Share of the memory and link bandwidth that transfers achieve.
        launch: Seconds that each pass through a decoder layer needs for kernel launches and waiting, in addition to the
            time for its FLOPs.
        vllm_step: Seconds that vLLM adds to each decoding step.
        vllm_sync: Seconds per decoder layer for loading weights into vLLM, in addition to the time for their bytes, and
            for its sleep, as measured on an H100 (docs/lab/training.md).
        longest: Ratio of the longest to the average response length in a batch.
        reward: Time in seconds for computing the reward of one response, as measured in docs/performance.md.
        picture: Time in seconds that the host needs to read and resize one picture (640x480 pixels), as measured on one
            core.
        response: Seconds of host time per response for all other work between the phases.
        error: Half-width of the range around the estimated duration, relative to the estimate. The published steps that
            were not used for any fit are within this range. Relative to the published duration, seven of the eight
            estimates are within 11 %, and one is 30.2 % too high (docs/lab/training.md).
    """

    efficiency: float = 0.354
    experts: float = 0.124
    bandwidth: float = 0.7
    launch: float = 0.9e-3
    vllm_step: float = 3e-3
    vllm_sync: float = 0.016
    longest: float = 1.6
    reward: float = 23e-6
    picture: float = 16e-3
    response: float = 13.9e-3
    error: float = 0.3


@dataclass(frozen=True)
class Pass:
    """Largest size of one forward and backward pass if all responses have the same length.

    Attributes:
        prompts: Number of prompts.
        responses: Number of responses to these prompts.
        prompt: Number of tokens per prompt.
        length: Number of tokens per response.
    """

    prompts: int
    responses: int
    prompt: int
    length: int

    @property
    def tokens(self) -> int:
        """Number of tokens in the forward pass. The last token of each response is omitted because it predicts
        nothing.
        """
        return self.prompts * self.prompt + self.responses * (self.length - 1)

    @property
    def keys(self) -> int:
        """Number of attention keys to which the responses attend. Each response attends to its prompt and to itself."""
        return self.responses * (self.prompt + self.length - 1)

    @property
    def scores(self) -> int:
        """Number of attention scores per head for the responses."""
        return self.keys * (self.length - 1)

    @staticmethod
    def within(budget: int, prompt: int, length: int, group: int, prompts: int) -> Pass:
        """Returns the largest pass of :class:`scapo_train.update.Updater`, which consists of whole groups or part of
        one group.
        """
        row = prompt + group * (length - 1)
        if row <= budget:
            count = min(prompts, budget // row)
            return Pass(count, count * group, prompt, length)
        return Pass(1, max(1, (budget - prompt) // max(1, length - 1)), prompt, length)

    @staticmethod
    def separate(budget: int, prompt: int, length: int, group: int) -> Pass:
        """Returns the largest pass on the general path: a group or a part of it, with one copy of the prompt per
        response.
        """
        count = max(1, min(group, budget // (prompt + length - 1)))
        return Pass(count, count, prompt, length)

    @staticmethod
    def of_pairs(budget: int, prompt: int, length: int, read: tuple[int, int], pairs: int) -> Pass:
        """Returns the size of the largest pass of :class:`PreferenceTrainer`, in which pairs are never split."""
        count = max(1, min(pairs, budget // (read[0] * prompt + read[1] * (length - 1))))
        return Pass(count * read[0], count * read[1], prompt, length)


@dataclass(frozen=True)
class Picture:
    """Tokens and patches of a picture.

    Attributes:
        tokens: Number of tokens in a prompt.
        patches: Number of patches that the tower processes.
        pixels: Number of bytes of the pixel values from the processor. The value is 0 if passes do not read the pixels.
    """

    tokens: int
    patches: int
    pixels: int = 0


@dataclass(frozen=True)
class Job:
    """Planning task: a model configuration, a number of GPUs, and the sizes of prompts and responses.

    Attributes:
        config: Settings of the training run.
        shape: Sizes of the model.
        kind: Name of the GPU type in :data:`~scapo_train.plan.hardware.GPUS`.
        count: Number of GPUs.
        work: Sizes of images, prompts and responses.
        assume: Assumed efficiencies for estimating durations.
        pairs: True for training on pairs (:mod:`scapo_train.preference`), False for training on rollouts.
        memory: Memory of the GPU in bytes, or 0 for that of the GPU type.

    Raises:
        ScapoError: If the GPUs cannot share the work, the dtype is not supported, ``lora.targets`` names a missing
            layer, or no processor is found for the size of a picture.
    """

    config: Config
    shape: Shape
    kind: str
    count: int = 1
    work: Workload = Workload()
    assume: Assumptions = Assumptions()
    pairs: bool = False
    memory: float = 0

    def __post_init__(self) -> None:
        targets(self.config.lora, [*self.shape.linear, *self.shape.stacks])
        prompts, parallel = self.config.data.prompts_per_step, self.config.rollout.tensor_parallel
        if self.config.model.dtype == "float64":
            raise ScapoError(
                "model.dtype = float64 is for comparing computations: a plan supports bfloat16 and float32"
            )
        if self.count > prompts:
            reason = f"{self.count} GPUs, but data.prompts_per_step is {prompts}: some would have no work"
            raise InputError(reason)
        if self.vllm and self.config.rollout.server:
            raise InputError(NO_PLAN)
        if self.vllm and not self.shape.shared:
            raise InputError(
                'rollout.engine = "vllm" does not support models of the general path: set it to "transformers"'
            )
        if self.vllm and self.count % parallel:
            raise InputError(f"rollout.tensor_parallel = {parallel} does not divide {self.count} GPUs")
        _ = self.picture

    @property
    def gpu(self) -> Gpu:
        """Memory and rates of the GPU type."""
        gpu = GPUS[self.kind]
        return replace(gpu, memory=self.memory) if self.memory else gpu

    @property
    def steps(self) -> int:
        """Number of steps in the whole training run."""
        data = self.config.data
        return self.config.run.steps or data.epochs * (self.work.prompts // data.prompts_per_step)

    @property
    def vllm(self) -> bool:
        """True if vLLM samples the responses. During training on pairs, the policy itself generates the samples."""
        return self.config.rollout.engine == "vllm" and not self.pairs

    @property
    def picture(self) -> Picture:
        """Size of a picture, as computed by the model's own processor or by Qwen's method for resizing pictures to
        whole tokens.
        """
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
        """Number of tokens for an image."""
        return self.picture.tokens

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of a prompt, including its image."""
        return self.image_tokens + self.work.prompt_tokens


@lru_cache(16)
def picture_of(model: Model, width: int, height: int, patch: int) -> Picture:
    """Uses the processor of a model to compute the size of a picture.

    Args:
        model: Settings of the model.
        width: Width of the picture in pixels.
        height: Height of the picture in pixels.
        patch: Number of values in one patch.

    Raises:
        ScapoError: If the model folder contains no processor.
    """
    without = processed(model)
    with_picture = processed(model, width, height)
    numbers = with_picture["pixel_values"].numel()
    return Picture(with_picture["input_ids"].shape[1] - without["input_ids"].shape[1], numbers // patch, 4 * numbers)


def prompt_of(model: Model, width: int, height: int, tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Uses the processor of a model to create a prompt with a picture.

    Args:
        model: Settings of the model.
        width: Width of the picture in pixels.
        height: Height of the picture in pixels.
        tokens: Number of tokens. The text after the picture is shortened or extended accordingly.

    Returns:
        The (tokens,) token ids, and the other inputs of the forward pass.
    """
    made = processed(model, width, height)
    more = tokens - made["input_ids"].shape[1]
    inputs = {
        name: functional.pad(tensor, (0, more), value=100 * (name == "input_ids")) if name in _OF_TOKENS else tensor
        for name, tensor in made.items()
    }
    del inputs["attention_mask"]
    return inputs.pop("input_ids")[0], inputs


_OF_TOKENS = ("input_ids", "token_type_ids", "mm_token_type_ids")


def processed(model: Model, *size: int) -> dict[str, Tensor]:
    """Returns the outputs of a model's processor for a prompt with a picture of the given width and height, or for a
    prompt without a picture.

    Raises:
        ScapoError: If the model folder contains no processor or no chat template.
    """
    from PIL import Image

    pictures = [Image.new("RGB", size)] if size else []
    processor = processor_of(model)
    chat = chat_text(processor, PromptRecord.of([model.path] * len(pictures), "", "Describe this image."))
    settings = without_second_bos(processor, chat)
    return dict(processor(text=[chat], images=pictures or None, return_tensors="pt", **settings))


class GpuShare:
    """Work of one GPU in a step: the quantities from which memory and durations are estimated.

    Attributes:
        value_bytes: Number of bytes per value in the computation.
        shards: Number of GPUs that share one copy of the weights.
        offload: True if trained weights and moments are in host memory.
        sharded: True if the weights are sharded (FSDP), over several GPUs or for offloading.
        autocast: True if float32 weights are cast for each matrix product (only without sharding).
        repeats_keys: True if attention copies keys and values for each query head.
        kl: True if there is a reference model.
        lora: True if the model is frozen and adapters are trained. In this case, no separate reference model is
            necessary.
        adapters: Number of adapter parameters.
        stack_adapters: Number of adapter parameters for experts (part of ``adapters``).
        trained: Number of parameters that the optimizer updates.
        prompts: Number of prompts per step.
        responses: Number of responses per step.
        pictures: Number of pictures per step.
        mean_response: Average number of tokens per response.
        passes: Forward and backward passes, first with responses of full length and then with responses of average
            length.
        rows: Number of prompts per step, where a prompt counts once for each pass that contains a part of its group.
    """

    def __init__(self, job: Job) -> None:
        config = job.config
        self.job, self.config, self.shape, self.gpu, self.count = job, config, job.shape, job.gpu, job.count
        self.value_bytes = 4 if config.model.dtype == "float32" else 2
        machine = min(self.count, GPUS_PER_MACHINE)
        self.shards = machine if config.model.shard_within == "machine" else self.count
        self.offload = config.optim.offload
        self.sharded = self.count > 1 or self.offload
        self.autocast = not self.sharded and self.value_bytes == 2
        self.repeats_keys = True  # on CUDA, the kernel for masked attention needs as many keys as queries
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
        # either long responses or many short ones, which each read their prompt, may need the most memory
        lengths = (longest, self.mean_response)
        if not self.shape.shared:  # a pair is several passes, all kept until the loss: planned as one pass
            self.passes = [Pass.separate(10**9 if job.pairs else budget, prompt, length, read[1]) for length in lengths]
            self.rows = self.responses
        elif job.pairs:
            self.passes = [Pass.of_pairs(budget, prompt, length, read, per_gpu) for length in lengths]
            self.rows = self.prompts
        else:
            self.passes = [Pass.within(budget, prompt, length, group, per_gpu) for length in lengths]
            self.rows = self.prompts * math.ceil(group / self.passes[1].responses)

    def cache_per_token(self) -> float:
        """Returns the number of bytes that the keys and values of one token occupy in all layers."""
        return self.shape.layers * 2 * self.shape.kv_heads * self.shape.head_dim * self.value_bytes

    def vllm_sequences(self) -> int:
        """Returns the number of responses of average length that fit into vLLM's cache at the same time."""
        rollout, shape = self.config.rollout, self.shape
        room = (
            rollout.gpu_memory * self.gpu.memory - VLLM_WORK - self.value_bytes * shape.total / rollout.tensor_parallel
        )
        per_token = self.cache_per_token() / min(rollout.tensor_parallel, shape.kv_heads)
        return max(0, int(room / (per_token * (self.prompt_tokens / rollout.group + self.mean_response))))
