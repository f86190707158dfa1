"""Alarms by a step's metrics, repetition in texts, and the correction for an engine that is not the policy."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from scapo_train.config import from_table  # noqa: E402
from scapo_train.loss import engine_ratio, token_loss  # noqa: E402
from scapo_train.monitoring.alarms import AlarmWatch, repeats_ngram, repeats_sentence  # noqa: E402

FINE = {
    "repeated_sentence_share": 0.0, "repeated_ngram_share": 0.1, "without_claim_share": 0.1, "length": 100.0,
    "cover_rate": 0.51, "truncated_share": 0.0, "zero_reward_share": 0.2, "kl": 0.1, "mismatch": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "repetition",
            {"repeated_sentence_share": 0.5},
            "repeated_sentence_share is 0.500, alarms.repeated_share = 0.3",
        ),
        ("repetition", {"repeated_ngram_share": 0.4}, "repeated_ngram_share is 0.400"),
        ("no_claims", {"without_claim_share": 0.6}, "alarms.without_claim_share = 0.5"),
        ("length", {"length": 201.0}, "length went from 100 to 201 tokens, alarms.length_factor = 2"),
        ("length", {"length": 49.0}, "length went from 100 to 49 tokens"),
        ("cover", {"cover_rate": 0.04}, "cover_rate went from 0.510 to 0.040, alarms.cover_share = 0.5"),
        ("truncated", {"truncated_share": 0.9}, "truncated_share is 0.900"),
        ("zero_reward", {"zero_reward_share": 1.0}, "every reward is 0: nothing to learn from"),
        ("kl", {"kl": 1.5}, "kl is 1.500, loss.kl_alarm = 1"),
        ("mismatch", {"mismatch": 0.06}, "mismatch is 0.060, rollout.mismatch_alarm = 0.05"),
    ],
)
@pytest.mark.usefixtures("quiet_loggers")
def test_an_alarm_is_said_once_and_kept_in_every_step(
    caplog: pytest.LogCaptureFixture, name: str, change: dict[str, float], said: str
) -> None:
    watch = AlarmWatch(from_table({}))
    assert not any(watch.check(1, FINE).values())
    for step in (2, 3):
        raised = watch.check(step, {**FINE, **change})
        assert [key for key, value in raised.items() if value] == [f"alarm_{name}"]
    assert [record.message for record in caplog.records] == [f"step 2: alarm {name}: {caplog.records[0].args[2]}"]
    assert said in caplog.text
    again = AlarmWatch(from_table({}))
    again.restore(watch.state())
    assert again.check(4, {**FINE, **change})[f"alarm_{name}"] == 1.0
    assert len(caplog.records) == 1


def test_repetition_in_a_text() -> None:
    assert repeats_sentence("There is a dog. A cat sleeps. there is  a dog!")
    assert not repeats_sentence("Yes. Yes. There is a dog. There is a cat.")
    assert repeats_ngram("a red car on a road, a red car on a hill, a red car on a field")
    assert not repeats_ngram("a red car on a road and a red car on a hill")
    assert not repeats_ngram("")


def test_the_correction_makes_a_perturbed_engine_unbiased() -> None:
    """Every token is enumerated: the expected gradient over the engine's draws is the policy's own."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(9, dtype=torch.float64, generator=random, requires_grad=True)
    advantage = torch.randn(9, dtype=torch.float64, generator=random)
    engine = torch.log_softmax(logits.detach() + 0.7 * torch.randn(9, dtype=torch.float64, generator=random), 0)

    def gradient(drawn_from: torch.Tensor, most: float | None) -> torch.Tensor:
        logprob = torch.log_softmax(logits, 0)
        given = advantage if most is None else advantage * engine_ratio(logprob, engine, most)
        (found,) = torch.autograd.grad(token_loss(logprob, given, drawn_from.exp()).loss, logits)
        return found

    own = gradient(torch.log_softmax(logits.detach(), 0), None)
    assert torch.allclose(gradient(engine, 1e9), own, rtol=1e-12, atol=1e-14)
    biased = (gradient(engine, None) - own).norm()
    assert biased > 0.1 * own.norm()
    assert 0 < (gradient(engine, 2.0) - own).norm() < biased
    assert engine_ratio(torch.tensor([0.0]), torch.tensor([-9.0]), 2.0).tolist() == [2.0]


def test_settings_that_have_no_effect_are_refused() -> None:
    with pytest.raises(ValueError, match=r"loss\.engine_correction requires an engine that is not the policy"):
        from_table({"loss": {"engine_correction": 2.0}})
    served = {"engine": "vllm", "server": "http://127.0.0.1:8000"}
    corrected = {"engine_correction": 2.0}
    from_table({"rollout": {**served, "lookahead": 1}, "loss": {**corrected, "correction_level": "sequence"}})
    for rollout, loss, said in (
        ({"server": served["server"]}, {}, r'rollout\.server requires rollout\.engine = "vllm"'),
        ({**served, "server": "127.0.0.1:8000"}, {}, r"must be an address such as http://127\.0\.0\.1:8000, got '127"),
        ({**served, "lookahead": 2}, corrected, r"rollout\.lookahead must be 0 or 1, got 2"),
        ({**served, "lookahead": 1}, {}, r"rollout\.lookahead requires loss\.engine_correction \(usually 2\)"),
        (
            {"engine": "vllm", "lookahead": 1},
            corrected,
            r"rollout\.lookahead requires rollout\.server: on the train",
        ),
        ({"engine": "vllm", "transfer": "nccl"}, {}, r"rollout\.transfer = 'nccl' requires rollout\.server"),
        ({}, {"correction_level": "sequence"}, r"loss\.correction_level requires loss\.engine_correction"),
    ):
        with pytest.raises(ValueError, match=said):
            from_table({"rollout": rollout, "loss": loss})
    with pytest.raises(ValueError, match=r"run\.stop_on: unknown smoke; known: repetition, no_claims"):
        from_table({"run": {"stop_on": ["smoke"]}})
