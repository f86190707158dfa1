"""SCAPO in TRL: a vision-language (or text) model, training prompts, a truth.

    # In a clone of the repository
    pip install '.[trl]'
    python examples/trl_scapo.py --model Qwen/Qwen2.5-VL-7B-Instruct --prompts prompts.jsonl \
        --truth dopa_train.npz --vocabulary dopa160 --output runs/scapo

Prompts are JSON Lines with ``image`` (a file), ``image_id`` and ``prompt``. Further GRPOConfig fields follow
as ``name=value``: ``per_device_train_batch_size=2 gradient_accumulation_steps=64 use_vllm=true``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from datasets import Dataset, Image

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.files.json_text import iter_records
from scapo_eval.integrations.trl import ScapoTrainer, scapo_config


def prompts(path: str) -> Dataset:
    """Reads the training prompts. Images are opened when they are used."""
    rows = [record for _, record in iter_records(path)]
    columns: dict[str, list[Any]] = {
        "prompt": [[{"role": "user", "content": row["prompt"]}] for row in rows],
        "image_id": [str(row["image_id"]) for row in rows],
    }
    if "image" not in rows[0]:
        return Dataset.from_dict(columns)
    columns["image"] = [str(Path(path).parent / row["image"]) for row in rows]
    return Dataset.from_dict(columns).cast_column("image", Image())


def setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value as JSON where it is JSON."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--vocabulary", default="coco80")
    parser.add_argument("--eos", choices=["zero", "last", "own"], default="zero")
    parser.add_argument("--output", default="runs/scapo")
    parser.add_argument("settings", nargs="*", type=setting)
    options = parser.parse_args()

    reward = SubsentenceReward(
        Vocabulary.load(options.vocabulary), PresenceOracle.load(options.truth), RewardConfig(), on_error="zero"
    )
    print(reward.signature)
    trainer = ScapoTrainer(
        reward=reward,
        eos=options.eos,
        model=options.model,
        args=scapo_config(output_dir=options.output, **dict(options.settings)),
        train_dataset=prompts(options.prompts),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
