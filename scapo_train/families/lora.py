"""LoRA adapters: the model's weights are frozen, and linear layers learn an additional low-rank product.

peft inserts the adapters into the model in place, so that the class of the model, its calls and all other names remain
unchanged. If the adapters are disabled, the model equals the initial model of the training run. The KL term therefore
needs no second model.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scapo_eval.base.errors import InputError, MissingExtra

from ..config import Lora
from . import experts
from .experts import stacked_weights

_NAME = "default"
"""Name of the single adapter, which peft includes in the names of its weights."""


def linear_layers(language_model: Any) -> dict[str, nn.Linear]:
    """Returns the linear layers of a language model, keyed by their names within a decoder layer, such as
    ``self_attn.q_proj``.
    """
    return {
        name: module
        for layer in language_model.layers
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    }


def targets(lora: Lora, layers: Iterable[str]) -> list[str]:
    """Returns the names of the linear layers and expert stacks that get an adapter.

    Args:
        lora: Adapter settings.
        layers: Names of all linear layers and stacks in a decoder layer.

    Raises:
        InputError: If ``lora.targets`` names a layer that does not exist.
    """
    known = {name: name.rpartition(".")[2] for name in layers}
    if unknown := [name for name in lora.targets if name not in known.values()]:
        there = ", ".join(dict.fromkeys(known.values()))
        raise InputError(f"lora.targets: unknown {', '.join(unknown)}; the model has {there}")
    return [name for name, last in known.items() if not lora.targets or last in lora.targets]


def add_adapters(vlm: Any, language_model: Any, lora: Lora, seed: int) -> None:
    """Freezes the model and adds adapters with an initial output of zero to its linear layers. The adapters are float32
    or wider.

    Args:
        vlm: Model whose weights have the dtype of the computation.
        language_model: Part of the model that receives the adapters.
        lora: Adapter settings.
        seed: Seed for the initial values, which must be the same on all ranks.

    Raises:
        InputError: If :func:`targets` rejects the settings, or if dropout is set and experts have adapters.
        MissingExtra: If peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise MissingExtra("lora", "lora.rank") from None
    (place,) = (name for name, module in vlm.named_modules() if module is language_model.layers)
    stacks = stacked_weights(language_model)
    chosen = targets(lora, [*linear_layers(language_model), *stacks])
    of_experts = [name for name in chosen if name in stacks]
    if of_experts and lora.dropout:
        last = ", ".join(name.rpartition(".")[2] for name in of_experts)
        reason = f"adapters of experts ({last}) do not support dropout: set it to 0, or change lora.targets"
        raise InputError(f"lora.dropout: {reason}")
    names = "|".join(re.escape(name) for name in chosen if name not in stacks)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=rf"{re.escape(place)}\.\d+\.({names})" if names else [],
        target_parameters=of_experts or None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, vlm, _NAME)
    for name, module in _adapted(vlm).items():
        module.cast_input_dtype_enabled = False  # autocast converts the inputs
        if experts.is_outermost(name, module):
            module.forward = partial(experts.forward, module)
        elif not (lora.dropout or experts.is_stack(module)):
            module.forward = partial(_forward, module)
    for parameter in vlm.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))


def _forward(layer: Any, inputs: Tensor) -> Tensor:
    """Returns the same output as the forward pass of peft's layer, but needs fewer passes over the outputs."""
    base = layer.base_layer
    if layer._disable_adapters:
        return base(inputs)
    kind = inputs.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else inputs.dtype
    down, up = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
    outputs: Tensor = _Adapted.apply(
        inputs.to(dtype).flatten(0, -2), base.weight, base.bias, down.to(dtype), up.to(dtype), layer.scaling[_NAME]
    )
    return outputs.unflatten(0, inputs.shape[:-1])


class _Adapted(torch.autograd.Function):
    """Frozen linear layer with an adapter, whose low-rank products are added in place to the outputs of the layer."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: float
    ) -> Tensor:
        thin = (inputs @ down.T).mul_(scale)
        outputs = nn.functional.linear(inputs, weight, bias).addmm_(thin, up.T)
        ctx.save_for_backward(inputs, weight, down, up, thin)
        ctx.scale = scale
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, down, up, thin = ctx.saved_tensors
        to_thin = (gradient @ up).mul_(ctx.scale)
        to_inputs = (gradient @ weight).addmm_(to_thin, down) if ctx.needs_input_grad[0] else None
        return to_inputs, None, None, to_thin.T @ inputs, gradient.T @ thin, None


def has_adapters(model: nn.Module) -> bool:
    """Returns True if a model or a part of a model has adapters from :func:`add_adapters`."""
    return bool(_adapted(model))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Disables the adapters of a model in a ``with`` block, for forward passes without gradients."""
    adapted = _adapted(model).values()
    for module in adapted:
        # peft's enable_adapters(False) also clears requires_grad, which FSDP reads when it first gathers
        module._disable_adapters = True
    try:
        yield
    finally:
        for module in adapted:
            module._disable_adapters = False


