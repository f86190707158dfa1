"""Computation of intervals and paired tests from counts per image. This module reads only counts, not captions.

Images are the unit of analysis, because captions of one image (or questions about it) are not independent. The counts
of all captions of an image form one row. By default, intervals come from :mod:`scapo_eval.results.intervals` and
p-values from :mod:`scapo_eval.results.permutation`. Earlier methods remain available by name to reproduce older
results: percentile intervals of the bootstrap by image (``percentile``, ``paired_bootstrap``), and a permutation test
without studentization (``approximate_randomization``).

Images with equal counts are interchangeable. The bootstrap therefore draws the number of occurrences of each distinct
row from a multinomial distribution, which is exactly equivalent to drawing images. Drawing distinct rows is faster and
does not depend on the order of the input. If there are more than POISSON_ABOVE images, or on request, the resamples
come from :mod:`scapo_eval.results.poisson`, so that no process needs to read all images.

Sources: Efron & Tibshirani 1993 (percentile bootstrap), Noreen 1989 (approximate randomization), McNemar 1947. The
p-values ``(hits + 1) / (R + 1)`` include the observed statistic as one of the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.types import Interval
from .counts import CountTable
from .families import holm as holm  # its former home
from .intervals import difference_intervals, intervals, null_variance, t_quantile, t_tail
from .linear import Linear, correlations, exchangeable, linearized, n_differing, opposites
from .metric import Floats, MetricSet, Ratio
from .permutation import canonical_order, permutation_p_values
from .poisson import image_hashes, poisson_sums

DEFAULT_RESAMPLES = 1000
DEFAULT_SEED = 12345
CONFIDENCE = 0.95
MIN_SHARED_IMAGES = 30
"""Minimum number of shared images for a test. Systems on different images also need this number for a difference."""

IntervalMethod = Literal["wilson", "percentile"]
"""Methods for intervals: Wilson intervals with effective sample sizes, or bootstrap percentiles."""

Bootstrap = Literal["multinomial", "poisson"]
"""Methods of resampling: images are drawn with replacement, or each image independently
(:mod:`scapo_eval.results.poisson`).
"""

POISSON_ABOVE = 200_000
"""Number of images above which the Poisson bootstrap is the default."""

Test = Literal["studentized_permutation", "approximate_randomization", "paired_bootstrap", "mcnemar"]

POWER = 0.8
"""Power that defines a detectable difference."""

Verdicts = Mapping[str, Mapping[str, bool]]
"""Metric (a share of correct items) -> item id -> True if the system's answer is correct."""

