"""Claims beyond presence as units of Eq. 1: their content, their place in the text, and their truth in the scenes.

A true claim is new if it names a new fact, whatever its words: "two dogs" and "a pair of dogs" name one number, "left
of" and "right of" the same two things in either order one place. A false claim is charged for its content. A count that
says no more than presence ("at least one dog") is not a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.ids import canonical_image_id
from ..base.types import State
from ..claiming.claim import Claim, ClaimKind
from ..claiming.cues import shipped_claim_cues
from ..claiming.extract import ClaimExtractor
from ..matching.uses import LEFT_OUT, Reading
from ..matching.vocabulary import Vocabulary
from ..truths.claim_oracle import ClaimOracle, fact_of
from ..truths.scenes import Scenes

_INVERSE = {"right of": "left of", "below": "above"}
_AT_LEAST_ONE = "1+"


class Unit(NamedTuple):
    """The unit that is counted once per piece.

    Attributes:
        kind: of the claim.
        name: readable content: ``dog: 3``, ``bus: red``, ``man holding phone``.
    """

    kind: ClaimKind
    name: str


class UnitColumns(NamedTuple):
    """The claims of n texts.

    Attributes:
        text, start: (claims,) index of its text, and its offset there.
        unit: (claims,) position in ``units``.
        state: (claims,) 1, 0 or -1: true, false, unknown.
        units: every unit that is claimed.
    """

    text: NDArray[np.int64]
    start: NDArray[np.int64]
    unit: NDArray[np.int64]
    state: NDArray[np.int8]
    units: Sequence[Unit]


class UnitReader:
    """Finds the units of texts.

    Args:
        vocabulary: labels that claims are about.
        kinds: kinds of the claims, without presence.
        reading: the reading; claims with a use that it omits do not count.
        scenes: contents of the images, in the order of lookup.
    """

    def __init__(
        self, vocabulary: Vocabulary, kinds: Sequence[ClaimKind], reading: Reading, scenes: Sequence[Scenes]
    ) -> None:
        self.extractor = ClaimExtractor(vocabulary, kinds)
        self.oracle = ClaimOracle(vocabulary, scenes=tuple(scenes))
        self.left_out = LEFT_OUT[reading]

    @property
    def signature(self) -> str:
        """Returns the scenes and the rules with their hashes, for a signature."""
        return f"{self.oracle.signature}+cues:{shipped_claim_cues().fingerprint}"

    def read(self, image_ids: Sequence[object], texts: Sequence[str]) -> UnitColumns:
        """Returns the units of texts; an empty text has none, and its image may be anything."""
        judged = dict[tuple[object, ...], State]()
        ids, units = dict[tuple[str, ...], int](), list[Unit]()
        rows = list[tuple[int, int, int, State]]()
        for k, claims in enumerate(self.extractor.find_batch(texts)):
            image = canonical_image_id(image_ids[k]) if claims else ""
            for claim in claims:
                if claim.use in self.left_out or (claim.kind == "count" and claim.value == _AT_LEAST_ONE):
                    continue
                asked = image, claim.key, claim.restricted
                state = judged.get(asked)
                if state is None:
                    state = judged[asked] = self.oracle.state(image, claim)
                says = _says(claim, state)
                at = ids.setdefault(says, len(ids))
                if at == len(units):
                    units.append(Unit(claim.kind, _named(claim, state, says)))
                rows.append((k, claim.start, at, state))
        text, start, unit, state_of = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return UnitColumns(text, start, unit, state_of.astype(np.int8), units)


def _says(claim: Claim, state: State) -> tuple[str, ...]:
    """Returns the fact of a true claim, otherwise the content of the claim."""
    if state != 1:
        return "", *claim.key, "some" if claim.restricted else ""
    if claim.value in _INVERSE and claim.other:
        return claim.kind, claim.other, _INVERSE[claim.value], claim.label
    return claim.kind, *fact_of(claim)


def _named(claim: Claim, state: State, says: tuple[str, ...]) -> str:
    if claim.kind == "relation" and claim.other:
        return f"{claim.label} {claim.value} {claim.other}" if state != 1 else " ".join(says[1:])
    if claim.kind == "text":
        return f'"{claim.value}"'
    if claim.kind == "count":
        return (
            f"number of {claim.label}" if state == 1 else f"{claim.label}: {claim.value}{' of more' * claim.restricted}"
        )
    return f"{claim.label}: {claim.value}"
