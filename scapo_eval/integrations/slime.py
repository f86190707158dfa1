r"""slime adapter with two functions: a reward function whose rewards include token credits, and an advantage function
that extracts these credits.

The command line specifies both functions and disables the normalization of rewards within groups::

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 python train.py ... \
        --custom-rm-path scapo_eval.integrations.slime.reward --disable-rewards-normalization \
        --custom-advantage-function-path scapo_eval.integrations.slime.advantages

The ``metadata`` of each sample must contain ``image_id``. slime passes only known fields of a sample to a training
process. The token credits are therefore stored in the reward itself, which is a :class:`CreditedReward`, a subclass of
float.
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
"""Key in a sample's ``metadata`` for the image id."""


class CreditedReward(float):
    """Reward of a response (the sum of the rewards of its pieces), with the credit of each token as an attribute.

    Attributes:
        tokens: (T,) credit of each response token.
    """

    tokens: list[float]

    def __new__(cls, total: float, tokens: list[float]) -> CreditedReward:
        """Creates a float that has the token credits as an attribute."""
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
    """Computes the reward of one sample. slime calls this function as its custom reward function.

    Args:
        args: Arguments of slime, with the name of the policy's tokenizer in ``hf_checkpoint``.
        sample: Sample with ``tokens``, ``response_length``, ``status`` and ``metadata``. The function adds the log
            metrics to ``metadata``.

    Returns:
        The reward of the response with its token credits.

    Raises:
        InputError: If the image id is missing, or too many consecutive samples are invalid.
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
    """Sets the advantages of tokens to their token credits, without group statistics. slime calls this function as its
    custom advantage function.

    Args:
        args: Arguments of slime, which are not used.
        rollout_data: Data with the keys ``rewards`` (values of type :class:`CreditedReward`) and ``kl`` (one (T_i,)
            tensor per sample, with one value per response token). The function adds ``advantages`` and ``returns``.

    Raises:
        InputError: If the rewards contain no credits, or sequences are split over a context-parallel group.
    """
    tensors = []
    for credit, like in zip(rollout_data["rewards"], rollout_data["kl"], strict=True):
        if not isinstance(credit, CreditedReward):
            reason = "--custom-rm-path scapo_eval.integrations.slime.reward and --disable-rewards-normalization"
            raise InputError(f"the rewards contain no credit per token: set {reason}")
        if len(credit.tokens) != len(like):
            reason = f"{len(credit.tokens)} credits for {len(like)} tokens"
            raise InputError(f"{reason}: sequences split by context parallelism are not supported")
        tensors.append(torch.tensor(credit.tokens, dtype=torch.float32, device=like.device))
    rollout_data["advantages"] = rollout_data["returns"] = tensors
