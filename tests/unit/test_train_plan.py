"""The planner: its bytes against tensors that are really there, its FLOPs, and its command."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forty times faster on tiny models
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from scapo_eval.base.errors import InputError, ScapoError  # noqa: E402
from scapo_train import config as configs  # noqa: E402
from scapo_train import logprob  # noqa: E402
from scapo_train.config import Config, Lora, Loss, Model, Optim, Rollout  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families import packing  # noqa: E402
from scapo_train.families.lora import add_adapters  # noqa: E402
from scapo_train.families.packing import PackedBatch, PackedRow, batch_of  # noqa: E402
from scapo_train.families.shared import SharedPolicy  # noqa: E402
from scapo_train.model import keep_inputs_only  # noqa: E402
from scapo_train.plan import planner  # noqa: E402
from scapo_train.plan.__main__ import main  # noqa: E402
from scapo_train.plan.general import without_data  # noqa: E402
from scapo_train.plan.hardware import GIB, GPUS, kind_of, matrix_rate, parse_gpus  # noqa: E402
from scapo_train.plan.job import Assumptions, Job, Pass, Workload  # noqa: E402
from scapo_train.plan.memory import MOMENTS, Memory  # noqa: E402
from scapo_train.plan.planner import memory_of as planned_memory  # noqa: E402
from scapo_train.plan.planner import plan, remedies  # noqa: E402
from scapo_train.plan.seconds import Seconds, decode_seconds  # noqa: E402
from scapo_train.plan.shapes import build, model_config, shape_of  # noqa: E402
from scapo_train.plan.verify import LiveBytes, measure  # noqa: E402
from scapo_train.preference.loss import READ, ROWS  # noqa: E402
from scapo_train.preference.update import Example, PairUpdater  # noqa: E402
from scapo_train.update import Updater  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default")]  # torch's and transformers' own warnings are theirs

CHECKOUT = Path(__file__).parents[2]
SEVEN = "Qwen/Qwen2.5-VL-7B-Instruct"
THREE = "Qwen/Qwen2.5-VL-3B-Instruct"
EIGHT = "Qwen/Qwen3-VL-8B-Instruct"
MOE = "a small mixture of experts"
EXPERTS = pytest.mark.skipif(transformers.__version__.startswith("4."), reason="planned with transformers 5")
CHUNK = 2**15
SHARDED = ("weights, float32", "optimizer moments", "reference")
RESTING = ("weights, float32", "optimizer moments", "vision tower", "picture features", "masks")
DTYPES = ("bfloat16", "float32")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# --- against tensors ----------------------------------------------------------------------------------------------


def small(path: str, folder: Path, *, layers: int = 3) -> Path:
    """A folder with the configuration of a mid-size model of the same family."""
    config = model_config(EIGHT if path == MOE else path)
    if path == MOE:
        table = config.to_dict()
        table["text_config"] |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
        for part, kind in ((table, "qwen3_vl_moe"), (table["text_config"], "qwen3_vl_moe_text")):
            part["model_type"] = kind
        del table["vision_config"]["model_type"]
        config = transformers.AutoConfig.for_model(**table)
    text, vision = config.text_config, config.vision_config
    text.vocab_size, text.hidden_size, text.intermediate_size, text.num_hidden_layers = 1000, 256, 704, layers
    text.num_attention_heads, text.num_key_value_heads = 8, 2
    if hasattr(text, "layer_types"):
        text.layer_types = (text.layer_types or [])[:layers] or None
    if "qwen3" in text.model_type:
        text.head_dim = 32
        vision.deepstack_visual_indexes = [0]
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(rope := getattr(text, name, None), dict):
            rope["mrope_section"] = [6, 5, 5]
    vision.depth, vision.hidden_size, vision.intermediate_size, vision.num_heads = 1, 64, 64, 4
    vision.out_hidden_size = 256
    for number, name in enumerate(("image", "video", "vision_start", "vision_end")):
        setattr(config, f"{name}_token_id", number)
    folder.mkdir()
    config.save_pretrained(folder)
    return folder


def job_of(folder: Path, dtype: str, *, checkpointing: bool, rank: int = 0) -> Job:
    """One prompt of 130 tokens with two responses of 60, all in one pass."""
    config = Config(
        model=Model(path=str(folder), dtype=dtype, gradient_checkpointing=checkpointing),  # type: ignore[arg-type]
        lora=Lora(rank=rank),
        rollout=Rollout(group=2, max_new_tokens=60),
        data=replace(Config().data, prompts_per_step=1),
        optim=Optim(micro_batch_tokens=100_000),
        loss=Loss(kl=0.0),
    )
    return Job(config, shape_of(str(folder)), "H100", 1, Workload((280, 280), 30, 60, 1))


def memory_of(job: Job) -> Memory:
    """The planner's formulas, for the kernels of a CPU."""
    memory = planned_memory(job)
    memory.repeats_keys = False  # the CPU's kernel takes a mask and fewer keys than queries
    return memory


def policy_of(job: Job) -> tuple[SharedPolicy, PackedBatch]:
    """A model with random weights, and the pass that the job describes."""
    torch.manual_seed(0)
    path, dtype = job.config.model.path, job.config.model.dtype
    vlm = transformers.AutoModelForImageTextToText.from_config(model_config(path), attn_implementation="sdpa")
    policy = SharedPolicy(vlm.float(), [5], 1.0)
    for parameter in vlm.model.visual.parameters():
        parameter.requires_grad_(False)
    if job.config.lora.rank:
        pytest.importorskip("peft")
        add_adapters(vlm.to(getattr(torch, dtype)), policy.language_model, job.config.lora, 0)
    if job.config.model.gradient_checkpointing:
        keep_inputs_only(vlm)
    if dtype == "bfloat16":
        policy.compute = lambda: torch.autocast("cpu", torch.bfloat16)  # type: ignore[assignment]
    ids = torch.arange(job.prompt_tokens) % 900 + 20
    length = job.config.rollout.max_new_tokens
    responses = [[20 + (k * t) % 900 for t in range(length)] for k in range(1, job.config.rollout.group + 1)]
    row = PackedRow(ids, torch.arange(job.prompt_tokens).expand(3, -1), job.prompt_tokens, None, responses)
    return policy.train(), batch_of([row], torch.device("cpu"))


@pytest.mark.parametrize(
    ("path", "dtype", "rank"),
    [(path, dtype, 0) for path in (SEVEN, EIGHT) for dtype in DTYPES]
    + [(SEVEN, "bfloat16", 4), (EIGHT, "float32", 4)]
    + [pytest.param(MOE, dtype, rank, marks=EXPERTS) for dtype in DTYPES for rank in (0, 4)],
)
def test_a_layer_keeps_as_many_bytes_as_the_plan_says(path: str, dtype: str, rank: int, tmp_path: Path) -> None:
    kept = []
    for layers in (1, 2):
        job = job_of(small(path, tmp_path / f"{layers}", layers=layers), dtype, checkpointing=False, rank=rank)
        policy, batch = policy_of(job)
        weights = {each.untyped_storage().data_ptr() for each in policy.parameters()}
        sizes: dict[int, int] = {}

        def keep(tensor: Any, weights: set[int] = weights, sizes: dict[int, int] = sizes) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            statistics = policy(batch)
        assert math.isfinite(float(statistics.logprob.detach().sum()))
        kept.append(sum(sizes.values()))
    memory = memory_of(job)
    assert batch.ids.shape[1] == memory.passes[0].tokens
    vectors = 2 * 256 + 256 + 2 * 64 if path == SEVEN else 2 * 256 + 2 * 32  # norms and biases stay float32
    vectors += 8 * 256 if path == MOE else 0  # the router is counted with the experts
    of_adapters = (memory.adapters - memory.stack_adapters) // 2
    trained = of_adapters if rank else job.shape.layer - job.shape.stacked - vectors
    copies = 2 * trained if dtype == "bfloat16" else 0
    tables = 0
    if transformers.__version__.startswith("4.") and path == SEVEN:  # there each layer has rotary tables of its own
        tables = 2 * 4 * memory.passes[0].tokens * job.shape.head_dim
    assert kept[1] - kept[0] == pytest.approx(memory._saved(memory.passes[0]) + copies + tables, rel=1e-3)


@pytest.mark.parametrize(
    ("path", "dtype", "checkpointing", "rank"),
    [(path, dtype, kept, 0) for path in (SEVEN, THREE, EIGHT) for dtype in DTYPES for kept in (True, False)]
    + [(SEVEN, "bfloat16", True, 8), (EIGHT, "float32", False, 8)]
    + [
        pytest.param(MOE, dtype, kept, rank, marks=EXPERTS)
        for dtype in DTYPES
        for kept in (True, False)
        for rank in (0, 8)
    ],
)
def test_the_measured_peak_of_an_update_is_within_a_tenth_of_the_plan(
    path: str,
    dtype: str,
    checkpointing: bool,
    rank: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peak_of: Callable[[Callable[[], object]], float],
) -> None:
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(logprob.CHUNK_ELEMENTS, device, CHUNK)
    monkeypatch.delitem(logprob.KEPT_ELEMENTS, "cpu")  # what is planned is a GPU
    job = job_of(small(path, tmp_path / "model"), dtype, checkpointing=checkpointing, rank=rank)
    policy, batch = policy_of(job)
    optimizer = torch.optim.AdamW([each for each in policy.parameters() if each.requires_grad], fused=True)

    def backward() -> None:
        policy(batch).logprob.sum().backward()

    def two_micro_batches() -> None:
        backward()
        backward()

    for parameter in optimizer.param_groups[0]["params"]:  # the moments are there from the first step on
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    memory = memory_of(job)
    assert peak_of(two_micro_batches) == pytest.approx(sum(memory._at_update().values()), rel=0.1)
    assert peak_of(optimizer.step) < 0.01 * memory._at_update()["gradients"]
    optimizer.zero_grad()
    policy.eval()
    with torch.no_grad():
        measured = peak_of(lambda: policy(batch))
    old = replace(job, config=replace(job.config, optim=replace(job.config.optim, inner_epochs=2)))
    assert measured == pytest.approx(sum(memory_of(old)._at_logprob().values()), rel=0.2)


@pytest.mark.parametrize(
    ("loss", "path", "dtype", "checkpointing", "rank"),
    [
        ("dpo", SEVEN, "bfloat16", True, 0), ("dpo", SEVEN, "float32", False, 0), ("mdpo", EIGHT, "float32", True, 0),
        ("symmpo", THREE, "bfloat16", False, 0), ("symmpo", SEVEN, "bfloat16", True, 8),
    ],
)  # fmt: skip
def test_the_measured_peak_of_an_update_on_pairs_is_within_a_tenth_of_the_plan(
    loss: str,
    path: str,
    dtype: str,
    checkpointing: bool,
    rank: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peak_of: Callable[[Callable[[], object]], float],
) -> None:
    """Two pairs, and then two more: what the trainer of pairs itself computes, its reference among it."""
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(logprob.CHUNK_ELEMENTS, device, CHUNK)
    monkeypatch.delitem(logprob.KEPT_ELEMENTS, "cpu")
    job = job_of(small(path, tmp_path / "model"), dtype, checkpointing=checkpointing, rank=rank)
    length = job.config.rollout.max_new_tokens
    read = READ[loss]
    budget = 2 * (read[0] * job.prompt_tokens + read[1] * (length - 1))  # two pairs in a pass
    job = replace(
        changed(
            job, preference={"loss": loss}, data={"prompts_per_step": 4}, optim={"micro_batch_tokens": budget},
            run={"samples": 0},
        ),
        pairs=True,
    )  # fmt: skip
    policy, _ = policy_of(job)
    reference = policy if rank else policy_of(changed(job, lora={"rank": 0}))[0]
    if not rank:
        reference.to(getattr(torch, dtype)).requires_grad_(False)
        reference.compute = nullcontext
    updater = PairUpdater(job.config, policy, reference, ProcessGroup(0, 1, torch.device("cpu")))
    ids, positions = torch.arange(job.prompt_tokens) % 900 + 20, torch.arange(job.prompt_tokens).expand(3, -1)
    responses = [[20 + (k * t) % 900 for t in range(length)] for k in range(1, 4)]
    rows = [PackedRow(ids, positions, job.prompt_tokens, None, responses[:count]) for count in ROWS[loss]]
    example = Example(rows, [length] * read[1])
    trained = [each for each in policy.parameters() if each.requires_grad]
    measured = peak_of(lambda: updater.backward([example] * 4, 4.0))
    assert all(each.grad is not None for each in trained)
    memory = memory_of(job)
    assert memory.passes[0].tokens == budget
    assert sum(memory._at_update().values()) == pytest.approx(measured, rel=0.1)
    with torch.no_grad():
        measured = peak_of(lambda: updater.sums(reference, [example] * 2))
    assert sum(memory._at_logprob().values()) == pytest.approx(measured, rel=0.2)
    found = memory.bytes_at("logprob")
    assert found["gradients"] == 4 * sum(each.numel() for each in trained)  # of the passes before
    assert "vLLM" not in found


# --- FLOPs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seven() -> Job:
    """The paper's configuration on eight GPUs, with the same micro-batches in all tests."""
    config = configs.load("qwen2_5_vl_7b", ["optim.micro_batch_tokens=8192"])
    return Job(config, shape_of(config.model.path), "H100", 8)


def changed(job: Job, **sections: dict[str, Any]) -> Job:
    """The job with other settings."""
    parts = {name: replace(getattr(job.config, name), **values) for name, values in sections.items()}
    return replace(job, config=replace(job.config, **parts))


