"""A check at the start of a run that ``model.attention`` computes the same log-probabilities as the default."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scapo_eval.base.errors import ScapoError, in_one_line

from .config import Model
from .data import PromptRecord, Prompts
from .distributed import ProcessGroup
from .families.policy import Batch, Policy
from .model import reshard
from .monitoring.memory import out_of_memory

_log = logging.getLogger(__name__)

CHECKED = 8
"""Number of prompts from which the first with readable pictures is used."""

EXACT_GAP, MEAN_GAP = 1e-4, 0.05
"""Largest difference between log-probabilities in float32, and largest mean difference in bfloat16, in nats."""


def check_attention(
    policy: Policy, processor: Any, sources: Sequence[PromptRecord], settings: Model, process_group: ProcessGroup
) -> None:
    """Compares the log-probabilities of two short responses to an image with those that PyTorch's attention yields.

    The forward and backward passes of an update are run once, because some kernels lack a backward pass on some
    devices.

    Args:
        policy: Policy on the general path that uses the chosen attention implementation.
        processor: Processor of the model.
        sources: Prompts used in the training run.
        settings: Settings of the model.
        process_group: Group of all processes. All ranks must call this function.

    Raises:
        ScapoError: If a pass fails, or if the log-probabilities differ. The error names the cause and a remedy.
    """
    name, device = settings.attention, process_group.device
    if name == "sdpa":
        return
    chosen = sorted(sources, key=lambda source: not source.pictures)[:CHECKED]
    maker = Prompts(chosen, processor, max_bad=CHECKED)
    prompt = maker.take(range(len(chosen)))[0]
    maker.close()
    text = [token for token in prompt.ids.tolist() if token not in policy.never]
    (encoded,) = policy.prepare([prompt], device)
    batch = policy.batch([encoded.row([text[:8], text[:3]])], device)
    try:
        policy.train()
        policy(batch).logprob.sum().backward()
        policy.zero_grad(set_to_none=True)
        policy.eval()
        found = _logprobs(policy, batch, name)
    except (RuntimeError, ValueError, TypeError, ImportError) as error:
        if out_of_memory(error):
            raise
        cause = in_one_line(error, 200)
        raise ScapoError(
            f'model.attention = "{name}" fails on this model or device: {cause}; set it to "sdpa"'
        ) from None
    gap = (found - _logprobs(policy, batch, "sdpa")).abs()
    policy.vlm.set_attn_implementation(name)
    reshard(policy)  # a checkpoint may change the weights
    wide = settings.dtype != "bfloat16"
    apart, most = (float(gap.max()), EXACT_GAP) if wide else (float(gap.mean()), MEAN_GAP)
    kind = "at most" if wide else "on average"
    _log.info("model.attention = %s: log-probabilities differ from those of sdpa by %.2g nats %s", name, apart, kind)
    if not apart <= most:
        reason = f"log-probabilities {apart:.2g} nats {kind} from those of sdpa, more than the rounding error {most:g}"
        raise ScapoError(f'model.attention = "{name}" computes different values ({reason}): set it to "sdpa"')


@torch.no_grad()
def _logprobs(policy: Policy, batch: Batch, name: str) -> Tensor:
    policy.vlm.set_attn_implementation(name)
    logprobs: Tensor = policy(batch).logprob
    return logprobs
