"""The claim record: one statement of a caption that can be true or false."""

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
    """One statement of a caption about an image that can be true or false on its own.

    Attributes:
        kind: Kind of the claim.
        label: Label of the object. The value is empty for written text on an object that the vocabulary lacks.
        value: Number for a count (``2``, ``3+``, ``2-3``), canonical word for an attribute or relation, written words
            for a text, or an empty string for presence.
        category: Color, material, size or state for attributes; spatial, place, holding, wearing or part for relations.
            The value is empty for other kinds.
        other: Label of the second object of a relation. The value is empty for a position in the image.
        start, end: Span of the words that would have to change if the claim were false.
        use: Use of the statement in the caption. Only a ``claim`` is stated plainly.
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
        """The content of the claim without its position in the text."""
        return self.kind, self.label, self.value, self.other


def asked_as(claim: Claim) -> ClaimKey:
    """Returns the content of a claim in the form in which a judge is asked about it.

    A restricted count becomes a lower bound. The answer yes to "at least two" leaves a restricted "two" undecided, and
    the answer no makes it false.
    """
    if claim.kind == "count" and claim.restricted:
        return claim.kind, claim.label, f"{count_range(claim.value)[0]}+", claim.other
    return claim.key


def kinds_of(given: str | Sequence[str]) -> tuple[ClaimKind, ...]:
    """Returns claim kinds in canonical order.

    Args:
        given: Names of kinds, or one string of comma-separated names.

    Raises:
        InputError: If a name is not a claim kind.
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
    """Returns the minimum and maximum number that a count value allows. The maximum is None if there is no upper bound.

    Raises:
        ValueError: If the value is not a count.
    """
    match = _RANGE.match(value)
    if not match:
        raise ValueError(f"not a count: {value!r}; a count is like '2', '3+' or '2-3'")
    least = int(match[1])
    return least, int(match[3]) if match[3] else None if match[2] else least
