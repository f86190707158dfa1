"""vLLM in this process: the fastest way on one's own GPUs. Each release pins torch and transformers exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from ..base.errors import MissingExtra, ScapoError
from . import images
from .base import CHOICES, Completion, OnCompletion, Request, complete_batch, secrets_of, weights_hash, without_secrets

_CHUNK = 256  # requests handed over at once: vLLM schedules among them, and their images are all in memory


class VllmEngine:
    """Runs a model by vLLM's offline engine.

    Args:
        model: name of the model on the hub, or its folder.
        revision: revision on the hub; None takes the newest.
        dtype: type of the weights: ``auto`` (their own), ``bfloat16``, ``float16`` or ``float32``.
        seed: seed of the engine.
        extra: further arguments of ``vllm.LLM`` (``max_model_len``, ``tensor_parallel_size``...).

    Raises:
        MissingExtra: vLLM is not installed.
        ScapoError: the model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        seed: int = 0,
        extra: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        try:
            import vllm
        except ImportError:
            raise MissingExtra("vllm", "the engine vllm") from None
        self._vllm = vllm
        self._faults, self._dead = faults()
        arguments = {"model": model, "revision": revision, "dtype": dtype, "seed": seed, **extra}
        self.identity: Mapping[str, Any] = {
            "engine": "vllm", "model": model, "revision": revision, "weights": weights_hash(model), "dtype": dtype,
            "extra": without_secrets(dict(extra)),
        }  # fmt: skip
        self.card: dict[str, Any] = {"vllm": vllm.__version__}
        try:
            self._llm = vllm.LLM(**arguments)
        except (OSError, ValueError) as error:
            why = str(error)  # which may quote the arguments
            for secret in secrets_of(extra):
                why = why.replace(secret, "***")
            raise ScapoError(f"vLLM cannot load {model}: {why}") from None

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests, a chunk at a time; see :class:`~scapo_eval.engines.base.Engine`."""
        source = iter(requests)
        while chunk := list(islice(source, _CHUNK)):
            ready: list[tuple[Request, list[dict[str, Any]]]] = []
            loaded = images.Cache(images.load, _CHUNK)
            for request in chunk:
                try:
                    ready.append((request, _conversation(request, loaded)))
                except images.ImageFault as error:
                    done(request, Completion(error=str(error)))
            for (request, _), completion in zip(ready, complete_batch(self._chat, ready, self._faults), strict=True):
                done(request, completion)

    def close(self) -> None:
        """Frees the model."""
        del self._llm

    def _chat(self, ready: Sequence[tuple[Request, list[dict[str, Any]]]]) -> list[Completion]:
        try:
            outputs = self._llm.chat(
                [conversation for _, conversation in ready],
                sampling_params=[self._params(request) for request, _ in ready],
                use_tqdm=False,
            )
        except self._dead as error:
            raise ScapoError(f"vLLM's engine has died ({error}); run the same command again") from None
        return [
            Completion(
                text=output.outputs[0].text,
                finish=output.outputs[0].finish_reason,
                prompt_tokens=len(output.prompt_token_ids or ()) or None,
                completion_tokens=len(output.outputs[0].token_ids),
            )
            for output in outputs
        ]

    def _params(self, request: Request) -> Any:
        from vllm.sampling_params import StructuredOutputsParams

        sampling = request.sampling
        given = {name: value for name in CHOICES if (value := getattr(sampling, name)) is not None}
        if len(given) < len(CHOICES):  # the rest is the checkpoint's own, which vLLM reads at its start
            own = self._llm.get_default_sampling_params()
            given = {name: getattr(own, name) for name in CHOICES} | given
        self.card["sampling"] = {**given, "max_tokens": sampling.max_tokens}
        schema = StructuredOutputsParams(json=dict(request.schema)) if request.schema is not None else None
        return self._vllm.SamplingParams(
            **given,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
            stop=list(sampling.stop),
            structured_outputs=schema,
        )


Faults = tuple[type[Exception], ...]


def faults() -> tuple[Faults, Faults]:
    """Exceptions that vLLM raises for a request it cannot complete, and for an engine that has died."""
    try:
        from vllm.exceptions import VLLMClientError, VLLMServerError
    except ImportError:  # older releases raise plain ones
        return (ValueError,), ()
    return (ValueError, VLLMClientError), (VLLMServerError,)


def _conversation(request: Request, load: images.Cache[Any]) -> list[dict[str, Any]]:
    """VLLM's spelling of a conversation, with decoded images."""
    return [
        {"role": turn.role, "content": turn.text}
        if not turn.images
        else {
            "role": turn.role,
            "content": [
                *({"type": "image_pil", "image_pil": load(path)} for path in turn.images),
                {"type": "text", "text": turn.text},
            ],
        }
        for turn in request.turns
    ]
