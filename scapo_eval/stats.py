"""Intervals and paired tests from per-image counts; nothing here ever looks at a caption again.

Images are the unit of resampling, because captions (or questions) of one image are not independent.
A resample of images is a draw of ROW TYPES: images with equal counts are interchangeable, so drawing
how often each distinct row occurs (multinomial) has exactly the distribution of drawing images one by
one, costs less, and does not depend on the order of the input.

Sources: Efron & Tibshirani 1993 (percentile bootstrap), Noreen 1989 (approximate randomization),
Holm 1979, McNemar 1947; p-values count the observed statistic in, ``(hits + 1) / (R + 1)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .counts import CountTable
from .metric import Floats, MetricSet
from .types import Interval

DEFAULT_RESAMPLES = 1000
DEFAULT_SEED = 12345
CONFIDENCE = 0.95
MIN_SHARED_IMAGES = 30
"""Below this many shared images two systems are not tested, and those on different images not compared at all."""

Test = Literal["approximate_randomization", "paired_bootstrap", "mcnemar"]

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
        system_value: the system's value on the shared images; None where it has none.
        baseline_value: the baseline's value on them.
        difference: system minus baseline; None where one of them has no value.
        interval: of the difference, by the paired bootstrap.
        p_value: two-sided; None below MIN_SHARED_IMAGES shared images.
        test: how the p-value was found, None where there is none.
        n_images: number of shared images.
    """

    metric: str
    system_value: float | None
    baseline_value: float | None
    difference: float | None
    interval: Interval
    p_value: float | None
    test: str | None
    n_images: int


def bootstrap(
    table: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
) -> dict[str, Interval]:
    """Percentile bootstrap interval of every metric of a set, resampled by image.

    Args:
        table: per-image counts with the set's columns.
        metrics: the metric set.
        resamples: number of resamples R; 0 gives empty intervals.
        seed: seed of numpy's default generator.
        confidence: share of the resamples inside the interval.

    Returns:
        Metric -> Interval; bounds are None where the metric has no value.
    """
    types, frequency = _row_types(table.rows)
    values = metrics.score(_bootstrap_sums(types, frequency, resamples, seed))
    point = metrics.score(table.total)
    return {name: _percentile(values[name], point[name], confidence) for name in metrics.formulas}


def resampled_totals(
    table: CountTable, *, resamples: int = DEFAULT_RESAMPLES, seed: int = DEFAULT_SEED
) -> NDArray[np.float64]:
    """(resamples, columns) summed counts of resamples of the images: what :func:`bootstrap` takes its values of."""
    return _bootstrap_sums(*_row_types(table.rows), resamples, seed)


def paired_differences(
    system: CountTable,
    baseline: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    test: Test = "approximate_randomization",
    verdicts: tuple[Verdicts, Verdicts] = ({}, {}),
) -> list[Comparison]:
    """Differences of every metric on the shared images, with interval and p-value.

    Args:
        system, baseline: per-image counts of two systems.
        metrics: the metric set.
        resamples, seed, confidence: as in :func:`bootstrap`.
        test: where the p-value comes from; the interval is always the paired bootstrap's. ``mcnemar`` (exact) takes
            items as independent, also those of one image; metrics without verdicts fall back to randomization,
            and ``Comparison.test`` says which test it was.
        verdicts: of system and baseline, for McNemar's test.

    Returns:
        One Comparison per metric, in the set's order.
    """
    shared = sorted(set(system.image_ids) & set(baseline.image_ids))
    enough = len(shared) >= MIN_SHARED_IMAGES
    if not enough and set(system.image_ids) != set(baseline.image_ids):
        nothing = Interval(None, None)
        return [Comparison(name, None, None, None, nothing, None, None, len(shared)) for name in metrics.formulas]
    a, b = system.select(shared).rows, baseline.select(shared).rows
    width = a.shape[1]
    ours, theirs = metrics.score(a.sum(axis=0)), metrics.score(b.sum(axis=0))
    difference = {name: ours[name] - theirs[name] for name in metrics.formulas}
    tested = enough and resamples > 0
    drawn: dict[str, Floats] = {}
    p_values: dict[str, float | None] = dict.fromkeys(metrics.formulas)
    if tested:
        types, frequency = _row_types(np.hstack([a, b]))
        sums = _bootstrap_sums(types, frequency, resamples, seed)
        drawn = _difference(metrics, sums[:, :width], sums[:, width:])
        if test == "paired_bootstrap":
            null = {name: values - difference[name] for name, values in drawn.items()}
        else:
            null = _randomized_differences(types, frequency, metrics, resamples, seed)
        p_values = {name: _p_value(null[name], difference[name]) for name in metrics.formulas}
    exact = _mcnemar_p_values(*verdicts) if tested and test == "mcnemar" else {}
    p_values |= exact
    fallback = "approximate_randomization" if test == "mcnemar" else test
    return [
        Comparison(
            metric=name,
            system_value=_number(ours[name]),
            baseline_value=_number(theirs[name]),
            difference=_number(difference[name]),
            interval=_percentile(drawn[name], difference[name], confidence) if tested else Interval(None, None),
            p_value=p_values[name],
            test=None if p_values[name] is None else "mcnemar" if name in exact else fallback,
            n_images=len(shared),
        )
        for name in metrics.formulas
    ]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction for several tests (Holm 1979); None stays None."""
    known = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = list(p_values)
    running = 0.0
    for rank, (p, k) in enumerate(known):
        running = max(running, min(1.0, p * (len(known) - rank)))
        corrected[k] = running
    return corrected


def mcnemar(only_system: int, only_baseline: int) -> float:
    """Exact two-sided McNemar test.

    Args:
        only_system: items that only the system has right.
        only_baseline: items that only the baseline has right.

    Returns:
        p-value; 1.0 where the two never disagree.
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
    """Distinct rows (sorted) and how many images have each."""
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    types, frequency = np.unique(rows, axis=0, return_counts=True)
    return types, frequency


