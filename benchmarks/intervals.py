"""How often a 95 % interval holds the true value: the multinomial bootstrap and the Poisson one, by simulation.

    python benchmarks/intervals.py                      # 2,000 samples of 400 images

Images are drawn again and again from an invented population whose metrics are known: a system that invents more in
crowded images, and a second one that shares most of its faults. Each sample gives intervals of the first system's
metrics and of the paired differences, by both bootstraps. Coverage is the share of samples whose interval holds the
population's value; 94 to 96 % is right for a 95 % interval. Exit code 1: one is outside.
"""

from __future__ import annotations

import argparse
import sys
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.stats import Bootstrap, bootstrap, paired_differences

METRICS = MetricSet(
    "simulated",
    ("generated", "hallucinated", "truth", "covered"),
    {"hal_rate": ratio("hallucinated", "generated"), "cover_rate": ratio("covered", "truth")},
)
RIGHT = 0.94, 0.96


def population(images: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(images, 4) counts of two systems on the same images."""
    truth = rng.poisson(4, images) + 1
    hard = rng.beta(2, 6, images)  # of an image: both systems invent more where it is hard
    found = []
    for skill in (1.0, 0.9):
        covered = rng.binomial(truth, 0.7 * skill)
        invented = rng.binomial(truth + 2, hard * (1.6 - skill) / 0.6 * 0.5)
        found.append(np.stack([covered + invented, invented, truth, covered], axis=1))
    return found[0], found[1]


def coverage(samples: int, images: int, resamples: int, seed: int) -> dict[tuple[Bootstrap, str], float]:
    """Per bootstrap and value (a metric, or a difference) the share of intervals that hold the population's value."""
    rng = np.random.default_rng(seed)
    first, second = population(200_000, rng)
    true = {name: value.item() for name, value in METRICS.score(first.sum(axis=0)).items()}
    other = {name: value.item() for name, value in METRICS.score(second.sum(axis=0)).items()}
    true |= {f"difference of {name}": other[name] - true[name] for name in other}
    hits: dict[tuple[Bootstrap, str], int] = {}
    for sample in range(samples):
        chosen = rng.integers(0, len(first), images)
        ids = tuple(f"{sample}-{k}" for k in range(images))
        a, b = (CountTable(METRICS.columns, ids, rows[chosen]) for rows in (first, second))
        for kind in get_args(Bootstrap):
            found = bootstrap(a, METRICS, resamples=resamples, seed=sample, kind=kind)
            pairs = paired_differences(
                b, a, METRICS, resamples=resamples, seed=sample, kind=kind, test="paired_bootstrap"
            )
            found |= {f"difference of {each.metric}": each.interval for each in pairs}
            for name, interval in found.items():
                held = (interval.low or 0.0) <= true[name] <= (interval.high or 0.0)
                hits[kind, name] = hits.get((kind, name), 0) + held
    return {key: number / samples for key, number in hits.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    options = parser.parse_args()
    found = coverage(options.samples, options.images, options.resamples, options.seed)
    error = (0.95 * 0.05 / options.samples) ** 0.5
    print(f"{options.samples:,} samples of {options.images:,} images; standard error of a share {100 * error:.1f} %\n")
    print("| value | bootstrap | 95 % intervals that hold it |")
    print("|---|---|---:|")
    for (kind, name), share in sorted(found.items(), key=lambda each: each[0][1]):
        print(f"| {name} | {kind} | {100 * share:.1f} % |")
    return 0 if all(RIGHT[0] <= share <= RIGHT[1] for share in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
