"""Ground truth in columnar form, which all file readers and writers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import FaultList, InputError, short_repr
from ..base.ids import canonical_image_id
from ..base.reprs import fields_in_short
from ..base.types import LabelSet
from ..files.json_text import json_type

MAX_CELLS = 2**31
"""Maximum number of cells of a matrix in memory (2 GiB)."""

_PART = 2**23

WRITTEN_WORLDS: tuple[LabelSet, ...] = ("closed", "total", "partial")
"""Label sets (``world``) that a file with explicit cells may declare."""


@dataclass(frozen=True)
class TruthColumns:
    """The columns of a ground truth: the present labels of each image, and unknown or absent cells.

    Attributes:
        source: Display name of the file.
        world: Label set, which determines the state of labels that the source does not list.
        image_ids: Canonical image ids in source order.
        labels: Label axis of the source. For ``open-axis``, the axis consists of the labels that occur.
        indptr: (images + 1,) bounds of the images in ``label_ids``, which contains the present labels in CSR form.
        label_ids: (present cells,) indices of the present labels in ``labels``, grouped by image. The labels of image
            ``i`` are the elements from ``indptr[i]`` to ``indptr[i + 1]``, in sorted order.
        unknown: (cells, 2) image and label positions of cells that are explicitly unknown.
        vocabulary_fingerprint: Fingerprint of the vocabulary for which a matrix was made, or None if it is not
            specified.
        absent: (cells, 2) image and label positions of cells that are explicitly absent, if most cells are unknown. If
            ``absent`` is given, all other non-present cells are unknown, and ``unknown`` is empty. If ``absent`` is
            None, all cells that are neither present nor in ``unknown`` are absent.
        names: Names of each label if the source uses free-form names, which are matched with the aliases of a
            vocabulary. If ``names`` is None, labels match only if their names are equal.
        cells: Result of :meth:`matrix` as a read-only array if the file is memory-mapped, otherwise None.
        repeated: Number of records or rows that repeat an earlier record or row.
        probabilities: (images, labels) float32 array of P(present) from a judge that returns probabilities, with NaN
            for cells without a probability. If no cell has a probability, ``probabilities`` is None.
    """

    source: str
    world: LabelSet
    image_ids: tuple[str, ...]
    labels: tuple[str, ...]
    indptr: NDArray[np.int64]
    label_ids: NDArray[np.int32]
    unknown: NDArray[np.int64]
    vocabulary_fingerprint: str | None = None
    absent: NDArray[np.int64] | None = None
    names: tuple[tuple[str, ...], ...] | None = None
    cells: NDArray[np.int8] | None = None
    repeated: int = 0
    probabilities: NDArray[np.float32] | None = None

    @property
    def n_unknown(self) -> int:
        """Number of cells on the label axis whose state is unknown."""
        if self.absent is None:
            return len(self.unknown)
        return len(self.image_ids) * len(self.labels) - len(self.label_ids) - len(self.absent)

    __repr__ = fields_in_short

    @property
    def owner(self) -> NDArray[np.int64]:
        """(present cells,) array with the row index of the image for each entry of ``label_ids``."""
        return np.repeat(np.arange(len(self.image_ids)), np.diff(self.indptr))

    def matrix(self) -> NDArray[np.int8]:
        """Returns the (images, labels) matrix of states: 1 for present, 0 for absent, -1 for unknown.

        Raises:
            InputError: If the matrix would be too large for memory.
        """
        shape = len(self.image_ids), len(self.labels)
        if shape[0] * shape[1] > MAX_CELLS:
            reason = f"a matrix of {shape[0]:,} images and {shape[1]:,} labels is too large; keep a vocabulary's labels"
            raise InputError(f"{reason} (--vocabulary, restricted_to)", path=self.source)
        states = np.full(shape, 0 if self.absent is None else -1, dtype=np.int8)
        if self.absent is not None:
            states[self.absent[:, 0], self.absent[:, 1]] = 0
        states[self.owner, self.label_ids] = 1
        states[self.unknown[:, 0], self.unknown[:, 1]] = -1
        return states

    def objects(self) -> dict[str, list[str]]:
        """Returns a mapping from image ids to sorted lists of the present labels."""
        bounds = zip(self.indptr[:-1].tolist(), self.indptr[1:].tolist(), strict=True)
        rows = ([self.labels[k] for k in self.label_ids[low:high].tolist()] for low, high in bounds)
        return {image: sorted(row) for image, row in zip(self.image_ids, rows, strict=True)}


def columns_of_matrix(
    matrix: ArrayLike,
    image_ids: Iterable[Any],
    labels: Iterable[Any],
    fingerprint: str,
    source: str,
    world: LabelSet = "total",
) -> TruthColumns:
    """Builds columns from a matrix that defines every cell.

    Args:
        matrix: (images, labels) integers: 1 for present, 0 for absent, -1 for unknown.
        image_ids: Image ids in any spelling.
        labels: Label axis.
        fingerprint: Fingerprint of the vocabulary for which the matrix was made, or an empty string if it is unknown.
        source: Name of the source, for error messages.
        world: Label set of the ground truth from which the matrix was made.

    Raises:
        InputError: If the shapes do not match, if a cell has an invalid value, or if an image or label appears twice.
    """
    matrix = _array("matrix", matrix, source)
    for name, given in (("image ids", image_ids), ("labels", labels)):
        if not isinstance(given, Iterable):
            raise InputError(f"{name} must be a list, got {short_repr(given)}", path=source)
    plain = np.atleast_1d(image_ids).tolist() if isinstance(image_ids, np.ndarray) else list(image_ids)
    names = tuple(map(str, labels))
    if matrix.shape != (len(plain), len(names)):
        fitting = f"{len(plain)} images and {len(names)} labels"
        raise InputError(f"matrix of shape {matrix.shape} does not fit {fitting}", path=source)
    if not plain:
        raise InputError("the ground truth has no images", path=source)
    if matrix.dtype.kind not in "iub" or (matrix.size and not -1 <= int(matrix.min()) <= int(matrix.max()) <= 1):
        raise InputError("matrix cells must be 1 (present), 0 (absent) or -1 (unknown)", path=source)
    try:
        ids = tuple(map(canonical_image_id, plain))
    except ValueError as error:
        raise InputError(f"image id {error}", path=source) from None
    refuse_duplicates("image", ids, source)
    refuse_duplicates("label", names, source)
    rows, columns = cells_in(matrix, 1).T
    n_unknown = sum(np.count_nonzero(part == -1) for part in in_parts(matrix))
    mostly_unknown = 2 * n_unknown > matrix.size - len(rows)
    return TruthColumns(
        source=source,
        world=world,
        image_ids=ids,
        labels=names,
        indptr=np.searchsorted(rows, np.arange(len(ids) + 1)),
        label_ids=columns.astype(np.int32),
        unknown=np.zeros((0, 2), dtype=np.int64) if mostly_unknown else cells_in(matrix, -1),
        vocabulary_fingerprint=fingerprint or None,
        absent=cells_in(matrix, 0) if mostly_unknown else None,
    )


def _array(name: str, rows: ArrayLike, source: str) -> NDArray[Any]:
    try:
        return np.asarray(rows)
    except ValueError:
        raise InputError(f"the rows of the {name} have different lengths", path=source) from None


def with_probabilities(columns: TruthColumns, probabilities: ArrayLike | None) -> TruthColumns:
    """Adds the probabilities of a matrix to its columns.

    Raises:
        InputError: If the shape of the array differs from that of the matrix, or if a value is neither in [0, 1] nor
            NaN.
    """
    if probabilities is None:
        return columns
    shape = len(columns.image_ids), len(columns.labels)
    given = _array("probabilities", probabilities, columns.source)
    if given.shape != shape or given.dtype.kind != "f":
        raise InputError(f"probabilities must be numbers of the matrix's shape {shape}", path=columns.source)
    p = given.astype(np.float32, copy=False)
    if not (np.isnan(p) | ((p >= 0) & (p <= 1))).all():
        raise InputError("probabilities must be between 0 and 1 (NaN for none)", path=columns.source)
    return replace(columns, probabilities=p)


def written_world(world: LabelSet) -> LabelSet:
    """Returns the label set (``world``) that a ground truth has after every cell of its axis has been written to a
    file.
    """
    return "closed" if world == "open-axis" else world


def read_world(value: object, otherwise: LabelSet, source: str) -> LabelSet:
    """Returns the label set (``world``) that a file declares, or ``otherwise`` if the file declares none.

    Raises:
        InputError: If the declared label set is unknown.
    """
    for world in WRITTEN_WORLDS:
        if value == world:
            return world
    if value is None or value == "":
        return otherwise
    raise InputError(f"unknown world {short_repr(value)} (known: {', '.join(WRITTEN_WORLDS)})", path=source)


def in_parts(matrix: NDArray[Any]) -> list[NDArray[Any]]:
    """Splits a matrix into parts of a few MB to limit the memory for derived arrays."""
    return np.array_split(matrix, matrix.size // _PART + 1)


def cells_in(matrix: NDArray[Any], state: int) -> NDArray[np.int64]:
    """Returns the (n, 2) positions of the cells that have a given state, in order."""
    parts = in_parts(matrix)
    firsts = np.cumsum([0, *(part.size for part in parts[:-1])]).tolist()
    # three times as fast as numpy's search in two dimensions
    cells = np.concatenate([np.flatnonzero(part == state) + first for first, part in zip(firsts, parts, strict=True)])
    positions = np.empty((len(cells), 2), dtype=np.int64)
    np.divmod(cells, max(1, matrix.shape[1]), out=(positions[:, 0], positions[:, 1]))
    return positions


def columns_of_cells(
    source: str,
    world: LabelSet,
    image_ids: Sequence[str],
    labels: Sequence[str],
    present: NDArray[np.int64],
    absent: NDArray[np.int64] | None = None,
    names: Sequence[tuple[str, ...]] | None = None,
) -> TruthColumns:
    """Converts lists of cells to columns.

    Args:
        source: Name of the source, for error messages.
        world: Label set, which determines the state of cells that are not listed.
        image_ids: Distinct canonical image ids.
        labels: Label axis.
        present: Flat positions ``row * len(labels) + column`` of the present cells, in any order, possibly with
            repetitions.
        absent: Flat positions of the verified absent cells, for the label set ``partial``. A cell in both ``present``
            and ``absent`` is treated as present.
        names: Names of each label; see :class:`TruthColumns`.

    Raises:
        InputError: If there are no images, or if a label appears twice.
    """
    if not len(image_ids):
        raise InputError("the ground truth has no images", path=source)
    refuse_duplicates("label", labels, source)
    width = max(1, len(labels))
    present = sorted_unique(present)
    rows = present // width
    if absent is not None:
        absent = np.setdiff1d(sorted_unique(absent), present, assume_unique=True)
    return TruthColumns(
        source=source,
        world=world,
        image_ids=tuple(image_ids),
        labels=tuple(labels),
        indptr=np.searchsorted(rows, np.arange(len(image_ids) + 1)),
        label_ids=(present % width).astype(np.int32),
        unknown=np.zeros((0, 2), dtype=np.int64),
        absent=None if absent is None else np.stack([absent // width, absent % width], axis=1),
        names=None if names is None else tuple(names),
    )


class TruthRows:
    """A collector that checks rows, each of which contains an image id and the image's present labels.

    Args:
        source: Name of the source, for error messages.
        faults: List to which the faults in rows are added.
    """

    def __init__(self, source: str, faults: FaultList) -> None:
        self.source = source
        self.faults = faults
        self.rows: dict[str, frozenset[str]] = {}
        self.repeated = 0
        self._written: dict[str, str] = {}  # image id -> how it is written in the file
        self._first: dict[str, str] = {}  # a problem of the objects -> the first image that has it

    def add(self, line: int | None, image_id: object, objects: object) -> None:
        """Adds one row. An image may be repeated only if its labels are the same.

        Args:
            line: Line number of the row, counted from 1, or None if the source has no lines.
            image_id: Image id in any spelling.
            objects: Labels of the image, as a list of strings.
        """
        try:
            image = canonical_image_id(image_id)
        except ValueError as error:
            self._refuse(f"image id {error}", line)
            return
        written = str(image_id)
        if self._written.setdefault(image, written) != written:
            spellings = f"{short_repr(self._written[image])} and {short_repr(written)}"
            self._refuse(f"{spellings} are the same image, {image}; write it in one way", line)
            return
        if isinstance(objects, (str, bytes, Mapping)) or not isinstance(objects, Iterable):
            self._refuse_objects(f"expected a list of labels, found {json_type(objects)}", image, line)
            return
        labels = list(objects)
        wrong = [label for label in labels if not isinstance(label, str)]
        if wrong:
            self._refuse_objects(f"a label is {json_type(wrong[0])}, not a string", image, line)
            return
        present = frozenset(labels)
        self.repeated += image in self.rows
        if self.rows.setdefault(image, present) != present:
            self._refuse(f"image {image} appears twice with different objects", line)

    def _refuse_objects(self, problem: str, image: str, line: int | None) -> None:
        """Adds a fault. The same problem in several images is counted as one fault."""
        first = self._first.setdefault(problem, image)
        self._refuse(f'objects of image {first}: {problem}; write a list of names, such as ["dog", "cat"]', line)

    def _refuse(self, reason: str, line: int | None) -> None:
        self.faults.add(InputError(reason, path=self.source, line=line))

    def columns(self, labels: Sequence[str] | None) -> TruthColumns:
        """Converts the collected rows to columns.

        Args:
            labels: Label axis. Labels outside the axis are unknown. If no axis is given, all unlisted labels are
                absent.

        Raises:
            InputErrors: If rows are faulty.
            InputError: If there are no rows, or if a label is outside the axis.
        """
        self.faults.raise_if_any()
        if not self.rows:
            raise InputError("the ground truth has no images", path=self.source)
        axis = tuple(dict.fromkeys(labels)) if labels is not None else tuple(sorted(set().union(*self.rows.values())))
        position = {label: k for k, label in enumerate(axis)}
        for image, present in self.rows.items():
            outside = sorted(label for label in present if label not in position)
            if outside:
                raise InputError(f"image {image} lists '{outside[0]}', which is not in 'labels'", path=self.source)
        ids = [sorted(position[label] for label in present) for present in self.rows.values()]
        return TruthColumns(
            source=self.source,
            world="closed" if labels is not None else "open-axis",
            image_ids=tuple(self.rows),
            labels=axis,
            indptr=np.cumsum([0, *map(len, ids)], dtype=np.int64),
            label_ids=np.array([k for row in ids for k in row], dtype=np.int32),
            unknown=np.zeros((0, 2), dtype=np.int64),
            repeated=self.repeated,
        )


def sorted_unique(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the distinct keys in ascending order. For cell positions, this function is faster than ``np.unique``."""
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def refuse_duplicates(kind: str, values: Sequence[str], source: str) -> None:
    """Raises an InputError if a value appears twice.

    Args:
        kind: Name for one of the values in the error message, such as ``image``.
        values: Values to check.
        source: Name of the source, for the error message.
    """
    if len(set(values)) != len(values):
        duplicate = next(value for value, n in Counter(values).items() if n > 1)
        raise InputError(f"{kind} '{duplicate}' appears twice", path=source)