def _chunks(resamples: int, width: int) -> Iterable[int]:
    size = max(1, _CHUNK // max(1, width))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)


def _bootstrap_sums(types: NDArray[np.int64], frequency: NDArray[np.int64], resamples: int, seed: int) -> Floats:
    """(resamples, columns) summed counts of images drawn with replacement."""
    n = int(frequency.sum())
    if n == 0 or resamples == 0:
        return np.zeros((0, types.shape[1]))
    rng = np.random.default_rng(seed)
    values = types.astype(np.float64)  # a BLAS product; exact, since counts stay far below 2**53
    return np.concatenate([_draws(frequency, size, rng) @ values for size in _chunks(resamples, len(types))])


def _draws(frequency: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(size, types) how often each row type comes when all images are drawn with replacement."""
    n = int(frequency.sum())
    if len(frequency) <= _MANY_TYPES:
        return rng.multinomial(n, frequency / n, size=size)
    owner = np.repeat(np.arange(len(frequency)), frequency)  # image by image: the same distribution
    return np.stack([np.bincount(owner[rng.integers(0, n, n)], minlength=len(frequency)) for _ in range(size)])


def _randomized_differences(
    types: NDArray[np.int64], frequency: NDArray[np.int64], metrics: MetricSet, resamples: int, seed: int
) -> dict[str, Floats]:
    """Differences after each image's two rows have been swapped with probability 1/2."""
    width = types.shape[1] // 2
    a, b = types[:, :width], types[:, width:]
    gap = (a - b).astype(np.float64)
    moving = gap.any(axis=1)  # swapping equal rows changes nothing
    gap, times = gap[moving], frequency[moving]
    rng = np.random.default_rng(seed)
    swapped = np.concatenate(
        [rng.binomial(times, 0.5, size=(size, len(times))) @ gap for size in _chunks(resamples, len(times))]
    )
    return _difference(metrics, frequency @ a - swapped, frequency @ b + swapped)


def _difference(metrics: MetricSet, system: NDArray[Any], baseline: NDArray[Any]) -> dict[str, Floats]:
    ours, theirs = metrics.score(system), metrics.score(baseline)
    return {name: ours[name] - theirs[name] for name in metrics.formulas}


def _p_value(null: Floats, observed: Floats) -> float | None:
    """Two-sided; resamples without a value are left out, an observed difference without one has no p-value."""
    known = null[~np.isnan(null)]
    if np.isnan(observed) or not len(known):
        return None
    hits = int(np.count_nonzero(np.abs(known) >= abs(float(observed)) - 1e-12))
    return (hits + 1) / (len(known) + 1)


def _percentile(values: Floats, point: Floats, confidence: float) -> Interval:
    known = values[~np.isnan(values)]
    if np.isnan(point) or not len(known):
        return Interval(None, None)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def _number(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def values(metrics: MetricSet, table: CountTable) -> Mapping[str, float | None]:
    """Metric -> value over the whole table, None where it has none."""
    return {name: _number(value) for name, value in metrics.score(table.total).items()}
