"""The image pool of an annotation run, which is a seeded sample of a larger pool and contains no evaluation image."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..base.errors import InputError
from ..base.hashes import digest
from ..files.files import atomic_write
from ..files.json_text import dump_json, read_json
from ..files.source import STDIN
from ..inference.runner import now
from ..inference.sources import ImageFile, image_ids

CARD_SUFFIX = ".card.json"


def sample(
    pool: Sequence[ImageFile],
    n: int,
    *,
    seed: int = 0,
    exclude: frozenset[str] = frozenset(),
    source: str | None = None,
) -> list[ImageFile]:
    """Draws ``n`` images from a pool, excluding given images.

    Images are sorted by a hash of the seed and the image id, and the first ``n`` images are selected. Therefore, the
    sample depends neither on the order of the pool nor on a random generator. If two samples differ only in size, the
    smaller sample is a prefix of the larger one.

    Args:
        pool: Images with distinct ids.
        n: Number of images to draw.
        seed: Seed of the draw.
        exclude: Canonical ids of images to exclude.
        source: Origin of the pool, for the error message.

    Raises:
        InputError: If the pool contains fewer than ``n`` images that are not excluded.
    """
    left = [picture for picture in pool if picture.image_id not in exclude]
    if len(left) < n:
        reason = (
            f"cannot draw {n:,} images: the pool has {len(pool):,}, of which {len(pool) - len(left):,} are excluded"
        )
        raise InputError(reason, path=source)
    return sorted(left, key=lambda picture: _rank(seed, picture.image_id))[:n]


def _rank(seed: int, image_id: str) -> bytes:
    return hashlib.sha256(f"{seed} {image_id}".encode("utf-8", "surrogatepass")).digest()


def write_sample(
    output: str, pool: Sequence[ImageFile], n: int, *, seed: int, exclude: Sequence[str], sources: Sequence[str]
) -> dict[str, Any]:
    """Draws a sample, and writes the list of images and ``OUTPUT.card.json``.

    Args:
        output: JSON Lines file to write, which is the input of ``annotate coarse``.
        pool: Images to draw from.
        n: Number of images to draw.
        seed: Seed of the draw.
        exclude: Files and folders whose images are excluded: ground truth files, caption files, lists, or COCO
            annotations.
        sources: Names of the files and folders from which the pool was read.

    Returns:
        Content of the sample's card.
    """
    kept_out = {source: image_ids(source) for source in exclude}
    everything = frozenset().union(*kept_out.values())
    drawn = sample(pool, n, seed=seed, exclude=everything, source=", ".join(sources))
    in_pool = {picture.image_id for picture in pool}
    with atomic_write(output) as stream:
        for picture in drawn:
            path = Path(picture.path)
            row = {"image_id": picture.image_id, "image": str(path.resolve()) if os.path.isfile(path) else picture.name}
            stream.write(dump_json(row) + b"\n")
    card = {
        "format": "scapo-sample/1",
        "pool": {"sources": list(sources), "images": len(pool), "hash": digest(sorted(in_pool))},
        "n": n,
        "seed": seed,
        "rule": "the n smallest sha256('{seed} {image id}') of the pool without the excluded ids",
        "excluded": [
            {"source": source, "images": len(ids), "in_pool": len(ids & in_pool), "hash": digest(sorted(ids))}
            for source, ids in kept_out.items()
        ],
        "images_hash": digest([picture.image_id for picture in drawn]),
        "drawn": now(),
    }
    if output != STDIN:
        with atomic_write(f"{output}{CARD_SUFFIX}") as stream:
            stream.write(orjson.dumps(card, option=orjson.OPT_INDENT_2) + b"\n")
    return card


def card_of(sources: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the card of a list that :func:`write_sample` wrote, or None if the list has another origin."""
    path = Path(f"{sources[0]}{CARD_SUFFIX}")
    if len(sources) != 1 or not path.is_file():
        return None
    card = read_json(path)
    return card if isinstance(card, dict) else None
