"""Matching, segmentation, rewards and scores for evaluating and training models that describe images faithfully and
informatively.

Public names are imported on first use (PEP 562), so ``import scapo_eval`` is fast and never imports torch, spaCy, NLTK
or pandas.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .base import moved
from .base.version import __version__

moved.install()

_HOME = {
    "AliasMatcher": "matching.matcher",
    "CaptionScores": "benchmarks.capscore",
    "Claim": "claiming.claim",
    "ClaimExtractor": "claiming.extract",
    "ClaimOracle": "truths.claim_oracle",
    "CountedBenchmark": "benchmarks.counted",
    "InputError": "base.errors",
    "InputErrors": "base.errors",
    "JudgedUses": "matching.judged_uses",
    "Mention": "base.types",
    "MissingExtra": "base.errors",
    "Option": "results.benchmark",
    "PresenceOracle": "truths.oracle",
    "Protocol": "benchmarks.protocol",
    "Results": "results.results",
    "RewardConfig": "rewarding.reward",
    "RewardResult": "rewarding.reward",
    "Run": "results.results",
    "ScapoError": "base.errors",
    "Scenes": "truths.scenes",
    "Subsentence": "base.types",
    "SubsentenceReward": "rewarding.reward",
    "UsesJudge": "inference.uses_judge",
    "Vocabulary": "matching.vocabulary",
    "amber": "benchmarks.amber",
    "cap_score": "benchmarks.capscore",
    "chair": "benchmarks.chair",
    "claims": "api",
    "claims_of": "claiming.extract",
    "compare": "api",
    "density": "api",
    "evidence": "benchmarks.evidence",
    "facts": "api",
    "faithscore": "api",
    "hallusionbench": "api",
    "labels": "benchmarks.evidence",
    "load_results": "results.results",
    "mmhal": "api",
    "objhal": "api",
    "phd": "benchmarks.phd",
    "pope": "benchmarks.pope",
    "power": "results.power",
    "ratio": "results.metric",
    "reward_fn": "rewarding.functions",
    "score": "benchmarks.capscore",
    "score_captions": "benchmarks.capscore",
    "show": "benchmarks.evidence",
    "split_subsentences": "segmenting.segment",
    "validate": "validation.validate",
    "yesno": "benchmarks.yesno",
}

__all__ = [
    "AliasMatcher",
    "CaptionScores",
    "Claim",
    "ClaimExtractor",
    "ClaimOracle",
    "CountedBenchmark",
    "InputError",
    "InputErrors",
    "JudgedUses",
    "Mention",
    "MissingExtra",
    "Option",
    "PresenceOracle",
    "Protocol",
    "Results",
    "RewardConfig",
    "RewardResult",
    "Run",
    "ScapoError",
    "Scenes",
    "Subsentence",
    "SubsentenceReward",
    "UsesJudge",
    "Vocabulary",
    "__version__",
    "amber",
    "cap_score",
    "chair",
    "claims",
    "claims_of",
    "compare",
    "density",
    "evidence",
    "facts",
    "faithscore",
    "hallusionbench",
    "labels",
    "load_results",
    "mmhal",
    "objhal",
    "phd",
    "pope",
    "power",
    "ratio",
    "reward_fn",
    "score",
    "score_captions",
    "show",
    "split_subsentences",
    "validate",
    "yesno",
]

if TYPE_CHECKING:
    from .api import claims, compare, density, facts, faithscore, hallusionbench, mmhal, objhal
    from .base.errors import InputError, InputErrors, MissingExtra, ScapoError
    from .base.types import Mention, Subsentence
    from .benchmarks.amber import amber
    from .benchmarks.capscore import CaptionScores, cap_score, score, score_captions
    from .benchmarks.chair import chair
    from .benchmarks.counted import CountedBenchmark
    from .benchmarks.evidence import evidence, labels, show
    from .benchmarks.phd import phd
    from .benchmarks.pope import pope
    from .benchmarks.protocol import Protocol
    from .benchmarks.yesno import yesno
    from .claiming.claim import Claim
    from .claiming.extract import ClaimExtractor, claims_of
    from .inference.uses_judge import UsesJudge
    from .matching.judged_uses import JudgedUses
    from .matching.matcher import AliasMatcher
    from .matching.vocabulary import Vocabulary
    from .results.benchmark import Option
    from .results.metric import ratio
    from .results.power import power
    from .results.results import Results, Run, load_results
    from .rewarding.functions import reward_fn
    from .rewarding.reward import RewardConfig, RewardResult, SubsentenceReward
    from .segmenting.segment import split_subsentences
    from .truths.claim_oracle import ClaimOracle
    from .truths.oracle import PresenceOracle
    from .truths.scenes import Scenes
    from .validation.validate import validate


def __getattr__(name: str) -> Any:
    if name == "plots":  # a separate module, loaded on first use
        return import_module(".plots", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:  # not a package of a layer
        from .results.benchmark import has_benchmark

        if has_benchmark(name):
            return getattr(import_module(".api", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "plots"])
