"""The trainer's vLLM sampler with a stand-in that contains a second copy of the model (``tests/stand_in_vllm.py``)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
SafetensorError = pytest.importorskip("safetensors").SafetensorError

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError  # noqa: E402
from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train.config import Config, load  # noqa: E402
from scapo_train.data import Prompts, Response, indices_of_step, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.families.policy import EncodedPrompt, Policy  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402
from scapo_train.samplers.vllm import VllmSampler, weights  # noqa: E402
from scapo_train.trainer import train  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
TESTS = Path(__file__).resolve().parents[1]
PROCESS_GROUP = ProcessGroup(0, 1, torch.device("cpu"))

spec = importlib.util.spec_from_file_location("stand_in_vllm", TESTS / "stand_in_vllm.py")
assert spec is not None
assert spec.loader is not None
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)
NEWEST = list(stand_in.releases())[-1]


EXACT = "model.dtype=float64"  # greedy responses agree: no two tokens are as close as its rounding


class Bench:
    """Policy, its vLLM engine, and some prompts."""

    def __init__(self, lab: Any, *changes: str) -> None:
        self.config: Config = load(lab.config, ["rollout.engine=vllm", EXACT, *changes])
        temperature, lora = self.config.rollout.temperature, self.config.lora
        self.policy: Policy = load_policy(self.config.model, temperature, PROCESS_GROUP, lora=lora, seed=3)
        self.processor = load_processor(self.config.model.path)
        maker = Prompts(read_prompts(self.config.data.train, self.config.data.images), self.processor, 0)
        self.encoded: list[EncodedPrompt] = encode(self.policy, maker.take(range(4)), PROCESS_GROUP.device)
        maker.close()

    def sampler(self) -> VllmSampler:
        return VllmSampler(self.config, self.policy, self.processor, PROCESS_GROUP)

    def own(self) -> list[list[int]]:
        """Returns the trainer's greedy responses."""
        sampler = PolicySampler(self.policy, PROCESS_GROUP.device, self.config.rollout.max_new_tokens, 4)
        return [response.ids for response in sampler.sample(self.encoded, 0, 1, 0.0)]

    def greedy(self, sampler: VllmSampler) -> list[list[int]]:
        return [response.ids for response in sampler.sample(self.encoded, 0, 1, 0.0)]

    @torch.no_grad()
    def change(self, part: str = "", scale: float = 0.7) -> None:
        """Changes the weights, and also the features if the tower is changed."""
        generator = torch.Generator().manual_seed(1)
        for name, parameter in self.policy.vlm.named_parameters():
            if part in name and parameter.ndim > 1:
                parameter += scale * parameter.std() * torch.randn(parameter.shape, generator=generator)
        self.encoded = encode(self.policy, [each.prompt for each in self.encoded], PROCESS_GROUP.device)

    @torch.no_grad()
    def learn(self, seed: int) -> None:
        """Gives the adapters new values."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.policy.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the stand-in for the newest recorded release."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    return stand_in.install(NEWEST, monkeypatch.setitem)


@pytest.mark.parametrize(("version", "check"), [*((each, "true") for each in stand_in.releases()), (NEWEST, "false")])
def test_it_answers_with_the_policys_present_weights(
    lab: Any, monkeypatch: pytest.MonkeyPatch, version: str, check: str
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    package = stand_in.install(version, monkeypatch.setitem)
    bench = Bench(lab, f"rollout.check_sync={check}")
    sampler = bench.sampler()
    (engine,) = package.made
    assert engine.awake == set()  # between steps it holds nothing
    sampler.sync()
    assert engine.awake == {"weights"}
    first = bench.own()
    assert bench.greedy(sampler) == first
    assert engine.awake == set()
    sampler.sync()
    bench.change()
    learned = bench.own()
    assert learned != first
    assert bench.greedy(sampler) == first  # it holds weights of its own
    sampler.sync()
    assert bench.greedy(sampler) == learned
    assert bench.greedy(sampler) == learned  # a second time within a step, though it slept and forgot
    sampler.close()
    assert engine.calls[-1] == "shutdown"


def test_the_order_of_a_step(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    sampler = bench.sampler()
    sampler.sync()
    sampler.sample(bench.encoded, 1, 2, 1.0)
    sampler.sample(bench.encoded, 2, 2, 1.0)
    taken = ["wake weights", "reload", "forget prefix", "forget encoder", "wake kv_cache", "generate", "sleep"]
    assert vllm.made[0].calls == ["sleep", *taken, *taken]
    assert sampler.sample([], 0, 2, 1.0) == []  # a rank without prompts takes part in the synchronization
    assert vllm.made[0].calls[-3:] == ["forget encoder", "wake kv_cache", "sleep"]


def test_without_sleep_nothing_is_put_to_sleep(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.sleep=false")
    sampler = bench.sampler()
    (engine,) = vllm.made
    sampler.sync()
    assert bench.greedy(sampler) == bench.own()
    bench.change()
    sampler.sync()
    assert bench.greedy(sampler) == bench.own()
    assert not {call for call in engine.calls if call.startswith(("wake", "sleep"))}
    assert engine.given["enable_sleep_mode"] is False


def test_light_sleep_keeps_the_weights_on_the_host(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.sleep_level=1", "rollout.check_sync=false")
    sampler = bench.sampler()
    sampler.sync()
    assert bench.greedy(sampler) == bench.greedy(sampler) == bench.own()
    assert vllm.made[0].calls.count("reload") == 1


def test_float32_is_not_computed_in_tf32(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TRITON_F32_DEFAULT"
    for given, dtype, expected in (("tf32x3", "float32", "tf32x3"), (None, "float64", None), (None, "float32", "ieee")):
        monkeypatch.setenv(name, given or "")
        if given is None:
            monkeypatch.delenv(name)
        Bench(lab, f"model.dtype={dtype}", "rollout.check_sync=false").sampler()
        assert os.environ.get(name) == expected


@pytest.mark.parametrize(("kept", "part"), [("prefix", "language_model"), ("encoder", "visual")])
def test_a_cache_that_is_not_reset_gives_old_answers(
    lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch, kept: str, part: str
) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    sampler = bench.sampler()
    forget = stand_in.Engine._forget
    monkeypatch.setattr(vllm.LLM, "_forget", lambda self, cache: None if cache == kept else forget(self, cache))
    assert bench.greedy(sampler) == bench.own()
    bench.change(part)
    assert bench.greedy(sampler) != bench.own()
    monkeypatch.setattr(vllm.LLM, "_forget", forget)
    sampler.sync()
    assert bench.greedy(sampler) == bench.own()


def test_a_prefix_cache_in_use_is_an_error(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Bench(lab, "rollout.check_sync=false").sampler()
    monkeypatch.setattr(vllm.LLM, "reset_prefix_cache", lambda self: False)
    with pytest.raises(ScapoError, match="a request is still running"):
        sampler.sync()


ADAPTERS = ("lora.rank=9", "rollout.sleep_level=1")


@pytest.mark.parametrize("version", stand_in.releases())
def test_only_adapters_are_sent(lab: Any, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    pytest.importorskip("peft")
    package = stand_in.install(version, monkeypatch.setitem)
    bench = Bench(lab, *ADAPTERS)
    initial = [parameter.clone() for parameter in bench.policy.parameters()]
    sampler = bench.sampler()
    assert all(map(torch.equal, initial, bench.policy.parameters()))  # the check leaves no trial values
    (engine,) = package.made
    assert engine.given["max_lora_rank"] == 16
    assert "q_proj" in engine.given["lora_target_modules"]
    assert engine.calls.count("generate") == 6  # four prompts one by one, initial and trial values
    assert bench.greedy(sampler) == bench.own()
    answers = [bench.own()]
    for seed in (1, 2):
        bench.learn(seed)
        assert bench.greedy(sampler) == answers[-1]  # with the adapters of the last synchronization
        sampler.sync()
        answers.append(bench.own())
        assert answers[-1] not in answers[:-1]
        assert bench.greedy(sampler) == bench.greedy(sampler) == answers[-1]
    assert "reload" not in engine.calls
    assert [call for call in engine.calls if call.startswith("adapter")] == [f"adapter policy-{k}" for k in range(1, 6)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["rollout.sleep_level=2"], "rollout.sleep_level = 2 discards vLLM's base weights"),
        (["lora.rank=513"], "lora.rank = 513 is more than vLLM's maximum, 512"),
    ],
)
def test_adapters_that_vllm_does_not_support_are_merged(
    lab: Any, vllm: Any, caplog: pytest.LogCaptureFixture, changes: list[str], said: str
) -> None:
    pytest.importorskip("peft")
    caplog.set_level(logging.INFO, "scapo_train")
    bench = Bench(lab, *ADAPTERS, *changes)
    sampler = bench.sampler()
    assert f"vllm {NEWEST}: adapters are merged into the weights that are sent: {said}" in caplog.text
    bench.learn(1)
    sampler.sync()
    assert bench.greedy(sampler) == bench.own()
    assert not {"enable_lora", "max_lora_rank"} & {*vllm.made[0].given}
    with pytest.raises(InputError, match=re.escape(f'rollout.adapters = "request": {said}')):
        Bench(lab, *ADAPTERS, *changes, "rollout.adapters=request").sampler()


def test_adapters_that_vllm_ignores_stop_the_run(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    bench = Bench(lab, *ADAPTERS, "rollout.check_sync=true")
    monkeypatch.setattr(vllm.LLM, "add_lora", lambda self, request: None)
    monkeypatch.setattr(vllm.LLM, "_adapted", lambda self, request: contextlib.nullcontext())
    with pytest.raises(ScapoError, match=r'does not apply adapters as the trainer does .*: set rollout.adapters = "me'):
        bench.sampler()

    def full(self: Any, request: Any) -> None:
        raise ValueError("LoRA rank 9 is greater than max_lora_rank 8.")

    monkeypatch.setattr(vllm.LLM, "add_lora", full)
    with pytest.raises(ScapoError, match=r"vLLM cannot load the policy's adapters: LoRA rank 9 is greater"):
        bench.sampler()


Names = Callable[[Policy, Any], Any]


def renamed(policy: Policy, dtype: Any) -> Any:
    return ((name.replace("q_proj", "query"), weight) for name, weight in weights(policy, dtype))


def without_one(policy: Policy, dtype: Any) -> Any:
    return (pair for pair in weights(policy, dtype) if not pair[0].endswith("visual.patch_embed.proj.weight"))


def untyped(policy: Policy, dtype: Any) -> Any:
    raise TypeError("a weight of\nno kind")


def swapped(policy: Policy, dtype: Any) -> Any:
    """Yields correct names with wrong weights, which no loader detects."""
    return ((name, weight.flip(0) if "k_proj.weight" in name else weight) for name, weight in weights(policy, dtype))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (renamed, r"cannot load the policy's weights: There is no module or parameter named .*query"),
        (untyped, r"cannot load the policy's weights: a weight of no kind"),
        (without_one, r"1 weights of vLLM's model do not exist in the policy: visual\.patch_embed\.proj\.weight"),
        (swapped, r"they agreed when vLLM had the weights of .*: the policy's weights arrive changed"),
    ],
)
def test_weights_that_do_not_arrive(
    lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch, broken: Names, said: str
) -> None:
    monkeypatch.setattr("scapo_train.samplers.vllm.weights", broken)
    with pytest.raises(ScapoError, match=said):
        Bench(lab).sampler()


def test_the_check_says_how_far_vllm_and_the_trainer_agree(
    lab: Any, vllm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scapo_train")
    logging.getLogger("scapo_train").propagate = True
    bench = Bench(lab, "rollout.temperature=0.7")
    bench.sampler()
    assert f"vllm {NEWEST}: weights synchronized in" in caplog.text
    found = re.search(r"as the trainer's: (\S+) nats at most, (\S+) on average", caplog.text)
    assert found is not None
    assert float(found[2]) <= float(found[1]) < 1e-5


def test_a_model_that_vllm_computes_otherwise_stops_the_run(lab: Any, vllm: Any) -> None:
    bench = Bench(lab)
    bench.policy.vlm.model.language_model.rotary_emb.inv_freq.mul_(3)  # not a weight
    with pytest.raises(ScapoError, match=r"do not agree on log-probabilities .* with the same pixels and weights"):
        bench.sampler()
    Bench(lab, "rollout.check_sync=false").sampler()


def test_pixels_without_normalization_stop_the_run(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks pixels without normalization, as in newer vLLM releases for a processor file without normalization
    settings.
    """
    model = Path(load(lab.config).model.path)
    copy = lab.folder / "defaults"
    shutil.copytree(model, copy)
    file = copy / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({name: settings[name] for name in settings if not name.startswith("image_m")}))
    answer = stand_in.Engine._answer

    def raw(self: Any, prompt: Any, params: Any) -> Any:
        self.processor.image_processor.do_normalize = False
        return answer(self, prompt, params)

    Bench(lab, f"model.path={copy}").sampler()  # a release that fills the gap in
    monkeypatch.setattr(vllm.LLM, "_answer", raw)
    lacks = r"their pixels differ by \S+; vLLM normalizes them by preprocessor_config.json, which lacks image_mean: "
    with pytest.raises(ScapoError, match=lacks):
        Bench(lab, f"model.path={copy}").sampler()
    with pytest.raises(ScapoError, match=r"their pixels differ by \S+; try another release of vLLM"):
        Bench(lab).sampler()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_the_update(lab: Any, vllm: Any, temperature: float) -> None:
    bench = Bench(lab, "rollout.check_sync=false", f"rollout.temperature={temperature}")
    bench.policy.vlm.lm_head.weight.data[bench.policy.never] *= 3  # raw ones would be others
    responses = bench.sampler().sample(bench.encoded, 3, 3, temperature)
    rows = [encoded.row([each.ids for each in responses[3 * k : 3 * k + 3]]) for k, encoded in enumerate(bench.encoded)]
    with torch.no_grad():
        found = bench.policy(batch_of(rows, PROCESS_GROUP.device)).logprob.numpy()
    given = np.concatenate([each.logprobs for each in responses if each.logprobs is not None])
    assert given.dtype == np.float32
    assert len(given) == sum(len(each.ids) for each in responses)
    assert np.abs(given - found).max() <= 2**-23 * np.abs(found).max()  # the given ones are rounded to float32