def test_what_rests_on_a_gpu_is_exact(seven: Job) -> None:
    resting = plan(seven).memory["update"]
    trained = 8_292_166_656 - 676_550_144
    assert seven.shape.language == trained == 7_615_616_512
    assert resting["weights, float32"] == 4 * trained / 8
    assert resting["optimizer moments"] == 8 * trained / 8
    assert resting["gradients"] == 4 * trained / 8
    assert resting["reference"] == 2 * trained / 8
    assert resting["vision tower"] == 2 * 676_550_144
    eight_bit = plan(changed(seven, optim={"optimizer": "adamw8bit"})).memory["update"]["optimizer moments"]
    assert eight_bit / resting["optimizer moments"] == pytest.approx(0.254, abs=0.001)


def test_one_gpu_holds_the_122_gigabytes_of_the_field_notes_and_no_more(seven: Job) -> None:
    one = plan(replace(seven, count=1, kind="H200")).memory["update"]
    assert sum(one[kind] for kind in ("weights, float32", "optimizer moments", "gradients")) / 1e9 == pytest.approx(
        122, abs=0.5
    )


def test_adapters_take_the_place_of_weights_moments_gradients_and_reference(seven: Job) -> None:
    full, lora = seven, changed(seven, lora={"rank": 16})
    per_layer = 2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944)  # of q and o, k and v, the MLP
    assert Memory(lora).trained == 28 * 16 * per_layer == 40_370_176
    resting = plan(lora).memory["update"]
    assert resting["weights, frozen"] == 2 * full.shape.language / 8
    assert resting["optimizer moments"] == 2 * resting["gradients"] == 8 * 40_370_176 / 8
    assert "reference" not in resting
    seconds, before = plan(lora).seconds, plan(full).seconds
    assert seconds["update"] < before["update"]
    assert seconds["logprob"] == pytest.approx(before["logprob"], rel=0.01)
    some = changed(lora, lora={"targets": ("q_proj", "v_proj")})
    assert Memory(some).trained == 28 * 16 * (2 * 3584 + 3584 + 512)


def test_each_setting_moves_its_own_kind(seven: Job) -> None:
    base = plan(seven).memory
    on_host = plan(changed(seven, model={"reference": "cpu"})).memory
    assert all("reference" not in on_host[moment] for moment in MOMENTS)
    no_kl = plan(changed(seven, loss={"kl": 0.0}))
    assert "reference" not in no_kl.memory["update"]
    assert no_kl.seconds["logprob"] == 0
    full = plan(changed(seven, model={"gradient_checkpointing": False}))
    assert full.memory["update"]["activations"] > 5 * base["update"]["activations"]
    assert full.seconds["update"] < plan(seven).seconds["update"]
    smaller = plan(changed(seven, optim={"micro_batch_tokens": 2048})).memory
    assert sum(smaller["update"].values()) < sum(base["update"].values())
    transformers_engine = plan(changed(seven, rollout={"engine": "transformers"})).memory["rollout"]
    assert "vLLM" not in transformers_engine
    rows, length = 16 * 8, 391 + 30 + 512
    cache = rows * length * 28 * 2 * 4 * 128 * 2
    assert transformers_engine["cache of keys and values"] == pytest.approx(cache * 29 / 28, rel=1e-6)
    assert transformers_engine["working copies"] == 2 * seven.shape.language
    assert base["rollout"]["vLLM"] == 0.45 * GPUS["H100"].memory


def test_more_gpus_take_fewer_bytes_and_seconds_each(seven: Job) -> None:
    plans = [plan(replace(seven, count=count)) for count in (2, 4, 8, 16, 32)]
    for kind in ("weights, float32", "optimizer moments", "gradients", "reference"):
        sizes = [each.memory["update"][kind] for each in plans]
        assert sizes == pytest.approx([sizes[0] / 2**k for k in range(5)])
    assert [each.peak for each in plans] == sorted((each.peak for each in plans), reverse=True)
    assert [each.seconds["update"] for each in plans] == sorted(
        (each.seconds["update"] for each in plans), reverse=True
    )
    assert all(any("between machines" in note for note in each.notes) == (k > 2) for k, each in enumerate(plans))


def test_the_flops_of_an_update(seven: Job) -> None:
    seconds = Seconds(replace(seven, work=Workload((640, 480), 30, 201, 5000)))
    tokens = 16 * (421 + 8 * 200)
    linear = 2 * tokens * seven.shape.layer * 28
    output = 2 * 16 * 8 * 201 * 152064 * 3584
    assert linear + output < seconds.forward_flops < 1.1 * (linear + output)  # attention is the rest
    slow, fast = (plan(replace(seven, assume=Assumptions(efficiency=each))) for each in (0.2, 0.4))
    assert slow.seconds["update"] / fast.seconds["update"] == pytest.approx(2, rel=0.05)
    assert fast.mfu == pytest.approx(0.4 * 3 / 4, rel=0.08)  # recomputation does not count as progress


