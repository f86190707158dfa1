"""inspect_ai scorer for image descriptions, with the metrics of ``scapo-eval chair``.

    Task(dataset=images, solver=generate(), scorer=caption_scorer(protocol="chair-opera"))

The score of a sample contains the counts of its caption. The metrics are computed from the sum of these counts over all
samples. If the image of a sample is not in the ground truth, the sample is left unscored (NaN), and an explanation is
given. For intervals and paired tests, export the log with ``scapo-eval import``, or score the captions with
``scapo-eval chair``.
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
    """Returns a metric that computes ``chair_s chair_i recall precision f1 len`` over all samples."""

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
    """Returns a scorer for descriptions of images.

    Args:
        truth: Ground truth of the images, or None to use the ground truth of the protocol.
        protocol: Protocol that includes a ground truth (``scapo-eval protocol list``).
        profile: Profile for reading captions, or None for the profile of the protocol. Without a protocol, the default
            is the project's matcher.
        image_key: Metadata key that contains the image id. If the key is missing, the sample's id is used.

    Raises:
        InputError: If neither a ground truth nor a protocol is given.
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
