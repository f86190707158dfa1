"""Corrections of p-values for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Applies Holm's step-down correction for multiple tests (Holm 1979). Missing p-values remain None."""
    known = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = list(p_values)
    running = 0.0
    for rank, (p, k) in enumerate(known):
        running = max(running, min(1.0, p * (len(known) - rank)))
        corrected[k] = running
    return corrected


def tarone_holm(p_values: Sequence[float], smallest: Sequence[float]) -> list[float]:
    """Applies Holm's correction after excluding tests that cannot reach significance.

    A discrete test has a smallest attainable p-value, for example 2 / 32 if five images differ. At significance levels
    below this minimum, the test cannot cause a false finding (Tarone 1990; step-down and consistent across levels as in
    Hommel & Krummenauer 1998). Like Holm's method, this correction controls the probability of making any false
    finding.

    Args:
        p_values: p-values of n tests.
        smallest: (n,) smallest attainable p-value of each test.

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
