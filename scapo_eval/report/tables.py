"""Layouts of the tables in the paper (Tables 1 to 4, and the tables on general capability, the ablation, Qwen3-VL and
FaithScore).

The module :mod:`scapo_eval.results.render` converts the tables to LaTeX, Markdown or CSV.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import InputError
from ..results.render import Cell, Column, ShownMetric, Table, joined, score_table
from .data import Report, density

_TABLE_1: tuple[ShownMetric, ...] = (
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
_TABLE_2: tuple[ShownMetric, ...] = (
    ("capscore", "hal_rate", Column("Hal. Rate", "MS COCO Label", better=False)),
    ("capscore", "cover_rate", Column("Cover Rate", "MS COCO Label")),
    ("capscore", "hal_rate_dagger", Column("Hal. Rate", "DOPA Label", better=False)),
    ("capscore", "cover_rate_dagger", Column("Cover Rate", "DOPA Label")),
    ("amber", "chair", Column("Hal. Rate", "AMBER", better=False)),
    ("amber", "cover", Column("Cover Rate", "AMBER")),
    ("mmhal", "mmhal_score", Column("Score", "MMHal-Bench", plain=True, digits=2)),
    ("mmhal", "mmhal_hal", Column("Hal. Rate", "MMHal-Bench", better=False)),
)
_TABLE_4: tuple[ShownMetric, ...] = tuple(
    ("amber", metric, Column(heading))
    for metric, heading in (("accuracy", "Acc."), ("precision", "Pre."), ("recall", "Rec."), ("f1", "F1"))
)


_ABLATION: tuple[ShownMetric, ...] = (
    ("mmhal", "mmhal_score", Column("Avg. Score", plain=True, digits=2)),
    ("mmhal", "mmhal_hal", Column("Hal. Rate", better=False)),
)
_BACKBONE: tuple[ShownMetric, ...] = (*_TABLE_1[:4], _TABLE_1[-1])

_GENERAL: tuple[ShownMetric, ...] = (
    ("handed-over", "mme_perception", Column("Percep.", "MME", plain=True)),
    ("handed-over", "mme_cognition", Column("Cognit.", "MME", plain=True)),
    ("handed-over", "mmbench_circular", Column("Circular", "MMBench")),
    ("handed-over", "mmbench_vanilla", Column("Vanilla", "MMBench")),
    ("handed-over", "mmmu_accuracy", Column("Acc.", "MMMU")),
    ("handed-over", "llava_bench_relative", Column("Rel. Score", "LLaVA-Bench")),
    ("handed-over", "mmvet_total", Column("Total", "MM-Vet")),
)
_OBJECTS, _PIECES = "Annotated Objects per Response", "Subsentences per Response"
_TABLE_3: tuple[ShownMetric, ...] = tuple(
    ("density", f"{what}{part}", Column(heading, group, better=None, plain=True, digits=2))
    for what, group in (("objects", _OBJECTS), ("subsentences", _PIECES))
    for part, heading in (("", "Avg."), ("_supported", "Sup."), ("_hallucinated", "Hal."))
)

TABLES = ("scores", "1", "2", "3", "4", "general", "ablation", "backbone", "faithscore")
"""Names of all layouts. ``ablation`` shows SCAPO's components, and ``backbone`` shows Qwen3-VL."""


def table(report: Report, which: str, *, intervals: bool = False, metrics: Sequence[str] | None = None) -> Table:
    """Returns one of the tables in the paper, or a table of all metrics.

    Args:
        report: Report with the scores. A system's rows from several benchmarks are joined by the name of the system.
        which: Name of the table, a key of :data:`TABLES`. ``3`` is the table of annotation density, computed from
            captions or from results of ``scapo-eval density``.
        intervals: True to display confidence intervals.
        metrics: Names of the metrics in the table ``scores``. By default, the table contains all metrics of a single
            benchmark, or the headline metrics of several benchmarks.

    Raises:
        InputError: If the report contains none of the table's metrics, or ``metrics`` contains an unknown metric.
    """
    if which == "3":
        return _density_table(report)
    if which == "scores":
        made = score_table(report.groups, intervals=intervals, metrics=metrics)
        shown: Sequence[ShownMetric] = ()
    elif which == "4":
        shown = _TABLE_4
        made = joined(report.groups, shown, "Configuration", intervals=intervals, differences=True)
    else:
        layouts = {"1": _TABLE_1, "2": _TABLE_2, "general": _GENERAL, "ablation": _ABLATION, "backbone": _BACKBONE}
        shown = layouts[which] if which in layouts else _faithscore_columns(report)
        made = joined(report.groups, shown, "Method", intervals=intervals)
    if not made.rows:
        wanted = ", ".join(dict.fromkeys(metric for metric, _, _ in shown)) or "any metric"
        raise InputError(f"scores for this table not found: it shows those of {wanted}")
    return made


def _density_table(report: Report) -> Table:
    names = [metric for _, metric, _ in _TABLE_3]
    annotations = [run for group in report.groups if group.metric_set.name == "density" for run in group.runs]
    if not report.captions and not annotations:
        reason = "table 3 counts objects and subsentences: use caption files, or results of scapo-eval density"
        raise InputError(reason)
    columns = tuple(column for _, _, column in _TABLE_3)
    rows = [(run.name, tuple(map(Cell, density(run).values()))) for run in report.captions]
    rows += [(run.name, tuple(Cell(run.values[name]) for name in names)) for run in annotations]
    signatures = tuple((run.name, str(run.signature)) for run in annotations)
    return Table("Annotation", columns, tuple(rows), signatures=signatures)


def _faithscore_columns(report: Report) -> tuple[ShownMetric, ...]:
    """Returns the columns for FaithScore and for the mean number of facts, either for each generation setting (as in
    the paper's figure) or overall.
    """
    names = [
        name for group in report.groups if group.metric_set.name == "faithscore" for name in group.metric_set.formulas
    ]
    of_settings = [name for name in names if name not in ("faithscore", "avg_facts")] or names or ["faithscore"]
    return tuple(
        ("faithscore", name, Column(heading, _setting(name, ending), plain=ending == "avg_facts"))
        for name in of_settings
        for ending, heading in (("faithscore", "FaithScore"), ("avg_facts", "Avg. Facts"))
        if name.endswith(ending)
    )


def _setting(name: str, ending: str) -> str:
    setting = name.removesuffix(ending).strip("_").replace("_", " ")
    return setting[:1].upper() + setting[1:]
