"""Agent loop ``scapo`` for verl, which generates one response per prompt and rewards every token of the response.

The YAML file set in ``actor_rollout_ref.rollout.agent.agent_loop_config_path`` selects this agent loop and specifies
the ground truth and the settings of the reward (see examples/verl_scapo.yaml).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..base.errors import MissingExtra
from ..rewarding.batch import advantages_for_batch, load_reward, log_metrics
from ..rewarding.token_credit import Eos, Truncated
from .verl import FAULTY, image_id_of

try:
    import torch
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
except ImportError as error:  # verl's own metadata omit the packages that its agent loop imports
    raise MissingExtra("verl", f"the verl agent loop ({error})") from error


class ScapoOutput(AgentLoopOutput):  # type: ignore[misc, unused-ignore]
    """Response with a reward for each of its tokens.

    Attributes:
        token_rewards: Reward of each response token.
    """

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for verl's trainer. The field ``rm_scores`` contains a reward for every token instead of a
        single reward for the last token.
        """
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_rewards"), dtype=torch.float32)
        return fields


class ScapoAgentLoop(SingleTurnAgentLoop):  # type: ignore[misc, unused-ignore]
    """Single-turn generation with SCAPO's token rewards.

    Args:
        truth: Path of the ground truth file; see :meth:`PresenceOracle.load`.
        vocabulary: Name or path of the vocabulary; see :meth:`Vocabulary.load`.
        reward: Fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`.
        eos: Credit for the end-of-sequence token; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: Treatment of the last piece of a truncated response; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        kwargs: Additional arguments for verl's agent loop.
    """

    def __init__(
        self,
        *args: Any,
        truth: str,
        vocabulary: str = "coco80",
        reward: dict[str, Any] | None = None,
        eos: Eos = "zero",
        truncated: Truncated = "score",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        loaded = load_reward(truth, vocabulary, **dict(reward or {}))
        self._advantages = partial(advantages_for_batch, reward=loaded, eos=eos, truncated=truncated)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> ScapoOutput:
        """Generates and rewards one response. ``extra_info`` in the keyword arguments must contain the image id."""
        output = await super().run(sampling_params, **kwargs)
        return self.rewarded(output, kwargs.get("extra_info"))

    def rewarded(self, output: AgentLoopOutput, extra_info: Any) -> ScapoOutput:
        """Returns the output of verl's agent loop with a reward for every token.

        Args:
            output: Output of verl's own agent loop.
            extra_info: Field ``extra_info`` of the dataset row, which must contain ``image_id``.
        """
        advantages, columns = self._advantages([image_id_of(extra_info)], [output.response_ids], self.tokenizer)
        rewards = np.full_like(advantages[0], FAULTY) if columns.errors else advantages[0] + 0.0  # no other -0.0
        total = float(columns.total[0])
        given = {name: getattr(output, name) for name in output.model_fields_set}
        # verl computes no reward if one exists
        scored = ScapoOutput(**{**given, "reward_score": total}, token_rewards=rewards.tolist())
        scored.extra_fields["reward_extra_info"] = {"score": total, **log_metrics(columns)}
        return scored
