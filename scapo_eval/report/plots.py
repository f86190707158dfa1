"""Figures of the report, drawn with matplotlib and saved to files for papers. Equal inputs produce byte-identical
files.

Every drawing function returns a :class:`matplotlib.figure.Figure`. :func:`save` writes a figure as PNG, SVG or PDF.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import wrap
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, MissingExtra
from ..benchmarks.labels import LabelRun, wilson
from ..results.names import metric_name, reader_mark
from ..results.render import is_better
from ..results.results import Results
from .data import ISO_LEVELS, CaptionEvidence, Plane, TrainingLog, iso_curve, shared_images
from .quantities import HEADLINE, quantity
from .sentences import spoken_metrics

COLORS = ("#1b2026", "#0b3fe4", "#ff5311", "#126955", "#732b8c", "#9c6338", "#dd6590", "#2e95c9")
DARK_COLORS = ("#ffffff", "#62d3f0", "#e45102", "#007f4f", "#b38ef4", "#f0e442", "#ff77ac", "#614fff")
"""Colors for dark pages. Like ``COLORS``, they are based on the hues of Okabe and Ito with increased differences in
lightness, so that they are distinct for every kind of color vision (verified by a test with simulated color vision).
"""
MARKERS = "sD^ovP"
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
FORMATS = ("png", "svg", "pdf")
WIDTHS = {"column": 3.35, "text": 6.9}
"""Width of a figure in inches, by its place in a two-column paper."""
NARROWEST, WIDEST = 2.0, 30.0
NARROW = 4.2
"""Width in inches below which panels are stacked vertically and texts are smaller."""
MOST_NAMED = 10
"""Maximum number of systems whose names are written next to their points. With more systems, the figure has a
legend.
"""

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
    """Settings for the appearance of a figure.

    Attributes:
        width: Width in inches, or a key of WIDTHS.
        dark: True for a figure on a dark page.
        font: Name of an installed font, or None for matplotlib's default.
        style: Name or path of a matplotlib style sheet, which is applied last.

    Raises:
        InputError: If the width, the font or the style sheet is invalid.

    Example:
        >>> import scapo_eval
        >>> scapo_eval.plots.Style(width="column").inches
        3.35
    """

    width: str | float = "text"
    dark: bool = False
    font: str | None = None
    style: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.width, (str, int, float)) or (isinstance(self.width, str) and self.width not in WIDTHS):
            raise InputError(
                f"not a valid width: '{self.width}' (there are {', '.join(WIDTHS)}, or a number of inches)"
            )
        if not NARROWEST <= self.inches <= WIDEST:
            raise InputError(f"not a valid width: {self.inches:g} inches (from {NARROWEST:g} to {WIDEST:g})")

    @property
    def inches(self) -> float:
        """Width of the figure in inches."""
        return WIDTHS[self.width] if isinstance(self.width, str) else float(self.width)

    @property
    def narrow(self) -> bool:
        """True if the figure has the width of one column of text."""
        return self.inches < NARROW

    @property
    def ink(self) -> str:
        """Color of text and axes."""
        return "#e7eaee" if self.dark else "#1b2026"

    @property
    def paper(self) -> str:
        """Color of the background."""
        return "#1a1f25" if self.dark else "#ffffff"

    @property
    def faint(self) -> str:
        """Color of the elements that are drawn behind the values."""
        return "#77828f" if self.dark else "#8a939d"

    @property
    def shade(self) -> str:
        """Color of the corner that marks systems that say less."""
        return "#3b2c14" if self.dark else "#fbe9d0"

    def color(self, k: int) -> str:
        """Returns the color of the k-th system."""
        return (DARK_COLORS if self.dark else COLORS)[k % len(COLORS)]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Applies these settings to matplotlib until the context ends.

        Raises:
            InputError: If the font or the style sheet is not found.
            MissingExtra: If matplotlib is not installed.
        """
        matplotlib = _matplotlib()
        from matplotlib import font_manager
        from matplotlib.style import context

        inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        settings: dict[str, Any] = {
            **_RC,
            "font.size": 7.5 if self.narrow else 8.5,
            "axes.titlesize": "medium",
            "axes.labelsize": "medium",
            "legend.fontsize": "small" if self.narrow else "medium",
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            **dict.fromkeys(inked, self.ink),
        }
        if self.font is not None:
            try:
                font_manager.findfont(self.font, fallback_to_default=False)
            except ValueError:
                raise InputError(f"font not found: '{self.font}'") from None
            settings["font.family"] = [self.font]
        with matplotlib.rc_context(settings):
            if self.style is None:
                yield
                return
            try:
                sheet = context(self.style)
                sheet.__enter__()
            except OSError:
                raise InputError(f"style sheet not found: '{self.style}'") from None
            except ValueError:  # not a text
                raise InputError(f"not a valid style sheet: '{self.style}'") from None
            try:
                matplotlib.rcParams["text.usetex"] = False  # names may contain % and _
                yield
            finally:
                sheet.__exit__(None, None, None)


