"""The vLLM engine against vLLM's own signatures, without a GPU.

``vllm_signatures.json`` holds the names of the parameters that vLLM's sources declare (read by this file, run as a
script, from the wheel). A stand-in package accepts just those, and the engine must get along with it. Where vLLM is
installed, or its wheel lies in ``$SCAPO_VLLM_WHEEL`` or ``~/.cache/scapo``, the record itself is checked, too.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).resolve().parent / "vllm_signatures.json"
Read = Callable[[str], str]


def signatures(read: Read) -> dict[str, Any]:
    """What the engine relies on, from the sources: path below ``vllm/`` -> text is ``read``."""
    llm = _class(read("entrypoints/llm.py"), "LLM")
    params = read("sampling_params.py")
    outputs = read("outputs.py")
    return {
        "version": _assigned(read("_version.py"), "__version__"),
        "LLM.__init__": _arguments(llm, "__init__"),
        "LLM.chat": _arguments(llm, "chat"),
        "SamplingParams": _fields(params, "SamplingParams"),
        "StructuredOutputsParams": _fields(params, "StructuredOutputsParams"),
        "RequestOutput": _arguments(_class(outputs, "RequestOutput"), "__init__"),
        "CompletionOutput": _fields(outputs, "CompletionOutput"),
        "VLLMServerError": [base.id for base in _class(read("exceptions.py"), "VLLMServerError").bases],  # type: ignore[attr-defined]
        "VLLMClientError": [base.id for base in _class(read("exceptions.py"), "VLLMClientError").bases],  # type: ignore[attr-defined]
        "image_pil": '"image_pil": lambda part' in read("renderers/chat_utils/chat_message.py"),
        "exported": sorted(name for name in ("LLM", "SamplingParams") if f'"{name}"' in read("__init__.py")),
    }


def _class(source: str, name: str) -> ast.ClassDef:
    return next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name)


def _arguments(cls: ast.ClassDef, name: str) -> list[str]:
    made = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name)
    names = [each.arg for each in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)][1:]
    return names + (["**"] if made.args.kwarg else [])


def _fields(source: str, name: str) -> list[str]:
    fields = [node.target.id for node in _class(source, name).body if isinstance(node, ast.AnnAssign)]  # type: ignore[union-attr]
    return [field for field in fields if not field.startswith("_")]


def _assigned(source: str, name: str) -> Any:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return None


def _from_wheel(path: Path) -> Read:
    return lambda name: zipfile.ZipFile(path).read(f"vllm/{name}").decode()


def _sources() -> Read | None:
    if (found := importlib.util.find_spec("vllm")) and found.origin:
        root = Path(found.origin).parent
        return lambda name: (root / name).read_text()
    given = os.environ.get("SCAPO_VLLM_WHEEL")
    wheels = [Path(given)] if given else sorted((Path.home() / ".cache/scapo").glob("vllm-*.whl"))
    return _from_wheel(wheels[-1]) if wheels else None


def test_the_record_is_what_vllm_declares() -> None:
    read = _sources()
    if read is None:
        pytest.skip("vLLM is neither installed nor its wheel in $SCAPO_VLLM_WHEEL or ~/.cache/scapo")
    found, recorded = signatures(read), json.loads(RECORD.read_bytes())
    if found["version"] == recorded["version"]:
        assert found == recorded
    else:  # another release: what the engine uses must be there
        for name in ("LLM.chat", "SamplingParams", "StructuredOutputsParams", "CompletionOutput"):
            assert USED[name] <= set(found[name])
        assert found["image_pil"]


USED = {
    "LLM.__init__": {"model", "revision", "dtype", "seed"},
    "LLM.chat": {"messages", "sampling_params", "use_tqdm"},
    "SamplingParams": {
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "seed",
        "stop",
        "structured_outputs",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
    },
    "StructuredOutputsParams": {"json"},
    "RequestOutput": {"prompt_token_ids", "outputs"},
    "CompletionOutput": {"text", "finish_reason", "token_ids"},
}


def test_everything_used_is_declared() -> None:
    recorded = json.loads(RECORD.read_bytes())
    for name, used in USED.items():
        assert used <= set(recorded[name]) or recorded[name][-1:] == ["**"], name
    assert recorded["exported"] == ["LLM", "SamplingParams"]
    assert recorded["image_pil"]


class _Declared:
    """A stand-in for a vLLM class: takes the declared parameters and nothing else."""

    declared: list[str] = []  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        unknown = set(arguments) - set(self.declared)
        assert not unknown or "**" in self.declared, unknown
        self.__dict__.update(arguments)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package ``vllm`` that echoes prompts and refuses long ones as vLLM does."""
    from scapo_eval.engines import Sampling
    from scapo_eval.engines.base import CHOICES

    recorded = json.loads(RECORD.read_bytes())

    def declared(name: str) -> type:
        return type(name, (_Declared,), {"declared": recorded[name]})

    class VLLMError(Exception):
        pass

    class VLLMClientError(VLLMError):
        pass

    class VLLMServerError(VLLMError):
        pass

    request_output, completion = declared("RequestOutput"), declared("CompletionOutput")
    calls: list[tuple[Any, ...]] = []

    class LLM(_Declared):
        declared = recorded["LLM.__init__"]

        def get_default_sampling_params(self) -> Any:
            neutral = {name: getattr(Sampling(), name) for name in CHOICES}
            return declared("SamplingParams")(**{**neutral, "top_k": 1, "repetition_penalty": 1.05})

        def chat(self, *positional: Any, **named: Any) -> list[Any]:
            assert set(named) <= set(recorded["LLM.chat"])
            (messages,) = positional
            calls.append((messages, named))
            params = named["sampling_params"]
            assert len(params) == len(messages)
            if any(_text(conversation) == "die" for conversation in messages):
                raise VLLMServerError("EngineCore encountered an issue")
            if any(len(_text(conversation)) > 50 for conversation in messages):
                raise VLLMClientError("The decoder prompt is longer than the maximum model length")
            return [
                request_output(
                    prompt_token_ids=[1, 2, 3],
                    outputs=[completion(text=_text(m), finish_reason="stop", token_ids=[7, 8])],
                )
                for m in messages
            ]

    def _text(conversation: list[dict[str, Any]]) -> str:
        content = conversation[-1]["content"]
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

    package = types.ModuleType("vllm")
    package.__version__ = recorded["version"]  # type: ignore[attr-defined]
    package.LLM, package.SamplingParams = LLM, declared("SamplingParams")  # type: ignore[attr-defined]
    params, exceptions = types.ModuleType("vllm.sampling_params"), types.ModuleType("vllm.exceptions")
    params.StructuredOutputsParams = declared("StructuredOutputsParams")  # type: ignore[attr-defined]
    exceptions.VLLMClientError, exceptions.VLLMServerError = VLLMClientError, VLLMServerError  # type: ignore[attr-defined]
    package.calls = calls  # type: ignore[attr-defined]
    for name, module in (("vllm", package), ("vllm.sampling_params", params), ("vllm.exceptions", exceptions)):
        monkeypatch.setitem(sys.modules, name, module)
    return package


