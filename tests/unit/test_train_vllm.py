"""What the trainer uses of vLLM is what every recorded release of vLLM declares.

``vllm_train_signatures.json`` holds names from vLLM's own sources, by release (written by this file, run as a
script with wheels as arguments). Where vLLM is installed, or a wheel lies in ``$SCAPO_VLLM_WHEEL`` or
``~/.cache/scapo``, that release is read again.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scapo_train.samplers.adapters import RANKS

RECORD = Path(__file__).resolve().parent / "vllm_train_signatures.json"
Read = Callable[[str], str]

USED = {
    "LLM.__init__": {
        "model", "revision", "dtype", "seed", "tensor_parallel_size", "distributed_executor_backend",
        "gpu_memory_utilization", "max_model_len", "enable_sleep_mode", "enforce_eager", "limit_mm_per_prompt",
        "mm_processor_kwargs", "mm_processor_cache_gb", "generation_config", "logprobs_mode", "enable_lora",
        "max_lora_rank", "lora_target_modules",
    },
    "LLM.generate": {"prompts", "sampling_params", "use_tqdm", "lora_request"},
    "LLM.sleep": {"level"},
    "LLM.wake_up": {"tags"},
    "LLM.apply_model": {"func"},
    "LLM.collective_rpc": {"method", "kwargs"},
    "GPUModelRunner.reload_weights": {"weights_iterator"},
    "LLM.reset_prefix_cache": set(),
    "LLMEngine.reset_encoder_cache": set(),
    "LLMEngine.add_lora": {"lora_request"},
    "LoRARequest": {"lora_name", "lora_int_id", "lora_path"},
    "ranks": set(RANKS),
    "InprocClient.shutdown": set(),
    "SamplingParams": {
        "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens", "ignore_eos",
        "stop_token_ids", "logit_bias", "logprobs", "detokenize",
    },
    "RequestOutput": {"prompt_token_ids", "outputs"},
    "CompletionOutput": {"token_ids", "logprobs", "finish_reason"},
    "Logprob": {"logprob"},
    "TokensPrompt": {"prompt_token_ids", "multi_modal_data"},
    "logprobs_modes": {"processed_logprobs"},
    "executors": {"uni", "external_launcher"},
    "tags": {"weights", "kv_cache"},
}  # fmt: skip


def signatures(read: Read) -> dict[str, Any]:
    """What the sampler relies on, from the sources: path below ``vllm/`` -> text is ``read``."""
    llm = _class(read("entrypoints/llm.py"), "LLM")
    methods = ("generate", "sleep", "wake_up", "apply_model", "collective_rpc", "reset_prefix_cache")
    try:
        prompts = read("inputs/llm.py")
    except (KeyError, FileNotFoundError):
        prompts = read("inputs/data.py")
    outputs = read("outputs.py")
    flags = _fields(_class(read("engine/arg_utils.py"), "EngineArgs"))
    engine = _class(read("v1/engine/llm_engine.py"), "LLMEngine")
    made = _arguments(llm, "__init__")
    return {
        # of hundreds, those that are used
        "LLM.__init__": sorted({*made, *(flags if "**" in made else ())} & USED["LLM.__init__"]),
        **{f"LLM.{name}": _arguments(llm, name) for name in methods},
        **{f"LLMEngine.{name}": _arguments(engine, name) for name in ("reset_encoder_cache", "add_lora")},
        "LoRARequest": _fields(_class(read("lora/request.py"), "LoRARequest")),
        "ranks": _literal(read("config/lora.py"), "MaxLoRARanks"),
        "GPUModelRunner.reload_weights": _arguments(
            _class(read("v1/worker/gpu_model_runner.py"), "GPUModelRunner"), "reload_weights"
        ),
        "InprocClient.shutdown": _arguments(_class(read("v1/engine/core_client.py"), "InprocClient"), "shutdown"),
        "SamplingParams": _fields(_class(read("sampling_params.py"), "SamplingParams")),
        "RequestOutput": _arguments(_class(outputs, "RequestOutput"), "__init__"),
        "CompletionOutput": _fields(_class(outputs, "CompletionOutput")),
        "Logprob": _fields(_class(read("logprobs.py"), "Logprob")),
        "TokensPrompt": _fields(_class(prompts, "_PromptOptions")) + _fields(_class(prompts, "TokensPrompt")),
        "logprobs_modes": _literal(read("config/model.py"), "LogprobsMode"),
        "executors": _literal(read("config/parallel.py"), "DistributedExecutorBackend"),
        "tags": sorted(set(re.findall(r'[^_]tag="(\w+)"', read("v1/worker/gpu_worker.py")))),
        "prefixes": {
            name: _prefixes(read(f"model_executor/models/{name}.py")) for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
        },
        # further responses to a prompt draw with its seed plus their number
        "seeds": "seed + index" in read("v1/engine/parallel_sampling.py"),
        # the ends are the policy's own: the model's are left alone where ignore_eos is set
        "ends": "if not self.ignore_eos:" in read("sampling_params.py"),
        # without it, vLLM lives in a process of its own, where the weights do not come by function call
        "in_process": '"VLLM_ENABLE_V1_MULTIPROCESSING"' in read("envs.py"),
    }


def _class(source: str, name: str) -> ast.ClassDef:
    return next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name)


def _arguments(cls: ast.ClassDef, name: str) -> list[str]:
    made = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name)
    names = [each.arg for each in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)][1:]
    return names + (["**"] if made.args.kwarg else [])


def _fields(cls: ast.ClassDef) -> list[str]:
    fields = [node.target.id for node in cls.body if isinstance(node, ast.AnnAssign)]  # type: ignore[union-attr]
    return [field for field in fields if not field.startswith("_")]


def _literal(source: str, name: str) -> list[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return sorted(each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant))
    raise AssertionError(name)


def _prefixes(source: str) -> list[list[str]]:
    """Of the model's mapper: what a name in a checkpoint begins with, and what vLLM makes of that."""
    for cls in ast.walk(ast.parse(source)):
        if isinstance(cls, ast.ClassDef) and cls.name.endswith("ForConditionalGeneration"):
            for node in cls.body:
                if isinstance(node, ast.Assign) and node.targets[0].id == "hf_to_vllm_mapper":  # type: ignore[attr-defined]
                    named = {each.arg: each.value for each in node.value.keywords}  # type: ignore[attr-defined]
                    return [list(pair) for pair in ast.literal_eval(named["orig_to_new_prefix"]).items()]
    return []


