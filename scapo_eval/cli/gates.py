"""``--fail-under`` and ``--fail-above``: bounds that a system's metrics must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..results.metric import MetricSet
from .codes import GATE_MISSED
from .echo import echo


@dataclass(frozen=True, slots=True)
class Gate:
    """One bound of a metric: a lower one (``under``) or an upper one."""

    metric: str
    bound: float
    under: bool

    @classmethod
    def parse(cls, text: str, *, under: bool) -> Gate:
        """``METRIC=VALUE``.

        Raises:
            click.UsageError: it is something else.
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
        """Refuses a metric that there is not, and a bound that no fraction can reach.

        Raises:
            click.UsageError: the gate makes no sense for these metrics.
        """
        option = "--fail-under" if self.under else "--fail-above"
        if self.metric not in metrics.formulas:
            raise click.UsageError(f"{option}: unknown metric '{self.metric}'; known: {', '.join(metrics.formulas)}")
        if self.metric in metrics.plain_numbers or 0 <= self.bound <= 1:
            return
        meant = f"; {self.bound:g} percent is {self.bound / 100:.2f}" if 1 < self.bound <= 100 else ""
        raise click.UsageError(
            f"{option} {self.metric}={self.bound:g}: {self.metric} is a fraction between 0 and 1{meant}"
        )


def check_gates(found: Mapping[str, Any], gates: Sequence[Gate]) -> int:
    """Says on standard error which gates are missed.

    Returns:
        The exit code: 0, or 3 where a gate is missed.
    """
    missed = 0
    for gate in gates:
        for system in found["systems"]:
            value = system["metrics"][gate.metric]["value"]
            if value is None or (value < gate.bound if gate.under else value > gate.bound):
                missed += 1
                side = "under" if gate.under else "above"
                shown = "has no value" if value is None else f"= {value:.4f} is {side} {gate.bound:g}"
                echo(f"scapo-eval: gate missed: {system['name']}: {gate.metric} {shown}", err=True)
    return GATE_MISSED if missed else 0
