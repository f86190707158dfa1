"""Metrics expressed as ratios of sums over images. Intervals, tests and power analysis are based on these ratios.

A metric is a function of summed counts. For sums close to those of a run, a metric is, to first order, a ratio
``sum(numerators) / sum(volumes)`` with one numerator and one volume per image. This method is called linearization or
infinitesimal jackknife (Efron 1982, Woodruff 1971). If a metric is already a ratio, its counts are the numerators and
volumes, and the representation is exact. For a harmonic mean, an F1 or a mean over categories, the numerator of an
image is the influence of this image on the value.

The standard error of the ratio depends on how much numerators and volumes vary across images. The standard error is
valid for any dependence within an image. The design effect is the squared standard error divided by the
variance of a proportion with the same number of independent trials (Kish 1965). The design effect determines the
effective size, which is the equivalent number of independent trials (Korn & Graubard 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import CountTable
from .metric import Floats, Formula, MetricSet, Ratio

_STEP = 1e-5
_INSIDE = 1e-6  # shift of the sums into the interior of their range, where derivatives and variances exist
_EDGE = 1e-9
FLOOR_IMAGES = 10
"""Weight, in images, of the assumption that the design effect is at least 1. With few images, smaller effects are often
due to chance.
"""

SAME_DIFFERENCE = 0.01
"""Maximum change of a difference, in standard errors, for which two systems are linearized together."""

SAME_ERROR = 0.1
"""Maximum relative change of a standard error for which two systems are linearized together."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Metrics of one metric set, expressed as ratios of sums over n images.

    Attributes:
        names: Names of the M metrics.
        values: (M,) values. NaN marks a missing value.
        numerators, volumes: (n, M) arrays; the values are the ratios of their sums over the images.
        trials: (M,) number of independent trials per unit of volume if there is no clustering. An undefined number is
            represented by 0.
        fraction: (M,) True if the metric is a share in [0, 1], and neither a plain number nor signed.
    """

    names: tuple[str, ...]
    values: Floats
    numerators: Floats
    volumes: Floats
    trials: Floats
    fraction: NDArray[np.bool_]

    @property
    def images(self) -> Floats:
        """(M,) array with the number of images that contribute to each metric."""
        return np.asarray(((self.volumes != 0) | (self.numerators != 0)).sum(axis=0), dtype=np.float64)

    @property
    def influences(self) -> Floats:
        """(n, M) array with the contribution of each image to each value. The values in each column sum to 0."""
        volume = self.volumes.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self.numerators - self.values * self.volumes) / volume)

    @property
    def variances(self) -> Floats:
        """(M,) array with the squared standard error of each value, under the assumption that images are independent.
        The squared standard error is 0 if there is only one image.
        """
        images = self.images
        factor = np.divide(images, images - 1, out=np.ones_like(images), where=images > 1)
        return np.asarray(factor * (self.influences**2).sum(axis=0))

    @property
    def sizes(self) -> Floats:
        """(M,) array with the effective size of each metric; see :func:`effective_size`. The effective size is defined
        only for fractions.
        """
        volume = self.volumes.sum(axis=0)
        return effective_size(self.values, self.variances, self.trials * volume, self.images)


def effective_size(value: Floats, variance: Floats, trials: Floats, images: Floats) -> Floats:
    """Returns the number of independent trials that would yield the same standard error.

    Args:
        value: Array of fractions, of any shape. All other arguments are broadcast to this shape.
        variance: Squared standard error, estimated from the variation over images.
        trials: Number of trials, or 0 if it is unknown, in which case the number of images is used instead.
        images: Number of images.

    Returns:
        The effective size, which is the number of trials divided by the design effect. The design effect is the
        variance divided by the variance of independent trials. A design effect below 1 is shrunk toward 1. The fewer
        images there are, the stronger the shrinkage (FLOOR_IMAGES). The design effect is set to 1 if the value is 0 or
        1, because the counts then do not vary.
    """
    known = trials > 0
    n = np.where(known, trials, images)
    binomial = value * (1 - value) / np.where(n > 0, n, np.nan)
    inside = (value > _EDGE) & (value < 1 - _EDGE) & (binomial > 0)
    effect = np.divide(variance, binomial, out=np.ones(np.shape(inside)), where=inside)
    floor = np.where(known, (images * effect + FLOOR_IMAGES) / (images + FLOOR_IMAGES), (effect <= _EDGE) * 1.0)
    return np.asarray(n / np.where(inside, np.maximum(effect, floor), 1.0))


def linearized(table: CountTable, metrics: MetricSet) -> Linear:
    """Expresses the metrics of a table as ratios of sums over its images.

    Args:
        table: Counts per image, with the columns of the metric set.
        metrics: Metric set.
    """
    rows = table.rows.astype(np.float64)
    names = tuple(metrics.formulas)
    made = [_linear(rows, metrics, name, formula) for name, formula in metrics.formulas.items()]
    n = len(rows)
    others = metrics.plain_numbers | metrics.signed
    return Linear(
        names=names,
        values=np.array([value for value, _, _, _ in made]),
        numerators=np.stack([above for _, above, _, _ in made], axis=1) if made else np.zeros((n, 0)),
        volumes=np.stack([below for _, _, below, _ in made], axis=1) if made else np.zeros((n, 0)),
        trials=np.array([trials for _, _, _, trials in made]),
        fraction=np.array([name not in others and 0 <= made[k][0] <= 1 for k, name in enumerate(names)]),
    )


def exchangeable(
    own: tuple[Linear, Linear], tables: tuple[CountTable, CountTable], metrics: MetricSet
) -> tuple[Linear, Linear]:
    """Expresses the metrics of two systems as ratios of sums for a test that exchanges the rows of images.

    If two systems differ in few images, equal rows must have equal numerators in both systems, so that exchanging them
    changes nothing and ties remain ties. Formulas that are not ratios are therefore linearized once, at the mean of the
    two systems' sums. If the systems differ so much that this changes their difference or a standard error noticeably
    (SAME_DIFFERENCE, SAME_ERROR), each system remains linearized at its own sums.

    Args:
        own: Metrics of each system, linearized at its own sums; see :func:`linearized`.
        tables: Counts of the systems for the same images in the same order.
        metrics: Metric set of both systems.
    """
    a, b = own
    rows = [table.rows.astype(np.float64) for table in tables]
    sums, position = (rows[0].sum(axis=0) + rows[1].sum(axis=0)) / 2, _positions(metrics)
    at = _inside(sums, metrics, position)
    volumes = (a.volumes + b.volumes) / 2  # equal in both systems
    numerators = [linear.numerators.copy() for linear in own]
    is_same = np.array([not isinstance(formula, Ratio) for formula in metrics.formulas.values()])
    is_same &= ~np.isnan(a.values + b.values) & volumes.any(axis=0)
    for k in np.flatnonzero(is_same).tolist():
        formula = metrics.formulas[a.names[k]]
        slopes = _slopes(formula, at, metrics.columns)
        middle = float(formula({column: sums[place] for column, place in position.items()}))
        for of_system, above in zip(rows, numerators, strict=True):
            above[:, k] = of_system @ slopes * volumes[:, k].sum() + middle * volumes[:, k]
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (
            replace(linear, values=above.sum(axis=0) / volumes.sum(axis=0), numerators=above, volumes=volumes)
            for linear, above in zip(own, numerators, strict=True)
        )
        errors, common_errors = ([np.sqrt(linear.variances) for linear in pair] for pair in (own, (x, y)))
    is_same &= np.abs((x.values - y.values) - (a.values - b.values)) <= SAME_DIFFERENCE * np.maximum(*errors)
    for error, common_error in zip(errors, common_errors, strict=True):
        is_same &= np.abs(common_error - error) <= SAME_ERROR * error

    def chosen(linear: Linear, common: Linear) -> Linear:
        above = np.where(is_same, common.numerators, linear.numerators)
        return replace(linear, numerators=above, volumes=np.where(is_same, volumes, linear.volumes))

    return chosen(a, x), chosen(b, y)


def n_differing(a: CountTable, b: CountTable, metrics: MetricSet) -> list[int]:
    """Returns, for each metric, the number of images whose counts for this metric differ between two systems."""
    sums, position = (a.total + b.total) / 2, _positions(metrics)
    at = _inside(sums, metrics, position)
    numbers = []
    for formula in metrics.formulas.values():
        if isinstance(formula, Ratio):
            columns = [position[formula.numerator], position[formula.denominator]]
        else:
            columns = _active(_slopes(formula, at, metrics.columns), at)
        numbers.append(int((a.rows[:, columns] != b.rows[:, columns]).any(axis=1).sum()))
    return numbers


def _positions(metrics: MetricSet) -> dict[str, int]:
    return {column: k for k, column in enumerate(metrics.columns)}


def _linear(rows: Floats, metrics: MetricSet, name: str, formula: Formula) -> tuple[float, Floats, Floats, float]:
    """Returns the value, the numerators, the volumes, and the number of trials per unit of volume for one metric."""
    position = _positions(metrics)
    sums = rows.sum(axis=0)
    value = float(formula({column: sums[k] for column, k in position.items()}))
    if np.isnan(value):
        return value, np.zeros(len(rows)), np.zeros(len(rows)), 0.0
    if isinstance(formula, Ratio):
        above, below = rows[:, position[formula.numerator]], rows[:, position[formula.denominator]]
        share = formula.unit == 1 and formula.denominator not in metrics.weights and bool((above <= below).all())
        return value, above / formula.unit, below, float(share)
    at = _inside(sums, metrics, position)
    slopes = _slopes(formula, at, metrics.columns)
    active = _active(slopes, at)
    parts = [(position[few], position[many]) for few, many in metrics.at_most]
    parts = [(few, many) for few, many in parts if few in active and many in active]
    named = {k for pair in parts for k in pair} | {position[column] for column in metrics.cells}
    influences = rows @ slopes
    if not active or not named.issuperset(active):
        volumes = rows[:, active].any(axis=1).astype(np.float64)  # each image is one unit
        trials = 0.0
    else:
        wholes = [k for k in active if k not in {few for few, _ in parts}]
        volumes = rows[:, wholes].sum(axis=1)
        near = float(formula({column: at[k] for column, k in position.items()}))
        binomial = _binomial(slopes, at, active, parts)
        trials = near * (1 - near) / binomial / volumes.sum() if binomial > 0 else 0.0
        if any(position[column] in active for column in metrics.weights):
            trials = 0.0
    volume = float(volumes.sum())
    numerators = (influences * volume - influences.sum() * volumes) + value * volumes
    return value, np.asarray(numerators), np.asarray(volumes), max(0.0, trials)


def opposites(table: CountTable, metrics: MetricSet, formula: Formula) -> list[tuple[NDArray[np.int64], ...]]:
    """Returns a pair of (images,) arrays for every share in a formula: the counts of the events, and the counts of
    their opposites.

    The list is empty if the formula depends on a column that is neither a part of another column nor a cell of a table.
    """
    position = _positions(metrics)
    rows = table.rows
    if isinstance(formula, Ratio):
        hits = rows[:, position[formula.numerator]]
        return [(hits, rows[:, position[formula.denominator]] - hits)]
    at = _inside(rows.sum(axis=0), metrics, position)
    slopes = _slopes(formula, at, metrics.columns)
    active = _active(slopes, at)
    parts = [(position[few], position[many]) for few, many in metrics.at_most]
    parts = [(few, many) for few, many in parts if few in active and many in active]
    cells = [position[column] for column in metrics.cells if position[column] in active]
    if not {k for pair in parts for k in pair}.union(cells).issuperset(active):
        return []
    sides = (
        [tuple(rows[:, [k for k in cells if slopes[k] * sign > 0]].sum(axis=1) for sign in (1, -1))] if cells else []
    )
    shares = ((rows[:, few].sum(axis=1), rows[:, many].sum(axis=1)) for few, many in _pooled(parts, slopes))
    return [*((hits, trials - hits) for hits, trials in shares), *sides]


def _pooled(parts: Sequence[tuple[int, int]], slopes: Floats) -> list[tuple[list[int], list[int]]]:
    """Returns the columns of each share. Parts with the same effect on a formula form one share, for example the
    categories over which precision is computed. The parts of one column are never pooled.
    """
    shares: list[tuple[int, list[int], list[int]]] = []
    for k, (few, many) in enumerate(parts):
        rank = [column for column, _ in parts[:k]].count(few)
        for same_rank, fews, manys in shares:
            effects = slopes[[fews[0], manys[0]]]
            if rank == same_rank and np.allclose(effects, slopes[[few, many]], rtol=1e-4, atol=0):
                fews.append(few)
                manys.append(many)
                break
        else:
            shares.append((rank, [few], [many]))
    return [(fews, manys) for _, fews, manys in shares]


def _active(slopes: Floats, at: Floats) -> list[int]:
    """Returns the positions of the columns on which a formula depends."""
    return [k for k in range(len(slopes)) if abs(slopes[k]) * max(at[k], 1.0) > _EDGE]


def _inside(sums: Floats, metrics: MetricSet, position: dict[str, int]) -> Floats:
    at: Floats = np.array(sums, dtype=np.float64)
    for few, many in metrics.at_most:
        at[position[few]] += _INSIDE * (sums[position[many]] / 2 - sums[position[few]])
    cells = [position[column] for column in metrics.cells]
    at[cells] += _INSIDE * sums[cells].sum() / max(1, len(cells))
    return at


def _slopes(formula: Formula, at: Floats, columns: Sequence[str]) -> Floats:
    """Returns the (columns,) derivatives of a formula at the summed counts, computed with central differences."""
    steps = _STEP * np.maximum(at, 1.0)
    steps = np.minimum(steps, np.where(at > 0, at / 2, steps))
    points = at + np.concatenate([np.diag(steps), -np.diag(steps)])
    values = np.zeros(2 * len(at)) + formula({column: points[:, k] for k, column in enumerate(columns)})
    slopes: Floats = np.asarray(values[: len(at)] - values[len(at) :], dtype=np.float64) / (2 * steps)
    slopes[np.isnan(slopes)] = 0.0
    return slopes


def _binomial(slopes: Floats, at: Floats, active: Sequence[int], parts: Sequence[tuple[int, int]]) -> float:
    """Returns the variance that a value would have if the trials were independent. Each trial counts in its own column
    and in all columns that contain this column.
    """
    holders: dict[int, set[int]] = {k: {k} for k in active}
    for _ in active:  # repeated, to include indirect containment
        for few, many in parts:
            holders[few] |= holders[many]
    variance = 0.0
    for k in active:
        rest = at[k] - sum(at[few] for few, many in parts if many == k)
        variance += max(0.0, rest) * float(sum(slopes[j] for j in holders[k])) ** 2
    return variance


def correlations(a: Linear, b: Linear) -> Floats:
    """Returns the (M,) correlations between the values of two systems on the same images. Both systems must list the
    images in the same order.

    The correlation is limited to ``1 - 2 / n``, because two systems that agree on all n images may still differ on
    other images.
    """
    x, y = a.influences, b.influences
    scale = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(scale > 0, (x * y).sum(axis=0) / scale, 0.0)
    most = 1 - 2 / max(2, len(x))
    return np.asarray(np.clip(np.nan_to_num(correlation), -most, most))


def covariance(table: CountTable, metrics: MetricSet, names: Sequence[str]) -> NDArray[Any]:
    """Returns the (k, k) covariance matrix of k metrics, computed over the same images."""
    linear = linearized(table, metrics)
    influences = linear.influences[:, [linear.names.index(name) for name in names]]
    n = len(influences)
    return np.asarray(influences.T @ influences * (n / max(1, n - 1)))
