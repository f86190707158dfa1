"""Benchmark records, which define all properties of a benchmark in one place.

The command-line verb, the Python function, the display names and the report section of a benchmark are all derived from
its record. The shipped benchmarks are listed in :data:`SUMMARIES`. Each shipped benchmark has a module
``scapo_eval/benchmarks/NAME`` that defines the record ``BENCHMARK``. Other packages can add benchmarks as entry points
of the group ``scapo.benchmarks``, each of which refers to a record.
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
"""Benchmarks whose verb has a different name. A verb is typed by users, and a benchmark name appears in results
files.
"""

BENCHMARK_OF = {verb: name for name, verb in VERB_OF.items()}

SUMMARIES: Mapping[str, str] = {
    "capscore": "Cap. Score, Hal. and Cover Rate, CHAIR of caption files (the default verb).",
    "claimscore": "Claims of presence, count, attribute, relation and text: Hal. and Cover Rate by kind.",
    "chair": "CHAIR_s, CHAIR_i, Recall and Len; captions are read as in scapo, the standalone script or OPERA.",
    "objhal": "Object HalBench: CHAIR_s, CHAIR_s refined, CHAIR_i, recall; objects listed by a judge, or matched.",
    "amber": "AMBER: CHAIR, Cover, Hal, Cog, Cap. Score; accuracy, precision, recall, F1 per dimension.",
    "phd": "PhD index per mode and task; also writes PhD's prompts.",
    "pope": "POPE: accuracy, precision, recall, F1, yes ratio; overall and per category.",
    "hallusionbench": "HallusionBench: accuracy per question, per figure and per pair of questions.",
    "yesno": "The same metrics for any yes/no questions.",
    "mmhal": "MMHal-Bench score and hallucination rate from a judge's ratings.",
    "faithscore": "FaithScore and Avg. Facts from verified facts.",
    "facts": "Claims in descriptions: precision, recall, F1, DCScore, and CAPEval's C and P, from judges' verdicts.",
    "density": "Annotated objects and rewarded subsentences per response, for vocabularies and rules.",
    "augmented": "Plain against description-augmented answers: accuracy, precision, recall, F1, tests.",
}
"""Name of a shipped benchmark -> one line of help, in the order of the help page. Reading it imports no benchmark."""

GROUP = "scapo.benchmarks"
"""Entry-point group for records from other packages."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Definition of a command-line option for a parameter of a benchmark's ``score`` function.

    The default of the parameter is also the default of the option. An option is required if its parameter has no
    default, and it is a switch if the default is False.

    Attributes:
        help: Description of the option's effect, for the help page.
        flags: Names of the option on the command line. By default, the option is named after the parameter
            (``--like-this``).
        metavar: Placeholder for the value on the help page.
        file: ``read`` if the value is the path of an input file, or ``written`` if it is the path of an output file.
        choices: Allowed values.
        repeated: True if the option can be repeated. The values of a repeated option form a tuple.
        at_least: Minimum value. If a minimum is set, the value must be an integer.

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


@dataclass(frozen=True)
class CommandExample:
    """Example of a command, for its help page and its page in ``docs/cli``.

    Attributes:
        lines: Command lines, which are run in order. The last one is the command that the example shows.
        files: Name -> content of the input files that are not part of the shipped example.
        runs: False if the command needs images, a model, an optional package, or a terminal.
    """

    lines: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    runs: bool = True


