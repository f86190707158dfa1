"""Conversion of captions in Arrow format to tables of counts in Arrow format, which all engines use.

A :class:`Counter` is sent to every worker once. Each worker converts its input to a table of counts. The tables of all
workers are summed per ``kind`` and ``key``, either by :func:`merged` or by the engine's own group-by. From these sums,
:meth:`Counter.run` computes the same scores that a single process would compute. If a block is read again because its
worker was killed, the result is the same table.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, InputErrors, MissingExtra, NoRecords, ScapoError, cause
from ..base.odd_texts import ODD, OddTexts
from ..base.reprs import fields_in_short
from ..benchmarks.agreement import agreement_of_sums
from ..benchmarks.capscore import CaptionScorer, CaptionScores, scores_of
from ..benchmarks.chair import ChairScorer, Synonyms, chair_of
from ..benchmarks.chair import profile as chair_profile
from ..benchmarks.scoring import (
    SKIP,
    BlockReader,
    OnUnknownImage,
    ScorableBlock,
    Scorer,
    ScoringOptions,
    Sums,
    Tally,
    Work,
    crc,
)
from ..files.account import Account
from ..files.fields import mixed_models
from ..files.json_text import dump_json, parse_json
from ..matching.uses import Reading
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import READ, arrow_blocks, caption_blocks, parquet_blocks
from ..results.counts import CountTable
from ..results.results import Resampling, Run
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from ..truths.references import DEFAULT_VOCABULARY

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("formats", "scoring on an engine (pyarrow)") from None

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "KEY", "KIND", "READ", "Counter", "OnBadFile", "ReadingOptions", "check_columns", "engine_errors", "merged", "pa",
]  # fmt: skip

OnBadFile = Literal["fail", "skip"]
"""Treatment of an unreadable file: an error with its name, or omission, with the number and names of omitted files."""

KIND, KEY, N = "kind", "key", "n"
"""Columns of a table of counts: the kind of a row (``image``, or one of KINDS), its key (in UTF-8), and its count. Rows
of images have additional columns.
"""

KINDS = ("total", "said", *ODD, "label", "model", "prompt", "ids", "prints", "note", "fault", "bad_file", "empty_file")

MERGE_ROWS = 1_000_000
"""Number of count rows that are kept before they are summed."""

TASKS_PER_CPU = 32
"""Number of tasks per processor of a cluster, over which files are distributed. If there are more parts, a task reads
several parts.
"""

WHOLE_FILE = -1
"""Row group that represents a whole file."""


class Skipping(TypedDict, total=False):
    """Settings that determine which captions count, as in :func:`scapo_eval.score`."""

    claims: Reading
    skip_bad: bool
    on_unknown_image: OnUnknownImage
    any_fingerprint: bool
    drop_unfinished: bool


class ReadingOptions(Skipping, total=False):
    """Settings that determine how captions are read and scored, as in :func:`scapo_eval.score`."""

    vocabulary: VocabularyGiven
    dopa: TruthGiven | None
    dopa_vocabulary: VocabularyGiven


Result = TypeVar("Result", bound=Run, covariant=True)

Finish = Callable[[Tally, Any, str, Resampling | None, Sequence[str]], Result]
"""Function that makes a run from the sums, their counter, the name of the system, the settings of intervals, and the
notes of the readers.
"""


@dataclass(frozen=True)
class Counted(ABC, Generic[Result]):
    """Converter from records to tables of counts, and from the sum of these tables to a run.

    A converter can be pickled, and is sent to every worker once.

    Attributes:
        source: Name of the data set or files, for use in messages.
    """

    source: str

    records: ClassVar[str]
    """Kind of the records, as a plural noun."""

    needed: ClassVar[tuple[str, ...]]
    """Required columns of a data set."""

    read: ClassVar[tuple[str, ...]]
    """Columns of a data set to read."""

    row_groups: ClassVar[bool]
    """True if Parquet files may be split."""

    remedy: ClassVar[str] = ""
    """Advice on how to omit faulty records, if possible."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that contain the counts for an image."""
        return ()

    @abstractmethod
    def of_batches(self, batches: Iterable[Any]) -> Any:
        """Returns, as a pyarrow Table, the counts from Arrow record batches or tables. Each batch is read once."""

    @abstractmethod
    def of_parts(self, parts: Any) -> Any:
        """Returns the counts of the records in files and row groups. An unreadable file is represented by one row,
        which contains the error instead of counts.

        Args:
            parts: A pyarrow Table from :func:`~.files.parts_of` with the columns ``path`` and ``row_group`` (WHOLE_FILE
                for a whole file).

        Returns:
            A pyarrow Table.
        """

    @abstractmethod
    def run(self, counts: Any, name: str, *, on_bad_file: OnBadFile = "fail", resampling: Resampling) -> Result:
        """Computes the metrics from the summed counts, with the same result as in a single process.

        Args:
            counts: Sum of the workers' tables, as a pyarrow Table.
            name: Name of the system.
            on_bad_file: Treatment of unreadable files.
            resampling: Resampling settings for the confidence intervals.

        Raises:
            InputErrors: If the input is invalid. The error lists the faults by file and line.
            InputError: If files could not be read, or no records remain to be scored.
        """

    @property
    def schema(self) -> Any:
        """Arrow schema of the tables of counts."""
        counts = [(name, pa.int64()) for name in (N, *self.columns)]
        return pa.schema([(KIND, pa.string()), (KEY, pa.binary()), *counts])

    def table(self, rows: Sequence[tuple[str, bytes, int]]) -> Any:
        """Returns a table of counts with rows that do not refer to images, such as faults and totals."""
        kinds, keys, counts = zip(*rows, strict=True) if rows else ((), (), ())
        zeros = dict.fromkeys(self.columns, np.zeros(len(rows), dtype=np.int64))
        return pa.table({KIND: kinds, KEY: keys, N: counts, **zeros}, schema=self.schema)

    def images(self, table: CountTable) -> Any:
        """Converts a table with one row per image to Arrow."""
        ids = [image.encode("utf-8", "surrogatepass") for image in table.image_ids]
        images = {KIND: ["image"] * len(ids), KEY: ids, N: np.zeros(len(ids), dtype=np.int64)}
        return pa.table({**images, **dict(zip(table.columns, table.rows.T, strict=True))}, schema=self.schema)

    def summed_images(self, counts: Any) -> CountTable:
        """Returns those rows of summed counts that refer to images. Each image has one row."""
        images = _rows_of_kind(counts, "image").sort_by(KEY)  # the order of UTF-8 is that of Python's strings
        rows = np.empty((images.num_rows, len(self.columns)), dtype=np.int64)
        for k, name in enumerate(self.columns):
            rows[:, k] = images.column(name).to_numpy()
        ids = tuple(key.decode("utf-8", "surrogatepass") for key in images.column(KEY).to_pylist())
        return CountTable(self.columns, ids, rows)

    def bad_files(self, counts: Any, on_bad_file: OnBadFile) -> list[InputError]:
        """Returns the errors of the unreadable files that are omitted.

        Raises:
            InputErrors: If a file is unreadable and ``on_bad_file`` is ``fail``, or if records are invalid.
            InputError: If the records are from several models, or no file contains records.
        """
        empty_files = of_kind(counts, "empty_file")
        if empty_files and len(empty_files) == counts.num_rows:
            raise unpacked(min(empty_files))
        bad_files = sorted(map(unpacked, of_kind(counts, "bad_file")), key=str)
        faults = [(unpacked(key), n) for key, n in of_kind(counts, "fault").items()]
        if on_bad_file == "skip":  # the faulty records of a file that is omitted
            omitted = {error.path for error in bad_files}
            faults = [(error, n) for error, n in faults if error.path not in omitted]
        elif unread := [error for error in bad_files if error.path not in {fault.path for fault, _ in faults}]:
            raise InputErrors(unread)
        if faults:
            shown = sorted(faults, key=lambda fault: (fault[0].path or "", fault[0].line or 0))[: InputErrors.SHOWN]
            total = of_kind(counts, "total").get(b"faults", 0) if on_bad_file == "fail" else sum(n for _, n in faults)
            raise InputErrors([error for error, _ in shown], total, sum(n for _, n in shown), self.remedy)
        models = [model.decode("utf-8", "surrogatepass") or None for model in sorted(of_kind(counts, "model"))]
        if len(models) > 1:
            raise mixed_models(self.source, None, models, f"score the {self.records} of each separately")
        return bad_files


