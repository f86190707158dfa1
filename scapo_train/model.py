"""Supported model families, and the loading and sharding of policies.

Each family is a record in :data:`FAMILIES`. A test compares the computation of each family with the forward pass of
transformers. The vision towers of all families are frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from scapo_eval.base.errors import ScapoError, in_one_line
from scapo_eval.engines.base import check_model
from scapo_eval.engines.hf import end_tokens, load_processor

from .config import Lora, Model
from .distributed import ProcessGroup, backend_of
from .families.general import GeneralPolicy
from .families.lora import adapters_off, add_adapters, has_adapters
from .families.policy import Policy
from .families.shared import SharedPolicy


@dataclass(frozen=True)
class Family:
    """Supported model family, whose log-probabilities and greedy responses are the same in this package as in
    transformers.

    Attributes:
        name: Name of the family.
        policy: Class that computes the forward pass, either with shared prompts or on the general path.
        language: Name of the attribute of ``vlm.model`` that contains the language model.
        one_dtype: True if transformers requires the outputs and the weights of the vision tower to have the same dtype,
            which must then be the dtype of the embedding.
    """

    name: str
    policy: type[Policy] = GeneralPolicy
    language: str = "language_model"
    one_dtype: bool = False


FAMILIES: Mapping[str, Family] = {
    "qwen2_vl": Family("Qwen2-VL", SharedPolicy),
    "qwen2_5_vl": Family("Qwen2.5-VL", SharedPolicy),
    "qwen3_vl": Family("Qwen3-VL", SharedPolicy),
    "qwen3_vl_moe": Family("Qwen3-VL-MoE", SharedPolicy),
    "llava": Family("LLaVA-1.5"),
    "llava_next": Family("LLaVA-NeXT"),
    "llava_onevision": Family("LLaVA-OneVision"),
    "internvl": Family("InternVL3"),
    "gemma3": Family("Gemma 3"),
    "smolvlm": Family("SmolVLM", language="text_model", one_dtype=True),
}
"""``model_type`` of a configuration -> family. ``tests/integration/test_train_model.py`` tests families with shared
prompts, and ``test_train_families.py`` tests families on the general path.
"""


def policy_of(vlm: Any, ends: Sequence[int], temperature: float) -> Policy:
    """Wraps a Hugging Face model in the policy class of its family.

    Raises:
        ScapoError: If the family of the model is not supported.
    """
    family = check_family(vlm.config)
    return family.policy(vlm, ends, temperature, family.language)


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Converts exceptions from transformers to an error that states the path of the model.

    Args:
        path: Path of the model.

    Raises:
        ScapoError: If transformers raises an exception in the ``with`` block.
    """
    check_model(path)
    try:
        yield
    except ScapoError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ScapoError(f"cannot load {path}: {in_one_line(error, 400)}") from None


def processor_of(settings: Model) -> Any:
    """Returns the processor of a model, with the configured picture sizes.

    Raises:
        ScapoError: If the processor cannot be loaded.
    """
    sizes: dict[str, Any] = {name: getattr(settings, name) or None for name in ("min_pixels", "max_pixels")}
    with loading(settings.path):
        return load_processor(settings.path, settings.revision or None, **sizes)


def source_folder(settings: Model) -> Path:
    """Returns the folder with the files of a loaded model. For a name on a hub, the folder is the model's folder in the
    hub's cache.
    """
    if Path(settings.path).is_dir():
        return Path(settings.path)
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py"]
    revision = settings.revision or None
    try:
        return Path(snapshot_download(settings.path, revision=revision, allow_patterns=patterns))
    except OSError:  # offline: the loaded files are in the cache
        return Path(snapshot_download(settings.path, revision=revision, local_files_only=True))


