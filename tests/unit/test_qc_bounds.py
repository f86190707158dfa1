"""Bounds of quality control against published values, rational arithmetic and exact coverage."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import comb

import numpy as np
import pytest

from scapo_eval.annotate.qc.bounds import alpha_of_draw, clopper_pearson, pooled_wrong_cells, wrong_cells


@pytest.mark.parametrize(
    ("wrong", "checked", "low", "high"),
    [  # Newcombe 1998, Statistics in Medicine 17:857, table I, method 5: Clopper-Pearson at 95 %
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0000, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ],
)
def test_published_intervals(wrong: int, checked: int, low: float, high: float) -> None:
    assert tuple(round(bound, 4) for bound in clopper_pearson(wrong, checked, 0.05)) == (low, high)


def at_most(count: int, n: int, share: Fraction) -> Fraction:
    return sum((comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count + 1)), Fraction(0))


@pytest.mark.parametrize(("wrong", "checked"), [(0, 30), (1, 30), (7, 30), (29, 30), (30, 30), (3, 600), (0, 1)])
@pytest.mark.parametrize("alpha", [0.05, 0.01 / 2, 0.01 / 90])
def test_bounds_solve_their_equations_in_exact_arithmetic(wrong: int, checked: int, alpha: float) -> None:
    low, high = clopper_pearson(wrong, checked, alpha)
    assert (low == 0) == (wrong == 0)
    assert (high == 1) == (wrong == checked)
    if low:
        assert float(1 - at_most(wrong - 1, checked, Fraction(low))) == pytest.approx(alpha / 2, rel=1e-9)
    if high < 1:
        assert float(at_most(wrong, checked, Fraction(high))) == pytest.approx(alpha / 2, rel=1e-9)


def test_nothing_checked_says_nothing() -> None:
    assert clopper_pearson(0, 0, 0.01) == (0.0, 1.0)
    assert wrong_cells(0, 0, 50, 0.01) == (0, 50)
    with pytest.raises(ValueError, match="31 wrong of 30 checked"):
        clopper_pearson(31, 30, 0.01)
    with pytest.raises(ValueError, match="checked of 20"):
        wrong_cells(0, 30, 20, 0.01)


@cache
def hypergeometric(cells: int, bad: int, n: int) -> list[Fraction]:
    """P(k wrong in the sample), k = 0..n."""
    return [Fraction(comb(bad, k) * comb(cells - bad, n - k), comb(cells, n)) for k in range(n + 1)]


@pytest.mark.parametrize(("cells", "checked"), [(40, 12), (30, 30), (12, 10), (25, 1), (36, 18)])
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.005])
def test_finite_bounds_are_the_widest_values_that_no_test_rejects(cells: int, checked: int, alpha: float) -> None:
    chance = [[float(p) for p in hypergeometric(cells, bad, checked)] for bad in range(cells + 1)]
    for wrong in range(checked + 1):
        possible = range(wrong, cells - (checked - wrong) + 1)
        plausible = [
            bad
            for bad in possible
            if sum(chance[bad][: wrong + 1]) > alpha / 2 and sum(chance[bad][wrong:]) > alpha / 2
        ]
        assert wrong_cells(wrong, checked, cells, alpha) == (plausible[0], plausible[-1])


@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_finite_bounds_cover_every_truth_and_are_not_idle(alpha: float) -> None:
    cells, checked = 50, 20
    missed = []
    for bad in range(cells + 1):
        chance = hypergeometric(cells, bad, checked)
        intervals = [wrong_cells(k, checked, cells, alpha) for k in range(checked + 1)]
        missed.append(float(sum(p for p, (low, high) in zip(chance, intervals, strict=True) if not low <= bad <= high)))
    assert max(missed) <= alpha
    assert max(missed) > alpha / 4  # an interval that always held would be of no use


def test_a_label_that_was_looked_at_wholly_is_certain() -> None:
    assert wrong_cells(3, 12, 12, 0.01) == (3, 3)
    assert wrong_cells(0, 10, 12, 0.01) == (0, 2)


def test_finite_bounds_are_never_wider_than_the_binomial_ones() -> None:
    for wrong in (0, 1, 5):
        low, high = wrong_cells(wrong, 30, 5000, 0.01)
        wider = clopper_pearson(wrong, 30, 0.01)
        assert wider[0] <= low / 5000 <= high / 5000 <= wider[1]
        assert high / 5000 == pytest.approx(wider[1], rel=0.02)


def test_bounds_grow_with_errors_and_with_confidence() -> None:
    for low, high in pairwise(wrong_cells(k, 30, 900, 0.01) for k in range(31)):
        assert low[0] < high[0]
        assert low[1] < high[1]
    assert wrong_cells(2, 30, 900, 0.001)[1] > wrong_cells(2, 30, 900, 0.01)[1]


def test_levels_of_all_rounds_stay_below_the_whole() -> None:
    assert alpha_of_draw(0.01, 1) == 0.005
    assert sum(alpha_of_draw(0.01, k) for k in range(1, 10_000)) < 0.01


# Pooled draws: exact distribution by convolution


def pooled_distribution(strata: list[tuple[int, int, int]]) -> np.ndarray:
    """P(k wrong in all samples together) for (cells, wrong cells, checked) per label."""
    total = np.ones(1)
    for cells, bad, checked in strata:
        total = np.convolve(total, [float(p) for p in hypergeometric(cells, bad, checked)])
    return total


@pytest.mark.parametrize(
    "strata",
    [
        [(60, 6, 10)] * 8,
        [(60, 30, 10)] + [(60, 0, 10)] * 7,
        [(60, 60, 10)] + [(60, 0, 10)] * 7,
        [(60, 1, 10)] * 4 + [(55, 20, 10)] * 4,
        [(60, 3, 10), (60, 9, 7), (12, 12, 10), (4, 1, 4)],
        [(50, 0, 10), (50, 0, 10)],
        [(7, 3, 1), (9, 2, 1)],
    ],
)
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01])
@pytest.mark.slow
def test_pooled_bounds_cover_whatever_the_labels_rates(strata: list[tuple[int, int, int]], alpha: float) -> None:
    truth = sum(bad for _, bad, _ in strata)
    sizes = [(cells, checked) for cells, _, checked in strata]
    missed = 0.0
    for wrong, chance in enumerate(pooled_distribution(strata)):
        bounds = pooled_wrong_cells(wrong, 0, sizes, alpha)
        assert bounds is not None
        missed += 0 if bounds[0] - 1e-9 <= truth <= bounds[1] + 1e-9 else chance
    assert missed <= alpha


def test_equal_labels_lose_nothing_to_the_design() -> None:
    low, high = pooled_wrong_cells(2, 0, [(5000, 30)] * 160, 0.01) or (0, 0)
    share = clopper_pearson(2, 4800, 0.01)
    assert low == pytest.approx(max(2, 800_000 * share[0]))
    assert high == pytest.approx(800_000 * share[1])


def test_doubt_widens_upwards_only() -> None:
    sizes = [(500, 30)] * 10
    sure, doubt = pooled_wrong_cells(1, 0, sizes, 0.01), pooled_wrong_cells(1, 3, sizes, 0.01)
    assert sure is not None
    assert doubt is not None
    assert doubt[0] == sure[0]
    assert doubt[1] == (pooled_wrong_cells(4, 0, sizes, 0.01) or (0, 0))[1] > sure[1]


def test_a_label_that_nobody_looked_at_leaves_no_bound() -> None:
    assert pooled_wrong_cells(0, 0, [(100, 10), (100, 0)], 0.01) is None
    assert pooled_wrong_cells(0, 0, [(100, 10), (0, 0)], 0.01) == pooled_wrong_cells(0, 0, [(100, 10)], 0.01)
    assert pooled_wrong_cells(0, 0, [], 0.01) == (0.0, 0.0)
