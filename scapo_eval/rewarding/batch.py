"""Token advantages for custom training loops, computed from generated token ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
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
"""Number of consecutive faulty rows after which a function that scores rows or groups of one image raises an error."""

_BEHAVIOR = "behavior_"
"""Prefix of the sums of :func:`~scapo_eval.rewarding.monitor.behavior_sums` among those of :func:`log_sums`."""

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
    """Computes the token advantages and rewards of SCAPO for a batch of generated token ids.

    Args:
        image_ids: The B image ids, one per response, in any supported form.
        token_ids: Token ids as a padded (B, T) array or tensor, or as B lists of ids. The ids may include the prompt if
            ``mask`` marks the generated tokens.
        tokenizer: Tokenizer that generated the ids; see :func:`scapo_eval.rewarding.tokens.decode_with_offsets`.
        reward: Reward that scores the responses.
        mask: (B, T) mask that is true for generated tokens. The mask is required if the padding token is not a special
            token. Special tokens never get credit for a piece.
        finished: (B,) booleans, which are true for responses that ended on their own. By default, a response counts as
            finished if a generated special token follows its text. For a padded array, ``eos`` other than ``zero`` and
            ``truncated="mask"`` therefore require ``mask`` or ``finished``.
        eos: Credit for the end-of-sequence token; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: Treatment of the last piece of an unfinished response; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.

    Returns:
        The (B, T) float32 advantages, and the rewards of the responses. T is the length of the longest row in the
        batch. Padding and special tokens have the advantage 0. The rewards can be passed to :func:`log_metrics`.

    Raises:
        InputError: If a row is faulty and ``reward`` was created without ``on_error="zero"``, or if ``mask`` or
            ``finished`` is required and missing.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "A": 1, "dog": 2, "cat": 3, "##s": 4}))
        >>> tokenizer.decoder = decoders.WordPiece()
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import advantages_for_batch
        >>> reward = SubsentenceReward("coco80", {7: ["dog"]})
        >>> advantages, columns = advantages_for_batch([7, 7], [[1, 2], [1, 3]], tokenizer, reward)
        >>> advantages.tolist(), columns.total.tolist()
        ([[1.0, 1.0], [-1.0, -1.0]], [1.0, -1.0])
    """
    if mask is None and finished is None and (eos != "zero" or truncated == "mask") and _matrix(token_ids) is not None:
        raise InputError(
            f"eos='{eos}' and truncated='{truncated}' depend on whether a response ended, which padded token ids "
            "do not show: pass mask or finished"
        )
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
    """Returns the advantages from :func:`advantages_for_batch`.

    This function is deprecated because its name is misleading: it returns advantages, not rewards.
    """
    warn_deprecated("rewards_for_batch", instead="advantages_for_batch(...)[0]", removed_in="0.4.0")
    return advantages_for_batch(*args, **kwargs)[0]


def log_metrics(columns: RewardColumns) -> dict[str, float]:
    """Returns the metrics of a batch of rewards for the training log, under the names that every adapter uses.

    The metric ``scapo/errors`` needs attention: a value above 0 means that the ground truth does not fit the data.

    Returns:
        A mapping from metric names to values. ``scapo/reward`` (summed over the pieces of a response),
        ``scapo/generated``, ``scapo/hallucinated``, ``scapo/covered`` and ``scapo/subsentences`` are means per
        response. ``scapo/empty`` and ``scapo/errors`` are the shares of empty responses and of faulty rows. The metrics
        of :func:`~scapo_eval.rewarding.monitor.behavior_metrics` are added with the same prefix.

    Example:
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import log_metrics
        >>> reward = SubsentenceReward("coco80", {7: ["dog"]})
        >>> metrics = log_metrics(reward.batch([7, 7], ["There is a dog.", "A cat sleeps."]))
        >>> metrics["scapo/reward"], metrics["scapo/hallucinated"], metrics["scapo/errors"]
        (0.0, 0.5, 0.0)
    """
    return metrics_of_sums([log_sums(columns)])


def log_sums(columns: RewardColumns) -> dict[str, float]:
    """Returns the sums from which :func:`metrics_of_sums` computes the metrics of several batches or processes.

    Example:
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import log_sums
        >>> sums = log_sums(SubsentenceReward("coco80", {7: ["dog"]}).batch([7], ["A dog and a cat."]))
        >>> sums["covered"], sums["hallucinated"]
        (1.0, 1.0)
    """
    return {
        "reward": float(columns.reward.sum()),
        "generated": float(columns.generated.sum()),
        "hallucinated": float(columns.hallucinated.sum()),
        "covered": float(columns.covered.sum()),
        "subsentences": float(len(columns.reward)),
        "empty": float(columns.n_empty),
        "errors": float(columns.n_errors),
        **{f"{_BEHAVIOR}{name}": value for name, value in behavior_sums(columns).items()},
    }


def metrics_of_sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the metrics of :func:`log_metrics` for the responses in all parts.

    Args:
        parts: Results of :func:`log_sums`, one for each batch or process.

    Raises:
        InputError: If there are no parts.

    Example:
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import log_sums, metrics_of_sums
        >>> reward = SubsentenceReward("coco80", {7: ["dog"]})
        >>> parts = [log_sums(reward.batch([7] * n, ["A cat."] * n)) for n in (1, 3)]
        >>> metrics_of_sums(parts)["scapo/hallucinated"]
        1.0
    """
    sums = dict[str, float]()
    for part in parts:
        sums |= {name: sums.get(name, 0.0) + value for name, value in part.items()}
    if not sums:
        raise InputError("expected the sums of at least one batch, found none")
    behavior = {name.removeprefix(_BEHAVIOR): sums.pop(name) for name in [*sums] if name.startswith(_BEHAVIOR)}
    means = {name: value / max(behavior["responses"], 1) for name, value in sums.items()}
    return {f"scapo/{name}": value for name, value in (means | behavior_metrics(behavior)).items()}


def row_metrics(columns: RewardColumns) -> dict[str, float]:
    """Returns the metrics of :func:`log_metrics` for a single response, for libraries that score row by row and end
    the run at an error.

    Raises:
        InputError: If too many consecutive rows of this process were faulty; see :func:`count_faulty`.

    Example:
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import row_metrics
        >>> reward = SubsentenceReward("coco80", {7: ["dog"]})
        >>> row_metrics(reward.batch([7], ["There is a dog."]))["scapo/reward"]
        1.0
    """
    count_faulty(columns)
    return log_metrics(columns)


def count_faulty(columns: RewardColumns) -> None:
    """Counts consecutive faulty rows in this process, for libraries that pass single rows or groups of one image.

    A group counts as its number of rows, but no single group reaches the limit. For a batch of several images without a
    valid row, the reward itself raises an error; see :class:`~scapo_eval.rewarding.reward.SubsentenceReward`.

    Raises:
        InputError: If MOST_FAULTY consecutive rows were faulty, which means that the ground truth belongs to another
            data set.

    Example:
        >>> from scapo_eval import SubsentenceReward
        >>> from scapo_eval.rewarding.batch import count_faulty
        >>> reward = SubsentenceReward("coco80", {7: ["dog"]}, on_error="zero")
        >>> count_faulty(reward.batch([7], ["There is a dog."]))
    """
    global _faulty_in_a_row
    faulty = len(columns.errors) == len(columns)
    _faulty_in_a_row = _faulty_in_a_row + min(len(columns), MOST_FAULTY - 1) if faulty else 0
    if columns.errors and _faulty_in_a_row >= MOST_FAULTY:
        last = columns.errors[max(columns.errors)]
        raise InputError(f"{_faulty_in_a_row} consecutive rows have no reward; the last: {last}")


def load_reward(truth: str, vocabulary: str = "coco80", **settings: Any) -> SubsentenceReward:
    """Returns the reward for a ground truth file and a vocabulary, and caches it for the process.

    A faulty row is counted and gets no reward, because a single faulty row must not end a run on many machines (see
    :func:`log_metrics`).

    Args:
        truth: Ground truth that :meth:`PresenceOracle.load` accepts.
        vocabulary: Vocabulary that :meth:`Vocabulary.load` accepts.
        settings: Fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`. The field ``scenes`` accepts only files
            here.

    Raises:
        InputError: If the truth, the vocabulary or a setting is invalid, or is a list or mapping instead of a name.

    Example:
        >>> import json, tempfile
        >>> from scapo_eval.rewarding.batch import load_reward
        >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as truth:
        ...     json.dump({"7": ["dog"]}, truth)
        ...     truth.flush()
        ...     reward = load_reward(truth.name)
        >>> reward.batch([7], ["A cat sleeps."]).total.tolist()
        [-1.0]
    """
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    try:
        hash((truth, vocabulary, *hashable.values()))
    except TypeError as error:
        reason = "truth and vocabulary must be files or names, and settings strings, numbers or lists of them"
        raise InputError(f"{reason} ({error})") from None
    return _load_reward(truth, vocabulary, **hashable)


@lru_cache(maxsize=8)
def _load_reward(truth: str, vocabulary: str, **settings: Any) -> SubsentenceReward:
    config = RewardConfig(**settings)
    return SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(truth), config, on_error="zero")


def reward_from_environment() -> SubsentenceReward:
    """Returns the reward that environment variables define, for libraries that load a plugin by its path.

    The values of ``SCAPO_TRUTH`` and ``SCAPO_VOCABULARY`` (default ``coco80``) are file names or names of shipped data.
    The value of ``SCAPO_REWARD`` is a JSON object with fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`.

    Raises:
        InputError: If ``SCAPO_TRUTH`` is not set, or if ``SCAPO_REWARD`` is not a JSON object.

    Example:
        >>> import json, os, tempfile
        >>> from scapo_eval.rewarding.batch import reward_from_environment
        >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as truth:
        ...     json.dump({"7": ["dog"]}, truth)
        ...     truth.flush()
        ...     os.environ["SCAPO_TRUTH"] = truth.name
        ...     reward = reward_from_environment()
        >>> reward.batch([7], ["There is a dog."]).total.tolist()
        [1.0]
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
    """Returns a (B, T) array of token ids and a (B, T) mask of the generated tokens."""
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
    """Converts a two-dimensional array or tensor to a NumPy array, and returns None for any other input."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values) if getattr(values, "ndim", 0) == 2 else None


def _filled(rows: Sequence[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """Stacks rows of different lengths in one array and pads them with zeros on the right."""
    filled = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=kind)
    for padded, row in zip(filled, rows, strict=True):
        padded[: len(row)] = row
    return filled


def compute_scapo_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the token rewards as advantages, without group statistics. EasyR1 and SkyRL can use this function as an
    advantage estimator.

    Args:
        token_level_rewards: (B, T) token rewards.
        response_mask: (B, T) mask that is 1 for response tokens.

    Returns:
        The advantages and the returns, which are the same (B, T) tensor.
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages
