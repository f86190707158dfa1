"""Colocated training with vLLM itself (``bash .ci/engines vllm``, on a CPU, in float32). Otherwise, it is skipped.

There is one engine per family, because a start takes half a minute. The measurements are written to
``$SCAPO_ENGINE_TABLE``, for ``benchmarks/compatibility.py engines``.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
pytest.importorskip("peft")
import torch
import transformers
import vllm
from safetensors.torch import load_file, save_file
from vllm.distributed import cleanup_dist_env_and_memory

from scapo_eval.base.errors import ScapoError
from scapo_train.checkpoint.save import export
from scapo_train.config import Config, Lora, load
from scapo_train.data import Prompts, Response, read_prompts
from scapo_train.distributed import ProcessGroup
from scapo_train.families.policy import EncodedPrompt, Policy
from scapo_train.model import load_policy, processor_of
from scapo_train.rollout import PolicySampler, encode
from scapo_train.samplers import transfer
from scapo_train.samplers.server import UPDATING, ServerSampler
from scapo_train.samplers.transfer import INCOMPLETE, WeightTransfer
from scapo_train.samplers.vllm import LARGEST_GAP, VllmSampler, _pixels, _unpacked
from scapo_train.trainer import train
from scapo_train.update import Updater

pytestmark = pytest.mark.usefixtures("quiet_loggers")
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
SETTINGS = ("rollout.engine=vllm", "rollout.sleep=false", "rollout.gpu_memory=0.2")
GROUP = ProcessGroup(0, 1, torch.device("cpu"))
PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
RANKS = PROGRAMS / "vllm_real_ranks.py"
METADATA = WeightTransfer.metadata
GLOO = ("--weight-transfer-config", json.dumps({"backend": "gloo"}))


def with_calm_attention(folder: Path) -> None:
    """Gives Qwen3's attention the usual scale.

    The tiny model's norms are of three, which multiplies its attention logits by nine: rounding then becomes up to
    1e-4 in log-probabilities (of the trainer against itself in float64, 2e-5).
    """
    file = folder / "model.safetensors"
    weights = load_file(file)
    calm = {name: weight / 3 if name.endswith(("q_norm.weight", "k_norm.weight")) else weight
            for name, weight in weights.items()}  # fmt: skip
    save_file(calm, file, {"format": "pt"})


class Bench:
    """Policy of a family, and prompts."""

    def __init__(self, lab: Any, tiny: ModuleType, family: str, *changes: str) -> None:
        path = tiny.build(lab.folder / family, family)
        with_calm_attention(path)
        self.config: Config = load(lab.config, [f"model.path={path}", *SETTINGS, *changes])
        self.policy: Policy = load_policy(self.config.model, 1.0, GROUP, lora=self.config.lora, seed=3)
        self.processor = processor_of(self.config.model)
        self.encoded = self.prepared(self.policy)

    def prepared(self, policy: Policy) -> list[EncodedPrompt]:
        maker = Prompts(read_prompts(self.config.data.train, self.config.data.images), self.processor, 0)
        encoded = encode(policy, maker.take(range(4)), GROUP.device)
        maker.close()
        return encoded

    @torch.no_grad()
    def gap(self, responses: Sequence[Response], policy: Policy | None = None) -> float:
        """Returns the largest difference of log-probabilities, in nats."""
        policy, each = policy or self.policy, len(responses) // len(self.encoded)
        rows = [
            prompt.row([one.ids for one in responses[each * k : each * k + each]])
            for k, prompt in enumerate(self.encoded)
        ]
        own = policy(policy.batch(rows, GROUP.device)).logprob.numpy()
        given = np.concatenate([one.logprobs for one in responses if one.logprobs is not None])
        return float(np.abs(own - given).max())

    def same_greedy(self, sampler: VllmSampler | ServerSampler) -> float:
        """Returns the share of prompts whose greedy response equals the trainer's."""
        own = PolicySampler(self.policy, GROUP.device, self.config.rollout.max_new_tokens, 4)
        pairs = zip(own.sample(self.encoded, 0, 1, 0.0), sampler.sample(self.encoded, 0, 1, 0.0), strict=True)
        return float(np.mean([one.ids == other.ids for one, other in pairs]))

    @torch.no_grad()
    def learn(self, seed: int) -> None:
        """Gives the adapters new values."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.policy.named_parameters():
            if parameter.requires_grad:
                scale = 0.03 if ".lora_B." in name else 0.1
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))

    @torch.no_grad()
    def change(self) -> None:
        """Changes every weight of the language model."""
        generator = torch.Generator().manual_seed(1)
        for parameter in self.policy.language_model.parameters():
            parameter += 0.5 * parameter.std() * torch.randn(parameter.shape, generator=generator)


def reload_from(sampler: VllmSampler, folder: Path) -> None:
    """Loads the files of another model with vLLM's own loader."""
    sampler._llm.apply_model(_unpacked)
    sampler._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
    sampler._llm.reset_prefix_cache()
    sampler._llm.llm_engine.reset_encoder_cache()


