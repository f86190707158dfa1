"""Studentized permutation test for two systems on the same images.

The null hypothesis is that both systems have the same value of a metric. This hypothesis does not require the systems
to behave alike: one system may make five times as many claims as the other. A test that swaps the rows of single images
(Noreen 1989) has the stronger null hypothesis that the systems behave alike. When used as a test of equal values, it
rejects too often if the systems make different numbers of claims, and too rarely if claims are clustered within images.
To correct these errors, the difference is divided by its standard error, both in the data and in every swapped sample.
The resulting test is exact if the rows are exchangeable. In large samples, the test has the correct size whenever the
two systems have equal values (Janssen 1997; Chung & Romano 2013). The standard error is computed under the null
hypothesis (:func:`~scapo_eval.results.intervals.null_variance`). The test therefore does not underestimate the
uncertainty of a system that has no events.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import null_variance
from .linear import Linear, effective_size
from .metric import Floats
from .workers import PART, Work, sum_of_parts

_IMAGES = 2048  # images per block of coins: a block of 1,000 resamples has 16 MB
_COINS = 64  # per step of the generator
assert PART % _IMAGES == 0
_FEATURES = 6


def permutation_p_values(
    a: Linear, b: Linear, *, resamples: int, seed: int, order: NDArray[np.int64] | None = None
) -> Floats:
    """Returns the (M,) two-sided p-values ``(hits + 1) / (R + 1)`` of M metrics. A p-value is NaN if one of the systems
    has no value.

    A swapped sample in which one of the systems has no volume counts as a hit, so no sample is omitted.

    Args:
        a, b: Metrics of two systems on the same images, in the same order; see
            :func:`~scapo_eval.results.linear.exchangeable`.
        resamples: Number of swapped samples R.
        seed: Seed for the random swaps.
        order: Order in which the images are swapped, or None for :func:`canonical_order`.
    """
    order = canonical_order(a, b) if order is None else order
    features = np.concatenate([_features(a), _cross(a, b)], axis=1)[order]
    swapped = np.concatenate([_features(b), _cross(b, a)], axis=1)[order]
    gaps = swapped - features
    moving = gaps.any(axis=1)
    moved = _tossed(gaps[moving], resamples, seed)
    ours, theirs = features.sum(axis=0), swapped.sum(axis=0)
    both = (a.numerators * b.numerators).sum(axis=0), (a.volumes * b.volumes).sum(axis=0)
    volumes = a.volumes.sum(axis=0), b.volumes.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        trials = np.where(
            (a.trials > 0) & (b.trials > 0), (a.trials * volumes[0] + b.trials * volumes[1]) / sum(volumes), 0.0
        )
    known = np.minimum(a.images, b.images), trials, a.fraction & b.fraction
    observed = _statistic(ours[None], theirs[None], both, *known)
    drawn = _statistic(ours + moved, theirs - moved, both, *known)
    hits = (~(drawn < observed * (1 - 1e-9))).sum(axis=0)
    p_values = (hits + 1.0) / (resamples + 1.0)
    return np.where(np.isnan(a.values) | np.isnan(b.values), np.nan, p_values)


def canonical_order(a: Linear, b: Linear) -> NDArray[np.int64]:
    """Returns an order of the images that depends only on their counts, so that the names of images do not affect the
    result.
    """
    columns = np.concatenate([a.numerators, a.volumes, b.numerators, b.volumes], axis=1)
    return np.lexsort(columns.T)


def _features(run: Linear) -> Floats:
    """Returns an (images, 5 M) array of features from whose sums the values and variances of all metrics are
    computed.
    """
    x, v = run.numerators, run.volumes
    return np.concatenate([x, v, x * x, x * v, v * v], axis=1)


def _cross(a: Linear, b: Linear) -> Floats:
    return a.numerators * b.volumes


def _tossed(gaps: Floats, resamples: int, seed: int) -> Floats:
    """Returns the (resamples, columns) sums over random subsets of the rows. Each row belongs to a subset with
    probability 1/2.
    """

    def of_part(images: slice) -> Work:
        return _tossed_part, (gaps[images], images.start // _IMAGES, resamples, seed)

    return sum_of_parts(len(gaps), of_part)


def _tossed_part(gaps: NDArray[Any], block: int, resamples: int, seed: int) -> Floats:
    """Returns the sums over random subsets of the rows that begin with the given block. The coins are those that one
    process tosses for these rows.
    """
    bits = np.random.PCG64(seed)
    bits.advance(block * resamples * _IMAGES // _COINS)
    rng = np.random.Generator(bits)
    sums = np.zeros((resamples, gaps.shape[1]))
    for first in range(0, len(gaps), _IMAGES):
        rows = gaps[first : first + _IMAGES].astype(np.float64)
        coins = np.unpackbits(rng.integers(0, 256, (resamples, -(-len(rows) // 8)), dtype=np.uint8), axis=1)
        sums += coins[:, : len(rows)].astype(np.float64) @ rows
    return sums


def _statistic(
    ours: Floats,
    theirs: Floats,
    both: tuple[Floats, Floats],
    images: Floats,
    trials: Floats,
    fraction: NDArray[np.bool_],
) -> Floats:
    """Returns the (samples, M) absolute differences divided by their standard errors. A quotient is infinite if a
    system has no volume.
    """  # fmt: skip
    x, v, xx, xv, vv, xw = np.split(ours, _FEATURES, axis=1)
    y, w, yy, yw, ww, yv = np.split(theirs, _FEATURES, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = x / v, y / w
        variances = (xx - 2 * p * xv + p * p * vv) / v**2, (yy - 2 * q * yw + q * q * ww) / w**2
        var_p, var_q = (np.maximum(spread, 0.0) for spread in variances)
        shared = (both[0] - q * xw - p * yv + p * q * both[1]) / (v * w)
        r = np.clip(np.nan_to_num(shared / np.sqrt(var_p * var_q)), -1.0, 1.0)
        sizes = effective_size(p, var_p, trials * v, images), effective_size(q, var_q, trials * w, images)
        variance = null_variance((p, q), (var_p, var_q), sizes, r, fraction)
        gap = np.abs(p - q)
        statistic = np.where(variance > 1e-15 * gap * gap, gap / np.sqrt(np.maximum(variance, 0.0)), np.inf)
    statistic = np.where(gap <= 1e-12, 0.0, statistic)
    return np.where((v > 0) & (w > 0), statistic, np.inf)
