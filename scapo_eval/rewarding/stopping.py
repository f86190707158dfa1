"""Credit for stopping: the value of continuing over ending, at every boundary between pieces.

Equation 1 rewards a piece for its content. It does not credit a piece with the value of later pieces, and the end earns
0 wherever it occurs. Here the boundary before piece k gets the return that followed it, less the mean return after k
pieces in the other responses to the prompt. ``docs/lab/stopping.md`` derives it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def stop_advantages(
    rewards: Floats, indptr: NDArray[np.int64], finished: NDArray[np.bool_], group: int
) -> tuple[Floats, Floats]:
    """Returns the advantage of continuing or ending at every boundary that a response reached.

    A response reaches the boundary after k pieces if it wrote a further piece or ended there. A response that was cut
    off does not reach the boundary after its last piece. If no other response of the group reaches a boundary, the
    value is 0, the value of ending.

    Args:
        rewards: (parts,) reward of each piece.
        indptr: (n + 1,) bounds of the responses in ``rewards``.
        finished: (n,) whether each response ended by itself.
        group: number of responses per prompt; those of a prompt are neighbors, so ``n`` is a multiple of it.

    Returns:
        (parts,) the advantage at the boundary before each piece, and (n,) that at the end of each response (of no
        meaning if the response was cut off).
    """
    n, pieces = len(indptr) - 1, np.diff(indptr)
    most = int(pieces.max(initial=0))
    row = np.repeat(np.arange(n), pieces)
    place = np.arange(len(rewards)) - indptr[row]
    to_go = np.zeros((n, most + 1))
    to_go[row, place] = rewards
    to_go = to_go[:, ::-1].cumsum(1)[:, ::-1]  # return after 0, 1, ... pieces
    places = np.arange(most + 1)
    reached = (places < pieces[:, None]) | ((places == pieces[:, None]) & finished[:, None])
    others = _of_others(to_go * reached, group) / np.maximum(_of_others(reached.astype(np.float64), group), 1)
    advantages = to_go - others
    return advantages[row, place], advantages[np.arange(n), pieces]


def _of_others(values: Floats, group: int) -> Floats:
    """Returns the sums over the other rows of each group, shaped as ``values``."""
    groups = values.reshape(-1, group, values.shape[1])
    sums: Floats = (groups.sum(1, keepdims=True) - groups).reshape(values.shape)
    return sums
