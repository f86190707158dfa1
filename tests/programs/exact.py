"""What float64 needs besides ``model.dtype = "float64"``, for the programs and the fixture ``exact_norms``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def norm(self: Any, hidden: Any) -> Any:
    """The root mean square norm in the dtype of its input: transformers' rounds to float32 on the way."""
    return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def router(self: Any, hidden: Any) -> Any:
    """The choice of experts in the dtype of its input, likewise."""
    logits = hidden.reshape(-1, self.hidden_dim) @ self.weight.T
    weights, chosen = logits.softmax(-1).topk(self.top_k, dim=-1)
    return logits, weights / weights.sum(-1, keepdim=True), chosen


def exact_norms(model: Any, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Lets all norms and routers of the kinds in a model compute in the dtype of their input."""
    for kind in {type(each) for each in model.modules() if type(each).__name__.endswith("TopKRouter")}:
        put(kind, "forward", router)
    for kind in {type(each) for each in model.modules() if hasattr(each, "variance_epsilon")}:
        put(kind, "forward", norm)
