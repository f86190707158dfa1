"""Data of a report: scores, captions with their evidence, and training logs.

This module depends neither on HTML nor on plots. Pages, figures and tables present the same :class:`Report` in
different ways.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import InputError, NoRecords, short_repr
from ..base.ids import canonical_image_id
from ..base.verdicts import Verdict
from ..benchmarks.capscore import CaptionScorer, CaptionScores, cap_score, score_file
from ..benchmarks.density import density_counts, density_metrics
from ..benchmarks.facts import JudgedDescription, claim_rows
from ..benchmarks.labels import LabelCounts, wilson
from ..benchmarks.scoring import ScoredBlock, ScoringOptions
from ..benchmarks.slicing import Slicer
from ..files.files import read_text
from ..files.json_text import iter_records
from ..files.source import Input
from ..matching.matcher import AliasMatcher
from ..matching.vocabulary import Vocabulary, tokenize_alias
from ..results.benchmark import find_benchmark
from ..results.counts import CountBuilder, CountTable
from ..results.linear import covariance
from ..results.results import Resampling, Results, Run
from ..rewarding.reward import RewardColumns, RewardConfig, SubsentenceReward
from ..truths.oracle import PresenceOracle, Truth
from .answers import AnswerEvidence
from .checked import CheckedSystem
from .texts import utf16_offsets

RUN_FILES = METRICS_FILE, SAMPLES_FILE, ALARMS_FILE, SETTINGS_FILE = (
    "metrics.jsonl", "samples.jsonl", "alarms.jsonl", "config.toml",
)  # fmt: skip
"""Files in the folder of a training run that a report reads; see docs/report.md."""

ISO_LEVELS = tuple(k / 20 for k in range(1, 20))
_CHI2_95 = -2 * math.log(0.05)  # 95 % of a bivariate normal distribution are within this squared Mahalanobis distance


@dataclass(frozen=True)
class CaptionEvidence:
    """Captions of one system, with their mentions, verdicts and scores.

    Attributes:
        scores: Scores of the system.
        truth: Ground truth with which the captions were scored.
        image_ids: Image id of each caption.
        texts: Text of each caption.
        lines: Line number of each caption in its file.
        found: Mentions in all captions, as columns.
        uses: (mentions,) use of each mention, as an index into :data:`~scapo_eval.matching.uses.USES`.
        counts: (mentions,) True for mentions that count as claims.
        rewards: Rewards of the captions, as columns.
        slices: Value of each caption in the column that defines slices, or None if the captions are not sliced.
    """

    scores: CaptionScores
    truth: Truth
    image_ids: list[str]
    texts: list[str]
    lines: list[int]
    found: MentionColumns
    uses: NDArray[np.uint8]
    counts: NDArray[np.bool_]
    rewards: RewardColumns
    slices: Sequence[Any] | None = None

    @property
    def name(self) -> str:
        """Name of the system."""
        return self.scores.name

    @cached_property
    def mentions(self) -> MentionColumns:
        """Mentions in the captions that count as claims."""
        return self.found if self.counts.all() else self.found.only(self.counts)

    @cached_property
    def states(self) -> NDArray[np.int8]:
        """(captions, labels) array with the state of every label in each caption's image."""
        return self.truth.states[self.truth.rows(self.image_ids)]

    @cached_property
    def claimed(self) -> NDArray[np.bool_]:
        """(captions, labels) array that is True where a caption claims a label."""
        claimed = np.zeros(self.states.shape, dtype=bool)
        claimed[self.mentions.caption, self.mentions.label_id] = True
        return claimed

    @cached_property
    def labels(self) -> LabelCounts:
        """Numbers of captions that mention or miss each label."""
        mentions = np.bincount(self.mentions.label_id, minlength=self.claimed.shape[1])
        return LabelCounts.of(self.truth.vocabulary.labels, self.claimed, self.states, mentions)

    @cached_property
    def words(self) -> list[list[str]]:
        """Case-folded words of each caption, separated by white space."""
        return [text.casefold().split() for text in self.texts]

    @cached_property
    def hallucinated(self) -> CountTable:
        """Counts per image: the number of captions, and for every label (named by its index) the number of captions
        that hallucinate it.
        """
        wrong = self.claimed & (self.states == 0)
        return self._per_image(tuple(map(str, range(wrong.shape[1]))), wrong)

    @cached_property
    def lengths(self) -> CountTable:
        """Counts per image: the numbers of captions, of words in the captions, and of objects (labels) that the
        captions name.
        """
        words = np.array([len(words) for words in self.words], dtype=np.int64)
        return self._per_image(("words", "objects"), np.stack([words, self.claimed.sum(axis=1)], axis=1))

    def _per_image(self, columns: tuple[str, ...], rows: NDArray[Any]) -> CountTable:
        builder = CountBuilder(("captions", *columns))
        builder.add(self.image_ids, np.hstack([np.ones((len(rows), 1), dtype=np.int64), rows]))
        return builder.table()


