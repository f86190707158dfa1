"""Two halves of a set of human judgments, split by image: one for fitting and selection, and one for reporting."""

from __future__ import annotations

import hashlib
from typing import Literal

Half = Literal["fit", "report"]

HALVES_SEED = "scapo people 1"
"""Prefix of image ids in the hash. It was fixed before any fitting, and another value results in another split."""


def half_of(image: str, seed: str = HALVES_SEED) -> Half:
    """Returns the half of an image, which is the same on every machine and for any subset and order of the images.

    Args:
        image: Canonical image id, or the id of the group of an item.
        seed: Seed of the split.
    """
    digest = hashlib.sha256(f"{seed}\0{image}".encode()).digest()
    return "report" if digest[0] & 1 else "fit"
