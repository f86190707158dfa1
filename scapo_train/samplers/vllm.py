"""Sampling responses with vLLM in the same processes, on the GPUs that train (colocated).

vLLM sleeps while the policy is updated and then holds neither weights nor caches. ``sync`` wakes its weights
and fills them with the policy's, ``sample`` wakes its cache, samples, and puts all of it to sleep again.
Several ranks start one engine each, as torchrun started them; with ``rollout.tensor_parallel`` neighboring
ranks share one and answer each other's prompts together. For vLLM 0.16 and later.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError
from scapo_eval.engines.images import ImageFault, load
from scapo_eval.engines.vllm_offline import faults

from ..config import Config
from ..data import Prompts, Response, read_prompts, seed_of
from ..distributed import ProcessGroup
from ..families.lora import merged_weights
from ..families.policy import EncodedPrompt, Policy
from ..rollout import PolicySampler, encode

_log = logging.getLogger(__name__)

TEXT_TOKENS = 4096
"""Longest text of a prompt: vLLM wants to know how long a sequence can be before it sees one."""

CHECKED_PROMPTS, CHECKED_TOKENS = 4, 16
AGREEMENT_ALARM = 0.5
"""Share of the checked greedy tokens, up to the first other one, below which the trainer's and vLLM's differ too
much: with bfloat16 a near tie falls the other way now and then, with wrong weights the first token already does."""

_BIAS = -100.0
"""Of tokens that are never sampled: vLLM's least, e^-100 of any likelihood, and still a number."""


class Request(NamedTuple):
    """A prompt as another rank needs it: the files of its pictures, its tokens, its seed."""

    pictures: tuple[str, ...]
    ids: list[int]
    seed: int

    @property
    def path(self) -> str | None:
        """What it is called in messages."""
        return self.pictures[0] if self.pictures else None


