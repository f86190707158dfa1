"""The engines with vLLM itself, offline and as a server (``bash .ci/engines vllm``, on a CPU). Otherwise, they are
skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from scapo_eval.annotate.store import Store
from scapo_eval.base.errors import ScapoError
from scapo_eval.cli import engine_options
from scapo_eval.engines import ONE_TOKEN, Completion, Request, Sampling
from scapo_eval.engines.hf import TransformersEngine
from scapo_eval.engines.openai_http import OpenAIEngine
from scapo_eval.engines.vllm_offline import VllmEngine
from scapo_eval.inference import judge

Run = Callable[..., tuple[int, str, str]]
SMALL = {
    "max_model_len": 400,
    "enforce_eager": True,
    "gpu_memory_utilization": 0.2,
    "limit_mm_per_prompt": {"image": 1, "video": 0},
}
QUESTION = "Is there a dog in the image ?"
SCHEMA = {
    "type": "object",
    "properties": {"there": {"enum": ["yes", "no"]}, "score": {"enum": [1, 2, 3]}},
    "required": ["there", "score"],
    "additionalProperties": False,
}


def completed(engine: Any, requests: list[Request]) -> list[Completion]:
    """Returns the completions in the order of their requests."""
    found: dict[int, Completion] = {}
    engine.run(requests, lambda request, completion: found.__setitem__(id(request), completion))
    return [found[id(request)] for request in requests]


def make_sure(folder: Path) -> None:
    """Gives a model of words a preference for yes and no; which of them depends on picture and question."""
    words = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    file = folder / "model.safetensors"
    weights = load_file(file)
    head = weights["lm_head.weight"]
    head[[words["yes"], words["no"]]] = 8 * torch.stack([head[words["yes"]], -head[words["yes"]]])
    save_file(weights, file, {"format": "pt"})


@pytest.fixture(scope="module")
def place(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns models with word and byte tokens, a model that says yes or no, and pictures."""
    root = tmp_path_factory.mktemp("vllm")
    tiny.build(root / "words")
    tiny.build(root / "bytes", "qwen3_vl", byte_level=True)
    make_sure(tiny.build(root / "sure"))
    tiny.draw(root / "images", 8)
    return root


@pytest.fixture(scope="module")
def words(place: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine(str(place / "words"), dtype="float32", extra=SMALL)
    yield engine
    engine.close()


def pictures(place: Path) -> list[str]:
    return [str(place / "images" / f"{k}.png") for k in range(1, 9)]


def test_greedy_answers_are_those_of_transformers(place: Path, words: VllmEngine) -> None:
    sampling = Sampling(max_tokens=24, stop=("umbrella",))
    texts = ("Describe this image", QUESTION)
    requests = [Request.of(text, path, sampling) for path in pictures(place) for text in texts]
    own = completed(TransformersEngine(str(place / "words"), dtype="float32", device="cpu"), requests)
    found = completed(words, requests)
    assert [each.text for each in found] == [each.text for each in own]
    assert [each.prompt_tokens for each in found] == [each.prompt_tokens for each in own]
    assert {each.finish for each in found} <= {"stop", "length"}
    assert len({each.text for each in found}) > 1


def test_samples_seeds_and_faults(place: Path, words: VllmEngine) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=16, seed=3)
    several = [Request.of("Describe this image", pictures(place)[0], sampling, sample=k) for k in range(6)]
    first = [each.text for each in completed(words, several)]
    assert len(set(first)) > 3
    assert [each.text for each in completed(words, several)] == first
    faulty = [
        Request.of("Describe this image", str(place / "images" / "none.png")),
        Request.of("red " * 500, None, Sampling(max_tokens=4)),
        several[0],
    ]
    missing, long, fine = completed(words, faulty)
    assert "file not found" in str(missing.error)
    assert "maximum" in str(long.error)
    assert fine.text == first[0]


