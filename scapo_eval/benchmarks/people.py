"""``cap_people``, a joint score per caption that combines existing counts according to people's ratings.

The score is a product of terms, each raised to a fixed power (the card). The powers were fitted to ratings for one half
of the images of THumB (and of Composite, for the card without references) and are frozen. docs/validity.md reports the
values for the other halves and the limitations of the score. The score is deterministic and requires no model.

- *overlap*: F-score of the content words in the caption and in the references. Recall has :data:`BETA` times the weight
  of precision. Each word is weighted by its rarity in the references of all images. For recall, the weight is also
  multiplied by the square root of the share of references with the word. Words without a reference lower the score, so
  longer captions have no advantage.
- *repetition*: ``1 / (1 + repeated words / words of a reference)``.
- *brevity*: 1 from :data:`SHORT` of the references' length, and proportional to the number of words below.
- *faithful*: ``1 - absent labels / (claimed labels + 1)``, if the ground truth marks absences.
- *cover*: ``(covered labels + 1) / (present labels + 1)``, if there are no references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..matching.words import content_words, tokens
from ..truths.references import ReferenceWords, WordCounts

Term = Literal["overlap", "repetition", "brevity", "faithful", "cover"]

BETA = 3.0
"""Weight of recall (words of the references) relative to precision (words of the caption) in the overlap."""

SHORT = 0.6
"""Share of the references' length below which a caption is penalized, so that omitting articles gains nothing."""

UNIT = 1_000_000
"""Number of counting units in 1. Scores are counted in millionths, whose sums are exact in any order."""

VERSION = 1


@dataclass(frozen=True)
class Card:
    """Composition of a joint score.

    Attributes:
        name: Required kinds of ground truth.
        powers: Term -> exponent.
    """

    name: str
    powers: Mapping[Term, float]

    @property
    def identity(self) -> str:
        """Name and version for signatures, for example ``references+truth@1``."""
        return f"{self.name}@{VERSION}"


CARDS = {
    card.name: card
    for card in (
        Card("references", {"overlap": 1 / 3, "repetition": 1.0, "brevity": 1.0}),
        Card("references+truth", {"overlap": 1 / 3, "repetition": 1.0, "brevity": 1.0, "faithful": 1.0}),
        Card("truth", {"cover": 0.25, "faithful": 2.0}),
    )
}
"""Cards by the available kinds of ground truth."""


def card_of(*, references: bool, truth: bool) -> Card:
    """Returns the card for the available references and ground truth."""
    return CARDS["+".join([*(["references"] if references else []), *(["truth"] if truth else [])])]


class WordScores(NamedTuple):
    """Comparison of a caption with the words of its image's references, as fractions in [0, 1].

    Attributes:
        named: Share of the caption's content words that occur in a reference, weighted by rarity.
        covered: Share of the references' content words that occur in the caption, weighted by rarity and by the share
            of references.
        repetition: 1 if no word is repeated, decreasing toward 0 with more repetitions.
        brevity: 1 unless the caption is much shorter than the references, decreasing toward 0 for shorter captions.
    """

    named: float
    covered: float
    repetition: float
    brevity: float

    @property
    def overlap(self) -> float:
        """F-score of ``named`` and ``covered``, in which ``covered`` has BETA times the weight. The value is 0 if one
        of them is 0.
        """
        total = BETA**2 * self.named + self.covered
        return (1 + BETA**2) * self.named * self.covered / total if total else 0.0


def word_scores(words: ReferenceWords, image: str, caption: str) -> WordScores | None:
    """Compares a caption with the references of its image. Returns None if the references contain no content words.

    Args:
        words: Words of all images' references.
        image: Canonical image id with references.
        caption: Text of the caption.
    """
    counts: WordCounts = words.of(image, caption)
    if not counts.named:
        return None
    caption_words = tokens(caption)
    content = content_words(caption_words)
    rarity = {word: words.rarity(word) for word in (*counts.named, *content)}
    weight = {word: rarity[word] * (n / counts.n) ** 0.5 for word, n in counts.named.items()}
    shared = sorted(content & counts.named.keys())  # sorted, since float sums depend on the order
    content_rarity = sum(rarity[word] for word in sorted(content))
    return WordScores(
        named=sum(rarity[word] for word in shared) / content_rarity if content_rarity else 0.0,
        covered=min(1.0, sum(weight[word] for word in shared) / sum(weight[word] for word in sorted(weight))),
        repetition=1 / (1 + (len(caption_words) - len(set(caption_words))) / counts.length),
        brevity=min(1.0, len(caption_words) / (SHORT * counts.length)),
    )


def word_terms(words: ReferenceWords, image_ids: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
    """Returns the (n, 5) named, covered, overlap, repetition and brevity of captions.

    The values are NaN if the references contain no content words.
    """
    terms = np.full((len(captions), 5), np.nan)
    for k, (image, caption) in enumerate(zip(image_ids, captions, strict=True)):
        if (scores := word_scores(words, image, caption)) is not None:
            terms[k] = scores.named, scores.covered, scores.overlap, scores.repetition, scores.brevity
    return terms


def joint_score(card: Card, terms: Mapping[Term, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns the product of the terms, each raised to its power.

    Args:
        card: Powers of the terms.
        terms: (n,) fractions for every term of the card.

    Returns:
        (n,) scores in [0, 1], with NaN if a term has no value.
    """
    product = np.ones(())
    for term, power in card.powers.items():
        product = product * np.maximum(terms[term], 0.0) ** power
    return np.asarray(product, dtype=np.float64)
