"""Adapters for mixture-of-experts models in which one tensor (a stack) contains the weights of all experts in a layer.

peft inserts the adapters for stacks (``target_parameters``) and defines their names and shapes. In its forward pass,
peft adds the adapters to the weights of all experts and thereby copies the whole stack. The forward pass in this module
avoids the copy: for each token, it adds the adapters' low-rank products only to the outputs of the experts chosen for
the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

GROUPED = getattr(nn.functional, "grouped_mm", None)
"""PyTorch's kernel for products of grouped rows with one matrix per group (PyTorch 2.10 or later)."""


def stacked_weights(language_model: Any) -> dict[str, tuple[int, int, int]]:
    """Returns the sizes of a language model's stacks, keyed by their names in a decoder layer, such as
    ``mlp.experts.down_proj``.

    Stacks are the layout in which transformers 5 stores expert weights. Transformers 4 uses a different layout, for
    which adapters are not supported.

    Returns:
        Mapping from the name of each stack to ``(number of experts, number of inputs, number of outputs)``.
    """
    return {
        f"{name}.{stack}": (weight.shape[0], weight.shape[2], weight.shape[1])
        for layer in language_model.layers
        for name, module in layer.named_modules()
        if _holds_stacks(module)
        for stack, weight in module.named_parameters(recurse=False)
    }


def has_stacks(model: nn.Module) -> bool:
    """Returns True if a part of the model stores experts as stacks, as in transformers 5."""
    return any(map(_holds_stacks, model.modules()))


def hub_layout(model: nn.Module, name: str, weight: Tensor) -> Tensor:
    """Returns a weight in the layout of the files on the Hugging Face hub, which vLLM reads.

    On the hub, a stack has the layout (experts, inputs, outputs). transformers 5 keeps stacks in memory as (experts,
    outputs, inputs) and saves them in the same layout.

    Args:
        model: Model that contains the weight.
        name: Name of the weight in the model.
        weight: Unsharded value of the weight.
    """
    owner = name.rpartition(".")[0]
    return weight.mT.contiguous() if weight.ndim == 3 and _holds_stacks(model.get_submodule(owner)) else weight


def _holds_stacks(module: nn.Module) -> bool:
    return hasattr(module, "_apply_gate")


def is_stack(module: nn.Module) -> bool:
    """Returns True if a module is peft's adapter module around a stack."""
    return hasattr(module, "parameter_name")


def is_outermost(name: str, module: nn.Module) -> bool:
    """Returns True if a module is the outermost of peft's nested modules around the stacks of a layer."""
    return is_stack(module) and not name.endswith(".base_layer")


def forward(outermost: Any, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """Returns the sum of the outputs of a layer's experts, including their adapters.

    Args:
        outermost: Outermost of peft's nested modules around the experts (one module per adapted stack).
        hidden: (T, hidden) hidden states of the tokens.
        chosen: (T, k) indices of the experts for each token.
        shares: (T, k) weights of the experts for each token.

    Returns:
        (T, hidden) output with the dtype of ``hidden``.
    """
    experts = outermost.get_base_layer()
    if outermost._disable_adapters:
        output: Tensor = experts(hidden, chosen, shares)
        return output
    layers = {layer.parameter_name: layer for layer in _around(outermost)}
    numbers, order = chosen.flatten().sort()
    every = torch.arange(experts.num_experts, device=numbers.device)
    ends = torch.searchsorted(numbers, every, right=True).int()

    def product(name: str, inputs: Tensor) -> Tensor:
        weight = getattr(experts, name)
        if name not in layers:
            return _rows(inputs, weight.mT, ends)
        down, up = (factor.to(weight.dtype) for factor in factors(layers[name]))
        short = -down.shape[1] % (16 // weight.element_size())  # the kernel requires multiples of 16 bytes
        if short:
            down, up = nn.functional.pad(down, (0, 0, 0, short)), nn.functional.pad(up, (0, short))
        made: Tensor = _Adapted.apply(inputs, weight, down, up, scale_of(layers[name]), ends)
        return made

    inputs = hidden[order // chosen.shape[1]].to(experts.gate_up_proj.dtype)
    made = product("down_proj", experts._apply_gate(product("gate_up_proj", inputs)))
    made = made * shares.flatten()[order, None]
    return made[order.argsort()].view(*chosen.shape, -1).sum(1).to(hidden.dtype)


def factors(layer: Any, whole: Callable[[Tensor], Tensor] = lambda weight: weight) -> tuple[Tensor, Tensor]:
    """Returns the two low-rank matrices of each expert's adapter, as tensors of shape (experts, rank, inputs) and
    (experts, outputs, rank).

    Args:
        layer: peft module that wraps a stack.
        whole: Function that gathers a sharded weight.
    """
    lora_a, lora_b = (whole(linear.weight) for part in (layer.lora_A, layer.lora_B) for linear in part.values())
    number = layer.num_experts
    lora_a, lora_b = lora_a.view(number, -1, lora_a.shape[1]), lora_b.view(lora_b.shape[0], -1, number).permute(2, 0, 1)
    # older releases of peft swap the inputs and outputs of a stack
    return (lora_a, lora_b) if getattr(layer, "_did_swap_in_out_features", False) else (lora_b.mT, lora_a.mT)


def scale_of(layer: Any) -> float:
    """Returns the scaling factor of a layer's adapter."""
    (scale,) = layer.scaling.values()
    return float(scale)


def _around(layer: Any) -> Iterator[Any]:
    while is_stack(layer):
        yield layer
        layer = layer.base_layer


class _Adapted(torch.autograd.Function):
    """Autograd function that applies frozen expert layers, with one adapter per expert, to rows that are sorted by
    expert.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, down: Tensor, up: Tensor, scale: float, ends: Tensor
    ) -> Tensor:
        thin = _rows(inputs, down.contiguous().mT, ends).mul_(scale)
        outputs = _rows(inputs, weight.mT, ends).add_(_rows(thin, up.contiguous().mT, ends))
        ctx.save_for_backward(inputs, weight, down, up, thin, ends)
        ctx.scale = scale
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, down, up, thin, ends = ctx.saved_tensors
        gradient = gradient.contiguous()
        to_thin = _rows(gradient, up.contiguous(), ends).mul_(ctx.scale)
        to_inputs = (
            _rows(gradient, weight, ends).add_(_rows(to_thin, down.contiguous(), ends))
            if ctx.needs_input_grad[0]
            else None
        )
        return to_inputs, None, _sums(to_thin, inputs, ends), _sums(gradient, thin, ends), None, None


def _rows(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Multiplies (S, m) rows, which form E consecutive groups, by the (E, m, n) matrices of their groups. Returns the
    products, with shape (S, n).
    """
    if GROUPED is not None and rows.dtype != torch.float64:  # not supported by the kernel
        return GROUPED(rows, matrices, offs=ends)
    groups = rows.tensor_split(ends[:-1].long().cpu())
    return torch.cat([group @ matrix for group, matrix in zip(groups, matrices, strict=True)])


def _sums(left: Tensor, right: Tensor, ends: Tensor) -> Tensor:
    """Returns the (E, m, n) sums of the outer products of (S, m) and (S, n) rows in each of E groups."""
    if GROUPED is not None and left.dtype != torch.float64:
        return GROUPED(left.T, right, offs=ends)
    parts = ends[:-1].long().cpu()
    pairs = zip(left.tensor_split(parts), right.tensor_split(parts), strict=True)
    return torch.stack([first.T @ second for first, second in pairs])