_MANY_TYPES = 20_000  # above this number, drawing every image is faster than a multinomial draw
_CHUNK = 4_000_000  # cells of a (resamples, row types) block, to limit memory


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of a system with the baseline for one metric, on the images that they have in common.

    For systems that were scored on the same images, a difference is always available. For systems that were scored on
    different images, a difference is available only if they share at least MIN_SHARED_IMAGES images.

    Attributes:
        metric: Name of the metric.
        system_value: Value of the system on the shared images, or None if it cannot be computed.
        baseline_value: Value of the baseline on the shared images, or None if it cannot be computed.
        difference: Value of the system minus value of the baseline, or None if one of them is missing.
        interval: Interval of the difference.
        p_value: Two-sided p-value, or None if there are fewer than MIN_SHARED_IMAGES shared images.
        test: Name of the test that computed the p-value, or None if there is none.
        n_images: Number of shared images.
        standard_error: Standard error of the difference under the hypothesis that both systems have the same value, or
            None if it is unknown, as it is if both systems have a value of 0 or both have a value of 1.
        detectable: Smallest difference that a similar sample detects with a power of 80 %, or None if it cannot be
            computed.
        p_equivalence: p-value of the hypothesis that the values differ by at least the margin, from two one-sided
            tests, or None if no margin is given.
        n_differing: Number of shared images with different counts for the metric.
    """

    metric: str
    system_value: float | None
    baseline_value: float | None
    difference: float | None
    interval: Interval
    p_value: float | None
    test: str | None
    n_images: int
    standard_error: float | None = None
    detectable: float | None = None
    p_equivalence: float | None = None
    n_differing: int = 0


def bootstrap_of(n_images: int) -> Bootstrap:
    """Returns the default kind of bootstrap for a number of images."""
    return "poisson" if n_images > POISSON_ABOVE else "multinomial"


def confidence_intervals(
    table: CountTable,
    metrics: MetricSet,
    *,
    method: IntervalMethod = "wilson",
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    kind: Bootstrap | None = None,
) -> dict[str, Interval]:
    """Returns the confidence interval of every metric in a set.

    Args:
        table: Counts per image, with the columns of the metric set.
        metrics: Metric set.
        method: ``wilson`` (see :mod:`scapo_eval.results.intervals`) or ``percentile`` (see :func:`bootstrap`).
        resamples: Number of resamples for ``percentile``. With 0 resamples, the intervals of both methods are empty.
        seed, confidence, kind: Settings as in :func:`bootstrap`.

    Returns:
        A mapping from each metric to its interval. Both bounds are None if the metric has no value, or if the metric is
        not a fraction and does not vary over the images.
    """
    if method == "percentile":
        return bootstrap(table, metrics, resamples=resamples, seed=seed, confidence=confidence, kind=kind)
    if not resamples:
        return dict.fromkeys(metrics.formulas, Interval(None, None))
    bounds = intervals(linearized(table, metrics), confidence)
    for name, bound in bounds.items():  # Student's interval may include values that a ratio of counts cannot have
        if bound.low is not None and bound.low < 0 and isinstance(metrics.formulas[name], Ratio):
            bounds[name] = Interval(0.0, bound.high)
    return bounds


def bootstrap(
    table: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    kind: Bootstrap | None = None,
) -> dict[str, Interval]:
    """Returns the percentile interval of every metric in a set, from a bootstrap that resamples images.

    Args:
        table: Counts per image, with the columns of the metric set.
        metrics: Metric set.
        resamples: Number of resamples R. With 0 resamples, the intervals are empty.
        seed: Seed for numpy's default generator.
        confidence: Confidence level, which is the share of the resamples inside the interval.
        kind: Bootstrap method, or None to select it based on the number of images; see :func:`bootstrap_of`.

    Returns:
        A mapping from each metric to its interval. Both bounds are None if the metric has no value in the data or in
        one of the resamples, because an interval from the remaining resamples would be too narrow.
    """
    values = metrics.score(resampled_totals(table, resamples=resamples, seed=seed, kind=kind))
    point = metrics.score(table.total)
    return {name: _percentile(values[name], point[name], confidence) for name in metrics.formulas}


def resampled_totals(
    table: CountTable,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    kind: Bootstrap | None = None,
) -> NDArray[Any]:
    """Returns the summed counts of resampled images as a (resamples, columns) array, from which :func:`bootstrap`
    computes intervals.
    """
    if (kind or bootstrap_of(len(table.image_ids))) == "poisson":
        return poisson_sums(image_hashes(table.image_ids), table.rows, resamples=resamples, seed=seed)
    return _drawn(*_row_types(table.rows), resamples=resamples, seed=seed)


def paired_differences(
    system: CountTable,
    baseline: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    test: Test = "studentized_permutation",
    interval: IntervalMethod = "wilson",
    verdicts: tuple[Verdicts, Verdicts] = ({}, {}),
    kind: Bootstrap | None = None,
    margin: float | None = None,
) -> list[Comparison]:
    """Returns the difference between two systems in every metric on their shared images, with an interval and a
    p-value.

    Args:
        system, baseline: Counts per image for the two systems.
        metrics: Metric set of both systems.
        resamples, seed, confidence: Settings for tests and intervals. With 0 resamples, tests and intervals are
            omitted.
        test: Name of the test that computes the p-values. ``mcnemar`` (exact) treats all items as independent, even
            items about the same image. Metrics without verdicts on individual items use the studentized permutation
            test instead, and ``Comparison.test`` names the test.
        interval: Method for computing the intervals. ``percentile`` selects the paired bootstrap.
        verdicts: Verdicts on the answers of the system and of the baseline, for McNemar's test.
        kind: Bootstrap method, or None to select it based on the number of shared images.
        margin: Equivalence margin (0.01 is one point), which :meth:`MetricSet.margin` converts to the unit of a metric.

    Returns:
        A list with one Comparison per metric, in the order of the metric set.
    """
    shared = sorted(set(system.image_ids) & set(baseline.image_ids))
    enough = len(shared) >= MIN_SHARED_IMAGES
    if not enough and set(system.image_ids) != set(baseline.image_ids):
        nothing = Interval(None, None)
        return [Comparison(name, None, None, None, nothing, None, None, len(shared)) for name in metrics.formulas]
    a, b = system.select(shared), baseline.select(shared)
    ours, theirs = metrics.score(a.total), metrics.score(b.total)
    if not enough or not resamples:
        return [
            Comparison(name, x, y, _minus(x, y), Interval(None, None), None, None, len(shared))
            for name, x, y in ((name, _number(ours[name]), _number(theirs[name])) for name in metrics.formulas)
        ]
    pair = _Pair(linearized(a, metrics), linearized(b, metrics))
    differing = n_differing(a, b, metrics)
    if interval == "percentile" or test == "paired_bootstrap":
        drawn = _paired_resamples(a, b, metrics, resamples=resamples, seed=seed, kind=kind)
    if test == "paired_bootstrap":
        null = {name: values - (ours[name] - theirs[name]) for name, values in drawn.items()}
    elif test == "approximate_randomization":
        null = _swapped_differences(a, b, metrics, resamples=resamples, seed=seed)
    if test in ("paired_bootstrap", "approximate_randomization"):
        p_values = {name: _p_value(null[name], ours[name] - theirs[name]) for name in metrics.formulas}
    else:
        order = canonical_order(pair.a, pair.b)
        exchanged = exchangeable((pair.a, pair.b), (a, b), metrics)
        permuted = permutation_p_values(*exchanged, resamples=resamples, seed=seed, order=order)
        p_values = dict(zip(metrics.formulas, map(_number, permuted), strict=True))
    exact = _mcnemar_p_values(*verdicts) if test == "mcnemar" else {}
    fallback = "studentized_permutation" if test == "mcnemar" else test
    if interval == "percentile":
        bounds = {n: _percentile(drawn[n], ours[n] - theirs[n], confidence) for n in metrics.formulas}
    else:
        bounds = difference_intervals(pair.a, pair.b, confidence)
    rows = []
    for k, name in enumerate(metrics.formulas):
        p = exact.get(name, p_values[name])
        x, y = _number(ours[name]), _number(theirs[name])
        rows.append(
            Comparison(
                metric=name,
                system_value=x,
                baseline_value=y,
                difference=_minus(x, y),
                interval=bounds[name],
                p_value=p,
                test=None if p is None else "mcnemar" if name in exact else fallback,
                n_images=len(shared),
                standard_error=_number(pair.errors[k]),
                detectable=pair.detectable(k),
                p_equivalence=None if margin is None else pair.p_equivalence(k, metrics.margin(name, margin, y)),
                n_differing=differing[k],
            )
        )
    return rows


@dataclass(frozen=True)
class _Pair:
    """Metrics of two systems on the same images, in the same order."""

    a: Linear
    b: Linear

    @cached_property
    def errors(self) -> Floats:
        """(M,) array with the standard error of each difference, or NaN if it is unknown because nothing varies."""
        a, b = self.a, self.b
        r = correlations(a, b)
        fraction = a.fraction & b.fraction
        variance = null_variance((a.values, b.values), (a.variances, b.variances), (a.sizes, b.sizes), r, fraction)
        return np.asarray(np.sqrt(np.where(variance > 0, variance, np.nan)))

    @cached_property
    def freedoms(self) -> Floats:
        """(M,) array with the degrees of freedom of each standard error."""
        return np.asarray(np.maximum(1.0, np.minimum(self.a.images, self.b.images) - 1))

    def detectable(self, k: int) -> float | None:
        """Returns the smallest detectable difference for metric k; see :attr:`Comparison.detectable`."""
        error = float(self.errors[k])
        if np.isnan(error):
            return None
        smallest = detectable_difference(error, float(self.freedoms[k]))
        return None if smallest > 1 and self.a.fraction[k] else smallest

    def p_equivalence(self, k: int, margin: float) -> float | None:
        """Returns the larger p-value of the two one-sided tests of equivalence for metric k (Schuirmann 1987).

        If both values are 0 (or both are 1), the p-value is the largest probability of this result if the true values
        differ by the margin. It is attained if one of the true values is 0 (or 1).
        """
        x, y, error = float(self.a.values[k]), float(self.b.values[k]), float(self.errors[k])
        if not np.isnan(error):
            return t_tail((margin - abs(x - y)) / error, float(self.freedoms[k]))
        if x == y and x in (0, 1) and self.a.fraction[k] and self.b.fraction[k]:
            return float(max(0.0, 1 - margin) ** min(self.a.sizes[k], self.b.sizes[k]))
        return None


def detectable_difference(error: float, freedom: float, power: float = POWER, level: float = 1 - CONFIDENCE) -> float:
    """Returns the smallest difference that a two-sided test detects with the requested power.

    Args:
        error: Standard error of the difference.
        freedom: Number of degrees of freedom of the standard error.
        power: Requested probability of detecting the difference.
        level: Significance level of the test.
    """
    return (t_quantile(1 - level / 2, freedom) + t_quantile(power, freedom)) * error


def mcnemar(only_system: int, only_baseline: int) -> float:
    """Performs the exact two-sided McNemar test.

    Args:
        only_system: Number of items that only the system answers correctly.
        only_baseline: Number of items that only the baseline answers correctly.

    Returns:
        The p-value, which is 1.0 if both systems answer the same items correctly.
    """
    n = only_system + only_baseline
    tail = term = 1
    for k in range(min(only_system, only_baseline)):
        term = term * (n - k) // (k + 1)  # next binomial coefficient
        tail += term
    return float(min(1.0, 2 * tail / 2**n))


def _mcnemar_p_values(system: Verdicts, baseline: Verdicts) -> dict[str, float | None]:
    p_values: dict[str, float | None] = {}
    for name in system.keys() & baseline.keys():
        ours, theirs = system[name], baseline[name]
        shared = ours.keys() & theirs.keys()
        if shared:
            won = sum(ours[item] and not theirs[item] for item in shared)
            lost = sum(theirs[item] and not ours[item] for item in shared)
            p_values[name] = mcnemar(won, lost)
    return p_values


def _row_types(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the sorted distinct rows, and the number of images with each row."""
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    key = np.zeros(len(rows), dtype=np.int64)
    span = 1
    for column, low, high in zip(rows.T, rows.min(axis=0).tolist(), rows.max(axis=0).tolist(), strict=True):
        span *= high - low + 1
        if span >= 2**63:
            return np.unique(rows, axis=0, return_counts=True)
        key = key * (high - low + 1) + (column - low)
    order = np.argsort(key, kind="stable")  # one number per row, in row order; sorting numbers is ten times faster
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    return rows[order[starts]], np.diff(starts, append=len(rows))


