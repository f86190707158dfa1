"""Counts, attributes, relations and texts as claims that Eq. 1 rewards: their content, position and verdict.

A true claim is new if it states a new fact, regardless of its wording: "two dogs" and "a pair of dogs" state the same
count, and "left of" and "right of" with swapped objects state the same relation. A false claim is charged for its
content. A count that adds nothing to presence ("at least one dog") is not counted.
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
    """A claim beyond presence, which counts once per piece.

    Attributes:
        kind: Claim kind.
        name: Readable content, such as ``dog: 3``, ``bus: red`` or ``man holding phone``.
    """

    kind: ClaimKind
    name: str


class UnitColumns(NamedTuple):
    """Claims beyond presence in n texts, as columns.

    Attributes:
        text, start: (claims,) index of the text that contains the claim, and the character offset in this text.
        unit: (claims,) index in ``units``.
        state: (claims,) 1 for true, 0 for false and -1 for unknown.
        units: The distinct claims.
    """

    text: NDArray[np.int64]
    start: NDArray[np.int64]
    unit: NDArray[np.int64]
    state: NDArray[np.int8]
    units: Sequence[Unit]


class UnitReader:
    """A reader that finds and verifies claims beyond presence in texts.

    Args:
        vocabulary: Labels that the claims are about.
        kinds: Claim kinds other than presence.
        reading: Mentions that count. Claims whose use the reading omits are skipped.
        scenes: Contents of the images, in the order of lookup.
    """

    def __init__(
        self, vocabulary: Vocabulary, kinds: Sequence[ClaimKind], reading: Reading, scenes: Sequence[Scenes]
    ) -> None:
        self.extractor = ClaimExtractor(vocabulary, kinds)
        self.oracle = ClaimOracle(vocabulary, scenes=tuple(scenes))
        self.left_out = LEFT_OUT[reading]

    @property
    def signature(self) -> str:
        """The scenes and the extraction rules with their hashes, for a signature."""
        return f"{self.oracle.signature}+cues:{shipped_claim_cues().fingerprint}"

    def read(self, image_ids: Sequence[object], texts: Sequence[str]) -> UnitColumns:
        """Returns the claims of n texts. An empty text has no claims, so its image id is not checked."""
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
    """Returns the key that identifies a claim: its fact if the claim is true, otherwise its content."""
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
