"""Optional trackers, which send metrics and samples to TensorBoard, Weights & Biases or trackio."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from scapo_eval.base.errors import ScapoError
from scapo_eval.files.files import atomic_write

LoggedSample = tuple[str, str]
"""Image id and response."""

COLUMNS = ["step", "image_id", "response"]


class Tracker(Protocol):
    """Destination for metrics and samples."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Records the metrics of a step."""

    def samples(self, step: int, samples: Sequence[LoggedSample]) -> None:
        """Records the responses that were sampled after a step."""

    def close(self, *, failed: bool) -> None:
        """Ends the training run in the tracker."""


class TensorBoard:
    """Tracker that writes TensorBoard files to the subfolder ``tensorboard/`` of the training run."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Records the metrics of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def samples(self, step: int, samples: Sequence[LoggedSample]) -> None:
        """Records the responses that were sampled after a step."""
        for image_id, response in samples:
            self._writer.add_text(f"samples/{image_id}", response, step)

    def close(self, *, failed: bool) -> None:
        """Closes the files."""
        self._writer.close()


class _Hosted:
    """Tracker for a service with the interface of Weights & Biases. Runs belong to the project ``scapo``."""

    _module: Any
    _run: Any

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Records the metrics of a step."""
        self._run.log(dict(values), step=step)

    def samples(self, step: int, samples: Sequence[LoggedSample]) -> None:
        """Records, as a table, the responses that were sampled after a step."""
        rows = [[step, *sample] for sample in samples]
        self._run.log({"samples": self._module.Table(columns=COLUMNS, data=rows)}, step=step)


class Wandb(_Hosted):
    """Weights & Biases tracker. The file ``wandb_id`` in the run folder contains the id with which the tracked run is
    resumed.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._module = _import("wandb")
        kept = folder / "wandb_id"
        known = kept.read_text().strip() if kept.exists() else None
        self._run = self._module.init(
            project="scapo",
            name=folder.name,
            dir=str(folder),
            config=dict(settings),
            id=known,
            resume="allow" if known else None,
            allow_val_change=True,  # permitted changes of a resumed training run (docs/training.md)
        )
        with atomic_write(kept) as stream:
            stream.write(self._run.id.encode())

    def close(self, *, failed: bool) -> None:
        """Ends the run and marks it as successful or failed."""
        self._run.finish(exit_code=int(failed))


class Trackio(_Hosted):
    """Tracker for trackio; the run to resume is identified by its name."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._module = _import("trackio")
        self._run = self._module.init(project="scapo", name=folder.name, config=dict(settings), resume="allow")

    def close(self, *, failed: bool) -> None:
        """Ends the run."""
        self._run.finish()


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
}
"""Name in ``run.trackers`` -> tracker class, which is created from the folder and all settings.

Each class raises ScapoError if its package is not installed.
"""


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise _missing(name) from None


def _missing(package: str) -> ScapoError:
    return ScapoError(f"run.trackers = {package} needs that package: pip install {package}")
