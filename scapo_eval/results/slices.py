"""Results for each value of a column, including intervals for each slice and a test for differences between slices.

For each metric of a system and each difference between two systems, a Wald test checks whether the value is equal in
all slices. A significant difference in one slice and a non-significant difference in another do not prove that the
slices differ. Slices may share images (for example, if there are two prompts for one image), so the covariance between
slices is computed over images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import CountTable
from .intervals import chi2_tail, null_variance
from .linear import Linear, correlations, linearized
from .metric import Floats, MetricSet
from .parts import labels_of
from .results import Resampling, Run
from .stats import MIN_SHARED_IMAGES, confidence_intervals, paired_differences, values

Slices = Mapping[str, CountTable]
"""Value of the column -> counts per image of the records with this value."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """Systems whose counts are divided into slices by the values of one column.

    Attributes:
        column: Name of the column that defines the slices.
        systems: Mapping from each system to its slices. The first system is the baseline.
    """

    column: str
    systems: Mapping[str, Slices]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Sliced | None:
        """Divides the runs into slices according to the column that they have in common. Returns None if the runs do
        not have a column in common.

        Raises:
            InputError: If the column has too many values.
        """
        parts = [run.parts for run in runs if run.parts is not None]
        if len(parts) < len(runs) or len({each.column for each in parts}) != 1:
            return None
        label = labels_of(parts)
        tables = [each.tables(run.metric_set.columns, label) for each, run in zip(parts, runs, strict=True)]
        return cls(parts[0].column, {run.name: each for run, each in zip(runs, tables, strict=True)})

    def to_dict(self, metrics: MetricSet, resampling: Resampling) -> dict[str, Any]:
        """Returns a mapping with ``slices`` (values, intervals and differences from the baseline) and ``interactions``
        (tests of whether the values are equal in all slices).
        """
        return {
            "by": self.column,
            "slices": list(self._slices(metrics, resampling)),
            "interactions": list(self.interactions(metrics)) if resampling.resamples else [],
        }

    def _slices(self, metrics: MetricSet, resampling: Resampling) -> Iterator[dict[str, Any]]:
        drawn = {"resamples": resampling.resamples, "seed": resampling.seed, "confidence": resampling.confidence}
        first = next(iter(self.systems.values()))
        for name, slices in self.systems.items():
            for value, table in slices.items():
                bounds = confidence_intervals(table, metrics, method=resampling.interval, **drawn)  # type: ignore[arg-type]
                record: dict[str, Any] = {
                    "system": name,
                    "slice": value,
                    "n_images": len(table.image_ids),
                    "metrics": {
                        metric: {"value": number, "ci_low": bounds[metric].low, "ci_high": bounds[metric].high}
                        for metric, number in values(metrics, table).items()
                    },
                }
                if slices is not first and value in first:
                    rows = paired_differences(table, first[value], metrics, interval=resampling.interval, **drawn)  # type: ignore[arg-type]
                    record["differences"] = {
                        row.metric: {
                            "difference": row.difference,
                            "ci_low": row.interval.low,
                            "ci_high": row.interval.high,
                            "p_value": row.p_value,
                            "n_images": row.n_images,
                        }
                        for row in rows
                    }
                yield record

    def interactions(self, metrics: MetricSet) -> Iterator[dict[str, Any]]:
        """Yields tests of the hypothesis that all slices have equal values, first for the metrics of each system, then
        for the differences from the baseline.
        """
        (baseline, first), *others = self.systems.items()
        for name, slices in self.systems.items():
            for metric, p, n in _homogeneity(slices, metrics):
                yield {"system": name, "baseline": None, "metric": metric, "p_value": p, "slices": n}
        for name, slices in others:
            for metric, p, n in _interaction(slices, first, metrics):
                yield {"system": name, "baseline": baseline, "metric": metric, "p_value": p, "slices": n}


def _homogeneity(slices: Slices, metrics: MetricSet) -> Iterator[tuple[str, float | None, int]]:
    tables = [table for table in slices.values() if len(table.image_ids) >= MIN_SHARED_IMAGES]
    linears = [linearized(table, metrics) for table in tables]
    for k, name in enumerate(metrics.formulas):
        parts = [
            (linear, table) for linear, table in zip(linears, tables, strict=True) if not np.isnan(linear.values[k])
        ]
        if len(parts) < 2:
            yield name, None, len(parts)
            continue
        numbers = np.array([linear.values[k] for linear, _ in parts])
        errors = np.sqrt(_alone(numbers, [linear for linear, _ in parts], k))
        yield name, _wald(numbers, errors, [(t.image_ids, x.influences[:, k]) for x, t in parts]), len(parts)


def _alone(numbers: Floats, linears: Sequence[Linear], k: int) -> Floats:
    """Returns the (slices,) squared standard errors under the hypothesis that all slices have the same value."""
    if not all(linear.fraction[k] for linear in linears):
        return np.array([linear.variances[k] for linear in linears])
    sizes = np.array([linear.sizes[k] for linear in linears])
    common = float((sizes * numbers).sum() / sizes.sum())
    return np.asarray(common * (1 - common) / sizes)


def _interaction(slices: Slices, baseline: Slices, metrics: MetricSet) -> Iterator[tuple[str, float | None, int]]:
    pairs = []
    for value in sorted(slices.keys() & baseline.keys()):  # sums of floats depend on their order
        shared = sorted(set(slices[value].image_ids) & set(baseline[value].image_ids))
        if len(shared) >= MIN_SHARED_IMAGES:
            a, b = (linearized(table[value].select(shared), metrics) for table in (slices, baseline))
            pairs.append((tuple(shared), a, b, correlations(a, b)))
    for k, name in enumerate(metrics.formulas):
        parts = [pair for pair in pairs if not np.isnan(pair[1].values[k] - pair[2].values[k])]
        if len(parts) < 2:
            yield name, None, len(parts)
            continue
        numbers = np.array([a.values[k] - b.values[k] for _, a, b, _ in parts])
        variances = [
            null_variance(
                (a.values, b.values), (a.variances, b.variances), (a.sizes, b.sizes), r, a.fraction & b.fraction
            )[k]
            for _, a, b, r in parts
        ]
        influences = [(images, a.influences[:, k] - b.influences[:, k]) for images, a, b, _ in parts]
        yield name, _wald(numbers, np.sqrt(np.array(variances)), influences), len(parts)


def _wald(numbers: Floats, errors: Floats, influences: Sequence[tuple[Sequence[str], Floats]]) -> float | None:
    """Returns the p-value of the hypothesis that all slices have the same value, based on their standard errors and the
    influence of each image.
    """
    if not (errors > 0).all():
        return 1.0 if np.ptp(numbers) == 0 else None
    images = {image: k for k, image in enumerate(sorted({image for ids, _ in influences for image in ids}))}
    moved = np.zeros((len(images), len(numbers)))
    for k, (ids, influence) in enumerate(influences):
        moved[[images[image] for image in ids], k] = influence
    lengths = np.sqrt((moved**2).sum(axis=0))
    scale = np.where(lengths > 0, lengths, 1.0)
    together: NDArray[np.float64] = (moved / scale).T @ (moved / scale)
    np.fill_diagonal(together, 1.0)
    inverse = np.linalg.pinv(together * np.outer(errors, errors), hermitian=True)
    common = (inverse @ numbers).sum() / inverse.sum()
    gaps = numbers - common
    return chi2_tail(float(gaps @ inverse @ gaps), len(numbers) - 1)
