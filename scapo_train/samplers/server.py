"""Sampling of responses with a vLLM server, on other GPUs or another machine than the training.

The trainer sends token ids and pictures, and receives token ids, log-probabilities, and the version of the weights that
sampled each token (``/inference/v1/generate``). ``sync`` sends the policy's weights, or only its adapters
(:mod:`scapo_train.samplers.adapters`), to the server under a new version (:mod:`scapo_train.samplers.transfer`).
Responses with another version are an error: the server was restarted, or has received weights from another run. The
module requires vLLM 0.32 or later, started with :data:`scapo_train.samplers.connection.START`. The requests that load
weights have no password: keep the server's port inside your cluster.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.engines.images import ImageFault, data_url

from ..config import Config
from ..data import Prompt, Response
from ..distributed import ProcessGroup
from ..families.policy import EncodedPrompt, Policy
from ..rollout import encode
from .adapters import has_experts, obstacle, sent_alone
from .connection import Server, ServerFault
from .transfer import check_installed, make_sender
from .vllm import (
    CHECKED_TOKENS,
    SYNCHRONIZED,
    check_adapters,
    checked_prompts,
    engine_seed,
    gap_of,
    sampling_settings,
    with_single_image_tokens,
)

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
"""Environment variable with which, and with ``--enable-lora``, a server accepts adapters."""


class ServerSampler:
    """Sampler that uses a vLLM server; see :class:`~scapo_train.rollout.Sampler`.

    Args:
        config: Settings of the training run.
        policy: Model whose weights are sent to the server.
        processor: Processor of the model.
        process_group: Group of all processes in the training run.

    Raises:
        MissingExtra: If aiohttp is not installed, or ``rollout.transfer`` needs vLLM.
        ScapoError: If the server does not answer within ``rollout.wait_server`` seconds, was not started as
            :data:`~scapo_train.samplers.connection.START` describes, or computes other log-probabilities than the
            trainer with the policy's weights (``rollout.check_sync``).
    """

    sleeping_memory = 0

    def __init__(self, config: Config, policy: Policy, processor: Any, process_group: ProcessGroup) -> None:
        self._policy, self._process_group = policy, process_group
        self._dtype: torch.dtype = getattr(torch, config.model.dtype)
        self._max_new_tokens = config.rollout.max_new_tokens
        check_installed(config.rollout.transfer, process_group.device)
        self._server = Server(config.rollout.server)
        self._run: str = process_group.gather(secrets.token_hex(4))[0]
        self._syncs = 0
        self._version: str | None = None
        self.name, self.longest, settings = self._examined(config)
        self._only_adapters = sent_alone(config, self.name, _obstacle(config, policy.vlm.config, settings))
        device, alone = process_group.device, self._only_adapters
        self._sender = make_sender(config, policy, self._server, self.name, device, alone)
        if self._on_first_rank(self._connected):
            self.sync()  # the server cannot sample
        if config.rollout.check_sync:
            self._check(config, processor)

    @torch.no_grad()
    def sync(self) -> None:
        """Has the server load the policy's weights or only its adapters, and clear caches that were computed with the
        previous weights.

        Raises:
            ScapoError: If the weights cannot be written, or the server does not load them. The error is raised on every
                rank.
        """
        self._process_group.gather(None)  # no rank has a request at the server
        self._syncs += 1
        version = f"{self._run}-{self._syncs}"
        self._on_first_rank(partial(self._load, version), self._sender.gathered())
        self._version = version

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Implements ``sample`` of :class:`~scapo_train.rollout.Sampler`. The responses contain the server's
        log-probabilities.
        """
        return self.draw([encoded.prompt for encoded in prompts], seed, group, temperature)

    def draw(
        self, prompts: Sequence[Prompt], seed: int, group: int, temperature: float, max_tokens: int | None = None
    ) -> list[Response]:
        """Samples responses to prompts that need not be encoded for the policy. :meth:`sync` must not be called before
        ``draw`` returns.

        Args:
            prompts: Prompts of this rank.
            seed: Seed of the samples.
            group: Number of responses per prompt.
            temperature: Sampling temperature. A value of 0 selects greedy decoding.
            max_tokens: Maximum number of tokens in a response, or None for ``rollout.max_new_tokens``.

        Raises:
            InputError: If a prompt is too long, or its picture can no longer be read.
            ScapoError: If the server does not answer, rejects a request, reads a prompt differently than the trainer,
                or sampled with other weights than those of the last :meth:`sync`.
        """
        copies = group if temperature == 0 else 1  # vLLM makes only one greedy response
        settings = partial(
            sampling_settings,
            self._policy,
            number=group // copies,
            temperature=temperature,
            max_tokens=max_tokens or self._max_new_tokens,
        )
        bodies = [self._body(prompt, settings(seed=engine_seed(seed, prompt.index))) for prompt in prompts]
        try:
            replies = self._server.post("inference/v1/generate", bodies)
        except ServerFault as error:
            if self._only_adapters and error.status == 404 and self._version is not None:
                raise ScapoError(
                    f"{self.name} has no adapter {self._version} of this run: it was restarted; continue with --resume "
                    "auto"
                ) from None
            raise
        made = [self._responses(prompt, reply) for prompt, reply in zip(prompts, replies, strict=True)]
        return [response for responses in made for response in responses * copies]

    def close(self) -> None:
        """Releases what the server keeps for this run: it outlives the run."""
        if self._process_group.main:
            self._sender.close()

    def _examined(self, config: Config) -> tuple[str, int, dict[str, Any]]:
        """Waits for the server, checks its settings, and returns its name, the maximum length of a sequence, and all of
        its settings.
        """
        self._server.wait(config.rollout.wait_server)
        (version,) = self._server.get("version")
        self.versions: Mapping[str, str] = {"vllm": str(version.get("version")) if isinstance(version, dict) else "?"}
        name = f"vllm {self.versions['vllm']} at {self._server.url}"
        (info,) = self._server.get("server_info?config_format=json")
        try:
            model = info["vllm_config"]["model_config"]
            found = {"--dtype": model["dtype"], "--logprobs-mode": model["logprobs_mode"]}
            longest = int(model["max_model_len"])
        except (KeyError, TypeError, ValueError):
            raise ScapoError(f"{name} does not tell its settings: rollout.server needs vLLM 0.32 or later") from None
        # after the temperature, and without tokens that are never sampled, as in the update
        wanted = {"--dtype": str(self._dtype), "--logprobs-mode": "processed_logprobs"}
        for option, value in wanted.items():
            if found[option] != value:
                value = value.removeprefix("torch.")
                raise ScapoError(f"{name} has {option} {found[option]}: start it with {option} {value}")
        return name, longest, info

    def _check(self, config: Config, processor: Any) -> None:
        """Compares log-probabilities for responses to pictures between the server and the trainer, before and after the
        policy's weights are sent. The check runs before the first update of the policy.

        Raises:
            ScapoError: If the values differ with the policy's weights. The error names possible causes.
        """
        prompts = checked_prompts(config, processor)
        encoded = encode(self._policy, prompts, self._process_group.device, at_once=1)
        answer = partial(
            self.draw,
            prompts,
            seed=0,
            group=1,
            temperature=config.rollout.temperature,
            max_tokens=min(CHECKED_TOKENS, self._max_new_tokens),
        )
        own = gap_of(self._policy, self._process_group, encoded, answer())
        start = time.perf_counter()
        self.sync()
        seconds = time.perf_counter() - start
        synchronized = gap_of(self._policy, self._process_group, encoded, answer())
        _log.info(SYNCHRONIZED, self.name, seconds, synchronized)
        if not synchronized.fits(self._dtype):
            cause = (
                "they agreed with the server's own weights: the policy's weights arrive changed"
                if own.fits(self._dtype)
                else f"is its model that of {config.model.path}, with the same preprocessor_config.json?"
            )
            if self._only_adapters:
                cause += " If a run has sent it all weights (merged adapters), restart it"
            raise ScapoError(
                f"{self.name} and the trainer do not agree on log-probabilities ({synchronized}): {cause} "
                "(rollout.check_sync = false disables this check)"
            )
        if self._only_adapters:
            check_adapters(self._policy, self._process_group, encoded, self.sync, answer, self.name, self._dtype)

    def _on_first_rank(
        self, action: Callable[[], _Result], gathering: AbstractContextManager[None] | None = None
    ) -> _Result:
        """Returns the first rank's result of an action on every rank. Errors are raised on every rank.

        Args:
            action: Action that only the first rank performs.
            gathering: Context that all ranks enter meanwhile.
        """
        fault = result = None
        with gathering or nullcontext():
            if self._process_group.main:
                try:
                    result = action()
                except ScapoError as error:
                    fault = str(error)
        reason, found = self._process_group.gather((fault, result))[0]
        if reason is not None:
            raise ScapoError(reason)
        return found

    def _connected(self) -> bool:
        """Prepares the server for the first weights. Returns True if its present weights are incomplete."""
        incomplete = self._sender.connect()
        self._server.post("resume")  # paused if a run was killed while it sent weights
        return incomplete

    def _load(self, version: str) -> None:
        """Has the server load the weights under a new version."""
        ask = self._server.post
        ask("pause?mode=wait")  # a request must not be sampled with two versions
        try:
            self._sender.send(version)
            (cleared,) = ask("reset_prefix_cache")
            if not cleared["success"]:
                raise ScapoError(f"{self.name} keeps its prefix cache: a request is still running")
            ask("reset_encoder_cache")
            ask("update_weight_version", [{"new_version": version}])
        except ScapoError:
            with suppress(ScapoError):
                ask("resume")
            raise
        ask("resume")

    def _body(self, prompt: Prompt, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the request for responses to a prompt."""
        path, ids = prompt.source.path, prompt.ids.tolist()
        if len(ids) + self._max_new_tokens > self.longest:
            reason = f"the prompt has {len(ids)} tokens; with the response, the server has room for {self.longest}"
            raise InputError(f"{reason} (--max-model-len)", path=path)
        try:
            urls = [data_url(picture) for picture in prompt.source.pictures]
        except ImageFault as error:
            raise InputError(f"can no longer be read: {error}", path=path) from None
        return {
            "token_ids": with_single_image_tokens(self._policy, ids) if urls else ids,
            "content_parts": [{"type": "image_url", "url": url} for url in urls] or None,
            "sampling_params": settings,
            "return_token_ids": True,
            "model": self._version if self._only_adapters else None,  # None is the base model
        }

    def _responses(self, prompt: Prompt, reply: Any) -> list[Response]:
        """Returns the responses in the server's reply, in the order of their numbers.

        Raises:
            ScapoError: If the server's prompt differs from the trainer's, a request was aborted, or the weights are not
                those of the last :meth:`sync`.
        """
        path, responses = prompt.source.path, list[Response]()
        try:
            ids, choices = reply["prompt_token_ids"], sorted(reply["choices"], key=lambda made: made["index"])
            versions = {span["version"] for made in choices for span in made["weight_versions"]}
            ends = [made["finish_reason"] for made in choices]
            for made in choices:
                logprobs = np.array([token["logprob"] for token in made["logprobs"]["content"]], np.float32)
                responses.append(Response(made["token_ids"], made["finish_reason"] == "stop", logprobs))
        except (KeyError, TypeError, ValueError):
            raise ScapoError(
                f"{self.name}: a reply without token ids, log-probabilities or weight versions; rollout.server needs "
                "vLLM 0.32 or later"
            ) from None
        if ids != prompt.ids.tolist():
            raise ScapoError(
                f"{path}: the server's prompt of {len(ids)} tokens is not the trainer's of {len(prompt.ids)}: start it "
                "with the same model, and with model.max_pixels and model.min_pixels as --mm-processor-kwargs"
            )
        if others := {*ends} - {"stop", "length"}:
            raise ScapoError(f"{path}: the server stopped ({', '.join(map(str, others))})")
        if self._version is not None and versions != {self._version}:
            found = ", ".join(sorted(versions - {self._version})) or "none"
            raise ScapoError(
                f"{self.name} sampled with weights of version {found}, not {self._version} of this run: it was "
                "restarted, or another run uses it; continue with --resume auto"
            )
        return responses


def _obstacle(config: Config, model: Any, info: dict[str, Any]) -> str | None:
    """Returns the reason why a server cannot add the adapters itself, or None.

    Args:
        config: Settings of the training run.
        model: Configuration of the model, from transformers.
        info: Settings of the server.
    """
    settings, start = info["vllm_config"], "it was not started with"
    if (lora := settings.get("lora_config")) is None:
        return f"{start} --enable-lora"
    if not info.get("vllm_env", {}).get(UPDATING):
        return f"{start} {UPDATING}=1"
    if lora["max_lora_rank"] < config.lora.rank:
        return f"{start} --max-lora-rank {config.lora.rank} or more"
    if settings["parallel_config"]["data_parallel_size"] > 1:
        return "with data parallelism, only one of the server's processes would know the adapters"
    return obstacle(config, has_experts(model), settings["device_config"]["device"])
