"""Conversion of results to data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.errors import MissingExtra

NUMBERS = ("value", "ci_low", "ci_high", "difference", "p_value", "p_holm")
COLUMNS = ("system", "metric", *NUMBERS, "n_images", "signature")
"""Columns of a tidy frame with one row per system and metric."""


def to_frame(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS, numbers: Sequence[str] = NUMBERS
) -> Any:
    """Returns a pandas DataFrame from records.

    Args:
        rows: Records.
        columns: Keys of the records, in order.
        numbers: Columns whose values are converted to floats. A missing number becomes NaN.

    Raises:
        MissingExtra: If pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "a data frame") from None
    frame = pandas.DataFrame(list(rows), columns=list(columns))
    return frame.astype(dict.fromkeys(numbers, float))
