"""Output of the planner: the memory and duration of a job, and the changes that would make it fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scapo_eval.base.errors import ScapoError

from ..config import Config, from_toml, to_toml
from ..preference.loss import READ
from .budget import memory_of, needed, resolved
from .hardware import GPUS, GPUS_PER_MACHINE, NETWORK
from .job import GpuShare, Job
from .memory import MOMENTS
from .seconds import Seconds

_WORKERS = 4
"""Value of ``data.workers`` that is suggested."""


@dataclass(frozen=True)
class Plan:
    """Result of planning.

    Attributes:
        memory: Nested mapping from moments of a step to kinds of memory to bytes per GPU.
        seconds: Mapping from phases of a step to durations in seconds.
        peak_moment: Moment at which memory use is highest.
        peak: Number of bytes at that moment. Without vLLM, this is the expected value of
            ``torch.cuda.max_memory_allocated``.
        needed: Number of bytes needed, including the CUDA context and fragmentation.
        available: Memory of the GPU in bytes.
        micro_batch_tokens: Token budget of a micro-batch, as configured or derived.
        host: Bytes of host memory per machine for weights and moments that are kept or copied there.
        mfu: Model FLOPs utilization of the update, without recomputation.
        notes: Notes for the user.
        remedies: Alternatives with which the job would fit: sets of ``--set`` values, or other GPUs. The value is empty
            if the job fits.
        faster: Set of ``--set`` values that each shorten a step by at least a tenth and with which the job still fits.
            The value is empty if there are none, or if the job does not fit.
        faster_seconds: Seconds per step with these values.
    """

    memory: dict[str, dict[str, float]]
    seconds: dict[str, float]
    peak_moment: str
    peak: float
    needed: float
    available: float
    micro_batch_tokens: int
    host: float
    mfu: float
    notes: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    faster: str = ""
    faster_seconds: float = 0.0

    @property
    def fits(self) -> bool:
        """True if the memory suffices and every phase has a finite duration."""
        return self.needed <= self.available and all(math.isfinite(second) for second in self.seconds.values())

    @property
    def total(self) -> float:
        """Number of seconds per step."""
        return sum(self.seconds.values())

    def without_vllm(self, moment: str) -> float:
        """Returns the number of bytes that PyTorch's tensors occupy at a given moment of a step."""
        return sum(self.memory[moment].values()) - self.memory[moment].get("vLLM", 0)


def plan(job: Job) -> Plan:
    """Estimates the memory per GPU and the duration of each phase of a step."""
    given, job = job.config.optim.micro_batch_tokens, resolved(job)
    share, time = memory_of(job), Seconds(job)
    memory = {moment: share.bytes_at(moment) for moment in MOMENTS}
    sums = {moment: sum(kinds.values()) for moment, kinds in memory.items()}
    seconds = time.seconds()
    return Plan(
        memory=memory,
        seconds=seconds,
        peak_moment=max(sums, key=lambda moment: sums[moment]),
        peak=max(sums.values()),
        needed=max(map(needed, memory.values())),
        available=job.gpu.memory,
        micro_batch_tokens=share.config.optim.micro_batch_tokens,
        host=share.host_bytes(),
        mfu=time.update_flops / (seconds["update"] / job.config.optim.inner_epochs) / job.gpu.flops,
        notes=([] if given else [_derivation(share)]) + notes(share),
    )


def with_advice(job: Job, planned: Plan) -> Plan:
    """Returns a plan with remedies if the job does not fit, or with time-saving settings if it does."""
    if not planned.fits:
        return dataclasses.replace(planned, remedies=remedies(job))
    chosen, best = dict[tuple[str, str], Any](), planned
    while True:
        now = dataclasses.replace(job, config=_with(job.config, chosen))
        changes = [{**chosen, change: value} for change, value in _speedups(now)]
        plans = [(change, _fitting(job, config=_with(job.config, change))) for change in changes]
        fitting = [(change, made) for change, made in plans if made is not None]
        change, made = min(fitting, key=lambda pair: pair[1].total, default=(chosen, best))
        if made.total > 0.9 * best.total:
            break
        chosen, best = change, made
    return dataclasses.replace(planned, faster=_options(chosen), faster_seconds=best.total) if chosen else planned


