"""Tables of results in LaTeX, Markdown, HTML and CSV, for papers and notebooks.

This module defines the marks that all tables use. Stars mark significant differences. Bold type marks the best value
only if its difference from the baseline is significant. If two systems were scored on different images, the notes list
the values of both systems on the shared images.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape as html_escape
from typing import Any, Literal, Protocol

from ..base.errors import InputError
from ..base.text import guarded
from .benchmark import find_benchmark
from .metric import MetricSet
from .names import benchmark_name, metric_name, reader_mark

TableFormat = Literal["latex", "markdown", "csv"]

MANY_METRICS = 8
"""Maximum number of metrics in a default table. Benchmarks with more metrics are represented by their headline
metrics.
"""

ComparisonRow = Mapping[str, Any]
"""An entry of ``comparisons`` from :func:`scapo_eval.results.comparison.compare`."""


class Scored(Protocol):
    """Runs of one benchmark with their comparisons, for example :class:`~scapo_eval.results.results.Results`."""

    @property
    def metric_set(self) -> MetricSet:
        """Metric set of all runs."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the results as ``{"systems": [...], "comparisons": [...]}``."""


# Text of single values and differences, also for the terminal and the report


def number(value: float | None, plain: bool = False, digits: int | None = None, sign: bool = False) -> str:
    """Formats a value: fractions in percent with one decimal, other numbers with two decimals, and None as ``n/a``."""
    if value is None:
        return "n/a"
    text = (
        f"{value if plain else 100 * value:{'+' if sign else ''}.{(2 if plain else 1) if digits is None else digits}f}"
    )
    return text if float(text) or not sign else text.lstrip("-+")


def stars(row: ComparisonRow) -> str:
    """Returns ``**`` for a corrected p-value below 0.01, ``*`` for one below 0.05, and an empty string otherwise."""
    p = row.get("p_holm", row["p_value"])
    return "" if p is None or p >= 0.05 else "*" if p >= 0.01 else "**"


def is_better(row: ComparisonRow, higher: bool | None) -> bool | None:
    """Returns True if the system is significantly better than the baseline, False if it is significantly worse, and
    otherwise None.
    """
    if higher is None or not stars(row) or row["difference"] is None:
        return None
    return bool((row["difference"] > 0) == higher)


def shared_images(row: ComparisonRow, sizes: Mapping[str, int]) -> str:
    """Returns a text such as ``412 shared images`` or ``950 shared questions``, or an empty text if two systems were
    scored on the same images and questions.
    """
    if "n_questions" in row:
        return f"{row['n_questions']:,} shared question{'' if row['n_questions'] == 1 else 's'}"
    shared = row["n_images"]
    if shared == sizes[row["system"]] == sizes[row["baseline"]]:
        return ""
    return f"{shared:,} shared image{'' if shared == 1 else 's'}"


def values_of(row: ComparisonRow, show: Callable[[float | None], str]) -> str:
    """Returns the values of two systems on their shared images, such as ``29.1 -> 26.0``, or an empty text if there are
    too few shared images for a comparison.
    """
    if row["system_value"] is None and row["baseline_value"] is None:
        return ""
    return f"{show(row['baseline_value'])} -> {show(row['system_value'])}"


def on_shared_images(row: ComparisonRow, sizes: Mapping[str, int], show: Callable[[float | None], str]) -> str:
    """Describes the difference between two systems that were scored on different images. Returns an empty text if the
    systems were scored on the same images.

    Args:
        row: Entry of ``comparisons`` for the two systems.
        sizes: Mapping from each system to the number of images on which it was scored.
        show: Function that formats a value.

    Returns:
        A text such as ``29.1 -> 26.0 on 412 shared images``, or ``6 shared images`` if there are too few shared images
        for a comparison.
    """
    images, values = shared_images(row, sizes), values_of(row, show)
    return f"{values} on {images}" if images and values else images


def test_of(comparisons: Iterable[ComparisonRow]) -> str:
    """Returns the names of the tests that computed the p-values, or an empty string if nothing was tested."""
    tests = dict.fromkeys(row["test"] for row in comparisons if row["test"])
    names = {"mcnemar": "McNemar's exact test", "paired_bootstrap": "paired bootstrap test"}
    return ", ".join(names.get(test, f"{test.replace('_', ' ')} test") for test in tests)


