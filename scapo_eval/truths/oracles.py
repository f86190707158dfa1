"""Oracles other than a presence matrix: functions, mappings, data frames and judges.

A reward accepts a :class:`~scapo_eval.truths.oracle.PresenceOracle` (the fastest option, because every cell is known in
advance), or one of the following:

- a function ``f(image_ids, labels)`` that returns the values of n cells, or an object whose method ``lookup`` does so;
- a mapping ``{image: [labels]}`` or ``{image: {label: value}}``;
- a pandas ``DataFrame`` with one row per image (the index or the column ``image_id`` contains the image ids) and one
  column per label, or in a format of :meth:`PresenceOracle.from_frame`;
- :class:`JudgedOracle`: a judge that is queried once about each cell and whose answers are stored in a file.

The value 1 means present, 0 means absent, and a value between 0 and 1 is the probability of presence. Such
probabilities yield expected rewards. The values -1, NaN and None mean that the state is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import InputError, short_repr
from ..base.hashes import digest
from ..base.ids import checked_image_id
from ..files.fields import keys_named
from ..files.files import read_regular
from ..files.json_text import dump_json, parse_json
from ..matching.vocabulary import Vocabulary
from .oracle import PresenceOracle, Truth, did_you_mean
from .truth_table import LABEL_KEYS

Lookup: TypeAlias = Callable[[Sequence[str], Sequence[str]], ArrayLike]
"""A function that maps n canonical image ids and n labels to (n,) values, as described in the module."""


class Oracle(Protocol):
    """Protocol of an oracle that returns the state of (image, label) cells when a response claims them.

    If the oracle defines ``__contains__``, rows whose images it does not contain are treated as faulty. If the oracle
    has a string attribute ``fingerprint``, the reward's signature includes the fingerprint.

    Example:
        >>> import scapo_eval
        >>> class Dogs:
        ...     def lookup(self, image_ids, labels):
        ...         return [float(label == "dog") for label in labels]
        >>> scapo_eval.reward_fn("coco80", Dogs())(completions=["There is a dog."], image_id=[7])
        [1.0]
    """

    def lookup(self, image_ids: Sequence[str], labels: Sequence[str]) -> ArrayLike:
        """Returns the values of n distinct cells.

        Args:
            image_ids: The n canonical image ids.
            labels: The n labels of the vocabulary.

        Returns:
            (n,) array of values: 1 for present, 0 for absent, a probability between 0 and 1, or -1 for unknown.
        """


AnyOracle: TypeAlias = Any
"""Any form that :func:`truth_of` accepts. The type is not precise, because pandas is not imported here."""


@dataclass(frozen=True)
class TruthOnDemand(Truth):
    """A ground truth, aligned with a vocabulary, that queries an oracle cell by cell. Because cells are queried on
    demand, the matrix ``states`` of such a ground truth is empty.

    Attributes:
        cells: Oracle that is queried for the states of cells.
        known: Values of earlier queries, by image and label index, or None if values are not kept.
    """

    cells: Oracle
    known: dict[tuple[str, int], float] | None = None

    @classmethod
    def asking(cls, cells: Oracle, vocabulary: Vocabulary) -> TruthOnDemand:
        """Returns a ground truth that queries an oracle for the labels of a vocabulary."""
        labels = vocabulary.labels
        none = np.zeros(0, dtype=np.int64)
        empty = PresenceOracle(
            source=_name(cells),
            world="closed",
            image_ids=(),
            labels=labels,
            indptr=np.zeros(1, dtype=np.int64),
            label_ids=none.astype(np.int32),
            unknown=none.reshape(0, 2),
        )
        return cls(empty, vocabulary, empty.states(labels), none, {}, cells)

    row_type = object

    def for_batch(self) -> TruthOnDemand:
        """Returns a ground truth that queries the oracle only once about each cell."""
        return replace(self, known={})

    @property
    def identity(self) -> tuple[str, str]:
        """Fingerprint or name of the oracle, and the label set ``on-demand``, for use in signatures."""
        return str(getattr(self.cells, "fingerprint", self.oracle.source)), "on-demand"

    def row(self, image_id: object) -> str:  # type: ignore[override]
        """Returns the canonical id of an image.

        Raises:
            InputError: If the id is invalid, or if the oracle reports that it does not contain the image.
        """
        image = checked_image_id(image_id)
        if hasattr(self.cells, "__contains__") and image not in self.cells:
            raise InputError(f"unknown image id {image_id!r}", path=self.oracle.source)
        return image

    def values(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
        """Returns the (n,) float64 values of n cells. Each distinct cell is queried once."""
        cells = list(zip(rows.tolist(), labels.tolist(), strict=True))
        known = {} if self.known is None else self.known
        new = [cell for cell in dict.fromkeys(cells) if cell not in known]
        if new:
            images, names = [image for image, _ in new], [self.vocabulary.labels[label] for _, label in new]
            answers = checked_values(self.cells.lookup(images, names), images, names, self.oracle.source)
            known |= zip(new, answers.tolist(), strict=True)
        return np.array([known[cell] for cell in cells], dtype=np.float64)

    def present_counts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the (n,) number of vocabulary labels that are present in each of n images. The oracle is queried
        about all labels of the vocabulary.

        Raises:
            InputError: If the oracle returns probabilities.
        """
        width = len(self.vocabulary.labels)
        values = self.values(np.repeat(rows, width), np.tile(np.arange(width), len(rows))).reshape(-1, width)
        if ((values > 0) & (values < 1)).any():
            raise InputError(
                "level='cap' requires an oracle that returns 1 and 0, not probabilities", path=self.oracle.source
            )
        counts: NDArray[np.int64] = (values == 1).sum(axis=1, dtype=np.int64)
        return counts


