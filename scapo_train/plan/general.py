"""Memory of the general path, measured by running decoder layers on tensors without data.

A formula for each model family would duplicate the code of transformers. Instead, a forward and a backward pass are run
through stacks of two and of three decoder layers of the real class. The tensors are fake, that is, they have shapes but
no values. The memory for more layers is extrapolated linearly. The model's own processor determines the size of a
picture (:func:`scapo_train.plan.job.picture_of`).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..config import Lora
from ..families.lora import add_adapters
from ..model import keep_inputs_only, policy_of
from .job import Pass
from .memory import Memory
from .shapes import build, model_config

LAYERS = (2, 3)
"""Numbers of decoder layers to run. The first layer keeps more than the others, so one layer is not enough."""


@dataclass(frozen=True)
class Peaks:
    """Peak memory in bytes, without weights and their gradients.

    Attributes:
        forward: Peak memory use of a forward pass that keeps the tensors for the backward pass.
        kept: Memory that is still allocated after this forward pass.
        backward: Peak during the backward pass, starting at the last hidden state.
        inference: Peak of a forward pass without gradients, excluding the weight copies that autocast creates.
    """

    forward: float
    kept: float
    backward: float
    inference: float


@lru_cache(64)
def peaks(
    path: str,
    sequences: int,
    tokens: int,
    dtype: str,
    *,
    autocast: bool,
    checkpointing: bool,
    lora: Lora,
    eager: bool = False,
) -> Peaks:
    """Returns the peak memory of the language model.

    Args:
        path: Model path; see :func:`~scapo_train.plan.shapes.model_config`.
        sequences: Number of sequences in the pass.
        tokens: Number of tokens per sequence.
        dtype: Number format of the computation.
        autocast: True if trained weights are float32 and autocast converts them.
        checkpointing: True if only the layer inputs are kept for the backward pass.
        lora: Adapter settings.
        eager: True if attention keeps all attention scores.
    """
    few, more = (
        _peaks(path, layers, sequences, tokens, dtype, autocast, checkpointing, lora, eager) for layers in LAYERS
    )
    further = model_config(path).get_text_config(decoder=True).num_hidden_layers - LAYERS[1]
    # at the worst moment of the backward pass, each additional layer adds only the memory that it keeps
    kept, forward = more.kept - few.kept, more.forward - few.forward
    copies = LAYERS[1] * (more.inference - few.inference)
    return Peaks(
        more.forward + further * forward,
        more.kept + further * kept,
        more.backward + further * kept,
        more.inference - copies,
    )


def _peaks(
    path: str,
    layers: int,
    sequences: int,
    tokens: int,
    dtype: str,
    autocast: bool,
    checkpointing: bool,
    lora: Lora,
    eager: bool,
) -> Peaks:
    config = model_config(path)
    text = config.get_text_config(decoder=True)
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    number = getattr(torch, dtype)
    given = number if lora.rank or not autocast else torch.float32
    vlm, language_model = as_trained(config, path, number, autocast, lora)
    if eager:
        vlm.set_attn_implementation("eager")
    with FakeTensorMode():
        without_data(language_model)
        if checkpointing:
            keep_inputs_only(vlm)
        known = with_gradients(language_model)
        mask: Any = torch.ones(sequences, 1, tokens, tokens, dtype=torch.bool)
        if getattr(text, "layer_types", None):
            mask = dict.fromkeys(text.layer_types, mask)
        shape = (sequences, tokens, text.hidden_size)

        def hidden() -> Tensor:
            embeds = torch.zeros(shape, dtype=given, requires_grad=not lora.rank)
            with torch.autocast("cpu", number, enabled=autocast):
                output = language_model(inputs_embeds=embeds, attention_mask=mask, use_cache=False)
            return output.last_hidden_state

        with Alive(known) as alive:
            language_model.train()
            last = hidden()
            forward, kept = alive.peak, alive.now
            alive.peak = alive.now
            last.sum().backward()
            backward = alive.peak
            del last
        with Alive(known) as alive, torch.no_grad():
            language_model.eval()
            hidden()
        return Peaks(forward, kept, backward, alive.peak)


def as_trained(config: Any, path: str, number: torch.dtype, autocast: bool, lora: Lora) -> tuple[Any, Any]:
    """Builds a model and its decoder without weights, in the number formats of a training run and with adapters if
    configured.

    Args:
        config: Configuration of transformers.
        path: Model path; see :func:`~.shapes.model_config`.
        number: Number format for the computation.
        autocast: True if trained weights are float32 and autocast converts them.
        lora: Adapter settings.

    Returns:
        The model and its decoder.
    """
    trained = torch.float32 if autocast else number
    vlm = build(config, path, dtype=number if lora.rank else trained)
    language_model = policy_of(vlm, [], 1.0).language_model
    if lora.rank:
        add_adapters(vlm, language_model, lora, 0)
        for parameter in vlm.parameters():  # sharded parameters are computed in the dtype of the computation
            parameter.data = parameter.data.to(trained if parameter.requires_grad else number)
    return vlm, language_model


def with_gradients(module: nn.Module) -> list[Tensor]:
    """Returns the tensors of a module, including newly created gradients of the trained parameters."""
    known = [*module.parameters(), *module.buffers()]
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
            known.append(parameter.grad)
    return known


def without_data(module: nn.Module) -> None:
    """Replaces meta-device tensors with fake CPU tensors of the active mode, because autocast does not support the meta
    device. Tied parameters stay tied.
    """
    made: dict[Tensor, Tensor] = {}
    for submodule in module.modules():
        for tensors in (submodule._parameters, submodule._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    if tensor not in made:
                        fake: Tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
                        if isinstance(tensor, nn.Parameter):
                            fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
                        made[tensor] = fake
                    tensors[name] = made[tensor]


class Alive(TorchDispatchMode):
    """Counter of the bytes of all tensors that operations have created and that are still alive."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tree_leave in tree_leaves(made):
            if isinstance(tree_leave, Tensor):
                storage = tree_leave.untyped_storage()
                key = storage._cdata
                if key not in self._sizes:
                    self._sizes[key] = storage.nbytes()
                    self.now += self._sizes[key]
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._gone, key)
        return made

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class GeneralMemory(Memory):
    """Memory that the general path needs on one GPU."""

    def _peaks(self, sequences: int, tokens: int, *, reference: bool = False) -> Peaks:
        model, lora = self.config.model, self.config.lora
        return peaks(
            model.path, sequences, tokens, model.dtype,
            autocast=self.autocast and not reference, checkpointing=model.gradient_checkpointing, lora=lora,
            eager=model.attention == "eager",
        )  # fmt: skip

    def _tower(self, pictures: int) -> float:
        """Returns the number of bytes that a pass through the tower needs for a copy of the pixels, the residual
        stream, the normalized stream and the MLP.
        """
        shape, b = self.shape, self.value_bytes
        width = (8 + 2 * b) * shape.tower_hidden + 2 * b * shape.tower_inner
        return pictures * (self.picture.pixels + self.picture.patches * width)

    def _at_vision(self) -> dict[str, float]:
        return {}

    def _prefill(self, prompts: int) -> float:
        return max(self._peaks(1, self.prompt_tokens).inference, self._tower(1))

    def _forward(self) -> dict[str, float]:
        kinds = []
        reference = self.config.updates_per_batch == 1 and not self.lora  # a separate model in its own dtype
        for batch in self.passes:
            stream = batch.tokens * self.value_bytes * self.shape.hidden
            tokens = batch.prompt + batch.length - 1
            inside = self._peaks(batch.responses, tokens, reference=reference).inference
            kinds.append(("activations", max(inside, self._tower(batch.responses))))
            kinds.append(("log-softmax chunk", 12 * self._chunk(batch) + 2 * stream))
        return dict([max(kinds, key=lambda kind: kind[1])])

    def _update_of(self, batch: Pass) -> dict[str, float]:
        b = self.value_bytes
        measured = self._peaks(batch.responses, batch.prompt + batch.length - 1)
        output, gradient = self._output()
        copies, waiting, reduced, last = self._copies(output, gradient)
        if not self.sharded:
            copies = reduced = 0.0  # the peaks already include autocast's copies and waiting gradients
        cast = output if self.autocast else 0.0
        chunk = self._chunk(batch)
        moments = [  # working copies, activations, chunk
            (copies, max(measured.forward, self._tower(batch.responses)), 0),
            (copies + cast, measured.kept, 12 * chunk),
            (copies + cast, measured.kept, gradient + (output if b < 4 else 0) + (4 + b) * chunk),
            (copies + reduced + waiting, measured.backward, 0),
            (last, 0, 0),
        ]
        copies, activations, chunks = max(moments, key=sum)
        return {"working copies": copies, "activations": activations, "log-softmax chunk": chunks}