# Tables


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        heading: Heading of the column.
        group: Heading above several adjacent columns, or an empty string.
        better: True if higher values are better, False if lower values are better, or None if neither direction is
            better.
        plain: True if the values are not fractions and are therefore not displayed as percentages.
        digits: Number of digits after the decimal point.
    """

    heading: str
    group: str = ""
    better: bool | None = True
    plain: bool = False
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        value: Value of the metric, or None if there is none.
        low, high: Bounds of the interval if the table displays it, otherwise None.
        stars: Stars that mark a significant difference from the baseline.
        best: True if the value is the best in its column and significantly better.
        difference: Difference from the baseline if the table displays it, otherwise None.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    stars: str = ""
    best: bool = False
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Content of a table that can be rendered in any output format.

    Attributes:
        corner: Heading of the column with system names.
        columns: Columns of the table, in order.
        rows: System name and cells of each row, in order.
        notes: Notes that a reader needs to interpret the table.
        signatures: Pairs of a text that names a system and a benchmark, and the signature of the scores.
    """

    corner: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()
    signatures: tuple[tuple[str, str], ...] = ()


ShownMetric = tuple[str, str, Column]
"""Name of the metric set, metric (or ``n_images``), and column for the metric."""

N_IMAGES = "n_images"


def latex(
    results: Scored | Sequence[Scored],
    *,
    intervals: bool = False,
    metrics: Sequence[str] | None = None,
    footnotes: Sequence[str] = (),
) -> str:
    r"""Returns a LaTeX table that is at most as wide as ``\textwidth``. The table requires the LaTeX packages booktabs
    and graphicx.

    Args:
        results: Results of one benchmark, or of several benchmarks, which are joined by system name.
        intervals: True to display confidence intervals.
        metrics: Names of the metrics to include. By default, a table for one benchmark contains all metrics (or the
            headline metrics if there are more than MANY_METRICS), and a table for several benchmarks contains their
            headline metrics.
        footnotes: Additional notes below the table.

    Raises:
        InputError: If a metric is unknown.
    """
    return render(score_table(results, intervals=intervals, metrics=metrics, footnotes=footnotes), "latex")


def markdown(
    results: Scored | Sequence[Scored],
    *,
    intervals: bool = False,
    metrics: Sequence[str] | None = None,
    footnotes: Sequence[str] = (),
) -> str:
    """Returns a Markdown table; see :func:`latex`."""
    return render(score_table(results, intervals=intervals, metrics=metrics, footnotes=footnotes), "markdown")


def html(results: Scored) -> str:
    """Returns an HTML table with intervals, followed by its notes and the signatures, for display in notebooks."""
    table = score_table(results, intervals=True)
    heads = [f"{column.group} {column.heading}".strip() + _arrow(column, "↑", "↓") for column in table.columns]
    lines = [_html_row("th", map(html_escape, [table.corner, *heads]))]
    for name, cells in table.rows:
        texts = [_html_cell(cell, column) for cell, column in zip(cells, table.columns, strict=True)]
        lines.append(_html_row("td", [html_escape(name), *texts]))
    notes = [f"{system['name']}: {note}" for system in results.to_dict()["systems"] for note in system.get("notes", ())]
    below = [html_escape(note) for note in (*table.notes, *notes)]
    below += [f"{html_escape(name)}: <code>{html_escape(signature)}</code>" for name, signature in table.signatures]
    return f"<table>{''.join(lines)}</table><p>{'<br>'.join(below)}</p>"


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _html_cell(cell: Cell, column: Column) -> str:
    text = _shown(cell.value, column) or "--"
    text = (f"<b>{text}</b>" if cell.best else text) + cell.stars
    return text if cell.low is None else f"{text} [{_shown(cell.low, column)}, {_shown(cell.high, column)}]"


