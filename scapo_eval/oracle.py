"""The presence oracle: what is in an image, by pure look-up.

A cell (image, label) is present, absent or unknown. Positive-only sources (COCO instances, AMBER's word
lists, ``{id: [labels]}`` maps) are read as closed WITHIN their own label axis: what the source annotates
and does not list is absent, a label outside the axis is unknown. DOPA matrices say every cell themselves.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from .errors import InputError, MissingExtra
from .ids import canonical_image_id
from .io.files import (
    FaultList,
    atomic_write,
    display_name,
    dump_json,
    json_fault,
    json_type,
    parse_json,
    read_bytes,
    records_of,
)
from .signature import digest
from .types import State
from .vocabulary import Vocabulary

World = Literal["closed", "open-axis", "total"]
"""``closed``: absent within the source's axis. ``open-axis``: any label not listed is absent (a map without
an axis of its own). ``total``: every cell stands in a matrix."""

MATRIX_VERSION = "1"


@dataclass(frozen=True)
class PresenceOracle:
    """Present, absent or unknown for every image and label.

    Attributes:
        source: display name of the file.
        world: how unlisted labels are read.
        image_ids: canonical ids in the source's order.
        labels: the source's label axis (for ``open-axis``: the labels that occur).
        indptr, label_ids: CSR of the present labels, image ``i`` owning
            ``label_ids[indptr[i]:indptr[i + 1]]``, sorted.
        unknown: (image, label) positions of explicit unknown cells, shape (cells, 2).
        vocabulary_fingerprint: of the vocabulary a matrix was made for, if it says so.
    """

    source: str
    world: World
    image_ids: tuple[str, ...]
    labels: tuple[str, ...]
    indptr: NDArray[np.int64]
    label_ids: NDArray[np.int32]
    unknown: NDArray[np.int64]
    vocabulary_fingerprint: str | None = None

    @classmethod
    def load(cls, path: str | Path) -> PresenceOracle:
        """Reads any truth format, recognised by content.

        COCO ``instances_*.json``; DOPA ``.npz`` and ``.parquet``; ``{id: [labels]}`` or
        ``{"objects": {id: [labels]}, "labels": [...]}`` JSON; JSON Lines of ``{"image_id", "objects"}``;
        AMBER ``annotations.json``; each also as ``.gz`` or ``.zst``.

        Raises:
            InputError: the file is none of these, with the reason; InputErrors: faults by line.
        """
        name = display_name(path)
        data = read_bytes(path)
        if not data.strip():
            raise InputError("the file is empty", path=name)
        if data[:4] == b"PK\x03\x04":
            return _from_npz(data, name)
        if data[:4] == b"PAR1":
            return _from_parquet(data, name)
        return _from_json(data, name)

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
            InputErrors: image ids that are none, or two spellings of one image with different labels.
        """
        faults = FaultList()
        rows = _Rows(source, faults)
        for image_id, names in objects.items():
            rows.add(None, image_id, names)
        faults.raise_if_any()
        return rows.oracle(labels)

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
            InputError: shapes that do not fit, other values, an image or label that stands twice.
        """
        return _from_matrix(matrix, image_ids, labels, vocabulary_fingerprint, source)

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
            InputError: the id is none, or the oracle does not know it.
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
        owner = np.repeat(np.arange(len(self.image_ids)), np.diff(self.indptr))
        target = column[self.label_ids]
        states[owner[target >= 0], target[target >= 0]] = 1
        if len(self.unknown):
            target = column[self.unknown[:, 1]]
            states[self.unknown[target >= 0, 0], target[target >= 0]] = -1
        return states

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content: equal for the same truth in another order or file format."""
        label_rank, image_rank = _ranks(self.labels), _ranks(self.image_ids)
        owner = np.repeat(np.arange(len(self.image_ids)), np.diff(self.indptr))
        cells = image_rank[owner] * len(self.labels) + label_rank[self.label_ids]
        unknown = image_rank[self.unknown[:, 0]] * len(self.labels) + label_rank[self.unknown[:, 1]]
        axis = "open" if self.world == "open-axis" else "closed"
        content = [np.sort(keys).astype("<i8").tobytes() for keys in (cells, unknown)]
        return digest([axis, *sorted(self.labels), "images", *sorted(self.image_ids), *content])

    def restricted_to(self, vocabulary: Vocabulary) -> PresenceOracle:
        """A matrix on the vocabulary's labels, in its order, that carries the vocabulary's fingerprint."""
        matrix = self.states(vocabulary.labels)
        return _from_matrix(matrix, self.image_ids, vocabulary.labels, vocabulary.fingerprint, self.source)

    def save(self, path: str | Path) -> None:
        """Writes ``.npz``, ``.parquet`` (both int8 matrices, SPEC section 8) or ``.jsonl`` by the name's ending.

        An open-axis map becomes closed over the labels that occur in it when it is written as a matrix;
        JSON Lines hold no axis, so a truth written to them is read back as an open-axis map.

        Raises:
            InputError: another ending, unknown cells in a JSON file, or the file cannot be written.
        """
        name = str(path).removesuffix(".gz").removesuffix(".zst")
        if name.endswith(".npz"):
            arrays = {
                "matrix": self.states(self.labels),
                "image_ids": np.array(self.image_ids, dtype=np.str_),
                "labels": np.array(self.labels, dtype=np.str_),
                "vocabulary_fingerprint": np.array(self.vocabulary_fingerprint or ""),
                "version": np.array(MATRIX_VERSION),
            }
            with atomic_write(path) as stream:
                _save_npz(stream, arrays)
        elif name.endswith(".parquet"):
            self._save_parquet(path)
        elif name.endswith((".jsonl", ".json")):
            if len(self.unknown):
                raise InputError("JSON cannot hold unknown cells; end the name in .npz or .parquet", path=str(path))
            with atomic_write(path) as stream:
                if name.endswith(".json"):
                    objects = {image: sorted(self.present(image)) for image in self.image_ids}
                    axis = {} if self.world == "open-axis" else {"labels": list(self.labels)}
                    stream.write(dump_json({"objects": objects, **axis}) + b"\n")
                else:
                    for image in self.image_ids:
                        stream.write(dump_json({"image_id": image, "objects": sorted(self.present(image))}) + b"\n")
        else:
            raise InputError("cannot tell the format: end the name in .npz, .parquet, .json or .jsonl", path=str(path))

    def _save_parquet(self, path: str | Path) -> None:
        pa, pq = _pyarrow("writing a parquet matrix")
        states = self.states(self.labels)
        columns = {"image_id": pa.array(self.image_ids)}
        columns |= {label: pa.array(states[:, k]) for k, label in enumerate(self.labels)}
        metadata = {"vocabulary_fingerprint": self.vocabulary_fingerprint or "", "version": MATRIX_VERSION}
        table = pa.table(columns).replace_schema_metadata({"scapo": dump_json(metadata)})
        with atomic_write(path) as stream:
            pq.write_table(table, stream)


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


