"""The layouts of the paper's Tables 1 to 4; :mod:`scapo_eval.render` makes LaTeX, Markdown or CSV of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..render import Cell, Column, Shown, Table, joined, score_table
from .data import Report, density

_TABLE_1: tuple[Shown, ...] = (
    ("amber", "cap_score", Column("Cap. Score", "AMBER")),
    ("amber", "accuracy", Column("Dis. Acc.", "AMBER")),
    ("capscore", "cap_score", Column("Cap. Score", "MS COCO")),
    ("capscore", "cap_score_dagger", Column("Cap. Score†", "MS COCO")),
    ("phd", "phd_base", Column("PhD-base", "PhD")),
    ("phd", "phd_sec", Column("PhD-sec", "PhD")),
    ("phd", "phd_icc", Column("PhD-icc", "PhD")),
    ("phd", "phd_ccs", Column("PhD-ccs", "PhD")),
    ("phd", "phd_all", Column("PhD-all", "PhD")),
)
_TABLE_2: tuple[Shown, ...] = (
    ("capscore", "hal_rate", Column("Hal. Rate", "MS COCO Label", better=False)),
    ("capscore", "cover_rate", Column("Cover Rate", "MS COCO Label")),
    ("capscore", "hal_rate_dagger", Column("Hal. Rate", "DOPA Label", better=False)),
    ("capscore", "cover_rate_dagger", Column("Cover Rate", "DOPA Label")),
    ("amber", "chair", Column("Hal. Rate", "AMBER", better=False)),
    ("amber", "cover", Column("Cover Rate", "AMBER")),
    ("mmhal", "mmhal_score", Column("Score", "MMHal-Bench", plain=True, digits=2)),
    ("mmhal", "mmhal_hal", Column("Hal. Rate", "MMHal-Bench", better=False)),
)
_TABLE_4: tuple[Shown, ...] = tuple(
    ("amber", metric, Column(heading))
    for metric, heading in (("accuracy", "Acc."), ("precision", "Pre."), ("recall", "Rec."), ("f1", "F1"))
)


def table(report: Report, which: str, *, intervals: bool = False, metrics: Sequence[str] | None = None) -> Table:
    """One of the paper's tables, or all metrics.

    Args:
        report: the scores; systems of several benchmarks are joined by name.
        which: ``1``, ``2``, ``3`` (density, needs captions), ``4`` or ``scores``.
        intervals: whether intervals stand beside the values.
        metrics: which metrics ``scores`` shows; None: all of one benchmark, the headline metrics of several.

    Raises:
        InputError: the report has none of the metrics that the table shows, or ``metrics`` names an unknown one.
    """
    if which == "3":
        return _density_table(report)
    if which == "scores":
        made = score_table(report.groups, intervals=intervals, metrics=metrics)
        shown: Sequence[Shown] = ()
    elif which == "4":
        shown = _TABLE_4
        made = joined(report.groups, shown, "Configuration", intervals=intervals, differences=True)
    else:
        shown = {"1": _TABLE_1, "2": _TABLE_2}[which]
        made = joined(report.groups, shown, "Method", intervals=intervals)
    if not made.rows:
        wanted = ", ".join(dict.fromkeys(metric for metric, _, _ in shown)) or "any metric"
        raise InputError(f"scores for this table not found: it shows those of {wanted}")
    return made


def _density_table(report: Report) -> Table:
    if not report.captions:
        raise InputError("table 3 counts objects and subsentences of captions: give captions files")
    objects, pieces = "Annotated Objects per Response", "Subsentences per Response"
    columns = tuple(
        Column(heading, group, better=None, plain=True, digits=2)
        for group in (objects, pieces)
        for heading in ("Avg.", "Sup.", "Hal.")
    )
    rows = tuple((run.name, tuple(map(Cell, density(run).values()))) for run in report.captions)
    return Table("Annotation", columns, rows)
