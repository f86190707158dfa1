"""The report's plots as files for papers: PNG, SVG or PDF by matplotlib; equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, MissingExtra
from ..benchmarks.labels import wilson
from ..results.names import metric_name
from .data import ISO_LEVELS, CaptionEvidence, Plane, TrainingLog, iso_curve, shared_images
from .quantities import HEADLINE, quantity

COLORS = ("#3d4651", "#0b62b5", "#b34700", "#00785a", "#8a3ea8", "#9a6a00", "#b01860", "#00758f")
DARK_COLORS = ("#c3cbd4", "#6db1ff", "#ff9f5c", "#4fd3ab", "#d79bf0", "#e8c05a", "#ff8fc0", "#5fcbe4")
MARKERS = "sD^ovP"
LINES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
FORMATS = ("png", "svg", "pdf")
WIDTHS = {"column": 3.35, "text": 6.9}
"""Width of a figure in inches, by where it stands in a paper of two columns."""

_RC = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "scapo",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name with two $ is not a formula
}


@dataclass(frozen=True, slots=True)
class Style:
    """How a figure is drawn.

    Attributes:
        width: one of WIDTHS.
        dark: whether it is for a dark page.
    """

    width: str = "text"
    dark: bool = False

    @property
    def inches(self) -> float:
        """Width of the figure."""
        return WIDTHS[self.width]

    @property
    def narrow(self) -> bool:
        """Whether it is one column wide."""
        return self.width == "column"

    @property
    def ink(self) -> str:
        """Color of texts and axes."""
        return "#e7eaee" if self.dark else "#1b2026"

    @property
    def paper(self) -> str:
        """Color of the background."""
        return "#1a1f25" if self.dark else "#ffffff"

    @property
    def faint(self) -> str:
        """Color of what stands behind the values."""
        return "#77828f" if self.dark else "#8a939d"

    @property
    def shade(self) -> str:
        """Color of the corner of saying less."""
        return "#3b2c14" if self.dark else "#fbe9d0"

    def color(self, k: int) -> str:
        """Color of the k-th system."""
        return (DARK_COLORS if self.dark else COLORS)[k % len(COLORS)]

    def settings(self) -> dict[str, Any]:
        """For matplotlib."""
        inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        return {
            **_RC,
            "font.size": 7.5 if self.narrow else 8.5,
            "axes.titlesize": "medium",
            "axes.labelsize": "medium",
            "legend.fontsize": "small" if self.narrow else "medium",
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            **dict.fromkeys(inked, self.ink),
        }


def picture_format(path: str) -> str:
    """The format that a file's name asks for.

    Raises:
        InputError: it is none of FORMATS.
    """
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in FORMATS:
        raise InputError(
            f"not a valid name for a plot: it must end in {', '.join('.' + name for name in FORMATS)}", path=path
        )
    return suffix


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("report", "drawing a plot") from None
    return matplotlib


class Plot:
    """A matplotlib figure with this project's settings, without the global state of pyplot."""

    def __init__(
        self, width: float, height: float, rows: int = 1, columns: int = 1, style: Style | None = None
    ) -> None:
        matplotlib = _pyplot()
        from matplotlib.figure import Figure

        self._settings = matplotlib.rc_context((style or Style()).settings())
        self._settings.__enter__()
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.axes: list[Any] = list(np.ravel(self.figure.subplots(rows, columns)))

    def legend(self, handles: Sequence[Any], style: Style, notes: Iterable[str] = ()) -> None:
        """Puts the legend below the axes, and notes below it."""
        longest = max(len(str(handle.get_label())) for handle in handles)
        fitting = max(1, int(style.inches / (0.35 + longest * (0.055 if style.narrow else 0.068))))
        sentences = dict.fromkeys(filter(None, notes))
        text = "\n".join(line for each in sentences for line in wrap(each, int(16 * style.inches)))
        if len(handles) > 1 or text:
            self.figure.legend(
                handles=handles if len(handles) > 1 else [],
                loc="outside lower center",
                ncols=min(len(handles), fitting),
                title=text or None,
                title_fontsize="x-small",
            )

    def save(self, stream: IO[bytes], form: str) -> None:
        """Writes the plot without a date or a version."""
        dates = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
        self.figure.savefig(stream, format=form, dpi=200, metadata=dates[form])

    def __enter__(self) -> Plot:
        return self

    def __exit__(self, *error: object) -> None:
        self._settings.__exit__(*error)


