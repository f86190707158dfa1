"""Trainer step compared with a literal step: separate sequences, complete logits, explicit formulas."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary  # noqa: E402
from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_eval.files.json_text import parse_json  # noqa: E402
from scapo_eval.rewarding.tokens import decode_with_offsets  # noqa: E402
from scapo_train import credit  # noqa: E402
from scapo_train.config import Config, from_table, load, to_toml  # noqa: E402
from scapo_train.data import indices_of_step  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.rollout import encode  # noqa: E402
from scapo_train.trainer import Trainer, train  # noqa: E402
from scapo_train.update import MicroBatch, squared_snr  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
PROCESS_GROUP = ProcessGroup(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def place(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a model, pictures, prompts, ground truth, and a vocabulary that often matches the model's words."""
    root = tmp_path_factory.mktemp("place")
    tiny.build(root / "model", "qwen2_5_vl")
    tiny.draw(root / "images", 12)
    with open(root / "train.jsonl", "w") as stream:
        for k in range(1, 13):
            text = "Describe this image ." + " red" * (5 * k % 11)
            stream.write(json.dumps({"image": f"images/{k}.png", "image_id": k, "prompt": text}) + "\n")
    labels = sorted({word for word in tiny.WORDS.split() if word.isalpha()})[::5]
    entries = "".join(f"  '{word}': {{aliases: ['{word}']}}\n" for word in labels)
    (root / "vocabulary.yaml").write_text(f"name: tiny\nversion: '1'\nlabels:\n{entries}")
    truth = {str(k): labels[k % 2 :: 2] for k in range(1, 13)}
    (root / "truth.json").write_text(json.dumps({"objects": truth, "labels": labels}))
    return root


def settings(place: Path, output: Path, **sections: dict[str, Any]) -> Config:
    table: dict[str, dict[str, Any]] = {
        "run": {"output": str(output), "steps": 1, "samples": 0, "export": False},
        "model": {"path": str(place / "model"), "dtype": "float64"},
        "data": {
            "train": str(place / "train.jsonl"),
            "oracle": str(place / "truth.json"),
            "vocabulary": str(place / "vocabulary.yaml"),
            "prompts_per_step": 6,
        },
        "rollout": {"group": 4, "max_new_tokens": 20},
        "optim": {"lr": 1e-3, "clip": 0.0, "micro_batch_tokens": 150},
    }
    for name, values in sections.items():
        table[name] = table.get(name, {}) | values
    return from_table(table)


SAME = 1e-11  # of a gradient: sums of some 1e5 float64 terms in another order, 1e5 times 2^-53 at most


def spied(config: Config, monkeypatch: pytest.MonkeyPatch) -> tuple[Trainer, dict[str, Any]]:
    """Returns a trainer, and a record of the samples, credits and optimizer inputs of its next step."""
    trainer = Trainer(config, PROCESS_GROUP)
    spy: dict[str, Any] = {"gradients": []}
    sampled, credited, step = trainer._sample, trainer._credit, trainer.optimizer.step

    def sampling(prompts: Any, attempt: int) -> Any:
        spy["encoded"], spy["responses"] = prompts, sampled(prompts, attempt)
        return spy["responses"]

    def crediting(prompts: Any, responses: Any, *logprobs: Any) -> Any:
        spy["credited"] = credited(prompts, responses, *logprobs)
        return spy["credited"]

    def stepping(*_: Any) -> None:
        spy["gradients"].append([parameter.grad.clone() for parameter in trainer.trainable])
        step()

    monkeypatch.setattr(trainer, "_sample", sampling)
    monkeypatch.setattr(trainer, "_credit", crediting)
    monkeypatch.setattr(trainer.optimizer, "step", stepping)
    return trainer, spy


