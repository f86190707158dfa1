"""From files and folders to a :class:`~scapo_eval.report.data.Report`: every input is recognized by content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from ..base.errors import InputError
from ..benchmarks.facts import facts_run, holds_claims, read_descriptions
from ..benchmarks.scoring import ScoringOptions
from ..files.containers import Warn, warn_user
from ..files.files import STDIN, input_size
from ..matching.vocabulary import Vocabulary
from ..results.benchmark import find_benchmark
from ..results.comparison import compare
from ..results.results import Resampling, Run, is_results_file, load_results, system_names, unique_names
from ..truths.oracle import PresenceOracle, Truth
from .answers import answers_in, read_answer_evidence
from .data import METRICS_FILE, ClaimEvidence, Report, TrainingLog, caption_evidence, read_training_log

Progress = Callable[[str, "int | None"], AbstractContextManager[Callable[[int], None]]]
"""``(what, bytes)`` -> context whose value is called with the bytes that are done."""

Stage = Callable[[str], AbstractContextManager[None]]
"""What is being done -> context in which it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the inputs of a report are judged and named.

    Attributes:
        truth: truth file, to judge captions and training samples by; None: captions' own ``objects``.
        vocabulary: name or file.
        dopa, dopa_vocabulary: a DOPA matrix for the ``*_dagger`` metrics, and its vocabulary.
        scoring: how captions are scored.
        trails: beginnings of system names; systems that share one are checkpoints of one training run, in order.
        names: old -> new name of a system.
        resampling: of every interval.
        allow_different: whether systems of one benchmark may have been scored differently.
    """

    truth: str | None = None
    vocabulary: str = "coco80"
    dopa: str | None = None
    dopa_vocabulary: str = "dopa160"
    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    trails: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    resampling: Resampling = field(default_factory=Resampling)
    allow_different: bool = False


def gather(
    inputs: Sequence[str],
    settings: Settings,
    *,
    progress: Progress,
    stage: Stage = lambda text: nullcontext(),
    warn: Warn = warn_user,
) -> Report:
    """Reads every input: a training run's folder, a results file, verdicts on claims, answers with labels or ratings,
    or captions.

    Args:
        inputs: paths; systems come in the order given, the first of each benchmark is its baseline.
        settings: how they are judged and named.
        progress: shows how far a caption file has been read.
        stage: says what takes its time besides.
        warn: told what a reader of the values must know.

    Raises:
        InputError, InputErrors: as the readers do.
    """
    folders = [path for path in inputs if path != STDIN and Path(path).is_dir()]
    files = [path for path in inputs if path not in folders]
    saved = {path for path in files if path != STDIN and is_results_file(path)}
    judged = {path for path in files if path not in saved and holds_claims(path)}
    answered = {path: name for path in files if path not in saved | judged and (name := answers_in(path))}
    for path in folders:
        if not (Path(path) / METRICS_FILE).is_file():
            raise InputError(f"not a training run's folder: {METRICS_FILE} not found in it", path=path)
    captions_at_hand = len(saved) + len(judged) + len(answered) < len(files)
    labels = Vocabulary.load(settings.vocabulary) if captions_at_hand or folders else None
    oracle = PresenceOracle.load(settings.truth) if settings.truth and labels else None
    any_fingerprint = settings.scoring.any_fingerprint
    dagger = None
    if settings.dopa and captions_at_hand:
        matrix, second = PresenceOracle.load(settings.dopa), Vocabulary.load(settings.dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=any_fingerprint)
    runs: list[Run] = []
    captions = []
    claims = []
    names = dict(zip(files, system_names(files), strict=True)) if files else {}
    for path in files:
        if path in saved:
            runs += [replace(run, name=settings.names.get(run.name, run.name)) for run in load_results(path)]
            continue
        if path in judged:
            name = settings.names.get(names[path], names[path])
            claims.append(ClaimEvidence(name, tuple(read_descriptions(path, warn=warn))))
            runs.append(facts_run(name, claims[-1].descriptions, settings.resampling))
            continue
        if path in answered:
            continue
        assert labels is not None
        with progress(names[path], input_size(path)) as advance:
            evidence = caption_evidence(
                path,
                labels,
                oracle,
                name=settings.names.get(names[path], names[path]),
                dagger=dagger,
                options=settings.scoring,
                resampling=settings.resampling,
                on_progress=advance,
            )
        captions.append(evidence)
        runs.append(evidence.scores)
    answers = []
    for benchmark_name in dict.fromkeys(answered.values()):
        own = {
            settings.names.get(names[path], names[path]): path for path in files if answered.get(path) == benchmark_name
        }
        for run, each in read_answer_evidence(benchmark_name, own, settings.resampling, warn):
            runs.append(run)
            answers.append(each)
    for old, new in settings.names.items():
        if new not in (run.name for run in runs):
            known = ", ".join(run.name for run in runs)
            raise InputError(f"system '{old}' not found, so it cannot be renamed (there are {known})")
    for run in runs:
        for note in run.notes:
            warn(f"{run.name}: {note}")
    truth = Truth.of(oracle, labels, any_fingerprint=any_fingerprint) if oracle and labels else None
    with stage(f"comparing {len(runs)} runs"):
        groups = tuple(
            compare(
                unique_names(members),
                resampling=settings.resampling,
                allow_different=settings.allow_different or _differ_by_nature(members),
            )
            for members in _by_benchmark(runs)
        )
    return Report(
        groups=groups,
        captions=tuple(captions),
        claims=tuple(claims),
        answers=tuple(answers),
        training_logs=_distinct_names([read_training_log(path) for path in folders]),
        trails=settings.trails,
        vocabulary=labels,
        truth=truth,
    )


def _differ_by_nature(runs: Sequence[Run]) -> bool:
    """Whether the benchmark sets readings of one file side by side, as density does with annotations."""
    record = find_benchmark(runs[0].metric_set.name)
    return record is not None and not record.several


def _by_benchmark(runs: Sequence[Run]) -> list[list[Run]]:
    order = list(dict.fromkeys(run.metric_set.name for run in runs))
    ordered = sorted(runs, key=lambda run: order.index(run.metric_set.name))
    return [list(members) for _, members in groupby(ordered, key=lambda run: run.metric_set.name)]


def _distinct_names(runs: Sequence[TrainingLog]) -> tuple[TrainingLog, ...]:
    names = [run.name for run in runs]
    return tuple(
        replace(run, name=f"{run.name}#{names[: k + 1].count(run.name)}") if names.count(run.name) > 1 else run
        for k, run in enumerate(runs)
    )
