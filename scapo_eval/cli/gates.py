"""``--fail-under``, ``--fail-above`` and ``--fail-worse``: conditions that the metrics of all systems must meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..results.metric import MetricSet
from .codes import GATE_MISSED
from .echo import echo


@dataclass(frozen=True, slots=True)
class Gate:
    """Bound on a metric, which is either a lower bound (``under``) or an upper bound."""

    metric: str
    bound: float
    under: bool

    @classmethod
    def parse(cls, text: str, *, under: bool) -> Gate:
        """Parses ``METRIC=VALUE``.

        Raises:
            click.UsageError: If the text has a different format.
        """
        name, _, value = text.partition("=")
        try:
            bound = float(value)
            if bound != bound:
                raise ValueError
        except ValueError:
            raise click.UsageError(f"expected METRIC=VALUE, for example cap_score=0.70, got '{text}'") from None
        return cls(name, bound, under)

    def check(self, metrics: MetricSet) -> None:
        """Checks that the gate is valid for a metric set.

        Raises:
            click.UsageError: If the metric is unknown, or the bound is unreachable or on the wrong side.
        """
        option = "--fail-under" if self.under else "--fail-above"
        _check_known(option, self.metric, metrics)
        better = metrics.higher_is_better.get(self.metric)
        if better is not None and better != self.under:
            other = "--fail-above" if self.under else "--fail-under"
            which = "higher" if better else "lower"
            raise click.UsageError(
                f"{option} {self.metric}: {which} is better, so this gate would reject good values; "
                f"did you mean {other} {self.metric}={self.bound:g}?"
            )
        lowest = -1 if self.metric in metrics.signed else 0
        if self.metric in metrics.plain_numbers or lowest <= self.bound <= 1:
            return
        meant = f"; {self.bound:g} percent is {self.bound / 100:.2f}" if 1 < self.bound <= 100 else ""
        raise click.UsageError(
            f"{option} {self.metric}={self.bound:g}: {self.metric} is a fraction between {lowest} and 1{meant}"
        )


def check_worse(names: Sequence[str], metrics: MetricSet, systems: int, *, tested: bool) -> None:
    """Checks that the arguments of ``--fail-worse`` are valid.

    Args:
        names: Requested metrics.
        metrics: Metric set.
        systems: Number of systems.
        tested: True if p-values are computed.

    Raises:
        click.UsageError: If a metric is unknown or has no preferred direction, or if there is no test.
    """
    for name in names:
        _check_known("--fail-worse", name, metrics)
        if metrics.higher_is_better.get(name) is None:
            raise click.UsageError(f"--fail-worse {name}: neither higher nor lower is better")
    if names and systems < 2:
        raise click.UsageError("--fail-worse compares with the first system; give the baseline before it")
    if names and not tested:
        raise click.UsageError("--fail-worse needs a test; --resamples must be above 0")


def _check_known(option: str, metric: str, metrics: MetricSet) -> None:
    if metric not in metrics.formulas:
        raise click.UsageError(f"{option}: unknown metric '{metric}'; known: {', '.join(metrics.formulas)}")


def _worse(comparison: Mapping[str, Any], names: Sequence[str], metrics: MetricSet, level: float) -> Iterator[str]:
    """Yields a message for each metric that cannot be tested or in which a system is significantly worse than the
    baseline.
    """
    for row in comparison["comparisons"]:
        if row["metric"] not in names:
            continue
        which = f"{row['system']}: {row['metric']}"
        if row["p_holm"] is None or row["difference"] is None:
            yield f"{which} cannot be tested against {row['baseline']} ({row['n_images']:,} shared images)"
        elif row["p_holm"] < level and (row["difference"] < 0) == metrics.higher_is_better[row["metric"]]:
            change = f"{row['baseline_value']:.4f} -> {row['system_value']:.4f}"
            yield f"{which} is worse than {row['baseline']}'s ({change}, p = {row['p_holm']:.2g})"


def check_gates(
    found: Mapping[str, Any], gates: Sequence[Gate], worse: Sequence[str], metrics: MetricSet, level: float
) -> int:
    """Prints to standard error the gates that the metrics fail to meet.

    Args:
        found: Results object.
        gates: Bounds on metrics.
        worse: Names of metrics in which no system may be significantly worse than the first system.
        metrics: Metric set.
        level: Significance level for Holm-corrected p-values.

    Returns:
        Exit code: 3 if a gate is missed, otherwise 0.
    """
    missed = 0
    for said in _worse(found, worse, metrics, level):
        missed += 1
        echo(f"scapo-eval: gate missed: {said}", err=True)
    for gate in gates:
        for system in found["systems"]:
            value = system["metrics"][gate.metric]["value"]
            if value is None or (value < gate.bound if gate.under else value > gate.bound):
                missed += 1
                side = "under" if gate.under else "above"
                shown = "has no value" if value is None else f"= {value:.4f} is {side} {gate.bound:g}"
                echo(f"scapo-eval: gate missed: {system['name']}: {gate.metric} {shown}", err=True)
    return GATE_MISSED if missed else 0
