"""Preference pairs from sampled responses: which of two texts about an image is to be preferred, by a score.

Whole responses by Cap. Score, Hal. Rate or SCAPO's reward; or sentences: two samples that share all text up to a
sentence, which one of them continues with what is in the image, the other with what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, Literal, get_args

from ..base.errors import InputError, InputErrors, check_choice
from ..matching.vocabulary import Vocabulary
from ..readers.captions_foreign import captions_of
from ..readers.formats import ForeignCaption, open_layout
from ..rewarding.reward import RewardConfig, RewardResult, SubsentenceReward
from ..truths.oracle import PresenceOracle

By = Literal["cap", "hal", "reward", "sentence"]
"""What responses are compared by; ``sentence``: the next sentence after the same text."""

PairFormat = Literal["trl", "llamafactory", "ms-swift"]
"""Whose data format pairs are written in."""

MIN_GAP: Mapping[By, float] = {"cap": 10.0, "hal": 10.0, "reward": 1.0, "sentence": 1.0}
"""The default minimum gap: percentage points of Cap. Score and Hal. Rate, units of reward."""

_CONFIGS: Mapping[By, RewardConfig] = {
    "cap": RewardConfig(level="cap"),
    "hal": RewardConfig(level="hal"),
    "reward": RewardConfig(),
    "sentence": RewardConfig(rule="sentence"),
}


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Settings that decide which pairs are made.

    Attributes:
        by: what is compared.
        min_gap: smallest gap of the scores, in their unit; None: MIN_GAP. Equal scores never make a pair.
        length_ratio: the longer of the two has at most this number of times the words of the shorter.
        max_pairs: pairs per prompt (sentences: per prompt and shared text), those with the largest gap; every text is
            in one of them at most.

    Raises:
        InputError: for a value out of range.
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
    """A text that may be chosen or rejected.

    Attributes:
        line: of the response in its file.
        text: all of it, the shared text included.
        score: as it is shown: Cap. Score and Hal. Rate in percent, or a reward.
        quality: the score, higher is better.
        words: number of white-space chunks that are compared.
    """

    line: int
    text: str
    score: float
    quality: float
    words: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference.

    Attributes:
        image_id: canonical.
        prompt: what was asked.
        chosen, rejected: the better and the worse text.
        shared: number of characters in which both begin alike (sentences; otherwise 0).
    """

    image_id: str
    prompt: str
    chosen: Candidate
    rejected: Candidate
    shared: int = 0

    @property
    def gap(self) -> float:
        """Difference of the qualities, above 0."""
        return self.chosen.quality - self.rejected.quality


@dataclass(frozen=True, slots=True)
class PairTally:
    """Counts of a file's records by what became of them.

    Attributes:
        responses, prompts: how many were read.
        pairs: how many were made.
        paired_prompts: prompts with at least one pair.
        unknown_images: responses omitted because the truth does not know their image.
    """

    responses: int
    prompts: int
    pairs: int
    paired_prompts: int
    unknown_images: int = 0


def pairs_of(
    responses: Sequence[ForeignCaption], vocabulary: Vocabulary, oracle: Any, settings: PairSettings
) -> Iterator[Pair]:
    """Yields the pairs of sampled responses, prompt by prompt in the order of the file.

    Args:
        responses: all samples; those of one image and prompt are compared with one another.
        vocabulary, oracle: see :class:`~scapo_eval.rewarding.reward.SubsentenceReward`.
        settings: which pairs.

    Raises:
        InputError, InputErrors: for an image that the oracle does not know.
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
        pairs.sort(key=lambda pair: -pair.gap)  # stable: equal gaps in the order of the file
        used: set[str] = set()
        taken = 0
        for pair in pairs:
            texts = {pair.chosen.text, pair.rejected.text}
            if taken < settings.max_pairs and not texts & used:
                used |= texts
                taken += 1
                yield pair


def _candidates(line: int, result: RewardResult, by: By) -> Iterator[tuple[str, Candidate]]:
    """Yields the candidates of a response, each with the text that the other of a pair must share."""
    text = result.response
    if by == "sentence":
        for part, claims in zip(result.parts, result.claims, strict=True):
            # rightly: something new and nothing wrong; wrongly: something that is not there
            if (part.new and not part.hal and "unknown" not in claims.values()) or part.hal:
                words = len(text[part.start : part.end].split())
                sentence = text[: part.end].rstrip()
                yield text[: part.start], Candidate(line, sentence, part.reward, part.reward, words)
        return
    if by == "hal" and not result.generated:
        return  # saying nothing has the best Hal. Rate; it is not preferred to saying something
    total, words = result.total, len(text.split())
    if by == "reward":
        yield "", Candidate(line, text.strip(), total, total, words)
    else:
        score = 100 * (total if by == "cap" else 1 - total)
        yield "", Candidate(line, text.strip(), score, 100 * total, words)


def pair_file(
    path: str | Path,
    vocabulary: Vocabulary,
    oracle: PresenceOracle,
    settings: PairSettings,
    *,
    prompt: str | None = None,
    skip_unknown_images: bool = False,
    write: Callable[[Pair], object],
) -> PairTally:
    """Makes the pairs of a file of rollouts.

    Args:
        path: rollouts in any layout that ``scapo-eval reward`` reads.
        vocabulary, oracle: what is in the images.
        settings: which pairs.
        prompt: what was asked, of responses whose record does not say.
        skip_unknown_images: omit responses to images that the oracle does not know.
        write: called with each pair.

    Raises:
        InputErrors, InputError: for invalid input, with the faults by file and line; a response without a prompt.
    """
    responses: list[ForeignCaption] = []
    faults: list[InputError] = []
    unknown_images = 0
    for response in captions_of(open_layout(path)):
        if response.image_id not in oracle.index:
            unknown_images += 1
            if not skip_unknown_images:
                reason = f"unknown image id '{response.image_id}' (not in {oracle.source})"
                faults.append(InputError(reason, path=str(path), line=response.line))
            continue
        asked = response.prompt or prompt
        if not asked:
            faults.append(InputError("no prompt in the record: give --prompt", path=str(path), line=response.line))
        else:
            responses.append(ForeignCaption(response.line, response.image_id, response.caption, prompt=asked))
    if faults:
        raise InputErrors(faults)
    paired: set[tuple[str, str]] = set()
    pairs = 0
    for pair in pairs_of(responses, vocabulary, oracle, settings):
        write(pair)
        pairs += 1
        paired.add((pair.image_id, pair.prompt))
    prompts = len({(response.image_id, response.prompt) for response in responses})
    return PairTally(len(responses), prompts, pairs, len(paired), unknown_images)


def pair_record(pair: Pair, layout: PairFormat, by: By, image: str) -> dict[str, Any]:
    """Returns a pair as a framework reads it, with the scores under ``metadata``.

    Args:
        pair: the pair.
        layout: ``trl``: conversational ``prompt``, ``chosen``, ``rejected`` and ``images`` (DPOTrainer 1.16);
            ``llamafactory``: ShareGPT with ``"ranking": true`` (see DATASET_INFO); ``ms-swift``: ``messages`` that
            end with the chosen answer, and ``rejected_response``.
        by: what was compared.
        image: path of the image.
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
"""LLaMA-Factory's entry in ``dataset_info.json``, beside ``file_name``."""
