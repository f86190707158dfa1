"""Scoring of one description by the rules of AMBER's script: hallucinated mentions and covered annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.reprs import fields_in_short
from .data import Description

Near = Mapping[str, frozenset[str]]
"""Word -> other words of the vocabulary that count as equal. Words without such words are omitted."""


@dataclass(frozen=True, slots=True)
class DescriptionCredit:
    """Verdict on one description, with the lists that the official script computes.

    Attributes:
        mentions: Mentioned words of the vocabulary, in order, including repetitions.
        flags: For each mention, 1 if the mention is hallucinated.
        cover: For each slot of the ground truth, 1 if the description covers the slot.
        cog: For each word that people expect to be hallucinated, 1 if the description mentions the word.
    """

    mentions: Sequence[str]
    flags: list[int]
    cover: list[int]
    cog: list[int]

    __repr__ = fields_in_short


def credit(item: Description, mentions: Sequence[str], safe: frozenset[str], near: Near) -> DescriptionCredit:
    """Assigns each mention in a description to the slots that it covers.

    A mention of a supported word covers the slot of this word. Any other mention is hallucinated, unless a similar word
    is supported. If the word of a mention is not itself supported, the mention is also looked up among the words that
    people expect to be hallucinated. The first lookup is exact, and the second uses similarity from the start of the
    list. One mention can therefore count for two slots.

    Args:
        item: Annotated image.
        mentions: Mentioned words of the vocabulary.
        safe: Words that are never hallucinated and cover no slot.
        near: Mapping from each word to similar words. An empty mapping disables similar words.
    """
    flags: list[int] = []
    cover = [0] * len(item.truth)
    cog = [0] * len(item.imagined)
    for word in mentions:
        if word in safe:
            flags.append(0)
            continue
        slot = item.supported.get(word)
        if slot is None:
            as_itself = item.expected.get(word)
            if as_itself is not None:
                cog[as_itself] = 1
            if word in near:
                alike = near[word]
                by_similarity = _first(item.expected, alike | {word})
                if by_similarity is not None:
                    cog[by_similarity] = 1
                slot = _first(item.supported, alike)
        if slot is not None:
            cover[slot] = 1
        flags.append(int(slot is None))
    return DescriptionCredit(mentions, flags, cover, cog)


def _first(slots: Mapping[str, int], words: frozenset[str]) -> int | None:
    """Returns the first slot, in lookup order, that one of the words covers."""
    return next((slot for word, slot in slots.items() if word in words), None)
