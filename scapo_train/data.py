"""Prompts and responses: which prompts a step takes, and how a picture and a text become a model's input.

The order is a function of the seed and the step alone, so a resumed run, and one on another number of
ranks, sees the same prompts in the same steps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scapo_eval.engines.images import ImageFault, load
from scapo_eval.errors import InputError, MissingExtra
from scapo_eval.ids import canonical_image_id
from scapo_eval.io.files import FaultList, iter_records
from scapo_eval.oracle import PresenceOracle

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """One line of a prompts file: where the picture lies, its canonical id, and the text."""

    path: str
    image_id: str
    text: str


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model takes it.

    Attributes:
        index: position of its line in the prompts file.
        source: the line.
        ids: (P,) token ids, those of the image included.
        pixels: (patches, dim) of the image, as the processor packs them.
        grid: (3,) number of patches in time, height and width.
    """

    index: int
    source: Source
    ids: Tensor
    pixels: Tensor
    grid: Tensor


@dataclass(frozen=True)
class Response:
    """A sampled response.

    Attributes:
        ids: token ids, the end of sequence included.
        finished: whether it ended by itself, not at the length limit.
        logprobs: log-probabilities of the tokens when they were sampled, by an engine that is not the policy itself.
    """

    ids: list[int]
    finished: bool
    logprobs: NDArray[np.float32] | None = field(default=None, compare=False)


def read_prompts(
    path: str | Path, images: str = "", oracle: PresenceOracle | None = None, *, skip_unknown: bool = False
) -> list[Source]:
    """Reads training prompts.

    Args:
        path: file with JSON Lines of ``{"image", "image_id", "prompt"}``; ``image_id`` may be left out where the
            image's name says it.
        images: folder of relative image names; empty: the file's own.
        oracle: truth that must know every image.
        skip_unknown: whether prompts whose image the truth does not know are left out, with a warning.

    Raises:
        InputErrors: faulty lines, ids that the oracle does not know, each with its line.
    """
    root = Path(images) if images else Path(path).parent
    faults, found, skipped = FaultList(), list[Source](), 0
    for number, record in iter_records(path):
        try:
            image, text = (_string(record, key) for key in ("image", "prompt"))
            image_id = canonical_image_id(record.get("image_id", image))
            if oracle is not None and image_id not in oracle.index:
                if skip_unknown:
                    skipped += 1
                    continue
                oracle.row(image_id)
            found.append(Source(str(root / image), image_id, text))
        except InputError as error:
            faults.add(InputError(error.reason, path=str(path), line=number))
        except ValueError as error:
            faults.add(InputError(f"'image_id' {error}", path=str(path), line=number))
    faults.raise_if_any()
    if skipped:
        _log.warning("%s: %d prompts left out: the truth does not know their images", path, skipped)
    if not found:
        raise InputError("no prompts found" + (" whose image the truth knows" if skipped else ""), path=str(path))
    return found


def check_pictures(sources: Sequence[Source]) -> None:
    """Refuses prompts of which not one has its picture.

    Raises:
        InputError: no picture was found.
    """
    if not any(Path(source.path).is_file() for source in sources):
        reason = f"file not found, nor any other of the {len(sources)} pictures: is data.images right?"
        raise InputError(reason, path=sources[0].path)


def _string(record: Any, key: str) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"'{key}' holds a NUL")
    if not isinstance(value, str) or not value:
        found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"'{key}' must be a string that is not empty (found: {found})")
    return value


