"""Engine that runs vLLM on a Ray cluster, with Ray Data's batch inference (``ray.data.llm``) and any number of copies
of the model.

Ray schedules the requests, retries failed requests and restarts failed processes. Images are read on the node that
prepares a request. Therefore, the files must be available on every node. The replicas of the model are reloaded after
every CHUNK requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from types import MappingProxyType
from typing import Any

from ..base.errors import InputError, MissingExtra, ScapoError, cause, in_one_line
from ..files.json_text import dump_json, parse_json
from . import check_vllm, images, missing_extra
from .base import (
    CHOICES,
    COMPACT_JSON,
    TOP,
    Completion,
    OnCompletion,
    Request,
    masses_of,
    weights_hash,
    without_secrets,
)

CHUNK = 1 << 18
"""Number of requests per Ray dataset."""

ERROR = "__inference_error__"  # Ray's error column, which is empty if there is a completion


class RayVllmEngine:
    """Engine that runs a model with vLLM on a Ray cluster (``RAY_ADDRESS``, or this machine).

    Args:
        model: Name of the model on the hub, or path of its folder, which must be available on every node.
        revision: Revision of the model on the hub, or None for the newest revision.
        dtype: Data type of the weights: ``auto`` (the data type in the checkpoint), ``bfloat16``, ``float16`` or
            ``float32``.
        seed: Seed for the engine's random numbers.
        replicas: Number of copies of the model.
        extra: Additional arguments for vLLM's engine, such as ``max_model_len`` and ``tensor_parallel_size``.

    Raises:
        MissingExtra: If Ray or its extra ``ray[llm]`` is not installed.
        ScapoError: If the installed version of vLLM is too old or incompatible with the version of Ray.
    """

    chunk = CHUNK

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        seed: int = 0,
        replicas: int = 1,
        extra: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        try:
            import ray.data.llm
            import ray.exceptions
        except ImportError:
            raise missing_extra("ray") from None
        self._ray = ray
        self.identity: Mapping[str, Any] = {
            "engine": "ray", "model": model, "revision": revision, "weights": weights_hash(model), "dtype": dtype,
            "extra": without_secrets(dict(extra)), "vllm": check_pair(ray.__version__),
        }  # fmt: skip
        self.card: dict[str, Any] = {
            "ray": ray.__version__, "vllm": self.identity["vllm"], "replicas": replicas,
        }  # fmt: skip
        given = {
            "revision": revision, "dtype": dtype, "seed": seed, "structured_outputs_config": dict(COMPACT_JSON),
        }  # fmt: skip
        self._config = {
            "model_source": model,
            "engine_kwargs": {**{name: value for name, value in given.items() if value is not None}, **extra},
            "concurrency": (replicas, replicas),
            "should_continue_on_error": True,
        }

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests in datasets of at most CHUNK requests.

        See :class:`~scapo_eval.engines.base.Engine`.
        """
        source = iter(requests)
        while chunk := list(islice(source, CHUNK)):
            self._run(chunk, done)

    def close(self) -> None:
        """Does nothing, because Ray stops the model replicas when their dataset has been processed."""

    def _run(self, chunk: Sequence[Request], done: OnCompletion) -> None:
        sees, asks = any(request.images for request in chunk), any(request.choices for request in chunk)
        llm = self._ray.data.llm
        config = llm.vLLMEngineProcessorConfig(
            **self._config,
            prepare_multimodal_stage={"enabled": sees, "chat_template_content_format": "openai"},
        )
        try:
            process = llm.build_processor(config, preprocess=prepared, postprocess=completed)
        except ImportError as error:  # Ray needs torch and transformers here, and vLLM on the workers
            raise MissingExtra("ray-llm", f"the engine ray ({error})") from None
        rows = [{"n": n, "request": self._row(request, sees, asks)} for n, request in enumerate(chunk)]
        missing = set(range(len(chunk)))
        try:
            for row in process(self._ray.data.from_items(rows)).iter_rows():
                n = int(row["n"])
                if n in missing:  # otherwise Ray has recomputed its block
                    missing.remove(n)
                    done(chunk[n], _completion(row, chunk[n]))
        except self._ray.exceptions.RayError as error:
            raise ScapoError(f"Ray failed ({cause(error)[:300]}); run the same command again") from None
        for n in sorted(missing):
            done(chunk[n], Completion(error="Ray returned nothing for it"))

    def _row(self, request: Request, sees: bool, asks: bool) -> str:
        """Returns a request as JSON, because columns of Ray's tables do not support values whose structure varies. If
        one request has images, or choices, all requests of the dataset are given the fields for them.
        """
        sampling = request.sampling
        chosen = {name: getattr(sampling, name) for name in CHOICES}
        if None in chosen.values():
            raise InputError("the engine ray sets every sampling setting itself; omit --generation-config")
        params = {**chosen, "max_tokens": sampling.max_tokens, "seed": sampling.seed, "stop": list(sampling.stop)}
        self.card["sampling"] = {**chosen, "max_tokens": sampling.max_tokens}
        if asks:
            params["logprobs"] = TOP
        turns = [(turn.role, turn.text, list(turn.images)) for turn in request.turns]
        schema = None if request.schema is None else dump_json(dict(request.schema)).decode()
        asked = {"turns": turns, "params": params, "schema": schema, "sees": sees, "choices": request.choices}
        return dump_json(asked).decode()


