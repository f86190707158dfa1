"""Sampling of responses with vLLM in the training processes, on the same GPUs as training (colocated).

During the policy update, vLLM sleeps and keeps neither weights nor caches on the GPU. ``sync`` allocates vLLM's weights
again and overwrites them with the policy's weights, or sends only the policy's adapters
(:mod:`scapo_train.samplers.adapters`). ``sample`` allocates the cache, draws the samples, and puts the
engine to sleep again. With ``rollout.sleep = false``, the engine stays awake. Each rank starts its own engine in the
processes that torchrun started. With ``rollout.tensor_parallel``, neighboring ranks share one engine, which samples
responses to the prompts of all these ranks. The module requires vLLM 0.21 or later.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError
from scapo_eval.engines import check_vllm
from scapo_eval.engines.images import ImageFault, load
from scapo_eval.engines.vllm_offline import faults, root_cause
from scapo_eval.files.json_text import read_json

from ..config import Config
from ..data import Prompt, Prompts, Response, read_prompts, seed_of
from ..distributed import ProcessGroup
from ..families.lora import (
    adapted_layers,
    adapter_weights,
    adapters_off,
    merged_shapes,
    merged_weights,
    save_adapter,
    trial_adapters,
)
from ..families.policy import EncodedPrompt, Policy
from ..rollout import encode
from .adapters import engine_settings, has_experts, obstacle, sent_alone

_log = logging.getLogger(__name__)

TEXT_TOKENS = 4096
"""Maximum number of text tokens in a prompt. vLLM needs the maximum sequence length in advance."""

NORMALIZATION = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
"""Normalization settings that a processor file must contain, since vLLM does not use the processors' defaults."""

CHECKED_PROMPTS, CHECKED_TOKENS = 4, 16

LARGEST_GAP, MEAN_GAP = 1e-4, 0.05
"""Limits on the difference between the trainer's and vLLM's log-probabilities, in nats.

``LARGEST_GAP`` applies to every token in float32, where the largest measured difference was 1.6e-5. ``MEAN_GAP``
applies to the average in bfloat16, where single tokens differ by more.
"""

PIXEL_GAP = 0.05
"""Maximum difference of pixel values, which are mostly in [-2, 2]. Rounding causes a difference of 0.02, and a missing
normalization causes a difference of 1.
"""

SYNCHRONIZED = "%s: weights synchronized in %.1f s; log-probabilities as the trainer's: %s"

_REJECTS = (ValueError, KeyError, TypeError, AttributeError, RuntimeError, AssertionError)
"""Errors that vLLM raises for weights that do not fit."""

_BIAS = -100.0
"""Logit bias of tokens that are never sampled. It is the smallest value that vLLM accepts, and it multiplies the
likelihood by e^-100.
"""


class RolloutRequest(NamedTuple):
    """Prompt as it is sent to other ranks, with its picture files, token ids and seed."""

    pictures: tuple[str, ...]
    ids: list[int]
    seed: int

    @property
    def path(self) -> str | None:
        """Name of the prompt, for use in messages."""
        return self.pictures[0] if self.pictures else None


