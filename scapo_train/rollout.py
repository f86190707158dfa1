"""Sampling responses from the policy itself.

A prompt is read once for its whole group; rows that have ended leave the batch. What is drawn depends on the
seed, the step and the prompt alone, not on the batch or the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from scapo_eval.errors import ScapoError

from .data import Prompt, Response, seeded
from .model import Policy, gathered
from .packing import Row, Vision

_AT_ONCE = 2**22
"""Probabilities that are summed up at once."""

_BLOCK = 64
"""Tokens by which the cache grows."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt and its image features, ready for the model.

    Attributes:
        prompt: tokens and pixels.
        positions: (3, P) rotary positions of the tokens.
        following: position after the last one.
        vision: features of the image.
    """

    prompt: Prompt
    positions: Tensor
    following: int
    vision: Vision

    def row(self, responses: Sequence[Sequence[int]]) -> Row:
        """The prompt with responses, for a forward pass."""
        return Row(self.prompt.ids, self.positions, self.following, self.vision, responses)


class Sampler(Protocol):
    """An engine that samples responses."""

    def sync(self) -> None:
        """Takes over the policy's weights."""

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """``group`` responses to each prompt, prompt by prompt; temperature 0 is greedy."""

    def close(self) -> None:
        """Frees what it holds."""


def encode(policy: Policy, prompts: Sequence[Prompt], device: torch.device, pictures: int = 16) -> list[EncodedPrompt]:
    """Encodes the pictures of prompts, some at a time."""
    found: list[EncodedPrompt] = []
    for start in range(0, len(prompts), pictures):
        chunk = prompts[start : start + pictures]
        pixels = torch.cat([prompt.pixels for prompt in chunk]).to(device)
        visions = policy.encode(pixels, torch.stack([prompt.grid for prompt in chunk]).to(device))
        for prompt, vision in zip(chunk, visions, strict=True):
            found.append(EncodedPrompt(prompt, *policy.prompt_positions(prompt.ids, prompt.grid), vision))
    return found


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
        self._prompts_per_batch = prompts_per_batch

    def sync(self) -> None:
        """Nothing to do: the weights are the policy's."""

    def close(self) -> None:
        """Nothing to free."""

    @torch.no_grad()
    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, temperature: float) -> list[Response]:
        """See :class:`Sampler`."""
        training = self._policy.training
        self._policy.eval()
        found: list[Response | None] = [None] * (len(prompts) * group)
        # prompts of like length together: less padding
        order = sorted(range(len(prompts)), key=lambda k: len(prompts[k].prompt.ids))
        with gathered(self._policy):
            for start in range(0, len(order), self._prompts_per_batch):
                chosen = order[start : start + self._prompts_per_batch]
                noise = [seeded(self._device, seed, prompts[k].prompt.index) for k in chosen]
                made = self._batch([prompts[k] for k in chosen], noise, group, temperature)
                for at, k in enumerate(chosen):
                    found[k * group : (k + 1) * group] = made[at * group : (at + 1) * group]
        self._policy.train(training)
        return [response for response in found if response is not None]

    def _batch(
        self, prompts: Sequence[EncodedPrompt], noise: Sequence[torch.Generator], group: int, temperature: float
    ) -> list[Response]:
        policy, device, rows = self._policy, self._device, len(prompts) * group
        longest = max(len(encoded.prompt.ids) for encoded in prompts)
        room = longest + self._max_new_tokens
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        positions = torch.zeros(3, len(prompts), longest, dtype=torch.long)
        written = torch.zeros(len(prompts), room, dtype=torch.bool)
        for k, encoded in enumerate(prompts):  # padded at the front, so that responses stand under one another
            pad = longest - len(encoded.prompt.ids)
            ids[k, pad:], positions[:, k, pad:], written[k, pad:] = encoded.prompt.ids, encoded.positions, True
        written[:, longest:] = True
        written = written.to(device)
        causal = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
        # a padded place sees itself: a row of the softmax without any key would be not a number
        mask = (written[:, None, None, :longest] & causal) | torch.eye(longest, dtype=torch.bool, device=device)
        cache = _Cache(group)
        vision = [encoded.vision for encoded in prompts]
        logits = policy.decode(ids.to(device), positions.to(device), mask, vision, cache)
        if not bool(torch.isfinite(logits).all()):
            raise ScapoError("the policy's logits are not finite: damaged weights, or model.dtype is too narrow")
        logits, written = logits.repeat_interleave(group, 0), written.repeat_interleave(group, 0)
        following = torch.tensor([encoded.following for encoded in prompts], device=device).repeat_interleave(group)

        never = torch.tensor(policy.never, dtype=torch.long, device=device)
        ends = torch.tensor(policy.ends, device=device)
        alive = torch.arange(rows, device=device)  # the responses that the rows of the batch belong to
        tokens = torch.full((rows, self._max_new_tokens), -1, device=device)
        finished = torch.zeros(rows, dtype=torch.bool, device=device)
        shape = (group, self._max_new_tokens)
        chances = torch.cat([torch.rand(shape, dtype=torch.float64, device=device, generator=each) for each in noise])
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
                cache.keep(keep)
                alive, drawn, written, following = alive[keep], drawn[keep], written[keep], following[keep]
            at = (following + t).expand(3, 1, -1).transpose(1, 2)
            logits = policy.decode(drawn[:, None], at, written[:, None, None, : longest + t + 1], (), cache)
        return [_response(row, end) for row, end in zip(tokens.tolist(), _first(tokens, ends), strict=True)]


class _Cache:
    """Keys and values of every layer, in tensors that grow by blocks: no copy per token.

    The prompts are read first, a row each, and are there ``group`` times from then on.

    Args:
        group: number of rows of each prompt.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._lengths: list[int] = []

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Takes a layer's (rows, heads, tokens, dim), gives all that the tokens see; called by transformers."""
        if layer_idx == len(self._layers):
            self._layers.append((key.repeat_interleave(self._group, 0), value.repeat_interleave(self._group, 0)))
            self._lengths.append(key.shape[2])
            return key, value
        keys, values = self._layers[layer_idx]
        before = self._lengths[layer_idx]
        after = self._lengths[layer_idx] = before + key.shape[2]
        if after > keys.shape[2]:
            keys, values = (nn.functional.pad(each, (0, 0, 0, _BLOCK)) for each in (keys, values))
            self._layers[layer_idx] = keys, values
        keys[:, :, before:after] = key
        values[:, :, before:after] = value
        return keys[:, :, :after], values[:, :, :after]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens so far; called by transformers."""
        return self._lengths[layer_idx] if self._lengths else 0

    def keep(self, rows: Tensor) -> None:
        """Drops all other rows."""
        self._layers = [(keys[rows], values[rows]) for keys, values in self._layers]


def _drawn(logits: Tensor, chances: Tensor, temperature: float) -> Tensor:
    """(rows,) the token at which the summed probabilities pass each row's chance; 0 temperature: the likeliest."""
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
    """Per row the place of its first end, or -1."""
    hits = torch.isin(tokens, ends)
    return [int(at) if any_ else -1 for at, any_ in zip(hits.int().argmax(1), hits.any(1), strict=True)]


def _response(row: list[int], end: int) -> Response:
    return Response(row[: end + 1] if end >= 0 else [token for token in row if token >= 0], end >= 0)
