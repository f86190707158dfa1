"""Rollouts of the trainer on a vLLM server (``bash .ci/engines vllm``). Otherwise, they are skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
pytest.importorskip("peft")
import torch
from vllm_bench import FAMILIES, GLOO, GROUP, Bench

from scapo_eval.base.errors import ScapoError
from scapo_train.config import load
from scapo_train.families.policy import Policy
from scapo_train.model import load_policy
from scapo_train.samplers import transfer
from scapo_train.samplers.server import ServerSampler
from scapo_train.samplers.transfer import INCOMPLETE, WeightTransfer
from scapo_train.samplers.vllm import LARGEST_GAP
from scapo_train.trainer import train
from scapo_train.update import Updater

pytestmark = pytest.mark.usefixtures("quiet_loggers")
METADATA = WeightTransfer.metadata


def served(bench: Bench, url: str, lab: Any) -> list[str]:
    """Returns the settings of a run with a server."""
    model, output = f"model.path={bench.config.model.path}", f"run.output={lab.folder / 'run'}"
    return [model, output, "rollout.engine=vllm", f"rollout.server={url}"]


# on a CPU, experts are repacked; the engine that is made for the test undoes this, as a server does not with files
@pytest.mark.parametrize("family", FAMILIES)
def test_a_server_has_the_policys_weights_before_and_after_an_update(
    lab: Any, tiny: ModuleType, gloo: None, serve: Callable[..., str], family: str, table: list[dict[str, Any]]
) -> None:
    gaps: dict[str, float] = {}
    bench = Bench(lab, tiny, family)
    changes = served(bench, serve(bench.config.model.path, *GLOO), lab)
    for way in ("gloo",) if family == "qwen3_vl_moe" else ("files", "gloo"):
        bench.config = load(lab.config, [*changes, f"rollout.transfer={way}"])
        sampler = ServerSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check
        sampler.sync()
        first = sampler.sample(bench.encoded, 1, 4, 1.0)
        before = bench.gap(first)
        assert before < LARGEST_GAP
        assert [one.ids for one in sampler.sample(bench.encoded, 1, 4, 1.0)] == [one.ids for one in first]
        assert len({tuple(one.ids) for one in first}) > 8
        assert not {token for one in first for token in one.ids} & set(bench.policy.never)
        assert bench.same_greedy(sampler) == 1.0
        bench.change()
        assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) > 0.1  # the server has the former weights
        sampler.sync()
        after = bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0))
        assert after < LARGEST_GAP
        assert bench.same_greedy(sampler) == 1.0
        gaps[way] = max(before, after)
    table.append({"family": family, **gaps})


def test_a_transfer_that_fails_ends_with_a_reason_and_another_run_goes_on(
    lab: Any, tiny: ModuleType, gloo: None, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(lab, tiny, "qwen2_5_vl")
    changes = served(bench, serve(bench.config.model.path, *GLOO), lab)
    bench.config = load(lab.config, [*changes, "rollout.transfer=other"])

    def sampler() -> ServerSampler:
        return ServerSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check

    with pytest.raises(ScapoError, match=r"was not started for rollout\.transfer = .other.: start it with --weight-t"):
        sampler()
    bench.config = load(lab.config, [*changes, "rollout.transfer=gloo"])
    first = sampler()
    whole = transfer.weights

    def misnamed(policy: Policy, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name.replace("1.self_attn.k_", "1.self_attn.x_"), weight) for name, weight in whole(policy, dtype))

    monkeypatch.setattr(transfer, "weights", misnamed)
    with pytest.raises(
        ScapoError, match=r"does not receive the policy's weights by gloo: WeightSource metadata\(\) di"
    ):
        first.sync()
    monkeypatch.undo()
    again = sampler()
    monkeypatch.setattr(
        WeightTransfer,
        "metadata",
        lambda self: [SimpleNamespace(**{**vars(each), "name": f"{each.name}.x"}) for each in METADATA(self)],
    )
    monkeypatch.setattr(type(again._sender._engine), "_checked_iter", staticmethod(lambda source, meta: source))
    with pytest.raises(ScapoError, match=r"by gloo: .*the vLLM server at \S+ rejects update_weights \(HTTP 500: "):
        again.sync()
    monkeypatch.undo()
    assert again._server.get("weight_info") == [{"weight_version": INCOMPLETE}]
    bench.change()
    last = sampler()
    assert bench.gap(last.sample(bench.encoded, 2, 4, 1.0)) < LARGEST_GAP
    last._server.post("shutdown_weight_transfer_engine")  # as after a restart
    with pytest.raises(ScapoError, match=r"rejects update_weights \(HTTP 500: .*not initialized"):
        last.sync()


def test_a_server_adds_the_policys_adapters_to_its_own_weights(
    lab: Any, tiny: ModuleType, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(lab, tiny, "qwen2_5_vl", "lora.rank=4")
    url = serve(bench.config.model.path, "--enable-lora", "--max-lora-rank", "8")
    bench.config = load(lab.config, [*served(bench, url, lab), "lora.rank=4"])

    def sampler() -> ServerSampler:
        return ServerSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check

    first = sampler()
    monkeypatch.setattr(transfer, "weights", None)  # an error, if it is called
    for seed in (1, 2):
        bench.learn(seed)
        assert bench.gap(first.sample(bench.encoded, 2, 4, 1.0)) > 0.01  # the server has the former adapters
        first.sync()
        assert bench.gap(first.sample(bench.encoded, 2, 4, 1.0)) < LARGEST_GAP
        assert bench.same_greedy(first) == 1.0
    sampler()
    with pytest.raises(ScapoError, match=r"sampled with weights of version .* another run uses it"):
        first.sample(bench.encoded, 2, 4, 1.0)


def test_the_importance_ratios_of_a_step_of_look_ahead_are_those_of_two_policies(
    lab: Any, tiny: ModuleType, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares the second step's ratios with those of the present policy and of the initial model, loaded anew."""
    bench, limit = Bench(lab, tiny, "qwen2_5_vl"), 1.5
    changes = served(bench, serve(bench.config.model.path), lab)
    backward, seen = Updater._backward, list[tuple[Any, Any]]()

    def recorded(self: Any, micro_batches: Any, *given: Any) -> Any:
        with torch.no_grad():
            seen.extend((micro, self._policy(micro.batch).logprob) for micro in micro_batches)
        return backward(self, micro_batches, *given)

    monkeypatch.setattr(Updater, "_backward", recorded)
    ahead = ["rollout.lookahead=1", f"loss.engine_correction={limit}", "run.steps=2", "optim.lr=0.003"]
    folder = train(load(lab.config, [*changes, *ahead]))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["staleness"] for row in rows] == [0.0, 1.0]
    assert rows[0]["mismatch"] < LARGEST_GAP
    assert rows[0]["importance_ratio"] == pytest.approx(1, abs=LARGEST_GAP)
    older = load_policy(bench.config.model, 1.0, GROUP)
    (micro, newer) = seen[-1]
    with torch.no_grad():
        old = older(micro.batch).logprob
    assert float((old - micro.sampled).abs().max()) < LARGEST_GAP  # sampled by the first policy
    assert float((newer - old).abs().max()) > 0.01
    ratios = (newer - old).exp().clamp(max=limit)
    assert rows[1]["importance_ratio"] == pytest.approx(float(ratios.mean()), abs=1e-3)
    assert 0 < rows[1]["importance_clip_share"] == pytest.approx(float((ratios >= limit).float().mean()), abs=0.02)
