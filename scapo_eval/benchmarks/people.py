"""``cap_people``: a joint score per caption that agrees with people's ratings better than Cap. Score.

The score is a product of terms, each raised to a fixed power (the card). Definitions and powers were chosen on one half
of the images of THumB (and of Composite, for the card without references) and are frozen. docs/validity.md has the
agreement on the other halves and the limits of the score. The score is deterministic and needs no model.

- *overlap*: ``covered / (covered + missed + unnamed / 10 + 2)``, in units of rarity. Covered are the content words that
  the caption shares with any reference. Missed are the references' other words, each times the share of references that
  contain it: a detail that only one reference mentions earns as much as any other word, and costs little if it is
  missing. Unnamed are the caption's words that no reference contains, so adding words does not pay.
- *repetition*: ``1 / (1 + repeated words / words of a reference)``.
- *brevity*: 1 from :data:`SHORT` of the references' length on. Below this length, it is proportional to the length.
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
    """Composition of a joint score.

    Attributes:
        name: Required inputs.
        powers: Term -> exponent.
        version: Number that changes with the definition.
    """

    name: str
    powers: Mapping[Term, float]
    version: int

    @property
    def identity(self) -> str:
        """Name and version for signatures: ``references+truth@2``."""
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
    """Returns the card for the available references and ground truth."""
    return CARDS["+".join([*(["references"] if references else []), *(["truth"] if truth else [])])]


class WordScores(NamedTuple):
    """Comparison of a caption with the words of its image's references. All values are in [0, 1].

    Attributes:
        named: Share of the caption's content words, weighted by rarity, that a reference contains.
        covered: Rarity of the caption's words that a reference contains, divided by the same plus that of the words
            that the caption lacks. A missing word weighs its rarity times the squared share of references with it.
            With one reference, this is the recall of its words.
        overlap: Term *overlap* of the joint score.
        repetition: Term *repetition*: 1 if no word is repeated.
        brevity: Term *brevity*: 1 if the caption is not much shorter than the references.
    """

    named: float
    covered: float
    overlap: float
    repetition: float
    brevity: float


def word_scores(words: ReferenceWords, image: str, caption: str) -> WordScores | None:
    """Compares a caption with the references of its image. Returns None if they contain no content words.

    Args:
        words: Words of all images' references.
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
    """Returns the word scores of captions, (n, 5), in the order of :class:`WordScores`.

    A row is NaN if the references of its image have no content word.
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
        terms: (n,) fractions for every term of the card.

    Returns:
        (n,) scores in [0, 1]. A score is NaN if a term has no value.
    """
    product = np.ones(())
    for term, power in card.powers.items():
        product = product * np.maximum(terms[term], 0.0) ** power
    return np.asarray(product, dtype=np.float64)
