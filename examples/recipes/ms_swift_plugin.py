"""ms-swift (4.x): a reward class of one number per response (no span credit: GRPO there has no hook for it).

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 swift rlhf --rlhf_type grpo \
        --external_plugins examples/recipes/ms_swift_plugin.py --reward_funcs scapo ...

The data set needs a column ``image_id``: ms-swift hands every column of the data set to the reward.
"""

from __future__ import annotations

import os
from typing import Any

from swift.rewards import ORM, orms

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary


class ScapoReward(ORM):  # type: ignore[misc]
    """Level ``cap`` and ``hal`` are the paper's response-level rewards, ``subsentence`` sums the pieces."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        vocabulary = Vocabulary.load(os.environ.get("SCAPO_VOCABULARY", "coco80"))
        oracle = PresenceOracle.load(os.environ["SCAPO_TRUTH"])
        config = RewardConfig(level=os.environ.get("SCAPO_LEVEL", "cap"))  # type: ignore[arg-type]
        self.reward = SubsentenceReward(vocabulary, oracle, config, on_error="zero")

    def __call__(self, completions: list[str], image_id: list[str], **_: Any) -> list[float]:
        """Rewards of completions; further columns of the data set are not used."""
        total: list[float] = self.reward.batch(image_id, completions).total.tolist()
        return total


orms["scapo"] = ScapoReward
