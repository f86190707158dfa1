"""The Ray engine against Ray's own declarations, without Ray and without a GPU.

``ray_llm_signatures.json`` holds what Ray's sources declare (read by this file, run as a script, from the wheel). A
stand-in package accepts just that, and the engine must get along with it. Where Ray is installed, or its wheel lies in
``$SCAPO_RAY_WHEEL``, the record itself is checked, too.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.base.errors import MissingExtra, ScapoError
from scapo_eval.engines import Completion, Request, Sampling
from scapo_eval.engines.base import ONE_TOKEN, YES_NO

RECORD = Path(__file__).resolve().parent / "ray_llm_signatures.json"
Read = Callable[[str], str]
_BATCH = "llm/_internal/batch"


def signatures(read: Read) -> dict[str, Any]:
    """What the engine relies on, from the sources: path below ``ray/`` -> text is ``read``."""
    base, vllm = read(f"{_BATCH}/processor/base.py"), read(f"{_BATCH}/processor/vllm_engine_proc.py")
    stage, wrapping = read(f"{_BATCH}/stages/vllm_engine_stage.py"), read(f"{_BATCH}/stages/base.py")
    stages = read(f"{_BATCH}/stages/configs.py")
    return {
        "version": next(
            node.value.value  # type: ignore[attr-defined]
            for node in ast.walk(ast.parse(read("_version.py")))
            if isinstance(node, ast.Assign) and node.targets[0].id == "version"  # type: ignore[attr-defined]
        ),
        "build_processor": _arguments(_function(read("data/llm.py"), "build_processor")),
        "vLLMEngineProcessorConfig": [
            *_fields(_class(base, "ProcessorConfig")),
            *_fields(_class(base, "OfflineProcessorConfig")),
            *_fields(_class(vllm, "vLLMEngineProcessorConfig")),
        ],
        "PrepareMultimodalStageConfig": [
            *_fields(_class(stages, "_StageConfigBase")),
            *_fields(_class(stages, "PrepareMultimodalStageConfig")),
        ],
        "vLLMOutputData": _fields(_class(stage, "vLLMOutputData")),
        "errors_bypass_postprocess": 'if data.get("__inference_error__", "") != "":\n            return data'
        in wrapping,
        "from_items": _arguments(_function(read("data/read_api.py"), "from_items")),
        "iter_rows": _arguments(_function(read("data/dataset.py"), "iter_rows")),
        "RayError": "class RayError(Exception)" in read("exceptions.py"),
    }


def _class(source: str, name: str) -> ast.ClassDef:
    return next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name)


def _function(source: str, name: str) -> ast.FunctionDef:
    return next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name)


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.args, *function.args.kwonlyargs) if each.arg != "self"]


def _fields(cls: ast.ClassDef) -> list[str]:
    return [node.target.id for node in cls.body if isinstance(node, ast.AnnAssign)]  # type: ignore[union-attr]


def _sources() -> Read | None:
    if (found := importlib.util.find_spec("ray")) and found.origin:
        root = Path(found.origin).parent
        return lambda name: (root / name).read_text()
    if given := os.environ.get("SCAPO_RAY_WHEEL"):
        return lambda name: zipfile.ZipFile(given).read(f"ray/{name}").decode()
    return None


def test_the_record_is_what_ray_declares() -> None:
    read = _sources()
    if read is None:
        pytest.skip("Ray is neither installed nor its wheel in $SCAPO_RAY_WHEEL")
    found, recorded = signatures(read), json.loads(RECORD.read_bytes())
    if found["version"] == recorded["version"]:
        assert found == recorded
    else:  # another release: what the engine uses must be there
        for name, used in USED.items():
            assert used <= set(found[name]), name
        assert (found["errors_bypass_postprocess"], found["RayError"]) == (True, True)


USED = {
    "build_processor": {"config", "preprocess", "postprocess"},
    "vLLMEngineProcessorConfig": {
        "model_source",
        "engine_kwargs",
        "concurrency",
        "should_continue_on_error",
        "prepare_multimodal_stage",
    },
    "PrepareMultimodalStageConfig": {"enabled", "chat_template_content_format"},
    "vLLMOutputData": {"generated_text", "num_input_tokens", "num_generated_tokens", "logprobs"},
    "from_items": {"items"},
    "iter_rows": set(),
}


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package ``ray`` that reverses prompts, gives long ones an error in their row, and dies of one."""
    recorded = json.loads(RECORD.read_bytes())
    modules = {name: types.ModuleType(name) for name in ("ray", "ray.data", "ray.data.llm", "ray.exceptions")}
    package: Any = modules["ray"]
    package.__version__, package.calls = recorded["version"], []

    class RayError(Exception):
        pass

    class Dataset:
        def __init__(self, rows: list[dict[str, Any]]) -> None:
            self.rows = rows

        def iter_rows(self) -> Iterator[dict[str, Any]]:
            yield from reversed(self.rows)  # blocks come in any order
            yield from self.rows[:1]  # and again, after a retry

    def config(**given: Any) -> dict[str, Any]:
        assert set(given) <= set(recorded["vLLMEngineProcessorConfig"])
        assert set(given["prepare_multimodal_stage"]) <= set(recorded["PrepareMultimodalStageConfig"])
        assert given["should_continue_on_error"]
        return given

    def build(config: dict[str, Any], **given: Any) -> Callable[[Dataset], Dataset]:
        assert set(given) <= set(recorded["build_processor"])

        def row(before: dict[str, Any]) -> dict[str, Any]:
            data = {**before, **given["preprocess"](before)}
            package.calls.append((config, data))
            content = data["messages"][-1]["content"]
            sees = config["prepare_multimodal_stage"]["enabled"]
            assert isinstance(content, list if sees else str)
            text = content[-1]["text"] if sees else content
            if text == "die":
                raise RayError("The actor died: ray::MapWorker()\n  File 'x'\nValueError: no such model\nand more")
            if len(text) > 50:
                return {**data, "__inference_error__": "ValueError: prompt too long"}
            data |= {"generated_text": text[::-1], "num_input_tokens": 5, "num_generated_tokens": len(text)}
            if kept := data["sampling_params"].get("logprobs"):
                likely = enumerate(((0.6, 1, " Yes"), (0.2, 2, "no"), (0.1, kept, "NO"), (0.05, kept + 1, "no")))
                first = {
                    n: {"logprob": math.log(p), "rank": rank, "decoded_token": word} for n, (p, rank, word) in likely
                }
                data["logprobs"] = [first]
            return {**given["postprocess"](data), "__inference_error__": ""}

        return lambda data: Dataset([row(each) for each in data.rows if each["request"].count("lost") == 0])

    package.data = modules["ray.data"]
    package.exceptions = modules["ray.exceptions"]
    package.data.llm, package.data.from_items = modules["ray.data.llm"], Dataset
    package.data.llm.vLLMEngineProcessorConfig, package.data.llm.build_processor = config, build
    package.exceptions.RayError = RayError
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return package  # type: ignore[no-any-return]


