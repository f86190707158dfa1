"""Shapes of the models in the shipped configurations, which allow plans and benchmarks to run without a download.

Each shape contains the sizes from the published ``config.json``. A model with these sizes, built on the meta device,
has exactly the published number of parameters (``tests/unit/test_train_configs.py``).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForImageTextToText, PretrainedConfig

from scapo_eval.base.errors import InputError, ScapoError, in_one_line
from scapo_eval.files.json_text import read_json

from ..config import Lora
from ..families.experts import stacked_weights
from ..families.lora import linear_layers, targets
from ..model import check_family, policy_of

PUBLISHED = {
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
}
"""Number of parameters of each model as published on the hub, including the vision tower."""

_SPECIAL_TOKENS = {
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "image_token_id": 151655,
    "video_token_id": 151656,
}


def _qwen2_5_vl(
    hidden: int, inner: int, layers: int, heads: int, key_value_heads: int, *, vocabulary: int, tied: bool, tower: int
) -> dict[str, Any]:
    return {
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": tied,
        **_SPECIAL_TOKENS,
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "vocab_size": vocabulary,
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_value_heads,
            "max_position_embeddings": 128000,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "default", "type": "mrope", "mrope_section": [16, 24, 24]},
            "tie_word_embeddings": tied,
        },
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": tower,
            "num_heads": 16,
            "out_hidden_size": hidden,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
        },
    }


def _qwen3_vl(
    hidden: int, inner: int, layers: int, heads: int, key_value_heads: int, *, tied: bool, tower: dict[str, Any]
) -> dict[str, Any]:
    return {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": tied,
        **_SPECIAL_TOKENS,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "vocab_size": 151936,
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_value_heads,
            "head_dim": 128,
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-6,
            "rope_theta": 5e6,
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]},
            "tie_word_embeddings": tied,
        },
        "vision_config": {
            "num_heads": 16,
            "out_hidden_size": hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            **tower,
        },
    }


_SMALL_TOWER = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "deepstack_visual_indexes": [5, 11, 17]}
_LARGE_TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24]}

_SHAPES = {
    "Qwen/Qwen2.5-VL-3B-Instruct": _qwen2_5_vl(2048, 11008, 36, 16, 2, vocabulary=151936, tied=True, tower=3420),
    "Qwen/Qwen2.5-VL-7B-Instruct": _qwen2_5_vl(3584, 18944, 28, 28, 4, vocabulary=152064, tied=False, tower=3420),
    "Qwen/Qwen2.5-VL-32B-Instruct": _qwen2_5_vl(5120, 27648, 64, 40, 8, vocabulary=152064, tied=False, tower=3456),
    "Qwen/Qwen2.5-VL-72B-Instruct": _qwen2_5_vl(8192, 29568, 80, 64, 8, vocabulary=152064, tied=False, tower=3456),
    "Qwen/Qwen3-VL-2B-Instruct": _qwen3_vl(2048, 6144, 28, 16, 8, tied=True, tower=_SMALL_TOWER),
    "Qwen/Qwen3-VL-4B-Instruct": _qwen3_vl(2560, 9728, 36, 32, 8, tied=True, tower=_SMALL_TOWER),
    "Qwen/Qwen3-VL-8B-Instruct": _qwen3_vl(4096, 12288, 36, 32, 8, tied=False, tower=_LARGE_TOWER),
}


def model_config(path: str) -> PretrainedConfig:
    """Returns the configuration of a model without accessing the network.

    Args:
        path: Folder with a ``config.json``, or the name of a model in :data:`PUBLISHED`.

    Raises:
        InputError: If the path is neither a folder with a ``config.json`` nor a published name, or transformers does
            not support the configuration.
    """
    file = Path(path) / "config.json"
    if file.is_file():
        table = read_json(file)
        if not isinstance(table, dict):
            raise InputError("not a JSON object", path=file)
    elif path in _SHAPES:
        table = copy.deepcopy(_SHAPES[path])
    else:
        known = ", ".join(PUBLISHED)
        reason = f"{path!r} is neither a folder with a config.json nor a known model; known: {known}"
        raise InputError(reason, path="model.path")
    kind = table.pop("model_type", "")
    try:
        return AutoConfig.for_model(kind, **table)
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise InputError(f"transformers cannot use it: {in_one_line(error)}", path=file) from None


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Attributes:
        tower: Number of parameters of the frozen vision tower, including its merger.
        layer: Number of parameters in one decoder layer.
        layers: Number of decoder layers.
        linear: Mapping from the name of each linear layer in a decoder layer to its numbers of (inputs, outputs).
        stacks: Mapping from the name of each stack of expert weights in a decoder layer to (experts, inputs, outputs).
        chosen: Number of experts per token.
        root: Number of parameters outside the tower and the decoder layers: embedding, output layer and last norm.
        embedding: Number of parameters of the embedding (vocabulary x hidden).
        tied: True if the embedding is also the output layer.
        vocabulary: Number of tokens in the vocabulary.
        hidden: Width of the hidden state.
        inner: Width of the MLP. The value is 0 for a mixture of experts.
        heads: Number of query heads.
        kv_heads: Number of key and value heads.
        head_dim: Width of a head.
        qk_norm: True if queries and keys are normalized.
        deepstack: Number of additional features per image token (Qwen3-VL).
        token_side: Side length of an image token in pixels, for models that keep the size of the picture.
        shared: True if the responses of a group share their prompt.
        one_dtype: See :class:`~scapo_train.model.Family`.
        patch: Number of values in a patch of the tower (pixels in three color channels).
        tower_hidden: Width of the tower's hidden state.
        tower_inner: Width of the tower's MLP.
    """

    tower: int
    layer: int
    layers: int
    linear: dict[str, tuple[int, int]]
    stacks: dict[str, tuple[int, int, int]]
    chosen: int
    root: int
    embedding: int
    tied: bool
    vocabulary: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool
    deepstack: int
    token_side: int
    shared: bool
    one_dtype: bool
    patch: int
    tower_hidden: int
    tower_inner: int

    @property
    def language(self) -> int:
        """Number of parameters of the language model, all of which are changed in full training."""
        return self.layer * self.layers + self.root

    @property
    def total(self) -> int:
        """Total number of parameters."""
        return self.language + self.tower

    @property
    def stacked(self) -> int:
        """Number of parameters of the experts in a decoder layer."""
        return sum(math.prod(sizes) for sizes in self.stacks.values())

    @property
    def active(self) -> int:
        """Number of parameters of a decoder layer that process each token."""
        passed = sum((number - self.chosen) * inputs * outputs for number, inputs, outputs in self.stacks.values())
        return self.layer - passed

    def adapted(self, lora: Lora) -> dict[str, tuple[int, int, int]]:
        """Returns those linear layers and stacks of a decoder layer that have adapters.

        Returns:
            Mapping from each name to a tuple ``(number of experts, inputs, outputs)``. A linear layer counts as one
            expert.

        Raises:
            InputError: If ``lora.targets`` names a missing layer.
        """
        known = {name: (1, *sizes) for name, sizes in self.linear.items()} | self.stacks
        return {name: known[name] for name in targets(lora, known)} if lora.rank else {}

    def adapters(self, lora: Lora) -> int:
        """Returns the number of parameters of all adapters."""
        return self.layers * lora.rank * sum(n * (inner + outer) for n, inner, outer in self.adapted(lora).values())

    def stack_adapters(self, lora: Lora) -> int:
        """Returns the number of parameters of the experts' adapters."""
        sizes = [size for name, size in self.adapted(lora).items() if name in self.stacks]
        return self.layers * lora.rank * sum(n * (inner + outer) for n, inner, outer in sizes)


