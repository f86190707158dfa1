"""Signal and noise of gradients: estimates compared with slow definitions, parts compared with the trainer's own
gradient.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from scapo_train.credit import token_weights  # noqa: E402
from scapo_train.data import seed_of  # noqa: E402
from scapo_train.rollout import encode  # noqa: E402
from scapo_train.world import snr  # noqa: E402
from scapo_train.world.__main__ import main  # noqa: E402
from scapo_train.world.experiment import SCHEMES, prepare  # noqa: E402
from scapo_train.world.pictures import WORLDS  # noqa: E402
from scapo_train.world.pretrain import Lessons  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("quiet_loggers")]
LESSONS = Lessons(see=1, speak=30, scenes=64, pictures=16)


def vectors(batches: int, mean: float, size: int = 400) -> np.ndarray:
    """Returns (batches, schemes, parts, parameters) vectors with a known mean and unit variance."""
    random = np.random.default_rng(3)
    return (random.normal(size=(batches, 2, 3, size)) + mean).astype(np.float32)


def test_products_are_means_over_pairs_of_batches() -> None:
    made = vectors(5, 0.3)[:, 0, 0].astype(float)
    gram = made @ made.T
    pairs = [made[b] @ made[c] for b, c in itertools.permutations(range(5), 2)]
    assert snr.mean_product(gram) == pytest.approx(np.mean(pairs))
    assert snr.noise_product(gram) == pytest.approx(np.cov(made.T, ddof=1).trace())
    assert snr.squared_snr(gram) == pytest.approx(np.mean(pairs) / np.cov(made.T, ddof=1).trace())


def test_the_estimates_are_unbiased_and_their_intervals_hold_the_truth() -> None:
    """Checks thousands of draws of three batches, with a squared length of 1 and a noise of 4 x 1."""
    made = np.random.default_rng(0).normal(size=(4000, 3, 4)) + 0.5
    gram = made @ made.transpose(0, 2, 1)
    assert np.mean([snr.mean_product(each) for each in gram]) == pytest.approx(1.0, abs=0.1)
    assert np.mean([snr.noise_product(each) for each in gram]) == pytest.approx(4.0, abs=0.1)
    naive = np.mean([(each.sum() / 9) for each in gram])
    assert naive > 2  # the squared length of the mean itself counts a third of the noise
    wide = np.random.default_rng(1).normal(size=(200, 12, 40)) + 0.5
    held = [snr.jackknife(snr.squared_snr, each @ each.T) for each in wide]
    assert np.mean([abs(each.value - 0.25) <= each.margin for each in held]) > 0.9  # type: ignore[operator]


def test_parts_share_the_whole_and_the_same_gradient_has_cosine_1() -> None:
    made = vectors(8, 0.4, size=20000)
    made[:, 1] = 3 * made[:, 0]
    made[:, :, 2] = 0.0
    found = snr.signals_of(made, ["scapo", "cap"], seed=0)
    for scheme in found.schemes:
        parts = [found.signals[scheme][part] for part in snr.PARTS]
        assert sum(part.signal.value for part in parts) == pytest.approx(1.0)  # type: ignore[misc]
        assert sum(part.noise.value for part in parts) == pytest.approx(1.0)  # type: ignore[misc]
        assert parts[2].snr.value is None  # neither signal nor noise
        assert found.signals[scheme]["all"].snr.value == pytest.approx(
            0.8**2 / 2, rel=0.03
        )  # two parts: mean 0.8, variance 2
    assert found.cosines["scapo"]["cap"].value == pytest.approx(1.0)
    assert "n/a" in snr.tables([found])


def test_a_signal_that_cannot_be_told_from_0_has_no_shares() -> None:
    made = np.random.default_rng(0).normal(size=(4, 1, 3, 50)).astype(np.float32)
    made -= made.mean(0)  # the estimate of the squared length is negative
    found = snr.signals_of(made, ["scapo"], seed=0).signals["scapo"]
    assert found["all"].snr.value is not None
    assert found["all"].snr.value < 0
    assert [found[part].signal.value for part in snr.PARTS] == [None] * 3
    assert sum(found[part].noise.value for part in snr.PARTS) == pytest.approx(1.0)  # type: ignore[misc]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return prepare(WORLDS["plain"], tmp_path_factory.mktemp("world"), LESSONS, 5)


def test_the_parts_sum_to_the_gradient_that_the_trainer_takes(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemes = ["scapo", "stop", "cap"]
    taken = {}
    batch = snr.Gradients.batch

    def both(self: snr.Gradients, number: int) -> np.ndarray:
        """Returns the parts, and the gradients that the trainer's own update accumulates for the same responses."""
        made, trainer = batch(self, number), self.trainer
        seed = seed_of(trainer.config.run.seed, number, 37)
        order = np.random.default_rng(seed).choice(len(trainer.prompts.sources), size=2, replace=False).tolist()
        encoded = encode(trainer.policy, trainer.prompts.take(order), trainer.process_group.device)
        responses = trainer.sampler.sample(encoded, seed, 8, 1.0)
        for scheme, config in self.configs.items():
            trainer.config, trainer.reward = config, self.rewards[scheme]
            credited = trainer._credit(encoded, responses)
            mini = trainer.updater.mini_batches(order, encoded, responses)
            lengths = np.array([len(response.ids) for response in responses])
            weights = token_weights(config.loss, lengths, float(lengths.sum()), float(len(lengths)), 1)
            trainer.optimizer.zero_grad()
            for micro in mini:
                trainer.updater._backward(micro, credited, lengths, weights, torch.zeros(8, dtype=torch.float64))
            taken[scheme] = torch.cat([p.grad.flatten() for p in trainer.trainable]).numpy().copy()
        return made

    monkeypatch.setattr(snr.Gradients, "batch", both)
    drawn = snr.gradients(start, schemes, seed=5, prompts=2)
    made = next(drawn)
    drawn.close()
    for k, scheme in enumerate(schemes):
        whole = made[k].sum(0)
        assert np.linalg.norm(whole) > 0
        np.testing.assert_allclose(whole, taken[scheme], atol=1e-5 * float(np.abs(taken[scheme]).max()) + 1e-8)
        assert all(np.linalg.norm(part) > 0 for part in made[k][[0, 2]])


def test_the_command_writes_what_it_prints_and_the_same_twice(
    start: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scapo_train.world.__main__.Lessons", lambda: LESSONS)
    output = start.parent.parent
    given = ["snr", "-o", str(output), "--seed", "5", "--seeds", "1", "--schemes", "scapo", "cap", "--batches", "3"]
    monkeypatch.setattr(snr, "PROMPTS", 2)
    assert main(given) == 0
    said, first = capsys.readouterr().out, (output / "plain" / "snr.json").read_bytes()
    assert "| SCAPO | all |" in said
    assert f"| {SCHEMES['cap'].title} | all |" in said
    written = json.loads(first)
    assert (written["batches"], [each["seed"] for each in written["seeds"]]) == (3, [5])
    assert main(given) == 0
    assert (output / "plain" / "snr.json").read_bytes() == first


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["snr", "--steps", "3"], "--steps: not an option of snr"),
        (["snr", "--jobs", "2"], "--jobs: not an option of snr"),
        (["snr", "--schemes", "dpo"], "dpo has no gradient on rollouts"),
        (["snr", "--batches", "2"], "not a whole number from 3 on"),
        (["--batches", "5"], "--batches is an option of snr"),
        (["ask"], "invalid choice: 'ask'"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err