def picture_format(path: str) -> str:
    """Returns the format that corresponds to the extension of a file name.

    Raises:
        InputError: If the format is not in FORMATS.
    """
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in FORMATS:
        raise InputError(
            f"not a valid name for a plot: it must end in {', '.join('.' + name for name in FORMATS)}", path=path
        )
    return suffix


def save(figure: Any, stream: IO[bytes], form: str) -> None:
    """Writes a figure to a file that contains neither a date nor a version.

    Args:
        figure: Figure from a function in this module.
        stream: Output stream.
        form: Format of the file: ``png``, ``svg`` or ``pdf``.
    """
    dates = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    with _matplotlib().rc_context(_RC):
        figure.savefig(stream, format=form, dpi=200, metadata=dates[form])


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("report", "drawing a plot") from None
    return matplotlib


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """Returns a figure and its axes without using the global state of pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(np.ravel(figure.subplots(rows, columns)))


def _legend(figure: Any, handles: Sequence[Any], style: Style, notes: Iterable[str] = ()) -> None:
    """Adds a legend below the axes with as many columns as fit, and the notes below the legend.

    The height of the legend is added to that of the figure, so that the plot keeps its size.
    """
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = max(1, int(style.inches / (0.35 + longest * (0.055 if style.narrow else 0.068))))
    text = "\n".join(line for note in dict.fromkeys(filter(None, notes)) for line in wrap(note, int(16 * style.inches)))
    shown = handles if len(handles) > 1 else []
    if not shown and not text:
        return
    rows = -(-len(shown) // fitting) + text.count("\n") + bool(text)
    figure.set_figheight(figure.get_figheight() + 0.05 + 0.17 * rows)
    figure.legend(
        handles=shown,
        loc="outside lower center",
        ncols=min(max(1, len(shown)), fitting),
        title=text or None,
        title_fontsize="x-small",
    )


def frontier(planes: Sequence[Plane], style: Style | None = None) -> Any:
    """Plots hallucination against coverage, with curves of equal caption score, 95 % regions, arrows and trails.

    Args:
        planes: Planes to draw, each in its own panel.
        style: Appearance of the figure, or None for the default.

    Raises:
        InputError: If ``planes`` is empty.
        MissingExtra: If matplotlib is not installed.
    """
    if not planes:
        raise InputError("nothing to draw: a frontier needs systems with both a Hal. Rate and a Cover Rate")
    style = style or Style()
    names = list(dict.fromkeys(point.name for plane in planes for point in plane.points))
    rows, columns = (len(planes), 1) if style.narrow else (-(-len(planes) // 2), min(2, len(planes)))
    panel_height = style.inches / columns * (0.62 if columns == 1 and not style.narrow else 0.86)
    with style.applied():
        figure, places = panels(style.inches, rows * panel_height, rows, columns)
        handles: dict[str, Any] = {}
        for axes, plane in zip(places, planes, strict=False):
            for handle in _draw_plane(axes, plane, names, style, titled=len(planes) > 1):
                handles.setdefault(handle.get_label(), handle)
        for axes in places[len(planes) :]:
            axes.set_axis_off()
        notes = [plane.note for plane in planes]
        if len(planes) == 1 and len(names) <= MOST_NAMED:
            height = figure.get_figheight()
            _legend(figure, [], style, ["Beside each name: Cap. Score.", *notes])
            if _name_points(figure, places[0], planes[0], style):
                return figure
            figure.legends[0].remove()
            figure.set_figheight(height)
        _legend(figure, list(handles.values()), style, ["In brackets: Cap. Score." * (len(planes) == 1), *notes])
    return figure


def _name_points(figure: Any, axes: Any, plane: Plane, style: Style) -> bool:
    """Writes the name of every system next to its point. If there is not enough room for all names, the function writes
    none of them and returns False.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # the layout determines the positions of the points
    renderer = figure.canvas.get_renderer()
    dots = axes.transData.transform([(100 * p.x, 100 * p.y) for p in plane.points])
    unit = figure.dpi / 72
    taken = [Bbox.from_bounds(x - 5 * unit, y - 5 * unit, 10 * unit, 10 * unit) for x, y in dots]
    taken += [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
    on_trail = {k for trail in plane.trails for k in trail[:-1]}
    written: list[Any] = []
    for k, point in enumerate(plane.points):
        if k in on_trail:
            continue
        for far, turn in product((7, 14, 22, 32, 44), (0, 180, 35, -35, 145, 215, 90, -90)):
            dx, dy = far * np.cos(np.radians(turn)), far * np.sin(np.radians(turn))
            text = axes.annotate(
                f"{point.name} {100 * point.score:.1f}",
                (100 * point.x, 100 * point.y),
                (dx, dy),
                textcoords="offset points",
                ha="center" if abs(dx) < 2 else "left" if dx > 0 else "right",
                va="center" if abs(dy) < 2 else "bottom" if dy > 0 else "top",
                fontsize="small",
                arrowprops={"arrowstyle": "-", "color": style.faint, "lw": 0.5, "shrinkB": 4} if far > 14 else None,
            )
            text.set_in_layout(False)
            box = text.get_window_extent(renderer)
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
            inside = inside and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                written.append(text)
                break
            text.remove()
        else:
            for text in written:
                text.remove()
            return False
    return True


def _draw_plane(axes: Any, plane: Plane, names: Sequence[str], style: Style, *, titled: bool) -> list[Any]:
    """Draws a plane, and returns one legend handle per system."""
    every = np.array([(p.x, p.y) for p in plane.points] + [tuple(e) for p in plane.points for e in p.ellipse])
    low, high = every.min(axis=0), every.max(axis=0)
    pad = np.maximum(0.2 * (high - low), 0.015)
    (x0, y0), (x1, y1) = np.maximum(0, low - pad), np.minimum(1, high + pad)
    base = plane.points[0]
    axes.fill_between([100 * x0, 100 * base.x], 100 * y0, 100 * base.y, color=style.shade, linewidth=0, zorder=0)
    axes.annotate("more faithful, covers less", (0.02, 0.02), xycoords="axes fraction", color=style.ink, style="italic")
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
            axes.fill(*(100 * point.ellipse.T), facecolor=color, alpha=0.1, linewidth=0)
            axes.fill(
                *(100 * point.ellipse.T), fill=False, edgecolor=color, linewidth=0.8, ls=LINES[place % len(LINES)]
            )
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


def labels(systems: Sequence[CaptionEvidence | LabelRun], top: int = 20, style: Style | None = None) -> Any:
    """Draws the labels with the highest hallucination rates. A rate is a share of captions and is drawn with its Wilson
    interval.

    Args:
        systems: Systems with counts for each label.
        top: Maximum number of labels. The labels are sorted by their mean rate over the systems.
        style: Appearance of the figure, or None for the default.

    Raises:
        InputError: If there are no captions, or no label is hallucinated.
    """
    if not systems:
        raise InputError("labels are counted in captions: use caption files and --truth")
    style = style or Style()
    counted = [
        (system.scores.name, system.counts, system.scores.n_records, system.scores.table.image_ids)
        if isinstance(system, LabelRun)
        else (system.name, system.labels, len(system.texts), system.image_ids)
        for system in systems
    ]
    names = counted[0][1].labels
    if any(counts.labels != names for _, counts, *_ in counted):
        raise InputError("the systems have different vocabularies")
    shares = [counts.hallucinated / n for _, counts, n, _ in counted]
    mean = np.mean(shares, axis=0)
    most = [k for k in np.argsort(-mean, kind="stable")[:top].tolist() if mean[k]][::-1]
    if not most:
        raise InputError("nothing to draw: no label is hallucinated")
    height = 0.9 + len(most) * (0.09 + 0.075 * len(systems))
    with style.applied():
        figure, (axes,) = panels(style.inches, height)
        apart = 0.72 / len(systems)
        handles = []
        for s, ((name, counts, n, _), share) in enumerate(zip(counted, shares, strict=True)):
            at = np.arange(len(most)) + 0.36 - (s + 0.5) * apart
            bounds = [wilson(int(counts.hallucinated[k]), n) for k in most]
            low, high = (np.array([bound[end] or 0.0 for bound in bounds]) for end in (0, 1))
            color = style.color(s)
            axes.hlines(at, 100 * low, 100 * high, color=color, lw=0.9, ls=LINES[s % len(LINES)])
            handles += axes.plot(100 * share[most], at, MARKERS[s % len(MARKERS)], color=color, ms=3.6, label=name)
        for row in range(1, len(most), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=style.faint, alpha=0.1, lw=0)
        axes.set_yticks(range(len(most)), [names[k] for k in most])
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel="captions that hallucinate the label, %", xlim=(0, None))
        axes.set(ylim=(-0.6, len(most) - 0.4))
        _legend(figure, handles, style, [shared_images([frozenset(images) for *_, images in counted])])
    return figure