def check_pair(ray: str) -> str | None:
    """Returns the version of vLLM on this machine, or None if it is not installed. The version on the cluster is
    assumed to be the same.

    Args:
        ray: Version of Ray.

    Raises:
        ScapoError: If Ray's metadata requires a different version of vLLM, because every request would fail with the
            installed version, or if vLLM is too old.
    """
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        return None
    for requirement in requires("ray") or ():
        pinned = re.match(r"vllm(?:\[[^]]*\])?==([\d.]+)", requirement.replace(" ", ""))
        if pinned and pinned[1] != installed.partition("+")[0]:
            raise ScapoError(
                f"Ray {ray} requires vLLM {pinned[1]}, but {installed} is installed: "
                f"pip install 'ray[llm]=={ray}', or another release of Ray"
            )
    check_vllm(installed)
    return installed


def prepared(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns that Ray expects as input for a request. The function runs on the cluster."""
    request = parse_json(row["request"].encode())
    params, fault = request["params"], ""
    if request["schema"] is not None:
        params["structured_outputs"] = {"json": request["schema"]}
    messages: list[dict[str, Any]] = []
    for role, text, paths in request["turns"]:
        parts: list[dict[str, Any]] = []
        for path in paths:
            try:
                parts.append({"type": "image_url", "image_url": {"url": images.data_url(path)}})
            except images.ImageFault as error:
                fault = str(error)
        content: Any = [*parts, {"type": "text", "text": text}] if request["sees"] else text
        messages.append({"role": role, "content": content})
    return {"messages": messages, "sampling_params": params, "fault": fault}


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the required columns of Ray's output for the rows without an error. The function runs on the cluster."""
    choices = parse_json(row["request"].encode())["choices"]
    return {
        "n": row["n"],
        "text": row["generated_text"],
        "prompt_tokens": row["num_input_tokens"],
        "completion_tokens": row["num_generated_tokens"],
        "fault": row["fault"],
        "masses": dump_json(masses_of(choices, _first_tokens(row))).decode() if choices else "",
    }


def _first_tokens(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns the text and log-probability of the most probable first tokens."""
    likely = row["logprobs"][0].values()  # the sampled one may be further
    return [(each["decoded_token"] or "", each["logprob"]) for each in likely if (each["rank"] or 1) <= TOP]


def _completion(row: Mapping[str, Any], request: Request) -> Completion:
    if error := row.get(ERROR) or row.get("fault"):
        return Completion(error=in_one_line(error, 500))
    made = int(row["completion_tokens"])
    return Completion(
        text=row["text"],
        finish="length" if made >= request.sampling.max_tokens else "stop",  # Ray does not pass on vLLM's finish reason
        prompt_tokens=int(row["prompt_tokens"]) or None,
        completion_tokens=made,
        masses=tuple(parse_json(row["masses"].encode())) if request.choices else None,
    )
