"""Sampling responses with vLLM in the same processes, on the GPUs that train (colocated).

vLLM sleeps while the policy is updated and then holds neither weights nor caches. ``sync`` wakes its weights
and fills them with the policy's, ``sample`` wakes its cache, samples, and puts all of it to sleep again. With
``rollout.sleep = false`` it stays awake. Several ranks start one engine each, as torchrun started them; with
``rollout.tensor_parallel`` neighboring ranks share one and answer each other's prompts together. For vLLM 0.20 and
later.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError
from scapo_eval.engines.images import ImageFault, load
from scapo_eval.engines.vllm_offline import faults, root_cause
from scapo_eval.files.json_text import read_json

from ..config import Config
from ..data import Prompts, Response, read_prompts, seed_of
from ..distributed import ProcessGroup
from ..families.lora import merged_weights
from ..families.policy import EncodedPrompt, Policy
from ..rollout import encode

_log = logging.getLogger(__name__)

TEXT_TOKENS = 4096
"""Longest text of a prompt: vLLM wants to know how long a sequence can be before it sees one."""

NORMALIZATION = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
"""What a processor's file must say of how pixels are normalized: vLLM does not know the processors' defaults."""

CHECKED_PROMPTS, CHECKED_TOKENS = 4, 16

LARGEST_GAP, MEAN_GAP = 1e-4, 0.05
"""How far the trainer's and vLLM's log-probabilities of a token may be apart, in nats: of any token where both compute
in float32, which measured 4e-6, and on average in bfloat16, where single tokens are off by more."""

PIXEL_GAP = 0.05
"""How far pixels may be apart, of which most are in [-2, 2]: a rounded picture is off by 0.02, a missing
normalization by 1."""

_BIAS = -100.0
"""Of tokens that are never sampled: vLLM's least, e^-100 of any likelihood, and still a number."""


class RolloutRequest(NamedTuple):
    """A prompt as another rank needs it: the files of its pictures, its tokens, its seed."""

    pictures: tuple[str, ...]
    ids: list[int]
    seed: int

    @property
    def path(self) -> str | None:
        """Its name in messages."""
        return self.pictures[0] if self.pictures else None


