"""Computation of CIDEr-D, BLEU-4 and ROUGE-L per caption with COCO's evaluation code from the package pycocoevalcap
(extra ``ngrams``).

The tokenizer of pycocoevalcap is a Java program. To avoid Java, captions and references are split into words by
:mod:`scapo_eval.matching.words`. The values therefore differ from published values in the third digit, but all metrics
of a run are computed from the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import MissingExtra
from ..matching.words import tokens

NGRAMS = ("cider_d", "bleu_4", "rouge_l")


def ngram_scores(
    metric: str, images: Sequence[str], captions: Sequence[str], references: Mapping[str, Sequence[str]]
) -> NDArray[np.float64]:
    """Returns the (n,) scores of captions, with NaN for images without references.

    Args:
        metric: Name of the metric, one of NGRAMS.
        images: Canonical image id of each caption.
        captions: Texts of the captions.
        references: Mapping from each image to its reference captions. The weight of an n-gram in CIDEr-D depends on the
            number of images whose references contain the n-gram.

    Raises:
        MissingExtra: If pycocoevalcap is not installed.
    """
    try:
        from pycocoevalcap.bleu.bleu_scorer import BleuScorer
        from pycocoevalcap.cider.cider_scorer import CiderScorer
        from pycocoevalcap.rouge.rouge import Rouge
    except ImportError:
        raise MissingExtra("ngrams", metric) from None
    words = {image: [_words(text) for text in texts] for image, texts in references.items()}
    candidates = [_words(caption) for caption in captions]
    known = [k for k, image in enumerate(images) if words.get(image)]
    scores = np.full(len(captions), np.nan)
    if metric == "rouge_l":
        rouge = Rouge()
        scores[known] = [rouge.calc_score([candidates[k]], words[images[k]]) for k in known]
    elif metric == "bleu_4":
        bleu = BleuScorer(n=4)
        for k in known:
            bleu.cook_append(candidates[k], words[images[k]])
        scores[known] = bleu.compute_score(option="closest", verbose=0)[1][3]
    else:
        scores[known] = _cider(CiderScorer, images, candidates, words, known)
    return scores


def _cider(
    scorer: Any, images: Sequence[str], candidates: Sequence[str], words: Mapping[str, list[str]], known: Sequence[int]
) -> list[float]:
    """Returns the CIDEr-D of each caption. When n-grams are weighted, every image counts once, regardless of its number
    of captions.
    """
    of_image: dict[str, list[int]] = {}
    for k in known:
        of_image.setdefault(images[k], []).append(k)
    scores: dict[int, float] = {}
    for turn in range(max(map(len, of_image.values()), default=0)):
        cider, chosen = scorer(n=4, sigma=6.0), [rows[min(turn, len(rows) - 1)] for rows in of_image.values()]
        for k in chosen:
            cider.cook_append(candidates[k], words[images[k]])
        scores |= dict(zip(chosen, map(float, cider.compute_score()[1]), strict=True))
    return [scores[k] for k in known]


def _words(text: str) -> str:
    return " ".join(tokens(text))
