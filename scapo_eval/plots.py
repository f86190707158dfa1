"""Figures for papers, drawn from results: ``scapo_eval.plots.frontier(results).savefig("frontier.pdf")``.

Every function returns a :class:`matplotlib.figure.Figure` (extra ``report``), and none uses the global state of pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base.errors import InputError
from .benchmarks.evidence import labels as by_label
from .benchmarks.labels import LabelRun
from .report import plots
from .report.data import Report, distinct_names, planes, read_training_log
from .report.plots import Style
from .results.comparison import compare
from .results.results import Results, Run, unique_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Style", "differences", "faithscore", "frontier", "labels", "training"]


def frontier(results: Results | Run | Sequence[Run], trails: str | Sequence[str] = (), **style: Any) -> Figure:
    """Plots the hallucination rate against the cover rate, with curves of equal caption score and 95 % regions.

    Args:
        results: Results, or runs, of a benchmark that has a hallucination rate and a cover rate, such as ``capscore``.
        trails: Prefixes of the names of systems. Systems whose names have the same prefix are successive checkpoints of
            one training run.
        style: Fields of :class:`Style` as keyword arguments: ``width`` (inches, "column", "text"), ``dark``, ``font``,
            ``style``.

    Raises:
        InputError: If the benchmark lacks one of the two rates, or a field of the style is invalid.
        MissingExtra: If matplotlib is not installed.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> better = [{**row, "caption": "A dog on a couch."} for row in rows]
        >>> results = scapo_eval.compare([scapo_eval.score(rows, name="base"), scapo_eval.score(better, name="ours")])
        >>> figure = scapo_eval.plots.frontier(results, width="column")
        >>> figure.axes[0].get_xlabel()
        'Hal. Rate, % (lower is better)'
    """
    prefixes = (trails,) if isinstance(trails, str) else tuple(trails)
    figure: Figure = plots.frontier(planes(Report((_compared(results),), trails=prefixes)), _style(style))
    return figure


def differences(results: Results | Sequence[Run], metrics: Sequence[str] | None = None, **style: Any) -> Figure:
    """Draws the differences from the baseline in order of size, with their intervals. Filled marks represent
    significant differences.

    Args:
        results: Results, or runs, of at least two systems.
        metrics: Metrics to draw, with one panel for each, or None for the headline metrics.
        style: Fields of :class:`Style` as keyword arguments.

    Raises:
        InputError: If there are no differences, or a metric is not found.
        MissingExtra: If matplotlib is not installed.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> better = [{**row, "caption": "A dog on a couch."} for row in rows]
        >>> results = scapo_eval.compare([scapo_eval.score(rows, name="base"), scapo_eval.score(better, name="ours")])
        >>> figure = scapo_eval.plots.differences(results, ["hal_rate", "cover_rate"])
        >>> len(figure.axes)
        2
    """
    figure: Figure = plots.differences(_compared(results), metrics, _style(style))
    return figure


def faithscore(results: Results | Run | Sequence[Run], **style: Any) -> Figure:
    """Draws FaithScore against the mean number of facts, with one panel per generation setting.

    Args:
        results: Results of :func:`scapo_eval.faithscore` for one or several systems.
        style: Fields of :class:`Style` as keyword arguments.

    Raises:
        InputError: If the results belong to another benchmark.
        MissingExtra: If matplotlib is not installed.

    Example:
        >>> import scapo_eval
        >>> rows = [{"id": k, "facts": ["A dog.", "A sofa."], "verified": [1, 0]} for k in range(40)]
        >>> figure = scapo_eval.plots.faithscore(scapo_eval.faithscore(rows))
        >>> len(figure.axes)
        1
    """
    figure: Figure = plots.faithscore(_compared(results), _style(style))
    return figure


def labels(systems: LabelRun | Run | Sequence[LabelRun | Run], top: int = 20, **style: Any) -> Figure:
    """Draws the labels with the highest hallucination rates, with the Wilson intervals of the rates.

    Args:
        systems: Results of :func:`scapo_eval.labels` or :func:`scapo_eval.score` for one or several systems.
        top: Maximum number of labels. The labels are sorted by their mean rate over the systems.
        style: Fields of :class:`Style` as keyword arguments.

    Raises:
        InputError: If no label is hallucinated, the systems have different vocabularies, or the captions of a run were
            changed after it was scored.
        MissingExtra: If matplotlib is not installed.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> figure = scapo_eval.plots.labels(scapo_eval.labels(rows))
        >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        ['cat']
    """
    given = [systems] if isinstance(systems, (LabelRun, Run)) else systems
    counted = [by_label(system) if isinstance(system, Run) else system for system in given]
    figure: Figure = plots.labels(counted, top, _style(style))
    return figure


def _compared(results: Results | Run | Sequence[Run]) -> Results:
    if isinstance(results, Results):
        return results
    listed = [results] if isinstance(results, Run) else [*results]
    if not listed or not all(isinstance(run, Run) for run in listed):
        raise InputError("nothing to draw: expected results, or runs such as those from scapo_eval.score")
    return compare(unique_names(listed))


def _style(fields: Mapping[str, Any]) -> Style:
    if unknown := [name for name in fields if name not in Style.__dataclass_fields__]:
        raise InputError(f"unknown style '{unknown[0]}' (there are: {', '.join(Style.__dataclass_fields__)})")
    return Style(**fields)


def training(folders: str | Path | Sequence[str | Path], smooth: int | None = None, **style: Any) -> Figure:
    """Draws the curves of training runs.

    Args:
        folders: Folders of training runs; see docs/report.md.
        smooth: Number of steps in the moving average, rounded up to an odd number, or None for 1/30 of the steps in the
            longest run.
        style: Fields of :class:`Style` as keyword arguments.

    Raises:
        InputError: If a folder does not contain a training run.
        MissingExtra: If matplotlib is not installed.

    Example:
        >>> import json, scapo_eval, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(f"{folder}/metrics.jsonl", "w") as log:
        ...         for step in range(1, 41):
        ...             print(json.dumps({"step": step, "reward": step / 40}), file=log)
        ...     figure = scapo_eval.plots.training([folder])
        >>> len(figure.axes)
        1
    """
    given = [folders] if isinstance(folders, (str, Path)) else folders
    logs = distinct_names([read_training_log(folder) for folder in given])
    figure: Figure = plots.training(logs, smooth, _style(style))
    return figure
