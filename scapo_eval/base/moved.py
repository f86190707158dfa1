"""Support for former module names, which can be imported with a deprecation warning until version 0.4.0."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "scapo_eval.claims": "scapo_eval.matching.uses",
    "scapo_eval.errors": "scapo_eval.base.errors",
    "scapo_eval.integrations.loop": "scapo_eval.rewarding.batch",
    "scapo_eval.io.json_text": "scapo_eval.files.json_text",
    "scapo_eval.matcher": "scapo_eval.matching.matcher",
    "scapo_eval.metrics.capscore": "scapo_eval.benchmarks.capscore",
    "scapo_eval.monitor": "scapo_eval.rewarding.monitor",
    "scapo_eval.oracle": "scapo_eval.truths.oracle",
    "scapo_eval.oracles": "scapo_eval.truths.oracles",
    "scapo_eval.poisson": "scapo_eval.results.poisson",
    "scapo_eval.protocol": "scapo_eval.benchmarks.protocol",
    "scapo_eval.reward": "scapo_eval.rewarding.reward",
    "scapo_eval.segment": "scapo_eval.segmenting.segment",
    "scapo_eval.signature": "scapo_eval.results.signature",
    "scapo_eval.stats": "scapo_eval.results.stats",
    "scapo_eval.token_credit": "scapo_eval.rewarding.token_credit",
    "scapo_eval.tokens": "scapo_eval.rewarding.tokens",
    "scapo_eval.types": "scapo_eval.base.types",
    "scapo_eval.version": "scapo_eval.base.version",
    "scapo_eval.vocabulary": "scapo_eval.matching.vocabulary",
    "scapo_train.packing": "scapo_train.families.packing",
    "scapo_train.rollout_vllm": "scapo_train.samplers.vllm",
    "scapo_train.shared": "scapo_train.families.shared",
}
"""Mapping from former to current module names.

The mapping contains the modules that the documentation of version 0.2 named. Other modules were never stable
(docs/stability.md).
"""

_PACKAGES = {"scapo_eval.io", "scapo_eval.metrics"}  # former packages, which contain only the modules listed above


class _Finder:
    """An import finder for former names. The finder is registered after all others, so that it does not slow down the
    import of existing modules.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname in MOVED:
            return ModuleSpec(fullname, _Alias())  # type: ignore[arg-type]
        return ModuleSpec(fullname, None, is_package=True) if fullname in _PACKAGES else None


class _Alias:
    """An import loader that loads a module under its current name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from .deprecation import warn_deprecated

        instead = MOVED[spec.name]
        warn_deprecated(spec.name, instead=instead, removed_in="0.4.0")  # frames of the import system do not count
        module = import_module(instead)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just replaced it


def install() -> None:
    """Makes the former module names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
