"""Defines a caption's claim, the central record of this package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..base.errors import InputError, short_repr
from ..base.types import Mention, Use

ClaimKind = Literal["presence", "count", "attribute", "relation", "text"]
"""What is claimed of a thing: that it is there; how many; of what color, material, size or state; how it stands to
another or where in the picture; what is written on it."""

KINDS: tuple[ClaimKind, ...] = get_args(ClaimKind)

ClaimKey: TypeAlias = tuple[ClaimKind, str, str, str]
"""Kind, label, value and other label of a claim: what is said, wherever it is said."""

_RANGE = re.compile(r"(\d+)(\+|-(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a caption says of a picture and that can be true or false by itself.

    Attributes:
        kind: what is claimed.
        label: of the thing; empty for a text on nothing that the vocabulary names.
        value: of a count how many (``2``, ``3+``, ``2-3``), of an attribute or a relation its canonical word, of a text
            what is written; empty for presence.
        category: color, material, size, state; spatial, place, holding, wearing, part; empty for the other kinds.
        other: label of the thing that a relation leads to; empty for a place in the picture.
        start, end: the words that would have to change were the claim false.
        use: what the caption does with it; only a ``claim`` is plainly said.
        mentions: of the thing, and of the other.
        restricted: of a count, whether it may be of some of these things only ("two dogs on the couch").

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
        """Returns what is said, without the place where it is said."""
        return self.kind, self.label, self.value, self.other


def asked_as(claim: Claim) -> ClaimKey:
    """Returns what somebody who sees the picture can be asked about a claim: of a restricted count whether it suffices.

    A yes to "at least two" leaves a restricted "two" open; a no makes it false.
    """
    if claim.kind == "count" and claim.restricted:
        return claim.kind, claim.label, f"{count_range(claim.value)[0]}+", claim.other
    return claim.key


def kinds_of(given: str | Sequence[str]) -> tuple[ClaimKind, ...]:
    """Returns kinds in their order.

    Args:
        given: names, or one text of them with commas.

    Raises:
        InputError: if it is not a kind.
    """
    names = [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)):
        raise InputError(f"kinds must be names of kinds, got {short_repr(given)}")
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or "none"
        raise InputError(f"not a kind of claim: {wrong}; kinds are {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


def count_range(value: str) -> tuple[int, int | None]:
    """Returns the least and the greatest number that a count's value allows; None for no greatest.

    Raises:
        ValueError: if it is not such a value.
    """
    match = _RANGE.match(value)
    if not match:
        raise ValueError(f"not a count: {value!r}; a count is like '2', '3+' or '2-3'")
    least = int(match[1])
    return least, int(match[3]) if match[3] else None if match[2] else least
