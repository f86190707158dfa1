"""The best checkpoint by a metric of the held-out images, and when to stop waiting for a better one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Best:
    """The best evaluation so far.

    Attributes:
        metric: name of the metric (``cap_score``, ``cover_rate``, or ``hal_rate``, where less is better); empty: none.
        patience: number of evaluations without a better one after which training ends; 0: never.
        value: its best value so far.
        step: step of the best value.
        waited: number of evaluations since.
    """

    metric: str
    patience: int
    value: float | None = None
    step: int = 0
    waited: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether training should end."""
        return 0 < self.patience <= self.waited

    def update(self, step: int, metrics: Mapping[str, float | None]) -> bool:
        """Takes a step's metrics; whether they hold an evaluation that is better than all before."""
        if not self.metric or f"evaluation_{self.metric}" not in metrics:
            return False
        value = metrics[f"evaluation_{self.metric}"]
        sign = -1.0 if self.metric == "hal_rate" else 1.0
        if value is not None and (self.value is None or sign * value > sign * self.value):
            self.value, self.step, self.waited = value, step, 0
            return True
        self.waited += 1
        return False

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of it."""
        return {name: value for name, value in asdict(self).items() if name not in ("metric", "patience")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over :meth:`state` of a checkpoint."""
        self.value, self.step, self.waited = state["value"], state["step"], state["waited"]
