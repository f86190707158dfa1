"""Updates of the policy: micro-batches of packed responses, forward and backward passes, loss, and optimizer steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scapo_eval.base.errors import InputError, ScapoError

from .config import Config, Optim
from .credit import CreditedBatch, Whose, token_weights
from .data import Response, seed_of
from .distributed import ProcessGroup
from .families.policy import Batch, EncodedPrompt, Policy, Row
from .loss import engine_ratio, token_loss
from .model import as_reference

_log = logging.getLogger(__name__)


@dataclass
class MicroBatch:
    """Rows that are processed in one forward and backward pass.

    Attributes:
        batch: Packed rows of tokens, as tensors.
        owners: Indices of the responses in the batch, in the order of its targets. The list is empty if the rank has no
            responses and only takes part in collective operations.
        sampled: (N,) log-probabilities computed by the sampling engine, or None if the policy itself sampled the
            tokens.
        old: (N,) log-probabilities under the policy before its first update, or None if there is only one update.
        reference: (N,) log-probabilities under the reference model, or None if there is no KL term.
    """

    batch: Batch
    owners: list[int]
    sampled: Tensor | None = None
    old: Tensor | None = None
    reference: Tensor | None = None


@dataclass(frozen=True)
class UpdateResult:
    """Result of all updates that all ranks perform in a step.

    Attributes:
        tokens: Number of response tokens in the updates. A token counts once per inner epoch.
        kl: Sum of the KL estimate over tokens.
        clipped: Number of tokens whose gradient was clipped to 0.
        entropy: Sum over tokens of the policy's entropy, in nats.
        p_end: Sum of the end-of-sequence probability over the tokens.
        mismatch: Sum over tokens of the absolute difference between the engine's and the policy's log-probabilities.
        importance: Sum over tokens of the truncated importance ratio.
        truncated: Number of tokens whose importance ratio was truncated.
        loss: Mean loss over the updates, or NaN if all updates were skipped.
        grad_norm: Gradient norm before clipping, averaged over the updates, or NaN if all updates were skipped.
        skipped: Number of updates that were skipped.
        flops: Number of floating-point operations in matrix products with weights, without recomputation.
    """

    tokens: float
    kl: float
    clipped: float
    entropy: float
    p_end: float
    mismatch: float
    importance: float
    truncated: float
    loss: float
    grad_norm: float
    skipped: int
    flops: float


class Updater:
    """Policy updates that are computed from the responses to a step's prompts.

    Args:
        config: Settings of the training run.
        policy: Model to train.
        reference: Frozen model for the KL term, or None without a KL term. If the policy has adapters, the reference is
            the policy itself.
        optimizer: Optimizer of the policy's trainable parameters.
        process_group: Group of all processes in the training run.
        steps: Number of steps in the training run, for the learning-rate schedule.
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        reference: Policy | None,
        optimizer: torch.optim.Optimizer,
        process_group: ProcessGroup,
        steps: int,
    ) -> None:
        self.config = config
        self._loss = config.loss
        self._policy, self._reference, self._optimizer = policy, reference, optimizer
        self._process_group = process_group
        self._steps = steps
        self._told = False

    def mini_batches(
        self, order: Sequence[int], encoded: Sequence[EncodedPrompt], responses: Sequence[Response], count: int = 0
    ) -> list[list[MicroBatch]]:
        """Distributes the prompts over mini-batches, and divides each mini-batch into micro-batches. All ranks have the
        same number of micro-batches.

        Args:
            order: Indices of the step's prompts on all ranks.
            encoded: Prompts of this rank.
            responses: Responses of this rank, group by group.
            count: Number of mini-batches, or 0 for ``optim.mini_batches``.
        """
        count = count or self.config.optim.mini_batches
        mini = {index: at * count // len(order) for at, index in enumerate(order)}  # independent of the number of ranks
        of_prompt = [mini[prompt.prompt.index] for prompt in encoded]
        chosen = [[k for k, number in enumerate(of_prompt) if number == m] for m in range(count)]
        return [self._micro_batches(indices, encoded, responses) for indices in chosen]

    def _micro_batches(
        self, chosen: Sequence[int], encoded: Sequence[EncodedPrompt], responses: Sequence[Response]
    ) -> list[MicroBatch]:
        budget, group = self.config.optim.micro_batch_tokens, self.config.rollout.group
        rows: list[tuple[Row, list[int]]] = []
        for k in chosen:
            for owners in _split_group(encoded[k], range(k * group, (k + 1) * group), responses, budget):
                rows.append((encoded[k].row([responses[i].ids for i in owners]), owners))
        if self._policy.packs and len(rows) > len(chosen) and not self._told:
            self._told = True
            groups = ([response.ids for response in responses[k * group : (k + 1) * group]] for k in chosen)
            most = max(encoded[k].row(ids).length for k, ids in zip(chosen, groups, strict=True))
            _log.warning(
                "optim.micro_batch_tokens = %d is less than a prompt with its %d responses (%d tokens): such prompts "
                "are computed more than once; a larger value is faster if it fits (0: derived)",
                budget, group, most,
            )  # fmt: skip
        rows.sort(key=lambda row: row[0].length)
        lengths = [row[0].length for row in rows]
        packs = self._policy.packs
        least = -(-sum(min(length, budget) for length in lengths) // budget) if packs else len(rows)
        number = self._process_group.max(least)
        while True:  # as few as possible, of nearly equal numbers of tokens on all ranks
            shares = evenly(lengths, number)
            fits = all(len(share) < 2 or (packs and sum(lengths[k] for k in share) <= budget) for share in shares)
            if not self._process_group.max(int(not fits)):
                break
            number += 1
        packed = [[rows[k] for k in share] for share in shares if share]
        device = self._process_group.device
        micro_batches = []
        for rows in packed:
            owners = [i for _, indices in rows for i in indices]
            given = [responses[i].logprobs for i in owners]
            known = [logprobs for logprobs in given if logprobs is not None]
            sampled = torch.from_numpy(np.concatenate(known)).to(device) if len(known) == len(owners) else None
            micro_batches.append(MicroBatch(self._policy.batch([row for row, _ in rows], device), owners, sampled))
        missing = number - len(micro_batches)
        if missing:  # a rank with less work takes part in collective operations, with weight 0
            micro_batches += [MicroBatch(self._policy.idle_batch(device), []) for _ in range(missing)]
        return micro_batches

    @torch.no_grad()
    def add_frozen_logprobs(self, mini_batches: Sequence[Sequence[MicroBatch]]) -> None:
        """Adds the log-probabilities under the reference and, if a batch has several updates, those under the policy
        before its first update.
        """
        micro_batches = [micro for mini in mini_batches for micro in mini]
        if self.config.updates_per_batch > 1:
            for micro in micro_batches:
                micro.old = self._policy(micro.batch).logprob
        if self._reference is not None:
            with as_reference(self._reference, self.config.model, self._process_group):
                for micro in micro_batches:
                    micro.reference = self._reference(micro.batch).logprob

    @torch.no_grad()
    def logprobs(
        self, mini_batches: Sequence[Sequence[MicroBatch]], lengths: Sequence[int], whose: Whose
    ) -> list[NDArray[np.float32]]:
        """Returns the log-probabilities of this rank's responses before the first update, for credit schemes that use
        log-probabilities.

        Args:
            mini_batches: Output of :meth:`mini_batches`, after :meth:`add_frozen_logprobs`.
            lengths: Number of tokens in each response.
            whose: Model whose log-probabilities are returned, ``policy`` or ``reference``.

        Raises:
            InputError: If the log-probabilities of the reference are requested and the run has no reference.
        """
        if whose == "reference" and self._reference is None:
            raise InputError("credit.scheme: it requests the reference's log-probabilities, which require loss.kl > 0")
        logprobs: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(lengths)
        for micro in (micro for mini in mini_batches for micro in mini):
            known = micro.old if whose == "policy" else micro.reference
            flat = (self._policy(micro.batch).logprob if known is None else known).float().cpu()
            if micro.owners:
                for owner, values in zip(micro.owners, flat.split([lengths[k] for k in micro.owners]), strict=True):
                    logprobs[owner] = values.numpy()
        return logprobs

    def update(self, mini_batches: Sequence[Sequence[MicroBatch]], credited: CreditedBatch, step: int) -> UpdateResult:
        """Performs all optimizer steps for a batch.

        Args:
            mini_batches: Output of :meth:`mini_batches`, after :meth:`add_frozen_logprobs`.
            credited: Advantages for this rank's responses.
            step: Number of completed steps, for the learning rate and messages.
        """
        self._policy.train()
        if self.config.lora.dropout:  # the only use of torch's global generator
            torch.manual_seed(seed_of(self.config.run.seed, step, self._process_group.rank))
        lengths = np.array([len(advantage) for advantage in credited.advantages], dtype=np.int64)
        sums = torch.zeros(8, dtype=torch.float64, device=self._process_group.device)
        norms, losses, skipped = list[float](), list[float](), 0
        for _ in range(self.config.optim.inner_epochs):
            for micro_batches in mini_batches:
                owners = [i for micro in micro_batches for i in micro.owners]
                tokens, responses = self._process_group.sum(float(lengths[owners].sum()), float(len(owners)))
                if not tokens:  # all pictures of the step are unreadable, on all ranks
                    skipped += 1
                    continue
                weights = token_weights(self._loss, lengths, tokens, responses, self.config.rollout.max_new_tokens)
                loss, sums = self._backward(micro_batches, credited, lengths, weights, sums)
                (loss,) = self._process_group.sum(loss)
                norm = descend(self.config.optim, self._optimizer, loss, step, self._steps)
                if norm is not None:
                    norms.append(norm)
                    losses.append(loss)
                else:
                    skipped += 1
        self._policy.eval()
        totals = self._process_group.sum(*sums.tolist())
        tokens, kl, clipped, entropy, p_end, mismatch, importance, truncated = totals
        (flops,) = self._process_group.sum(self.flops(mini_batches))
        return UpdateResult(
            tokens=tokens,
            kl=kl,
            clipped=clipped,
            entropy=entropy,
            p_end=p_end,
            mismatch=mismatch,
            importance=importance,
            truncated=truncated,
            loss=float(np.mean(losses)) if losses else math.nan,
            grad_norm=float(np.mean(norms)) if norms else math.nan,
            skipped=skipped,
            flops=flops,
        )

    def signal_to_noise(self, parts: Sequence[Sequence[MicroBatch]], credited: CreditedBatch) -> float | None:
        """Returns the squared signal-to-noise ratio of the gradient of a batch; see :func:`squared_snr`. The weights,
        the optimizer and the random generators are not changed.

        Args:
            parts: Mini-batches of different prompts, which together are the batch, after :meth:`add_frozen_logprobs`.
            credited: Advantages for this rank's responses.
        """
        self._policy.train()
        lengths = np.array([len(advantage) for advantage in credited.advantages], dtype=np.int64)
        owners = [[i for micro in part for i in micro.owners] for part in parts]
        tokens = self._process_group.sum(*(float(lengths[own].sum()) for own in owners))
        responses = self._process_group.sum(*(float(len(own)) for own in owners))
        squares = list[float]()
        if sum(tokens):
            longest = self.config.rollout.max_new_tokens
            weights = token_weights(self._loss, lengths, sum(tokens), sum(responses), longest)
            unused = torch.zeros(8, dtype=torch.float64, device=self._process_group.device)
            for micro_batches in ([micro for part in parts for micro in part], *parts):
                self._backward(micro_batches, credited, lengths, weights, unused)
                squares.append(clipped_norm(self._optimizer, math.inf) ** 2)
                self._optimizer.zero_grad(set_to_none=True)
        self._policy.eval()
        return squared_snr(squares[0], squares[1:], responses) if squares else None

    def _backward(
        self,
        micro_batches: Sequence[MicroBatch],
        credited: CreditedBatch,
        lengths: NDArray[np.int64],
        weights: NDArray[np.float64],
        sums: Tensor,
    ) -> tuple[float, Tensor]:
        """Accumulates the gradient of one update, and returns this rank's share of the loss together with the updated
        ``sums``.
        """
        device, ranks = self._process_group.device, self._process_group.size
        total = torch.zeros((), device=device)
        for micro in micro_batches:
            statistics = self._policy(micro.batch)
            sizes = lengths[micro.owners]
            if micro.owners:
                advantage = torch.from_numpy(np.concatenate([credited.advantages[i] for i in micro.owners])).to(device)
                per_token = np.repeat(weights[micro.owners], sizes)
                if self._loss.mean_per_micro_batch:
                    per_token = np.full(sizes.sum(), 1.0 / (sizes.sum() * len(micro_batches) * ranks))
                weight = torch.from_numpy(per_token).to(device, statistics.logprob.dtype)
            else:
                advantage = weight = torch.zeros_like(statistics.logprob)
            when_sampled = statistics.logprob.detach() if micro.old is None else micro.old
            importance = truncated = torch.zeros((), device=device)
            if (most := self._loss.engine_correction) and micro.sampled is not None:
                by_response = sizes.tolist() if self._loss.correction_level == "sequence" else None
                ratios = engine_ratio(when_sampled, micro.sampled, most, by_response)
                importance, truncated = ratios.sum(), (ratios >= most).sum()
                advantage = advantage * ratios
            part = token_loss(
                statistics.logprob,
                advantage,
                weight,
                old=micro.old,
                reference=micro.reference,
                clip_low=self._loss.clip_low,
                clip_high=self._loss.clip_high,
                kl_weight=self._loss.kl,
                estimator=self._loss.kl_estimator,
            )
            (part.loss * ranks).backward()  # FSDP averages over ranks; the weights sum over them
            total += part.loss.detach()
            if micro.owners:
                mismatch = torch.zeros((), device=device)
                if micro.sampled is not None:
                    mismatch = (when_sampled - micro.sampled).abs().sum()
                policy = (statistics.entropy.sum(), statistics.end.sum())
                parts = (sizes.sum(), part.kl, part.clipped, *policy, mismatch, importance, truncated)
                sums = sums + torch.stack([torch.as_tensor(value, device=device).double() for value in parts])
        return float(total), sums

    def flops(self, mini_batches: Sequence[Sequence[MicroBatch]]) -> float:
        """Returns the number of floating-point operations that this rank performs in one update for matrix products
        with weights.

        Operations that are repeated because of gradient checkpointing are not counted.
        """

        def flops(parameter: Tensor) -> float:
            """Returns the number of operations per token for the forward pass, for the gradient of the input and, if
            the weight is trained, for the gradient of the weight.
            """
            return (6.0 if parameter.requires_grad else 4.0) * parameter.numel()

        text = self._policy.vlm.config.get_text_config()
        chosen = text.num_experts_per_tok / text.num_experts if getattr(text, "num_experts", 0) else 1.0
        layers = sum(
            flops(parameter) * (chosen if ".experts." in name else 1.0)  # a token passes through these experts only
            for name, parameter in self._policy.language_model.layers.named_parameters()
        )
        output = flops(self._policy.vlm.lm_head.weight)
        busy = [micro.batch for mini in mini_batches for micro in mini if micro.owners]
        together = sum(batch.tokens * layers + batch.targets.numel() * output for batch in busy)
        return together * self.config.optim.inner_epochs


def descend(optim: Optim, optimizer: torch.optim.Optimizer, loss: float, step: int, steps: int) -> float | None:
    """Performs one optimizer step with the accumulated gradients, and clears the gradients.

    Args:
        optim: Settings of the optimizer.
        optimizer: Optimizer from :func:`optimizer_of`.
        loss: Loss of the whole batch, over all ranks.
        step: Number of completed steps, for the learning rate and messages.
        steps: Number of steps in the training run.

    Returns:
        The gradient norm before clipping. If the norm or the loss is not finite, the weights remain unchanged, a
        warning is logged, and the result is None.
    """
    norm = clipped_norm(optimizer, optim.clip or math.inf)
    fine = math.isfinite(loss) and math.isfinite(norm)
    if fine:
        set_learning_rate(optimizer, learning_rate(optim, step, steps))
        optimizer.step()
    else:
        _log.warning("step %d: loss %g, gradient norm %g: update omitted", step + 1, loss, norm)
    optimizer.zero_grad(set_to_none=True)
    return norm if fine else None


def clipped_norm(optimizer: torch.optim.Optimizer, most: float) -> float:
    """Clips the accumulated gradients to the norm ``most``, and returns the norm before clipping, over all ranks."""
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(trained, most)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def squared_snr(whole: float, parts: Sequence[float], sizes: Sequence[float]) -> float | None:
    """Returns the squared signal-to-noise ratio of a gradient that is a sum over independent prompts.

    The signal is the squared length of the expected gradient, and the noise is the trace of its covariance. The
    estimates of both are unbiased, so the estimated signal may be negative.

    Args:
        whole: Squared norm of the gradient.
        parts: Squared norms of the gradients of the parts, whose sum is the gradient.
        sizes: Number of responses in each part.

    Returns:
        The ratio, or None if there are fewer than two parts or the estimated noise is not positive.
    """
    products = 1 - sum(size**2 for size in sizes) / max(sum(sizes), 1) ** 2  # share of the products of different parts
    signal = (whole - sum(parts)) / products if products > 0 else math.nan
    noise = whole - signal
    return signal / noise if math.isfinite(noise) and noise > 0 else None


def learning_rate(optim: Optim, step: int, steps: int) -> float:
    """Returns the learning rate after ``step`` completed steps of a run with ``steps`` steps."""
    if step < optim.warmup:
        return optim.lr * ((step + 1) / optim.warmup)
    if optim.schedule == "constant":
        return optim.lr
    progress = (step - optim.warmup) / max(1, steps - optim.warmup)
    return optim.lr * (1 - progress if optim.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # torchao compiles its step with the rate as an input
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_of(config: Config, policy: Policy) -> torch.optim.Optimizer:
    """Returns AdamW for the trainable parameters, without weight decay for vectors (norms, biases).

    Raises:
        ScapoError: If the package of the 8-bit optimizer is not installed.
    """
    optim = config.optim
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trainable if parameter.ndim >= 2], "weight_decay": optim.weight_decay},
        {"params": [parameter for parameter in trainable if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    settings: dict[str, Any] = {"lr": optim.lr, "betas": (optim.beta1, optim.beta2), "eps": optim.eps}
    if optim.optimizer == "adamw":
        return torch.optim.AdamW(groups, fused=True, **settings)
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise ScapoError("optim.optimizer = adamw8bit needs torchao: pip install torchao") from None
    return AdamW8bit(groups, **settings)


def check_finite(parameters: Sequence[Tensor], process_group: ProcessGroup, step: int) -> None:
    """Raises an error on every rank if a weight is not finite, so that non-finite weights are never saved.

    Raises:
        ScapoError: If a weight on any rank is not finite.
    """
    local = [
        parameter.detach().to_local() if hasattr(parameter, "to_local") else parameter.detach()
        for parameter in parameters
    ]
    fine = torch.stack([torch.isfinite(tensor).all() for tensor in local]).all()
    if process_group.max(int(not fine)):
        remedy = "resume from the last checkpoint with --resume auto, and a smaller optim.lr if it is large"
        raise ScapoError(f"step {step}: non-finite weights; {remedy}")


def evenly(lengths: Sequence[int], number: int) -> list[list[int]]:
    """Distributes indices over a number of shares so that the sums of the lengths in the shares are nearly equal. In
    order of decreasing length, each index is added to the smallest share. The shares and the indices in each share are
    in ascending order of length.

    Args:
        lengths: Lengths in ascending order.
        number: Number of shares. Some shares are empty if there are more shares than lengths.
    """
    shares: list[tuple[int, list[int]]] = [(0, []) for _ in range(number)]
    for k in reversed(range(len(lengths))):
        least = min(range(number), key=lambda share: shares[share][0])
        total, share = shares[least]
        shares[least] = total + lengths[k], [k, *share]
    return [share for _, share in sorted(shares)]


def _split_group(
    encoded: EncodedPrompt, owners: Sequence[int], responses: Sequence[Response], budget: int
) -> list[list[int]]:
    """Divides the responses of a group into rows within the token budget. A single response may exceed the budget."""
    rows: list[list[int]] = []
    for i in owners:
        if not rows or encoded.row([responses[j].ids for j in (*rows[-1], i)]).length > budget:
            rows.append([])
        rows[-1].append(i)
    return rows
