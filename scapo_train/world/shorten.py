"""Supervised training of an aligned model on its own captions without repeated sentences.

After alignment, greedy captions often repeat a sentence. A repeated sentence changes no score, because each object is
counted once per caption, so deleting it from a caption costs no coverage. The aligned model describes new pictures by
greedy decoding, repeated sentences are deleted, and the model is trained on these captions. No ground truth is used.
Three functions shorten captions: :func:`shortened`, with which the first trials were run, :func:`deduplicated`, which
also recognizes a repetition that is followed by further periods, and :func:`distinct`, which also deletes a sentence
that names the same objects as earlier sentences in other words.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers

from scapo_eval import AliasMatcher
from scapo_eval.engines.hf import load_processor
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json

from ..data import Prompt, PromptRecord
from ..families.packing import Vision
from ..families.shared import SharedPolicy, SharedPrompt
from ..rollout import PolicySampler
from .language import sentences, vocabulary
from .pictures import World
from .pretrain import encoded, imitate, question

_SENTENCE_END = re.compile(r"(?<=\.)\s+")
_PICTURES_PER_BATCH = 128


@dataclass(frozen=True)
class Shortening:
    """Length of the training on shortened captions.

    Attributes:
        scenes: Number of new pictures that the model describes.
        steps: Number of training steps.
        pictures: Number of pictures per step.
        lr: Peak learning rate.
    """

    scenes: int = 8192
    steps: int = 1500
    pictures: int = 32
    lr: float = 1e-3


def shortened(text: str) -> str:
    """Returns a caption without the sentences that it repeats. A sentence that is followed by further periods is not
    recognized as a repetition.
    """
    return " ".join(dict.fromkeys(_SENTENCE_END.split(text.strip())))


def deduplicated(text: str) -> str:
    """Returns the complete sentences of a caption, each once and without further periods, or the caption itself if it
    contains no complete sentence.
    """
    return " ".join(dict.fromkeys(sentences(text))) or text


def distinct(text: str, matcher: AliasMatcher) -> str:
    """Returns the complete sentences of a caption, without those whose objects have all been named before. Sentences
    that name no object are kept once. If the caption contains no complete sentence, it is returned unchanged.
    """
    kept, named = list[str](), set[str]()
    for sentence in dict.fromkeys(sentences(text)):
        labels = {mention.label for mention in matcher.find(sentence)}
        if not labels or labels - named:
            kept.append(sentence)
            named |= labels
    return " ".join(kept) or text


Edit = Literal["shortened", "deduplicated", "distinct"]
"""Name of the function that shortens captions."""


def edit_of(name: Edit, world: World) -> Callable[[str], str]:
    """Returns the function with the given name, for captions of a world."""
    if name == "distinct":
        return partial(distinct, matcher=AliasMatcher(vocabulary(world)))
    return deduplicated if name == "deduplicated" else shortened


def shorten(
    aligned: Path,
    run: Path,
    world: World,
    longest: int,
    steps: int,
    seeds: Sequence[int],
    length: Shortening,
    edited: Callable[[str], str],
    end_weight: float = 1.0,
) -> None:
    """Trains a copy of a model, and writes it to the folder ``model`` of a run.

    Args:
        aligned: Folder of the run whose model is trained further.
        run: Folder of the new run. Its ``metrics.jsonl`` is written last and contains only the number of steps of
            ``aligned``, so that the run counts as finished.
        world: Rules for drawing the new pictures.
        longest: Maximum number of tokens in a caption.
        steps: Number of steps of ``aligned``.
        seeds: Seeds of the new pictures and of the training.
        length: Length of the training.
        edited: Function that deletes the repeated sentences of a caption.
        end_weight: Weight of the end token in the loss.
    """
    random = np.random.default_rng(seeds)
    model = aligned / "model"
    vlm = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(str(model), dtype="float32")
    processor = load_processor(str(model))
    policy = SharedPolicy(vlm, [processor.tokenizer.eos_token_id], temperature=1.0)
    vlm.model.visual.requires_grad_(False)
    visions = [vision for _, vision in encoded(policy, processor, world, length.scenes, random)]
    texts = [edited(text) for text in _described(policy, processor, visions, longest)]
    sizes = length.steps, length.pictures, length.lr
    imitate(policy, processor, visions, lambda k: [texts[k]], *sizes, random, end_weight)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(model, run / "model", ignore=shutil.ignore_patterns("captions_*"))
    vlm.save_pretrained(run / "model")
    with atomic_write(run / "metrics.jsonl") as stream:
        stream.write(dump_json({"step": steps}) + b"\n")


def _described(policy: SharedPolicy, processor: Any, visions: Sequence[Vision], longest: int) -> list[str]:
    """Returns a greedy caption for each picture."""
    ids, positions, following = question(policy, processor, len(visions[0].embeds))
    sampler = PolicySampler(policy, torch.device("cpu"), longest, _PICTURES_PER_BATCH)
    prompts = [
        SharedPrompt(Prompt(k, PromptRecord((), str(k), ()), ids, {}), positions, following, vision)
        for k, vision in enumerate(visions)
    ]
    responses = sampler.sample(prompts, 0, 1, 0.0)
    texts: list[str] = processor.tokenizer.batch_decode([made.ids for made in responses], skip_special_tokens=True)
    return texts
