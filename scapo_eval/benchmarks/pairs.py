"""Preference pairs from sampled responses. A score determines which of two texts about the same image is better.

Whole responses are compared by their caption score, their hallucination rate or SCAPO's reward. Alternatively, two
samples whose texts are the same up to a certain sentence are compared if one continues with present objects and the
other with absent objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any, Literal, get_args

from ..base.errors import FaultList, InputError, check_choice
from ..base.verdicts import Verdict
from ..files.source import Input
from ..matching.vocabulary import Vocabulary
from ..readers.captions_foreign import captions_of
from ..readers.formats import ForeignCaption, open_layout
from ..rewarding.reward import RewardConfig, RewardResult, SubsentenceReward
from ..truths.oracle import PresenceOracle
from .scoring import UnknownImage

By = Literal["cap", "hal", "reward", "sentence"]
"""Score that compares responses. ``sentence`` compares the next sentence after equal text."""

PairFormat = Literal["trl", "llamafactory", "ms-swift"]
"""Framework whose data format is written."""

MIN_GAP: Mapping[By, float] = {"cap": 10.0, "hal": 10.0, "reward": 1.0, "sentence": 1.0}
"""Default minimum gap, in percentage points of Cap. Score and Hal. Rate or in units of reward."""

_PLACEHOLDER = re.compile(r"[ \n]<image>\Z|<image>[ \n]?")
"""Text that some tools write in a prompt in place of the image."""

_CONFIGS: Mapping[By, RewardConfig] = {
    "cap": RewardConfig(level="cap"),
    "hal": RewardConfig(level="hal"),
    "reward": RewardConfig(),
    "sentence": RewardConfig(rule="sentence"),
}


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Settings for the selection of preference pairs.

    Attributes:
        by: Name of the score by which responses are compared.
        min_gap: Minimum difference between the scores of a pair, in the unit of the score. If ``min_gap`` is None, the
            default in MIN_GAP for the score is used. Responses with equal scores never form a pair.
        length_ratio: Maximum ratio of the number of words in the longer text to that in the shorter text.
        max_pairs: Maximum number of pairs per prompt or, if sentences are compared, per prompt and shared text. The
            pairs with the largest differences are kept, and each text occurs in at most one pair.

    Raises:
        InputError: If a value is out of range.
    """

    by: By = "cap"
    min_gap: float | None = None
    length_ratio: float = 1.5
    max_pairs: int = 1

    def __post_init__(self) -> None:
        check_choice("by", self.by, get_args(By))
        if not self.length_ratio >= 1:
            raise InputError(f"length_ratio must be at least 1, got {self.length_ratio}")
        if self.max_pairs < 1:
            raise InputError(f"max_pairs must be at least 1, got {self.max_pairs}")
        if self.min_gap is not None and not self.min_gap >= 0:
            raise InputError(f"min_gap must be at least 0, got {self.min_gap}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Text that may be chosen or rejected.

    Attributes:
        line: Line number of the response in its file.
        text: Full text, including the shared text.
        score: Score as displayed: a caption score or a hallucination rate in percent, or a reward.
        quality: Score, converted if necessary so that higher values are better.
        words: Number of words, separated by white space, in the compared part of the text.
    """

    line: int
    text: str
    score: float
    quality: float
    words: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Preference between two texts about the same image.

    Attributes:
        image_id: Canonical image id.
        prompt: Prompt of both responses.
        chosen, rejected: Better and worse text.
        shared: Number of leading characters that both texts share if sentences are compared, and 0 otherwise.
    """

    image_id: str
    prompt: str
    chosen: Candidate
    rejected: Candidate
    shared: int = 0

    @property
    def gap(self) -> float:
        """Positive difference in quality between the two texts."""
        return self.chosen.quality - self.rejected.quality


@dataclass(frozen=True, slots=True)
class PairTally:
    """Counts of the records in a file and of the resulting pairs.

    Attributes:
        responses, prompts: Numbers of responses and prompts in the file.
        pairs: Number of preference pairs.
        paired_prompts: Number of prompts with at least one pair.
        unknown_images: Number of responses that were omitted because their image has no ground truth.
        skipped: Number of faulty records that were omitted.
    """

    responses: int
    prompts: int
    pairs: int
    paired_prompts: int
    unknown_images: int = 0
    skipped: int = 0


def pairs_of(
    responses: Sequence[ForeignCaption], vocabulary: Vocabulary, oracle: Any, settings: PairSettings
) -> Iterator[Pair]:
    """Yields the preference pairs among sampled responses, prompt by prompt in the order of the file.

    Args:
        responses: All sampled responses. Only samples with the same image and prompt are compared.
        vocabulary, oracle: Arguments of :class:`~scapo_eval.rewarding.reward.SubsentenceReward`.
        settings: Settings for the selection of pairs.

    Raises:
        InputError, InputErrors: If an image is unknown to the oracle.
    """
    reward = SubsentenceReward(vocabulary, oracle, _CONFIGS[settings.by])
    results = reward([response.image_id for response in responses], [response.caption for response in responses])
    groups: dict[tuple[str, str, str], list[Candidate]] = {}
    for response, result in zip(responses, results, strict=True):
        for shared, candidate in _candidates(response.line, result, settings.by):
            groups.setdefault((response.image_id, response.prompt or "", shared), []).append(candidate)
    min_gap = MIN_GAP[settings.by] if settings.min_gap is None else settings.min_gap
    for (image_id, prompt, shared), candidates in groups.items():
        different: dict[str, Candidate] = {}
        for candidate in candidates:
            different.setdefault(candidate.text, candidate)
        pairs = [
            Pair(image_id, prompt, better, worse, len(shared))
            for better, worse in permutations(different.values(), 2)
            if better.quality > worse.quality
            and better.quality - worse.quality >= min_gap
            and max(better.words, worse.words) <= settings.length_ratio * min(better.words, worse.words)
        ]
        pairs.sort(key=lambda pair: -pair.gap)  # stable sort: equal gaps stay in file order
        used: set[str] = set()
        taken = 0
        for pair in pairs:
            texts = {pair.chosen.text, pair.rejected.text}
            if taken < settings.max_pairs and not texts & used:
                used |= texts
                taken += 1
                yield pair


def _candidates(line: int, result: RewardResult, by: By) -> Iterator[tuple[str, Candidate]]:
    """Yields the candidates of a response, each with the text that both members of a pair must share."""
    text = result.response
    if by == "sentence":
        for part, claims in zip(result.parts, result.verdicts, strict=True):
            # good: new objects and no hallucination; bad: any hallucination
            if (part.new and not part.hal and Verdict.UNKNOWN not in claims.values()) or part.hal:
                words = len(text[part.start : part.end].split())
                sentence = text[: part.end].rstrip()
                yield text[: part.start], Candidate(line, sentence, part.reward, part.reward, words)
        return
    if by == "hal" and not result.generated:
        return  # a response without objects has the best Hal. Rate but is not preferred
    total, words = result.total, len(text.split())
    if by == "reward":
        yield "", Candidate(line, text.strip(), total, total, words)
    else:
        score = 100 * (total if by == "cap" else 1 - total)
        yield "", Candidate(line, text.strip(), score, 100 * total, words)


def pair_file(
    path: Input,
    vocabulary: Vocabulary,
    oracle: PresenceOracle,
    settings: PairSettings,
    *,
    prompt: str | None = None,
    skip_bad: bool = False,
    skip_unknown_images: bool = False,
    write: Callable[[Pair], object],
) -> PairTally:
    """Creates preference pairs from a rollout file.

    Args:
        path: Rollouts in any layout that ``scapo-eval reward`` reads.
        vocabulary: Vocabulary to match.
        oracle: Ground truth.
        settings: Settings for the selection of pairs.
        prompt: Prompt for responses whose records contain no prompt.
        skip_bad: True to omit and count faulty records instead of raising an error.
        skip_unknown_images: True to omit responses to images that are unknown to the oracle.
        write: Callback that receives each pair.

    Raises:
        InputErrors, InputError: If the input is invalid, or if a response has no prompt. The error lists the faults by
            file and line.
    """
    responses: list[ForeignCaption] = []
    faults = FaultList()
    unknown_images = 0
    skipped: list[InputError] = []
    on_error = skipped.append if skip_bad else None
    for response in captions_of(open_layout(path, on_error=on_error), on_error=on_error):
        if oracle.find_rows([response.image_id])[0] < 0:
            unknown_images += 1
            if not skip_unknown_images:
                reason = f"unknown image id '{response.image_id}' (not in {oracle.source})"
                faults.add(UnknownImage(reason, path=str(path), line=response.line))
            continue
        asked = _PLACEHOLDER.sub("", response.prompt or prompt or "")  # a pair names its image elsewhere
        if not asked:
            reason = "the record contains no prompt; use --prompt"
            (on_error or faults.add)(InputError(reason, path=str(path), line=response.line))
        else:
            responses.append(ForeignCaption(response.line, response.image_id, response.caption, prompt=asked))
    faults.raise_if_any()
    paired: set[tuple[str, str]] = set()
    pairs = 0
    for pair in pairs_of(responses, vocabulary, oracle, settings):
        write(pair)
        pairs += 1
        paired.add((pair.image_id, pair.prompt))
    prompts = len({(response.image_id, response.prompt) for response in responses})
    return PairTally(len(responses), prompts, pairs, len(paired), unknown_images, len(skipped))


def pair_record(pair: Pair, layout: PairFormat, by: By, image: str) -> dict[str, Any]:
    """Converts a pair to the record format of a training framework, with the scores under ``metadata``.

    Args:
        pair: Pair to convert.
        layout: ``trl``: conversational ``prompt``, ``chosen``, ``rejected`` and ``images`` (DPOTrainer 1.16).
            ``llamafactory``: ShareGPT with ``"ranking": true`` (see DATASET_INFO). ``ms-swift``: ``messages`` that end
            with the chosen answer, and ``rejected_response``.
        by: Name of the score by which the responses were compared.
        image: Path of the image.
    """
    chosen, rejected = pair.chosen.text, pair.rejected.text
    record: dict[str, Any]
    if layout == "trl":
        record = {
            "prompt": [{"role": "user", "content": pair.prompt}],
            "chosen": [{"role": "assistant", "content": chosen}],
            "rejected": [{"role": "assistant", "content": rejected}],
        }
    elif layout == "llamafactory":
        record = {
            "conversations": [{"from": "human", "value": f"<image>{pair.prompt}"}],
            "chosen": {"from": "gpt", "value": chosen},
            "rejected": {"from": "gpt", "value": rejected},
        }
    else:
        record = {
            "messages": [
                {"role": "user", "content": f"<image>{pair.prompt}"},
                {"role": "assistant", "content": chosen},
            ],
            "rejected_response": rejected,
        }
    sides = {"chosen": pair.chosen, "rejected": pair.rejected}
    facts = {
        name: {key: value for key, value in asdict(side).items() if key in ("line", "score", "words")}
        for name, side in sides.items()
    }
    metadata = {"image_id": pair.image_id, "by": by, "gap": pair.gap, "shared_characters": pair.shared, **facts}
    return {**record, "images": [image], "metadata": metadata}


DATASET_INFO: Mapping[str, Any] = {
    "formatting": "sharegpt",
    "ranking": True,
    "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected", "images": "images"},
}
"""LLaMA-Factory's entry in ``dataset_info.json``, except ``file_name``."""
