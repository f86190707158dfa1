"""Two halves of a set of human judgements, split by image: one to fit and choose on, one to report on."""

from __future__ import annotations

import hashlib
from typing import Literal

Half = Literal["fit", "report"]

HALVES_SEED = "scapo people 1"
"""What is hashed in front of an image's id. Fixed before anything was fitted; another value is another split."""


def half_of(image: str, seed: str = HALVES_SEED) -> Half:
    """Returns the half of an image: the same on every machine, for any subset and order of the images.

    Args:
        image: canonical image id, or the id of whatever items are grouped by.
        seed: of the split.
    """
    digest = hashlib.sha256(f"{seed}\0{image}".encode()).digest()
    return "report" if digest[0] & 1 else "fit"
