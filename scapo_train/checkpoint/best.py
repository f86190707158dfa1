"""Selection of the best checkpoint by a metric on held-out images, and early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Best:
    """Best evaluation of a training run so far.

    Attributes:
        metric: Name of the metric, ``cap_score``, ``cover_rate`` or ``hal_rate`` (for which lower values are better).
            With an empty name, no best checkpoint is selected.
        patience: Number of consecutive evaluations without improvement after which training ends. If the value is 0,
            training does not end early.
        value: Best value of the metric so far.
        step: Step at which the best value was measured.
        waited: Number of evaluations since the best value was measured.
    """

    metric: str
    patience: int
    value: float | None = None
    step: int = 0
    waited: int = 0

    @property
    def exhausted(self) -> bool:
        """True if the number of evaluations without improvement has reached ``patience`` and training should therefore
        end.
        """
        return 0 < self.patience <= self.waited

    def update(self, step: int, metrics: Mapping[str, float | None]) -> bool:
        """Records the metrics of a step. Returns True if the metrics contain an evaluation that is better than all
        previous ones.
        """
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
        """Returns the state that is saved in a checkpoint."""
        return {name: value for name, value in asdict(self).items() if name not in ("metric", "patience")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the output of :meth:`state` from a checkpoint."""
        self.value, self.step, self.waited = state["value"], state["step"], state["waited"]
