"""The trainer's vLLM sampler with vLLM itself, including its kernels, sleep and caches."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
pytest.importorskip("vllm")

from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train.config import from_table  # noqa: E402
from scapo_train.data import Prompts, Response, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import encode  # noqa: E402
from scapo_train.samplers.vllm import VllmSampler  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's, torch's and transformers' own warnings are theirs


def built(tiny: ModuleType, folder: Path) -> None:
    """Writes a small Qwen2.5-VL, pictures and prompts."""
    tiny.build(folder / "model")
    tiny.draw(folder / "images", 8)
    prompts = [{"image": f"images/{k}.png", "image_id": k, "prompt": "Describe this image"} for k in range(1, 9)]
    (folder / "train.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def test_weights_caches_log_probabilities_and_memory(tiny: ModuleType, tmp_path: Path) -> None:
    built(tiny, tmp_path)
    config = from_table(
        {
            "model": {"path": str(tmp_path / "model")},
            "data": {"train": str(tmp_path / "train.jsonl")},
            "rollout": {"engine": "vllm", "max_new_tokens": 24, "gpu_memory": 0.2},
        }
    )
    process_group = ProcessGroup(0, 1, torch.device("cuda", 0))
    policy = load_policy(config.model, 1.0, process_group)
    processor = load_processor(config.model.path)
    maker = Prompts(read_prompts(config.data.train), processor, 0)
    encoded = encode(policy, maker.take(range(8)), process_group.device)
    maker.close()

    def mismatch(responses: list[Response]) -> float:
        rows = [each.row([one.ids for one in responses[4 * k : 4 * k + 4]]) for k, each in enumerate(encoded)]
        with torch.no_grad():
            own = policy(batch_of(rows, process_group.device)).logprob.float().cpu().numpy()
        given: Any = np.concatenate([one.logprobs for one in responses if one.logprobs is not None])
        return float(np.abs(own - given).mean())

    sampler = VllmSampler(config, policy, processor, process_group)  # with its own check of the weights
    torch.cuda.empty_cache()
    asleep = torch.cuda.mem_get_info()[0]
    sampler.sync()
    responses = sampler.sample(encoded, 1, 4, 1.0)
    assert mismatch(responses) < 0.05
    assert not {token for one in responses for token in one.ids} & set(policy.never)
    assert len({tuple(one.ids) for one in responses}) > 16
    assert [one.ids for one in sampler.sample(encoded, 1, 4, 1.0)] == [one.ids for one in responses]

    sampler.sync()
    with torch.no_grad():
        for name, parameter in policy.vlm.named_parameters():
            if "language_model" in name and parameter.ndim > 1:
                parameter.add_(torch.randn_like(parameter), alpha=float(parameter.std()))
    assert mismatch(sampler.sample(encoded, 2, 4, 1.0)) > 0.5  # vLLM has the former weights
    sampler.sync()
    assert mismatch(sampler.sample(encoded, 2, 4, 1.0)) < 0.05
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > asleep - 2**28
    sampler.close()
