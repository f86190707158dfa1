"""Measures the memory of the trainer's own step on tensors without data: ``python -m scapo_train.plan CONFIG
--verify``.

The measurement runs the unchanged training code. The model is frozen, sharded and placed as in
:func:`scapo_train.model.load_policy`. :class:`scapo_train.update.Updater` divides the batch, runs the reference model,
computes the loss and its gradient, and performs the optimizer step. For training on pairs,
:class:`scapo_train.preference.update.PairUpdater` does this. The tensors have shapes but no values
(``FakeTensorMode``), and a fake process group replaces the other ranks. Therefore, the measurement takes one to five
minutes on one core and about one gigabyte of memory, for a model of any size on any number of ranks. Tensors in host
memory (``optim.offload``, ``model.reference = "cpu"``) are not counted, but their copies on the GPU are. Chunk sizes
and attention are the same as on a GPU. A dispatch mode counts the bytes of all live tensors.

8-bit moments (``optim.optimizer = "adamw8bit"``) are created by torchao. Their optimizer step is not run, because it is
a kernel that PyTorch compiles for the GPU. Its temporary memory, which is limited to one parameter at a time, is
therefore not counted. Activations are no longer in memory during this step.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam, ShardedState
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import logprob
from ..checkpoint.save import make_moments
from ..config import Lora
from ..credit import CreditedBatch
from ..data import Prompt, PromptRecord, Response
from ..distributed import ProcessGroup
from ..families import packing
from ..families.general import GeneralPrompt
from ..families.packing import Vision
from ..families.policy import EncodedPrompt, Policy, Row
from ..families.shared import SharedPrompt
from ..model import mesh_of, placed, policy_of, shard, untrained
from ..preference.loss import ROWS
from ..preference.update import Example, PairUpdater
from ..update import MicroBatch, Updater, descend, optimizer_of
from .budget import memory_of, resolved
from .experts import grouped_product
from .general import without_data
from .hardware import GPUS_PER_MACHINE
from .job import Job, Pass, prompt_of
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

    Operations on tensors with values (the inputs on the general path) are performed, because model code reads some of
    these values.

    Attributes:
        marked: Number of image tokens that a mask without values selects. None if such masks select all elements: the
            pictures and patches on the general path, none of which is padding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.marked: int | None = None
        self.now, self.peak = 0, math.inf
        self.pause = _Pause()
        self._sizes: dict[int, int] = {}
        self._storages: dict[int, Any] = {}
        self._resized: set[int] = set()
        self._host: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the parts of a shard, or of 8-bit moments, come here
        if _has_values(args):
            with unset_fake_temporarily():
                made = function(*args, **(kwargs or {}))
            for tensor in tree_leaves(made):
                if isinstance(tensor, Tensor):
                    self.add(tensor)
            self.peak = max(self.peak, self.now)
            return made
        if function is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].is_floating_point() else args[0].dtype is torch.bool or 1
        if function in _INDEXED:
            args = (args[0], self._places(args[1]), *args[2:])
        is_grouped = function is torch.ops.aten._grouped_mm.default
        made = (grouped_product if is_grouped else function)(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, FakeTensor) and not self.pause.is_on:
                self.add(tensor)
        self._recount(self._resized)
        if self.now > self.peak:
            self._recount(self._sizes)
            self.peak = max(self.peak, self.now)
        return made

    def _places(self, indices: Any) -> list[Any]:
        """Replaces each mask among the indices with an index tensor that has the expected number of positions."""
        places: list[Any] = []
        for index in indices:
            if not isinstance(index, Tensor) or index.dtype is not torch.bool:
                places.append(index)
                continue
            selected = index.numel() if self.marked is None else self.marked
            if not isinstance(index, FakeTensor):
                with unset_fake_temporarily():
                    selected = int(index.sum())
            places += [torch.empty((selected,), dtype=torch.long) for _ in range(index.ndim)]
        return places

    def restart(self) -> None:
        """Resets the peak to the number of bytes in the tensors that are currently alive."""
        self._recount(self._sizes)
        self.peak = self.now

    def on_host(self, tensor: Tensor) -> Tensor:
        """Excludes a tensor from the count, because it is in host memory."""
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        names = local.__tensor_flatten__()[0] if hasattr(local, "__tensor_flatten__") else ()  # 8-bit moments
        for part in [getattr(local, name) for name in names] or [local]:
            storage: Any = part.untyped_storage()
            self.add(part)
            if storage._cdata not in self._host:
                self._host.add(storage._cdata)
                self.now -= self._sizes[storage._cdata]
                self._sizes[storage._cdata] = 0
        return tensor

    def add(self, tensor: Tensor) -> None:
        """Counts a tensor, unless its storage is counted already."""
        storage: Any = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self._storages[key] = weakref.ref(storage)
            self.now += self._sizes[key]
            weakref.finalize(storage, self._gone, key)

    def _recount(self, keys: Any) -> None:
        for key in list(keys):
            storage = self._storages[key]()
            if key not in self._host and storage is not None and storage.nbytes() != self._sizes[key]:
                self.now += storage.nbytes() - self._sizes[key]
                self._sizes[key] = storage.nbytes()
                self._resized.add(key)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
        del self._storages[key]
        self._resized.discard(key)
        self._host.discard(key)


def _has_values(args: Any) -> bool:
    """Returns True if the arguments contain tensors, all of which have values."""
    tensors = [value for value in tree_leaves(args) if isinstance(value, Tensor)]
    return bool(tensors) and not any(isinstance(tensor, FakeTensor) for tensor in tensors)


class _Pause:
    """Context in which no bytes are counted, because DTensor determines shapes by running operations on unsharded
    tensors.
    """

    is_on = False

    def __enter__(self) -> None:
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.is_on = False


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
        ScapoError: If the package of the 8-bit optimizer is not installed.
    """
    start, job = time.monotonic(), resolved(job)
    peaks = [_measured(job, batch) for batch in dict.fromkeys(memory_of(job).passes)]
    return Measured(max(low for low, _ in peaks), max(high for _, high in peaks), time.monotonic() - start)