@dataclass(frozen=True)
class TrainingAlarm:
    """An alarm about a problem that occurred during training.

    Attributes:
        step: First step at which the problem occurred after a step without the problem.
        name: Name of the alarm.
        metric: Name of the log column for the quantity that triggered the alarm.
        value: Value of the quantity at the step of the alarm.
        threshold: Value at which the alarm is raised.
        setting: Name of the setting that specifies the threshold in the training run.
    """

    step: int
    name: str
    metric: str
    value: float
    threshold: float
    setting: str


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A description with verdicts on its claims or on its listed objects.

    Attributes:
        image: Id of the image.
        rows: List of ``(claim, true, descriptive, reference)``, one for each claim. ``true`` is None if the claim has
            no verdict.
        text: Text of the description, if available.
        unread: True if a verdict could not be read.
        references: Reference claims, each with the answer that states whether the description contains the claim.
    """

    image: str
    rows: Sequence[tuple[str, bool | None, bool, str | None]]
    text: str = ""
    unread: bool = False
    references: Sequence[tuple[str, str]] = ()

    @classmethod
    def of_claims(cls, judged: JudgedDescription) -> JudgedText:
        """Creates a judged description from the evidence that ``judge facts`` wrote."""
        rows = [(row["claim"], row["true"], row["descriptive"], row["reference"]) for row in claim_rows(judged)]
        references = list(zip(judged.references or (), judged.answers or (), strict=False))
        return cls(judged.image or f"line {judged.line}", rows, unread=judged.unread, references=references)

    @classmethod
    def of_objects(cls, image: str, text: str, names: Iterable[tuple[str, bool | None]]) -> JudgedText:
        """Creates a judged description from the evidence that ``judge objhal`` wrote, in which a judge lists the
        objects of a caption.
        """
        return cls(image, [(name, true, True, None) for name, true in names], text)


@dataclass(frozen=True)
class ClaimEvidence:
    """Descriptions by one system, with the verdicts on their claims.

    Attributes:
        name: Name of the system.
        descriptions: Judged descriptions.
    """

    name: str
    descriptions: tuple[JudgedText, ...]

    def worst(self, most: int) -> list[JudgedText]:
        """Returns the descriptions with the most false claims (at most ``most``), in descending order of the number of
        false claims.
        """
        return sorted(self.descriptions, key=lambda judged: -sum(row[1] is False for row in judged.rows))[:most]


@dataclass(frozen=True)
class TrainingLog:
    """Log of a training run.

    Attributes:
        name: Name of the training run.
        columns: Mapping from each quantity to its values at the logged steps, with None for steps at which the quantity
            was not logged. ``step`` is one of the quantities.
        samples: List of ``(step, image id, response)``, sorted by image and step.
        alarms: Alarms that the training run raised, sorted by step.
        settings: Mapping from ``section.key`` to the values in the settings file of the run, as written there.
    """

    name: str
    columns: Mapping[str, list[float | None]]
    samples: list[tuple[int, str, str]]
    alarms: Sequence[TrainingAlarm] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def distinct_names(runs: Sequence[TrainingLog]) -> tuple[TrainingLog, ...]:
    """Returns the training runs with a number after every name that occurs more than once."""
    names = [run.name for run in runs]
    return tuple(
        replace(run, name=f"{run.name}#{names[: k + 1].count(run.name)}") if names.count(run.name) > 1 else run
        for k, run in enumerate(runs)
    )


@dataclass(frozen=True)
class Report:
    """All data that pages, figures and tables display.

    Attributes:
        groups: Results, with one entry per benchmark. The first run of each benchmark is the baseline.
        captions: Systems whose captions are available. The first of these systems is the baseline.
        claims: Systems whose claims were judged, and the verdicts on these claims.
        checked: Systems whose captions were checked against scenes for claims of every kind.
        answers: Systems whose answers to questions are available, with the correct answers or the judge's ratings.
        training_logs: Logs of training runs.
        trails: Prefixes of system names. Systems whose names share a prefix are checkpoints of one training run, listed
            in order.
        vocabulary: Vocabulary for marking mentions in training samples, if known.
        truth: Ground truth for training samples, if it is known.
    """

    groups: tuple[Results, ...] = ()
    captions: tuple[CaptionEvidence, ...] = ()
    claims: tuple[ClaimEvidence, ...] = ()
    checked: tuple[CheckedSystem, ...] = ()
    answers: tuple[AnswerEvidence, ...] = ()
    training_logs: tuple[TrainingLog, ...] = ()
    trails: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None
    truth: Truth | None = None

    def image_ids(self) -> set[str]:
        """Returns the ids of all images that a page may display."""
        asked = {answer.image for system in self.answers for answer in system.answers}
        return {image for run in self.captions for image in run.image_ids} | {image for image in asked if image}


def caption_evidence(
    path: Input,
    vocabulary: Vocabulary,
    oracle: PresenceOracle | None,
    *,
    name: str,
    dagger: Truth | None = None,
    options: ScoringOptions,
    resampling: Resampling | None = None,
    by: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> CaptionEvidence:
    """Scores a caption file and returns the scores with the evidence; see
    :func:`scapo_eval.benchmarks.capscore.score_file`.

    If ``by`` names a column, the evidence includes the counts for each value of the column; see
    :class:`scapo_eval.benchmarks.slicing.Slicer`.
    """
    slicer = None if by is None else Slicer(path, by)
    image_ids: list[str] = []
    texts: list[str] = []
    lines: list[int] = []
    truth: list[Truth] = []

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        truth[:] = scorer.truths[:1]
        image_ids.extend(block.captions.image_ids)
        texts.extend(block.captions.captions)
        lines.extend(block.captions.numbers)
        if slicer is not None:
            slicer.add(block)

    scores = score_file(
        path,
        vocabulary,
        oracle,
        options,
        name=name,
        dagger=dagger,
        resampling=resampling,
        on_block=keep,
        on_progress=on_progress,
    )
    config = RewardConfig(claims=options.claims)
    reward = SubsentenceReward(vocabulary, truth[0].oracle, config, any_fingerprint=options.any_fingerprint)
    mentions, counts = reward.matcher.find_all(texts)
    _, uses = reward.matcher.find_all_uses(texts)
    rewards = reward.batch(image_ids, texts)
    sliced = None
    if slicer is not None:
        scores, sliced = replace(scores, parts=slicer.parts()), slicer.values
    return CaptionEvidence(scores, truth[0], image_ids, texts, lines, mentions, uses, counts, rewards, sliced)


def read_training_log(folder: str | Path) -> TrainingLog:
    """Reads ``metrics.jsonl`` from the folder of a training run, and the samples, alarms and settings if they exist.

    Raises:
        InputError: If the file is not found, ``step`` does not increase, or a value is not a number.
        InputErrors: If records are not JSON objects.
    """
    path = Path(folder) / METRICS_FILE
    if not path.is_file():
        raise InputError(f"not a training run: {METRICS_FILE} not found (see docs/report.md)", path=folder)
    rows: list[Mapping[str, Any]] = []
    names: dict[str, None] = {"step": None}
    for line, record in iter_records(path):
        step = record.get("step")
        if type(step) is not int or abs(step) >= 2**53 or (rows and step <= rows[-1]["step"]):
            raise InputError(
                f"'step' must be a whole number above the line before, found {short_repr(step)}", path=path, line=line
            )
        rows.append(record)
        for key, value in record.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
                raise InputError(f"'{key}' must be a number or null, found {short_repr(value)}", path=path, line=line)
            names[key] = None
    columns = {name: [row.get(name) for row in rows] for name in names}
    folder = Path(folder)
    return TrainingLog(
        folder.resolve().name,
        columns,
        _read_samples(folder / SAMPLES_FILE),
        _read_alarms(folder / ALARMS_FILE),
        _read_settings(folder / SETTINGS_FILE),
    )


def _records_if_any(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the records of a file. If the file does not exist or is empty, as after a resumption at an early step,
    there are none.
    """
    if path.is_file():
        with suppress(NoRecords):
            yield from iter_records(path)


def _read_settings(path: Path) -> dict[str, str]:
    """Returns the settings of a run from the file that scapo_train writes, which contains one setting per line. All
    other lines are ignored.
    """
    settings: dict[str, str] = {}
    if not path.is_file():
        return settings
    section = ""
    for line in read_text(path).splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if key.startswith("[") and key.endswith("]") and not equals:
            section = key.strip("[] ") + "."
        elif equals and not key.startswith("#"):
            settings[section + key] = value
    return settings


def _read_alarms(path: Path) -> list[TrainingAlarm]:
    alarms = []
    for line, record in _records_if_any(path):
        try:
            alarm = TrainingAlarm(**{member.name: record[member.name] for member in fields(TrainingAlarm)})
        except KeyError as error:
            raise InputError(f"missing key {error}", path=path, line=line) from None
        texts, numbers = (alarm.name, alarm.metric, alarm.setting), (alarm.value, alarm.threshold)
        if (
            type(alarm.step) is not int
            or not all(isinstance(text, str) for text in texts)
            or not all(type(number) in (int, float) for number in numbers)
        ):
            reason = "'step' must be a whole number, 'value' and 'threshold' numbers, the rest strings"
            raise InputError(reason, path=path, line=line)
        alarms.append(alarm)
    return sorted(alarms, key=lambda alarm: alarm.step)


