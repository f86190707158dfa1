"""Corrections of p-values for several tests."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Applies Holm's step-down correction for several tests (Holm 1979); None stays None."""
    known = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = list(p_values)
    running = 0.0
    for rank, (p, k) in enumerate(known):
        running = max(running, min(1.0, p * (len(known) - rank)))
        corrected[k] = running
    return corrected


def tarone_holm(p_values: Sequence[float], smallest: Sequence[float]) -> list[float]:
    """Applies Holm's correction without the tests that could not have been significant.

    A discrete test has a smallest p-value that it can reach (five images that differ: 2 / 32); while that is above a
    p-value in question, it cannot be the one that is wrongly significant (Tarone 1990; step-down and consistent over
    levels as in Hommel & Krummenauer 1998). The guarantee is Holm's: the probability of any false finding.

    Args:
        p_values: of n tests.
        smallest: (n,) the smallest p-value that each test can reach.

    Returns:
        (n,) corrected p-values.
    """
    left = sorted(range(len(p_values)), key=lambda k: p_values[k])
    corrected = [1.0] * len(p_values)
    running = 0.0
    while left:
        k = left[0]
        able = sum(smallest[j] <= p_values[k] for j in left)
        running = max(running, min(1.0, p_values[k] * max(1, able)))
        corrected[k] = running
        left = left[1:]
    return corrected