def truth_of(oracle: AnyOracle | str | Path, vocabulary: Vocabulary, *, any_fingerprint: bool = False) -> Truth:
    """Converts any supported type of oracle to a ground truth for the labels of a vocabulary.

    Args:
        oracle: A file, or an oracle of one of the types that the docstring of this module lists. If a mapping contains
            lists, unlisted labels are absent. In a mapping that contains values and in a DataFrame, labels without a
            value are unknown.
        vocabulary: Vocabulary whose labels form the label axis.
        any_fingerprint: True to accept a matrix that was made for another vocabulary; see :meth:`Truth.of`.

    Raises:
        InputError: If the type of ``oracle`` is unsupported, or if :meth:`Truth.of` rejects the oracle.
    """
    if isinstance(oracle, (str, Path)):
        return truth_of(PresenceOracle.load(oracle), vocabulary, any_fingerprint=any_fingerprint)
    if isinstance(oracle, Mapping):
        if any(isinstance(values, Mapping) for values in oracle.values()):
            return _of_table(TableOracle.from_mapping(oracle), vocabulary)
        oracle = PresenceOracle.from_objects(oracle)
    elif all(hasattr(oracle, name) for name in ("columns", "index", "to_numpy")):
        oracle = _of_wide_or_long(oracle)
    if isinstance(oracle, TableOracle):
        return _of_table(oracle, vocabulary)
    if isinstance(oracle, PresenceOracle):
        return Truth.of(oracle, vocabulary, any_fingerprint=any_fingerprint)
    if isinstance(oracle, JudgedOracle) and oracle.truth is not None:
        oracle = _JudgedTruth(Truth.of(oracle.truth, vocabulary, any_fingerprint=any_fingerprint), oracle)
    if callable(getattr(oracle, "lookup", None)):
        return TruthOnDemand.asking(oracle, vocabulary)
    if callable(oracle):
        return TruthOnDemand.asking(FunctionOracle(oracle), vocabulary)
    kinds = "a file, a PresenceOracle, a mapping, a DataFrame, a function or an object with a method lookup"
    raise InputError(f"an oracle must be {kinds}, not {type(oracle).__name__}")


