"""Rollouts on a vLLM server and look-ahead, with a stand-in that contains a second copy of the model
(``tests/stand_in_vllm_server.py``).
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("aiohttp")

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError  # noqa: E402
from scapo_eval.engines.hf import image_tokens, load_processor  # noqa: E402
from scapo_train import trainer, update  # noqa: E402
from scapo_train.checkpoint.save import export  # noqa: E402
from scapo_train.config import Config, load  # noqa: E402
from scapo_train.data import Prompts, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.policy import EncodedPrompt, Policy  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402
from scapo_train.samplers import transfer as module  # noqa: E402
from scapo_train.samplers.server import ServerSampler  # noqa: E402
from scapo_train.samplers.transfer import INCOMPLETE, WEIGHTS  # noqa: E402
from scapo_train.trainer import Trainer, train  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers", "warm"),
]
TESTS = Path(__file__).resolve().parents[1]
GROUP = ProcessGroup(0, 1, torch.device("cpu"))
EXACT = "model.dtype=float64"  # greedy responses agree: no two tokens are as close as its rounding
LOADED = ("pause", "collective_rpc", "reset_prefix_cache", "reset_encoder_cache", "update_weight_version", "resume")


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


stand_in, stand_in_server = loaded("stand_in_vllm"), loaded("stand_in_vllm_server")
NEWEST = list(stand_in.releases())[-1]


@pytest.fixture
def serve(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Returns a function that starts a server with the lab's model."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    engine = stand_in.install(NEWEST, lambda *_: None).LLM  # the trainer itself does not import vLLM
    running: list[Any] = []

    def start(dtype: str = "float32", rank: int = 0) -> Any:
        running.append(stand_in_server.Server(engine, load(lab.config).model.path, dtype, rank))
        return running[-1]

    yield start
    for each in running:
        each.close()


def settings(server: Any, *more: str) -> list[str]:
    return ["rollout.engine=vllm", f"rollout.server={server.url}", "rollout.wait_server=0", "run.samples=0", *more]


AHEAD = ("rollout.lookahead=1", "loss.engine_correction=2")


class Bench:
    """Policy and some prompts."""

    def __init__(self, lab: Any, server: Any, *changes: str) -> None:
        output = f"run.output={lab.folder / 'run'}"
        self.config: Config = load(lab.config, [output, *settings(server, *changes)])
        temperature, lora = self.config.rollout.temperature, self.config.lora
        self.policy: Policy = load_policy(self.config.model, temperature, GROUP, lora=lora, seed=3)
        self.processor = load_processor(self.config.model.path)
        maker = Prompts(read_prompts(self.config.data.train, self.config.data.images), self.processor, 0)
        self.encoded: list[EncodedPrompt] = encode(self.policy, maker.take(range(4)), GROUP.device)
        maker.close()

    def sampler(self) -> ServerSampler:
        return ServerSampler(self.config, self.policy, self.processor, GROUP)

    def own(self) -> list[list[int]]:
        """Returns the trainer's greedy responses."""
        sampler = PolicySampler(self.policy, GROUP.device, self.config.rollout.max_new_tokens, 4)
        return [response.ids for response in sampler.sample(self.encoded, 0, 1, 0.0)]

    def greedy(self, sampler: ServerSampler) -> list[list[int]]:
        return [response.ids for response in sampler.sample(self.encoded, 0, 1, 0.0)]

    @torch.no_grad()
    def change(self) -> None:
        generator = torch.Generator().manual_seed(1)
        for parameter in self.policy.language_model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:
                parameter += 0.7 * (parameter.std() or 0.3) * torch.randn(parameter.shape, generator=generator)