class VllmSampler:
    """vLLM samples with the policy's weights; see :class:`~scapo_train.rollout.Sampler`.

    Args:
        config: settings of the training run.
        policy: model whose weights are given to vLLM.
        processor: the model's processor.
        process_group: this process and the others of the training run.

    Raises:
        MissingExtra: if vLLM is not installed.
        ScapoError: if vLLM cannot load the model, or answers differently once it has the policy's weights
            (``rollout.check_sync``).
    """

    def __init__(self, config: Config, policy: Policy, processor: Any, process_group: ProcessGroup) -> None:
        rollout, run, model = config.rollout, config.run, config.model
        self._policy, self._process_group = policy, process_group
        self._dtype: torch.dtype = getattr(torch, model.dtype)
        self._max_new_tokens = rollout.max_new_tokens
        self._neighbors = _neighbors(process_group, rollout.tensor_parallel)
        pictures = max(len(source.pictures) for source in read_prompts(config.data.train, config.data.images))
        self._longest = _longest(policy, processor, rollout.max_new_tokens, pictures)
        self._vllm = _imported()
        pixels = {"min_pixels": model.min_pixels, "max_pixels": model.max_pixels}
        try:
            self._llm = self._vllm.LLM(
                model=model.path,
                revision=model.revision or None,
                dtype=model.dtype,
                # without the check there is nothing to compare weights from the disk with
                load_format="auto" if rollout.check_sync else "dummy",
                seed=run.seed,
                tensor_parallel_size=rollout.tensor_parallel,
                distributed_executor_backend="external_launcher" if process_group.size > 1 else "uni",
                gpu_memory_utilization=rollout.gpu_memory,
                max_model_len=self._longest,
                enable_sleep_mode=rollout.sleep,
                enforce_eager=process_group.device.type == "cpu",  # compiling takes minutes
                limit_mm_per_prompt={"image": pictures, "video": 0},
                mm_processor_kwargs={name: value for name, value in pixels.items() if value} or None,
                mm_processor_cache_gb=0,  # a picture comes once in an epoch
                generation_config="vllm",  # not the sampling settings that a checkpoint ships
                # as the update computes them: after the temperature, and without what is never sampled
                logprobs_mode="processed_logprobs",
            )
        except (OSError, ValueError, RuntimeError) as error:
            why = root_cause(error)
            if "leep mode" in why:
                why += ": set rollout.sleep = false"
            raise ScapoError(f"vLLM cannot load {model.path}: {why}") from None
        self.name = f"vllm {self._vllm.__version__}"
        self._sleep_level = rollout.sleep_level if rollout.sleep else 0
        self._awake = {"weights", "kv_cache"}
        self._has_weights = True
        self._loaded: set[str] = set()
        self._llm.apply_model(self._record_loads)
        if rollout.check_sync:
            self._check(config, processor)
        self._sleep()

    @torch.no_grad()
    def sync(self) -> None:
        """Gives vLLM the policy's weights, and lets it forget what it computed with the old ones.

        Raises:
            ScapoError: if a weight has another name there, or is missing.
        """
        self._wake("weights")
        if self._process_group.device.type == "cpu":
            self._llm.apply_model(_unpacked)
        try:
            given = {"weights_iterator": weights(self._policy, self._dtype)}
            self._llm.collective_rpc("reload_weights", kwargs=given)
        except (ValueError, KeyError, AttributeError, RuntimeError, AssertionError) as error:
            raise ScapoError(f"vLLM does not take the policy's weights: {root_cause(error)}") from None
        (names,) = self._llm.apply_model(lambda model: {name for name, _ in model.named_parameters()})
        if missing := sorted(names - self._loaded):
            raise ScapoError(f"{len(missing)} weights of vLLM's model are not the policy's: {', '.join(missing[:5])}")
        self._has_weights = True
        if not self._llm.reset_prefix_cache():
            raise ScapoError("vLLM keeps its prefix cache: a request is still running")
        self._llm.llm_engine.reset_encoder_cache()

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Implements ``sample``: see :class:`~scapo_train.rollout.Sampler`; the log-probabilities are vLLM's own.

        Raises:
            InputError: if a prompt is too long, or its picture can no longer be read.
            ScapoError: if vLLM refuses a request, or makes another prompt of it than the trainer.
        """
        if not self._has_weights:
            self.sync()
        self._wake("weights")
        self._wake("kv_cache")
        responses = self._generate(prompts, seed, group, temperature, self._max_new_tokens)
        self._sleep()
        return responses

    def close(self) -> None:
        """Ends vLLM."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _record_loads(self, model: Any) -> None:
        """Keeps the names of weights that arrive: vLLM only warns of those that do not."""
        load = model.load_weights

        def recorded(given: Any) -> Any:
            self._loaded = set(load(given))
            return self._loaded

        model.load_weights = recorded

    def _wake(self, part: str) -> None:
        if part in self._awake:
            return
        if self._process_group.device.type == "cuda":
            torch.cuda.empty_cache()  # what torch keeps for later is not free for vLLM
        self._llm.wake_up(tags=[part])
        self._awake.add(part)

    def _sleep(self) -> None:
        if not self._sleep_level:
            return
        self._llm.sleep(level=self._sleep_level)
        self._awake.clear()
        self._has_weights = self._sleep_level == 1  # which keeps a copy on the host; at level 2 the policy has them

    def _generate(
        self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float, max_tokens: int
    ) -> list[Response]:
        """Responses to this rank's prompts; vLLM is awake."""
        rank_requests = [
            RolloutRequest(
                encoded.prompt.source.pictures,
                encoded.prompt.ids.tolist(),
                seed_of(seed, encoded.prompt.index) >> 1,  # vLLM adds the number of the response to it
            )
            for encoded in prompts
        ]
        before, together = self._gather_requests(rank_requests)
        copies = group if temperature == 0 else 1  # of a greedy response vLLM makes only one
        requests = [self._vllm_prompt(request) for request in together]
        settings = [self._settings(request, group // copies, temperature, max_tokens) for request in together]
        try:
            outputs = self._llm.generate(requests, settings, use_tqdm=False) if requests else []
        except faults()[0] as error:
            raise ScapoError(f"vLLM refuses a prompt: {root_cause(error)}") from None
        mine = slice(before, before + len(rank_requests))
        responses: list[Response] = []
        for request, output in zip(rank_requests, outputs[mine], strict=True):
            responses += _responses(request, output) * copies
        return responses

    def _gather_requests(self, requests: list[RolloutRequest]) -> tuple[int, list[RolloutRequest]]:
        """Returns the requests of all ranks that share this engine, and how many come before this rank's."""
        if self._neighbors is None:
            return 0, requests
        parts: list[list[RolloutRequest]] = [[] for _ in range(dist.get_world_size(self._neighbors))]
        dist.all_gather_object(parts, requests, group=self._neighbors)
        before = sum(len(part) for part in parts[: dist.get_rank(self._neighbors)])
        return before, [request for part in parts for request in part]

    def _vllm_prompt(self, request: RolloutRequest) -> dict[str, Any]:
        """Returns a prompt for vLLM, which puts as many tokens for the picture as it has features, in place of one."""
        if len(request.ids) + self._max_new_tokens > self._longest:
            reason = f"a prompt of {len(request.ids)} tokens; with a response vLLM has room for {self._longest}"
            raise InputError(reason, path=request.path)
        try:
            pictures = [load(picture) for picture in request.pictures]
        except ImageFault as error:
            raise InputError(f"can no longer be read: {error}", path=request.path) from None
        if not pictures:
            return {"prompt_token_ids": request.ids}
        token = self._policy.vlm.config.image_token_id
        ids = [
            token_id
            for k, token_id in enumerate(request.ids)
            if token_id != token or k == 0 or request.ids[k - 1] != token
        ]
        return {"prompt_token_ids": ids, "multi_modal_data": {"image": pictures[0] if len(pictures) == 1 else pictures}}

    def _settings(self, request: RolloutRequest, number: int, temperature: float, max_tokens: int) -> Any:
        return self._vllm.SamplingParams(
            n=number,
            temperature=temperature,
            top_p=1.0,
            top_k=0,
            min_p=0.0,
            repetition_penalty=1.0,
            seed=request.seed,
            max_tokens=max_tokens,
            ignore_eos=True,  # the policy's own ends, and no others
            stop_token_ids=self._policy.ends,
            logit_bias=dict.fromkeys(self._policy.never, _BIAS),
            logprobs=0,
            detokenize=False,
        )

    def _check(self, config: Config, processor: Any) -> None:
        """Compares pixels and log-probabilities of responses to pictures with the trainer's.

        Twice, with the weights from the disk and with the policy's: what differs only afterwards got lost on its way.
        Only called before the policy has learned anything.

        Raises:
            ScapoError: if they are not the same, with the cause and what to do.
        """
        distinct = {source.pictures: source for source in read_prompts(config.data.train, config.data.images)}
        sources = sorted(distinct.values(), key=lambda source: not source.pictures)[:CHECKED_PROMPTS]
        maker = Prompts(sources, processor, max_bad=CHECKED_PROMPTS)
        prompts = maker.take(range(len(sources)))
        maker.close()
        with _pixels(self._policy.vlm) as trainer_pixels:
            encoded = encode(self._policy, prompts, self._process_group.device, at_once=1)
        tokens = min(CHECKED_TOKENS, self._max_new_tokens)
        answer = partial(self._generate, seed=0, group=1, temperature=config.rollout.temperature, max_tokens=tokens)
        (model,) = self._llm.apply_model(lambda model: model)
        with _pixels(model) as engine_pixels:
            before = [response for prompt in encoded for response in answer([prompt])]
        pixels = self._largest(_apart(trainer_pixels, engine_pixels))
        from_disk = self._gap(encoded, before)
        self._sleep()
        start = time.perf_counter()
        self.sync()
        seconds = time.perf_counter() - start
        self._wake("kv_cache")
        synchronized = self._gap(encoded, answer(encoded))
        gap = f"{synchronized.largest:.2g} nats at most, {synchronized.mean:.2g} on average"
        _log.info("%s: weights synchronized in %.1f s; log-probabilities as the trainer's: %s", self.name, seconds, gap)
        if not synchronized.fits(self._dtype):
            cause = _cause(pixels, config.model.path, fits_from_disk=from_disk.fits(self._dtype))
            raise ScapoError(
                f"{self.name} and the trainer do not agree on log-probabilities ({gap}): {cause} "
                "(rollout.check_sync = false goes on nevertheless)"
            )

    @torch.no_grad()
    def _gap(self, encoded: Sequence[EncodedPrompt], responses: Sequence[Response]) -> Gap:
        """Returns how far log-probabilities of responses, one to each prompt, are from the trainer's; over all
        ranks.
        """
        rows = [prompt.row([response.ids]) for prompt, response in zip(encoded, responses, strict=True)]
        batch = self._policy.batch(rows, self._process_group.device)
        logprobs = self._policy(batch).logprob.float().cpu().numpy()
        given = [response.logprobs for response in responses if response.logprobs is not None]
        apart = np.abs(logprobs - np.concatenate(given))
        total, number = self._process_group.sum(float(apart.sum()), float(len(apart)))
        return Gap(total / number, self._largest(float(apart.max())))

    def _largest(self, value: float) -> float:
        """Returns the largest of all ranks' values."""
        return float(np.max(self._process_group.gather(value)))  # not a number, if that of any rank is not


class Gap(NamedTuple):
    """The distance of tokens' log-probabilities, in nats.

    Attributes:
        mean: on average.
        largest: of any token.
    """

    mean: float
    largest: float

    def fits(self, dtype: torch.dtype) -> bool:
        """Returns whether rounding explains it; not a number does not."""
        return self.mean < MEAN_GAP if dtype.itemsize < 4 else self.largest < LARGEST_GAP


def _unpacked(model: Any) -> None:
    """Lets vLLM lay experts out for a CPU again at the next reload, which it does the first time only (up to 0.33)."""
    for module in model.modules():
        if getattr(getattr(module, "quant_method", None), "moe_kernel", None) is not None:
            module.quant_method.moe_kernel = None


@contextmanager
def _pixels(model: Any) -> Iterator[list[Tensor]]:
    """Records the input of a model's vision tower, call by call; nothing if it begins otherwise than Qwen's."""
    seen: list[Tensor] = []
    first = [module for name, module in model.named_modules() if name.endswith("visual.patch_embed")]
    hooks = [module.register_forward_pre_hook(lambda _, given: seen.append(given[0].float().cpu())) for module in first]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _apart(trainer: Sequence[Tensor], engine: Sequence[Tensor]) -> float:
    """Returns the largest difference of pixels; infinite where there are more of them in one, 0 if there are
    none.
    """
    left, right = (torch.cat([torch.zeros(0), *(part.flatten() for part in parts)]) for parts in (trainer, engine))
    if left.shape != right.shape:
        return math.inf
    return float((left - right).abs().max()) if len(left) else 0.0


def _cause(pixels: float, path: str, *, fits_from_disk: bool) -> str:
    """Returns why log-probabilities differ, and what to do about it."""
    if pixels > PIXEL_GAP:
        file = Path(path) / "preprocessor_config.json"
        settings = read_json(file) if file.is_file() else {}
        missing = [name for name in NORMALIZATION if isinstance(settings, dict) and name not in settings]
        remedy = "try another release of vLLM"
        if file.is_file() and missing:
            remedy = (
                f"vLLM normalizes them by {file.name}, which lacks {', '.join(missing)}: write the processor's there"
            )
        return f"their pixels differ by {pixels:.2g}; {remedy}"
    if fits_from_disk:
        return f"they did when vLLM had the weights of {path}: the policy's do not arrive as they are"
    return "with the same pixels and weights; try another release of vLLM or of transformers, or rollout.engine"


def weights(policy: Policy, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Returns the policy's weights as vLLM takes them, see :func:`~scapo_train.families.lora.merged_weights`."""
    return merged_weights(policy.vlm, dtype)


def _imported() -> Any:
    # read when vLLM starts an engine: it must live in this process, where the weights are
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        import vllm
    except ImportError:
        raise MissingExtra("vllm", "rollout.engine = vllm") from None
    return vllm


def _neighbors(process_group: ProcessGroup, size: int) -> Any:
    """Returns the ranks that share an engine with this one; None if each has its own."""
    if process_group.size % size:
        raise ScapoError(f"rollout.tensor_parallel = {size} does not divide the {process_group.size} ranks")
    if size == 1:
        return None
    return dist.new_subgroups(size)[0]


def _longest(policy: Policy, processor: Any, max_new_tokens: int, pictures: int = 1) -> int:
    """Returns the number of tokens of the longest sequence: the largest pictures, the text, the response; at most the
    model's context.
    """
    images = processor.image_processor
    picture = images.size["longest_edge"] // (images.patch_size * images.merge_size) ** 2
    context = policy.vlm.config.get_text_config().max_position_embeddings
    return int(min(context, pictures * picture + TEXT_TOKENS + max_new_tokens))


def _responses(request: RolloutRequest, output: Any) -> list[Response]:
    """Returns the responses in vLLM's answer.

    Raises:
        ScapoError: if vLLM made another prompt of the request, or gave it up.
    """
    if list(output.prompt_token_ids) != request.ids:
        raise ScapoError(
            f"{request.path}: vLLM's prompt of {len(output.prompt_token_ids)} tokens is not the trainer's of "
            f"{len(request.ids)}: the two process pictures differently"
        )
    responses = []
    for made in output.outputs:
        if made.finish_reason not in ("stop", "length"):
            raise ScapoError(f"{request.path}: vLLM gave up ({made.finish_reason})")
        ids = list(made.token_ids)
        logprobs = [place[token].logprob for token, place in zip(ids, made.logprobs, strict=True)]
        responses.append(Response(ids, made.finish_reason == "stop", np.array(logprobs, np.float32)))
    return responses
