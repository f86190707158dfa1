"""Engine that runs vLLM in this process. It is the fastest engine on local GPUs. Each vLLM release requires exact
versions of torch and transformers.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Any, BinaryIO

from ..base.errors import ScapoError
from . import check_vllm, images, missing_extra
from .base import (
    CHOICES,
    COMPACT_JSON,
    TOP,
    Completion,
    OnCompletion,
    Request,
    cached_commit,
    complete_batch,
    masses_of,
    secrets_of,
    weights_hash,
    without_secrets,
)
from .hf import image_tokens

_NEVER = -100.0  # vLLM's minimum bias, for tokens that represent pictures in a prompt
_CHUNK = 256  # number of requests per call: vLLM schedules them together, and all their images are in memory


class VllmEngine:
    """Engine that runs a model with vLLM's offline interface.

    Args:
        model: Name of the model on the hub, or path of its folder.
        revision: Revision of the model on the hub, or None for the newest revision.
        dtype: Data type of the weights: ``auto`` (the data type in the checkpoint), ``bfloat16``, ``float16`` or
            ``float32``.
        seed: Seed for the engine's random numbers.
        extra: Additional arguments for ``vllm.LLM``, such as ``max_model_len`` and ``tensor_parallel_size``.

    Raises:
        MissingExtra: If vLLM is not installed.
        ScapoError: If vLLM is too old, or the model cannot be loaded.
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
            raise missing_extra("vllm") from None
        check_vllm(vllm.__version__)
        self._vllm = vllm
        self._faults, self._dead = faults()
        arguments = {
            "model": model, "revision": revision, "dtype": dtype, "seed": seed,
            "structured_outputs_config": dict(COMPACT_JSON), **extra,
        }  # fmt: skip
        self.card: dict[str, Any] = {"vllm": vllm.__version__}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  as long as the engine, whose process writes into it
        try:
            with _output_to(self._log):
                self._llm = vllm.LLM(**arguments)
        except Exception as error:  # releases differ in the errors for a model or an argument that they do not support
            why = root_cause(error, self._log)  # may contain the arguments
            for secret in secrets_of(extra):
                why = why.replace(secret, "***")
            self._log.close()
            raise ScapoError(f"vLLM cannot load {model}: {why}") from None
        self.identity: Mapping[str, Any] = {
            "engine": "vllm", "model": model, "revision": revision or cached_commit(model),
            "weights": weights_hash(model), "dtype": dtype, "extra": without_secrets(dict(extra)),
            "vllm": vllm.__version__,
        }  # fmt: skip
        described = getattr(getattr(self._llm, "model_config", None), "hf_config", None)
        self._never = dict.fromkeys(image_tokens(described) if described is not None else (), _NEVER)

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests in chunks of at most _CHUNK requests.

        See :class:`~scapo_eval.engines.base.Engine`.
        """
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
        """Releases the model."""
        del self._llm
        self._log.close()

    def _chat(self, ready: Sequence[tuple[Request, list[dict[str, Any]]]]) -> list[Completion]:
        try:
            outputs = self._llm.chat(
                [conversation for _, conversation in ready],
                sampling_params=[self._params(request) for request, _ in ready],
                use_tqdm=False,
            )
        except self._dead as error:
            why = root_cause(error, self._log)
            raise ScapoError(f"vLLM's engine has died ({why}); run the same command again") from None
        return [
            Completion(
                text=output.outputs[0].text,
                finish=output.outputs[0].finish_reason,
                prompt_tokens=len(output.prompt_token_ids or ()) or None,
                completion_tokens=len(output.outputs[0].token_ids),
                masses=masses_of(request.choices, _first_tokens(output.outputs[0])) if request.choices else None,
            )
            for (request, _), output in zip(ready, outputs, strict=True)
        ]

    def _params(self, request: Request) -> Any:
        from vllm.sampling_params import StructuredOutputsParams

        sampling = request.sampling
        given = {name: value for name in CHOICES if (value := getattr(sampling, name)) is not None}
        if len(given) < len(CHOICES):  # all others come from the checkpoint, which vLLM reads at start
            checkpoint = self._llm.get_default_sampling_params()
            given = {name: getattr(checkpoint, name) for name in CHOICES} | given
        self.card["sampling"] = {**given, "max_tokens": sampling.max_tokens}
        schema = StructuredOutputsParams(json=dict(request.schema)) if request.schema is not None else None
        return self._vllm.SamplingParams(
            **given,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
            stop=list(sampling.stop),
            logit_bias=self._never or None,
            structured_outputs=schema,
            logprobs=TOP if request.choices else None,
        )


_CAUSE = re.compile(r"(?:^|[\])] )((?:\w+\.)*\w+(?:Error|Exception)\b: .+)$", re.MULTILINE)
_ELSEWHERE = re.compile(r"(?i)see (the )?(root cause|stack trace|error)|engine core|EngineCore")


@contextmanager
def _output_to(log: BinaryIO) -> Iterator[None]:
    """Redirects the output of vLLM and its processes to a log, unless the user has set the logging level of vLLM."""
    if "VLLM_LOGGING_LEVEL" in os.environ:
        yield
        return
    streams = (1, 2)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in streams]
    try:
        for number in streams:
            os.dup2(log.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip(streams, kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def root_cause(error: BaseException, log: BinaryIO | None = None) -> str:
    """Returns a one-line message with the original cause of a chain of exceptions that vLLM raised.

    Args:
        error: Exception at the end of the chain.
        log: Output of vLLM's processes, which is searched for causes that the error message does not state.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    if log is not None and _ELSEWHERE.search(text):
        log.seek(0)
        printed = log.read().decode("utf-8", "replace")
        causes = [cause for cause in _CAUSE.findall(printed) if not _ELSEWHERE.search(cause)]
        text = " ".join(causes[0].split()) if causes else text
    elif not text or isinstance(error, KeyError):
        text = f"{type(error).__name__}: {text}"
    return text[:400]


Faults = tuple[type[Exception], ...]


def faults() -> tuple[Faults, Faults]:
    """Returns two groups of vLLM's exception types: those for a request that cannot be completed, and those for an
    engine that has died.
    """
    try:
        from vllm.exceptions import VLLMClientError, VLLMServerError
    except ImportError:  # older releases raise built-in errors
        return (ValueError,), ()
    return (ValueError, VLLMClientError), (VLLMServerError,)


def _first_tokens(output: Any) -> list[tuple[str, float]]:
    """Returns the text and log-probability of the most probable first tokens, computed before the forbidden tokens are
    excluded.
    """
    likely = (each for each in output.logprobs[0].values() if (each.rank or 1) <= TOP)  # the sampled one may be further
    return [(each.decoded_token or "", each.logprob) for each in likely]


def _conversation(request: Request, load: images.Cache[Any]) -> list[dict[str, Any]]:
    """Returns a conversation in vLLM's format, with decoded images."""
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
