"""slime: a reward function whose rewards carry a credit per token, and the advantage function that unpacks them.

Both are named on the command line; rewards must not be normalized over their group::

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 python train.py ... \
        --custom-rm-path scapo_eval.integrations.slime.reward --disable-rewards-normalization \
        --custom-advantage-function-path scapo_eval.integrations.slime.advantages

Each sample's ``metadata`` needs ``image_id``. slime hands a training process only the fields that it knows, so the
token credits travel inside the reward itself: :class:`CreditedReward` is a float.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..base.errors import InputError, MissingExtra
from ..rewarding.batch import advantages_for_batch, reward_from_environment, row_metrics

try:
    import torch
except ImportError as error:
    raise MissingExtra("train", "the slime adapter") from error

IMAGE_ID = "image_id"
"""The key of a sample's ``metadata`` that names its image."""


class CreditedReward(float):
    """A response's reward, the sum over its pieces, with the credit of each of its tokens.

    Attributes:
        tokens: (T,) credit of each response token.
    """

    tokens: list[float]

    def __new__(cls, total: float, tokens: list[float]) -> CreditedReward:
        """Returns a float with something to carry."""
        made = super().__new__(cls, total)
        made.tokens = tokens
        return made

    def __reduce__(self) -> tuple[type[CreditedReward], tuple[float, list[float]]]:
        return type(self), (float(self), self.tokens)


@lru_cache(maxsize=2)
def _tokenizer(path: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=True)


async def reward(args: Any, sample: Any, **_: Any) -> CreditedReward:
    """Computes slime's custom reward: the reward of one sample.

    Args:
        args: slime's arguments; ``hf_checkpoint`` is the policy's tokenizer.
        sample: with ``tokens``, ``response_length``, ``status`` and ``metadata``, where the log metrics are put.

    Raises:
        InputError: if there is no image id, or too many consecutive rows are faulty.
    """
    image = (sample.metadata or {}).get(IMAGE_ID)
    if image is None:
        raise InputError(f"missing key '{IMAGE_ID}' in the sample's metadata")
    ids = sample.tokens[len(sample.tokens) - sample.response_length :]
    finished = getattr(sample.status, "value", sample.status) != "truncated"
    tokenizer = _tokenizer(args.hf_checkpoint)
    credit, columns = advantages_for_batch([image], [ids], tokenizer, reward_from_environment(), finished=[finished])
    sample.metadata.update(row_metrics(columns))
    return CreditedReward(float(columns.total[0]), credit[0].tolist())


def advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """Computes slime's custom advantages: the token credits themselves, without any group statistics.

    Args:
        args: not used.
        rollout_data: ``rewards`` are Credits, ``kl`` the (T_i,) tensors of the samples' response tokens. Gets
            ``advantages`` and ``returns``.

    Raises:
        InputError: for rewards that carry no credit, or sequences split over a context-parallel group.
    """
    tensors = []
    for credit, like in zip(rollout_data["rewards"], rollout_data["kl"], strict=True):
        if not isinstance(credit, CreditedReward):
            reason = "--custom-rm-path scapo_eval.integrations.slime.reward and --disable-rewards-normalization"
            raise InputError(f"the rewards carry no credit per token: set {reason}")
        if len(credit.tokens) != len(like):
            reason = f"{len(credit.tokens)} credits for {len(like)} tokens"
            raise InputError(f"{reason}: sequences split by context parallelism are not supported")
        tensors.append(torch.tensor(credit.tokens, dtype=torch.float32, device=like.device))
    rollout_data["advantages"] = rollout_data["returns"] = tensors
