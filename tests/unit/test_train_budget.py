"""The derived token budget of a micro-batch (``optim.micro_batch_tokens = 0``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from PIL import Image  # noqa: E402

from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_train.config import USUAL_BUDGET, Config, from_table, load  # noqa: E402
from scapo_train.data import Prompt, PromptRecord, Prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.plan.budget import budget_of_run, derived, fits, job_of_run  # noqa: E402
from scapo_train.plan.hardware import GIB  # noqa: E402
from scapo_train.plan.job import Job, Pass, Workload  # noqa: E402
from scapo_train.plan.planner import plan, with_advice  # noqa: E402
from scapo_train.plan.shapes import model_config, shape_of  # noqa: E402

SEVEN = "Qwen/Qwen2.5-VL-7B-Instruct"


@pytest.fixture(scope="module")
def seven() -> Job:
    config = load("qwen2_5_vl_7b")
    return Job(config, shape_of(config.model.path), "H100", 8)


def explicit(job: Job, tokens: int) -> Job:
    return replace(job, config=job.config.with_budget(tokens))


def test_large_pictures_need_no_setting(seven: Job) -> None:
    """The case of issue 35: five times slower with 8,192 tokens, because each response reads its prompt anew."""
    large = replace(seven, work=Workload((4000, 3000)))
    before, now = (plan(job) for job in (explicit(large, USUAL_BUDGET), large))
    assert sum(now.seconds.values()) < 0.25 * sum(before.seconds.values())
    assert now.peak == before.peak  # of the vision tower
    assert now.micro_batch_tokens == large.prompt_tokens + 8 * 511
    assert any("derived: a prompt with 8 responses of full length" in note for note in now.notes)
    assert not with_advice(large, now).faster
    assert before.micro_batch_tokens == 8192  # what is set explicitly stays
    assert not any("derived" in note for note in before.notes)


def test_a_budget_consists_of_whole_groups_that_fit(seven: Job) -> None:
    row = seven.prompt_tokens + 8 * 511
    tokens = derived(seven)
    assert tokens % row == 0
    assert fits(seven, tokens)
    best = min(sum(plan(explicit(seven, number * row)).seconds.values()) for number in range(1, 17))
    assert sum(plan(seven).seconds.values()) < 1.05 * best
    assert derived(replace(seven, work=replace(seven.work, response_tokens=20))) == tokens
    assert derived(replace(seven, count=64)) % row == 0


def test_groups_are_divided_only_if_one_does_not_fit(seven: Job) -> None:
    model = replace(seven.config.model, gradient_checkpointing=False)
    dense = replace(seven, config=replace(seven.config, model=model))
    row = dense.prompt_tokens + 8 * 511
    found = {size: derived(replace(dense, memory=size * GIB)) for size in (30, 42, 79)}
    assert found[79] >= row > found[42] >= found[30]
    assert (found[42] - dense.prompt_tokens) % 511 == 0
    assert fits(replace(dense, memory=42 * GIB), found[42])
    assert not fits(replace(dense, memory=42 * GIB), row)
    assert found[30] == dense.prompt_tokens + 511  # nothing fits: the smallest pass


def test_pairs_keep_the_usual_budget(seven: Job) -> None:
    pairs = replace(seven, pairs=True)
    assert derived(pairs) == USUAL_BUDGET
    assert plan(pairs).memory == plan(explicit(pairs, USUAL_BUDGET)).memory


class _Processor:
    """Processor whose prompts have one image token per 28 x 28 pixels."""

    @staticmethod
    def apply_chat_template(turns: Any, **_: Any) -> str:
        return str(turns[0]["content"][-1]["text"])

    def __call__(self, text: list[str], images: Any, return_tensors: str) -> dict[str, Any]:
        tokens = sum(image.width * image.height // 28**2 for image in images or ())
        return {"input_ids": torch.tensor([[7] * tokens + [100] * len(text[0].split())])}


def prompts(folder: Path, sizes: dict[str, tuple[int, int]]) -> Prompts:
    for name, size in sizes.items():
        Image.new("RGB", size).save(folder / name)
    (folder / "damaged.png").write_bytes(b"no picture")
    names = [*sizes, "damaged.png", "missing.png"]
    sources = [PromptRecord.of([str(folder / name)], "1", "one two three") for name in names]
    return Prompts([*sources, PromptRecord.of([], "1", "four words are here")], _Processor(), 100)


POLICY: Any = SimpleNamespace(packs=True, vlm=SimpleNamespace(config=SimpleNamespace(image_token_id=7)))


def test_the_largest_readable_prompt_is_found(tmp_path: Path) -> None:
    found = prompts(tmp_path, {"a.png": (56, 56), "b.png": (280, 28), "c.png": (28, 56)}).largest()
    assert found is not None
    assert Path(found.source.pictures[0]).name == "b.png"
    assert len(found.ids) == 10 + 3
    only_bad = Prompts([PromptRecord.of([str(tmp_path / "damaged.png")], "1", "x")], _Processor(), 100)
    assert only_bad.largest() is None


def test_on_a_cpu_a_budget_is_8192_or_a_whole_group(tmp_path: Path) -> None:
    alone, found = ProcessGroup(0, 1, torch.device("cpu")), prompts(tmp_path, {"a.png": (560, 280)})
    config = Config()
    assert budget_of_run(config, POLICY, found, alone) == USUAL_BUDGET
    long = replace(config, rollout=replace(config.rollout, max_new_tokens=4096))
    assert budget_of_run(long, POLICY, found, alone) == 203 + 8 * 4095
    general: Any = SimpleNamespace(packs=False, vlm=POLICY.vlm)
    assert budget_of_run(long, general, found, alone) == 8 * (203 + 4095)
    assert budget_of_run(long, POLICY, found, alone, kept=150) == 150


def test_a_run_on_gpus_is_planned_with_its_own_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight GPUs, of which the smallest one counts."""
    folder = tmp_path / "model"
    model_config(SEVEN).save_pretrained(folder)
    config = replace(load("qwen2_5_vl_7b"), model=replace(load("qwen2_5_vl_7b").model, path=str(folder)))
    found = prompts(tmp_path, {"a.png": (280, 560)})
    largest = found.largest()
    assert isinstance(largest, Prompt)
    job = job_of_run(config, largest, 7, "H100", 8, 36 * GIB)
    assert (job.image_tokens, job.prompt_tokens, job.gpu.memory) == (200, 203, 36 * GIB)
    asked = {"engine": "vllm", "server": "http://gpu:8000", "lookahead": 1}
    served = replace(config, rollout=replace(config.rollout, **asked))
    assert not job_of_run(served, largest, 7, "H100", 8, 36 * GIB).vllm

    class Ranks(ProcessGroup):
        def gather(self, value: Any) -> list[Any]:
            return [value, 79 * GIB] if value == 200 * GIB else [value, 0]

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 200 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    ranks = Ranks(0, 8, torch.device("cuda", 0))
    tokens = budget_of_run(config, POLICY, found, ranks)
    assert tokens == derived(replace(job, memory=79 * GIB))
    assert tokens % (203 + 8 * 511) == 0
    assert budget_of_run(config, POLICY, found, ranks, kept=4096) == 4096
    dense = replace(config, model=replace(config.model, gradient_checkpointing=False))
    assert 4096 < budget_of_run(dense, POLICY, found, ranks, kept=10**6) < 10**6  # which does not fit here
    exact = replace(config, model=replace(config.model, dtype="float64"))
    assert budget_of_run(exact, POLICY, found, ranks) == USUAL_BUDGET
    assert "because memory cannot be planned: model.dtype = float64" in caplog.text


def test_gradients_that_depend_on_micro_batches_need_a_number() -> None:
    with pytest.raises(InputError, match=r"makes the gradient depend on optim\.micro_batch_tokens: set it"):
        from_table({"loss": {"mean_per_micro_batch": True}})
    from_table({"loss": {"mean_per_micro_batch": True}, "optim": {"micro_batch_tokens": 8192}})


def test_parts_of_a_group_on_the_trainers_side() -> None:
    assert Pass.within(391 + 3 * 511, 391, 512, 8, 16) == Pass(1, 3, 391, 512)
    assert Pass.within(2 * (391 + 8 * 511), 391, 512, 8, 16) == Pass(2, 16, 391, 512)
