"""Counts, attributes, relations and texts as claims that Eq. 1 rewards: their content, position and verdict.

A true claim is new if it states a new fact, regardless of its wording: "two dogs" and "a pair of dogs" state the same
count, and "left of" and "right of" with swapped objects state the same relation. A false claim is charged for its
content. A count that adds nothing to presence ("at least one dog") is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.ids import canonical_image_id
from ..base.types import State, Use
from ..claiming.claim import KINDS, Claim, ClaimKind
from ..claiming.cues import shipped_claim_cues
from ..claiming.extract import ClaimColumns, ClaimExtractor
from ..matching.uses import LEFT_OUT, USES, Reading, left_out_codes
from ..matching.vocabulary import Vocabulary
from ..truths.claim_oracle import ClaimOracle, fact_of
from ..truths.scenes import Scenes

_INVERSE = {"right of": "left of", "below": "above"}
_AT_LEAST_ONE = "1+"
_COUNT = KINDS.index("count")


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
        self.left_out = left_out_codes(reading)
        # without a reading, only these uses decide which mentions are objects
        self.uses: tuple[Use, ...] = USES if LEFT_OUT[reading] else USES[USES.index("modifier") :]

    @property
    def signature(self) -> str:
        """The scenes and the extraction rules with their hashes, for a signature."""
        return f"{self.oracle.signature}+cues:{shipped_claim_cues().fingerprint}"

    def read(
        self,
        image_ids: Sequence[object],
        texts: Sequence[str],
        mentions: MentionColumns,
        uses: NDArray[np.uint8],
    ) -> UnitColumns:
        """Returns the claims of n texts.

        Args:
            image_ids: n image ids. The id of a text without claims, such as an empty text, is not checked.
            texts: n texts.
            mentions: All mentions in the texts.
            uses: (mentions,) positions in :data:`~scapo_eval.matching.uses.USES`.
        """
        found = self.extractor.columns(texts, mentions, uses)
        images = dict[str, int]()
        image_of = np.zeros(len(texts), dtype=np.int64)
        for k in np.flatnonzero(np.bincount(found.caption, minlength=len(texts))).tolist():
            image_of[k] = images.setdefault(canonical_image_id(image_ids[k]), len(images))
        adds_nothing = np.array([value == _AT_LEAST_ONE for value in found.values])
        kept = ~self.left_out[found.use] & ~((found.kind == _COUNT) & adds_nothing[found.value])
        rows = np.flatnonzero(kept)
        content, of_content = self._contents(found, rows)
        # each distinct claim about an image is judged once
        asked = image_of[found.caption[rows]] * len(of_content) + content
        distinct, which = np.unique(asked, return_inverse=True)
        of_image, claim_of = np.divmod(distinct, max(len(of_content), 1))
        states = list[State]()
        begins = np.searchsorted(of_image, np.arange(len(images) + 1)).tolist()
        for image, begin, end in zip(images, begins, begins[1:], strict=False):
            states += self.oracle.states_in(image, [of_content[claim] for claim in claim_of[begin:end].tolist()])
        state = np.array(states, dtype=np.int8)[which]
        # each distinct claim with its verdict is named once
        key, first, which = np.unique(content * 3 + state + 1, return_index=True, return_inverse=True)
        ids, units = dict[tuple[str, ...], int](), list[Unit]()
        unit_of = np.zeros(len(key), dtype=np.int64)
        for at in np.argsort(first).tolist():
            claim, verdict = of_content[int(key[at]) // 3], int(key[at]) % 3 - 1
            says = _says(claim, verdict)
            unit_of[at] = ids.setdefault(says, len(ids))
            if len(ids) > len(units):
                units.append(Unit(claim.kind, _named(claim, verdict, says)))
        return UnitColumns(found.caption[rows], found.start[rows], unit_of[which], state, units)

    def _contents(self, found: ClaimColumns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Claim]]:
        """Returns the index of the content of each claim, and one claim of each content.

        Args:
            found: Claims.
            rows: Rows of the claims to look at.
        """
        labels = self.extractor.matcher.vocabulary.labels
        parts = (found.kind, found.label + 1, found.other + 1, found.value, found.restricted)
        sizes = (len(KINDS), len(labels) + 1, len(labels) + 1, len(found.values), 2)
        packed = np.ravel_multi_index([part[rows] for part in parts], sizes)
        _, first, content = np.unique(packed, return_index=True, return_inverse=True)
        columns = (found.kind, found.label, found.value, found.category, found.other, found.restricted)
        named, values = [*labels, ""], found.values
        claims = [
            _claim_of(KINDS[kind], named[label], values[value], values[category], named[other], some)
            for kind, label, value, category, other, some in zip(
                *(column[rows[first]].tolist() for column in columns), strict=True
            )
        ]
        return content, claims


@lru_cache(maxsize=1 << 14)
def _claim_of(kind: ClaimKind, label: str, value: str, category: str, other: str, restricted: bool) -> Claim:
    """Returns a claim without a place."""
    return Claim(kind, label, value, category, other, 0, 0, "claim", (), restricted)


def _says(claim: Claim, state: int) -> tuple[str, ...]:
    """Returns the key that identifies a claim: its fact if the claim is true, otherwise its content."""
    if state != 1:
        return "", *claim.key, "some" if claim.restricted else ""
    if claim.value in _INVERSE and claim.other:
        return claim.kind, claim.other, _INVERSE[claim.value], claim.label
    return claim.kind, *fact_of(claim)


def _named(claim: Claim, state: int, says: tuple[str, ...]) -> str:
    if claim.kind == "relation" and claim.other:
        return f"{claim.label} {claim.value} {claim.other}" if state != 1 else " ".join(says[1:])
    if claim.kind == "text":
        return f'"{claim.value}"'
    if claim.kind == "count":
        return (
            f"number of {claim.label}" if state == 1 else f"{claim.label}: {claim.value}{' of more' * claim.restricted}"
        )
    return f"{claim.label}: {claim.value}"