def test_it_answers_with_the_weights_of_the_last_synchronization(lab: Any, serve: Any) -> None:
    server = serve("float64")
    bench = Bench(lab, server, EXACT)
    sampler = bench.sampler()  # with its own check
    first = bench.own()
    assert bench.greedy(sampler) == first
    bench.change()
    assert bench.own() != first
    assert bench.greedy(sampler) == first
    server.calls.clear()
    sampler.sync()
    assert server.calls == list(LOADED)
    assert not (bench.config.run.output / Path(WEIGHTS)).exists()
    assert bench.greedy(sampler) == bench.own()
    assert len({call for call in server.calls if "generate" in call}) == 1
    assert bench.greedy(sampler) == bench.own()
    sampler.close()


def test_weights_in_several_files_in_another_folder(lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("float64")
    folder = lab.folder / "shared"
    (folder / WEIGHTS).mkdir(parents=True)
    (folder / WEIGHTS / "model-00099.safetensors").write_bytes(b"of a run that was killed")
    monkeypatch.setattr(module, "_PART_BYTES", 50_000)
    bench = Bench(lab, server, EXACT, f"rollout.weights_folder={folder}")
    bench.change()
    sampler = bench.sampler()
    assert server.counts["files"] > 3
    assert bench.greedy(sampler) == bench.own()
    assert list(folder.iterdir()) == []


def test_responses_have_the_log_probabilities_of_the_update(lab: Any, serve: Any) -> None:
    bench = Bench(lab, serve("float64"), EXACT, "rollout.temperature=0.6")
    responses = bench.sampler().sample(bench.encoded, 3, 3, 0.6)
    assert len({tuple(each.ids) for each in responses}) > 6
    assert [each.finished for each in responses] == [each.ids[-1] in bench.policy.ends for each in responses]
    rows = [each.row([one.ids for one in responses[3 * k : 3 * k + 3]]) for k, each in enumerate(bench.encoded)]
    with torch.no_grad():
        found = bench.policy(bench.policy.batch(rows, GROUP.device)).logprob.numpy()
    given = np.concatenate([each.logprobs for each in responses if each.logprobs is not None])
    assert np.abs(given - found).max() <= 2**-23 * np.abs(found).max()  # the given ones are rounded to float32
    greedy = bench.sampler().sample(bench.encoded, 0, 2, 0.0)
    assert [each.ids for each in greedy] == [ids for ids in bench.own() for _ in range(2)]


def test_only_adapters_are_sent(lab: Any, serve: Any) -> None:
    pytest.importorskip("peft")
    server = serve("float64", 8)
    bench = Bench(lab, server, EXACT, "lora.rank=8")
    sampler = bench.sampler()
    bench.change()
    stale = bench.greedy(sampler)
    server.calls.clear()
    sampler.sync()
    assert server.calls == [LOADED[0], "v1/load_lora_adapter", "v1/unload_lora_adapter", *LOADED[2:]]
    assert bench.greedy(sampler) == bench.own() != stale
    folder = bench.config.run.output / Path(WEIGHTS)
    assert [path.name for path in sorted(folder.iterdir())] == ["adapter_config.json", "adapter_model.safetensors"]
    server.engine.adapter = 0, {}  # evicted by another run: the server reads the files again
    assert bench.greedy(sampler) == bench.own()
    Bench(lab, server, EXACT, "lora.rank=8", f"rollout.weights_folder={lab.folder / 'other'}").sampler().sync()
    with pytest.raises(ScapoError, match=r"sampled with weights of version \w{8}-4, not \w{8}-4 of this run"):
        bench.greedy(sampler)
    server.adapters.clear()
    with pytest.raises(
        ScapoError, match=r"has no adapter \w{8}-4 of this run: it was restarted; continue with --resume"
    ):
        bench.greedy(sampler)
    sampler.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.info.update(lora_config=None), "it was not started with --enable-lora"),
        (lambda s: s.environment.clear(), "it was not started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        (lambda s: s.info["lora_config"].update(max_lora_rank=4), "it was not started with --max-lora-rank 8 or more"),
        (lambda s: s.info["parallel_config"].update(data_parallel_size=2), "with data parallelism, only one of the se"),
        (lambda s: s.info["device_config"].update(device="cuda"), "on GPUs, vLLM computes adapters only in bfloat16"),
    ],
)
def test_adapters_that_the_server_does_not_support_are_merged(
    lab: Any, serve: Any, caplog: pytest.LogCaptureFixture, change: Callable[[Any], Any], said: str
) -> None:
    pytest.importorskip("peft")
    caplog.set_level(logging.INFO, "scapo_train")
    server = serve("float32", 8)
    change(server)
    bench = Bench(lab, server, "lora.rank=8", "rollout.check_sync=false")
    bench.sampler().sync()
    assert f"adapters are merged into the weights that are sent: {said}" in caplog.text
    assert server.calls[-len(LOADED) :] == list(LOADED)


