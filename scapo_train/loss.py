"""The clipped surrogate and the KL estimators: pure functions of log-probabilities.

Every scheme shares them. A scheme is its (tokens,) advantages, and a normalizer is (tokens,) weights, so
the loss of any part of a batch is a plain sum, and parts add up to the whole however the batch was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class TokenLoss:
    """The loss of some tokens.

    Attributes:
        loss: () sum over tokens of ``weight * (surrogate + kl_weight * kl)``.
        clipped: () number of tokens whose gradient the clip cut off.
        kl: () sum of the KL estimates; 0 without a reference.
    """

    loss: Tensor
    clipped: Tensor
    kl: Tensor


def token_loss(
    logprob: Tensor,
    advantage: Tensor,
    weight: Tensor,
    *,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl_weight: float = 0.0,
    estimator: Estimator = "k3",
) -> TokenLoss:
    """Computes Eq. 2 of the paper for N tokens.

    Args:
        logprob: (N,) log-probabilities by the policy, with gradient.
        advantage: (N,) advantages.
        weight: (N,) share of each token in the batch's loss, such as 1 / N_tok.
        old: (N,) log-probabilities when the tokens were sampled; None: this is the only update of the batch,
            the ratio is 1 in value, and its gradient is that of the log-probability.
        reference: (N,) log-probabilities by the reference model; None: no KL term.
        clip_low: the ratio is kept above ``1 - clip_low``.
        clip_high: the ratio is kept below ``1 + clip_high``.
        kl_weight: beta, the weight of the KL term.
        estimator: KL estimator, see :func:`kl_estimate`.
    """
    ratio = torch.exp(logprob - (logprob.detach() if old is None else old))
    plain = ratio * advantage
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    per_token = -torch.minimum(plain, clipped)
    kl = torch.zeros_like(per_token)
    if reference is not None:
        kl = kl_estimate(logprob, reference, estimator)
        per_token = per_token + kl_weight * kl
    return TokenLoss((weight * per_token).sum(), (clipped < plain).sum().detach(), kl.sum().detach())


def engine_ratio(policy: Tensor, engine: Tensor, most: float) -> Tensor:
    """Returns the truncated importance ratio of tokens that another engine than the policy has sampled.

    Multiplied with the advantages, it makes the expected gradient that of the policy, up to the truncation (Yao et al.,
    "Your efficient RL framework secretly brings you off-policy RL training", 2025).

    Args:
        policy: (N,) log-probabilities by the policy when the tokens were sampled.
        engine: (N,) log-probabilities by the engine that sampled them.
        most: largest ratio.

    Returns:
        (N,), without gradient.
    """
    return torch.exp(policy.detach() - engine).clamp(max=most)


def kl_estimate(logprob: Tensor, reference: Tensor, estimator: Estimator = "k3") -> Tensor:
    """Returns KL(policy || reference) per token, from samples of the policy.

    With d = logprob - reference: ``k1`` is d (unbiased, may be negative; its expected gradient as a loss is
    0), ``k2`` is d^2 / 2 (biased, its gradient is that of the KL), ``k3`` is exp(-d) - 1 + d (unbiased, never
    negative). See J. Schulman, "Approximating KL divergence" (2020).

    Args:
        logprob: (N,) log-probabilities by the policy.
        reference: (N,) log-probabilities by the reference model.

    Returns:
        (N,).
    """
    difference = logprob - reference
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    return torch.expm1(-difference) + difference