def _read_samples(path: Path) -> list[tuple[int, str, str]]:
    samples = []
    for line, record in _records_if_any(path):
        try:
            step, image, response = record["step"], canonical_image_id(record["image_id"]), record["response"]
        except KeyError as error:
            raise InputError(f"missing key {error}", path=path, line=line) from None
        except ValueError as error:
            raise InputError(f"'image_id' {error}", path=path, line=line) from None
        if type(step) is not int or not isinstance(response, str):
            raise InputError("'step' must be a whole number and 'response' a string", path=path, line=line)
        samples.append((step, image, response))
    order = {image: k for k, image in enumerate(dict.fromkeys(image for _, image, _ in samples))}
    return sorted(samples, key=lambda sample: (order[sample[1]], sample[0]))


# Frontier


@dataclass(frozen=True)
class Point:
    """Point that represents a system in the plane of two metrics.

    Attributes:
        name: Name of the system.
        x: Hallucination rate.
        y: Cover Rate.
        score: Caption score that combines the two rates.
        ellipse: (points, 2) outline of the 95 % confidence region. The outline is empty if there are no intervals.
    """

    name: str
    x: float
    y: float
    score: float
    ellipse: NDArray[np.float64]


@dataclass(frozen=True)
class Plane:
    """Plot of systems in the plane that two metrics span, in which the baseline is the first point.

    Attributes:
        metric_set: Name of the benchmark to which the metrics belong.
        x, y: Names of the metrics on the axes.
        title: Title of the plot.
        points: Systems that have a value for both metrics.
        trails: For each training run, the indices of its checkpoints in ``points``, in order.
        arrows: Indices (into ``points``) of the systems to which an arrow from the baseline is drawn.
        note: Note about systems that were scored on different images, or an empty string if all systems were scored on
            the same images.
    """

    metric_set: str
    x: str
    y: str
    title: str
    points: tuple[Point, ...]
    trails: tuple[tuple[int, ...], ...]
    arrows: tuple[int, ...]
    note: str = ""


def planes(report: Report) -> list[Plane]:
    """Returns a frontier plot for every pair of metrics that the report contains."""
    frontiers = []
    for group in report.groups:
        name = group.metric_set.name
        for x, y, title in record.frontiers if (record := find_benchmark(name)) else ():
            if {x, y} <= group.metric_set.formulas.keys():
                points = [p for run in group.runs if (p := _point(run, x, y)) is not None]
                apart = {row["system"] for row in group.comparisons if row["metric"] == x and row["difference"] is None}
                if points:
                    note = shared_images([frozenset(run.table.image_ids) for run in group.runs])
                    frontiers.append(
                        Plane(name, x, y, title, tuple(points), *_ways(points, report.trails, apart), note)
                    )
    return frontiers


