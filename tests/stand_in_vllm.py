"""Stand-in for vLLM that contains a real model, and accepts only the arguments that a vLLM release declares.

Its weights are a second copy of a tiny Qwen2.5-VL, which is filled only through ``reload_weights``, under vLLM's names.
During sleep, the weights are NaN. Like vLLM's encoder and prefix caches, it stores the results for pictures and prompts
until a reset, and answers from them. Like vLLM, it adds an adapter to its base weights. ``vllm_train_signatures.json``
contains the declarations of the releases (see ``unit/test_train_vllm.py``).
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from scapo_eval.engines.hf import load_processor

RECORD = Path(__file__).resolve().parent / "unit" / "vllm_train_signatures.json"
CACHES = ("prefix", "encoder")


def releases() -> dict[str, Any]:
    """Returns the declarations of each recorded release."""
    return json.loads(RECORD.read_bytes())  # type: ignore[no-any-return]


def install(version: str, put: Callable[[dict[str, ModuleType], str, ModuleType], None] = dict.__setitem__) -> Any:
    """Installs the stand-in for ``import vllm``, and returns it. Its attribute ``made`` contains the created
    engines.
    """
    record = releases()[version]
    package = ModuleType("vllm")
    package.__version__ = version  # type: ignore[attr-defined]
    package.SamplingParams = declared("SamplingParams", record)  # type: ignore[attr-defined]
    package.made = []  # type: ignore[attr-defined]
    package.LLM = type("LLM", (Engine,), {"record": record, "made": package.made})  # type: ignore[attr-defined]
    exceptions = ModuleType("vllm.exceptions")
    for name in ("VLLMClientError", "VLLMServerError"):
        setattr(exceptions, name, type(name, (Exception,), {}))
    requests = ModuleType("vllm.lora.request")
    requests.LoRARequest = declared("LoRARequest", record)  # type: ignore[attr-defined]
    put(sys.modules, "vllm", package)
    put(sys.modules, "vllm.lora", ModuleType("vllm.lora"))
    put(sys.modules, "vllm.lora.request", requests)
    put(sys.modules, "vllm.exceptions", exceptions)
    return package


def declared(name: str, record: dict[str, Any]) -> Any:
    """Returns a class that accepts only the declared attributes."""

    def init(self: Any, **given: Any) -> None:
        unknown = set(given) - set(record[name])
        assert not unknown, f"{name} has no {unknown}"
        self.__dict__.update(given)

    return type(name, (), {"__init__": init})


class Model(nn.Module):
    """Hugging Face model with vLLM's names."""

    def __init__(self, held: Any, prefixes: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.visual = held.model.visual
        self.language_model = nn.Module()
        self.language_model.model = held.model.language_model
        self.language_model.lm_head = held.lm_head
        self.prefixes = prefixes

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Copies weights to the targets of vLLM's name mapping. Rejects names without a target."""
        own = dict(self.named_parameters())
        loaded = set()
        for name, weight in weights:
            for old, new in self.prefixes:
                name = name.replace(old, new, 1) if name.startswith(old) else name
            if name not in own:
                raise ValueError(f"There is no module or parameter named {name!r}")
            assert weight.shape == own[name].shape
            own[name].copy_(weight)
            loaded.add(name)
        return loaded


class Engine:
    """Stand-in for ``vllm.LLM``."""

    record: dict[str, Any]
    made: list[Engine]

    def __init__(self, **given: Any) -> None:
        import transformers

        self._declares("LLM.__init__", given)
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        assert given["distributed_executor_backend"] in ("uni", "external_launcher")
        self.given = given
        if not Path(given["model"]).exists():
            raise OSError(f"{given['model']} is not a local folder")
        dtype = getattr(torch, given["dtype"])
        self.held = transformers.AutoModelForImageTextToText.from_pretrained(given["model"], dtype=dtype).eval()
        self.processor = load_processor(given["model"], **(given["mm_processor_kwargs"] or {}))
        self.model = Model(self.held, self.record["prefixes"]["qwen2_5_vl"])
        self.awake = {"weights", "kv_cache"}
        self.caches: dict[str, dict[Any, Tensor]] = {name: {} for name in CACHES}
        self.asked: list[list[int]] = []
        self.calls: list[str] = []
        self.adapter: tuple[int, dict[str, Tensor]] = 0, {}
        self.llm_engine = SimpleNamespace(
            reset_encoder_cache=lambda: self._forget("encoder"),
            add_lora=self.add_lora,
            engine_core=SimpleNamespace(shutdown=lambda: self.calls.append("shutdown")),
        )
        self.made.append(self)

    def sleep(self, **given: Any) -> None:
        """Discards the weights, at level 1 until the engine wakes up and at level 2 permanently."""
        self._declares("LLM.sleep", given)
        assert self.given["enable_sleep_mode"]
        assert "weights" in self.awake
        self.awake.clear()
        self.on_host = [each.clone() for each in self.model.parameters()] if given["level"] == 1 else []
        self._fill(float("nan"))
        self.calls.append("sleep")

    def wake_up(self, **given: Any) -> None:
        """Allocates memory, and restores weights from the host."""
        self._declares("LLM.wake_up", given)
        for tag in given["tags"]:
            assert tag in self.record["tags"]
            assert tag not in self.awake
            self.awake.add(tag)
            self.calls.append(f"wake {tag}")
            if tag == "weights" and self.on_host:
                with torch.no_grad():
                    for parameter, kept in zip(self.model.parameters(), self.on_host, strict=True):
                        parameter.copy_(kept)

    def apply_model(self, func: Callable[[Any], Any]) -> list[Any]:
        """Calls a function with the model."""
        return [func(self.model)]

    def collective_rpc(self, method: str, **given: Any) -> list[Any]:
        """Reloads weights. Missing weights are ignored, as in vLLM."""
        self._declares("LLM.collective_rpc", given)
        assert method == "reload_weights"
        self._declares("GPUModelRunner.reload_weights", given["kwargs"])
        assert "weights" in self.awake, "the weights' memory is not there"
        self.calls.append("reload")
        self.model.load_weights(given["kwargs"]["weights_iterator"])
        return [None]

    def add_lora(self, lora_request: Any) -> bool:
        """Reads an adapter in peft's format in place of the former one."""
        assert self.given["enable_lora"]
        folder = Path(lora_request.lora_path)
        config = json.loads((folder / "adapter_config.json").read_text())
        if config["r"] > self.given["max_lora_rank"]:
            raise ValueError(f"LoRA rank {config['r']} is greater than max_lora_rank")
        weights = load_file(folder / "adapter_model.safetensors")
        products = {}
        for name, down in weights.items():
            if ".lora_A." in name:
                layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                targets = self.given["lora_target_modules"]
                assert targets is None or layer.rpartition(".")[2] in targets
                up = weights[name.replace(".lora_A.", ".lora_B.")]
                products[layer] = config["lora_alpha"] / config["r"] * up @ down
        self.adapter = lora_request.lora_int_id, products
        self.calls.append(f"adapter {lora_request.lora_name}")
        return True

    @contextmanager
    def _adapted(self, lora_request: Any) -> Iterator[None]:
        if lora_request is None:
            yield
            return
        if self.adapter[0] != lora_request.lora_int_id:
            self.add_lora(lora_request)
        layers = {name: self.held.get_submodule(name) for name in self.adapter[1]}
        kept = {name: layer.weight.clone() for name, layer in layers.items()}
        for name, layer in layers.items():
            layer.weight += self.adapter[1][name]
        yield
        for name, layer in layers.items():
            layer.weight.copy_(kept[name])

    def reset_prefix_cache(self) -> bool:
        """Clears the cache of prompts."""
        self._forget("prefix")
        return True

    @torch.no_grad()
    def generate(self, prompts: Sequence[Any], sampling_params: Sequence[Any], **given: Any) -> list[Any]:
        """Answers the prompts, one after another."""
        self._declares("LLM.generate", given)
        assert self.awake == {"weights", "kv_cache"}
        assert len(prompts) == len(sampling_params) > 0
        self.calls.append("generate")
        with self._adapted(given.get("lora_request")):
            return [self._answer(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]

    def _answer(self, prompt: dict[str, Any], params: Any) -> Any:
        assert set(prompt) <= set(self.record["TokensPrompt"])
        picture = prompt["multi_modal_data"]["image"]
        made = self.processor.image_processor(images=[picture], return_tensors="pt")
        pixels, grid = made["pixel_values"], made["image_grid_thw"]
        token = self.held.config.image_token_id
        given = prompt["prompt_token_ids"]
        if given.count(token) != 1:
            raise ValueError("Expected one placeholder for one image")
        at, number = given.index(token), int(grid.prod()) // 4
        ids = [*given[:at], *[token] * number, *given[at + 1 :]]
        assert len(ids) + params.max_tokens <= self.given["max_model_len"]
        if params.temperature == 0 and params.n > 1:
            raise ValueError("n must be 1 when using greedy sampling")
        self.asked.append(ids)
        answers = [self._response(ids, picture.tobytes(), pixels, grid, params, k) for k in range(params.n)]
        return declared("RequestOutput", self.record)(prompt_token_ids=ids, outputs=answers)

    def _response(self, ids: list[int], picture: bytes, pixels: Tensor, grid: Tensor, params: Any, k: int) -> Any:
        generator = torch.Generator().manual_seed(params.seed + k)
        logprob = declared("Logprob", self.record)
        tokens, places, reason = [], [], "length"
        while len(tokens) < params.max_tokens:
            logits = self._logits(ids, tokens, picture, pixels, grid).clone()
            raw = logits.log_softmax(-1)
            for token, bias in params.logit_bias.items():
                logits[token] += bias
            if params.temperature:
                logits /= params.temperature
            processed = logits.log_softmax(-1)
            greedy = params.temperature == 0
            token = int(logits.argmax() if greedy else torch.multinomial(processed.exp(), 1, generator=generator))
            reported = processed if self.given["logprobs_mode"] == "processed_logprobs" else raw
            tokens.append(token)
            places.append({token: logprob(logprob=float(reported[token]))})
            ended = token in params.stop_token_ids
            if ended or (not params.ignore_eos and token == self.held.generation_config.eos_token_id):
                reason = "stop"
                break
        completion = declared("CompletionOutput", self.record)
        return completion(index=k, token_ids=tuple(tokens), logprobs=places, finish_reason=reason)

    def _logits(self, ids: list[int], tokens: list[int], picture: bytes, pixels: Tensor, grid: Tensor) -> Tensor:
        prefix = self.caches["prefix"]
        if not tokens and (tuple(ids), picture) in prefix:
            return prefix[tuple(ids), picture]
        if picture not in self.caches["encoder"]:
            found = self.held.model.visual(pixels.to(self.held.dtype), grid_thw=grid)
            self.caches["encoder"][picture] = getattr(found, "pooler_output", found)
        whole = torch.tensor([[*ids, *tokens]])
        places = whole == self.held.config.image_token_id
        embeds = self.held.get_input_embeddings()(whole)
        embeds = embeds.masked_scatter(places[..., None], self.caches["encoder"][picture].to(embeds.dtype))
        index = self.held.model.get_rope_index
        extra: dict[str, Any] = {"image_grid_thw": grid}
        if "mm_token_type_ids" in inspect.signature(index).parameters:  # transformers 5
            extra["mm_token_type_ids"] = places.int()
        positions, _ = index(whole, **extra)
        found = self.held.model.language_model(inputs_embeds=embeds, position_ids=positions, use_cache=False)
        logits = self.held.lm_head(found.last_hidden_state[0, -1])
        if not tokens:
            prefix[tuple(ids), picture] = logits
        return logits

    def _declares(self, name: str, given: Iterable[str]) -> None:
        unknown = set(given) - set(self.record[name])
        assert not unknown, f"{name} has no {unknown}"

    def _forget(self, cache: str) -> None:
        self.caches[cache].clear()
        self.calls.append(f"forget {cache}")

    @torch.no_grad()
    def _fill(self, value: float) -> None:
        for parameter in self.model.parameters():
            parameter.fill_(value)
