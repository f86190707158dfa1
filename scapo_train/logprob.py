"""Log-probabilities of chosen tokens, without ever holding the logits of all of them.

A response of T tokens over a vocabulary of V has T x V logits: at V = 152,000 more memory than the rest of
a training step. They are made a chunk at a time, forward and again backward, and only three numbers of each
row are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cuda": 2**27, "cpu": 2**24}
"""Logits that exist at once (in float32 or wider), by device."""

CHUNK_TOKENS = {"cpu": 512}
"""Most tokens at once, by device: with a small vocabulary the logits of more fall out of a CPU's cache."""

KEPT_ELEMENTS = {"cpu": 2**23}
"""Most probabilities that are kept for backward in place of being made again, by device: 32 MiB in float32."""

_NEVER = -1e30  # of a token that is never sampled: finite, because 0 * inf would poison the entropy


class TokenStatistics(NamedTuple):
    """Of N tokens, each (N,) in the dtype of the hidden states, float32 at least; only ``logprob`` has a gradient.

    Attributes:
        logprob: log-probability of the token.
        entropy: entropy of the distribution that it was drawn from, in nats.
        end: probability of an end of sequence in its place.
    """

    logprob: Tensor
    entropy: Tensor
    end: Tensor


def token_statistics(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, never: Tensor, ends: Tensor, temperature: float = 1.0
) -> TokenStatistics:
    """Returns the log-probability, entropy and end probability of N tokens.

    Args:
        hidden: (N, d) last hidden states that predict them.
        weight: (V, d) weight of the output layer.
        targets: (N,) the tokens.
        never: ids that are never sampled; they have no share in the distribution.
        ends: ids that end a sequence.
        temperature: sampling temperature; logits are divided by it.
    """
    return TokenStatistics(*_TokenStatistics.apply(hidden, weight, targets, never, ends, 1.0 / temperature))


def _logits(hidden: Tensor, weight: Tensor, never: Tensor, scale: float) -> Tensor:
    logits = hidden @ weight.T
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if scale != 1.0:
        logits *= scale
    return logits.index_fill_(1, never, _NEVER)


class _TokenStatistics(torch.autograd.Function):
    """Forward keeps the log-normalizer of each row, and backward makes the logits again; few are kept themselves."""

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
        # summed in float32 at least: a batch has dozens of chunks, and bfloat16 would lose the small ones
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
