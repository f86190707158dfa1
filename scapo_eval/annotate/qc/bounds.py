"""Exact confidence bounds for the number of wrong cells, computed from the last draw of unseen cells.

*Many rounds.* A person draws rounds until a round contains no errors, so the last round is selected by its outcome.
Therefore, the k-th draw has the error probability alpha / (k (k + 1)). These error probabilities sum to at most alpha
for any number of rounds. With probability 1 - alpha, the intervals for ALL rounds are valid, including those for the
last round, regardless of the stopping rule.

*One label.* Those cells of a label that the judge calls present (or absent) form a finite population of size ``cells``.
Of these cells, ``checked`` are sampled, and ``wrong`` of the sampled cells are found to be wrong. Cells are drawn
without replacement, so the number of wrong cells in the sample is hypergeometric. Exact bounds on the number of wrong
cells (Wright 1991) are obtained by inverting the two one-sided tests based on the number in the sample, as Clopper and
Pearson (1934) do for the binomial distribution. If all cells of a rare label have been checked, no uncertainty remains.
The combination of three draws (see draws.py) does not affect the bounds. The number of drawn present pairs depends only
on the numbers of present cells. Given the number of drawn present pairs, the pairs are a simple random sample.

*All false positives.* The draw among all present cells is a simple random sample of these cells, so the bounds above
apply.

*All errors.* A label l has N_l cells, of which D_l are wrong, and n_l of its cells are drawn uniformly. The pooled
count of wrong cells is a sum of independent hypergeometric counts. Each hypergeometric count is distributed as a sum of
independent Bernoulli variables (Vatutin & Mikhailov 1982). Therefore, the pooled count is Poisson-binomial, and its
mean is sum n_l D_l / N_l. According to Hoeffding (1956), at distances of at least one from the mean, a Poisson-binomial
count has lighter tails than the binomial distribution with the same mean. Therefore, the binomial Clopper-Pearson
interval is valid and conservative. D_l equals (N_l / n_l) (n_l D_l / N_l). Therefore, the mean multiplied by the
largest (smallest) N_l / n_l is an upper (lower) bound on the number of wrong cells. If all N_l / n_l are equal,
multiplying by this ratio does not widen the interval. The additional draws of present cells are not used. The same
argument gives bounds on the number of cells that are wrongly called absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache


def alpha_of_draw(alpha: float, draw: int) -> float:
    """Returns the error probability of the ``draw``-th draw, counted from 1.

    Over any number of draws, the error probabilities sum to less than ``alpha``.
    """
    return alpha / (draw * (draw + 1))


@lru_cache(maxsize=4096)
def clopper_pearson(wrong: int, checked: int, alpha: float) -> tuple[float, float]:
    """Returns the two-sided confidence interval for a binomial proportion (Clopper & Pearson 1934).

    Args:
        wrong: Number of successes.
        checked: Number of trials.
        alpha: Maximum probability that the interval misses the share, split equally between the two sides.

    Returns:
        Lower and upper bounds in [0, 1], or (0, 1) if there are no trials.
    """
    if not 0 <= wrong <= checked:
        raise ValueError(f"invalid counts: {wrong} wrong of {checked} checked")

    def at_most(count: int, share: float) -> float:
        return _tail(
            count, lambda k: _log_choose(checked, k) + k * math.log(share) + (checked - k) * math.log1p(-share)
        )

    low = 0.0 if wrong == 0 else _root(lambda share: 1 - at_most(wrong - 1, share) > alpha / 2)
    high = 1.0 if wrong == checked else _root(lambda share: at_most(wrong, share) <= alpha / 2)
    return low, high


@lru_cache(maxsize=1 << 16)
def wrong_cells(wrong: int, checked: int, cells: int, alpha: float) -> tuple[int, int]:
    """Returns the two-sided confidence interval for the number of wrong cells in a finite population.

    The interval is computed from a sample that is drawn without replacement.

    Args:
        wrong: Number of wrong cells in the sample.
        checked: Size of the sample.
        cells: Number of cells in the population.
        alpha: Maximum probability that the interval misses the number, split equally between the two sides.

    Returns:
        Lower and upper bounds on the number of wrong cells in the population, including those in the sample.
    """
    if not 0 <= wrong <= checked <= cells:
        raise ValueError(f"invalid counts: {wrong} wrong of {checked} checked of {cells} cells")
    everything = _log_choose(cells, checked)

    def at_most(count: int, bad: int) -> float:
        """Returns the probability of finding at most ``count`` wrong cells in the sample if ``bad`` cells in the
        population are wrong.
        """
        first = max(0, checked - (cells - bad))
        return _tail(
            min(count, checked, bad),
            lambda k: _log_choose(bad, k) + _log_choose(cells - bad, checked - k) - everything,
            first,
        )

    most = cells - (checked - wrong)
    low = _first(wrong, most, lambda bad: 1 - at_most(wrong - 1, bad) > alpha / 2)
    high = _first(wrong, most + 1, lambda bad: bad > most or at_most(wrong, bad) <= alpha / 2) - 1
    return low, max(low, high)


def pooled_wrong_cells(
    wrong: int, doubtful: int, strata: Sequence[tuple[int, int]], alpha: float
) -> tuple[float, float] | None:
    """Returns the two-sided confidence interval for the number of wrong cells over all labels, computed from the pooled
    random draws.

    Args:
        wrong: Number of wrong cells in all samples.
        doubtful: Number of cells that may be wrong, all of which the upper bound counts as wrong.
        strata: Number of cells and number of checked cells for each label.
        alpha: Maximum probability that the interval misses the number, split equally between the two sides.

    Returns:
        Lower and upper bound, or None if a label has cells but none of them was checked.
    """
    strata = [(cells, checked) for cells, checked in strata if cells]
    if any(not checked for _, checked in strata):
        return None
    if not strata:
        return 0.0, 0.0
    n = sum(checked for _, checked in strata)
    weights = [cells / checked for cells, checked in strata]
    suspect = wrong + doubtful
    # Hoeffding's inequality begins one away from the mean; from two labels on and at usual levels this changes nothing
    low = min(n * clopper_pearson(wrong, n, alpha)[0], max(0, wrong - 1))
    high = min(n, max(n * clopper_pearson(suspect, n, alpha)[1], suspect + 1))
    unseen = sum(cells for cells, _ in strata) - n
    return max(float(wrong), low * min(weights)), min(float(suspect + unseen), high * max(weights))


@lru_cache(maxsize=1 << 14)
def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _tail(count: int, log_term: Callable[[int], float], first: int = 0) -> float:
    """Returns the sum of exp(log_term(k)) for k from ``first`` to ``count``."""
    return min(1.0, math.fsum(math.exp(log_term(k)) for k in range(first, count + 1)))


def _root(holds: Callable[[float], bool]) -> float:
    """Returns the smallest number in (0, 1] for which a monotone condition holds, to double precision."""
    left, right = 0.0, 1.0
    while True:
        middle = (left + right) / 2
        if not left < middle < right:
            return right
        left, right = (left, middle) if holds(middle) else (middle, right)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Returns the smallest integer from ``low`` to ``high`` for which a monotone condition is true.

    The condition must be true for ``high``.
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