def load_policy(
    settings: Model,
    temperature: float,
    process_group: ProcessGroup,
    *,
    reference: bool = False,
    lora: Lora = Lora(),  # noqa: B008  frozen
    seed: int = 0,
    offload: bool = False,
) -> Policy:
    """Loads the policy, or its frozen reference, from a Hugging Face model.

    With a single process, the parameters are not sharded. Trained parameters are float32 or wider, and the computation
    uses autocast. With several processes, the parameters are sharded (FSDP2). The first process reads the files and
    sends the shards to the other processes, so that the host memory contains one copy of the model and not one copy per
    GPU. Every rank holds the whole frozen vision tower, so that ranks without a picture need not take part in its
    computation.

    Args:
        settings: Settings of the model.
        temperature: Sampling temperature.
        process_group: Group of all processes.
        reference: True to load a model without trained parameters.
        lora: Adapter settings of the policy. If there are adapters, only the adapters are trained.
        seed: Seed for the adapters' initial values.
        offload: True to keep the policy's shards in host memory (``optim.offload``). In this case, even a single
            process has shards.

    Raises:
        ScapoError: If the model cannot be loaded or is not supported.
    """
    import transformers

    dtype = getattr(torch, settings.dtype)
    frozen = reference or lora.rank > 0
    plain = dtype if frozen else torch.promote_types(dtype, torch.float32)
    with loading(settings.path):
        described = transformers.AutoConfig.from_pretrained(settings.path, revision=settings.revision or None)
        _check_choice(settings, check_family(described))
        wanted = plain if process_group.size == 1 or frozen else "auto"
        if process_group.main:
            vlm = transformers.AutoModelForImageTextToText.from_pretrained(
                settings.path, revision=settings.revision or None, dtype=wanted, attn_implementation="sdpa"
            )
        else:
            with torch.device("meta"):
                vlm = transformers.AutoModelForImageTextToText.from_config(described, attn_implementation="sdpa")
        if process_group.size > 1:
            (vlm.generation_config,) = _from_first([vlm.generation_config])
    ends = sorted(end_tokens(vlm.generation_config.eos_token_id))
    if settings.attention != "sdpa":
        try:
            vlm.set_attn_implementation(settings.attention)
        except (ValueError, ImportError) as error:
            cause = in_one_line(error, 200)
            raise ScapoError(f'model.attention = "{settings.attention}": {cause}; set it to "sdpa"') from None
    policy = untrained(policy_of(vlm, ends, temperature), settings, reference=reference, lora=lora, seed=seed)
    if reference:
        offload = process_group.size > 1 and settings.reference == "cpu"
    if process_group.size > 1 or offload:
        whole = _same_formats(policy) if process_group.size > 1 else {}
        shard(policy, dtype, mesh_of(process_group, settings.shard_within), offload=offload)
        if process_group.size > 1:
            _hand_out(policy, whole, process_group, torch.device("cpu") if offload else process_group.device)
    return placed(policy, settings, process_group, reference=reference, lora=lora)


def _check_choice(settings: Model, family: Family) -> None:
    """Checks ``model.attention`` before weights are loaded.

    Raises:
        ScapoError: If the family has its own attention mechanism, or if a package is missing.
    """
    if settings.attention != "sdpa" and family.policy is SharedPolicy:
        why = f"{family.name} uses its own attention for shared prompts"
        raise ScapoError(
            f'model.attention = "{settings.attention}" is not supported for this model: {why}; omit the setting'
        )
    if settings.attention == "flash_attention_2" and find_spec("flash_attn") is None:
        install = "pip install flash-attn --no-build-isolation"
        raise ScapoError(f'model.attention = "flash_attention_2" needs flash_attn: {install}')


def untrained(policy: Policy, settings: Model, *, reference: bool, lora: Lora, seed: int = 0) -> Policy:
    """Freezes all parameters that are not trained, adds the adapters, and enables gradient checkpointing.

    Args:
        policy: Policy with unsharded weights.
        settings: Settings of the model, as for :func:`load_policy`.
        reference: True for a model without trained parameters, as for :func:`load_policy`.
        lora: Adapter settings of the policy, as for :func:`load_policy`.
        seed: Seed for the adapters' initial values, as for :func:`load_policy`.
    """
    vlm = policy.vlm
    for parameter in vlm.parameters() if reference or lora.rank else policy.tower:
        parameter.requires_grad_(False)
    if lora.rank and not reference:
        add_adapters(vlm, policy.language_model, lora, seed)
    if reference:
        policy.drop_tower()  # identical to the policy's tower, which is frozen
    elif settings.gradient_checkpointing:
        keep_inputs_only(vlm)
    return policy