@EXPERTS
def test_a_token_is_multiplied_with_the_experts_that_it_goes_to(tmp_path: Path) -> None:
    job = job_of(small(MOE, tmp_path / "model"), "bfloat16", checkpointing=True, rank=4)
    shape, stacks = job.shape, 8 * 3 * 96 * 256
    assert (shape.stacked, shape.active) == (stacks, shape.layer - stacks * 6 // 8)
    policy, _ = policy_of(job)
    trained = sum(each.numel() for each in policy.parameters() if each.requires_grad)
    assert Memory(job).trained == trained == Memory(job).stack_adapters + 3 * 4 * 2 * (512 + 320)
    full = changed(job, lora={"rank": 0})
    per_token = (Seconds(job).forward_flops - Seconds(full).forward_flops) / (2 * (job.prompt_tokens + 2 * 59))
    assert per_token == trained - Memory(job).stack_adapters * 6 // 8
    micro: Any = SimpleNamespace(batch=SimpleNamespace(tokens=5, targets=torch.zeros(2)), owners=[0])
    updater = Updater(full.config, policy_of(full)[0], None, None, ProcessGroup(0, 1, torch.device("cpu")), 1)  # type: ignore[arg-type]
    assert updater.flops([[micro]]) == 6 * (5 * shape.active * shape.layers + 2 * shape.embedding)


def test_a_pass_is_what_the_trainer_cuts() -> None:
    assert Pass.within(8192, 421, 201, 8, 16) == Pass(4, 32, 421, 201)
    assert Pass.within(8192, 421, 201, 8, 3) == Pass(3, 24, 421, 201)
    assert Pass.within(1000, 421, 201, 8, 16) == Pass(1, 2, 421, 201)
    assert Pass.within(10, 421, 201, 8, 16) == Pass(1, 1, 421, 201)
    assert Pass(4, 32, 421, 201).tokens == 4 * 421 + 32 * 200


def test_an_optimizer_that_needs_more_micro_batch_than_it_has_is_told(seven: Job) -> None:
    assert not plan(seven).notes or "smallest pass" not in plan(seven).notes[0]
    assert any("smallest pass" in note for note in plan(changed(seven, optim={"micro_batch_tokens": 100})).notes)


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (1920, 1080), (333, 517), (100, 90), (28, 28), (4000, 300)])
def test_a_picture_has_as_many_tokens_as_qwens_own_resizing_gives(size: tuple[int, int], seven: Job) -> None:
    module = None
    for name in ("image_processing_pil_qwen2_vl", "image_processing_qwen2_vl"):  # transformers 5 and 4
        with suppress(ImportError):
            module = module or importlib.import_module(f"transformers.models.qwen2_vl.{name}")
    assert module is not None
    bounds = {"min_pixels": 56 * 56, "max_pixels": 1280 * 28 * 28}
    job = replace(changed(seven, model=bounds), work=Workload(size))
    height, width = module.smart_resize(size[1], size[0], factor=28, **bounds)
    assert job.image_tokens == (height // 28) * (width // 28)


def test_published_steps_are_within_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the table of docs/lab/training.md, and that 7 of 8 steps without fitted constants are within 30 %."""
    root = Path(__file__).resolve().parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    steps = importlib.import_module("published_steps")
    rows, assume = steps.published(), Assumptions()
    assert steps.table(rows, assume) in (root / "docs" / "lab" / "training.md").read_text()
    fitted = steps.fit(rows)
    assert (fitted.efficiency, fitted.response) == pytest.approx((assume.efficiency, assume.response), rel=0.005)
    assert fitted.efficiency == pytest.approx(assume.efficiency, abs=5e-4)
    assert fitted.response == pytest.approx(assume.response, abs=5e-5)
    others = {row.name: sum(steps.phases(row, assume).values()) / row.seconds for row in rows if not row.fitted}
    assert len(others) == 8
    assert sum(abs(ratio - 1) < 0.3 for ratio in others.values()) == 7
    assert max(abs(ratio - 1) for ratio in others.values()) < 0.31
    ranges = [1 / (1 + assume.error) <= ratio <= 1 / (1 - assume.error) for ratio in others.values()]
    assert all(ranges)  # as the plan prints it


@pytest.mark.parametrize("size", ["3B", "7B", "32B"])
def test_published_steps_are_estimated_as_those_of_a_plan(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares the formulas on a job that both can describe: one response per prompt, on one GPU."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    steps = importlib.import_module("published_steps")
    prompt, mean, longest, micro, number = 350, 200, 320, 4, 64
    path = f"Qwen/Qwen2.5-VL-{size}-Instruct"
    row = steps.Step(
        "", "", steps.qwen(path), "H100", 1, number, prompt + mean, longest, (micro, micro), 1, 0.0, mini=number,
        prompt=prompt,
    )  # fmt: skip
    settings = [
        f"model.path={path}", f"data.prompts_per_step={number}", "rollout.group=1", "rollout.gpu_memory=0.9",
        f"rollout.max_new_tokens={longest}", f"optim.micro_batch_tokens={micro * (prompt + mean - 1)}",
    ]  # fmt: skip
    work = Workload(image=(28, 28), prompt_tokens=prompt - 1, response_tokens=mean)
    job = Job(configs.load("qwen2_5_vl_7b", settings), shape_of(path), "H100", 1, work, memory=1e12)
    planned, expected = Seconds(job).seconds(), steps.phases(row, job.assume)
    reading = 2 * number * prompt * job.shape.layer * job.shape.layers / (job.gpu.flops * job.assume.efficiency)
    assert planned["rollout"] - reading == pytest.approx(expected["rollout"], rel=1e-3)
    # without the output layer for the tokens of a prompt, and with the optimizer step
    assert planned["update"] == pytest.approx(expected["update"], rel=0.04)
    assert planned["logprob"] == pytest.approx(expected["logprob"] / 2, rel=0.04)  # twice: of two models
    assert planned["host"] == pytest.approx(expected["host"], rel=0.01)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a plan asks no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    "arguments",
    [
        ["qwen2_5_vl_7b", "--gpus", "8xH100"],
        ["qwen2_5_vl_7b", "--gpus", "8 x A100-80GB"],
        ["qwen2_5_vl_3b_80gb", "--gpus", "H100"],
        ["qwen2_5_vl_3b_80gb", "--gpus", "1xa100-80", "--set", "rollout.engine=transformers"],
        ["qwen3_vl_8b", "--gpus", "8xh100"],
        ["qwen2_5_vl_7b", "--gpus", "H100", "--lora", "16"],
        ["qwen2_5_vl_3b_80gb", "--gpus", "RTX4090", "--lora", "16", "--set", "rollout.engine=transformers"],
    ],
)
def test_the_shipped_configurations_fit_the_gpus_they_name(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "GiB: fits" in text
    assert "312 steps" in text
    assert "DOES NOT FIT" not in text
    if arguments == ["qwen2_5_vl_7b", "--gpus", "8xH100"]:  # as the tutorial shows it
        tutorial = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "train.md"
        assert re.search(r"```text\n(.*?)\n```", tutorial.read_text())[1] in text


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    "arguments",
    [
        ["qwen2_5_vl_7b", "--gpus", "1xH200"],
        ["qwen2_5_vl_7b", "--gpus", "4xRTX4090"],
        ["qwen2_5_vl_3b_80gb", "--gpus", "1xL40S"],
        ["qwen2_5_vl_7b", "--gpus", "8xA100-40"],
        [
            "qwen2_5_vl_7b", "--gpus", "8xL40S", "--set", "model.gradient_checkpointing=false",
            "--set", "optim.micro_batch_tokens=8192",
        ],
        ["qwen2_5_vl_3b_80gb", "--gpus", "4xRTX4090"],
        ["qwen2_5_vl_7b", "--gpus", "8xH100", "--set", "model.path=Qwen/Qwen2.5-VL-32B-Instruct"],
        ["qwen2_5_vl_7b", "--gpus", "3xA100-40", "--set", "rollout.tensor_parallel=3"],  # not on 4 GPUs
    ],
)  # fmt: skip
def test_every_remedy_works(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["fits"] is False
    assert answer["remedies"]
    for remedy in answer["remedies"]:
        assert main([*arguments, *remedy.split()]) == 0, remedy
    capsys.readouterr()
    assert main(arguments) == 3
    text = capsys.readouterr().out
    assert "DOES NOT FIT" in text
    assert all(f"would fit: {remedy}" in text for remedy in answer["remedies"])


def test_a_larger_share_for_vllm_is_advised(seven: Job) -> None:
    assert "--set rollout.gpu_memory=0.25" in remedies(changed(seven, rollout={"engine": "vllm", "gpu_memory": 0.2}))


def test_a_setting_that_contradicts_another_is_not_advised(seven: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_changes", lambda _: iter([("rollout", "engine", "transformers")]))
    small = changed(seven, rollout={"engine": "vllm", "gpu_memory": 0.2})
    assert "--set rollout.engine=transformers" in remedies(small)
    assert "--set rollout.engine=transformers" not in remedies(changed(small, loss={"engine_correction": 2.0}))


@pytest.mark.usefixtures("_offline")
def test_offloading_fits_32b_on_eight_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["qwen2_5_vl_7b", "--gpus", "8xH100", "--set", "model.path=Qwen/Qwen2.5-VL-32B-Instruct"]
    asked += ["--set", "rollout.tensor_parallel=4", "--set", "optim.micro_batch_tokens=8192"]
    assert main([*asked, "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["host"] == 0
    assert "--set optim.offload=true" in answer["remedies"]
    assert main([*asked, "--set", "optim.offload=true", "--json"]) == 0
    offloaded = json.loads(capsys.readouterr().out)
    gone = {"weights, float32", "optimizer moments", "gradients"}
    assert {*answer["memory"]["update"]} - {*offloaded["memory"]["update"]} == gone
    trained = 32_763_876_352
    assert offloaded["host"] == pytest.approx((1.44 * (4 + 4) + 8) * trained)
    moved = 4 * trained / 8 / (0.7 * 25e9)  # weights to the GPU, once forward, once backward
    assert offloaded["seconds"]["sync"] - answer["seconds"]["sync"] == pytest.approx(moved)
    passes, link = 4, 0.7 * 450e9
    copies = passes * (2 * (2 * trained / link + moved) + 4 * trained / link + 4 * trained / 8 / 2.6e9)
    assert offloaded["seconds"]["update"] == pytest.approx(copies + 28 * trained / (0.7 * 300e9))
    assert main([*asked, "--set", "optim.offload=true"]) == 0
    assert f"host memory: {offloaded['host'] / GIB:.0f} GiB per machine" in capsys.readouterr().out


def test_shards_within_a_machine_take_memory_and_save_network(seven: Job) -> None:
    world, machine = (
        plan(replace(changed(seven, model={"shard_within": within}), count=16)) for within in ("world", "machine")
    )
    one = plan(seven)
    for kind in SHARDED:
        assert machine.memory["update"][kind] == one.memory["update"][kind] == 2 * world.memory["update"][kind]
    assert machine.seconds["sync"] == one.seconds["sync"] < world.seconds["sync"]
    assert machine.seconds["update"] < world.seconds["update"]


def test_workers_share_the_pictures_but_those_that_vllm_reads(seven: Job) -> None:
    one, four = (plan(changed(seven, data={"workers": k})).seconds["host"] for k in (1, 4))
    assert one - four == pytest.approx(16 * 16e-3 * 3 / 4)  # 16 pictures


def test_a_copy_for_checkpoints_is_in_host_memory(seven: Job) -> None:
    copied = plan(changed(seven, run={"async_save": True}))
    assert copied.host == 12 * seven.shape.language
    assert copied.memory == plan(seven).memory


def test_one_offloading_gpu_shards_over_itself(seven: Job) -> None:
    one = plan(replace(changed(seven, optim={"offload": True}, rollout={"engine": "transformers"}), count=1))
    assert one.fits
    assert one.memory["rollout"]["working copies"] == 2 * seven.shape.language
    assert all(math.isfinite(second) for second in one.seconds.values())


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("loss", READ)
def test_a_run_on_pairs_is_planned(loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["qwen2_5_vl_7b", "--gpus", "8xH100", "--pairs", "--set", f"preference.loss={loss}"]
    assert main(asked) == 0
    assert f"128 pairs a step ({loss})" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    memory, seconds = answer["memory"], answer["seconds"]
    assert all("vLLM" not in memory[moment] and memory[moment]["reference"] > 0 for moment in MOMENTS)
    assert seconds["rollout"] == seconds["reward"] == 0
    assert seconds["update"] > seconds["logprob"] > seconds["vision"] > 0
    features = 391 * 3584 * 2 * 16 * (2 if loss == "mdpo" else 1)  # its other pictures are encoded as well
    assert memory["update"]["picture features"] == features
    small = ["qwen2_5_vl_7b", "--gpus", "2xL40S", "--pairs", "--set", f"preference.loss={loss}"]
    assert main([*small, "--json"]) == 3
    for remedy in (remedies := json.loads(capsys.readouterr().out)["remedies"]):
        assert main([*small, *remedy.split()]) == 0, remedy
    assert remedies


def test_what_no_setting_helps_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    big = ["qwen2_5_vl_7b", "--gpus", "1xRTX4090", "--set", "model.path=Qwen/Qwen2.5-VL-72B-Instruct"]
    assert main([*big, "--set", "data.prompts_per_step=1"]) == 3
    text = capsys.readouterr().out
    assert "no setting that this plan considers would help" in text
    assert "is too small for the model's weights" in text
    assert "seconds per step" not in text


def test_json_is_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qwen2_5_vl_7b", "--gpus", "8xH100", "--json", "--response-tokens", "100", "--prompts", "1300"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["steps"] == 80
    assert answer["workload"] == {"image": [640, 480], "prompt_tokens": 30, "response_tokens": 100, "prompts": 1300}
    sums = {moment: sum(kinds.values()) for moment, kinds in answer["memory"].items()}
    assert list(sums) == list(MOMENTS)
    assert answer["peak"] == max(sums.values()) == sums[answer["peak_moment"]]
    assert answer["peak"] < answer["needed"] <= answer["available"] == GPUS["H100"].memory
    assert set(answer["seconds"]) == {"vision", "sync", "rollout", "reward", "logprob", "update", "host"}
    assert answer["gpus"]["count"] == 8


def test_a_larger_micro_batch_is_advised_if_it_saves_time(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["qwen2_5_vl_7b", "--gpus", "8xH100", "--image", "4000x3000", "--set", "optim.micro_batch_tokens=8192"]
    assert main(asked) == 0
    advice = re.search(r"faster: --set (optim.micro_batch_tokens=\d+): (\S+) to", capsys.readouterr().out)
    assert advice
    assert main([*asked, "--set", advice[1]]) == 0
    text = capsys.readouterr().out
    assert f"\n{advice[2]} to " in text
    assert "faster" not in text


BIG = ["--set", "model.path=Qwen/Qwen2.5-VL-32B-Instruct", "--set", "rollout.tensor_parallel=4"]


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("arguments", "advised"),
    [
        (["8xH100"], ""),
        (["8xH100", "--set", "optim.offload=true"], "--set optim.offload=false"),
        (["8xH200", "--response-tokens", "500"], "--set model.gradient_checkpointing=false"),
        (
            ["8xH200", "--pairs", "--image", "1600x1200", "--set", "model.gradient_checkpointing=false"],
            "--set data.workers=4",
        ),
        (["16xH100"], "--set model.shard_within=machine"),
        (["16xH100", *BIG], ""),  # shards of a machine are twice as large
        (
            ["32xH200", *BIG, "--set", "optim.offload=true"],
            "--set optim.offload=false --set model.shard_within=machine",
        ),
    ],
)  # fmt: skip
def test_every_advice_saves_time(arguments: list[str], advised: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["qwen2_5_vl_7b", "--gpus", *arguments]
    assert main([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["faster"] == advised
    total = sum(answer["seconds"].values())
    for count in range(2, len(advised.split()) + 1, 2):  # each setting
        assert main([*asked, *advised.split()[:count], "--json"]) == 0
        faster = json.loads(capsys.readouterr().out)
        assert sum(faster["seconds"].values()) < 0.9 * total
        total = sum(faster["seconds"].values())
    if advised:
        assert answer["faster_seconds"] == total
        assert faster["faster"] == ""
        assert main(asked) == 0
        assert f"  faster: {advised}: " in capsys.readouterr().out


def test_a_server_is_not_planned(seven: Job) -> None:
    with pytest.raises(InputError, match=r"^a plan does not cover rollout\.server; --set rollout\.server=''"):
        changed(seven, rollout={"engine": "vllm", "server": "http://127.0.0.1:8000"})
    changed(seven, rollout={"engine": "vllm", "server": ""})


def test_vllm_asleep_at_level_one_is_copied_to_the_host_and_back(seven: Job) -> None:
    level = {k: changed(seven, rollout={"sleep_level": k}) for k in (1, 2)}
    asleep, discarded = (plan(level[k]).seconds["sync"] for k in (1, 2))
    assert asleep - discarded == pytest.approx(2 * 2 * 8_292_166_656 / 25e9, rel=0.01)


def test_an_update_of_experts_takes_the_measured_seconds(tmp_path: Path) -> None:
    """Four layers of Qwen3-VL-30B-A3B on an H100, 16 prompts with 8 responses of 192 tokens: 1.12 and 1.17 s."""
    text = {
        "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "vocab_size": 151936, "tie_word_embeddings": False,
    }  # fmt: skip
    transformers.Qwen3VLMoeConfig(text_config=text, vision_config={"out_hidden_size": 2048}).save_pretrained(tmp_path)
    config = Config(
        model=Model(path=str(tmp_path)),
        data=replace(Config().data, prompts_per_step=16),
        rollout=Rollout(max_new_tokens=192, group=8),
        optim=Optim(micro_batch_tokens=8192),
        loss=Loss(kl=0.0),
    )
    assume = Assumptions(longest=1.0)
    job = Job(config, shape_of(str(tmp_path)), "H100", 1, Workload((640, 480), 30, 192, 16), assume)
    assert Seconds(job).seconds()["update"] == pytest.approx(1.14, rel=0.03)
    assert Seconds(replace(job, assume=replace(assume, experts=1.0))).seconds()["update"] < 0.5


def test_adapters_alone_are_passed_faster_than_merged_weights(seven: Job) -> None:
    rollout = {"engine": "vllm", "sleep": False}
    alone, merged = (
        plan(changed(seven, lora={"rank": 64}, rollout={**rollout, "adapters": form})).seconds["sync"]
        for form in ("auto", "merge")
    )
    size = 2 * Memory(changed(seven, lora={"rank": 64})).trained
    assert alone == pytest.approx(size * (2 / 25e9 + 1 / (seven.gpu.link * seven.assume.bandwidth)))
    assert alone < 0.5 * merged


def test_decoding_ends_with_the_longest_response() -> None:
    made = {"responses": 100, "mean": 50, "step": 0.01, "row": 0.0}
    assert decode_seconds(**made, longest=400, at_once=100) == pytest.approx(4)
    assert decode_seconds(**made, longest=400, at_once=10) == pytest.approx(5)  # ten at a time: 500 steps
    assert decode_seconds(**{**made, "row": 1e-3}, longest=400, at_once=100) == pytest.approx(4 + 5)
    assert decode_seconds(**made, longest=400, at_once=0) == math.inf


def test_a_local_folder_is_read_without_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small(EIGHT, tmp_path / "model")
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert main(["qwen3_vl_8b", "--gpus", "RTX4090", "--set", f"model.path={folder}", "--json"]) == 0
    shape = json.loads(capsys.readouterr().out)["shape"]
    assert (shape["layers"], shape["hidden"], shape["vocabulary"], shape["deepstack"]) == (3, 256, 1000, 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["qwen2_5_vl_7b", "--gpus", "8xV200"], "--gpus expects COUNTxKIND"),
        (["qwen2_5_vl_7b", "--gpus", "0xH100"], "--gpus expects COUNTxKIND"),
        (["qwen2_5_vl_7b", "--gpus", ""], "--gpus expects COUNTxKIND"),
        (["qwen2_5_vl_7b", "--gpus=-1xH100"], "--gpus expects COUNTxKIND"),
        (["qwen2_5_vl_7b", "--gpus", "200xH100"], "200 GPUs, but data.prompts_per_step is 128"),
        (
            ["qwen2_5_vl_7b", "--gpus", "8xH100", "--set", "rollout.tensor_parallel=3"],
            "rollout.tensor_parallel = 3 does not divide 8 GPUs",
        ),
        (["no_such", "--gpus", "H100"], "no_such: configuration not found"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--set", "model.dtpye=x"], "unknown key model.dtpye"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--set", "model.path="], "model.path is not set"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--set", "model.path=me/mine"], "'me/mine' is neither a folder with"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--set", "model.dtype=float64"], "a plan supports bfloat16 and float32"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--image", "0x3"], "--image expects WIDTHxHEIGHT"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--image", "large"], "--image expects WIDTHxHEIGHT"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--efficiency", "45"], "--efficiency must be above 0 and at most 1"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--prompts", "0"], "--prompts must be at least 1"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--prompts", "127"], "--prompts is 127, but data.prompts_per_step is 128"),
        (["qwen2_5_vl_7b", "--gpus", "H100", "--lora", "4", "--set", "lora.targets=q"], "lora.targets: unknown q;"),
    ],
)
def test_nonsense_is_refused(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("scapo_train.plan: ")
    assert reason in captured.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"hidden_size": 3}', "transformers cannot use it"),
        ('{"model_type": "no_such_model"}', "transformers cannot use it"),
        ('{"model_type": "qwen2_5_vl", "vision_config": {"depth": null}}', "transformers cannot"),
        ('{"model_type": "qwen2_5_vl", "hidden_size": 100, "num_attention_heads": 7}', "transformers cannot"),
        ('{"model_type": "qwen2"}', "transformers cannot build it"),
        ('{"model_type": "vipllava"}', "its log-probabilities were not compared"),
        ('{"model_type": "llava"}', 'rollout.engine = "vllm" does not support models of the general path'),
        pytest.param(
            '{"model_type": "qwen3_vl_moe", "text_config": {"num_hidden_layers": 2, "mlp_only_layers": [1]}}',
            "has decoder layers of several sizes (experts in some of them), which is not planned",
            marks=EXPERTS,
        ),
    ],
)
def test_a_folder_that_holds_no_known_model_is_refused(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    assert main(["qwen2_5_vl_7b", "--gpus", "H100", "--set", f"model.path={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("scapo_train.plan: ")
    assert error.count("\n") == 1
    assert reason in error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8xH100", (8, "H100")),
        ("h200", (1, "H200")),
        ("4 x RTX 4090", (4, "RTX4090")),
        ("2x4090", (2, "RTX4090")),
        ("16*a100-80gb", (16, "A100-80")),
        ("A100 40GB", (1, "A100-40")),
    ],
)
def test_ways_to_write_gpus(text: str, found: tuple[int, str]) -> None:
    assert parse_gpus(text) == found


def test_memory_of_the_table_is_in_bytes() -> None:
    assert all(20 * GIB < gpu.memory < 200 * GIB for gpu in GPUS.values())
    with pytest.raises(InputError, match="kinds: A100-40, A100-80, H100"):
        parse_gpus("A100")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100-PCIE-40GB", "A100-40"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("Tesla T4", None),
    ],
)
def test_gpus_are_known_by_the_name_that_pytorch_gives_them(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind
    assert matrix_rate(name) == (GPUS[kind].flops if kind else None)


# --- measured on tensors without data -------------------------------------------------------------------------------


def apart(function: Callable[[], Any]) -> Any:
    """Returns the result of a function in a forked process.

    PyTorch keeps shapes of shards by mesh and shape. With the fake process group, all of them are those of rank 0, and
    ranks that another test forks from this process would read them.
    """
    with get_context("fork").Pool(1, initializer=_to_call.append, initargs=(function,)) as pool:
        return pool.apply(_call)


_to_call: list[Callable[[], Any]] = []


def _call() -> Any:
    return _to_call[-1]()


def measured(job: Job) -> Any:
    """Returns the memory of a job, measured in another process."""
    return apart(lambda: measure(job))


def of_step(folder: Path, path: str, count: int, **sections: dict[str, Any]) -> Job:
    """A step of one prompt for each of some GPUs."""
    job = job_of(folder, "bfloat16", checkpointing=True)
    return replace(changed(job, loss={"kl": 0.01}, data={"prompts_per_step": count}, **sections), count=count)


@pytest.mark.parametrize("path", [SEVEN, EIGHT])
def test_more_ranks_take_less_by_the_shards(path: str, tmp_path: Path) -> None:
    folder = small(path, tmp_path / "model")
    jobs = [of_step(folder, path, count) for count in (2, 64)]
    few, many = (measured(job).logprob for job in jobs)
    shards = [sum(plan(job).memory["logprob"].get(kind, 0) for kind in SHARDED) for job in jobs]
    assert few - many == pytest.approx(shards[0] - shards[1], rel=0.02)


def test_shards_of_a_machine_are_measured(tmp_path: Path) -> None:
    folder = small(SEVEN, tmp_path / "model")
    jobs = [of_step(folder, SEVEN, 16, model={"shard_within": within}) for within in ("machine", "world")]
    machine, world = (measured(job).logprob for job in jobs)
    shards = [sum(plan(job).memory["logprob"].get(kind, 0) for kind in SHARDED) for job in jobs]
    assert shards[0] == 2 * shards[1]  # eight GPUs a machine
    assert machine - world == pytest.approx(shards[0] - shards[1], rel=0.02)


def test_in_an_update_of_a_reference_there_are_its_shards_alone(tmp_path: Path) -> None:
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, 8)
    without = measured(changed(job, loss={"kl": 0.0})).update
    assert measured(job).update - without == pytest.approx(plan(job).memory["update"]["reference"], rel=0.02)


@EXPERTS
def test_experts_are_measured(tmp_path: Path) -> None:
    folder = small(MOE, tmp_path / "model")
    jobs = [of_step(folder, MOE, count) for count in (1, 8)]
    one, eight = map(measured, jobs)
    planned = plan(jobs[0])
    assert one.logprob == pytest.approx(planned.without_vllm("logprob"), rel=0.03)
    assert one.update == pytest.approx(planned.without_vllm("update"), rel=0.1)
    assert eight.update < one.update / 2


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_offloaded_is_not_counted(count: int, tmp_path: Path) -> None:
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, count)
    here, away = measured(job), measured(changed(job, optim={"offload": True}))
    kinds = plan(job).memory["update"]
    resting = kinds["weights, float32"] + kinds["optimizer moments"]
    if count > 1:  # a single process computes with other copies if it shards
        assert here.logprob - away.logprob == pytest.approx(resting, rel=0.02)
        assert resting < here.update - away.update < resting + kinds["gradients"]
    planned = plan(changed(job, optim={"offload": True}))
    assert away.logprob <= planned.without_vllm("logprob") * 1.01
    assert away.update <= planned.without_vllm("update") * 1.01


@pytest.mark.parametrize("count", [1, 8])
def test_a_reference_on_the_host_is_counted_while_it_is_read(count: int, tmp_path: Path) -> None:
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, count)
    here, away = measured(job), measured(changed(job, model={"reference": "cpu"}))
    reference = plan(job).memory["update"]["reference"]
    assert here.update - away.update == pytest.approx(reference, rel=0.02)
    saved = reference if count > 1 else 0  # a single process copies all of it to the GPU
    assert here.logprob - away.logprob == pytest.approx(saved, rel=0.02)


def test_tensors_of_the_host_and_tensors_with_values() -> None:
    ids = torch.tensor([[7, 1, 7, 2]])
    with FakeTensorMode(allow_non_fake_inputs=True), LiveBytes() as alive:
        first, second = torch.zeros(1000), torch.zeros(500)
        alive.restart()
        alive.on_host(first)
        assert alive.now == 4 * 500
        mask = ids == 7  # with values
        assert (mask.sum().item(), int(ids[0, 1])) == (2, 1)
        assert torch.zeros(1, 4, 3)[mask].shape == (2, 3)
        assert second[torch.zeros(500) == 0].shape == (500,)  # without values: all of them
        del first
        alive.restart()
        assert 4 * 500 < alive.now < 4 * 500 + 100


@pytest.mark.parametrize(("loss", "count"), [("dpo", 1), ("mdpo", 8), ("symmpo", 2)])
def test_training_on_pairs_is_measured(loss: str, count: int, tmp_path: Path) -> None:
    """Two micro-batches of two pairs."""
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, count, preference={"loss": loss})
    prompts, responses = READ[loss]
    budget = 2 * (prompts * job.prompt_tokens + responses * (job.config.rollout.max_new_tokens - 1))
    job = changed(job, data={"prompts_per_step": 4 * count}, optim={"micro_batch_tokens": budget})
    job = replace(job, pairs=True)
    counted, planned = measured(job), plan(job)
    assert 0.8 < counted.update / planned.without_vllm("update") < 1.01
    assert 0.8 < counted.logprob / planned.without_vllm("logprob") < 1.01
    more = measured(changed(job, data={"prompts_per_step": 6 * count}))
    features = plan(job).memory["update"]["picture features"]
    assert more.update - counted.update == pytest.approx(features / 2, rel=0.1)  # a third pass keeps nothing else


@pytest.mark.parametrize("count", [1, 8])
def test_a_reference_of_pairs_on_the_host_is_counted_while_it_is_read(count: int, tmp_path: Path) -> None:
    job = replace(of_step(small(SEVEN, tmp_path / "model"), SEVEN, count), pairs=True)
    here, away = measured(job), measured(changed(job, model={"reference": "cpu"}))
    reference = plan(job).memory["update"]["reference"]
    assert here.update - away.update == pytest.approx(reference, rel=0.02)
    assert here.logprob - away.logprob == pytest.approx(reference if count > 1 else 0, rel=0.02)


def eight_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces torchao by a stand-in with its structure: parts with other shapes, and a step that is compiled."""

    class Moment(torch.Tensor):
        """One byte per value, but float32 by appearance, as torchao's OptimState8bit."""

        codes: Any

        @staticmethod
        def __new__(cls, codes: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

        def __init__(self, codes: Any) -> None:
            self.codes = codes

        def __tensor_flatten__(self) -> Any:
            return ["codes"], None

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert function is torch.ops.aten.detach.default
            return Moment(function(args[0].codes))

    class AdamW8bit(torch.optim.Optimizer):
        def __init__(self, groups: Any, **settings: Any) -> None:
            super().__init__(groups, settings)

        def step(self, closure: Any = None) -> None:
            for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                if not self.state[parameter]:
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.state[parameter][name] = Moment(torch.zeros(local.shape, dtype=torch.uint8))
                torch.compile(lambda value: value.double())(parameter)

    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchao.optim", SimpleNamespace(AdamW8bit=AdamW8bit))


@pytest.mark.parametrize("count", [1, 8])
def test_eight_bit_moments_are_measured(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, count)
    full = measured(job)
    eight_bit(monkeypatch)
    less = measured(changed(job, optim={"optimizer": "adamw8bit"}))
    assert full.update - less.update == pytest.approx(6 * job.shape.language / count, rel=0.01)
    assert full.logprob - less.logprob == pytest.approx(6 * job.shape.language / count, rel=0.01)
    away = {"optimizer": "adamw8bit", "offload": True}
    host = measured(changed(job, optim={"offload": True}))
    assert measured(changed(job, optim=away)).update == pytest.approx(host.update, rel=1e-3)


def test_eight_bit_moments_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, 1, optim={"optimizer": "adamw8bit"})
    with pytest.raises(ScapoError, match=r"adamw8bit needs torchao: pip install torchao"):
        measured(job)


def test_adapters_are_measured(tmp_path: Path) -> None:
    job = of_step(small(SEVEN, tmp_path / "model"), SEVEN, 64, lora={"rank": 8})
    counted = measured(job)
    assert counted.logprob == pytest.approx(plan(job).without_vllm("logprob"), rel=0.05)
    assert counted.update == pytest.approx(plan(job).without_vllm("update"), rel=0.05)


def test_what_is_measured_without_data_is_what_tensors_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peak_of: Callable[[Callable[[], object]], float]
) -> None:
    """One process, no reference: the growth of a real update beside the count."""
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(logprob.CHUNK_ELEMENTS, device, CHUNK)
    monkeypatch.delitem(logprob.KEPT_ELEMENTS, "cpu")
    monkeypatch.setattr(packing, "takes_groups", lambda _: False)
    job = job_of(small(SEVEN, tmp_path / "model"), "bfloat16", checkpointing=True)
    policy, batch = policy_of(job)

    def two_micro_batches() -> None:
        policy(batch).logprob.sum().backward()
        policy(batch).logprob.sum().backward()

    real = peak_of(two_micro_batches)
    two = changed(job, data={"prompts_per_step": 2}, optim={"micro_batch_tokens": memory_of(job).passes[0].tokens})
    resting = sum(plan(two).memory["update"].get(kind, 0) for kind in RESTING)
    assert measured(two).update - resting == pytest.approx(real, rel=0.03)


