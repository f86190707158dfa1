"""OpenRLHF: a reward function of one number per response (no span credit: OpenRLHF has no hook for it).

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 python -m openrlhf.cli.train_ppo_ray \
        --remote_rm_url examples/recipes/openrlhf_reward.py --label_key image_id ...

OpenRLHF loads this file and calls ``reward_func(queries, prompts, labels, **kw)``; labels are what
``--label_key`` names, here the image id.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary


@cache
def reward() -> SubsentenceReward:
    """Loaded once per process; level ``cap`` and ``hal`` are the paper's response-level rewards."""
    vocabulary = Vocabulary.load(os.environ.get("SCAPO_VOCABULARY", "coco80"))
    oracle = PresenceOracle.load(os.environ["SCAPO_TRUTH"])
    config = RewardConfig(level=os.environ.get("SCAPO_LEVEL", "cap"))  # type: ignore[arg-type]
    return SubsentenceReward(vocabulary, oracle, config, on_error="zero")


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_: Any) -> dict[str, Any]:
    """Rewards of responses.

    Args:
        queries: prompt and response in one string.
        prompts: the prompts alone.
        labels: image ids.
    """
    responses = [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]
    columns = reward().batch(labels, responses)
    rewards = torch.tensor(columns.total.tolist(), dtype=torch.float32)
    counts = {name: torch.tensor(getattr(columns, name).tolist()) for name in ("covered", "hallucinated")}
    return {"rewards": rewards, "scores": rewards, "extra_logs": counts}