class _Rows:
    """Collects ``image id -> labels`` rows, refusing two different lists for one image."""

    def __init__(self, source: str, faults: FaultList) -> None:
        self.source = source
        self.faults = faults
        self.rows: dict[str, frozenset[str]] = {}

    def add(self, line: int | None, image_id: object, objects: object) -> None:
        try:
            key = canonical_image_id(image_id)
        except ValueError as error:
            self.faults.add(InputError(f"image id {error}", path=self.source, line=line))
            return
        if isinstance(objects, (str, bytes, Mapping)) or not isinstance(objects, Iterable):
            reason = f"objects of image {key}: expected a list of labels, found {json_type(objects)}"
            self.faults.add(InputError(reason, path=self.source, line=line))
            return
        labels = list(objects)
        wrong = [label for label in labels if not isinstance(label, str)]
        if wrong:
            reason = f"objects of image {key}: a label is {json_type(wrong[0])}, not a string"
            self.faults.add(InputError(reason, path=self.source, line=line))
            return
        present = frozenset(labels)
        if self.rows.setdefault(key, present) != present:
            self.faults.add(InputError(f"image {key} stands twice with different objects", path=self.source, line=line))

    def oracle(self, labels: Sequence[str] | None, world: World | None = None) -> PresenceOracle:
        if not self.rows:
            raise InputError("the truth holds no image", path=self.source)
        axis = tuple(dict.fromkeys(labels)) if labels is not None else tuple(sorted(set().union(*self.rows.values())))
        position = {label: k for k, label in enumerate(axis)}
        for image, present in self.rows.items():
            outside = sorted(present - position.keys())
            if outside:
                raise InputError(f"image {image} lists '{outside[0]}', which is not in 'labels'", path=self.source)
        ids = [sorted(position[label] for label in present) for present in self.rows.values()]
        return PresenceOracle(
            source=self.source,
            world=world or ("closed" if labels is not None else "open-axis"),
            image_ids=tuple(self.rows),
            labels=axis,
            indptr=_indptr(len(row) for row in ids),
            label_ids=np.array([k for row in ids for k in row], dtype=np.int32),
            unknown=np.zeros((0, 2), dtype=np.int64),
        )


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """(n,) rank of each name in sorted order."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _indptr(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))]).astype(np.int64)


class _CocoImage(msgspec.Struct, gc=False):
    id: int


class _CocoCategory(msgspec.Struct, gc=False):
    id: int
    name: str


class _CocoAnnotation(msgspec.Struct, gc=False):
    image_id: int
    category_id: int


class _CocoInstances(msgspec.Struct, gc=False):
    """Only the fields that matter: polygons, nine tenths of the file, are skipped and never built."""

    images: list[_CocoImage]
    annotations: list[_CocoAnnotation]
    categories: list[_CocoCategory]


def _from_json(data: bytes, name: str) -> PresenceOracle:
    text = data.lstrip()
    if text[:1] == b"{" and b'"annotations"' in data and b'"categories"' in data:
        return _from_coco(data, name)
    first_line = text.split(b"\n", 1)[0].strip()
    if text[:1] == b"[":
        return _from_records(data, name)
    if first_line[:1] == b"{" and (first_line.endswith(b"}") and b"image_id" in first_line):
        return _from_records(data, name)
    document = _parsed(data, name)
    if not isinstance(document, dict):
        raise InputError(f"no truth: expected an object or a list, found {json_type(document)}", path=name)
    labels = document.get("labels") if isinstance(document.get("objects"), dict) else None
    objects = document["objects"] if isinstance(document.get("objects"), dict) else document
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise InputError("'labels' must be a list of strings", path=name)
    if objects is document and any(not isinstance(value, list) for value in document.values()):
        keys = ", ".join(list(document)[:5])
        known = 'COCO instances, {id: [labels]}, {"objects": {...}} or lines of image_id and objects'
        raise InputError(f"no truth: expected {known} (found keys: {keys})", path=name)
    faults = FaultList()
    rows = _Rows(name, faults)
    for image_id, present in objects.items():
        rows.add(None, image_id, present)
    faults.raise_if_any()
    return rows.oracle(labels)


def _parsed(data: bytes, name: str) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise json_fault(name, data, error) from None


def _from_records(data: bytes, name: str) -> PresenceOracle:
    faults = FaultList()
    rows = _Rows(name, faults)
    amber_words: set[str] = set()
    amber = False
    for number, record in records_of(data, name, on_error=faults.add):
        if "image_id" in record and "objects" in record:
            rows.add(number, record["image_id"], record["objects"])
        elif "id" in record and "type" in record:  # AMBER: generative entries carry word lists, the rest are questions
            amber = True
            if record["type"] == "generative":
                rows.add(number, record["id"], record.get("truth"))
                hallu = record.get("hallu") or []
                if isinstance(hallu, list) and all(isinstance(word, str) for word in hallu):
                    amber_words.update(hallu)
                else:
                    faults.add(InputError("'hallu' must be a list of strings", path=name, line=number))
        else:
            found = ", ".join(map(str, list(record)[:6]))
            missing = "'objects'" if "image_id" in record else "'image_id'"
            faults.add(InputError(f"missing key {missing} (found: {found})", path=name, line=number))
    faults.raise_if_any()
    return rows.oracle(sorted(amber_words.union(*rows.rows.values())) if amber else None)


def _from_coco(data: bytes, name: str) -> PresenceOracle:
    try:
        coco = msgspec.json.decode(data, type=_CocoInstances)
    except msgspec.DecodeError as error:
        raise InputError(f"no COCO instances file: {error}", path=name) from None
    labels = [category.name for category in coco.categories]
    position = {category.id: k for k, category in enumerate(coco.categories)}
    _refuse_doubles("category", labels, name)
    row_of = {image: k for k, image in enumerate(dict.fromkeys(image.id for image in coco.images))}
    try:
        cells = np.fromiter(
            (row_of[a.image_id] * len(labels) + position[a.category_id] for a in coco.annotations),
            dtype=np.int64,
            count=len(coco.annotations),
        )
    except KeyError as error:
        raise InputError(
            f"an annotation names the image or category {error}, which the file does not list", path=name
        ) from None
    if not row_of:
        raise InputError("the truth holds no image", path=name)
    cells = np.unique(cells)
    rows = cells // max(1, len(labels))
    return PresenceOracle(
        source=name,
        world="closed",
        image_ids=tuple(map(str, row_of)),
        labels=tuple(labels),
        indptr=np.searchsorted(rows, np.arange(len(row_of) + 1)),
        label_ids=(cells % max(1, len(labels))).astype(np.int32),
        unknown=np.zeros((0, 2), dtype=np.int64),
    )


def _from_matrix(
    matrix: NDArray[Any], image_ids: Sequence[Any], labels: Sequence[Any], fingerprint: str, name: str
) -> PresenceOracle:
    names = tuple(map(str, labels))
    if matrix.shape != (len(image_ids), len(names)):
        raise InputError(
            f"matrix of shape {matrix.shape} does not fit {len(image_ids)} images and {len(names)} labels", path=name
        )
    if not len(image_ids):
        raise InputError("the truth holds no image", path=name)
    if matrix.dtype.kind not in "iub" or not np.isin(matrix, (-1, 0, 1)).all():
        raise InputError("matrix cells must be 1 (present), 0 (absent) or -1 (unknown)", path=name)
    plain = image_ids.tolist() if isinstance(image_ids, np.ndarray) else image_ids
    try:
        ids = tuple(canonical_image_id(image.item() if isinstance(image, np.generic) else image) for image in plain)
    except ValueError as error:
        raise InputError(f"image id {error}", path=name) from None
    _refuse_doubles("image", ids, name)
    _refuse_doubles("label", names, name)
    rows, columns = np.nonzero(matrix == 1)
    return PresenceOracle(
        source=name,
        world="total",
        image_ids=ids,
        labels=names,
        indptr=np.searchsorted(rows, np.arange(len(ids) + 1)),
        label_ids=columns.astype(np.int32),
        unknown=np.argwhere(matrix == -1),
        vocabulary_fingerprint=fingerprint or None,
    )


def _refuse_doubles(kind: str, values: Sequence[str], name: str) -> None:
    if len(set(values)) != len(values):
        twice = next(value for k, value in enumerate(values) if value in values[:k])
        raise InputError(f"{kind} '{twice}' stands twice", path=name)


def _from_npz(data: bytes, name: str) -> PresenceOracle:
    import zipfile
    import zlib

    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            missing = {"matrix", "image_ids", "labels"} - set(arrays.files)
            if missing:
                raise InputError(f"no DOPA matrix: missing {', '.join(sorted(missing))}", path=name)
            fingerprint = str(arrays["vocabulary_fingerprint"]) if "vocabulary_fingerprint" in arrays.files else ""
            return _from_matrix(arrays["matrix"], arrays["image_ids"], arrays["labels"], fingerprint, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"damaged npz file: {error}", path=name) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"unreadable npz file: {error}", path=name) from None


def _save_npz(stream: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Numpy's savez_compressed without time stamps, so that equal content gives equal bytes."""
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, member.getvalue())
    stream.write(buffer.getvalue())


def _pyarrow(needed_for: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("formats", needed_for) from None
    return pyarrow, pyarrow.parquet


def _from_parquet(data: bytes, name: str) -> PresenceOracle:
    pa, pq = _pyarrow("reading a parquet matrix")
    try:
        table = pq.read_table(pa.BufferReader(data))
        names = table.column_names
        columns = [column.to_numpy() for column in table.columns]
        metadata = parse_json((table.schema.metadata or {}).get(b"scapo", b"{}"))
    except (pa.ArrowException, OSError, ValueError) as error:  # pyarrow's own input error is the built-in OSError
        raise InputError(f"damaged parquet file: {str(error).splitlines()[0]}", path=name) from None
    if "image_id" not in names:
        raise InputError(f"no DOPA matrix: missing column 'image_id' (found: {', '.join(names[:5])})", path=name)
    image_ids = columns.pop(names.index("image_id")).tolist()
    names.remove("image_id")
    matrix = np.stack(columns, axis=1) if columns else np.zeros((len(image_ids), 0), dtype=np.int8)
    fingerprint = str(metadata.get("vocabulary_fingerprint", "")) if isinstance(metadata, dict) else ""
    return _from_matrix(matrix, image_ids, names, fingerprint, name)
