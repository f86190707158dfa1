"""Adapters: gradients equal to peft's own, the model without adapters as the reference, and exports for peft and
merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train.checkpoint.save import export, export_adapter  # noqa: E402
from scapo_train.config import Lora, Model  # noqa: E402
from scapo_train.data import Prompts, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families import experts  # noqa: E402
from scapo_train.families.lora import adapter_weights, adapters_off, merged_shapes, merged_weights  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
ONE = ProcessGroup(0, 1, torch.device("cpu"))
LORA = Lora(rank=3, alpha=6)
SAME = 1e-8
"""See tests/integration/test_train_model.py."""


def exact_experts(*models: Any) -> None:
    """Replaces the grouped kernel of experts, which does not support float64."""
    for model in models:
        if model.config.model_type == "qwen3_vl_moe":
            model.set_experts_implementation("eager")


EXPERTS = pytest.mark.skipif(transformers.__version__.startswith("4."), reason="experts' adapters need transformers 5")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", pytest.param("qwen3_vl_moe", marks=EXPERTS)])
def test_adapters_are_pefts_own(
    family: str, tiny: ModuleType, exact_norms: Callable[[Any], None], tmp_path: Path
) -> None:
    path = tiny.build(tmp_path / "base", family)
    tiny.draw(tmp_path / "images", 1)
    (tmp_path / "train.jsonl").write_text(json.dumps({"image": "images/1.png", "image_id": 1, "prompt": "A dog ."}))
    policy = load_policy(Model(path=str(path), dtype="float64"), 1.0, ONE, lora=LORA, seed=3)
    exact_norms(policy)
    exact_experts(policy.vlm)
    trained = {name: each for name, each in policy.vlm.named_parameters() if each.requires_grad}
    adapted = 6 if "moe" in family else 7  # of each of two layers: linear ones, or four of them and two stacks
    assert len(trained) == 2 * 2 * adapted
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # at first B is 0, and with it the gradient of A
        for each in trained.values():
            each.copy_(torch.randn(each.shape, generator=generator, dtype=each.dtype) / 4)
    prompts = Prompts(read_prompts(tmp_path / "train.jsonl"), load_processor(str(path)), 0)
    encoded = encode(policy, prompts.take([0]), ONE.device)
    responses = [each.ids for each in PolicySampler(policy, ONE.device, 9, 1).sample(encoded, 0, 3, 1.0)]
    batch = batch_of([encoded[0].row(responses)], ONE.device)

    export_adapter(policy.vlm, str(path), "", tmp_path / "adapter", torch.float64)
    export(policy.vlm, path, tmp_path / "merged", torch.float64)
    auto = transformers.AutoModelForImageTextToText
    base, merged = (auto.from_pretrained(tmp_path / name, dtype=torch.float64) for name in ("base", "merged"))
    exact_experts(base, merged)
    assert merged.state_dict().keys() == base.state_dict().keys()
    sent = [(name, tuple(weight.shape)) for name, weight in merged_weights(policy.vlm, torch.float64)]
    assert list(merged_shapes(policy.vlm)) == sent
    with torch.no_grad(), adapters_off(policy):
        reference = policy(batch).logprob
    prompt = prompts.take([0])[0]
    n = len(prompt.ids)

    def given(tokens: Any) -> dict[str, Any]:
        found = {"input_ids": tokens, **{name: prompt.inputs[name] for name in ("pixel_values", "image_grid_thw")}}
        if transformers.__version__.startswith("4."):
            return found
        return {**found, "mm_token_type_ids": (tokens == policy.image_token).int()}

    def logprobs(model: Any) -> Any:
        found = []
        for ids in responses:
            tokens = torch.cat([prompt.ids, torch.tensor(ids)])[None]
            logits = model(**given(tokens)).logits[0, n - 1 : -1]
            allowed = logits.index_fill(1, torch.tensor(policy.never), -torch.inf).log_softmax(1)
            found.append(allowed.gather(1, torch.tensor(ids)[:, None])[:, 0])
        return torch.cat(found)

    with torch.no_grad():
        torch.testing.assert_close(reference, logprobs(base), rtol=0, atol=SAME)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter"), is_trainable=True)
    slope = torch.linspace(-1, 1, len(reference), dtype=torch.float64)
    own, wanted = policy(batch).logprob, logprobs(theirs)
    torch.testing.assert_close(own, wanted, rtol=0, atol=SAME)
    assert (own - reference).abs().max() > 0.1
    (own * slope).sum().backward()
    (wanted * slope).sum().backward()
    gradients = {name: each.grad for name, each in theirs.named_parameters() if each.requires_grad}
    assert len(gradients) == len(trained)
    for name, each in trained.items():
        gradient = gradients[f"base_model.model.{name}"]
        assert (each.grad - gradient).norm() <= SAME * (gradient.norm() + 1e-3)
    with torch.no_grad():
        torch.testing.assert_close(own.detach(), logprobs(merged), rtol=0, atol=SAME)
        greedy = PolicySampler(policy, ONE.device, 9, 1).sample(encoded, 0, 1, 0.0)[0].ids
        tokens = prompt.ids[None]
        made = theirs.generate(**given(tokens), max_new_tokens=9, do_sample=False, suppress_tokens=policy.never)
    assert greedy == made[0, n:].tolist()


def test_targets_and_precision_of_adapters(tiny: ModuleType, tmp_path: Path) -> None:
    settings = Model(path=str(tiny.build(tmp_path / "base", "qwen3_vl")), dtype="bfloat16")
    policy = load_policy(settings, 1.0, ONE, lora=Lora(rank=2, targets=("q_proj", "down_proj")), seed=1)
    assert {each.dtype for each in policy.parameters() if each.requires_grad} == {torch.float32}
    assert {each.dtype for each in policy.parameters() if not each.requires_grad} == {torch.bfloat16}
    found = adapter_weights(policy.vlm)
    assert {name.split(".")[-3] for name in found} == {"q_proj", "down_proj"}
    again = adapter_weights(load_policy(settings, 1.0, ONE, lora=Lora(2, targets=("q_proj", "down_proj")), seed=1).vlm)
    assert all(torch.equal(found[name], again[name]) for name in found)
    with pytest.raises(InputError, match=r"lora.targets: unknown qproj; the model has q_proj, k_proj, v_proj, o_proj"):
        load_policy(settings, 1.0, ONE, lora=Lora(rank=2, targets=("qproj",)))


@EXPERTS
def test_targets_among_experts(tiny: ModuleType, tmp_path: Path, exact_norms: Callable[[Any], None]) -> None:
    """Checks one of the two stacks alone, with and without attention. Adapters of experts support no dropout."""
    path = str(tiny.build(tmp_path / "base", "qwen3_vl_moe"))
    hidden = torch.linspace(-1, 1, 5 * 64, dtype=torch.float64).view(5, 64).requires_grad_()
    chosen, shares = torch.tensor([[0, 3], [3, 1], [1, 0], [0, 1], [3, 0]]), torch.full((5, 2), 0.5).double()
    for names in (("gate_up_proj",), ("down_proj", "q_proj")):
        policy = load_policy(Model(path=path, dtype="float64"), 1.0, ONE, lora=Lora(rank=3, targets=names), seed=1)
        exact_experts(policy.vlm)
        assert {name.split(".")[-3] for name in adapter_weights(policy.vlm)} == ({*names} & {"q_proj"}) | {"experts"}
        layer = policy.language_model.layers[0].mlp.experts
        for each in layer.parameters():
            if each.requires_grad:
                each.data = torch.linspace(-0.2, 0.3, each.numel(), dtype=torch.float64).view_as(each)
        trained = [hidden, *(each for each in layer.parameters() if each.requires_grad)]
        found = []
        for forward in (layer, partial(type(layer).forward, layer)):  # peft's own puts other weights in place
            made = forward(hidden, chosen, shares)
            found.append([made, *torch.autograd.grad(made.square().sum(), trained)])
        assert (found[0][0] - layer.get_base_layer()(hidden, chosen, shares)).abs().max() > 1e-3
        for own, theirs in zip(*found, strict=True):
            torch.testing.assert_close(own, theirs, rtol=1e-12, atol=1e-12)
    with pytest.raises(
        InputError, match=r"lora.dropout: adapters of experts \(gate_up_proj, down_proj\) do not support dropout"
    ):
        load_policy(Model(path=path), 1.0, ONE, lora=Lora(rank=2, dropout=0.1))
    load_policy(Model(path=path), 1.0, ONE, lora=Lora(rank=2, dropout=0.1, targets=("q_proj",)))


@pytest.mark.skipif(experts.GROUPED is None, reason="PyTorch has no grouped product")
def test_the_kernel_of_experts_and_the_loop_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, other = (torch.randn(9, n, generator=generator) for n in (16, 4))
    matrices, ends = torch.randn(4, 16, 4, generator=generator), torch.tensor([2, 2, 7, 9], dtype=torch.int32)
    found = []
    for kernel in (experts.GROUPED, None):
        monkeypatch.setattr(experts, "GROUPED", kernel)
        found.append([experts._rows(rows, matrices, ends), experts._sums(rows, other, ends)])
    assert found[0][1].shape == (4, 16, 4)
    assert not found[1][1][1].any()  # nobody went there
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_a_layer_with_an_adapter_is_pefts_behind_dropout_and_without(tiny: ModuleType, tmp_path: Path) -> None:
    """Compares the project's products without dropout with peft's products with dropout, at a dropout that changes
    nothing.
    """
    settings = Model(path=str(tiny.build(tmp_path / "base", "qwen2_5_vl")), dtype="float64")
    found = []
    for dropout in (0.0, 0.5):
        policy = load_policy(settings, 1.0, ONE, lora=Lora(rank=2, dropout=dropout), seed=1)
        for name, each in policy.vlm.named_parameters():
            if ".lora_B." in name:
                each.data.fill_(0.1)
        layer = policy.language_model.layers[0].self_attn.q_proj
        layer.eval()
        inputs = torch.linspace(-1, 1, 2 * 3 * layer.in_features, dtype=torch.float64).view(2, 3, -1).requires_grad_()
        made = layer(inputs)
        (slope,) = torch.autograd.grad(made.square().sum(), inputs, retain_graph=True)
        gradients = torch.autograd.grad(
            made.square().sum(), [each for each in layer.parameters() if each.requires_grad]
        )
        found.append([made, slope, *gradients])
    assert len(found[0]) == 4
    for own, theirs in zip(*found, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-12, atol=1e-12)
