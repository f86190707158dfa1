"""Shared fixtures of the adapters' tests: a small world of words, and tokenizers and models that are built locally.

These tests run with the real libraries, each in its own environment (``.ci/adapters``), without a network or a hub. In
other environments, they are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads than one make tiny models forty times slower

WORDS = (
    "A The a the dog cat car tree man is are in on by of and with grass street table small red old some near".split()
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}" + IMAGE + "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
TRUTH = {"1": ["dog", "tree"], "2": ["cat"], "3": ["dog", "cat", "car", "tree"], "4": []}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """Returns a byte-level tokenizer with words and full stops as tokens, so that random ids are readable captions."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [*SPECIAL, *(f"Ġ{word}" for word in WORDS), ".", ",", "Ġ", "Ã", "©", ".ĠThe"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: k for k, piece in enumerate(dict.fromkeys([*pieces, *alphabet]))}
    built = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=built,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


@pytest.fixture(scope="session")
def sampled_ids(tokenizer: Any) -> list[int]:
    """Returns the ids that a test model may sample: the end of sequence, words, punctuation marks, and incomplete
    characters.
    """
    return [1, *range(len(SPECIAL), len(SPECIAL) + len(WORDS) + 6)]


@pytest.fixture(scope="session")
def truth_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the objects in each image."""
    path = tmp_path_factory.mktemp("truth") / "truth.json"
    path.write_text(json.dumps({"objects": TRUTH, "labels": ["dog", "cat", "car", "tree"]}))
    return path


@pytest.fixture(scope="session")
def vocabulary_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes a vocabulary with four labels."""
    path = tmp_path_factory.mktemp("vocabulary") / "toy.yaml"
    labels = {label: {"aliases": [label]} for label in ("dog", "cat", "car", "tree")}
    path.write_text(json.dumps({"name": "toy", "labels": labels}))  # JSON is YAML
    return path


@pytest.fixture(scope="session")
def reward(truth_file: Path, vocabulary_file: Path) -> Any:
    """Returns the reward under test."""
    from scapo_eval import PresenceOracle, SubsentenceReward, Vocabulary

    return SubsentenceReward(Vocabulary.load(vocabulary_file), PresenceOracle.load(truth_file), on_error="zero")


@pytest.fixture(scope="session")
def golden_step() -> dict[str, Any]:
    """Returns a step computed independently from the paper (tests/golden/step), as padded tensors with a mask."""
    import torch

    folder = Path(__file__).resolve().parents[2] / "golden" / "step"
    step: dict[str, Any] = json.loads((folder / "step.json").read_text(encoding="utf-8"))
    step["rows"] = [row["advantages"] for row in step["responses"]]
    width = max(map(len, step["rows"]))

    def padded(rows: list[list[float]]) -> Any:
        return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows])

    names = ("advantages", "logprobs", "old_logprobs", "reference_logprobs")
    tensors = {name: padded([row[name] for row in step["responses"]]) for name in names}
    mask = padded([[1.0] * len(row) for row in step["rows"]])
    return {**step, **tensors, "gradient": padded(step["gradient"]), "mask": mask}
