"""Sampling of responses from the policy itself.

Each prompt is processed once for all responses of its group, and finished responses are removed from the batch. The
samples depend only on the seed, the step and the prompt. The other prompts of the batch and the number of ranks have no
influence on the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from scapo_eval.base.errors import ScapoError

from .data import Prompt, Response, seeded
from .families.policy import EncodedPrompt, Policy
from .model import gathered

_AT_ONCE = 2**22
"""Number of probabilities that are summed at the same time."""


class Sampler(Protocol):
    """Engine that samples responses.

    Attributes:
        sleeping_memory: Number of bytes that PyTorch counts as allocated although the engine has released them during
            updates.
        versions: Names of the engine's own packages with their versions. It is empty if the trainer itself samples.
    """

    sleeping_memory: int
    versions: Mapping[str, str]

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of a prompt with its response, or None for that of the model."""

    def sync(self) -> None:
        """Copies the policy's weights to the engine."""

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Samples ``group`` responses to each prompt, and returns the responses in the order of the prompts. A
        temperature of 0 selects greedy decoding.
        """

    def close(self) -> None:
        """Releases the resources of the engine."""


def encode(policy: Policy, prompts: Sequence[Prompt], device: torch.device, at_once: int = 16) -> list[EncodedPrompt]:
    """Prepares prompts and their pictures for the model, ``at_once`` prompts at a time."""
    starts = range(0, len(prompts), at_once)
    return [encoded for k in starts for encoded in policy.prepare(prompts[k : k + at_once], device)]


class PolicySampler:
    """Sampler that uses the policy itself and processes prompts in batches.

    Args:
        policy: Model that samples with its current weights.
        device: Device of the computation.
        max_new_tokens: Maximum number of tokens in a response.
        prompts_per_batch: Number of prompts that are processed at the same time.
    """

    sleeping_memory = 0
    longest = None
    versions: Mapping[str, str] = MappingProxyType({})

    def __init__(self, policy: Policy, device: torch.device, max_new_tokens: int, prompts_per_batch: int) -> None:
        self._policy = policy
        self._device = device
        self._max_new_tokens = max_new_tokens
        self._prompts_per_batch = prompts_per_batch if policy.packs else 1

    def sync(self) -> None:
        """Does nothing, because the sampler uses the policy's own weights."""

    def close(self) -> None:
        """Does nothing, because the sampler has no resources to release."""

    @torch.no_grad()
    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """Implements ``sample`` of :class:`Sampler`."""
        training = self._policy.training
        self._policy.eval()
        responses: list[Response | None] = [None] * (len(prompts) * group)
        # prompts of similar length together, for less padding
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
            raise ScapoError(f"non-finite logits of the policy: {why}")
        never = torch.tensor(policy.never, dtype=torch.long, device=device)
        ends = torch.tensor(policy.ends, device=device)
        alive = torch.arange(rows, device=device)  # responses of the remaining rows
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
            if going <= len(alive) // 2:  # remove finished rows
                keep = (~finished[alive]).nonzero()[:, 0]
                decoding.keep(keep)
                alive, drawn = alive[keep], drawn[keep]
            logits = decoding.step(drawn)
        return [_response(row, end) for row, end in zip(tokens.tolist(), _first(tokens, ends), strict=True)]


def _drawn(logits: Tensor, chances: Tensor, temperature: float) -> Tensor:
    """Returns, for each row, the token at which the cumulative probability exceeds the row's random number in
    ``chances``. A temperature of 0 selects the most probable token.
    """
    if temperature == 0:
        return logits.argmax(1)
    drawn = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    size = max(1, _AT_ONCE // logits.shape[1])
    for start in range(0, len(logits), size):
        at = slice(start, start + size)
        # float32 sums over 152,000 tokens would lose rare tokens
        sums = (logits[at] / temperature).softmax(1).cumsum(1, dtype=torch.float64)
        drawn[at] = torch.searchsorted(sums, chances[at, None] * sums[:, -1:], right=True)[:, 0]
    return drawn


def _first(tokens: Tensor, ends: Tensor) -> list[int]:
    """Returns the index of the first end-of-sequence token in each row, or -1 if a row contains none."""
    hits = torch.isin(tokens, ends)
    return [int(at) if any_ else -1 for at, any_ in zip(hits.int().argmax(1), hits.any(1), strict=True)]


def _response(row: list[int], end: int) -> Response:
    return Response(row[: end + 1] if end >= 0 else [token for token in row if token >= 0], end >= 0)
