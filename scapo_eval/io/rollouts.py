"""Rollouts: responses that a policy sampled, from the project's own lines, verl's dumps and TRL's completions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .captions import Captions
from .captions_foreign import captions_of
from .containers import OnError, Warn, warn_user
from .files import FaultList, display_name
from .formats import open_source

BLOCK = 1024
"""Rollouts per block: one pass of the matcher."""


@dataclass(frozen=True, slots=True)
class RolloutBlock:
    """Some responses, parsed already.

    Attributes:
        name: the file's display name.
        captions: the responses.
        size: raw bytes; not known.
    """

    name: str
    captions: Captions
    size: int = 0

    def parse(self, faults: FaultList) -> Captions:
        """The responses."""
        return self.captions


def rollout_blocks(
    path: str | Path, *, on_error: OnError | None = None, warn: Warn = warn_user
) -> Iterator[RolloutBlock]:
    """The responses of a file in blocks of BLOCK, in its order.

    Args:
        path: own rollouts (``{"image_id", "response"}``), verl's or TRL's with an image id in each record,
            or captions of any tool; plain, ``.gz`` or ``.zst``, ``-`` for standard input.
        on_error: called with each unreadable record, and reading goes on; without it the first 20 are
            raised together at the end.
        warn: told of damage that does not prevent reading.

    Raises:
        InputError: unknown layout, one without responses, or several models in one file.
        InputErrors: unreadable records.
    """
    responses = captions_of(open_source(path, on_error=on_error, warn=warn), on_error=on_error, warn=warn)
    while rows := list(islice(responses, BLOCK)):
        captions = Captions(
            image_ids=[row.image_id for row in rows],
            captions=[row.caption for row in rows],
            numbers=[row.line for row in rows],
            ids=[None] * len(rows),
            objects=[None] * len(rows),
            models=[row.model for row in rows],
        )
        yield RolloutBlock(display_name(path), captions)