def test_conversations_samplings_and_faults(stand_in: Any, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.engines import Completion, Request, Sampling, Turn
    from scapo_eval.engines.vllm_offline import VllmEngine

    pillow.new("RGB", (5, 4)).save(tmp_path / "a.png")
    engine = VllmEngine("some/model", revision="main", extra={"max_model_len": 64, "hf_token": "t0ken"})
    sampling = Sampling(0.5, 0.9, 4, 9, 3, ("x",))
    seen = Request((Turn("system", "be brief"), Turn("user", "look", (str(tmp_path / "a.png"),))), sampling)
    requests = [
        seen,
        Request.of("gone", str(tmp_path / "none.png")),
        Request.of("z" * 60),
        Request((Turn("user", "json"),), schema={"type": "object"}),
    ]
    found: dict[int, Completion] = {}
    engine.run(requests, lambda request, response: found.__setitem__(requests.index(request), response))
    assert found[0] == Completion("look", "stop", 3, 2)
    assert "file not found" in str(found[1].error)
    assert "longer than the maximum" in str(found[2].error)
    assert found[3].text == "json"
    (first, named) = stand_in.calls[0]
    assert named["use_tqdm"] is False
    assert first[0][0] == {"role": "system", "content": "be brief"}
    image, text = first[0][1]["content"]
    assert image["type"] == "image_pil"
    assert image["image_pil"].size == (5, 4)
    assert text == {"type": "text", "text": "look"}
    given = named["sampling_params"][0]
    assert (given.temperature, given.top_p, given.top_k, given.max_tokens, given.seed) == (0.5, 0.9, 4, 9, 3)
    assert (given.min_p, given.repetition_penalty, given.presence_penalty, given.frequency_penalty) == (0, 1, 0, 0)
    assert (given.stop, given.structured_outputs) == (["x"], None)
    assert named["sampling_params"][-1].structured_outputs.json == {"type": "object"}
    assert engine.identity["revision"] == "main"
    assert engine.identity["vllm"] == stand_in.__version__  # the same seed draws other texts on another release
    assert engine.identity["extra"] == {"max_model_len": 64, "hf_token": "***"}
    assert engine.card["sampling"]["top_k"] == 0
    engine.run([Request.of("own", None, Sampling(0.5, top_k=None, repetition_penalty=None))], lambda *_: None)
    own = stand_in.calls[-1][1]["sampling_params"][0]
    assert (own.temperature, own.top_p, own.top_k, own.repetition_penalty) == (0.5, 1, 1, 1.05)
    assert engine.card["sampling"]["repetition_penalty"] == 1.05
    with pytest.raises(ScapoError, match="has died"):
        engine.run([Request.of("die")], lambda request, response: None)
    engine.close()


@pytest.mark.parametrize(
    ("said", "printed", "reason"),
    [
        ("Free memory on device\nis less than desired", "", "Free memory on device is less than desired"),
        (
            "Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "WARNING ImportError: triton\n(EngineCore pid=7) ERROR 11-23 [core.py:1] Traceback (most recent call):\n"
            "(EngineCore pid=7) ERROR 11-23 [core.py:1] safetensors_rust.SafetensorError: header too large\n"
            "(EngineCore pid=7) Process EngineCore:\nsafetensors_rust.SafetensorError: header too large\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "safetensors_rust.SafetensorError: header too large",
        ),
        ("EngineCore encountered an issue", "", "EngineCore encountered an issue"),
    ],
)
def test_the_root_cause_in_one_line(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, said: str, printed: str, reason: str
) -> None:
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.engines.vllm_offline import VllmEngine

    def fail(**arguments: Any) -> None:
        os.write(2, printed.encode())
        raise RuntimeError(said)

    monkeypatch.setattr(stand_in, "LLM", fail)
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)  # vLLM's own level would leave its output where it is
    with pytest.raises(ScapoError) as raised:
        VllmEngine("some/model")
    assert str(raised.value) == f"vLLM cannot load some/model: {reason}"


