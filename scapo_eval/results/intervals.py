"""Confidence intervals that keep their coverage for values near 0 and 1, and the quantile functions that they require.

The interval of a share is Wilson's score interval (Wilson 1927), computed with Student's quantile. The number of trials
in Wilson's interval is the effective size of the sample (:func:`~scapo_eval.results.linear.effective_size`). If there
are at most three events, the lower bound is a Poisson bound (Brown, Cai & DasGupta 2001). The interval of the
difference between two systems on the same images combines the two systems' intervals and the correlation of their
values (Newcombe 1998, method 10; Zou & Donner 2008). The interval of a metric that is not a share is Student's
interval.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.types import Interval
from .linear import Linear, correlations
from .metric import Floats

if TYPE_CHECKING:
    from statistics import NormalDist

FEW_EVENTS = 3.5
"""Number of effective events below which the lower bound of a share is a Poisson bound."""


@cache
def normal() -> NormalDist:
    """Returns the standard normal distribution."""
    from statistics import NormalDist  # slow import (fractions, decimal): two milliseconds per start

    return NormalDist()


def t_quantile(p: float, df: float) -> float:
    """Returns a quantile of Student's t distribution, computed with Wallace's approximation (1959). The error is below
    0.3 % if there are at least 5 degrees of freedom.
    """
    z = normal().inv_cdf(p) * (8 * df + 3) / (8 * df + 1)
    return math.copysign(math.sqrt(df * math.expm1(min(700.0, z * z / df))), z)


def t_tail(t: float, df: float) -> float:
    """Returns the probability that a variable with Student's t distribution exceeds ``t``. This function inverts
    :func:`t_quantile`, except that it returns the upper tail probability ``1 - p``.
    """
    z = math.sqrt(df * math.log1p(t * t / df)) * (8 * df + 1) / (8 * df + 3)
    return normal().cdf(-math.copysign(z, t))


def chi2_tail(x: float, df: int) -> float:
    """Returns the probability that a chi-squared variable with an integer number of degrees of freedom exceeds ``x``.
    The probability is computed from finite sums.
    """
    if x <= 0:
        return 1.0
    half = x / 2
    if df % 2 == 0:
        term, total = 1.0, 1.0
        for k in range(1, df // 2):
            term *= half / k
            total += term
        return min(1.0, math.exp(-half) * total)
    term = math.sqrt(half) / math.gamma(1.5)
    total = 0.0
    for k in range(1, (df + 1) // 2):
        total += term
        term *= half / (k + 0.5)
    return min(1.0, math.erfc(math.sqrt(half)) + math.exp(-half) * total)


def wilson(share: float, n: float, z: float = 1.959963984540054) -> tuple[float, float]:
    """Returns Wilson's score interval for a share of n independent trials. ``n`` can be any positive number."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if share <= 0 else low), (1.0 if share >= 1 else high)


def _rare(share: float, n: float, low: float, confidence: float) -> float:
    """Returns the lower bound for a share with few events. The bound is a Poisson bound that uses the approximation by
    Wilson and Hilferty (1931).
    """
    events = share * n
    if not 0 < events < FEW_EVENTS:
        return low
    z = normal().inv_cdf(confidence)
    root = 1 - 1 / (9 * events) - z / (3 * math.sqrt(events))
    return min(low, events * max(0.0, root) ** 3 / n)


def _bounds(linear: Linear, confidence: float, *, single: bool) -> list[tuple[float, float] | None]:
    made: list[tuple[float, float] | None] = []
    columns = zip(linear.values, linear.variances, linear.sizes, linear.images, linear.fraction, strict=True)
    for value, variance, size, images, fraction in columns:
        quantile = t_quantile((1 + confidence) / 2, max(1.0, float(images) - 1))
        if math.isnan(value) or not images:
            made.append(None)
        elif fraction:
            low, high = wilson(float(value), float(size), quantile)
            if single:
                low = _rare(float(value), float(size), low, confidence)
                high = 1 - _rare(1 - float(value), float(size), 1 - high, confidence)
            made.append((low, high))
        elif variance > 0:
            half = quantile * math.sqrt(float(variance))
            made.append((float(value) - half, float(value) + half))
        else:
            made.append(None)  # all images are equal, so the spread is unknown
    return made


def intervals(linear: Linear, confidence: float) -> dict[str, Interval]:
    """Returns a mapping from each metric to its confidence interval.

    Both bounds are None if the metric has no value, or if the metric is not a fraction and does not vary over the
    images.
    """
    bounds = _bounds(linear, confidence, single=True)
    return {name: Interval(*(pair or (None, None))) for name, pair in zip(linear.names, bounds, strict=True)}


def difference_intervals(a: Linear, b: Linear, confidence: float) -> dict[str, Interval]:
    """Returns a mapping from each metric to the confidence interval of ``a - b``. The two tables must contain the same
    images in the same order.
    """
    made = {}
    pairs = zip(_bounds(a, confidence, single=False), _bounds(b, confidence, single=False), strict=True)
    for k, ((ours, theirs), r) in enumerate(zip(pairs, correlations(a, b).tolist(), strict=True)):
        if ours is None or theirs is None:
            made[a.names[k]] = Interval(None, None)
            continue
        x, y = float(a.values[k]), float(b.values[k])
        below = _joined(x - ours[0], theirs[1] - y, r)
        above = _joined(ours[1] - x, y - theirs[0], r)
        made[a.names[k]] = Interval(x - y - below, x - y + above)
    return made


def _joined(a: float, b: float, r: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * r * a * b + b * b))


def null_variance(
    values: tuple[Floats, Floats],
    variances: tuple[Floats, Floats],
    sizes: tuple[Floats, Floats],
    r: Floats,
    fraction: NDArray[np.bool_],
) -> Floats:
    """Returns the squared standard error of a difference under the hypothesis that both values are equal.

    For fractions, it is the squared standard error of the difference between two proportions. Both proportions equal
    the common value, and their sample sizes are the systems' effective sizes. The error for fractions is therefore also
    valid if one system has no events. If neither system has an event, the error is 0, which does not measure the
    uncertainty. For metrics that are not fractions, the error combines the variances of the two
    systems. Arguments of different shapes are broadcast.
    """  # fmt: skip
    (x, y), (v, w), (m, n) = values, variances, sizes
    with np.errstate(invalid="ignore", divide="ignore"):
        common = (m * x + n * y) / (m + n)
        score = common * (1 - common) * (1 / m + 1 / n - 2 * r / np.sqrt(m * n))
        plain = v + w - 2 * r * np.sqrt(v * w)
    return np.asarray(np.where(fraction, score, plain))
