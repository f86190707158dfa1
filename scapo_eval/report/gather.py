"""Conversion of files and folders to a :class:`~scapo_eval.report.data.Report`. The kind of each input is recognized by
its content.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, cast

from ..base.errors import InputError
from ..benchmarks.capscore import CaptionScores
from ..benchmarks.chair.profiles import Native
from ..benchmarks.facts import facts_run, read_descriptions
from ..benchmarks.objhal import ObjHalScorer, listed_objects, score_objhal
from ..benchmarks.provenance import caption_file
from ..benchmarks.scoring import ScoredBlock, ScoringOptions
from ..claiming.claim import KINDS, ClaimKind
from ..files.containers import Warn, warn_user
from ..files.source import Input, Source
from ..matching.vocabulary import Vocabulary
from ..readers.data_set import DataSet, input_at, naming_files
from ..readers.formats import KnownFile, recognize_file
from ..results.benchmark import find_benchmark
from ..results.comparison import compare
from ..results.results import Resampling, Run, load_results, system_names, unique_names
from ..truths.claim_oracle import presence_in
from ..truths.oracle import PresenceOracle, Truth
from ..truths.scenes import Scenes
from .answers import AnswerEvidence, answers_in, read_answer_evidence
from .checked import CheckedSystem, check_claims
from .data import (
    METRICS_FILE,
    CaptionEvidence,
    ClaimEvidence,
    JudgedText,
    Report,
    caption_evidence,
    distinct_names,
    read_training_log,
)

Progress = Callable[[str, "int | None"], AbstractContextManager[Callable[[int], None]]]
"""Function from ``(description, bytes)`` to a context whose value is called with the number of processed bytes."""

Stage = Callable[[str], AbstractContextManager[None]]
"""Function from the description of a stage to the context in which the stage runs."""


Evidence = CaptionEvidence | ClaimEvidence | CheckedSystem | AnswerEvidence
"""Texts and verdicts of one system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for scoring and naming the inputs of a report.

    Attributes:
        truth: Path of the ground truth for captions and training samples, or None for the captions' own ``objects``.
        vocabulary: Name or path of the vocabulary.
        dopa, dopa_vocabulary: DOPA matrix for the ``*_dagger`` metrics, and its vocabulary.
        scoring: Settings for the scoring of captions.
        trails: Prefixes of the names of systems. Systems whose names share a prefix are checkpoints of one training
            run, listed in order.
        names: Mapping from the original names of systems to their new names.
        scenes: Files that describe more than the presence of objects in the images. With these files, claims of every
            kind are checked.
        kinds: Kinds of claims to check.
        given: Mapping from files and folders to the names that the user assigned to the only system in each of them.
        resampling: Settings for all intervals.
        allow_different: True to accept systems of one benchmark that were scored with different settings.
        by: Name of the record column whose values define slices (or ``length``), or None if captions are not sliced.
    """

    truth: str | None = None
    vocabulary: str = "coco80"
    dopa: str | None = None
    dopa_vocabulary: str = "dopa160"
    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    trails: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    scenes: tuple[str, ...] = ()
    kinds: tuple[ClaimKind, ...] = KINDS
    given: dict[str, str] = field(default_factory=dict)
    resampling: Resampling = field(default_factory=Resampling)
    allow_different: bool = False
    by: str | None = None


def gather(
    inputs: Sequence[Input],
    settings: Settings,
    *,
    progress: Progress,
    stage: Stage = lambda text: nullcontext(),
    warn: Warn = warn_user,
) -> Report:
    """Reads all inputs of a report: training runs, results files, judged claims, judged object lists, answers with
    labels or ratings, and captions.

    Args:
        inputs: Paths. The report lists systems in the order of the inputs, and the first system of each benchmark is
            its baseline.
        settings: Settings for scoring and naming the inputs.
        progress: Callback that displays the progress of reading a caption file.
        stage: Callback that displays the progress of other slow operations.
        warn: Callback for notes about the interpretation of values.

    Raises:
        InputError, InputErrors: If an input cannot be read.
    """
    sources = [input_at(path) for path in inputs]
    with naming_files(sources):
        return _gathered(sources, settings, progress, stage, warn)


def _gathered(sources: Sequence[Source], settings: Settings, progress: Progress, stage: Stage, warn: Warn) -> Report:
    recognized = {source: recognize_file(source) for source in sources}
    folders = [source for source in sources if _is_training_run(source, recognized[source])]
    files = [source for source in sources if source not in folders]
    short = iter(system_names([file.path for file in files if not isinstance(file, DataSet)]))
    usual = [file.system if isinstance(file, DataSet) else next(short) for file in files]
    names = [
        settings.given.get(file.path) or settings.names.get(name, name) for file, name in zip(files, usual, strict=True)
    ]
    known = [recognized[file] for file in files]
    answered = [answers_in(file, layout) if layout else None for file, layout in zip(files, known, strict=True)]
    judging = _Judging(settings)
    found: list[tuple[Run, Evidence | None]] = []
    original: list[str] = []
    for name, own_name, file, layout, benchmark_name in zip(names, usual, files, known, answered, strict=True):
        kind = layout.kind.name if layout else "captions"
        stored = load_results(file) if kind == "results" else []
        if file.path not in settings.given:
            original += [run.name for run in stored] if kind == "results" else [own_name]
        if kind == "results":
            found += ((run, None) for run in _named(stored, settings, file.path))
        elif kind == "claims":
            descriptions = read_descriptions(file, warn=warn)
            texts = ClaimEvidence(name, tuple(map(JudgedText.of_claims, descriptions)))
            found.append((facts_run(name, descriptions, settings.resampling), texts))
        elif kind == "object lists":
            with progress(name, file.size) as advance:
                found.append(judging.listed(file, name, advance))
        elif benchmark_name is None:
            if settings.scenes:
                file.keep()  # captions are read for their objects, and again for their claims
            with progress(name, file.size) as advance:
                captions = judging.evidence(file, name, advance)
            found.append((captions.scores, captions))
            if settings.scenes:
                with progress(f"{name}, claims", file.size) as advance:
                    found.append(judging.checked(file, name, advance))
    for benchmark_name in dict.fromkeys(filter(None, answered)):
        own = [(name, file) for name, file, its in zip(names, files, answered, strict=True) if its == benchmark_name]
        for name, number in Counter(name for name, _ in own).items():
            if number > 1:
                raise InputError(f"system '{name}' appears twice; name one of them: OTHER=FILE")
        found += read_answer_evidence(benchmark_name, dict(own), settings.resampling, warn)
    _check_renaming(settings.names, original)
    runs = unique_names([run for run, _ in found])
    evidence = [_renamed(run, each) for run, (_, each) in zip(runs, found, strict=True)]
    for run in runs:
        for note in run.notes:
            warn(f"{run.name}: {note}")
    for prefix in settings.trails:
        if not any(run.name.startswith(prefix) for run in runs):
            warn(f"no system has the prefix '{prefix}' of --trail")
    with stage("comparing the systems"):
        groups = tuple(
            compare(
                members,
                resampling=settings.resampling,
                allow_different=settings.allow_different or _differ_by_nature(members),
            )
            for members in _by_benchmark(runs)
        )
    judged = bool(folders) or any(isinstance(each, CaptionEvidence) for each in evidence)
    return Report(
        groups=groups,
        captions=tuple(each for each in evidence if isinstance(each, CaptionEvidence)),
        claims=tuple(each for each in evidence if isinstance(each, ClaimEvidence)),
        checked=tuple(each for each in evidence if isinstance(each, CheckedSystem)),
        answers=tuple(each for each in evidence if isinstance(each, AnswerEvidence)),
        training_logs=distinct_names(
            [
                replace(log, name=settings.given.get(folder.path, log.name))
                for folder in folders
                for log in [read_training_log(folder.path)]
            ]
        ),
        trails=settings.trails,
        vocabulary=judging.vocabulary if judged else None,
        truth=judging.truth if judged else None,
    )


def _renamed(run: Run, evidence: Evidence | None) -> Evidence | None:
    """Returns the evidence for a run under the run's name."""
    if isinstance(evidence, CaptionEvidence):
        return replace(evidence, scores=cast(CaptionScores, run))
    return evidence and replace(evidence, name=run.name)


