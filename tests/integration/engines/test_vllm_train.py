"""Colocated training with vLLM itself (``bash .ci/engines vllm``, on a CPU, in float32). Otherwise, it is skipped.

There is one engine per family, because a start takes half a minute. The measurements are written to
``$SCAPO_ENGINE_TABLE``, for ``benchmarks/compatibility.py engines``.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
pytest.importorskip("peft")
import torch
from vllm.distributed import cleanup_dist_env_and_memory
from vllm_bench import FAMILIES, GROUP, Bench

from scapo_train.checkpoint.save import export
from scapo_train.config import Lora
from scapo_train.model import load_policy
from scapo_train.samplers.vllm import LARGEST_GAP, VllmSampler, _pixels, _unpacked

pytestmark = pytest.mark.usefixtures("quiet_loggers")


def reload_from(sampler: VllmSampler, folder: Path) -> None:
    """Loads the files of another model with vLLM's own loader."""
    sampler._llm.apply_model(_unpacked)
    sampler._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
    sampler._llm.reset_prefix_cache()
    sampler._llm.llm_engine.reset_encoder_cache()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_has_the_policys_weights_before_and_after_an_update(
    lab: Any, tiny: ModuleType, family: str, table: list[dict[str, Any]]
) -> None:
    bench = Bench(lab, tiny, family)
    sampler = VllmSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check
    try:
        sampler.sync()
        first = sampler.sample(bench.encoded, 1, 4, 1.0)
        before = bench.gap(first)
        assert before < LARGEST_GAP
        assert [one.ids for one in sampler.sample(bench.encoded, 1, 4, 1.0)] == [one.ids for one in first]
        assert len({tuple(one.ids) for one in first}) > 8
        assert not {token for one in first for token in one.ids} & set(bench.policy.never)
        same = bench.same_greedy(sampler)
        assert same == 1.0

        bench.change()
        assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) > 0.1  # vLLM has the former weights
        start = time.perf_counter()
        sampler.sync()
        seconds = time.perf_counter() - start
        after = bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0))
        assert after < LARGEST_GAP
        assert bench.same_greedy(sampler) == 1.0

        adapted = load_policy(bench.config.model, 1.0, GROUP, lora=Lora(rank=4), seed=3)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if ".lora_B." in name:
                    parameter.normal_(std=0.03)
        policy, sampler._policy = sampler._policy, adapted
        sampler.sync()
        drawn = sampler.sample(bench.encoded, 3, 4, 1.0)
        of_adapters = bench.gap(drawn, adapted)
        assert of_adapters < LARGEST_GAP
        assert bench.gap(drawn) > 0.01
        sampler._policy = policy

        served = lab.folder / "export"
        export(bench.policy.vlm, Path(bench.config.model.path), served, torch.float32)
        reload_from(sampler, served)
        of_export = bench.gap(sampler.sample(bench.encoded, 4, 4, 1.0))
        assert of_export < LARGEST_GAP
    finally:
        sampler.close()
        cleanup_dist_env_and_memory()
    gaps = {"before": before, "after": after, "export": of_export, "adapters": of_adapters}
    table.append({"family": family, "greedy_equal": same, **gaps, "sync_seconds": round(seconds, 3)})


def test_without_the_check_the_engine_has_the_policys_weights_too(lab: Any, tiny: ModuleType) -> None:
    bench = Bench(lab, tiny, "qwen2_5_vl", "rollout.check_sync=false")
    sampler = VllmSampler(bench.config, bench.policy, bench.processor, GROUP)
    try:
        sampler.sync()
        (model,) = sampler._llm.apply_model(lambda model: model)
        with _pixels(model) as pixels:
            responses = sampler.sample(bench.encoded, 1, 4, 1.0)
        assert bench.gap(responses) < LARGEST_GAP
        assert pixels  # as the check compares them
    finally:
        sampler.close()
        cleanup_dist_env_and_memory()


@pytest.mark.parametrize("family", FAMILIES[:3])  # with adapters, vLLM's experts fail on a CPU
def test_the_engine_adds_the_policys_adapters_to_its_own_weights(
    lab: Any, tiny: ModuleType, family: str, table: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(lab, tiny, family, "lora.rank=4", "rollout.adapters=request")
    monkeypatch.setattr(VllmSampler, "_send_weights", None)  # an error, if it is called
    sampler = VllmSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check
    try:
        sampler.sync()
        gaps = [bench.gap(sampler.sample(bench.encoded, 1, 4, 1.0))]
        for seed in (1, 2):
            bench.learn(seed)
            assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) > 0.01  # vLLM has the former adapters
            start = time.perf_counter()
            sampler.sync()
            seconds = time.perf_counter() - start
            gaps.append(bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)))
            assert bench.same_greedy(sampler) == 1.0
    finally:
        sampler.close()
        cleanup_dist_env_and_memory()
    assert max(gaps) < LARGEST_GAP
    for row in table:
        if row["family"] == family:
            row |= {"request": max(gaps), "request_seconds": round(seconds, 3)}
