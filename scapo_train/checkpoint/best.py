"""Selection of the best checkpoint by a metric on held-out images, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scapo_eval.base.errors import InputError

from .save import Checkpoints, step_of


@dataclass
class Best:
    """Best evaluation of a training run so far.

    Attributes:
        metric: Name of the metric, ``cap_score``, ``cover_rate`` or ``hal_rate`` (for which lower values are better).
            With an empty name, no best checkpoint is selected.
        patience: Number of consecutive evaluations without improvement after which training ends. If the value is 0,
            training does not end early.
        held_out: Hash of the held-out prompts and their ground truth.
        value: Best value of the metric so far.
        step: Step at which the best value was measured.
        waited: Number of evaluations since the best value was measured.
    """

    metric: str
    patience: int
    held_out: str = ""
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
        if value is not None and (self.value is None or self.quality(value) > self.quality(self.value)):
            self.value, self.step, self.waited = value, step, 0
            return True
        self.waited += 1
        return False

    def quality(self, value: float) -> float:
        """Returns a number that is higher for better values of the metric."""
        return -value if self.metric == "hal_rate" else value

    def state(self) -> dict[str, Any]:
        """Returns the state that is saved in a checkpoint."""
        return {name: value for name, value in asdict(self).items() if name != "patience"}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the output of :meth:`state` from a checkpoint, unless its value is one of another metric or of other
        held-out images. Older checkpoints do not record these.
        """
        if all(state.get(name, own) == own for name, own in (("metric", self.metric), ("held_out", self.held_out))):
            self.value, self.step, self.waited = state["value"], state["step"], state["waited"]


def best_of(checkpoints: Checkpoints, best: Best) -> int:
    """Returns the step with the best value of the metric among the checkpoints in ``best/``, of which there is at least
    one.

    After an interruption, the folder may contain checkpoints of several steps. The earliest of equal values is the best
    one, as in :meth:`Best.update`.
    """
    values: dict[int, float] = {}
    for path in checkpoints.complete():
        kept = checkpoints.state(path).get("best", {})
        value = kept.get("value") if best.metric in ("", kept.get("metric", best.metric)) else None
        values[step_of(path)] = -math.inf if value is None else best.quality(value)
    return max(values, key=values.__getitem__)


def referenced(checkpoints: Checkpoints) -> set[int]:
    """Returns the steps of the best evaluations that are recorded in the checkpoints of a run. If the run is resumed
    from one of these checkpoints, the weights of its best step are needed.
    """
    steps = set[int]()
    for path in checkpoints.complete():
        try:
            steps.add(checkpoints.state(path).get("best", {}).get("step", 0))
        except InputError:  # damaged; reported when a run is resumed from it
            continue
    return steps
