"""SkyRL adapter with two components: a generator that adds a reward to every token, and the advantage estimator
``scapo``.

SkyRL accepts ``rewards: list[list[float]]`` with one value per response token, but its own estimators sum the values of
a response. :class:`ScapoGenerator` wraps any generator, and the estimator passes the rewards on unchanged::

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            own = super().get_generator(cfg, tokenizer, inference_engine_client)
            return ScapoGenerator(own, tokenizer, load_reward("truth.npz", "dopa160"))

The run needs the setting ``trainer.algorithm.advantage_estimator=scapo``, and the ``env_extras`` of each row must
contain ``image_id``.
"""

from __future__ import annotations

from typing import Any

from ..base.errors import InputError
from ..rewarding.batch import advantages_for_batch, compute_scapo_advantage, log_metrics
from ..rewarding.reward import SubsentenceReward
from ..rewarding.token_credit import Eos, Truncated

try:
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
    from skyrl.train.generators.base import GeneratorInterface
except ImportError as error:
    raise InputError(f"the SkyRL adapter needs SkyRL (github.com/NovaSky-AI/SkyRL): {error}") from error

IMAGE_ID = "image_id"
"""Key in ``env_extras`` for the image id of each prompt."""


class ScapoGenerator(GeneratorInterface):  # type: ignore[misc, unused-ignore]
    """Generator that adds SCAPO's token rewards to the responses of another generator.

    Args:
        generator: Generator that samples the responses.
        tokenizer: Tokenizer of the policy.
        reward: Reward with which the responses are scored.
        eos: Credit of the end-of-sequence token; see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: Treatment of the last piece of a truncated response; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
    """

    def __init__(
        self,
        generator: Any,
        tokenizer: Any,
        reward: SubsentenceReward,
        *,
        eos: Eos = "zero",
        truncated: Truncated = "score",
    ) -> None:
        self.generator = generator
        self.tokenizer = tokenizer
        self.reward = reward
        self.eos: Eos = eos
        self.truncated: Truncated = truncated

    async def generate(self, input_batch: Any) -> Any:
        """Generates responses and returns a GeneratorOutput with one reward per response token in ``rewards``.

        Raises:
            InputError: If an image id is missing, or a prompt has several outputs, as in step-wise training.
        """
        output = await self.generator.generate(input_batch)
        ids = output["response_ids"]
        extras = input_batch.get("env_extras") or []
        if len(extras) != len(ids):
            raise InputError(f"{len(ids)} responses for {len(extras)} env_extras; step-wise training is not supported")
        if any(not row or row.get(IMAGE_ID) is None for row in extras):
            raise InputError(f"missing key '{IMAGE_ID}' in env_extras")
        reasons = output.get("stop_reasons")
        advantages, columns = advantages_for_batch(
            [row[IMAGE_ID] for row in extras],
            ids,
            self.tokenizer,
            self.reward,
            mask=output["loss_masks"],
            finished=None if reasons is None else [reason != "length" for reason in reasons],
            eos=self.eos,
            truncated=self.truncated,
        )
        rewards = [row[: len(tokens)].tolist() for row, tokens in zip(advantages, ids, strict=True)]
        metrics = {**(output.get("rollout_metrics") or {}), **log_metrics(columns)}
        return {**output, "rewards": rewards, "rollout_metrics": metrics}


register_advantage_estimator("scapo")(compute_scapo_advantage)
