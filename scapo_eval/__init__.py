"""Faithful and informative image descriptions: matching, segmentation, rewards and scores.

Public names are loaded when they are first used (PEP 562), so that ``import scapo_eval`` costs nothing
and never brings torch, spaCy, NLTK or pandas in.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import moved
from .base.version import __version__

moved.install()

_HOME = {
    "AliasMatcher": "matching.matcher",
    "CaptionScores": "benchmarks.capscore",
    "InputError": "base.errors",
    "InputErrors": "base.errors",
    "Mention": "base.types",
    "MissingExtra": "base.errors",
    "PresenceOracle": "truths.oracle",
    "Protocol": "benchmarks.protocol",
    "Results": "results.results",
    "RewardConfig": "rewarding.reward",
    "RewardResult": "rewarding.reward",
    "Run": "results.results",
    "ScapoError": "base.errors",
    "Subsentence": "base.types",
    "SubsentenceReward": "rewarding.reward",
    "Vocabulary": "matching.vocabulary",
    "amber": "api",
    "cap_score": "benchmarks.capscore",
    "chair": "api",
    "compare": "api",
    "load_results": "results.results",
    "phd": "api",
    "pope": "api",
    "power": "results.power",
    "score": "api",
    "score_captions": "benchmarks.capscore",
    "split_subsentences": "segmenting.segment",
    "yesno": "api",
}

__all__ = [
    "AliasMatcher",
    "CaptionScores",
    "InputError",
    "InputErrors",
    "Mention",
    "MissingExtra",
    "PresenceOracle",
    "Protocol",
    "Results",
    "RewardConfig",
    "RewardResult",
    "Run",
    "ScapoError",
    "Subsentence",
    "SubsentenceReward",
    "Vocabulary",
    "__version__",
    "amber",
    "cap_score",
    "chair",
    "compare",
    "load_results",
    "phd",
    "pope",
    "power",
    "score",
    "score_captions",
    "split_subsentences",
    "yesno",
]

if TYPE_CHECKING:
    from .api import amber, chair, compare, phd, pope, score, yesno
    from .base.errors import InputError, InputErrors, MissingExtra, ScapoError
    from .base.types import Mention, Subsentence
    from .benchmarks.capscore import CaptionScores, cap_score, score_captions
    from .benchmarks.protocol import Protocol
    from .matching.matcher import AliasMatcher
    from .matching.vocabulary import Vocabulary
    from .results.power import power
    from .results.results import Results, Run, load_results
    from .rewarding.reward import RewardConfig, RewardResult, SubsentenceReward
    from .segmenting.segment import split_subsentences
    from .truths.oracle import PresenceOracle


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
