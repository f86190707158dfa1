"""Clipped surrogate and KL estimators as pure functions of log-probabilities.

All schemes share these functions. A scheme determines the (tokens,) array of advantages, and a normalizer determines
the (tokens,) array of weights. The loss is a weighted sum over tokens. Therefore, no matter how a batch is divided into
parts, the losses of the parts add up to the loss of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class TokenLoss:
    """Loss of a set of tokens, with statistics for the log.

    Attributes:
        loss: Sum over tokens of ``weight * (surrogate + kl_weight * kl)``, as a scalar tensor.
        clipped: Number of tokens whose gradient was clipped to 0, as a scalar tensor.
        kl: Sum of the KL estimates, as a scalar tensor. The value is 0 if there is no reference.
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
        logprob: (N,) log-probabilities under the policy, with gradients.
        advantage: (N,) advantages.
        weight: (N,) weight of each token in the loss of the batch, such as 1 / N_tok.
        old: (N,) log-probabilities at sampling time. If ``old`` is None, the update is the only one of the batch, so
            that the ratio is 1 and its gradient is that of the log-probability.
        reference: (N,) log-probabilities under the reference model, or None if there is no KL term.
        clip_low: Lower clip range. Ratios below ``1 - clip_low`` are clipped.
        clip_high: Upper clip range. Ratios above ``1 + clip_high`` are clipped.
        kl_weight: Weight of the KL term (beta).
        estimator: Name of the KL estimator; see :func:`kl_estimate`.
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


def engine_ratio(policy: Tensor, engine: Tensor, most: float, lengths: Sequence[int] | None = None) -> Tensor:
    """Returns the truncated importance ratios of tokens that were not sampled from the present policy, but by an engine
    with slightly different probabilities, or with earlier weights.

    If advantages are multiplied by the ratios of complete responses, the expected gradient is that of the policy, up to
    the truncation. The ratios of single tokens vary less, but ignore that earlier tokens of the response would also be
    sampled differently (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025).

    Args:
        policy: (N,) log-probabilities under the policy before the update.
        engine: (N,) log-probabilities computed by the engine at sampling time.
        most: Maximum ratio.
        lengths: Numbers of tokens of the responses, for ratios of complete responses, or None for ratios of single
            tokens.

    Returns:
        (N,) ratios, without gradients.
    """
    difference = policy.detach() - engine
    if lengths is not None:
        sums = torch.stack([part.sum() for part in difference.split(list(lengths))])
        difference = sums.repeat_interleave(torch.tensor(lengths, device=sums.device))
    return torch.exp(difference).clamp(max=most)


def kl_estimate(logprob: Tensor, reference: Tensor, estimator: Estimator = "k3") -> Tensor:
    """Returns an estimate of KL(policy || reference) for each token, computed from samples of the policy.

    With d = logprob - reference, ``k1`` is d (unbiased, possibly negative; its expected gradient as a loss is 0),
    ``k2`` is d^2 / 2 (biased, but its gradient is that of the KL divergence), and ``k3`` is exp(-d) - 1 + d (unbiased
    and never negative). The estimators are those of Schulman,
    "Approximating KL divergence" (2020).

    Args:
        logprob: (N,) log-probabilities under the policy.
        reference: (N,) log-probabilities under the reference model.
        estimator: Name of the estimator.

    Returns:
        (N,) estimates.
    """
    difference = logprob - reference
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    return torch.expm1(-difference) + difference
