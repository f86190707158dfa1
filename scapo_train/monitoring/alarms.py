"""Alarms for problems that the metrics of a training step indicate. Alarms are logged once and recorded in
``metrics.jsonl``.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..config import ALARMS, Config

_log = logging.getLogger(__name__)

_SENTENCE_END = re.compile(r"[.!?\n]+")
_WORD = re.compile(r"\w+")
_DRIFTING = ("length", "cover_rate")


@dataclass(frozen=True)
class Alarm:
    """Alarm for a problem indicated by the metrics of a step.

    Attributes:
        name: Name of the alarm in :data:`~scapo_train.config.ALARMS`.
        metric: Name of the metric that raised the alarm.
        value: Value of the metric.
        threshold: Value of the metric at which the alarm is raised.
        setting: Name and value of the setting that determines the threshold.
        start: Value of the metric in the first step, to which relative thresholds refer.
    """

    name: str
    metric: str
    value: float
    threshold: float
    setting: str
    start: float | None = None

    def __str__(self) -> str:
        if self.metric == "zero_reward_share" and self.value == 1.0:
            return "every reward is 0: nothing to learn from"
        digits = 0 if self.metric == "length" else 3
        if self.start is not None:
            unit = " tokens" if self.metric == "length" else ""
            return f"{self.metric} went from {self.start:.{digits}f} to {self.value:.{digits}f}{unit}, {self.setting}"
        return f"{self.metric} is {self.value:.3f}, {self.setting}"


@dataclass
class AlarmWatch:
    """Alarms of a training run.

    Attributes:
        config: Settings with the thresholds.
        start: Metrics of the first step by name, for comparison with later steps.
        said: Names of the alarms that have been logged.
        raised: Currently raised alarms by name.
        began: Currently raised alarms that were not raised in the previous step.
    """

    config: Config
    start: dict[str, float] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    raised: dict[str, Alarm] = field(default_factory=dict)
    began: list[Alarm] = field(default_factory=list)

    def check(self, step: int, metrics: Mapping[str, float | None]) -> dict[str, float | None]:
        """Compares a step's metrics with the thresholds, and logs each alarm when it is first raised.

        Args:
            step: Number of the step, starting at 1.
            metrics: Metrics of the step.

        Returns:
            Mapping from ``alarm_NAME`` to 1 if the alarm is raised and 0 otherwise.
        """
        for name in _DRIFTING:
            if (value := metrics[name]) is not None:
                self.start.setdefault(name, value)
        before, self.raised = self.raised, {alarm.name: alarm for alarm in self._alarms(metrics)}
        self.began = [alarm for name, alarm in self.raised.items() if name not in before]
        for name in sorted(self.raised.keys() - self.said):
            _log.warning("step %d: alarm %s: %s", step, name, self.raised[name])
        self.said |= self.raised.keys()
        return {f"alarm_{name}": float(name in self.raised) for name in ALARMS}

    def state(self) -> dict[str, Any]:
        """Returns the state that is saved in a checkpoint."""
        raised = {name: asdict(alarm) for name, alarm in self.raised.items()}
        return {"start": self.start, "said": sorted(self.said), "raised": raised}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the output of :meth:`state` from a checkpoint."""
        self.start, self.said = dict(state["start"]), set(state["said"])
        self.raised = {name: Alarm(**alarm) for name, alarm in state.get("raised", {}).items()}

    def _alarms(self, metrics: Mapping[str, float | None]) -> Iterator[Alarm]:
        limits = self.config.alarms
        repeated = max(("repeated_sentence_share", "repeated_ngram_share"), key=lambda name: metrics[name] or 0.0)
        for name, metric, limit, setting in (
            ("repetition", repeated, limits.repeated_share, "alarms.repeated_share"),
            ("no_claims", "without_claim_share", limits.without_claim_share, "alarms.without_claim_share"),
            ("truncated", "truncated_share", limits.truncated_share, "alarms.truncated_share"),
            ("zero_reward", "zero_reward_share", limits.zero_reward_share, "alarms.zero_reward_share"),
            ("kl", "kl", self.config.loss.kl_alarm, "loss.kl_alarm"),
            ("mismatch", "mismatch", self.config.rollout.mismatch_alarm, "rollout.mismatch_alarm"),
        ):
            value = metrics[metric]
            if value is not None and (value > limit or (name == "zero_reward" and value == 1.0)):
                yield Alarm(name, metric, value, limit, f"{setting} = {limit:g}")
        value, start, factor = metrics["length"], self.start.get("length"), limits.length_factor
        if value is not None and start and not start / factor <= value <= start * factor:
            limit = start * factor if value > start else start / factor
            yield Alarm("length", "length", value, limit, f"alarms.length_factor = {factor:g}", start)
        value, start, share = metrics["cover_rate"], self.start.get("cover_rate"), limits.cover_share
        if value is not None and start and value < start * share:
            yield Alarm("cover", "cover_rate", value, start * share, f"alarms.cover_share = {share:g}", start)


def repeats_sentence(text: str) -> bool:
    """Returns True if a sentence with at least three words occurs more than once in the text."""
    sentences = [" ".join(_WORD.findall(sentence.lower())) for sentence in _SENTENCE_END.split(text)]
    long = [sentence for sentence in sentences if sentence.count(" ") >= 2]
    return len(set(long)) < len(long)


def repeats_ngram(text: str, size: int = 4, times: int = 3) -> bool:
    """Returns True if the same ``size`` consecutive words occur at least ``times`` times in the text."""
    words = _WORD.findall(text.lower())
    counts = Counter(zip(*(words[k:] for k in range(size)), strict=False))
    return any(count >= times for count in counts.values())