def frontier(stream: IO[bytes], form: str, planes: Sequence[Plane], style: Style | None = None) -> None:
    """Hallucination against coverage with curves of equal Cap. Score, 95 % regions, arrows and trails.

    Args:
        stream: stream to which the plot is written.
        form: format: ``png``, ``svg`` or ``pdf``.
        planes: the planes, drawn as one panel each.
        style: how it is drawn.

    Raises:
        InputError: ``planes`` is empty.
        MissingExtra: matplotlib is not installed.
    """
    if not planes:
        raise InputError("nothing to draw: a frontier needs systems with both a Hal. Rate and a Cover Rate")
    style = style or Style()
    names = list(dict.fromkeys(point.name for plane in planes for point in plane.points))
    rows, columns = (len(planes), 1) if style.narrow else (-(-len(planes) // 2), min(2, len(planes)))
    each = style.inches / columns * (0.62 if columns == 1 and not style.narrow else 0.86)
    with Plot(style.inches, rows * each + 0.22 * -(-len(names) // 2), rows, columns, style) as plot:
        handles: dict[str, Any] = {}
        for axes, plane in zip(plot.axes, planes, strict=False):
            for handle in _draw_plane(axes, plane, names, style, titled=len(planes) > 1):
                handles.setdefault(handle.get_label(), handle)
        for axes in plot.axes[len(planes) :]:
            axes.set_axis_off()
        notes = () if len(planes) > 1 else ("In brackets: Cap. Score.",)
        plot.legend(list(handles.values()), style, (*notes, *(plane.note for plane in planes)))
        plot.save(stream, form)


def _draw_plane(axes: Any, plane: Plane, names: Sequence[str], style: Style, *, titled: bool) -> list[Any]:
    """Draws a plane and returns a legend's handles, one per system."""
    every = np.array([(p.x, p.y) for p in plane.points] + [tuple(e) for p in plane.points for e in p.ellipse])
    low, high = every.min(axis=0), every.max(axis=0)
    pad = np.maximum(0.2 * (high - low), 0.015)
    (x0, y0), (x1, y1) = np.maximum(0, low - pad), np.minimum(1, high + pad)
    base = plane.points[0]
    axes.fill_between([100 * x0, 100 * base.x], 100 * y0, 100 * base.y, color=style.shade, linewidth=0, zorder=0)
    axes.annotate("saying less", (0.02, 0.02), xycoords="axes fraction", color=style.ink, style="italic")
    for level in ISO_LEVELS:
        curve = 100 * np.array(iso_curve(level))
        axes.plot(curve[:, 0], curve[:, 1], color=style.faint, linestyle=(0, (4, 4)), linewidth=0.6, zorder=1)
        inside = curve[((curve >= (100 * x0, 100 * y0)) & (curve <= (100 * x1, 100 * y1))).all(axis=1)]
        if len(inside) > 1:
            text = {"color": style.faint, "fontsize": "x-small", "ha": "right", "va": "bottom"}
            axes.annotate(f"Cap. Score {100 * level:.0f}", tuple(inside[-1]), **text)
    for trail in plane.trails:
        color = style.color(names.index(plane.points[trail[-1]].name))
        axes.plot([100 * plane.points[k].x for k in trail], [100 * plane.points[k].y for k in trail], color=color, lw=1)
    handles = []
    for k, point in enumerate(plane.points):
        place = names.index(point.name)
        color, marker = style.color(place), MARKERS[place % len(MARKERS)]
        on_trail = any(k in trail[:-1] for trail in plane.trails)
        if len(point.ellipse) and not on_trail:
            axes.fill(*(100 * point.ellipse.T), facecolor=color, alpha=0.12, linewidth=0)
            axes.fill(*(100 * point.ellipse.T), fill=False, edgecolor=color, linewidth=0.7)
        if k in plane.arrows:
            ends = {"xy": (100 * point.x, 100 * point.y), "xytext": (100 * base.x, 100 * base.y)}
            arrow = {"arrowstyle": "->", "color": color, "shrinkA": 6, "shrinkB": 6, "lw": 0.9}
            axes.annotate("", **ends, arrowprops=arrow)
        (mark,) = axes.plot(
            100 * point.x, 100 * point.y, marker, color=color, ms=3 if on_trail else 5.5, ls="",
            label=point.name if titled else f"{point.name} ({100 * point.score:.1f})",
        )  # fmt: skip
        if not on_trail:
            handles.append(mark)
    axes.set(xlim=(100 * x0, 100 * x1), ylim=(100 * y0, 100 * y1), title=plane.title if titled else "")
    axes.set(
        xlabel=f"{metric_name(plane.x)}, % (lower is better)", ylabel=f"{metric_name(plane.y)}, % (higher is better)"
    )
    return handles


def labels(
    stream: IO[bytes], form: str, systems: Sequence[CaptionEvidence], top: int = 20, style: Style | None = None
) -> None:
    """The labels that the systems hallucinate most: the share of captions that do, with Wilson intervals.

    Args:
        stream: as in :func:`frontier`.
        form: as in :func:`frontier`.
        systems: the systems with their captions.
        top: greatest number of labels; ordered by the mean of the shares that are drawn.
        style: how it is drawn.

    Raises:
        InputError: there are no captions, or nothing is hallucinated.
    """
    if not systems:
        raise InputError("labels are counted in captions: give captions files and --truth")
    style = style or Style()
    names = systems[0].truth.vocabulary.labels
    shares = [system.labels.hallucinated / len(system.texts) for system in systems]
    mean = np.mean(shares, axis=0)
    most = [k for k in np.argsort(-mean, kind="stable")[:top].tolist() if mean[k]][::-1]
    if not most:
        raise InputError("nothing to draw: no label is hallucinated")
    height = 0.9 + len(most) * (0.09 + 0.075 * len(systems)) + 0.2 * -(-len(systems) // 2)
    with Plot(style.inches, height, style=style) as plot:
        axes, apart = plot.axes[0], 0.72 / len(systems)
        handles = []
        for s, (system, share) in enumerate(zip(systems, shares, strict=True)):
            at = np.arange(len(most)) + 0.36 - (s + 0.5) * apart
            bounds = [wilson(int(system.labels.hallucinated[k]), len(system.texts)) for k in most]
            low, high = (np.array([bound[end] or 0.0 for bound in bounds]) for end in (0, 1))
            color = style.color(s)
            axes.hlines(at, 100 * low, 100 * high, color=color, lw=0.9)
            handles += axes.plot(
                100 * share[most], at, MARKERS[s % len(MARKERS)], color=color, ms=3.6, label=system.name
            )
        for row in range(1, len(most), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=style.faint, alpha=0.1, lw=0)
        axes.set_yticks(range(len(most)), [names[k] for k in most])
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel="captions that name it though it is absent, %", xlim=(0, None))
        axes.set(ylim=(-0.6, len(most) - 0.4))
        plot.legend(handles, style, [shared_images([frozenset(system.image_ids) for system in systems])])
        plot.save(stream, form)


def training(
    stream: IO[bytes], form: str, logs: Sequence[TrainingLog], smooth: int | None = None, style: Style | None = None
) -> None:
    """Training curves, one panel per quantity, one line per training run; the logged values stand behind the lines.

    Args:
        stream: as in :func:`frontier`.
        form: as in :func:`frontier`.
        logs: logs of training runs.
        smooth: number of logged steps of which a line is the mean; None takes a 30th of the longest log.
        style: how it is drawn.

    Raises:
        InputError: ``logs`` is empty, or has none of the quantities that are drawn.
    """
    if not logs:
        raise InputError("nothing to draw: give the folder of a training run, with metrics.jsonl")
    panels = [name for name in HEADLINE if any(_has(log, name) for log in logs)]
    if not panels:
        raise InputError(f"nothing to draw: the training runs have none of {', '.join(HEADLINE)}")
    style = style or Style()
    window = smooth or max(1, max(len(log.columns["step"]) for log in logs) // 30)
    columns = min(2 if style.narrow else 3, len(panels))
    rows = -(-len(panels) // columns)
    with Plot(style.inches, rows * style.inches / columns * 0.72 + 0.45, rows, columns, style) as plot:
        handles: dict[str, Any] = {}
        for axes, name in zip(plot.axes, panels, strict=False):
            shown = quantity(name)
            for k, log in enumerate(logs):
                if not _has(log, name):
                    continue
                steps, factor = log.columns["step"], 100 if shown.percent else 1
                values = np.array([np.nan if v is None else factor * v for v in log.columns[name]], dtype=float)
                color, line = style.color(k + 1), LINES[k % len(LINES)]
                if window > 1:
                    axes.plot(steps, values, color=color, lw=0.5, alpha=0.3)
                (drawn,) = axes.plot(steps, moving_mean(values, window), color=color, lw=1.3, ls=line, label=log.name)
                handles.setdefault(log.name, drawn)
            axes.set(title=shown.title)
        for axes in plot.axes[: len(panels)][-columns:]:
            axes.set(xlabel="step")
        for axes in plot.axes[len(panels) :]:
            axes.set_axis_off()
        note = f"Lines: mean of {window} logged steps; behind them the logged values." if window > 1 else ""
        plot.legend(list(handles.values()), style, [note])
        plot.save(stream, form)


def moving_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Mean of the ``window`` values around each, of fewer at the ends; missing ones (NaN) are passed over."""
    known = ~np.isnan(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(each)]) for each in (np.where(known, values, 0.0), known))
    at = np.arange(len(values))
    low, high = np.maximum(0, at - (window - 1) // 2), np.minimum(len(values), at + window // 2 + 1)
    n = counts[high] - counts[low]
    mean: NDArray[np.float64] = np.full(len(values), np.nan)
    np.divide(sums[high] - sums[low], n, out=mean, where=known & (n > 0))
    return mean


def _has(log: TrainingLog, name: str) -> bool:
    return any(v is not None for v in log.columns.get(name, []))
