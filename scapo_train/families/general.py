"""General path, which supports any model family with the forward pass of transformers. Each sequence consists of a
prompt and one response.

The path makes no assumptions about positions, masks or the vision tower. A new family needs only a record in
:data:`scapo_train.model.FAMILIES` and a test. The general path is slow, because an update computes the prompt once per
response, every pass computes the vision tower, and responses are decoded for one prompt at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ..data import Prompt
from ..logprob import TokenStatistics
from .policy import EncodedPrompt, Policy


@dataclass(frozen=True)
class GeneralRow:
    """One prompt and some of its responses.

    Attributes:
        ids: (P,) token ids of the prompt.
        inputs: All other inputs that the processor created from the prompt.
        responses: Token ids of each response. At least one response is required.
    """

    ids: Tensor
    inputs: Mapping[str, Tensor]
    responses: Sequence[Sequence[int]]

    @property
    def length(self) -> int:
        """Number of tokens in the forward pass, including padding."""
        return len(self.responses) * (len(self.ids) + max(map(len, self.responses)) - 1)


@dataclass(frozen=True)
class GeneralPrompt(EncodedPrompt):
    """Prompt whose pictures the model encodes in each pass."""

    def row(self, responses: Sequence[Sequence[int]]) -> GeneralRow:
        """Returns a row with the prompt and the given responses, for a forward pass."""
        return GeneralRow(self.prompt.ids, self.prompt.inputs, responses)


@dataclass(frozen=True)
class GeneralBatch:
    """Sequences for the R responses of a row, padded at the end.

    Attributes:
        inputs: Arguments of the forward pass in transformers.
        sources: (M,) indices, among the (R x T) hidden states, of those that predict the M response tokens.
        targets: (M,) ids of the response tokens, response by response.
    """

    inputs: Mapping[str, Tensor]
    sources: Tensor
    targets: Tensor

    @property
    def tokens(self) -> int:
        """Number of tokens in the forward pass, including padding."""
        return self.inputs["input_ids"].numel()


class GeneralPolicy(Policy):
    """Policy that uses only the forward pass of transformers; see :class:`~scapo_train.families.policy.Policy`."""

    def prepare(self, prompts: Sequence[Prompt], device: torch.device) -> list[EncodedPrompt]:
        """Wraps the prompts without any computation."""
        return [GeneralPrompt(prompt) for prompt in prompts]

    def batch(self, rows: Sequence[GeneralRow], device: torch.device) -> GeneralBatch:
        """Converts a list with a single row to tensors."""
        (row,) = rows
        before, number = len(row.ids), len(row.responses)
        width = before + max(map(len, row.responses)) - 1
        ids = torch.zeros(number, width, dtype=torch.long)
        ids[:, :before] = row.ids
        written = torch.zeros_like(ids)
        sources: list[int] = []
        for k, response in enumerate(row.responses):
            after = before + len(response) - 1
            ids[k, before:after] = torch.tensor(response[:-1], dtype=torch.long)
            written[k, :after] = 1
            sources += range(k * width + before - 1, k * width + after)
        given = {"input_ids": ids, "attention_mask": written, **_repeated(row.inputs, number, width)}
        return GeneralBatch(
            {name: tensor.to(device) for name, tensor in given.items()},
            torch.tensor(sources, device=device),
            torch.tensor([token for response in row.responses for token in response], device=device),
        )

    def idle_batch(self, device: torch.device) -> GeneralBatch:
        """Returns a batch with a prompt and a response of one token each."""
        inputs = {}
        if "token_type_ids" in inspect.signature(self.vlm.model.forward).parameters:
            inputs["token_type_ids"] = torch.zeros(1, 1, dtype=torch.long)  # Gemma 3 needs it in training (4.57)
        return self.batch([GeneralRow(torch.tensor(self.ends[:1]), inputs, [self.ends[:1]])], device)

    def forward(self, batch: GeneralBatch) -> TokenStatistics:
        """Returns the statistics of the batch's response tokens."""
        with self.compute():
            hidden = self.vlm.model(**batch.inputs, use_cache=False).last_hidden_state
        return self.statistics(hidden.flatten(0, 1).index_select(0, batch.sources), batch.targets)

    def decode(self, **inputs: Any) -> Tensor:
        """Returns the (B, V) logits of the next tokens, and extends the cache in the inputs."""
        return self.logits(self.vlm.model(**inputs, use_cache=True).last_hidden_state)

    def decoding(self, prompts: Sequence[GeneralPrompt], group: int, longest: int, device: torch.device) -> Any:
        """Starts the decoding of responses to a single prompt."""
        (encoded,) = prompts
        return _Decoding(self, encoded.prompt, group, device)


class _Decoding:
    """Implementation of :class:`scapo_train.families.policy.Decoding` that processes the prompt once for all responses
    and needs no padding.
    """

    def __init__(self, policy: GeneralPolicy, prompt: Prompt, group: int, device: torch.device) -> None:
        self._policy, self._prompt, self._group, self._device = policy, prompt, group, device
        self._cache = DynamicCache(config=policy.vlm.config.get_text_config(decoder=True))
        parameters = inspect.signature(policy.vlm.model.forward).parameters
        name = "cache" if "cache" in parameters else "past_key_values"  # "cache" since transformers 5.24
        self._given = {name: self._cache}
        self._length = len(prompt.ids)

    def start(self) -> Tensor:
        ids = self._prompt.ids[None]
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **self._prompt.inputs}
        on_device = {name: tensor.to(self._device) for name, tensor in given.items()}
        logits = self._policy.decode(**on_device, **self._given)
        self._cache.batch_repeat_interleave(self._group)
        return logits.repeat_interleave(self._group, 0)

    def step(self, drawn: Tensor) -> Tensor:
        self._length += 1
        seen = torch.ones(len(drawn), self._length, dtype=torch.long, device=self._device)
        return self._policy.decode(input_ids=drawn[:, None], attention_mask=seen, **self._given)

    def keep(self, rows: Tensor) -> None:
        self._cache.batch_select_indices(rows)


def _repeated(inputs: Mapping[str, Tensor], number: int, width: int) -> dict[str, Tensor]:
    """Repeats the inputs of a prompt for each of its sequences. Response tokens get the token type for text."""
    repeated = {}
    for name, tensor in inputs.items():
        if name.endswith("token_type_ids"):
            tensor = torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]))
        repeated[name] = tensor.repeat(number, *[1] * (tensor.ndim - 1))
    return repeated
