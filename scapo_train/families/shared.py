"""Model families with shared prompts, for which each picture is encoded once and each prompt is processed once for its
group.

In transformers, the models must have ``.model.visual``, ``.model.language_model``, ``.model.get_rope_index`` and
``.lm_head``, and full attention in all layers. :mod:`scapo_train.families.packing` defines the arrangement of tokens in
a forward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Prompt
from ..logprob import TokenStatistics
from .packing import ATTENTION, WINDOWS, PackedBatch, PackedRow, Vision, batch_of, fuse_norms
from .policy import EncodedPrompt, Policy

_BLOCK = 64
"""Number of tokens by which the cache grows."""


@dataclass(frozen=True)
class SharedPrompt(EncodedPrompt):
    """Prompt with its image features, encoded for the model.

    Attributes:
        prompt: Prompt with its token ids and pixels.
        positions: (3, P) rotary positions of the tokens.
        following: First position after the prompt.
        vision: Features of the images, or None for a prompt without images.
    """

    positions: Tensor
    following: int
    vision: Vision | None

    def row(self, responses: Sequence[Sequence[int]]) -> PackedRow:
        """Returns a row with the prompt and the given responses, for a forward pass."""
        return PackedRow(self.prompt.ids, self.positions, self.following, self.vision, responses)


class SharedPolicy(Policy):
    """Policy for the model families of Qwen; see :class:`~scapo_train.families.policy.Policy`."""

    packs = True

    def __init__(self, vlm: Any, ends: Sequence[int], temperature: float, language: str = "language_model") -> None:
        super().__init__(vlm, ends, temperature, language)
        self.image_token = int(vlm.config.image_token_id)
        self.language_model.set_attn_implementation(ATTENTION)
        vlm.model.visual.config._attn_implementation = WINDOWS
        fuse_norms(vlm)

    def drop_tower(self) -> None:
        """Removes the vision tower, which is not needed because the rows of a batch contain the features of their
        pictures.
        """
        self.vlm.model.visual = None

    def prepare(self, prompts: Sequence[Prompt], device: torch.device) -> list[EncodedPrompt]:
        """Encodes prompts. The vision tower processes the pictures of all prompts in one pass."""
        grids = [prompt.inputs.get("image_grid_thw", torch.zeros(0, 3, dtype=torch.long)) for prompt in prompts]
        visions: list[Vision] = []
        if any(map(len, grids)):
            pixels = torch.cat([prompt.inputs["pixel_values"] for prompt in prompts if "pixel_values" in prompt.inputs])
            visions = self.encode(pixels.to(device), torch.cat(grids).to(device))
        encoded: list[EncodedPrompt] = []
        for prompt, grid in zip(prompts, grids, strict=True):
            pictures, visions = visions[: len(grid)], visions[len(grid) :]
            encoded.append(SharedPrompt(prompt, *self.prompt_positions(prompt.ids, grid), _together(pictures)))
        return encoded

    def batch(self, rows: Sequence[PackedRow], device: torch.device) -> PackedBatch:
        """Converts rows to tensors."""
        return batch_of(rows, device)

    def idle_batch(self, device: torch.device) -> PackedBatch:
        """Returns a batch with a prompt and a response of one token each."""
        end = self.ends[:1]
        return batch_of([PackedRow(torch.tensor(end), torch.zeros(3, 1, dtype=torch.long), 1, None, [end])], device)

    def forward(self, batch: PackedBatch) -> TokenStatistics:
        """Returns the statistics of the batch's response tokens."""
        with self.compute():
            mask, layout = batch.layout.mask, batch.layout
            hidden = self._hidden(batch.ids, batch.positions, mask, batch.vision, None, layout=layout)[0]
        return self.statistics(hidden.index_select(0, batch.sources), batch.targets)

    def decode(self, ids: Tensor, positions: Tensor, mask: Tensor, vision: Sequence[Vision], cache: Any) -> Tensor:
        """Returns the (B, V) logits of the tokens that follow the (B, T) ``ids``, and extends ``cache``.

        The logits are float32 or wider.
        """
        return self.logits(self._hidden(ids, positions, mask, vision, cache))

    def decoding(self, prompts: Sequence[SharedPrompt], group: int, longest: int, device: torch.device) -> Any:
        """Starts the decoding of responses to all prompts."""
        return _Decoding(self, prompts, group, longest, device)

    @torch.no_grad()
    def encode(self, pixels: Tensor, grids: Tensor) -> list[Vision]:
        """Returns the features of several pictures.

        Args:
            pixels: (total number of patches, dim) pixels of the patches, in the layout of Qwen's processor.
            grids: (pictures, 3) array with the numbers of patches of each picture along time, height and width.
        """
        with self.compute():
            features = self.vlm.model.get_image_features(pixels, grids)
        sizes = (grids.prod(-1) // self.vlm.config.vision_config.spatial_merge_size**2).tolist()
        if hasattr(features, "pooler_output"):  # transformers 5
            embeds, deep = features.pooler_output, getattr(features, "deepstack_features", None) or ()
        elif len(features) == 2 and isinstance(features[1], (list, tuple)):  # transformers 4, Qwen3-VL
            embeds, deep = features
        else:
            embeds, deep = features, ()
        layers = [layer.split(sizes) if isinstance(layer, Tensor) else layer for layer in deep]
        return [Vision(embed, tuple(layer[k] for layer in layers)) for k, embed in enumerate(embeds)]

    def prompt_positions(self, ids: Tensor, grids: Tensor) -> tuple[Tensor, int]:
        """Returns the (3, P) array of the rotary positions of a prompt, and the position that follows the prompt.
        ``grids`` contains the numbers of patches in the pictures as an (n, 3) array.
        """
        if not len(grids):
            return torch.arange(len(ids)).expand(3, -1), len(ids)
        index = self.vlm.model.get_rope_index
        extra: dict[str, Any] = {}
        if "mm_token_type_ids" in inspect.signature(index).parameters:
            # transformers 5: without this argument, positions would silently be those of text without images
            extra["mm_token_type_ids"] = (ids == self.image_token).int()[None]
        positions, delta = index(ids[None], image_grid_thw=grids, **extra)
        return positions[:, 0], len(ids) + int(delta)

    def _hidden(
        self, ids: Tensor, positions: Tensor, mask: Tensor, vision: Sequence[Vision], cache: Any, **extra: Any
    ) -> Tensor:
        embeds = self.vlm.get_input_embeddings()(ids)
        if vision:
            places = ids == self.image_token
            features = torch.cat([picture.embeds for picture in vision]).to(embeds.dtype)
            embeds = embeds.masked_scatter(places[..., None], features)
            if vision[0].deepstack:
                deep = zip(*(picture.deepstack for picture in vision), strict=True)
                extra |= {"visual_pos_masks": places, "deepstack_visual_embeds": [torch.cat(layer) for layer in deep]}
        # by position: the cache's name differs between releases of transformers
        output = self.vlm.model.language_model(
            None, mask, positions, cache, embeds, use_cache=cache is not None, **extra
        )
        return output.last_hidden_state


class _Decoding:
    """Implementation of :class:`~scapo_train.families.policy.Decoding` with left-padded prompts, which the responses of
    a group share.
    """

    def __init__(
        self, policy: SharedPolicy, prompts: Sequence[SharedPrompt], group: int, longest: int, device: torch.device
    ) -> None:
        self._policy, self._prompts, self._group, self._device = policy, prompts, group, device
        self._width = max(len(encoded.prompt.ids) for encoded in prompts)
        self._written = torch.zeros(len(prompts), self._width + longest, dtype=torch.bool)
        self._following = torch.tensor([encoded.following for encoded in prompts], device=device)
        self._cache = _Cache(group)
        self._count = 0

    def start(self) -> Tensor:
        width, device = self._width, self._device
        ids = torch.zeros(len(self._prompts), width, dtype=torch.long)
        positions = torch.zeros(3, len(self._prompts), width, dtype=torch.long)
        for k, encoded in enumerate(self._prompts):  # align the ends of the prompts
            pad = width - len(encoded.prompt.ids)
            ids[k, pad:], positions[:, k, pad:] = encoded.prompt.ids, encoded.positions
            self._written[k, pad:] = True
        written = self._written.to(device)
        causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        # a padded position attends to itself, because a softmax row without any key would be NaN
        mask = (written[:, None, None, :width] & causal) | torch.eye(width, dtype=torch.bool, device=device)
        vision = [encoded.vision for encoded in self._prompts if encoded.vision is not None]
        logits = self._policy.decode(ids.to(device), positions.to(device), mask, vision, self._cache)
        self._written = written.repeat_interleave(self._group, 0)
        self._following = self._following.repeat_interleave(self._group)
        return logits.repeat_interleave(self._group, 0)

    def step(self, drawn: Tensor) -> Tensor:
        at = (self._following + self._count).expand(3, 1, -1).transpose(1, 2)
        self._count += 1
        mask = self._written[:, None, None, : self._width + self._count]
        return self._policy.decode(drawn[:, None], at, mask, (), self._cache)

    def keep(self, rows: Tensor) -> None:
        self._cache.keep(rows)
        self._written, self._following = self._written[rows], self._following[rows]


class _Cache:
    """Cache with the keys and values of all layers. The tensors grow in blocks, so that appending a token does not copy
    them.

    Each prompt is first processed as a single row, which is then repeated ``group`` times.

    Args:
        group: Number of rows per prompt.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._lengths: list[int] = []

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Adds keys and values of shape (rows, heads, tokens, dim) to a layer, and returns all keys and values of the
        layer. transformers calls this method.
        """
        if layer_idx == len(self._layers):
            self._layers.append((key.repeat_interleave(self._group, 0), value.repeat_interleave(self._group, 0)))
            self._lengths.append(key.shape[2])
            return key, value
        keys, values = self._layers[layer_idx]
        before = self._lengths[layer_idx]
        after = self._lengths[layer_idx] = before + key.shape[2]
        if after > keys.shape[2]:
            keys, values = (nn.functional.pad(tensor, (0, 0, 0, _BLOCK)) for tensor in (keys, values))
            self._layers[layer_idx] = keys, values
        keys[:, :, before:after] = key
        values[:, :, before:after] = value
        return keys[:, :, :after], values[:, :, :after]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of tokens in the cache. transformers calls this method."""
        return self._lengths[layer_idx] if self._lengths else 0

    def keep(self, rows: Tensor) -> None:
        """Removes all rows except the given rows."""
        self._layers = [(keys[rows], values[rows]) for keys, values in self._layers]


def _together(pictures: Sequence[Vision]) -> Vision | None:
    """Concatenates the features of a prompt's pictures."""
    if len(pictures) < 2:
        return pictures[0] if pictures else None
    deep = zip(*(picture.deepstack for picture in pictures), strict=True)
    return Vision(torch.cat([picture.embeds for picture in pictures]), tuple(torch.cat(layer) for layer in deep))
