"""Output of results as tab-separated values with one row per system and metric, for scripts and spreadsheets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.text import guarded
from ..results.render import number

COLUMNS = (
    "system",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "system_value",
    "baseline_value",
    "difference",
    "difference_low",
    "difference_high",
    "p_value",
    "p_holm",
    "n_images",
    "signature",
    "baseline",
    "shared_images",
    "test",
    "differing",
)
"""Columns of the table. ``n_images`` is the system's number of images. ``system_value``, ``baseline_value`` and the
difference refer to ``shared_images``.
"""


def tsv(results: Mapping[str, Any], plain_numbers: frozenset[str]) -> str:
    """Returns the table of results as tab-separated text. The cells for differences are empty for the baseline, and
    ``n/a`` marks missing values.
    """
    rows = {(row["system"], row["metric"]): row for row in results["comparisons"]}
    lines: list[tuple[str, ...]] = [COLUMNS]
    for system in results["systems"]:
        for name, value in system["metrics"].items():
            plain = name in plain_numbers
            cells = {
                "system": system["name"],
                "metric": name,
                **{key: number(value[key], plain) for key in ("value", "ci_low", "ci_high")},
                "n_images": str(system["n_images"]),
                "signature": system["signature"],
            }
            if row := rows.get((system["name"], name)):
                cells |= {key: number(row[key], plain) for key in ("system_value", "baseline_value", "difference")}
                cells |= {f"difference_{side}": number(row[f"ci_{side}"], plain) for side in ("low", "high")}
                cells |= {key: p_text(row[key]) for key in ("p_value", "p_holm")}
                cells |= {
                    "baseline": row["baseline"],
                    "shared_images": str(row["n_images"]),
                    "test": row["test"] or "n/a",
                    "differing": ",".join(row.get("differing", ())),
                }
            lines.append(tuple(_cell(cells.get(column, "")) for column in COLUMNS))
    return "".join("\t".join(line) + "\n" for line in lines)


def p_text(p: float | None) -> str:
    """Formats a p-value with four digits, or as ``n/a`` if there is no test."""
    return "n/a" if p is None else f"{p:.4f}"


def _cell(text: str) -> str:
    return guarded(" ".join(text.split()))
