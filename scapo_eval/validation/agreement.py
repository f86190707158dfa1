"""Agreement between a metric and human ratings, with confidence intervals from resampled images.

Every statistic weights each image by the number of times that a resample draws the image. Correlations are functions of
weighted sums, and rank correlations are functions of weighted quadratic forms over pairs of images. The statistics of
all resamples are therefore computed by matrix products. All metrics use the same resamples, so that the differences
between metrics are paired.

Sources: Kendall 1945 (tau-b), Stuart 1953 (tau-c), Cohen 1960 (kappa), Efron & Tibshirani 1993 (percentile bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..base.types import Interval
from ..results.metric import Floats, divide
from ..results.stats import CONFIDENCE

Statistic = Literal["pearson", "kendall_b", "kendall_c", "pairwise", "auc", "accuracy", "kappa"]

MOST_IMAGES = 4_000
"""Maximum number of images for intervals of rank correlations, whose tables have one cell per pair of images."""

_ROWS = 512


@dataclass(frozen=True)
class ResampledImages:
    """Bootstrap samples of images. A sample is stored as the number of times that each image is drawn.

    Attributes:
        group: (items,) index of each item's image, starting at 0.
        drawn: (resamples, images) array with the number of times that each image is drawn.
    """

    group: NDArray[np.int64]
    drawn: Floats

    @classmethod
    def of(cls, images: list[str], *, resamples: int, seed: int) -> ResampledImages:
        """Draws bootstrap samples of the images."""
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
        """Returns weights as an array of shape (1 + resamples, images). The first row is 1 for every image, and each
        other row contains the weights of one resample.
        """
        return np.vstack([np.ones((1, self.n_images)), self.drawn])


@dataclass(frozen=True)
class Pairing:
    """Metric values and human ratings for the same items.

    Attributes:
        values: (items,) values of the metric, where a greater value is better. Undefined values are NaN.
        ratings: (items,) ratings by people, where a greater rating is better. Missing ratings are NaN.
        sample: Bootstrap samples of the images.
        pairs: True if an item is a pair of texts. The values and ratings of a pair state by how much the first text is
            better than the second.
    """

    values: Floats
    ratings: Floats
    sample: ResampledImages
    pairs: bool = False

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """(items,) mask that is True for items with both a value and a rating."""
        return ~(np.isnan(self.values) | np.isnan(self.ratings))

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        there = self.there
        order = np.argsort(self.sample.group[there], kind="stable")
        return self.values[there][order], self.ratings[there][order], self.sample.group[there][order]

    def statistics(self) -> tuple[Statistic, ...]:
        """Returns the names of the statistics that apply to the ratings. For yes/no ratings, the statistic is AUC. If
        the metric has only the values 0 and 1, accuracy and kappa are also computed.
        """
        values, ratings, _ = self._columns
        if set(np.unique(ratings)) <= {0.0, 1.0}:
            verdicts: tuple[Statistic, ...] = ("accuracy", "kappa") if set(np.unique(values)) <= {0.0, 1.0} else ()
            return ("auc", *verdicts)
        return "pearson", "kendall_b", "kendall_c", "pairwise"

    def resampled(self, statistic: Statistic) -> Floats:
        """Returns the (1 + resamples,) values of a statistic, first for all items and then for each resample. Undefined
        values are NaN.
        """
        if statistic in ("kendall_b", "kendall_c", "auc") and self.sample.n_images > MOST_IMAGES:
            together = ResampledImages(np.zeros_like(self.sample.group), np.zeros((0, 1)))  # all items as one image
            return _MEASURES[statistic](replace(self, sample=together), together.weights())
        return _MEASURES[statistic](self, self.sample.weights())

    def summed(self, columns: Floats) -> Floats:
        """Sums per-item columns over the items of each image, and returns the sums as an (images, columns) array."""
        group = self._columns[2]
        sums = np.zeros((self.sample.n_images, columns.shape[1]))
        np.add.at(sums, group, columns)
        return sums

    def over_pairs(self, of_pair: Callable[[Floats, Floats, Floats, Floats], Floats]) -> Floats:
        """Sums a function of the values and ratings of two items over all pairs of items, and returns these sums as an
        (images, images) array with one sum per pair of images.

        The function receives the values of the first item as a column and those of the second item as a row, followed
        by the ratings in the same layout.
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
    x, y = x - x.mean(), y - y.mean()  # for numerical precision; a correlation is invariant to shifts
    n, sx, sy, sxx, syy, sxy = (weights @ pairing.summed(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1))).T
    xx, yy = n * sxx - sx * sx, n * syy - sy * sy
    varies = (xx > 1e-12 * n * sxx) & (yy > 1e-12 * n * syy)  # otherwise, only rounding errors vary
    return divide(n * sxy - sx * sy, np.sqrt(np.where(varies, xx * yy, 0.0)))


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
    """Returns the share of text pairs about the same image that the metric orders as people do. Pairs with equal values
    of the metric count as one half.

    Pairs of texts with equal ratings are omitted.
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
    """Returns the percentile interval from ``(1 + resamples,)`` values of a statistic. The first value is the statistic
    for all items.
    """
    known = resampled[1:][~np.isnan(resampled[1:])]
    if np.isnan(resampled[0]) or not len(known):
        return Interval(None, None)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def p_value_of(differences: Floats) -> float | None:
    """Returns the two-sided bootstrap p-value from ``(1 + resamples,)`` differences, of which the first is the observed
    difference. The p-value is twice the share of resamples at or below 0, or at or above 0, whichever is smaller. The
    observed difference is included in the p-value as an additional resample.
    """
    known = differences[1:][~np.isnan(differences[1:])]
    if np.isnan(differences[0]) or not len(known):
        return None
    beyond = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(min(1.0, 2 * (beyond + 1) / (len(known) + 1)))
