"""Contains what every engine offers: the functions of :mod:`.ray` and :mod:`.spark`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from ..base.errors import check_choice
from ..benchmarks.amber import AmberData, Similarity
from ..benchmarks.capscore import CaptionScores
from ..benchmarks.chair import Synonyms
from ..files.records import Given
from ..matching.vocabulary import Vocabulary
from ..results.poisson import Work, resampled_by
from ..results.results import Resampling, Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap, IntervalMethod
from ..truths.oracle import TruthGiven
from .amber import AmberCounter, AmberReading
from .answers import AnswerCounter, AnswerReading
from .batch import Counted, Counter, OnBadFile, ReadingOptions, Result, Skipping, check_columns
from .files import files_of, name_of, parts_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Data = TypeVar("Data")

Paths = Union[str, "os.PathLike[str]", Sequence["str | os.PathLike[str]"]]
"""Files: a path, a pattern, a URI, or several."""


class CountingEngine(ABC, Generic[Data]):
    """An engine that counts records, in a data set of its own or in files that its workers open.

    Of every function: ``name`` of the system is by default the file's, the pattern's folder, or what the records are.
    ``workers`` are the tasks at a time; None: as many as there are processors for. A file that cannot be read is an
    error that names it, or with ``on_bad_file="skip"`` omitted, counted and named. ``interval`` says how intervals are
    made; ``percentile`` ones are drawn here, by the engine's workers from 65,536 images on, as ``resamples``, ``seed``
    and ``bootstrap`` say: by default by the Poisson bootstrap, at any number of images. The results are those of one
    process with the same settings.
    """

    kind: ClassVar[type[Any]]
    """Class of its data sets."""

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
        """Computes Cap. Score, Hal. and Cover Rate and CHAIR of captions.

        The run is that of :func:`scapo_eval.score` over the same captions, whatever the blocks, workers and retries.

        Args:
            captions: a data set with the columns ``image_id`` and ``caption`` (``id`` and ``model`` are read, too); or
                files of any layout that :func:`scapo_eval.score` reads: a path, a pattern (``captions/*.parquet``), a
                URI (``s3://bucket/captions/*.jsonl``), or several. Workers open the files, so every node must see them.
            truth: what is in the images.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: see :class:`CountingEngine`.
            reading: ``vocabulary``, ``dopa``, ``dopa_vocabulary``, ``claims``, ``skip_bad``, ``on_unknown_image``,
                ``any_fingerprint``, ``drop_unfinished``, as for :func:`scapo_eval.score`.

        Raises:
            InputErrors, InputError: for invalid input, with the faults by file and line.
            ScapoError: if the engine gave up (workers killed again and again, the cluster lost).
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
        vocabulary: Vocabulary | str | Path | None = None,
        name: str | None = None,
        workers: int | None = None,
        on_bad_file: OnBadFile = "fail",
        resamples: int = DEFAULT_RESAMPLES,
        seed: int = DEFAULT_SEED,
        bootstrap: Bootstrap | None = "poisson",
        interval: IntervalMethod = "wilson",
        **reading: Unpack[Skipping],
    ) -> Run:
        """Computes CHAIR_s, CHAIR_i, Recall and Len of captions; the run is that of :func:`scapo_eval.chair`.

        Args:
            captions, truth: as for :meth:`score`.
            profile, synonyms, vocabulary: how captions are read, as for :func:`scapo_eval.chair`.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: see :class:`CountingEngine`.
            reading: ``claims``, ``skip_bad``, ``on_unknown_image``, ``any_fingerprint``, ``drop_unfinished``.

        Raises:
            InputErrors, InputError, ScapoError: as for :meth:`score`.
            MissingExtra: if ``opera`` is requested without NLTK (which every worker needs).
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
        """Returns the answers to yes/no questions, of a benchmark or any others.

        The run is that of the benchmark's verb over the same answers. A question that is answered in two files, or
        twice in a data set, is refused: nobody can tell which answer is the first.

        Args:
            answers: a data set with the columns ``id`` and ``response`` (and others of own answers, docs/data.md); or
                files of any layout that the verb reads, as for :meth:`score`. A file is read by one worker.
            benchmark: name of the benchmark whose questions they answer, or ``yesno``.
            questions: question files, or records, as for :func:`scapo_eval.yesno`.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: see :class:`CountingEngine`.
            reading: ``parser``, ``yes``, ``no``, ``model``, as for :func:`scapo_eval.yesno`, and what its verb has
                beside them: ``unparsed``, or HallusionBench's ``text_only``.

        Raises:
            InputErrors, InputError, ScapoError: as for :meth:`score`.
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
        """Computes AMBER's metrics; the run is that of :func:`scapo_eval.amber`.

        Args:
            responses: a data set with the columns ``id`` and ``response``; or files, as for :meth:`answers`.
            data: the checkout of AMBER's repository, or its ``data`` folder, where this runs.
            name, workers, on_bad_file, resamples, seed, bootstrap, interval: see :class:`CountingEngine`.
            similarity, reading: ``mode``, ``parser``, ``skip_bad``, ``drop_unfinished``, as for
                :func:`scapo_eval.amber`.

        Raises:
            InputErrors, InputError, ScapoError: as for :meth:`score`; an item that is answered twice (as for
                :meth:`answers`).
        """
        counter = AmberCounter.of(self._source(responses), data, similarity, **reading)
        drawn = Resampling(resamples, seed, bootstrap=bootstrap, interval=interval)
        return self._run(responses, counter, name, workers, on_bad_file, drawn)

    @abstractmethod
    def columns(self, data: Data) -> list[str]:
        """Returns the names of a data set's columns."""

    @abstractmethod
    def select(self, data: Data, names: Sequence[str]) -> Data:
        """Returns these columns of a data set."""

    @abstractmethod
    def spread(self, parts: Any) -> Data:
        """Spreads files and parts of files as a data set over the engine's processors; see :func:`~.files.parts_of`."""

    @abstractmethod
    def counts(self, data: Data, counter: Counted[Result], of_files: bool, workers: int | None) -> Any:
        """Returns the summed counts of a data set of records, or of parts of files: a pyarrow Table."""

    @abstractmethod
    def resampled(self, parts: list[Work]) -> Iterable[NDArray[np.int64]]:
        """Returns :func:`~scapo_eval.results.poisson.work` of every part, made by the engine's workers."""

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
        run = counter.run(counts, name, on_bad_file=on_bad_file, resampling=resampling)
        if resampling.interval == "percentile" and resampling.resamples:
            with resampled_by(self.resampled):
                run.metrics  # noqa: B018  drawn once, and kept
        return run
