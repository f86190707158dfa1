"""Common interface of all engines, with the functions of :mod:`.ray` and :mod:`.spark`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Union

from ..base.errors import check_choice
from ..benchmarks.amber import AmberData, Similarity
from ..benchmarks.capscore import CaptionScores
from ..benchmarks.chair import Synonyms
from ..files.records import Given
from ..matching.vocabulary import Vocabulary
from ..results.results import Resampling, Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
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
    """Engine that counts records, in its own data sets or in files that its workers open.

    All functions share some arguments:

    - ``name``: name of the system. The default is the name of the file, the folder of the pattern, or the kind of the
      records.
    - ``workers``: number of parallel tasks. None selects the number of processors.
    - ``on_bad_file``: with ``fail``, an unreadable file raises an error that names it. With ``skip``, it is omitted,
      counted and named.
    - ``resamples``, ``seed``, ``bootstrap``: settings of the intervals. The default is the Poisson bootstrap, for any
      number of images. Results equal those of a single process with the same ``bootstrap``.
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
        **reading: Unpack[ReadingOptions],
    ) -> CaptionScores:
        """Computes Cap. Score, Hal. Rate, Cover Rate and CHAIR of captions.

        The run equals that of :func:`scapo_eval.score` for the same captions, independent of blocks, workers and
        retries.

        Args:
            captions: A data set with the columns ``image_id`` and ``caption`` (and optionally ``id`` and ``model``), or
                files in any layout that :func:`scapo_eval.score` reads: a path, a pattern (``captions/*.parquet``), a
                URI (``s3://bucket/captions/*.jsonl``), or a list of these. Workers open the files, which must therefore
                be available on every node.
            truth: Ground truth of the images.
            name, workers, on_bad_file, resamples, seed, bootstrap: See :class:`CountingEngine`.
            reading: ``vocabulary``, ``dopa``, ``dopa_vocabulary``, ``claims``, ``skip_bad``, ``on_unknown_image``,
                ``any_fingerprint``, ``drop_unfinished``, as for :func:`scapo_eval.score`.

        Raises:
            InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
            ScapoError: If the engine fails (repeatedly killed workers, a lost cluster).
        """
        counter = Counter.of(self._source(captions), truth, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap)
        return self._run(captions, counter, name, workers, on_bad_file, drawn)

    def chair(
        self,
        captions: Data | Paths,
        *,
        truth: TruthGiven,
        profile: Literal["native", "reference", "opera"] = "native",
        synonyms: Synonyms | str | Path | None = None,
        vocabulary: Vocabulary | str | Path | None = None,
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        **reading: Unpack[Skipping],
    ) -> Run:
        """Computes CHAIR_s, CHAIR_i, Recall and Len of captions. The run equals that of :func:`scapo_eval.chair`.

        Args:
            captions, truth: As for :meth:`score`.
            profile, synonyms, vocabulary: Settings for the reading of captions, as for :func:`scapo_eval.chair`.
            name, workers, on_bad_file, resamples, seed, bootstrap: See :class:`CountingEngine`.
            reading: ``claims``, ``skip_bad``, ``on_unknown_image``, ``any_fingerprint``, ``drop_unfinished``.

        Raises:
            InputErrors, InputError, ScapoError: As for :meth:`score`.
            MissingExtra: If ``opera`` is requested without NLTK (which every worker needs).
        """
        counter = Counter.of_chair(self._source(captions), truth, profile, synonyms, vocabulary, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap)
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
        **reading: Unpack[AnswerReading],
    ) -> Run:
        """Scores the answers to yes/no questions of a benchmark or any other questions.

        The run equals that of the benchmark's own command for the same answers. A question with answers in two files,
        or with two answers in a data set, is rejected because their order is undefined.

        Args:
            answers: A data set with the columns ``id`` and ``response`` (and optional columns, see docs/data.md), or
                files in any layout that the command reads, as for :meth:`score`. Each file is read by one worker.
            benchmark: Name of the benchmark of the questions, or ``yesno``.
            questions: Question files, or records, as for :func:`scapo_eval.yesno`.
            name, workers, on_bad_file, resamples, seed, bootstrap: See :class:`CountingEngine`.
            reading: ``parser``, ``yes``, ``no``, ``model``, as for :func:`scapo_eval.yesno`, and options of the
                benchmark: ``unparsed``, or ``text_only`` for HallusionBench.

        Raises:
            InputErrors, InputError, ScapoError: As for :meth:`score`.
        """
        counter = AnswerCounter.of(self._source(answers), benchmark, questions, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap)
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
        **reading: Unpack[AmberReading],
    ) -> Run:
        """Computes AMBER's metrics. The run equals that of :func:`scapo_eval.amber`.

        Args:
            responses: A data set with the columns ``id`` and ``response``, or files, as for :meth:`answers`.
            data: Path of AMBER's repository, or of its ``data`` folder, on the calling machine.
            similarity: Relation of words, as for :func:`scapo_eval.amber`.
            name, workers, on_bad_file, resamples, seed, bootstrap: See :class:`CountingEngine`.
            reading: ``mode``, ``parser``, ``skip_bad``, ``drop_unfinished``, as for :func:`scapo_eval.amber`.

        Raises:
            InputErrors, InputError, ScapoError: As for :meth:`score`, and if an item has two answers (as for
                :meth:`answers`).
        """
        counter = AmberCounter.of(self._source(responses), data, similarity, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap)
        return self._run(responses, counter, name, workers, on_bad_file, drawn)

    @abstractmethod
    def columns(self, data: Data) -> list[str]:
        """Returns the column names of a data set."""

    @abstractmethod
    def select(self, data: Data, names: Sequence[str]) -> Data:
        """Returns a data set with only the given columns."""

    @abstractmethod
    def spread(self, parts: Any) -> Data:
        """Distributes files and parts of files over the engine's processors as a data set; see
        :func:`~.files.parts_of`.
        """

    @abstractmethod
    def counts(self, data: Data, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Returns the summed counts of a data set of records, or of parts of files, as a pyarrow Table."""

    def _source(self, records: Data | Paths) -> str:
        return f"<{self.kind.__name__}>" if isinstance(records, self.kind) else name_of(records)  # type: ignore[arg-type]

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
        if of_files := not isinstance(records, self.kind):
            data = self.spread(parts_of(files_of(records), row_groups=counter.row_groups))
        else:
            names = self.columns(records)
            check_columns(names, counter.needed)
            data = self.select(records, [column for column in names if column in counter.read])
        counts = self.counts(data, counter, of_files, workers)
        name = name or (counter.source if of_files else counter.records)
        return counter.run(counts, name, on_bad_file=on_bad_file, resampling=resampling)