def placed(policy: Policy, settings: Model, process_group: ProcessGroup, *, reference: bool, lora: Lora) -> Policy:
    """Converts the weights to their number formats, moves them to the device, and enables autocast if necessary.

    Args:
        policy: Policy from :func:`untrained`, possibly sharded.
        settings: Settings of the model, as for :func:`load_policy`.
        process_group: Group of all processes, as for :func:`load_policy`.
        reference: True for a model without trained parameters, as for :func:`load_policy`.
        lora: Adapter settings of the policy, as for :func:`load_policy`.
    """
    dtype, sharded = getattr(torch, settings.dtype), isinstance(policy, FSDPModule)
    frozen = reference or lora.rank > 0
    plain = dtype if frozen else torch.promote_types(dtype, torch.float32)
    if sharded and not frozen:
        policy.to(plain)
    wide = check_family(policy.vlm.config).one_dtype and not sharded
    for parameter in policy.tower:
        parameter.data = parameter.data.to(plain if wide else dtype)
    if sharded:  # the shards have their device already
        for parameter in policy.tower:
            parameter.data = parameter.data.to(process_group.device)
        _move_buffers(policy, process_group.device)
    elif not (reference and settings.reference == "cpu") and next(policy.parameters()).device != process_group.device:
        policy.to(process_group.device)
    if not sharded and any(parameter.dtype != dtype for parameter in policy.parameters() if parameter.requires_grad):
        policy.compute = lambda: torch.autocast(process_group.device.type, dtype)
    return policy.eval()


def _move_buffers(policy: Policy, device: torch.device) -> None:
    for module in policy.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.device != device:
                setattr(module, name, buffer.to(device))


def keep_inputs_only(vlm: Any) -> None:
    """Enables gradient checkpointing, so that layers keep only their inputs and recompute all other activations in the
    backward pass.
    """
    # transformers 4 has only the second name
    enable = getattr(vlm, "activation_checkpointing_enable", vlm.gradient_checkpointing_enable)
    enable({"use_reentrant": False})


@contextmanager
def as_reference(model: Policy, settings: Model, process_group: ProcessGroup) -> Iterator[None]:
    """Prepares the reference model for forward passes without gradients.

    For a policy with adapters, the reference is the policy with disabled adapters. An unsharded model in pinned host
    memory is copied to the device, and the copy is released when the ``with`` block ends.
    """
    if has_adapters(model):
        with adapters_off(model):
            yield
        return
    if process_group.size > 1:
        yield
        reshard(model)
        return
    if settings.reference != "cpu" or process_group.device.type == "cpu":
        yield
        return
    host = [parameter.data for parameter in model.parameters()]
    for k, parameter in enumerate(model.parameters()):
        host[k] = host[k] if host[k].is_pinned() else host[k].pin_memory()
        parameter.data = host[k].to(process_group.device, non_blocking=True)
    _move_buffers(model, process_group.device)
    try:
        yield
    finally:
        for parameter, data in zip(model.parameters(), host, strict=True):
            parameter.data = data


