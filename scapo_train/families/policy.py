"""Interface between the training loop and models of any family, for encoding prompts, computing statistics of
responses, and decoding.

The subclasses in :mod:`scapo_train.families.shared` and :mod:`scapo_train.families.general` implement the computation.
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
        """Number of tokens in the forward pass."""


class Batch(Protocol):
    """Rows of a forward pass, converted to tensors."""

    @property
    def tokens(self) -> int:
        """Number of tokens in the forward pass, including padding."""

    @property
    def targets(self) -> Tensor:
        """(M,) ids of the response tokens, response by response."""


@dataclass(frozen=True)
class EncodedPrompt:
    """Prompt that is encoded for the model.

    Attributes:
        prompt: Prompt with its token ids and the processor's other outputs.
    """

    prompt: Prompt

    def row(self, responses: Sequence[Sequence[int]]) -> Row:
        """Returns a row with the prompt and the given responses, for a forward pass."""
        raise NotImplementedError


class Decoding(Protocol):
    """Decoding of responses to prompts; each response occupies one row. All rows have the same length."""

    def start(self) -> Tensor:
        """Returns the (rows, V) logits of the first tokens, in float32 or wider."""

    def step(self, drawn: Tensor) -> Tensor:
        """Appends the (rows,) ``drawn`` tokens, and returns the (rows, V) logits of the tokens that follow."""

    def keep(self, rows: Tensor) -> None:
        """Removes all rows except the given rows."""


class Policy(nn.Module):
    """Vision-language model with the functions that a training step needs.

    Args:
        vlm: Hugging Face model.
        ends: Ids of the tokens that end a response.
        temperature: Sampling temperature.
        language: Name of the language model in ``vlm.model``. All other modules of ``vlm.model`` form the frozen vision
            tower.
    """

    packs = False
    """True if one pass accepts rows with several prompts."""

    def __init__(self, vlm: Any, ends: Sequence[int], temperature: float, language: str = "language_model") -> None:
        super().__init__()
        self.vlm = vlm
        self.ends = sorted(ends)
        self.never = [token for token in image_tokens(vlm.config) if token not in ends]
        self.temperature = temperature
        self.leaves_out_never = True
        """True if tokens that are never drawn are also excluded from log-probabilities."""
        self.compute: Callable[[], AbstractContextManager[Any]] = nullcontext
        """Context of the computation: autocast if the parameters have another dtype than the computation."""
        self._language = language

    @property
    def language_model(self) -> Any:
        """Decoder that is trained, without the output layer."""
        return getattr(self.vlm.model, self._language)

    @property
    def tower(self) -> list[nn.Parameter]:
        """Parameters of the vision tower, that is, all parameters outside the language model and the output layer."""
        language = {*self.language_model.parameters()}
        return [parameter for parameter in self.vlm.model.parameters() if parameter not in language]

    def drop_tower(self) -> None:
        """Removes the vision tower, if another policy with the same model encodes the pictures."""

    def prepare(self, prompts: Sequence[Prompt], device: torch.device) -> list[EncodedPrompt]:
        """Encodes prompts for the model. The outputs of the vision tower are computed only once per prompt, except on
        the general path.
        """
        raise NotImplementedError

    def batch(self, rows: Sequence[Any], device: torch.device) -> Batch:
        """Converts rows to tensors. A list with several rows is accepted only if :attr:`packs` is True."""
        raise NotImplementedError

    def idle_batch(self, device: torch.device) -> Batch:
        """Returns a minimal batch for a rank that has no work but must take part in collective operations."""
        raise NotImplementedError

    def forward(self, batch: Any) -> TokenStatistics:
        """Returns the statistics of the batch's response tokens."""
        raise NotImplementedError

    def decoding(self, prompts: Sequence[Any], group: int, longest: int, device: torch.device) -> Decoding:
        """Starts the decoding of ``group`` responses, each of up to ``longest`` tokens, to each prompt. The rows are
        ordered by prompt.
        """
        raise NotImplementedError

    def statistics(self, hidden: Tensor, targets: Tensor) -> TokenStatistics:
        """Returns the statistics of the target tokens, computed from the (M, d) hidden states that predict these
        tokens.
        """
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
        """Returns the (B, V) logits of the next tokens in float32 or wider, computed from the last position of the (B,
        T, d) hidden states.
        """
        logits: Tensor = self.vlm.lm_head(hidden[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))
