"""Intervals and paired tests from per-image counts; nothing here ever looks at a caption again.

Images are the unit, because captions (or questions) of one image are not independent: the counts of all captions of
an image are one row. By default intervals are those of :mod:`scapo_eval.results.intervals` and p-values those of
:mod:`scapo_eval.results.permutation`. The former methods are kept by name, for figures that were made with them:
percentile intervals of the bootstrap by image (``percentile``, ``paired_bootstrap``), and swapped rows without
studentizing (``approximate_randomization``).

A resample of images is a draw of ROW TYPES: images with equal counts are interchangeable, so drawing how often each
distinct row occurs (multinomial) has exactly the distribution of drawing images one by one, costs less, and does not
depend on the order of the input. Above POISSON_ABOVE images, or where asked for, the draws are those of
:mod:`scapo_eval.results.poisson`, which need no process to see all images.

Sources: Efron & Tibshirani 1993 (percentile bootstrap), Noreen 1989 (approximate randomization), McNemar 1947;
p-values count the observed statistic in, ``(hits + 1) / (R + 1)``.
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
from .linear import Linear, correlations, linearized, opposites
from .metric import Floats, MetricSet, Ratio
from .permutation import permutation_p_values
from .poisson import image_hashes, poisson_sums

DEFAULT_RESAMPLES = 1000
DEFAULT_SEED = 12345
CONFIDENCE = 0.95
MIN_SHARED_IMAGES = 30
"""Below this many shared images two systems are not tested, and those on different images not compared at all."""

IntervalMethod = Literal["wilson", "percentile"]
"""How intervals are made: Wilson's of effective sample sizes, or the bootstrap's percentiles."""

Bootstrap = Literal["multinomial", "poisson"]
"""How images are resampled: drawn with replacement, or each by itself (:mod:`scapo_eval.results.poisson`)."""

POISSON_ABOVE = 200_000
"""Images above which the bootstrap is the Poisson one."""

Test = Literal["studentized_permutation", "approximate_randomization", "paired_bootstrap", "mcnemar"]

POWER = 0.8
"""The power at which a difference counts as one that a sample would show."""

Verdicts = Mapping[str, Mapping[str, bool]]
"""Metric that is a share of right items -> item id -> whether this system has it right."""

_MANY_TYPES = 20_000  # above this a multinomial draw costs more than drawing every image
_CHUNK = 4_000_000  # cells of one (resamples, row types) block: bounds the memory of a resampling


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of a system against the baseline, on the images that both have.

    Systems on the same images always have a difference; on different images only from MIN_SHARED_IMAGES shared ones on.

    Attributes:
        metric: its name.
        system_value: the system's value on the shared images; None if it has none.
        baseline_value: the baseline's value on them.
        difference: system minus baseline; None if one of them has no value.
        interval: of the difference.
        p_value: two-sided; None below MIN_SHARED_IMAGES shared images.
        test: how the p-value was found, None if there is none.
        n_images: number of shared images.
        standard_error: of the difference, if the two were equal.
        detectable: the smallest difference that a sample like this shows with a power of 80 %; None if it shows
            none.
        p_equivalence: that the two differ by less than a margin, by two one-sided tests; None without a margin.
        n_differing: number of shared images on which the counts behind the metric differ.
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
    """Returns the requested bootstrap, or the default one for this number of images."""
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
    """Returns the interval of every metric of a set.

    Args:
        table: per-image counts with the set's columns.
        metrics: the metric set.
        method: ``wilson``, see :mod:`scapo_eval.results.intervals`, or ``percentile``, see :func:`bootstrap`.
        resamples: 0 gives empty intervals; otherwise ``percentile`` alone draws.
        seed, confidence, kind: as in :func:`bootstrap`.

    Returns:
        Metric -> Interval; bounds are None if the metric has no value, or a plain number no spread.
    """
    if method == "percentile":
        return bootstrap(table, metrics, resamples=resamples, seed=seed, confidence=confidence, kind=kind)
    if not resamples:
        return dict.fromkeys(metrics.formulas, Interval(None, None))
    return intervals(linearized(table, metrics), confidence)


def bootstrap(
    table: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    kind: Bootstrap | None = None,
) -> dict[str, Interval]:
    """Returns the percentile bootstrap interval of every metric of a set, resampled by image.

    Args:
        table: per-image counts with the set's columns.
        metrics: the metric set.
        resamples: number of resamples R; 0 gives empty intervals.
        seed: seed of numpy's default generator.
        confidence: share of the resamples inside the interval.
        kind: of bootstrap; None: by the number of images, see :func:`bootstrap_of`.

    Returns:
        Metric -> Interval; bounds are None if the metric has no value, or where a resample has none: an interval of
        the other resamples would be too narrow.
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
    """(resamples, columns) summed counts of resamples of the images: the input of :func:`bootstrap`."""
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
    """Returns the differences of every metric on the shared images, with interval and p-value.

    Args:
        system, baseline: per-image counts of two systems.
        metrics: the metric set.
        resamples, seed, confidence: of tests and intervals; 0 resamples: neither.
        test: where the p-value comes from. ``mcnemar`` (exact) takes items as independent, also those of one image;
            metrics without verdicts fall back to the studentized permutation, and ``Comparison.test`` says which test
            it was.
        interval: how the interval is made; ``percentile``: the paired bootstrap's.
        verdicts: of system and baseline, for McNemar's test.
        kind: of bootstrap; None: by the number of shared images.
        margin: of equivalence, in the metric's own unit (0.01: one point).

    Returns:
        One Comparison per metric, in the set's order.
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
    if interval == "percentile" or test == "paired_bootstrap":
        drawn = _paired_resamples(a, b, metrics, resamples=resamples, seed=seed, kind=kind)
    if test == "paired_bootstrap":
        null = {name: values - (ours[name] - theirs[name]) for name, values in drawn.items()}
    elif test == "approximate_randomization":
        null = _swapped_differences(a, b, metrics, resamples=resamples, seed=seed)
    if test in ("paired_bootstrap", "approximate_randomization"):
        p_values = {name: _p_value(null[name], ours[name] - theirs[name]) for name in metrics.formulas}
    else:
        permuted = permutation_p_values(pair.a, pair.b, resamples=resamples, seed=seed)
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
                p_equivalence=None if margin is None else pair.p_equivalence(k, margin),
                n_differing=int(pair.differing[k]),
            )
        )
    return rows


@dataclass(frozen=True)
class _Pair:
    """Two systems on the same images, row by row."""

    a: Linear
    b: Linear

    @cached_property
    def errors(self) -> Floats:
        """(M,) standard error of each difference."""
        a, b = self.a, self.b
        r = correlations(a, b)
        fraction = a.fraction & b.fraction
        variance = null_variance((a.values, b.values), (a.variances, b.variances), (a.sizes, b.sizes), r, fraction)
        return np.asarray(np.sqrt(variance))

    @cached_property
    def freedoms(self) -> Floats:
        """(M,) degrees of freedom of the standard errors."""
        return np.asarray(np.maximum(1.0, np.minimum(self.a.images, self.b.images) - 1))

    def detectable(self, k: int) -> float | None:
        """Returns the smallest difference of metric k that would be shown, see :attr:`Comparison.detectable`."""
        error = float(self.errors[k])
        if np.isnan(error):
            return None
        smallest = detectable_difference(error, float(self.freedoms[k]))
        return None if smallest > 1 and self.a.fraction[k] else smallest

    def p_equivalence(self, k: int, margin: float) -> float | None:
        """Returns the larger p-value of the two one-sided tests (Schuirmann 1987)."""
        error = float(self.errors[k])
        if np.isnan(error):
            return None
        room = margin - abs(float(self.a.values[k] - self.b.values[k]))
        return float(room <= 0) if error == 0 else t_tail(room / error, float(self.freedoms[k]))

    @cached_property
    def differing(self) -> NDArray[np.int64]:
        """(M,) number of images that count differently."""
        apart = (self.a.numerators != self.b.numerators) | (self.a.volumes != self.b.volumes)
        return np.asarray(apart.sum(axis=0))


def detectable_difference(error: float, freedom: float, power: float = POWER, level: float = 1 - CONFIDENCE) -> float:
    """Returns the difference that a two-sided test finds with some power, from its standard error.

    Args:
        error: standard error of the difference.
        freedom: degrees of freedom of the error.
        power: probability that the difference is found.
        level: of the test.
    """
    return (t_quantile(1 - level / 2, freedom) + t_quantile(power, freedom)) * error


def mcnemar(only_system: int, only_baseline: int) -> float:
    """Performs the exact two-sided McNemar test.

    Args:
        only_system: items that only the system has right.
        only_baseline: items that only the baseline has right.

    Returns:
        p-value; 1.0 if the two never disagree.
    """
    n = only_system + only_baseline
    tail = term = 1
    for k in range(min(only_system, only_baseline)):
        term = term * (n - k) // (k + 1)  # the next binomial coefficient
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
    """Returns the distinct rows (sorted) and how many images have each."""
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    key = np.zeros(len(rows), dtype=np.int64)
    span = 1
    for column, low, high in zip(rows.T, rows.min(axis=0).tolist(), rows.max(axis=0).tolist(), strict=True):
        span *= high - low + 1
        if span >= 2**63:
            return np.unique(rows, axis=0, return_counts=True)
        key = key * (high - low + 1) + (column - low)
    order = np.argsort(key, kind="stable")  # one number per row, in the rows' order: sorted ten times as fast as rows
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    return rows[order[starts]], np.diff(starts, append=len(rows))


def _chunks(resamples: int, width: int) -> Iterable[int]:
    size = max(1, _CHUNK // max(1, width))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)


def _drawn(types: NDArray[np.int64], frequency: NDArray[np.int64], *, resamples: int, seed: int) -> Floats:
    """Returns the (resamples, columns) summed counts of images drawn with replacement."""
    n = int(frequency.sum())
    values = types.astype(np.float64)  # a BLAS product; exact, since counts stay far below 2**53
    if n == 0 or resamples == 0:
        return np.zeros((0, types.shape[1]))
    rng = np.random.default_rng(seed)
    if len(types) > _MANY_TYPES:  # image by image: the same distribution
        values = np.repeat(values, frequency, axis=0)
        return np.stack([np.bincount(rng.integers(0, n, n), minlength=n) @ values for _ in range(resamples)])
    sizes = _chunks(resamples, len(types))
    return np.concatenate([rng.multinomial(n, frequency / n, size=size) @ values for size in sizes])


def _paired_resamples(
    a: CountTable, b: CountTable, metrics: MetricSet, *, resamples: int, seed: int, kind: Bootstrap | None
) -> dict[str, Floats]:
    """Returns a mapping: metric -> (resamples,) differences on the same images drawn for both."""
    pairs = CountTable((*a.columns, *b.columns), a.image_ids, np.hstack([a.rows, b.rows]))
    sums = resampled_totals(pairs, resamples=resamples, seed=seed, kind=kind)
    width = a.rows.shape[1]
    return _difference(metrics, sums[:, :width], sums[:, width:])


def _swapped_differences(
    a: CountTable, b: CountTable, metrics: MetricSet, *, resamples: int, seed: int
) -> dict[str, Floats]:
    """Returns a mapping: metric -> (resamples,) differences where each image's rows are swapped with p = 1/2."""
    types, times = _row_types(np.hstack([a.rows, b.rows]))
    width = a.rows.shape[1]
    gap = (types[:, :width] - types[:, width:]).astype(np.float64)
    moving = gap.any(axis=1)  # swapping equal rows changes nothing
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
    """Two-sided. A resample without a value counts as extreme; without an observed difference there is no p-value."""
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
    """Returns a mapping: metric -> ``(events, images with one)``, of the shares that rest on few events (or on few
    exceptions).

    A metric made of several shares rests on the rarest event of all of them, one made of the cells of a table on what
    raises it or on what lowers it, whichever is rarer.
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
    """Metric -> value over the whole table, None if it has none."""
    return {name: _number(value) for name, value in metrics.score(table.total).items()}
