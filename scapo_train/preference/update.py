"""Forward and backward passes of an update on pairs: micro-batches, log-ratios and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import Config
from ..distributed import ProcessGroup
from ..families.policy import Policy, Row
from ..model import as_reference
from . import loss as preference_loss


@dataclass(frozen=True)
class Example:
    """Preference pair that is encoded for the model.

    Attributes:
        rows: Prompts with their responses, as rows of a forward pass.
        lengths: Number of tokens in each response, row by row.
    """

    rows: list[Row]
    lengths: list[int]


class PairUpdater:
    """Computation of the loss on pairs and of its gradient.

    Args:
        config: Settings of the training run.
        policy: Model to train.
        reference: Frozen reference model. If the policy has adapters, the reference is the policy itself.
        process_group: Group of all processes in the training run.
    """

    def __init__(self, config: Config, policy: Policy, reference: Policy, process_group: ProcessGroup) -> None:
        self.config, self.process_group = config, process_group
        self.policy, self.reference = policy, reference

    def backward(self, examples: Sequence[Example], count: float) -> list[float]:
        """Accumulates the gradient of the loss, and returns this rank's sums of the metrics.

        Args:
            examples: Pairs of this rank.
            count: Number of pairs on all ranks.
        """
        sums = [0.0] * 5
        micros = self.micro_batches(examples)
        micros += [[] for _ in range(self.process_group.max(len(micros)) - len(micros))]
        for micro in micros:
            ratios = self._ratios(micro)
            losses = self.losses(ratios) if micro else ratios
            (losses.sum() / count * self.process_group.size).backward()  # FSDP averages over ranks
            if micro:
                chosen, rejected = ratios.detach()[:, 0], ratios.detach()[:, 1]
                metrics = (losses.detach(), (chosen > rejected).float(), chosen - rejected, chosen, rejected)
                sums = [before + float(metric.sum()) for before, metric in zip(sums, metrics, strict=True)]
        return sums

    def micro_batches(self, examples: Sequence[Example]) -> list[list[Example]]:
        """Divides the pairs into micro-batches that fit within the token budget. If the policy does not pack rows, each
        micro-batch contains a single pair.
        """
        micros: list[list[Example]] = []
        length = 0
        for example in examples:
            more = sum(row.length for row in example.rows)
            if not micros or not self.policy.packs or length + more > self.config.optim.micro_batch_tokens:
                micros.append([])
                length = 0
            micros[-1].append(example)
            length += more
        return micros

    def losses(self, ratios: Tensor) -> Tensor:
        """Returns the (B,) losses of pairs, computed from their (B, R) log-ratios."""
        settings = self.config.preference
        weights = (settings.symmetric, settings.consistency) if settings.loss == "symmpo" else ()
        losses: Tensor = getattr(preference_loss, settings.loss)(*ratios.unbind(1), settings.beta, *weights)
        return losses

    def _ratios(self, micro: Sequence[Example]) -> Tensor:
        """Returns the (B, R) log-ratios with gradients. A rank without pairs only takes part in the collective
        operations.
        """
        with torch.no_grad(), as_reference(self.reference, self.config.model, self.process_group):
            self.policy.eval()
            reference = self.sums(self.reference, micro)
        self.policy.train()
        return (self.sums(self.policy, micro) - reference).view(-1, self._number)

    @property
    def _number(self) -> int:
        """Number of log-ratios per pair."""
        return sum(preference_loss.ROWS[self.config.preference.loss])

    def sums(self, model: Policy, micro: Sequence[Example]) -> Tensor:
        """Returns the sum of the tokens' log-probabilities for each response."""
        device = self.process_group.device
        rows = [row for example in micro for row in example.rows]
        if rows:
            parts = [rows] if model.packs else [[row] for row in rows]
            tokens = torch.cat([model(model.batch(part, device)).logprob for part in parts])
            return torch.stack(
                [logprob.sum() for logprob in tokens.split([n for example in micro for n in example.lengths])]
            )
        idle = 1 if model.packs or self.config.preference.loss == "dpo" else 2
        passes = torch.stack([model(model.idle_batch(device)).logprob.sum() for _ in range(idle)])
        return (0.0 * passes.sum()).expand(self._number)
