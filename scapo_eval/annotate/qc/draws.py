"""Selection of the cells that a person checks: random pairs for every label and, to bound the false positives, enough
pairs that the judge considers present.

A round combines three draws. The draws may overlap, but the person is asked about every pair only once.

- *random*: the same number of uniformly drawn pairs for each label, as in the paper (section 3.3).
- *present*: pairs drawn uniformly from all cells that the judge calls present, for any label in the round. Present
  cells are rare, so the random pairs alone contain little evidence about false positives.
- *added*: further present pairs for labels for which the first two draws yielded too few present pairs. For a rare
  label, 30 random pairs contain hardly any pairs in which the label is present.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEFAULT_RANDOM = 30
"""Number of random pairs per label in a round."""

PRESENT_PER_LABEL = 5
"""Mean number of pairs per label in the present draw."""

DEFAULT_AT_LEAST = 10
"""Minimum number of present pairs per label in a round."""


@dataclass(frozen=True)
class Pairs:
    """The pairs of a round, in the order of the questions. The pairs are ordered by label, and are in random order
    within a label.

    Attributes:
        rows: (pairs,) array with the row index of each pair's image.
        label_ids: (pairs,) array with the label column of each pair.
        random: (pairs,) mask of the pairs that belong to the random draw for their label.
        present: (pairs,) mask that is true for the pairs in the draw from all present cells.
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
    """Draws pairs without replacement. If there are too few eligible cells, all of them are drawn.

    Equal matrices, seeds and round numbers yield equal pairs. The pairs of a label are shuffled, so that their order
    does not reveal which of them were drawn because the judge called them present.

    Args:
        matrix: (images, labels) matrix of verdicts: 1, 0 or -1.
        eligible: (images, labels) mask of the cells whose verdict no person has seen.
        label_ids: Columns of the labels to draw from, in the order of the questions.
        random: Number of random pairs per label.
        present: Number of pairs to draw from all present cells of these labels, or None for PRESENT_PER_LABEL times the
            number of labels.
        at_least: Minimum number of present pairs per label. If the first two draws yield fewer present pairs, further
            pairs are added.
        seed: Seed for the draw. Each label has its own random generator, and so does the draw among all present cells.
        round_number: Number of the round. Rounds with equal seeds and different numbers draw different pairs.
    """
    columns = np.asarray(label_ids, dtype=np.int64)
    rows_of, places = np.nonzero(eligible[:, columns] & (matrix[:, columns] == 1))
    if present is None:
        present = PRESENT_PER_LABEL * len(columns)
    # 0 is used by the draw of present cells, and numpy seeds [a, b] and [a, b, 0] equally
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