def adapted_layers(model: nn.Module) -> list[str]:
    """Returns the last parts of the names of the linear layers that have adapters, such as ``q_proj``."""
    return sorted({name.rpartition(".")[2] for name in _adapted(model)})


@contextmanager
def trial_adapters(model: nn.Module) -> Iterator[None]:
    """Gives the adapters trial values in a ``with`` block, because the output of new adapters is zero.

    The trial values change the outputs of a layer by about 4 % of the magnitude of its inputs. They are the same on all
    ranks that have the same shard.
    """
    kept: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        for layer in _adapted(model).values():
            up = layer.lora_B[_NAME].weight
            own = up.to_local() if isinstance(up, DTensor) else up
            kept.append((own, own.clone()))
            waves = torch.arange(own.numel(), device=own.device, dtype=own.dtype).sin_()
            own.copy_(waves.view_as(own) * (0.1 * layer.r[_NAME] ** 0.5 / layer.lora_alpha[_NAME]))
    try:
        yield
    finally:
        with torch.no_grad():
            for own, values in kept:
                own.copy_(values)


@contextmanager
def unwrapped(model: nn.Module) -> Iterator[None]:
    """Removes peft's modules around stacks of experts within a ``with`` block, so that code can find the stacks by
    name.
    """
    around = {name: module for name, module in _adapted(model).items() if experts.is_outermost(name, module)}
    for name, module in around.items():
        model.set_submodule(name, module.get_base_layer())
    try:
        yield
    finally:
        for name, module in around.items():
            model.set_submodule(name, module)


def merged_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yields all parameters with the names and the layout of the files on the hub. Adapters are merged into the
    weights.

    Each parameter is gathered from its shards. All ranks must call this function.
    """
    with_layout = partial(experts.hub_layout, model)
    adapted = {_in_checkpoint(name, layer): layer for name, layer in _adapted(model).items()}
    for name, plain, parameter in _without_adapters(model):
        if plain in adapted:
            weight = _whole(parameter.detach()).to(torch.promote_types(parameter.dtype, torch.float32))
            yield plain, with_layout(name, (weight + _product(adapted[plain])).to(dtype))
        else:  # convert before gathering: half the traffic
            yield plain, with_layout(name, _whole(parameter.detach().to(dtype)))


def merged_shapes(model: nn.Module) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the names and shapes of :func:`merged_weights` in the same order, without gathering shards."""
    for name, plain, parameter in _without_adapters(model):
        weight = torch.empty(parameter.shape, device="meta")
        yield plain, tuple(experts.hub_layout(model, name, weight).shape)


def _without_adapters(model: nn.Module) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Yields the name of each parameter outside of the adapters, its name in the files on the hub, and the
    parameter.
    """
    for name, parameter in model.named_parameters():
        if not _of_adapter(name):
            yield name, name.replace(".base_layer", ""), parameter


def adapter_weights(model: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Returns the unsharded adapter weights in host memory, by their names in peft's files. All ranks must call this
    function.
    """
    return {
        f"base_model.model.{name.replace(f'.{_NAME}.', '.')}": _whole(parameter.detach()).to("cpu", dtype).contiguous()
        for name, parameter in model.named_parameters()
        if _of_adapter(name)
    }


def save_adapter(weights: dict[str, Tensor], vlm: Any, base: str, revision: str, folder: Path) -> None:
    """Writes peft's files: the weights from :func:`adapter_weights`, and ``adapter_config.json``, which describes them
    and names their base model.
    """
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    config = copy.copy(vlm.peft_config[_NAME])
    config.base_model_name_or_path, config.revision, config.inference_mode = base, revision or None, True
    config.save_pretrained(str(folder))


def _adapted(model: nn.Module) -> dict[str, Any]:
    """Returns the layers that have adapters, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def _in_checkpoint(name: str, layer: Any) -> str:
    """Returns the checkpoint name of the weight that a layer's adapter modifies."""
    return f"{name.replace('.base_layer', '')}.{getattr(layer, 'parameter_name', 'weight')}"


def _of_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def _product(layer: Any) -> Tensor:
    """Returns the product that an adapter adds to the weight of its layer, or to the weights of all experts."""
    if experts.is_stack(layer):
        down, up = experts.factors(layer, _whole)
        return (experts.scale_of(layer) * (up @ down)).detach()
    return layer.scaling[_NAME] * (_whole(layer.lora_B[_NAME].weight) @ _whole(layer.lora_A[_NAME].weight)).detach()


def _whole(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    return tensor.to(tensor.device_mesh.device_type).full_tensor()  # shards in host memory are gathered by the GPUs
