"""``cap_people``: a joint score per caption that agrees with people's ratings better than the caption score does.

The joint score is a product of terms, each raised to a fixed power. A *card* lists the terms and their powers.
Definitions and powers were chosen on one half of the images of THumB (and of Composite, for the card without
references) and have not been changed since. The page docs/validity.md reports the limits of the score and the agreement
on the other halves. The score is deterministic and requires no model.

- *overlap*: ``covered / (covered + missed + unnamed / 10 + 2)``, in units of rarity. *Covered* refers to the content
  words that the caption shares with any reference. *Missed* refers to the other words of the references, each weighted
  by the share of references that contain it. A detail that only one reference mentions therefore earns as much as any
  other word, but a caption that omits it loses little. *Unnamed* refers to the words in the caption that occur in no
  reference; adding such words therefore lowers the score.
- *repetition*: ``1 / (1 + repeated words / words of a reference)``.
- *brevity*: 1 if the caption is at least :data:`SHORT` times as long as the references. A shorter caption has a brevity
  proportional to its length.
- *faithful*: ``1 - absent labels / (claimed labels + 1)``, if the ground truth marks labels as absent.
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

UNNAMED = 0.1
"""Weight of caption words that no reference contains, in the overlap."""

SMOOTHING = 2.0
"""Constant in the denominator of the overlap: the rarity of about one common word."""

SHORT = 0.6
"""Share of the references' length below which a caption is too short. Otherwise, omitting articles would pay."""

UNIT = 1_000_000
"""Units per 1.0. Integer scores have exact sums in any order."""


@dataclass(frozen=True)
class Card:
    """Terms of a joint score, with the power of each term.

    Attributes:
        name: Name of the card, which lists the required inputs, such as ``references+truth``.
        powers: Mapping from each term to its exponent.
        version: Number that changes whenever the definition of the score changes.
    """

    name: str
    powers: Mapping[Term, float]
    version: int

    @property
    def identity(self) -> str:
        """Name and version of the card, as used in signatures, for example ``references+truth@2``."""
        return f"{self.name}@{self.version}"


CARDS = {
    card.name: card
    for card in (
        Card("references", {"overlap": 0.5, "repetition": 1.0, "brevity": 1.0}, version=2),
        Card("references+truth", {"overlap": 0.5, "repetition": 1.0, "brevity": 1.0, "faithful": 1.0}, version=2),
        Card("truth", {"cover": 0.25, "faithful": 2.0}, version=1),
    )
}
"""Card for each combination of available inputs."""


def card_of(*, references: bool, truth: bool) -> Card:
    """Returns the card for the available sources: references, a ground truth, or both."""
    return CARDS["+".join([*(["references"] if references else []), *(["truth"] if truth else [])])]


class WordScores(NamedTuple):
    """Comparison of the words of a caption with those of its image's references. All values are in [0, 1].

    Attributes:
        named: Share of the caption's content words, weighted by rarity, that a reference contains.
        covered: Total rarity of the caption's words that a reference contains, divided by the sum of this total and the
            weight of the reference words that the caption lacks. The weight of a word that is missing from the caption
            is the word's rarity multiplied by the squared share of references that contain the word. With one
            reference, *covered* is the recall of its words, weighted by rarity.
        overlap: The *overlap* term of the joint score.
        repetition: Term *repetition* of the joint score, which is 1 if no word is repeated.
        brevity: Term *brevity* of the joint score, which is 1 unless the caption is much shorter than the references.
    """

    named: float
    covered: float
    overlap: float
    repetition: float
    brevity: float


def word_scores(words: ReferenceWords, image: str, caption: str) -> WordScores | None:
    """Compares a caption with the references of its image. Returns None if the references contain no content words.

    Args:
        words: Words of the references of all images.
        image: Canonical id of an image with references.
        caption: Text of the caption.
    """
    counts: WordCounts = words.of(image, caption)
    if not counts.named:
        return None
    caption_words = tokens(caption)
    content = content_words(caption_words)
    rarity = {word: words.rarity(word) for word in (*counts.named, *content)}
    share = {word: n / counts.n for word, n in sorted(counts.named.items())}  # sums of fractions depend on their order
    covered = sum(rarity[word] for word in share if word in content)
    missing = [(rarity[word], part) for word, part in share.items() if word not in content]
    unnamed = sum(rarity[word] for word in sorted(content - share.keys()))
    missed = sum(weight * part for weight, part in missing)
    return WordScores(
        named=covered / (covered + unnamed) if content else 0.0,
        covered=covered / (covered + sum(weight * part**2 for weight, part in missing)),
        overlap=covered / (covered + missed + UNNAMED * unnamed + SMOOTHING),
        repetition=1 / (1 + (len(caption_words) - len(set(caption_words))) / counts.length),
        brevity=min(1.0, len(caption_words) / (SHORT * counts.length)),
    )


def word_terms(words: ReferenceWords, image_ids: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
    """Returns an (n, 5) array with the word scores of n captions, in the order of :class:`WordScores`.

    A row contains NaN if the references of the caption's image have no content words.
    """
    terms = np.full((len(captions), 5), np.nan)
    for k, (image, caption) in enumerate(zip(image_ids, captions, strict=True)):
        if (scores := word_scores(words, image, caption)) is not None:
            terms[k] = scores
    return terms


def joint_score(card: Card, terms: Mapping[Term, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns the product of the terms, each raised to its power.

    Args:
        card: Terms and their powers.
        terms: Mapping from every term of the card to (n,) values between 0 and 1.

    Returns:
        (n,) scores in [0, 1], or NaN for captions for which a term has no value.
    """
    product = np.ones(())
    for term, power in card.powers.items():
        product = product * np.maximum(terms[term], 0.0) ** power
    return np.asarray(product, dtype=np.float64)