@dataclass(frozen=True)
class Counter(Counted[Result]):
    """Converter from captions to tables of counts.

    Attributes:
        scorer: Scorer that counts the labels of captions.
        options: Settings for the treatment of faulty records.
        finish: Function that computes the run from the sums. The function must be defined at module level, because
            functions are pickled by name.
    """

    scorer: Scorer
    options: ScoringOptions
    finish: Finish[Result]

    records = "captions"
    needed = ("image_id", "caption")
    read = READ
    row_groups = True
    remedy = SKIP

    __repr__ = fields_in_short

    @staticmethod
    def of(
        source: str,
        truth: TruthGiven,
        *,
        vocabulary: VocabularyGiven | None = None,
        dopa: TruthGiven | None = None,
        dopa_vocabulary: VocabularyGiven = "dopa160",
        **skipping: Unpack[Skipping],
    ) -> Counter[CaptionScores]:
        """Returns a counter of captions. The arguments are those of :func:`scapo_eval.score`.

        Raises:
            InputError: If the ground truth or the vocabulary cannot be read, or their labels do not match.
        """
        options = ScoringOptions(**skipping)

        def seen(given: TruthGiven, names: VocabularyGiven) -> Truth:
            return Truth.of(PresenceOracle.of(given), Vocabulary.of(names), any_fingerprint=options.any_fingerprint)

        dagger = None if dopa is None else seen(dopa, dopa_vocabulary)
        scorer = CaptionScorer.of(
            seen(truth, DEFAULT_VOCABULARY if vocabulary is None else vocabulary), dagger, options
        )
        return Counter(source, scorer, options, scores_of)

    @staticmethod
    def of_chair(
        source: str,
        truth: TruthGiven,
        profile: str = "native",
        synonyms: Synonyms | str | Path | None = None,
        vocabulary: VocabularyGiven | None = None,
        **skipping: Unpack[Skipping],
    ) -> Counter[Run]:
        """Returns a counter for the metrics of CHAIR. The arguments are those of :func:`scapo_eval.chair`.

        Raises:
            InputError: If an argument of :meth:`of` is invalid, or an option is not supported by the profile.
            MissingExtra: If ``opera`` is requested but NLTK is not installed.
        """
        options = ScoringOptions(**skipping)
        reader = chair_profile(profile, vocabulary=vocabulary, synonyms=synonyms, claims=options.claims, workers=1)
        return Counter(source, ChairScorer.of(reader, PresenceOracle.of(truth), options), options, chair_of)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the count columns; see :class:`Counted`."""
        return self.scorer.columns

    def of_batches(self, batches: Iterable[Any]) -> Any:
        """Returns the counts for record batches or tables that have the columns ``image_id`` and ``caption``, and
        optionally ``id`` and ``model``.

        Messages identify a faulty row by its number in the batch, and the batch by its first image.

        Args:
            batches: Record batches or tables, each of which is read once.

        Returns:
            A pyarrow Table.
        """

        def blocks() -> Iterator[ScorableBlock]:
            for batch in batches:
                known = batch.num_rows and "image_id" in batch.schema.names
                first = f" (a batch that begins with image_id {batch.column('image_id')[0]})" if known else ""
                yield from arrow_blocks(self.source + first, batch)

        return self._counts(self.source, lambda on_error: blocks())

    def of_parts(self, parts: Any) -> Any:
        """Implements ``of_parts`` of :class:`Counted`."""
        tables = (self._of_part(part["path"], part["row_group"]) for part in parts.to_pylist())
        return summed([self.schema.empty_table()], tables)

    def _of_part(self, path: str, group: int) -> Any:
        if group != WHOLE_FILE:
            return self._counts(f"{path} (row group {group})", lambda on_error: parquet_blocks(path, group))
        notes: list[str] = []
        table = self._counts(path, lambda on_error: caption_blocks(path, on_error=on_error, warn=notes.append))
        return pa.concat_tables([table, self.table([("note", note.encode(), 1) for note in notes])])

    def _counts(self, source: str, read: BlockReader) -> Any:
        sums = Sums(self.scorer, self.options, source)
        work = Work(self.scorer, self.options.drop_unfinished, number=crc)
        blocks = iter(read(sums.add_fault))
        while True:
            try:
                block = next(blocks, None)
                outcome = None if block is None else work(block)
            except NoRecords as error:
                return self.table([("empty_file", packed(error), 1)])
            except (InputError, InputErrors) as error:  # no part of a file with an error counts
                return self.table([("bad_file", packed(first_of(error, source)), 1)])
            if outcome is None:
                return self._of_sums(sums)
            sums.add(outcome)

    def _of_sums(self, sums: Sums) -> Any:
        rows = [("total", name.encode(), n) for name, n in sums.totals.items()]
        rows += [("said", name.encode(), n) for name, n in sums.said.items()]
        rows += odd_rows(sums.odd)
        rows += [("prompt", prompt.encode("utf-8", "surrogatepass"), 1) for prompt in sums.prompts]
        labels = self.scorer.truths[0].vocabulary.labels
        mentioned = enumerate([] if sums.mentioned is None else sums.mentioned.tolist())
        rows += [("label", labels[k].encode(), n) for k, n in mentioned if n]
        rows += [("model", model.encode("utf-8", "surrogatepass"), 1) for model in sums.checks.models]
        if note := sums.checks.merged.note:
            rows.append(("note", note.encode("utf-8", "surrogatepass"), 1))
        if len(sums.checks.hashes):
            rows.append(("ids", sums.checks.hashes.tobytes(), 1))
        if sums.prints:
            rows.append(("prints", np.concatenate(sums.prints).tobytes(), 1))
        rows += [("fault", packed(e), n) for e, n in zip(sums.faults.errors, sums.faults.records, strict=True)]
        rows.append(("total", b"faults", sums.faults.total))
        return pa.concat_tables([self.images(sums.counts.table()), self.table(rows)])

    def run(
        self, counts: Any, name: str, *, on_bad_file: OnBadFile = "fail", resampling: Resampling | None = None
    ) -> Result:
        """Implements ``run`` of :class:`Counted`."""
        notes = [note.decode("utf-8", "surrogatepass") for note in of_kind(counts, "note")]
        return self.finish(self._tally(counts, on_bad_file), self.scorer, name, resampling, notes)

    def _tally(self, counts: Any, on_bad_file: OnBadFile) -> Tally:
        totals = {name.decode(): n for name, n in of_kind(counts, "total").items()}
        bad_files = self.bad_files(counts, on_bad_file)
        twice = _twice(of_kind(counts, "ids"))
        if twice:
            reason = f"{twice:,} ids appear twice: a file or a block was given twice, or ids are unique in a file only"
            raise InputError(reason, path=self.source)
        sums = Sums(self.scorer, self.options, self.source)
        images = self.summed_images(counts)
        sums.counts.add_known(images.image_ids, np.arange(len(images.rows)), images.rows)
        sums.totals.update((name, totals.get(name, 0)) for name in sums.totals)
        ids = self.scorer.truths[0].vocabulary.label_ids
        sums.mentioned = np.zeros(len(ids), dtype=np.int64)
        for label, n in of_kind(counts, "label").items():
            sums.mentioned[ids[label.decode()]] = n
        sums.prompts.update(prompt.decode("utf-8", "surrogatepass") for prompt in of_kind(counts, "prompt"))
        return replace(tally := sums.tally(bad_files), account=self._account(counts, sums, tally))

    def _account(self, counts: Any, sums: Sums, tally: Tally) -> Account:
        """Returns the account of all records. The account states neither the number of bytes nor the order of the
        records, because both are unknown.
        """
        sums.said.update((name.decode(), n) for name, n in of_kind(counts, "said").items())
        sums.odd.update(odd_of(counts))
        sums.prints.append(numbers(of_kind(counts, "prints")))
        sums.per_image = tally.table.rows[:, tally.table.columns.index("captions")]
        truth = self.scorer.truths[0]
        fits = isinstance(truth, Truth) and "hallucinated_mentions" in tally.table.columns
        agreement = agreement_of_sums(tally.mentioned, tally.table, truth) if fits else None
        return replace(sums.account(None), agreement=agreement)


def check_columns(names: Sequence[str], needed: Sequence[str]) -> None:
    """Checks that a data set has the required columns.

    Raises:
        InputError: If a column is missing. The error names the column.
    """
    for name in needed:
        if name not in names:
            raise InputError(f"column '{name}' not found (found: {', '.join(names) or 'none'})")


@contextmanager
def engine_errors(engine: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Converts an exception from an engine to a one-line error that states the original cause.

    Raises:
        ScapoError: If the engine raises one of ``errors``.
    """
    try:
        yield
    except errors as error:
        remedy = ""
        if engine == "Spark" and _OTHER_PYTHON.search(str(error)):
            remedy = (
                f"; its workers run another Python: export PYSPARK_PYTHON={sys.executable} before the session starts"
            )
        raise ScapoError(f"{engine} failed: {cause(error)} (see its logs){remedy}") from error


