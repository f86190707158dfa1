"""The summary of quality control as text tables, for the terminal and the data card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .summary import SIDES

SummaryTable = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Column headings and rows of a table."""

_WORDS = {
    False: {"label": "label", "present": "present", "absent": "absent"},
    True: {"label": "kind", "present": "true", "absent": "false"},
}
"""Whether the cells are claims -> words of the tables."""


def words_of(summary: dict[str, Any]) -> dict[str, str]:
    """Returns the words for a label and for the two verdicts. If the cells are claims, these words are "kind", "true"
    and "false".
    """
    return _WORDS[bool(summary.get("claims"))]


def error_texts(summary: dict[str, Any]) -> dict[str, str]:
    """Returns a text for each kind of error in ``overall``."""
    yes, no = (words_of(summary)[side] for side in SIDES)
    return {
        "error": "cells that are wrong",
        "false_positive": f"called {yes}, but {no}",
        "false_negative": f"called {no}, but {yes}",
    }


def rounds_table(summary: dict[str, Any]) -> SummaryTable:
    """Returns a table with one row per round."""
    heads = ("round", f"{words_of(summary)['label']}s", "pairs", "answered", "unsure", "skipped", "errors", "state")
    rows = [
        [
            str(round_["round"]),
            "all" if round_["full"] else str(round_["labels"]) if round_["kind"] == "random" else round_["kind"],
            *(f"{round_[key]:,}" for key in ("pairs", "answered", "unsure", "missing", "errors")),
            round_["state"],
        ]
        for round_ in summary["rounds"]
    ]
    return heads, rows


def overall_table(summary: dict[str, Any]) -> SummaryTable | None:
    """Returns the table of the bounds over all labels, or None if there are no bounds (``overall_missing`` states the
    reason).

    In each row of the table, only the pairs from the row's own random draw are counted. Errors from other draws appear
    only in the table of rounds.
    """
    overall = summary["overall"]
    if overall is None:
        return None
    head = f"still wrong ({100 * summary['confidence']:g} %, round {overall['round']})"
    rows = [
        [
            text,
            f"{overall[kind]['cells']:,}",
            _checked(overall[kind]),
            percent(overall[kind]["low"], up=False),
            percent(overall[kind]["high"], up=True),
        ]
        for kind, text in error_texts(summary).items()
    ]
    return (head, "of cells", "wrong / drawn for it", "at least", "at most"), rows


def people_lines(summary: dict[str, Any]) -> list[str]:
    """Returns sentences that describe the people who answered each round, and the agreement between two people."""
    lines = []
    for round_ in summary["rounds"]:
        if round_["people"]:
            named = ", ".join(f"{name} {count:,}" for name, count in round_["people"].items())
            lines.append(f"round {round_['round']}: answers of {named}")
    for record in summary.get("second", ()):
        kappa = "n/a" if record["kappa"] is None else f"{record['kappa']:.2f}"
        left = "" if record["state"] == "closed" else f" ({record['state']})"
        disputed = record["disputed"]
        lines.append(
            f"round {record['round']}, second person {', '.join(record['people'][1]) or 'nobody yet'}{left}: "
            f"{record['agree']:,} of {record['both']:,} answers agree, Cohen's kappa {kappa}"
            + (f"; {disputed:,} on which they differ count as unsure" if disputed else "")
        )
    return lines


def labels_table(summary: dict[str, Any]) -> SummaryTable:
    """Returns a table with the upper bounds for every drawn label. A star marks labels that have changed since their
    draw.
    """
    words = words_of(summary)
    heads = [head for side in SIDES for head in (f"called {words[side]}", "wrong / checked", "at most")]
    rows = []
    for name, record in summary["labels"].items():
        row = [name, f"{record['round']}{'*' if record['stale'] else ''}"]
        for side in SIDES:
            counts = record[side]
            row += [f"{counts['cells']:,}", _checked(counts), percent(counts["high"], up=True)]
        rows.append(row)
    return [words["label"], "round", *heads], rows


def percent(value: float | None, *, up: bool) -> str:
    """Returns a bound in percent, rounded outward, with more digits for small values. Returns ``n/a`` if there is no
    bound.
    """
    if value is None:
        return "n/a"
    digits = 3 if 0 < value < 0.001 else 2
    scaled = round(100 * value * 10**digits, 6)
    return f"{(math.ceil(scaled) if up else math.floor(scaled)) / 10**digits:.{digits}f} %"


def _checked(counts: dict[str, Any]) -> str:
    doubt = f" (+{counts['unsure']}?)" if counts["unsure"] else ""
    return f"{counts['wrong']}{doubt} / {counts['checked']:,}"