def _version(read: Read) -> str:
    return re.search(r"__version__ = version = '([^']+)'", read("_version.py"))[1]  # type: ignore[index]


def _from_wheel(path: Path) -> Read:
    return lambda name: zipfile.ZipFile(path).read(f"vllm/{name}").decode()


def _sources() -> Read | None:
    if (found := importlib.util.find_spec("vllm")) and found.origin:
        root = Path(found.origin).parent
        return lambda name: (root / name).read_text()
    given = os.environ.get("SCAPO_VLLM_WHEEL")
    wheels = [Path(given)] if given else sorted((Path.home() / ".cache/scapo").glob("vllm-*.whl"))
    return _from_wheel(wheels[-1]) if wheels else None


def complaints(declared: dict[str, Any]) -> list[str]:
    """What is used and not declared."""
    found = [f"{name}: {used - set(declared[name])}" for name, used in USED.items() if used - set(declared[name])]
    return found + [name for name in ("seeds", "ends", "in_process") if not declared[name]]


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


RELEASES: dict[str, Any] = json.loads(RECORD.read_bytes()) if RECORD.exists() else {}


@pytest.mark.parametrize("version", RELEASES)
def test_everything_used_is_declared(version: str) -> None:
    assert complaints(RELEASES[version]) == []


def test_the_oldest_and_the_newest_release_are_recorded() -> None:
    versions = sorted(map(release, RELEASES))
    text = (RECORD.parents[2] / "pyproject.toml").read_text()
    lowest = re.search(r'"vllm>=([\d.]+)', text)
    assert lowest is not None
    assert versions[0][:2] == release(lowest[1])
    assert versions[-1] >= (0, 33)


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_names_in_memory_lead_to_vllms_modules(version: str, family: str) -> None:
    prefixes = RELEASES[version]["prefixes"][family]

    def mapped(name: str) -> str:
        for old, new in prefixes:
            name = name.replace(old, new, 1) if name.startswith(old) else name
        return name

    assert mapped("model.visual.blocks.0.norm1.weight") == "visual.blocks.0.norm1.weight"
    assert mapped("model.language_model.norm.weight") == "language_model.model.norm.weight"
    assert mapped("lm_head.weight") == "language_model.lm_head.weight"


def test_the_record_is_what_vllm_declares() -> None:
    read = _sources()
    if read is None:
        pytest.skip("vLLM is neither installed nor its wheel in $SCAPO_VLLM_WHEEL or ~/.cache/scapo")
    version, declared = _version(read), signatures(read)
    assert complaints(declared) == []
    assert RELEASES.get(version, declared) == declared


if __name__ == "__main__":
    found = {_version(read): signatures(read) for read in map(_from_wheel, map(Path, sys.argv[1:]))}
    RECORD.write_text(json.dumps({name: found[name] for name in sorted(found, key=release)}, indent=1) + "\n")
