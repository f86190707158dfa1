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
from ..rewarding.batch import advantages_for_batch, log_metrics, reward_from_environment

try:
    import torch
    from swift.rewards import ORM, orms
    from swift.rlhf_trainers import GRPOTrainer
    from swift.trainers import TrainerFactory
except ImportError as error:
    raise InputError(f"the ms-swift adapter needs pip install 'ms-swift>=4.6' ({error})") from error

IMAGE_ID = "image_id"
"""Dataset column with the image id of each prompt."""

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
    """GRPOTrainer that uses subsentence rewards as token advantages, without group statistics."""

    def _postprocess_batch(self, samples: list[Any], batch_encoded_inputs: list[dict[str, Any]]) -> None:
        """Replaces ms-swift's advantages, which are equal for all tokens of a response, with SCAPO's token advantages.

        Args:
            samples: Encoded GRPOSamples with ``encoded["input_ids"]``, with ``encoded["labels"]`` (IGNORED for tokens
                that the policy did not generate), and with the dataset's columns in ``extra``.
            batch_encoded_inputs: Micro-batches of the samples, each with a ``grpo_batch``.

        Raises:
            InputError: If liger's loss is enabled.
        """
        if getattr(self, "use_liger_loss", False) or getattr(getattr(self, "args", None), "use_liger_kernel", False):
            raise InputError("use_liger_kernel averages the advantages over each response; switch it off")
        super()._postprocess_batch(samples, batch_encoded_inputs)
        mode = "train" if self.model.training else "eval"
        for chunk, encoded in zip(self.split_by_mini_batches(samples), batch_encoded_inputs, strict=True):
            batch = encoded["grpo_batch"]
            batch.advantages, metrics = token_advantages(chunk, batch.completion_mask, self.template.tokenizer)
            for name, value in metrics.items():
                self._metrics[mode][name].append(value)


def token_advantages(samples: list[Any], mask: torch.Tensor, tokenizer: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns the token advantages of a micro-batch, and metrics for the log.

    Args:
        samples: Encoded GRPOSamples of the n responses.
        mask: (n, T) mask that is True for generated tokens. In each row, the tokens are in the same order as in the
            sample.
        tokenizer: Tokenizer of the policy.

    Returns:
        (n, T) float32 advantages, which are 0 for tokens outside the mask, and a mapping from the names of the metrics
        to their values.

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
    return advantages, log_metrics(columns)


def _generated(sample: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    generated: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(sample.encoded["labels"]) != IGNORED
    return generated


orms["scapo"] = ScapoReward
TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.ScapoGRPOTrainer"
