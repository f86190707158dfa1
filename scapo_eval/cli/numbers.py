"""Parameter types for numbers on the command line, which refuse NaN and infinity, and seeds that some formats cannot
store.
"""

from __future__ import annotations

import math
from typing import Any

import click


class Seed(click.IntRange):
    """Parameter type for a seed, which is at least 0 and below 2**63."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the seed. Ends the command if the value is not a seed."""
        seed = super().convert(value, param, ctx)
        if seed >= 2**63:
            self.fail(f"{seed} is not below 2**63.", param, ctx)
        return seed


class Number(click.types.FloatParamType):
    """Parameter type for a finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number. Ends the command if the value is not a finite number."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


class NumberRange(click.FloatRange):
    """Parameter type for a finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number. Ends the command if the value is not a finite number in the range."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


def _finite(kind: Number | NumberRange, number: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    if not math.isfinite(number):
        kind.fail(f"{number} is not a finite number.", param, ctx)
    return number
