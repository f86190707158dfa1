"""How densely annotations reward responses (the paper's table of annotation density).

Objects are different labels per response, pieces are subsentences. A piece is supported or hallucinated if
it has at least one such label, repeated or not. So read, the paper's figures fit together: it has more
supported pieces (2.62) than supported objects (2.32) per response, because pieces repeat objects. A piece
with both counts on both sides; how many there are is a figure of its own, because the paper does not say
on which side it counts them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..metric import MetricSet, ratio
from ..reward import RewardColumns

COLUMNS = (
    "responses",
    "objects",
    "objects_supported",
    "objects_hallucinated",
    "subsentences",
    "subsentences_supported",
    "subsentences_hallucinated",
    "subsentences_both",
    "unknown",
    "empty",
)
"""Per response: 1; different known labels, and of these present, absent; pieces, and of these with a present
label, an absent label, both; different labels of unknown cells; 1 if it is an empty text."""


def density_metric() -> MetricSet:
    """Means per response."""
    shown = COLUMNS[1:8]
    formulas = {name: ratio(name, "responses") for name in shown}
    better = {name: name.endswith("supported") for name in shown if name.endswith(("supported", "hallucinated"))}
    return MetricSet("density", COLUMNS, formulas, better, frozenset(shown))


def density_counts(columns: RewardColumns) -> NDArray[np.int64]:
    """The counts of each response.

    Args:
        columns: rewards of n responses (of level ``subsentence``).

    Returns:
        (n, 10) int64 in the order of COLUMNS.
    """
    n = len(columns)
    owner = np.repeat(np.arange(n), np.diff(columns.indptr))
    supported, hallucinated = columns.new + columns.rep > 0, columns.hal > 0

    def pieces(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(owner[chosen], minlength=n)

    counts = [
        np.ones(n, dtype=np.int64),
        columns.generated,
        columns.covered,
        columns.hallucinated,
        np.diff(columns.indptr),
        pieces(supported),
        pieces(hallucinated),
        pieces(supported & hallucinated),
        columns.unknown,
        np.array([not text for text in columns.responses], dtype=np.int64),
    ]
    return np.stack(counts, axis=1).astype(np.int64)
