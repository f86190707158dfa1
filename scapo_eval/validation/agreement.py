"""Agreement of a metric with people, with intervals by image.

Every statistic is a function of how often each image is drawn: a correlation of weighted sums, a rank correlation of
weighted quadratic forms over pairs of images. So a resample of images costs a matrix product, all metrics are seen on
the same resamples, and differences between them are paired.

Sources: Kendall 1945 (tau-b), Stuart 1953 (tau-c), Cohen 1960 (kappa), Efron & Tibshirani 1993 (percentile bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..base.types import Interval
from ..results.metric import Floats, divide
from ..results.stats import CONFIDENCE

Statistic = Literal["pearson", "kendall_b", "kendall_c", "pairwise", "auc", "accuracy", "kappa"]

STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

MOST_IMAGES = 4_000
"""Images up to which rank correlations get intervals: their tables have a cell per pair of images."""

_ROWS = 512


@dataclass(frozen=True)
class ResampledImages:
    """The image of each item, and how often each image is drawn.

    Attributes:
        group: (items,) number of each item's image, from 0.
        drawn: (resamples, images) times that each image is drawn.
    """

    group: NDArray[np.int64]
    drawn: Floats

    @classmethod
    def of(cls, images: list[str], *, resamples: int, seed: int) -> ResampledImages:
        """Returns a bootstrap of the images of items."""
        _, group = np.unique(np.array(images, dtype=object), return_inverse=True)
        n = int(group.max()) + 1
        rng = np.random.default_rng(seed)
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
        return cls(group.astype(np.int64), drawn)

    @property
    def n_images(self) -> int:
        """Number of images."""
        return int(self.drawn.shape[1])

    def weights(self) -> Floats:
        """Returns (1 + resamples, images): first each image once, then the resamples."""
        return np.vstack([np.ones((1, self.n_images)), self.drawn])


@dataclass(frozen=True)
class Pairing:
    """A metric's values and people's ratings of the same items.

    Attributes:
        values: (items,) of the metric, greater is better; NaN if it has none.
        ratings: (items,) of people, greater is better; NaN if one is missing.
        sample: of the images.
        pairs: whether an item is a pair of texts, values and ratings saying by how much the first is better.
    """

    values: Floats
    ratings: Floats
    sample: ResampledImages
    pairs: bool = False

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """(items,) whether an item has both."""
        return ~(np.isnan(self.values) | np.isnan(self.ratings))

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        there = self.there
        order = np.argsort(self.sample.group[there], kind="stable")
        return self.values[there][order], self.ratings[there][order], self.sample.group[there][order]

    def statistics(self) -> tuple[Statistic, ...]:
        """Returns those that make sense: with yes/no ratings AUC, and accuracy and kappa where the metric says yes or
        no.
        """
        values, ratings, _ = self._columns
        if set(np.unique(ratings)) <= {0.0, 1.0}:
            verdicts: tuple[Statistic, ...] = ("accuracy", "kappa") if set(np.unique(values)) <= {0.0, 1.0} else ()
            return ("auc", *verdicts)
        return "pearson", "kendall_b", "kendall_c", "pairwise"

    def resampled(self, statistic: Statistic) -> Floats:
        """(1 + resamples,) value of a statistic: of all items, then of each resample; NaN if it has none."""
        weights = self.sample.weights()
        if statistic in ("kendall_b", "kendall_c", "auc") and self.sample.n_images > MOST_IMAGES:
            weights = weights[:1]
        return _MEASURES[statistic](self, weights)

    def summed(self, columns: Floats) -> Floats:
        """Returns the (images, columns) sums of per-item columns over each image."""
        group = self._columns[2]
        sums = np.zeros((self.sample.n_images, columns.shape[1]))
        np.add.at(sums, group, columns)
        return sums

    def over_pairs(self, of_pair: Callable[[Floats, Floats, Floats, Floats], Floats]) -> Floats:
        """Returns the (images, images) sums over all pairs of items of a function of values and ratings (a column and a
        row).
        """
        values, ratings, group = self._columns
        present, starts = np.unique(group, return_index=True)
        sums = np.zeros((self.sample.n_images, self.sample.n_images))
        for first in range(0, len(values), _ROWS):
            rows = slice(first, first + _ROWS)
            block = of_pair(values[rows, None], values[None], ratings[rows, None], ratings[None])
            by_image = np.zeros((block.shape[0], self.sample.n_images))
            by_image[:, present] = np.add.reduceat(block, starts, axis=1)
            np.add.at(sums, group[rows], by_image)
        return sums


def _form(weights: Floats, table: Floats) -> Floats:
    """Returns the (R,) quadratic forms ``w @ table @ w``."""
    forms: Floats = np.einsum("rg,rg->r", weights @ table, weights)
    return forms


def _pearson(pairing: Pairing, weights: Floats) -> Floats:
    x, y, _ = pairing._columns
    x, y = x - x.mean(), y - y.mean()  # for the digits; a correlation does not change with it
    n, sx, sy, sxx, syy, sxy = (weights @ pairing.summed(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1))).T
    spread = np.maximum(n * sxx - sx * sx, 0) * np.maximum(n * syy - sy * sy, 0)
    return divide(n * sxy - sx * sy, np.where(spread > 1e-12 * n**2, np.sqrt(spread), 0.0))


def _kendall(pairing: Pairing, weights: Floats, *, form: Literal["b", "c"]) -> Floats:
    values, ratings, _ = pairing._columns
    n = weights @ pairing.summed(np.ones((len(values), 1)))[:, 0]
    concordant = _form(weights, pairing.over_pairs(lambda x, a, y, b: np.sign(x - a) * np.sign(y - b))) / 2
    if form == "c":
        fewer = min(len(np.unique(values)), len(np.unique(ratings)))
        return divide(2 * concordant * fewer, n**2 * (fewer - 1))
    pairs = n * (n - 1) / 2
    tied = [
        (_form(weights, pairing.over_pairs(alike)) - n) / 2
        for alike in (lambda x, a, y, b: (x == a) + 0.0 * (y == b), lambda x, a, y, b: (y == b) + 0.0 * (x == a))
    ]
    return divide(concordant, np.sqrt(np.maximum((pairs - tied[0]) * (pairs - tied[1]), 0)))


def _pairwise(pairing: Pairing, weights: Floats) -> Floats:
    """Returns the share of the pairs of one image that people tell apart and the metric orders the same way; half for
    its ties.
    """
    x, y, group = pairing._columns
    if pairing.pairs:
        told_apart = (y != 0).astype(np.float64)
        columns = np.stack([told_apart * (np.sign(x * y) + 1) / 2, told_apart], axis=1)
        right, pairs = (weights @ pairing.summed(columns)).T
        return divide(right, pairs)
    sums = np.zeros((pairing.sample.n_images, 2))
    for image, first in zip(*np.unique(group, return_index=True), strict=True):
        rows = slice(first, first + np.count_nonzero(group == image))
        preferred = np.sign(y[rows, None] - y[None, rows])
        same = np.sign(x[rows, None] - x[None, rows]) * preferred
        apart = preferred > 0
        sums[image] = ((same[apart] + 1) / 2).sum(), apart.sum()
    right, pairs = (weights @ sums).T
    return divide(right, pairs)


def _auc(pairing: Pairing, weights: Floats) -> Floats:
    y = pairing._columns[1]
    won = pairing.over_pairs(lambda x, a, y, b: ((np.sign(x - a) + 1) / 2) * ((y == 1) & (b == 0)))
    positive, negative = (weights @ pairing.summed(np.stack([y == 1, y == 0], 1).astype(np.float64))).T
    return divide(_form(weights, won), positive * negative)


def _verdicts(pairing: Pairing, weights: Floats) -> tuple[Floats, ...]:
    x, y, _ = pairing._columns
    cells = np.stack([x * y, x * (1 - y), (1 - x) * y, (1 - x) * (1 - y)], axis=1)
    return tuple((weights @ pairing.summed(cells)).T)


def _accuracy(pairing: Pairing, weights: Floats) -> Floats:
    both, ours, theirs, neither = _verdicts(pairing, weights)
    return divide(both + neither, both + ours + theirs + neither)


def _kappa(pairing: Pairing, weights: Floats) -> Floats:
    both, ours, theirs, neither = _verdicts(pairing, weights)
    n = both + ours + theirs + neither
    chance = divide((both + ours) * (both + theirs) + (theirs + neither) * (ours + neither), n * n)
    return divide(divide(both + neither, n) - chance, 1 - chance)


_MEASURES: dict[Statistic, Callable[[Pairing, Floats], Floats]] = {
    "pearson": _pearson,
    "kendall_b": lambda pairing, weights: _kendall(pairing, weights, form="b"),
    "kendall_c": lambda pairing, weights: _kendall(pairing, weights, form="c"),
    "pairwise": _pairwise,
    "auc": _auc,
    "accuracy": _accuracy,
    "kappa": _kappa,
}


def interval_of(resampled: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Returns the percentile interval of ``(1 + resamples,)`` values, of which the first is that of all items."""
    known = resampled[1:][~np.isnan(resampled[1:])]
    if np.isnan(resampled[0]) or not len(known):
        return Interval(None, None)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def p_value_of(differences: Floats) -> float | None:
    """Returns the two-sided p of ``(1 + resamples,)`` differences from their share beyond 0; it includes the observed
    one.
    """
    known = differences[1:][~np.isnan(differences[1:])]
    if np.isnan(differences[0]) or not len(known):
        return None
    beyond = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(min(1.0, 2 * (beyond + 1) / (len(known) + 1)))
