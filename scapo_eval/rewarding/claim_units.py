"""Claims of count, attribute, relation and text that Eq. 1 rewards, with their content, position and verdict.

A true claim is new if it states a new fact, regardless of its wording: "two dogs" and "a pair of dogs" state the same
count, and "left of" and "right of" with swapped objects state the same relation, as do "on" and "above".
False claims, in contrast, are
distinguished by their exact content, and each distinct false claim is penalized. A count that states hardly more than
presence ("at least one dog", "up to ten dogs") is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.ids import canonical_image_id
from ..base.types import State, Use
from ..claiming.claim import KINDS, Claim, ClaimKind
from ..claiming.cues import shipped_claim_cues
from ..claiming.extract import ClaimColumns, ClaimExtractor
from ..claiming.reduce import SYMMETRIC, TURNED, canonical_relation
from ..claiming.rules import VALUES
from ..matching.uses import USES, Reading, left_out, left_out_codes
from ..matching.vocabulary import Vocabulary
from ..truths.claim_oracle import ABOVE, ClaimOracle
from ..truths.scenes import Scenes

_ONE_OR_MORE = ("1+", "1-")
_COUNT = KINDS.index("count")
_OF_OBJECTS = KINDS.index("attribute"), KINDS.index("relation")


class Unit(NamedTuple):
    """A claim that asserts more than the presence of an object and is counted once per piece.

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
        unit: (claims,) index of each claim's unit in ``units``.
        fact: (claims,) number of the fact or false content that each claim states. Units with other names may state the
            same fact, such as "dog on couch" and "dog above couch".
        state: (claims,) state of each claim: 1 for true, 0 for false and -1 for unknown.
        units: The distinct claims.
    """

    text: NDArray[np.int64]
    start: NDArray[np.int64]
    unit: NDArray[np.int64]
    fact: NDArray[np.int64]
    state: NDArray[np.int8]
    units: Sequence[Unit]


class UnitReader:
    """A reader that searches texts for claims beyond presence, and verifies these claims.

    Args:
        vocabulary: Labels that the claims are about.
        kinds: Claim kinds other than presence.
        reading: Reading that determines which mentions are counted. Claims with a use that the reading omits are
            skipped.
        scenes: Scenes that describe the images, in the order in which they are searched.
    """

    def __init__(
        self, vocabulary: Vocabulary, kinds: Sequence[ClaimKind], reading: Reading, scenes: Sequence[Scenes]
    ) -> None:
        self.extractor = ClaimExtractor(vocabulary, kinds, reading)
        self.oracle = ClaimOracle(vocabulary, scenes=tuple(scenes))
        self.left_out = left_out_codes(reading)
        # without a reading, only these uses decide which mentions are objects
        self.uses: tuple[Use, ...] = USES if left_out(reading) else USES[USES.index("modifier") :]

    @property
    def signature(self) -> str:
        """The scenes and the extraction rules, each with its hash, for use in a signature."""
        return f"{self.oracle.signature}+cues:{shipped_claim_cues().fingerprint}"

    def read(
        self,
        image_ids: Sequence[object],
        texts: Sequence[str],
        mentions: MentionColumns,
        uses: NDArray[np.uint8],
        presence: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int8]],
    ) -> UnitColumns:
        """Returns the claims of n texts.

        Args:
            image_ids: n image ids. The id of a text without claims, such as an empty text, is not checked.
            texts: n texts.
            mentions: All mentions in the texts.
            uses: (mentions,) array with the position of each mention's use in :data:`~scapo_eval.matching.uses.USES`.
            presence: Function that returns the (cells,) states of cells, which are given by the (cells,) indices of
                their texts and label ids. A claim about an attribute or relation of an absent object is unknown.
        """
        found = self.extractor.columns(texts, mentions, uses)
        images = dict[str, int]()
        image_of = np.zeros(len(texts), dtype=np.int64)
        for k in np.flatnonzero(np.bincount(found.caption, minlength=len(texts))).tolist():
            image_of[k] = images.setdefault(canonical_image_id(image_ids[k]), len(images))
        adds_nothing = np.array([value.startswith(_ONE_OR_MORE) for value in found.values], dtype=np.bool_)
        kept = ~self.left_out[found.use] & ~((found.kind == _COUNT) & adds_nothing[found.value])
        rows = np.flatnonzero(kept)
        content, parts, claims = self._contents(found, rows)
        # each distinct claim about an image is judged once
        asked = image_of[found.caption[rows]] * len(claims) + content
        distinct, which = np.unique(asked, return_inverse=True)
        image_at, claim_of = np.divmod(distinct, max(len(claims), 1))
        states = list[State]()
        begins = np.searchsorted(image_at, np.arange(len(images) + 1)).tolist()
        present = self._presence(found, rows[np.isin(found.kind[rows], _OF_OBJECTS)], image_of, presence)
        for at, (image, begin, end) in enumerate(zip(images, begins, begins[1:], strict=False)):
            of_image = [claims[claim] for claim in claim_of[begin:end].tolist()]
            states += self.oracle.states_in(image, of_image, present.get(at))
        state = np.array(states, dtype=np.int8)[which]
        unit, first = self._units(content, parts, state)
        same, value = parts.copy(), parts[:, 1, 3]
        for said, implied in ABOVE.items():
            same[(value == VALUES.of(said)) & (parts[:, 1, 2] > 0), 1, 3] = VALUES.of(implied)
        fact, _ = self._units(content, same, state)
        units = _Units([claims[at] for at in content[first].tolist()], state[first].tolist())
        return UnitColumns(found.caption[rows], found.start[rows], unit, fact, state, units)

    def _presence(
        self,
        found: ClaimColumns,
        rows: NDArray[np.int64],
        image_of: NDArray[np.int64],
        presence: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int8]],
    ) -> dict[int, dict[str, State]]:
        """Returns a mapping from the number of each image to the states of the labels in the given claims."""
        labels = self.extractor.matcher.vocabulary.labels
        text, label = np.tile(found.caption[rows], 2), np.concatenate([found.label[rows], found.other[rows]])
        cells = image_of[text] * len(labels) + label
        _, first = np.unique(np.where(label < 0, -1, cells), return_index=True)
        text, label = (column[first[label[first] >= 0]] for column in (text, label))
        states = dict[int, dict[str, State]]()
        for image, name, state in zip(
            image_of[text].tolist(), label.tolist(), presence(text, label).tolist(), strict=True
        ):
            states.setdefault(image, {})[labels[name]] = state
        return states

    def _contents(
        self, found: ClaimColumns, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Claim]]:
        """Returns the distinct contents of claims.

        Args:
            found: Claims.
            rows: Row indices of the claims to examine.

        Returns:
            Three values: the (rows,) index of the content of each claim, the (contents, 2, 5) array that ``_facts``
            returns for the contents, and one claim for each content.
        """
        labels, values = self.extractor.matcher.vocabulary.labels, found.values
        parts = np.stack([found.kind, found.label + 1, found.other + 1, found.value, found.restricted], axis=1)[rows]
        sizes = (len(KINDS), len(labels) + 1, len(labels) + 1, len(values), 2)
        _, first, content = np.unique(
            np.ravel_multi_index(tuple(parts.T), sizes), return_index=True, return_inverse=True
        )
        named = ["", *labels]
        claims = [
            _claim_of(KINDS[kind], named[label], values[value], values[category], named[other], bool(some))
            for (kind, label, other, value, some), category in zip(
                parts[first].tolist(), found.category[rows[first]].tolist(), strict=True
            )
        ]
        return content, self._facts(parts[first], values), claims

    @staticmethod
    def _facts(parts: NDArray[np.int64], values: Sequence[str]) -> NDArray[np.int64]:
        """Returns a (contents, 2, 5) array. For each content, the first row describes the claim, and the second row
        describes the fact that a true claim states. The five numbers are the kind, label, other label, value and
        restriction. A label of 0 means no label.
        """
        kind, label, other, value, _ = parts.T
        fact = parts.copy()
        fact[:, 4] = 2  # a fact, which excludes false claims from the count
        fact[kind == _COUNT, 3] = 0
        swapped = (value == VALUES.of(SYMMETRIC)) & (other > 0) & (other < label)
        for said, inverse in TURNED.items():
            turned = (value == VALUES.of(said)) & (other > 0)
            fact[turned, 3] = VALUES.of(inverse)
            swapped |= turned
        fact[swapped, 1], fact[swapped, 2] = other[swapped], label[swapped]
        written = dict[str, int]()
        for k in np.flatnonzero(kind == KINDS.index("text")).tolist():
            text = " ".join(values[value[k]].casefold().split())
            fact[k, 1], fact[k, 3] = 0, written.setdefault(text, len(written))
        return np.stack([parts, fact], axis=1)

    @staticmethod
    def _units(
        content: NDArray[np.int64], parts: NDArray[np.int64], state: NDArray[np.int8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the number of each claim's unit, counted in order of appearance, and the first claim of each unit."""
        said = parts[content, (state == 1).astype(np.int64)]
        sizes = said.max(axis=0, initial=0) + 1
        packed = np.ravel_multi_index(tuple(said.T), tuple(sizes.tolist()))
        _, first, which = np.unique(packed, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return number[which], first[order]


class _Units(Sequence[Unit]):
    """Distinct claims, whose names are created on demand.

    Args:
        claims: One claim per unit.
        states: State of each claim.
    """

    def __init__(self, claims: list[Claim], states: list[int]) -> None:
        self._claims, self._states = claims, states

    def __len__(self) -> int:
        return len(self._claims)

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> list[Unit]: ...
    def __getitem__(self, at: int | slice) -> Unit | list[Unit]:
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        claim = self._claims[at]
        return Unit(claim.kind, _named(claim, self._states[at]))


@lru_cache(maxsize=1 << 14)
def _claim_of(kind: ClaimKind, label: str, value: str, category: str, other: str, restricted: bool) -> Claim:
    """Returns a claim without a position in a text."""
    return Claim(kind, label, value, category, other, 0, 0, "claim", (), restricted)


def _named(claim: Claim, state: int) -> str:
    if claim.kind == "relation" and claim.other:
        relation = claim.label, claim.value, claim.other
        return " ".join(canonical_relation(*relation) if state == 1 else relation)
    if claim.kind == "text":
        return f'"{claim.value}"'
    if claim.kind == "count":
        return (
            f"number of {claim.label}" if state == 1 else f"{claim.label}: {claim.value}{' of more' * claim.restricted}"
        )
    return f"{claim.label}: {claim.value}"
