"""Image-level split of a set of human judgments into one half for fitting and selection and another for reporting."""

from __future__ import annotations

import hashlib
from typing import Literal

Half = Literal["fit", "report"]

HALVES_SEED = "scapo people 1"
"""Prefix of image ids in the hash. It was fixed before any fitting, and another value results in another split."""


def half_of(image: str, seed: str = HALVES_SEED) -> Half:
    """Returns the half to which an image belongs. The result depends only on the image id and the seed.

    Args:
        image: Canonical image id, or, for an item without an image, the id of its group.
        seed: Seed for the split.
    """
    digest = hashlib.sha256(f"{seed}\0{image}".encode()).digest()
    return "report" if digest[0] & 1 else "fit"
