"""Families of the general path, compared with transformers' own forward pass and generate on real architectures."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train import logprob  # noqa: E402
from scapo_train.__main__ import main  # noqa: E402
from scapo_train.config import Config, Data, Lora, Loss, Model, Optim, Rollout  # noqa: E402
from scapo_train.data import Prompt, PromptRecord, Prompts, Response, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.general import GeneralPolicy, GeneralRow  # noqa: E402
from scapo_train.families.lora import add_adapters  # noqa: E402
from scapo_train.model import FAMILIES, keep_inputs_only, load_policy, policy_of  # noqa: E402
from scapo_train.plan import job as jobs  # noqa: E402
from scapo_train.plan import verify  # noqa: E402
from scapo_train.plan.__main__ import main as plan  # noqa: E402
from scapo_train.plan.general import GeneralMemory  # noqa: E402
from scapo_train.plan.job import Job, Picture, Workload, picture_of  # noqa: E402
from scapo_train.plan.planner import plan as plan_of  # noqa: E402
from scapo_train.plan.shapes import model_config, shape_of  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
ONE = ProcessGroup(0, 1, torch.device("cpu"))
GROUP, LONGEST, END, IMAGE = 3, 8, 1, 50
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {
    **SMALL, "vocab_size": 60, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": END,
}  # fmt: skip
GRIDS = [[28, 56], [56, 28], [56, 56]]


def noise(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def made(family: str) -> tuple[Any, list[dict[str, Any]]]:
    """Returns the configuration of a small model, and its processor's outputs for two pictures."""
    clip = {**SMALL, "image_size": 28, "patch_size": 14, "model_type": "clip_vision_model"}
    siglip = {**clip, "model_type": "siglip_vision_model"}
    one = [{"pixel_values": noise(1, 3, 28, 28)}, {"pixel_values": 2 * noise(1, 3, 28, 28)}]
    tiles = [
        {"pixel_values": noise(1, number, 3, 28, 28), "image_sizes": torch.tensor([size])}
        for number, size in ((3, [20, 40]), (5, [50, 45]))
    ]
    if family == "llava":
        return transformers.LlavaConfig(
            vision_config=clip, text_config={**TEXT, "model_type": "llama"}, image_token_index=IMAGE
        ), one
    if family == "llava_next":
        text = {**TEXT, "model_type": "mistral", "sliding_window": None}
        return transformers.LlavaNextConfig(
            vision_config=clip, text_config=text, image_token_index=IMAGE, image_grid_pinpoints=GRIDS
        ), tiles
    if family == "llava_onevision":
        text = {**TEXT, "model_type": "qwen2"}
        return transformers.LlavaOnevisionConfig(
            vision_config=siglip, text_config=text, image_token_index=IMAGE, video_token_index=51,
            image_grid_pinpoints=GRIDS,
        ), tiles  # fmt: skip
    if family == "internvl":
        vision = {**SMALL, "image_size": [28, 28], "patch_size": [14, 14], "model_type": "internvl_vision"}
        pieces = [{"pixel_values": noise(2, 3, 28, 28)}, one[1]]
        return transformers.InternVLConfig(
            vision_config=vision, text_config={**TEXT, "model_type": "qwen2"}, image_token_id=IMAGE
        ), pieces
    if family == "gemma3":
        text = {**TEXT, "head_dim": 8, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
        vision = {**siglip, "image_size": 56}
        big = [{"pixel_values": noise(1, 3, 56, 56)}, {"pixel_values": 2 * noise(1, 3, 56, 56)}]
        return transformers.Gemma3Config(
            text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=IMAGE, boi_token_index=51,
            eoi_token_index=52,
        ), big  # fmt: skip
    vision = {**SMALL, "image_size": 28, "patch_size": 14, "model_type": "smolvlm_vision"}
    text = {**TEXT, "model_type": "llama"}
    tiled = [{"pixel_values": noise(1, n, 3, 28, 28), "pixel_attention_mask": torch.ones(1, n, 28, 28)} for n in (3, 1)]
    return transformers.SmolVLMConfig(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=IMAGE, pad_token_id=0
    ), tiled


@dataclass
class Case:
    """Model with prompts and sampled responses."""

    path: Path
    policy: GeneralPolicy
    prompts: list[Prompt]
    responses: list[Response]

    def given(self, k: int, ids: list[int]) -> dict[str, Any]:
        """Returns transformers' inputs for a prompt and the response so far."""
        prompt = self.prompts[k]
        tokens = torch.cat([prompt.ids, torch.tensor(ids, dtype=torch.long)])[None]
        found = {**prompt.inputs, "input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if "token_type_ids" in found:
            found["token_type_ids"] = torch.nn.functional.pad(found["token_type_ids"], (0, len(ids)))
        return found

    def plain(self, k: int, ids: list[int]) -> Any:
        """Returns transformers' log-probabilities of a response's tokens, from the logits of all tokens."""
        logits = self.policy.vlm(**self.given(k, ids)).logits[0, len(self.prompts[k].ids) - 1 : -1].float()
        allowed = logits.index_fill(1, torch.tensor(self.policy.never), -torch.inf).log_softmax(1)
        return allowed.gather(1, torch.tensor(ids)[:, None])[:, 0]


GENERAL = [name for name, family in FAMILIES.items() if family.policy is GeneralPolicy]


@pytest.fixture(params=GENERAL)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=GENERAL)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp(request.param)
    config, pictures = made(request.param)
    torch.manual_seed(0)
    vlm = transformers.AutoModelForImageTextToText.from_config(config)
    for parameter in vlm.parameters():  # at their usual size every next token is as likely
        parameter.data.mul_(3.0)
    vlm.generation_config = transformers.GenerationConfig(eos_token_id=END, pad_token_id=0)
    vlm.save_pretrained(path)
    policy = load_policy(Model(path=str(path), dtype="float32"), 1.0, ONE)
    assert isinstance(policy, GeneralPolicy)
    prompts = []
    for k, inputs in enumerate(pictures):
        with torch.no_grad():
            found = policy.vlm.model.get_image_features(**inputs)
        features = getattr(found, "pooler_output", found)
        number = sum(each.shape[:-1].numel() for each in features)
        ids = torch.tensor([2, *[5 + j for j in range(2 + 3 * k)], *[IMAGE] * number, 7, 9 + k])
        if request.param == "gemma3":  # its image tokens see one another
            inputs = {**inputs, "token_type_ids": (ids == IMAGE).long()[None]}
        prompts.append(Prompt(k, PromptRecord.of([], "1", ""), ids, inputs))
    prompts.append(Prompt(2, PromptRecord.of([], "1", ""), torch.tensor([2, 11, 12, 13]), {}))  # without a picture
    made_case = Case(path, policy, prompts, [])
    sampler = PolicySampler(policy, ONE.device, LONGEST, 8)
    made_case.responses = sampler.sample(encode(policy, prompts, ONE.device), 3, GROUP, 1.0)
    return made_case


def test_log_probabilities_and_gradients_are_those_of_transformers(case: Case) -> None:
    encoded = encode(case.policy, case.prompts, ONE.device)
    trained = {name: each for name, each in case.policy.vlm.named_parameters() if each.requires_grad}
    assert 0 < len(trained) < len(list(case.policy.parameters()))  # the tower is frozen
    assert not any(word in name for name in trained for word in ("vision", "projector", "connector", "newline"))
    for k, prompt in enumerate(encoded):
        ids = [each.ids[: 2 + 2 * i] for i, each in enumerate(case.responses[k * GROUP : (k + 1) * GROUP])]
        row = prompt.row(ids)
        batch = case.policy.batch([row], ONE.device)
        assert batch.tokens == row.length
        found, wanted = case.policy(batch).logprob, torch.cat([case.plain(k, each) for each in ids])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
        own, theirs = (
            torch.autograd.grad(each.sum(), list(trained.values()), allow_unused=True) for each in (found, wanted)
        )
        for one, other in zip(own, theirs, strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                assert (one - other).norm() <= 1e-4 * (other.norm() + 1e-2)


def test_a_rank_without_responses_passes_the_types_of_tokens(case: Case) -> None:
    batch = case.policy.idle_batch(ONE.device)
    assert batch.inputs.keys() - {"input_ids", "attention_mask"} == {"token_type_ids"} & case.prompts[0].inputs.keys()
    assert torch.isfinite(case.policy(batch).logprob).all()


def test_greedy_answers_equal_generate(case: Case) -> None:
    found = PolicySampler(case.policy, ONE.device, LONGEST, 8).sample(
        encode(case.policy, case.prompts, ONE.device), 0, 1, 0.0
    )
    for k, response in enumerate(found):
        given = case.given(k, [])
        settings = {"max_new_tokens": LONGEST, "do_sample": False, "suppress_tokens": case.policy.never}
        with torch.no_grad():
            made = case.policy.vlm.generate(**given, **settings)
        assert response.ids == made[0, given["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_the_cache_may_have_either_name(case: Case, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renames the model's argument as in an older or a newer release of transformers."""
    forward = case.policy.vlm.model.forward
    signature = inspect.signature(forward)
    (theirs,) = {"cache", "past_key_values"} & set(signature.parameters)

    def renamed(**given: Any) -> Any:
        assert theirs == name or theirs not in given
        return forward(**{theirs if key == name else key: value for key, value in given.items()})

    parameters = [each.replace(name=name) if each.name == theirs else each for each in signature.parameters.values()]
    renamed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    monkeypatch.setattr(case.policy.vlm.model, "forward", renamed)
    sampler = PolicySampler(case.policy, ONE.device, LONGEST, 8)
    found = sampler.sample(encode(case.policy, case.prompts, ONE.device), 3, GROUP, 1.0)
    assert [each.ids for each in found] == [each.ids for each in case.responses]


@pytest.mark.parametrize("rank", [0, 2])
def test_bfloat16_is_near_float32(case: Case, rank: int) -> None:
    """Checks a single process with float32 weights and autocast, or with frozen weights and adapters without effect."""
    if rank:
        pytest.importorskip("peft")
    policy = load_policy(Model(path=str(case.path), dtype="bfloat16"), 1.0, ONE, lora=Lora(rank=rank))
    policy.train()
    for k, (prompt, exact) in enumerate(
        zip(encode(policy, case.prompts, ONE.device), encode(case.policy, case.prompts, ONE.device), strict=True)
    ):
        ids = [each.ids for each in case.responses[k * GROUP : (k + 1) * GROUP]]
        found = policy(policy.batch([prompt.row(ids)], ONE.device)).logprob
        found.sum().backward()
        with torch.no_grad():
            wanted = case.policy(case.policy.batch([exact.row(ids)], ONE.device)).logprob
        assert (found.detach() - wanted).abs().mean() < 0.1 * wanted.abs().mean()


def test_a_run_with_pictures_of_a_processor(lab: Any, tiny: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.build(lab.folder / "llava", "llava")
    assert main(lab.run("run", f"model.path={path}", "run.steps=2", "data.prompts_per_step=2")) == 0
    line = json.loads((lab.folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["kl"] > 0
    assert line["updates_left_out"] == 0
    before, after = (safetensors.load_file(folder / "model.safetensors") for folder in (path, lab.folder / "run/model"))
    moved = {name for name, each in before.items() if not torch.equal(each.bfloat16(), after[name])}
    assert moved
    assert not any("vision_tower" in name or "projector" in name for name in moved)
    capsys.readouterr()
    assert main(lab.run("fast", f"model.path={path}", "rollout.engine=vllm")) == 2
    assert 'rollout.engine = "vllm" does not support models of the kind llava' in capsys.readouterr().err
    asked = [
        "qwen2_5_vl_7b",
        "--set",
        f"model.path={path}",
        "--set",
        "rollout.engine=transformers",
        "--gpus",
        "RTX4090",
    ]
    assert plan([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    sources = read_prompts(lab.folder / "train.jsonl", str(lab.folder / "images"))
    (prompt,) = Prompts(sources, load_processor(str(path)), 0).take([0])
    picture = picture_of(Model(path=str(path)), 640, 480, answer["shape"]["patch"])
    assert picture.tokens == (prompt.ids == json.loads((path / "config.json").read_text())["image_token_index"]).sum()
    assert picture.pixels == 4 * prompt.inputs["pixel_values"].numel()
    assert "picture features" not in answer["memory"]["update"]
    checked = [sys.executable, "-m", "scapo_train.plan", *asked[:-1], "4xRTX4090", "--verify", "--json"]
    offloaded = [*checked, "--set", "optim.offload=true"]
    done = subprocess.run(
        offloaded, capture_output=True, text=True
    )  # in a process of its own, because PyTorch keeps the shapes of rank 0
    assert done.returncode == 0, done.stderr
    sharded = json.loads(done.stdout)
    kinds = sharded["memory"]["logprob"]
    assert sharded["measured"]["logprob"] == pytest.approx(sum(kinds.values()), rel=0.15)
    assert kinds["pixels"] == 32 * 8 * picture.pixels  # of 32 prompts with 8 responses each
    assert plan([*asked, "--pairs"]) == 0
    (path / "preprocessor_config.json").unlink()
    (path / "processor_config.json").unlink()
    assert plan([*asked, "--image", "320x240"]) == 2
    assert f"scapo_train.plan: cannot load {path}: " in capsys.readouterr().err


def test_another_attention_is_compared_at_the_start(
    lab: Any, tiny: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.build(lab.folder / "llava", "llava")
    small = (f"model.path={path}", "run.steps=1", "data.prompts_per_step=2", "run.export=false")
    for name in ("sdpa", "eager"):
        assert main(lab.run(name, *small, f"model.attention={name}")) == 0
    assert "model.attention = eager: log-probabilities differ from those of sdpa by " in capsys.readouterr().err
    one, other = (
        json.loads((lab.folder / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in ("sdpa", "eager")
    )
    assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)

    def refused(run: str, *changes: str) -> str:
        assert main(lab.run(run, *changes)) == 2
        return capsys.readouterr().err

    said = refused("shared", "model.attention=eager")
    assert 'model.attention = "eager" is not supported for this model: Qwen2.5-VL uses its own' in said
    said = refused("missing", *small, "model.attention=flash_attention_2", "model.dtype=bfloat16")
    assert "needs flash_attn: pip install flash-attn --no-build-isolation" in said
    said = refused("narrow", *small, "model.attention=flash_attention_2")
    assert 'model.attention = "flash_attention_2" computes in bfloat16, not in float32' in said
    kernel = "transformers.models.llama.modeling_llama.eager_attention_forward"
    module, _, function = kernel.rpartition(".")
    real = getattr(importlib.import_module(module), function)
    monkeypatch.setattr(kernel, lambda *given, scaling, **rest: real(*given, scaling=1.1 * scaling, **rest))
    said = refused("wrong", *small, "model.attention=eager")
    assert re.search(r'"eager" computes different values \(log-probabilities \S+ nats at most from those of sdpa', said)
    assert 'set it to "sdpa"' in said

    def fails(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("no such\nkernel")

    monkeypatch.setattr(kernel, fails)
    said = refused("failed", *small, "model.attention=eager")
    assert 'model.attention = "eager" fails on this model or device: no such kernel; set it to "sdpa"' in said


@pytest.mark.parametrize(
    ("dtype", "checkpointing", "rank", "attention"),
    [
        ("bfloat16", True, 0, "sdpa"),
        ("bfloat16", False, 0, "sdpa"),
        ("float32", True, 0, "sdpa"),
        ("float32", False, 4, "sdpa"),
        ("bfloat16", True, 4, "sdpa"),
        ("float32", True, 0, "eager"),
    ],
)
def test_the_measured_peak_is_within_a_tenth_of_the_plan(
    family: str,
    dtype: str,
    checkpointing: bool,
    rank: int,
    attention: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peak_of: Callable[[Callable[[], object]], float],
) -> None:
    """Compares the peaks of a forward and backward pass over a prompt with three responses, and of a pass without
    gradients.
    """
    if rank:
        pytest.importorskip("peft")
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(logprob.CHUNK_ELEMENTS, device, 2**15)
    monkeypatch.delitem(logprob.KEPT_ELEMENTS, "cpu")  # what is planned is a GPU
    config, pictures = made(family)
    text = config.get_text_config()
    for name, value in {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 5,
                        "num_attention_heads": 8, "num_key_value_heads": 2}.items():  # fmt: skip
        setattr(text, name, value)
    text.max_position_embeddings = 512
    if getattr(text, "head_dim", None):
        text.head_dim = 32
    if getattr(text, "layer_types", None):
        text.layer_types = (text.layer_types * 3)[:5]
    config.save_pretrained(tmp_path)
    torch.manual_seed(0)
    vlm = transformers.AutoModelForImageTextToText.from_config(
        model_config(str(tmp_path)), attn_implementation=attention
    )
    number, lora = getattr(torch, dtype), Lora(rank=rank)
    policy = policy_of(vlm, [END], 1.0)
    for parameter in policy.tower:
        parameter.requires_grad_(False)
    if rank:
        add_adapters(vlm.to(number), policy.language_model, lora, 0)
    if checkpointing:
        keep_inputs_only(vlm)
    if dtype == "bfloat16":
        policy.compute = lambda: torch.autocast("cpu", torch.bfloat16)  # type: ignore[assignment]
    for parameter in policy.tower:
        if not (FAMILIES[family].one_dtype and rank == 0):
            parameter.data = parameter.data.to(number)
    inputs = pictures[0]
    with torch.no_grad(), policy.compute():
        found = policy.vlm.model.get_image_features(**inputs)
    count = sum(each.shape[:-1].numel() for each in getattr(found, "pooler_output", found))
    ids = torch.cat([torch.full((count,), IMAGE), torch.arange(130 - count) % 40 + 3])
    if family == "gemma3":
        inputs = {**inputs, "token_type_ids": (ids == IMAGE).long()[None]}
    responses = [[3 + (k * t) % 40 for t in range(60 - k % 2)] for k in (1, 2, 3)]
    batch = policy.batch([GeneralRow(ids, inputs, responses)], ONE.device)
    shape, numbers = shape_of(str(tmp_path)), inputs["pixel_values"].numel()
    monkeypatch.setattr(jobs, "picture_of", lambda *_: Picture(count, numbers // shape.patch, 4 * numbers))
    settings = Config(
        model=Model(
            path=str(tmp_path),
            dtype=dtype,  # type: ignore[arg-type]
            gradient_checkpointing=checkpointing,
            attention=attention,  # type: ignore[arg-type]
        ),
        lora=lora,
        rollout=Rollout(group=3, max_new_tokens=60),
        data=Data(prompts_per_step=1),
        optim=Optim(micro_batch_tokens=100_000, inner_epochs=2),
        loss=Loss(kl=0.0),
    )
    monkeypatch.setattr(verify, "prompt_of", lambda *_: (ids, inputs))
    job = Job(settings, shape, "H100", 1, Workload((28, 28), 130 - count, 60, 1))
    memory = GeneralMemory(job)
    two = replace(job, config=replace(settings, data=Data(prompts_per_step=2)))  # a pass finds the gradients of another
    counted, planned = verify.measure(two), plan_of(two)
    assert counted.update == pytest.approx(planned.without_vllm("update"), rel=0.1)
    assert counted.logprob == pytest.approx(planned.without_vllm("logprob"), rel=0.05)
    if family == "llava":
        pairs = replace(two, pairs=True)
        counted, planned = verify.measure(pairs), plan_of(pairs)
        assert counted.update == pytest.approx(planned.without_vllm("update"), rel=0.1)
        assert counted.logprob == pytest.approx(planned.without_vllm("logprob"), rel=0.15)

    def backward() -> None:
        policy(batch).logprob.sum().backward()

    policy.train()
    measured = peak_of(lambda: (backward(), backward()))
    assert sum(memory._at_update().values()) == pytest.approx(measured, rel=0.1)
    policy.eval()
    with torch.no_grad():
        measured = peak_of(lambda: policy(batch))
    assert sum(memory._at_logprob().values()) == pytest.approx(measured, rel=0.1)


def test_adapters_go_into_the_language_model(case: Case) -> None:
    pytest.importorskip("peft")
    policy = load_policy(Model(path=str(case.path), dtype="float32"), 1.0, ONE, lora=Lora(rank=2))
    trained = [name for name, each in policy.vlm.named_parameters() if each.requires_grad]
    assert len(trained) == 2 * 2 * 7
    assert not any("vision" in name for name in trained)
