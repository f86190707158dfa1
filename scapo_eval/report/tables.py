"""Tables for papers: the layout of the paper's Tables 1 to 4, or every metric; LaTeX, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import InputError
from .data import Report, density

Format = Literal["latex", "markdown", "csv"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        heading: heading of the column.
        group: heading over several neighboring columns, empty for none.
        better: whether higher is better; None where neither direction is.
        plain: whether the values are not fractions and are shown as they are, not in percent.
        digits: number of digits after the decimal point.
    """

    heading: str
    group: str = ""
    better: bool | None = True
    plain: bool = False
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One system's values (None where it has none), and the differences shown beside them."""

    name: str
    values: tuple[float | None, ...]
    differences: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """The content of a table, before it is formatted.

    Attributes:
        corner: heading of the column with the systems' names.
        columns: the columns, in order.
        rows: the rows, in order.
        second: whether the second best value is marked, too (paper, Table 1).
    """

    corner: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    second: bool = False


_ShownMetric = tuple[str, str, Column]  # name of the metric set, metric, column that shows it

_TABLE_1: tuple[_ShownMetric, ...] = (
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
_TABLE_2: tuple[_ShownMetric, ...] = (
    ("capscore", "hal_rate", Column("Hal. Rate", "MS COCO Label", better=False)),
    ("capscore", "cover_rate", Column("Cover Rate", "MS COCO Label")),
    ("capscore", "hal_rate_dagger", Column("Hal. Rate", "DOPA Label", better=False)),
    ("capscore", "cover_rate_dagger", Column("Cover Rate", "DOPA Label")),
    ("amber", "chair", Column("Hal. Rate", "AMBER", better=False)),
    ("amber", "cover", Column("Cover Rate", "AMBER")),
    ("mmhal", "mmhal_score", Column("Score", "MMHal-Bench", plain=True, digits=2)),
    ("mmhal", "mmhal_hal", Column("Hal. Rate", "MMHal-Bench", better=False)),
)
_TABLE_4: tuple[_ShownMetric, ...] = tuple(
    ("amber", metric, Column(heading))
    for metric, heading in (("accuracy", "Acc."), ("precision", "Pre."), ("recall", "Rec."), ("f1", "F1"))
)


def table(report: Report, which: str) -> Table:
    """One of the paper's tables, or all metrics.

    Args:
        report: the scores; systems of several benchmarks are joined by name.
        which: ``1``, ``2``, ``3`` (density, needs captions), ``4`` or ``scores``.

    Raises:
        InputError: the report has none of the metrics that the table shows.
    """
    if which == "3":
        return _density_table(report)
    if which == "scores":
        shown: Sequence[_ShownMetric] = [
            (
                group.metric_set.name,
                name,
                Column(
                    name,
                    group.metric_set.name if len(report.groups) > 1 else "",
                    group.metric_set.higher_is_better.get(name),
                    plain=name in group.metric_set.plain_numbers,
                    digits=2 if name in group.metric_set.plain_numbers else 1,
                ),
            )
            for group in report.groups
            for name in group.metric_set.formulas
        ]
        return _joined(report, "System", shown)
    if which == "4":
        return _joined(report, "Configuration", _TABLE_4, differences=True)
    return _joined(report, "Method", {"1": _TABLE_1, "2": _TABLE_2}[which], second=which == "1")


def _joined(
    report: Report, corner: str, shown: Sequence[_ShownMetric], *, second: bool = False, differences: bool = False
) -> Table:
    found: dict[str, dict[tuple[str, str], float | None]] = {}
    for group in report.groups:
        for system in group.to_dict()["systems"]:
            own = found.setdefault(system["name"], {})
            for name, measured in system["metrics"].items():
                own[group.metric_set.name, name] = measured["value"]
    values = {name: tuple(own.get((m, f)) for m, f, _ in shown) for name, own in found.items()}
    values = {name: row for name, row in values.items() if any(v is not None for v in row)}
    if not values:
        wanted = ", ".join(dict.fromkeys(metric for metric, _, _ in shown)) or "any metric"
        raise InputError(f"scores for this table not found: it shows those of {wanted}")
    first = next(iter(values.values()))
    rows = []
    for k, (name, row) in enumerate(values.items()):
        change = tuple(None if a is None or b is None else a - b for a, b in zip(row, first, strict=True))
        rows.append(Row(name, row, change if differences and k else ()))
    return Table(corner, tuple(column for _, _, column in shown), tuple(rows), second)


def _density_table(report: Report) -> Table:
    if not report.captions:
        raise InputError("table 3 counts objects and subsentences of captions: give captions files")
    objects, pieces = "Annotated Objects per Response", "Subsentences per Response"
    columns = tuple(
        Column(heading, group, better=None, plain=True, digits=2)
        for group in (objects, pieces)
        for heading in ("Avg.", "Sup.", "Hal.")
    )
    return Table("Annotation", columns, tuple(Row(run.name, tuple(density(run).values())) for run in report.captions))


def render(table: Table, form: Format) -> str:
    """The table as text."""
    return {"latex": _latex, "markdown": _markdown, "csv": _csv}[form](table)


def _shown(value: float | None, column: Column) -> str:
    return "" if value is None else f"{value if column.plain else 100 * value:.{column.digits}f}"


def _ranks(table: Table) -> list[tuple[str | None, str | None]]:
    """Best and second best value of each column, as shown (equal digits count as equal)."""
    ranks: list[tuple[str | None, str | None]] = []
    for k, column in enumerate(table.columns):
        shown = {_shown(row.values[k], column) for row in table.rows if row.values[k] is not None}
        ordered = sorted(shown, key=float, reverse=bool(column.better))
        if column.better is None or len(table.rows) < 2 or len(ordered) < 2:
            ranks.append((None, None))
        else:
            ranks.append((ordered[0], ordered[1] if table.second and len(ordered) > 2 else None))
    return ranks


def _cells(
    table: Table, row: Row, bold: Callable[[str], str], underline: Callable[[str], str], change: Callable[[str], str]
) -> list[str]:
    cells = []
    for k, (column, (best, second)) in enumerate(zip(table.columns, _ranks(table), strict=True)):
        text = _shown(row.values[k], column)
        cell = bold(text) if text and text == best else underline(text) if text and text == second else text or "--"
        if row.differences and (difference := row.differences[k]) is not None:
            cell += change(f"{difference if column.plain else 100 * difference:+.{column.digits}f}")
        cells.append(cell)
    return cells


def _arrow(column: Column, up: str, down: str) -> str:
    return "" if column.better is None else f" {up if column.better else down}"


def _groups(table: Table) -> list[tuple[str, int]]:
    """Groups of neighboring columns under one heading: the heading and the number of columns."""
    groups: list[tuple[str, int]] = []
    for column in table.columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "†": r"\(^{\dagger}\)",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _latex(table: Table) -> str:
    def escape(text: str) -> str:
        return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))

    lines = [
        "% needs \\usepackage{booktabs,xcolor}",
        f"\\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        "\\toprule",
    ]
    groups = _groups(table)
    if any(name for name, _ in groups):
        lines.append("".join(f"& \\multicolumn{{{n}}}{{c}}{{{escape(name)}}} " for name, n in groups) + "\\\\")
        rules, at = [], 2
        for name, n in groups:
            if name:
                rules.append(f"\\cmidrule(lr){{{at}-{at + n - 1}}}")
            at += n
        lines.append("".join(rules))
    heads = [escape(column.heading) + _arrow(column, "$\\uparrow$", "$\\downarrow$") for column in table.columns]
    lines += [" & ".join([table.corner, *heads]) + " \\\\", "\\midrule"]
    for row in table.rows:
        cells = _cells(
            table,
            row,
            lambda text: f"\\textbf{{{text}}}",
            lambda text: f"\\underline{{{text}}}",
            lambda text: f"{{\\scriptsize\\,\\textcolor{{red}}{{({text})}}}}",
        )
        lines.append(" & ".join([escape(row.name), *cells]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _markdown(table: Table) -> str:
    def escape(text: str) -> str:
        text = " ".join(text.split()).replace("\\", "\\\\")
        return "".join(f"\\{c}" if c in "|*_`[]<>" else c for c in text)

    heads = [f"{column.group} {column.heading}".strip() + _arrow(column, "↑", "↓") for column in table.columns]
    lines = [
        "| " + " | ".join([table.corner, *map(escape, heads)]) + " |",
        "| --- |" + " ---: |" * len(table.columns),
    ]
    for row in table.rows:
        cells = _cells(table, row, lambda t: f"**{t}**", lambda t: f"<u>{t}</u>", lambda t: f" ({t})")
        lines.append("| " + " | ".join([escape(row.name), *cells]) + " |")
    return "\n".join(lines) + "\n"


def _csv(table: Table) -> str:
    """Values as unrounded fractions; a missing value is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.corner, *(f"{column.group} {column.heading}".strip() for column in table.columns)])
    for row in table.rows:
        writer.writerow([row.name, *("" if value is None else repr(value) for value in row.values)])
    return stream.getvalue()