@dataclass(frozen=True, kw_only=True)
class OnEngine:
    """Description of the engine function that scores files on a cluster.

    Attributes:
        function: Name of an engine method (:mod:`scapo_eval.distributed.engine`).
        needs: Names of the options that the method requires.
        refuses: Names of the options that the method does not support.
        renamed: Mapping from the names of options to those of the method's parameters, for options whose names differ
            from the parameters' names.
        given: Additional arguments of the method.
        finished: Function that post-processes the runs of all systems.
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
    """Record of one benchmark.

    Attributes:
        name: Unique name, which is also the name of the metric set.
        title: Display name, used as the heading above the metric columns of the benchmark. The default is ``name``.
        summary: One-line help text. The default is the line in :data:`SUMMARIES`.
        help: Help text of the benchmark's command, which describes the command and the FILES that it accepts.
        metric_set: Function that returns the metric set for the columns of a count table. The columns depend on the
            parts of the benchmark that a run covers. ``metric_set`` is None if the runs of the benchmark use the
            metrics of other benchmarks.
        metric_names: Mapping from metrics to display names, for metrics that only this benchmark has.
        name_of: Function that returns the display name of a metric, if the display names can be derived from the names
            of the metrics. The function returns None for unknown metrics.
        meanings: Mapping from each metric to a description of the counted quantity, for the legend of a table. The
            quantity is a share unless the text states otherwise.
        canonical: Mapping from each metric to the id of the same quantity in the registry of Every Eval Ever. A metric
            that is not listed has the id ``scapo.NAME.METRIC``.
        dataset: Source of the published data in the schema of Every Eval Ever, or an empty mapping if users score their
            own data.
        dataset_by_protocol: True if ``dataset`` applies only to runs that follow a protocol.
        headline: Names of the main metrics, for tables of several benchmarks. If this is empty, all metrics are main
            metrics.
        frontiers: ``(x metric, y metric, title)`` for each plot of faithfulness against coverage.
        score: Function that returns one run for each system in the files
            (:class:`~scapo_eval.benchmarks.systems.Systems`). The keyword parameters of the function are the options of
            the command. If the function returns no runs, the command displays no table.
        files: Name used for the files on the help page and for the corresponding parameter in Python.
        takes: Kinds of files that the command accepts (:mod:`scapo_eval.readers.kinds`).
        metavar: Placeholder for the files on the help page. The default is ``FILES...``.
        files_needed: True if at least one file is required. If no file is needed, the options determine what the
            command does.
        listed: Name of the option for question files, if this option accepts several values (``--questions a.json
            b.json``). The shell passes the additional values of this option as FILES.
        options: Options of the command, in the order of the help page.
        declares: Function whose keyword parameters are additional options.
        scoring: True if ``score`` accepts the parameter ``scoring`` (ScoringOptions), which contains the settings for
            captions.
        captions: True if the files contain captions.
        own_files: Function that returns the benchmark's own data files for the given options. No output may overwrite
            these files.
        verb: Name of the benchmark's command.
        several: True if the command accepts several systems and compares them with the first system.
        function: Python function that scores one system, or None to derive it from ``score``.
        example: Example for the docstring of a derived function, in the format of doctest.
        command_example: Example of the command, for its help page, or None.
        engine: Engine function for clusters, or None if the benchmark runs only in one process.
        one_process: Description of the work that runs in one process, for a message.
        advice: Function that returns a remark for the given options, or None. The remark is printed with the results.
        asked: Description of the question files for messages, or an empty string if the benchmark has no questions for
            models.
        recognizes: Function that returns True if an answer without a benchmark name belongs to this benchmark, based on
            its mode or question.
        recognizes_file: Function that returns a description of an answer file for use in messages, or None if the file
            does not belong to this benchmark.
        prompts: Function that receives a question file and its first record and returns ``(line, record)`` for every
            prompt. Each record contains ``id``, ``prompt`` (or ``question``), ``image`` and the fields to copy into the
            answer. The function returns None if the file does not belong to this benchmark.
        augmented: Function that scores plain and description-augmented answers by the same rules (see
            :mod:`scapo_eval.benchmarks.augmented`), or None if the benchmark does not support this comparison.
        view: Function that returns, for each system, a run and its
            :class:`~scapo_eval.benchmarks.answered.AnsweredQuestion` objects, which the report displays side by side.
            The arguments of the function are the systems' files by name, the resampling settings and a callback for
            damaged records. ``view`` is None if the report displays only the values of the benchmark's metrics.
        protocols: Folder that contains the protocols of a benchmark that another package provides.
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
    example: str = ""
    command_example: CommandExample | None = None
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
        return one_line(self, f"{self.name}: {self.title}")  # bound functions include it in their own

    def __post_init__(self) -> None:
        for name, otherwise in (
            ("verb", VERB_OF.get(self.name, self.name)),
            ("title", self.name),
            ("summary", SUMMARIES.get(self.name, "")),
        ):
            object.__setattr__(self, name, getattr(self, name) or otherwise)


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Returns the entry points of benchmarks in other packages, by name. Entry points with the name of a shipped
    benchmark are ignored.
    """
    from importlib.metadata import entry_points

    return {
        entry_point.name: entry_point for entry_point in entry_points(group=GROUP) if entry_point.name not in SUMMARIES
    }


def other_benchmarks() -> list[str]:
    """Returns the names of the benchmarks that other packages add."""
    return sorted(_others())


def benchmark_names() -> list[str]:
    """Returns the names of all benchmarks, shipped benchmarks first."""
    return [*SUMMARIES, *other_benchmarks()]


def has_benchmark(name: str) -> bool:
    """Returns True if a benchmark has the given name."""
    return name in SUMMARIES or name in _others()


@cache
def benchmark(name: str) -> Benchmark:
    """Returns the record of a benchmark.

    Raises:
        InputError: If the benchmark is unknown, or cannot be loaded from its package.
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
    """Returns the record of a benchmark, or None if no benchmark has this name."""
    return benchmark(name) if has_benchmark(name) else None


def benchmarks(names: Iterable[str] | None = None) -> Iterator[Benchmark]:
    """Yields the records of the named benchmarks, or of all benchmarks if the names are None. Records that fail to load
    are omitted with a warning.
    """
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
    """Returns the metric set of a results file.

    Args:
        name: Name of the metric set.
        columns: Names of the counts in the file.

    Raises:
        InputError: If this version does not support the metric set, or expects other columns.
    """
    record = find_benchmark(name)
    if record is None or record.metric_set is None:
        known = ", ".join(other.name for other in benchmarks() if other.metric_set)
        raise InputError(f"this version does not know the metrics of '{name}' (known: {known})")
    metrics = record.metric_set(tuple(columns))
    if metrics.columns != tuple(columns):
        raise InputError(f"the results' counts are not those of '{name}' in this version")
    return metrics
