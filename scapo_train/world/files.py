"""Files for running the trainer in a small world, in the same formats as for any other data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scapo_eval import PresenceOracle
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json

from ..config import Config, Data, Model, Optim, Rollout, Run, to_toml
from . import telling
from .language import PROMPT, vocabulary
from .pictures import NOUNS, World, draw_scene, render

SPARSE = ("bottle", "table", "tree", "dog", "car", "boat")
"""Nouns in the sparse ground truth. It contains only presences of these nouns and no information on other nouns, as in
COCO. Of the nouns beyond the first 16, those that share a shape with these nouns are also in it.
"""

NOISY = (1, 3, 5)
"""Shares of wrong cells in the noisy ground truths, in percent."""


def write_world(world: World, folder: Path, *, train: int, evaluation: int, seed: int) -> None:
    """Draws the pictures, and writes the prompts, the ground truths, the vocabulary and the settings of a run.

    Args:
        world: Rules for drawing the pictures.
        folder: Output folder. The following files are written to it: ``images/``, ``train.jsonl``,
            ``evaluation.jsonl``, ``truth.npz``, ``truth_sparse.json``, ``truth_noisy_1.npz`` (and likewise for 3 and
            5), ``vocabulary.yaml``, ``scenes.jsonl`` (only in a telling world) and ``world.toml``. ``world.toml`` is
            written last.
        train: Number of pictures for training. None of these pictures is used in pretraining.
        evaluation: Number of held-out pictures for evaluation. None of these pictures is used in pretraining.
        seed: Seed for the pictures.
    """
    from PIL import Image

    random = np.random.default_rng([seed, 2])
    (folder / "images").mkdir(parents=True, exist_ok=True)
    objects: dict[str, list[str]] = {}
    graphs = []
    for name, first, number in (("train", 1, train), ("evaluation", train + 1, evaluation)):
        lines = []
        for k in range(first, first + number):
            scene = draw_scene(world, random)
            objects[str(k)] = sorted({NOUNS[noun] for noun in scene.nouns})
            if world.telling:
                graphs.append(dump_json(telling.scene_graph(world, scene, k)))
            Image.fromarray(render(world, scene, random)).save(folder / f"images/{k}.png")
            lines.append(dump_json({"image": f"images/{k}.png", "image_id": k, "prompt": PROMPT}))
        with atomic_write(folder / f"{name}.jsonl") as stream:
            stream.write(b"\n".join(lines) + b"\n")
    words = vocabulary(world)
    truth = PresenceOracle.from_objects(objects, labels=world.names, source="world")
    truth.restricted_to(words).save(folder / "truth.npz")
    few = [name for k, name in enumerate(world.names) if NOUNS[k % 16] in SPARSE]
    sparse = {image: [name for name in names if name in few] for image, names in objects.items()}
    PresenceOracle.from_objects(sparse, labels=few, source="world").save(folder / "truth_sparse.json")
    for percent in NOISY:
        wrong = np.random.default_rng([seed, 4, percent]).random((len(objects), world.words)) < percent / 100
        told = {
            image: [noun for noun, other in zip(world.names, row.tolist(), strict=True) if (noun in names) != other]
            for (image, names), row in zip(objects.items(), wrong, strict=True)
        }
        noisy = PresenceOracle.from_objects(told, labels=world.names, source="world")
        noisy.restricted_to(words).save(folder / f"truth_noisy_{percent}.npz")
    if world.telling:
        with atomic_write(folder / "scenes.jsonl") as stream:
            stream.write(b"\n".join(graphs) + b"\n")
    with atomic_write(folder / "vocabulary.yaml") as stream:
        stream.write(json.dumps(words.document(), indent=1).encode())  # JSON is a subset of YAML
    with atomic_write(folder / "world.toml") as stream:
        stream.write(to_toml(settings(world, folder)).encode())


def settings(world: World, folder: Path) -> Config:
    """Returns the settings that all runs in a world share: those of the paper, adapted to the size of the world. The
    paths of files are absolute, so that an experiment can be continued from another folder.
    """
    folder = folder.absolute()
    return Config(
        run=Run(steps=40, save_every=0, evaluate_every=10, samples_every=20),
        model=Model(path=str(folder / "model"), dtype="float32", gradient_checkpointing=False),
        data=Data(
            train=str(folder / "train.jsonl"),
            oracle=str(folder / "truth.npz"),
            vocabulary=str(folder / "vocabulary.yaml"),
            prompts_per_step=16,
            evaluation=str(folder / "evaluation.jsonl"),
            evaluation_oracle=str(folder / "truth.npz"),
            evaluation_temperature=1.0,
        ),
        rollout=Rollout(group=8, max_new_tokens=40 * world.objects[1], prompts_per_batch=128),
        optim=Optim(lr=1e-4),
    )


def read_ids(path: Path) -> Sequence[tuple[str, str]]:
    """Reads a prompts file and returns the pairs (image file, image id) in it."""
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(str(path.parent / record["image"]), str(record["image_id"])) for record in records]