_OTHER_PYTHON = re.compile(
    r"No module named|PYTHON_VERSION_MISMATCH|Python in worker has different version|Cannot run program"
)


def merged(tables: Sequence[Any]) -> Any:
    """Returns the sum of count tables by ``kind`` and ``key``, as a pyarrow Table."""
    table = pa.concat_tables(tables)
    columns = table.schema.names[2:]
    summed = table.group_by([KIND, KEY], use_threads=False).aggregate([(name, "sum") for name in columns])
    return summed.select([KIND, KEY, *(f"{name}_sum" for name in columns)]).rename_columns([KIND, KEY, *columns])


def summed(kept: list[Any], tables: Iterable[Any]) -> Any:
    """Returns the sum of count tables, which are added as they arrive. The sum also includes the tables in the list
    ``kept``.
    """
    rows = 0
    for table in tables:
        kept.append(table)
        rows += table.num_rows
        if rows > MERGE_ROWS:
            kept, rows = [merged(kept)], 0
    return merged(kept)


def _rows_of_kind(counts: Any, kind: str) -> Any:
    import pyarrow.compute as pc

    return counts.filter(pc.equal(counts.column(KIND), kind))


def of_kind(counts: Any, kind: str) -> dict[bytes, int]:
    """Returns the counts of the rows of one kind as a mapping from row key to count."""
    rows = _rows_of_kind(counts, kind)
    return dict(zip(rows.column(KEY).to_pylist(), rows.column(N).to_pylist(), strict=True))


