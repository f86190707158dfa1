"""Losses of the preference baselines as pure functions of log-ratios.

A log-ratio is log pi(y | x, image) - log pi_ref(y | x, image), summed over the tokens of a response y to a prompt x.
All arguments are (B,), and the result is a (B,) loss with one value per pair.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import logsigmoid

READ: Mapping[str, tuple[int, int]] = {"dpo": (1, 2), "mdpo": (2, 3), "symmpo": (2, 5)}
"""Loss -> number of prompts and number of responses that the loss reads per pair. Each response has one log-ratio."""


def dpo(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    """Computes the loss of Direct Preference Optimization (Rafailov et al., 2023, arXiv:2305.18290, Eq. 7).

    Args:
        chosen: Log-ratios of the preferred responses.
        rejected: Log-ratios of the rejected responses.
        beta: Strength of the implicit KL term.
    """
    return -logsigmoid(beta * (chosen - rejected))


def mdpo(chosen: Tensor, rejected: Tensor, unseen: Tensor, beta: float) -> Tensor:
    """Computes the loss of conditional preference optimization (Wang et al., 2024, arXiv:2406.11839): DPO + CoPO +
    AncPO.

    As in the authors' code (luka-group/mDPO, ``mdpo_trainer.py``), the three terms have equal weight, and the anchor is
    0.

    Args:
        chosen: Log-ratios of the preferred responses.
        rejected: Log-ratios of the rejected responses.
        unseen: Log-ratios of the preferred responses to a picture that shows only a small part of the image.
        beta: Strength of the implicit KL term.
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

    As in the authors' code (Liuwq-bit/SymMPO, ``muffin/train/trainers.py``, ``dpo_loss``), the terms are DPO, the two
    symmetric pairs, an anchor at 0 for each image's own response, and the squared difference of the symmetric pairs'
    margins, which are not multiplied by beta.

    Args:
        chosen: Log-ratios of the preferred responses y to the image.
        rejected: Log-ratios of the rejected responses to the image.
        others: Log-ratios, given the image, of the preferred responses y' to another image.
        other_chosen: Log-ratios of y', given the other image.
        chosen_of_other: Log-ratios of y, given the other image.
        beta: Strength of the implicit KL term, for all terms. The authors' script has two settings for
            it, which are both 0.1.
        symmetric: Weight of the symmetric pairs (lambda). The authors' script uses 0.5.
        consistency: Weight of the margins' consistency. The authors' code uses 1e-4.
    """
    margin, other_margin = chosen - others, other_chosen - chosen_of_other
    anchors = -logsigmoid(beta * chosen) - logsigmoid(beta * other_chosen)
    pairs = -logsigmoid(beta * margin) - logsigmoid(beta * other_margin)
    return dpo(chosen, rejected, beta) + symmetric * pairs + anchors + consistency * (margin - other_margin).square()