class VllmSampler:
    """vLLM samples with the policy's weights; see :class:`~scapo_train.rollout.Sampler`.

    Args:
        config: settings of the training run.
        policy: model whose weights are given to vLLM.
        processor: the model's processor.
        process_group: this process and the others of the training run.

    Raises:
        MissingExtra: vLLM is not installed.
        ScapoError: vLLM cannot load the model, or answers differently once it has the policy's weights
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
                enable_sleep_mode=True,
                limit_mm_per_prompt={"image": pictures, "video": 0},
                mm_processor_kwargs={name: value for name, value in pixels.items() if value} or None,
                mm_processor_cache_gb=0,  # a picture comes once in an epoch
                generation_config="vllm",  # not the sampling settings that a checkpoint ships
                # as the update computes them: after the temperature, and without what is never sampled
                logprobs_mode="processed_logprobs",
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ScapoError(f"vLLM cannot load {model.path}: {_one_line(error)}") from None
        self._has_weights = True
        if rollout.check_sync:
            self._check(config, processor)
        self._sleep()

    @torch.no_grad()
    def sync(self) -> None:
        """Gives vLLM the policy's weights, and lets it forget what it computed with the old ones.

        Raises:
            ScapoError: a weight has another name there, or is missing.
        """
        if not self._has_weights:
            self._wake("weights")
            self._has_weights = True
        self._llm.apply_model(self._load)
        if not self._llm.reset_prefix_cache():
            raise ScapoError("vLLM keeps its prefix cache: a request is still running")
        self._llm.llm_engine.reset_encoder_cache()

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """See :class:`~scapo_train.rollout.Sampler`; the log-probabilities are vLLM's own.

        Raises:
            InputError: a prompt is too long, or its picture cannot be read any more.
            ScapoError: vLLM refuses a request, or makes another prompt of it than the trainer.
        """
        if not self._has_weights:
            self.sync()
        self._wake("kv_cache")
        found = self._generate(prompts, seed, group, temperature, self._max_new_tokens)
        self._sleep()
        return found

    def close(self) -> None:
        """Ends vLLM."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _load(self, model: Any) -> None:
        """Fills vLLM's model, on this rank; all ranks take part."""
        try:
            loaded = model.load_weights(weights(self._policy, self._dtype))
        except (ValueError, KeyError) as error:
            raise ScapoError(f"vLLM does not take the policy's weights: {_one_line(error)}") from None
        missing = sorted({name for name, _ in model.named_parameters()} - set(loaded))
        if missing:
            raise ScapoError(f"{len(missing)} weights of vLLM's model are not the policy's: {', '.join(missing[:5])}")

    def _wake(self, part: str) -> None:
        if self._process_group.device.type == "cuda":
            torch.cuda.empty_cache()  # what torch keeps for later is not free for vLLM
        self._llm.wake_up(tags=[part])

    def _sleep(self) -> None:
        self._llm.sleep(level=2)  # keeps nothing: the policy has the weights, so a copy on the host is of no use
        self._has_weights = False

    def _generate(
        self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float, max_tokens: int
    ) -> list[Response]:
        """Responses to this rank's prompts; vLLM is awake."""
        own = [
            Request(
                encoded.prompt.source.pictures,
                encoded.prompt.ids.tolist(),
                seed_of(seed, encoded.prompt.index) >> 1,  # vLLM adds the number of the response to it
            )
            for encoded in prompts
        ]
        before, together = self._gather_requests(own)
        copies = group if temperature == 0 else 1  # of a greedy response vLLM makes only one
        requests = [self._vllm_prompt(each) for each in together]
        settings = [self._settings(each, group // copies, temperature, max_tokens) for each in together]
        try:
            outputs = self._llm.generate(requests, settings, use_tqdm=False) if requests else []
        except faults()[0] as error:
            raise ScapoError(f"vLLM refuses a prompt: {_one_line(error)}") from None
        mine = slice(before, before + len(own))
        found: list[Response] = []
        for request, output in zip(own, outputs[mine], strict=True):
            found += _responses(request, output) * copies
        return found

    def _gather_requests(self, own: list[Request]) -> tuple[int, list[Request]]:
        """The requests of all ranks that share this engine, and how many come before this rank's."""
        if self._neighbors is None:
            return 0, own
        parts: list[list[Request]] = [[] for _ in range(dist.get_world_size(self._neighbors))]
        dist.all_gather_object(parts, own, group=self._neighbors)
        before = sum(len(part) for part in parts[: dist.get_rank(self._neighbors)])
        return before, [request for part in parts for request in part]

    def _vllm_prompt(self, request: Request) -> dict[str, Any]:
        """A prompt for vLLM, which puts as many tokens for the picture as it has features, in place of one."""
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
        ids = [each for k, each in enumerate(request.ids) if each != token or k == 0 or request.ids[k - 1] != token]
        return {"prompt_token_ids": ids, "multi_modal_data": {"image": pictures[0] if len(pictures) == 1 else pictures}}

    def _settings(self, request: Request, number: int, temperature: float, max_tokens: int) -> Any:
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
        """Compares greedy responses with weights from the disk, with the policy's own, and the trainer's.

        Only called before the policy has learned anything.
        """
        sources = read_prompts(config.data.train, config.data.images)[:CHECKED_PROMPTS]
        maker = Prompts(sources, processor, max_bad=CHECKED_PROMPTS)
        prompts = maker.take(range(len(sources)))
        maker.close()
        encoded = encode(self._policy, prompts, self._process_group.device)
        tokens = min(CHECKED_TOKENS, self._max_new_tokens)
        before = self._generate(encoded, 0, 1, 0.0, tokens)
        self._sleep()
        own = PolicySampler(self._policy, self._process_group.device, tokens, CHECKED_PROMPTS).sample(
            encoded, 0, 1, 0.0
        )
        start = time.perf_counter()
        self.sync()
        seconds = time.perf_counter() - start
        self._wake("kv_cache")
        after = self._generate(encoded, 0, 1, 0.0, tokens)
        if self._process_group.max(int(before != after)):
            raise ScapoError(
                "vLLM's greedy responses changed when it was given the weights that it had read from "
                f"{config.model.path}: they do not arrive as they are (rollout.check_sync=false goes on nevertheless)"
            )
        pairs = [(one.ids, other.ids) for one, other in zip(own, after, strict=True)]
        same, total = self._process_group.sum(
            sum(_common_prefix(*pair) for pair in pairs), sum(max(map(len, p)) for p in pairs)
        )
        share = same / total if total else 1.0
        _log.info(
            "vLLM %s: weights synchronized in %.1f s; greedy responses as before, %.0f %% of tokens as the trainer's",
            self._vllm.__version__,
            seconds,
            100 * share,
        )
        if share < AGREEMENT_ALARM:
            _log.warning("vLLM's greedy responses agree with the trainer's in %.0f %% of tokens only", 100 * share)


def weights(policy: Policy, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """The policy's weights as vLLM takes them, see :func:`~scapo_train.families.lora.merged_weights`."""
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
    """The ranks that share an engine with this one; None where each has its own."""
    if process_group.size % size:
        raise ScapoError(f"rollout.tensor_parallel = {size} does not divide the {process_group.size} ranks")
    if size == 1:
        return None
    return dist.new_subgroups(size)[0]


def _longest(policy: Policy, processor: Any, max_new_tokens: int, pictures: int = 1) -> int:
    """Tokens of the longest sequence: the largest pictures, the text, the response; at most the model's context."""
    images = processor.image_processor
    picture = images.size["longest_edge"] // (images.patch_size * images.merge_size) ** 2
    context = policy.vlm.config.get_text_config().max_position_embeddings
    return int(min(context, pictures * picture + TEXT_TOKENS + max_new_tokens))


def _responses(request: Request, output: Any) -> list[Response]:
    """The responses in vLLM's answer.

    Raises:
        ScapoError: vLLM made another prompt of the request, or gave it up.
    """
    if list(output.prompt_token_ids) != request.ids:
        raise ScapoError(
            f"{request.path}: vLLM's prompt of {len(output.prompt_token_ids)} tokens is not the trainer's of "
            f"{len(request.ids)}: the two process pictures differently"
        )
    found = []
    for made in output.outputs:
        if made.finish_reason not in ("stop", "length"):
            raise ScapoError(f"{request.path}: vLLM gave up ({made.finish_reason})")
        ids = list(made.token_ids)
        logprobs = [place[token].logprob for token, place in zip(ids, made.logprobs, strict=True)]
        found.append(Response(ids, made.finish_reason == "stop", np.array(logprobs, np.float32)))
    return found


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
