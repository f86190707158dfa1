"""Figures of the field: each module says which counts a record gives and which ratios they make."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ..errors import InputError
from ..metric import MetricSet

_HOMES = {
    "amber": (".amber", "AMBER"),
    "capscore": (".capscore", "metric_for"),
    "chair": (".chair", "METRIC"),
    "faithscore": (".judge", "faithscore_metric_for"),
    "mmhal": (".judge", "MMHAL"),
    "phd": (".phd", "metric_for"),
    "pope": (".pope", "metric_for"),
    "yesno": (".yesno", "metric_for"),
}
"""MetricSet name -> where it lives: a MetricSet, or a function of a table's columns where runs differ in theirs."""


def by_name(name: str, columns: Sequence[str]) -> MetricSet:
    """The metric that a results file was made with.

    Args:
        name: its name.
        columns: of the file's counts.

    Raises:
        InputError: this version has no such metric, or its columns are others.
    """
    if name not in _HOMES:
        raise InputError(f"this version knows no metric '{name}' (known: {', '.join(_HOMES)})")
    module, attribute = _HOMES[name]
    found = getattr(import_module(module, __name__), attribute)
    metric: MetricSet = found if isinstance(found, MetricSet) else found(tuple(columns))
    if metric.columns != tuple(columns):
        raise InputError(f"the results' counts are not those of '{name}' in this version")
    return metric
