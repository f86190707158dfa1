"""EasyR1: a batch reward function of one number per response, which EasyR1 writes on the last token.

For a credit per subsentence start EasyR1 by ``python -m scapo_eval.integrations.easyr1`` with the same arguments.

    python -m verl.trainer.main worker.reward.reward_type=batch \
        worker.reward.reward_function=examples/recipes/easyr1_reward.py:compute_score \
        'worker.reward.reward_function_kwargs={truth: truth.npz, vocabulary: dopa160}' \
        data.answer_key=image_id ...

EasyR1 hands over the response and the answer column; let that column hold the image id.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary

REWARD_NAME = "scapo"
REWARD_TYPE = "batch"


@cache
def load(truth: str, vocabulary: str, level: Any) -> SubsentenceReward:
    """Loaded once per process."""
    config = RewardConfig(level=level)
    return SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(truth), config, on_error="zero")


def compute_score(
    reward_inputs: list[dict[str, Any]], truth: str, vocabulary: str = "coco80", level: str = "cap"
) -> list[dict[str, float]]:
    """Rewards of responses.

    Args:
        reward_inputs: per response ``response`` and ``ground_truth`` (the image id).
        truth, vocabulary: files or names.
        level: ``cap`` and ``hal`` are the paper's response-level rewards, ``subsentence`` sums the pieces.
    """
    ids = [row["ground_truth"] for row in reward_inputs]
    results = load(truth, vocabulary, level)(ids, [row["response"] for row in reward_inputs])
    return [{"overall": r.total, "covered": float(r.covered), "hallucinated": float(r.hallucinated)} for r in results]
