"""The report's plots as files for papers: PNG, SVG or PDF by matplotlib; equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InputError, MissingExtra
from ..metrics.labels import label_rows
from ..names import metric_name
from .data import ISO_LEVELS, CaptionEvidence, Plane, TrainingLog, iso_curve

COLORS = ("#3d4651", "#0b62b5", "#b34700", "#00785a", "#8a3ea8", "#9a6a00", "#b01860", "#00758f")
MARKERS = "sD^ovP"
FORMATS = ("png", "svg", "pdf")

_RC = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "scapo",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name with two $ is not a formula
}

_CURVES = (
    *((f"{metric_name(name)}, %", (name,), 100) for name in ("hal_rate", "cover_rate", "cap_score")),
    ("Reward", ("reward",), 1),
    ("Length, tokens", ("length",), 1),
    ("KL to the reference", ("kl",), 1),
)


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

    def __init__(self, width: float, height: float, rows: int = 1, columns: int = 1) -> None:
        matplotlib = _pyplot()
        from matplotlib.figure import Figure

        self._settings = matplotlib.rc_context(_RC)
        self._settings.__enter__()
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.axes: list[Any] = list(np.ravel(self.figure.subplots(rows, columns)))

    def save(self, stream: IO[bytes], form: str) -> None:
        """Writes the plot without a date or a version."""
        dates = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
        self.figure.savefig(stream, format=form, dpi=200, metadata=dates[form])

    def __enter__(self) -> Plot:
        return self

    def __exit__(self, *error: object) -> None:
        self._settings.__exit__(*error)


def frontier(stream: IO[bytes], form: str, planes: Sequence[Plane]) -> None:
    """Hal. Rate against Cover Rate with curves of equal Cap. Score, intervals, arrows and trails.

    Args:
        stream: stream to which the plot is written.
        form: format: ``png``, ``svg`` or ``pdf``.
        planes: the planes, drawn as one panel each.

    Raises:
        InputError: ``planes`` is empty.
        MissingExtra: matplotlib is not installed.
    """
    if not planes:
        raise InputError("nothing to draw: a frontier needs systems with both a Hal. Rate and a Cover Rate")
    names = list(dict.fromkeys(point.name for plane in planes for point in plane.points))
    with Plot(4.8 * len(planes), 4.2, 1, len(planes)) as plot:
        for axes, plane in zip(plot.axes, planes, strict=True):
            _draw_plane(axes, plane, names)
        plot.save(stream, form)


def _draw_plane(axes: Any, plane: Plane, names: Sequence[str]) -> None:
    every = np.array([(p.x, p.y) for p in plane.points] + [tuple(e) for p in plane.points for e in p.ellipse])
    low, high = every.min(axis=0), every.max(axis=0)
    pad = np.maximum(0.3 * (high - low), 0.02)
    (x0, y0), (x1, y1) = np.maximum(0, low - pad), np.minimum(1, high + pad)
    base = plane.points[0]
    axes.fill_between([100 * x0, 100 * base.x], 100 * y0, 100 * base.y, color="#fbe9d0", linewidth=0, zorder=0)
    axes.annotate("saying less", (0.02, 0.02), xycoords="axes fraction", color="#6f4b00", weight="bold")
    for level in ISO_LEVELS:
        curve = 100 * np.array(iso_curve(level))
        axes.plot(curve[:, 0], curve[:, 1], color="#9aa3ad", linestyle="--", linewidth=0.7, zorder=1)
        inside = curve[((curve >= (100 * x0, 100 * y0)) & (curve <= (100 * x1, 100 * y1))).all(axis=1)]
        if len(inside) > 1:
            axes.annotate(f"{100 * level:.0f}", tuple(inside[-1]), color="#55606c", fontsize=7, ha="right", va="bottom")
    for trail in plane.trails:
        color = COLORS[names.index(plane.points[trail[-1]].name) % len(COLORS)]
        axes.plot(
            [100 * plane.points[k].x for k in trail], [100 * plane.points[k].y for k in trail], color=color, lw=1.2
        )
    for k, point in enumerate(plane.points):
        place = names.index(point.name)
        color, marker = COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)]
        on_trail = any(k in trail[:-1] for trail in plane.trails)
        if len(point.ellipse) and not on_trail:
            axes.fill(*(100 * point.ellipse.T), facecolor=color, alpha=0.15, edgecolor=color, linewidth=0.8)
        if k in plane.arrows:
            ends = {"xy": (100 * point.x, 100 * point.y), "xytext": (100 * base.x, 100 * base.y)}
            axes.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": color, "shrinkA": 6, "shrinkB": 6})
        label = f"{point.name} ({100 * point.score:.1f})"
        size = 3 if on_trail else 6
        axes.plot(100 * point.x, 100 * point.y, marker, color=color, ms=size, ls="", label=None if on_trail else label)
    axes.set(xlim=(100 * x0, 100 * x1), ylim=(100 * y0, 100 * y1), title=plane.title)
    axes.set(xlabel="Hal. Rate, % (lower is better)", ylabel="Cover Rate, % (higher is better)")
    axes.legend(title="(Cap. Score)", fontsize=8, title_fontsize=8)


def labels(stream: IO[bytes], form: str, systems: Sequence[CaptionEvidence], top: int = 20) -> None:
    """The labels that the systems hallucinate most, with rates and Wilson intervals.

    Args:
        stream: as in :func:`frontier`.
        form: as in :func:`frontier`.
        systems: the systems with their captions.
        top: greatest number of labels.

    Raises:
        InputError: there are no captions, or nothing is hallucinated.
    """
    if not systems:
        raise InputError("labels are counted in captions: give captions files and --truth")
    tables = [label_rows(system.labels) for system in systems]
    names = systems[0].truth.vocabulary.labels
    total = np.sum([np.array(t["hallucinated"], dtype=np.int64) for t in tables], axis=0)
    most = [k for k in np.argsort(-total, kind="stable")[:top].tolist() if total[k]][::-1]
    if not most:
        raise InputError("nothing to draw: no label is hallucinated")
    with Plot(5.2, 1.1 + len(most) * (0.14 + 0.1 * len(systems))) as plot:
        axes, thick = plot.axes[0], 0.8 / len(systems)
        for s, (system, rows) in enumerate(zip(systems, tables, strict=True)):
            at = np.arange(len(most)) + 0.4 - (s + 0.5) * thick
            rate, low, high = (np.array([rows[n][k] or 0.0 for k in most]) for n in ("rate", "low", "high"))
            error = 100 * np.maximum(0, [rate - low, high - rate])
            color = COLORS[s % len(COLORS)]
            axes.barh(at, 100 * rate, thick, color=color, label=system.name, xerr=error, error_kw={"lw": 0.7})
        axes.set_yticks(range(len(most)), [names[k] for k in most])
        axes.set(xlabel="hallucinated captions among those that name the label, %", xlim=(0, None))
        axes.legend(fontsize=8)
        plot.save(stream, form)


def training(stream: IO[bytes], form: str, logs: Sequence[TrainingLog]) -> None:
    """Training curves, one panel per quantity, one line per training run.

    Args:
        stream: as in :func:`frontier`.
        form: as in :func:`frontier`.
        logs: logs of training runs.

    Raises:
        InputError: ``logs`` is empty, or has none of the quantities that are drawn.
    """
    if not logs:
        raise InputError("nothing to draw: give the folder of a training run, with metrics.jsonl")
    panels = [panel for panel in _CURVES if any(_present(log, panel[1]) for log in logs)]
    if not panels:
        raise InputError(
            "nothing to draw: the training runs have none of " + ", ".join(n for _, names, _ in _CURVES for n in names)
        )
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with Plot(3.1 * columns, 2.3 * rows, rows, columns) as plot:
        for axes, (title, names, factor) in zip(plot.axes, panels, strict=False):
            for k, log in enumerate(logs):
                for name in _present(log, names):
                    values = [np.nan if v is None else factor * v for v in log.columns[name]]
                    axes.plot(log.columns["step"], values, color=COLORS[(k + 1) % len(COLORS)], lw=1.2, label=log.name)
            axes.set(title=title, xlabel="step")
        for axes in plot.axes[len(panels) :]:
            axes.set_axis_off()
        plot.axes[0].legend(fontsize=8)
        plot.save(stream, form)


def _present(log: TrainingLog, names: Iterable[str]) -> list[str]:
    return [name for name in names if any(v is not None for v in log.columns.get(name, []))]