def literal_logprobs(trainer: Trainer, model: Any, prompt: Any, ids: list[int]) -> torch.Tensor:
    """Returns (T,) log-probabilities by transformers' own forward pass of one sequence."""
    tokens = torch.cat([prompt.ids, torch.tensor(ids)])[None]
    given = {name: prompt.inputs[name] for name in ("pixel_values", "image_grid_thw")}
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        given["mm_token_type_ids"] = (tokens == trainer.policy.image_token).int()
    logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **given).logits[0]
    logprobs = logits.index_fill(1, torch.tensor(trainer.policy.never), -torch.inf).log_softmax(1)
    return logprobs[len(prompt.ids) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


def literal_rewards(place: Path, trainer: Trainer, image_id: str, ids: list[int]) -> list[float]:
    """Computes Algorithm 1, one token at a time, with 0 for the end of sequence."""
    vocabulary = Vocabulary.load(str(place / "vocabulary.yaml"))
    reward = SubsentenceReward(vocabulary, PresenceOracle.load(place / "truth.json"))
    text, spans = decode_with_offsets(trainer.tokenizer, ids)
    (result,) = reward([image_id], [text])
    found = []
    for start, end in spans.tolist():
        inside = [at for at in range(start, end) if not text[at].isspace()]
        at = inside[-1] if inside else start
        own = (part.reward for part in result.parts if part.start <= at < part.end)
        found.append(next(own, 0.0) if end > start else 0.0)
    return found


@pytest.mark.parametrize("tokens", [60, 150, 10**6])
def test_the_gradient_of_a_step_is_that_of_the_formula(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_norms: Callable[[Any], None], tokens: int
) -> None:
    config = settings(place, tmp_path / "run", optim={"micro_batch_tokens": tokens}, loss={"kl": 0.0})
    trainer, spy = spied(config, monkeypatch)
    exact_norms(trainer.policy)
    trainer.train_step()
    (gradient,) = spy["gradients"]

    fresh = Trainer(settings(place, tmp_path / "fresh", loss={"kl": 0.0}), PROCESS_GROUP)
    model = fresh.policy.vlm
    model.gradient_checkpointing_disable()
    count = sum(len(response.ids) for response in spy["responses"])
    loss = torch.zeros((), dtype=torch.float64)
    varied = set()
    for i, response in enumerate(spy["responses"]):
        prompt = spy["encoded"][i // 4].prompt
        advantage = literal_rewards(place, trainer, prompt.source.image_id, response.ids)
        varied |= set(advantage)
        logprobs = literal_logprobs(fresh, model, prompt, response.ids)
        loss = loss - (torch.tensor(advantage, dtype=torch.float32) * logprobs).sum() / count
    assert {1.0, -1.0} <= varied
    wanted = torch.autograd.grad(loss, fresh.trainable)
    size = math.sqrt(sum(float(each.square().sum()) for each in wanted))
    difference = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(gradient, wanted, strict=True)))
    assert difference <= SAME * size
    assert size > 1e-3


def test_the_signal_and_noise_of_a_step_are_those_of_its_prompts(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_norms: Callable[[Any], None]
) -> None:
    measured = settings(place, tmp_path / "run", run={"steps": 2, "snr_every": 2}, loss={"kl": 0.0})
    trainer, spy = spied(measured, monkeypatch)
    exact_norms(trainer.policy)
    plain = Trainer(settings(place, tmp_path / "plain", run={"steps": 2}, loss={"kl": 0.0}), PROCESS_GROUP)
    for own in (trainer, plain):
        assert "gradient_snr" not in own.train_step()
        own.step += 1
    model = plain.policy.vlm
    model.gradient_checkpointing_disable()
    before = [parameter.detach().clone() for parameter in plain.trainable]
    found = trainer.train_step()["gradient_snr"]
    gradients = []
    count = sum(len(response.ids) for response in spy["responses"])
    for k, encoded in enumerate(spy["encoded"]):
        loss = torch.zeros((), dtype=torch.float64)
        for i in range(4 * k, 4 * k + 4):
            logprobs = literal_logprobs(plain, model, encoded.prompt, spy["responses"][i].ids)
            loss = loss - (torch.from_numpy(spy["credited"].advantages[i]) * logprobs).sum() / count
        gradients.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, plain.trainable)]))
    gram = np.array([[float(one @ other) for other in gradients] for one in gradients])
    pairs = (gram.sum() - np.trace(gram)) / 30
    assert found == pytest.approx(6 * pairs / (np.trace(gram) / 6 - pairs), rel=1e-9)
    assert all(torch.equal(one, other) for one, other in zip(before, plain.trainable, strict=True))
    plain.train_step()
    assert all(torch.equal(one, other) for one, other in zip(trainer.trainable, plain.trainable, strict=True))