def differences(group: Results, metrics: Sequence[str] | None = None, style: Style | None = None) -> Any:
    """Draws the differences from the baseline and their intervals, in order of size. Filled marks represent significant
    differences.

    Args:
        group: Results of one benchmark.
        metrics: Metrics to draw, with one panel for each, or None for the first three metrics of the report's summary
            sentence.
        style: Appearance of the figure, or None for the default.

    Raises:
        InputError: If there are no differences, or a metric does not belong to the benchmark.
    """
    metric_set = group.metric_set
    chosen = list(metrics) if metrics is not None else spoken_metrics(metric_set)[:3]
    for name in chosen:
        if name not in metric_set.formulas:
            raise InputError(f"metric '{name}' not found (there are {', '.join(metric_set.formulas)})")
    rows = {
        name: [row for row in group.comparisons if row["metric"] == name and row["difference"] is not None]
        for name in chosen
    }
    if not any(rows.values()):
        raise InputError("nothing to draw: differences need two systems of one benchmark that share 30 images")
    style = style or Style()
    ranks = {row["system"]: row["difference"] for row in rows[chosen[-1]]}  # of Cap. Score, if available
    drawn = {row["system"] for each in rows.values() for row in each}
    unranked = [run.name for run in group.runs[:0:-1] if run.name in drawn - ranks.keys()]
    names = [*unranked, *sorted(ranks, key=lambda name: ranks[name])]
    with style.applied():
        columns = 1 if style.narrow else len(chosen)
        panel_rows = len(chosen) if style.narrow else 1
        figure, places = panels(style.inches, panel_rows * (1.1 + 0.2 * len(names)), panel_rows, columns)
        for n, (axes, name) in enumerate(zip(places, chosen, strict=True)):
            higher = metric_set.higher_is_better.get(name)
            scale = 1 if name in metric_set.plain_numbers else 100
            axes.axvline(0, color=style.faint, lw=0.8)
            for row in rows[name]:
                y, value = names.index(row["system"]), scale * row["difference"]
                better = is_better(row, higher)
                color = style.ink if better is None else style.color(3 if better else 2)
                if row["ci_low"] is not None:
                    axes.hlines(y, scale * row["ci_low"], scale * row["ci_high"], color=color, lw=1)
                axes.plot(value, y, "o", ms=4, color=color, mfc=style.paper if better is None else color)
            arrow = "" if higher is None else " (right is better)" if higher else " (left is better)"
            title = metric_name(name) + reader_mark(name, [str(run.signature) for run in group.runs])
            unit = "points" if scale == 100 else "difference"
            axes.set(title=title, xlabel=unit + arrow, ylim=(-0.6, len(names) - 0.4))
            shown = names if n % columns == 0 else [""] * len(names)
            axes.set_yticks(range(len(names)), shown)
            axes.tick_params(axis="y", length=0)
        _legend(figure, [], style, [f"Differences from {group.runs[0].name}; filled: significant."])
    return figure


