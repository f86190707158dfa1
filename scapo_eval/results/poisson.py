"""Poisson bootstrap. The resampled sums can be added across batches, machines and files.

In the ordinary bootstrap, an image occurs Binomial(n, 1/n) times in a resample. For a large number of images, this
distribution approaches Poisson(1), and the numbers for different images become independent. Each image's number of
occurrences is derived from a hash of the image id, the seed and the index of the resample (Hanley & MacGibbon 2006;
Chamandy et al. 2012, "Estimating uncertainty for massive data streams"). Every process therefore computes the same
weights for a given image, regardless of the order of the images. The resampled sums for the parts of a data set add up
to those for the whole data set. The counts of each image must be summed before resampling, as in a count table, but any
process can sum the counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .workers import Work, sum_of_parts

_LANES = 4
"""Number of weights per 64-bit word. Each weight uses 16 bits, so probabilities are accurate to 2**-16."""

_RESAMPLES, _IMAGES = 64, 8192  # per step; the weights of a step have 4 MB


def image_hashes(image_ids: Iterable[str]) -> NDArray[np.uint64]:
    """Returns the (images,) 64-bit hashes of canonical image ids. The hash of an image id is equal in all processes and
    on all machines.
    """
    ids = (image.encode("utf-8", "surrogatepass") for image in image_ids)
    return np.frombuffer(b"".join(blake2b(image_id, digest_size=8).digest() for image_id in ids), dtype="<u8")


def poisson_sums(
    hashes: NDArray[np.uint64], counts: NDArray[np.int64], *, resamples: int, seed: int
) -> NDArray[np.int64]:
    """Returns the summed counts of each resample. In each resample, the number of occurrences of an image follows a
    Poisson(1) distribution.

    The sums of batches a and b can be added: ``poisson_sums(a) + poisson_sums(b)`` yields the sums for the images of
    both batches.

    Args:
        hashes: (images,) hashes from :func:`image_hashes`. Each image must occur in only one batch.
        counts: (images, columns) integer counts.
        resamples: Number of resamples R.
        seed: Seed for the resampling.

    Returns:
        (R, columns) sums.
    """

    def of_part(images: slice) -> Work:
        return _sums, (hashes[images], counts[images], resamples, (seed, 0))

    return sum_of_parts(len(hashes), of_part)


def _poisson_table() -> NDArray[np.uint8]:
    """Returns the (65536,) weights that correspond to all 16-bit numbers. The weights are quantiles of Poisson(1)."""
    below = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
    return np.searchsorted(below, (np.arange(1 << 16) + 0.5) / (1 << 16), side="right").astype(np.uint8)


_POISSON = _poisson_table()


def _sums(hashes: NDArray[np.uint64], rows: NDArray[Any], resamples: int, key: tuple[int, int]) -> NDArray[np.int64]:
    streams = np.random.SeedSequence(key).generate_state(-(-resamples // _LANES), np.uint64)
    sums = np.zeros((len(streams) * _LANES, rows.shape[1]))
    for first in range(0, len(hashes), _IMAGES):
        part = slice(first, first + _IMAGES)
        values = rows[part].astype(np.float64)  # float for a BLAS product; exact, since counts are far below 2**53
        for k in range(0, len(streams), _RESAMPLES // _LANES):
            some = streams[k : k + _RESAMPLES // _LANES]
            words = _mixed(hashes[part][:, None] ^ some).astype("<u8", copy=False).view("<u2")
            sums[k * _LANES : (k + len(some)) * _LANES] += _POISSON[words].T.astype(np.float64) @ values
    return sums[:resamples].astype(np.int64)


def _mixed(words: NDArray[Any]) -> NDArray[Any]:
    """Applies the finalizer of SplitMix64 (Steele et al. 2014), in which every input bit affects every output bit."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
