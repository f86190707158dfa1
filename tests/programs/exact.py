"""What float64 needs besides ``model.dtype = "float64"``, for the programs and the fixture ``exact_norms``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def norm(self: Any, hidden: Any) -> Any:
    """The root mean square norm in the dtype of its input: transformers' rounds to float32 on the way."""
    return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def exact_norms(model: Any, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Lets all norms of the kinds in a model compute in the dtype of their input."""
    for kind in {type(each) for each in model.modules() if hasattr(each, "variance_epsilon")}:
        put(kind, "forward", norm)
