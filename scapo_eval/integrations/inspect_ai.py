"""inspect_ai: a scorer of descriptions whose metrics are those of ``scapo-eval chair``.

    Task(dataset=images, solver=generate(), scorer=caption_scorer(protocol="chair-opera"))

A sample's score holds the counts of its caption; the metrics add them up over the samples and divide once. A sample
whose image the truth does not know is unscored (NaN), and its explanation says so. Intervals
and paired tests: export the log with ``scapo-eval import`` or score the captions with ``scapo-eval chair``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..base.errors import MissingExtra, ScapoError
from .counting import CaptionCounter

try:
    from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
    from inspect_ai.solver import TaskState
except ImportError as error:
    raise MissingExtra("inspect-ai", "the scorer for inspect_ai") from error

METRICS = ("chair_s", "chair_i", "recall", "precision", "f1", "len")


@cache
def _counter(truth: str | None, protocol: str | None, profile: str | None) -> CaptionCounter:
    return CaptionCounter.of(truth, protocol=protocol, profile=profile)


def _is_missing(value: object) -> bool:
    return not isinstance(value, (int, float)) or math.isnan(value)


@metric  # type: ignore[untyped-decorator]
def caption_metrics(counter: CaptionCounter) -> Metric:
    """Returns ``chair_s chair_i recall precision f1 len`` of all samples."""

    def values(scores: list[SampleScore]) -> dict[str, float]:
        counts = [score.score.value for score in scores if not any(map(_is_missing, score.score.value.values()))]
        metrics = counter.values(counts)
        return {name: metrics[name] for name in METRICS}

    return values


def caption_scorer(
    truth: str | Path | Mapping[Any, Iterable[str]] | None = None,
    *,
    protocol: str | None = None,
    profile: str | None = None,
    image_key: str = "image_id",
) -> Scorer:
    """Scores descriptions of images.

    Args:
        truth: what is in the images; None takes the protocol's.
        protocol: a protocol that carries its truth (``scapo-eval protocol list``).
        profile: how captions are read; None: the protocol's, else the project's matcher.
        image_key: key of a sample's metadata that names its image; without it the sample's id does.

    Raises:
        InputError: if it is neither a ground truth nor a protocol.
    """
    if truth is None or isinstance(truth, (str, Path)):
        counter = _counter(None if truth is None else str(truth), protocol, profile)
    else:
        counter = CaptionCounter.of(truth, protocol=protocol, profile=profile)

    @scorer(metrics=[caption_metrics(counter)], name="scapo_captions")  # type: ignore[untyped-decorator]
    def build() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            caption = state.output.completion
            image = state.metadata.get(image_key, state.sample_id)
            try:
                counts = counter.counts(image, caption)
            except ScapoError as fault:
                unscored = dict.fromkeys(counter.scorer.columns, math.nan)
                return Score(value=unscored, answer=caption, explanation=str(fault))
            evidence = counter.evidence(image, caption)
            wrong = ", ".join(evidence["hallucinated"]) or "nothing"
            return Score(value=counts, answer=caption, explanation=f"hallucinated: {wrong}", metadata=evidence)

        return score

    return build()