def reshard(model: Policy) -> None:
    """Drops the unsharded weights. After a pass without gradients, the root's embedding and output layer remain
    unsharded.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@contextmanager
def gathered(policy: Policy) -> Iterator[None]:
    """Keeps the weights unsharded during decoding, so that they are gathered only once instead of once per token."""
    modules = [module for module in policy.modules() if isinstance(module, FSDPModule)]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        with policy.compute():
            yield
    finally:
        for module in modules:
            module.reshard()
            module.set_reshard_after_forward(module is not policy, recurse=False)


def mesh_of(process_group: ProcessGroup, within: str) -> DeviceMesh:
    """Returns the device mesh of all ranks.

    Args:
        process_group: Group of all processes.
        within: Processes that share one copy of the weights (``model.shard_within``).

    Raises:
        ScapoError: If the machines have different numbers of processes.
    """
    if not dist.is_initialized():  # a single process
        dist.init_process_group(backend_of(process_group.device), store=dist.HashStore(), rank=0, world_size=1)
    kind, size, local = process_group.device.type, process_group.size, process_group.local or process_group.size
    if within == "world" or local == size:
        return init_device_mesh(kind, (size,))
    if set(process_group.gather(local)) != {local}:
        raise ScapoError('model.shard_within = "machine" needs the same number of processes on every machine')
    return init_device_mesh(kind, (size // local, local), mesh_dim_names=("machine", "shard"))


def shard(policy: Policy, dtype: torch.dtype, mesh: DeviceMesh, *, offload: bool) -> None:
    """Shards the weights over the ranks, with one unit per decoder layer and one unit for all other weights.

    The vision tower remains unsharded.

    Args:
        policy: Unsharded policy, which exists on every rank.
        dtype: Number format of the computation.
        mesh: Device mesh of all ranks; see :func:`mesh_of`.
        offload: True to keep the shards in host memory.
    """
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.promote_types(dtype, torch.float32))
    ignored = set(policy.tower)
    settings: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": precision,
        "offload_policy": CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy(),
    }
    for layer in policy.language_model.layers:
        fully_shard(layer, **settings)
    fully_shard(policy, ignored_params=ignored, **settings)
    register_fsdp_forward_method(policy, "decode")


def _from_first(objects: list[Any]) -> list[Any]:
    """Broadcasts the objects of the first rank to all ranks, and returns them."""
    dist.broadcast_object_list(objects, src=0)
    return objects


def _tensors(policy: Policy) -> dict[str, Tensor]:
    """Returns the parameters and buffers by name. Tied parameters are listed only once."""
    return {**dict(policy.named_parameters()), **dict(policy.named_buffers())}


def _same_formats(policy: Policy) -> dict[str, Tensor]:
    """Applies the number formats of the first rank's tensors to the empty tensors of other ranks, and returns all
    tensors.

    Raises:
        ScapoError: If the model of a rank differs from that of the first rank.
    """
    tensors = _tensors(policy)
    (formats,) = _from_first([{name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}])
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != {
        name: shape for name, (_, shape) in formats.items()
    }:
        raise ScapoError(
            "this rank builds another model from the same files: use the same version of transformers on every machine"
        )
    for name, tensor in tensors.items():
        if tensor.is_meta:
            tensor.data = tensor.data.to(formats[name][0])
    return {name: tensor.detach() for name, tensor in tensors.items()}


@torch.no_grad()
def _hand_out(policy: Policy, whole: dict[str, Tensor], process_group: ProcessGroup, device: torch.device) -> None:
    """Copies the first rank's values to the shards and replicated tensors of all ranks, one tensor at a time.

    Args:
        policy: Sharded policy, empty on all ranks except the first.
        whole: Unsharded tensors on the first rank; see :func:`_same_formats`.
        process_group: Group of all processes.
        device: Device of this rank's shards.
    """
    if not process_group.main:
        policy.to_empty(device=device)
    for name, tensor in _tensors(policy).items():
        like = whole.pop(name)
        given = torch.empty(like.shape, dtype=like.dtype, device=process_group.device)
        if process_group.main:
            given.copy_(like)
        if isinstance(tensor, DTensor):
            if not process_group.main:
                part = distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=0)
                tensor.to_local().copy_(part.to_local())
            else:  # the first rank already has its shard
                distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=0)
        else:
            dist.broadcast(given, src=0)
            tensor.data.copy_(given)


def check_family(config: Any) -> Family:
    """Returns the family of a supported model.

    Args:
        config: Configuration of the model.

    Raises:
        ScapoError: If the model is not supported. The message states the reason.
    """
    kind, text = config.model_type, config.get_text_config()
    other = sorted(set(getattr(text, "layer_types", None) or ()) - {"full_attention"})
    if not hasattr(config, "vision_config"):
        reason = "it has no vision tower, and pictures need one"
    elif other and (kind not in FAMILIES or FAMILIES[kind].policy is SharedPolicy):
        reason = f"its layers of {', '.join(other)} cannot have responses share a prompt: probabilities would be wrong"
    elif kind not in FAMILIES:
        reason = "its log-probabilities were not compared with those of transformers"
    else:
        return FAMILIES[kind]
    known = ", ".join(family.name for family in FAMILIES.values())
    raise ScapoError(f"models of the kind {kind} cannot be trained: {reason}; supported are {known}")
