"""Defines a metric: named integer counts per record, and ratios of their sums.

Counts first, ratios last: a record becomes a small row of integers, and every metric is a function of
summed rows. So shards merge by addition, the bootstrap resamples rows and never re-matches, and a
paired test needs no second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.reprs import fields_in_short

Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
"""Column name -> summed counts, any shape: () for a total, (R,) for R resamples."""

Formula = Callable[[Sums], Floats]
"""Summed counts -> value of the same shape; NaN if there is none."""


@dataclass(frozen=True, slots=True)
class MetricSet:
    """All metrics computed from one set of counts.

    Attributes:
        name: first field of the signature (``capscore``, ``chair``, ``density``...).
        columns: names of the integer counts of one record, in order.
        formulas: metric -> function of the summed columns, in the order of display.
        higher_is_better: per metric, for colors and arrows; None or absent where neither is better.
        plain_numbers: metrics that are not fractions (shown as they are, not as percent).
        at_most: pairs of columns, of which the first cannot exceed the second in any row.
        adds_up: columns that together are another column, in every row: ``((parts...), whole)``.
        cells: columns that count different things, none of them part of another (the cells of a yes/no table).
    """

    name: str
    columns: tuple[str, ...]
    formulas: Mapping[str, Formula]
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    plain_numbers: frozenset[str] = frozenset()
    at_most: tuple[tuple[str, str], ...] = ()
    adds_up: tuple[tuple[tuple[str, ...], str], ...] = ()
    cells: frozenset[str] = frozenset()

    __repr__ = fields_in_short

    @property
    def counted(self) -> bool:
        """Whether values come from counts; those that another harness finished have none, and no images either."""
        return bool(self.columns)

    def score(self, counts: NDArray[Any]) -> dict[str, Floats]:
        """Returns the values of summed counts.

        Args:
            counts: (..., columns) sums, integer or float.

        Returns:
            Metric -> array of shape (...), NaN if it has no value.
        """
        sums = {name: np.asarray(counts[..., k], dtype=np.float64) for k, name in enumerate(self.columns)}
        return {name: measure(sums) for name, measure in self.formulas.items()}


def of_version(
    metrics: MetricSet, columns: Sequence[str], former: Sequence[str], mended: Collection[str] = ()
) -> MetricSet:
    """Returns the metrics of this version, or of the counts of an earlier one those that they still give.

    Args:
        metrics: those of this version.
        columns: of the counts.
        former: columns of the earlier version.
        mended: metrics that stood for something else then.
    """
    if tuple(columns) != tuple(former):
        return metrics
    nothing = {name: np.zeros(()) for name in columns}

    def given(formula: Formula) -> bool:
        try:
            formula(nothing)
        except KeyError:
            return False
        return True

    return replace(
        metrics,
        columns=tuple(columns),
        formulas={name: each for name, each in metrics.formulas.items() if name not in mended and given(each)},
        at_most=tuple(pair for pair in metrics.at_most if set(pair) <= set(columns)),
        cells=metrics.cells & set(columns),
        adds_up=tuple((parts, whole) for parts, whole in metrics.adds_up if {*parts, whole} <= set(columns)),
    )


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """Returns ``numerator / denominator``, NaN (no value) where the denominator is 0."""
    out: Floats = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


@dataclass(frozen=True, slots=True)
class Ratio:
    """The formula ``sum(numerator) / sum(denominator) / unit``; no value over an empty denominator.

    Attributes:
        numerator, denominator: names of columns.
        unit: what the numerator counts 1 as.
    """

    numerator: str
    denominator: str
    unit: int = 1

    def __call__(self, sums: Sums) -> Floats:
        """Returns the values of summed counts."""
        return divide(sums[self.numerator], sums[self.denominator]) / self.unit


def ratio(numerator: str, denominator: str, unit: int = 1) -> Formula:
    """Returns the share ``sum(numerator) / sum(denominator)`` as a formula; no value over an empty denominator.

    Example:
        >>> import scapo_eval
        >>> import numpy as np
        >>> float(scapo_eval.ratio("right", "asked")({"right": np.array(3.0), "asked": np.array(4.0)}))
        0.75
    """
    return Ratio(numerator, denominator, unit)


def harmonic_mean(a: Floats, b: Floats) -> Floats:
    """Harmonic mean of two fractions; 0 where both are 0 or one is 0, NaN if one has no value."""
    total = np.asarray(a + b, dtype=np.float64)
    out: Floats = np.where(np.isnan(total), np.nan, 0.0)
    np.divide(2.0 * a * b, total, out=out, where=total > 0)
    return out
