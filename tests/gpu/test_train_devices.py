"""Log-probabilities, gradients and greedy answers of small models on a GPU, compared with those on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train.config import Model  # noqa: E402
from scapo_train.data import Prompts, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup, join_process_group  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
]
GROUP, LONGEST = 3, 12


def computed(folder: Path, device: str, dtype: str, responses: list[list[int]] | None = None) -> dict[str, Any]:
    """Returns greedy answers, log-probabilities of responses (by default, of samples), and their gradients."""
    process_group = ProcessGroup(0, 1, torch.device(device))
    with join_process_group():  # its settings of float32
        pass
    policy = load_policy(Model(path=str(folder / "model"), dtype=dtype), 1.0, process_group)
    maker = Prompts(read_prompts(str(folder / "train.jsonl")), load_processor(str(folder / "model")), 0)
    encoded = encode(policy, maker.take(range(4)), process_group.device)
    maker.close()
    sampler = PolicySampler(policy, process_group.device, LONGEST, 4)
    greedy = [each.ids for each in sampler.sample(encoded, 0, 1, 0.0)]
    ids = responses or [each.ids for each in sampler.sample(encoded, 3, GROUP, 1.0)]
    policy.train()
    rows = [each.row(ids[GROUP * k : GROUP * (k + 1)]) for k, each in enumerate(encoded)]
    logprobs, entropies = [], []
    for batch in [rows] if policy.packs else [[row] for row in rows]:
        statistics = policy(policy.batch(batch, process_group.device))
        (statistics.logprob.sum() + 0.1 * statistics.logprob.square().sum()).backward()
        logprobs.append(statistics.logprob.detach().float().cpu())
        entropies.append(statistics.entropy.detach().float().cpu())
    return {
        "greedy": greedy,
        "responses": ids,
        "logprob": torch.cat(logprobs),
        "entropy": torch.cat(entropies),
        "gradients": {name: each.grad.cpu() for name, each in policy.named_parameters() if each.grad is not None},
    }


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen2_vl", "qwen3_vl_moe", "llava"])
def test_a_gpu_computes_what_a_cpu_computes(tiny: ModuleType, tmp_path: Path, family: str) -> None:
    tiny.build(tmp_path / "model", family)
    tiny.draw(tmp_path / "images", 4)
    prompts = [{"image": f"images/{k}.png", "image_id": k, "prompt": "Describe this image"} for k in range(1, 5)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    wanted = computed(tmp_path, "cpu", "float32")
    found = computed(tmp_path, "cuda", "float32", wanted["responses"])
    assert found["greedy"] == wanted["greedy"]
    gap = float((found["logprob"] - wanted["logprob"]).abs().max())
    print(f"{family}: float32 log-probabilities at most {gap:.1e} nats apart")
    assert gap < 1e-4
    torch.testing.assert_close(found["entropy"], wanted["entropy"], rtol=0, atol=1e-4)
    assert found["gradients"].keys() == wanted["gradients"].keys()
    for name, gradient in wanted["gradients"].items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(found["gradients"][name], gradient, rtol=1e-3, atol=1e-4 * scale)
    of_cpu, of_gpu = (
        float((computed(tmp_path, device, "bfloat16", wanted["responses"])["logprob"] - wanted["logprob"]).abs().mean())
        for device in ("cpu", "cuda")
    )
    print(f"{family}: bfloat16 is on average {of_cpu:.1e} nats from float32 on a CPU, and {of_gpu:.1e} on the GPU")
    assert of_gpu < 1.5 * of_cpu + 0.01
