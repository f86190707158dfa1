"""A round of quality control on disk, which consists of the drawn pairs and people's answers.

``RUN/qc/round-001.jsonl`` is append-only. The first line of the file contains the draw and the judge's matrix at the
time of the draw, so that later changes to cells can be detected. Each further line is an answer (``null`` retracts an
answer), and the last line closes the round. If the process is killed, all answers given so far are kept, and an
incomplete last line is removed.
"""

from __future__ import annotations

import base64
import os
import shlex
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...base.errors import InputError, ScapoError, short_repr
from ...base.hashes import digest
from ...base.verdicts import UNKNOWN
from ...files.files import atomic_write, read_regular
from ...files.json_text import dump_json, parse_json
from ...files.locks import try_lock
from ...inference.runner import now
from ...results.stats import DEFAULT_SEED
from ..store import CellProvenance, Store
from .draws import DEFAULT_AT_LEAST, DEFAULT_RANDOM, Pairs, draw_pairs

FORMAT = "scapo-qc-round/1"
FOLDER = "qc"

PersonAnswer = Literal["yes", "no", "unsure", "missing"]
"""A person's answer.

``unsure`` keeps the judge's verdict. Upper bounds then count the cell as wrong, and lower bounds do not. ``missing``
means that the image cannot be shown. The pair is then not counted and may be drawn again.
"""

ANSWERS: tuple[PersonAnswer, ...] = get_args(PersonAnswer)
VERDICTS = {"yes": 1, "no": 0}
DEFAULT_SHARE = 0.1
"""Share of a round's pairs that a second person answers."""

RoundState = Literal["open", "closed", "abandoned"]


class AnswerConflict(ScapoError):
    """Error for a pair that has meanwhile been answered in another browser tab or by another person."""


@dataclass(frozen=True)
class Draw:
    """The immutable questions of one round.

    Attributes:
        number: Number of the round, counted from 1.
        seed: Seed of the draw.
        labels: Columns of the labels that were sampled, in the order of the questions (empty if the round asks about
            undecided cells).
        full: True if the draw covers all labels. Only a full round yields bounds for the whole matrix.
        matrix: (images, labels) matrix of verdicts at the time of the draw, with -1 for excluded images.
        eligible: (images, labels) mask of the cells that could be drawn, that is, cells that have a verdict and that no
            person had seen.
        pairs: Cells that a person checks.
        second: True if the draw consists of those pairs of round ``number`` that a second person answers.
    """

    number: int
    seed: int
    labels: tuple[int, ...]
    full: bool
    matrix: NDArray[np.int8]
    eligible: NDArray[np.bool_]
    pairs: Pairs
    second: bool = False

    @cached_property
    def judged(self) -> NDArray[np.int8]:
        """(pairs,) array with the judge's verdicts at the time of the draw."""
        return self.matrix[self.pairs.rows, self.pairs.label_ids]