def score_table(
    results: Scored | Sequence[Scored],
    *,
    intervals: bool = False,
    metrics: Sequence[str] | None = None,
    footnotes: Sequence[str] = (),
) -> Table:
    """Returns the table that :func:`latex` and :func:`markdown` render. The texts in ``footnotes`` are appended to the
    notes of the table.
    """
    groups = [*results] if isinstance(results, Sequence) else [results]
    shown: list[ShownMetric] = []
    for group, names in zip(groups, chosen_metrics([g.metric_set for g in groups], metrics), strict=True):
        metric_set = group.metric_set
        heading = benchmark_name(metric_set.name) if len(groups) > 1 else ""
        signatures = [system["signature"] for system in group.to_dict()["systems"]] if names else []
        for name in names:
            plain = name in metric_set.plain_numbers
            better = metric_set.higher_is_better.get(name)
            title = metric_name(name) + reader_mark(name, signatures)
            shown.append((metric_set.name, name, Column(title, heading, better, plain, 2 if plain else 1)))
        if names and metric_set.counted:
            shown.append((metric_set.name, N_IMAGES, Column("Images", heading, None, True, 0)))
    table = joined(groups, shown, "System", intervals=intervals)
    return replace(table, notes=(*table.notes, *footnotes))


def headline(metric_set: MetricSet) -> list[str]:
    """Returns the main metrics of a benchmark, or all of its metrics if its record lists no main metrics."""
    record = find_benchmark(metric_set.name)
    known = record.headline if record else ()
    return [name for name in known if name in metric_set.formulas] or list(metric_set.formulas)


def chosen_metrics(sets: Sequence[MetricSet], wanted: Sequence[str] | None) -> list[list[str]]:
    """Returns the metrics that a table contains for each metric set; see :func:`latex`.

    Raises:
        InputError: If a requested metric belongs to none of the sets.
    """
    if wanted is None:
        few = len(sets) == 1 and len(sets[0].formulas) <= MANY_METRICS
        return [list(metric_set.formulas) if few else headline(metric_set) for metric_set in sets]
    known = list(dict.fromkeys(name for metric_set in sets for name in metric_set.formulas))
    for name in wanted:
        if name not in known:
            raise InputError(f"unknown metric '{name}'; known: {', '.join(known)}")
    return [[name for name in dict.fromkeys(wanted) if name in metric_set.formulas] for metric_set in sets]


def joined(
    groups: Sequence[Scored],
    shown: Sequence[ShownMetric],
    corner: str,
    *,
    intervals: bool = False,
    differences: bool = False,
) -> Table:
    """Returns one table for several benchmarks, with one row per system. A cell is empty if the system has no score on
    the benchmark.

    Args:
        groups: Results of each benchmark.
        shown: Columns of the table.
        corner: Heading of the column with system names.
        intervals: True to display confidence intervals.
        differences: True to display differences from the baseline.
    """
    documents = {group.metric_set.name: group.to_dict() for group in groups}
    names = dict.fromkeys(system["name"] for document in documents.values() for system in document["systems"])
    better = {group.metric_set.name: group.metric_set.higher_is_better for group in groups}
    columns: list[dict[str, Cell]] = []
    for benchmark_of, metric, _ in shown:
        document = documents.get(benchmark_of, {"systems": [], "comparisons": []})
        higher = better.get(benchmark_of, {}).get(metric)
        columns.append(_cells(document, metric, higher, intervals=intervals, differences=differences))
    rows = [(name, tuple(column.get(name, Cell(None)) for column in columns)) for name in names]
    of_metrics = [metric != N_IMAGES for _, metric, _ in shown]
    return Table(
        corner=corner,
        columns=tuple(column for _, _, column in shown),
        rows=tuple(
            (name, cells)
            for name, cells in rows
            if any(cell.value is not None for cell, of in zip(cells, of_metrics, strict=True) if of)
        ),
        notes=tuple(_notes(documents, shown)),
        signatures=tuple(
            (f"{system['name']} ({benchmark_name(key)})" if len(documents) > 1 else system["name"], system["signature"])
            for key, document in documents.items()
            for system in document["systems"]
        ),
    )


def _cells(
    document: Mapping[str, Any], metric: str, higher: bool | None, *, intervals: bool, differences: bool
) -> dict[str, Cell]:
    """Returns a mapping from each system to its cell in one column."""
    if metric == N_IMAGES:
        return {system["name"]: Cell(system["n_images"]) for system in document["systems"]}
    rows = {row["system"]: row for row in document["comparisons"] if row["metric"] == metric}
    best = _best(document["systems"], rows, metric, higher)
    cells = {}
    for system in document["systems"]:
        name, value = system["name"], system["metrics"].get(metric)
        if value is None:
            continue
        row = rows.get(name)
        cells[name] = Cell(
            value["value"],
            value["ci_low"] if intervals else None,
            value["ci_high"] if intervals else None,
            stars(row) if row else "",
            name == best,
            row["difference"] if row and differences else None,
        )
    return cells


