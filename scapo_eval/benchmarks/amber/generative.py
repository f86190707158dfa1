"""Scores one description as AMBER's script does: which mentions are hallucinated, which annotations are covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.reprs import fields_in_short
from .data import Description

Near = Mapping[str, frozenset[str]]
"""Word -> other words of the vocabulary that count as the same; words without any are omitted."""


@dataclass(frozen=True, slots=True)
class DescriptionCredit:
    """The verdict on one description, laid out as the official script keeps it.

    Attributes:
        mentions: the mentioned words of the vocabulary, in order, with repetitions.
        flags: 1 for a hallucinated mention, one per mention.
        cover: 1 for a covered slot of the ground truth.
        cog: 1 for a mentioned slot of what people expect to be hallucinated.
    """

    mentions: Sequence[str]
    flags: list[int]
    cover: list[int]
    cog: list[int]

    __repr__ = fields_in_short


def credit(item: Description, mentions: Sequence[str], safe: frozenset[str], near: Near) -> DescriptionCredit:
    """Credits every mention to the slots it names.

    A mention of a supported word covers its slot. Any other is hallucinated, unless a similar word is supported;
    and it is looked up among the words expected to be hallucinated twice, as itself and, from the start, by
    similarity, so that one mention can credit two slots.

    Args:
        item: what is annotated.
        mentions: words of the vocabulary.
        safe: words that are never hallucinated and credit nothing.
        near: similar words; empty for none.
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
    """Returns the slot of the first of the words in lookup order."""
    return next((slot for word, slot in slots.items() if word in words), None)