def _chunks(resamples: int, width: int) -> Iterable[int]:
    size = max(1, _CHUNK // max(1, width))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)


def _drawn(types: NDArray[np.int64], frequency: NDArray[np.int64], *, resamples: int, seed: int) -> Floats:
    """Returns the (resamples, columns) summed counts of images that were drawn with replacement."""
    n = int(frequency.sum())
    values = types.astype(np.float64)  # float for a BLAS product; exact, since counts are far below 2**53
    if n == 0 or resamples == 0:
        return np.zeros((0, types.shape[1]))
    rng = np.random.default_rng(seed)
    if len(types) > _MANY_TYPES:  # draws every image; same distribution
        values = np.repeat(values, frequency, axis=0)
        return np.stack([np.bincount(rng.integers(0, n, n), minlength=n) @ values for _ in range(resamples)])
    sizes = _chunks(resamples, len(types))
    return np.concatenate([rng.multinomial(n, frequency / n, size=size) @ values for size in sizes])


def _paired_resamples(
    a: CountTable, b: CountTable, metrics: MetricSet, *, resamples: int, seed: int, kind: Bootstrap | None
) -> dict[str, Floats]:
    """Returns a mapping from each metric to its (resamples,) differences between the two systems. In each resample, the
    same images are used for both systems.
    """
    pairs = CountTable((*a.columns, *b.columns), a.image_ids, np.hstack([a.rows, b.rows]))
    sums = resampled_totals(pairs, resamples=resamples, seed=seed, kind=kind)
    width = a.rows.shape[1]
    return _difference(metrics, sums[:, :width], sums[:, width:])


def _swapped_differences(
    a: CountTable, b: CountTable, metrics: MetricSet, *, resamples: int, seed: int
) -> dict[str, Floats]:
    """Returns a mapping from each metric to its (resamples,) array of differences. In each resample, the rows of each
    image are swapped with probability 1/2.
    """
    types, times = _row_types(np.hstack([a.rows, b.rows]))
    width = a.rows.shape[1]
    gap = (types[:, :width] - types[:, width:]).astype(np.float64)
    moving = gap.any(axis=1)  # swapping equal rows has no effect
    gap, times = gap[moving], times[moving]
    rng = np.random.default_rng(seed)
    sizes = _chunks(resamples, len(times))
    moved = np.concatenate([rng.binomial(times, 0.5, size=(size, len(times))) @ gap for size in sizes])
    return _difference(metrics, a.total - moved, b.total + moved)


def _difference(metrics: MetricSet, system: NDArray[Any], baseline: NDArray[Any]) -> dict[str, Floats]:
    ours, theirs = metrics.score(system), metrics.score(baseline)
    return {name: ours[name] - theirs[name] for name in metrics.formulas}


def _minus(x: float | None, y: float | None) -> float | None:
    return None if x is None or y is None else x - y


def _p_value(null: Floats, observed: Floats) -> float | None:
    """Returns the two-sided p-value, or None if there is no observed difference. Resamples in which the difference has
    no value count as extreme.
    """
    if np.isnan(observed) or not len(null):
        return None
    hits = int(np.count_nonzero(~(np.abs(null) < abs(float(observed)) - 1e-12)))
    return (hits + 1) / (len(null) + 1)


def _percentile(values: Floats, point: Floats, confidence: float) -> Interval:
    if np.isnan(point) or not len(values) or np.isnan(values).any():
        return Interval(None, None)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high))