def _of_table(table: TableOracle, vocabulary: Vocabulary) -> TruthOnDemand:
    present = (table.table >= 0.5).sum(axis=0)
    dropped = {label: int(present[k]) for label, k in table.labels.items() if label not in vocabulary.label_ids}
    if dropped and len(dropped) == len(table.labels):
        hint = did_you_mean(list(dropped)[:1000], vocabulary)
        reason = f"no label of this ground truth is in the vocabulary '{vocabulary.name}'{hint}"
        raise InputError(reason, path=table.source)
    return replace(TruthOnDemand.asking(table, vocabulary), dropped=dropped)


@dataclass(frozen=True, slots=True)
class FunctionOracle:
    """An oracle that wraps a function.

    Attributes:
        lookup: The function.

    Example:
        >>> import scapo_eval
        >>> from scapo_eval.truths.oracles import FunctionOracle
        >>> dogs = FunctionOracle(lambda image_ids, labels: [float(label == "dog") for label in labels])
        >>> scapo_eval.reward_fn("coco80", dogs)(completions=["There is a dog."], image_id=[7])
        [1.0]
    """

    lookup: Lookup


@dataclass(frozen=True)
class TableOracle:
    """An oracle that looks up values of images and labels in memory.

    Attributes:
        images: Mapping from canonical image ids to rows of the table.
        labels: Mapping from labels to columns of the table.
        table: (images, labels) float64 array of values, with -1 for unknown values.
        source: Name of the source, for error messages.

    Example:
        >>> import scapo_eval
        >>> from scapo_eval.truths.oracles import TableOracle
        >>> table = TableOracle.from_mapping({7: {"dog": 1, "cat": 0}})
        >>> scapo_eval.reward_fn("coco80", table)(completions=["There is a dog.", "A cat sleeps."], image_id=[7, 7])
        [1.0, -1.0]
    """

    images: Mapping[str, int]
    labels: Mapping[str, int]
    table: NDArray[np.float64]
    source: str = "mapping"

    @classmethod
    def from_mapping(cls, values: Mapping[Any, Any]) -> TableOracle:
        """Builds the table from a mapping ``{image id: {label: value}}``.

        Raises:
            InputError: If the value of an image is not a mapping, if the value of a label is outside [0, 1], or if an
                image id appears in two spellings.
        """
        rows: dict[str, Mapping[str, Any]] = {}
        for image, row in values.items():
            if not isinstance(row, Mapping):
                raise InputError(f"image {image}: expected {{label: value}}, got {short_repr(row)}", path="mapping")
            name = checked_image_id(image, "mapping")
            if name in rows:
                raise InputError(f"image id '{name}' appears twice", path="mapping")
            rows[name] = row
        labels = {label: k for k, label in enumerate(dict.fromkeys(label for row in rows.values() for label in row))}
        cells = [(image, label, value) for image, row in rows.items() for label, value in row.items()]
        images = {image: k for k, image in enumerate(rows)}
        table = np.full((len(images), len(labels)), -1.0)
        names = [image for image, _, _ in cells], [label for _, label, _ in cells]
        checked = checked_values([value for _, _, value in cells], *names, "mapping")
        table[[images[image] for image in names[0]], [labels[label] for label in names[1]]] = checked
        return cls(images, labels, table)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self.images

    def lookup(self, image_ids: Sequence[str], labels: Sequence[str]) -> NDArray[np.float64]:
        """Returns the values of n cells; see :class:`Oracle`. Labels that are missing from the table are unknown."""
        columns = np.array([self.labels.get(label, -1) for label in labels], dtype=np.int64)
        values = self.table[[self.images[image] for image in image_ids], columns]
        return np.where(columns < 0, -1.0, values)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the table's content."""
        return digest([*self.images, "labels", *self.labels, self.table.astype("<f8").tobytes()])