def _measured(job: Job, batch: Pass) -> tuple[float, float]:
    """Returns the peak memory, in bytes, of the passes without gradients and of the update."""
    process_group = _Alone(0, job.count, torch.device("cpu"), min(job.count, GPUS_PER_MACHINE))
    config, shape = job.config, job.shape
    offload, sharded = config.optim.offload, job.count > 1 or config.optim.offload
    compares = job.pairs or config.loss.kl > 0
    with _other_ranks(process_group, sharded), _kernels_of_a_gpu():
        mesh = mesh_of(process_group, config.model.shard_within) if sharded else None
        policy = _built(job, reference=False)
        reference = _built(job, reference=True) if compares and not config.lora.rank else None
        work = (_Pairs if job.pairs else _Rollouts)(job, batch, policy, process_group)
        with (
            FakeTensorMode(allow_non_fake_inputs=True) as fake,
            LiveBytes() as alive,
            _shapes_apart(alive),
            _copies_of_the_host(alive),
            _equal_formats(),
            _no_compiled_step(),
        ):
            for model in (policy, reference):
                if model is None:
                    continue
                without_data(model)
                on_host = _on_host(job) if model is reference else offload
                if mesh is not None and (job.count > 1 or model is policy):
                    shard(model, getattr(torch, config.model.dtype), mesh, offload=on_host)
                lora = config.lora if model is policy else Lora()
                placed(model, config.model, process_group, reference=model is reference, lora=lora)
                if isinstance(model, FSDPModule) and on_host:
                    _keep_on_host(alive, model)
            optimizer = optimizer_of(config, policy)
            make_moments(optimizer)
            if offload:
                for tensor in tree_leaves(list(optimizer.state.values())):
                    if isinstance(tensor, Tensor):
                        alive.on_host(tensor)
            tower = shape.tower * (4 if config.model.dtype == "float32" else 2) if shape.shared else 0
            pictures = [Vision(*_features(job)) for _ in range(work.pictures)] if shape.shared else []
            work.place(fake, alive, pictures)
            low, high = work.run(reference or policy if compares else None, optimizer, alive)
            return tower + low, tower + high


