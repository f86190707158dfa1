"""The reward as a single function that matches the reward interfaces of several libraries and depends on none of these
libraries.

:func:`reward_fn` returns one number per response, the sum over its pieces, for use in logs, evaluation and
response-level training. Token-level credit requires an adapter (docs/integrations.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..files.json_text import parse_json
from ..matching.vocabulary import VocabularyGiven
from ..truths.oracles import AnyOracle
from .batch import count_faulty, log_metrics
from .reward import RewardColumns, RewardConfig, SubsentenceReward

IMAGE_ID = "image_id"
"""Name of the column or key that contains the image id of a response."""


def reward_fn(
    vocabulary: VocabularyGiven,
    truth: AnyOracle | str | Path,
    config: RewardConfig | None = None,
    *,
    name: str = "scapo",
    **settings: Any,
) -> RewardFunction:
    """Returns a reward function for TRL, ms-swift, verifiers and lighteval. Each library selects the arguments of the
    function by name.

    Args:
        vocabulary: Labels and their aliases, in any form that :meth:`scapo_eval.Vocabulary.of` accepts.
        truth: Ground truth, given as a file or as one of the types that :mod:`scapo_eval.truths.oracles` lists.
        config: Settings of the reward (Eq. 1). ``RewardConfig.robust()`` is recommended for long runs.
        name: Name under which libraries log the reward.
        settings: Fields of RewardConfig, which can be given instead of ``config``.

    Raises:
        InputError: If a file or name is not found, if a setting does not exist, or if both ``config`` and ``settings``
            are given.

    Example:
        >>> import scapo_eval
        >>> reward = scapo_eval.reward_fn("coco80", {7: ["dog"]})
        >>> reward(completions=["There is a dog.", "A cat sleeps."], image_id=[7, 7])
        [1.0, -1.0]
    """
    if config is not None and settings:
        raise InputError("specify either config or its settings")
    config = RewardConfig(**settings) if config is None else config
    reward = SubsentenceReward(vocabulary, truth, config, on_error="zero")
    return RewardFunction(reward, name)


class RewardFunction:
    """A callable that returns one reward per response; see :func:`reward_fn`.

    Attributes:
        reward: Reward with which the responses are scored.
    """

    def __init__(self, reward: SubsentenceReward, name: str = "scapo") -> None:
        self.reward = reward
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.__name__}: {self.reward.signature}>"

    def __call__(
        self,
        completions: Any = None,
        *,
        completion: Any = None,
        doc: Any = None,
        model_response: Any = None,
        **given: Any,
    ) -> Any:
        """Returns the rewards of responses. Each library passes only some of the arguments.

        Args:
            completions: The n responses, as texts or lists of messages (TRL, ms-swift, verifiers). Only the messages of
                the model are scored. The argument ``image_id`` contains the n image ids. Without this argument, each
                image id is in the response's element of ``infos`` or ``answers`` (verifiers).
            completion: A single response (verifiers). The image id is in ``info`` or ``answer``.
            doc: Sample (lighteval). The image id is in ``doc.specific``.
            model_response: Response to the sample (lighteval).
            given: Further columns of the data set, of which only the image ids and ``log_metric`` (TRL) are used.

        Returns:
            A list of n numbers, with None for rows that cannot be scored, or 0.0 if ``infos`` contains the image ids.
            For a single response, the result is one number, which is 0.0 if the response cannot be scored.

        Raises:
            InputError: If the image id or the response is missing, if a column is not a list or has another length, or
                if too many consecutive rows are faulty; see :func:`~scapo_eval.rewarding.batch.count_faulty`.
        """
        if completions is not None:
            images = given.get(IMAGE_ID)
            if images is None and "infos" in given:
                return self._group(_images_of_group(given), completions)
            rows = None if images is None else _rows(IMAGE_ID, images)
            if rows is None or (rows and all(image is None for image in rows)):
                found = f"found: {', '.join(given) or 'none'}; TRL requires remove_unused_columns=False"
                raise InputError(f"missing column '{IMAGE_ID}' in the dataset ({found})")
            return self._many(rows, _rows("completions", completions), given.get("log_metric"))
        if doc is not None:
            specific = getattr(doc, "specific", None)
            image = specific.get(IMAGE_ID) if isinstance(specific, Mapping) else None
            return self._one(image, _first_text(model_response))
        if completion is None:
            raise InputError("expected completions and image_id, completion and info, or doc and model_response")
        image = image_id_of(given.get("info"), given.get(IMAGE_ID), given.get("answer"))
        return self._one(image, text_of_completion(completion))

    def _many(self, images: Sequence[object], completions: Sequence[Any], log: Any) -> list[float | None]:
        columns = self.reward.batch(images, [text_of_completion(completion) for completion in completions])
        count_faulty(columns)
        if log is not None:
            for key, value in log_metrics(columns).items():
                log(f"{self.__name__}/{key.removeprefix('scapo/')}", value)
        return totals(columns)

    def _group(self, images: Sequence[object], completions: Any) -> list[float]:
        """Returns the rewards of verifiers' responses, which verifiers sums up, so that none of them may be None."""
        if images and all(image is None for image in images):
            raise InputError(f"missing key '{IMAGE_ID}' in infos and answers")
        return [total or 0.0 for total in self._many(images, _rows("completions", completions), None)]

    def _one(self, image: object, response: object) -> float:
        if image is None:
            raise InputError(f"missing key '{IMAGE_ID}' beside the response")
        columns = self.reward.batch([image], [response], whole=False)
        count_faulty(columns)
        return float(columns.total[0])

    def compute(self, model_response: Any = None, doc: Any = None, **given: Any) -> float:
        """Returns the reward of one response. lighteval calls this method on its metrics, for which RewardFunction must
        be registered as a subclass of lighteval's ``SampleLevelComputation``.
        """
        return float(self(doc=doc, model_response=model_response, **given))


