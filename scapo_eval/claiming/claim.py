"""Record type for a claim, which is one statement in a caption that can be true or false."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from ..base.errors import InputError, short_repr
from ..base.types import Mention, Use

ClaimKind = Literal["presence", "count", "attribute", "relation", "text"]
"""Kind of a claim about an object.

A claim states presence, a count, an attribute, a relation or a written text. Attributes are colors, materials, sizes
and states. A relation connects an object to another object or to a position in the image.
"""

KINDS: tuple[ClaimKind, ...] = get_args(ClaimKind)

ClaimKey: TypeAlias = tuple[ClaimKind, str, str, str]
"""Kind, label, value and other label of a claim: its content without its position in the text."""

_RANGE = re.compile(r"(\d+)(\+|-(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement that a caption makes about an image and that can be true or false on its own.

    Attributes:
        kind: Kind of the claim.
        label: Label of the object, or an empty string for written text on an object that is not in the vocabulary.
        value: Number for a count (``2``, ``3+``, ``2-3``), canonical word for an attribute or relation, words as
            written for text, or an empty string for presence.
        category: Category of an attribute (color, material, size or state) or of a relation (spatial, place, holding,
            wearing or part). The value is an empty string for other kinds.
        other: Label of the second object of a relation, or an empty string if the relation is a position in the image.
        start: Offset of the first word that would have to be changed if the claim were false.
        end: Offset after the last word that would have to be changed if the claim were false.
        use: Function of the statement in the caption, such as ``claim`` or ``negated``. Only the use ``claim`` means
            that the caption asserts the statement.
        mentions: Mentions of the object and of the second object.
        restricted: True for a count that may refer to only some of the objects ("two dogs on the couch").

    Example:
        >>> import scapo_eval
        >>> claim = scapo_eval.ClaimExtractor("coco80").find("Two red cars.")[0]
        >>> claim.kind, claim.label, claim.value
        ('count', 'car', '2')
    """

    kind: ClaimKind
    label: str
    value: str
    category: str
    other: str
    start: int
    end: int
    use: Use
    mentions: tuple[Mention, ...]
    restricted: bool = False

    @property
    def key(self) -> ClaimKey:
        """Content of the claim, without its position in the text."""
        return self.kind, self.label, self.value, self.other


def asked_as(claim: Claim) -> ClaimKey:
    """Returns the claim that a judge is asked about to decide the given claim.

    A restricted count is converted to a lower bound, such as "at least two" for "two". If the judge answers "no", the
    restricted count is false. If the judge answers yes, the restricted count remains undecided.
    """
    if claim.kind == "count" and claim.restricted:
        return claim.kind, claim.label, f"{count_range(claim.value)[0]}+", claim.other
    return claim.key


def kinds_of(given: str | Sequence[str]) -> tuple[ClaimKind, ...]:
    """Returns claim kinds in canonical order.

    Args:
        given: Sequence of kind names, or one string of comma-separated names.

    Raises:
        InputError: If a name does not denote a kind of claim.
    """
    names = [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)):
        raise InputError(f"kinds must be names of kinds, got {short_repr(given)}")
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or "none"
        raise InputError(f"not a kind of claim: {wrong}; kinds are {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


@lru_cache(maxsize=1024)
def count_range(value: str) -> tuple[int, int | None]:
    """Returns the minimum and the maximum number that the value of a count claim allows. The maximum is None if there
    is no upper bound.

    Raises:
        ValueError: If the value does not belong to a count claim.
    """
    match = _RANGE.match(value)
    if not match:
        raise ValueError(f"not a count: {value!r}; a count is like '2', '3+' or '2-3'")
    least = int(match[1])
    return least, int(match[3]) if match[3] else None if match[2] else least


def question_of(claim: ClaimKey) -> str:
    """Returns the question that a judge or a person answers to determine whether a claim is true."""
    kind, label, value, other = claim
    if kind == "presence":
        return f"Is at least one {label} visible in the image?"
    if kind == "count":
        least, most = count_range(value)
        number = f"at least {least}" if most is None else f"exactly {least}" if most == least else f"{least} to {most}"
        return f"How many of these are visible in the image: {label}? Is the number {number}?"
    if kind == "attribute":
        return f'Is there a {label} in the image for which this is true: "{value}"?'
    if kind == "text":
        return f'Is "{value}" written {f"on a {label} " if label else ""}in the image?'
    if other:
        return f'Is this true of a {label} and a {other} in the image: "{label} {value} {other}"?'
    return f"Is there a {label} in this part of the image: {value}?"
