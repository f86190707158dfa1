"""Counts for single captions, for use in evaluation harnesses that score one sample at a time and aggregate the results
at the end.

A caption is converted to a row of counts, and metrics are computed from the sum of these rows. The values therefore
equal those of ``scapo-eval chair`` for the same captions, regardless of order and batching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import FaultList, InputError
from ..benchmarks.chair import ChairScorer
from ..benchmarks.chair import profile as profile_of
from ..benchmarks.protocol import Protocol
from ..benchmarks.scoring import ScoringOptions
from ..matching.uses import Reading
from ..readers.captions import captions_of
from ..truths.oracle import PresenceOracle, TruthGiven

Counts = dict[str, int]


@dataclass(frozen=True)
class CaptionCounter:
    """Converter from single captions to counts, with one ground truth for all captions.

    Attributes:
        scorer: Scorer that reads the captions and counts their labels.
    """

    scorer: ChairScorer

    @classmethod
    def of(
        cls,
        truth: TruthGiven | None = None,
        *,
        protocol: str | Path | None = None,
        profile: str | None = None,
        claims: Reading = "all",
    ) -> CaptionCounter:
        """Creates a counter for a given ground truth, or for a protocol that includes a ground truth.

        Args:
            truth: Ground truth of the images, or None to use the ground truth of the protocol.
            protocol: Protocol that determines how captions are read (such as ``chair-opera``) and that supplies the
                ground truth if ``truth`` is None.
            profile: Profile for reading captions, or None for the profile of the protocol. Without a protocol, the
                default is the project's matcher (``native``).
            claims: Reading that determines which mentions the project's matcher counts.

        Raises:
            InputError: If neither a ground truth nor a protocol is given, or the protocol includes no ground truth.
        """
        followed = None if protocol is None else Protocol.load(protocol)
        if truth is None and followed is None:
            raise InputError("truth or protocol is missing")
        given = followed.facts_path() if truth is None and followed else truth
        assert given is not None
        oracle = PresenceOracle.of(given)
        name = profile or (followed.profile if followed else None) or "native"
        return cls(ChairScorer.of(profile_of(name, claims=claims, workers=1), oracle, ScoringOptions(claims)))

    def counts(self, image_id: object, caption: str) -> Counts:
        """Returns the counts of one caption as a mapping from name to number.

        Raises:
            InputErrors: If the image is not in the ground truth, or the caption is not a text.
        """
        return dict(zip(self.scorer.columns, self._score(image_id, caption).counts[0].tolist(), strict=True))

    def evidence(self, image_id: object, caption: str) -> dict[str, Any]:
        """Returns the labels that a caption claims (``generated``), hallucinates and misses, and the claimed labels
        whose cell is ``unknown``.
        """
        [record] = self.scorer.records(self._score(image_id, caption))
        return {key: record[key] for key in ("generated", "hallucinated", "missed", "unknown")}

    def _score(self, image_id: object, caption: str) -> Any:
        faults = FaultList()
        record = {"image_id": image_id, "caption": caption}
        scored = self.scorer.score(captions_of("caption", [(1, record)], faults), "caption", faults)
        faults.raise_if_any()
        return scored

    def values(self, counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Returns the metrics of ``scapo-eval chair`` over all captions as a mapping from name to value. Undefined
        values are NaN.
        """
        columns, counts = self.scorer.columns, list(counts)
        summed = np.array([sum(count[name] for count in counts) for name in columns], dtype=np.float64)
        return {name: float(value) for name, value in self.scorer.metric_set.score(summed).items()}
