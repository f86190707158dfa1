"""Prompts and responses, including the selection of prompts for each step and the preparation of pictures and texts for
the model.

The order of prompts depends only on the seed and the step. A resumed run, or a run with another number of ranks,
therefore processes the same prompts in the same steps.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from numpy.typing import NDArray
from torch import Tensor

from scapo_eval.base.errors import FaultList, InputError, MissingExtra, in_one_line
from scapo_eval.base.ids import canonical_image_id
from scapo_eval.engines.hf import without_second_bos
from scapo_eval.engines.images import ImageFault, load
from scapo_eval.files.json_text import iter_records
from scapo_eval.truths.oracle import PresenceOracle

_log = logging.getLogger(__name__)

COMPARED = 2048
"""Maximum number of prompts whose pictures are compared in size."""

_PLACEHOLDER = "<image>"
"""Text that other tools write in place of a picture."""


@dataclass(frozen=True)
class PromptRecord:
    """One line of a prompts file.

    Attributes:
        pictures: Picture files, in the order of their placeholders in the chat.
        image_id: Canonical id of the image whose ground truth determines the rewards.
        messages: Chat with a part ``{"type": "image"}`` in place of each picture.
    """

    pictures: tuple[str, ...]
    image_id: str
    messages: tuple[dict[str, Any], ...]

    @property
    def path(self) -> str:
        """Name by which messages refer to the prompt: the first picture or, if there are no pictures, the image id."""
        return self.pictures[0] if self.pictures else f"image {self.image_id}"

    @staticmethod
    def of(pictures: Sequence[str], image_id: str, text: str) -> PromptRecord:
        """Returns a prompt whose pictures precede its text."""
        parts = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
        return PromptRecord(tuple(pictures), image_id, ({"role": "user", "content": parts},))


@dataclass(frozen=True)
class Prompt:
    """Prompt prepared for the model.

    Attributes:
        index: Index of the prompt's line in the prompts file.
        source: Parsed line of the prompts file.
        ids: (P,) token ids, including image tokens.
        inputs: Other inputs of the model's forward pass, such as ``pixel_values``.
    """

    index: int
    source: PromptRecord
    ids: Tensor
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True)
class Response:
    """Sampled response.

    Attributes:
        ids: Token ids, including the end of sequence.
        finished: True if the response ended with an end-of-sequence token, False if it reached the length limit.
        logprobs: Log-probabilities of the tokens at sampling time, or None if the policy itself sampled them.
        age: Number of steps between sampling and the update with this response.
    """

    ids: list[int]
    finished: bool
    logprobs: NDArray[np.float32] | None = field(default=None, compare=False)
    age: int = field(default=0, compare=False)


def read_prompts(
    path: str | Path, images: str = "", oracle: PresenceOracle | None = None, *, skip_unknown: bool = False
) -> list[PromptRecord]:
    """Reads the prompts in a prompts file.

    Args:
        path: Path of a JSON Lines file with the keys ``image``, ``image_id`` and ``prompt``. A line may contain
            ``images`` (a list, possibly empty) in place of ``image``, and ``messages`` (a chat) instead of ``prompt``.
            If there is exactly one image and its name contains the id, ``image_id`` is optional.
        images: Folder against which relative image names are resolved, or an empty string for the folder of the prompts
            file.
        oracle: Ground truth that must contain all images.
        skip_unknown: True to omit, with a warning, prompts whose image is not in the ground truth.

    Raises:
        InputErrors: If lines are invalid, or ids are not in the ground truth. The error lists each fault with its line.
    """
    root = Path(images) if images else Path(path).parent
    faults, sources, skipped = FaultList(), list[PromptRecord](), 0
    for number, record in iter_records(path):
        try:
            source = _source(record, root)
            if oracle is not None and source.image_id not in oracle.index:
                if skip_unknown:
                    skipped += 1
                    continue
                oracle.row(source.image_id)
            sources.append(source)
        except InputError as error:
            faults.add(InputError(error.reason, path=str(path), line=number))
        except ValueError as error:
            faults.add(InputError(f"'image_id' {error}", path=str(path), line=number))
    faults.raise_if_any()
    if skipped:
        _log.warning("%s: %d prompts omitted: their images are not in the ground truth", path, skipped)
    if not sources:
        raise InputError("no prompts found" + (" with ground truth for their image" if skipped else ""), path=str(path))
    return sources


@dataclass(frozen=True)
class PreferencePair:
    """One line of a pairs file: a prompt with a preferred and a rejected response.

    Attributes:
        line: Number of the line in the file.
        source: Prompt of the pair.
        chosen: Preferred response.
        rejected: Rejected response.
    """

    line: int
    source: PromptRecord
    chosen: str
    rejected: str


def read_pairs(path: str | Path, images: str = "") -> list[PreferencePair]:
    """Reads preference pairs in TRL's format, which ``scapo-eval pairs --format trl`` writes.

    Args:
        path: Path of a JSON Lines file whose lines have the form ``{"images", "prompt": [turns], "chosen": [turn],
            "rejected": [turn]}``.
        images: Folder against which relative image names are resolved, or an empty string for the folder of the pairs
            file.

    Raises:
        InputErrors: If lines are invalid. The error lists each fault with its line.
    """
    root = Path(images) if images else Path(path).parent
    faults, pairs = FaultList(), list[PreferencePair]()
    for number, record in iter_records(path):
        try:
            chosen, rejected = (_answer(record, key) for key in ("chosen", "rejected"))
            if chosen == rejected:
                raise InputError("'chosen' and 'rejected' are identical, so there is no preference")
            pairs.append(PreferencePair(number, _source(_as_prompt(record), root), chosen, rejected))
        except InputError as error:
            reason = error.reason.replace("'messages'", "'prompt'")  # the key of the turns in a file of pairs
            faults.add(InputError(reason, path=str(path), line=number))
        except ValueError as error:
            faults.add(InputError(f"'image_id' of 'metadata' {error}", path=str(path), line=number))
    faults.raise_if_any()
    if not pairs:
        raise InputError("no pairs found", path=str(path))
    return pairs


def _answer(record: Any, key: str) -> str:
    """Returns the text of the only turn in the preferred or rejected response of a line."""
    turns = record.get(key) if isinstance(record, dict) else None
    if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], dict):
        content = turns[0].get("content")
        if isinstance(content, str) and content.strip() and turns[0].get("role") == "assistant":
            return content
    reason = f"'{key}' must be one turn of the assistant with a text: write pairs by scapo-eval pairs --format trl"
    raise InputError(reason)


def _as_prompt(record: Any) -> dict[str, Any]:
    """Converts the prompt of a pair to a record of a prompts file. The image id of a pair is only used as a name for
    the samples that are written.
    """
    if not isinstance(record.get("prompt"), list):
        raise InputError("'prompt' must be a list of turns: write pairs by scapo-eval pairs --format trl")
    images, metadata = record.get("images"), record.get("metadata")
    image_id = metadata.get("image_id") if isinstance(metadata, dict) else None
    if image_id is None:
        image_id = images[0] if isinstance(images, list) and images else 0
    return {"images": images, "messages": record.get("prompt"), "image_id": image_id}


def check_pictures(sources: Sequence[PromptRecord]) -> None:
    """Raises an error if no prompt has all its pictures.

    Raises:
        InputError: If the pictures of all prompts are missing.
    """
    if not any(all(map(os.path.isfile, source.pictures)) for source in sources):
        reason = f"file not found, like all other {len(sources):,} pictures: check data.images"
        raise InputError(reason, path=sources[0].path)


def _string(record: Any, key: str) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"'{key}' contains a NUL")
    if not isinstance(value, str) or not value:
        actual = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"'{key}' must be a non-empty string (found: {actual})")
    return value


def _source(record: Any, root: Path) -> PromptRecord:
    """Converts a parsed line of a prompts file to a prompt. Relative image names are resolved against a folder."""
    images = _images(record)
    pictures = tuple(str(root / image) for image in images)
    if "messages" in record:
        messages = _chat(record, len(pictures))
    else:
        messages = PromptRecord.of(pictures, "", _text(_string(record, "prompt"), "'prompt'")).messages
    if len(images) != 1 and "image_id" not in record:
        raise InputError(
            "'image_id' must name the image for the reward, because the record does not have exactly one image"
        )
    return PromptRecord(
        pictures, canonical_image_id(record["image_id"] if "image_id" in record else images[0]), messages
    )


def _images(record: Any) -> list[str]:
    """Returns the image names in a line of a prompts file."""
    if not isinstance(record, dict) or "images" not in record:
        return [_string(record, "image")]
    names = record["images"]
    if "image" in record or not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError("'images' must be a list of strings, in place of 'image'")
    return names


def _text(text: str, where: str) -> str:
    if _PLACEHOLDER in text:
        way = 'omit it (pictures come before the text), or use "messages" with a part {"type": "image"} there'
        raise InputError(
            f"{where} contains a literal {_PLACEHOLDER}, which no supported model reads as its picture: {way}"
        )
    return text


def _chat(record: dict[str, Any], pictures: int) -> tuple[dict[str, Any], ...]:
    """Returns the chat of a line in a normalized form, in which the content of each message is a list of parts with one
    placeholder per picture.
    """
    messages = record["messages"]
    if "prompt" in record or not isinstance(messages, list) or not messages:
        raise InputError("'messages' must be a list of turns, in place of 'prompt'")
    turns = []
    for k, message in enumerate(messages, 1):
        where = f"'messages' {k}"
        role, content = (message.get(key) if isinstance(message, dict) else None for key in ("role", "content"))
        if role not in ("system", "user", "assistant"):
            raise InputError(f"{where}: 'role' must be system, user or assistant")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list) or not parts:
            raise InputError(f"{where}: 'content' must be a string or a list of parts")
        turns.append({"role": role, "content": [_part(part, where) for part in parts]})
    if turns[-1]["role"] != "user":
        raise InputError("'messages' must end with a turn of the user, which the response answers")
    places = sum(part["type"] == "image" for message in turns for part in message["content"])
    if not places and pictures:
        first = next(message for message in turns if message["role"] == "user")
        first["content"] = [*({"type": "image"} for _ in range(pictures)), *first["content"]]
    elif places != pictures:
        raise InputError(f"'messages' have places for {places} pictures, but there are {pictures}")
    return tuple(turns)


def _part(part: Any, where: str) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image" and len(part) == 1:
        return {"type": "image"}
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": _text(part["text"], where)}
    forms = '{"type": "text", "text": "..."} or {"type": "image"}'
    raise InputError(f"{where}: a part must be {forms}, its file named in 'images'")


def chat_text(processor: Any, source: PromptRecord) -> str:
    """Returns the text of a prompt according to the model's chat template.

    Raises:
        InputError: If the model has no chat template, or the template does not support this sequence of turns.
    """
    try:
        turns = list(source.messages)
        text: str = processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(f"the model's chat template fails: {in_one_line(error)}", path=source.path) from None
    return text


def indices_of_step(step: int, size: int, per_step: int, seed: int, *, source: str | None = None) -> list[int]:
    """Returns the indices of a step's prompts. In each epoch, the prompts are permuted anew, and prompts that are left
    over after the last full step are omitted.

    Args:
        step: Number of the step, starting at 0.
        size: Number of prompts.
        per_step: Number of prompts per step.
        seed: Seed for the permutations.
        source: Name of the prompts file, for messages.

    Raises:
        InputError: If the file contains fewer prompts than one step needs.
    """
    if size < per_step:
        raise InputError(f"{size} prompts, but data.prompts_per_step is {per_step}", path=source)
    epoch, place = divmod(step, size // per_step)
    order = np.random.default_rng([seed, epoch]).permutation(size)
    return list(order[place * per_step : (place + 1) * per_step].tolist())


class Prompts:
    """Preparation of prompts for the model. The next prompts are prepared during the current step.

    Args:
        sources: Records of the prompts file.
        processor: Processor of the model.
        max_bad: Maximum number of prompts with unreadable images. A value below 1 is interpreted as a share of the
            prompts.
        longest: Maximum number of tokens in a prompt, or None for no limit.
        look: Function that reads a picture from a file.
        workers: Number of prompts that are prepared at the same time. The results do not depend on this number.
    """

    def __init__(
        self,
        sources: Sequence[PromptRecord],
        processor: Any,
        max_bad: float,
        longest: int | None = None,
        look: Callable[[str], Any] = load,
        workers: int = 1,
    ) -> None:
        self.sources = sources
        self.bad: set[int] = set()
        self.refused: dict[int, InputError] = {}
        self._processor, self._look = processor, look
        self._max_bad, self.longest = max_bad, longest
        self._workers = ThreadPoolExecutor(workers)
        self._next: tuple[tuple[int, ...], list[Future[Prompt | str | InputError]]] = (), []

    def take(self, indices: Sequence[int], following: Sequence[int] = (), *, check: bool = True) -> list[Prompt]:
        """Returns the prompts of a step. Prompts with unreadable pictures are omitted and recorded in the attribute
        ``bad``, and prompts that cannot be used, in the attribute ``refused``.

        Args:
            indices: Indices of the prompts.
            following: Indices of the prompts that the next call will request and that are prepared in advance.
            check: True to call :meth:`check_bad`.

        Raises:
            InputError: If ``check`` is True and too many pictures are unreadable or a prompt is refused.
        """
        wanted = tuple(indices)
        pending = self._next[1] if self._next[0] == wanted else self._begun(wanted)
        made = {index: future.result() for index, future in zip(wanted, pending, strict=True)}
        ready = [prompt for prompt in made.values() if isinstance(prompt, Prompt)]
        faults = {index: fault for index, fault in made.items() if isinstance(fault, str)}
        for index in sorted(faults.keys() - self.bad):  # prompts prepared in advance count later
            _log.warning("omitted: %s", faults[index])
        self.bad |= faults.keys()
        self.refused |= {index: error for index, error in made.items() if isinstance(error, InputError)}
        self._next = tuple(following), self._begun(following)
        if check:
            self.check_bad()
        return ready

    def check_bad(self) -> None:
        """Checks the number of prompts with unreadable pictures, and that no prompt is refused.

        Raises:
            InputError: If a prompt is refused, if more than ``max_bad`` prompts have unreadable pictures, or if the
                pictures of all prompts are unreadable.
        """
        self.check_refused()
        most = self._max_bad if self._max_bad >= 1 else self._max_bad * len(self.sources)
        if len(self.bad) > most:
            first = self.sources[min(self.bad)].path
            reason = f"cannot be read, like {len(self.bad) - 1} others: more than data.max_bad = {self._max_bad:g}"
            raise InputError(reason, path=first)
        if len(self.bad) == len(self.sources):
            reason = f"cannot be read, like all other pictures ({len(self.sources):,} in total): no prompt is left"
            raise InputError(reason, path=self.sources[0].path)

    def check_refused(self) -> None:
        """Checks that no prompt is refused.

        Raises:
            InputError: If a prompt is too long, or the model's chat template does not support it.
        """
        if self.refused:
            raise self.refused[min(self.refused)]

    def largest(self) -> Prompt | None:
        """Returns the readable prompt with the most pixels and, among these, the one with the longest text. If there
        are more than :data:`COMPARED` prompts, this many prompts at equal distances are compared. The result is None if
        no prompt is readable.

        Raises:
            InputError: If this prompt is too long, or the model's chat template does not support it.
        """

        def size(index: int) -> tuple[int, int]:
            source = self.sources[index]
            return sum(map(_pixels, source.pictures)), len(str(source.messages))

        order = sorted(range(0, len(self.sources), -(-len(self.sources) // COMPARED)), key=size, reverse=True)
        made = next((made for made in map(self._made, order) if not isinstance(made, str)), None)
        if isinstance(made, InputError):
            raise made
        return made

    def close(self) -> None:
        """Shuts down the threads that prepare prompts."""
        self._workers.shutdown(cancel_futures=True)

    def _begun(self, indices: Sequence[int]) -> list[Future[Prompt | str | InputError]]:
        return [self._workers.submit(self._made, index) for index in indices]

    def _made(self, index: int) -> Prompt | str | InputError:
        """Returns the prepared prompt, a message about its unreadable picture, or the error for another fault."""
        source = self.sources[index]
        try:
            text = chat_text(self._processor, source)
        except InputError as error:
            return error
        settings = without_second_bos(self._processor, text)
        try:
            pictures = [self._look(picture) for picture in source.pictures]
            made = self._processor(text=[text], images=pictures or None, return_tensors="pt", **settings)
        except MissingExtra:
            raise
        except ValueError as error:  # ImageFault, or a shape that the processor rejects
            return str(error) if isinstance(error, ImageFault) else f"{source.path}: {error}"
        if self.longest is not None and made["input_ids"].shape[1] > self.longest:
            reason = f"its prompt has {made['input_ids'].shape[1]} tokens, but besides rollout.max_new_tokens for the "
            reason += f"response there is room for {self.longest}"
            return InputError(reason, path=source.path)
        inputs = {name: tensor for name, tensor in made.items() if name not in ("input_ids", "attention_mask")}
        return Prompt(index, source, made["input_ids"][0], inputs)


def _pixels(path: str) -> int:
    """Returns the number of pixels in the header of a picture, or 0 if the file is not a readable picture."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warning about the number of pixels
            with open(path if os.path.isfile(path) else os.devnull, "rb") as file, Image.open(file) as picture:
                return picture.width * picture.height
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return 0


def seed_of(*parts: int) -> int:
    """Combines several numbers into one seed. Sequences that differ only in trailing zeros have different seeds."""
    return int(np.random.SeedSequence([len(parts), *parts]).generate_state(1, np.uint64)[0] >> 1)


def seeded(device: torch.device, *parts: int) -> torch.Generator:
    """Returns a random number generator whose state depends only on the given numbers."""
    return torch.Generator(device).manual_seed(seed_of(*parts))
