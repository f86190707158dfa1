"""verifiers (0.4): descriptions of images as a taskset that SCAPO's reward scores.

    PYTHONPATH=examples/recipes vf-eval scapo-captions --env.taskset.data images.jsonl \
        --env.taskset.task.truth truth.npz --env.taskset.task.vocabulary dopa160 ...

Each line of the data has ``image_id``, ``image`` (a file beside the data, or a URL) and, if it differs from PROMPT,
``prompt``. The reward is one number per response, the sum over its pieces; the trace also gets the counts. For credit
per token, use ``scapo_eval.integrations.prime_rl``.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import verifiers.v1 as vf
from pydantic import Field

from scapo_eval import InputError, RewardConfig, SubsentenceReward

__all__ = ["CaptionTaskset"]  # how verifiers finds the taskset

PROMPT = "Describe this image in detail."


class CaptionData(vf.TaskData):
    """One image."""

    image_id: str


class CaptionTaskConfig(vf.TaskConfig):
    """The reward: ground truth and vocabulary as files or names, and the fields of RewardConfig."""

    truth: str = ""
    vocabulary: str = "coco80"
    reward: dict[str, float | str | bool] = Field(default_factory=dict)


class CaptionConfig(vf.TasksetConfig):
    """Settings of the task set. They need defaults, because vf-eval creates them from the id before it sets them."""

    data: Path = Path()
    task: CaptionTaskConfig = CaptionTaskConfig()


@cache
def load_reward(vocabulary: str, truth: str, settings: str) -> SubsentenceReward:
    """Loads the reward once per process."""
    return SubsentenceReward(vocabulary, truth, RewardConfig(**json.loads(settings)))


class CaptionTask(vf.Task[CaptionData, vf.State, CaptionTaskConfig]):
    """Describe an image."""

    @vf.reward
    async def scapo(self, trace: vf.Trace) -> float:
        """Returns the sum of the rewards of the response's pieces."""
        reward = load_reward(self.config.vocabulary, self.config.truth, json.dumps(self.config.reward))
        result = reward([self.data.image_id], [trace.last_reply])[0]
        for name in ("generated", "hallucinated", "covered"):
            trace.record_metric(name, getattr(result, name))
        return result.total


class CaptionTaskset(vf.Taskset[CaptionTask, CaptionConfig]):
    """A file of images."""

    def load(self) -> Iterator[CaptionTask]:
        """Yields one task per line of the data."""
        if self.config.data == Path() or not self.config.task.truth:
            raise InputError("set --env.taskset.data and --env.taskset.task.truth")
        for line in self.config.data.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            content = [
                vf.TextContentPart(text=row.get("prompt", PROMPT)),
                vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url=self._url(row["image"]))),
            ]
            data = CaptionData(prompt=[vf.UserMessage(content=content)], image_id=str(row["image_id"]))
            yield CaptionTask(data, self.config.task)

    def _url(self, image: str) -> str:
        if "://" in image:
            return image
        kind = mimetypes.guess_type(image)[0] or "image/jpeg"
        content = base64.b64encode((self.config.data.parent / image).read_bytes()).decode()
        return f"data:{kind};base64,{content}"
