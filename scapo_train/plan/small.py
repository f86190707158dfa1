"""A small model with random weights, prompted with noise images, for tests and benchmarks without downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..data import Prompt, PromptRecord
from .shapes import model_config

END = 1999
"""Id of the end-of-sequence token of the small model."""


def small_config() -> Any:
    """Returns the configuration of a Qwen2.5-VL model with about a million parameters."""
    config: Any = model_config("Qwen/Qwen2.5-VL-3B-Instruct")
    text, vision = config.text_config, config.vision_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = 128, 352, 3
    text.num_attention_heads, text.num_key_value_heads, text.vocab_size = 4, 2, 2000
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:3]
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(rope := getattr(text, name, None), dict):
            rope["mrope_section"] = [6, 5, 5]
    vision.depth, vision.hidden_size, vision.intermediate_size, vision.num_heads = 2, 64, 96, 4
    vision.out_hidden_size, vision.fullatt_block_indexes = 128, [1]
    for number, name in enumerate(("image", "video", "vision_start", "vision_end")):
        setattr(config, f"{name}_token_id", number)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(text, name, None)
    return config


def save_small(folder: Path, seed: int = 0) -> Path:
    """Writes the small model into a folder. The same seed always yields the same weights."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        vlm = transformers.AutoModelForImageTextToText.from_config(small_config())
    vlm.generation_config.eos_token_id = END
    vlm.save_pretrained(folder)
    return folder


def noise_prompts(path: Path, number: int) -> list[Prompt]:
    """Returns prompts whose pictures consist of 4 x 4 patches of noise."""
    config: Any = model_config(str(path))
    vision = config.vision_config
    dim = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * vision.patch_size**2
    picture = [config.vision_start_token_id, *[config.image_token_id] * 4, config.vision_end_token_id]
    prompts = []
    for k in range(number):
        generator = torch.Generator().manual_seed(k)
        inputs = {
            "pixel_values": torch.randn(16, dim, generator=generator),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
        }
        ids = torch.tensor([100 + k, *picture, 200, 300 + k])
        prompts.append(Prompt(k, PromptRecord.of([], str(k), "Describe this image."), ids, inputs))
    return prompts