def test_a_ratio_that_cannot_be_estimated_is_none() -> None:
    assert squared_snr(4.0, [1.0, 1.0], [8.0, 8.0]) is None  # equal gradients have no noise
    assert squared_snr(2.0, [1.0, 1.0], [8.0, 8.0]) == 0  # orthogonal gradients have no signal
    assert squared_snr(3.0, [1.0, 1.0], [8.0, 8.0]) == 2
    assert squared_snr(1.0, [1.0], [8.0]) is None
    assert squared_snr(0.0, [0.0, 0.0], [0.0, 0.0]) is None


@pytest.mark.parametrize(
    "sections", [{"loss": {"mean_per_micro_batch": True}}, {"lora": {"rank": 2, "dropout": 0.1}}], ids=["mean", "lora"]
)
def test_settings_that_contradict_the_ratio_are_refused(place: Path, tmp_path: Path, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"run\.snr_every requires"):
        settings(place, tmp_path, run={"snr_every": 1}, **sections)


@pytest.mark.parametrize(("tokens", "told"), [(60, True), (10**6, False)])
@pytest.mark.usefixtures("quiet_loggers")
def test_groups_that_exceed_a_pass_are_told_once(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, tokens: int, told: bool
) -> None:
    trainer = Trainer(settings(place, tmp_path / "run", optim={"micro_batch_tokens": tokens}), PROCESS_GROUP)
    logging.getLogger("scapo_train").propagate = True
    for _ in range(2):
        trainer.train_step()
    said = [each.getMessage() for each in caplog.records if "micro_batch_tokens" in each.getMessage()]
    assert len(said) == told
    if told:
        found = re.search(r"= 60 is less than a prompt with its 4 responses \((\d+) tokens\)", said[0])
        assert found is not None
        assert int(found[1]) > 60


