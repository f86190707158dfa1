"""The summary as tables of texts, for the terminal and for the data card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .summary import SIDES

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Column headings, and rows."""

KINDS = {
    "error": "cells that are wrong",
    "false_positive": "called present, but absent",
    "false_negative": "called absent, but present",
}


def rounds_table(summary: dict[str, Any]) -> Table:
    """The rounds, one row each."""
    heads = ("round", "labels", "pairs", "answered", "unsure", "skipped", "errors", "state")
    rows = [
        [
            str(each["round"]),
            "all" if each["full"] else str(each["labels"]) if each["kind"] == "random" else each["kind"],
            *(f"{each[key]:,}" for key in ("pairs", "answered", "unsure", "missing", "errors")),
            each["state"],
        ]
        for each in summary["rounds"]
    ]
    return heads, rows


def overall_table(summary: dict[str, Any]) -> Table | None:
    """The bounds over all labels; None where they cannot be given (``overall_missing`` says why).

    Each counts the pairs of its own random draw: an error that another draw has found is in the rounds' errors only.
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
        for kind, text in KINDS.items()
    ]
    return (head, "of cells", "wrong / drawn for it", "at least", "at most"), rows


def labels_table(summary: dict[str, Any]) -> Table:
    """The upper bounds of every label that was drawn; a star marks those that have changed since."""
    heads = [head for side in SIDES for head in (f"called {side}", "wrong / checked", "at most")]
    rows = []
    for name, record in summary["labels"].items():
        row = [name, f"{record['round']}{'*' if record['stale'] else ''}"]
        for side in SIDES:
            found = record[side]
            row += [f"{found['cells']:,}", _checked(found), percent(found["high"], up=True)]
        rows.append(row)
    return ["label", "round", *heads], rows


def percent(value: float | None, *, up: bool) -> str:
    """A bound in percent, rounded outwards, with the digits that small ones need; ``n/a`` for no bound."""
    if value is None:
        return "n/a"
    digits = 3 if 0 < value < 0.001 else 2
    scaled = round(100 * value * 10**digits, 6)
    return f"{(math.ceil(scaled) if up else math.floor(scaled)) / 10**digits:.{digits}f} %"


def _checked(found: dict[str, Any]) -> str:
    doubt = f" (+{found['unsure']}?)" if found["unsure"] else ""
    return f"{found['wrong']}{doubt} / {found['checked']:,}"