def completions(requests: list[Request], **settings: Any) -> list[Completion]:
    from scapo_eval.engines.ray_vllm import RayVllmEngine

    engine = RayVllmEngine("some/model", replicas=4, extra={"max_model_len": 99}, **settings)
    found: dict[int, Completion] = {}
    engine.run(requests, lambda request, completion: found.setdefault(requests.index(request), completion))
    assert sorted(found) == list(range(len(requests)))
    return [found[k] for k in range(len(requests))]


def test_texts_faults_and_samplings(ray: Any) -> None:
    sampling = Sampling(max_tokens=4, seed=7, stop=("x",))
    asked = [Request.of(text, sampling=sampling) for text in ("abc", "abcd", "e" * 60, "lost")]
    asked.append(Request(asked[0].turns, sampling, schema={"type": "object"}))
    found = completions(asked)
    assert found[0] == Completion("cba", "stop", 5, 3)
    assert found[1].finish == "length"
    assert (found[2].text, found[2].error) == ("", "ValueError: prompt too long")
    assert found[3].error == "Ray returned nothing for it"
    config, row = ray.calls[0]
    assert config["concurrency"] == (4, 4)
    compact = {"backend": "xgrammar", "disable_any_whitespace": True}
    assert config["engine_kwargs"] == {
        "dtype": "auto", "seed": 0, "structured_outputs_config": compact, "max_model_len": 99,
    }  # fmt: skip
    params = row["sampling_params"]
    assert (params["max_tokens"], params["seed"], params["stop"], params["temperature"]) == (4, 7, ["x"], 0.0)
    assert json.loads(ray.calls[-1][1]["sampling_params"]["structured_outputs"]["json"]) == {"type": "object"}


@pytest.mark.usefixtures("ray")
def test_probabilities_of_choices() -> None:
    (found,) = completions([Request(Request.of("a?").turns, ONE_TOKEN, choices=YES_NO)])
    assert found.masses == pytest.approx((0.6, 0.3))  # the last entry is not among the most probable tokens
    assert completions([Request.of("a?")])[0].masses is None


def test_images_are_read_where_requests_are_prepared(ray: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    found = completions([Request.of("what?", str(tmp_path / name)) for name in ("a.png", "gone.png")])
    assert found[0].text == "?tahw"
    assert "gone.png" in str(found[1].error)
    (parts,) = [turn["content"] for turn in ray.calls[0][1]["messages"]]
    assert [part["type"] for part in parts] == ["image_url", "text"]
    assert parts[0]["image_url"]["url"].startswith("data:image/png;base64,")


def test_what_ends_a_run(ray: Any) -> None:
    with pytest.raises(ScapoError, match=r"Ray failed \(ValueError: no such model\); run the same"):
        completions([Request.of("die")])
    with pytest.raises(ScapoError, match="sets every sampling setting itself"):
        completions([Request.of("a", sampling=Sampling(top_p=None))])

    def without_torch(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    ray.data.llm.build_processor = without_torch
    with pytest.raises(MissingExtra, match=r"engine ray \(No module named 'torch'\) needs the extra 'ray-llm'"):
        completions([Request.of("a")])


if __name__ == "__main__":
    source = _sources()
    assert source is not None, "SCAPO_RAY_WHEEL names the wheel"
    RECORD.write_text(json.dumps(signatures(source), indent=1) + "\n")


@pytest.mark.usefixtures("ray")
def test_secret_options_stay_out_of_the_run_card() -> None:
    from scapo_eval.engines.ray_vllm import RayVllmEngine

    engine = RayVllmEngine("some/model", extra={"hf_token": "t0ken", "max_model_len": 9})
    assert engine.identity["extra"] == {"hf_token": "***", "max_model_len": 9}