def broken(server: Any, path: str, status: int, message: str) -> None:
    server.faults[path] = status, message


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda s: s.close(), r"^no vLLM server at http://\S+ \(.+\); start it with VLLM_SERVER_DEV_MODE=1 vllm serve"),
        (lambda s: broken(s, "server_info", 404, "Not Found"), r"rejects server_info \(HTTP 404: Not Found\); start i"),
        (
            lambda s: broken(s, "inference/v1/generate", 403, "restart with --enable-scale-out"),
            r"HTTP 403: restart with --enable-scale-out\); start it with .* --enable-scale-out",
        ),
        (lambda s: broken(s, "inference/v1/generate", 401, "Unauthorized"), r"HTTP 401: .*; set VLLM_API_KEY"),
        (lambda s: s.settings.update(dtype="torch.bfloat16"), r"has --dtype torch\.bfloat16: start it with --dtype "),
        (lambda s: s.settings.update(logprobs_mode="raw_logprobs"), r"start it with --logprobs-mode processed_"),
        (lambda s: s.settings.pop("dtype"), r"does not tell its settings: rollout\.server needs vLLM 0\.32 or later"),
        (lambda s: s.settings.update(max_model_len=20), r"with the response, the server has room for 20 \(--max-model"),
        (
            lambda s: broken(s, "collective_rpc", 500, "no weights at\n<path>"),
            r"does not load the policy's weights from \S+weights_of_server: no weights at <path>; the server must have",
        ),
        (
            lambda s: setattr(s.engine, "reset_prefix_cache", lambda: False),
            r"keeps its prefix cache: a request is still running",
        ),
        (
            lambda s: setattr(s, "edit", lambda reply: reply["choices"][0].pop("weight_versions")),
            r"without token ids, log-probabilities or weight versions; rollout\.server needs vLLM 0\.32",
        ),
        (
            lambda s: setattr(s, "edit", lambda reply: reply["choices"][0].update(weight_versions=[])),
            r"sampled with weights of version none, not \w+-1 of this run",
        ),
        (
            lambda s: setattr(s, "edit", lambda reply: reply["prompt_token_ids"].append(0)),
            r"png: the server's prompt of \d+ tokens is not the trainer's of \d+: .* --mm-processor-kwargs$",
        ),
        (
            lambda s: setattr(s, "edit", lambda reply: reply["choices"][0].update(finish_reason="abort")),
            r"png: the server stopped \(abort\)",
        ),
        (
            lambda s: setattr(s, "_generate", lambda body: (_ for _ in ()).throw(ConnectionResetError)),
            r"^the vLLM server at \S+ did not answer \(",
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_faults_are_one_line(lab: Any, serve: Any, capfd: Any, fault: Callable[[Any], Any], said: str) -> None:
    server = serve()
    bench = Bench(lab, server)
    fault(server)
    with pytest.raises((ScapoError, InputError), match=said) as raised:
        bench.sampler()
    assert "\n" not in str(raised.value)
    assert not server.paused


def test_a_model_that_the_server_computes_otherwise_stops_the_run(lab: Any, serve: Any) -> None:
    server = serve()
    bench = Bench(lab, server)
    bench.policy.vlm.model.language_model.rotary_emb.inv_freq.mul_(3)  # not a weight
    with pytest.raises(ScapoError, match=r"do not agree on log-probabilities .*: is its model that of \S+, with the"):
        bench.sampler()


def test_weights_that_arrive_changed_stop_the_run(lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, whole = serve(), module.weights

    def swapped(policy: Policy, dtype: Any) -> Any:
        return ((name, each.flip(0) if "k_proj.weight" in name else each) for name, each in whole(policy, dtype))

    monkeypatch.setattr(module, "weights", swapped)
    with pytest.raises(ScapoError, match=r"they agreed with the server's own weights: the policy's weights arrive cha"):
        Bench(lab, server).sampler()


def test_a_server_that_was_restarted_or_is_shared_is_noticed(lab: Any, serve: Any) -> None:
    server = serve()
    bench = Bench(lab, server, "rollout.check_sync=false")
    sampler = bench.sampler()
    sampler.sync()
    sampler.sample(bench.encoded, 0, 2, 1.0)
    Bench(lab, server, "rollout.check_sync=false").sampler().sync()  # another run
    with pytest.raises(ScapoError, match=r"sampled with weights of version \w{8}-1, not \w{8}-1 of this run: it was"):
        sampler.sample(bench.encoded, 0, 2, 1.0)
    server.version = "default"
    with pytest.raises(ScapoError, match=r"version default, not \w{8}-1 .* continue with --resume auto$"):
        sampler.sample(bench.encoded, 0, 2, 1.0)


def test_weights_that_cannot_be_written(lab: Any, serve: Any) -> None:
    (lab.folder / "file").write_text("")
    bench = Bench(lab, serve(), f"rollout.weights_folder={lab.folder / 'file'}", "rollout.check_sync=false")
    with pytest.raises(ScapoError, match=r"file/weights_of_server: the weights for the server cannot be written: "):
        bench.sampler().sync()


CONNECTED = ("shutdown_weight_transfer_engine", "init_weight_transfer_engine", "resume")
TRANSFERRED = (
    "pause",
    "update_weight_version",
    "start_weight_update",
    "update_weights",
    "finish_weight_update",
    *LOADED[2:],
)


@pytest.fixture
def wired(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a function that starts a server which accepts transfers."""
    put = lambda modules, name, module: monkeypatch.setitem(modules, name, module)  # noqa: E731
    engine = stand_in_server.install_transfer(put)

    def start(dtype: str = "float64", rank: int = 0) -> Any:
        server = serve(dtype, rank)
        server.info["weight_transfer_config"], server.senders = {"backend": "queue"}, engine.made
        return server

    return start


QUEUE = (EXACT, "rollout.transfer=queue")


@pytest.mark.parametrize("changes", [(), ("lora.rank=8",)], ids=["full", "merged"])
def test_weights_are_transferred_by_vllm(lab: Any, wired: Any, changes: tuple[str, ...]) -> None:
    server = wired()
    bench = Bench(lab, server, *QUEUE, *changes)
    sampler = bench.sampler()  # with its own check
    assert server.calls[: len(CONNECTED)] == list(CONNECTED)
    (engine,) = server.senders
    assert (engine.settings.master_address, engine.settings.world_size) == ("127.0.0.1", 3)
    bench.change()
    stale = bench.greedy(sampler)
    server.calls.clear()
    sampler.sync()
    assert server.calls == list(TRANSFERRED)
    assert bench.greedy(sampler) == bench.own() != stale
    assert not (bench.config.run.output / Path(WEIGHTS)).exists()
    sampler.close()
    assert engine.closed
    assert not server.connected


@pytest.mark.parametrize("updating", [False, True])
def test_a_transfer_of_a_run_that_was_killed_is_ended(lab: Any, wired: Any, updating: bool) -> None:
    server = wired()
    server.connected, server.updating, server.paused, server.version = True, updating, True, INCOMPLETE
    server.engine._fill(float("nan"))
    bench = Bench(lab, server, *QUEUE)
    sampler = bench.sampler()
    ended = ["start_weight_update", "finish_weight_update", *CONNECTED]
    assert server.calls[: len(ended) + 1] == [*ended, TRANSFERRED[0]]  # nothing is sampled before
    assert bench.greedy(sampler) == bench.own()


def test_only_adapters_are_sent_as_files(lab: Any, wired: Any) -> None:
    pytest.importorskip("peft")
    server = wired("float64", 8)
    bench = Bench(lab, server, *QUEUE, "lora.rank=8")
    sampler = bench.sampler()
    assert server.senders == []
    assert bench.greedy(sampler) == bench.own()


@pytest.mark.parametrize(
    ("fault", "changes", "said"),
    [
        (
            lambda s: s.info.update(weight_transfer_config={"backend": "ipc"}),
            QUEUE,
            r"was not started for rollout\.transfer = .queue.: start it with --weight-transfer-config '{.backend.: .q",
        ),
        (
            lambda s: s.info.update(weight_transfer_config={"backend": "other"}),
            (EXACT, "rollout.transfer=other"),
            r"cannot connect to the trainer at 127\.0\.0\.1 .* by other: Invalid weight transfer backend: oth",
        ),
        (
            lambda s: None,
            (EXACT, "rollout.transfer=nccl"),
            r"nccl\" needs GPUs for training, not a CPU: set it to \"fi",
        ),
        (
            lambda s: broken(s, "init_weight_transfer_engine", 500, "no route"),
            QUEUE,
            r"VLLM_HOST_IP\) by queue: the vLLM server at \S+ rejects init_weight_transfer_engine \(HTTP 500",
        ),
        (
            lambda s: broken(s, "update_weights", 500, "no module named\nx"),
            QUEUE,
            r"does not receive the policy's weights by queue: .* rejects update_weights \(HTTP 500: no module named",
        ),
        (
            lambda s: s.__dict__.update(_init_weight_transfer_engine=lambda body: None),  # as after a restart
            QUEUE,
            r"rejects update_weights \(HTTP 500: NCCL weight transfer not initialized",
        ),
    ],
)
def test_faults_of_a_transfer_are_one_line(
    lab: Any, wired: Any, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], Any], changes: Any, said: str
) -> None:
    server, gathered, whole = wired(), list[int](), module.weights

    def counted(policy: Policy, dtype: Any) -> Any:
        gathered.append(0)
        for each in whole(policy, dtype):
            yield each
            gathered[-1] += 1

    monkeypatch.setattr(module, "weights", counted)
    bench = Bench(lab, server, *changes)
    fault(server)
    with pytest.raises(ScapoError, match=said) as raised:
        bench.sampler()
    assert "\n" not in str(raised.value)
    assert not server.paused
    assert set(gathered) <= {len(list(whole(bench.policy, torch.float64)))}  # other ranks wait for all


def test_a_transfer_needs_vllm_with_the_trainer(lab: Any, wired: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(lab, wired(), *QUEUE)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'^rollout\.transfer = "queue" needs the extra .vllm.: .*pip install'):
        bench.sampler()
    monkeypatch.undo()


def test_it_waits_for_a_server_that_starts(
    lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scapo_train")
    logging.getLogger("scapo_train").propagate = True
    server = serve()
    waits: list[float] = []
    asked = server.answer
    monkeypatch.setattr(server, "answer", lambda path, body: asked(path, body) if len(waits) == 2 else bad())
    monkeypatch.setattr(time, "sleep", waits.append)

    def bad() -> Any:
        raise ConnectionResetError

    Bench(lab, server, "rollout.wait_server=60", "rollout.check_sync=false").sampler()
    assert waits == [1, 1]
    assert caplog.text.count("waiting for it, up to 60 s (rollout.wait_server)") == 1


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_samples_with_the_server_and_its_policys_weights(lab: Any, serve: Any) -> None:
    server = serve()
    folder = train(load(lab.config, [f"run.output={lab.folder / 'run'}", *settings(server)]))
    rows = rows_of(folder)
    assert [row["staleness"] for row in rows] == [0.0] * 4
    assert all(row["mismatch"] < 1e-5 for row in rows)
    assert all(row["importance_ratio"] is row["importance_clip_share"] is None for row in rows)
    versions = list(dict.fromkeys(version for version, _, _ in server.drawn))
    assert [version.partition("-")[2] for version in versions] == ["", "1", "2", "3", "4", "5"]  # own, check, start


class Recorded:
    """Importance ratios of a run, with their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[Any, Any, Any]] = []
        whole = update.engine_ratio

        def recorded(policy: Any, engine: Any, most: float, lengths: Any = None) -> Any:
            ratios = whole(policy, engine, most, lengths)
            self.found.append((policy.detach(), engine, ratios))
            return ratios

        monkeypatch.setattr(update, "engine_ratio", recorded)


def logprobs_under(path: Path, config: Config, draws: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[Any]:
    """Returns the log-probabilities of responses under the weights of a checkpoint, from complete forward passes of
    transformers, one sequence at a time.
    """
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    processor = load_processor(config.model.path)
    sources = read_prompts(config.data.train, config.data.images)
    maker = Prompts(sources, processor, 0)
    prompts = {tuple(prompt.ids.tolist()): prompt for prompt in maker.take(range(len(sources)))}
    maker.close()
    never, found = image_tokens(model.config), []
    for ids, tokens in draws:
        whole = torch.tensor([[*ids, *tokens]])
        inputs = {name: value for name, value in prompts[ids].inputs.items() if name != "mm_token_type_ids"}
        if "mm_token_type_ids" in prompts[ids].inputs:
            inputs["mm_token_type_ids"] = (whole == model.config.image_token_id).int()
        with torch.no_grad():
            logits = model(input_ids=whole, attention_mask=torch.ones_like(whole), **inputs).logits[0]
        logits[:, never] = -torch.inf
        logprobs = logits[len(ids) - 1 : -1].log_softmax(-1)
        found.append(logprobs[range(len(tokens)), list(tokens)])
    return found


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_importance_ratios_are_those_of_two_policies(
    lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The responses of a step were sampled by the policy of the step before. The weights of both policies are exported,
    and the ratios are computed anew by plain forward passes of transformers, without the project's code.
    """
    server, recorded = serve(), Recorded(monkeypatch)
    output, limit = f"run.output={lab.folder / 'run'}", "loss.engine_correction=1.3"
    changes = [output, "rollout.check_sync=false", "optim.lr=0.003", *AHEAD, limit, f"loss.correction_level={level}"]
    config = load(lab.config, settings(server, *changes))
    policies = [Path(config.model.path)]
    step = Trainer.train_step
    of_step: list[int] = []

    def exported(self: Any) -> Any:
        before = len(recorded.found)
        metrics = step(self)
        of_step.append(len(recorded.found) - before)
        policies.append(lab.folder / f"policy-{self.step + 1}")
        export(self.policy.vlm, Path(config.model.path), policies[-1], torch.float32)
        return metrics

    monkeypatch.setattr(Trainer, "train_step", exported)
    rows = rows_of(train(config))
    drawn = {tokens: (version, ids) for version, ids, tokens in server.drawn}
    assert [row["staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert of_step == [1, 1, 1, 1]  # one micro-batch
    assert (
        len({version for version, _ in drawn.values()}) == 3
    )  # the last two steps' weights sample nothing, one is new
    clipped = 0
    group = config.rollout.group
    sizes = config.data.prompts_per_step * group
    for k in range(1, 4):
        draws = server.drawn[k * sizes : (k + 1) * sizes]
        assert {version for version, _, _ in draws} == {f"{draws[0][0].partition('-')[0]}-{k}"}
        given = [(ids, tokens) for _, ids, tokens in draws]
        older, newer = (logprobs_under(policies[k - back], config, given) for back in (1, 0))
        differences = [new - old for new, old in zip(newer, older, strict=True)]
        if level == "sequence":
            differences = [torch.full_like(each, float(each.sum())) for each in differences]
        ratios = torch.cat(differences).exp().clamp(max=1.3)
        policy, engine, found = recorded.found[k]
        # the trainer orders responses by length: compared as multisets of (old, new, ratio)
        wanted = sorted(zip(torch.cat(older).tolist(), torch.cat(newer).tolist(), ratios.tolist(), strict=True))
        seen = sorted(zip(engine.tolist(), policy.tolist(), found.tolist(), strict=True))
        assert np.allclose(np.array(wanted), np.array(seen), rtol=0, atol=1e-4)
        assert rows[k]["importance_ratio"] == pytest.approx(float(ratios.mean()), abs=1e-4)
        share = float((ratios >= 1.3).float().mean())
        assert rows[k]["importance_clip_share"] == pytest.approx(share, abs=0.02)
        clipped += share > 0
        assert np.abs(np.array(wanted)[:, 0] - np.array(wanted)[:, 1]).max() > 0.01
    assert clipped
    assert rows[0]["importance_ratio"] == pytest.approx(1, abs=1e-5)


def test_the_next_responses_are_sampled_during_the_update(
    lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers requests of the next step only after the update has begun, and the update ends only after a
    request has arrived.
    """
    server = serve()
    begun, arrived = ([threading.Event() for _ in range(3)] for _ in range(2))  # by step of the update
    whole, requests, lock = update.Updater.update, list[str](), threading.Lock()

    def updating(self: Any, *given: Any) -> Any:
        step = given[-1]
        begun[step].set()
        if step + 1 < 3:
            assert arrived[step].wait(60)
        return whole(self, *given)

    def before() -> None:
        with lock:
            requests.append(server.version)
            number = len(requests)
        during = (number - 1) // 5 - 1
        if during >= 0:  # those of the first step come before any update
            arrived[during].set()
            assert begun[during].wait(60)

    server.before = before
    monkeypatch.setattr(update.Updater, "update", updating)
    changes = settings(server, "run.steps=3", "rollout.check_sync=false", *AHEAD)
    train(load(lab.config, [f"run.output={lab.folder / 'run'}", *changes]))
    assert [version.partition("-")[2] for version in requests] == [*["1"] * 10, *["2"] * 5]


def test_a_fault_of_the_look_ahead_ends_the_step(lab: Any, serve: Any) -> None:
    server = serve()

    def before() -> None:
        if server.version != "default" and sum("generate" in call for call in server.calls) >= 5:  # the first step's
            server.faults["inference/v1/generate"] = 500, "EngineCore encountered an issue"

    server.before = before
    changes = settings(server, "rollout.check_sync=false", *AHEAD)
    with pytest.raises(ScapoError, match=r"rejects inference/v1/generate \(HTTP 500: EngineCore encountered an issue"):
        train(load(lab.config, [f"run.output={lab.folder / 'run'}", *changes]))
    assert not (lab.folder / "run" / "checkpoints").exists()


@pytest.mark.parametrize("changes", [(), AHEAD], ids=["on-policy", "look-ahead"])
def test_a_run_that_is_killed_goes_on_to_the_same_end(lab: Any, serve: Any, changes: tuple[str, ...]) -> None:
    server = serve()

    def command(name: str, *more: str) -> list[str]:
        return ["python", "-m", "scapo_train", *lab.run(name, *settings(server, "run.steps=3", *changes)), *more]

    done = subprocess.run(command("whole"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(command("killed"), stderr=subprocess.DEVNULL, start_new_session=True)
    first = lab.folder / "killed/checkpoints/step-000001/state.json"
    while not first.exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    state = json.loads(first.read_text())
    assert bool(state.get("ahead")) == bool(changes)
    server.paused = True  # the run may have been killed during a synchronization
    again = subprocess.run(command("killed", "--resume", "auto"), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    one, other = (
        [{k: v for k, v in row.items() if "second" not in k} for row in rows_of(lab.folder / name)]
        for name in ("whole", "killed")
    )
    assert one == other
    assert [row["staleness"] for row in one] == [0.0, float(bool(changes)), float(bool(changes))]
    whole, killed = (lab.folder / name / "model/model.safetensors" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()


def test_groups_without_variance_are_sampled_again_by_the_present_policy(
    lab: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    changes = ["credit.scheme=dapo", "credit.reward=hal", "credit.form=original", "run.steps=2", *AHEAD]
    monkeypatch.setattr("scapo_train.trainer.credit", without_variance(trainer.credit))
    rows = rows_of(train(load(lab.config, [f"run.output={lab.folder / 'run'}", *settings(server, *changes)])))
    assert rows[1]["staleness"] == pytest.approx(4 / 5)  # one group of five is sampled anew


def without_variance(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a credit function that reports no variance for the first group of a step's first responses."""
    seen: list[Any] = []

    def credited(*given: Any) -> Any:
        found, responses = whole(*given), given[4]
        variance = np.ones_like(found.has_variance)
        if len(variance) == 5 and not any(each is responses for each in seen):
            seen.append(responses)
            variance[0] = False
        return replace(found, has_variance=variance)

    return credited


def test_resumed_with_other_prompts_it_samples_its_own(lab: Any, serve: Any) -> None:
    server = serve()
    changes = [f"run.output={lab.folder / 'run'}", *settings(server, *AHEAD)]
    train(load(lab.config, [*changes, "run.steps=2", "run.save_every=1", "run.export=false"]))
    shown = lab.folder / "run/checkpoints/step-000001/state.json"
    state = json.loads(shown.read_text())
    assert len(state["ahead"]) == 5
    assert state["versions"][0]["packages"]["vllm"] == "0.32.0"  # without the address, which changes more often
    for last in (lab.folder / "run/checkpoints").glob("step-000002"):
        last.rename(lab.folder / "later")
    config = load(lab.config, [*changes, "run.steps=3", "run.seed=9"])
    with pytest.raises(InputError, match=r"run\.seed"):
        train(config, resume=True)
    rows = rows_of(train(config, resume=True, accept_changes=True))
    assert [row["staleness"] for row in rows] == [0.0, 0.0, 1.0]


def test_two_ranks_and_a_resumption_on_one(lab: Any, serve: Any) -> None:
    """One server samples for two ranks, and a run that is resumed on another number of ranks has the responses of the
    checkpoint. The second step's are the last that do not depend on an update, which rounds differently on two ranks.
    """
    server = serve("float64")
    changes = settings(server, EXACT, "run.steps=2", "data.prompts_per_step=4", "run.keep=9", *AHEAD)
    folders = []
    for ranks in (1, 2):
        server.drawn.clear()
        done = subprocess.run(
            lab.forked(ranks, "-m", "scapo_train", *lab.run(f"run-{ranks}", *changes)), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        drawn = {(ids, tokens) for version, ids, tokens in server.drawn if version.endswith("-2")}  # after the check
        folders.append((lab.folder / f"run-{ranks}", drawn))
        assert len(drawn) > 20
    (one, drawn), (two, also) = folders
    assert drawn == also
    states = [json.loads((folder / "checkpoints/step-000001/state.json").read_text()) for folder in (one, two)]
    assert states[0]["ahead"].keys() == states[1]["ahead"].keys()
    assert len(states[0]["ahead"]) == 4
    (two / "checkpoints/step-000002").rename(lab.folder / "later")
    rows = rows_of(two)
    train(load(lab.config, [f"run.output={two}", *changes]), resume=True)
    for row, again, other in zip(rows_of(one), rows_of(two), rows, strict=True):
        for name in ("loss", "reward", "importance_ratio", "importance_clip_share", "staleness", "grad_norm"):
            assert again[name] == pytest.approx(row[name], rel=1e-5, abs=1e-9), name
            assert other[name] == pytest.approx(row[name], rel=1e-5, abs=1e-9), name