def remove_shared_memory() -> None:
    """Removes the memory that an engine of two processes has left behind, because vLLM refuses a name in use."""
    for left in Path("/dev/shm").glob("-tp:*-cpushm_*"):
        left.unlink()


@pytest.fixture
def serve(lab: Any) -> Iterator[Callable[..., str]]:
    """Starts a vLLM server for the trainer, as ``scapo_train.samplers.connection.START`` describes, with further
    options, and returns its address.
    """
    running: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1", UPDATING: "1"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # otherwise, each process of a server needs its own NUMA node

    def start(model: str, *options: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, *options]
        command += ["--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--dtype", "float32"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--gpu-memory-utilization", "0.1"]
        with open(lab.folder / "server.log", "wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True))
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers an engine for weight transfer over gloo in this process, and as a plugin of vLLM in those it starts."""
    record = tmp_path / "vllm_gloo-0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-gloo\nVersion: 0\n")
    (record / "entry_points.txt").write_text("[vllm.general_plugins]\ngloo = vllm_gloo:register\n")
    (tmp_path / "vllm_gloo.py").write_bytes((PROGRAMS / "vllm_gloo.py").read_bytes())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("vllm_gloo").register()


@pytest.fixture(scope="module")
def table() -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of the table."""
    rows: list[dict[str, Any]] = []
    yield rows
    if path := os.environ.get("SCAPO_ENGINE_TABLE"):
        versions = {"vllm": vllm.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        measured = {"day": datetime.now(timezone.utc).date().isoformat(), **versions, "families": rows}
        Path(path).write_text(json.dumps(measured, indent=1) + "\n")


@pytest.mark.xdist_group("table")
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


@pytest.mark.xdist_group("table")
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


def check_two_ranks(lab: Any, *changes: str) -> None:
    """Checks that the engines of two ranks have the policy's weights before and after an update."""
    out = lab.folder / "out.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, str(RANKS), str(out), str(lab.config), *changes], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in json.loads(out.read_text()):
        before, stale, after = rank["gaps"]
        assert before < LARGEST_GAP
        assert stale > 0.1
        assert after < LARGEST_GAP


@pytest.mark.parametrize("size", [1, 2], ids=["an-engine-each", "tensor-parallel"])
def test_two_ranks(lab: Any, size: int) -> None:
    remove_shared_memory()
    check_two_ranks(lab, f"rollout.tensor_parallel={size}")


@pytest.mark.parametrize("way", ["colocated", "look-ahead", "transfer"])
def test_a_run_that_is_killed_goes_on_to_the_same_end(
    lab: Any, gloo: None, serve: Callable[..., str], way: str
) -> None:
    """Kills the complete command with SIGKILL (rollouts, update, synchronization, checkpoints, export), and runs it
    again. A transfer is killed when the server has received a part of the weights.
    """
    engine = list(SETTINGS)
    if way == "look-ahead":
        url = serve(load(lab.config).model.path)
        engine = ["rollout.engine=vllm", f"rollout.server={url}", "rollout.lookahead=1", "loss.engine_correction=2"]
    if way == "transfer":
        url = serve(load(lab.config).model.path, *GLOO)
        engine = ["rollout.engine=vllm", f"rollout.server={url}", "rollout.transfer=gloo"]
    changes = [*engine, "optim.lr=0.01", "run.steps=3"]

    def command(name: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "scapo_train", *lab.run(name, *changes), *more]

    whole = subprocess.run(command("whole"), capture_output=True, text=True, timeout=1200)
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert "log-probabilities as the trainer's" in whole.stderr
    environment = {**os.environ, "GLOO_KILL": "4"}  # of the check, of the start, and of the first two steps
    process = subprocess.Popen(command("killed"), stderr=subprocess.DEVNULL, start_new_session=True, env=environment)
    if way != "transfer":
        while not (lab.folder / "killed/checkpoints/step-000001/state.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(600) == -signal.SIGKILL
    again = subprocess.run(command("killed", "--resume", "auto"), capture_output=True, text=True, timeout=1200)
    assert again.returncode == 0, again.stderr[-3000:]
    one, other = (
        [json.loads(line) for line in (lab.folder / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    assert [row["step"] for row in one] == [row["step"] for row in other] == [1, 2, 3]
    for row, same in zip(one, other, strict=True):
        assert row["mismatch"] is None if row["staleness"] else row["mismatch"] < LARGEST_GAP
        assert {k: v for k, v in row.items() if "second" not in k} == {
            k: v for k, v in same.items() if "second" not in k
        }


def served(bench: Bench, url: str, lab: Any) -> list[str]:
    """Returns the settings of a run with a server."""
    model, output = f"model.path={bench.config.model.path}", f"run.output={lab.folder / 'run'}"
    return [model, output, "rollout.engine=vllm", f"rollout.server={url}"]


# on a CPU, experts are repacked; the engine that is made for the test undoes this, as a server does not with files
@pytest.mark.parametrize(
    ("family", "way"), [*((family, "files") for family in FAMILIES[:3]), *((family, "gloo") for family in FAMILIES)]
)
def test_a_server_has_the_policys_weights_before_and_after_an_update(
    lab: Any, tiny: ModuleType, gloo: None, serve: Callable[..., str], family: str, way: str
) -> None:
    bench = Bench(lab, tiny, family)
    changes = served(bench, serve(bench.config.model.path, *(GLOO if way == "gloo" else ())), lab)
    bench.config = load(lab.config, [*changes, f"rollout.transfer={way}"])
    sampler = ServerSampler(bench.config, bench.policy, bench.processor, GROUP)  # with its own check
    sampler.sync()
    first = sampler.sample(bench.encoded, 1, 4, 1.0)
    assert bench.gap(first) < LARGEST_GAP
    assert [one.ids for one in sampler.sample(bench.encoded, 1, 4, 1.0)] == [one.ids for one in first]
    assert len({tuple(one.ids) for one in first}) > 8
    assert not {token for one in first for token in one.ids} & set(bench.policy.never)
    assert bench.same_greedy(sampler) == 1.0
    bench.change()
    assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) > 0.1  # the server has the former weights
    sampler.sync()
    assert bench.gap(sampler.sample(bench.encoded, 2, 4, 1.0)) < LARGEST_GAP
    assert bench.same_greedy(sampler) == 1.0


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


def test_ranks_that_shard_the_policy_send_it_to_a_server_of_two_processes(
    lab: Any, gloo: None, serve: Callable[..., str]
) -> None:
    remove_shared_memory()
    url = serve(load(lab.config).model.path, *GLOO, "--tensor-parallel-size", "2")
    check_two_ranks(lab, f"rollout.server={url}", "rollout.transfer=gloo", f"run.output={lab.folder / 'run'}")


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
