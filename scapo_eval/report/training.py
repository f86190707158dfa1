"""Training runs in the page's format, which consists of logged quantities in groups, settings, seeds, and packed
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..matching.matcher import AliasMatcher
from .data import Report, TrainingLog, marked
from .quantities import Quantity, by_group, quantity

KEPT_BITS = 20
"""Number of significand bits on the page. They correspond to six decimal digits, one more than the page shows."""

_OF_ONE_SEED = re.compile(r"(^|\.)(\w*seed|output|name|trackers|port)$")
"""Pattern for settings that may differ between runs of one experiment."""
_SEED_IN_NAME = re.compile(r"[-_. ]{0,9}(seed|s)?[-_. ]?\d{1,18}$", re.IGNORECASE)


def training_columns(report: Report) -> tuple[dict[str, Any], bytes]:
    """Returns the names, settings, alarms and samples of all training runs in a report, and the numbers in all columns
    as bytes.

    A column is represented by the position of its values among the numbers, or by a list of its values if they cannot
    be stored as 32-bit floats.
    """
    numbers = _Numbers()
    groups = seed_groups(report.training_logs)
    runs = [_run(run, group, report, numbers) for run, group in zip(report.training_logs, groups, strict=True)]
    return {"runs": runs, "quantities": _quantities(report.training_logs)}, numbers.packed()


def seed_groups(runs: Sequence[TrainingLog]) -> list[str]:
    """Returns the name of the experiment to which each run belongs. Runs that differ only in the seed belong to the
    same experiment.

    The settings of these runs must be equal except for the seeds and the names of outputs. If no settings are
    available, the names of the runs must be equal except for the seed.
    """
    keys: list[Any] = []
    for run in runs:
        kept = tuple(sorted((k, v) for k, v in run.settings.items() if not _OF_ONE_SEED.search(k)))
        keys.append(kept or _SEED_IN_NAME.sub("", run.name))
    named: dict[Any, str] = {}
    for run, key in zip(runs, keys, strict=True):
        if key not in named:
            name = _SEED_IN_NAME.sub("", run.name) if keys.count(key) > 1 else run.name
            named[key] = name if name and name not in named.values() else run.name
    return [named[key] for key in keys]


def _quantities(runs: Sequence[TrainingLog]) -> list[tuple[str, list[tuple[str, Quantity]]]]:
    """Returns the logged quantities in groups, with their descriptions."""
    logged = (name for run in runs for name in run.columns if name != "step" and not name.startswith("alarm_"))
    return [(group, [(name, quantity(name)) for name in names]) for group, names in by_group(logged)]


def _run(run: TrainingLog, group: str, report: Report, numbers: _Numbers) -> dict[str, Any]:
    images = [image for _, image, _ in run.samples]
    states = None
    if report.truth is not None:
        rows = report.truth.oracle.find_rows(images)
        states = np.where(rows[:, None] < 0, np.int8(-1), report.truth.states[rows])
    matcher = AliasMatcher(report.vocabulary) if report.vocabulary else None
    columns = {name: values for name, values in run.columns.items() if not name.startswith("alarm_")}
    return {
        "name": run.name,
        "group": group,
        "settings": dict(run.settings),
        "rows": len(columns["step"]),
        "steps": columns.pop("step"),
        "columns": {name: numbers.add(values) for name, values in columns.items()},
        "alarms": [
            [alarm.step, alarm.name, alarm.metric, alarm.value, alarm.threshold, alarm.setting] for alarm in run.alarms
        ],
        "step": [step for step, _, _ in run.samples],
        "image": images,
        "labels": report.vocabulary.labels if report.vocabulary else [],
        "texts": marked([text for _, _, text in run.samples], states, matcher),
    }


class _Numbers:
    """Columns of 32-bit floats, stored one after another."""

    def __init__(self) -> None:
        self._columns: list[NDArray[np.float32]] = []
        self._length = 0

    def add(self, values: Sequence[float | None]) -> int | list[float | None]:
        """Adds a column and returns its position, or returns its values if they cannot be stored as 32-bit floats."""
        exact = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        size = np.abs(exact[np.isfinite(exact) & (exact != 0)])
        if len(size) and (size.max() > np.finfo(np.float32).max / 2 or size.min() < np.finfo(np.float32).tiny):
            return list(values)
        at, self._length = self._length, self._length + len(exact)
        self._columns.append(exact.astype(np.float32))
        return at

    def packed(self) -> bytes:
        """Returns the bytes of all numbers. The first bytes of all numbers come first, followed by the second bytes and
        so on, which improves compression.
        """
        if not self._columns:
            return b""
        numbers = np.concatenate(self._columns)
        drop = 23 - KEPT_BITS
        bits = numbers.view(np.uint32)
        known = np.isfinite(numbers)
        bits[known] = (bits[known] + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
        ordered: NDArray[np.uint8] = bits.astype("<u4").view(np.uint8).reshape(-1, 4).T
        return ordered.tobytes()
