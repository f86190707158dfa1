r"""OpenRLHF: a reward function of one number per response (no span credit: OpenRLHF has no hook for it).

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 python -m openrlhf.cli.train_ppo_ray \
        --reward.remote_url examples/recipes/openrlhf_reward.py \
        --data.label_key image_id --data.image_key images ...

OpenRLHF loads this file and calls ``reward_func(queries, prompts, labels, **kw)``; labels are what
``--data.label_key`` names, here the image id. Before 0.10.2, the options were ``--remote_rm_url`` and ``--label_key``.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any

import torch

from scapo_eval import InputError, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary

SHORTEST = 8
"""Least number of characters at the end of a prompt by which the end of the prompt is found in a query."""


@cache
def reward() -> SubsentenceReward:
    """Loaded once per process; level ``cap`` and ``hal`` are the paper's response-level rewards."""
    vocabulary = Vocabulary.load(os.environ.get("SCAPO_VOCABULARY", "coco80"))
    oracle = PresenceOracle.load(os.environ["SCAPO_TRUTH"])
    config = RewardConfig(level=os.environ.get("SCAPO_LEVEL", "cap"))  # type: ignore[arg-type]
    return SubsentenceReward(vocabulary, oracle, config, on_error="zero")


def response_of(query: str, prompt: str) -> str:
    """Returns the part of a query after its prompt.

    In a query, OpenRLHF repeats the placeholder of an image once for each of the image's tokens, and cuts off the
    beginning of long prompts. Therefore, the longest possible end of the prompt is searched for.
    """
    tail = next((prompt[k:] for k in range(len(prompt)) if prompt[k:] in query), "")
    if len(tail) < min(SHORTEST, len(prompt)):
        reason = f"the query does not contain the end of its prompt: {prompt[-80:]!r} is not in {query[:200]!r}"
        logging.getLogger(__name__).error(reason)  # OpenRLHF logs exceptions as mere information
        raise InputError(reason)
    return query.split(tail, prompt.count(tail))[-1] if tail else query


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_: Any) -> dict[str, Any]:
    """Rewards of responses.

    Args:
        queries: prompt and response in one string.
        prompts: the prompts alone.
        labels: image ids.
    """
    responses = [response_of(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
    columns = reward().batch(labels, responses)
    rewards = torch.tensor(columns.total.tolist(), dtype=torch.float32)
    counts = {name: torch.tensor(getattr(columns, name).tolist()) for name in ("covered", "hallucinated")}
    return {"rewards": rewards, "scores": rewards, "extra_logs": counts}