class JudgedOracle:
    """An oracle that queries a judge once about each cell and stores the answers in a file.

    The file contains JSON Lines with ``image_id``, ``label`` and ``value`` (null if the judge is undecided). Answers
    are appended when they arrive, so that none of them are lost if the process is killed. Several processes may share a
    file, but they may then query the judge twice about the same cell.

    Args:
        judge: Function that returns the values of cells without a stored answer.
        path: File in which the answers are stored. The file is created if it does not exist.
        truth: Ground truth whose known cells are not sent to the judge.

    Raises:
        InputError: If the file cannot be read or written, or contains an invalid line.

    Example:
        >>> import scapo_eval, tempfile
        >>> from scapo_eval.truths.oracles import JudgedOracle
        >>> def judge(image_ids, labels):
        ...     return [float(label == "dog") for label in labels]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     oracle = JudgedOracle(judge, f"{folder}/answers.jsonl")
        ...     rewards = scapo_eval.reward_fn("coco80", oracle)(completions=["There is a dog."], image_id=[7])
        >>> rewards, len(oracle)
        ([1.0], 1)
    """

    def __init__(self, judge: Lookup, path: str | Path, *, truth: PresenceOracle | None = None) -> None:
        self.judge = judge
        self.path = Path(path)
        self.truth = truth
        self._values: dict[tuple[str, str], float] = {}
        lines = read_regular(self.path).split(b"\n") if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            # the last line of a killed process is incomplete, so its request is repeated
            if line and number < len(lines):
                self._read(line, number)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def fingerprint(self) -> str:
        """Name of the judge and fingerprint of the ground truth, for use in signatures."""
        return _name(self.judge) + (f"+{self.truth.fingerprint}" if self.truth is not None else "")

    def lookup(self, image_ids: Sequence[str], labels: Sequence[str]) -> list[float]:
        """Returns the values of n cells; see :class:`Oracle`. The labels are those of the ground truth."""
        truth, states = self.truth, [-1] * len(image_ids)
        if truth is not None:
            rows = truth.find_rows(image_ids).tolist()
            states = [
                -1 if row < 0 else truth.state(truth.image_ids[row], label)
                for row, label in zip(rows, labels, strict=True)
            ]
        return self.completed(states, image_ids, labels)

    def completed(self, states: Sequence[float], image_ids: Sequence[str], labels: Sequence[str]) -> list[float]:
        """Returns the given states of n cells, with the judge's answers in place of unknown states."""
        cells = list(zip(image_ids, labels, strict=True))
        unknown = [cell for cell, state in zip(cells, states, strict=True) if state == -1]
        missing = [cell for cell in dict.fromkeys(unknown) if cell not in self._values]
        if missing:
            images, names = [image for image, _ in missing], [label for _, label in missing]
            answers = checked_values(self.judge(images, names), images, names, _name(self.judge)).tolist()
            judged = dict(zip(missing, answers, strict=True))
            self._append(judged)
            self._values |= judged
        return [self._values[cell] if state == -1 else state for cell, state in zip(cells, states, strict=True)]

    def _read(self, line: bytes, number: int) -> None:
        try:
            row = parse_json(line)
            image, label, value = str(row["image_id"]), str(row["label"]), row["value"]
        except (ValueError, KeyError, TypeError):
            reason = "not a valid answer of a judge (image_id, label, value)"
            raise InputError(reason, path=self.path, line=number) from None
        checked = checked_values([value], [image], [label], f"{self.path}:{number}")
        self._values.setdefault((image, label), float(checked[0]))

    def _append(self, answers: Mapping[tuple[str, str], float]) -> None:
        rows = (
            {"image_id": image, "label": label, "value": None if value < 0 else value}
            for (image, label), value in answers.items()
        )
        try:
            with open(self.path, "ab+") as stream:
                if stream.tell():
                    stream.seek(-1, os.SEEK_END)
                    if stream.read(1) != b"\n":  # incomplete, because the process was killed
                        _cut_last_line(stream)
                stream.write(b"".join(dump_json(row) + b"\n" for row in rows))
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self.path) from None


