"""What goes wrong while training, seen in a step's metrics: said once in the log, kept in ``metrics.jsonl``."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .config import ALARMS, Config

_log = logging.getLogger(__name__)

_SENTENCE_END = re.compile(r"[.!?\n]+")
_WORD = re.compile(r"\w+")
_DRIFTING = ("length", "cover_rate")


@dataclass
class AlarmWatch:
    """The alarms of a training run.

    Attributes:
        config: settings with the thresholds.
        start: name -> value of the metrics of the first step, which later ones are compared with.
        said: names of the alarms that were said.
    """

    config: Config
    start: dict[str, float] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def check(self, step: int, metrics: Mapping[str, float | None]) -> dict[str, float | None]:
        """Compares a step's metrics with the thresholds; says each alarm the first time that it is raised.

        Args:
            step: number of the step, from 1.
            metrics: its metrics.

        Returns:
            ``alarm_NAME`` -> 1 where it is raised, else 0.
        """
        for name in _DRIFTING:
            if (value := metrics[name]) is not None:
                self.start.setdefault(name, value)
        raised = {name: reason for name, reason in self._reasons(metrics).items() if reason}
        for name in sorted(raised.keys() - self.said):
            _log.warning("step %d: alarm %s: %s", step, name, raised[name])
        self.said |= raised.keys()
        return {f"alarm_{name}": float(name in raised) for name in ALARMS}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"start": self.start, "said": sorted(self.said)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over :meth:`state` of a checkpoint."""
        self.start, self.said = dict(state["start"]), set(state["said"])

    def _reasons(self, metrics: Mapping[str, float | None]) -> dict[str, str]:
        limits, config = self.config.alarms, self.config

        def above(name: str, limit: float, key: str) -> str:
            value = metrics[name]
            return f"{name} is {value:.3f}, {key} = {limit:g}" if value is not None and value > limit else ""

        zero = above("zero_reward_share", limits.zero_reward_share, "alarms.zero_reward_share")
        if metrics["zero_reward_share"] == 1.0:
            zero = "every reward is 0: nothing to learn from"
        repeated = max(("repeated_sentence_share", "repeated_ngram_share"), key=lambda name: metrics[name] or 0.0)
        return {
            "repetition": above(repeated, limits.repeated_share, "alarms.repeated_share"),
            "no_claims": above("without_claim_share", limits.without_claim_share, "alarms.without_claim_share"),
            "length": self._length(metrics["length"]),
            "cover": self._cover(metrics["cover_rate"]),
            "truncated": above("truncated_share", limits.truncated_share, "alarms.truncated_share"),
            "zero_reward": zero,
            "kl": above("kl", config.loss.kl_alarm, "loss.kl_alarm"),
            "mismatch": above("mismatch", config.rollout.mismatch_alarm, "rollout.mismatch_alarm"),
        }

    def _length(self, value: float | None) -> str:
        start, limit = self.start.get("length"), self.config.alarms.length_factor
        if value is None or not start or start / limit <= value <= start * limit:
            return ""
        return f"length went from {start:.0f} to {value:.0f} tokens, alarms.length_factor = {limit:g}"

    def _cover(self, value: float | None) -> str:
        start, limit = self.start.get("cover_rate"), self.config.alarms.cover_share
        if value is None or not start or value >= start * limit:
            return ""
        return f"cover_rate went from {start:.3f} to {value:.3f}, alarms.cover_share = {limit:g}"


def repeats_sentence(text: str) -> bool:
    """Whether a sentence of three words or more is there twice."""
    sentences = [" ".join(_WORD.findall(each.lower())) for each in _SENTENCE_END.split(text)]
    long = [each for each in sentences if each.count(" ") >= 2]
    return len(set(long)) < len(long)


def repeats_ngram(text: str, size: int = 4, times: int = 3) -> bool:
    """Whether some words in a row are there so many times."""
    words = _WORD.findall(text.lower())
    counts = Counter(zip(*(words[k:] for k in range(size)), strict=False))
    return any(count >= times for count in counts.values())
