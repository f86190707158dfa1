"""Results as a data frame, and as one table in Markdown, LaTeX or HTML: metrics as rows, systems as columns."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InputError, MissingExtra
from .results import Results

FRAME_COLUMNS = (
    "system",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "difference",
    "p_value",
    "p_holm",
    "n_images",
    "signature",
)


def tidy(results: Results) -> Iterator[dict[str, Any]]:
    """One record per system and metric, with the keys FRAME_COLUMNS; None where there is no value or no test."""
    comparisons = {(row["system"], row["metric"]): row for row in results.comparisons}
    for run in results.runs:
        for name, metric in run.metrics.items():
            row = comparisons.get((run.name, name), {})
            yield {
                "system": run.name,
                "metric": name,
                "value": metric.value,
                "ci_low": metric.low,
                "ci_high": metric.high,
                "difference": row.get("difference"),
                "p_value": row.get("p_value"),
                "p_holm": row.get("p_holm"),
                "n_images": run.n_images,
                "signature": str(run.signature),
            }


def to_frame(results: Results) -> Any:
    """A pandas DataFrame of :func:`tidy`; the numbers are floats, NaN where there is none.

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "a data frame") from None
    numbers = FRAME_COLUMNS[2:8]
    frame = pandas.DataFrame(list(tidy(results)), columns=list(FRAME_COLUMNS))
    return frame.astype(dict.fromkeys(numbers, float))


@dataclass(frozen=True, slots=True)
class Cell:
    """One system's value of one metric, as shown.

    Attributes:
        value: percent with one decimal, a plain number with two, ``n/a`` where there is none.
        interval: its interval, empty where there is none.
        difference: to the first system with its marks, empty for that system and where there is none.
        better: whether the difference is an improvement that the test supports.
    """

    value: str
    interval: str
    difference: str
    better: bool


@dataclass(frozen=True, slots=True)
class Table:
    """What the three formats write.

    Attributes:
        systems: names, in order.
        rows: metric with its arrow -> one cell per system.
        legend: what the marks mean, and where differences come from.
        signatures: of the systems, each once.
    """

    systems: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    legend: str
    signatures: tuple[str, ...]


def table(results: Results, metrics: Sequence[str] | None = None) -> Table:
    """The content of a table.

    Args:
        results: the runs and their comparisons.
        metrics: those to show, in order; None shows all that have a value.

    Raises:
        InputError: an unknown metric.
    """
    metric_set = results.metric_set
    unknown = [name for name in metrics or () if name not in metric_set.formulas]
    if unknown:
        raise InputError(f"unknown metric '{unknown[0]}'; known: {', '.join(metric_set.formulas)}")
    records = {(row["system"], row["metric"]): row for row in tidy(results)}
    systems = tuple(run.name for run in results.runs)
    valued = [n for n in metric_set.formulas if any(records[s, n]["value"] is not None for s in systems)]
    rows = {}
    for name in metrics or valued or metric_set.formulas:
        better, plain = metric_set.higher_is_better.get(name), name in metric_set.plain_numbers
        arrow = "" if better is None else " ↑" if better else " ↓"
        rows[name + arrow] = tuple(_cell(records[system, name], better, plain) for system in systems)
    return Table(systems, rows, _legend(results), tuple(dict.fromkeys(str(run.signature) for run in results.runs)))


def _cell(record: Mapping[str, Any], higher: bool | None, plain: bool) -> Cell:
    value, low, high, difference, p = (record[k] for k in ("value", "ci_low", "ci_high", "difference", "p_holm"))
    marks = "" if p is None or p >= 0.05 else "*" if p >= 0.01 else "**"
    return Cell(
        value=_number(value, plain),
        interval="" if low is None else f"[{_number(low, plain)}, {_number(high, plain)}]",
        difference="" if difference is None else f"{'+' if difference >= 0 else ''}{_number(difference, plain)}{marks}",
        better=bool(marks) and higher is not None and (difference > 0) == higher,
    )


def _number(value: float | None, plain: bool) -> str:
    if value is None:
        return "n/a"
    return f"{value:.2f}" if plain else f"{100 * value:.1f}"


def _legend(results: Results) -> str:
    text = "Fractions in percent" + (", with 95 % intervals" if results.runs[0].resampling.resamples else "")
    if not results.comparisons:
        return f"{text}."
    shared = sorted({row["n_images"] for row in results.comparisons})
    images = "-".join(f"{n:,}" for n in dict.fromkeys((shared[0], shared[-1])))
    tests = ", ".join(sorted({row["test"].replace("_", " ") for row in results.comparisons if row["test"]}))
    holm = ", Holm's correction over the systems" if len(results.runs) > 2 else ""
    marks = f"; * p < 0.05, ** p < 0.01 ({tests}{holm})" if tests else ""
    return f"{text}. Differences to {results.runs[0].name} on {images} shared images{marks}."


def to_markdown(results: Results, metrics: Sequence[str] | None = None) -> str:
    """The table as Markdown; improvements that the test supports are bold."""
    found = table(results, metrics)
    lines = _lines(found, _markdown_text, lambda text: f"**{text}**")
    rule = ["---", *["---:"] * len(found.systems)]
    rows = ["| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]]]
    signatures = [f"`{signature.replace('`', '')}`" for signature in found.signatures]
    return "\n".join([*rows, "", _markdown_text(found.legend), "", *signatures]) + "\n"


def to_latex(results: Results, metrics: Sequence[str] | None = None) -> str:
    """The table as LaTeX (needs ``booktabs``), the signatures as comments; supported improvements are bold."""
    found = table(results, metrics)
    head, *body = (" & ".join(line) + " \\\\" for line in _lines(found, _latex_text, lambda t: f"\\textbf{{{t}}}"))
    return "\n".join(
        [
            *(f"% {signature}" for signature in found.signatures),
            f"\\begin{{tabular}}{{l{'r' * len(found.systems)}}}",
            "\\toprule",
            head,
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            f"% {found.legend}",
            "",
        ]
    )


def to_html(results: Results) -> str:
    """The table as HTML, for notebooks, with the runs' notes and signatures below."""
    found = table(results)
    head, *body = _lines(found, html.escape, lambda text: f"<b>{text}</b>")
    rows = ["<tr>" + "".join(f"<th>{text}</th>" for text in head) + "</tr>"]
    rows += ["<tr>" + "".join(f"<td>{text}</td>" for text in line) + "</tr>" for line in body]
    notes = [f"{run.name}: {note}" for run in results.runs for note in run.notes]
    below = [html.escape(text) for text in (found.legend, *notes)]
    below += [f"<code>{html.escape(signature)}</code>" for signature in found.signatures]
    return f"<table>{''.join(rows)}</table><p>{'<br>'.join(below)}</p>"


def _lines(found: Table, escape: Callable[[str], str], bold: Callable[[str], str]) -> list[list[str]]:
    """Heading and rows as escaped cells."""
    lines = [["metric", *map(escape, found.systems)]]
    for name, cells in found.rows.items():
        shown = []
        for cell in cells:
            value = bold(escape(cell.value)) if cell.better else escape(cell.value)
            shown.append(" ".join([value, *(escape(text) for text in (cell.interval, cell.difference) if text)]))
        lines.append([escape(name), *shown])
    return lines


def _markdown_text(text: str) -> str:
    text = " ".join(text.split()).replace("\\", "\\\\")
    return "".join(f"\\{c}" if c in "|*_`<>" else c for c in text)


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