def few_events(table: CountTable, metrics: MetricSet, fewer_than: int = 10) -> dict[str, tuple[int, int]]:
    """Returns ``(events, images with an event)`` for each metric that is a share with few events or few non-events, as
    a mapping from metrics.

    If a metric combines several shares, the share whose event is rarest is used. If a metric is computed from table
    cells, the counts refer either to the cells that increase the value or to the cells that decrease it, whichever are
    rarer.
    """
    few = {}
    for name, formula in metrics.formulas.items():
        if name in metrics.plain_numbers or (isinstance(formula, Ratio) and formula.unit != 1):
            continue
        differences = [
            min(sides, key=lambda column: int(column.sum()))
            for sides in opposites(table, metrics, formula)
            if sum(sides).any() and all(side.sum() >= 0 for side in sides)  # type: ignore[union-attr]
        ]
        if differences and (events := min(differences, key=lambda column: int(column.sum()))).sum() < fewer_than:
            few[name] = int(events.sum()), int(np.count_nonzero(events))
    return few


def _number(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def values(metrics: MetricSet, table: CountTable) -> Mapping[str, float | None]:
    """Returns a mapping from each metric to its value over the whole table, or to None if the metric has no value."""
    return {name: _number(value) for name, value in metrics.score(table.total).items()}
