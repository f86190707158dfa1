"""Packing of prompts and responses into one sequence, in which the responses of a group share their prompt.

The tokens of a forward pass are ``[prompt | prompt | ... | response | response | ...]`` without padding. The tokens of
a prompt attend to the prompt, and the tokens of a response attend to its prompt and to the response. A prompt with
eight responses is therefore processed only once. The results equal those of eight separate sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask


@dataclass(frozen=True)
class Vision:
    """Features of one image from the vision tower.

    Attributes:
        embeds: (n, hidden) features that replace the n image tokens.
        deepstack: Additional features for the first decoder layers, as one (n, hidden) tensor per layer. Only Qwen3-VL
            has deepstack features.
    """

    embeds: Tensor
    deepstack: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class PackedRow:
    """One prompt and some of its responses.

    Attributes:
        prompt: (P,) token ids of the prompt.
        positions: (3, P) rotary positions of the prompt.
        following: First position after the prompt.
        vision: Features of the image, or None if the prompt has no images or the rank has no responses.
        responses: Token ids of each response. At least one response is required.
    """

    prompt: Tensor
    positions: Tensor
    following: int
    vision: Vision | None
    responses: Sequence[Sequence[int]]

    @property
    def length(self) -> int:
        """Number of tokens in the forward pass. The last token of each response is omitted because its prediction is
        not needed.
        """
        return len(self.prompt) + sum(len(response) - 1 for response in self.responses)


@dataclass(frozen=True)
class Layout:
    """Arrangement of the tokens in a batch for attention. The batch has B prompts of up to P tokens and N responses of
    up to R tokens.

    Attributes:
        prompts: (B, P) array with the index of each prompt token among the T tokens of the batch, padded with arbitrary
            indices.
        responses: (N, R) array with the index of each response token among the T tokens, padded with arbitrary indices.
        owners: (N,) index of the row in ``prompts`` that contains each response's prompt.
        mask: (N, 1, R, P + R) Boolean mask, which is True where a response token attends to a token of its prompt or
            response.
        back: (T,) index of each token of the batch in the concatenation of the flattened arrays ``prompts`` and
            ``responses``.
    """

    prompts: Tensor
    responses: Tensor
    owners: Tensor
    mask: Tensor
    back: Tensor


@dataclass(frozen=True)
class PackedBatch:
    """Tensors of a batch with T tokens, in which the tokens of all prompts precede the tokens of all responses.

    Attributes:
        ids: (1, T) token ids.
        positions: (3, 1, T) rotary positions.
        layout: Arrangement of prompts and responses for attention.
        vision: Image features, in the order of the rows.
        sources: (M,) indices of the hidden states that predict the M response tokens.
        targets: (M,) ids of the response tokens, response by response.
    """

    ids: Tensor
    positions: Tensor
    layout: Layout
    vision: Sequence[Vision]
    sources: Tensor
    targets: Tensor

    @property
    def tokens(self) -> int:
        """Number of tokens in the forward pass."""
        return self.ids.numel()


def batch_of(rows: Sequence[PackedRow], device: torch.device) -> PackedBatch:
    """Converts rows to tensors."""
    responses = [response for row in rows for response in row.responses]
    sizes = torch.tensor([len(row.prompt) for row in rows])
    inner = torch.tensor([len(response) - 1 for response in responses])
    owners = torch.repeat_interleave(torch.tensor([len(row.responses) for row in rows]))
    prompt_width, width = int(sizes.max()), max(1, int(inner.max()))  # 0 if every response consists only of its end
    of_prompt = torch.arange(prompt_width) < sizes[:, None]
    of_response = torch.arange(width) < inner[:, None]
    real = torch.cat([of_prompt.flatten(), of_response.flatten()])
    places = (real.cumsum(0) - 1).clamp(min=0)
    places_of_prompts, places_of_responses = places.split([of_prompt.numel(), of_response.numel()])
    prompts, answers = places_of_prompts.view(-1, prompt_width), places_of_responses.view(-1, width)

    following = torch.tensor([row.following for row in rows])[owners, None] + torch.arange(width)
    # the last token of the prompt predicts the first token of every response, and each response token predicts the next
    # one
    sources = torch.cat([(sizes.cumsum(0) - 1)[owners, None], answers], 1)
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    mask = torch.cat([of_prompt[owners, None].expand(-1, width, -1), causal.expand(len(responses), -1, -1)], 2)
    inputs = torch.tensor([token for response in responses for token in response[:-1]], dtype=torch.long)
    return PackedBatch(
        ids=torch.cat([*(row.prompt for row in rows), inputs])[None].to(device),
        positions=torch.cat([*(row.positions for row in rows), following[of_response].expand(3, -1)], 1)[:, None].to(
            device
        ),
        layout=Layout(
            *(tensor.to(device) for tensor in (prompts, answers, owners, mask[:, None], real.nonzero()[:, 0]))
        ),
        vision=[row.vision for row in rows if row.vision is not None],
        sources=sources[torch.arange(width + 1) <= inner[:, None]].to(device),
        targets=torch.tensor([token for response in responses for token in response], device=device),
    )


def shared_prompt_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout | None = None,
    **settings: Any,
) -> tuple[Tensor, Any]:
    """Computes the attention of a :class:`PackedBatch` or, if there is no layout, the attention during decoding.

    The tokens of a prompt attend to the prompt, and the tokens of a response attend to its prompt and to the response.
    One kernel call processes all prompts, and a second call processes all responses. No attention is computed between
    different responses.

    Args:
        module: Attention module of the decoder layer.
        query: Queries of shape (1, heads, T, dim).
        key: Keys of shape (1, key heads, T, dim).
        value: Values of shape (1, key heads, T, dim).
        attention_mask: Attention mask from transformers, which is used only without a layout.
        layout: Arrangement of the batch's tokens, or None while responses are decoded.
        settings: Further arguments, of which only ``scaling`` is used.

    Returns:
        (1, T, heads, dim) output of the attention, and None instead of the attention weights.
    """
    if layout is None and query.shape[2] == 1:
        # heads that share keys and values act as the positions of one head, so that the cache is not copied per head
        grouped = query.reshape(len(query), key.shape[1], -1, query.shape[-1])
        output = nn.functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=attention_mask, scale=settings["scaling"]
        )
        return output.flatten(1, 2)[:, None], None
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    tokens = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]

    def at(places: Tensor) -> list[Tensor]:
        """Returns the queries, keys and values of the tokens at the given positions, each of shape (rows, heads,
        tokens, dim).
        """
        return [token.index_select(0, places.flatten()).unflatten(0, places.shape).transpose(1, 2) for token in tokens]

    scale = settings["scaling"]
    query, key, value = at(layout.prompts)
    outputs = [_attend(query, key, value, None, scale)]
    if layout.responses.shape[1]:
        of_responses = at(layout.responses)
        key = torch.cat([key.index_select(0, layout.owners), of_responses[1]], 2)
        value = torch.cat([value.index_select(0, layout.owners), of_responses[2]], 2)
        outputs.append(_attend(of_responses[0], key, value, layout.mask, scale))
    together = torch.cat([output.transpose(1, 2).flatten(0, 1) for output in outputs])
    return together.index_select(0, layout.back)[None], None


def takes_groups(query: Tensor) -> bool:
    """Returns True if the fast masked kernel supports groups of heads that share keys and values, which is the case
    only on a CPU.
    """
    return not query.is_cuda


def takes_fused_norms(hidden: Tensor) -> bool:
    """Returns True if PyTorch has a fused kernel for RMS norms, which is the case only on a GPU."""
    return hidden.is_cuda


def fuse_norms(module: nn.Module) -> None:
    """Makes a model compute its RMS norms in one kernel if PyTorch provides such a kernel, and otherwise with the
    model's own code.

    On an H100, this shortens an update of Qwen2.5-VL-3B by 7 %.
    """
    for norm in module.modules():
        if type(norm).__name__.endswith("RMSNorm") and hasattr(norm, "variance_epsilon"):
            norm.forward = partial(_rms_norm, norm)


def _rms_norm(norm: Any, hidden: Tensor) -> Tensor:
    if takes_fused_norms(hidden) and hidden.dtype == norm.weight.dtype:
        return nn.functional.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)
    usual: Tensor = type(norm).forward(norm, hidden)
    return usual


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Returns the output of softmax attention, which is causal if no mask is given."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and mask is not None and not takes_groups(query):
        key, value, groups = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), 1
    # on a GPU, enable_gqa together with a mask selects the kernel that keeps all attention weights in float32
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=groups > 1
    )


def window_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    **settings: Any,
) -> tuple[Tensor, Any]:
    """Computes the attention of a vision tower, in which a patch attends to the patches of its window or picture.

    One kernel call computes all windows of the same length. The attention in transformers requires one call per window,
    and each layer has thousands of windows in a step.

    Args:
        module: Attention module of the tower's layer.
        query: Queries of shape (1, heads, T, dim).
        key: Keys of shape (1, heads, T, dim).
        value: Values of shape (1, heads, T, dim).
        attention_mask: Not used.
        cu_seq_lens_q: (windows + 1,) array with the index of the first patch of each window, followed by T. The value
            is None if there is only one window.
        settings: Further arguments, of which only ``scaling`` is used.

    Returns:
        (1, T, heads, dim) output of the attention, and None instead of the attention weights.
    """
    if cu_seq_lens_q is None:
        cu_seq_lens_q = torch.tensor([0, query.shape[2]])
    starts = cu_seq_lens_q[:-1].cpu()
    lengths = cu_seq_lens_q[1:].cpu() - starts
    outputs, places = [], []
    for length in lengths.unique():
        index = (starts[lengths == length, None] + torch.arange(int(length))).to(query.device)
        windows = [
            tensor[0].index_select(1, index.flatten()).unflatten(1, index.shape).transpose(0, 1)
            for tensor in (query, key, value)
        ]
        output = nn.functional.scaled_dot_product_attention(*windows, scale=settings["scaling"])
        outputs.append(output.transpose(1, 2).flatten(0, 1))
        places.append(index.flatten())
    return torch.cat(outputs).index_select(0, torch.cat(places).argsort())[None], None


ATTENTION = "scapo_train"
"""Name under which the attention of the decoder is registered in transformers."""

WINDOWS = "scapo_train_flash"
"""Name of the attention of vision towers. transformers passes the limits of the windows only to names with "flash"."""

AttentionInterface.register(ATTENTION, shared_prompt_attention)
AttentionInterface.register(WINDOWS, window_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