@dataclass(frozen=True)
class _JudgedTruth:
    """An oracle that looks cells up in a ground truth that is aligned with the vocabulary, and then asks a judge."""

    truth: Truth
    judged: JudgedOracle

    @property
    def fingerprint(self) -> str:
        return self.judged.fingerprint

    def lookup(self, image_ids: Sequence[str], labels: Sequence[str]) -> list[float]:
        rows = self.truth.oracle.find_rows(image_ids)
        columns = np.array([self.truth.vocabulary.label_ids[label] for label in labels], dtype=np.int64)
        states = np.where(rows < 0, -1, self.truth.values(rows, columns))
        return self.judged.completed(states.tolist(), image_ids, labels)


def checked_values(values: ArrayLike, images: Sequence[str], labels: Sequence[str], source: str) -> NDArray[np.float64]:
    """Checks the values of n cells and returns them as an (n,) array, with -1 for unknown values.

    Raises:
        InputError: If the number of values is not n, or if a value is neither in [0, 1] nor -1. The message names the
            cell.
    """
    try:
        checked = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"expected a number per cell, got {short_repr(values)}", path=source) from None
    if checked.shape != (len(images),):
        raise InputError(f"expected {len(images)} values, one per cell, got shape {checked.shape}", path=source)
    checked = np.where(np.isnan(checked), -1.0, checked)
    bad = np.flatnonzero(((checked < 0) | (checked > 1)) & (checked != -1))
    if len(bad):
        k = int(bad[0])
        reason = f"image {images[k]}, label '{labels[k]}': {checked[k]:g} is not in [0, 1] (or -1 for unknown)"
        raise InputError(reason, path=source)
    return checked


def _of_wide_or_long(frame: Any) -> PresenceOracle | TableOracle:
    names = list(map(str, frame.columns))
    if "image_id" in names and ("objects" in names or keys_named(names, LABEL_KEYS)):
        return PresenceOracle.from_frame(frame)
    return _of_frame(frame.set_index("image_id") if "image_id" in names else frame)


def _of_frame(frame: Any) -> PresenceOracle | TableOracle:
    """Returns a presence oracle if all values of a DataFrame are 1, 0 or -1. Returns a table oracle if the DataFrame
    contains other values.
    """
    images = [checked_image_id(image, "DataFrame") for image in frame.index]
    labels = [str(name) for name in frame.columns]
    try:
        values = np.asarray(frame.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("expected a number in every cell", path="DataFrame") from None
    owner = [image for image in images for _ in labels]
    table = checked_values(values.ravel(), owner, labels * len(images), "DataFrame").reshape(values.shape)
    if np.isin(table, (1.0, 0.0, -1.0)).all():
        return PresenceOracle.from_matrix(table.astype(np.int8), images, labels, source="DataFrame")
    if len(set(images)) != len(images) or len(set(labels)) != len(labels):
        raise InputError("an image or a label appears twice", path="DataFrame")
    rows = {image: k for k, image in enumerate(images)}
    return TableOracle(rows, {label: k for k, label in enumerate(labels)}, table, "DataFrame")


def _cut_last_line(stream: Any) -> None:
    """Removes an unfinished last line from a file."""
    stream.seek(0)
    stream.truncate(stream.read().rfind(b"\n") + 1)


def _name(oracle: Any) -> str:
    """Returns the name of an oracle or function, for use in messages and signatures."""
    if isinstance(oracle, FunctionOracle):
        oracle = oracle.lookup
    named = getattr(oracle, "source", None) or getattr(oracle, "__qualname__", None)
    return str(named or type(oracle).__qualname__)