def faithscore(group: Results, style: Style | None = None) -> Any:
    """Plots FaithScore against the mean number of facts, with one panel per generation setting, as in the paper's
    figure.

    Systems that state many facts and few false facts are in the upper right corner.

    Args:
        group: Results of ``faithscore``.
        style: Appearance of the figure, or None for the default.

    Raises:
        InputError: If the results belong to another benchmark.
    """
    ending = "faithscore"
    of_settings = [name.removesuffix(ending) for name in group.metric_set.formulas if name.endswith(ending)]
    shown = [prefix for prefix in of_settings if prefix] or of_settings
    if group.metric_set.name != ending or not shown:
        raise InputError("nothing to draw: FaithScore's figure needs results of scapo-eval faithscore")
    style = style or Style()
    with style.applied():
        columns = min(1 if style.narrow else 2, len(shown))
        rows = -(-len(shown) // columns)
        figure, places = panels(style.inches, rows * style.inches / columns * 0.62 + 0.2, rows, columns)
        handles: dict[str, Any] = {}
        for axes, prefix in zip(places, shown, strict=False):
            for s, run in enumerate(group.runs):
                facts, faithful = run.metrics[f"{prefix}avg_facts"], run.metrics[f"{prefix}{ending}"]
                if facts.value is None or faithful.value is None:
                    continue
                color = style.color(s)
                if facts.low is not None and faithful.low is not None:
                    axes.hlines(100 * faithful.value, facts.low, facts.high, color=color, lw=1)
                    axes.vlines(facts.value, 100 * faithful.low, 100 * (faithful.high or 0.0), color=color, lw=1)
                (mark,) = axes.plot(
                    facts.value, 100 * faithful.value, MARKERS[s % len(MARKERS)], color=color, ms=5, label=run.name
                )
                handles.setdefault(run.name, mark)
            title = prefix.strip("_").replace("_", " ")
            axes.set(title=title[:1].upper() + title[1:], xlabel="Avg. Facts", ylabel="FaithScore, %")
        for axes in places[len(shown) :]:
            axes.set_visible(False)
        _legend(figure, list(handles.values()), style, ["Lines: 95 % intervals."])
    return figure


def training(logs: Sequence[TrainingLog], smooth: int | None = None, style: Style | None = None) -> Any:
    """Draws training curves with one panel per quantity. A smoothed line per run is drawn over the logged values.

    Args:
        logs: Logs of training runs.
        smooth: Number of steps in the moving average, rounded up to an odd number, or None for 1/30 of the steps in the
            longest run. Quantities that are logged at fewer than half of the steps are not smoothed.
        style: Appearance of the figure, or None for the default.

    Raises:
        InputError: If ``logs`` is empty, or contains none of the quantities to draw.
    """
    if not logs:
        raise InputError("nothing to draw: specify the folder of a training run, with metrics.jsonl")
    shown_names = [name for name in HEADLINE if any(_has(log, name) for log in logs)]
    if not shown_names:
        raise InputError(f"nothing to draw: the training runs have none of {', '.join(HEADLINE)}")
    style = style or Style()
    longest = max((log.columns["step"][-1] or 0) - (log.columns["step"][0] or 0) for log in logs if log.columns["step"])
    width = (smooth or 2 * int(np.ceil(longest / 60))) // 2 * 2 + 1  # as many steps before a step as after it
    columns = min(2 if style.narrow else 3, len(shown_names))
    rows = -(-len(shown_names) // columns)
    with style.applied():
        figure, places = panels(style.inches, rows * style.inches / columns * 0.72 + 0.2, rows, columns)
        handles: dict[str, Any] = {}
        for axes, name in zip(places, shown_names, strict=False):
            shown = quantity(name)
            for k, log in enumerate(logs):
                if not _has(log, name):
                    continue
                factor = 100 if shown.percent else 1
                values = np.array([np.nan if v is None else factor * v for v in log.columns[name]], dtype=float)
                steps = np.array(log.columns["step"], dtype=float)
                color, line = style.color(k + 1), LINES[k % len(LINES)]
                known = ~np.isnan(values)
                look: dict[str, Any] = {"color": color, "ls": line, "label": log.name}
                if 2 * known.sum() <= max(2, len(values)):  # sparse, or a single value
                    (drawn,) = axes.plot(steps[known], values[known], lw=0.9, marker=".", **look)
                else:
                    if width > 1:
                        axes.plot(steps, values, color=color, lw=0.5, alpha=0.3)
                    (drawn,) = axes.plot(steps, smoothed(steps, values, width - 1), lw=1.3, **look)
                handles.setdefault(log.name, drawn)
            axes.set(title=shown.title)
        for axes in places[: len(shown_names)][-columns:]:
            axes.set(xlabel="step")
        for axes in places[len(shown_names) :]:
            axes.set_axis_off()
        note = f"Thick lines: means over {width} steps; thin lines: logged values." if width > 1 else ""
        _legend(figure, list(handles.values()), style, [note])
    return figure


def smoothed(steps: NDArray[np.float64], values: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """Returns a moving average: the mean of all values within half of ``width`` of each step. Missing values (NaN) are
    ignored.
    """
    known = ~np.isnan(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(addends)]) for addends in (np.where(known, values, 0.0), known))
    low = np.searchsorted(steps, steps - width / 2, side="left")
    high = np.searchsorted(steps, steps + width / 2, side="right")
    n = counts[high] - counts[low]
    mean: NDArray[np.float64] = np.full(len(values), np.nan)
    np.divide(sums[high] - sums[low], n, out=mean, where=known & (n > 0))
    return mean


def _has(log: TrainingLog, name: str) -> bool:
    return any(v is not None for v in log.columns.get(name, []))