class _Rollouts:
    """Step of training on rollouts.

    Args:
        job: Planning task.
        batch: Largest pass.
        policy: Policy without weights.
        process_group: First rank of the training run.
    """

    def __init__(self, job: Job, batch: Pass, policy: Policy, process_group: ProcessGroup) -> None:
        self._job, self._policy, self._process_group = job, policy, process_group
        self.pictures = -(-job.config.data.prompts_per_step // job.count)
        self._length = batch.length
        self._responses = [Response([100] * batch.length, False)] * (self.pictures * job.config.rollout.group)
        encoded = [_encoded(job, index) for index in range(self.pictures)]
        updater = Updater(job.config, policy, None, None, process_group, 1000)
        (self._micro_batches,) = _one_mini_batch(updater, encoded, self._responses)

    def place(self, fake: FakeTensorMode, alive: LiveBytes, pictures: Sequence[Vision]) -> None:
        """Replaces the tensors of batches by tensors without values. On the general path, they keep their values."""
        if not self._job.shape.shared:
            for tensor in tree_leaves([vars(micro.batch) for micro in self._micro_batches]):
                alive.add(tensor)
            return
        alive.marked = _image_tokens(self._job, self._micro_batches[0].batch)
        self._micro_batches = [
            replace(micro, batch=_faked(fake, micro.batch, pictures[0])) for micro in self._micro_batches
        ]

    def run(self, reference: Policy | None, optimizer: torch.optim.Optimizer, alive: LiveBytes) -> tuple[float, float]:
        """Performs the step, and returns its peaks without and with gradients."""
        updater = Updater(self._job.config, self._policy, reference, optimizer, self._process_group, 1000)
        run = [self._micro_batches[:PASSES]]
        alive.restart()
        updater.add_frozen_logprobs(run)
        low = alive.peak
        if reference is not None and reference is not self._policy and _on_host(self._job):
            _keep_on_host(alive, reference)  # a single process has copied all of it to the GPU until now
        advantages = [np.zeros(self._length, dtype=np.float32)] * len(self._responses)
        credited = CreditedBatch(advantages, SimpleNamespace(), np.zeros(0), np.zeros(0, dtype=bool))  # type: ignore[arg-type]
        alive.restart()
        updater.update(run, credited, 0)
        return low, alive.peak


class _Pairs(PairUpdater):
    """Step of training on pairs. The arguments are those of :class:`_Rollouts`."""

    def __init__(self, job: Job, batch: Pass, policy: Policy, process_group: ProcessGroup) -> None:
        super().__init__(job.config, policy, policy, process_group)
        self._job = job
        policy.leaves_out_never = False
        counts = ROWS[job.config.preference.loss]
        pairs = -(-job.config.data.prompts_per_step // job.count)
        self.pictures = pairs * (2 if job.config.preference.loss == "mdpo" else 1)
        response = [100] * batch.length
        prompt = _encoded(job, 0)
        example = Example([prompt.row([response] * count) for count in counts], [batch.length] * sum(counts))
        self._examples = [example] * min(pairs, PASSES * max(1, batch.prompts // len(counts)))
        self._peaks = [0.0, 0.0]

    def place(self, fake: FakeTensorMode, alive: LiveBytes, pictures: Sequence[Vision]) -> None:
        """Sets the counter and the features of pictures, for batches that the passes create."""
        self._fake, self._alive, self._visions = fake, alive, pictures

    def run(self, reference: Policy | None, optimizer: torch.optim.Optimizer, alive: LiveBytes) -> tuple[float, float]:
        """Performs the step, and returns its peaks without and with gradients."""
        assert reference is not None
        self.reference = reference
        reference.leaves_out_never = False
        copied = 0
        if reference is not self.policy and _on_host(self._job) and not isinstance(reference, FSDPModule):
            _keep_on_host(alive, reference)  # a single process copies all of it to the GPU for each pass
            copied = sum(parameter.numel() * parameter.element_size() for parameter in reference.parameters())
        models = {id(model): model for model in (self.policy, reference)}.values()
        with contextlib.ExitStack() as stack:
            for model in models:
                stack.enter_context(mock.patch.object(model, "batch", self._batches(model.batch)))
            alive.restart()
            self.backward(self._examples, len(self._examples) * self._job.count)
            descend(self.config.optim, optimizer, 0.0, 0, 1000)
        self._note(1)
        return self._peaks[0] + copied, self._peaks[1]

    def sums(self, model: Policy, micro: Sequence[Example]) -> Tensor:
        """Notes the peaks before and after a pass."""
        if torch.is_grad_enabled():
            return super().sums(model, micro)
        self._note(1)
        sums = super().sums(model, micro)
        self._note(0)
        return sums

    def _note(self, kind: int) -> None:
        self._peaks[kind] = max(self._peaks[kind], self._alive.peak)
        self._alive.restart()

    def _batches(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function that makes batches. If responses share their prompt, the tensors have no values."""

        def batch(rows: Sequence[Row], device: torch.device) -> Any:
            with unset_fake_temporarily():
                real = made(rows, device)
            if not self._job.shape.shared:
                return real
            self._alive.marked = _image_tokens(self._job, real)
            return _faked(self._fake, real, self._visions[0])

        return batch


def _image_tokens(job: Job, batch: Any) -> int:
    return int((batch.ids == model_config(job.config.model.path).image_token_id).sum())


def _no_compiled_step() -> Any:
    """Returns a context in which compiled functions do nothing: only the step of the 8-bit optimizer is compiled."""
    return mock.patch.object(torch, "compile", return_value=_does_nothing)


def _does_nothing(*_: Any) -> None:
    """Replaces a compiled function, without keeping its arguments in memory as a mock object would."""


def _keep_on_host(alive: LiveBytes, model: Policy) -> None:
    """Excludes the weights of a model, other than its vision tower, from the count."""
    tower = {*model.tower}
    for parameter in model.parameters():
        if parameter not in tower:
            alive.on_host(parameter)


def _equal_formats() -> Any:
    """Returns a context in which modules skip the conversion of weights that already have the number format. For
    such weights, PyTorch would swap a tensor with itself, which fails if the tensor has no data.
    """
    swap = torch.utils.swap_tensors

    def swap_others(old: Tensor, new: Tensor) -> None:
        if isinstance(old, DTensor) or old.untyped_storage()._cdata != new.untyped_storage()._cdata:
            swap(old, new)

    return mock.patch.object(torch.utils, "swap_tensors", swap_others)


@contextlib.contextmanager
def _copies_of_the_host(alive: LiveBytes) -> Iterator[None]:
    """Within the context, FSDP copies offloaded shards to the GPU and gradients to the host, as it does on a machine
    with a GPU. Here, both have the same device, so the copies would be omitted.
    """
    gathered: Any = FSDPParam.all_gather_inputs
    sharded = FSDPParam.to_sharded_dtensor

    def all_gather_inputs(self: Any) -> Any:
        if not self.offload_to_cpu or self.sharded_state != ShardedState.SHARDED:
            return gathered.fget(self)
        on_host = self._sharded_param_data
        self._sharded_param_data = on_host.clone()
        try:
            return gathered.fget(self)
        finally:
            self._sharded_param_data = on_host

    def to_sharded_dtensor(self: Any, tensor: Tensor) -> DTensor:
        return sharded(self, alive.on_host(tensor.clone()) if self.offload_to_cpu else tensor)

    with (
        mock.patch.object(FSDPParam, "all_gather_inputs", property(all_gather_inputs)),
        mock.patch.object(FSDPParam, "to_sharded_dtensor", to_sharded_dtensor),
    ):
        yield


def _built(job: Job, *, reference: bool) -> Policy:
    """Returns a model on the meta device, without its vision tower if responses share their prompt. The bytes of this
    tower are added separately.
    """
    model, lora = job.config.model, job.config.lora
    frozen = reference or lora.rank > 0
    dtype = getattr(torch, model.dtype)
    vlm = build(model_config(model.path), model.path, dtype if frozen else torch.promote_types(dtype, torch.float32))
    if model.attention == "eager":  # the other kernels keep as little as sdpa does
        vlm.set_attn_implementation("eager")
    policy = policy_of(vlm, [_END], 1.0)
    with torch.device("meta"):
        untrained(policy, model, reference=reference, lora=lora)
    policy.drop_tower()
    return policy


def _on_host(job: Job) -> bool:
    return job.config.model.reference == "cpu"


@contextlib.contextmanager
def _other_ranks(process_group: ProcessGroup, sharded: bool) -> Iterator[None]:
    """Starts a fake process group, which replaces the other ranks within the context."""
    if not sharded:
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
    """Returns a prompt that has as many tokens as a prompt of the job. If responses share their prompt, the features of
    its picture are added later. Otherwise, it has the outputs of the model's processor.
    """
    config, number = model_config(job.config.model.path), job.image_tokens
    source = PromptRecord.of([], str(index), "Describe this image.")
    if not job.shape.shared:
        ids, inputs = prompt_of(job.config.model, *job.work.image, job.prompt_tokens)
        return GeneralPrompt(Prompt(index, source, ids, inputs))
    picture = [config.image_token_id] * number
    ids = torch.tensor([*picture, *[100] * (job.prompt_tokens - number)])
    return SharedPrompt(Prompt(index, source, ids, {}), torch.arange(len(ids)).expand(3, -1), len(ids), None)


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


def _faked(fake: FakeTensorMode, batch: Any, picture: Vision) -> Any:
    """Returns a copy of a batch whose tensors contain no data, and whose prompts all have the same picture."""

    def faked(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_like(fake.from_tensor(value))  # by an operation, so that it is counted
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: faked(getattr(value, field.name)) for field in fields(value)})
        return value

    made = faked(batch)
    return replace(made, vision=[picture] * int(batch.layout.prompts.shape[0]))


__all__ = ["LiveBytes", "Measured", "measure"]