class Round:
    """The file of a round, and the state of the round as defined by the lines of the file.

    Args:
        path: Path of the round's file.
        store: Run that the round belongs to.
        write: True to open the round for answers and lock out other processes until :meth:`close_file` is called.

    Attributes:
        draw: Questions in the round.
        answers: Answer to each pair, or None for open pairs.
        people: Person who answered each pair, or an empty string for open pairs.
        versions: Number of times that the answer to each pair was set or retracted; see :meth:`answer`.
        order: Answered pairs, with the latest answer last.
        state: State of the round: ``open``, ``closed`` or ``abandoned``.
        errors: Errors of the judge that were found when the round was closed; see :func:`close_round`.

    Raises:
        InputError: If the file is damaged, belongs to another run, or is open for answers in another process.
    """

    draw: Draw
    answers: list[PersonAnswer | None]
    people: list[str]
    versions: list[int]
    order: list[int]
    state: RoundState
    errors: list[dict[str, Any]]

    def __init__(self, path: Path, store: Store, *, write: bool = False) -> None:
        self.path = path
        self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND) if write else None
        if self._file is not None and not try_lock(self._file):
            os.close(self._file)
            reason = "another process uses this round (perhaps `annotate qc serve`); answer there, or stop it"
            raise InputError(reason, path=str(path))
        try:
            self._read(store)
        except BaseException:
            self.close_file()
            raise

    def __enter__(self) -> Round:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_file()

    @property
    def number(self) -> int:
        """Number of the round, counted from 1."""
        return self.draw.number

    @property
    def open_pairs(self) -> list[int]:
        """Pairs without an answer, in the order of the questions."""
        return [pair for pair, answer in enumerate(self.answers) if answer is None]

    def answer(self, pair: int, answer: PersonAnswer | None, *, by: str, version: int | None = None) -> None:
        """Stores one answer to a pair on disk.

        Args:
            pair: Position of the pair among the drawn pairs.
            answer: Answer of the person, or None to retract an earlier answer.
            by: Name of the person who answers.
            version: Version of the pair that the person saw, or None to skip the version check.

        Raises:
            AnswerConflict: If the answer has changed since the person saw the pair.
            ScapoError: If the pair does not exist, or if the round is closed.
        """
        if not 0 <= pair < len(self.answers):
            raise ScapoError(f"pair {pair} not found in round {self.number}")
        if version is not None and version != self.versions[pair]:
            raise AnswerConflict(
                f"pair {pair} was answered in another window in the meantime: {self.answers[pair] or 'withdrawn'}"
            )
        self.answer_many([(pair, answer)], by=by)

    def answer_many(self, answers: Iterable[tuple[int, PersonAnswer | None]], *, by: str) -> None:
        """Stores several (pair, answer) tuples at once, without a version check."""
        if self.state != "open":
            raise ScapoError(f"round {self.number} is {self.state}: its answers can no longer change")
        lines = [{"pair": pair, "answer": answer, "by": by, "time": now()} for pair, answer in answers]
        self._append(lines)
        for line in lines:
            self._take(line)

    def end(self, state: Literal["closed", "abandoned"], errors: Sequence[dict[str, Any]]) -> None:
        """Writes the line that ends the round."""
        line = {"state": state, "time": now(), "errors": list(errors)}
        self._append([line])
        self._take(line)

    def close_file(self) -> None:
        """Closes the file of the round, so that other processes can store answers."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        if self._file is None:
            raise InputError("the round is read-only", path=str(self.path))
        data = b"".join(dump_json(line) + b"\n" for line in lines)
        if os.write(self._file, data) < len(data):  # disk full: remove the incomplete line
            os.ftruncate(self._file, self._size)
            raise InputError("cannot be written: no space left on device", path=str(self.path))
        os.fsync(self._file)
        self._size += len(data)

    def _take(self, line: dict[str, Any]) -> None:
        if "state" in line:
            end = msgspec.convert(line, _End)
            if any(not {"pair", "image_id", "label"} <= error.keys() for error in end.errors):
                raise ValueError("missing 'pair', 'image_id' or 'label' in an error")
            self.state, self.errors = end.state, end.errors
            return
        pair, answer = line["pair"], line["answer"]
        if not (type(pair) is int and 0 <= pair < len(self.answers) and (answer is None or answer in ANSWERS)):
            raise ValueError(f"not a valid answer: {short_repr(line)}")
        if self.answers[pair] is not None:
            self.order.remove(pair)
        self.answers[pair] = answer
        self.people[pair] = "" if answer is None else str(line["by"])
        self.versions[pair] += 1
        if answer is not None:
            self.order.append(pair)

    def _read(self, store: Store) -> None:
        data = read_regular(self.path)
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and self._file is not None:
            os.ftruncate(self._file, whole)
        self._size = whole
        lines = data[:whole].splitlines()
        number = 1
        try:
            head = parse_json(lines[0])
            if head.get("format") != FORMAT or head["run"] != _matrix_hash(store):
                raise InputError(f"not a round of this run in the format {FORMAT}", path=str(self.path), line=1)
            self.draw = _draw_of(head, store)
            asked = len(self.draw.judged)
            self.answers, self.people, self.versions = [None] * asked, [""] * asked, [0] * asked
            self.order, self.errors, self.state = [], [], "open"
            for number, text in enumerate(lines[1:], 2):  # noqa: B007 (named in the message below)
                self._take(parse_json(text))
        except InputError:
            raise
        except Exception as error:  # any error caused by an invalid line
            reason = f"damaged: {type(error).__name__}: {error}"
            raise InputError(reason, path=str(self.path), line=number) from None


class _End(msgspec.Struct):
    """The line that ends a round."""

    state: Literal["closed", "abandoned"]
    errors: list[dict[str, Any]]


def draw_round(
    store: Store,
    *,
    labels: Sequence[str] | None = None,
    random: int = DEFAULT_RANDOM,
    present: int | None = None,
    at_least: int = DEFAULT_AT_LEAST,
    seed: int = DEFAULT_SEED,
) -> Round:
    """Draws the next round and writes its file. Cells that a person has seen are never drawn.

    Args:
        store: Annotation run.
        labels: Labels to draw from, or None for all labels.
        random: Number of random pairs per label; see :func:`draws.draw_pairs`.
        present: Number of pairs drawn from all present cells; see :func:`draws.draw_pairs`.
        at_least: Minimum number of present pairs per label; see :func:`draws.draw_pairs`.
        seed: Seed of the draw. Different rounds draw different pairs even if the seed is the same.

    Raises:
        ScapoError: If the last round is still open, if a label is unknown, or if no cell is left to draw.
        InputError: If the file cannot be written.
    """
    earlier = _closed_rounds(store)
    wanted = dict.fromkeys(labels if labels is not None else store.labels)
    if unknown := [label for label in wanted if label not in store.columns]:
        place = (
            f"one of {', '.join(store.labels)}"
            if store.claims
            else f"in the run's vocabulary '{store.vocabulary.name}'"
        )
        raise ScapoError(f"unknown label '{unknown[0]}': not {place}")
    label_ids = [k for k, label in enumerate(store.labels) if label in wanted]
    matrix = judged_matrix(store)
    eligible = (matrix != UNKNOWN) & ~seen_cells(store, earlier)
    drawn = draw_pairs(
        matrix, eligible, label_ids, random=random, present=present, at_least=at_least, seed=seed,
        round_number=len(earlier) + 1,
    )  # fmt: skip
    if not len(drawn.rows):
        some = (matrix[:, label_ids] != UNKNOWN).any()
        why = "people have checked every judged cell of these labels" if some else "no cell of these labels is judged"
        raise ScapoError(f"nothing to draw: {why}")
    draw = Draw(
        number=len(earlier) + 1,
        seed=seed,
        labels=tuple(label_ids),
        full=len(label_ids) == len(store.labels),
        matrix=matrix,
        eligible=eligible,
        pairs=drawn,
    )
    return _write(store, draw)


def ask_undecided(store: Store) -> Round:
    """Writes a round that asks about every cell without a verdict. A round about undecided cells yields no bounds.

    Raises:
        ScapoError: If the last round is still open, or if every cell has a verdict.
        InputError: If the file cannot be written.
    """
    earlier = _closed_rounds(store)
    cells = store.open_cells()
    if not len(cells):
        raise ScapoError("every cell has a verdict")
    cells = cells[np.argsort(cells[:, 1], kind="stable")]
    nothing = np.zeros(len(cells), dtype=np.bool_)
    pairs = Pairs(rows=cells[:, 0], label_ids=cells[:, 1], random=nothing, present=nothing)
    matrix = judged_matrix(store)
    draw = Draw(
        number=len(earlier) + 1,
        seed=0,
        labels=(),
        full=False,
        matrix=matrix,
        eligible=np.zeros(matrix.shape, dtype=np.bool_),
        pairs=pairs,
    )
    return _write(store, draw)


def draw_second(store: Store, *, share: float = DEFAULT_SHARE, seed: int = DEFAULT_SEED) -> Round:
    """Draws the share of the last round's pairs that a second person also answers, and writes it to a file.

    Args:
        store: Annotation run.
        share: Share of the last round's pairs to draw, above 0 and at most 1. At least one pair is drawn.
        seed: Seed of the draw.

    Raises:
        ScapoError: If there is no round of random pairs, if the last round was abandoned, or if a second person is
            already answering a share of it.
        InputError: If the file cannot be written.
    """
    rounds = read_rounds(store)
    last = rounds[-1] if rounds else None
    if last is None or not last.draw.labels or last.state == "abandoned":
        raise ScapoError("the last round has no random pairs for a second person")
    if any(second.number == last.number for second in read_seconds(store)):
        raise ScapoError(f"a second person's share of round {last.number} has already been drawn")
    pairs = last.draw.pairs
    n = len(pairs.rows)
    generator = np.random.default_rng([seed, last.number, 0, 2])
    chosen = np.sort(generator.choice(n, max(1, round(share * n)), replace=False))
    kept = Pairs(pairs.rows[chosen], pairs.label_ids[chosen], pairs.random[chosen], pairs.present[chosen])
    return _write(store, replace(last.draw, seed=seed, pairs=kept, second=True))


def check_person(store: Store, round_: Round, by: str) -> None:
    """Rejects a person as the second person of a round if this person already answered pairs of the round as the first
    person.

    Raises:
        ScapoError: If both people have the same name.
    """
    if round_.draw.second and by in read_rounds(store)[round_.number - 1].people:
        raise ScapoError(
            f"'{by}' answered round {round_.number} as the first person; the second person must be different (--by)"
        )


def _closed_rounds(store: Store) -> list[Round]:
    """Returns all rounds.

    Raises:
        ScapoError: If the last round is still open.
    """
    earlier = read_rounds(store)
    if earlier and earlier[-1].state == "open":
        left = len(earlier[-1].open_pairs)
        reason = f"round {earlier[-1].number} is still open ({left:,} pairs without an answer)"
        raise ScapoError(f"{reason}: answer it (annotate qc serve), or abandon it (annotate qc close --abandon)")
    return earlier


def _write(store: Store, draw: Draw) -> Round:
    head = {
        "format": FORMAT,
        "run": _matrix_hash(store),
        "round": draw.number,
        "time": now(),
        "seed": draw.seed,
        "labels": list(draw.labels),
        "rows": draw.pairs.rows.tolist(),
        "label_ids": draw.pairs.label_ids.tolist(),
        "random": draw.pairs.random.astype(int).tolist(),
        "present": draw.pairs.present.astype(int).tolist(),
        "matrix": _packed(draw.matrix),
        "eligible": _packed(np.packbits(draw.eligible)),
        **({"second": True} if draw.second else {}),
    }
    folder = store.folder / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{'second' if draw.second else 'round'}-{draw.number:03d}.jsonl"
    with atomic_write(path) as stream:
        stream.write(dump_json(head) + b"\n")
    return Round(path, store)


def read_rounds(store: Store) -> list[Round]:
    """Returns all rounds of a run in order.

    Raises:
        InputError: If the file of a round is damaged or missing.
    """
    rounds = [Round(path, store) for path in sorted((store.folder / FOLDER).glob("round-*.jsonl"))]
    for number, round_ in enumerate(rounds, 1):
        if round_.number != number:
            raise InputError(
                f"round {number} not found: this file is round {round_.number}", path=str(round_.path), line=1
            )
    return rounds


def read_seconds(store: Store) -> list[Round]:
    """Returns, for each round in order, the share that was drawn for a second person.

    Raises:
        InputError: If a file is damaged.
    """
    return [Round(path, store) for path in sorted((store.folder / FOLDER).glob("second-*.jsonl"))]


def open_round(store: Store, *, write: bool = False, second: bool = False) -> Round:
    """Returns the open round, or the open share of pairs that a second person answers.

    Raises:
        ScapoError: If no round is open.
        InputError: If another process has opened the round for writing.
    """
    rounds = read_seconds(store) if second else read_rounds(store)
    if second and (not rounds or rounds[-1].state != "open"):
        draw = f"annotate qc draw {shlex.quote(str(store.folder))} --second 0.1"
        raise ScapoError(f"no pairs for a second person are open; draw some: {draw}")
    if not rounds or rounds[-1].state != "open":
        what = f"round {len(rounds)} is {rounds[-1].state}" if rounds else "no round has been drawn"
        raise ScapoError(f"{what}; draw one: scapo-eval annotate qc draw {shlex.quote(str(store.folder))}")
    return Round(rounds[-1].path, store, write=True) if write else rounds[-1]


def close_round(store: Store, round_: Round, *, abandon: bool = False) -> list[dict[str, Any]]:
    """Ends a round. The verdicts of people are stored in the run, and the errors of the judge are returned.

    The verdicts of a second person are not stored in any cell.

    Args:
        store: Run that is open for writing.
        round_: Round that is open for writing.
        abandon: True to end the round although some pairs have no answer. The answers of an abandoned round are kept,
            but the round yields no bounds.

    Returns:
        One record for each cell on which the person and the judge differ: image_id, label, the verdicts of judge and
        person (1 present, 0 absent), the person's name, and the provenance of the judge's verdict (kind, prompt,
        judge).

    Raises:
        ScapoError: If some pairs have no answer.
    """
    if round_.open_pairs and not abandon:
        raise ScapoError(f"round {round_.number}: {len(round_.open_pairs):,} pairs have no answer yet")
    draw = round_.draw
    errors: list[dict[str, Any]] = []
    if draw.second:
        round_.end("abandoned" if round_.open_pairs else "closed", errors)
        return errors
    for pair, answer in enumerate(round_.answers):
        if answer in VERDICTS and draw.judged[pair] not in (UNKNOWN, VERDICTS[answer]):
            row, label = int(draw.pairs.rows[pair]), int(draw.pairs.label_ids[pair])
            provenance = _judge_of(store, row, label)
            errors.append(
                {
                    "pair": pair,
                    **store.name_of(row, label),
                    "judged": int(draw.judged[pair]),
                    "person": VERDICTS[answer],
                    "by": round_.people[pair],
                    "kind": provenance.kind if provenance else "",
                    "prompt": provenance.prompt if provenance else "",
                    "judge": provenance.judge if provenance else "",
                }
            )
    for person in dict.fromkeys(round_.people):
        theirs = [k for k, answer in enumerate(round_.answers) if answer in VERDICTS and round_.people[k] == person]
        verdicts = [VERDICTS[str(round_.answers[k])] for k in theirs]
        provenance = CellProvenance(kind="human", prompt="", judge=person, round=round_.number)
        store.write(draw.pairs.rows[theirs], draw.pairs.label_ids[theirs], verdicts, provenance)
    round_.end("abandoned" if abandon and round_.open_pairs else "closed", errors)
    return errors


def judged_matrix(store: Store) -> NDArray[np.int8]:
    """Returns the (images, labels) matrix of the current verdicts. The cells of excluded images are unknown."""
    matrix: NDArray[np.int8] = np.where(store.included[:, None], store.matrix, np.int8(UNKNOWN))
    return matrix


def people_cells(store: Store) -> NDArray[np.bool_]:
    """Returns an (images, labels) mask of the cells whose verdict comes from a person."""
    human = np.array([*(provenance.kind == "human" for provenance in store.provenances), False])
    return np.asarray(human[store.provenance_ids])


def seen_cells(store: Store, rounds: Iterable[Round]) -> NDArray[np.bool_]:
    """Returns an (images, labels) mask of the cells that a person has seen, including cells with the
    answer "unsure".
    """
    seen = people_cells(store)
    for round_ in rounds:
        seen_pairs = [k for k, answer in enumerate(round_.answers) if answer is not None and answer != "missing"]
        seen[round_.draw.pairs.rows[seen_pairs], round_.draw.pairs.label_ids[seen_pairs]] = True
    return seen


def _judge_of(store: Store, row: int, label: int) -> CellProvenance | None:
    """Returns the provenance of the judge's latest verdict on a cell.

    If closing the round was interrupted, the current verdict may already be the one that the person gave.
    """
    current = store.provenance_of(row, label)
    if current is None or current.kind != "human":
        return current
    return next(
        (provenance for _, provenance in reversed(store.history(row, label)) if provenance.kind != "human"), None
    )


def _matrix_hash(store: Store) -> str:
    """Returns a hash of the image ids and labels that the rows and columns represent."""
    return digest([*store.image_ids, "labels", *store.labels, *(word for claim in store.claims for word in claim)])


def _draw_of(head: dict[str, Any], store: Store) -> Draw:
    shape = (len(store.image_ids), len(store.labels))
    cells = shape[0] * shape[1]
    matrix = _unpacked(head["matrix"], cells).view(np.int8).reshape(shape)
    eligible = (
        np.unpackbits(_unpacked(head["eligible"], -(-cells // 8)), count=matrix.size).astype(np.bool_).reshape(shape)
    )
    pairs = Pairs(
        rows=np.asarray(head["rows"], dtype=np.int64),
        label_ids=np.asarray(head["label_ids"], dtype=np.int64),
        random=np.asarray(head["random"], dtype=np.bool_),
        present=np.asarray(head["present"], dtype=np.bool_),
    )
    labels = tuple(head["labels"])
    n, (images, columns) = len(pairs.rows), shape
    if not (
        all(part.shape == (n,) for part in (pairs.rows, pairs.label_ids, pairs.random, pairs.present))
        and ((pairs.rows >= 0) & (pairs.rows < images) & (pairs.label_ids >= 0) & (pairs.label_ids < columns)).all()
        and all(type(label) is int and 0 <= label < columns for label in labels)
        and type(head["round"]) is int
        and type(head["seed"]) is int
        and np.isin(matrix, (-1, 0, 1)).all()
    ):
        raise ValueError("the draw contains cells that are not in the run")
    return Draw(
        number=head["round"],
        seed=head["seed"],
        labels=labels,
        full=len(labels) == shape[1],
        matrix=matrix,
        eligible=eligible,
        pairs=pairs,
        second=head.get("second") is True,
    )


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 6)).decode("ascii")


def _unpacked(text: str, size: int) -> NDArray[np.uint8]:
    """Decompresses data, and checks that the result has exactly ``size`` bytes.

    Raises:
        ValueError: If the size of the decompressed data is not ``size``. Data that is larger than expected is not
            decompressed completely.
    """
    data = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    if len(data) != size:
        raise ValueError("the matrix has the wrong size")
    return np.frombuffer(data, dtype=np.uint8)
