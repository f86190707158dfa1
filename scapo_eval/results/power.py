"""Power analysis, based on the standard errors in a pilot sample.

The standard error of a difference decreases with the square root of the number of images. A pilot with two systems
determines the error of their paired difference. A pilot with one system is used to compute the error of the difference
between this system and a second, similar system. The two systems are assumed to be independent. This assumption
represents the worst case, because systems usually fail on the same images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError
from .comparison import compare
from .intervals import normal
from .linear import linearized
from .results import Results, Run, load_results
from .stats import CONFIDENCE, MIN_SHARED_IMAGES, POWER, detectable_difference

MIN_DIFFERENCE = 1e-9
"""Smallest difference that can be asked about. For smaller ones, the number of images is meaningless."""


@dataclass(frozen=True, slots=True)
class Power:
    """Differences in one metric that can be detected with a given number of images.

    Attributes:
        metric: Name of the metric.
        system, baseline: Names of the systems in the pilot. ``baseline`` is None if the pilot contains only one system.
        value: Value of the system in the pilot.
        pilot_images: Number of images in the pilot.
        images: Planned number of images.
        standard_error: Standard error of the difference if the planned number of images is scored, or None if it is
            unknown because the metric is 0 or 1 in the pilot.
        detectable: Smallest difference that is detected with a power of 80 %, or None if it is unknown, or above 1 in a
            metric that is a fraction.
        difference: True difference that the user asks about, or None.
        power: Probability of detecting a true difference of size ``difference``.
        images_needed: Number of images that are required to detect a true difference of size ``difference`` with a
            power of 80 %.
    """

    metric: str
    system: str
    baseline: str | None
    value: float
    pilot_images: int
    images: int
    standard_error: float | None
    detectable: float | None
    difference: float | None = None
    power: float | None = None
    images_needed: int | None = None


def power(
    pilot: Results | Run | Sequence[Run] | str | Path,
    *,
    difference: float | None = None,
    images: int | None = None,
    metrics: Sequence[str] | None = None,
) -> list[Power]:
    """Estimates from a pilot which differences can be detected with a given number of images.

    Args:
        pilot: Results, runs, or the path of a results file. Each further system in the pilot is compared with the first
            system.
        difference: True difference in the unit of the metric (0.01 is one percentage point).
        images: Planned number of images, or None for the number of images in the pilot.
        metrics: Names of the metrics to analyze, or None for all metrics that have a value.

    Returns:
        A list with one entry per metric and pair of systems.

    Raises:
        InputError: If the pilot has fewer than 30 images or no counts per image, if a metric is unknown, if
            ``difference`` is below 1e-9 or infinite, or if ``images`` is below 1.

    Example:
        >>> import scapo_eval
        >>> truth = {k: ["dog"] for k in range(60)}
        >>> rows = [{"image_id": k, "caption": "A dog." if k % 3 else "A dog and a cat."} for k in truth]
        >>> [found] = scapo_eval.power(scapo_eval.score(rows, truth=truth), difference=0.05, metrics=["hal_rate"])
        >>> found.images_needed
        511
    """
    if isinstance(pilot, (str, Path)):
        runs = load_results(pilot)
    else:
        runs = pilot.runs if isinstance(pilot, Results) else (pilot,) if isinstance(pilot, Run) else tuple(pilot or ())
        if not all(isinstance(run, Run) for run in runs):
            raise InputError("the pilot must be results, runs (from scapo_eval.score) or the path of a results file")
    if difference is not None and not MIN_DIFFERENCE <= difference < math.inf:
        raise InputError(f"difference must be a finite number of at least {MIN_DIFFERENCE:g}, got {difference}")
    if images is not None and images < 1:
        raise InputError(f"images must be at least 1, got {images}")
    if not runs or runs[0].finished is not None:
        raise InputError("a power estimate requires counts per image, which values from another harness do not have")
    known = runs[0].metric_set.formulas
    if unknown := [name for name in metrics or () if name not in known]:
        raise InputError(f"unknown metric '{unknown[0]}'; known: {', '.join(known)}")
    pilots = _pairs(runs) if len(runs) > 1 else _alone(runs[0])
    unbounded = runs[0].metric_set.plain_numbers | runs[0].metric_set.signed
    return [
        _planned(*measured, difference, images, fraction=measured[0] not in unbounded)
        for measured in pilots
        if metrics is None or measured[0] in metrics
    ]


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[str, str, str | None, float, int, float | None]]:
    for row in compare(runs, allow_different=True).comparisons:
        if row["n_images"] < MIN_SHARED_IMAGES:
            raise InputError(
                f"a power estimate requires {MIN_SHARED_IMAGES} shared images; {row['system']} has {row['n_images']}"
            )
        if row["difference"] is not None:
            head = row["metric"], row["system"], row["baseline"]
            yield *head, row["system_value"], row["n_images"], row["standard_error"]


def _alone(run: Run) -> Iterator[tuple[str, str, str | None, float, int, float | None]]:
    if run.n_images < MIN_SHARED_IMAGES:
        raise InputError(f"a power estimate requires {MIN_SHARED_IMAGES} images; {run.name} has {run.n_images}")
    linear = linearized(run.table, run.metric_set)
    score = linear.values * (1 - linear.values) / linear.sizes
    errors = np.sqrt(2 * np.where(linear.fraction, score, linear.variances)).tolist()
    for name, value, error in zip(linear.names, linear.values.tolist(), errors, strict=True):
        if not math.isnan(value):
            yield name, run.name, None, value, run.n_images, error if error > 0 else None


def _planned(
    metric: str, system: str, baseline: str | None, value: float, pilot: int, error: float | None,
    difference: float | None, images: int | None, *, fraction: bool,
) -> Power:  # fmt: skip
    n = images or pilot
    if error is None:
        return Power(metric, system, baseline, value, pilot, n, None, None, difference)
    planned = error * math.sqrt(pilot / n)
    smallest = detectable_difference(planned, max(1, n - 1))
    attainable = None if fraction and smallest > 1 else smallest
    chance = needed = None
    if difference is not None:
        critical = normal().inv_cdf(0.5 + CONFIDENCE / 2)
        chance = normal().cdf(difference / planned - critical) + normal().cdf(-difference / planned - critical)
        needed = math.ceil(pilot * ((critical + normal().inv_cdf(POWER)) * error / difference) ** 2)
    return Power(metric, system, baseline, value, pilot, n, planned, attainable, difference, chance, needed)


def as_record(power: Power) -> dict[str, Any]:
    """Returns the entry as a JSON object."""
    return {name: getattr(power, name) for name in Power.__slots__}
