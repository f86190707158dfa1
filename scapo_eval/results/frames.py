"""Conversion of results to a tidy data frame with one row per system and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.errors import MissingExtra

NUMBERS = ("value", "ci_low", "ci_high", "difference", "p_value", "p_holm")
COLUMNS = ("system", "metric", *NUMBERS, "n_images", "signature")


def to_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Returns a pandas DataFrame from records whose keys are COLUMNS. Numbers are converted to floats, and missing
    numbers to NaN.

    Raises:
        MissingExtra: If pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "a data frame") from None
    frame = pandas.DataFrame(list(rows), columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(NUMBERS, float))
