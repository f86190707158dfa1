"""Hal. Rate, Cover Rate, Cap. Score and CHAIR with the project's own matcher (paper, Eq. 4 and 5).

Hal. and Cover Rate count SETS of labels per caption, CHAIR_i counts mentions with multiplicity; the paper
equates the two, real captions do not (SPEC section 5), so both are always reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import MentionColumns
from ..metric import Formula, MetricSet, Sums, divide, harmonic_mean, ratio
from ..oracle import Truth

COLUMNS = (
    "captions",
    "generated",
    "hallucinated",
    "covered",
    "truth",
    "mentions",
    "hallucinated_mentions",
    "hallucinated_captions",
    "unknown",
)
"""Per caption: 1; claimed known labels; of these absent, present; labels present in the image; mentions of
known labels; of these hallucinated; 1 if there is one; claimed labels whose cell is unknown."""


def cap_score(hal_rate: float, cover_rate: float) -> float:
    """Harmonic mean of ``1 - hal_rate`` and ``cover_rate`` (paper, Eq. 5).

    Args:
        hal_rate, cover_rate: fractions in [0, 1].

    Returns:
        The score in [0, 1]; 0.0 where both terms are 0.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    for name, rate in (("hal_rate", hal_rate), ("cover_rate", cover_rate)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name} must be a fraction in [0, 1], got {rate}")
    return float(harmonic_mean(np.float64(1 - hal_rate), np.float64(cover_rate)))


def _cap_score(suffix: str) -> Formula:
    def measure(sums: Sums) -> NDArray[np.float64]:
        hal = divide(sums[f"hallucinated{suffix}"], sums[f"generated{suffix}"])
        return harmonic_mean(1 - hal, divide(sums[f"covered{suffix}"], sums[f"truth{suffix}"]))

    return measure


def _set_measures(suffix: str) -> dict[str, Formula]:
    return {
        f"hal_rate{suffix}": ratio(f"hallucinated{suffix}", f"generated{suffix}"),
        f"cover_rate{suffix}": ratio(f"covered{suffix}", f"truth{suffix}"),
        f"cap_score{suffix}": _cap_score(suffix),
    }


DAGGER = "_dagger"


def capscore_metric(*, dagger: bool = False) -> MetricSet:
    """The metric; with ``dagger`` also the set figures against a second vocabulary and matrix (DOPA)."""
    formulas = _set_measures("") | {
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "chair_s": ratio("hallucinated_captions", "captions"),
    }
    columns: tuple[str, ...] = COLUMNS
    if dagger:
        formulas |= _set_measures(DAGGER)
        columns += tuple(f"{name}{DAGGER}" for name in COLUMNS[1:])
    better = {name: name.startswith(("cover", "cap")) for name in formulas}
    return MetricSet("capscore", columns, formulas, better)


def metric_for(columns: tuple[str, ...]) -> MetricSet:
    """The metric of a table with these columns."""
    return capscore_metric(dagger=f"truth{DAGGER}" in columns)


def caption_counts(mentions: MentionColumns, rows: NDArray[np.int64], truth: Truth) -> NDArray[np.int64]:
    """The counts of each caption.

    Args:
        mentions: of n captions.
        rows: (n,) row of each caption's image in the truth.
        truth: what is in the images, on the matcher's label axis.

    Returns:
        (n, 9) int64 in the order of COLUMNS.
    """
    n = len(mentions)
    caption, label = mentions.caption, mentions.label_id
    state = truth.states[rows[caption], label]
    claimed = np.zeros((n, len(truth.vocabulary.labels)), dtype=bool)
    claimed[caption, label] = True
    states = truth.states[rows]
    counts = np.empty((n, len(COLUMNS)), dtype=np.int64)
    counts[:, 0] = 1
    counts[:, 2] = (claimed & (states == 0)).sum(axis=1)
    counts[:, 3] = (claimed & (states == 1)).sum(axis=1)
    counts[:, 1] = counts[:, 2] + counts[:, 3]
    counts[:, 4] = truth.n_present[rows]
    counts[:, 5] = np.bincount(caption[state >= 0], minlength=n)
    counts[:, 6] = np.bincount(caption[state == 0], minlength=n)
    counts[:, 7] = counts[:, 6] > 0
    counts[:, 8] = (claimed & (states == -1)).sum(axis=1)
    return counts