@pytest.mark.usefixtures("quiet_loggers")
def test_a_derived_budget_is_in_the_files_of_the_run_and_is_kept_on_resuming(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(tokens: int, steps: int) -> tuple[int, dict[str, Any]]:
        config = settings(
            place, tmp_path / f"run{steps > 9}", optim={"micro_batch_tokens": tokens}, run={"steps": steps}
        )
        trainer = Trainer(config, PROCESS_GROUP, resume=True)
        trainer.run()
        card = json.loads((trainer.folder / "card.json").read_text())
        written = load(trainer.folder / "config.toml").optim.micro_batch_tokens
        assert written == trainer.config.optim.micro_batch_tokens == trainer.updater.config.optim.micro_batch_tokens
        return written, card

    assert train(150, 1)[0] == 150
    kept, card = train(0, 2)  # of the checkpoint
    assert (kept, card["derived"]) == (150, {"optim.micro_batch_tokens": 150})
    changed = "resumed with another setting than before: optim.micro_batch_tokens"
    assert changed not in caplog.text
    tokens, card = train(160, 3)
    assert changed in caplog.text
    assert tokens == 160
    assert "derived" not in card
    assert train(0, 10)[0] == 8192  # a new run


def test_a_second_inner_epoch_clips_against_the_first_policy_and_pulls_to_the_reference(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_norms: Callable[[Any], None]
) -> None:
    sections: dict[str, Any] = {
        "optim": {"lr": 2e-2, "inner_epochs": 2, "clip": 0.0, "micro_batch_tokens": 150},
        "loss": {"kl": 0.2, "kl_estimator": "k3"},
        "model": {"gradient_checkpointing": False},
    }
    trainer, spy = spied(settings(place, tmp_path / "run", **sections), monkeypatch)
    exact_norms(trainer.policy)
    before = [parameter.detach().clone() for parameter in trainer.trainable]
    between: list[list[torch.Tensor]] = []
    step = trainer.optimizer.step
    monkeypatch.setattr(
        trainer.optimizer, "step", lambda: (step(), between.append([p.detach().clone() for p in trainer.trainable]))
    )
    metrics = trainer.train_step()
    _, second = spy["gradients"]

    other = Trainer(settings(place, tmp_path / "other", **sections), PROCESS_GROUP)
    assert all(torch.equal(a, b) for a, b in zip(before, other.trainable, strict=True))
    old = [
        literal_logprobs(other, other.policy.vlm, spy["encoded"][i // 4].prompt, response.ids).detach()
        for i, response in enumerate(spy["responses"])
    ]
    with torch.no_grad():
        for parameter, value in zip(other.trainable, between[0], strict=True):
            parameter.copy_(value)
    count = sum(len(response.ids) for response in spy["responses"])
    loss, clipped = torch.zeros((), dtype=torch.float64), 0
    for i, response in enumerate(spy["responses"]):
        logprobs = literal_logprobs(other, other.policy.vlm, spy["encoded"][i // 4].prompt, response.ids)
        advantage = torch.from_numpy(spy["credited"].advantages[i])
        rho = (logprobs - old[i]).exp()
        kept = torch.minimum(rho * advantage, rho.clamp(0.8, 1.2) * advantage)
        clipped += int((kept != rho * advantage).sum())
        k3 = (old[i] - logprobs).exp() - 1 - (old[i] - logprobs)  # the reference is the first policy
        loss = loss + (0.2 * k3 - kept).sum() / count
    wanted = torch.autograd.grad(loss, other.trainable)
    size = math.sqrt(sum(float(each.square().sum()) for each in wanted))
    difference = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(second, wanted, strict=True)))
    assert clipped > 10
    assert difference <= SAME * size
    assert metrics["clip_share"] == pytest.approx(clipped / (2 * count))  # no ratio lies at a bound but for rounding


@pytest.mark.parametrize(
    "scheme",
    [
        {"scheme": "object"},
        {"scheme": "grpo", "reward": "hal"},
        {"scheme": "grpo", "reward": "cap", "form": "original"},
        {"scheme": "dapo", "reward": "cap", "form": "original", "overlong": 5},
        {"scheme": "dr_grpo", "reward": "cap", "form": "original"},
        {"ablation": "additive"},
        {"robust": True},
        {"ablation": "full_repeat", "eos": "last"},
        {"ablation": "no_reg", "eos": "own", "truncated": "mask"},
    ],
)
def test_every_scheme_trains_through_the_same_step(place: Path, tmp_path: Path, scheme: dict[str, Any]) -> None:
    config = settings(place, tmp_path / "run", credit=scheme, run={"steps": 2, "samples": 2, "samples_every": 1})
    folder = train(config)
    rows = [parse_json(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert 0 <= row["hal_rate"] <= 1
        assert row["grad_norm"] > 0
        assert row["updates_left_out"] == 0
        assert row["length"] > 1
        assert row["mfu"] is None  # of a CPU there is no data sheet
        assert row["kl"] is None or abs(row["kl"]) < 1
    assert (rows[0]["kl"] is None) == (scheme.get("form") == "original" and scheme["scheme"] != "grpo")
    assert load(folder / "config.toml") == config
    assert to_toml(config) == (folder / "config.toml").read_text()
    samples = [parse_json(line) for line in (folder / "samples.jsonl").read_bytes().splitlines()]
    assert [row["step"] for row in samples] == [0, 0, 1, 1, 2, 2]
    assert len({row["image_id"] for row in samples}) == 2
    extremes = [parse_json(line) for line in (folder / "extremes.jsonl").read_bytes().splitlines()]
    assert {row["kind"] for row in extremes} == {"best", "worst"}
    for row in extremes:
        assert row["parts"] == [] or row["parts"][-1][1] == len(row["response"])


ASKS = """
import numpy as np

asked = []

def own(sampled):
    policy, reference = sampled.logprobs("policy"), sampled.logprobs("reference")
    assert [each.shape for each in policy] == [(len(spans),) for spans in sampled.offsets]
    asked.append((policy, reference))
    return reference
"""


@pytest.mark.parametrize("inner_epochs", [1, 2])
def test_a_credit_of_ones_own_sees_the_log_probabilities_before_the_update(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner_epochs: int
) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    sections: dict[str, Any] = {
        "credit": {"scheme": f"{tmp_path / 'asks.py'}:own"},
        "optim": {"lr": 2e-2, "clip": 0.0, "micro_batch_tokens": 150, "inner_epochs": inner_epochs},
    }
    trainer, spy = spied(settings(place, tmp_path / "run", **sections), monkeypatch)
    with torch.no_grad():
        for parameter in trainer.reference.parameters():
            parameter.mul_(1.01)
    reference = Trainer(settings(place, tmp_path / "other", **sections), PROCESS_GROUP)
    scheme = credit.scheme_of(trainer.config.credit.scheme)
    monkeypatch.setattr(credit, "scheme_of", lambda _: scheme)
    wanted = []
    step = trainer.updater.update
    monkeypatch.setattr(trainer.updater, "update", lambda *given: (wanted.extend(literal()), step(*given))[1])

    def literal() -> list[tuple[Any, Any]]:
        found = []
        with torch.no_grad():
            own = dict(reference.policy.named_parameters())
            for name, changed in trainer.reference.named_parameters():  # the tower is the policy's
                own[name].copy_(changed)
            for i, response in enumerate(spy["responses"]):
                prompt = spy["encoded"][i // 4].prompt
                models = trainer.policy.vlm, reference.policy.vlm
                found.append(tuple(literal_logprobs(reference, model, prompt, response.ids) for model in models))
        return found

    trainer.train_step()
    ((policy, frozen),) = scheme.__globals__["asked"]
    assert len(wanted) == len(policy) == 24
    for (own, other), a, b in zip(wanted, policy, frozen, strict=True):
        torch.testing.assert_close(torch.from_numpy(a), own.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.from_numpy(b), other.float(), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(own, other)
    assert all((a == b).all() for a, b in zip(spy["credited"].advantages, frozen, strict=True))


def test_a_credit_that_asks_for_a_reference_needs_one(place: Path, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    sections: dict[str, Any] = {"credit": {"scheme": f"{tmp_path / 'asks.py'}:own"}, "loss": {"kl": 0.0}}
    with pytest.raises(InputError, match=r"reference's log-probabilities, which require loss\.kl > 0"):
        Trainer(settings(place, tmp_path / "run", **sections), PROCESS_GROUP).train_step()


def test_a_non_finite_gradient_leaves_the_update_out_and_not_the_run(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = spied(settings(place, tmp_path / "run", run={"steps": 3}), monkeypatch)
    before = [parameter.detach().clone() for parameter in trainer.trainable]
    norm = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *given: norm(*given) * math.nan)
    metrics = trainer.train_step()
    assert metrics["updates_left_out"] == 1
    assert metrics["grad_norm"] is None
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.trainable, strict=True))
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", norm)
    trainer.step += 1
    assert trainer.train_step()["updates_left_out"] == 0
    assert not any(torch.equal(a, b) for a, b in zip(before, trainer.trainable, strict=True))


def test_a_step_without_a_readable_picture_changes_nothing(place: Path, tmp_path: Path) -> None:
    lines = (place / "train.jsonl").read_text().splitlines()
    for index in indices_of_step(0, len(lines), 6, 0):
        lines[index] = lines[index].replace("images/", "nowhere/")
    (place / "broken.jsonl").write_text("\n".join(lines) + "\n")
    data = {"train": str(place / "broken.jsonl")}
    trainer = Trainer(settings(place, tmp_path / "run", data=data), PROCESS_GROUP)
    before = [parameter.detach().clone() for parameter in trainer.trainable]
    metrics = trainer.train_step()
    assert metrics["prompts_left_out"] == 6
    assert metrics["updates_left_out"] == 1
    assert metrics["hal_rate"] is None
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.trainable, strict=True))


def test_a_held_out_set_is_scored_as_scapo_eval_scores_it(place: Path, tmp_path: Path) -> None:
    lines = (place / "train.jsonl").read_text().splitlines()
    held_out = place / "held_out.jsonl"
    held_out.write_text("\n".join(lines[7:]) + "\n")
    run = {"steps": 2, "evaluate_every": 2, "samples": 5, "samples_every": 2}
    config = settings(place, tmp_path / "run", run=run, data={"evaluation": str(held_out)})
    folder = train(config)
    rows = [parse_json(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert "hal_rate" not in rows[0]  # before the first step there are no rollouts
    assert rows[0]["evaluation_hal_rate"] is not None
    assert "evaluation_hal_rate" not in rows[1]
    from scapo_eval import score_captions

    samples = [parse_json(line) for line in (folder / "samples.jsonl").read_bytes().splitlines()]
    last = [{"image_id": row["image_id"], "caption": row["response"]} for row in samples if row["step"] == 2]
    assert len(last) == 5
    vocabulary = Vocabulary.load(str(place / "vocabulary.yaml"))
    scored = score_captions(last, vocabulary=vocabulary, oracle=PresenceOracle.load(place / "truth.json"))
    assert rows[2]["evaluation_hal_rate"] == pytest.approx(scored.hal_rate)
    assert rows[2]["evaluation_cover_rate"] == pytest.approx(scored.cover_rate)


def test_kinds_of_claims_decide_the_credit_and_not_the_figures_of_presence(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = json.loads((place / "truth.json").read_text())
    scenes = [
        {
            "image_id": k,
            "objects": [{"name": name, "attributes": ["red", "blue", "small"]} for name in names],
            "complete": truth["labels"],
        }
        for k, names in truth["objects"].items()
    ]
    (tmp_path / "scenes.jsonl").write_text("".join(json.dumps(scene) + "\n" for scene in scenes))
    beyond = {"kinds": ["presence,count", "attribute"], "scenes": str(tmp_path / "scenes.jsonl")}
    evaluation = {"evaluation": str(place / "train.jsonl"), "evaluation_temperature": 1.0}
    made = {}
    for name, credit_settings in (("plain", {}), ("kinds", beyond)):
        config = settings(
            place,
            tmp_path / name,
            credit=credit_settings,
            data=evaluation,
            run={"evaluate_every": 1},
            rollout={"group": 12},
        )
        trainer, spy = spied(config, monkeypatch)
        assert from_table(parse_json(json.dumps(dataclasses.asdict(config)).encode())) == config
        held_out = trainer.evaluate(1)  # before the policies part
        made[name] = trainer, spy, trainer.train_step(), held_out
    (_, plain, figures, held_out), (trainer, spy, of_kinds, held_out_kinds) = made.values()
    texts = [decode_with_offsets(trainer.tokenizer, response.ids)[0] for response in spy["responses"]]
    assert texts == [decode_with_offsets(trainer.tokenizer, response.ids)[0] for response in plain["responses"]]
    image_ids = [each.prompt.source.image_id for each in spy["encoded"] for _ in range(12)]
    given: dict[str, Any] = {"kinds": ("presence", "count", "attribute"), "scenes": tmp_path / "scenes.jsonl"}
    words = Vocabulary.load(str(place / "vocabulary.yaml"))
    wanted = SubsentenceReward(words, place / "truth.json", RewardConfig(**given)).batch(image_ids, texts)
    columns = spy["credited"].columns
    assert columns.reward.tolist() == wanted.reward.tolist() != plain["credited"].columns.reward.tolist()
    named = columns.of_presence()
    for name in ("generated", "hallucinated", "covered", "unknown"):
        assert named[name].tolist() == getattr(plain["credited"].columns, name).tolist()
    for name in ("hal_rate", "cover_rate", "cap_score", "objects"):
        assert of_kinds[name] == figures[name]
    false = wanted.claim_verdict == 0
    attributes = np.array([*(False for _ in wanted.labels), *(unit.kind == "attribute" for unit in wanted.units)])
    known = wanted.claim_verdict != -1
    rate = (false & attributes[wanted.claim_label]).sum() / (known & attributes[wanted.claim_label]).sum()
    assert 0 < rate < 1
    assert of_kinds["hal_rate_attribute"] == rate
    assert not any(name.endswith(("_count", "_attribute")) for name in figures)
    assert {name: held_out_kinds[name] for name in held_out if "seconds" not in name} == {
        name: value for name, value in held_out.items() if "seconds" not in name
    }
    assert "evaluation_hal_rate_count" in held_out_kinds


def test_the_flops_of_an_update_are_six_operations_a_weight_and_token(place: Path, tmp_path: Path) -> None:
    trainer = Trainer(settings(place, tmp_path / "run", optim={"inner_epochs": 2}), PROCESS_GROUP)
    encoded = encode(trainer.policy, trainer.prompts.take([0, 1]), PROCESS_GROUP.device)
    responses = trainer._sample(encoded, attempt=0)
    rows = [each.row([response.ids for response in responses[4 * k : 4 * k + 4]]) for k, each in enumerate(encoded)]
    micro = MicroBatch(batch_of(rows, PROCESS_GROUP.device), list(range(8)))
    idle = MicroBatch(batch_of(rows[:1], PROCESS_GROUP.device), [])
    weights = sum(each.numel() for each in trainer.policy.vlm.model.language_model.layers.parameters())
    tokens = sum(len(each.prompt.ids) for each in encoded) + sum(len(response.ids) - 1 for response in responses)
    drawn = sum(len(response.ids) for response in responses)
    head = trainer.policy.vlm.lm_head.weight.numel()
    assert trainer.updater.flops([[micro, idle]]) == 2 * 6.0 * (tokens * weights + drawn * head)
