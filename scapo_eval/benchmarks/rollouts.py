"""SCAPO's reward for every response in a rollout file, returned as records with evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.reprs import fields_in_short
from ..files.containers import Warn, warn_user
from ..files.files import display_name
from ..files.source import Input
from ..readers.captions import Captions, caption_blocks
from ..rewarding.reward import FILE_WORDS, SubsentenceReward
from .scoring import ScoredBlock, Scorer, ScoringOptions, Tally, tally


@dataclass(frozen=True)
class RewardScorer(Scorer):
    """Scorer that computes a reward for each response. The scorer counts all responses and, separately, the empty ones.

    Attributes:
        reward: Reward for the responses.
    """

    reward: SubsentenceReward = field(kw_only=True)

    __repr__ = fields_in_short

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return ("responses", "empty")

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`. The evidence contains the rewards
        as columns.
        """
        rewards = self.reward.batch(captions.image_ids, captions.captions)
        empty = [not text for text in captions.captions]
        counts = np.array([(1, int(is_empty)) for is_empty in empty], dtype=np.int64).reshape(-1, 2)
        none, unjudged = np.zeros(0, dtype=np.int64), self.reward.unjudged(captions.captions)
        return ScoredBlock(captions, counts, none, rewards, claims=rewards.claims, unjudged=unjudged)

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Yields the evidence of each response: its reward, its counts and its pieces."""
        captions = block.captions
        for k, result in enumerate(block.evidence.results()):
            text = captions.captions[k]
            yield {
                "line": captions.numbers[k],
                "image_id": captions.image_ids[k],
                "response": text,
                "total": result.total,
                "generated": result.generated,
                "hallucinated": result.hallucinated,
                "covered": result.covered,
                "unknown": result.unknown,
                "parts": [
                    {
                        **part._asdict(),
                        "text": text[part.start : part.end],
                        "claims": {label: FILE_WORDS[verdict] for label, verdict in verdicts.items()},
                    }
                    for part, verdicts in zip(result.parts, result.verdicts, strict=True)
                ],
            }


def reward_file(
    path: Input,
    reward: SubsentenceReward,
    options: ScoringOptions | None = None,
    *,
    write: Callable[[dict[str, Any]], object],
    warn: Warn = warn_user,
) -> tuple[Tally, float]:
    """Computes the reward of every response in a file.

    Args:
        path: Rollouts from any source (``{"image_id", "response"}``, verl, TRL), or captions from any tool.
        reward: Reward for the responses; its settings include ``claims`` and ``any_fingerprint``.
        options: Options for the treatment of faulty records and unknown images, and for the number of processes.
        write: Callback that receives the record of each response, in the order of the file.
        warn: Callback for warnings about damaged input that can still be read.

    Returns:
        Counts (``responses`` and ``empty``) and the sum of the rewards of all responses.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    scorer = RewardScorer((reward.truth,), options.on_unknown_image == "skip", reward=reward)
    total = 0.0

    def keep(block: ScoredBlock) -> None:
        nonlocal total
        total += float(block.evidence.total.sum())
        for record in scorer.records(block):
            write(record)

    sums = tally(
        lambda on_error: caption_blocks(path, rollouts=True, on_error=on_error, warn=warn),
        scorer,
        options,
        source=display_name(path),
        on_block=keep,
    )
    for note in sums.notes:
        warn(note)
    return sums, total
