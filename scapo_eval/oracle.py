"""The presence oracle: what is in an image, by pure look-up.

A cell (image, label) is present, absent or unknown. Positive-only sources (COCO instances, AMBER's word
lists, ``{id: [labels]}`` maps) are read as closed WITHIN their own label axis: what the source annotates
and does not list is absent, a label outside the axis is unknown. DOPA matrices say every cell themselves.
Files are read and written in ``io/truth*.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .ids import canonical_image_id
from .io.files import FaultList
from .io.truth import read_truth, write_truth
from .io.truth_columns import TruthColumns, TruthRows, columns_of_matrix
from .signature import digest
from .types import State
from .vocabulary import Vocabulary


class PresenceOracle(TruthColumns):
    """Present, absent or unknown for every image and label; its columns are those of :class:`TruthColumns`."""

    @classmethod
    def _of(cls, columns: TruthColumns) -> PresenceOracle:
        return cls(**{column.name: getattr(columns, column.name) for column in fields(TruthColumns)})

    @classmethod
    def load(cls, path: str | Path) -> PresenceOracle:
        """Reads any truth format, recognized by content.

        COCO ``instances_*.json``; DOPA ``.npz`` and ``.parquet``; ``{id: [labels]}`` or
        ``{"objects": {id: [labels]}, "labels": [...]}`` JSON; JSON Lines of ``{"image_id", "objects"}``;
        AMBER ``annotations.json``; each also as ``.gz`` or ``.zst``.

        Raises:
            InputError: the file is none of these, with the reason; InputErrors: faults by line.
        """
        return cls._of(read_truth(path))

    @classmethod
    def from_objects(
        cls,
        objects: Mapping[Any, Iterable[str]],
        *,
        labels: Sequence[str] | None = None,
        source: str = "mapping",
    ) -> PresenceOracle:
        """An oracle from ``{image id: present labels}``.

        Args:
            objects: image id in any spelling -> labels present.
            labels: the axis; a label outside it is unknown. Without it any unlisted label is absent.
            source: name for messages.

        Raises:
            InputErrors: image ids that are not valid, or two spellings of one image with different labels.
        """
        rows = TruthRows(source, FaultList())
        for image_id, names in objects.items():
            rows.add(None, image_id, names)
        return cls._of(rows.columns(labels))

    @classmethod
    def from_matrix(
        cls,
        matrix: NDArray[Any],
        image_ids: Sequence[Any],
        labels: Sequence[str],
        *,
        vocabulary_fingerprint: str = "",
        source: str = "matrix",
    ) -> PresenceOracle:
        """An oracle from a matrix of every cell.

        Args:
            matrix: (images, labels) integers, 1 present, 0 absent, -1 unknown.
            image_ids: ids in any spelling.
            labels: the axis.
            vocabulary_fingerprint: of the vocabulary it was made for.
            source: name for messages.

        Raises:
            InputError: shapes that do not fit, other values, an image or label that appears twice.
        """
        return cls._of(columns_of_matrix(matrix, image_ids, labels, vocabulary_fingerprint, source))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Canonical image id -> row."""
        return {image: k for k, image in enumerate(self.image_ids)}

    @cached_property
    def _axis(self) -> Mapping[str, int]:
        return {label: k for k, label in enumerate(self.labels)}

    @cached_property
    def _unknown_cells(self) -> frozenset[tuple[int, int]]:
        return frozenset(map(tuple, self.unknown.tolist()))

    def row(self, image_id: object) -> int:
        """Row of an image in any spelling of its id.

        Raises:
            InputError: the id is not valid, or the oracle does not know it.
        """
        try:
            return self.index[canonical_image_id(image_id)]
        except KeyError:
            raise InputError(f"unknown image id {image_id!r}", path=self.source) from None
        except ValueError as error:
            raise InputError(f"image id {error}") from None

    def find_rows(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) row of each canonical image id, -1 for an image that the oracle does not know."""
        index = self.index
        return np.fromiter((index.get(image, -1) for image in image_ids), dtype=np.int64, count=len(image_ids))

    def state(self, image_id: object, label: str) -> State:
        """1 present, 0 absent, -1 unknown.

        Raises:
            InputError: the oracle does not know the image.
        """
        row = self.row(image_id)
        k = self._axis.get(label)
        if k is None:
            return 0 if self.world == "open-axis" else -1
        if (row, k) in self._unknown_cells:
            return -1
        present = self.label_ids[self.indptr[row] : self.indptr[row + 1]]
        at = int(np.searchsorted(present, k))
        return 1 if at < len(present) and present[at] == k else 0

    def present(self, image_id: object) -> frozenset[str]:
        """The labels present in an image.

        Raises:
            InputError: the oracle does not know the image.
        """
        row = self.row(image_id)
        return frozenset(self.labels[k] for k in self.label_ids[self.indptr[row] : self.indptr[row + 1]].tolist())

    def states(self, labels: Sequence[str]) -> NDArray[np.int8]:
        """Every state for a label axis of the caller's, for example a vocabulary's.

        Args:
            labels: L labels.

        Returns:
            (images, L) int8 of 1, 0, -1.
        """
        column = np.full(len(self.labels) + 1, -1, dtype=np.int64)
        outside = 0 if self.world == "open-axis" else -1
        states = np.full((len(self.image_ids), len(labels)), outside, dtype=np.int8)
        for k, label in enumerate(labels):
            if label in self._axis:
                column[self._axis[label]] = k
                states[:, k] = 0
        target = column[self.label_ids]
        states[self.owner[target >= 0], target[target >= 0]] = 1
        if len(self.unknown):
            target = column[self.unknown[:, 1]]
            states[self.unknown[target >= 0, 0], target[target >= 0]] = -1
        return states

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content: equal for the same truth in another order or file format."""
        label_rank, image_rank = _ranks(self.labels), _ranks(self.image_ids)
        cells = image_rank[self.owner] * len(self.labels) + label_rank[self.label_ids]
        unknown = image_rank[self.unknown[:, 0]] * len(self.labels) + label_rank[self.unknown[:, 1]]
        axis = "open" if self.world == "open-axis" else "closed"
        content = [np.sort(keys).astype("<i8").tobytes() for keys in (cells, unknown)]
        return digest([axis, *sorted(self.labels), "images", *sorted(self.image_ids), *content])

    def restricted_to(self, vocabulary: Vocabulary) -> PresenceOracle:
        """A matrix on the vocabulary's labels, in its order, that carries the vocabulary's fingerprint."""
        matrix = self.states(vocabulary.labels)
        return self.from_matrix(
            matrix,
            self.image_ids,
            vocabulary.labels,
            vocabulary_fingerprint=vocabulary.fingerprint,
            source=self.source,
        )

    def save(self, path: str | Path) -> None:
        """Writes ``.npz``, ``.parquet`` (both int8 matrices), ``.json`` or ``.jsonl`` by the name's ending.

        An open-axis map becomes closed over the labels that occur in it when it is written as a matrix;
        JSON Lines hold no axis, so a truth written to them is read back as an open-axis map.

        Raises:
            InputError: another ending, unknown cells in a JSON file, or the file cannot be written.
        """
        write_truth(self, path)


@dataclass(frozen=True)
class Truth:
    """An oracle seen through a vocabulary: what scoring and rewards look up.

    Attributes:
        oracle, vocabulary: the two.
        states: (images, labels) int8 of 1, 0, -1 on the vocabulary's axis.
        n_present: (images,) int64, present labels that the vocabulary has.
        dropped: truth label outside the vocabulary -> number of images that list it.
    """

    oracle: PresenceOracle
    vocabulary: Vocabulary
    states: NDArray[np.int8]
    n_present: NDArray[np.int64]
    dropped: Mapping[str, int]

    @classmethod
    def of(cls, oracle: PresenceOracle, vocabulary: Vocabulary, *, any_fingerprint: bool = False) -> Truth:
        """Joins the two axes.

        Args:
            oracle, vocabulary: the two.
            any_fingerprint: accept a matrix that was made for another vocabulary; labels are then
                joined by name.

        Raises:
            InputError: the vocabulary knows none of the truth's labels, or the matrix was made for
                another vocabulary.
        """
        made_for = oracle.vocabulary_fingerprint
        if made_for and made_for != vocabulary.fingerprint and not any_fingerprint:
            raise InputError(
                f"was made for a vocabulary with fingerprint {made_for}, but '{vocabulary.name}' has "
                f"{vocabulary.fingerprint} (allow it with --any-fingerprint, any_fingerprint=True in Python)",
                path=oracle.source,
            )
        states = oracle.states(vocabulary.labels)
        known = set(vocabulary.labels)
        frequency = np.bincount(oracle.label_ids, minlength=len(oracle.labels))
        dropped = {label: int(frequency[k]) for k, label in enumerate(oracle.labels) if label not in known}
        if len(dropped) == len(oracle.labels):
            hint = did_you_mean(oracle.labels[:1000], vocabulary)
            raise InputError(
                f"no label of this truth is in the vocabulary '{vocabulary.name}'{hint}", path=oracle.source
            )
        return cls(oracle, vocabulary, states, (states == 1).sum(axis=1, dtype=np.int64), dropped)

    @property
    def warning(self) -> str | None:
        """One sentence on truth labels that the vocabulary lacks; None where there are none."""
        occurring = {label: n for label, n in self.dropped.items() if n}
        if not occurring:
            return None
        most = sorted(occurring, key=lambda label: (-occurring[label], label))
        shown = ", ".join(f"'{label}'" for label in most[:5]) + (", ..." if len(most) > 5 else "")
        hint = did_you_mean(most[:5], self.vocabulary)
        return (
            f"{self.oracle.source}: {len(occurring)} truth label(s) outside the vocabulary '{self.vocabulary.name}' "
            f"are dropped ({sum(occurring.values())} entries): {shown}{hint}"
        )

    @property
    def without_truth(self) -> str | None:
        """One sentence on labels of the vocabulary that the truth knows of no image; None where there are none."""
        known: list[bool] = np.any(self.states >= 0, axis=0).tolist()
        unknown = [label for label, some in zip(self.vocabulary.labels, known, strict=True) if not some]
        if not unknown:
            return None
        shown = ", ".join(f"'{label}'" for label in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        return (
            f"{self.oracle.source}: {len(unknown)} of {len(self.vocabulary.labels)} labels of the vocabulary "
            f"'{self.vocabulary.name}' have no truth, so naming them counts for nothing: {shown}"
        )

    def rows(self, image_ids: Iterable[object]) -> NDArray[np.int64]:
        """(n,) row of each image id.

        Raises:
            InputError: an id that the oracle does not know.
        """
        return np.fromiter((self.oracle.row(image) for image in image_ids), dtype=np.int64)


def did_you_mean(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """``; did you mean 'couch' for 'sofa'?`` for the labels that have a close name, else an empty string."""
    from rapidfuzz import fuzz, process

    hints = []
    choices = dict(vocabulary.aliases) | {label: label for label in vocabulary.labels}
    for label in unknown:
        if label in vocabulary.label_ids:
            continue
        best = process.extractOne(label.lower(), list(choices), scorer=fuzz.ratio, score_cutoff=80)
        if best is not None:
            hints.append(f"'{choices[best[0]]}' for '{label}'")
        if len(hints) == 3:
            break
    return f"; did you mean {', '.join(hints)}?" if hints else ""


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """(n,) rank of each name in sorted order."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks
