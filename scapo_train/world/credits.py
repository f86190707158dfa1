"""Experimental variants of SCAPO's credit for the small world, for ``credit.scheme = "credits.py:NAME"``.

Like any custom credit function, each variant receives a :class:`~scapo_train.credit.Sampled` and returns advantages.
``docs/lab/laboratory.md`` reports the results of these variants, including negative results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scapo_train.credit import Sampled, standardized

Advantages = list[NDArray[np.float32]]

REPEAT_PENALTY = 0.5
BOUNDARY = 5.0
PIECE_KL = 0.1


def hal_spoken(sampled: Sampled) -> Advantages:
    """Returns GRPO's advantages with ``1 - hal_rate`` as the reward. Responses without claims have reward 0."""
    columns = sampled.columns
    claimed = np.maximum(columns.generated, 1)
    rewards = np.where(columns.generated > 0, 1 - columns.hallucinated / claimed, 0.0)
    advantages = standardized(rewards, sampled.group)
    return [
        np.full(len(spans), value, dtype=np.float32) for spans, value in zip(sampled.offsets, advantages, strict=True)
    ]


def baseline(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages minus their mean over all tokens (including the end of sequence) of the other
    responses to the prompt.

    The subtracted mean does not depend on the response itself. The expected gradient is therefore the same as in the
    paper, but the gradient has less noise.
    """
    return _less_others(_paper(sampled), sampled.group)


def baseline_place(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages after subtracting a baseline: the mean advantage of the tokens in the same-index
    pieces of the other responses to the prompt.

    The piece index is known before a token is drawn, so the expected gradient is the same as in the paper. The index of
    the end-of-sequence token is one greater than that of the last piece. If no other response has a piece with this
    index, the mean over all tokens of the other responses is used.
    """
    advantages, places = _paper(sampled), sampled.pieces
    corrected = Advantages()
    for first in range(0, len(advantages), sampled.group):
        group = range(first, min(first + sampled.group, len(advantages)))
        most = 1 + max((int(places[k].max()) for k in group if len(places[k])), default=0)
        sums, counts = np.zeros((len(group), most)), np.zeros((len(group), most))
        for row, k in enumerate(group):
            sums[row] = np.bincount(places[k], weights=advantages[k], minlength=most)
            counts[row] = np.bincount(places[k], minlength=most)
        for row, k in enumerate(group):
            others, number = sums.sum(0) - sums[row], counts.sum(0) - counts[row]
            overall = others.sum() / max(number.sum(), 1)
            mean = np.where(number > 0, others / np.maximum(number, 1), overall)
            corrected.append((advantages[k] - mean[places[k]]).astype(np.float32))
    return corrected


def no_repeat(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages with a penalty of 0.5 for pieces that only repeat earlier claims."""
    return sampled.paid(_repeat_penalized(sampled))


def opening(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages with a penalty of 0.5 on the first token of each piece that only repeats earlier
    claims. The penalty applies to the decision to begin a piece that only repeats claims, but not to the wording of the
    piece.
    """
    advantages, penalized = _paper(sampled), sampled.paid(_repeat_penalized(sampled))
    for own, other, places in zip(advantages, penalized, sampled.pieces, strict=True):
        first = np.unique(places, return_index=True)[1]
        own[first] = other[first]
    return advantages


def boundary(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages, multiplied by 5 for the first token of each piece.

    The first token represents the decision to continue the response. At this decision, the signal-to-noise ratio is
    much higher than at the other tokens, but the decision contributes only a small share of the gradient
    (docs/lab/snr.md).
    """
    advantages = _paper(sampled)
    for own, places in zip(advantages, sampled.pieces, strict=True):
        own[np.unique(places, return_index=True)[1]] *= BOUNDARY
    return advantages


def baseline_no_repeat(sampled: Sampled) -> Advantages:
    """Returns the advantages of :func:`no_repeat` minus their mean over the other responses to the prompt."""
    return _less_others(no_repeat(sampled), sampled.group)


def per_piece(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages with equal weights for all pieces, regardless of the number of tokens in a piece. The
    mean weight of a token is 1.
    """
    advantages, places = _paper(sampled), sampled.pieces
    sizes = [np.bincount(place)[place].astype(np.float64) if len(place) else place for place in places]
    weights = [1 / np.maximum(size, 1) for size in sizes]
    mean = sum(weight.sum() for weight in weights) / max(1, sum(map(len, weights)))
    return [
        (advantage * weight / mean).astype(np.float32) for advantage, weight in zip(advantages, weights, strict=True)
    ]


def kl_piece(sampled: Sampled) -> Advantages:
    """Returns SCAPO's advantages with a penalty on each piece: 0.1 times the log-likelihood ratio (in nats) of the
    policy to the reference model for this piece.
    """
    nats = [
        policy - reference
        for policy, reference in zip(sampled.logprobs("policy"), sampled.logprobs("reference"), strict=True)
    ]
    return sampled.paid(sampled.columns.reward - PIECE_KL * sampled.summed(nats))


def _paper(sampled: Sampled) -> Advantages:
    return sampled.paid(sampled.columns.reward)


def _repeat_penalized(sampled: Sampled) -> NDArray[np.float64]:
    columns = sampled.columns
    only_repeats = (columns.rep > 0) & (columns.new == 0) & (columns.hal == 0)
    return np.where(only_repeats, columns.reward - REPEAT_PENALTY, columns.reward)


def _less_others(advantages: Sequence[NDArray[np.float32]], group: int) -> Advantages:
    """Subtracts the mean advantage over all tokens of the other responses in the group, or 0 if the group has no other
    response.
    """
    sums = np.array([advantage.sum(dtype=np.float64) for advantage in advantages]).reshape(-1, group)
    counts = np.array([len(advantage) for advantage in advantages], dtype=np.float64).reshape(-1, group)
    others = (sums.sum(1, keepdims=True) - sums) / np.maximum(counts.sum(1, keepdims=True) - counts, 1)
    return [
        (advantage - mean).astype(np.float32) for advantage, mean in zip(advantages, others.reshape(-1), strict=True)
    ]
