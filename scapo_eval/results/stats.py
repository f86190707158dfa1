"""Intervals and paired tests from per-image counts; nothing here ever looks at a caption again.

Images are the unit of resampling, because captions (or questions) of one image are not independent.
A resample of images is a draw of ROW TYPES: images with equal counts are interchangeable, so drawing
how often each distinct row occurs (multinomial) has exactly the distribution of drawing images one by
one, costs less, and does not depend on the order of the input. Above STREAMS_ABOVE images, or where asked for, every
STREAM resamples have a random stream of their own, so that several threads draw the same digits as one. Above
POISSON_ABOVE the draws are those of :mod:`scapo_eval.results.poisson`, which need no process to see all images.

Sources: Efron & Tibshirani 1993 (percentile bootstrap), Noreen 1989 (approximate randomization),
Holm 1979, McNemar 1947; p-values count the observed statistic in, ``(hits + 1) / (R + 1)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.types import Interval
from .counts import CountTable
from .metric import Floats, MetricSet
from .poisson import image_hashes, poisson_sums, swapped_sums

DEFAULT_RESAMPLES = 1000
DEFAULT_SEED = 12345
CONFIDENCE = 0.95
MIN_SHARED_IMAGES = 30
"""Below this many shared images two systems are not tested, and those on different images not compared at all."""

Bootstrap = Literal["multinomial", "streams", "poisson"]
"""How images are resampled: drawn with replacement from one random stream or from several, or each by itself
(:mod:`scapo_eval.results.poisson`)."""

STREAMS_ABOVE = 50_000
"""Images above which resamples are drawn from several random streams."""

STREAM = 50
"""Resamples of one of several streams."""

POISSON_ABOVE = 200_000
"""Images above which the bootstrap is the Poisson one."""

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


def bootstrap_of(n_images: int) -> Bootstrap:
    """The bootstrap for a number of images, unless one is asked for."""
    return "poisson" if n_images > POISSON_ABOVE else "streams" if n_images > STREAMS_ABOVE else "multinomial"


def bootstrap(
    table: CountTable,
    metrics: MetricSet,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    confidence: float = CONFIDENCE,
    kind: Bootstrap | None = None,
    workers: int = 1,
) -> dict[str, Interval]:
    """Percentile bootstrap interval of every metric of a set, resampled by image.

    Args:
        table: per-image counts with the set's columns.
        metrics: the metric set.
        resamples: number of resamples R; 0 gives empty intervals.
        seed: seed of numpy's default generator.
        confidence: share of the resamples inside the interval.
        kind: of bootstrap; None: by the number of images, see :func:`bootstrap_of`.
        workers: threads that draw, where there are several streams; the digits are the same for any number.

    Returns:
        Metric -> Interval; bounds are None where the metric has no value.
    """
    values = metrics.score(resampled_totals(table, resamples=resamples, seed=seed, kind=kind, workers=workers))
    point = metrics.score(table.total)
    return {name: _percentile(values[name], point[name], confidence) for name in metrics.formulas}


def resampled_totals(
    table: CountTable,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    kind: Bootstrap | None = None,
    workers: int = 1,
) -> NDArray[Any]:
    """(resamples, columns) summed counts of resamples of the images: what :func:`bootstrap` takes its values of."""
    kind = kind or bootstrap_of(len(table.image_ids))
    if kind == "poisson":
        return poisson_sums(image_hashes(table.image_ids), table.rows, resamples=resamples, seed=seed)
    draw = _drawer(*_row_types(table.rows))
    if kind == "multinomial":
        return draw(resamples, seed)
    from concurrent.futures import ThreadPoolExecutor

    firsts = range(0, max(resamples, 1), STREAM)
    with ThreadPoolExecutor(workers) as pool:  # numpy draws without the interpreter's lock
        return np.concatenate(list(pool.map(lambda k: draw(min(STREAM, resamples - k), (seed, k)), firsts)))


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
    kind: Bootstrap | None = None,
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
        kind: of bootstrap, also of the randomization's swaps; None: by the number of shared images.

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
        pairs = CountTable((*system.columns, *baseline.columns), tuple(shared), np.hstack([a, b]))
        sums = resampled_totals(pairs, resamples=resamples, seed=seed, kind=kind)
        drawn = _difference(metrics, sums[:, :width], sums[:, width:])
        if test == "paired_bootstrap":
            null = {name: values - difference[name] for name, values in drawn.items()}
        else:
            swapped = _swapped_totals(pairs, resamples=resamples, seed=seed, kind=kind)
            null = _difference(metrics, a.sum(axis=0) - swapped, b.sum(axis=0) + swapped)
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


def _drawer(types: NDArray[np.int64], frequency: NDArray[np.int64]) -> Callable[[int, int | tuple[int, int]], Floats]:
    """Draws images with replacement: (resamples, seed) -> (resamples, columns) summed counts."""
    n = int(frequency.sum())
    values = types.astype(np.float64)  # a BLAS product; exact, since counts stay far below 2**53
    many = len(types) > _MANY_TYPES
    if many:
        values = np.repeat(values, frequency, axis=0)  # image by image: the same distribution

    def draw(resamples: int, seed: int | tuple[int, int]) -> Floats:
        if n == 0 or resamples == 0:
            return np.zeros((0, types.shape[1]))
        rng = np.random.default_rng(seed)
        if many:
            return np.stack([np.bincount(rng.integers(0, n, n), minlength=n) @ values for _ in range(resamples)])
        sizes = _chunks(resamples, len(types))
        return np.concatenate([rng.multinomial(n, frequency / n, size=size) @ values for size in sizes])

    return draw


def _swapped_totals(pairs: CountTable, *, resamples: int, seed: int, kind: Bootstrap | None) -> NDArray[Any]:
    """(resamples, columns) what goes from one system to the other where each image's rows are swapped with p = 1/2."""
    width = len(pairs.columns) // 2
    if (kind or bootstrap_of(len(pairs.image_ids))) == "poisson":
        gaps = pairs.rows[:, :width] - pairs.rows[:, width:]
        return swapped_sums(image_hashes(pairs.image_ids), gaps, resamples=resamples, seed=seed)
    types, times = _row_types(pairs.rows)
    gap = (types[:, :width] - types[:, width:]).astype(np.float64)
    moving = gap.any(axis=1)  # swapping equal rows changes nothing
    gap, times = gap[moving], times[moving]
    rng = np.random.default_rng(seed)
    sizes = _chunks(resamples, len(times))
    return np.concatenate([rng.binomial(times, 0.5, size=(size, len(times))) @ gap for size in sizes])


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
