"""Computation of a step's metrics: first as sums that are added over ranks, then as ratios of these sums for
``metrics.jsonl``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scapo_eval.benchmarks.capscore import cap_score
from scapo_eval.rewarding.monitor import behavior_metrics, behavior_sums

from .credit import CreditedBatch
from .data import Response
from .monitoring.alarms import repeats_ngram, repeats_sentence
from .update import UpdateResult

Metrics = dict[str, float | None]
"""Name -> value, or None if undefined."""


def response_sums(
    credited: CreditedBatch, responses: Sequence[Response], present: NDArray[np.int64]
) -> dict[str, float]:
    """Returns sums over responses from which the metrics of a step are computed. The sums of all ranks can be added.

    Args:
        credited: Rewards of the responses.
        responses: Sampled responses.
        present: (n,) number of present labels in each response's image.
    """
    columns = credited.columns
    named = columns.of_presence()
    hallucinated, empty = columns.hal > 0, columns.new + columns.rep + columns.hal == 0
    pieces = columns.reward
    return {
        "responses": float(len(columns)),
        **{name: float(named[name].sum()) for name in ("generated", "hallucinated", "covered")},
        "present": float(present.sum()),
        "reward": float(credited.rewards.sum()),
        "reward_new": float(pieces[~hallucinated & ~empty].sum()),
        "reward_hal": float(pieces[hallucinated].sum()),
        "reward_reg": float(pieces[empty & ~hallucinated].sum()),
        "zero": float((np.abs(pieces) == 0).sum()),
        "pieces": float(len(pieces)),
        "objects": float((named["generated"] + named["unknown"]).sum()),
        "without_text": float(columns.n_empty),
        "without_claim": float((columns.generated + columns.unknown == 0).sum()),
        "repeated_sentence": float(sum(map(repeats_sentence, columns.responses))),
        "repeated_ngram": float(sum(map(repeats_ngram, columns.responses))),
        "groups_without_variance": float((~credited.has_variance).sum()),
        "groups": float(len(credited.has_variance)),
        "length": float(sum(len(response.ids) for response in responses)),
        "truncated": float(sum(not response.finished for response in responses)),
        "age": float(sum(response.age for response in responses)),
        **{f"behavior_{name}": value for name, value in behavior_sums(columns).items()},
    }


def response_metrics(sums: Mapping[str, float]) -> Metrics:
    """Computes the metrics of a step's responses from the sums of :func:`response_sums` over all ranks."""
    n = sums["responses"]
    return {
        **score_metrics(sums),
        **{name: ratio(sums[name], n) for name in ("reward", "reward_new", "reward_hal", "reward_reg")},
        "zero_reward_share": ratio(sums["zero"], sums["pieces"]),
        "pieces": ratio(sums["pieces"], n),
        "objects": ratio(sums["objects"], n),
        "length": ratio(sums["length"], n),
        "truncated_share": ratio(sums["truncated"], n),
        "staleness": ratio(sums["age"], n),
        "without_claim_share": ratio(sums["without_claim"], n),
        "repeated_sentence_share": ratio(sums["repeated_sentence"], n),
        "repeated_ngram_share": ratio(sums["repeated_ngram"], n),
        "empty_responses": sums["without_text"],
        "groups_without_variance": ratio(sums["groups_without_variance"], sums["groups"]),
        **behavior_metrics(
            {name.removeprefix("behavior_"): value for name, value in sums.items() if name.startswith("behavior_")}
        ),
    }


def score_metrics(sums: Mapping[str, float]) -> Metrics:
    """Computes ``hal_rate``, ``cover_rate`` and ``cap_score`` as fractions, from counts of labels."""
    hal, cover = ratio(sums["hallucinated"], sums["generated"]), ratio(sums["covered"], sums["present"])
    cap = None if hal is None or cover is None else cap_score(hal, cover)
    return {"hal_rate": hal, "cover_rate": cover, "cap_score": cap}


def update_metrics(update: UpdateResult, *, has_reference: bool, compares_engine: bool, corrects: bool) -> Metrics:
    """Computes the metrics of a step's updates.

    Args:
        update: Result of the updates.
        has_reference: True if the loss has a KL term.
        compares_engine: True if an engine other than the policy sampled all responses, with the same weights.
        corrects: True if the surrogate is multiplied by importance ratios.
    """
    return {
        "kl": ratio(update.kl, update.tokens) if has_reference else None,
        "entropy": ratio(update.entropy, update.tokens),
        "p_end": ratio(update.p_end, update.tokens),
        "mismatch": ratio(update.mismatch, update.tokens) if compares_engine else None,
        "importance_ratio": ratio(update.importance, update.tokens) if corrects else None,
        "importance_clip_share": ratio(update.truncated, update.tokens) if corrects else None,
        "clip_share": ratio(update.clipped, update.tokens),
        "loss": _finite(update.loss),
        "grad_norm": _finite(update.grad_norm),
        "updates_left_out": float(update.skipped),
    }


def ratio(part: float, whole: float) -> float | None:
    """Returns ``part / whole``, or None if ``whole`` is 0."""
    return part / whole if whole else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
