"""Writes ``step.json``: one training step as numbers, for every trainer that claims to take it.

The credit of each piece is written down by hand from Eq. 1 of the paper; loss and gradient are Eq. 2 in plain Python.
Nothing of the project is imported, so a trainer that agrees with the file agrees with the paper. Tokens are those of
``scapo_eval.conformance.tiny_tokenizer``: a word with the blank in front of it, a mark, or the end.

    python tests/golden/step/write.py
"""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

CLIP, BETA = 0.2, 0.01
TRUTH = {"1": ["dog", "tree"], "2": ["cat"], "3": ["dog", "cat", "car", "tree"], "4": ["person"]}
LABELS = ["dog", "cat", "car", "tree", "person"]
WORDS = {"dog": ["dog"], "cat": ["cat"], "car": ["car"], "tree": ["tree"], "person": ["man"]}

END = "<|im_end|>"
STEP = [  # image, then each piece with its credit: +1 new and supported, -1 hallucinated, 0 repeated, -0.1 no label
    ("1", [("A dog is near the tree.", 1.0), (" A cat is in the grass.", -1.0), (" The street is old.", -0.1)], True),
    ("2", [("A small cat is on a table.", 1.0), (" The cat is red and old and small.", 0.0)], True),
    ("3", [("A car and a dog are on the street.", 1.0), (" A man is near a tree", -1.0)], False),  # cut off by a limit
]


def make() -> dict[str, object]:
    """Returns the step."""
    chance = random.Random(20261124)
    rows = []
    for image, pieces, finished in STEP:
        tokens, advantages = list[str](), list[float]()
        for text, credit in pieces:
            parts = re.findall(r" ?\w+|\.", text)
            tokens += parts
            advantages += [credit] * len(parts)
        if finished:  # the end belongs to no piece
            tokens.append(END)
            advantages.append(0.0)
        policy = [round(-chance.uniform(0.1, 3.0), 6) for _ in tokens]
        old = [round(value + chance.gauss(0, 0.25), 6) for value in policy]
        reference = [round(value + chance.gauss(0, 0.5), 6) for value in policy]
        text = "".join(text for text, _ in pieces)
        rows.append(
            {"image_id": image, "text": text, "finished": finished, "tokens": tokens, "advantages": advantages,
             "logprobs": policy, "old_logprobs": old, "reference_logprobs": reference}
        )  # fmt: skip
    n = sum(len(row["tokens"]) for row in rows)
    losses, gradients = list[float](), list[list[float]]()
    for row in rows:
        gradient = []
        numbers = (row["logprobs"], row["old_logprobs"], row["reference_logprobs"], row["advantages"])
        for new, before, start, credit in zip(*numbers, strict=True):
            ratio = math.exp(new - before)
            surrogate = min(ratio * credit, min(max(ratio, 1 - CLIP), 1 + CLIP) * credit)
            kl = math.exp(start - new) - 1 - (start - new)
            losses.append((-surrogate + BETA * kl) / n)
            follows = ratio * credit if surrogate == ratio * credit else 0.0
            gradient.append((-follows + BETA * (1 - math.exp(start - new))) / n)
        gradients.append(gradient)
    return {
        "what": "SCAPO, Eq. 1 and 2: r_g 1, r_rep 0, r_h 1, r_reg 0.1; clip 0.2, KL k3 times 0.01, mean over tokens",
        "truth": {"objects": TRUTH, "labels": LABELS},
        "vocabulary": {"name": "tiny", "labels": {label: {"aliases": words} for label, words in WORDS.items()}},
        "clip": CLIP,
        "kl_weight": BETA,
        "responses": rows,
        "loss": math.fsum(losses),
        "gradient": gradients,
        "gradient_norm": math.sqrt(math.fsum(value**2 for row in gradients for value in row)),
    }  # fmt: skip


if __name__ == "__main__":
    Path(__file__).with_name("step.json").write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
