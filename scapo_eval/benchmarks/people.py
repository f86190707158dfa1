"""``cap_people``: one number per caption, joined from what is counted anyway as people's ratings suggest.

It is a product of terms, each raised to a fixed power (the card). The powers were fitted to ratings of one half of the
images of THumB (and of Composite, for the card without references) and are frozen; docs/validity.md has the values on
the other halves, and what the score is blind to. It is deterministic and needs no model.

- *overlap*: F-score (recall counts :data:`BETA` times as much) of the content words of the caption and of the
  references. A word weighs what it is rare among all images' references; in the references' favor also the square root
  of the share of them that have it. Words that no reference has cost, so a longer caption does not gain by length.
- *repetition*: ``1 / (1 + words said again / words of a reference)``.
- *brevity*: 1, below :data:`SHORT` of the references' length falling with the number of words.
- *faithful*: ``1 - absent labels / (claimed labels + 1)``, where a truth says what is absent.
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
"""Weight of the references' words against the caption's in the overlap."""

SHORT = 0.6
"""Share of the references' length below which a caption is too short: it would gain by dropping articles."""

UNIT = 1_000_000
"""Scores are counted in millionths, so that they add up exactly in any order."""

VERSION = 1


@dataclass(frozen=True)
class Card:
    """The composition of a joint score.

    Attributes:
        name: which kinds of truth it needs.
        powers: term -> exponent.
    """

    name: str
    powers: Mapping[Term, float]

    @property
    def identity(self) -> str:
        """For signatures: ``references+truth@1``."""
        return f"{self.name}@{VERSION}"


CARDS = {
    card.name: card
    for card in (
        Card("references", {"overlap": 1 / 3, "repetition": 1.0, "brevity": 1.0}),
        Card("references+truth", {"overlap": 1 / 3, "repetition": 1.0, "brevity": 1.0, "faithful": 1.0}),
        Card("truth", {"cover": 0.25, "faithful": 2.0}),
    )
}
"""The cards, by what there is to hold a caption against."""


def card_of(*, references: bool, truth: bool) -> Card:
    """Returns the card for the available references and ground truth."""
    return CARDS["+".join([*(["references"] if references else []), *(["truth"] if truth else [])])]


class WordScores(NamedTuple):
    """A caption against the words of its image's references, fractions in [0, 1].

    Attributes:
        named: of the caption's content words, by rarity: the share that a reference has.
        covered: of the references' content words, by rarity and share of references: the share that the caption has.
        repetition: 1 if no word is said again, towards 0 the more are.
        brevity: 1 for a caption that is not much shorter than the references, towards 0 the shorter it is.
    """

    named: float
    covered: float
    repetition: float
    brevity: float

    @property
    def overlap(self) -> float:
        """F-score of the two, recall counting BETA times as much; 0 if one is 0."""
        total = BETA**2 * self.named + self.covered
        return (1 + BETA**2) * self.named * self.covered / total if total else 0.0


def word_scores(words: ReferenceWords, image: str, caption: str) -> WordScores | None:
    """Returns a caption against the references of its image; None if these have no content word.

    Args:
        words: of all images' references.
        image: canonical id; it must have references.
        caption: the text.
    """
    counts: WordCounts = words.of(image, caption)
    if not counts.named:
        return None
    caption_words = tokens(caption)
    content = content_words(caption_words)
    rarity = {word: words.rarity(word) for word in (*counts.named, *content)}
    weight = {word: rarity[word] * (n / counts.n) ** 0.5 for word, n in counts.named.items()}
    shared = sorted(content & counts.named.keys())  # sorted: sums of fractions depend on their order
    content_rarity = sum(rarity[word] for word in sorted(content))
    return WordScores(
        named=sum(rarity[word] for word in shared) / content_rarity if content_rarity else 0.0,
        covered=min(1.0, sum(weight[word] for word in shared) / sum(weight[word] for word in sorted(weight))),
        repetition=1 / (1 + (len(caption_words) - len(set(caption_words))) / counts.length),
        brevity=min(1.0, len(caption_words) / (SHORT * counts.length)),
    )


def word_terms(words: ReferenceWords, image_ids: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
    """Returns the (n, 5) named, covered, overlap, repetition and brevity of captions; NaN if their references have no
    word.
    """
    terms = np.full((len(captions), 5), np.nan)
    for k, (image, caption) in enumerate(zip(image_ids, captions, strict=True)):
        if (scores := word_scores(words, image, caption)) is not None:
            terms[k] = scores.named, scores.covered, scores.overlap, scores.repetition, scores.brevity
    return terms


def joint_score(card: Card, terms: Mapping[Term, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns the product of the terms, each to its power.

    Args:
        card: the powers.
        terms: (n,) fractions of every term of the card.

    Returns:
        (n,) scores in [0, 1]; NaN if a term has no value.
    """
    product = np.ones(())
    for term, power in card.powers.items():
        product = product * np.maximum(terms[term], 0.0) ** power
    return np.asarray(product, dtype=np.float64)
