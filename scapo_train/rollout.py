"""Sampling responses from the policy itself.

A prompt is read once for its whole group; rows that have ended leave the batch. What is drawn depends on the
seed, the step and the prompt alone, not on the batch or the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from scapo_eval.base.errors import ScapoError

from .data import Prompt, Response, seeded
from .families.policy import EncodedPrompt, Policy
from .model import gathered

_AT_ONCE = 2**22
"""Probabilities that are summed up at once."""


class Sampler(Protocol):
    """An engine that samples responses."""

    def sync(self) -> None:
        """Takes over the policy's weights."""

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Samples ``group`` responses to each prompt, prompt by prompt; temperature 0 is greedy."""

    def close(self) -> None:
        """Frees what it holds."""


def encode(policy: Policy, prompts: Sequence[Prompt], device: torch.device, at_once: int = 16) -> list[EncodedPrompt]:
    """Makes prompts ready for the model, pictures and all, some at a time."""
    starts = range(0, len(prompts), at_once)
    return [encoded for k in starts for encoded in policy.prepare(prompts[k : k + at_once], device)]


class PolicySampler:
    """The policy samples by itself, in batches of prompts.

    Args:
        policy: model that samples, with its current weights.
        device: device of the computation.
        max_new_tokens: number of tokens of the longest response.
        prompts_per_batch: number of prompts that are generated for at once.
    """

    def __init__(self, policy: Policy, device: torch.device, max_new_tokens: int, prompts_per_batch: int) -> None:
        self._policy = policy
        self._device = device
        self._max_new_tokens = max_new_tokens
        self._prompts_per_batch = prompts_per_batch if policy.packs else 1

    def sync(self) -> None:
        """Does nothing: the weights are the policy's."""

    def close(self) -> None:
        """Does nothing: there are no resources to free."""

    @torch.no_grad()
    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Implements ``sample``: see :class:`Sampler`."""
        training = self._policy.training
        self._policy.eval()
        responses: list[Response | None] = [None] * (len(prompts) * group)
        # prompts of like length together: less padding
        order = sorted(range(len(prompts)), key=lambda k: len(prompts[k].prompt.ids))
        with gathered(self._policy):
            for start in range(0, len(order), self._prompts_per_batch):
                chosen = order[start : start + self._prompts_per_batch]
                noise = [seeded(self._device, seed, prompts[k].prompt.index) for k in chosen]
                made = self._batch([prompts[k] for k in chosen], noise, group, temperature)
                for at, k in enumerate(chosen):
                    responses[k * group : (k + 1) * group] = made[at * group : (at + 1) * group]
        self._policy.train(training)
        return [response for response in responses if response is not None]

    def _batch(
        self, prompts: Sequence[EncodedPrompt], noise: Sequence[torch.Generator], group: int, temperature: float
    ) -> list[Response]:
        policy, device, rows = self._policy, self._device, len(prompts) * group
        decoding = policy.decoding(prompts, group, self._max_new_tokens, device)
        logits = decoding.start()
        if not bool(torch.isfinite(logits).all()):
            why = "optim.lr is too large, if there was an update; else damaged weights, or model.dtype is too narrow"
            raise ScapoError(f"the policy's logits are not finite: {why}")
        never = torch.tensor(policy.never, dtype=torch.long, device=device)
        ends = torch.tensor(policy.ends, device=device)
        alive = torch.arange(rows, device=device)  # the responses that the rows of the batch belong to
        tokens = torch.full((rows, self._max_new_tokens), -1, device=device)
        finished = torch.zeros(rows, dtype=torch.bool, device=device)
        shape = (group, self._max_new_tokens)
        chances = torch.cat(
            [torch.rand(shape, dtype=torch.float64, device=device, generator=generator) for generator in noise]
        )
        for t in range(self._max_new_tokens):
            drawn = _drawn(logits.index_fill_(1, never, -torch.inf), chances[alive, t], temperature)
            tokens[alive, t] = drawn
            ended = torch.isin(drawn, ends)
            finished[alive[ended]] = True
            going = int((~finished[alive]).sum())
            if going == 0 or t + 1 == self._max_new_tokens:
                break
            if going <= len(alive) // 2:  # the rest would compute for nothing
                keep = (~finished[alive]).nonzero()[:, 0]
                decoding.keep(keep)
                alive, drawn = alive[keep], drawn[keep]
            logits = decoding.step(drawn)
        return [_response(row, end) for row, end in zip(tokens.tolist(), _first(tokens, ends), strict=True)]


def _drawn(logits: Tensor, chances: Tensor, temperature: float) -> Tensor:
    """Returns the tokens (rows,) at which cumulative probability passes each row's chance; greedy at temperature 0."""
    if temperature == 0:
        return logits.argmax(1)
    drawn = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    size = max(1, _AT_ONCE // logits.shape[1])
    for start in range(0, len(logits), size):
        at = slice(start, start + size)
        # float32 sums over 152,000 tokens would lose the rare ones
        sums = (logits[at] / temperature).softmax(1).cumsum(1, dtype=torch.float64)
        drawn[at] = torch.searchsorted(sums, chances[at, None] * sums[:, -1:], right=True)[:, 0]
    return drawn


def _first(tokens: Tensor, ends: Tensor) -> list[int]:
    """Returns for each row the place of its first end, or -1."""
    hits = torch.isin(tokens, ends)
    return [int(at) if any_ else -1 for at, any_ in zip(hits.int().argmax(1), hits.any(1), strict=True)]


def _response(row: list[int], end: int) -> Response:
    return Response(row[: end + 1] if end >= 0 else [token for token in row if token >= 0], end >= 0)
