"""Detection of out-of-memory errors, and advice on settings that need less memory in the phase in which the error
occurred.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scapo_eval.base.errors import ScapoError

from ..config import Config

_OF_HOST = ("not enough memory", "can't allocate memory", "Cannot allocate memory")


def out_of_memory(error: BaseException) -> bool:
    """Returns True if an error reports insufficient memory on the device or the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OF_HOST)


@contextmanager
def with_remedy(config: Config) -> Iterator[None]:
    """Converts an out-of-memory error before the first step to an error with advice; see :func:`remedy_for_memory`.

    Raises:
        ScapoError: If the memory does not suffice in the ``with`` block.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ScapoError(remedy_for_memory(config, "", 0, error)) from None


def remedy_for_memory(config: Config, phase: str, step: int, error: BaseException) -> str:
    """Returns a one-line message that states the error, the phase in which it occurred, and settings that need less
    memory.

    Args:
        config: Settings of the training run.
        phase: Name of the phase of the step, or an empty string before the first phase.
        step: Number of the step.
        error: Error from PyTorch.
    """
    rollout, optim = config.rollout, config.optim
    ways: list[str] = []
    if phase in ("rollout", "evaluation", "sync", "") and rollout.engine == "vllm" and not rollout.server:
        ways.append(f"rollout.gpu_memory = {rollout.gpu_memory} lower")
    elif phase in ("rollout", "evaluation") and rollout.engine != "vllm" and rollout.prompts_per_batch > 1:
        ways.append(f"rollout.prompts_per_batch = {rollout.prompts_per_batch // 2}")
    elif phase in ("logprob", "reward", "snr", "update"):
        ways.append(f"optim.micro_batch_tokens = {max(1, optim.micro_batch_tokens // 2)}")
        if not config.model.gradient_checkpointing:
            ways.append("model.gradient_checkpointing = true")
    elif phase == "vision":
        ways.append("model.max_pixels lower")
    if not config.lora.rank:
        if config.loss.kl and config.model.reference == "device":
            ways.append('model.reference = "cpu"')
        if optim.optimizer == "adamw":
            ways.append('optim.optimizer = "adamw8bit"')
        if not optim.offload:
            ways.append("optim.offload = true")
        ways.append("lora.rank = 64")
    ways.append("more GPUs")
    cause = " ".join(str(error).split()).partition(". ")[0][:200]
    where = f"in step {step} ({phase})" if phase else "before the first step"
    plan = "python -m scapo_train.plan CONFIG --gpus NxKIND"
    needs = f"these settings need less memory: {', '.join(ways)} ({plan} estimates how much)"
    return f"out of memory {where}: {cause}; {needs}"
