"""ms-swift (4.6): a GRPO trainer with a credit per subsentence.

ms-swift's GRPO expands one advantage per response to ``grpo_batch.advantages`` (B, T); :class:`ScapoGRPOTrainer` fills
in its own. Importing this module puts it in the place of ms-swift's trainer and registers the reward ``scapo``
(the sum of a response's pieces, which ms-swift logs)::

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
"""The dataset column that names each prompt's image."""

IGNORED = -100
"""Label of a token that was not generated."""


class ScapoReward(ORM):  # type: ignore[misc, unused-ignore]
    """The sum of the pieces' rewards per response, for ms-swift's log; with level ``cap`` or ``hal`` those rewards."""

    def __call__(self, completions: list[str], image_id: list[Any] | None = None, **_: Any) -> list[float]:
        """Rewards of completions; further columns of the data set are not used."""
        if image_id is None:
            raise InputError(f"missing column '{IMAGE_ID}' in the dataset")
        total: list[float] = reward_from_environment().batch(image_id, completions).total.tolist()
        return total


class ScapoGRPOTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """GRPOTrainer whose advantages are the subsentence rewards, per token and without group statistics."""

    def _postprocess_batch(self, samples: list[Any], batch_encoded_inputs: list[dict[str, Any]]) -> None:
        """Puts the token advantages in the place of ms-swift's.

        Args:
            samples: GRPOSamples, encoded: ``encoded["input_ids"]`` and ``["labels"]`` of each, which is IGNORED
                outside of what was generated; the dataset's columns in ``extra``.
            batch_encoded_inputs: their micro-batches, each with its ``grpo_batch``.

        Raises:
            InputError: if liger's loss is on.
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
    """Returns the advantages of a micro-batch.

    Args:
        samples: n encoded GRPOSamples.
        mask: (n, T) true for generated tokens, in the order of each sample's.
        tokenizer: the policy's.

    Returns:
        (n, T) float32, 0 outside of the mask; and what is to be logged.

    Raises:
        InputError: if there is no image id, or a mask of another number of tokens than were generated.
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