def _best(
    systems: Sequence[Mapping[str, Any]], rows: Mapping[str, ComparisonRow], metric: str, higher: bool | None
) -> str:
    """Returns the system with the best value if this value is significantly better than the baseline's, and an empty
    string otherwise.

    If the baseline has the best value, it is returned only if it is significantly better than every other system.
    """
    values = {
        system["name"]: system["metrics"][metric]["value"]
        for system in systems
        if system["metrics"].get(metric, {}).get("value") is not None
    }
    if higher is None or len(values) < 2:
        return ""
    best: str = (max if higher else min)(values, key=lambda name: values[name])
    if best in rows:
        return best if is_better(rows[best], higher) else ""
    others = [name for name in values if name != best]
    return best if all(name in rows and is_better(rows[name], higher) is False for name in others) else ""


def _notes(documents: Mapping[str, Mapping[str, Any]], shown: Sequence[ShownMetric]) -> Iterator[str]:
    used = {key: document for key, document in documents.items() if any(key == name for name, _, _ in shown)}
    rows = [row for document in used.values() for row in document["comparisons"]]
    if tests := test_of(rows):
        baselines = " and ".join(dict.fromkeys(row["baseline"] for row in rows))
        yield (
            f"* p < 0.05, ** p < 0.01 against {baselines} ({tests} by image, Holm-corrected). A bold value is the best "
            "in its column and significantly better than the baseline. A bold baseline is significantly better than "
            "all other systems."
        )
    for key, document in used.items():
        sizes = {system["name"]: system["n_images"] for system in document["systems"]}
        for system in sizes:
            yield from _system_notes(key, system, document["comparisons"], sizes, shown)


def _system_notes(
    key: str, system: str, comparisons: Sequence[ComparisonRow], sizes: Mapping[str, int], shown: Sequence[ShownMetric]
) -> Iterator[str]:
    columns = {metric: column for name, metric, column in shown if name == key}
    rows = [row for row in comparisons if row["system"] == system and row["metric"] in columns]
    if not rows:
        return
    baseline = rows[0]["baseline"]
    changes = defaultdict[str, list[str]](list)  # number of shared images -> values on these images
    for row in rows:
        column = columns[row["metric"]]
        values = values_of(row, lambda value, c=column: number(value, c.plain, c.digits))  # type: ignore[misc]
        if images := shared_images(row, sizes):
            changes[images] += [f"{column.heading} {values}"] if values else []
    for images, changed in changes.items():
        if changed:
            listed = "; ".join(changed)
            yield (
                f"{baseline} and {system} were scored on different images. On the {images}, the metrics change from "
                f"{baseline} to {system} as follows: {listed}."
            )
        else:
            yield f"{baseline} and {system} were scored on different images and have only {images}, too few to compare."
    if differing := rows[0].get("differing"):
        yield f"{system} and {rows[0]['baseline']} were scored with different settings ({', '.join(differing)})."


def render(table: Table, form: TableFormat) -> str:
    """Formats a table as text in the given output format."""
    return {"latex": _latex, "markdown": _markdown, "csv": _csv}[form](table)


def _shown(value: float | None, column: Column, sign: bool = False) -> str:
    return "" if value is None else number(value, column.plain, column.digits, sign)


def _arrow(column: Column, up: str, down: str) -> str:
    return "" if column.better is None else f" {up if column.better else down}"


def _groups(table: Table) -> list[tuple[str, int]]:
    """Returns the heading and the number of columns of each group of adjacent columns."""
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
    "<": r"\(<\)",
    ">": r"\(>\)",
    **dict(
        zip("«»„“”‚‘’", (r"\(\ll\)", r"\(\gg\)", ",,", "``", "''", ",", "`", "'"), strict=True)
    ),  # OT1 encoding lacks guillemets
}


