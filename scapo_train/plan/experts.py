"""Bytes of a mixture of experts: one layer's experts are run on tensors without data, and what is alive is counted.

What they keep depends on how transformers computes them (in which number format, in how many copies of the rows), not
on which experts the tokens go to: each token is as many rows as it has experts.
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
    """Also counts what products of experts make, which PyTorch knows without data in bfloat16 only."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_grouped = function is torch.ops.aten._grouped_mm.default
        return super().__torch_dispatch__(_grouped if is_grouped else function, types, args, kwargs)


def _grouped(left: Tensor, right: Tensor, ends: Tensor, *_: Any) -> Tensor:
    if right.ndim == 3:
        return left.new_empty(left.shape[0], right.shape[2])
    return left.new_empty(ends.shape[0], left.shape[0], right.shape[1])


@lru_cache(64)
def block_peaks(path: str, tokens: int, dtype: str, *, autocast: bool, lora: Lora) -> Peaks:
    """Returns the peaks of one layer's experts, router included, beside their weights and input.

    Args:
        path: see :func:`~scapo_train.plan.shapes.model_config`.
        tokens: of the pass.
        dtype: number format of the computation.
        autocast: whether weights that are trained are float32, and are cast.
        lora: adapters.
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
    """The bytes that one GPU holds with experts in place of the MLP."""

    def _block(self, tokens: float) -> Peaks:
        model, lora = self.config.model, self.config.lora
        return block_peaks(model.path, int(tokens), model.dtype, autocast=self.autocast, lora=lora)

    def _saved(self, batch: Pass) -> float:
        kept = self._block(batch.tokens).kept - batch.tokens * self._width * self.shape.hidden  # but for its output
        # rows of experts are copies: two products do not cast an MLP's input, and frozen weights do not keep it
        spared = 1 if self.lora else 2 if self.autocast else 0
        return super()._saved(batch) + kept - batch.tokens * spared * self.value_bytes * self.shape.hidden

    def _through_mlp(self, tokens: float) -> float:
        measured = self._block(tokens)
        return measured.backward - measured.kept

    def _mlp(self, tokens: float) -> float:
        return super()._mlp(tokens) + self._block(tokens).inference

    @property
    def _width(self) -> int:
        """Bytes of a number in the residual stream."""
        return 4 if self.autocast and not self.lora else self.value_bytes