_MODEL_ROLES = (None, "assistant", "model", "gpt")
"""Roles of the model in OpenAI's, Google's and ShareGPT's messages."""


def totals(columns: RewardColumns) -> list[float | None]:
    """Returns the total reward of each response, or None for faulty rows."""
    return [None if k in columns.errors else total for k, total in enumerate(columns.total.tolist())]


def text_of_completion(completion: Any) -> object:
    """Returns the text of a completion, which is a string or a list of messages.

    Only messages of the model are part of the text, not those of tools and users. Messages without a role are messages
    of the model. Values that are neither strings nor lists of messages are returned unchanged, and are therefore faulty
    rows.
    """
    if not isinstance(completion, list):
        return completion
    try:
        return "\n".join(_text_of(message) for message in completion if message.get("role") in _MODEL_ROLES)
    except (AttributeError, TypeError):
        return completion


def _text_of(message: Any) -> str:
    content = message.get("content") or ""
    parts = [content] if isinstance(content, str) else content
    return "".join(part if isinstance(part, str) else part.get("text") or "" for part in parts)


def _rows(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name}: expected a list with one value per response, not {type(values).__name__}")
    return list(values)


def image_id_of(info: object, *others: object) -> object:
    """Returns the image id in a response's ``info``, which verifiers' data sets may contain as JSON, or else the first
    of the other values that is not missing. Returns None if all are missing.

    verifiers sets a missing ``answer`` to an empty string.
    """
    if isinstance(info, str):
        with suppress(ValueError):
            info = parse_json(info.encode())
    images = (info.get(IMAGE_ID) if isinstance(info, Mapping) else None, *others)
    return next((image for image in images if image is not None and str(image).strip()), None)  # 0 is an id


def _images_of_group(given: Mapping[str, Any]) -> list[object]:
    infos = _rows("infos", given["infos"])
    answers = _rows("answers", given.get("answers") or [None] * len(infos))
    if len(infos) != len(answers):
        raise InputError(f"{len(infos)} infos for {len(answers)} answers")
    return [image_id_of(info, answer) for info, answer in zip(infos, answers, strict=True)]


def _first_text(response: Any) -> object:
    """Returns the first text in a ModelResponse of lighteval."""
    texts = getattr(response, "final_text", None) or getattr(response, "text", response)
    return texts[0] if isinstance(texts, (list, tuple)) and texts else texts
