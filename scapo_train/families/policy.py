"""Defines what the training loop needs from a model of any family: prompts, statistics of responses, next tokens.

How that is computed is a subclass's: :mod:`scapo_train.families.shared` or :mod:`scapo_train.families.general`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from scapo_eval.engines.hf import image_tokens

from ..data import Prompt
from ..logprob import TokenStatistics, token_statistics


class Row(Protocol):
    """One prompt and some of its responses, for a forward pass."""

    @property
    def length(self) -> int:
        """Tokens of the forward pass."""


class Batch(Protocol):
    """The rows of a forward pass as tensors."""

    @property
    def tokens(self) -> int:
        """Tokens of the forward pass, padding included."""

    @property
    def targets(self) -> Tensor:
        """(M,) the response tokens, response by response."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt ready for the model.

    Attributes:
        prompt: tokens and what the processor made of its pictures.
    """

    prompt: Prompt

    def row(self, responses: Sequence[Sequence[int]]) -> Row:
        """Returns the prompt with responses, for a forward pass."""
        raise NotImplementedError


class Decoding(Protocol):
    """Responses to prompts while they are made, a row each, all of the same length."""

    def start(self) -> Tensor:
        """Returns the (rows, V) logits of the first tokens, float32 or wider."""

    def step(self, drawn: Tensor) -> Tensor:
        """Returns the (rows, V) logits of the tokens after the ``drawn`` ones (rows,)."""

    def keep(self, rows: Tensor) -> None:
        """Drops all other rows."""


class Policy(nn.Module):
    """A vision-language model with the calls of a training step.

    Args:
        vlm: the Hugging Face model.
        ends: token ids that end a response.
        temperature: sampling temperature.
        language: name of the language model in ``vlm.model``; everything beside it there is the frozen tower.
    """

    packs = False
    """Whether one pass takes rows of several prompts."""

    def __init__(self, vlm: Any, ends: Sequence[int], temperature: float, language: str = "language_model") -> None:
        super().__init__()
        self.vlm = vlm
        self.ends = sorted(ends)
        self.never = [token for token in image_tokens(vlm.config) if token not in ends]
        self.temperature = temperature
        self.leaves_out_never = True
        """Whether tokens that are never drawn have no share in log-probabilities either."""
        self.compute: Callable[[], AbstractContextManager[Any]] = nullcontext
        """Autocast, where the parameters are not in the dtype of the computation."""
        self._language = language

    @property
    def language_model(self) -> Any:
        """The decoder that is trained, without the output layer."""
        return getattr(self.vlm.model, self._language)

    @property
    def tower(self) -> list[nn.Parameter]:
        """Parameters of what sees: everything but the language model and the output layer."""
        language = {*self.language_model.parameters()}
        return [parameter for parameter in self.vlm.model.parameters() if parameter not in language]

    def drop_tower(self) -> None:
        """Gives up the tower, where pictures come encoded by another policy of the same model."""

    def prepare(self, prompts: Sequence[Prompt], device: torch.device) -> list[EncodedPrompt]:
        """Makes prompts ready for the model; what of it a tower computes is computed once."""
        raise NotImplementedError

    def batch(self, rows: Sequence[Any], device: torch.device) -> Batch:
        """Lays rows out as tensors; one row only, unless it :attr:`packs`."""
        raise NotImplementedError

    def idle_batch(self, device: torch.device) -> Batch:
        """Returns the smallest batch, for a rank that takes part in the others' collective operations only."""
        raise NotImplementedError

    def forward(self, batch: Any) -> TokenStatistics:
        """Statistics of the batch's response tokens."""
        raise NotImplementedError

    def decoding(self, prompts: Sequence[Any], group: int, longest: int, device: torch.device) -> Decoding:
        """Begins ``group`` responses of up to ``longest`` tokens to each prompt, group by group."""
        raise NotImplementedError

    def statistics(self, hidden: Tensor, targets: Tensor) -> TokenStatistics:
        """Statistics of tokens from the (M, d) hidden states that predict them."""
        weight = self.vlm.lm_head.weight
        never = self.never if self.leaves_out_never else []
        with self.compute():
            kind = weight.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        return token_statistics(
            hidden.to(dtype),
            weight.to(dtype),
            targets,
            never=torch.tensor(never, dtype=torch.long, device=hidden.device),
            ends=torch.tensor(self.ends, device=hidden.device),
            temperature=self.temperature,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the (B, V) logits, float32 or wider, after the last of (B, T, d) hidden states."""
        logits: Tensor = self.vlm.lm_head(hidden[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))
