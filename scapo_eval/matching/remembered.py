"""A fixed-size cache of short texts and their states that looks up many texts at once.

The words between a cue and a mention recur in captions ("no <dog>", "a place for the <cars>"), so most states are found
in the cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WIDTH = 72
"""Maximum number of characters of a text."""

UNKNOWN = 255
"""State of a text that the memory does not contain."""

_SLOT_BITS = 14
_KEPT = np.where(np.arange(WIDTH) < np.arange(WIDTH + 1)[:, None], 255, 0).astype(np.uint8).view("<u8")
_FACTORS = np.random.default_rng(0).integers(1 << 63, size=WIDTH // 8 + 1, dtype=np.uint64) | np.uint64(1)


class Remembered:
    """A cache of texts and their states, in which each text continues another text.

    A new text replaces the text in its slot, so the size is fixed. Texts are compared in full.

    Args:
        first_id: First id that is assigned to a text. Smaller ids are reserved for the beginnings, which continue no
            text.
    """

    def __init__(self, first_id: int) -> None:
        slots = 1 << _SLOT_BITS
        self._keys = np.zeros((slots, WIDTH // 8 + 1), dtype=np.uint64)
        self._state = np.zeros(slots, dtype=np.uint8)
        self._id = np.zeros(slots, dtype=np.int64)
        self._next_id = first_id

    @staticmethod
    def keys(
        byte: NDArray[np.uint8], begin: NDArray[np.int64], length: NDArray[np.int64], parent: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Returns the keys of texts that are parts of a longer text, as an array of shape (texts, words).

        Args:
            byte: The longer text, with WIDTH additional bytes after the last part.
            begin, length: Position and number of characters of each part, at most WIDTH.
            parent: Id (at least 1) of the text or beginning that each part continues.
        """
        windows = np.ndarray(len(byte) - WIDTH + 1, dtype=f"V{WIDTH}", buffer=byte, strides=(1,))[begin]
        keys = np.empty((len(begin), WIDTH // 8 + 1), dtype=np.uint64)
        np.bitwise_and(windows.view("<u8").reshape(len(begin), -1), _KEPT[length], out=keys[:, :-1])
        keys[:, -1] = parent << 8 | length
        return keys

    def find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Returns the state and the id of each text. The state of a text that is not in the cache is UNKNOWN."""
        slot = _slots(keys)
        state = self._state[slot]
        state[(self._keys[slot] != keys).any(axis=1)] = UNKNOWN
        return state, self._id[slot]

    def add(self, keys: NDArray[np.uint64], state: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Adds texts with their states, and returns their ids."""
        slot = _slots(keys)
        ids = np.arange(self._next_id, self._next_id + len(keys))
        self._next_id += len(keys)
        # if several texts share a slot, the last one is stored
        self._keys[slot], self._state[slot], self._id[slot] = keys, state, ids
        return ids


def _slots(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    sums = (keys * _FACTORS).sum(axis=1, dtype=np.uint64)
    for factor in _FACTORS[:2]:  # once is too few: the keys of two rules at the same place would share their slots
        sums ^= sums >> np.uint64(31)
        sums *= factor
    sums >>= np.uint64(64 - _SLOT_BITS)
    slots: NDArray[np.int64] = sums.view(np.int64)
    return slots
