"""Definition of metrics as functions of summed integer counts.

Each record is reduced to a small row of integers, and every metric is computed from sums of these rows. Parts of a data
set can therefore be merged by addition, the bootstrap can resample rows without reading captions again, and a paired
test needs no second pass over the captions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..base.reprs import fields_in_short

Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
"""Column name -> summed counts of any shape, for example () for a total or (R,) for R resamples."""

Formula = Callable[[Sums], Floats]
"""Function from summed counts to a value of the same shape. NaN marks a missing value."""


@dataclass(frozen=True, slots=True)
class MetricSet:
    """Metrics that are all computed from one set of counts.

    Attributes:
        name: Name in the first field of the signature (``capscore``, ``chair``, ``density``...).
        columns: Names of the integer counts of one record, in order.
        formulas: Mapping from metrics, in display order, to functions that compute their values from the summed
            columns.
        higher_is_better: Mapping from metrics to True if higher values are better, and to False if lower values are
            better. The mapping determines colors and arrows. A metric is absent from the mapping, or has the value
            None, if neither direction is better.
        plain_numbers: Names of metrics that are not fractions and are therefore not displayed as percentages.
        at_most: Pairs of columns in which the first count must not exceed the second count in any row.
        adds_up: Tuples ``((parts...), whole)`` of columns. In every row, the parts must add up to the whole.
        cells: Names of columns that count disjoint events, such as the cells of a table of yes/no answers.
        weights: Names of columns that are sums of weights instead of numbers of events.
        positives: Names of the cells that count items whose correct answer is "yes".
        signed: Names of metrics in [-1, 1], such as differences of two fractions. They are displayed as percentages.
        ranges: Mapping from plain numbers to the width of their range, if they have one (6 for a rating from 0 to 6).
    """

    name: str
    columns: tuple[str, ...]
    formulas: Mapping[str, Formula]
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    plain_numbers: frozenset[str] = frozenset()
    at_most: tuple[tuple[str, str], ...] = ()
    adds_up: tuple[tuple[tuple[str, ...], str], ...] = ()
    cells: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    positives: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    ranges: Mapping[str, float] = field(default_factory=dict)

    __repr__ = fields_in_short

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickles the metric set of a benchmark as its name and columns, as in a results file, because many formulas
        cannot be pickled. Other metric sets are pickled with their formulas.
        """
        from .benchmark import find_benchmark

        known = find_benchmark(self.name)
        if known is None or known.metric_set is None:
            return object.__reduce_ex__(self, protocol)
        return _metric_set, (self.name, self.columns, tuple(self.formulas))

    @property
    def counted(self) -> bool:
        """True if the values of the metrics are computed from counts. Values that were imported from other harnesses
        have neither counts nor images.
        """
        return bool(self.columns)

    def margin(self, name: str, share: float, baseline: float | None) -> float:
        """Returns a margin in the unit of a metric. It is given as a share of the metric's range or, for a plain number
        without a range, of the baseline's value.
        """
        return share * self.ranges.get(name, abs(baseline or 0.0)) if name in self.plain_numbers else share

    def score(self, counts: NDArray[Any]) -> dict[str, Floats]:
        """Computes all metrics from summed counts.

        Args:
            counts: (..., columns) array of sums, with integer or float elements.

        Returns:
            A mapping from each metric to an array of shape (...), in which NaN marks missing values.
        """
        sums = {name: np.asarray(counts[..., k], dtype=np.float64) for k, name in enumerate(self.columns)}
        return {name: measure(sums) for name, measure in self.formulas.items()}


def _metric_set(name: str, columns: tuple[str, ...], formulas: tuple[str, ...]) -> MetricSet:
    """Returns the metric set of a benchmark, reduced to the named formulas."""
    from .benchmark import metric_set_of

    metrics = metric_set_of(name, columns)
    if tuple(metrics.formulas) == formulas:
        return metrics
    return replace(metrics, formulas={each: metrics.formulas[each] for each in formulas})


def of_version(
    metrics: MetricSet, columns: Sequence[str], former: Sequence[str], mended: Collection[str] = ()
) -> MetricSet:
    """Adapts a metric set to the columns of a results file that an earlier version may have written.

    Args:
        metrics: Metric set that this version defines.
        columns: Names of the columns in the file.
        former: Names of the columns in the earlier version.
        mended: Names of the metrics that the earlier version defined differently. They are removed.

    Returns:
        The unchanged metric set, unless the file has the columns of the earlier version. In that case, the set contains
        only the metrics that can be computed from these columns.
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
    """Returns ``numerator / denominator``, or NaN (no value) if the denominator is 0."""
    out: Floats = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


@dataclass(frozen=True, slots=True)
class Ratio:
    """Formula with the value ``sum(numerator) / sum(denominator) / unit``. The formula returns NaN if the denominator
    is 0.

    Attributes:
        numerator, denominator: Names of the columns to sum.
        unit: Divisor that converts the numerator to units of 1.
    """

    numerator: str
    denominator: str
    unit: int = 1

    def __call__(self, sums: Sums) -> Floats:
        """Returns the value of the formula for summed counts."""
        return divide(sums[self.numerator], sums[self.denominator]) / self.unit


def ratio(numerator: str, denominator: str, unit: int = 1) -> Formula:
    """Returns the formula for the share ``sum(numerator) / sum(denominator)``. The formula returns NaN if the
    denominator is 0.

    Example:
        >>> import scapo_eval
        >>> import numpy as np
        >>> float(scapo_eval.ratio("right", "asked")({"right": np.array(3.0), "asked": np.array(4.0)}))
        0.75
    """
    return Ratio(numerator, denominator, unit)


def harmonic_mean(a: Floats, b: Floats) -> Floats:
    """Returns the harmonic mean of two fractions. The mean is 0 if one of the fractions is 0, and NaN if one of them is
    NaN.
    """
    total = np.asarray(a + b, dtype=np.float64)
    out: Floats = np.where(np.isnan(total), np.nan, 0.0)
    np.divide(2.0 * a * b, total, out=out, where=total > 0)
    return out