def _escaped(text: str) -> str:
    plain = " ".join(text.split())
    for index in "is":
        plain = plain.replace(f"CHAIR_{index}", f"CHAIR\0{index}")
    escaped = "".join(_LATEX.get(c, c) for c in plain.replace("->", "→"))
    return escaped.replace("→", r"\(\to\)").replace("\0i", r"\(_i\)").replace("\0s", r"\(_s\)")


def _comment(text: str) -> str:
    return " ".join(text.split())


def _latex(table: Table) -> str:
    width = "\\noindent\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%"
    packages = "booktabs,graphicx" + (",xcolor" if _has_differences(table) else "")
    lines = [
        f"% needs \\usepackage{{{packages}}}",
        *(f"% {_comment(name)}: {_comment(signature)}" for name, signature in table.signatures),
        width,
        f"\\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        "\\toprule",
    ]
    groups = _groups(table)
    if any(name for name, _ in groups):
        lines.append("".join(f"& \\multicolumn{{{n}}}{{c}}{{{_escaped(name)}}} " for name, n in groups) + "\\\\")
        rules, at = [], 2
        for name, n in groups:
            if name:
                rules.append(f"\\cmidrule(lr){{{at}-{at + n - 1}}}")
            at += n
        lines.append("".join(rules))
    heads = [_escaped(column.heading) + _arrow(column, "$\\uparrow$", "$\\downarrow$") for column in table.columns]
    lines += [" & ".join([table.corner, *heads]) + " \\\\", "\\midrule"]
    for name, cells in table.rows:
        texts = [_latex_cell(cell, column) for cell, column in zip(cells, table.columns, strict=True)]
        lines.append(" & ".join([_escaped(name), *texts]) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}}"]
    if table.notes:
        notes = " ".join(map(_escaped, table.notes))
        lines.append(f"\\par\\smallskip{{\\footnotesize {notes}\\par}}")
    return "\n".join(lines) + "\n"


def _has_differences(table: Table) -> bool:
    return any(cell.difference is not None for _, cells in table.rows for cell in cells)


def _latex_cell(cell: Cell, column: Column) -> str:
    if cell.value is None:
        return "--"
    text = _shown(cell.value, column)
    text = f"\\textbf{{{text}}}" if cell.best else text
    if cell.stars:
        text += f"\\textsuperscript{{{cell.stars}}}"
    if cell.low is not None:
        text += f" {{\\scriptsize[{_shown(cell.low, column)}, {_shown(cell.high, column)}]}}"
    if cell.difference is not None:
        text += f"{{\\scriptsize\\,\\textcolor{{red}}{{({_shown(cell.difference, column, sign=True)})}}}}"
    return text


def _markdown(table: Table) -> str:
    def escape(text: str) -> str:
        text = " ".join(text.split()).replace("\\", "\\\\")
        return "".join(f"\\{c}" if c in "|*_`[]<>" else c for c in text)

    heads = [f"{column.group} {column.heading}".strip() + _arrow(column, "↑", "↓") for column in table.columns]
    lines = [
        "| " + " | ".join([table.corner, *map(escape, heads)]) + " |",
        "| --- |" + " ---: |" * len(table.columns),
    ]
    for name, cells in table.rows:
        texts = []
        for cell, column in zip(cells, table.columns, strict=True):
            text = _shown(cell.value, column) or "--"
            text = (f"**{text}**" if cell.best else text) + escape(cell.stars)
            if cell.low is not None:
                text += f" \\[{_shown(cell.low, column)}, {_shown(cell.high, column)}\\]"
            if cell.difference is not None:
                text += f" ({_shown(cell.difference, column, sign=True)})"
            texts.append(text)
        lines.append("| " + " | ".join([escape(name), *texts]) + " |")
    for note in table.notes:
        lines += ["", escape(note.replace("->", "→"))]
    comments = [f"{_comment(name)}: {_comment(signature)}" for name, signature in table.signatures]
    if comments:
        lines += ["", *(f"<!-- {text.replace('--', '- -')} -->" for text in comments)]
    return "\n".join(lines) + "\n"


def _csv(table: Table) -> str:
    """Formats the table as CSV, with values as unrounded fractions. Cells for missing values are empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.corner, *(f"{column.group} {column.heading}".strip() for column in table.columns)])
    for name, cells in table.rows:
        writer.writerow([guarded(name), *("" if cell.value is None else repr(cell.value) for cell in cells)])
    return stream.getvalue()
