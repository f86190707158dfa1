"""Sampling of responses with a vLLM server, on other GPUs or another machine than the training.

The trainer sends token ids and pictures, and receives token ids, log-probabilities, and the version of the weights that
sampled each token (``/inference/v1/generate``). ``sync`` writes the policy's weights, or only its adapters
(:mod:`scapo_train.samplers.adapters`), to a folder that the server can read, and has the server load them under a new
version. Responses with another version are an error: the server was restarted, or has received weights from another
run. The module requires vLLM 0.32 or later, started with :data:`START`. The requests that load weights have no
password: keep the server's port inside your cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError
from scapo_eval.engines.images import ImageFault, data_url
from scapo_eval.files.json_text import dump_json, parse_json

from ..config import Config
from ..data import Prompt, Response
from ..distributed import TIMEOUT, ProcessGroup
from ..families.lora import adapter_weights, save_adapter
from ..families.policy import EncodedPrompt, Policy
from ..rollout import encode
from .adapters import has_experts, obstacle, sent_alone
from .vllm import (
    CHECKED_TOKENS,
    SYNCHRONIZED,
    check_adapters,
    checked_prompts,
    engine_seed,
    gap_of,
    sampling_settings,
    weights,
    with_single_image_tokens,
)

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --dtype DTYPE"
"""Command that starts a server for the trainer."""

KEY = "VLLM_API_KEY"
"""Environment variable with the server's key, if it has one (vLLM's own name)."""

UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
"""Environment variable with which, and with ``--enable-lora``, a server accepts adapters."""

WEIGHTS = "weights_of_server"
"""Folder of the weights for the server. Weights are removed when the server has read them, adapters at the next
``sync``.
"""

_PART_BYTES = 4 << 30
"""Maximum size of a weight file, and host memory that writing needs."""

_CONNECT_SECONDS = 10.0

_LOAD, _UNLOAD = "v1/load_lora_adapter", "v1/unload_lora_adapter"
"""Paths for adapters. The replies are plain text."""


class ServerSampler:
    """Sampler that uses a vLLM server; see :class:`~scapo_train.rollout.Sampler`.

    Args:
        config: Settings of the training run.
        policy: Model whose weights are sent to the server.
        processor: Processor of the model.
        process_group: Group of all processes in the training run.

    Raises:
        MissingExtra: If aiohttp is not installed.
        ScapoError: If the server does not answer within ``rollout.wait_server`` seconds, was not started as
            :data:`START` describes, or computes other log-probabilities than the trainer with the policy's weights
            (``rollout.check_sync``).
    """

    sleeping_memory = 0

    def __init__(self, config: Config, policy: Policy, processor: Any, process_group: ProcessGroup) -> None:
        self._policy, self._process_group = policy, process_group
        self._dtype: torch.dtype = getattr(torch, config.model.dtype)
        self._max_new_tokens = config.rollout.max_new_tokens
        self._folder = Path(config.rollout.weights_folder or config.run.output).absolute() / WEIGHTS
        self._server = Server(config.rollout.server)
        self._run: str = process_group.gather(secrets.token_hex(4))[0]
        self._syncs = 0
        self._version: str | None = None
        self.name, self._longest, settings = self._examined(config)
        self._only_adapters = sent_alone(config, self.name, _obstacle(config, policy.vlm.config, settings))
        self._base = config.model.path, config.model.revision
        if process_group.main:
            self._server.post("resume")  # paused if a run was killed while it sent weights
        process_group.gather(None)
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
        fault = self._written()
        if self._process_group.main and fault is None:
            try:
                self._load(version)
            except ScapoError as error:
                fault = str(error)
        if not self._only_adapters:  # vLLM reads adapters again if it has removed them from its memory
            self._remove_files()
        if (reason := self._process_group.gather(fault)[0]) is not None:
            raise ScapoError(reason)
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
        """Removes the run's adapters from the server, and the files for the server. The server outlives the training
        run, and would end if a request named adapters whose files no longer exist.
        """
        if self._only_adapters and self._version is not None and self._process_group.main:
            with suppress(ScapoError):
                self._server.post(_UNLOAD, [{"lora_name": self._version}])
        self._remove_files()

    def _remove_files(self) -> None:
        if self._process_group.main:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _examined(self, config: Config) -> tuple[str, int, dict[str, Any]]:
        """Waits for the server, checks its settings, and returns its name, the maximum length of a sequence, and all of
        its settings.
        """
        self._server.wait(config.rollout.wait_server)
        (version,) = self._server.get("version")
        name = f"vllm {version.get('version') if isinstance(version, dict) else '?'} at {self._server.url}"
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

    def _written(self) -> str | None:
        """Gathers the weights, or only the adapters, and writes them on the first rank. All ranks must call this
        function.

        Returns:
            The reason why the weights cannot be written, or None.
        """
        fault, part, number = None, dict[str, Tensor](), 0

        def write() -> str | None:
            nonlocal number
            number += 1
            try:
                save_file(part, self._folder / f"model-{number:05d}.safetensors", {"format": "pt"})
            except (OSError, SafetensorError) as error:
                return self._unwritable(error)
            part.clear()
            return None

        self._remove_files()  # adapters of the previous synchronization, or files of a run that was killed
        if self._process_group.main:
            try:
                self._folder.mkdir(parents=True)
            except OSError as error:
                fault = self._unwritable(error)
        if self._only_adapters:
            adapters = adapter_weights(self._policy.vlm, self._dtype)
            if self._process_group.main and fault is None:
                try:
                    save_adapter(adapters, self._policy.vlm, *self._base, self._folder)
                except (OSError, SafetensorError) as error:
                    fault = self._unwritable(error)
            return fault
        for name, weight in weights(self._policy, self._dtype):  # collective: continues after a fault
            if not self._process_group.main or fault is not None:
                continue
            part[name] = weight.to("cpu").contiguous()
            if sum(tensor.nbytes for tensor in part.values()) >= _PART_BYTES:
                fault = write()
        return write() if self._process_group.main and fault is None and part else fault

    def _unwritable(self, error: Exception) -> str:
        return f"{self._folder}: the weights for the server cannot be written: {_one_line(error)}"

    def _load(self, version: str) -> None:
        """Has the server load the weights in the folder, under a new version."""
        ask, folder = self._server.post, str(self._folder)
        ask("pause?mode=wait")  # a request must not be sampled with two versions
        try:
            try:
                if self._only_adapters:
                    ask(_LOAD, [{"lora_name": version, "lora_path": folder}])
                    if self._version is not None:
                        ask(_UNLOAD, [{"lora_name": self._version}])
                else:
                    ask("collective_rpc", [{"method": "reload_weights", "kwargs": {"weights_path": folder}}])
            except ServerFault as error:
                raise ScapoError(
                    f"{self.name} does not load the policy's weights from {self._folder}: {error.why}; the server must "
                    "have the same model, and see this folder (rollout.weights_folder)"
                ) from None
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
        if len(ids) + self._max_new_tokens > self._longest:
            reason = f"the prompt has {len(ids)} tokens; with the response, the server has room for {self._longest}"
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


class ServerFault(ScapoError):
    """Error that is raised if a server rejects a request.

    Attributes:
        status: HTTP status.
        why: Reason from the server.
    """

    def __init__(self, message: str, status: int, why: str) -> None:
        super().__init__(message)
        self.status, self.why = status, why


class Server:
    """Connection to a vLLM server.

    Args:
        url: Address, ``http://HOST:PORT``.

    Raises:
        MissingExtra: If aiohttp is not installed.
    """

    def __init__(self, url: str) -> None:
        if find_spec("aiohttp") is None:
            raise MissingExtra("http", "rollout.server")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY, "").strip():
            self._headers["Authorization"] = f"Bearer {key}"

    def post(self, path: str, bodies: Sequence[dict[str, Any]] = ({},)) -> list[Any]:
        """Sends requests to a path at the same time, and returns the parsed replies in the order of the requests.

        Raises:
            ServerFault: If the server rejects a request.
            ScapoError: If the server cannot be reached or does not answer.
        """
        return asyncio.run(self._all("POST", path, bodies))

    def get(self, path: str) -> list[Any]:
        """Requests a path. Returns a list with the parsed reply. Raises the same errors as :meth:`post`."""
        return asyncio.run(self._all("GET", path, [{}]))

    def wait(self, seconds: float) -> None:
        """Waits until the server answers.

        Raises:
            ScapoError: If the server has not answered after the given time.
        """
        end, told = time.monotonic() + seconds, False
        while True:
            try:
                self.get("health")
                return
            except ServerFault:
                raise
            except ScapoError as error:
                if time.monotonic() >= end:
                    remedy = f"start it with {START}, or wait for longer (rollout.wait_server)"
                    raise ScapoError(f"{error}; {remedy}") from None
                if not told:
                    _log.info("%s; waiting for it, up to %.0f s (rollout.wait_server)", error, seconds)
                told = True
                time.sleep(1)

    async def _all(self, method: str, path: str, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=TIMEOUT.total_seconds(), sock_connect=_CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=self._headers
        ) as session:
            return await asyncio.gather(*(self._one(session, method, path, body) for body in bodies))

    async def _one(self, session: aiohttp.ClientSession, method: str, path: str, body: dict[str, Any]) -> Any:
        import aiohttp

        data = dump_json(body) if method == "POST" else None
        try:
            async with session.request(method, f"{self.url}/{path}", data=data, allow_redirects=False) as reply:
                content = await reply.read()
        except aiohttp.ClientConnectorError as error:
            raise ScapoError(f"no vLLM server at {self.url} ({_one_line(error)})") from None
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as error:
            raise ScapoError(f"the vLLM server at {self.url} did not answer ({_one_line(error)})") from None
        if reply.status != 200:
            why = _reason(content) or str(reply.reason)
            message = f"the vLLM server at {self.url} rejects {path.partition('?')[0]} (HTTP {reply.status}: {why})"
            if reply.status in (403, 404):
                message += f"; start it with {START}"
            elif reply.status == 401:
                message += f"; set {KEY}"
            raise ServerFault(message, reply.status, why)
        try:
            return parse_json(content) if content and path not in (_LOAD, _UNLOAD) else None
        except ValueError:
            raise ScapoError(f"{self.url}/{path.partition('?')[0]}: not JSON; is it a vLLM server?") from None


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


def _reason(content: bytes) -> str:
    """Returns the message in the body of an error."""
    try:
        body = parse_json(content)
    except ValueError:
        return ""
    error = body.get("error", body.get("detail")) if isinstance(body, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return _one_line(error) if error else ""


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
