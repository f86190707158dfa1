"""The loss against closed forms, autograd and a plain loop."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from scapo_train.logprob import CHUNK_ELEMENTS, KEPT_ELEMENTS, token_statistics  # noqa: E402
from scapo_train.loss import engine_ratio, kl_estimate, token_loss  # noqa: E402

NONE = torch.tensor([], dtype=torch.long)


def randoms(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_single_update_has_the_gradient_of_the_weighted_log_likelihood() -> None:
    logprob = randoms(7).requires_grad_()
    advantage, weight = randoms(7, seed=1), randoms(7, seed=2).abs()
    result = token_loss(logprob, advantage, weight)
    result.loss.backward()
    assert logprob.grad is not None
    torch.testing.assert_close(logprob.grad, -weight * advantage)
    assert result.loss.item() == pytest.approx(-(weight * advantage).sum().item())
    assert int(result.clipped) == 0
    assert float(result.kl) == 0.0


def test_the_clipped_surrogate_equals_a_plain_loop() -> None:
    logprob, old = randoms(50) * 0.4, randoms(50, seed=3) * 0.4
    advantage, weight = randoms(50, seed=1), randoms(50, seed=2).abs()
    logprob.requires_grad_()
    result = token_loss(logprob, advantage, weight, old=old, clip_low=0.2, clip_high=0.28)
    result.loss.backward()
    total, clipped, slopes = 0.0, 0, []
    for lp, lo, a, w in zip(logprob.tolist(), old.tolist(), advantage.tolist(), weight.tolist(), strict=True):
        rho = math.exp(lp - lo)
        bounded = min(max(rho, 0.8), 1.28)
        total -= w * min(rho * a, bounded * a)
        cut = bounded * a < rho * a
        clipped += cut
        slopes.append(0.0 if cut else -w * a * rho)
    assert result.loss.item() == pytest.approx(total, rel=1e-12)
    assert int(result.clipped) == clipped > 5
    assert logprob.grad is not None
    torch.testing.assert_close(logprob.grad, torch.tensor(slopes, dtype=torch.float64))


def test_estimators_are_their_closed_forms_and_k1_k3_average_to_the_divergence() -> None:
    logits, other = randoms(6) * 0.5, randoms(6, seed=4) * 0.5
    policy, reference = logits.log_softmax(0), other.log_softmax(0)
    exact = (policy.exp() * (policy - reference)).sum()
    for name in ("k1", "k3"):
        mean = (policy.exp() * kl_estimate(policy, reference, name)).sum()
        torch.testing.assert_close(mean, exact, rtol=1e-12, atol=0)
    difference = policy - reference
    torch.testing.assert_close(kl_estimate(policy, reference, "k2"), difference**2 / 2)
    torch.testing.assert_close(kl_estimate(policy, reference, "k3"), (-difference).exp() - 1 + difference)
    assert (kl_estimate(policy, reference, "k3") >= 0).all()


def test_the_expected_gradient_of_k2_is_that_of_the_divergence_and_that_of_k1_is_zero() -> None:
    other = (randoms(6, seed=4) * 0.5).log_softmax(0)
    logits = (randoms(6) * 0.5).requires_grad_()
    (exact,) = torch.autograd.grad((logits.softmax(0) * (logits.log_softmax(0) - other)).sum(), logits)
    probability = logits.softmax(0).detach()
    for name, wanted in (("k2", exact), ("k1", torch.zeros(6, dtype=torch.float64))):
        (found,) = torch.autograd.grad((probability * kl_estimate(logits.log_softmax(0), other, name)).sum(), logits)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)


def test_the_kl_term_is_weighted_like_the_surrogate() -> None:
    logprob, reference, weight = randoms(5), randoms(5, seed=1), randoms(5, seed=2).abs()
    zero = torch.zeros(5, dtype=torch.float64)
    result = token_loss(logprob, zero, weight, reference=reference, kl_weight=0.3, estimator="k3")
    wanted = 0.3 * weight * kl_estimate(logprob, reference, "k3")
    assert result.loss.item() == pytest.approx(wanted.sum().item())
    assert result.kl.item() == pytest.approx(kl_estimate(logprob, reference).sum().item())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [10**9, 3 * 31, 1])
@pytest.mark.parametrize("kept_elements", [0, 20 * 31])
def test_statistics_and_gradients_equal_those_of_the_whole_log_softmax(
    monkeypatch: pytest.MonkeyPatch, kept_elements: int, chunk: int, temperature: float
) -> None:
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    monkeypatch.setitem(KEPT_ELEMENTS, "cpu", kept_elements)
    n, d, size = 20, 8, 31
    never, ends = torch.tensor([3, 7]), torch.tensor([1, 2])
    hidden, weight = randoms(n, d).requires_grad_(), randoms(size, d, seed=5).requires_grad_()
    targets = torch.randint(8, size, (n,), generator=torch.Generator().manual_seed(6))
    slope = randoms(n, seed=7)

    found = token_statistics(hidden, weight, targets, never=never, ends=ends, temperature=temperature)
    (found.logprob * slope).sum().backward()
    gradients = hidden.grad, weight.grad

    plain_hidden, plain_weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    logits = plain_hidden @ plain_weight.T / temperature
    allowed = torch.ones(size, dtype=torch.bool)
    allowed[never] = False
    logprobs = logits.masked_fill(~allowed, -torch.inf).log_softmax(1)
    plain = logprobs.gather(1, targets[:, None])[:, 0]
    (plain * slope).sum().backward()
    kept = logprobs[:, allowed]
    torch.testing.assert_close(found.logprob, plain)
    torch.testing.assert_close(found.entropy, -(kept.exp() * kept).sum(1))
    torch.testing.assert_close(found.end, logprobs[:, ends].exp().sum(1))
    torch.testing.assert_close(gradients[0], plain_hidden.grad)
    torch.testing.assert_close(gradients[1], plain_weight.grad)
    assert not found.entropy.requires_grad
    assert not found.end.requires_grad


def test_only_few_probabilities_are_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    n, d, size = 4096, 8, 1000
    monkeypatch.setitem(KEPT_ELEMENTS, "cpu", n * size - 1)
    hidden, weight = torch.randn(n, d, requires_grad=True), torch.randn(size, d, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
        token_statistics(hidden, weight, torch.zeros(n, dtype=torch.long), never=NONE, ends=torch.tensor([1]))
    assert kept
    assert max(kept) < n * size // 10


class Enumerated:
    """Policy and older policy on all responses of up to three of three tokens, of which the first one is the end. The
    logits of a token depend on all tokens before it.
    """

    def __init__(self) -> None:
        self.responses = [
            tokens
            for length in (1, 2, 3)
            for tokens in itertools.product(range(3), repeat=length)
            if 0 not in tokens[:-1] and (tokens[-1] == 0 or length == 3)
        ]
        prefixes = sorted({tokens[:k] for tokens in self.responses for k in range(len(tokens))})
        self.row = {prefix: k for k, prefix in enumerate(prefixes)}
        self.logits = randoms(len(prefixes), 3).requires_grad_()
        self.older = self.logits.detach() + 0.6 * randoms(len(prefixes), 3, seed=1)

    def logprobs(self, logits: torch.Tensor, tokens: tuple[int, ...]) -> torch.Tensor:
        table = logits.log_softmax(1)
        return torch.stack([table[self.row[tokens[:k]], token] for k, token in enumerate(tokens)])

    def gradient(
        self, advantages: dict[tuple[tuple[int, ...], ...], list[list[float]]], *, older: bool, most: float, level: str
    ) -> torch.Tensor:
        """Returns the expected gradient over all groups of responses that were sampled from one of the policies.

        Args:
            advantages: Groups of responses, with the advantages of each response's tokens.
            older: True if the older policy sampled the responses.
            most: Maximum importance ratio, or 0 for no correction.
            level: Unit of the importance ratio.
        """
        total = torch.zeros((), dtype=torch.float64)
        for group, of_tokens in advantages.items():
            new = torch.cat([self.logprobs(self.logits, tokens) for tokens in group])
            old = torch.cat([self.logprobs(self.older, tokens) for tokens in group])
            advantage = torch.tensor([value for values in of_tokens for value in values], dtype=torch.float64)
            if most:
                lengths = [len(tokens) for tokens in group] if level == "sequence" else None
                advantage = advantage * engine_ratio(new, old, most, lengths)
            probability = (old if older else new.detach()).sum().exp()
            total = total + token_loss(new, advantage, probability.expand(len(new))).loss
        (found,) = torch.autograd.grad(total, self.logits)
        return found


def single(world: Enumerated) -> dict[tuple[tuple[int, ...], ...], list[list[float]]]:
    """Returns arbitrary advantages of tokens, which depend on the whole response."""
    random = torch.Generator().manual_seed(7)
    return {(tokens,): [torch.randn(len(tokens), generator=random).tolist()] for tokens in world.responses}


def pairs(world: Enumerated) -> dict[tuple[tuple[int, ...], ...], list[list[float]]]:
    """Returns the advantages of two responses relative to their mean reward."""
    reward = dict(zip(world.responses, randoms(len(world.responses), seed=8).tolist(), strict=True))
    groups = itertools.product(world.responses, repeat=2)
    return {
        group: [[reward[tokens] - (reward[group[0]] + reward[group[1]]) / 2] * len(tokens) for tokens in group]
        for group in groups
    }


@pytest.mark.parametrize("advantages_of", [single, pairs])
def test_ratios_of_responses_give_the_gradient_of_the_policy_on_responses_of_an_older_one(
    advantages_of: Callable[[Enumerated], dict[tuple[tuple[int, ...], ...], list[list[float]]]],
) -> None:
    world = Enumerated()
    probabilities = [world.logprobs(world.older, tokens).sum().exp() for tokens in world.responses]
    assert float(torch.stack(probabilities).sum()) == pytest.approx(1, abs=1e-12)
    gradient = functools.partial(world.gradient, advantages_of(world))
    own = gradient(older=False, most=0, level="token")
    exact = gradient(older=True, most=1e9, level="sequence")
    assert torch.allclose(exact, own, rtol=1e-11, atol=1e-14)
    uncorrected = (gradient(older=True, most=0, level="token") - own).norm()
    assert uncorrected > 0.2 * own.norm()
    for level in ("token", "sequence"):  # biased, because of tokens before this one, or of the limit
        most = 1e9 if level == "token" else 2.0
        assert 1e-3 * own.norm() < (gradient(older=True, most=most, level=level) - own).norm() < uncorrected


def test_ratios_of_responses_are_truncated_as_a_whole() -> None:
    new, old = torch.tensor([0.0, -1.0, -2.0, 5.0]), torch.tensor([-1.0, -0.5, -2.0, -200.0])
    assert engine_ratio(new, old, 2.0).tolist() == pytest.approx([2.0, math.exp(-0.5), 1.0, 2.0])
    found = engine_ratio(new, old, 2.0, [2, 1, 1]).tolist()
    assert found == pytest.approx([math.exp(0.5), math.exp(0.5), 1.0, 2.0])