@pytest.mark.parametrize(
    ("version", "error", "warning"),
    [
        ("0.20.2", "vLLM 0.20.2 is too old: pip install 'vllm>=0.21'", ""),
        ("0.21.0", "", ""),
        ("0.32.1+cpu", "", ""),
        ("0.33.0", "", "vLLM 0.33.0 is newer than 0.32, the newest release with which scapo was run"),
        ("1.0.0", "", "vLLM 1.0.0 is newer than 0.32, the newest release with which scapo was run"),
        ("0.1.dev1+g0a1b2c3", "", ""),
    ],
)
def test_the_release_is_checked_before_the_engine_starts(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    version: str, error: str, warning: str,
) -> None:  # fmt: skip
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.engines import ray_vllm
    from scapo_eval.engines.vllm_offline import VllmEngine

    monkeypatch.setattr(stand_in, "__version__", version)
    monkeypatch.setattr(ray_vllm, "version", lambda name: version)
    monkeypatch.setattr(ray_vllm, "requires", lambda name: [])
    for start in (lambda: VllmEngine("some/model").close(), lambda: ray_vllm.check_pair("2.60.0")):
        caplog.clear()
        if error:
            with pytest.raises(ScapoError) as raised:
                start()
            assert str(raised.value) == error
        else:
            start()
        assert [each.message for each in caplog.records] == ([warning] if warning else [])


class OfNoKnownKind(Exception):
    """Error such as that of safetensors, which is of no built-in kind."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TypeError("got an unexpected keyword argument 'x'"), "got an unexpected keyword argument 'x'"),
        (AttributeError("no attribute 'y'"), "no attribute 'y'"),
        (KeyError("visual.z"), "KeyError: 'visual.z'"),
        (AssertionError(), "AssertionError: "),
        (OfNoKnownKind("header\ntoo large"), "header too large"),
    ],
)
def test_any_error_at_the_start_is_one_line(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.engines.vllm_offline import VllmEngine

    def fail(**arguments: Any) -> None:
        raise error

    monkeypatch.setattr(stand_in, "LLM", fail)
    with pytest.raises(ScapoError) as raised:
        VllmEngine("some/model")
    assert str(raised.value) == f"vLLM cannot load some/model: {reason}"


if __name__ == "__main__":
    RECORD.write_text(json.dumps(signatures(_from_wheel(Path(sys.argv[1]))), indent=1) + "\n")


def test_secret_options_stay_out_of_messages(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.engines.vllm_offline import VllmEngine

    def refuse(**arguments: Any) -> None:
        raise ValueError(f"not valid: {arguments}")

    monkeypatch.setattr(stand_in, "LLM", refuse)
    with pytest.raises(ScapoError, match=r"'hf_token': '\*\*\*'"):
        VllmEngine("some/model", extra={"hf_token": "t0ken"})
