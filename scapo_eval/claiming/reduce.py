"""Reduction of the words of annotations to the values that claims have.

An annotation such as "dark brown" or "sitting on" is read by the rules for captions, in a sentence about invented
objects. Facts of an annotation and claims of a caption therefore have the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from ..matching.vocabulary import Vocabulary
from .cues import shipped_claim_cues
from .extract import ClaimExtractor

TURNED = {"right of": "left of", "below": "above"}
"""Relations, each with the one that states the same if the objects are swapped."""

SYMMETRIC = "next to"
"""Relation that states the same if its objects are swapped."""

_INVERSE = {**TURNED, **{inverse: value for value, inverse in TURNED.items()}, SYMMETRIC: SYMMETRIC}
_SUBJECTS = ("car", "dog")
"""A thing and an animal. Some words describe only one of the two."""


@lru_cache(maxsize=1 << 16)
def reduced_attributes(words: str) -> frozenset[str]:
    """Returns the values of attribute claims that the words of an annotation state, or the words themselves if the
    rules find no claim.

    Args:
        words: Words in lower case, separated by single spaces.

    Example:
        >>> sorted(reduced_attributes("black and white")), sorted(reduced_attributes("very large"))
        (['black', 'white'], ['large'])
    """
    cues = shipped_claim_cues().words
    entry = cues["attributes"].get(words) or cues["doing"].get(words)
    if entry or words.isalpha():
        return frozenset((entry[1] if entry else words,))
    sentences = [form.format(subject, words) for form in ("The {} is {}.", "A {1} {0}.") for subject in _SUBJECTS]
    for claims in _extractor().find_batch(sentences):
        values = frozenset(claim.value for claim in claims if claim.kind == "attribute" and claim.use == "claim")
        if values:
            return values
    return frozenset((words,))


@lru_cache(maxsize=1 << 16)
def reduced_relation(words: str) -> tuple[str, frozenset[str]]:
    """Returns the value of the relation claim that the words of an annotation state, or the words themselves if the
    rules find no relation, and the values of the attributes of the subject that the words state.

    Args:
        words: Words in lower case, separated by single spaces.

    Example:
        >>> reduced_relation("sitting on"), reduced_relation("made by")
        (('on', frozenset({'sitting'})), ('made by', frozenset()))
    """
    entry = shipped_claim_cues().words["relations"].get(words)
    if entry:
        return entry[1], frozenset()
    phrase = words.removesuffix(" a").removesuffix(" an").removesuffix(" the")
    for subject in reversed(_SUBJECTS):
        claims = [
            claim
            for claim in _extractor().find(f"A {subject} {phrase} a bench.")
            if claim.label == subject and claim.use == "claim"
        ]
        values = [claim.value for claim in claims if claim.other == "bench"]
        if len(values) == 1:
            return values[0], frozenset(claim.value for claim in claims if claim.kind == "attribute")
    return words, frozenset()


def turned(label: str, value: str, other: str) -> tuple[str, str, str] | None:
    """Returns the other form of a relation: "right of" becomes "left of" with swapped objects. Returns None if there is
    no other form.
    """
    inverse = _INVERSE.get(value) if other else None
    return (other, inverse, label) if inverse else None


def canonical_relation(label: str, value: str, other: str) -> tuple[str, str, str]:
    """Returns a relation in the form that is the same for all relations that state the same: "left of" rather than
    "right of", "above" rather than "below", and sorted objects of "next to".
    """
    other_form = turned(label, value, other)
    is_last = value in TURNED or (value == SYMMETRIC and other < label)
    return other_form if other_form and is_last else (label, value, other)


@cache
def _extractor() -> ClaimExtractor:
    names: dict[str, Sequence[str]] = {name: [name] for name in (*_SUBJECTS, "bench")}
    return ClaimExtractor(Vocabulary.from_mapping(names, name="reduction"), ("attribute", "relation"))
