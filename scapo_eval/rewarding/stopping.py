"""Credit for stopping, which compares the value of continuing with that of ending at every boundary between pieces.

Equation 1 rewards a piece only for its own claims. The equation does not credit a piece with the value of later pieces,
and the reward of the end-of-sequence token is always 0. The credit of the boundary before piece k is the return after
this boundary minus a baseline. The baseline is the mean return after k pieces in the other responses to the prompt. The
method is derived in ``docs/lab/stopping.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def stop_advantages(
    rewards: Floats, indptr: NDArray[np.int64], finished: NDArray[np.bool_], group: int
) -> tuple[Floats, Floats]:
    """Returns the advantage of continuing or ending at every boundary that a response reached.

    A response reaches the boundary after k pieces if it continues with a further piece or ends at this boundary. A
    truncated response does not reach the boundary after its last piece. If no other response of the group reaches a
    boundary, the baseline at this boundary is 0, which is the value of ending the response there.

    Args:
        rewards: (pieces,) rewards of the pieces of all responses.
        indptr: (n + 1,) bounds of the responses in ``rewards``.
        finished: (n,) Boolean mask of the responses that ended on their own.
        group: Number of responses per prompt. The responses to one prompt are adjacent, so n is a multiple of
            ``group``.

    Returns:
        The (pieces,) advantages at the boundary before each piece, and the (n,) advantages at the end of each response.
        The advantage at the end of a truncated response is meaningless.
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
    """Returns, for each row, the sum over the other rows of its group. The result has the same shape as ``values``."""
    groups = values.reshape(-1, group, values.shape[1])
    sums: Floats = (groups.sum(1, keepdims=True) - groups).reshape(values.shape)
    return sums
