"""Builds a vision-language model of a few hundred kilobytes with random weights, and pictures for it.

    python tiny_model.py FOLDER [--family qwen2_5_vl|qwen3_vl|qwen2_vl|qwen3_vl_moe|llava|text] [--pictures N]

It says nothing sensible. It is here so that every command of the recipe runs anywhere, in seconds, offline.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>", "<unk>",
)  # fmt: skip
OBJECTS = "person dog cat car bus bicycle chair couch bench book bottle cup bowl apple pizza clock umbrella kite"
WORDS = (
    f"{OBJECTS} A The a an the is are on in near next to of and with two three red green blue white black small large "
    "there image this Describe describe objectively detail Focus only visible content yes no Is There . , ? : user "
    "system assistant Rating statement true Answer or"
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} : "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant :{% endif %}"
)
FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen2_vl", "qwen3_vl_moe", "llava", "text")
# heads of 32: the smallest that vLLM's kernels take
HIDDEN = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
# all of it written out: vLLM normalizes pixels by what the file says, and does not know the processor's defaults
PIXELS = {
    "do_convert_rgb": True, "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


def tokenizer(family: str, byte_level: bool = False) -> Any:
    """Words as tokens; or bytes and pairs of them, which can spell anything, such as JSON."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made_for_qwen = family.startswith("qwen") and transformers.__version__.startswith("4.")  # its processor insists
    cls = transformers.Qwen2TokenizerFast if made_for_qwen else transformers.PreTrainedTokenizerFast

    words = dict.fromkeys([*SPECIAL, *WORDS.split()])
    fast = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    if byte_level:
        fast = Tokenizer(models.BPE())
        fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        fast.train_from_iterator(
            [WORDS], trainers.BpeTrainer(
                vocab_size=400, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
            ),
        )  # fmt: skip
    return cls(
        tokenizer_object=fast, unk_token="<unk>", pad_token="<|endoftext|>", eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL[1:7]), model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def build(folder: str | Path, family: str = "qwen2_5_vl", seed: int = 0, *, byte_level: bool = False) -> Path:
    """Writes weights, settings and tokenizer into ``folder``.

    Args:
        folder: made if there is none.
        family: ``qwen2_5_vl``, ``qwen3_vl``, ``qwen2_vl``, ``qwen3_vl_moe``, ``llava``, or ``text`` for a model that
            reads no images.
        seed: of the weights.
        byte_level: tokens are bytes and pairs of them, not words.
    """
    import torch
    import transformers

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer(family, byte_level)
    ids = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start")}
    text = {
        **HIDDEN, "vocab_size": len(words), "num_key_value_heads": 1, "max_position_embeddings": 512,
        "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None,
    }  # fmt: skip
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    torch.manual_seed(seed)
    qwen = {
        "image_token_id": ids["image_pad"], "video_token_id": ids["video_pad"],
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": words.convert_tokens_to_ids("<|vision_end|>"),
    }  # fmt: skip
    if family == "qwen2_5_vl":
        text["rope_scaling"] = {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]}
        vision: dict[str, Any] = {
            "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
            "patch_size": 14, "spatial_merge_size": 2, "window_size": 56, "fullatt_block_indexes": [1],
        }  # fmt: skip
        config: Any = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **qwen)
        model: Any = transformers.Qwen2_5_VLForConditionalGeneration(config)
        processor: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14}
    elif family == "qwen2_vl":
        text["rope_scaling"] = {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]}
        vision = {
            "depth": 2, "embed_dim": 64, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 2, "patch_size": 14,
            "spatial_merge_size": 2,
        }  # fmt: skip
        config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **qwen)
        model = transformers.Qwen2VLForConditionalGeneration(config)
        processor = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14}
    elif family in ("qwen3_vl", "qwen3_vl_moe"):
        text |= {
            "head_dim": 32,
            "rope_scaling": {"rope_type": "default", "mrope_section": [4, 6, 6], "mrope_interleaved": True},
        }
        vision = {
            "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
            "patch_size": 16, "spatial_merge_size": 2, "deepstack_visual_indexes": [0], "num_position_embeddings": 64,
        }  # fmt: skip
        if family == "qwen3_vl_moe":
            text |= {
                "moe_intermediate_size": 128, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1,
                "norm_topk_prob": True,
            }  # fmt: skip
            config = transformers.Qwen3VLMoeConfig(text_config=text, vision_config=vision, **qwen)
            model = transformers.Qwen3VLMoeForConditionalGeneration(config)
        else:
            config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **qwen)
            model = transformers.Qwen3VLForConditionalGeneration(config)
        processor = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16}
    elif family == "llava":
        vision = {**HIDDEN, "image_size": 56, "patch_size": 14, "projection_dim": 64, "model_type": "clip_vision_model"}
        config = transformers.LlavaConfig(
            vision_config=vision, text_config={**text, "model_type": "llama"}, image_token_index=ids["image_pad"],
            vision_feature_select_strategy="default",
        )  # fmt: skip
        model = transformers.LlavaForConditionalGeneration(config)
        size = {"height": 56, "width": 56}
        processor = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}, "crop_size": size}
        llava = {
            "processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default",
            "image_token": "<|image_pad|>", "num_additional_image_tokens": 1,
        }  # fmt: skip
        (folder / "processor_config.json").write_text(json.dumps(llava))
        image = "<|image_pad|>"
    else:
        config = transformers.LlamaConfig(**text)
        model = transformers.LlamaForCausalLM(config)
        processor = {}
    if processor:
        processor |= PIXELS
        if family.startswith("qwen"):
            processor |= {"min_pixels": 56 * 56, "max_pixels": 112 * 112, "merge_size": 2, "temporal_patch_size": 2}
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    words.chat_template = TEMPLATE.replace("IMAGE", image)
    words.save_pretrained(folder)
    for parameter in model.parameters():  # spread the weights: at their usual size every next token is as likely
        parameter.data.mul_(3.0)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id
    )
    if family == "qwen3_vl_moe" and not transformers.__version__.startswith("4."):  # experts as hub and vLLM have them
        experts = {name: each.mT.contiguous() for name, each in model.state_dict().items() if ".mlp.experts." in name}
        model.save_pretrained(folder, state_dict={**model.state_dict(), **experts}, save_original_format=False)
    else:
        model.save_pretrained(folder)
    return folder


def draw(folder: str | Path, number: int) -> None:
    """Writes ``number`` pictures ``1.png``, ``2.png``... of colored blocks, and ``truth.json``."""
    from PIL import Image, ImageDraw

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    objects = OBJECTS.split()
    truth = {}
    for k in range(1, number + 1):
        picture = Image.new("RGB", (96 + 8 * (k % 4), 84), (240, 240, 230))
        pen = ImageDraw.Draw(picture)
        shown = [objects[(k * 5 + j * 7) % len(objects)] for j in range(3)]
        for j, name in enumerate(shown):
            hue = objects.index(name) * 13
            pen.rectangle((8 + 28 * j, 20, 30 + 28 * j, 60), fill=(hue, 255 - hue, (hue * 5) % 256))
        picture.save(folder / f"{k}.png")
        truth[str(k)] = sorted(shown)
    (folder / "truth.json").write_text(json.dumps({"labels": objects, "objects": truth}))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder")
    arguments.add_argument("--family", default="qwen2_5_vl", choices=FAMILIES)
    arguments.add_argument("--pictures", type=int, default=12)
    given = arguments.parse_args()
    build(Path(given.folder) / "model", given.family)
    draw(Path(given.folder) / "images", given.pictures)
