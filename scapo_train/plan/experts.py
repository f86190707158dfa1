"""Memory use of a mixture of experts, measured by running the experts of one layer on tensors without data.

The memory use depends on the implementation in transformers (the number format and the number of copies of each row).
The memory use does not depend on which experts are chosen, because every token contributes the same number of rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ..config import Lora
from .general import Alive, Peaks, as_trained, with_gradients, without_data
from .job import Pass
from .memory import Memory
from .shapes import model_config


class _Alive(Alive):
    """Counter that also supports the grouped matrix products of experts. For tensors without data, PyTorch computes
    products of experts only in bfloat16.
    """

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_grouped = function is torch.ops.aten._grouped_mm.default
        return super().__torch_dispatch__(grouped_product if is_grouped else function, types, args, kwargs)


def grouped_product(left: Tensor, right: Tensor, ends: Tensor, *_: Any) -> Tensor:
    """Returns a tensor that has the shape of the grouped matrix product of the experts.

    For tensors without data, PyTorch determines this shape only in bfloat16.
    """
    if right.ndim == 3:
        return left.new_empty(left.shape[0], right.shape[2])
    return left.new_empty(ends.shape[0], left.shape[0], right.shape[1])


@lru_cache(64)
def block_peaks(path: str, tokens: int, dtype: str, *, autocast: bool, lora: Lora) -> Peaks:
    """Returns the peak memory of the experts and the router of one layer, without their weights and input.

    Args:
        path: Model path; see :func:`~scapo_train.plan.shapes.model_config`.
        tokens: Number of tokens in the pass.
        dtype: Number format of the computation.
        autocast: True if trained weights are float32 and autocast converts them.
        lora: Adapter settings.
    """
    config = model_config(path)
    text = config.get_text_config(decoder=True)
    text.num_hidden_layers = 1
    number = getattr(torch, dtype)
    _, language_model = as_trained(config, path, number, autocast, lora)
    block = language_model.layers[0].mlp
    with FakeTensorMode():
        without_data(block)
        given = number if lora.rank or not autocast else torch.float32
        inputs = torch.zeros(1, tokens, text.hidden_size, dtype=given, requires_grad=True)
        known = [*with_gradients(block), inputs]

        def run() -> Any:
            with torch.autocast("cpu", number, enabled=autocast):
                return block(inputs)

        with _Alive(known) as alive:
            made = run()
            forward, kept = alive.peak, alive.now
            alive.peak = alive.now
            made.backward(torch.zeros_like(made))
            backward = alive.peak
            del made
        with _Alive(known) as alive, torch.no_grad():
            run()
        return Peaks(forward, kept, backward, alive.peak)


class ExpertsMemory(Memory):
    """Memory required on one GPU for a model with experts in place of the MLP."""

    def _block(self, tokens: float) -> Peaks:
        model, lora = self.config.model, self.config.lora
        return block_peaks(model.path, int(tokens), model.dtype, autocast=self.autocast, lora=lora)

    def _saved(self, batch: Pass) -> float:
        kept = self._block(batch.tokens).kept - batch.tokens * self._width * self.shape.hidden  # without the output
        # rows of experts are copies: two products do not cast the input as in an MLP, and frozen weights do not keep it
        spared = 1 if self.lora else 2 if self.autocast else 0
        return super()._saved(batch) + kept - batch.tokens * spared * self.value_bytes * self.shape.hidden

    def _through_mlp(self, tokens: float) -> float:
        measured = self._block(tokens)
        return measured.backward - measured.kept

    def _mlp(self, tokens: float) -> float:
        return super()._mlp(tokens) + self._block(tokens).inference

    @property
    def _width(self) -> int:
        """Number of bytes per value in the residual stream."""
        return 4 if self.autocast and not self.lora else self.value_bytes