def first_of(error: InputError | InputErrors, source: str) -> InputError:
    """Returns the first fault of a file as a single error that states the file name and the line."""
    first = error if isinstance(error, InputError) else error.errors[0]
    return InputError(first.reason, path=source, line=first.line)


def packed(error: InputError) -> bytes:
    """Returns an error, packed into bytes that are used as the key of a row."""
    return dump_json([error.path, error.line, error.reason])


def unpacked(key: bytes) -> InputError:
    """Returns the error that is packed into the key of a row."""
    path, line, reason = parse_json(key)
    return InputError(reason, path=path, line=line)


def odd_rows(odd: Mapping[str, OddTexts]) -> list[tuple[str, bytes, int]]:
    """Returns the rows for failed texts and texts with markup. The key of a row contains the first text."""
    return [(kind, dump_json([texts.text, texts.image_id]), texts.records) for kind, texts in odd.items()]


def odd_of(counts: Any) -> dict[str, OddTexts]:
    """Returns the odd texts in summed counts. The first text is the first one in alphabetical order, because records on
    a cluster have no order.
    """
    found = {kind: of_kind(counts, kind) for kind in ODD}
    first = {kind: parse_json(min(texts)) for kind, texts in found.items() if texts}
    return {kind: OddTexts(sum(found[kind].values()), text, image_id=image) for kind, (text, image) in first.items()}


def _twice(packed: dict[bytes, int]) -> int:
    """Returns the number of repeated occurrences of ids, either across several tables or in a table that was read
    twice.
    """
    hashes = numbers(packed)
    return len(hashes) - len(np.unique(hashes))


def numbers(packed: dict[bytes, int]) -> NDArray[np.int64]:
    """Returns the integers that are packed into row keys, in arbitrary order."""
    return np.frombuffer(b"".join(key * n for key, n in packed.items()), dtype=np.int64)
