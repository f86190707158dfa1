"""torchmetrics adapter that computes ``cap_score``, ``hal_rate``, ``cover_rate`` and the metrics of CHAIR during
evaluation, on one or several ranks.

The state of the metric is a vector of summed counts. The memory use of the metric is therefore constant, and the states
of several ranks are combined by summation. The sums suffice for the values of the metrics, but not for intervals, tests
or values per image. To obtain these, write the captions to a file and score it with :func:`scapo_eval.score`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Literal

from ..base.errors import FaultList, InputError, MissingExtra, short_repr
from ..benchmarks.capscore import CaptionScorer, capscore_metrics
from ..benchmarks.scoring import ScoringOptions
from ..matching.uses import Reading, reading_fields
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import captions_of
from ..results.metric import MetricSet
from ..results.signature import Signature
from ..truths.oracle import PresenceOracle, Truth

try:
    import torch
    from torchmetrics import Metric
except ImportError as error:
    raise MissingExtra("torchmetrics", "CapScoreMetric") from error


class CapScoreMetric(Metric):  # type: ignore[misc]
    """Metric that computes ``hal_rate cover_rate cap_score chair_i chair_s`` over all captions added so far.

    If a sampler repeats samples to fill the last batch, as DistributedSampler does, these samples count twice, as in
    every metric that sums over samples. To avoid repeated samples, use a data set whose size is a multiple of the
    number of ranks, or score a file instead.

    Args:
        truth: Ground truth, given as a file, a PresenceOracle, or a mapping ``{image id: [labels]}``.
        vocabulary: Labels and their aliases, in any form that :meth:`scapo_eval.Vocabulary.of` accepts.
        claims: Reading that determines which mentions count; see :mod:`scapo_eval.matching.uses`.
        on_unknown_image: Treatment of captions whose image is not in the ground truth.
        **settings: Settings of torchmetrics' class Metric, such as ``dist_sync_on_step`` and ``process_group``.

    Raises:
        InputError: If the ground truth or the vocabulary cannot be read, or their labels do not match.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    counts: torch.Tensor
    skipped: torch.Tensor

    def __init__(
        self,
        truth: PresenceOracle | str | Path | Mapping[Any, Iterable[str]],
        vocabulary: VocabularyGiven = "coco80",
        *,
        claims: Reading = "all",
        on_unknown_image: Literal["error", "skip"] = "error",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        options = ScoringOptions(claims, on_unknown_image=on_unknown_image)
        seen = Truth.of(PresenceOracle.of(truth), Vocabulary.of(vocabulary))
        self.scorer = CaptionScorer((seen,), options.on_unknown_image == "skip", options.claims)
        self.add_state("counts", torch.zeros(len(self.metric_set.columns), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("skipped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def metric_set(self) -> MetricSet:
        """Metrics of the sums. They are not stored in the metric, because their formulas cannot be pickled."""
        return capscore_metrics()

    def set_dtype(self, dst_type: str | torch.dtype) -> CapScoreMetric:
        """Changes nothing. The counts remain whole numbers, because half precision would round them."""
        return self

    def update(self, image_ids: Sequence[int | str] | torch.Tensor, captions: Sequence[str]) -> None:
        """Adds a batch of captions.

        Args:
            image_ids: n image ids in any supported form, or an (n,) integer tensor.
            captions: Texts of the n captions.

        Raises:
            InputErrors: If captions are not texts, or images are not in the ground truth. The errors state the
                positions of the captions in the batch, counted from 1.
            InputError: If an argument is not a list, or the numbers of ids and captions differ.
        """
        ids = image_ids.tolist() if isinstance(image_ids, torch.Tensor) else image_ids
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise InputError(f"image ids must be a list or an (n,) tensor, got {short_repr(image_ids)}")
        ids = list(ids)
        if isinstance(captions, str) or not isinstance(captions, Sized) or len(ids) != len(captions):
            raise InputError(f"{len(ids):,} image ids require as many captions, as a list of strings")
        faults = FaultList()
        records = [{"image_id": image, "caption": text} for image, text in zip(ids, captions, strict=True)]
        scored = self.scorer.score(captions_of("captions", enumerate(records, 1), faults), "captions", faults)
        faults.raise_if_any()
        self.counts += torch.as_tensor(scored.counts.sum(axis=0), device=self.counts.device)
        self.skipped += scored.unknown_images

    def compute(self) -> dict[str, torch.Tensor]:
        """Returns the metrics as a mapping from names to 0-dimensional tensors. Values are fractions, and undefined
        values are NaN.
        """
        values = self.metric_set.score(self.counts.cpu().numpy())
        return {name: torch.tensor(float(value), device=self.counts.device) for name, value in values.items()}

    @property
    def signature(self) -> Signature:
        """Signature with the settings that determine the values. The signature contains no image ids, because the
        summed counts do not include them.
        """
        [truth] = self.scorer.truths
        return Signature.of(
            "capscore",
            vocab=truth.vocabulary.identity,
            oracle=truth.oracle.fingerprint,
            world=truth.oracle.world,
            **reading_fields(self.scorer.claims),
            n=int(self.counts[0]),
            skip=int(self.skipped),
        )
