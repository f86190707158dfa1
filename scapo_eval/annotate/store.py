"""The folder of an annotation run, which stores every verdict on every (image, label) cell with its provenance.

The cells of a run can instead be claims about images. Each claim is then a row, and each kind of claim is a column. A
row has only one cell, which is in the column of the claim's kind.

Stored verdicts are never overwritten. Verdicts are appended to ``verdicts.N.log`` (11 bytes each), and a long log is
merged into the compressed ``verdicts.npz``. The log and the archive contain all versions of a cell, not only its
current verdict. If the process is killed, every stored verdict is kept, and a partial record at the end is removed.

| file | content |
| --- | --- |
| ``run.json`` | format, fingerprints of vocabulary and images, start time |
| ``vocabulary.json`` | copy of the vocabulary, so that the run does not depend on the user's file |
| ``images.jsonl`` | image id, name and path, in row order; in a run of claims, also the claims of each image |
| ``excluded.jsonl`` | images that cannot be loaded, with the reason; a null reason includes the image again |
| ``probabilities.log`` | P(present) of the verdicts by probability, 14 bytes each; other verdicts have none |
| ``sources.jsonl`` | provenances: judge or person, prompt, and reason; verdicts refer to its lines |
| ``prompts.jsonl`` | text of every prompt, under the id to which provenances refer |
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import InputError
from ..base.hashes import digest
from ..base.verdicts import ABSENT, PRESENT, UNKNOWN
from ..claiming.claim import KINDS as CLAIM_KINDS
from ..claiming.claim import ClaimKey, question_of
from ..files.containers import check_archive
from ..files.files import atomic_write, decoding, read_bytes, read_regular
from ..files.json_text import dump_json, parse_json, read_json
from ..files.locks import try_lock
from ..inference.runner import now
from ..inference.sources import ImageFile
from ..matching.vocabulary import Vocabulary

FORMAT, CLAIM_FORMAT = "scapo-annotation/1", "scapo-annotation-claims/1"

PassKind = Literal["coarse", "label", "joint", "human"]
KINDS: tuple[PassKind, ...] = get_args(PassKind)

COMPACT_FROM = 1 << 16
"""Number of verdicts in the log from which closing the run merges the log into the archive."""

_RECORD = np.dtype([("row", "<u4"), ("label", "<u2"), ("source", "<u4"), ("verdict", "i1")])
_PROBABILITY = np.dtype([("row", "<u4"), ("label", "<u2"), ("source", "<u4"), ("p", "<f4")])
_PROBABILITIES = "probabilities.log"
_NONE = -1


@dataclass(frozen=True)
class CellProvenance:
    """Origin of a cell's verdict.

    Attributes:
        kind: Kind of the question (``coarse``, ``label``, ``joint``), or ``human`` for a person's verdict.
        prompt: Id (``name@hash``) of the prompt, or an empty string for a person.
        judge: Name of the judge in the form ``model@hash``, or name of the person.
        round: Number of the quality-control round that led to the verdict, or 0 before the first round.
        reason: Reason for asking again, or an empty string for the first question.
        answer: Answer of the judge that leaves a claim undecided (``absent`` or ``unsure``), or an empty string.
    """

    kind: PassKind
    prompt: str
    judge: str
    round: int = 0
    reason: str = ""
    answer: str = ""


class Store:
    """The cells of an annotation run. The method :meth:`create` creates a run, and :meth:`open` opens an existing run.

    Attributes:
        folder: Folder of the run.
        vocabulary: Copy of the vocabulary that belongs to the run.
        images: Images of the run.
        claims: Claim of each row, or an empty tuple if the cells are labels.
        image_ids: Canonical image id of each row. If the cells are labels, every image is one row.
        paths: File path of each row's image.
        labels: Labels in the order of the columns, or the kinds of the claims.
        matrix: (rows, labels) int8 matrix with 1 for present, 0 for absent, and -1 for unknown. A cell is unknown if it
            is not judged, for example because its image failed, or if its answer is unreadable or undecided.
        prompts: Mapping from prompt ids to prompts.
    """

    folder: Path
    vocabulary: Vocabulary
    images: tuple[ImageFile, ...]
    claims: tuple[ClaimKey, ...]
    image_ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: tuple[str, ...]
    matrix: NDArray[np.int8]
    prompts: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        self._lock: int | None = None
        self._log = -1
        self._logged = 0  # records in the log
        self._generation = 0
        self._provenances: list[CellProvenance] = []
        self._ids: dict[CellProvenance, int] = {}
        self._excluded: dict[str, str] = {}
        self._versions: list[NDArray[np.void]] = []
        self._probabilities: list[NDArray[np.void]] = []

    @classmethod
    def create(
        cls,
        folder: str | Path,
        images: Sequence[ImageFile],
        vocabulary: Vocabulary,
        claims: Mapping[str, Sequence[ClaimKey]] | None = None,
    ) -> Store:
        """Creates a run and opens it for writing.

        Args:
            folder: Folder of the run. The folder is created if it does not exist. An existing folder must be empty.
            images: Images with distinct ids.
            vocabulary: Vocabulary with the labels.
            claims: Image id -> distinct claims about the image, which become the cells of the run. If the value is
                None, a cell is created for every combination of image and label.

        Raises:
            InputError: If there are no images, if the folder contains a run or other files, or if the folder cannot be
                written.
        """
        folder = Path(folder)
        if (folder / "run.json").exists():
            raise InputError("already has a run; choose another folder", path=str(folder))
        if not images:
            raise InputError("a run needs at least one image", path=str(folder))
        if claims is not None and not any(claims.get(image.image_id) for image in images):
            raise InputError("the captions contain no claim about its images", path=str(folder))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be created: {error.strerror}", path=str(folder)) from None
        if foreign := sorted(
            path.name for path in folder.iterdir() if path.name not in _MADE_FIRST and path.name[0] != "."
        ):
            raise InputError(
                f"not an annotation run, and not empty ({foreign[0]}); choose another folder", path=str(folder)
            )
        lock = _lock(folder)
        try:
            _write(folder / "vocabulary.json", dump_json(vocabulary.document()))
            _write_images(folder, images, claims)
            for name in ("verdicts.0.log", "sources.jsonl", "prompts.jsonl", "excluded.jsonl"):
                _write(folder / name, b"")
            run = {
                "format": FORMAT if claims is None else CLAIM_FORMAT,
                "vocabulary": {"name": vocabulary.name, "fingerprint": vocabulary.fingerprint},
                "images": {"n": len(images), "hash": digest([image.image_id for image in images])},
                "started": now(),
            }
            _write(folder / "run.json", dump_json(run))  # written last, because this file makes the folder a run
        finally:
            os.close(lock)
        return cls.open(folder, write=True)

    @classmethod
    def open(cls, folder: str | Path, *, vocabulary: Vocabulary | None = None, write: bool = False) -> Store:
        """Opens a run.

        Args:
            folder: Folder of the run.
            vocabulary: Vocabulary that the run must have been created with, or None to accept any vocabulary.
            write: True to open the run for writing, which prevents other processes from writing to it until
                :meth:`close`.

        Raises:
            InputError: If the folder is not a run, if the run is damaged or was created with another vocabulary, or if
                another process is writing to it.
        """
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise InputError("annotation run not found (`scapo-eval annotate coarse` creates one)", path=str(folder))
        run = read_json(folder / "run.json")
        made = run.get("vocabulary") if isinstance(run, dict) else None
        if not isinstance(run, dict) or run.get("format") not in (FORMAT, CLAIM_FORMAT) or not isinstance(made, dict):
            raise InputError(f"not a valid annotation run of the format {FORMAT}", path=str(folder / "run.json"))
        if not {"name", "fingerprint"} <= made.keys():
            raise InputError("damaged: 'vocabulary' has no name or fingerprint", path=str(folder / "run.json"))
        if vocabulary is not None and vocabulary.fingerprint != made["fingerprint"]:
            reason = (
                f"was started with the vocabulary '{made['name']}' (fingerprint {made['fingerprint']}), but "
                f"'{vocabulary.name}' has {vocabulary.fingerprint}: labels or aliases have changed. Go on with "
                f"{folder / 'vocabulary.json'}, or start another run"
            )
            raise InputError(reason, path=str(folder))
        store = cls()
        store.folder = folder
        store._lock = _lock(folder) if write else None
        try:
            store._load()
        except BaseException:
            store._release()
            raise
        return store

    def relocate(self, images: Sequence[ImageFile]) -> None:
        """Stores the paths of the given images if they differ from those of the run.

        Args:
            images: The images of the run, in the same order.
        """
        self._must_write()
        paths = [os.path.abspath(image.path) for image in images]
        if paths != [image.path for image in self.images]:
            _write_images(self.folder, images, self.claims_of_images)
            self._load_images()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Returns the number of stored verdicts, including all versions of all cells."""
        return sum(map(len, self._versions))

    @property
    def excluded(self) -> Mapping[str, str]:
        """Mapping from the id of each image that cannot be loaded to the reason. The cells of images that cannot be
        loaded are unknown, and the final matrix omits these images.
        """
        return MappingProxyType(self._excluded)

    def refuse_claims(self) -> None:
        """Raises an error if the cells of the run are claims. Commands that need labels call this method.

        Raises:
            InputError: If the cells are claims.
        """
        if self.claims:
            raise InputError(
                "the cells of this run are claims, but this command requires labels", path=str(self.folder)
            )

    @property
    def claims_of_images(self) -> dict[str, list[ClaimKey]] | None:
        """Mapping from each image id to the claims about the image, or None if the cells are labels."""
        if not self.claims:
            return None
        found: dict[str, list[ClaimKey]] = {}
        for image, claim in zip(self.image_ids, self.claims, strict=True):
            found.setdefault(image, []).append(claim)
        return found

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """Mapping from labels, or kinds of claims, to columns."""
        return {label: column for column, label in enumerate(self.labels)}

    @cached_property
    def cells(self) -> NDArray[np.bool_]:
        """(rows, labels) mask of the run's cells. In a run of claims, each row has a single cell, in the column of the
        claim's kind. Otherwise, every position is a cell.
        """
        if not self.claims:
            return np.ones(self.matrix.shape, dtype=np.bool_)
        kinds = np.array([self.columns[claim[0]] for claim in self.claims])
        return np.asarray(kinds[:, None] == np.arange(len(self.labels)))

    def name_of(self, row: int, column: int) -> dict[str, str]:
        """Returns the image id and label of a cell, together with the question about a claim. These fields identify the
        cell in files.
        """
        question = {"claim": question_of(self.claims[row])} if self.claims else {}
        return {"image_id": self.image_ids[row], "label": self.labels[column], **question}

    def find(self, record: Mapping[str, Any]) -> tuple[int, int] | None:
        """Returns the row and column of the cell that a record names in the format of :meth:`name_of`, or None if the
        record names no cell of the run.
        """
        image, label, claim = (record.get(key) for key in ("image_id", "label", "claim"))
        if not isinstance(image, str) or not isinstance(label, str):
            return None
        row, column = self._row_of.get((image, str(claim) if self.claims else None)), self.columns.get(label)
        return None if row is None or column is None or not self.cells[row, column] else (row, column)

    @cached_property
    def _row_of(self) -> Mapping[tuple[str, str | None], int]:
        asked: Iterable[str | None] = map(question_of, self.claims) if self.claims else repeat(None)
        return {cell: row for row, cell in enumerate(zip(self.image_ids, asked, strict=False))}

    def write(
        self,
        rows: ArrayLike,
        label_ids: ArrayLike,
        verdicts: ArrayLike,
        provenance: CellProvenance,
        probabilities: NDArray[np.float64] | None = None,
    ) -> None:
        """Appends verdicts, each of which becomes the current verdict of its cell.

        A judge's verdict on a cell that a person has judged is dropped.

        Args:
            rows: (n,) array with the row index of each cell's image.
            label_ids: (n,) array with the label column of each cell.
            verdicts: (n,) array of verdicts: 1, 0 or -1.
            provenance: Provenance that all verdicts share.
            probabilities: (n,) array of P(present), with NaN for unknown probabilities, or None if the verdicts have no
                probabilities.

        Raises:
            InputError: If the run is not open for writing, or if the disk is full.
        """
        records = np.empty(np.asarray(rows).shape, _RECORD)
        records["row"], records["label"], records["verdict"] = rows, label_ids, verdicts
        assert np.isin(records["verdict"], (PRESENT, ABSENT, UNKNOWN)).all()
        self._must_write()
        if probabilities is not None:  # before the verdicts, which are ignored without these
            kept = np.empty(records.shape, _PROBABILITY)
            for name in ("row", "label"):
                kept[name] = records[name]
            kept["source"], kept["p"] = self._provenance_id(provenance), probabilities
            self._append_probabilities(kept)
        if provenance.kind != "human":
            human = np.array([*(known.kind == "human" for known in self._provenances), False])
            records = records[~human[self._latest[records["row"], records["label"]]]]
        if not len(records):
            return
        records["source"] = self._provenance_id(provenance)
        self._append(self._log, records.tobytes())
        self._take(records)

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """(images, labels) float32 matrix of P(present) for the current verdicts, with NaN for unknown cells and for
        verdicts without a probability.
        """
        found = np.full(self.matrix.shape, np.nan, dtype=np.float32)
        source = np.full(self.matrix.shape, _NONE, dtype=np.int64)
        for part in self._probabilities:
            found[part["row"], part["label"]] = part["p"]
            source[part["row"], part["label"]] = part["source"]
        found[(source != self._latest) | (self.matrix == UNKNOWN)] = np.nan  # the verdict has changed since then
        return found

    def exclude(self, image_id: str, reason: str | None) -> None:
        """Excludes an image from the run because it cannot be loaded. If ``reason`` is None, the image is included
        again.
        """
        if self._excluded.get(image_id) == reason:
            return
        self.append("excluded.jsonl", {"image_id": image_id, "reason": reason})
        self._set_excluded(image_id, reason)

    def keep_prompt(self, prompt: str, document: Mapping[str, Any]) -> None:
        """Stores the text of a prompt under its id, unless the prompt is already stored."""
        if prompt in self.prompts:
            return
        self.append("prompts.jsonl", document)
        self.prompts[prompt] = dict(document)

    def keep_pool(self, card: Mapping[str, Any]) -> None:
        """Stores the card of the sample that the images belong to."""
        self._must_write()
        _write(self.folder / "pool.json", dump_json(card))

    def provenance_of(self, row: int, label_id: int) -> CellProvenance | None:
        """Returns the provenance of a cell's current verdict, or None for a cell that was never judged."""
        latest = int(self._latest[row, label_id])
        return None if latest == _NONE else self._provenances[latest]

    @property
    def provenances(self) -> tuple[CellProvenance, ...]:
        """All provenances, in the order of their first verdicts. The array ``provenance_ids`` contains positions in
        this list.
        """
        return tuple(self._provenances)

    def id_of(self, provenance: CellProvenance) -> int:
        """Returns the position of a provenance in the list ``provenances``.

        A provenance without verdicts gets the position -2, to which no cell refers.
        """
        return self._ids.get(provenance, _NONE - 1)

    @property
    def provenance_ids(self) -> NDArray[np.int32]:
        """(images, labels) matrix that contains, for each cell, the position of the current verdict's provenance in
        ``provenances``, or -1 if the cell has no verdict.
        """
        return self._latest

    def history(self, row: int, label_id: int) -> list[tuple[int, CellProvenance]]:
        """Returns all verdicts on a cell, each with its provenance, oldest first."""
        verdicts = []
        for part in self._versions:
            for record in part[(part["row"] == row) & (part["label"] == label_id)]:
                verdicts.append((int(record["verdict"]), self._provenances[int(record["source"])]))
        return verdicts

    def changed(self) -> int:
        """Returns the number of cells whose current verdict differs from their first verdict. The cells of excluded
        images are not counted.
        """
        first = np.full(self.matrix.shape, UNKNOWN, dtype=np.int8)
        for part in reversed(self._versions):
            decided = part[::-1][part["verdict"][::-1] != UNKNOWN]
            first[decided["row"], decided["label"]] = decided["verdict"]
        return int(((first != self.matrix) & (first != UNKNOWN) & self.included[:, None]).sum())

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Appends a line to a JSON Lines file in the folder of the run."""
        self._must_write()
        with open(self.folder / name, "ab", buffering=0) as stream:
            stream.write(dump_json(row) + b"\n")

    def lines(self, name: str, form: Any = dict[str, Any]) -> list[Any]:
        """Returns the lines of a JSON Lines file in the folder of the run, or an empty list if the file does not exist.

        A process that is killed may leave an incomplete last line, which is ignored. If the run is open for writing, an
        incomplete last line is also removed from the file.

        Args:
            name: Name of the JSON Lines file.
            form: Type of each line, as a type annotation that msgspec accepts.

        Raises:
            InputError: If a line does not have the required type. The message states the line number.
        """
        path = self.folder / name
        data = read_bytes(path) if path.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and self._lock is not None:
            os.truncate(path, whole)
        records = []
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            try:
                records.append(msgspec.convert(parse_json(line), form))
            except ValueError as error:
                raise InputError(f"damaged: {error}", path=str(path), line=number) from None
        return records

    @property
    def unsettled(self) -> NDArray[np.bool_]:
        """(rows, labels) mask of the cells without a verdict.

        Claims that a judge has left undecided count as settled and have the state unknown.
        """
        undecided = np.array([*(bool(provenance.answer) for provenance in self._provenances), False])
        return np.asarray((self.matrix == UNKNOWN) & self.cells & ~undecided[self._latest])

    def open_cells(self) -> NDArray[np.int64]:
        """Returns an (n, 2) array with the rows and columns of the cells without a verdict. Cells of excluded images
        are omitted.
        """
        return np.argwhere(self.unsettled & self.included[:, None])

    @property
    def included(self) -> NDArray[np.bool_]:
        """(rows,) mask that is false for excluded images."""
        return np.array([image not in self._excluded for image in self.image_ids])

    def absorb(self, other: Store) -> None:
        """Appends all verdicts, prompts and exclusions of another run with the same images and vocabulary.

        Args:
            other: Run whose verdicts, prompts and exclusions are appended.
        """
        self._must_write()
        ids = np.array([self._provenance_id(provenance) for provenance in other._provenances], dtype=np.uint32)
        for part in other._versions:
            records = part.copy()
            records["source"] = ids[part["source"]]
            self._append(self._log, records.tobytes())
            self._take(records)
        for part in other._probabilities:
            kept = part.copy()
            kept["source"] = ids[kept["source"]]
            self._append_probabilities(kept)
        for image, reason in other.excluded.items():
            self.exclude(image, reason)
        for prompt, document in other.prompts.items():
            self.keep_prompt(prompt, document)

    def compact(self) -> None:
        """Merges the log of verdicts into the archive. All versions of every cell are kept.

        The archive contains the name of the log that follows it. Therefore, if the process is killed during the merge,
        verdicts are neither lost nor duplicated.
        """
        self._must_write()
        versions = np.concatenate([*self._versions, np.empty(0, _RECORD)])
        old, generation = self._generation, self._generation + 1
        _write(self.folder / f"verdicts.{generation}.log", b"")
        with atomic_write(self.folder / "verdicts.npz") as stream:
            columns = {str(name): versions[name] for name in _RECORD.names or ()}
            np.savez_compressed(stream, generation=np.array(generation), **columns)  # type: ignore[arg-type]
        os.close(self._log)
        self._log = _append_to(self.folder / f"verdicts.{generation}.log")
        self._generation, self._versions, self._logged = generation, [versions], 0
        (self.folder / f"verdicts.{old}.log").unlink()

    def close(self) -> None:
        """Writes all data to disk, merges a long log into the archive, and unlocks the run."""
        if self._lock is None:
            return
        if self._logged >= COMPACT_FROM:
            self.compact()
        os.fsync(self._log)
        os.close(self._log)
        self._release()

    def _load(self) -> None:
        folder = self.folder
        self.vocabulary = Vocabulary.load(folder / "vocabulary.json")
        self._load_images()
        self.matrix = np.full((len(self.image_ids), len(self.labels)), UNKNOWN, dtype=np.int8)
        self._latest = np.full(self.matrix.shape, _NONE, dtype=np.int32)
        for excluded in self.lines("excluded.jsonl", _Excluded):
            self._set_excluded(excluded.image_id, excluded.reason)
        self.lines("prompts.jsonl", _Prompt)  # files that other files refer to exist
        self.prompts = {row["prompt"]: row for row in self.lines("prompts.jsonl")}
        log = self._read_log()
        path = folder / _PROBABILITIES
        data = read_regular(path) if path.exists() else b""
        # after the logs: a provenance is written before the verdicts and probabilities that refer to it
        self._provenances = self.lines("sources.jsonl", CellProvenance)
        self._ids = {provenance: k for k, provenance in enumerate(self._provenances)}
        for part in (*self._versions, log):
            self._check(part)
        kept = np.frombuffer(data, _PROBABILITY, count=len(data) // _PROBABILITY.itemsize)
        self._check_cells(kept, "a probability")
        self._probabilities = [kept]
        if kept.nbytes < len(data) and self._lock is not None:
            os.truncate(path, kept.nbytes)  # incomplete probability from a killed process
        archived, self._versions = self._versions, []
        for part in (*archived, log):
            self._take(part)
        self._logged = len(log)
        if self._lock is not None:
            path = folder / f"verdicts.{self._generation}.log"
            os.truncate(path, len(log) * _RECORD.itemsize)  # removes an incomplete verdict from a killed process
            self._log = _append_to(path)
            for other in folder.glob("verdicts.*.log"):
                if other != path:
                    other.unlink()

    def _load_images(self) -> None:
        folder, rows = self.folder, self.lines("images.jsonl", _ImageRow)
        self.images = tuple(ImageFile(row.image_id, row.name, row.path) for row in rows)
        if len({image.image_id for image in self.images}) < len(self.images) or not self.images:
            raise InputError("damaged: no image, or one that appears twice", path=str(folder / "images.jsonl"))
        self.claims = tuple(claim for row in rows for claim in row.claims or ())
        if any(len(set(row.claims or ())) < len(row.claims or ()) for row in rows):
            raise InputError("damaged: a claim appears twice", path=str(folder / "images.jsonl"))
        kinds = {claim[0] for claim in self.claims}
        repeats = [len(row.claims or ()) if kinds else 1 for row in rows]
        of_rows = [image for image, times in zip(self.images, repeats, strict=True) for _ in range(times)]
        self.image_ids = tuple(image.image_id for image in of_rows)
        self.paths = tuple(image.path for image in of_rows)
        self.labels = tuple(kind for kind in CLAIM_KINDS if kind in kinds) if kinds else self.vocabulary.labels

    def _read_log(self) -> NDArray[np.void]:
        """Reads the archive, and returns the log that follows it. Reads the archive and the log again if a writer has
        merged the log in the meantime.
        """
        archive = self.folder / "verdicts.npz"
        for _ in range(100):
            self._generation, self._versions = 0, []
            try:
                if archive.exists():
                    self._generation, versions = _read_archive(archive)
                    self._versions = [versions]
                if not (log := self.folder / f"verdicts.{self._generation}.log").exists():
                    continue
                data = read_regular(log)
            except FileNotFoundError:
                continue
            return np.frombuffer(data, _RECORD, count=len(data) // _RECORD.itemsize)
        raise InputError("damaged: the log of verdicts that follows verdicts.npz is missing", path=str(self.folder))

    def _check_cells(self, records: NDArray[np.void], what: str) -> None:
        images, labels = self.matrix.shape
        for name, limit in (("row", images), ("label", labels), ("source", len(self._provenances))):
            if len(records) and records[name].max() >= limit:
                raise self._damaged(f"{what} refers to {name} {records[name].max()}, which does not exist")

    def _check(self, records: NDArray[np.void]) -> None:
        self._check_cells(records, "a verdict")
        if not np.isin(records["verdict"], (PRESENT, ABSENT, UNKNOWN)).all():
            raise self._damaged("a verdict is neither 1, 0 nor -1")

    def _damaged(self, reason: str) -> InputError:
        """Returns the error that is raised if files of a run contradict each other.

        The error lists all files that are involved, because any of them may be damaged.
        """
        names = "verdicts.*, probabilities.log, sources.jsonl, images.jsonl or vocabulary.json"
        return InputError(f"damaged: {reason} ({names})", path=str(self.folder))

    def _take(self, records: NDArray[np.void]) -> None:
        self._versions.append(records)
        # if a cell has two verdicts, numpy's assignment keeps the later one
        self.matrix[records["row"], records["label"]] = records["verdict"]
        self._latest[records["row"], records["label"]] = records["source"]

    def _provenance_id(self, provenance: CellProvenance) -> int:
        if provenance not in self._ids:
            self.append("sources.jsonl", asdict(provenance))
            self._ids[provenance] = len(self._provenances)
            self._provenances.append(provenance)
        return self._ids[provenance]

    def _append(self, file: int, data: bytes) -> None:
        if os.write(file, data) < len(data):  # disk full: remove the incomplete verdict
            os.ftruncate(file, self._logged * _RECORD.itemsize)
            raise InputError("cannot be written: no space left on device", path=str(self.folder))
        self._logged += len(data) // _RECORD.itemsize

    def _append_probabilities(self, records: NDArray[np.void]) -> None:
        with open(self.folder / _PROBABILITIES, "ab", buffering=0) as stream:
            if (stream.write(records.tobytes()) or 0) < records.nbytes:
                stream.truncate(sum(part.nbytes for part in self._probabilities))
                raise InputError("cannot be written: no space left on device", path=str(self.folder))
        self._probabilities.append(records)

    def _set_excluded(self, image_id: str, reason: str | None) -> None:
        if reason is None:
            self._excluded.pop(image_id, None)
        else:
            self._excluded[image_id] = reason

    def _must_write(self) -> None:
        if self._lock is None:
            raise InputError("the run is read-only", path=str(self.folder))

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def files_of(folder: str | Path) -> list[Path]:
    """Returns the files in the folder of a run that the run itself reads and writes."""
    own = ("*.log", "verdicts.*", "qc/*", *_MADE_FIRST, "run.json", "pool.json", "passes.jsonl", "unread.jsonl")
    return [path for pattern in own for path in Path(folder).glob(pattern)]


_MADE_FIRST = frozenset(
    {"lock", "vocabulary.json", "images.jsonl", "verdicts.0.log", "sources.jsonl", "prompts.jsonl", "excluded.jsonl"}
)
"""Files that a kill during :meth:`Store.create` may leave."""


class _ImageRow(msgspec.Struct, gc=False):
    image_id: str
    name: str
    path: str
    claims: list[ClaimKey] | None = None


class _Excluded(msgspec.Struct):
    image_id: str
    reason: str | None


class _Prompt(msgspec.Struct):
    prompt: str
    kind: PassKind
    labels: list[str]


def _read_archive(path: Path) -> tuple[int, NDArray[np.void]]:
    """Returns two values: the number of the log that follows the archive, and the archived verdicts."""
    data = read_regular(path)
    with decoding("archive of verdicts", path):
        stream = io.BytesIO(data)
        check_archive(stream, str(path))
        columns = np.load(stream, allow_pickle=False)
        versions = np.empty(len(columns["row"]), _RECORD)
        for name in _RECORD.names or ():
            column = columns[name]
            if column.dtype != _RECORD[name] or column.shape != versions.shape:
                raise ValueError(f"'{name}' has the wrong type or size")
            versions[name] = column
        generation = int(columns["generation"][()])
    return generation, versions


def _write_images(folder: Path, images: Sequence[ImageFile], claims: Mapping[str, Sequence[ClaimKey]] | None) -> None:
    rows = [
        {
            **{"image_id": image.image_id, "name": image.name, "path": os.path.abspath(image.path)},
            **({} if claims is None else {"claims": claims.get(image.image_id, ())}),
        }
        for image in images
    ]
    _write(folder / "images.jsonl", b"".join(dump_json(row) + b"\n" for row in rows))


def _lock(folder: Path) -> int:
    """Prevents other processes from writing to the run while the returned descriptor is open.

    Raises:
        InputError: If another process is writing to the run.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=str(folder)) from None
    if not try_lock(lock):
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        who = f"process {holder}" if holder else "another process"
        raise InputError(f"{who} is writing this run; wait for it, or stop it", path=str(folder))
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as stream:
        stream.write(data)


def _append_to(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
