"""Adapter for verl 0.9: a response-level reward function and the advantage estimator ``scapo``.

verl requests one number per response from a reward function, and assigns this number to the last token.
:func:`compute_score` alone is therefore NOT SCAPO. Credit per subsentence requires two components: the agent loop of
:mod:`scapo_eval.integrations.verl_agent`, which rewards every token, and the estimator ``scapo``, which uses these
rewards as advantages unchanged. The estimator is registered when verl is imported (entry point group ``verl.plugins``).
"""

from __future__ import annotations

from typing import Any

from ..base.errors import InputError, MissingExtra
from ..rewarding.batch import load_reward, log_metrics

try:
    import torch
    from verl.trainer.ppo.core_algos import register_adv_est
except ImportError as error:
    raise MissingExtra("verl", "the verl adapter") from error

IMAGE_ID = "image_id"
"""Key in ``extra_info`` for the image id of each prompt."""

FAULTY = -0.0
"""Reward of each token in a faulty row. Its sign bit tells the estimator, which gets only rewards, about the fault. An
error in the agent loop would not end the run, because verl only omits the group.
"""


def image_id_of(extra_info: Any) -> object:
    """Returns the image id in a row of the dataset.

    Raises:
        InputError: If the row has no image id.
    """
    if not isinstance(extra_info, dict) or extra_info.get(IMAGE_ID) is None:
        given = ", ".join(extra_info) if isinstance(extra_info, dict) else type(extra_info).__name__
        raise InputError(f"missing key '{IMAGE_ID}' in extra_info (found: {given})")
    image: object = extra_info[IMAGE_ID]
    return image


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    *,
    truth: str,
    vocabulary: str = "coco80",
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **settings: Any,
) -> dict[str, float]:
    """Computes verl's custom reward, which is ONE number per response. By default, the reward of a response is the sum
    of the rewards of its pieces.

    To use this reward function, set ``reward.custom_reward_function.path=pkg://scapo_eval.integrations.verl``, and set
    ``truth``, ``vocabulary`` and the fields of RewardConfig under ``reward.custom_reward_function.reward_kwargs``. With
    ``level: hal`` or ``cap``, the result is the response-level reward of the paper's baselines. Other arguments, which
    verl passes for reward models, are ignored.

    Returns:
        A mapping with the ``score`` and with the metrics of :func:`~scapo_eval.rewarding.batch.log_metrics`, which verl
        logs in validation only. A faulty row has the score 0.
    """
    columns = load_reward(truth, vocabulary, **settings).batch([image_id_of(extra_info)], [solution_str])
    return {"score": float(columns.total[0]), **log_metrics(columns)}


def compute_scapo_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any = None, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the advantages of the estimator ``scapo``, which are the token rewards without group statistics.

    Args:
        token_level_rewards: (B, T) reward of each token.
        response_mask: (B, T) mask, which is 1 for tokens of the response and 0 for padding.
        index: (B,) ids of the prompts.
        config: Configuration from verl, which is not used.

    Returns:
        Advantages and returns, both of shape (B, T).

    Raises:
        InputError: If all rewards are on the last tokens of the responses, which means that the agent loop ``scapo`` is
            not used, or if all rows of several prompts are faulty, which means that the ground truth belongs to another
            data set.
    """
    faulty = ((token_level_rewards == 0) & torch.signbit(token_level_rewards) | (response_mask == 0)).all(dim=1)
    if index is not None and len(set(index)) > 1 and faulty.all() and response_mask.any():
        raise InputError(
            f"none of the {len(faulty)} rows in the batch has a reward, because the ground truth does not contain "
            "their images; the workers' logs name the image ids"
        )
    positions = torch.arange(response_mask.shape[1], device=response_mask.device)
    last = (positions * response_mask.bool()).amax(dim=1, keepdim=True)
    # a response with a single token is not evidence, because this token is also the last one
    rewarded = ((token_level_rewards * response_mask) != 0) & (response_mask.sum(dim=1, keepdim=True) > 1)
    if rewarded.any() and not (rewarded & (positions < last)).any():
        raise InputError(
            "adv_estimator=scapo found rewards on last tokens only: set trainer.use_v1=True and, under "
            "actor_rollout_ref.rollout.agent, default_agent_loop=scapo and agent_loop_config_path "
            "(docs/integrations.md)"
        )
    advantages = token_level_rewards * response_mask
    return advantages, advantages


register_adv_est("scapo")(compute_scapo_advantage)
