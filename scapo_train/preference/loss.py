"""Losses of the preference baselines as pure functions of log-ratios.

A log-ratio is log pi(y | x, image) - log pi_ref(y | x, image), summed over the tokens of a response y to a prompt x.
All tensor arguments have shape (B,), and the result is a (B,) tensor with the loss of each pair.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import logsigmoid

ROWS: Mapping[str, tuple[int, ...]] = {"dpo": (2,), "mdpo": (2, 1), "symmpo": (3, 2)}
"""Loss -> number of responses to each prompt that the loss reads per pair. Each response has one log-ratio."""

READ: Mapping[str, tuple[int, int]] = {loss: (len(rows), sum(rows)) for loss, rows in ROWS.items()}
"""Loss -> number of prompts and number of responses that the loss reads per pair."""


def dpo(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    """Computes the loss of Direct Preference Optimization (Rafailov et al., 2023, arXiv:2305.18290, Eq. 7).

    Args:
        chosen: Log-ratios of the preferred responses.
        rejected: Log-ratios of the rejected responses.
        beta: Weight of the implicit KL term.
    """
    return -logsigmoid(beta * (chosen - rejected))


def mdpo(chosen: Tensor, rejected: Tensor, unseen: Tensor, beta: float) -> Tensor:
    """Computes the loss of mDPO (Wang et al., 2024, arXiv:2406.11839), which is the sum of the terms DPO, CoPO and
    AncPO.

    As in the authors' code (luka-group/mDPO, ``mdpo_trainer.py``), the three terms have equal weight, and the anchor is
    0.

    Args:
        chosen: Log-ratios of the preferred responses.
        rejected: Log-ratios of the rejected responses.
        unseen: Log-ratios of the preferred responses, given a picture that shows only a small part of the image.
        beta: Weight of the implicit KL term.
    """
    return dpo(chosen, rejected, beta) + dpo(chosen, unseen, beta) - logsigmoid(beta * chosen)


def symmpo(
    chosen: Tensor,
    rejected: Tensor,
    others: Tensor,
    other_chosen: Tensor,
    chosen_of_other: Tensor,
    beta: float,
    symmetric: float,
    consistency: float,
) -> Tensor:
    """Computes the loss of symmetric multimodal preference optimization (Liu et al., 2025, arXiv:2506.11712).

    The loss follows the authors' code (Liuwq-bit/SymMPO, ``muffin/train/trainers.py``, ``dpo_loss``): the sum of DPO's
    loss, a term for each of the two symmetric pairs, an anchor at 0 for the preferred response to each image, and the
    squared difference between the margins of the symmetric pairs. In the last term, the margins are not multiplied by
    beta.

    Args:
        chosen: Log-ratios of the preferred responses y, given the image.
        rejected: Log-ratios of the rejected responses, given the image.
        others: Log-ratios of y', the preferred responses to another image, given the image.
        other_chosen: Log-ratios of y', given the other image.
        chosen_of_other: Log-ratios of y, given the other image.
        beta: Weight of the implicit KL term in all terms of the loss. The authors' script has two settings for the
            weight of the KL term, both of which are 0.1.
        symmetric: Weight of the symmetric pairs (lambda). The authors' script uses 0.5.
        consistency: Weight of the squared difference of the margins. The authors' code uses 1e-4.
    """
    margin, other_margin = chosen - others, other_chosen - chosen_of_other
    anchors = -logsigmoid(beta * chosen) - logsigmoid(beta * other_chosen)
    pairs = -logsigmoid(beta * margin) - logsigmoid(beta * other_margin)
    return dpo(chosen, rejected, beta) + symmetric * pairs + anchors + consistency * (margin - other_margin).square()