def test_bytes_that_grow_and_shrink_are_counted() -> None:
    with FakeTensorMode(), LiveBytes() as alive:
        first = torch.zeros(1000)
        alive.restart()
        second = torch.zeros(500)
        second.untyped_storage().resize_(0)  # as FSDP frees what it has gathered
        third = torch.zeros(200)
        assert float(first.sum()) == 1.0  # there is nothing to read
        assert alive.peak == 4 * 1500
        second.untyped_storage().resize_(2000)
        fourth = torch.zeros(1)
        assert alive.peak == 4 * (1000 + 500 + 200 + 1)
        del third, fourth, second
        assert alive.now == 4 * 1000


def test_tied_weights_are_counted_once(tmp_path: Path) -> None:
    config = model_config(str(small(THREE, tmp_path / "model")))
    for part in (config, config.text_config):
        part.tie_word_embeddings = True
    vlm = build(config, "tied")
    assert vlm.lm_head.weight is vlm.get_input_embeddings().weight
    with FakeTensorMode():
        without_data(vlm)
    assert vlm.lm_head.weight is vlm.get_input_embeddings().weight


def test_verify_prints_planned_beside_measured(tmp_path: Path) -> None:
    folder = small(SEVEN, tmp_path / "model")
    settings = ["--set", f"model.path={folder}", "--set", "data.prompts_per_step=8"]

    def run(*options: str) -> tuple[int, str, str]:
        with contextlib.redirect_stdout(StringIO()) as printed, contextlib.redirect_stderr(StringIO()) as errors:
            code = main(["qwen2_5_vl_7b", "--gpus", "4xH100", *settings, *options])
        return code, printed.getvalue(), errors.getvalue()

    code, text, _ = apart(lambda: run("--verify"))
    assert code == 0
    assert re.search(r"update: [0-9.]+ GiB, planned [0-9.]+ \([+-][0-9.]+%\)", text)
    code, text, _ = apart(lambda: run("--verify", "--json", "--pairs"))
    assert code == 0
    assert json.loads(text)["measured"]["update"] > 0
    assert json.loads(text)["micro_batch_tokens"] == 8192
