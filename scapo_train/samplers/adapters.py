"""Adapters that vLLM adds to its own copy of the base weights (``rollout.adapters``).

vLLM reads the base weights once. After each update, only the adapters are sent, as a folder in peft's format, and under
a new name, so that vLLM's caches cannot confuse them with earlier adapters. If vLLM cannot do this, the adapters are
merged into the weights, and all weights are sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from scapo_eval.base.errors import InputError

from ..config import Config

_log = logging.getLogger(__name__)

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's ``max_lora_rank``."""


def has_experts(model: Any) -> bool:
    """Returns True if a model is a mixture of experts, based on its configuration from transformers."""
    return bool(getattr(model.get_text_config(), "num_experts", None))


def obstacle(config: Config, experts: bool, device: str) -> str | None:
    """Returns the reason why vLLM cannot add the adapters itself, or None.

    Args:
        config: Settings of the training run.
        experts: True if the model is a mixture of experts.
        device: Kind of device that vLLM uses, ``cpu`` or ``cuda``.
    """
    rank, rollout = config.lora.rank, config.rollout
    if experts:
        return "with adapters, vLLM computes a mixture of experts with kernels that fail on a CPU, and are untested"
    if rank > RANKS[-1]:
        return f"lora.rank = {rank} is more than vLLM's maximum, {RANKS[-1]}"
    if device != "cpu" and config.model.dtype == "float32":
        return "on GPUs, vLLM computes adapters only in bfloat16, not in model.dtype = float32"
    if rollout.sleep and rollout.sleep_level == 2 and not rollout.server:
        return "rollout.sleep_level = 2 discards vLLM's base weights; 1 keeps them in host memory"
    return None


def sent_alone(config: Config, engine: str, reason: str | None) -> bool:
    """Returns True if only adapters are sent to vLLM, and logs the choice.

    Args:
        config: Settings of the training run.
        engine: Name of the engine.
        reason: Reason why vLLM cannot add the adapters itself, or None.

    Raises:
        InputError: If ``rollout.adapters = "request"``, and there is a reason against it.
    """
    if not config.lora.rank or config.rollout.adapters == "merge":
        return False
    if reason is None:
        _log.info("%s: adapters are sent without the base weights (rollout.adapters)", engine)
        return True
    if config.rollout.adapters == "request":
        raise InputError(f'rollout.adapters = "request": {reason} ("auto" merges the adapters into the weights)')
    _log.info("%s: adapters are merged into the weights that are sent: %s", engine, reason)
    return False


def engine_settings(config: Config, layers: Sequence[str]) -> dict[str, Any]:
    """Returns the arguments of vLLM's ``LLM`` for adapters of the given layers."""
    rank = next(rank for rank in RANKS if rank >= config.lora.rank)
    return {"enable_lora": True, "max_lora_rank": rank, "lora_target_modules": list(layers)}
