"""Functions that compute the metrics of ``scapo-eval chair`` in lmms-eval and that the YAML file of a description task
refers to.

To create a task, copy ``examples/recipes/lmms_eval/`` to a folder of your own, and pass this folder to
``--include_path``. The environment variable ``SCAPO_PROTOCOL`` specifies a protocol with a ground truth (such as
``chair-opera``, the default without ``SCAPO_TRUTH``). ``SCAPO_TRUTH`` specifies a ground truth file, which takes the
place of the protocol's. ``SCAPO_PROFILE`` selects the profile with which captions are read. lmms-eval calls
:func:`process_results` for every sample, and passes the results of all samples to the aggregation function of each
metric.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from .counting import CaptionCounter, Counts

IMAGE_KEYS = ("image_id", "question_id", "file_name", "image_name", "id")
METRICS = ("chair_s", "chair_i", "recall", "precision", "f1", "len")


@cache
def _counter(truth: str | None, protocol: str | None, profile: str | None) -> CaptionCounter:
    default = None if truth else "chair-opera"
    return CaptionCounter.of(truth, protocol=protocol or default, profile=profile)


def counter() -> CaptionCounter:
    """Returns the counter specified by the environment variables."""
    get = os.environ.get
    return _counter(get("SCAPO_TRUTH"), get("SCAPO_PROTOCOL"), get("SCAPO_PROFILE"))


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Counts]:
    """Returns the counts of a sample's caption under the name of each metric of the task.

    Args:
        doc: Record of the sample, with its image under one of :data:`IMAGE_KEYS`.
        results: Texts from the model. Only the first text is used.

    Raises:
        KeyError: If the sample contains no image id.
        InputErrors: If the image is not in the ground truth.
    """
    image = next((doc[key] for key in IMAGE_KEYS if doc.get(key) is not None), None)
    if image is None:
        raise KeyError(f"the sample contains no image id (expected {', '.join(IMAGE_KEYS)}; found: {', '.join(doc)})")
    counts = counter().counts(image, results[0])
    return {f"scapo_{name}": counts for name in METRICS}


def _aggregation(name: str) -> Callable[[Sequence[Counts]], float]:
    def aggregate(counts: Sequence[Counts]) -> float:
        return counter().values(counts)[name]

    aggregate.__name__ = name
    aggregate.__doc__ = f"``{name}`` of all samples."
    return aggregate


chair_s, chair_i, recall, precision, f1, len_ = map(_aggregation, METRICS)
