"""``python -m scapo_train.floor``: the lowest probabilities against a slow version, what it prints and refuses."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train import floor  # noqa: E402
from scapo_train.config import load  # noqa: E402
from scapo_train.credit import wording_charged  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.rollout import encode  # noqa: E402
from scapo_train.trainer import Trainer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
GROUP = ProcessGroup(0, 1, torch.device("cpu"))


def test_the_share_is_that_which_training_would_charge(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["loss.kl=0.01", f"run.output={lab.folder / 'a'}"]
    found = floor.lowest_probabilities(load(str(lab.config), settings), GROUP, 2)
    assert len(found.log_probability) == len(found.prompt) > 20
    assert set(found.prompt.tolist()) <= set(range(12))
    for share in (0.1, 0.5):
        value = found.floor_of(share)
        low, high = (np.mean(found.log_probability < math.log(value * by)) for by in (1 - 1e-9, 1 + 1e-9))
        assert low <= share <= high + 1 / len(found.log_probability)
    ordered = np.unique(found.log_probability)
    value = math.exp(ordered[len(ordered) // 2 :][:2].mean())  # between two pieces, so that rounding does not matter

    charged, pieces = 0, 0
    trainer = Trainer(load(str(lab.config), [*settings, f"run.output={lab.folder / 'b'}"]), GROUP)
    import scapo_train.credit as credits

    def counted(sampled: credits.Sampled, *limits: float) -> np.ndarray:
        nonlocal charged, pieces
        none = np.zeros(len(sampled.columns.reward))
        sampled = credits.replace(sampled, columns=credits.replace(sampled.columns, reward=none))
        charged += int((wording_charged(sampled, *limits) < 0).sum())
        pieces += len(none)
        return none

    monkeypatch.setattr(credits, "wording_charged", counted)
    object.__setattr__(trainer.config.credit, "reference_floor", value)
    for step in range(2):
        trainer.step = step
        encoded = encode(trainer.policy, trainer.prompts.take(trainer.own_indices(step)), GROUP.device)
        responses = trainer._sample(encoded, attempt=0)
        mini = trainer.updater.mini_batches(trainer.indices(step), encoded, responses)
        trainer.updater.add_frozen_logprobs(mini)
        trainer._credit(encoded, responses, partial(trainer.updater.logprobs, mini, [len(r.ids) for r in responses]))
    trainer.close()
    assert pieces == len(found.log_probability)
    assert charged / pieces == pytest.approx(found.share_of(value)[0])
    assert 0 < charged < pieces


def test_the_tables(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--set", "loss.kl=0", "--set", f"run.output={lab.folder / 'never'}")
    settings += ("--set", "run.trackers=['wandb']")  # which must not be started
    evaluated = (f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1", "run.keep_best=cap_score")
    settings += tuple(word for setting in (*evaluated, "run.patience=2") for word in ("--set", setting))
    assert floor.main([str(lab.config), *settings, "--batches", "1"]) == 0
    first, *lines = capsys.readouterr().out.strip().splitlines()
    assert first.endswith("pieces of the start model's responses to 5 prompts")
    assert lines[1] == "| pieces penalized | credit.reference_floor |"
    assert len([line for line in lines if line.startswith("| 1e-05 |")]) == 1
    assert not (lab.folder / "never").exists()


def test_the_interval_is_that_of_prompts() -> None:
    rng = np.random.default_rng(1)
    prompts = np.repeat(np.arange(40), 5)
    values = np.log(np.where(np.repeat(rng.random(40) < 0.3, 5), 1e-4, 0.5))  # all or none of a prompt's pieces
    found = floor.LowestProbabilities(values, prompts)
    share, low, high = found.share_of(1e-3)
    assert share == np.mean(values < math.log(1e-3))
    spread = math.sqrt(share * (1 - share) / 40)
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)


@pytest.mark.parametrize(
    "credit",
    [
        ("credit.reference_ratio=100", "credit.reference_floor=0.3"),
        ("credit.stop=group",),
    ],
)
def test_the_credit_of_the_run_does_not_matter(
    lab: Any, credit: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for settings in ((), credit):
        changes = [part for setting in ("loss.kl=0.01", *settings) for part in ("--set", setting)]
        assert floor.main([str(lab.config), *changes, "--batches", "1"]) == 0
        printed.append([line for line in capsys.readouterr().out.splitlines() if not line.startswith("| 0.3 |")])
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--batches", "0"), "--batches must be at least 1"),
        (("--set", "data.train=none.jsonl"), "none.jsonl"),
        (
            ("--set", "credit.scheme=grpo", "--set", "credit.reward=hal"),
            'applies to rewards of pieces; "grpo" has none',
        ),
    ],
)
def test_refused(lab: Any, arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert floor.main([str(lab.config), *arguments]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.usefixtures("quiet_loggers")
def test_too_little_memory_for_the_model_is_one_line(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("scapo_train.loop.load_policy", full)
    assert floor.main(lab.run("run")) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("scapo_train.floor: out of memory before the first step: CUDA out of memory")


def test_too_little_memory_is_one_line(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("scapo_train.update.Updater.add_frozen_logprobs", full)
    assert floor.main(lab.run("run")) == 2
    said = capsys.readouterr().err.strip()
    start = (
        "scapo_train.floor: out of memory in step 1 (logprob): CUDA out of memory; these settings need less memory: "
    )
    assert said.splitlines()[-1].startswith(start + "optim.micro_batch_tokens = 4096, ")
