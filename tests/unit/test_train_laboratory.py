"""The laboratory: credits that might keep the text, and what its tables make of trials."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from scapo_eval import PresenceOracle, SubsentenceReward
from scapo_eval.base.errors import InputError
from scapo_train.config import Config, Run, to_toml
from scapo_train.credit import CustomScheme, Sampled
from scapo_train.world import credits, experiment, pretrain, report
from scapo_train.world.__main__ import main
from scapo_train.world.experiment import KERNELS, SCHEMES, Measured, Rates, Trial
from scapo_train.world.language import repeats, vocabulary
from scapo_train.world.pictures import WORLDS
from scapo_train.world.pretrain import QUICK

ORACLE = PresenceOracle.from_objects({"1": ["dog", "car"]}, labels=vocabulary().labels)
REWARD = SubsentenceReward(vocabulary(), ORACLE)


def sampled(texts: list[str], group: int) -> Sampled:
    """Responses to one picture with a dog and a car, of a token per word and an end of sequence."""
    offsets = []
    for text in texts:
        spans, at = list[tuple[int, int]](), 0
        for word in text.split():
            start = text.index(word, at)
            at = start + len(word)
            spans.append((start, at))
        offsets.append(np.array([*spans, (len(text), len(text))], dtype=np.int64))
    columns = REWARD.batch(["1"] * len(texts), texts)
    return Sampled(["1"] * len(texts), texts, offsets, np.ones(len(texts), dtype=bool), columns, group, REWARD)


def test_a_baseline_is_the_mean_of_the_other_responses_tokens() -> None:
    texts = ["It has a dog.", "It has a kite. It is calm.", "A car."]
    given = [[1, 1, 1, 1, 0], [-1, -1, -1, -1, -0.1, -0.1, -0.1, 0], [1, 1, 0]]
    found = credits.baseline(sampled(texts, 3))
    for k, own in enumerate(given):
        others = [value for j, each in enumerate(given) if j != k for value in each]
        np.testing.assert_allclose(found[k], np.array(own) - np.mean(others), rtol=1e-6)


def test_a_baseline_of_the_place_is_the_mean_of_as_many_th_pieces() -> None:
    texts = ["It has a dog. A car.", "It has a kite. It is calm.", "A car."]
    found = credits.baseline_place(sampled(texts, 3))
    first = [1, 1, 1, 1], [-1, -1, -1, -1], [1, 1]
    second = [1, 1], [-0.1, -0.1, -0.1], [0]  # the third ends where its second piece would stand
    third = [0], [0], []
    assert [len(each) for each in found] == [7, 8, 3]
    for k in range(3):
        expected = list[float]()
        for place in (first, second, third):
            others = [value for j in range(3) if j != k for value in place[j]]
            every = [value for p in (first, second, third) for j in range(3) if j != k for value in p[j]]
            expected += [value - np.mean(others or every) for value in place[k]]
        np.testing.assert_allclose(found[k], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scheme", [credits.baseline, credits.baseline_place])
def test_a_baseline_leaves_the_expected_gradient_as_it_is_and_takes_noise_away(scheme: CustomScheme) -> None:
    """All that a small policy may say: a piece or the end, twice; groups of three; most is right."""
    logits = np.array([[0.3, -0.2, 0.5], [-0.4, 0.1, 0.2]])  # (place, choice); the last choice ends
    pieces = ["A dog.", "A car."]
    said = [(2,), *((a, 2) for a in (0, 1)), *((a, b) for a in (0, 1) for b in (0, 1))]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    def gradient(choices: tuple[int, ...], advantages: NDArray[np.float32]) -> NDArray[np.float64]:
        """Sum over the tokens of advantage times the gradient of the log-probability in the logits."""
        found, at = np.zeros_like(logits), 0
        for place, choice in enumerate(choices):
            words = 2 if choice < 2 else 1  # of a piece the first word is chosen, the second follows
            found[place] += advantages[at] * ((np.arange(3) == choice) - chances[place])
            at += words
        return found

    def moments(of: CustomScheme) -> tuple[NDArray[np.float64], float]:
        mean, square = np.zeros_like(logits), 0.0
        for group in itertools.product(said, repeat=3):
            chance = float(np.prod([chances[p, c] for each in group for p, c in enumerate(each)]))
            texts = [" ".join(pieces[c] for c in each if c < 2) for each in group]
            advantages = of(sampled(texts, 3))
            total = sum((gradient(c, a) for c, a in zip(group, advantages, strict=True)), np.zeros_like(logits))
            mean += chance * total
            square += chance * float((total**2).sum())
        return mean, square - float((mean**2).sum())

    plain, noise = moments(lambda given: given.columns.token_advantages(given.offsets))
    mean, less = moments(scheme)
    np.testing.assert_allclose(mean, plain, atol=1e-6)
    assert np.abs(plain).max() > 0.1
    assert less < 0.95 * noise


def test_silence_is_worth_nothing_and_repetition_costs() -> None:
    given = sampled(["It is calm.", "It has a dog.", "It has a dog. It has a kite."], 3)
    silent, right, half = (float(each[0]) for each in credits.hal_spoken(given))
    assert silent < half < right
    assert silent + half + right == pytest.approx(0, abs=1e-5)
    twice = sampled(["A dog. A dog. A car."], 1)
    np.testing.assert_allclose(credits.no_repeat(twice)[0], [1, 1, -0.5, -0.5, 1, 1, 0])


def test_only_the_opening_of_a_repeating_piece_costs() -> None:
    twice = sampled(["A dog. A dog. A car."], 1)
    np.testing.assert_allclose(credits.opening(twice)[0], [1, 1, -0.5, 0, 1, 1, 0])


def test_the_first_token_of_each_piece_weighs_five_times() -> None:
    (found,) = credits.boundary(sampled(["A dog. It is calm. A dog."], 1))
    np.testing.assert_allclose(found, [5, 1, -0.5, -0.1, -0.1, 0, 0, 0])


def test_pieces_weigh_the_same_whatever_their_length() -> None:
    (found,) = credits.per_piece(sampled(["It has a dog. A car."], 1))
    assert found[:4].sum() == pytest.approx(found[4:6].sum())
    assert found[6] == 0


def with_logprobs(given: Sampled, policy: list[list[float]], reference: list[list[float]]) -> Sampled:
    found = {"policy": policy, "reference": reference}
    return replace(given, logprobs=lambda whose: [np.log(np.array(each, dtype=np.float32)) for each in found[whose]])


def test_a_piece_pays_for_the_nats_of_all_its_tokens() -> None:
    policy, reference = [[0.5, 0.5, 0.9, 0.5, 0.5, 0.9]], [[0.5, 0.25, 0.9, 0.5, 0.5, 0.1]]
    given = with_logprobs(sampled(["A dog. It is calm."], 1), policy, reference)
    dog, calm = 1 - 0.1 * np.log(2), -0.1
    np.testing.assert_allclose(credits.kl_piece(given)[0], [dog, dog, calm, calm, calm, 0], rtol=1e-5)


def test_every_credit_of_the_world_is_a_function_that_fits(tmp_path: Path) -> None:
    plain = sampled(["A dog.", "", "A dog. A kite. It is calm.", "A car."], 2)
    even = [[0.5] * len(own) for own in plain.offsets]
    given = with_logprobs(plain, even, even)
    named = [setting for scheme in SCHEMES.values() for setting in scheme.settings if "credits.py:" in setting]
    assert len(named) >= 6
    for setting in named:
        found = getattr(credits, setting.rpartition(":")[2])(given)
        assert [each.shape for each in found] == [(len(own),) for own in given.offsets]
        assert all(np.isfinite(each).all() for each in found)


def measured(cap: float) -> Measured:
    rates = Rates(0.2, 0.5, cap, 20.0, 0.9, 0.0)
    return Measured(rates, rates)


def outcome(scheme: str, values: dict[tuple[int, str], float]) -> report.SchemeRow:
    trials = [Trial(scheme, seed, (), kernels) for seed, kernels in values]
    return report.SchemeRow(scheme, scheme, trials, [measured(value) for value in values.values()])


def test_the_seed_is_the_unit_and_differences_are_taken_within_it() -> None:
    scapo = outcome("scapo", {(0, "avx2"): 0.70, (0, "default"): 0.72, (1, "avx2"): 0.80, (1, "default"): 0.82})
    cap = outcome("cap", {(0, "avx2"): 0.69, (0, "default"): 0.73, (1, "avx2"): 0.77})
    assert scapo.values("sampled", "cap_score") == pytest.approx({0: 71.0, 1: 81.0})
    mean, margin = report.mean_and_margin(scapo.values("sampled", "cap_score").values())
    assert (mean, margin) == (pytest.approx(76.0), pytest.approx(12.706 * 5.0, rel=1e-4))
    assert report.paired(cap, scapo, "greedy", "cap_score") == pytest.approx({0: 0.0, 1: -3.0})
    start = report.SchemeRow("start", "start", [Trial("start", 0)], [measured(0.6)])
    lines = report.table([start, scapo, cap]).splitlines()
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["1", "1", "4", "4", "3", "3"]
    assert "less scapo" in report.differences([start, scapo, cap])
    assert report.differences([start, cap]) == ""


def test_the_spread_of_kernels_and_of_seeds_are_told_apart() -> None:
    values = {(seed, kernels): 0.7 + 0.1 * seed for seed in (0, 1) for kernels in KERNELS}
    lines = report.kernels_table([outcome("start", {}), outcome("scapo", values)]).splitlines()
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert cells[-2:] == ["0.0", "7.1"]
    assert report.kernels_table([outcome("start", {}), outcome("scapo", {(0, ""): 0.7, (1, ""): 0.8})]) == ""


def test_the_folder_of_a_trial_tells_what_it_was(tmp_path: Path) -> None:
    for trial in (
        Trial("scapo", 3),
        Trial("no_repeat", 0, ("optim.lr=1e-4", 'optim.schedule="linear"'), "avx2"),
        Trial("sparse", 100, ("loss.kl=0.1",)),
        Trial("scapo", 1, ("credit.scheme=/own folder/a@b.py:f",), "default"),
    ):
        assert trial.run(tmp_path).parent == tmp_path / f"seed-{trial.seed}" / "runs"
        assert report.trial_of(trial.run(tmp_path)) == trial


def test_options_that_are_given_twice_add_up_and_no_trial_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Trial]()
    monkeypatch.setattr("scapo_train.world.__main__.perform", lambda _, __, trials, *___: asked.extend(trials))
    monkeypatch.setattr(report, "write", lambda *_: "")
    twice = ["--schemes", "scapo", "--schemes", "cap", "--kernels", "avx2", "--kernels", "avx2", "default"]
    vary = ["--vary", "loss.kl=0.1,0.1", "--vary", "optim.lr=1e-4"]
    assert main([*twice, *vary, "--seeds", "1", "--output", str(tmp_path)]) == 0
    settings = ("loss.kl=0.1", "optim.lr=1e-4")
    assert asked == [Trial(scheme, 0, settings, of) for of in ("avx2", "default") for scheme in ("scapo", "cap")]


def run_of(folder: Path, trial: Trial, steps: int) -> Path:
    """A run that ended after a number of steps, with the files that tell so."""
    run, start = trial.run(folder), trial.start(folder)
    (run / "model").mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(f'{{"step":{step}}}\n' for step in range(steps + 1)))
    (run / "config.toml").write_text(to_toml(Config(run=Run(steps=steps))))
    (start / "world.toml").write_text(to_toml(Config()))
    for name in ("config.json", "captions_0.jsonl", "captions_1.jsonl"):
        (run / "model" / name).write_text("{}\n")
    return run


def test_a_run_of_more_steps_is_not_taken_for_one_of_fewer(tmp_path: Path) -> None:
    run = run_of(tmp_path / "plain", Trial("scapo", 0), 3)
    assert experiment.finished(run, 3)
    assert not experiment.finished(run, 4)
    with pytest.raises(InputError, match="contains 3 steps instead of 2: use another --output"):
        experiment.train(tmp_path / "plain", Trial("scapo", 0), 2)
    with open(run / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"step":4,"lo')  # by a process that was killed
    assert not experiment.finished(run, 4)


def test_the_model_of_fewer_steps_is_not_taken_for_one_of_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "plain", Trial("scapo", 0), 2)

    def killed_before_the_export(config: Config, *, resume: bool) -> None:
        (run / "metrics.jsonl").write_text('{"step":3}\n')

    monkeypatch.setattr(experiment.trainer, "train", killed_before_the_export)
    experiment.train(tmp_path / "plain", Trial("scapo", 0), 3)
    assert not experiment.finished(run, 3)
    assert list((run / "model").iterdir()) == []


def test_pairs_of_fewer_steps_are_not_trained_on_for_more(tmp_path: Path) -> None:
    run = run_of(tmp_path / "plain", Trial("dpo", 0), 2)
    with pytest.raises(InputError, match="contains pairs for 2 steps: use another --output"):
        experiment.train(tmp_path / "plain", Trial("dpo", 0), 3)
    assert (run / "model" / "config.json").exists()


def test_a_start_model_is_not_complete_while_it_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of another world begins as a copy of the model of ``plain``, which has all files."""
    folder = tmp_path / "crowded" / "seed-1"

    def built(world: object, model: Path, *_: object) -> None:
        for name in experiment._FILES_OF_START:
            path = model.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        if model.parent == folder and (folder / "was built").exists():
            raise KeyboardInterrupt
        told = {"world": model.parent.parent.name, **vars(QUICK), "seed": 1}
        (model / "lessons.json").write_text(json.dumps(told))

    monkeypatch.setattr(experiment, "write_world", lambda *_, **__: None)
    monkeypatch.setattr(experiment, "pretrain", built)
    assert experiment.prepare(WORLDS["crowded"], tmp_path, QUICK, 1) == folder
    assert experiment.is_prepared(WORLDS["crowded"], folder, QUICK, 1)
    (folder / "model" / "tokenizer.json").unlink()
    (folder / "was built").touch()
    with pytest.raises(KeyboardInterrupt):
        experiment.prepare(WORLDS["crowded"], tmp_path, QUICK, 1)
    assert not experiment.is_prepared(WORLDS["crowded"], folder, QUICK, 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--seed", "-1"], "'-1' is not a whole number from 0 on"),
        (["--seeds", "0"], "'0' is not a whole number from 1 on"),
        (["--steps", "1.5"], "'1.5' is not a whole number from 1 on"),
        (["--vary", "kl"], "'kl' is not KEY=VALUE[,VALUE], as in loss.kl=0.01,0.1"),
        (["--vary", "loss.kll=1"], "kll"),
        (["--vary", "optim.lr=0.1,fast"], "fast"),
        (["--vary", "run.steps=10,20"], "run.steps is not a setting of trials"),
    ],
)
def test_a_wrong_argument_is_said_before_anything_is_drawn(
    asked: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*asked, "--output", str(tmp_path / "out")])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_captions_that_repeat_a_sentence_are_counted() -> None:
    assert repeats(["It has a dog. It has a dog.", "It has a dog. It has a car.", "", "It has a"]) == 0.25


def test_the_end_of_a_caption_has_its_own_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    logprob = torch.tensor([-1.0, -2.0, -3.0, -5.0, -7.0], requires_grad=True)
    losses: list[torch.Tensor] = []

    class Policy:
        def __call__(self, rows: object) -> SimpleNamespace:
            return SimpleNamespace(logprob=logprob)

        def parameters(self) -> list[torch.Tensor]:
            return [logprob]

        def train(self) -> None: ...

        def eval(self) -> None: ...

    def tokenizer(texts: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[[1, 2], [3]])

    tokenizer.eos_token_id = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(pretrain, "question", lambda *_: (None, None, 0))
    monkeypatch.setattr(pretrain, "batch_of", lambda rows, _: rows)
    monkeypatch.setattr(pretrain, "_updates", lambda *_: [(1, losses.append)])
    for weight in ([], [0.5]):
        arguments: list[Any] = [Policy(), SimpleNamespace(tokenizer=tokenizer), [SimpleNamespace(embeds=[0])]]
        pretrain.imitate(*arguments, lambda k: ["a b", "c"], 1, 1, 0.1, np.random.default_rng(0), *weight)
    assert [loss.item() for loss in losses] == pytest.approx([18 / 5, 13 / 4])
