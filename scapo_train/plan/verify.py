"""Measures the memory of the trainer's own step on tensors without data: ``python -m scapo_train.plan CONFIG
--verify``.

The measurement runs the unchanged training code. The model is frozen, sharded and placed as in
:func:`scapo_train.model.load_policy`. :class:`scapo_train.update.Updater` divides the batch, runs the reference model,
computes the loss and its gradient, and performs the optimizer step. The tensors have shapes but no values
(``FakeTensorMode``), and a fake process group replaces the other ranks. Therefore, the measurement takes at most a
minute on one core and at most one gigabyte of memory, for a model of any size on any number of ranks. Chunk sizes and
attention are the same as on a GPU. A dispatch mode counts the bytes of all live tensors.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scapo_eval.base.errors import InputError

from .. import logprob
from ..config import Lora
from ..credit import CreditedBatch
from ..data import Prompt, PromptRecord, Response
from ..distributed import ProcessGroup
from ..families import packing
from ..families.packing import Vision
from ..families.policy import EncodedPrompt, Policy
from ..families.shared import SharedPrompt
from ..model import mesh_of, placed, policy_of, shard, untrained
from ..update import MicroBatch, Updater, optimizer_of
from .general import without_data
from .hardware import GPUS_PER_MACHINE
from .job import Job, Pass
from .planner import memory_of
from .shapes import build, model_config

PASSES = 2
"""Micro-batches that are run: a second one finds the gradients of the first, further ones change nothing."""

_END = 5
_INDEXED = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


@dataclass(frozen=True)
class Measured:
    """Memory on one GPU, as counted by the measurement.

    Attributes:
        logprob: Peak memory of the passes without gradients, in bytes.
        update: Peak memory, in bytes, of the forward and backward passes and of the optimizer step.
        seconds: Duration of the measurement in seconds.
    """

    logprob: float
    update: float
    seconds: float


class LiveBytes(TorchDispatchMode):
    """Counter of the bytes that all live tensors without data would occupy, including the growing and shrinking buffers
    of FSDP.

    The attribute ``peak`` is the maximum since the last call of :meth:`restart`. Operations that read a value from a
    tensor (such as a norm or a test for finite values) return 1, because the tensors hold no data.

    Args:
        marked: Number of image tokens that a mask selects.
    """

    def __init__(self, marked: int = 0) -> None:
        super().__init__()
        self._marked = marked
        self.now, self.peak = 0, math.inf
        self.pause = _Pause()
        self._sizes: dict[int, int] = {}
        self._storages: dict[int, Any] = {}
        self._resized: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its parts come here
        if function is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].is_floating_point() else args[0].dtype is torch.bool or 1
        if function in _INDEXED:
            args = (args[0], self._places(args[1]), *args[2:])
        is_grouped = function is torch.ops.aten._grouped_mm.default
        made = (_grouped if is_grouped else function)(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, FakeTensor) and not self.pause.is_on:
                self._add(tensor.untyped_storage())
        self._recount(self._resized)
        if self.now > self.peak:
            self._recount(self._sizes)
            self.peak = max(self.peak, self.now)
        return made

    def _places(self, indices: Any) -> list[Any]:
        """Replaces each mask among the indices with an index tensor that has the expected number of positions."""
        places: list[Any] = []
        for index in indices:
            mask = isinstance(index, Tensor) and index.dtype is torch.bool
            size = (self._marked,)
            places += [torch.empty(size, dtype=torch.long) for _ in range(index.ndim)] if mask else [index]
        return places

    def restart(self) -> None:
        """Resets the peak to the number of bytes in the tensors that are currently alive."""
        self._recount(self._sizes)
        self.peak = self.now

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self._storages[key] = weakref.ref(storage)
            self.now += self._sizes[key]
            weakref.finalize(storage, self._gone, key)

    def _recount(self, keys: Any) -> None:
        for key in list(keys):
            storage = self._storages[key]()
            if storage is not None and storage.nbytes() != self._sizes[key]:
                self.now += storage.nbytes() - self._sizes[key]
                self._sizes[key] = storage.nbytes()
                self._resized.add(key)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
        del self._storages[key]
        self._resized.discard(key)


class _Pause:
    """Context in which no bytes are counted, because DTensor determines shapes by running operations on unsharded
    tensors.
    """

    is_on = False

    def __enter__(self) -> None:
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.is_on = False


def _grouped(left: Tensor, right: Tensor, ends: Tensor, *_: Any) -> Tensor:
    """Returns a tensor that has the shape of the grouped matrix product of the experts.

    For tensors without data, PyTorch determines this shape only in bfloat16.
    """
    if right.ndim == 3:
        return left.new_empty(left.shape[0], right.shape[2])
    return left.new_empty(ends.shape[0], left.shape[0], right.shape[1])


class _Alone(ProcessGroup):
    """First rank of a process group. Its collective operations use only the values of this rank."""

    def sum(self, *values: float) -> list[float]:
        return list(values)

    def max(self, value: int) -> int:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]


def measure(job: Job) -> Measured:
    """Returns the peak memory of a step, which is the larger of the values for responses of maximum length and of
    average length.

    Call this function only in a process that performs no distributed work afterwards. PyTorch caches the shapes of
    shards. With the fake process group, all cached shapes are those of rank 0.

    Raises:
        InputError: If the job trains on pairs, if it uses ``optim.offload`` or an optimizer other than AdamW, or if its
            model family is on the general path (whose tower reads tensor values).
    """
    if job.pairs or not job.shape.shared:
        raise InputError("--verify measures rollouts of families that share their prompt")
    if job.config.optim.offload:
        raise InputError("--verify counts the memory of a GPU: set optim.offload to false")
    if job.config.optim.optimizer != "adamw":
        raise InputError(f"--verify supports only optim.optimizer = adamw, not {job.config.optim.optimizer}")
    start = time.monotonic()
    peaks = [_measured(job, batch) for batch in dict.fromkeys(memory_of(job).passes)]
    return Measured(max(low for low, _ in peaks), max(high for _, high in peaks), time.monotonic() - start)


def _measured(job: Job, batch: Pass) -> tuple[float, float]:
    """Returns the peak memory, in bytes, of the passes without gradients and of the update."""
    process_group = _Alone(0, job.count, torch.device("cpu"), min(job.count, GPUS_PER_MACHINE))
    config, shape = job.config, job.shape
    with _other_ranks(process_group), _kernels_of_a_gpu():
        mesh = mesh_of(process_group, config.model.shard_within) if job.count > 1 else None
        policy = _built(job, reference=False)
        steps = Updater(config, policy, None, None, process_group, 1000)
        prompts = -(-config.data.prompts_per_step // job.count)
        group, length = config.rollout.group, batch.length
        responses = [Response([100] * length, False)] * (prompts * group)
        encoded = [_encoded(job, index) for index in range(prompts)]
        (micro_batches,) = _one_mini_batch(steps, encoded, responses)
        marked = int((micro_batches[0].batch.ids == policy.vlm.config.image_token_id).sum())  # type: ignore[attr-defined]
        reference = _built(job, reference=True) if config.loss.kl and not config.lora.rank else None
        with FakeTensorMode(allow_non_fake_inputs=True) as fake, LiveBytes(marked) as alive, _shapes_apart(alive):
            for model in (policy, reference):
                if model is not None:
                    without_data(model)
                    if mesh is not None:
                        shard(model, getattr(torch, config.model.dtype), mesh, offload=False)
                    lora = config.lora if model is policy else Lora()
                    placed(model, config.model, process_group, reference=model is reference, lora=lora)
            on_host = sum(_bytes(p) for p in reference.parameters()) if reference and _on_host(job) else 0
            optimizer = optimizer_of(config, policy)
            for parameter in optimizer.param_groups[0]["params"] + optimizer.param_groups[1]["params"]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
            pictures = [Vision(*_features(job)) for _ in range(prompts)]
            micro_batches = [_faked(fake, micro, pictures[0]) for micro in micro_batches]
            tower = shape.tower * (4 if config.model.dtype == "float32" else 2)
            updater = Updater(config, policy, reference or (policy if config.loss.kl else None), optimizer,
                              process_group, 1000)  # fmt: skip
            run = [micro_batches[:PASSES]]
            alive.restart()
            updater.add_frozen_logprobs(run)
            low = alive.peak
            advantages = [np.zeros(length, dtype=np.float32)] * len(responses)
            credited = CreditedBatch(advantages, SimpleNamespace(), np.zeros(0), np.zeros(0, dtype=bool))  # type: ignore[arg-type]
            alive.restart()
            updater.update(run, credited, 0)
            return tower + low - on_host, tower + alive.peak - on_host


def _built(job: Job, *, reference: bool) -> Policy:
    """Returns a model on the meta device without its vision tower, whose bytes are added separately."""
    model, lora = job.config.model, job.config.lora
    frozen = reference or lora.rank > 0
    dtype = getattr(torch, model.dtype)
    vlm = build(model_config(model.path), model.path, dtype if frozen else torch.promote_types(dtype, torch.float32))
    policy = policy_of(vlm, [_END], 1.0)
    with torch.device("meta"):
        untrained(policy, model, reference=reference, lora=lora)
    policy.drop_tower()
    return policy


def _on_host(job: Job) -> bool:
    return job.config.model.reference == "cpu"


def _bytes(parameter: Tensor) -> int:
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return local.untyped_storage().nbytes()


@contextlib.contextmanager
def _other_ranks(process_group: ProcessGroup) -> Iterator[None]:
    """Starts a fake process group, which replaces the other ranks within the context."""
    if process_group.size == 1:
        yield
        return
    dist.init_process_group("fake", rank=0, world_size=process_group.size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _takes_no_groups(_: Tensor) -> bool:
    """Returns False, like the attention on a GPU.

    This function is used instead of a mock object, which would keep its arguments in memory.
    """
    return False


@contextlib.contextmanager
def _kernels_of_a_gpu() -> Iterator[None]:
    """Within the context, selects the chunk sizes and the attention for a GPU, although no GPU is available."""
    gpu = {"cpu": logprob.CHUNK_ELEMENTS["cuda"]}
    with (
        mock.patch.dict(logprob.CHUNK_ELEMENTS, gpu),
        mock.patch.dict(logprob.CHUNK_TOKENS, clear=True),
        mock.patch.dict(logprob.KEPT_ELEMENTS, clear=True),
        mock.patch.object(packing, "takes_groups", _takes_no_groups),
    ):
        yield


def _shapes_apart(alive: LiveBytes) -> Any:
    """Pauses the counter while DTensor determines shapes and PyTorch holds a lock."""
    return mock.patch.object(ShardingPropagator, "_fake_mode_lock", alive.pause)


def _encoded(job: Job, index: int) -> EncodedPrompt:
    """Returns a prompt that has as many tokens as a prompt of the job but no image features; the features are added
    later.
    """
    config, number = model_config(job.config.model.path), job.image_tokens
    picture = [config.image_token_id] * number
    ids = torch.tensor([*picture, *[100] * (job.prompt_tokens - number)])
    prompt = Prompt(index, PromptRecord.of([], str(index), "Describe this image."), ids, {})
    return SharedPrompt(prompt, torch.arange(len(ids)).expand(3, -1), len(ids), None)


def _one_mini_batch(
    updater: Updater, encoded: Sequence[EncodedPrompt], responses: Sequence[Response]
) -> list[list[MicroBatch]]:
    """Returns the micro-batches of all prompts as one mini-batch, which has the same largest passes as the configured
    mini-batches.
    """
    optim = replace(updater.config.optim, mini_batches=1)
    whole = Updater(replace(updater.config, optim=optim), updater._policy, None, None, updater._process_group, 1)
    return whole.mini_batches(range(len(encoded)), encoded, responses)


def _features(job: Job) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the features of one picture."""
    dtype = getattr(torch, job.config.model.dtype)
    embeds, *deep = (
        torch.zeros(job.image_tokens, job.shape.hidden, dtype=dtype) for _ in range(1 + job.shape.deepstack)
    )
    return embeds, tuple(deep)


def _faked(fake: FakeTensorMode, micro: MicroBatch, picture: Vision) -> MicroBatch:
    """Returns a copy of the micro-batch whose tensors contain no data."""

    def faked(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_like(fake.from_tensor(value))  # by an operation, so that it is counted
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: faked(getattr(value, field.name)) for field in fields(value)})
        return value

    batch: Any = faked(micro.batch)
    rows = int(micro.batch.layout.prompts.shape[0])  # type: ignore[attr-defined]
    return replace(micro, batch=replace(batch, vision=[picture] * rows))


__all__ = ["LiveBytes", "Measured", "measure"]
