"""Counting of single captions, for scorers in other harnesses that keep records and add them at the end.

A caption is converted to a row of counts, and metrics are computed from summed rows. The values are therefore those of
``scapo-eval chair`` for the same captions, independent of the order and batches of the harness.
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
    """Counter of captions with one ground truth.

    Attributes:
        scorer: Scorer that reads captions and counts.
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
        """Makes a counter for a ground truth, or for a protocol that includes one.

        Args:
            truth: Ground truth of the images. None selects that of the protocol.
            protocol: Protocol that determines how captions are read (``chair-opera``), and supplies the ground truth if
                ``truth`` is None.
            profile: Profile for the reading of captions. None selects that of the protocol, or the project's matcher.
            claims: Mentions that count, for the project's matcher.

        Raises:
            InputError: If neither is given, or the protocol includes no ground truth.
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
            InputErrors: If the image is not in the ground truth, or the caption is not a text.
        """
        return dict(zip(self.scorer.columns, self._score(image_id, caption).counts[0].tolist(), strict=True))

    def evidence(self, image_id: object, caption: str) -> dict[str, Any]:
        """Returns the labels of a caption by state: ``generated``, ``hallucinated``, ``missed``, ``unknown``."""
        [record] = self.scorer.records(self._score(image_id, caption))
        return {key: record[key] for key in ("generated", "hallucinated", "missed", "unknown")}

    def _score(self, image_id: object, caption: str) -> Any:
        faults = FaultList()
        record = {"image_id": image_id, "caption": caption}
        scored = self.scorer.score(captions_of("caption", [(1, record)], faults), "caption", faults)
        faults.raise_if_any()
        return scored

    def values(self, counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Returns metric -> value over all captions, as in ``scapo-eval chair``. The value is NaN if it is
        undefined.
        """
        columns = self.scorer.columns
        summed = np.array([sum(count[name] for count in counts) for name in columns], dtype=np.float64)
        return {name: float(value) for name, value in self.scorer.metric_set.score(summed).items()}