class Kept:
    """One engine for several commands: a start takes half a minute."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        """Stays."""


def test_commands(place: Path, words: VllmEngine, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine_options, "make_engine", lambda *_: Kept(words))
    chosen = ("--engine", "vllm", "--model", place / "words", "--max-tokens", "16", "-q")
    code, _, said = run("describe", place / "images", "-o", tmp_path / "captions.jsonl", *chosen)
    assert code in (0, 4), said
    captions = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert len(captions) == 8
    card = json.loads((tmp_path / "captions.jsonl.run.json").read_text())
    assert words.identity["vllm"] in json.dumps(card)
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        "".join(json.dumps({"id": k, "image": p, "question": QUESTION}) + "\n" for k, p in enumerate(pictures(place)))
    )
    code, _, said = run("answer", questions, "-o", tmp_path / "answers.jsonl", *chosen)
    assert code in (0, 4), said
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 8


def test_json_is_constrained_without_white_space(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = VllmEngine(str(place / "bytes"), dtype="float32", extra=SMALL)
    try:
        requests = [Request.of(QUESTION, path, Sampling(max_tokens=60)) for path in pictures(place)]
        requests = [Request(each.turns, each.sampling, SCHEMA) for each in requests]
        for each in completed(engine, requests):
            assert each.error is None
            assert set(json.loads(each.text)) == {"there", "score"}
            assert not set(each.text) & set(" \n\t")
        monkeypatch.setattr(engine, "close", lambda: None)
        monkeypatch.setattr(engine_options, "make_engine", lambda *_: engine)
        code, _, said = run(
            "annotate", "coarse", place / "images", "-o", tmp_path / "run", "--vocabulary", "coco80",
            "--engine", "vllm", "--model", place / "bytes", "-q",
        )  # fmt: skip
        assert code in (0, 4), said
        assert (tmp_path / "run").is_dir()
    finally:
        monkeypatch.undo()
        engine.close()


def test_a_judge_of_yes_and_no_by_word_and_by_probability(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Verdicts and P(yes) of vLLM are those of transformers, in ``annotate coarse`` and ``judge claims``."""
    labels = {label: {"aliases": [label]} for label in ("dog", "cat", "bus", "kite")}
    (tmp_path / "four.yaml").write_text(json.dumps({"name": "four", "labels": labels}))
    told = [{"image_id": k, "caption": "Two dogs and a red cat on a bus."} for k in range(1, 9)]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    (tmp_path / "short.txt").write_text("Is there a {object} in the image ? Answer yes or no .")
    engines = {
        "vllm": VllmEngine(str(place / "sure"), dtype="float32", extra=SMALL),
        "transformers": TransformersEngine(str(place / "sure"), dtype="float32", device="cpu"),
    }
    monkeypatch.setattr(judge, "TRIES", 1)  # further tries draw, and each engine draws otherwise
    answers, matrices = [], []
    for name, engine in engines.items():
        monkeypatch.setattr(engine_options, "make_engine", lambda *_, engine=engine: Kept(engine))
        chosen = ("--engine", name, "--model", place / "sure", "-q")
        code, _, said = run(
            "judge", "claims", tmp_path / "captions.jsonl", "--images-root", place / "images", "--max-tokens", "8",
            "-o", tmp_path / f"{name}.jsonl", *chosen,
        )  # fmt: skip
        assert code in (0, 4), said
        answers.append([json.loads(line)["claims"] for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()])
        folder = tmp_path / f"run-{name}"
        code, _, said = run(
            "annotate", "coarse", place / "images", "-o", folder, "--vocabulary", tmp_path / "four.yaml",
            "--prompt", tmp_path / "short.txt", "--probability", *chosen,
        )  # fmt: skip
        assert code in (0, 4), said
        matrices.append(Store.open(folder).probabilities)
        engine.close()
    assert answers[0] == answers[1]
    assert {each["answer"] for claims in answers[0] for each in claims} >= {"yes", "no"}
    assert np.allclose(*matrices, atol=1e-4, rtol=0, equal_nan=True)
    assert np.isfinite(matrices[0]).mean() > 0.5


def test_damaged_weights_are_one_line(place: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(place / "words", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ScapoError) as raised:
        VllmEngine(str(broken), dtype="float32", extra=SMALL)
    said = str(raised.value)
    assert said.startswith(f"vLLM cannot load {broken}: ")
    assert "safetensor" in said.lower()
    assert "\n" not in said


@pytest.fixture
def server(place: Path, tmp_path: Path) -> Iterator[Callable[[], tuple[str, subprocess.Popen[bytes]]]]:
    """Starts vLLM's OpenAI server, always on the same port, and returns its address immediately, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(place / "words")]
    command += ["--served-model-name", "words", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "400", "--enforce-eager", "--gpu-memory-utilization", "0.2"]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[str, subprocess.Popen[bytes]]:
        with open(tmp_path / f"server-{len(running)}.log", "wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return f"http://127.0.0.1:{port}/v1", running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_server_that_is_killed_and_comes_back_costs_no_request(place: Path, words: VllmEngine, server: Any) -> None:
    url, process = server()
    requests = [
        Request.of("Describe this image", path, Sampling(max_tokens=64), sample=k)
        for k in range(20) for path in pictures(place)
    ]  # fmt: skip
    warnings: list[str] = []
    never = {str(token): -100 for token in words._never}  # random weights say tokens of pictures; the server allows it
    engine = OpenAIEngine(  # the server is not there yet
        "words", url, concurrency=4, wait_server=900.0, extra={"logit_bias": never}, warn=warnings.append
    )
    found: dict[int, Completion] = {}

    def kill() -> None:
        while len(found) < 40:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        server()

    killer = threading.Thread(target=kill)
    killer.start()
    engine.run(requests, lambda request, completion: found.__setitem__(id(request), completion))
    killer.join()
    assert [completion.error for completion in found.values() if completion.error] == []
    assert len(found) == len(requests)
    expected = {each.turns: done.text for each, done in zip(requests[:8], completed(words, requests[:8]), strict=True)}
    assert [found[id(each)].text for each in requests] == [expected[each.turns] for each in requests]
    assert sum("the server does not respond" in each for each in warnings) == 2  # at the start, and when it was killed
    assert engine.card["server_version"] == f"vLLM {words.identity['vllm']} with {place / 'words'}"
    choices = ("yes", "no", "dog", "cat", "bus", "red", "two", "white")
    asked = [Request(each.turns, ONE_TOKEN, choices=choices) for each in requests[:8]]
    own = TransformersEngine(str(place / "words"), dtype="float32", device="cpu")
    masses = np.array([[each.masses for each in completed(one, asked)] for one in (engine, words, own)])
    assert masses.max() > 0.01
    assert np.abs(masses - masses[2]).max() < 1e-4
    with urllib.request.urlopen(f"{url}/models") as reply:
        assert json.loads(reply.read())["data"][0]["id"] == "words"
