"""The presence oracle: what is in an image, by pure look-up.

A cell (image, label) is present, absent or unknown. Positive-only sources (COCO instances, AMBER's word
lists, ``{id: [labels]}`` maps) are read as closed WITHIN their own label axis: what the source annotates
and does not list is absent, a label outside the axis is unknown. DOPA matrices say every cell themselves.
Files are read and written in ``io/truth*.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Union

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError
from ..base.hashes import digest
from ..base.ids import canonical_image_id, file_name_of
from ..base.reprs import one_line
from ..base.types import State
from ..files.records import Given, Readable, readable
from ..matching.vocabulary import Vocabulary, tokenize_alias
from .truth import read_truth, write_truth
from .truth_columns import TruthColumns, TruthRows, columns_of_matrix, in_parts, written_world
from .truth_table import read_frame

TruthGiven = Union[Given, "PresenceOracle", Mapping[Any, Iterable[str]]]
"""A truth file, an oracle, ``{image id: [labels]}``, or records of ``image_id`` and ``objects``."""


class PresenceOracle(TruthColumns):
    """Present, absent or unknown for every image and label; its columns are those of :class:`TruthColumns`.

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
        """Returns an oracle of what a reader of ``io/truth*.py`` returned."""
        return cls(**{column.name: getattr(columns, column.name) for column in fields(TruthColumns)})

    @classmethod
    def load(cls, path: Readable) -> PresenceOracle:
        """Reads any truth format, recognized by content.

        COCO ``instances_*.json``; LVIS; Visual Genome ``objects.json``; Open Images' CSV; DOPA ``.npz`` and
        ``.parquet``; ``{id: [labels]}`` or ``{"objects": {id: [labels]}, "labels": [...]}`` JSON; JSON Lines of
        ``{"image_id", "objects"}``; a table ``image_id,label[,present]`` (CSV, TSV, parquet); AMBER
        ``annotations.json``; each also as ``.gz`` or ``.zst``. docs/data.md says what absence means in each. Records
        in memory are read as JSON Lines are.

        Raises:
            InputError: if the file is none of these, with the reason; InputErrors: for invalid input, with the faults
                by line.
        """
        return cls.of_columns(read_truth(path))

    @classmethod
    def of(cls, given: TruthGiven) -> PresenceOracle:
        """Returns an oracle as it is, of a mapping, of records, or loaded."""
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
        """Returns an oracle from ``{image id: present labels}``.

        Args:
            objects: image id in any spelling -> labels present.
            labels: the axis; a label outside it is unknown. Without it any unlisted label is absent.
            source: name for messages.

        Raises:
            InputErrors: for invalid image ids, or two spellings of one image with different labels.
        """
        rows = TruthRows(source, FaultList())
        for image_id, names in objects.items():
            rows.add(None, image_id, names)
        return cls.of_columns(rows.columns(labels))

    @classmethod
    def from_frame(cls, frame: Any, *, source: str = "frame") -> PresenceOracle:
        """Returns an oracle from a pandas or polars DataFrame, a Hugging Face Dataset, or a mapping of lists.

        Args:
            frame: columns ``image_id`` and ``label`` (any label that is not listed is absent; an empty label: an image
                in which nothing is), with ``present`` (1, 0, -1) also what is verified absent (anything else is
                unknown); or ``image_id`` and ``objects``, a list of labels per image.
            source: name for messages.

        Raises:
            InputError: if it has other columns; InputErrors: for invalid input, with the faults by row, from 1.
        """
        return cls.of_columns(read_frame(frame, source))

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
        """Returns an oracle from a matrix of every cell.

        Args:
            matrix: (images, labels) integers, 1 present, 0 absent, -1 unknown.
            image_ids: ids in any spelling.
            labels: the axis.
            vocabulary_fingerprint: of the vocabulary it was made for.
            source: name for messages.

        Raises:
            InputError: for shapes that do not fit, other values, an image or label that appears twice.
        """
        return cls.of_columns(columns_of_matrix(matrix, image_ids, labels, vocabulary_fingerprint, source))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Canonical image id -> row."""
        return {image: k for k, image in enumerate(self.image_ids)}

    @cached_property
    def _axis(self) -> Mapping[str, int]:
        return {label: k for k, label in enumerate(self.labels)}

    @cached_property
    def _exceptions(self) -> frozenset[tuple[int, int]]:
        """Cells that are not present and differ from the rest that is not: unknown ones, or verified absent ones."""
        return frozenset(map(tuple, (self.unknown if self.absent is None else self.absent).tolist()))

    def row(self, image_id: object) -> int:
        """Returns the row of an image in any spelling of its id.

        Raises:
            InputError: if the id is not valid, or the oracle does not know it.
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
        """File name without folder and ending -> row, -1 if several images share it."""
        rows: dict[str, int] = {}
        for k, image in enumerate(self.image_ids):
            name = file_name_of(image)
            rows[name] = -1 if name in rows else k
        return rows

    def _by_file_name(self, image: str) -> int:
        """Returns the row of an image whose id is written with another folder or ending (``val/cat.jpg``, ``cat``); -1
        for none.
        """
        return self._rows_of_files.get(file_name_of(image), -1)

    def find_rows(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Returns the (n,) row of each canonical image id, -1 for an image that the oracle does not know."""
        index = self.index
        rows = np.fromiter((index.get(image, -1) for image in image_ids), dtype=np.int64, count=len(image_ids))
        for k in np.flatnonzero(rows < 0).tolist():
            rows[k] = self._by_file_name(image_ids[k])
        return rows

    def state(self, image_id: object, label: str) -> State:
        """Returns 1 for present, 0 for absent, -1 for unknown.

        Raises:
            InputError: if the oracle does not know the image.
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
        """Returns the labels present in an image.

        Raises:
            InputError: if the oracle does not know the image.
        """
        row = self.row(image_id)
        return frozenset(self.labels[k] for k in self.label_ids[self.indptr[row] : self.indptr[row + 1]].tolist())

    def states(self, labels: Sequence[str]) -> NDArray[np.int8]:
        """Returns every state for a label axis of the caller's, for example a vocabulary's.

        Args:
            labels: L labels.

        Returns:
            (images, L) int8 of 1, 0, -1.
        """
        position = {label: k for k, label in enumerate(labels)}
        return self._onto([position.get(label, -1) for label in self.labels], labels)

    def states_of(self, vocabulary: Vocabulary) -> NDArray[np.int8]:
        """Returns every state for a vocabulary's labels, found by its aliases where this truth names things freely.

        A label is present where any of its names is. It is verified absent where the name that is the label itself
        is, or every name of it: a picture without a man may still show a person.

        Returns:
            (images, labels of the vocabulary) int8 of 1, 0, -1; of a mapped matrix of these labels that matrix itself.
        """
        if self.cells is not None and self.labels == tuple(vocabulary.labels):
            return self.cells
        return self._onto(self.columns_in(vocabulary), vocabulary.labels)

    def columns_in(self, vocabulary: Vocabulary) -> list[int]:
        """Per label of this truth its position in the vocabulary, -1 if that has none."""
        ids = vocabulary.label_ids
        if self.names is None:
            return [ids.get(label, -1) for label in self.labels]
        by_words = {_words(alias): ids[label] for alias, label in vocabulary.aliases.items()}
        by_words |= {_words(label): k for label, k in ids.items()}
        candidates = (
            (by_words[words] for name in names if (words := _words(name)) in by_words) for names in self.names
        )
        return [next(positions, -1) for positions in candidates]

    def _onto(self, columns: Sequence[int], labels: Sequence[str]) -> NDArray[np.int8]:
        """States on another axis.

        Args:
            columns: per label of this truth its column, -1 for none; several labels may share one.
            labels: names of the columns.
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
        """Hash of the content: equal for the same truth in another order or file format."""
        label_rank, image_rank = _ranks(self.labels), _ranks(self.image_ids)
        width = len(self.labels)
        present = image_rank[self.owner] * width + label_rank[self.label_ids]
        # whichever of the other two states is rarer tells the rest; a truth's own columns list that one, nearly always
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
        """Returns a matrix on the vocabulary's labels, in its order, that carries the vocabulary's fingerprint."""
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

    def save(self, path: str | Path) -> None:
        """Writes ``.npz``, ``.parquet`` (both int8 matrices), ``.json`` or ``.jsonl`` by the name's ending.

        An open-axis map becomes closed over the labels that occur in it when it is written as a matrix.

        Raises:
            InputError: for another ending, unknown cells in a JSON file, or the file cannot be written.
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

    def __repr__(self) -> str:
        return one_line(self, f"{self.vocabulary!r} on {self.oracle!r}")

    @classmethod
    def of(cls, oracle: PresenceOracle, vocabulary: Vocabulary, *, any_fingerprint: bool = False) -> Truth:
        """Joins the two axes.

        Args:
            oracle, vocabulary: the two.
            any_fingerprint: accept a matrix made for another vocabulary; labels are then joined by name.

        Raises:
            InputError: if the vocabulary knows none of the ground truth's labels, or the matrix was made for another
                vocabulary.
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
                hint = ": it has Open Images' codes; name them with scapo-eval oracle open-images --classes FILE"
            raise InputError(
                f"no label of this truth is in the vocabulary '{vocabulary.name}'{hint}", path=oracle.source
            )
        states = oracle.states_of(vocabulary)
        n_present = [(part == 1).sum(axis=1, dtype=np.int64) for part in in_parts(states)]
        return cls(oracle, vocabulary, states, np.concatenate(n_present), dropped)

    row_type: ClassVar[type] = np.int64

    @property
    def index(self) -> Mapping[str, int]:
        """Canonical image id -> row."""
        return self.oracle.index

    def row(self, image_id: object) -> int:
        """Returns the row of an image in any spelling of its id; see :meth:`PresenceOracle.row`."""
        return self.oracle.row(image_id)

    def values(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
        """Returns the (n,) state of n cells: rows, and positions in the vocabulary."""
        states: NDArray[Any] = self.states[rows, labels]
        return states

    def present_counts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the (n,) number of present labels of images."""
        counts: NDArray[np.int64] = self.n_present[rows]
        return counts

    def rows_of(self, image_ids: Sequence[str], captions: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the (n,) rows against which captions are held: those of their images, unless a truth depends on the
        caption.

        Args:
            image_ids: canonical id of each caption's image.
            captions: the texts.
            rows: (n,) row of each one's image.
        """
        return rows

    def prints(self, image_ids: Sequence[str]) -> NDArray[np.uint64]:
        """Returns the (n,) number of the known cells of each image: the same from a ground truth in another format or
        order.

        A sum of one random number for every known cell (Zobrist 1970), so that unknown ones and other labels add
        nothing, and equal images of another truth are equal.

        Args:
            image_ids: canonical ids, known to the oracle.
        """
        rows = self.oracle.find_rows(image_ids)
        keys = _cell_keys(self.vocabulary.labels)
        parts = (self.states[part] for part in np.array_split(rows, rows.size * len(keys) // _PART + 1))
        return np.concatenate([np.where(s == 1, keys[:, 1], np.where(s == 0, keys[:, 0], 0)).sum(1) for s in parts])

    @property
    def signature_fields(self) -> Mapping[str, str | None]:
        """The fields of a signature on a ground truth beside vocabulary, fingerprint and label set."""
        return {}

    @property
    def identity(self) -> tuple[str, str]:
        """Fingerprint and label set of the ground truth, for a signature."""
        return self.oracle.fingerprint, self.oracle.world

    @property
    def warning(self) -> str | None:
        """One sentence on truth labels that the vocabulary lacks; None if there are none."""
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
        """One sentence on labels of the vocabulary that are known of no image; None if there are none."""
        known: list[bool] = np.any(self.states >= 0, axis=0).tolist()
        unknown = [label for label, some in zip(self.vocabulary.labels, known, strict=True) if not some]
        if not unknown:
            return None
        shown = ", ".join(f"'{label}'" for label in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        return (
            f"{self.oracle.source}: {len(unknown)} of {len(self.vocabulary.labels)} labels of the vocabulary "
            f"'{self.vocabulary.name}' have no truth, so naming them counts for nothing: {shown}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing that a reader of values against this ground truth must know."""
        return tuple(filter(None, (self.warning, self.without_truth)))

    def rows(self, image_ids: Iterable[object]) -> NDArray[np.int64]:
        """Returns the (n,) row of each image id.

        Raises:
            InputError: for an id that the oracle does not know.
        """
        return np.fromiter((self.oracle.row(image) for image in image_ids), dtype=np.int64)


def did_you_mean(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """Returns ``; did you mean 'couch' for 'sofa'?`` for the labels that have a close name, else an empty string."""
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
    """Returns (labels, 2) numbers: a number for a label that is absent, and one for a label that is present."""
    hashes = (blake2b(label.encode("utf-8", "surrogatepass"), digest_size=16).digest() for label in labels)
    return np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2).astype(np.uint64)


@lru_cache(maxsize=1 << 17)
def _words(name: str) -> tuple[str, ...]:
    """Returns a name as a vocabulary reads its aliases; one that cannot be an alias stays unchanged."""
    try:
        return tokenize_alias(name)
    except ValueError:
        return (name,)


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """Returns the (n,) rank of each name in sorted order."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks
