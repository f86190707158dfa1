"""The presence oracle, a lookup table of the objects in images.

A cell (image, label) is present, absent or unknown. Positive-only sources (COCO instances, AMBER word lists, ``{id:
[labels]}`` maps) are closed only within their own label axis. If the source does not list a label of the axis for an
image, the label counts as absent from that image. A label outside the axis is unknown. DOPA matrices define every cell
explicitly.

The modules ``truth*.py`` read and write the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import FaultList, InputError, short_repr
from ..base.hashes import digest
from ..base.ids import canonical_image_id, file_name_of, positions_by_file_name
from ..base.reprs import one_line
from ..base.types import State
from ..files.records import Given, readable
from ..matching.vocabulary import Vocabulary, tokenize_alias
from .truth import read_truth, write_truth
from .truth_columns import TruthColumns, TruthRows, columns_of_matrix, in_parts, with_probabilities, written_world
from .truth_table import read_frame

TruthGiven = Union[Given, "PresenceOracle", Mapping[Any, Iterable[str]]]
"""Accepted forms of ground truth: a file, an oracle, ``{image id: [labels]}``, or records of ``image_id`` and
``objects``.
"""


class PresenceOracle(TruthColumns):
    """The state (present, absent or unknown) of every (image, label) cell, in the columns of :class:`TruthColumns`.

    Example:
        >>> import scapo_eval
        >>> truth = scapo_eval.PresenceOracle.from_objects({7: ["dog"]}, labels=["dog", "cat"])
        >>> truth.state(7, "dog"), truth.state("COCO_val2014_000000000007.jpg", "cat"), truth.state(7, "car")
        (1, 0, -1)
    """

    def __repr__(self) -> str:
        sizes = f"{len(self.image_ids):,} images, {len(self.labels):,} labels"
        return one_line(self, f"{sizes}, {self.world}: {self.source}")

    @classmethod
    def of_columns(cls, columns: TruthColumns) -> PresenceOracle:
        """Returns an oracle for the columns that a file reader returned."""
        return cls(**{column.name: getattr(columns, column.name) for column in fields(TruthColumns)})

    @classmethod
    def load(cls, path: Given) -> PresenceOracle:
        """Reads a ground truth file. The format of the file is recognized by its content.

        The following formats are supported:

        - COCO ``instances_*.json``, LVIS, Visual Genome ``objects.json`` and Open Images CSV.
        - DOPA matrices in ``.npz`` and ``.parquet`` files.
        - JSON of the form ``{id: [labels]}`` or ``{"objects": {id: [labels]}, "labels": [...]}``.
        - JSON Lines with the keys ``image_id`` and ``objects``. Records in memory are read like JSON Lines.
        - Tables with the columns ``image_id,label[,present]`` (CSV, TSV, parquet).
        - AMBER ``annotations.json``.

        Files in each format may be compressed as ``.gz`` or ``.zst``. docs/data.md explains the meaning of absence in
        each format.

        Raises:
            InputError: If the format is unsupported.
            InputErrors: If the input contains invalid data. The error lists all faults with their line numbers.
        """
        return cls.of_columns(read_truth(path))

    @classmethod
    def of(cls, given: TruthGiven) -> PresenceOracle:
        """Converts an oracle, a mapping, records or a file to an oracle."""
        if isinstance(given, PresenceOracle):
            return given
        if isinstance(given, Mapping):
            return cls.from_objects(given, source="truth")
        return cls.load(readable(given))

    @classmethod
    def from_objects(
        cls,
        objects: Mapping[Any, Iterable[str]],
        *,
        labels: Sequence[str] | None = None,
        source: str = "mapping",
    ) -> PresenceOracle:
        """Returns an oracle for a mapping ``{image id: present labels}``.

        Args:
            objects: Mapping from image ids in any spelling to the labels that are present.
            labels: Label axis. Labels outside the axis are unknown. If no axis is given, all unlisted labels are
                absent.
            source: Name of the source, for error messages.

        Raises:
            InputError: If ``objects`` is not a mapping.
            InputErrors: If an image id is invalid, or two spellings of one image have different labels.
        """
        if not isinstance(objects, Mapping):
            raise InputError(f"expected a mapping of image ids to labels, got {short_repr(objects)}", path=source)
        rows = TruthRows(source, FaultList())
        for image_id, names in objects.items():
            rows.add(None, image_id, names)
        return cls.of_columns(rows.columns(labels))

    @classmethod
    def from_frame(cls, frame: Any, *, source: str = "frame") -> PresenceOracle:
        """Returns an oracle for a pandas or polars DataFrame, a Hugging Face Dataset, or a mapping of lists.

        Args:
            frame: Table with the columns ``image_id`` and ``label``, or ``image_id`` and ``objects`` (a list of
                labels). An empty label means that the image has no objects. Unlisted labels are absent. If the table
                has a column ``present`` (1, 0 or -1), absent labels are listed explicitly and unlisted labels are
                unknown.
            source: Name of the source, for error messages.

        Raises:
            InputError: If the table does not have the required columns.
            InputErrors: If the input contains invalid data. The error lists all faults with their row numbers, counted
                from 1.
        """
        return cls.of_columns(read_frame(frame, source))

    @classmethod
    def from_matrix(
        cls,
        matrix: ArrayLike,
        image_ids: Iterable[Any],
        labels: Iterable[str],
        *,
        vocabulary_fingerprint: str = "",
        source: str = "matrix",
        probabilities: ArrayLike | None = None,
    ) -> PresenceOracle:
        """Returns an oracle for a matrix that defines every cell.

        Args:
            matrix: (images, labels) integers: 1 for present, 0 for absent, -1 for unknown.
            image_ids: Image ids in any spelling that :func:`~scapo_eval.base.ids.canonical_image_id` accepts.
            labels: Label axis.
            vocabulary_fingerprint: Fingerprint of the vocabulary for which the matrix was made, or an empty string if
                it is unknown.
            source: Name of the source, for error messages.
            probabilities: (images, labels) array of P(present), with NaN for cells without a probability, or None if no
                cell has a probability.

        Raises:
            InputError: If the shapes do not match, if a cell has an invalid value, or if an image or label appears
                twice.
        """
        columns = columns_of_matrix(matrix, image_ids, labels, vocabulary_fingerprint, source)
        return cls.of_columns(with_probabilities(columns, probabilities))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Mapping from canonical image ids to rows."""
        return {image: k for k, image in enumerate(self.image_ids)}

    @cached_property
    def _axis(self) -> Mapping[str, int]:
        return {label: k for k, label in enumerate(self.labels)}

    @cached_property
    def _exceptions(self) -> frozenset[tuple[int, int]]:
        """The non-present cells whose state differs from the default. The exceptions are the verified absent cells if
        the default is unknown, and the unknown cells otherwise.
        """
        return frozenset(map(tuple, (self.unknown if self.absent is None else self.absent).tolist()))

    def row(self, image_id: object) -> int:
        """Returns the row for an image, given its id in any spelling.

        Raises:
            InputError: If the id is invalid or the oracle does not contain the image.
        """
        try:
            image = canonical_image_id(image_id)
        except ValueError as error:
            raise InputError(f"image id {error}") from None
        row = self.index.get(image, -1)
        if row < 0 and (row := self._by_file_name(image)) < 0:
            raise InputError(f"unknown image id {image_id!r}", path=self.source)
        return row

    @cached_property
    def _rows_of_files(self) -> Mapping[str, int]:
        """Mapping from file names, without folder and extension, to rows.

        The row is -1 if several images have the same file name.
        """
        return positions_by_file_name(self.image_ids)

    def _by_file_name(self, image: str) -> int:
        """Returns the row of an image whose id differs only in folder or extension (``val/cat.jpg``, ``cat``), or -1 if
        there is none.
        """
        return self._rows_of_files.get(file_name_of(image), -1)

    def find_rows(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Returns the (n,) rows of canonical image ids, with -1 for images that the oracle does not contain."""
        index = self.index
        rows = np.fromiter((index.get(image, -1) for image in image_ids), dtype=np.int64, count=len(image_ids))
        for k in np.flatnonzero(rows < 0).tolist():
            rows[k] = self._by_file_name(image_ids[k])
        return rows

    def own_ids(self, image_ids: Sequence[str]) -> list[str]:
        """Returns the ids under which the oracle contains images. A caption may name the file of an image differently,
        with another folder or suffix. Ids of images that the oracle does not contain are unchanged.
        """
        rows = self.find_rows(image_ids).tolist()
        return [image if row < 0 else self.image_ids[row] for image, row in zip(image_ids, rows, strict=True)]

    def state(self, image_id: object, label: str) -> State:
        """Returns 1 if a label is present in an image, 0 if the label is absent, and -1 if the state is unknown.

        Raises:
            InputError: If the oracle does not contain the image.
        """
        row = self.row(image_id)
        k = self._axis.get(label)
        if k is None:
            return 0 if self.world == "open-axis" else -1
        present = self.label_ids[self.indptr[row] : self.indptr[row + 1]]
        at = int(np.searchsorted(present, k))
        if at < len(present) and present[at] == k:
            return 1
        return -1 if ((row, k) in self._exceptions) == (self.absent is None) else 0

    def present(self, image_id: object) -> frozenset[str]:
        """Returns the labels that are present in an image.

        Raises:
            InputError: If the oracle does not contain the image.
        """
        row = self.row(image_id)
        return frozenset(self.labels[k] for k in self.label_ids[self.indptr[row] : self.indptr[row + 1]].tolist())

    def states(self, labels: Sequence[str]) -> NDArray[np.int8]:
        """Returns the states of all images for a given label axis, such as the axis of a vocabulary.

        Args:
            labels: L labels.

        Returns:
            (images, L) int8 array of states: 1 for present, 0 for absent, -1 for unknown.
        """
        position = {label: k for k, label in enumerate(labels)}
        return self._onto([position.get(label, -1) for label in self.labels], labels)

    def states_of(self, vocabulary: Vocabulary) -> NDArray[np.int8]:
        """Returns the states of all images for the labels of a vocabulary.

        If the labels of the ground truth are free-form names, they are matched using the vocabulary's aliases. A label
        is present if any of the names that match it is present. A label is absent if the name that equals the label is
        absent, or if all names that match the label are absent. For example, an image without a man may still show a
        person.

        Returns:
            (images, vocabulary labels) int8 array of states: 1 for present, 0 for absent, -1 for unknown. A
            memory-mapped matrix with the same labels is returned unchanged.
        """
        if self.cells is not None and self.labels == tuple(vocabulary.labels):
            return self.cells
        return self._onto(self.columns_in(vocabulary), vocabulary.labels)

    def columns_in(self, vocabulary: Vocabulary) -> list[int]:
        """Returns, for each label of the ground truth, its position in the vocabulary, or -1 if the vocabulary lacks
        the label.
        """
        if self.names is None:
            return [vocabulary.label_ids.get(label, -1) for label in self.labels]
        return positions_of_names(self.names, vocabulary)

    def _onto(self, columns: Sequence[int], labels: Sequence[str]) -> NDArray[np.int8]:
        """Returns the states of all images, converted to another label axis.

        Args:
            columns: Column of each ground truth label on the new axis, or -1 for labels that the new axis lacks.
                Several labels may share a column.
            labels: Names of the columns.
        """
        column = np.array([*columns, -1], dtype=np.int64)
        unlisted = np.full(len(labels), 0 if self.world == "open-axis" else -1, dtype=np.int8)
        if self.absent is None:
            unlisted[column[column >= 0]] = 0
        states = np.empty((len(self.image_ids), len(labels)), dtype=np.int8)
        states[:] = unlisted
        if self.absent is not None:
            target = column[self.absent[:, 1]]
            rows, ids = self.absent[target >= 0, 0], self.absent[target >= 0, 1]
            absent = np.zeros(states.shape, dtype=np.int32)
            np.add.at(absent, (rows, column[ids]), 1)
            states[absent == np.bincount(column[column >= 0], minlength=len(labels)).clip(1)] = 0
            itself = np.array([c >= 0 and self._is_called(k, labels[c]) for k, c in enumerate(columns)], dtype=bool)
            states[rows[itself[ids]], column[ids[itself[ids]]]] = 0
        if len(self.unknown):
            target = column[self.unknown[:, 1]]
            states[self.unknown[target >= 0, 0], target[target >= 0]] = -1
        target = column[self.label_ids]
        states[self.owner[target >= 0], target[target >= 0]] = 1
        return states

    def _is_called(self, k: int, label: str) -> bool:
        return self.names is not None and _words(label) in map(_words, self.names[k])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the oracle's content. The order of the entries and the file format do not change the hash."""
        label_rank, image_rank = _ranks(self.labels), _ranks(self.image_ids)
        width = len(self.labels)
        present = image_rank[self.owner] * width + label_rank[self.label_ids]
        # the rarer of the other two states determines the rest; the columns of a ground truth nearly always list it
        n_absent = len(self.image_ids) * width - len(present) - self.n_unknown
        state: State = 0 if self.n_unknown > n_absent else -1
        if (state == -1) == (self.absent is None):
            rarer = self.unknown if self.absent is None else self.absent
        else:
            rarer = np.argwhere(self.matrix() == state)
        others = image_rank[rarer[:, 0]] * width + label_rank[rarer[:, 1]]
        axis = "open" if self.world == "open-axis" else "closed"
        content = [np.sort(keys).astype("<i8").tobytes() for keys in (present, others)]
        parts: list[str | bytes] = [axis, *sorted(self.labels), "images", *sorted(self.image_ids), *content]
        if state == 0:
            parts.append("absent cells")
        if self.names is not None:
            parts += ["names", *sorted(map(repr, zip(self.labels, self.names, strict=True)))]
        return digest(parts)

    def restricted_to(self, vocabulary: Vocabulary) -> PresenceOracle:
        """Returns an oracle restricted to the labels of a vocabulary, in the vocabulary's order and with its
        fingerprint.
        """
        return self.of_columns(
            columns_of_matrix(
                self.states_of(vocabulary),
                self.image_ids,
                vocabulary.labels,
                vocabulary.fingerprint,
                self.source,
                written_world(self.world),
            )
        )

    def decided(self, absent_below: float, present_from: float) -> PresenceOracle:
        """Returns a copy of the oracle with other thresholds for the cells that have a probability. All cells without a
        probability keep their states.

        Args:
            absent_below: Probability below which a label is absent.
            present_from: Minimum probability at which a label counts as present. A label with a probability between the
                two thresholds is unknown.

        Example:
            >>> import numpy as np, scapo_eval
            >>> truth = scapo_eval.PresenceOracle.from_matrix(
            ...     np.array([[1, 0]]), [7], ["dog", "cat"], probabilities=np.array([[0.6, 0.1]])
            ... )
            >>> truth.decided(0.3, 0.8).state(7, "dog"), truth.decided(0.3, 0.8).state(7, "cat")
            (-1, 0)

        Raises:
            InputError: If ``absent_below`` is greater than ``present_from``.
        """
        if absent_below > present_from:
            raise InputError(f"absent_below ({absent_below:g}) is above present_from ({present_from:g})")
        p = self.probabilities
        if p is None:
            return self
        states = np.where(p >= present_from, 1, np.where(p < absent_below, 0, -1))
        matrix = np.where(np.isnan(p), self.matrix(), states).astype(np.int8)
        return self.of_columns(
            with_probabilities(
                columns_of_matrix(
                    matrix, self.image_ids, self.labels, self.vocabulary_fingerprint or "", self.source,
                    written_world(self.world),
                ),
                p,
            )
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Writes ``.npz`` or ``.parquet`` (int8 matrices), ``.json`` or ``.jsonl``, depending on the file extension.

        Only ``.npz`` and ``.parquet`` files contain probabilities. JSON contains the states alone. If the ground truth
        has no fixed label set (``open-axis``), the matrix is written with a closed label set that
        consists of the labels that occur.

        Raises:
            InputError: If the extension is unknown, if unknown cells would be written to JSON, or if the file cannot be
                written.
        """
        write_truth(self, path)


@dataclass(frozen=True)
class Truth:
    """A presence oracle aligned with a vocabulary, in which scoring and rewards look up states.

    Attributes:
        oracle: Presence oracle.
        vocabulary: Vocabulary whose labels form the label axis.
        states: (images, labels) int8 array of states on the vocabulary's label axis: 1, 0 or -1.
        n_present: (images,) int64 array with the number of present labels that the vocabulary contains.
        dropped: Mapping from ground truth labels outside the vocabulary to the number of images that list the label.
    """

    oracle: PresenceOracle
    vocabulary: Vocabulary
    states: NDArray[np.int8]
    n_present: NDArray[np.int64]
    dropped: Mapping[str, int]

    def __repr__(self) -> str:
        return one_line(self, f"{self.vocabulary!r} on {self.oracle!r}")

    @classmethod
    def of(cls, oracle: PresenceOracle, vocabulary: Vocabulary, *, any_fingerprint: bool = False) -> Truth:
        """Aligns an oracle with a vocabulary.

        Args:
            oracle: Presence oracle.
            vocabulary: Vocabulary whose labels form the label axis.
            any_fingerprint: True to accept a matrix that was made for another vocabulary and to join the labels by
                name.

        Raises:
            InputError: If the vocabulary contains none of the ground truth's labels, or if the matrix was made for
                another vocabulary.
        """
        made_for = oracle.vocabulary_fingerprint
        if made_for and made_for != vocabulary.fingerprint and not any_fingerprint:
            raise InputError(
                f"was made for a vocabulary with fingerprint {made_for}, but '{vocabulary.name}' has "
                f"{vocabulary.fingerprint} (allow it with --any-fingerprint, any_fingerprint=True in Python)",
                path=oracle.source,
            )
        columns = oracle.columns_in(vocabulary)
        frequency = np.bincount(oracle.label_ids, minlength=len(oracle.labels))
        dropped = {label: int(frequency[k]) for k, label in enumerate(oracle.labels) if columns[k] < 0}
        if len(dropped) == len(oracle.labels):
            hint = did_you_mean(oracle.labels[:1000], vocabulary)
            if any(label.startswith(("/m/", "/g/")) for label in oracle.labels):
                hint = ": it uses Open Images codes; convert them with scapo-eval oracle open-images --classes FILE"
            raise InputError(
                f"no label of this ground truth is in the vocabulary '{vocabulary.name}'{hint}", path=oracle.source
            )
        states = oracle.states_of(vocabulary)
        n_present = [(part == 1).sum(axis=1, dtype=np.int64) for part in in_parts(states)]
        return cls(oracle, vocabulary, states, np.concatenate(n_present), dropped)

    row_type: ClassVar[type] = np.int64

    @property
    def index(self) -> Mapping[str, int]:
        """Mapping from canonical image ids to rows."""
        return self.oracle.index

    def row(self, image_id: object) -> int:
        """Returns the row of an image, whose id may have any spelling; see :meth:`PresenceOracle.row`."""
        return self.oracle.row(image_id)

    def for_batch(self) -> Truth:
        """Returns the ground truth for one batch of responses."""
        return self

    def values(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
        """Returns an (n,) array with the states of n cells, which are given by image rows and label positions in the
        vocabulary.
        """
        states: NDArray[Any] = self.states[rows, labels]
        return states

    def present_counts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the number of present labels in each of n images, which are given by their row indices."""
        counts: NDArray[np.int64] = self.n_present[rows]
        return counts

    def rows_of(self, image_ids: Sequence[str], captions: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the (n,) rows with which n captions are compared. By default, a caption is compared with the row of
        its image, but a subclass may choose rows that depend on the captions.

        Args:
            image_ids: Canonical id of each caption's image.
            captions: Caption texts.
            rows: (n,) row index of each caption's image.
        """
        return rows

    def prints(self, image_ids: Sequence[str]) -> NDArray[np.uint64]:
        """Returns an (n,) array with a hash of the known cells of each image. The file format and the order of entries
        do not change the hash.

        The hash is the sum of one random number per known cell (Zobrist 1970). Unknown cells and labels outside the
        vocabulary do not change the sum, so an image with the same known cells in two ground truths has the same hash.

        Args:
            image_ids: Canonical ids of images that the oracle contains.
        """
        rows = self.oracle.find_rows(image_ids)
        keys = _cell_keys(self.vocabulary.labels)
        parts = (self.states[part] for part in np.array_split(rows, rows.size * len(keys) // _PART + 1))
        return np.concatenate([np.where(s == 1, keys[:, 1], np.where(s == 0, keys[:, 0], 0)).sum(1) for s in parts])

    @property
    def signature_fields(self) -> Mapping[str, str | None]:
        """Additional signature fields of the ground truth, besides vocabulary, fingerprint and label set."""
        return {}

    @property
    def identity(self) -> tuple[str, str]:
        """Fingerprint and label set of the ground truth, for use in signatures."""
        return self.oracle.fingerprint, self.oracle.world

    @property
    def warning(self) -> str | None:
        """Warning about ground truth labels that the vocabulary lacks, or None if there are no such labels."""
        occurring = {label: n for label, n in self.dropped.items() if n}
        if not occurring:
            return None
        return f"{self.oracle.source}: {ignored_labels(occurring, self.vocabulary, 'ground truth')}"

    @property
    def without_truth(self) -> str | None:
        """Warning about vocabulary labels that are unknown for all images, or None if there are no such labels."""
        known: list[bool] = np.any(self.states >= 0, axis=0).tolist()
        unknown = [label for label, some in zip(self.vocabulary.labels, known, strict=True) if not some]
        if not unknown:
            return None
        shown = ", ".join(f"'{label}'" for label in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        return (
            f"{self.oracle.source}: {len(unknown)} of {len(self.vocabulary.labels)} labels of the vocabulary "
            f"'{self.vocabulary.name}' have no ground truth, so mentions of them do not count: {shown}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that affect the interpretation of results that use this ground truth, one sentence each."""
        return tuple(filter(None, (self.warning, self.without_truth)))

    def rows(self, image_ids: Iterable[object]) -> NDArray[np.int64]:
        """Returns the (n,) rows of n image ids.

        Raises:
            InputError: If the oracle does not contain an image.
        """
        return np.fromiter((self.oracle.row(image) for image in image_ids), dtype=np.int64)


def positions_of_names(names: Iterable[Sequence[str]], vocabulary: Vocabulary) -> list[int]:
    """Returns the position of the label that free-form names refer to.

    Args:
        names: For each object, its synonyms.
        vocabulary: Vocabulary whose labels and aliases are matched with the names.

    Returns:
        For each object, the position of the label that matches the first of the names that the vocabulary has, or -1 if
        it has none of them.
    """
    ids = vocabulary.label_ids
    by_words = {_words(alias): ids[label] for alias, label in vocabulary.aliases.items()}
    by_words |= {_words(label): k for label, k in ids.items()}
    candidates = ((by_words[words] for name in each if (words := _words(name)) in by_words) for each in names)
    return [next(positions, -1) for positions in candidates]


def ignored_labels(occurring: Mapping[str, int], vocabulary: Vocabulary, given: str) -> str:
    """Returns a warning about labels that the vocabulary lacks.

    Args:
        occurring: Mapping from labels outside the vocabulary to their number of entries.
        vocabulary: Vocabulary.
        given: Noun for the data that contain the labels.
    """
    most = sorted(occurring, key=lambda label: (-occurring[label], label))
    shown = ", ".join(f"'{label}'" for label in most[:5]) + (", ..." if len(most) > 5 else "")
    return (
        f"{len(occurring)} labels of the {given} are not in the vocabulary '{vocabulary.name}' and are ignored "
        f"({sum(occurring.values())} entries): {shown}{did_you_mean(most[:5], vocabulary)}"
    )


def did_you_mean(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """Returns a hint such as ``; did you mean 'couch' for 'sofa'?`` for unknown labels, or an empty string."""
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


_PART = 2**21


def _cell_keys(labels: Iterable[str]) -> NDArray[np.uint64]:
    """Returns a (labels, 2) array with one random number for the absence and one for the presence of each label."""
    hashes = (blake2b(label.encode("utf-8", "surrogatepass"), digest_size=16).digest() for label in labels)
    return np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2).astype(np.uint64)


@lru_cache(maxsize=1 << 17)
def _words(name: str) -> tuple[str, ...]:
    """Returns the words of a name, split by the rules for aliases. A name that cannot be an alias is returned
    unchanged.
    """
    try:
        return tokenize_alias(name)
    except ValueError:
        return (name,)


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """Returns the (n,) rank of each name in sorted order."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks
