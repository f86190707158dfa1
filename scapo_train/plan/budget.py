"""Token budget of a micro-batch (``optim.micro_batch_tokens = 0``), derived from the memory model of the plan.

The budget is the smallest one with which the forward and backward passes take about as little time as with the largest
budget that fits into memory. The budget is a multiple of a group whose prompt is the longest one and whose responses
have the maximum length. Only if not even one such group fits, groups are divided. The budget does not depend on the
average length of responses, and on a CPU it does not depend on the machine at all.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from bisect import bisect_left

import torch

from scapo_eval.base.errors import ScapoError

from ..config import USUAL_BUDGET, Config
from ..data import Prompt, Prompts
from ..distributed import ProcessGroup
from ..families.policy import Policy
from ..model import source_folder
from .experts import ExpertsMemory
from .general import GeneralMemory
from .hardware import GIB, kind_of
from .job import GpuShare, Job, Workload
from .memory import Memory
from .seconds import Seconds
from .shapes import shape_of

CONTEXT = 1.5 * GIB
"""Bytes outside of PyTorch's tensors: the CUDA context, NCCL's buffers and cuBLAS's workspace."""

FRAGMENTATION = 0.04
"""Share of the peak that PyTorch's allocator reserves but cannot use."""

SPARE = 0.05
"""Share of the GPU's memory that a derived budget leaves free."""

SLOWER = 0.05
"""Maximum relative difference between the duration of the passes with a derived budget and their shortest duration."""

SHORT = 16
"""Ratio of the maximum length of a response to the length of the short responses for which memory is planned as well:
many short responses in a pass attend to more keys than a few long ones.
"""

_UNKNOWN_GPU = "H100"  # its rates decide between budgets that all fit into the memory of the actual GPU

_log = logging.getLogger(__name__)


def memory_of(job: Job) -> Memory:
    """Returns the memory model of a job: one that measures decoder layers (general path), one that measures experts
    (mixtures of experts), or otherwise a formula.
    """
    kind = GeneralMemory if not job.shape.shared else ExpertsMemory if job.shape.stacks else Memory
    return kind(resolved(job))


def needed(kinds: dict[str, float]) -> float:
    """Returns the bytes needed at a moment of a step, including the CUDA context and fragmentation."""
    total = sum(kinds.values())
    return total + CONTEXT + FRAGMENTATION * (total - kinds.get("vLLM", 0))


def resolved(job: Job) -> Job:
    """Returns the job with a derived budget if ``optim.micro_batch_tokens`` is 0, and otherwise the job itself."""
    return job if job.config.optim.micro_batch_tokens else _with(job, derived(job))


def derived(job: Job) -> int:
    """Returns the derived budget of a job in tokens. If no budget fits into memory, this is the smallest pass."""
    if job.pairs:
        return USUAL_BUDGET  # pairs are never divided
    choices = _choices(job)
    fitting = bisect_left(choices, True, key=lambda tokens: not fits(job, tokens))
    longest = dataclasses.replace(job.work, response_tokens=job.config.rollout.max_new_tokens)

    def duration(tokens: int) -> float:
        seconds = Seconds(_with(dataclasses.replace(job, work=longest), tokens)).seconds()
        return seconds["logprob"] + seconds["update"]

    choices = choices[: max(1, fitting)]
    most = (1 + SLOWER) * duration(choices[-1])
    return next(tokens for tokens in choices if duration(tokens) <= most)


def fits(job: Job, tokens: int) -> bool:
    """Returns True if the passes within a budget fit into memory. Other moments of a step do not depend on it."""
    limit = job.config.rollout.max_new_tokens
    short = max(1, limit // SHORT) if job.shape.shared else limit
    work = dataclasses.replace(job.work, response_tokens=short)
    share = memory_of(_with(dataclasses.replace(job, work=work), tokens))
    return all(needed(share.bytes_at(moment)) <= (1 - SPARE) * job.gpu.memory for moment in ("logprob", "update"))


def _choices(job: Job) -> list[int]:
    """Returns budgets in ascending order: multiples of a whole group, or of a part of it if a group does not fit."""
    share = GpuShare(_with(job, USUAL_BUDGET))
    group, longest, prompt = job.config.rollout.group, job.config.rollout.max_new_tokens - 1, share.prompt_tokens
    if not job.shape.shared:  # one copy of the prompt per response, and at most one group per pass
        return [number * (prompt + longest) for number in range(1, group + 1)]
    whole = prompt + group * longest
    if not fits(job, whole):
        return [prompt + number * longest for number in range(1, group)] or [whole]
    per_update = max(1, math.ceil(share.prompts / job.config.optim.mini_batches))
    return [number * whole for number in range(1, per_update + 1)]


def _with(job: Job, tokens: int) -> Job:
    return dataclasses.replace(job, config=job.config.with_budget(tokens))


def budget_of_run(config: Config, policy: Policy, prompts: Prompts, process_group: ProcessGroup, kept: int = 0) -> int:
    """Returns the derived budget of a training run, which is the same on all ranks.

    Args:
        config: Settings of the training run.
        policy: Policy of the training run.
        prompts: Prompts of the training run.
        process_group: Group of all processes. The GPU with the least memory determines the budget.
        kept: Budget in the checkpoint of a resumed run, or 0. This budget is kept if it fits.
    """
    device = process_group.device
    memory = min(process_group.gather(torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0))
    tokens = _of_run(config, policy, prompts, process_group, memory, kept) if process_group.main else 0
    return int(process_group.gather(tokens)[0])


def _of_run(
    config: Config, policy: Policy, prompts: Prompts, process_group: ProcessGroup, memory: int, kept: int
) -> int:
    longest = prompts.largest()
    length, group, limit = len(longest.ids) if longest else 0, config.rollout.group, config.rollout.max_new_tokens
    whole = length + group * (limit - 1) if policy.packs else group * (length + limit - 1)
    usual = kept or max(USUAL_BUDGET, whole)
    if not memory or longest is None:
        return usual
    try:
        name = torch.cuda.get_device_name(process_group.device)
        image_token = getattr(policy.vlm.config, "image_token_id", None)
        job = job_of_run(config, longest, image_token, kind_of(name) or _UNKNOWN_GPU, process_group.size, memory)
        return kept if kept and fits(job, kept) else derived(job)
    except ScapoError as error:
        _log.warning("optim.micro_batch_tokens = %d, because memory cannot be planned: %s", usual, error)
        return usual


def job_of_run(config: Config, longest: Prompt, image_token: int | None, kind: str, ranks: int, memory: float) -> Job:
    """Returns the planning task of a training run in which all prompts are as long as the longest one.

    Args:
        config: Settings of the training run.
        longest: Longest prompt of the training run.
        image_token: Id of the token that represents a part of a picture, for models whose responses share a prompt.
        kind: Name of the GPU type.
        ranks: Number of processes.
        memory: Memory of the GPU in bytes.

    Raises:
        ScapoError: If the run cannot be planned.
    """
    from PIL import Image

    folder = str(source_folder(config.model))
    rollout = config.rollout
    if rollout.server:  # responses are sampled on other GPUs
        rollout = dataclasses.replace(rollout, engine="transformers", server="", lookahead=0)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, path=folder), rollout=rollout)
    shape = shape_of(folder)
    size = (shape.token_side, shape.token_side)
    if shape.shared:  # all pictures of the prompt as one, with the same number of tokens
        size = (shape.token_side * max(1, int((longest.ids == image_token).sum())), shape.token_side)
    elif longest.source.pictures:
        with Image.open(longest.source.pictures[0]) as picture:
            size = picture.size
    job = Job(config, shape, kind, ranks, Workload(size), memory=memory)
    text = max(1, len(longest.ids) - job.image_tokens)
    return dataclasses.replace(job, work=dataclasses.replace(job.work, prompt_tokens=text))
