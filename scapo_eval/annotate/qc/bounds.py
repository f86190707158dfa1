"""Exact confidence bounds on how many cells are wrong, from the last, fresh draw.

Three things must hold for the bounds to mean what they say.

*Many rounds.* A person draws until a round is clean, so the last round is a selected one. The k-th draw therefore
gets the level alpha / (k (k + 1)), and these levels sum to alpha however many rounds there are: with probability
1 - alpha NO round's interval fails, hence not the last one's either, whatever decided that it be the last.

*One label.* Its cells that the judge calls present (or absent) are a finite population of ``cells`` of which
``wrong`` are found among ``checked``. Cells are drawn without replacement, so the count is hypergeometric, and
inverting its two one-sided tests, as Clopper and Pearson (1934) do with the binomial, bounds the number of wrong cells
exactly (Wright 1991). A rare label whose cells have all been looked at has no uncertainty left. That three draws make
up a label's present pairs (see draws.py) changes nothing: how many there are depends only on numbers of present cells,
never on which ones, so given their number they are a simple random sample.

*All false positives.* The draw among all present cells is a simple random sample of them: the same bounds.

*All errors.* Every label gives the same number n_l of uniform draws from its N_l cells, D_l of them wrong.
The pooled count of wrong ones is a sum of independent hypergeometric counts; each of these is distributed as a sum
of independent Bernoulli variables (Vatutin & Mikhailov 1982), so the pooled count is Poisson-binomial with mean
sum n_l D_l / N_l. Hoeffding (1956): at least one away from its mean such a count has lighter tails than the binomial
of the same mean, so the binomial Clopper-Pearson interval holds, conservatively. As D_l = (N_l / n_l) (n_l D_l / N_l),
the mean times the largest (smallest) N_l / n_l bounds the number of wrong cells; where all N_l / n_l are equal nothing
is lost. The other draws of present cells stay out. The same holds when only the wrongly absent cells are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache


def alpha_of_draw(alpha: float, draw: int) -> float:
    """Returns the error probability of the ``draw``-th draw (from 1); over any number of draws they sum to less than
    ``alpha``.
    """
    return alpha / (draw * (draw + 1))


@lru_cache(maxsize=4096)
def clopper_pearson(wrong: int, checked: int, alpha: float) -> tuple[float, float]:
    """Returns the two-sided interval of a binomial share (Clopper & Pearson 1934).

    Args:
        wrong: successes.
        checked: trials.
        alpha: probability, at most, that the interval misses; half on either side.

    Returns:
        Bounds in [0, 1]; (0, 1) without a trial.
    """
    if not 0 <= wrong <= checked:
        raise ValueError(f"{wrong} of {checked} cannot be wrong")

    def at_most(count: int, share: float) -> float:
        return _tail(
            count, lambda k: _log_choose(checked, k) + k * math.log(share) + (checked - k) * math.log1p(-share)
        )

    low = 0.0 if wrong == 0 else _root(lambda share: 1 - at_most(wrong - 1, share) > alpha / 2)
    high = 1.0 if wrong == checked else _root(lambda share: at_most(wrong, share) <= alpha / 2)
    return low, high


@lru_cache(maxsize=1 << 16)
def wrong_cells(wrong: int, checked: int, cells: int, alpha: float) -> tuple[int, int]:
    """Returns the two-sided interval of the number of wrong cells in a finite population, from a sample without
    replacement.

    Args:
        wrong: wrong cells in the sample.
        checked: size of the sample.
        cells: size of the population.
        alpha: probability, at most, that the interval misses; half on either side.

    Returns:
        Bounds, the wrong cells of the sample among them.
    """
    if not 0 <= wrong <= checked <= cells:
        raise ValueError(f"{wrong} wrong of {checked} checked of {cells} cells cannot be")
    everything = _log_choose(cells, checked)

    def at_most(count: int, bad: int) -> float:
        """Returns P(at most ``count`` wrong in the sample) where ``bad`` of the population are."""
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
    """Returns the two-sided interval of the number of wrong cells over all labels, from the pooled random draws.

    Args:
        wrong: wrong cells in all samples together.
        doubtful: cells that may be wrong: in the upper bound they count as wrong.
        strata: per label (cells, checked).
        alpha: probability, at most, that the interval misses; half on either side.

    Returns:
        Bounds; None if a label has cells and none was checked.
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
    """Returns where in (0, 1) a condition that fails on the left begins to hold, to the last digits of a double."""
    left, right = 0.0, 1.0
    while True:
        middle = (left + right) / 2
        if not left < middle < right:
            return right
        left, right = (left, middle) if holds(middle) else (middle, right)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Returns the smallest integer from ``low`` on for which a monotone condition holds; it must hold at ``high``."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