def test_ends_lengths_and_tokens_that_are_never_sampled(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    never, ends = bench.policy.never, bench.policy.ends
    assert never
    bench.policy.vlm.lm_head.weight.data[never] *= 8  # very likely, where they are let
    responses = bench.sampler().sample(bench.encoded, 3, 8, 1.0)
    assert len(responses) == 32
    assert {each.finished for each in responses} == {True, False}
    for each in responses:
        assert not set(each.ids) & set(never)
        assert each.finished == (each.ids[-1] in ends)
        assert not set(each.ids[:-1]) & set(ends)
        assert each.finished or len(each.ids) == bench.config.rollout.max_new_tokens


def test_seeds_differ_by_prompt_step_and_response(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    first = bench.encoded[0]
    other = replace(first.prompt, index=7)  # the same prompt in another line
    bench.encoded = [first, replace(first, prompt=other)]
    sampler = bench.sampler()

    def drawn(seed: int) -> list[tuple[int, ...]]:
        return [tuple(each.ids) for each in sampler.sample(bench.encoded, seed, 4, 1.0)]

    first = drawn(5)
    assert first == drawn(5)
    assert len(set(first)) == 8
    assert not set(first) & set(drawn(6))
    alone = bench.encoded[1:]
    assert [tuple(each.ids) for each in sampler.sample(alone, 5, 4, 1.0)] == first[4:]  # whatever is beside it


def test_a_greedy_group_is_one_response_several_times(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    responses = bench.sampler().sample(bench.encoded, 0, 3, 0.0)
    assert [each.ids for each in responses] == [ids for ids in bench.own() for _ in range(3)]


def test_another_prompt_than_the_trainers_is_an_error(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    sampler = bench.sampler()
    vllm.made[0].processor = load_processor(bench.config.model.path, max_pixels=56 * 56)
    with pytest.raises(ScapoError, match=r"vLLM's prompt of \d+ tokens is not the trainer's of \d+"):
        sampler.sample(bench.encoded, 0, 1, 1.0)


def test_pictures_have_the_configured_size_in_both(lab: Any, vllm: Any) -> None:
    bench = Bench(lab, "model.max_pixels=3136", "rollout.check_sync=true")
    bench.processor = load_processor(bench.config.model.path, max_pixels=3136)
    bench.sampler()
    assert vllm.made[0].given["mm_processor_kwargs"] == {"max_pixels": 3136}
    assert vllm.made[0].given["max_model_len"] == min(512, 4 + 4096 + 12)


def test_a_prompt_longer_than_vllm_takes_ends_the_run_after_a_save(
    lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scapo_train.samplers.vllm.TEXT_TOKENS", 30)
    lines = [json.loads(line) for line in (lab.folder / "train.jsonl").read_text().splitlines()]
    lines[indices_of_step(1, len(lines), 5, 0)[0]]["prompt"] = "a " * 100  # of the second step
    (lab.folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ["run.save_every=0", "run.samples=0", "optim.micro_batch_tokens=8192", "rollout.check_sync=false"]
    config = load(lab.config, ["rollout.engine=vllm", f"run.output={lab.folder / 'run'}", *settings])
    with pytest.raises(InputError, match=r"its prompt has 1\d\d tokens, .*; after step 1: continue with --resume auto"):
        train(config)
    assert (lab.folder / "run" / "checkpoints" / "step-000001").is_dir()


def test_held_out_prompts_may_have_more_pictures(lab: Any, vllm: Any) -> None:
    line = {"images": ["1.png", "2.png"], "image_id": 1, "prompt": "Describe"}
    (lab.folder / "held_out.jsonl").write_text(json.dumps(line) + "\n")
    Bench(lab, "rollout.check_sync=false", f"data.evaluation={lab.folder / 'held_out.jsonl'}").sampler()
    assert vllm.made[0].given["limit_mm_per_prompt"] == {"image": 2, "video": 0}


def test_what_a_user_can_do_wrong(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    sampler = bench.sampler()
    with pytest.raises(ScapoError, match=r"tensor_parallel = 3 does not divide the 1 ranks"):
        Bench(lab, "rollout.tensor_parallel=3").sampler()
    (lab.folder / "images" / "1.png").unlink()
    with pytest.raises(InputError, match=r"1\.png: can no longer be read: "):
        sampler.sample(bench.encoded, 0, 1, 1.0)
    sampler.longest = 20
    with pytest.raises(InputError, match="vLLM has room for 20"):
        sampler.sample(bench.encoded, 0, 1, 1.0)

    for error in (
        ValueError("Free memory on device is less than\n desired GPU memory utilization"),
        AssertionError("Free memory on device is less than desired"),
        TypeError("Free memory on device is less than desired: 'x' is no argument"),
        SafetensorError("Free memory on device is less than desired"),
    ):
        monkeypatch.setattr(vllm, "LLM", Mock(side_effect=error))
        with pytest.raises(ScapoError, match=r"vLLM cannot load .*: Free memory on device is less than desired"):
            bench.sampler()
    monkeypatch.setattr(vllm, "__version__", "0.20.2")
    with pytest.raises(ScapoError, match=r"^vLLM 0\.20\.2 is too old: pip install 'vllm>=0\.21'$"):
        bench.sampler()
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"\[vllm\]"):
        bench.sampler()


def test_a_request_that_vllm_refuses_or_gives_up(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(lab, "rollout.check_sync=false")
    answer = stand_in.Engine._answer

    def refusing(self: Any, prompt: Any, params: Any) -> Any:
        raise sys.modules["vllm.exceptions"].VLLMClientError("too\nlong")

    def aborting(self: Any, prompt: Any, params: Any) -> Any:
        made = answer(self, prompt, params)
        made.outputs[0].finish_reason = "abort"
        return made

    for each, said in ((refusing, "vLLM refuses a prompt: too long"), (aborting, r"vLLM stopped \(abort\)")):
        monkeypatch.setattr(vllm.LLM, "_answer", each)
        with pytest.raises(ScapoError, match=said):
            bench.sampler().sample(bench.encoded, 0, 1, 1.0)


def test_a_run(lab: Any, vllm: Any) -> None:
    output = lab.folder / "run"
    changes = [
        "rollout.engine=vllm", EXACT, f"run.output={output}", "run.steps=3", "run.save_every=1", "optim.lr=0.02",
        "optim.mini_batches=2", f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1",
    ]  # fmt: skip
    train(load(lab.config, changes))
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line.get("mismatch") is not None]
    assert len(steps) == 3
    # after large steps the policy is another one each time: weights of the step before would show at once
    assert all(line["mismatch"] < 1e-5 for line in steps)  # log-probabilities of -20 rounded to float32 are off by 2e-6
    assert any(line["grad_norm"] > 0 for line in steps)
    assert vllm.made[0].calls[-1] == "shutdown"


def test_a_run_that_goes_on_with_other_versions_is_told(
    lab: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    folder, oldest = lab.folder / "run", next(iter(stand_in.releases()))
    changes = ["rollout.engine=vllm", f"run.output={folder}", "run.samples=0", "run.export=false"]

    def parts(steps: int, version: str) -> list[tuple[int, str]]:
        """Trains until a step with a release of vLLM. Returns its versions in the run card, by completed steps."""
        caplog.clear()
        stand_in.install(version, monkeypatch.setitem)
        train(load(lab.config, [*changes, f"run.steps={steps}"]), resume=steps > 1)
        card = json.loads((folder / "card.json").read_text())
        assert card["vllm"] == version
        assert card["versions"][-1]["packages"]["torch"] == card["torch"] == torch.__version__
        return [(part["step"], part["packages"]["vllm"]) for part in card["versions"]]

    monkeypatch.setattr("scapo_train.loop.show_messages", lambda rank: None)
    said = f"the run was saved with vllm {oldest} and continues with vllm {NEWEST}: the samples may differ"
    assert parts(1, oldest) == [(0, oldest)]
    assert parts(2, oldest) == [(0, oldest)]
    assert "continues with" not in caplog.text
    assert parts(3, NEWEST) == [(0, oldest), (2, NEWEST)]
    assert [each.message for each in caplog.records if "continues with" in each.message] == [said]
    state = folder / "checkpoints" / "step-000003" / "state.json"
    whole = json.loads(state.read_text())
    assert [part["step"] for part in whole.pop("versions")] == [0, 2]
    del whole["crc32"]
    state.write_text(json.dumps(whole))  # as of an earlier version of scapo
    assert parts(4, oldest) == [(3, oldest)]
    assert "continues with" not in caplog.text


def test_old_weights_show_as_mismatch(lab: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[str, Any] = {}

    def stale(policy: Policy, dtype: Any) -> Any:
        for name, weight in weights(policy, dtype):
            yield name, first.setdefault(name, weight.clone())

    monkeypatch.setattr("scapo_train.samplers.vllm.weights", stale)
    output = lab.folder / "run"
    changes = ["rollout.engine=vllm", EXACT, f"run.output={output}", "run.steps=2", "optim.lr=0.02", "run.samples=0"]
    train(load(lab.config, changes))
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["mismatch"] > 1e-2 for line in lines if "mismatch" in line] == [False, True]


@pytest.mark.usefixtures("warm")
def test_two_ranks(lab: Any) -> None:
    own = Bench(lab).own()
    out = lab.folder / "out.json"
    done = subprocess.run(
        lab.forked(2, str(TESTS / "programs" / "vllm_ranks.py"), str(out), str(lab.config)),
        capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    for first, second in found.values():
        assert first["greedy"] + second["greedy"] == own[:3]  # two prompts and one
        assert first["executor"] == second["executor"] == "external_launcher"
        assert first["names"] == second["names"] == first["declared"]
        assert first["learned"] != first["greedy"]
        assert first["learned"] == first["trainer"]
        assert second["learned"] == second["trainer"]
    assert [len(rank["asked"]) for rank in found["1"]] == [2, 1]
    shared = [rank["asked"] for rank in found["2"]]  # one engine: both ranks ask it for all, in the same order
    assert shared[0] == shared[1] == [ids for rank in found["1"] for ids in rank["asked"]]


def test_responses_are_equal_whatever_their_log_probabilities() -> None:
    one, other = (Response([1], True, np.zeros(1, np.float32) + k) for k in range(2))
    assert one == other