def shape_of(path: str) -> Shape:
    """Builds the class of a model on the meta device and returns the sizes of the model.

    Args:
        path: Folder with a ``config.json``, or the name of a model in :data:`PUBLISHED`.

    Raises:
        ScapoError: If the model is unknown, or ``scapo_train`` does not support its structure.
    """
    config = model_config(path)
    vlm = build(config, path)
    policy = policy_of(vlm, [], 1.0)  # raises an error about missing parts
    text, vision = vlm.config.get_text_config(), vlm.config.vision_config
    layers = policy.language_model.layers
    attention = layers[0].self_attn
    linear = linear_layers(policy.language_model)
    tower = sum(parameter.numel() for parameter in policy.tower)
    side = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    layer = sum(parameter.numel() for parameter in layers[0].parameters())
    if any(sum(parameter.numel() for parameter in other.parameters()) != layer for other in layers):
        raise ScapoError(f"{path} has decoder layers of several sizes (experts in some of them), which is not planned")
    stacks = stacked_weights(policy.language_model)
    if getattr(text, "num_experts", None) and not stacks:
        raise ScapoError(f"{path} is a mixture of experts, which is planned with transformers 5")
    return Shape(
        tower=tower,
        layer=layer,
        layers=len(layers),
        linear={name: (module.in_features, module.out_features) for name, module in linear.items()},
        stacks=stacks,
        chosen=text.num_experts_per_tok if stacks else 0,
        root=sum(parameter.numel() for parameter in vlm.parameters()) - tower - layer * len(layers),
        embedding=vlm.get_input_embeddings().weight.numel(),
        tied=vlm.lm_head.weight is vlm.get_input_embeddings().weight,
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        inner=0 if stacks else text.intermediate_size,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=attention.head_dim,
        qk_norm=hasattr(attention, "q_norm"),
        deepstack=len(getattr(vision, "deepstack_visual_indexes", None) or ()),
        token_side=side * getattr(vision, "spatial_merge_size", 1),
        shared=policy.packs,
        one_dtype=check_family(config).one_dtype,
        patch=3 * side**2 * getattr(vision, "temporal_patch_size", 1),
        tower_hidden=vision.hidden_size,
        tower_inner=getattr(vision, "intermediate_size", 4 * vision.hidden_size),
    )


def build(config: PretrainedConfig, path: str, dtype: torch.dtype | None = None) -> Any:
    """Builds a model without weights.

    Args:
        config: Configuration of the model.
        path: Path of the model, for use in messages.
        dtype: Number format of the parameters. None selects torch's default.

    Raises:
        InputError: If transformers cannot build the model.
    """
    try:
        with torch.device("meta"):
            return AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa", dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"transformers cannot build it: {in_one_line(error)}", path=path) from None
