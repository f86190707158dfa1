"""One caption at a time: what the scorers from other harnesses call, which keep the records and add up at the end.

A caption becomes a row of counts, and metrics are computed from summed rows, so that the values are those of
``scapo-eval chair`` on the same captions, whatever order or batches the harness takes.
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
    """Counts captions against one truth.

    Attributes:
        scorer: reads captions and counts.
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
        """Makes a counter of a ground truth, or of a protocol that carries one.

        Args:
            truth: what is in the images.
            protocol: takes its place, and says how captions are read (``chair-opera``).
            profile: how captions are read; None: the protocol's, else the project's matcher.
            claims: which mentions count, with the project's matcher.

        Raises:
            InputError: if it is neither a ground truth nor a protocol, or one that carries none.
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
        """Returns the counts of one caption, by name.

        Raises:
            InputErrors: for an image that the ground truth does not know, or a caption that is not a text.
        """
        return dict(zip(self.scorer.columns, self._score(image_id, caption).counts[0].tolist(), strict=True))

    def evidence(self, image_id: object, caption: str) -> dict[str, Any]:
        """Returns what the caption names: ``generated``, ``hallucinated``, ``missed``, ``unknown``."""
        [record] = self.scorer.records(self._score(image_id, caption))
        return {key: record[key] for key in ("generated", "hallucinated", "missed", "unknown")}

    def _score(self, image_id: object, caption: str) -> Any:
        faults = FaultList()
        record = {"image_id": image_id, "caption": caption}
        scored = self.scorer.score(captions_of("caption", [(1, record)], faults), "caption", faults)
        faults.raise_if_any()
        return scored

    def values(self, counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Metric -> value of all captions, as ``scapo-eval chair`` gives it; NaN if it has none."""
        columns = self.scorer.columns
        summed = np.array([sum(count[name] for count in counts) for name in columns], dtype=np.float64)
        return {name: float(value) for name, value in self.scorer.metric_set.score(summed).items()}