def shared_images(images: Sequence[Set[str]]) -> str:
    """Returns the note for a plot of systems that were scored on different images, or an empty string if all systems
    were scored on the same images.
    """
    if all(image == images[0] for image in images):
        return ""
    least = min(len(a & b) for k, a in enumerate(images) for b in images[:k])
    shared = f"only {least:,} image{'' if least == 1 else 's'}" if least else "no image"
    return f"Not all systems were scored on the same images: some share {shared}."


def _ways(
    points: Sequence[Point], prefixes: Sequence[str], apart: Set[str]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Returns the trails and the arrows of a plot. No arrows are drawn to the systems in ``apart``, because they share
    too few images with the baseline.
    """
    trails = [tuple(k for k, p in enumerate(points) if p.name.startswith(prefix)) for prefix in prefixes]
    trails = [trail for trail in trails if len(trail) > 1]
    passed = {k for trail in trails for k in trail[:-1]}  # a training run has only one arrow, to its last checkpoint
    arrows = (k for k in range(1, len(points)) if k not in passed and points[k].name not in apart)
    return tuple(trails), tuple(arrows)


def _point(run: Run, x: str, y: str) -> Point | None:
    values = run.metric_set.score(run.table.total)
    hal, cover = float(values[x]), float(values[y])
    if math.isnan(hal) or math.isnan(cover):
        return None
    spread = covariance(run.table, run.metric_set, (x, y))
    ellipse = (
        confidence_ellipse(spread, (hal, cover)) if run.n_images > 2 and run.resampling.resamples else np.zeros((0, 2))
    )
    return Point(run.name, hal, cover, cap_score(hal, cover), ellipse)


def confidence_ellipse(
    spread: NDArray[np.float64], center: tuple[float, float], points: int = 48
) -> NDArray[np.float64]:
    """Returns the outline of the 95 % region of a bivariate normal distribution.

    Args:
        spread: (2, 2) covariance matrix.
        center: Coordinates of the center of the ellipse.
        points: Number of points in the outline.

    Returns:
        (points, 2) outline.
    """
    (xx, xy), (_, yy) = spread
    a = math.sqrt(max(xx, 0))
    b = xy / a if a else 0.0
    c = math.sqrt(max(yy - b * b, 0))  # the Cholesky factor [[a, 0], [b, c]]
    turn = 2 * np.pi * np.arange(points) / points
    radius = math.sqrt(_CHI2_95)
    outline = [center[0] + radius * a * np.cos(turn), center[1] + radius * (b * np.cos(turn) + c * np.sin(turn))]
    return np.stack(outline, axis=1)


def iso_curve(level: float, points: int = 49) -> list[tuple[float, float]]:
    """Returns the curve of points ``(hal_rate, cover_rate)`` at which :func:`~scapo_eval.cap_score` equals ``level``,
    computed by bisection.
    """
    curve = []
    for hal in np.linspace(0, 1, points).tolist():
        if cap_score(hal, 1.0) < level:
            break
        low, high = 0.0, 1.0
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (middle, high) if cap_score(hal, middle) < level else (low, middle)
        curve.append((hal, high))
    return curve


# Labels


@dataclass(frozen=True, slots=True)
class SurfaceForm:
    """Case-folded word or phrase with which captions name a label.

    Attributes:
        surface: Word or phrase.
        label: Index of the label in the vocabulary.
        mentions: Number of mentions.
        hallucinated: Number of mentions in captions of images that do not contain the label.
        unknown: Number of mentions in captions of images for which the presence of the label is unknown.
        unclaimed: Number of mentions that are not claims (but are negations, guesses, comparisons, etc.).
    """

    surface: str
    label: int
    mentions: int
    hallucinated: int
    unknown: int
    unclaimed: int


def surface_forms(run: CaptionEvidence) -> list[SurfaceForm]:
    """Returns the surface forms in a system's claims, with the most frequent form first."""
    totals: dict[tuple[str, int], list[int]] = {}
    m = run.mentions
    state = run.states[m.caption, m.label_id].tolist()
    columns = (m.caption.tolist(), m.start.tolist(), m.end.tolist(), m.label_id.tolist(), run.uses[run.counts].tolist())
    for caption, start, end, label, use, verdict in zip(*columns, state, strict=True):
        key = (" ".join(run.texts[caption][start:end].casefold().split()), label)
        total = totals.setdefault(key, [0, 0, 0, 0])
        total[0] += 1
        total[1] += verdict == Verdict.HALLUCINATED
        total[2] += verdict == Verdict.UNKNOWN
        total[3] += use != 0
    ordered = sorted(totals, key=lambda key: (-totals[key][0], key))
    return [SurfaceForm(*key, *totals[key]) for key in ordered]


SUSPECT_FROM = 5
"""Minimum number of hallucinated mentions of a suspected surface form."""
SUSPECT_RATIO = 2.0
"""Minimum ratio between the hallucination rate of a suspected surface form and the rate of its label's other forms."""


@dataclass(frozen=True, slots=True)
class SuspectForm:
    """Surface form that, judging by the captions of all systems, is probably matched to a wrong label.

    Attributes:
        surface: Word or phrase.
        label: Index of the label in the vocabulary.
        hallucinated, known: Number of hallucinated mentions, and number of mentions for which the ground truth is
            known.
        others_hallucinated, others_known: The same numbers for the other surface forms of the label.
    """

    surface: str
    label: int
    hallucinated: int
    known: int
    others_hallucinated: int
    others_known: int


def suspect_forms(systems: Sequence[Sequence[SurfaceForm]]) -> list[SuspectForm]:
    """Returns the surface forms that are hallucinated far more often than the other forms of their label, sorted by
    decreasing number of hallucinated mentions.

    A model that recognizes an object may use any name of the object. If only one of the names is often wrong, the
    matcher is probably at fault (a "guest" in a brochure is not a person in the picture). A form is suspected if it has
    at least SUSPECT_FROM hallucinated mentions, if its hallucination rate is at least SUSPECT_RATIO times that of the
    other forms, and if the 95 % intervals (Wilson) of the two rates are disjoint. A label's only surface form is never
    suspected.

    Args:
        systems: Surface forms that each system uses.
    """
    totals: dict[tuple[str, int], list[int]] = {}
    of_label: dict[int, list[int]] = {}
    for form in (form for forms in systems for form in forms):
        for total in (totals.setdefault((form.surface, form.label), [0, 0]), of_label.setdefault(form.label, [0, 0])):
            total[0] += form.hallucinated
            total[1] += form.mentions - form.unknown
    suspects = []
    for (surface, label), (wrong, known) in totals.items():
        others = (of_label[label][0] - wrong, of_label[label][1] - known)
        if wrong < SUSPECT_FROM or not others[1] or wrong / known < SUSPECT_RATIO * others[0] / others[1]:
            continue
        low, high = wilson(wrong, known)[0], wilson(*others)[1]
        if low is not None and high is not None and low > high:
            suspects.append(SuspectForm(surface, label, wrong, known, *others))
    return sorted(suspects, key=lambda form: (-form.hallucinated, form.surface))


# Guards


GUARDS = {
    "words": "words per caption",
    "objects": "objects per caption",
    "repetition": "repeated four-word sequences",
    "repeated_mentions": "repeated mentions of an object",
    "no_claim": "captions without a claim",
    "unknown": "claims without ground truth",
    "identical": "identical captions of different images",
}
"""Guard -> description of its value. ``words`` and ``objects`` are means, and all other guards are shares."""


def guards(run: CaptionEvidence) -> dict[str, float | None]:
    """Returns the values of the guards, which distinguish a real improvement from a gamed score, keyed by their names
    in GUARDS.
    """
    n = len(run.texts)
    claims = int(run.claimed.sum())
    grams = [(len(words) - 3, len(set(zip(words, words[1:], words[2:], words[3:])))) for words in run.words]  # noqa: B905
    total = sum(max(0, k) for k, _ in grams)
    images: dict[str, set[str]] = {}
    for text, image in zip(run.texts, run.image_ids, strict=True):
        images.setdefault(text, set()).add(image)
    return {
        "words": sum(map(len, run.words)) / n,
        "objects": claims / n,
        "repetition": 1 - sum(k for _, k in grams) / total if total else None,
        "repeated_mentions": 1 - claims / len(run.mentions.label_id) if len(run.mentions.label_id) else None,
        "no_claim": float((~run.claimed.any(axis=1)).mean()),
        "unknown": float((run.claimed & (run.states == -1)).sum() / claims) if claims else None,
        "identical": sum(len(images[text]) > 1 for text in run.texts) / n,
    }


# Density (paper, Table 3)


def density(run: CaptionEvidence) -> dict[str, float]:
    """Returns one system's row in Table 3 of the paper: the numbers of objects and subsentences per response.

    Objects are sets of labels (``objects = supported + hallucinated``). A subsentence counts as supported if it claims
    at least one supported label, and as hallucinated if it claims at least one hallucinated label. A subsentence that
    contains both kinds of labels counts toward each kind.
    """
    means = density_metrics().score(density_counts(run.rewards).sum(axis=0))
    return {name: float(mean) for name, mean in means.items() if name != "subsentences_both"}


# Marked texts


def marked(
    texts: Sequence[str],
    states: NDArray[np.int8] | None,
    matcher: AliasMatcher | None,
    rewards: RewardColumns | None = None,
    mentions: MentionColumns | None = None,
    uses: NDArray[np.uint8] | None = None,
    counts: NDArray[np.bool_] | None = None,
) -> dict[str, list[Any]]:
    """Returns texts and the marks in them as flat columns. Offsets are in UTF-16 units, which browsers use.

    Args:
        texts: n texts.
        states: (n, labels) states of the labels in each text's image, or None if there is no ground truth.
        matcher: Matcher that finds mentions and ignore phrases, or None to omit all marks.
        rewards: Rewards of the pieces of the texts, or None to omit the pieces.
        mentions: Mentions in the texts, or None for all mentions that the matcher finds.
        uses: (mentions,) use of each mention, as an index into USES, or None to omit the uses.
        counts: (mentions,) True for mentions that count as claims, or None if all mentions count.

    Returns:
        The column ``text`` contains the texts. The columns of the marks are ``marks`` (number per text), ``gap``
        (distance from the previous mark), ``length``, ``label`` (-1 for an ignore phrase), ``verdict`` (a
        :class:`~scapo_eval.base.verdicts.Verdict`) and ``use``. The columns of the pieces are ``pieces`` (number per
        text), ``piece_length`` and ``reward`` (in thousandths).
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("marks", "gap", "length", "label", "verdict", "use", "pieces", "piece_length", "reward")
    }
    if mentions is None and matcher is not None:
        mentions = matcher.find_batch(texts)
    ignored = _first_words(matcher.vocabulary.ignore) if matcher else None
    for k, text in enumerate(texts):
        at = utf16_offsets(text)
        marks: list[tuple[int, int, int, int, int]] = []
        if matcher is not None and mentions is not None:
            rows = mentions.row(k)
            labels = mentions.label_id[rows].tolist()
            known = [int(Verdict.UNKNOWN)] * len(labels) if states is None else states[k, labels].tolist()
            if counts is not None:
                known = [
                    state if counted else int(Verdict.NOT_COUNTED)
                    for state, counted in zip(known, counts[rows], strict=True)
                ]
            use = [0] * len(labels) if uses is None else uses[rows].tolist()
            spans = (mentions.start[rows].tolist(), mentions.end[rows].tolist())
            marks = list(zip(*spans, labels, known, use, strict=True))
            if ignored is not None and (not text.isascii() or ignored.search(text.lower())):
                marks = sorted(marks + [(a, b, -1, int(Verdict.NOT_COUNTED), 0) for a, b in matcher.find_ignored(text)])
        columns["marks"].append(len(marks))
        before = 0
        for start, end, label, verdict, use_of in marks:
            first, last = (start, end) if at is None else (at[start], at[end])
            columns["gap"].append(first - before)
            columns["length"].append(last - first)
            columns["label"].append(label)
            columns["verdict"].append(verdict)
            columns["use"].append(use_of)
            before = last
        if rewards is not None:
            own = slice(int(rewards.indptr[k]), int(rewards.indptr[k + 1]))
            pieces = zip(rewards.start[own].tolist(), rewards.end[own].tolist(), strict=True)
            columns["pieces"].append(own.stop - own.start)
            columns["piece_length"] += [b - a if at is None else at[b] - at[a] for a, b in pieces]
            columns["reward"] += [round(1000 * value) for value in rewards.reward[own].tolist()]
        else:
            columns["pieces"].append(0)
    return {"text": list(texts), **columns}


def _first_words(phrases: Sequence[str]) -> re.Pattern[str] | None:
    """Returns a pattern that matches every ASCII text that contains one of the phrases. The pattern serves as a fast
    test before the exact match.
    """
    return re.compile("|".join(sorted({re.escape(tokenize_alias(p)[0]) for p in phrases}))) if phrases else None
