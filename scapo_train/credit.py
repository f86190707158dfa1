"""Credit assignment, which computes the advantage and the weight of every token for each scheme.

``scapo_eval`` computes the rewards. In piece-level schemes, the tokens of a piece get the reward of the piece. In
response-level schemes, the reward of each response is compared with the rewards in its group, and all tokens of the
response get the resulting advantage. A custom scheme is a function that receives a :class:`Sampled` and is specified in
the configuration as ``file.py:function``.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scapo_eval.base.errors import InputError, in_one_line
from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.rewarding.batch import advantages_for_batch
from scapo_eval.rewarding.reward import RewardColumns, SubsentenceReward
from scapo_eval.rewarding.stopping import stop_advantages
from scapo_eval.rewarding.token_credit import Truncated
from scapo_eval.rewarding.tokens import decode_with_offsets

from .config import Config, Credit, Loss
from .data import Response

GroupAdvantages = Callable[[NDArray[np.float64], int], NDArray[np.float64]]
"""Function from (responses,) rewards, group by group, and the group size to (responses,) advantages."""


def centered(rewards: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    """Returns the rewards minus the means of their groups, as in ``dr_grpo``."""
    groups = rewards.reshape(-1, group)
    return (groups - groups.mean(1, keepdims=True)).reshape(-1)


def standardized(rewards: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    """Returns ``(reward - mean) / (std + 1e-6)`` within each group, as in GRPO and DAPO."""
    groups = rewards.reshape(-1, group)
    spread = groups.std(1, ddof=1, keepdims=True) + 1e-6
    return ((groups - groups.mean(1, keepdims=True)) / spread).reshape(-1)


_COMPARED: dict[str, GroupAdvantages] = {"grpo": standardized, "dapo": standardized, "dr_grpo": centered}
"""Advantage functions of the response-level schemes. ``scapo`` and ``object`` use the rewards of pieces directly."""


Whose = Literal["policy", "reference"]

Logprobs = Callable[[Whose], list[NDArray[np.float32]]]
"""Function that returns the (T_i,) log-probabilities of each response's tokens by the policy or the reference."""


def no_logprobs(whose: Whose) -> list[NDArray[np.float32]]:
    """Raises an error, because no model is available to compute log-probabilities."""
    raise InputError(f"credit.scheme: it requests log-probabilities of the {whose}, but no model is loaded")


@dataclass(frozen=True)
class Sampled:
    """Input of a custom credit scheme, which consists of complete groups of responses with the rewards of their pieces.

    Attributes:
        image_ids: Image ids of the n responses.
        texts: Texts of the n responses.
        offsets: (T_i, 2) character spans of the tokens of each response.
        finished: (n,) mask that is True for responses that were not truncated.
        columns: Pieces with their spans, their counts, and their rewards according to Eq. 1 with the configured
            coefficients.
        group: Number of responses per prompt. The responses to a prompt are adjacent.
        reward: Reward that computed ``columns``, with its vocabulary and ground truth.
        logprobs: Function that returns the tokens' log-probabilities at the temperature of the rollouts, under either
            the policy that sampled the tokens or the reference. The reference requires ``loss.kl`` to be above 0;
            otherwise, the call raises InputError. A call for the policy may need a forward pass on all ranks, so a
            scheme must call the function either in every step or never.
    """

    image_ids: Sequence[str]
    texts: list[str]
    offsets: list[NDArray[np.int64]]
    finished: NDArray[np.bool_]
    columns: RewardColumns
    group: int
    reward: SubsentenceReward
    logprobs: Logprobs = no_logprobs

    @property
    def pieces(self) -> list[NDArray[np.int64]]:
        """(T_i,) index of the piece to which each token belongs, for each response. The index of the end-of-sequence
        token follows that of the last piece.
        """
        numbers = np.concatenate([np.arange(n) for n in np.diff(self.columns.indptr)] or [np.zeros(0)])
        told = self.paid(numbers + 1.0)  # the credit of a token is now its piece index plus 1
        per_response = []
        for token_numbers, pieces in zip(told, np.diff(self.columns.indptr), strict=True):
            piece = token_numbers.astype(np.int64) - 1
            piece[token_numbers == 0] = pieces  # tokens without text belong to the end
            per_response.append(piece)
        return per_response

    def paid(self, rewards: NDArray[np.float64]) -> list[NDArray[np.float32]]:
        """Returns the (T_i,) token advantages of each response that result from the given (pieces,) rewards."""
        return replace(self.columns, reward=rewards).token_advantages(self.offsets, finished=self.finished)

    def summed(self, values: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Returns the (pieces,) sums of the given values over the tokens of each piece. The values are (T_i,) arrays,
        one per response.
        """
        indptr, sums = self.columns.indptr, np.zeros(len(self.columns.reward))
        for k, (token_values, token_pieces) in enumerate(zip(values, self.pieces, strict=True)):
            first, pieces = int(indptr[k]), int(indptr[k + 1] - indptr[k])
            inside = token_pieces < pieces  # the end of sequence belongs to no piece
            sums[first : first + pieces] = np.bincount(
                token_pieces[inside], weights=token_values[inside], minlength=pieces
            )
        return sums


CustomScheme = Callable[[Sampled], Sequence[NDArray[np.float32]]]
"""Custom scheme, which returns (T_i,) advantages per response."""


@dataclass(frozen=True)
class CreditedBatch:
    """Credit for a batch of responses.

    Attributes:
        advantages: (T_i,) float32 advantages of each response's tokens.
        columns: Rewards of the pieces.
        rewards: (n,) reward of each response, which is the sum over its pieces or, in response-level schemes, its
            response-level reward.
        has_variance: (groups,) mask that is True for groups whose rewards are not all equal.
    """

    advantages: list[NDArray[np.float32]]
    columns: RewardColumns
    rewards: NDArray[np.float64]
    has_variance: NDArray[np.bool_]


def credit(
    settings: Credit,
    reward: SubsentenceReward,
    tokenizer: Any,
    image_ids: Sequence[str],
    responses: Sequence[Response],
    group: int,
    max_new_tokens: int,
    logprobs: Logprobs = no_logprobs,
) -> CreditedBatch:
    """Computes the rewards and the advantages of complete groups of responses.

    Args:
        settings: Settings of the scheme.
        reward: Reward that was created from ``settings.reward_config()``.
        tokenizer: Tokenizer of the policy.
        image_ids: Image ids of the n responses.
        responses: The n responses, group by group.
        group: Number of responses per prompt.
        max_new_tokens: Maximum number of tokens in a response, for overlong shaping in the original form of ``dapo``.
        logprobs: Log-probabilities of the responses, for custom schemes, ``reference_floor`` and
            ``reference_ratio``.
    """
    ids = [response.ids for response in responses]
    finished = np.array([response.finished for response in responses], dtype=bool)
    padded, columns = advantages_for_batch(
        image_ids, ids, tokenizer, reward, finished=finished, eos=settings.eos, truncated=settings.truncated
    )
    advantages = [padded[k, : len(tokens)] for k, tokens in enumerate(ids)]
    rewards = columns.total
    if settings.per_response:
        if settings.scheme == "dapo" and settings.form == "original" and settings.overlong:
            rewards = rewards - _overlong(ids, settings.overlong, max_new_tokens)
        compared = _COMPARED[settings.scheme](rewards, group)
        if settings.truncated == "mask":
            compared = np.where(finished, compared, 0.0)
        advantages = [
            np.full(len(tokens), value, dtype=np.float32) for tokens, value in zip(ids, compared, strict=True)
        ]
    elif ":" in settings.scheme or settings.charges_wording or settings.stop:
        decoded = [decode_with_offsets(tokenizer, tokens) for tokens in ids]
        texts, offsets = [text for text, _ in decoded], [spans for _, spans in decoded]
        given = Sampled(image_ids, texts, offsets, finished, columns, group, reward, logprobs)
        if settings.charges_wording:
            charged = wording_charged(given, settings.reference_floor, settings.reference_ratio)
            columns = replace(columns, reward=charged)
            rewards, given = columns.total, replace(given, columns=columns)
            advantages = columns.token_advantages(
                offsets, eos=settings.eos, truncated=settings.truncated, finished=finished
            )
        if settings.stop:
            advantages = with_stop(given, advantages, settings.truncated)
        if ":" in settings.scheme:
            advantages = _checked(scheme_of(settings.scheme)(given), ids, settings.scheme)
    has_variance = np.ptp(rewards.reshape(-1, group), axis=1) > 1e-9  # sums of equal rewards differ by rounding
    return CreditedBatch(advantages, columns, rewards, has_variance)


def wording_charged(sampled: Sampled, floor: float, ratio: float) -> NDArray[np.float64]:
    """Returns the (pieces,) rewards, with a penalty of at least ``r_h`` for pieces whose wording departs from the
    reference.

    The tokens of object names are ignored. With the rewards of the paper, a piece without claims costs only ``r_reg``.
    If no object name has a positive expected reward, malformed text is therefore the continuation with the smallest
    penalty. This penalty is not part of the paper; see docs/laboratory.md.

    Args:
        sampled: Responses and the rewards of their pieces.
        floor: A piece is penalized if the reference assigns one of its tokens a probability below this value. With 0,
            no piece is penalized.
        ratio: A piece is penalized if the joint probability of its tokens under the policy exceeds their joint
            probability under the reference by more than this factor. At the start, the policy equals the reference, so
            no piece is penalized. With 0, no piece is penalized.
    """
    charged = np.zeros(len(sampled.columns.reward), dtype=np.bool_)
    reference = sampled.logprobs("reference")
    is_name = name_tokens(sampled.reward.matcher, sampled.texts, sampled.offsets)
    if floor:
        below = [(own < math.log(floor)) & ~name for own, name in zip(reference, is_name, strict=True)]
        charged |= sampled.summed(below) > 0
    if ratio:
        policy = sampled.logprobs("policy")
        nats = [np.where(name, 0.0, p - q) for p, q, name in zip(policy, reference, is_name, strict=True)]
        charged |= sampled.summed(nats) > math.log(ratio)
    rewards = sampled.columns.reward
    return np.where(charged, np.minimum(rewards, -sampled.reward.config.r_h), rewards)


def name_tokens(
    matcher: AliasMatcher, texts: Sequence[str], offsets: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.bool_]]:
    """Returns, for each text, a (T_i,) mask that is True for the tokens of object names. The offsets are (T_i, 2)
    character spans of the tokens.
    """
    mentions = matcher.find_batch(texts)
    masks = []
    for k, spans in enumerate(offsets):
        start, end = mentions.start[mentions.row(k)], mentions.end[mentions.row(k)]
        masks.append(np.any((spans[:, :1] < end) & (spans[:, 1:] > start), axis=1))
    return masks


def with_stop(
    sampled: Sampled, advantages: Sequence[NDArray[np.float32]], truncated: Truncated
) -> list[NDArray[np.float32]]:
    """Replaces the advantages at piece boundaries with the credit for the decision to continue or to end.

    The credit at a boundary is assigned to the first token of the next piece, or to the end-of-sequence token
    (:mod:`scapo_eval.rewarding.stopping`). All other tokens keep their advantages. With ``truncated="mask"``, the last
    piece of a truncated response has no reward, and the advantage at its boundary is 0.
    """
    columns, finished = sampled.columns, sampled.finished
    pieces = np.diff(columns.indptr)
    masked = columns.indptr[1:][~finished & (pieces > 0)] - 1 if truncated == "mask" else np.zeros(0, dtype=np.int64)
    rewards = columns.reward.copy()
    rewards[masked] = 0.0
    before, at_end = stop_advantages(rewards, columns.indptr, finished, sampled.group)
    before[masked] = 0.0
    credited = []
    for k, (values, place, spans) in enumerate(zip(advantages, sampled.pieces, sampled.offsets, strict=True)):
        given = values.copy()
        numbers, first = np.unique(place, return_index=True)
        opens = numbers < pieces[k]  # all others have no text
        given[first[opens]] = before[columns.indptr[k] + numbers[opens]]
        written = np.flatnonzero(spans[:, 1] > spans[:, 0])
        end = int(written[-1]) + 1 if len(written) else 0
        if finished[k] and end < len(given):
            given[end] = at_end[k]
        credited.append(given)
    return credited


def scheme_of(name: str) -> CustomScheme:
    """Returns the function specified by ``file.py:function``.

    Raises:
        InputError: If the file or the function is not found, or if the file cannot be run.
    """
    file, _, function = name.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"credit.scheme:{file}", file) if Path(file).is_file() else None
    if spec is None or spec.loader is None:
        raise InputError("credit.scheme: Python file not found", path=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up the module of a class there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"credit.scheme: the file cannot be run: {in_one_line(error)}", path=file) from error
    scheme: CustomScheme | None = getattr(module, function, None)
    if not callable(scheme):
        raise InputError(f"credit.scheme: function '{function}' not found", path=file)
    return scheme


def _checked(given: Sequence[Any], ids: Sequence[Sequence[int]], name: str) -> list[NDArray[np.float32]]:
    """Converts the advantages from a custom scheme to float32. Raises InputError unless there is one finite number per
    token.
    """
    advantages = [np.asarray(values, dtype=np.float32) for values in given]
    shapes, wanted = [values.shape for values in advantages], [(len(tokens),) for tokens in ids]
    if shapes != wanted or not all(np.isfinite(values).all() for values in advantages):
        reason = "credit.scheme: must return one finite number for each token of each response"
        raise InputError(reason, path=name)
    return advantages


def token_weights(
    loss: Loss, lengths: NDArray[np.int64], tokens: float, responses: float, longest: int
) -> NDArray[np.float64]:
    """Returns, for each of n responses, the weight that its tokens have in the loss of an update.

    Args:
        loss: Settings of the loss, including the normalizer.
        lengths: (n,) number of tokens in each response of this rank.
        tokens: Number of tokens in the update, over all ranks.
        responses: Number of responses in the update, over all ranks.
        longest: Value of ``rollout.max_new_tokens``.
    """
    if loss.normaliser == "sequences":
        return 1.0 / (responses * lengths.astype(np.float64))
    if loss.normaliser == "constant":
        return np.full(len(lengths), 1.0 / (responses * longest))
    return np.full(len(lengths), 1.0 / tokens)


def resamples(config: Config) -> int:
    """Returns the maximum number of times that groups with equal rewards are resampled, which is 0 except for ``dapo``
    in its original form.
    """
    credit = config.credit
    return credit.resample if credit.scheme == "dapo" and credit.form == "original" else 0


def _overlong(ids: Sequence[Sequence[int]], margin: int, longest: int) -> NDArray[np.float64]:
    """Returns DAPO's soft penalty for long responses, from 0 at ``longest - margin`` tokens to 1 at ``longest``
    tokens.
    """
    lengths = np.fromiter(map(len, ids), dtype=np.float64, count=len(ids))
    penalty: NDArray[np.float64] = np.clip((lengths - (longest - margin)) / margin, 0.0, 1.0)
    return penalty
