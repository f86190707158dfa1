"""What shows in a training log that a policy games the reward (docs/gaming.md): sums over responses that add up."""

from __future__ import annotations

import re

from ..matching.uses import cue_words
from .reward import RewardColumns

_DENIALS = frozenset(cue_words(("negated",)))
_HEDGES = frozenset(cue_words(("hedged",)))
_WORDS = re.compile(r"[^\W_]+")


def behavior_sums(columns: RewardColumns) -> dict[str, float]:
    """Sums that the ratios of :func:`behavior_metrics` are made of; sums of ranks add up.

    Args:
        columns: rewards of n responses.

    Returns:
        ``responses``, ``words``, ``pieces``, ``labels`` (of each piece, known ones), ``repeated`` (of these, supported
        and named before), ``without_label`` (pieces that pay ``r_reg``), ``silent`` (pieces without pay), ``denials``
        and ``hedges`` (words that may deny or hedge).
    """
    words = _WORDS.findall("\n".join(columns.responses).lower())
    labels = columns.new + columns.rep + columns.hal
    return {
        "responses": float(len(columns)),
        "words": float(len(words)),
        "pieces": float(len(labels)),
        "labels": float(labels.sum()),
        "repeated": float(columns.rep.sum()),
        "without_label": float(((labels == 0) & ~columns.silent).sum()),
        "silent": float(columns.silent.sum()),
        "denials": float(sum(map(_DENIALS.__contains__, words))),
        "hedges": float(sum(map(_HEDGES.__contains__, words))),
    }


def behavior_metrics(sums: dict[str, float]) -> dict[str, float]:
    """Ratios that show how responses change; a ratio of nothing is 0.

    Args:
        sums: see :func:`behavior_sums`.

    Returns:
        ``words`` per response; ``words_per_piece`` and ``labels_per_piece``; ``repeated_share`` of the labels;
        ``without_label_share`` and ``silent_share`` of the pieces; ``denial_rate`` and ``hedge_rate`` per word.
    """

    def ratio(part: str, whole: str) -> float:
        return sums[part] / sums[whole] if sums[whole] else 0.0

    return {
        "words": ratio("words", "responses"),
        "words_per_piece": ratio("words", "pieces"),
        "labels_per_piece": ratio("labels", "pieces"),
        "repeated_share": ratio("repeated", "labels"),
        "without_label_share": ratio("without_label", "pieces"),
        "silent_share": ratio("silent", "pieces"),
        "denial_rate": ratio("denials", "words"),
        "hedge_rate": ratio("hedges", "words"),
    }
