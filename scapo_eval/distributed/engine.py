"""Common interface of all engines, which provides the public functions of :mod:`.ray` and :mod:`.spark`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Union

from numpy.typing import NDArray

from ..api import compare
from ..base.errors import InputError, check_choice
from ..benchmarks.amber import AmberData, Similarity
from ..benchmarks.capscore import CaptionScores
from ..benchmarks.chair import Synonyms
from ..benchmarks.scoring import check_workers
from ..files.records import Given
from ..files.source import Input
from ..matching.vocabulary import VocabularyGiven
from ..results.results import Resampling, Results, Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap, IntervalMethod
from ..results.workers import Work, resampled_by
from ..truths.oracle import TruthGiven
from .amber import AmberCounter, AmberReading
from .answers import AnswerCounter, AnswerReading
from .batch import Counted, Counter, OnBadFile, ReadingOptions, Result, Skipping, check_columns
from .files import files_of, name_of, parts_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Data = TypeVar("Data")

Paths = Union[str, "os.PathLike[str]", Sequence["str | os.PathLike[str]"]]
"""Files: a path, a pattern, a URI, or a list of these."""


class CountingEngine(ABC, Generic[Data]):
    """Engine that counts the records in data sets of its own type, or in files that its workers open.

    All functions share the following arguments:

    - ``name``: name of the system. The default is the name of the file, the name of the folder in a pattern, or, for a
      data set, the kind of its records.
    - ``workers``: number of parallel tasks. The default is the number of processors.
    - ``on_bad_file``: treatment of unreadable files. With ``fail``, an unreadable file raises an error that names the
      file. With ``skip``, unreadable files are omitted, and their number and names are stored in the run.
    - ``interval``: method of computing the intervals. With more than 65,536 images, the workers draw the resamples of
      ``percentile`` intervals, and those of :meth:`compare`.
    - ``resamples``, ``seed``, ``bootstrap``: settings of the bootstrap. The default is the Poisson bootstrap,
      regardless of the number of images. The results equal those of a single process with the same settings.
    """

    kind: ClassVar[type[Any]]
    """Class of the engine's data sets."""

    def score(
        self,
        captions: Data | Paths,
        *,
        truth: TruthGiven,
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        interval: IntervalMethod = "wilson",
        **reading: Unpack[ReadingOptions],
    ) -> CaptionScores:
        """Computes ``cap_score``, ``hal_rate``, ``cover_rate`` and the metrics of CHAIR for captions.

        The result equals that of :func:`scapo_eval.score` for the same captions. The result does not depend on the
        division into blocks, the number of workers, or retries.

        Args:
            captions: A data set with the columns ``image_id`` and ``caption`` (and optionally ``id`` and ``model``), or
                files in any layout that :func:`scapo_eval.score` reads. Files are given by a path, a pattern
                (``captions/*.parquet``), a URI (``s3://bucket/captions/*.jsonl``), or a list of these. The workers open
                the files, which must therefore be available on every node.
            truth: Ground truth of the images.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: Arguments described in
                :class:`CountingEngine`.
            reading: Arguments of :func:`scapo_eval.score`: ``vocabulary``, ``dopa``, ``dopa_vocabulary``, ``claims``,
                ``skip_bad``, ``on_unknown_image``, ``any_fingerprint``, ``drop_unfinished``.

        Raises:
            InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
            ScapoError: If the engine fails, for example because workers are killed repeatedly or the cluster is lost.
        """
        counter = Counter.of(self._source(captions), truth, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap, interval=interval)
        return self._run(captions, counter, name, workers, on_bad_file, drawn)

    def chair(
        self,
        captions: Data | Paths,
        *,
        truth: TruthGiven,
        profile: Literal["native", "reference", "opera"] = "native",
        synonyms: Synonyms | str | Path | None = None,
        vocabulary: VocabularyGiven | None = None,
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        interval: IntervalMethod = "wilson",
        **reading: Unpack[Skipping],
    ) -> Run:
        """Computes CHAIR_s, CHAIR_i, Recall and Len of captions. The result equals that of :func:`scapo_eval.chair`.

        Args:
            captions: Captions, given as a data set or as files, as for :meth:`score`.
            truth: Ground truth of the images, as for :meth:`score`.
            profile: Profile used to read captions, as for :func:`scapo_eval.chair`.
            synonyms: Synonyms of the object names, as for :func:`scapo_eval.chair`.
            vocabulary: Labels and their aliases, as for :func:`scapo_eval.chair`.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: Arguments described in
                :class:`CountingEngine`.
            reading: Further arguments of :func:`scapo_eval.chair`: ``claims``, ``skip_bad``, ``on_unknown_image``,
                ``any_fingerprint``, ``drop_unfinished``.

        Raises:
            InputErrors, InputError, ScapoError: Under the same conditions as in :meth:`score`.
            MissingExtra: If the profile ``opera`` is requested and NLTK is not installed. Every worker needs NLTK.
        """
        counter = Counter.of_chair(self._source(captions), truth, profile, synonyms, vocabulary, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap, interval=interval)
        return self._run(captions, counter, name, workers, on_bad_file, drawn)

    def answers(
        self,
        answers: Data | Paths,
        *,
        benchmark: str,
        questions: Given | Sequence[str | os.PathLike[str]],
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        interval: IntervalMethod = "wilson",
        **reading: Unpack[AnswerReading],
    ) -> Run:
        """Scores the answers to the yes/no questions of a benchmark or to custom yes/no questions.

        The result equals that of the benchmark's own command for the same answers. A question with answers in two
        files, or with two answers in a data set, is rejected, because the order of these answers is undefined.

        Args:
            answers: A data set with the columns ``id`` and ``response`` (and optional columns, see docs/data.md), or
                files in any layout that the benchmark's command reads. Files are given as for :meth:`score`. Each file
                is read by one worker.
            benchmark: Name of the benchmark that contains the questions, or ``yesno`` for custom questions.
            questions: Files or records of questions, as for :func:`scapo_eval.yesno`.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: Arguments described in
                :class:`CountingEngine`.
            reading: The arguments ``parser``, ``yes``, ``no`` and ``model`` of :func:`scapo_eval.yesno`, and the option
                of the benchmark (``text_only`` for HallusionBench, ``unparsed`` for all others).

        Raises:
            InputErrors, InputError, ScapoError: Under the same conditions as in :meth:`score`.
        """
        counter = AnswerCounter.of(self._source(answers), benchmark, questions, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap, interval=interval)
        return self._run(answers, counter, name, workers, on_bad_file, drawn)

    def amber(
        self,
        responses: Data | Paths,
        *,
        data: AmberData | str | Path,
        similarity: Similarity | str = "none",
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        interval: IntervalMethod = "wilson",
        **reading: Unpack[AmberReading],
    ) -> Run:
        """Computes AMBER's metrics. The result equals that of :func:`scapo_eval.amber`.

        Args:
            responses: A data set with the columns ``id`` and ``response``, or files, which are given as for
                :meth:`answers`.
            data: Path of AMBER's repository, or of its ``data`` folder, on the calling machine.
            similarity: Words that count as equal to each other, as for :func:`scapo_eval.amber`.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: Arguments described in
                :class:`CountingEngine`.
            reading: Arguments of :func:`scapo_eval.amber`: ``mode``, ``parser``, ``skip_bad``, ``drop_unfinished``.

        Raises:
            InputErrors, InputError, ScapoError: Under the same conditions as in :meth:`score`, or if an item has two
                answers in different files or in a data set.
        """
        counter = AmberCounter.of(self._source(responses), data, similarity, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap, interval=interval)
        return self._run(responses, counter, name, workers, on_bad_file, drawn)

    def compare(self, runs: Iterable[Run | Input], **settings: Any) -> Results:
        """Compares runs like :func:`scapo_eval.compare`. With more than 65,536 images, the workers draw the resamples
        and toss the coins of the permutation test.

        Args:
            runs: Runs, or paths of results files, as for :func:`scapo_eval.compare`.
            settings: The further arguments of :func:`scapo_eval.compare`.

        Raises:
            InputError: Under the same conditions as in :func:`scapo_eval.compare`.
            ScapoError: If the engine fails.
        """
        with resampled_by(self.resampled):
            results = compare(runs, **settings)
            for run in results.runs:
                run.metrics  # noqa: B018  drawn once, and kept
            return results

    def checked_columns(self, data: Data) -> list[str]:
        """Returns the column names of a data set.

        Raises:
            InputError: If the data set is not one of the engine.
        """
        if not isinstance(data, self.kind):
            raise InputError(f"expected a {_class_name(self.kind)}, found a {_class_name(type(data))}")
        return self.columns(data)

    @abstractmethod
    def columns(self, data: Data) -> list[str]:
        """Returns the column names of a data set."""

    @abstractmethod
    def select(self, data: Data, names: Sequence[str]) -> Data:
        """Returns a data set with only the given columns."""

    @abstractmethod
    def spread(self, parts: Any) -> Data:
        """Returns a data set of files and parts of files (see :func:`~.files.parts_of`), distributed over the engine's
        processors.
        """

    @abstractmethod
    def counts(self, data: Data, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Returns, as a pyarrow Table, the summed counts of a data set whose rows are records or parts of files."""

    @abstractmethod
    def resampled(self, parts: list[Work]) -> Iterable[NDArray[Any]]:
        """Yields the result of :func:`~scapo_eval.results.workers.work` for every part, computed by the engine's
        workers.
        """

    def _source(self, records: Data | Paths) -> str:
        if isinstance(records, self.kind):
            return f"<{self.kind.__name__}>"
        paths = [records] if isinstance(records, (str, os.PathLike)) else records
        if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
            raise InputError(f"expected paths or a {_class_name(self.kind)}, found a {_class_name(type(records))}")
        if not paths:
            raise InputError("the list of paths is empty")
        return name_of(paths)

    def _run(
        self,
        records: Any,
        counter: Counted[Result],
        name: str | None,
        workers: int | None,
        on_bad_file: OnBadFile,
        resampling: Resampling,
    ) -> Result:
        check_choice("on_bad_file", on_bad_file, ("fail", "skip"))
        check_workers(workers)
        if of_files := not isinstance(records, self.kind):
            data = self.spread(parts_of(files_of(records), row_groups=counter.row_groups))
        else:
            names = self.columns(records)
            check_columns(names, counter.needed)
            data = self.select(records, [column for column in names if column in counter.read])
        counts = self.counts(data, counter, of_files, workers)
        name = name or (counter.source if of_files else counter.records)
        run = counter.run(counts, name, on_bad_file=on_bad_file, resampling=resampling)
        if resampling.interval == "percentile" and resampling.resamples:
            with resampled_by(self.resampled):
                run.metrics  # noqa: B018  drawn once, and kept
        return run


def _class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")  # pandas and Spark have a DataFrame each
