"""Chooses the cells that a person is asked about: random pairs of every label, and enough that the judge calls present.

Three draws make a round. They overlap where they happen to, and every pair is asked once.

- *random*: the same number of uniform pairs of each label, as in the paper (section 3.3).
- *present*: uniform pairs among all cells of these labels that the judge calls present: few cells are, so the random
  pairs alone say little of false positives.
- *added*: present pairs of the labels that the first two gave too few of: a rare label has hardly one among 30.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEFAULT_RANDOM = 30
"""Number of random pairs of each label in a round."""

PRESENT_PER_LABEL = 5
"""Mean number of pairs of the present draw for each label."""

DEFAULT_AT_LEAST = 10
"""Least number of present pairs of each label in a round."""


@dataclass(frozen=True)
class Pairs:
    """The pairs of a round in the order in which they are asked: by label, shuffled within a label.

    Attributes:
        rows: (pairs,) row of each pair's image.
        label_ids: (pairs,) column of each pair's label.
        random: (pairs,) bool, whether the pair belongs to its label's random draw.
        present: (pairs,) bool, whether it belongs to the draw among all present cells.
    """

    rows: NDArray[np.int64]
    label_ids: NDArray[np.int64]
    random: NDArray[np.bool_]
    present: NDArray[np.bool_]


def draw_pairs(
    matrix: NDArray[np.int8],
    eligible: NDArray[np.bool_],
    label_ids: Sequence[int],
    *,
    random: int = DEFAULT_RANDOM,
    present: int | None = None,
    at_least: int = DEFAULT_AT_LEAST,
    seed: int,
    round_number: int,
) -> Pairs:
    """Draws without replacement; if there are fewer eligible cells, all are taken.

    Equal matrices, seeds and round numbers give equal pairs. The shuffle hides which pairs were drawn because the
    judge said "present".

    Args:
        matrix: (images, labels) verdicts 1, 0, -1.
        eligible: (images, labels) bool, true for cells with a verdict that no person has seen.
        label_ids: columns of the labels to draw from, in the order of asking.
        random: number of random pairs of each label.
        present: number of pairs among all present cells of these labels; None takes PRESENT_PER_LABEL for each label.
        at_least: least number of present pairs of each label; what the first two draws lack is added.
        seed: seed of the draw; every label, and the present draw, has a random generator of its own.
        round_number: number of the round, which makes rounds with one seed differ.
    """
    columns = np.asarray(label_ids, dtype=np.int64)
    rows_of, places = np.nonzero(eligible[:, columns] & (matrix[:, columns] == 1))
    if present is None:
        present = PRESENT_PER_LABEL * len(columns)
    # 0 is the present draw's: a generator seeded by [a, b] would be the one of [a, b, 0]
    pooled = np.random.default_rng([seed, round_number, 0])
    chosen = pooled.choice(len(rows_of), min(present, len(rows_of)), replace=False)
    parts: list[tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]] = []
    for place, label in enumerate(columns.tolist()):
        generator = np.random.default_rng([seed, round_number, 1 + label])
        candidates = np.flatnonzero(eligible[:, label])
        uniform = generator.choice(candidates, min(random, len(candidates)), replace=False)
        shared = rows_of[chosen[places[chosen] == place]]
        taken = np.union1d(uniform, shared)
        is_present = matrix[candidates, label] == 1
        others = np.setdiff1d(candidates[is_present], taken)
        lacking = max(0, at_least - int((matrix[taken, label] == 1).sum()))
        added = generator.choice(others, min(lacking, len(others)), replace=False)
        rows = generator.permutation(np.concatenate([taken, added]))
        parts.append((rows, np.isin(rows, uniform), np.isin(rows, shared)))
    empty = np.zeros(0, dtype=np.bool_)
    return Pairs(
        rows=np.concatenate([*(rows for rows, _, _ in parts), empty]).astype(np.int64),
        label_ids=np.repeat(columns, [len(rows) for rows, _, _ in parts]),
        random=np.concatenate([*(mask for _, mask, _ in parts), empty]),
        present=np.concatenate([*(mask for _, _, mask in parts), empty]),
    )
