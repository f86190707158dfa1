"""Computes what a sample can show: power, from the standard errors of a pilot.

The standard error of a difference falls with the square root of the number of images. Two systems in the pilot give
the error of their paired difference; one system alone gives that of a second one like it, the two taken as
independent, which is the worst case: systems on the same images usually fail together.
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


@dataclass(frozen=True, slots=True)
class Power:
    """The differences in one metric that a number of images can show.

    Attributes:
        metric: its name.
        system, baseline: the pilot's systems; ``baseline`` is None if there was one alone.
        value: the system's value in the pilot.
        pilot_images: number of images of the pilot.
        images: number of images planned for.
        standard_error: of the difference on that many images.
        detectable: the smallest difference shown with a power of 80 %; None if no difference is.
        difference: the one asked about; None without one.
        power: probability that a true difference of that size is shown.
        images_needed: number of images that show it with a power of 80 %.
    """

    metric: str
    system: str
    baseline: str | None
    value: float
    pilot_images: int
    images: int
    standard_error: float
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
    """Returns what a sample can show, from a pilot.

    Args:
        pilot: results, runs, or a results file. Of several systems each is taken with the first.
        difference: a true difference in the metrics' own unit (0.01: one point).
        images: number of images planned for; None: the pilot's.
        metrics: those asked about; None: all that have a value.

    Returns:
        One entry per pair of systems and metric.

    Raises:
        InputError: for fewer than 30 images in the pilot, no counts per image, an unknown metric, numbers below 0.
    """
    if isinstance(pilot, (str, Path)):
        runs = load_results(pilot)
    else:
        runs = pilot.runs if isinstance(pilot, Results) else (pilot,) if isinstance(pilot, Run) else tuple(pilot)
    if difference is not None and not difference > 0:
        raise InputError(f"difference must be above 0, got {difference}")
    if images is not None and images < 1:
        raise InputError(f"images must be at least 1, got {images}")
    if not runs or runs[0].finished is not None:
        raise InputError("a pilot needs counts per image; values that another harness computed have none")
    known = runs[0].metric_set.formulas
    if unknown := [name for name in metrics or () if name not in known]:
        raise InputError(f"unknown metric '{unknown[0]}'; known: {', '.join(known)}")
    pilots = _pairs(runs) if len(runs) > 1 else _alone(runs[0])
    return [_planned(*measured, difference, images) for measured in pilots if metrics is None or measured[0] in metrics]


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[str, str, str | None, float, int, float]]:
    for row in compare(runs, allow_different=True).comparisons:
        if row["standard_error"] is not None:
            head = row["metric"], row["system"], row["baseline"]
            yield *head, row["system_value"], row["n_images"], row["standard_error"]
        elif row["n_images"] < MIN_SHARED_IMAGES:
            raise InputError(f"a pilot takes {MIN_SHARED_IMAGES} shared images, {row['system']} has {row['n_images']}")


def _alone(run: Run) -> Iterator[tuple[str, str, str | None, float, int, float]]:
    if run.n_images < MIN_SHARED_IMAGES:
        raise InputError(f"a pilot takes {MIN_SHARED_IMAGES} images, {run.name} has {run.n_images}")
    linear = linearized(run.table, run.metric_set)
    score = linear.values * (1 - linear.values) / linear.sizes
    errors = np.sqrt(2 * np.where(linear.fraction, score, linear.variances))
    for name, value, error in zip(linear.names, linear.values.tolist(), errors.tolist(), strict=True):
        if not math.isnan(error):
            yield name, run.name, None, value, run.n_images, error


def _planned(
    metric: str, system: str, baseline: str | None, value: float, pilot: int, error: float,
    difference: float | None, images: int | None,
) -> Power:  # fmt: skip
    n = images or pilot
    planned = error * math.sqrt(pilot / n)
    smallest = detectable_difference(planned, max(1, n - 1))
    chance = needed = None
    if difference is not None and error > 0:
        critical = normal().inv_cdf(0.5 + CONFIDENCE / 2)
        chance = normal().cdf(difference / planned - critical) + normal().cdf(-difference / planned - critical)
        needed = math.ceil(pilot * ((critical + normal().inv_cdf(POWER)) * error / difference) ** 2)
    return Power(metric, system, baseline, value, pilot, n, planned, smallest, difference, chance, needed)


def as_record(power: Power) -> dict[str, Any]:
    """Returns the entry as one JSON object."""
    return {name: getattr(power, name) for name in Power.__slots__}
