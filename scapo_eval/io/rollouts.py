"""Rollouts: responses that a policy sampled, from the project's own lines, verl's dumps and TRL's completions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from .captions_foreign import captions_of
from .containers import OnError, Warn, warn_user
from .formats import ForeignCaption, open_source

BLOCK = 1024
"""Rollouts per block: one pass of the matcher."""


def rollout_blocks(
    path: str | Path, *, on_error: OnError | None = None, warn: Warn = warn_user
) -> Iterator[list[ForeignCaption]]:
    """The responses of a file in blocks of BLOCK, in its order.

    Args:
        path: own rollouts (``{"image_id", "response"}``), verl's or TRL's with an image id in each record,
            or captions of any tool; plain, ``.gz`` or ``.zst``, ``-`` for standard input.
        on_error: called with each unreadable record, and reading goes on; without it the first 20 are
            raised together at the end.
        warn: told of damage that does not prevent reading.

    Raises:
        InputError: no known layout, one without responses, or several models in one file.
        InputErrors: unreadable records.
    """
    responses = captions_of(open_source(path, on_error=on_error, warn=warn), on_error=on_error, warn=warn)
    while block := list(islice(responses, BLOCK)):
        yield block