def _named(runs: Sequence[Run], settings: Settings, path: str) -> list[Run]:
    """Returns the runs in a results file under the names that the user assigned."""
    name = settings.given.get(path)
    if name is None:
        return [replace(run, name=settings.names.get(run.name, run.name)) for run in runs]
    if len(runs) > 1:
        raise InputError(f"'{name}' names one system, but the file contains {len(runs)}", path=path)
    return [replace(run, name=name) for run in runs]


def _is_training_run(source: Source, known: KnownFile | None) -> bool:
    """Returns True if an input is the folder of a training run. Raises an error for other folders, unless a file reader
    accepts them.
    """
    if isinstance(source, DataSet) or not os.path.isdir(source):
        return False
    name = known.kind.name if known else ""
    if name not in ("a training run", "claims"):
        is_ = f"it is {name}" if name else f"{METRICS_FILE} not found in it"
        raise InputError(f"not a training run's folder: {is_}{known.kind.advice(source) if known else ''}", path=source)
    return name == "a training run"


@dataclass
class _Judging:
    """Ground truth and vocabulary for captions and training samples, which are loaded on first use."""

    settings: Settings

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.settings.vocabulary)

    @cached_property
    def scenes(self) -> list[Scenes]:
        return [Scenes.load(path, self.vocabulary) for path in self.settings.scenes]

    @cached_property
    def oracle(self) -> PresenceOracle | None:
        if self.settings.truth:
            return PresenceOracle.load(self.settings.truth)
        return presence_in(self.scenes, self.vocabulary) if self.scenes else None

    @cached_property
    def truth(self) -> Truth | None:
        any_fingerprint = self.settings.scoring.any_fingerprint
        return Truth.of(self.oracle, self.vocabulary, any_fingerprint=any_fingerprint) if self.oracle else None

    @cached_property
    def dagger(self) -> Truth | None:
        if not self.settings.dopa:
            return None
        matrix, second = PresenceOracle.load(self.settings.dopa), Vocabulary.load(self.settings.dopa_vocabulary)
        return Truth.of(matrix, second, any_fingerprint=self.settings.scoring.any_fingerprint)

    def evidence(self, file: Source, name: str, on_progress: Callable[[int], None]) -> CaptionEvidence:
        """Returns the evidence for the captions in a file."""
        with caption_file(file):
            return caption_evidence(
                file,
                self.vocabulary,
                self.oracle,
                name=name,
                dagger=self.dagger,
                options=self.settings.scoring,
                resampling=self.settings.resampling,
                by=self.settings.by,
                on_progress=on_progress,
            )

    def checked(self, file: Source, name: str, on_progress: Callable[[int], None]) -> tuple[Run, CheckedSystem]:
        """Returns the claims in a caption file and their scores."""
        assert self.truth is not None
        how: dict[str, Any] = {"name": name, "resampling": self.settings.resampling, "on_progress": on_progress}
        with caption_file(file):
            return check_claims(file, self.truth, self.scenes, self.settings.kinds, self.settings.scoring, **how)

    def listed(self, file: Source, name: str, on_progress: Callable[[int], None]) -> tuple[Run, ClaimEvidence]:
        """Returns the Object HalBench scores, and the objects that a judge listed."""
        if self.oracle is None:
            raise InputError("the objects that a judge listed require a ground truth: use --truth FILE", path=file)
        texts: list[JudgedText] = []

        def keep(scorer: ObjHalScorer, block: ScoredBlock) -> None:
            texts.extend(JudgedText.of_objects(*each) for each in listed_objects(scorer, block))

        run = score_objhal(
            file,
            Native(self.vocabulary, self.settings.scoring.claims),
            self.oracle,
            self.settings.scoring,
            source="judge",
            name=name,
            resampling=self.settings.resampling,
            on_block=keep,
            on_progress=on_progress,
        )
        return run, ClaimEvidence(name, tuple(texts))


def _check_renaming(names: Mapping[str, str], known: Sequence[str]) -> None:
    for old in names:
        if old not in known:
            listed = ", ".join(dict.fromkeys(known))
            raise InputError(f"system '{old}' not found, so it cannot be renamed (there are {listed})")


def _differ_by_nature(runs: Sequence[Run]) -> bool:
    """Returns True if the benchmark itself evaluates one file in several ways, as ``density`` does with several
    annotations.
    """
    record = find_benchmark(runs[0].metric_set.name)
    return record is not None and not record.several


def _by_benchmark(runs: Sequence[Run]) -> list[list[Run]]:
    order = list(dict.fromkeys(run.metric_set.name for run in runs))
    ordered = sorted(runs, key=lambda run: order.index(run.metric_set.name))
    return [list(members) for _, members in groupby(ordered, key=lambda run: run.metric_set.name)]
