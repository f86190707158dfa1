"""Patches for exact float64 computation in addition to ``model.dtype = "float64"``, for the programs and the fixture
``exact_norms``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def norm(self: Any, hidden: Any) -> Any:
    """Computes the root mean square norm in the dtype of its input, without transformers' intermediate rounding to
    float32.
    """
    return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def router(self: Any, hidden: Any) -> Any:
    """Computes the choice of experts in the dtype of its input, without intermediate rounding."""
    logits = hidden.reshape(-1, self.hidden_dim) @ self.weight.T
    weights, chosen = logits.softmax(-1).topk(self.top_k, dim=-1)
    return logits, weights / weights.sum(-1, keepdim=True), chosen


def exact_norms(model: Any, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Makes all norms and routers in a model compute in the dtype of their input."""
    for kind in {type(each) for each in model.modules() if type(each).__name__.endswith("TopKRouter")}:
        put(kind, "forward", router)
    for kind in {type(each) for each in model.modules() if hasattr(each, "variance_epsilon")}:
        put(kind, "forward", norm)
