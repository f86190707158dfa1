"""Engines that run a model on any OpenAI-compatible server, with vLLM or transformers in this process, or with vLLM on
a Ray cluster.

All engines accept a :class:`Request` and return a :class:`Completion`. Large libraries are imported only when an engine
is created.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from ..base.errors import MissingExtra, ScapoError
from ..base.releases import fits, release_of
from .base import ONE_TOKEN, YES_NO, Completion, Engine, Request, Sampling, Turn

_log = logging.getLogger(__name__)

__all__ = [
    "ENGINES", "ONE_TOKEN", "YES_NO", "Completion", "Engine", "Request", "Sampling", "Turn", "check_vllm",
    "missing_extra", "require",
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


VLLM = ">=0.21"
"""Range of vLLM's releases that scapo accepts, as in the extra ``vllm``."""

VLLM_RESOLVED = ">=0.21,<0.34"
"""Releases of vLLM that can be installed together with the extra ``train`` (docs/compatibility.md)."""

VLLM_RUN = ("0.24", "0.26", "0.29", "0.32")
"""Minor releases of vLLM with which scapo was run (docs/compatibility.md)."""


def check_vllm(version: str) -> None:
    """Checks the release of vLLM before an engine starts, and logs a warning if it is newer than those with which scapo
    was run.

    Raises:
        ScapoError: If the release is too old.
    """
    if "dev" in version:  # builds from a clone without tags are 0.1.dev1
        return
    if not fits(version, VLLM):
        raise ScapoError(f"vLLM {version} is too old: pip install 'vllm{VLLM}'")
    if release_of(version)[:2] > release_of(VLLM_RUN[-1])[:2]:
        _log.warning("vLLM %s is newer than %s, the newest release with which scapo was run", version, VLLM_RUN[-1])


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
