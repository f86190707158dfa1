"""Figures for papers, drawn from results: ``scapo_eval.plots.frontier(results).savefig("frontier.pdf")``.

Every function returns a :class:`matplotlib.figure.Figure` (extra ``report``), outside of pyplot's global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report import plots
from .report.data import Report, planes, read_training_log
from .report.plots import Style
from .results.comparison import compare
from .results.results import Results, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Style", "differences", "faithscore", "frontier", "training"]


def frontier(results: Results | Run, trails: Sequence[str] = (), **style: Any) -> Figure:
    """Draws Hal. Rate against Cover Rate, with curves of equal Cap. Score and 95 % regions.

    Args:
        results: results of a benchmark with both rates (captions, for example).
        trails: prefixes of system names; systems with the same prefix are checkpoints of one run, in order.
        style: fields of :class:`Style`: ``width`` (inches, "column", "text"), ``dark``, ``font``, ``style``.

    Raises:
        InputError: if the benchmark has no such rates, or a field of the style is not valid.
        MissingExtra: if matplotlib is not installed.
    """
    group = results if isinstance(results, Results) else compare([results])
    figure: Figure = plots.frontier(planes(Report((group,), trails=tuple(trails))), Style(**style))
    return figure


def differences(results: Results, metrics: Sequence[str] | None = None, **style: Any) -> Figure:
    """Draws differences to the baseline with their intervals, ranked; filled where the test shows one.

    Args:
        results: results of at least two systems.
        metrics: metrics to draw, one panel each; None draws the headline metrics.
        style: fields of :class:`Style`.

    Raises:
        InputError: if there are no differences, or a metric is not found.
        MissingExtra: if matplotlib is not installed.
    """
    figure: Figure = plots.differences(results, metrics, Style(**style))
    return figure


def faithscore(results: Results | Run, **style: Any) -> Figure:
    """Draws FaithScore against Avg. Facts, a panel per generation setting.

    Args:
        results: results of :func:`scapo_eval.faithscore` for one or several systems.
        style: fields of :class:`Style`.

    Raises:
        InputError: if the results are of another benchmark.
        MissingExtra: if matplotlib is not installed.
    """
    group = results if isinstance(results, Results) else compare([results])
    figure: Figure = plots.faithscore(group, Style(**style))
    return figure


def training(folders: Sequence[str | Path], smooth: int | None = None, **style: Any) -> Figure:
    """Curves of training runs.

    Args:
        folders: folders of training runs, see docs/report.md.
        smooth: number of steps over which a line is averaged; None: a 30th of the longest run.
        style: fields of :class:`Style`.

    Raises:
        InputError: if a folder is not a training run's.
        MissingExtra: if matplotlib is not installed.
    """
    figure: Figure = plots.training([read_training_log(folder) for folder in folders], smooth, Style(**style))
    return figure
