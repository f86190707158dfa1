"""The engine ``ray`` with vLLM itself, on a CPU (``bash .ci/engines ray_vllm``). Otherwise, the test is skipped."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # a busy machine
ray = pytest.importorskip("ray", reason="ray is not installed: bash .ci/engines ray_vllm")
pytest.importorskip("ray.data.llm", reason="not all that ray.data.llm wants is installed", exc_type=ImportError)
pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines ray_vllm")

import numpy as np  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoConfig  # noqa: E402

from scapo_eval.engines import ONE_TOKEN, Completion, Request, Sampling  # noqa: E402
from scapo_eval.engines.hf import TransformersEngine, image_tokens  # noqa: E402
from scapo_eval.engines.ray_vllm import RayVllmEngine  # noqa: E402

SMALL = {
    "max_model_len": 400,
    "enforce_eager": True,
    "gpu_memory_utilization": 0.2,
    "limit_mm_per_prompt": {"image": 1, "video": 0},
}
CHOICES = ("yes", "no", "dog", "cat", "bus", "red", "two", "white")


def without_image_tokens(folder: Path) -> Path:
    """Makes tokens of images improbable, because Ray's requests allow them and transformers' do not."""
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][list(image_tokens(AutoConfig.from_pretrained(folder)))] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_texts_and_probabilities_are_those_of_transformers(tiny: ModuleType, tmp_path: Path) -> None:
    model = str(without_image_tokens(tiny.build(tmp_path / "words")))
    tiny.draw(tmp_path / "images", 4)
    images = [str(tmp_path / "images" / f"{k}.png") for k in (1, 2, 3, 4)]
    asked = [Request.of("Describe this image", path, Sampling(max_tokens=8)) for path in images]
    asked += [Request(each.turns, ONE_TOKEN, choices=CHOICES) for each in asked]
    missing = Request.of("Describe this image", str(tmp_path / "none.png"))
    found: dict[int, Completion] = {}
    own: dict[int, Completion] = {}
    ray.init("local", num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False)  # it believes in a GPU
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        engine = RayVllmEngine(model, dtype="float32", extra=SMALL)
        engine.run([*asked, missing], lambda request, completion: found.__setitem__(id(request), completion))
    finally:
        ray.shutdown()
    TransformersEngine(model, dtype="float32", device="cpu").run(
        asked, lambda request, completion: own.__setitem__(id(request), completion)
    )
    assert "none.png" in str(found.pop(id(missing)).error)
    assert [found[id(each)].text for each in asked] == [own[id(each)].text for each in asked]
    assert [found[id(each)].prompt_tokens for each in asked] == [own[id(each)].prompt_tokens for each in asked]
    masses = np.array([[each[id(request)].masses for request in asked[4:]] for each in (found, own)])
    assert masses.max() > 0.01
    assert np.abs(masses[0] - masses[1]).max() < 1e-4
