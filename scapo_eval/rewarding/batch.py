"""Token advantages for your own training loop: it accepts generated token ids and returns one advantage per token."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.deprecation import warn_deprecated
from ..base.errors import InputError
from ..matching.vocabulary import Vocabulary
from ..truths.oracle import PresenceOracle
from .monitor import behavior_metrics, behavior_sums
from .reward import RewardColumns, RewardConfig, SubsentenceReward
from .token_credit import Eos, Truncated
from .tokens import decode_flat, ids_of

if TYPE_CHECKING:
    import torch

MOST_FAULTY = 64
"""How many faulty rows in a row end a training run of a library that scores row by row."""

_faulty_in_a_row = 0


def advantages_for_batch(
    image_ids: Sequence[object],
    token_ids: Any,
    tokenizer: Any,
    reward: SubsentenceReward,
    *,
    mask: Any = None,
    finished: Sequence[bool] | NDArray[np.bool_] | None = None,
    eos: Eos = "zero",
    truncated: Truncated = "score",
) -> tuple[NDArray[np.float32], RewardColumns]:
    """Computes SCAPO's token advantages of a batch of generated ids, and the rewards behind them.

    Args:
        image_ids: image id of each of the B responses, in any spelling.
        token_ids: (B, T) padded ids (array or tensor), or B lists of ids: generated tokens only, or with their
            prompts if ``mask`` marks the generated tokens.
        tokenizer: see :func:`scapo_eval.rewarding.tokens.decode_with_offsets`.
        reward: the reward that scores the responses.
        mask: (B, T), true where a token was generated. It is needed only if padding is not a special token; special
            tokens never get credit.
        finished: (B,) whether each response ended by itself. By default, a response is finished if a special token
            follows its text.
        eos: see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.

    Returns:
        Advantages, (B, T) float32: 0 for padding and special tokens, T the longest row; and the rewards of the
        responses, for :func:`log_metrics`.

    Raises:
        InputError: for faulty rows, unless the reward was made with ``on_error="zero"``.
    """
    ids, generated = _padded(token_ids, mask)
    indptr = np.append(0, np.cumsum(generated.sum(axis=1)))
    texts, spans = decode_flat(tokenizer, ids[generated], indptr)
    columns = reward.batch(image_ids, texts)
    if finished is None:
        last = np.maximum(spans.indptr[1:] - 1, 0)
        finished = (np.diff(spans.indptr) > 0) & (np.append(spans.start == spans.end, False)[last])
    advantages = np.zeros(ids.shape, dtype=np.float32)
    advantages[generated] = columns.flat_token_advantages(spans, eos=eos, truncated=truncated, finished=finished)[0]
    return advantages, columns


def rewards_for_batch(*args: Any, **kwargs: Any) -> NDArray[np.float32]:
    """Returns the first value of :func:`advantages_for_batch`. It is deprecated because it never returned rewards."""
    warn_deprecated("rewards_for_batch", instead="advantages_for_batch(...)[0]", removed_in="0.4.0")
    return advantages_for_batch(*args, **kwargs)[0]


def log_metrics(columns: RewardColumns) -> dict[str, float]:
    """Returns the metrics of a batch of rewards for a training log, under the names that every adapter uses.

    Returns:
        Means per response of ``scapo/reward`` (the sum over its pieces), ``scapo/generated``,
        ``scapo/hallucinated``, ``scapo/covered`` and ``scapo/subsentences``; ``scapo/empty`` and ``scapo/errors``,
        the shares of empty responses and of faulty rows; and what
        :func:`~scapo_eval.rewarding.monitor.behavior_metrics` shows of how responses change.
        Watch ``scapo/errors``: above 0, data and truth disagree.
    """
    n = max(len(columns), 1)
    sums = {
        "reward": columns.reward.sum(),
        "generated": columns.generated.sum(),
        "hallucinated": columns.hallucinated.sum(),
        "covered": columns.covered.sum(),
        "subsentences": len(columns.reward),
        "empty": columns.n_empty,
        "errors": columns.n_errors,
    }
    means = {name: float(value) / n for name, value in sums.items()}
    return {f"scapo/{name}": value for name, value in (means | behavior_metrics(behavior_sums(columns))).items()}


def row_metrics(columns: RewardColumns) -> dict[str, float]:
    """Returns :func:`log_metrics` of one response, for libraries that score row by row.

    Raises:
        InputError: if too many consecutive rows were faulty in this process, so that the ground truth must belong to
            another data set. (A batch without a good row raises its own error; see
            :class:`~scapo_eval.rewarding.reward.SubsentenceReward`.)
    """
    global _faulty_in_a_row
    _faulty_in_a_row = _faulty_in_a_row + 1 if columns.errors else 0
    if _faulty_in_a_row >= MOST_FAULTY:
        raise InputError(f"{MOST_FAULTY} rows in a row get no reward; the last: {columns.errors[0]}")
    return log_metrics(columns)


def load_reward(truth: str, vocabulary: str = "coco80", **settings: Any) -> SubsentenceReward:
    """Returns the reward for a ground ground truth file and a vocabulary, loaded once per process.

    A faulty row gets no reward and is counted, because it must not end a run on many machines (see
    :func:`log_metrics`).

    Args:
        truth: see :meth:`PresenceOracle.load`.
        vocabulary: see :meth:`Vocabulary.load`.
        settings: fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`; ``scenes`` are files.
    """
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return _load_reward(truth, vocabulary, **hashable)


@lru_cache(maxsize=8)
def _load_reward(truth: str, vocabulary: str, **settings: Any) -> SubsentenceReward:
    config = RewardConfig(**settings)
    return SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(truth), config, on_error="zero")


def reward_from_environment() -> SubsentenceReward:
    """Returns the reward that environment variables define, for libraries that load a plugin by its path.

    ``SCAPO_TRUTH`` and ``SCAPO_VOCABULARY`` (default ``coco80``) are files or names, ``SCAPO_REWARD`` a JSON object of
    the fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`.

    Raises:
        InputError: if ``SCAPO_TRUTH`` is not set, or ``SCAPO_REWARD`` is not a JSON object.
    """
    truth = os.environ.get("SCAPO_TRUTH")
    if not truth:
        raise InputError("set the environment variable SCAPO_TRUTH to the truth file")
    try:
        settings = json.loads(os.environ.get("SCAPO_REWARD") or "{}")
        return load_reward(truth, os.environ.get("SCAPO_VOCABULARY") or "coco80", **settings)
    except (json.JSONDecodeError, TypeError) as error:
        raise InputError(f"SCAPO_REWARD must be a JSON object of settings of the reward: {error}") from None


def _padded(token_ids: Any, mask: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the (B, T) ids, and a (B, T) mask of the generated ones."""
    ids, generated = _matrix(token_ids), _matrix(mask)
    if ids is None or ids.dtype.kind not in "iu":
        rows = [ids_of(k, row) for k, row in enumerate(token_ids)]
        ids, generated = _filled(rows, np.int64), _filled([np.ones(len(row)) for row in rows], np.bool_)
        if mask is not None:
            masks = [np.asarray(row.cpu() if hasattr(row, "cpu") else row).astype(bool) for row in mask]
            if list(map(len, masks)) != list(map(len, rows)):
                raise InputError("mask and token ids have different shapes")
            generated = _filled(masks, np.bool_)
    elif mask is None:
        generated = np.ones(ids.shape, dtype=bool)
    elif generated is None or generated.shape != ids.shape:
        raise InputError("mask and token ids have different shapes")
    return ids.astype(np.int64, copy=False), generated.astype(bool, copy=False)


def _matrix(values: Any) -> NDArray[Any] | None:
    """Returns a two-dimensional array or tensor as an array; None for anything else."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values) if getattr(values, "ndim", 0) == 2 else None


def _filled(rows: Sequence[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """Returns the rows as one array, zero after their ends."""
    filled = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=kind)
    for padded, row in zip(filled, rows, strict=True):
        padded[: len(row)] = row
    return filled


def compute_scapo_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns an advantage estimator of EasyR1 and SkyRL: the token rewards themselves, without any group statistics.

    Args:
        token_level_rewards: (B, T) reward of each token.
        response_mask: (B, T) 1 for tokens of the response.

    Returns:
        Advantages and returns, both (B, T).
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages
