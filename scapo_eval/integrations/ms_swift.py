r"""Adapter for ms-swift 4.6: a GRPO trainer that assigns credit to each subsentence.

ms-swift's GRPO trainer computes one advantage per response and expands the advantages to the (B, T) array
``grpo_batch.advantages``. :class:`ScapoGRPOTrainer` replaces the values of this array. Importing this module replaces
ms-swift's trainer and registers the reward ``scapo``, the sum of the rewards of a response's pieces. This reward is
only logged::

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 swift rlhf --rlhf_type grpo \
        --external_plugins examples/recipes/ms_swift_plugin.py --reward_funcs scapo --loss_type dapo ...

The data set needs a column ``image_id``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import InputError
from ..rewarding.batch import advantages_for_batch, log_sums, metrics_of_sums, reward_from_environment
from ..rewarding.reward import RewardColumns

try:
    import torch
    from accelerate.utils import gather_object
    from swift.rewards import ORM, orms
    from swift.rlhf_trainers import GRPOTrainer
    from swift.trainers import TrainerFactory
except ImportError as error:
    raise InputError(f"the ms-swift adapter needs pip install 'ms-swift>=4.6' ({error})") from error

IMAGE_ID = "image_id"
"""Dataset column with the image id of each prompt."""

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo")
"""Loss types of ms-swift that multiply the ratio of each token by its advantage."""

IGNORED = -100
"""Label of tokens that were not generated."""


class ScapoReward(ORM):  # type: ignore[misc, unused-ignore]
    """Response-level reward for ms-swift's log: the sum of the rewards of a response's pieces. With level ``cap`` or
    ``hal``, the logged value is the response-level reward of this level.
    """

    def __call__(self, completions: list[str], image_id: list[Any] | None = None, **_: Any) -> list[float]:
        """Returns one reward per completion. Columns of the data set other than ``image_id`` are ignored."""
        if image_id is None:
            raise InputError(f"missing column '{IMAGE_ID}' in the dataset")
        total: list[float] = reward_from_environment().batch(image_id, completions).total.tolist()
        return total


class ScapoGRPOTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """GRPOTrainer that uses subsentence rewards as token advantages, without group statistics.

    Raises:
        InputError: If a setting would discard or change the advantages of single tokens.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_traps(kwargs["args"])
        super().__init__(*args, **kwargs)

    def _postprocess_batch(self, samples: list[Any], batch_encoded_inputs: list[dict[str, Any]]) -> None:
        """Replaces ms-swift's advantages, which are equal for all tokens of a response, with SCAPO's token advantages.

        Args:
            samples: Encoded GRPOSamples with ``encoded["input_ids"]``, with ``encoded["labels"]`` (IGNORED for tokens
                that the policy did not generate), and with the dataset's columns in ``extra``.
            batch_encoded_inputs: Micro-batches of the samples, each with a ``grpo_batch``.
        """
        super()._postprocess_batch(samples, batch_encoded_inputs)
        sums = []
        for chunk, encoded in zip(self.split_by_mini_batches(samples), batch_encoded_inputs, strict=True):
            batch = encoded["grpo_batch"]
            batch.advantages, columns = token_advantages(chunk, batch.completion_mask, self.template.tokenizer)
            sums.append(log_sums(columns))
        mode = "train" if self.model.training else "eval"
        for name, value in metrics_of_sums(gather_object(sums)).items():
            self._metrics[mode][name].append(value)


def _refuse_traps(args: Any) -> None:
    """Rejects settings that would make ms-swift discard or change the token credits. A release of ms-swift may lack a
    setting.
    """
    for name, is_safe, reason in (
        ("use_liger_kernel", lambda on: not on, "averages the advantages over each response; switch it off"),
        ("loss_type", LOSSES.__contains__, f"changes the token advantages; use one of {', '.join(LOSSES)}"),
        ("importance_sampling_level", "token".__eq__, "gives all tokens of a response one ratio; set it to token"),
        (
            "kl_in_reward",
            lambda on: not (on and args.beta),
            "takes the KL term out of the loss and adds it to the rewards, which are not used; set it to false",
        ),
        (
            "off_policy_sequence_mask_delta",
            lambda delta: delta is None,
            "omits responses by the advantage of the whole response; do not set it",
        ),
    ):
        if hasattr(args, name) and not is_safe(value := getattr(args, name)):
            raise InputError(f"{name}={value} {reason}")


def token_advantages(samples: list[Any], mask: torch.Tensor, tokenizer: Any) -> tuple[torch.Tensor, RewardColumns]:
    """Returns the token advantages of a micro-batch, and the rewards of its responses.

    Args:
        samples: Encoded GRPOSamples of the n responses.
        mask: (n, T) mask that is True for generated tokens. In each row, the tokens are in the same order as in the
            sample.
        tokenizer: Tokenizer of the policy.

    Returns:
        (n, T) float32 advantages, which are 0 for tokens outside the mask, and the rewards of the n responses.

    Raises:
        InputError: If an image id is missing, or the numbers of generated tokens in the mask and in the samples differ.
    """
    if any(sample.extra.get(IMAGE_ID) is None for sample in samples):
        raise InputError(f"missing column '{IMAGE_ID}' in the dataset")
    ids = [np.asarray(sample.encoded["input_ids"])[_generated(sample)] for sample in samples]
    mask = mask.bool()
    if mask.sum(dim=1).tolist() != [len(tokens) for tokens in ids]:
        raise InputError("completion_mask and the samples' labels differ in the number of generated tokens")
    padded, columns = advantages_for_batch(
        [sample.extra[IMAGE_ID] for sample in samples],
        ids,
        tokenizer,
        reward_from_environment(),
        finished=[not sample.is_truncated for sample in samples],
    )
    advantages = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    flat = [row[: len(tokens)] for row, tokens in zip(padded, ids, strict=True)]
    advantages[mask] = torch.from_numpy(np.concatenate(flat)).to(mask.device)
    return advantages, columns


def _generated(sample: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    generated: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(sample.encoded["labels"]) != IGNORED
    return generated


orms["scapo"] = ScapoReward
TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.ScapoGRPOTrainer"