def _speedups(job: Job) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yields settings (section and key, value) that may shorten a step and need more memory or processor cores."""
    config = job.config
    tokens = resolved(job).config.optim.micro_batch_tokens
    while tokens < 2**20:  # a larger micro-batch starts fewer kernels and reads a prompt fewer times
        tokens *= 2
        yield ("optim", "micro_batch_tokens"), tokens
    if config.optim.offload:
        yield ("optim", "offload"), False
    if config.model.gradient_checkpointing:
        yield ("model", "gradient_checkpointing"), False
    if config.model.reference == "cpu":
        yield ("model", "reference"), "device"
    if job.count > GPUS_PER_MACHINE and config.model.shard_within == "world":
        yield ("model", "shard_within"), "machine"
    if config.data.workers < _WORKERS:
        yield ("data", "workers"), _WORKERS


def _fitting(job: Job, **changes: Any) -> Plan | None:
    """Returns the plan of a changed job, or None if the job does not fit or its settings contradict each other."""
    try:
        changed = dataclasses.replace(job, **changes)
        from_toml(to_toml(changed.config))  # raises an error if settings contradict each other
    except ScapoError:
        return None
    made = plan(changed)
    return made if made.fits else None


def _options(changes: Mapping[tuple[str, str], Any]) -> str:
    return " ".join(f"--set {'.'.join(change)}={_plainly(value)}" for change, value in changes.items())


def notes(share: GpuShare) -> list[str]:
    """Returns notes for the user that supplement the numbers."""
    sentences = []
    budget, longest = share.config.optim.micro_batch_tokens, share.config.rollout.max_new_tokens - 1
    prompts, responses = READ[share.config.preference.loss] if share.job.pairs else (1, 1)
    least = prompts * share.prompt_tokens + responses * longest
    if budget < least:
        unit = "a pair with responses" if share.job.pairs else "a prompt with one response"
        sentences.append(
            f"optim.micro_batch_tokens = {budget} is less than {unit} of full length ({least}), "
            "which is the smallest pass there is"
        )
    if share.job.pairs:
        sentences.append(f"planned for responses of up to rollout.max_new_tokens = {longest + 1}, those of pairs too")
    if share.job.vllm:
        sequences = share.vllm_sequences()
        sentences.append(
            f"vLLM's cache has room for {sequences} responses at once"
            if sequences
            else f"rollout.gpu_memory = {share.config.rollout.gpu_memory} is too small for the model's weights"
        )
    if share.count > GPUS_PER_MACHINE:
        sentences.append(
            f"more than {GPUS_PER_MACHINE} GPUs: {NETWORK / 1e9:.0f} GB/s a GPU between machines is assumed"
        )
    if share.sharded and share.config.model.reference == "cpu" and share.kl and not share.lora:
        sentences.append("the reference's shards are copied from the host for every micro-batch")
    if share.offload:
        sentences.append("the optimizer step runs on the host: set OMP_NUM_THREADS to the cores per GPU")
    return sentences


def _derivation(share: GpuShare) -> str:
    """Returns a note on the derived budget."""
    budget, longest = share.config.optim.micro_batch_tokens, share.passes[0]
    if share.job.pairs:
        return f"optim.micro_batch_tokens = {budget}, the value for pairs"
    whole = f"{longest.prompts} prompts" if longest.prompts > 1 else "a prompt"
    of_group = f" of {share.config.rollout.group}" if longest.responses < share.config.rollout.group else ""
    return (
        f"optim.micro_batch_tokens = {budget}, derived: {whole} with {longest.responses}{of_group} responses of full "
        "length in a pass"
    )


def remedies(job: Job) -> list[str]:
    """Returns alternatives that make a job fit: a minimal set of settings, more GPUs of the same type, or a GPU type
    with more memory.
    """

    def fits(**changes: Any) -> bool:
        return _fitting(job, **changes) is not None

    ways = []
    tried: dict[tuple[str, str], list[Any]] = {}
    for section, key, value in _changes(job):
        tried.setdefault((section, key), []).append(value)
        if fits(config=_with(job.config, {change: values[-1] for change, values in tried.items()})):
            chosen = {change: values[-1] for change, values in tried.items()}
            for change, values in tried.items():  # try to omit the change, or use its mildest value
                rest = {other: chosen[other] for other in chosen if other != change}
                milder = (
                    candidate for candidate in values if fits(config=_with(job.config, {**rest, change: candidate}))
                )
                chosen = rest if fits(config=_with(job.config, rest)) else {**rest, change: next(milder)}
            ways.append(_options(chosen))
            break
    offload, alone = {("optim", "offload"): True}, "--set optim.offload=true"
    if not job.config.optim.offload and alone not in ways and fits(config=_with(job.config, offload)):
        ways.append(alone)
    for count in (2, 4, 8, 16, 32, 64):
        if job.count < count <= job.config.data.prompts_per_step and fits(count=count):
            ways.append(f"--gpus {count}x{job.kind}")
            break
    for kind in sorted(GPUS, key=lambda name: GPUS[name].memory):
        if GPUS[kind].memory > job.gpu.memory and fits(kind=kind):
            ways.append(f"--gpus {job.count}x{kind}")
            break
    return ways


def _changes(job: Job) -> Iterator[tuple[str, str, Any]]:
    """Yields settings (section, key, value) that save memory, starting with the cheapest."""
    config = job.config
    if not config.model.gradient_checkpointing:
        yield "model", "gradient_checkpointing", True
    if GpuShare(job).kl and not config.lora.rank and config.model.reference == "device":
        yield "model", "reference", "cpu"
    tokens = config.optim.micro_batch_tokens
    prompts, responses = READ[config.preference.loss] if job.pairs else (1, 1)
    while tokens // 2 >= prompts * job.prompt_tokens + responses * config.rollout.max_new_tokens:
        tokens //= 2
        yield "optim", "micro_batch_tokens", tokens
    at_once = config.rollout.prompts_per_batch
    while not job.vllm and at_once > 1:
        at_once //= 2
        yield "rollout", "prompts_per_batch", at_once
    if config.optim.optimizer == "adamw":
        yield "optim", "optimizer", "adamw8bit"
    if not config.optim.offload:
        yield "optim", "offload", True
    if job.vllm:
        share, more = config.rollout.gpu_memory, GpuShare(job).vllm_sequences() < 1
        while share < 0.9 if more else share > 0.2:
            share = round(share + (0.05 if more else -0.05), 2)
            yield "rollout", "gpu_memory", share
        yield "rollout", "engine", "transformers"


def _with(config: Config, changes: Mapping[tuple[str, str], Any]) -> Config:
    for (section, key), value in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **{key: value})})
    return config


def _plainly(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
