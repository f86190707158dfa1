"""Results as a tidy data frame: one row per system and metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..base.errors import MissingExtra

if TYPE_CHECKING:
    from .results import Results

NUMBERS = ("value", "ci_low", "ci_high", "difference", "p_value", "p_holm")
COLUMNS = ("system", "metric", *NUMBERS, "n_images", "signature")


def tidy(results: Results) -> Iterator[dict[str, Any]]:
    """One record per system and metric, with the keys COLUMNS; None where there is no value or no test."""
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
                **{key: row.get(key) for key in ("difference", "p_value", "p_holm")},
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
    frame = pandas.DataFrame(list(tidy(results)), columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(NUMBERS, float))
