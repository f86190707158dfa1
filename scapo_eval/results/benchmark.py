"""Defines a benchmark: one record, found by its name, from which everything that several packages need of it is made.

Its verb on the command line, its function in Python, its names for people and its part of the report come from the
record alone. Shipped ones stand in :data:`SUMMARIES`, a module ``scapo_eval/benchmarks/NAME`` with its record
``BENCHMARK`` each; those from other packages are entry points of the group ``scapo.benchmarks``, which name a record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..base.errors import InputError
from ..base.reprs import fields_in_short, one_line
from ..files.fields import Record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from ..base.types import Answer
    from .metric import MetricSet
    from .results import Run

VERB_OF: Mapping[str, str] = {"capscore": "score", "claimscore": "claims"}
"""Benchmarks whose verbs have other names; nobody who types a verb types the name of its results."""

BENCHMARK_OF = {verb: name for name, verb in VERB_OF.items()}

SUMMARIES: Mapping[str, str] = {
    "capscore": "Cap. Score, Hal. and Cover Rate, CHAIR of caption files (the default verb).",
    "claimscore": "Claims of presence, count, attribute, relation and text: Hal. and Cover Rate by kind.",
    "chair": "CHAIR_s, CHAIR_i, Recall and Len as the project, the standalone script or OPERA's reads captions.",
    "objhal": "Object HalBench: CHAIR_s, CHAIR_s refined, CHAIR_i, recall; objects listed by a judge, or matched.",
    "amber": "AMBER: CHAIR, Cover, Hal, Cog, Cap. Score; accuracy, precision, recall, F1 per dimension.",
    "phd": "PhD index per mode and task; also writes PhD's prompts.",
    "pope": "POPE: accuracy, precision, recall, F1, yes ratio; overall and per category.",
    "hallusionbench": "HallusionBench: accuracy per question, per figure and per pair of questions.",
    "yesno": "The same metrics for any yes/no questions.",
    "mmhal": "MMHal-Bench score and hallucination rate from a judge's ratings.",
    "faithscore": "FaithScore and Avg. Facts from verified facts.",
    "facts": "Claims of descriptions: precision, recall, F1, DCScore, CAPEval's C and P from judges' verdicts.",
    "density": "Annotated objects and rewarded subsentences per response, for vocabularies and rules.",
    "augmented": "Plain against description-augmented answers: accuracy, precision, recall, F1, tests.",
}
"""Name of a shipped benchmark -> one line of help, in the order of the help page; read without importing any."""

GROUP = "scapo.benchmarks"
"""Group of the entry points that name records from other packages."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A parameter of a benchmark's ``score`` on the command line; its default is the parameter's own.

    A parameter without a default is required; one whose default is False is a switch.

    Attributes:
        help: what it does, for the help page.
        flags: its names; empty: the parameter's own (``--like_this`` with hyphens).
        metavar: the name of its value on the help page.
        file: whether it is the path of a file that is read or written.
        choices: its values.
        repeated: whether it may be given several times, for a tuple.
        at_least: the smallest number; it is a whole number then.

    Example:
        >>> from scapo_eval import Option
        >>> Option(help="Least length of a caption.", at_least=1).at_least
        1
    """

    help: str
    flags: Sequence[str] = ()
    metavar: str | None = None
    file: Literal["read", "written"] | None = None
    choices: Sequence[str] = ()
    repeated: bool = False
    at_least: int | None = None

    __repr__ = fields_in_short


@dataclass(frozen=True, kw_only=True)
class OnEngine:
    """The functions that count files on a cluster.

    Attributes:
        function: name of the function of an engine (:mod:`scapo_eval.distributed.engine`).
        needs: options without which it cannot.
        refuses: options that it does not take.
        renamed: option -> its name there, where it is another.
        given: further arguments of the function.
        finished: what is done with the runs of all systems.
    """

    function: str
    needs: Sequence[str] = ()
    refuses: Sequence[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    finished: Callable[[list[Run]], list[Run]] = list

    __repr__ = fields_in_short


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: by which it is found; name of its metric set.
        title: its name for people, over the columns of its metrics; empty: the name.
        summary: one line of help; empty: that of :data:`SUMMARIES`.
        help: what its verb's help page says: what it does, and what FILES are.
        metric_set: column names of a table of counts -> its metrics; runs may differ in their parts. None: its runs
            have the metrics of other benchmarks.
        metric_names: metric -> its name for people, if it is not one that benchmarks share.
        name_of: names for people that follow a rule: metric -> name, or None.
        meanings: metric -> what is counted, for the legend of a table; a share unless it says otherwise.
        canonical: metric -> its id in the registry of Every Eval Ever, where it is the same quantity; other metrics are
            ``scapo.NAME.METRIC``.
        dataset: where its data are published, as that schema says it; none: what is scored is of one's own.
        dataset_by_protocol: whether that holds only for runs that follow a protocol.
        headline: the metrics by which it is known, for tables of several benchmarks; none: all of them.
        frontiers: ``(x metric, y metric, title)`` of pictures of faithfulness against coverage.
        score: files of one or several systems (:class:`~scapo_eval.benchmarks.systems.Systems`) -> a run each; its
            keyword parameters are the options. No runs: it has done something else, and nothing is shown.
        files: what the files are called on the help page and in Python, as a parameter.
        takes: kinds of files (:mod:`scapo_eval.readers.kinds`) that they are.
        metavar: how they are given, if it is not as ``FILES...``.
        files_needed: whether there must be some; without, the options say what is done.
        listed: option of question files, of which the shell puts further ones (``--questions a.json b.json``) among
            the FILES.
        options: the options, in the order of the help page.
        declares: a function whose keyword parameters are options, too, where they are not ``score``'s.
        scoring: whether ``score`` takes ``scoring``, how captions are scored (ScoringOptions).
        captions: whether the files hold captions.
        own_files: options -> files of the benchmark's own data, which no output may replace.
        verb: the verb that scores it.
        several: whether the verb takes several systems and compares them with the first.
        function: its function in Python, for one system; None: one is made of ``score``.
        engine: how it is counted on a cluster; None: in one process only.
        one_process: what is counted in one process, for a message.
        advice: options -> a line worth knowing beside the results, or None.
        asked: what its question files are, for messages; empty if it has none to ask a model.
        recognizes: whether an answer that does not name its benchmark belongs here by its mode or question.
        recognizes_file: what a file of answers looks like, for messages; None if it is not of this benchmark.
        prompts: question file and its first record -> ``(line, record)`` for every prompt, the record with ``id``,
            ``prompt`` (or ``question``), ``image`` and what the answer should carry along; None if the file is not
            of this benchmark.
        augmented: how plain and description-augmented answers are scored alike, see
            :mod:`scapo_eval.benchmarks.augmented`; None: not at all.
        view: files of systems by name, resampling, what is called with each damage -> a run of each, and its
            :class:`~scapo_eval.benchmarks.answered.AnsweredQuestion` s, which the report shows side by side; None: only
            their values are shown.
        protocols: folder of the protocols that come with a benchmark from another package.
    """

    name: str
    title: str = ""
    summary: str = ""
    help: str = ""
    metric_set: Callable[[tuple[str, ...]], MetricSet] | None = None
    metric_names: Mapping[str, str] = field(default_factory=dict)
    name_of: Callable[[str], str | None] | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)
    canonical: Mapping[str, str] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    dataset_by_protocol: bool = False
    headline: Sequence[str] = ()
    frontiers: Sequence[tuple[str, str, str]] = ()
    score: Callable[..., Sequence[Run]] | None = None
    files: str = "files"
    takes: Sequence[str] = ()
    metavar: str | None = None
    files_needed: bool = True
    listed: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    declares: Callable[..., Any] | None = None
    scoring: bool = False
    captions: bool = False
    own_files: Callable[[Mapping[str, Any]], Iterable[Path]] | None = None
    verb: str = ""
    several: bool = True
    function: Callable[..., Run] | None = None
    engine: OnEngine | None = None
    one_process: str = "its records are"
    advice: Callable[[Mapping[str, Any]], str | None] | None = None
    asked: str = ""
    recognizes: Callable[[Answer], bool] | None = None
    recognizes_file: Callable[[Sequence[Answer]], str | None] | None = None
    prompts: Callable[[str, Record], Iterable[tuple[int, Record]] | None] | None = None
    augmented: Callable[..., Sequence[Run]] | None = None
    view: Callable[..., Sequence[tuple[Run, Sequence[Any]]]] | None = None
    protocols: str | Path | None = None

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.title}")  # its functions are bound to it, and show it in theirs

    def __post_init__(self) -> None:
        for name, otherwise in (
            ("verb", VERB_OF.get(self.name, self.name)),
            ("title", self.name),
            ("summary", SUMMARIES.get(self.name, "")),
        ):
            object.__setattr__(self, name, getattr(self, name) or otherwise)


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Returns the entry points from other packages, by name; a shipped name cannot be used."""
    from importlib.metadata import entry_points

    return {
        entry_point.name: entry_point for entry_point in entry_points(group=GROUP) if entry_point.name not in SUMMARIES
    }


def other_benchmarks() -> list[str]:
    """Returns the names of the benchmarks from other packages."""
    return sorted(_others())


def benchmark_names() -> list[str]:
    """Returns the shipped benchmarks, then those from other packages."""
    return [*SUMMARIES, *other_benchmarks()]


def has_benchmark(name: str) -> bool:
    """Returns whether there is a benchmark of this name."""
    return name in SUMMARIES or name in _others()


@cache
def benchmark(name: str) -> Benchmark:
    """Returns the record of a benchmark.

    Raises:
        InputError: for unknown benchmark, or one from another package that cannot be loaded.
    """
    if name in SUMMARIES:
        shipped: Benchmark = import_module(f"scapo_eval.benchmarks.{name}").BENCHMARK
        return shipped
    if name not in _others():
        raise InputError(f"unknown benchmark '{name}' (known: {', '.join(benchmark_names())})")
    entry = _others()[name]
    package = entry.dist.name if entry.dist else entry.value
    try:
        record = entry.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"the benchmark '{name}' of the package '{package}' cannot be loaded: {why}") from error
    if not isinstance(record, Benchmark) or record.name != name:
        what = f"a benchmark of the name '{record.name}'" if isinstance(record, Benchmark) else f"{type(record)}"
        raise InputError(f"the entry point '{name}' of the package '{package}' is not its record, but {what}")
    return record


def find_benchmark(name: str) -> Benchmark | None:
    """Returns the record of a benchmark, None if there is none of this name."""
    return benchmark(name) if has_benchmark(name) else None


def benchmarks(names: Iterable[str] | None = None) -> Iterator[Benchmark]:
    """Returns the records of these names (None: every one); one that cannot be loaded is warned of and omitted."""
    return filter(None, map(_loadable, benchmark_names() if names is None else names))


@cache
def _loadable(name: str) -> Benchmark | None:
    try:
        return benchmark(name)
    except InputError as error:
        if name in SUMMARIES:
            raise
        warnings.warn(f"{error}; it is omitted", stacklevel=2)
        return None


def metric_set_of(name: str, columns: Sequence[str]) -> MetricSet:
    """Returns the metric set that a results file was made with.

    Args:
        name: its name.
        columns: of the file's counts.

    Raises:
        InputError: if this version does not know it, or its columns are others.
    """
    record = find_benchmark(name)
    if record is None or record.metric_set is None:
        known = ", ".join(other.name for other in benchmarks() if other.metric_set)
        raise InputError(f"this version does not know the metrics of '{name}' (known: {known})")
    metrics = record.metric_set(tuple(columns))
    if metrics.columns != tuple(columns):
        raise InputError(f"the results' counts are not those of '{name}' in this version")
    return metrics
