"""Small Qwen2.5-VL model that describes the pictures of a small world. Its vision tower is trained first, and then its
language model.

First, the vision tower is trained with linear classifiers that predict the appearance of each cell. Then the tower is
frozen, all pictures are encoded once, and the language model is trained on captions that omit some objects and invent
others, as human captions do. In worlds with many cells, the language model first learns to list the objects. Models for
other worlds are obtained by continuing the training of the model for their base, which usually is ``plain``. If all
scenes had the same nouns from the beginning, a model would learn to write, but not to look at the pictures. Models of
``telling``, where objects have colors, start from random weights. The result is a start model for alignment that
recognizes more objects than it names, and names objects that are absent.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from scapo_eval.engines.hf import load_processor
from scapo_eval.files.files import atomic_write

from ..families.packing import PackedRow, Vision, batch_of
from ..families.shared import SharedPolicy
from . import language, telling
from .language import PROMPT, tokenizer
from .pictures import CELL, Scene, World, appearances, aspects, draw_scene, render

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lessons:
    """Length of the small model's pretraining.

    Attributes:
        see: Number of steps for the vision tower, each with ``pictures`` new pictures.
        speak: Number of steps for the language model if the model is built from random weights.
        move: Number of steps for the language model if training continues from the model for another world.
        scenes: Number of different pictures with captions.
        pictures: Number of pictures per step.
        captions: Number of captions per picture in a step.
        lr: Peak learning rate in both training runs.
    """

    see: int = 120
    speak: int = 1300
    move: int = 250
    scenes: int = 8000
    pictures: int = 32
    captions: int = 2
    lr: float = 2e-3


QUICK = Lessons(see=80, speak=700, scenes=5000)


def pretrain(world: World, folder: Path, lessons: Lessons, seed: int, base: Path | None = None) -> None:
    """Trains a model and writes it with its tokenizer and image processor to ``folder``.

    Args:
        world: Rules for drawing the pictures.
        folder: Folder of the model. The model is complete if the folder contains ``lessons.json``.
        lessons: Length of the training.
        seed: Seed for weights, pictures and captions.
        base: Folder of the model for the world's base, from which the training continues. If the value is None, the
            model is built from random weights.
    """
    random = np.random.default_rng([seed, 1 if base is None else 3])
    if base is None:
        vlm = build(folder, seed, world)
    else:
        shutil.copytree(base, folder, ignore=shutil.ignore_patterns("lessons.json", "captions_*"), dirs_exist_ok=True)
        vlm = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(str(base), dtype="float32")
    processor = load_processor(str(folder))
    policy = SharedPolicy(vlm, [processor.tokenizer.eos_token_id], temperature=1.0)
    if base is None:
        see(policy, processor, world, lessons, random)
    vlm.model.visual.requires_grad_(False)
    if world.lists:
        speak(policy, processor, world, language.listing, world.lists, lessons, random)
    steps = lessons.speak if base is None else lessons.move
    speak(policy, processor, world, partial(caption_of, world), steps, lessons, random)
    vlm.save_pretrained(folder)
    with atomic_write(folder / "lessons.json") as stream:
        stream.write(json.dumps({"world": world.name, **vars(lessons), "seed": seed}).encode())


def build(folder: Path, seed: int, world: World) -> Any:
    """Builds the untrained model (0.8 million parameters), and writes the tokenizer and the image processor to
    ``folder``.
    """
    random = np.random.default_rng([seed, 0])
    words = tokenizer([caption_of(world, draw_scene(world, random), random) for _ in range(3000)])
    ids = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start")}
    text = {
        "vocab_size": len(words), "hidden_size": 96, "intermediate_size": 384, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32 * world.words,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 4, 4]},
        "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None,
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 96, "intermediate_size": 192, "num_heads": 4, "out_hidden_size": 96,
        "patch_size": 14, "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [1],
    }  # fmt: skip
    config = transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True,
        image_token_id=ids["image_pad"], video_token_id=ids["video_pad"], vision_start_token_id=ids["vision_start"],
        vision_end_token_id=words.convert_tokens_to_ids("<|vision_end|>"),
    )  # fmt: skip
    torch.manual_seed(seed)
    vlm = transformers.Qwen2_5_VLForConditionalGeneration(config)
    vlm.generation_config = transformers.GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id
    )
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    words.save_pretrained(folder)
    pixels = (CELL * world.side) ** 2
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": pixels, "max_pixels": pixels,
    }))  # fmt: skip
    return vlm


def see(policy: SharedPolicy, processor: Any, world: World, lessons: Lessons, random: np.random.Generator) -> None:
    """Trains the tower, with temporary linear classifiers, to distinguish the appearances of cells."""
    sizes = aspects(world)
    classes = nn.Linear(policy.vlm.config.vision_config.out_hidden_size, sum(sizes))
    parameters = [*policy.vlm.model.visual.parameters(), *classes.parameters()]
    for step, update in _updates(parameters, lessons.see, lessons.lr):
        scenes = [draw_scene(world, random) for _ in range(lessons.pictures)]
        features = torch.cat(_features(policy, processor, world, scenes, random))
        wanted = torch.from_numpy(np.concatenate([appearances(world, scene) for scene in scenes], axis=1))
        logits = classes(features).split(sizes, dim=1)
        losses = [nn.functional.cross_entropy(scores, right) for scores, right in zip(logits, wanted, strict=True)]
        loss = torch.stack(losses).sum()
        update(loss)
        if step % 50 == 0 or step == lessons.see:
            answers = torch.stack([scores.argmax(1) for scores in logits])
            right = 100 * (answers == wanted).all(0).float().mean().item()
            _log.info("seeing %d/%d: loss %.3f, %.1f %% of cells right", step, lessons.see, loss.item(), right)


def speak(
    policy: SharedPolicy,
    processor: Any,
    world: World,
    text_of: Callable[[Scene, np.random.Generator], str],
    steps: int,
    lessons: Lessons,
    random: np.random.Generator,
) -> None:
    """Trains the language model to write texts from the features of the tower.

    Args:
        policy: Model.
        processor: Processor of the model.
        world: Rules for drawing the pictures.
        text_of: Function that returns a random text for a scene.
        steps: Number of steps.
        lessons: Numbers of pictures and of texts per picture, and learning rate.
        random: Random number generator.
    """
    pool = encoded(policy, processor, world, lessons.scenes, random)

    def texts_of(k: int) -> list[str]:
        return [text_of(pool[k][0], random) for _ in range(lessons.captions)]

    imitate(policy, processor, [vision for _, vision in pool], texts_of, steps, lessons.pictures, lessons.lr, random)


def imitate(
    policy: SharedPolicy,
    processor: Any,
    visions: Sequence[Vision],
    texts_of: Callable[[int], Sequence[str]],
    steps: int,
    pictures: int,
    lr: float,
    random: np.random.Generator,
    end_weight: float = 1.0,
) -> None:
    """Trains the language model on captions.

    Args:
        policy: Model.
        processor: Processor of the model.
        visions: Features of each picture.
        texts_of: Function that returns the captions of a picture, given its index.
        steps: Number of steps.
        pictures: Number of random pictures per step.
        lr: Peak learning rate.
        random: Random number generator.
        end_weight: Weight of the end token in the loss. With a lower weight than that of other tokens, the model ends a
            caption only if the end is more probable.
    """
    prompt, positions, following = question(policy, processor, len(visions[0].embeds))
    words = processor.tokenizer
    parameters = [p for p in policy.parameters() if p.requires_grad]
    policy.train()
    for step, update in _updates(parameters, steps, lr):
        rows = []
        for k in random.integers(len(visions), size=pictures).tolist():
            answers = [[*ids, words.eos_token_id] for ids in words(texts_of(k)).input_ids]
            rows.append(PackedRow(prompt, positions, following, visions[k], answers))
        logprob = policy(batch_of(rows, torch.device("cpu"))).logprob
        ends = np.cumsum([len(answer) for row in rows for answer in row.responses]) - 1
        weights = torch.ones_like(logprob).index_fill(0, torch.from_numpy(ends), end_weight)
        loss = -(weights * logprob).sum() / weights.sum()
        update(loss)
        if step % 50 == 0 or step == steps:
            _log.info("speaking %d/%d: loss %.3f", step, steps, loss.item())
    policy.eval()


def caption_of(world: World, scene: Scene, random: np.random.Generator) -> str:
    """Returns a caption, in the language of a world, for supervised training."""
    return (telling if world.telling else language).caption(world, scene, random)


@torch.no_grad()
def encoded(
    policy: SharedPolicy, processor: Any, world: World, number: int, random: np.random.Generator
) -> list[tuple[Scene, Vision]]:
    """Returns random scenes, each with the features that the tower computes for a picture."""
    found: list[tuple[Scene, Vision]] = []
    for start in range(0, number, 64):
        scenes = [draw_scene(world, random) for _ in range(min(64, number - start))]
        features = _features(policy, processor, world, scenes, random)
        found += [(scene, Vision(embeds)) for scene, embeds in zip(scenes, features, strict=True)]
    return found


def _features(
    policy: SharedPolicy, processor: Any, world: World, scenes: list[Scene], random: np.random.Generator
) -> tuple[Tensor, ...]:
    """Returns the (cells, hidden) features of a new picture for each scene."""
    made = processor.image_processor(images=[render(world, scene, random) for scene in scenes], return_tensors="pt")
    features = policy.vlm.model.get_image_features(made["pixel_values"], made["image_grid_thw"])
    return tuple(getattr(features, "pooler_output", features))


def question(policy: SharedPolicy, processor: Any, cells: int) -> tuple[Tensor, Tensor, int]:
    """Returns the token ids and the positions of the prompt, which is the same for all pictures with this number of
    cells, and the first position after the prompt.
    """
    turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]
    text = processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    width = CELL * math.isqrt(cells)
    blank = np.zeros((width, width, 3), dtype=np.uint8)
    made = processor(text=[text], images=[blank], return_tensors="pt")
    ids = made["input_ids"][0]
    return ids, *policy.prompt_positions(ids, made["image_grid_thw"])


def _updates(parameters: list[Any], steps: int, lr: float) -> Iterator[tuple[int, Callable[[Tensor], None]]]:
    """Yields pairs of the step number, starting at 1, and a function that updates the parameters from the loss.

    The optimizer is AdamW with a warm-up and a cosine schedule down to 0.
    """
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
    warmup = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: min((t + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * t / steps))
    )

    def update(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()

    for step in range(1, steps + 1):
        yield step, update
