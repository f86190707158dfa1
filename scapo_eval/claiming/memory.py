"""A cache for the results of rules.

A rule reads cells at certain distances from the place where the rule begins. A cell contains the code of a word, and
flags that state, for example, whether the word begins an object. The result of a rule depends only on the cells that it
reads. A rule always reads the cell at the same distance first, and each cell determines the distance at which the rule
reads next. All possible ways to apply a rule therefore form a tree: each node corresponds to a distance, each branch to
the cell at this distance, and each leaf to a result. The rule runs only if the tree has no leaf for the cells at a
place. The cells that the rule then reads, and its result, are added to the tree. NumPy traverses the tree from many
positions at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAF = np.iinfo(np.int64).max
_MOST = 1 << 17  # maximum number of nodes (about 150 bytes each) and of rows; above it, the memory is cleared
_LONG = 256  # maximum number of cells of a reading; longer readings are not stored
_BITS = 18
_SLOTS = 1 << _BITS  # size of the hash table of branches
_CELL = 16  # bits of a cell
_NODE = 22  # bits of a node
_FACTOR = 0x9E3779B97F4A7C15
_FEW = 256
"""Number of places below which the steps of Python are faster than those of NumPy."""

Rule = Callable[[Any], Iterable[tuple[int, ...]]]
"""A rule, which reads a tape and returns rows of integers."""


class Tape:
    """The cells of a batch of captions, from which rules read. Each cell is recorded when it is read for the first
    time.

    Args:
        channels: (channels, places) array of the cells of the batch.
    """

    def __init__(self, channels: NDArray[np.int32]) -> None:
        self.channels = channels
        self.cells = channels.reshape(-1).data
        self.size = channels.shape[1]
        self.start_at(0)

    def start_at(self, place: int) -> None:
        """Discards the cells read so far and sets the place from which distances are counted."""
        self.at = place
        self.noted: dict[int, int] = {}

    def cell(self, place: int, channel: int) -> int:
        """Returns the cell at a place in a channel."""
        distance = (place - self.at) << 2 | channel
        value = self.noted.get(distance)
        if value is None:
            value = self.noted[distance] = self.cells[place + channel * self.size]
        return value


class Memory:
    """The trees for several rules.

    Args:
        rules: Rules, which are referred to by their index.
        columns: Number of integers in a row of a result.
    """

    def __init__(self, rules: Sequence[Rule], columns: int) -> None:
        self._rules = rules
        self._columns = columns
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Removes all results."""
        n = len(self._rules)
        self._branches: dict[int, int] = {}
        self._distance = [_LEAF] * n  # of each node
        self._rows = [(0, -1)] * n  # for each leaf, its first row in the table and the number of rows; otherwise -1
        self._distances = np.full(1 << 12, _LEAF)  # both as arrays
        self._first, self._number = np.zeros(1 << 12, dtype=np.int64), np.full(1 << 12, -1)
        self._n_nodes = n
        self._new: list[tuple[int, int]] = []  # branches that are not yet in the arrays
        self._table = np.empty((1 << 12, self._columns), dtype=np.int64)
        self._n_rows = 0
        self._entries = np.full(_SLOTS, -1, dtype=np.int64)  # a branch; its last bits contain the next node

    def _is_full(self) -> bool:
        return max(len(self._distance), self._n_rows) > _MOST

    def rows(self, tape: Tape, rule: int, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the results of a rule at many places.

        Args:
            tape: Cells that the rule reads.
            rule: Index of the rule.
            at: (n,) places at which the rule begins.

        Returns:
            (rows,) array with the index of each row's place in ``at``, and (rows, columns) array of the results.
        """
        owners, parts, begin = [np.zeros(0, dtype=np.int64)], [self._table[:0]], 0
        with self._lock:
            while begin < len(at):
                if self._is_full():
                    self.forget()
                node = self._leaves(tape, rule, at[begin:])
                first, number = self._first[node], self._number[node]
                owner = np.repeat(np.arange(len(node)), number)
                row = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number - first, number)
                owners.append(owner + begin)
                parts.append(self._table[row])
                begin += len(node)
        return np.concatenate(owners), np.concatenate(parts)

    def _leaves(self, tape: Tape, rule: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the leaves of a rule for the given places, in order. If the tree grows too large, the remaining
        places are omitted.
        """
        node = np.full(len(at), rule) if len(at) < _FEW else self._walk(tape, rule, at)
        missing = np.flatnonzero(self._number[node] < 0)
        for k, place, begin in zip(missing.tolist(), at[missing].tolist(), node[missing].tolist(), strict=True):
            if self._is_full():
                node = node[:k]
                break
            node[k] = self._leaf(tape, rule, place, begin)
        self._publish()
        return node

    def _walk(self, tape: Tape, rule: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns, for each place, the node that is reached, which is either a leaf or the last node with a known
        branch.
        """
        cells = tape.channels.reshape(-1)
        reached = np.full(len(at), rule)
        active, node = np.arange(len(at)), reached
        while True:
            distance = self._distances[node]
            inner = np.flatnonzero(distance != _LEAF)
            if not len(inner):
                return reached
            active, node, distance = active[inner], node[inner], distance[inner]
            target = self._find(node << _CELL | cells[at[active] + (distance >> 2) + (distance & 3) * tape.size])
            goes_on = np.flatnonzero(target)
            active, node = active[goes_on], target[goes_on]
            reached[active] = node

    def _find(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the node to which each branch leads, or 0."""
        slot = _slots(key)
        entry = self._entries[slot]
        while True:
            other = np.flatnonzero((entry >> _NODE != key) & (entry >= 0))
            if not len(other):
                break
            slot[other] = (slot[other] + 1) & (_SLOTS - 1)
            entry[other] = self._entries[slot[other]]
        entry[entry < 0] = 0
        return entry & ((1 << _NODE) - 1)

    def _leaf(self, tape: Tape, rule: int, place: int, node: int) -> int:
        """Returns the leaf of a rule at a place, starting from any node on the way to that leaf."""
        branches, distances = self._branches, self._distance
        while (distance := distances[node]) != _LEAF:
            target = branches.get(node << _CELL | tape.cells[place + (distance >> 2) + (distance & 3) * tape.size])
            if target is None:
                break
            node = target
        else:
            if self._rows[node][1] >= 0:
                return node
        tape.start_at(place)
        rows = list(self._rules[rule](tape))
        node = rule
        if len(tape.noted) > _LONG:
            node = len(distances)
            distances.append(_LEAF)
            self._rows.append((0, -1))
            tape.noted = {}
        for distance, cell in tape.noted.items():
            distances[node] = distance
            key = node << _CELL | cell
            target = branches.get(key)
            if target is None:
                target = branches[key] = len(distances)
                distances.append(_LEAF)
                self._rows.append((0, -1))
                self._new.append((key, target))
            node = target
        self._rows[node] = (self._n_rows, len(rows))
        for row in rows:
            if self._n_rows == len(self._table):
                self._table = np.concatenate([self._table, np.empty_like(self._table)])
            self._table[self._n_rows] = row
            self._n_rows += 1
        return node

    def _publish(self) -> None:
        """Copies the new nodes and branches to the arrays."""
        old, n = self._n_nodes, len(self._distance)
        while n > len(self._distances):
            self._distances = np.append(self._distances, np.full_like(self._distances, _LEAF))
            self._first = np.append(self._first, np.zeros_like(self._first))
            self._number = np.append(self._number, np.full_like(self._number, -1))
        roots = slice(0, len(self._rules))  # only these nodes change: a rule's first reading adds their result
        for new in (slice(old, n), roots):
            self._distances[new] = self._distance[new]
            self._first[new], self._number[new] = np.array(self._rows[new], dtype=np.int64).reshape(-1, 2).T
        self._n_nodes = n
        key, target = np.array(self._new, dtype=np.int64).reshape(-1, 2).T
        self._new = []
        entry, slot = key << _NODE | target, _slots(key)
        while len(entry):
            free = self._entries[slot] < 0
            self._entries[slot[free]] = entry[free]
            rest = self._entries[slot] != entry  # if several new branches share a slot, the last one is stored
            entry, slot = entry[rest], (slot[rest] + 1) & (_SLOTS - 1)


def _slots(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Maps branches to the slots of the hash table."""
    hashed: NDArray[np.uint64] = (key.view(np.uint64) * np.uint64(_FACTOR)) >> np.uint64(64 - _BITS)
    return hashed.view(np.int64)