class VllmSampler:
    """Sampler that runs vLLM with the policy's weights; see :class:`~scapo_train.rollout.Sampler`.

    Args:
        config: Settings of the training run.
        policy: Model whose weights are copied to vLLM.
        processor: Processor of the model.
        process_group: Group of all processes in the training run.

    Raises:
        MissingExtra: If vLLM is not installed.
        ScapoError: If vLLM is too old or cannot load the model, or if its results with the policy's weights differ from
            the trainer's (``rollout.check_sync``).
    """

    def __init__(self, config: Config, policy: Policy, processor: Any, process_group: ProcessGroup) -> None:
        rollout, run, model = config.rollout, config.run, config.model
        self._policy, self._process_group = policy, process_group
        self._dtype: torch.dtype = getattr(torch, model.dtype)
        self._max_new_tokens = rollout.max_new_tokens
        self._neighbors = _neighbors(process_group, rollout.tensor_parallel)
        files = filter(None, (config.data.train, config.data.evaluation))
        sources = [source for file in files for source in read_prompts(file, config.data.images)]
        pictures = max(len(source.pictures) for source in sources)
        self.longest = _longest(policy, processor, rollout.max_new_tokens, pictures)
        self._vllm = _imported()
        if self._dtype == torch.float32:  # as the trainer; by default, vLLM's attention kernels multiply in TF32
            os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
        self.versions: Mapping[str, str] = {"vllm": str(self._vllm.__version__)}
        self.name = f"vllm {self._vllm.__version__}"
        against = obstacle(config, has_experts(policy.vlm.config), process_group.device.type)
        self._only_adapters = sent_alone(config, self.name, against)
        pixels = {"min_pixels": model.min_pixels, "max_pixels": model.max_pixels}
        before = _allocated(process_group.device)
        try:
            self._llm = self._vllm.LLM(
                model=model.path,
                revision=model.revision or None,
                dtype=model.dtype,
                seed=run.seed,
                tensor_parallel_size=rollout.tensor_parallel,
                distributed_executor_backend="external_launcher" if process_group.size > 1 else "uni",
                gpu_memory_utilization=rollout.gpu_memory,
                max_model_len=self.longest,
                enable_sleep_mode=rollout.sleep,
                enforce_eager=process_group.device.type == "cpu",  # compiling takes minutes
                limit_mm_per_prompt={"image": pictures, "video": 0},
                mm_processor_kwargs={name: value for name, value in pixels.items() if value} or None,
                mm_processor_cache_gb=0,  # a picture occurs once per epoch
                generation_config="vllm",  # instead of the sampling settings of the checkpoint
                # as in the update: after the temperature, and without tokens that are never sampled
                logprobs_mode="processed_logprobs",
                **(engine_settings(config, adapted_layers(policy.vlm)) if self._only_adapters else {}),
            )
        except Exception as error:  # releases differ in the errors for a model or an argument that they do not support
            why = root_cause(error)
            if "leep mode" in why:
                why += ": set rollout.sleep = false"
            raise ScapoError(f"vLLM cannot load {model.path}: {why}") from None
        self.sleeping_memory = _allocated(process_group.device) - before if rollout.sleep else 0
        self._base = model.path, model.revision
        self._adapter: Any = None  # vLLM's request for the adapters of the last synchronization
        self._syncs = 0
        self._sleep_level = rollout.sleep_level if rollout.sleep else 0
        self._awake = {"weights", "kv_cache"}
        self._has_weights = True
        self._complete = False  # True once all of vLLM's weights were found to be set
        if rollout.check_sync:
            self._check(config, processor)
        self._sleep()

    @torch.no_grad()
    def sync(self) -> None:
        """Copies the policy's weights or only its adapters to vLLM, and clears caches that were computed with the
        previous weights.

        Raises:
            ScapoError: If vLLM has no weight with the same name as a weight of the policy, if a weight of vLLM was not
                set, or if vLLM rejects the adapters.
        """
        self._wake("weights")
        if self._only_adapters:
            self._send_adapters()
        else:
            self._send_weights()
        self._has_weights = True
        if not self._llm.reset_prefix_cache():
            raise ScapoError("vLLM keeps its prefix cache: a request is still running")
        self._llm.llm_engine.reset_encoder_cache()

    def _send_adapters(self) -> None:
        from vllm.lora.request import LoRARequest

        weights, self._syncs = adapter_weights(self._policy.vlm, self._dtype), self._syncs + 1
        try:
            with TemporaryDirectory(prefix="scapo-adapters-") as folder:
                save_adapter(weights, self._policy.vlm, *self._base, Path(folder))
                self._adapter = LoRARequest(
                    lora_name=f"policy-{self._syncs}", lora_int_id=self._syncs, lora_path=folder
                )
                self._llm.llm_engine.add_lora(self._adapter)
        except (OSError, SafetensorError, *_REJECTS) as error:
            raise ScapoError(f"vLLM cannot load the policy's adapters: {root_cause(error)}") from None

    def _send_weights(self) -> None:
        if self._process_group.device.type == "cpu":
            self._llm.apply_model(_unpacked)
        if not self._complete:
            self._llm.apply_model(_invalidate)
        try:
            given = {"weights_iterator": weights(self._policy, self._dtype)}
            self._llm.collective_rpc("reload_weights", kwargs=given)
        except _REJECTS as error:
            raise ScapoError(f"vLLM cannot load the policy's weights: {root_cause(error)}") from None
        if not self._complete:
            (missing,) = self._llm.apply_model(_invalid)
            if missing:
                raise ScapoError(
                    f"{len(missing)} weights of vLLM's model do not exist in the policy: {', '.join(missing[:5])}"
                )
            self._complete = True

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Implements ``sample`` of :class:`~scapo_train.rollout.Sampler`. The responses contain vLLM's
        log-probabilities.

        Raises:
            InputError: If a prompt is too long, or its picture can no longer be read.
            ScapoError: If vLLM rejects a request, or the token ids of vLLM's prompt differ from those of the trainer's
                prompt.
        """
        if not self._has_weights:
            self.sync()
        self._wake("weights")
        self._wake("kv_cache")
        responses = self._generate(prompts, seed, group, temperature, self._max_new_tokens)
        self._sleep()
        return responses

    def close(self) -> None:
        """Shuts down vLLM."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _wake(self, part: str) -> None:
        if part in self._awake:
            return
        if self._process_group.device.type == "cuda":
            torch.cuda.empty_cache()  # release torch's cached memory for vLLM
        self._llm.wake_up(tags=[part])
        self._awake.add(part)

    def _sleep(self) -> None:
        if not self._sleep_level:
            return
        self._llm.sleep(level=self._sleep_level)
        self._awake.clear()
        self._has_weights = self._sleep_level == 1  # level 1 keeps a copy on the host

    def _generate(
        self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float, max_tokens: int
    ) -> list[Response]:
        """Returns responses to the prompts of this rank. vLLM must be awake."""
        rank_requests = [
            RolloutRequest(
                encoded.prompt.source.pictures,
                encoded.prompt.ids.tolist(),
                engine_seed(seed, encoded.prompt.index),
            )
            for encoded in prompts
        ]
        before, together = self._gather_requests(rank_requests)
        copies = group if temperature == 0 else 1  # vLLM makes only one greedy response
        requests = [self._vllm_prompt(request) for request in together]
        settings = [
            self._vllm.SamplingParams(
                **sampling_settings(self._policy, request.seed, group // copies, temperature, max_tokens)
            )
            for request in together
        ]
        try:
            made = partial(self._llm.generate, use_tqdm=False, lora_request=self._adapter)
            outputs = made(requests, settings) if requests else []
        except faults()[0] as error:
            raise ScapoError(f"vLLM refuses a prompt: {root_cause(error)}") from None
        mine = slice(before, before + len(rank_requests))
        responses: list[Response] = []
        for request, output in zip(rank_requests, outputs[mine], strict=True):
            responses += _responses(request, output) * copies
        return responses

    def _gather_requests(self, requests: list[RolloutRequest]) -> tuple[int, list[RolloutRequest]]:
        """Returns the requests of all ranks that share this engine, and the number of requests before those of this
        rank.
        """
        if self._neighbors is None:
            return 0, requests
        parts: list[list[RolloutRequest]] = [[] for _ in range(dist.get_world_size(self._neighbors))]
        dist.all_gather_object(parts, requests, group=self._neighbors)
        before = sum(len(part) for part in parts[: dist.get_rank(self._neighbors)])
        return before, [request for part in parts for request in part]

    def _vllm_prompt(self, request: RolloutRequest) -> dict[str, Any]:
        """Returns a prompt in vLLM's format."""
        if len(request.ids) + self._max_new_tokens > self.longest:
            reason = (
                f"the prompt has {len(request.ids)} tokens; vLLM has room for {self.longest}, including the response"
            )
            raise InputError(reason, path=request.path)
        try:
            pictures = [load(picture) for picture in request.pictures]
        except ImageFault as error:
            raise InputError(f"can no longer be read: {error}", path=request.path) from None
        if not pictures:
            return {"prompt_token_ids": request.ids}
        ids = with_single_image_tokens(self._policy, request.ids)
        return {"prompt_token_ids": ids, "multi_modal_data": {"image": pictures[0] if len(pictures) == 1 else pictures}}

    def _check(self, config: Config, processor: Any) -> None:
        """Compares the pixels, and the log-probabilities for responses to pictures, between vLLM and the trainer.

        The values are compared once with weights that vLLM read from the disk, and once with weights copied from the
        policy. A difference that appears only with copied weights is caused by the transfer. The check runs before the
        first update of the policy.

        Raises:
            ScapoError: If the values differ. The error names the cause and a remedy.
        """
        prompts = checked_prompts(config, processor)
        with _pixels(self._policy.vlm) as trainer_pixels:
            encoded = encode(self._policy, prompts, self._process_group.device, at_once=1)
        tokens = min(CHECKED_TOKENS, self._max_new_tokens)
        answer = partial(self._generate, seed=0, group=1, temperature=config.rollout.temperature, max_tokens=tokens)
        (model,) = self._llm.apply_model(lambda model: model)
        with _pixels(model) as engine_pixels:
            before = [response for prompt in encoded for response in answer([prompt])]
        pixels = _largest(self._process_group, _apart(trainer_pixels, engine_pixels))
        from_disk = gap_of(self._policy, self._process_group, encoded, before)
        self._sleep()
        start = time.perf_counter()
        self.sync()
        seconds = time.perf_counter() - start
        self._wake("kv_cache")
        synchronized = gap_of(self._policy, self._process_group, encoded, answer(encoded))
        _log.info(SYNCHRONIZED, self.name, seconds, synchronized)
        if not synchronized.fits(self._dtype):
            cause = _cause(pixels, config.model.path, fits_from_disk=from_disk.fits(self._dtype))
            raise ScapoError(
                f"{self.name} and the trainer do not agree on log-probabilities ({synchronized}): {cause} "
                "(rollout.check_sync = false disables this check)"
            )
        if self._only_adapters:
            check_adapters(
                self._policy, self._process_group, encoded, self.sync, partial(answer, encoded), self.name, self._dtype
            )


class Gap(NamedTuple):
    """Absolute differences between vLLM's and the trainer's log-probabilities of tokens, in nats.

    Attributes:
        mean: Mean difference over all tokens.
        largest: Maximum difference over all tokens.
    """

    mean: float
    largest: float

    def fits(self, dtype: torch.dtype) -> bool:
        """Returns True if rounding in the given dtype can explain the differences. For NaN, the result is False."""
        return self.mean < MEAN_GAP if dtype.itemsize < 4 else self.largest < LARGEST_GAP

    def __str__(self) -> str:
        return f"{self.largest:.2g} nats at most, {self.mean:.2g} on average"


def checked_prompts(config: Config, processor: Any) -> list[Prompt]:
    """Returns the prompts on which an engine is compared with the trainer, with distinct pictures if possible."""
    distinct = {source.pictures: source for source in read_prompts(config.data.train, config.data.images)}
    sources = sorted(distinct.values(), key=lambda source: not source.pictures)[:CHECKED_PROMPTS]
    maker = Prompts(sources, processor, max_bad=CHECKED_PROMPTS)
    prompts = maker.take(range(len(sources)))
    maker.close()
    return prompts


@torch.no_grad()
def gap_of(
    policy: Policy, process_group: ProcessGroup, encoded: Sequence[EncodedPrompt], responses: Sequence[Response]
) -> Gap:
    """Returns the difference, computed over all ranks, between the log-probabilities from vLLM and those from the
    trainer.

    Args:
        policy: Model of the trainer.
        process_group: Group of all processes in the training run.
        encoded: Encoded prompts.
        responses: One response to each prompt, with vLLM's log-probabilities.
    """
    rows = [prompt.row([response.ids]) for prompt, response in zip(encoded, responses, strict=True)]
    logprobs = policy(policy.batch(rows, process_group.device)).logprob.float().cpu().numpy()
    given = [response.logprobs for response in responses if response.logprobs is not None]
    apart = np.abs(logprobs - np.concatenate(given))
    total, number = process_group.sum(float(apart.sum()), float(len(apart)))
    return Gap(total / number, _largest(process_group, float(apart.max())))


def check_adapters(
    policy: Policy,
    process_group: ProcessGroup,
    encoded: Sequence[EncodedPrompt],
    sync: Callable[[], None],
    answer: Callable[[], list[Response]],
    engine: str,
    dtype: torch.dtype,
) -> None:
    """Checks that an engine applies adapters as the trainer does. Because new adapters change nothing, they have trial
    values during the check.

    Args:
        policy: Model of the trainer, with adapters.
        process_group: Group of all processes in the training run.
        encoded: Encoded prompts.
        sync: Function that sends the adapters to the engine.
        answer: Function that returns one response to each prompt.
        engine: Name of the engine.
        dtype: Number format of the engine.

    Raises:
        ScapoError: If the log-probabilities differ, or are closer to those of the policy without adapters.
    """
    with trial_adapters(policy.vlm):
        sync()
        responses = answer()
        gap = gap_of(policy, process_group, encoded, responses)
        with adapters_off(policy.vlm):
            without = gap_of(policy, process_group, encoded, responses)
    sync()
    if not gap.fits(dtype) or gap.mean >= without.mean:
        raise ScapoError(
            f"{engine} does not apply adapters as the trainer does (log-probabilities differ by {gap}; without the "
            f'adapters, by {without}): set rollout.adapters = "merge" (rollout.check_sync = false disables this check)'
        )


def _largest(process_group: ProcessGroup, value: float) -> float:
    """Returns the largest of the values on all ranks."""
    return float(np.max(process_group.gather(value)))  # NaN if the value of any rank is NaN


def sampling_settings(policy: Policy, seed: int, number: int, temperature: float, max_tokens: int) -> dict[str, Any]:
    """Returns the arguments of vLLM's ``SamplingParams`` for ``number`` responses to a prompt."""
    return {
        "n": number,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": seed,
        "max_tokens": max_tokens,
        "ignore_eos": True,  # only the ends of the policy apply
        "stop_token_ids": policy.ends,
        "logit_bias": dict.fromkeys(policy.never, _BIAS),
        "logprobs": 0,
        "detokenize": False,
    }


def engine_seed(seed: int, index: int) -> int:
    """Returns the seed of a prompt's responses, to which vLLM adds the number of the response."""
    return seed_of(seed, index) >> 1


def with_single_image_tokens(policy: Policy, ids: Sequence[int]) -> list[int]:
    """Returns a prompt in which a single token represents each picture. vLLM repeats this token for each feature."""
    token = policy.vlm.config.image_token_id
    return [token_id for k, token_id in enumerate(ids) if token_id != token or k == 0 or ids[k - 1] != token]


def _allocated(device: torch.device) -> int:
    """Returns the bytes of all tensors on a GPU, including those of a sleeping engine, or 0 for a CPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _invalidate(model: Any) -> None:
    """Sets all weights to NaN, because vLLM raises no error for weights that it does not receive, and the names that it
    returns are not always those of its weights (experts in vLLM 0.26).
    """
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data.fill_(math.nan)


def _invalid(model: Any) -> list[str]:
    """Returns the names of weights that contain NaN."""
    return sorted(name for name, weight in model.named_parameters() if bool(weight.isnan().any()))


def _unpacked(model: Any) -> None:
    """Resets the layout of experts on a CPU. Without this reset, vLLM (up to 0.33) sets the layout only when weights
    are loaded for the first time.
    """
    for module in model.modules():
        if getattr(getattr(module, "quant_method", None), "moe_kernel", None) is not None:
            module.quant_method.moe_kernel = None


@contextmanager
def _pixels(model: Any) -> Iterator[list[Tensor]]:
    """Records each input to the first layer of a model's vision tower. Nothing is recorded for models that, unlike
    Qwen's models, have no ``visual.patch_embed.proj``. vLLM calls ``patch_embed`` itself without its hooks.
    """
    seen: list[Tensor] = []
    first = [module for name, module in model.named_modules() if name.endswith("visual.patch_embed.proj")]
    hooks = [module.register_forward_pre_hook(lambda _, given: seen.append(given[0].float().cpu())) for module in first]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _apart(trainer: Sequence[Tensor], engine: Sequence[Tensor]) -> float:
    """Returns the largest difference between the trainer's and vLLM's pixel values. The result is infinite if the
    numbers of values differ, and 0 if there are no values.
    """
    left, right = (torch.cat([torch.zeros(0), *(part.flatten() for part in parts)]) for parts in (trainer, engine))
    if left.shape != right.shape:
        return math.inf
    return float((left - right).abs().max()) if len(left) else 0.0


def _cause(pixels: float, path: str, *, fits_from_disk: bool) -> str:
    """Returns a text that states the cause of differences between log-probabilities and suggests a remedy."""
    if pixels > PIXEL_GAP:
        file = Path(path) / "preprocessor_config.json"
        settings = read_json(file) if file.is_file() else {}
        missing = [name for name in NORMALIZATION if isinstance(settings, dict) and name not in settings]
        remedy = "try another release of vLLM"
        if file.is_file() and missing:
            remedy = (
                f"vLLM normalizes them by {file.name}, which lacks {', '.join(missing)}: add those of the processor"
            )
        return f"their pixels differ by {pixels:.2g}; {remedy}"
    if fits_from_disk:
        return f"they agreed when vLLM had the weights of {path}: the policy's weights arrive changed"
    return "with the same pixels and weights; try another release of vLLM or of transformers, or rollout.engine"


def weights(policy: Policy, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yields the policy's weights by name in the layout that vLLM reads; see
    :func:`~scapo_train.families.lora.merged_weights`.
    """
    return merged_weights(policy.vlm, dtype)


def shapes(policy: Policy) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the names and shapes of :func:`weights` in the same order. Only ``weights`` gathers shards."""
    return merged_shapes(policy.vlm)


def _imported() -> Any:
    # read when vLLM starts an engine: the engine must run in the process of the weights
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        import vllm
    except ImportError:
        raise MissingExtra("vllm", "rollout.engine = vllm") from None
    check_vllm(vllm.__version__)
    return vllm


def _neighbors(process_group: ProcessGroup, size: int) -> Any:
    """Returns the group of ranks that share an engine with this rank, or None if each rank has its own engine."""
    if process_group.size % size:
        raise ScapoError(f"rollout.tensor_parallel = {size} does not divide the {process_group.size} ranks")
    if size == 1:
        return None
    return dist.new_subgroups(size)[0]


def _longest(policy: Policy, processor: Any, max_new_tokens: int, pictures: int = 1) -> int:
    """Returns the maximum number of tokens in a sequence.

    The maximum is the total number of tokens in the largest possible pictures, the text and the longest response, but
    not more than the model's context length.
    """
    images = processor.image_processor
    picture = images.size["longest_edge"] // (images.patch_size * images.merge_size) ** 2
    context = policy.vlm.config.get_text_config().max_position_embeddings
    return int(min(context, pictures * picture + TEXT_TOKENS + max_new_tokens))


def _responses(request: RolloutRequest, output: Any) -> list[Response]:
    """Returns the responses in vLLM's output.

    Raises:
        ScapoError: If vLLM's prompt differs from the requested prompt, or vLLM aborted the request.
    """
    if list(output.prompt_token_ids) != request.ids:
        raise ScapoError(
            f"{request.path}: vLLM's prompt of {len(output.prompt_token_ids)} tokens is not the trainer's of "
            f"{len(request.ids)}: the two process pictures differently"
        )
    responses = []
    for made in output.outputs:
        if made.finish_reason not in ("stop", "length"):
            raise ScapoError(f"{request.path}: vLLM stopped ({made.finish_reason})")
        ids = list(made.token_ids)
        logprobs = [place[token].logprob for token, place in zip(ids, made.logprobs, strict=True)]
        responses.append(Response(ids, made.finish_reason == "stop", np.array(logprobs, np.float32)))
    return responses
