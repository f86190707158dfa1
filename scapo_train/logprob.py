"""Computation of the log-probabilities of given tokens without keeping the logits of all tokens in memory.

A response of T tokens over a vocabulary of size V has T x V logits. At V = 152,000, these logits need more memory than
all other parts of a training step. The logits are therefore computed in chunks, in the forward pass and again in the
backward pass. Between the passes, only three values are kept per token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cuda": 2**27, "cpu": 2**24}
"""Maximum number of logits that exist at the same time (in float32 or wider), by device type."""

CHUNK_TOKENS = {"cpu": 512}
"""Maximum number of tokens in a chunk, by device type. More tokens with a small vocabulary would not fit into a CPU's
cache.
"""

KEPT_ELEMENTS = {"cpu": 2**23}
"""Maximum number of probabilities to keep for the backward pass in place of recomputation, by device type. The value
for CPUs corresponds to 32 MiB in float32.
"""

_NEVER = -1e30  # logit of a token that is never sampled: finite, since 0 * inf would make the entropy NaN


class TokenStatistics(NamedTuple):
    """Statistics of N tokens, as (N,) tensors in the dtype of the hidden states or in float32. Only ``logprob`` has a
    gradient.

    Attributes:
        logprob: Log-probability of the token.
        entropy: Entropy of the token's distribution, in nats.
        end: Probability that the sequence ends at the position of the token.
    """

    logprob: Tensor
    entropy: Tensor
    end: Tensor


def token_statistics(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, never: Tensor, ends: Tensor, temperature: float = 1.0
) -> TokenStatistics:
    """Returns the log-probability, the entropy and the end probability of each of N tokens.

    Args:
        hidden: (N, d) last hidden states that predict the tokens.
        weight: (V, d) weight of the output layer.
        targets: (N,) ids of the tokens.
        never: Ids of tokens that are never sampled and are excluded from the distribution.
        ends: Ids of tokens that end a sequence.
        temperature: Sampling temperature, by which logits are divided.
    """
    return TokenStatistics(*_TokenStatistics.apply(hidden, weight, targets, never, ends, 1.0 / temperature))


def _logits(hidden: Tensor, weight: Tensor, never: Tensor, scale: float) -> Tensor:
    logits = hidden @ weight.T
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if scale != 1.0:
        logits *= scale
    return logits.index_fill_(1, never, _NEVER)


class _TokenStatistics(torch.autograd.Function):
    """Autograd function that keeps the log-normalizer of each token and recomputes the logits in the backward pass,
    except for small batches on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, never: Tensor, ends: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        n, dtype = len(targets), torch.promote_types(hidden.dtype, torch.float32)
        logprob, entropy, end, normalizer = (torch.empty(n, dtype=dtype, device=hidden.device) for _ in range(4))
        few = n * len(weight) <= KEPT_ELEMENTS.get(hidden.device.type, 0) and any(ctx.needs_input_grad)
        kept = torch.empty(n, len(weight), dtype=dtype, device=hidden.device) if few else None
        for at in _chunks(n, weight):
            logits = _logits(hidden[at], weight, never, scale)
            top = logits.amax(1, keepdim=True)
            share = torch.exp(logits.sub_(top), out=None if kept is None else kept[at])
            total = share.sum(1)
            log_total = total.log()
            logprob[at] = logits.gather(1, targets[at, None])[:, 0] - log_total
            entropy[at] = log_total - torch.linalg.vecdot(share, logits) / total
            end[at] = share[:, ends].sum(1) / total
            normalizer[at] = log_total + top[:, 0] if kept is None else total
        ctx.save_for_backward(hidden, weight, targets, never, normalizer, kept)
        ctx.scale = scale
        ctx.mark_non_differentiable(entropy, end)
        return logprob, entropy, end

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, never, normalizer, kept = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        # summed in at least float32: a batch has dozens of chunks, and bfloat16 would lose small values
        dtype = torch.promote_types(weight.dtype, torch.float32)
        to_weight = torch.zeros_like(weight, dtype=dtype) if ctx.needs_input_grad[1] else None
        for at in _chunks(len(targets), weight):
            if kept is None:
                logits = _logits(hidden[at], weight, never, ctx.scale)
                slope = logits.sub_(normalizer[at, None]).exp_().mul_(-gradient[at, None])
            else:
                slope = kept[at] * (-gradient[at] / normalizer[at])[:, None]
            slope.scatter_add_(1, targets[at, None], gradient[at, None])
            slope = slope.mul_(ctx.scale).to(weight.dtype)
            to_hidden[at] = slope @ weight
            if to_weight is not None and to_weight.dtype == slope.dtype:
                to_weight.addmm_(slope.T, hidden[at])
            elif to_weight is not None:
                to_weight += slope.T @ hidden[at]
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None, None, None


def _chunks(n: int, weight: Tensor) -> list[slice]:
    device = weight.device.type
    size = max(1, CHUNK_ELEMENTS.get(device, 2**24) // weight.shape[0])
    size = min(size, CHUNK_TOKENS.get(device, size))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