def indices_of_step(step: int, size: int, per_step: int, seed: int) -> list[int]:
    """The prompts of a step: each epoch is a permutation of its own, the rest that fills no step is left out.

    Raises:
        InputError: there are fewer prompts than a step takes.
    """
    if size < per_step:
        raise InputError(f"{size} prompts, but data.prompts_per_step is {per_step}")
    epoch, place = divmod(step, size // per_step)
    order = np.random.default_rng([seed, epoch]).permutation(size)
    return list(order[place * per_step : (place + 1) * per_step].tolist())


class Prompts:
    """Prepares prompts for the model; those of the next call are made while the present step computes.

    Args:
        sources: lines of the prompts file.
        processor: the model's processor.
        max_bad: number of prompts (below 1: share of them) whose image may be unreadable, before that is an error.
        longest: number of tokens of the longest prompt that the model takes; None for no limit.
    """

    def __init__(self, sources: Sequence[Source], processor: Any, max_bad: float, longest: int | None = None) -> None:
        self.sources = sources
        self.bad: set[int] = set()
        self._processor = processor
        self._max_bad, self._longest = max_bad, longest
        self._worker = ThreadPoolExecutor(1)
        self._next: tuple[tuple[int, ...], Future[tuple[list[Prompt], dict[int, str]]]] | None = None

    def take(self, indices: Sequence[int], following: Sequence[int] = ()) -> list[Prompt]:
        """The prompts of a step, without those whose picture cannot be read, which are counted in ``bad``.

        Args:
            indices: indices of the prompts.
            following: indices that the next call will ask for.

        Raises:
            InputError: more than ``max_bad`` pictures cannot be read, or none of them, or a prompt is too long.
        """
        wanted = tuple(indices)
        prepared = self._next is not None and self._next[0] == wanted
        ready, faults = self._next[1].result() if self._next is not None and prepared else self._made(wanted)
        for index in sorted(faults.keys() - self.bad):  # counted here: what is prepared ahead is not this step's
            _log.warning("left out: %s", faults[index])
        self.bad |= faults.keys()
        self._next = (tuple(following), self._worker.submit(self._made, tuple(following))) if following else None
        most = self._max_bad if self._max_bad >= 1 else self._max_bad * len(self.sources)
        if len(self.bad) > most:
            first = self.sources[min(self.bad)].path
            reason = f"cannot be read, with {len(self.bad) - 1} others: more than data.max_bad = {self._max_bad:g}"
            raise InputError(reason, path=first)
        if len(self.bad) == len(self.sources):
            reason = f"cannot be read, nor any other of the {len(self.sources)} pictures: no prompt is left"
            raise InputError(reason, path=self.sources[0].path)
        return ready

    def close(self) -> None:
        """Ends the thread."""
        self._worker.shutdown(cancel_futures=True)

    def _made(self, indices: Sequence[int]) -> tuple[list[Prompt], dict[int, str]]:
        """The prompts, and why others could not be made, by index."""
        found, faults = list[Prompt](), dict[int, str]()
        for index in indices:
            source = self.sources[index]
            content = [{"type": "image"}, {"type": "text", "text": source.text}]
            turns = [{"role": "user", "content": content}]
            text = self._processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            try:
                made = self._processor(text=[text], images=[load(source.path)], return_tensors="pt")
            except MissingExtra:
                raise
            except ValueError as error:  # ImageFault, or a shape that the processor refuses
                named = isinstance(error, ImageFault)
                faults[index] = str(error) if named else f"{source.path}: {error}"
                continue
            if self._longest is not None and made["input_ids"].shape[1] > self._longest:
                reason = f"its prompt has {made['input_ids'].shape[1]} tokens, but with rollout.max_new_tokens for "
                reason += f"the response the model has positions for {self._longest}"
                raise InputError(reason, path=source.path)
            grid = made["image_grid_thw"][0]
            found.append(Prompt(index, source, made["input_ids"][0], made["pixel_values"], grid))
        return found, faults


def seed_of(*parts: int) -> int:
    """One seed for a generator from several numbers; their number counts too (trailing zeros would not)."""
    return int(np.random.SeedSequence([len(parts), *parts]).generate_state(1, np.uint64)[0] >> 1)


def seeded(device: torch.device, *parts: int) -> torch.Generator:
    """A generator that depends on these numbers alone."""
    return torch.Generator(device).manual_seed(seed_of(*parts))
