"""Engines that run a model on any OpenAI-compatible server, with vLLM or transformers in this process, or with vLLM on
a Ray cluster.

All engines accept a :class:`Request` and return a :class:`Completion`. Large libraries are imported only when an engine
is created.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

from ..base.errors import MissingExtra
from .base import ONE_TOKEN, YES_NO, Completion, Engine, Request, Sampling, Turn

__all__ = [
    "ENGINES", "ONE_TOKEN", "YES_NO", "Completion", "Engine", "Request", "Sampling", "Turn", "missing_extra", "require",
]  # fmt: skip

ENGINES = ("openai", "vllm", "transformers", "ray")
"""Names of the engines on the command line: :mod:`.openai_http`, :mod:`.vllm_offline`, :mod:`.hf`, :mod:`.ray_vllm`."""

_EXTRAS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "openai": ("http", "asking a server", ("aiohttp",)),
    "vllm": ("vllm", "the engine vllm", ("vllm",)),
    "transformers": ("hf", "the engine transformers", ("torch", "transformers")),
    "ray": ("ray-llm", "the engine ray", ("ray",)),
}
"""Engine -> its extra, its description in messages, and the packages that it imports."""


def missing_extra(engine: str) -> MissingExtra:
    """Returns the error for an engine whose extra is not installed."""
    extra, needed_for, _ = _EXTRAS[engine]
    return MissingExtra(extra, needed_for)


def require(engine: str) -> None:
    """Checks whether the packages of an engine are installed, without importing them.

    Raises:
        MissingExtra: If a package is missing.
    """
    if any(sys.modules.get(name) is None and find_spec(name) is None for name in _EXTRAS[engine][2]):
        raise missing_extra(engine)
