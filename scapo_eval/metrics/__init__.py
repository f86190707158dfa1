"""Figures of the field: each module says which counts a record gives and which ratios they make."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ..errors import InputError
from .base import Metric

_MODULES = {
    "capscore": ".capscore",
    "phd": ".phd",
    "pope": ".pope",
    "yesno": ".yesno",
}
"""Metric name -> module whose ``metric_for(columns)`` rebuilds the metric of a results file."""


def by_name(name: str, columns: Sequence[str]) -> Metric:
    """The metric that a results file was made with.

    Args:
        name: its name.
        columns: of the file's counts.

    Raises:
        InputError: this version has no such metric, or its columns are others.
    """
    if name not in _MODULES:
        raise InputError(None, None, f"this version knows no metric '{name}' (known: {', '.join(_MODULES)})")
    metric: Metric = import_module(_MODULES[name], __name__).metric_for(tuple(columns))
    if metric.columns != tuple(columns):
        raise InputError(None, None, f"the results' counts are not those of '{name}' in this version")
    return metric
