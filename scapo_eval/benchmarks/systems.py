"""Systems to score, identified by name, with their files or records and the scoring settings."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import Parameter, signature
from textwrap import dedent, indent
from typing import Any, ParamSpec, TypeVar

from ..base.errors import InputError, OptionError, check_choice, short_repr
from ..base.reprs import fields_in_short
from ..files.account import RecordCount
from ..files.containers import Warn, warn_user
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..files.records import Given, Readable, Records, readable
from ..files.source import Source
from ..readers.data_set import DataSet, input_at, naming_files
from ..results.benchmark import VERB_OF, Benchmark, Option
from ..results.results import Resampling, Run, system_names
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .scoring import ScoringOptions
from .slicing import Slicer

Advance = Callable[[int], None]
"""Callback that receives the additional amount of completed work."""

ProgressContext = Callable[[str, Readable, "int | None"], AbstractContextManager[Advance]]
"""Function from the name of a system, its file, and the total amount of work (None for the file's bytes) to a context
for scoring it.
"""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Run)

Write = Callable[[Iterable[Mapping[str, Any]]], None]


def _unseen(name: str, source: Readable, total: int | None) -> AbstractContextManager[Advance]:
    return nullcontext(lambda done: None)


@dataclass(frozen=True)
class Systems:
    """Systems to score. The first system is the baseline with which the others are compared.

    Attributes:
        given: Names of the systems, each with its file or records. A name is None if it is derived from the file.
        resampling: Resampling settings for the confidence intervals.
        warn: Callback for warnings about damaged input that can still be read.
        reading: Context manager that displays the progress while one system is scored.
        by: Name of the record column whose values define slices (or ``length`` for the length of the captions). ``by``
            is None if the captions are not sliced.
        slicers: Slicers of the systems that :meth:`each` has scored, if captions are sliced.
    """

    given: Sequence[tuple[str | None, Readable]]
    resampling: Resampling = field(default_factory=Resampling)
    warn: Warn = warn_user
    reading: ProgressContext = _unseen
    by: str | None = None
    slicers: dict[str, Slicer] = field(default_factory=dict, compare=False)

    __repr__ = fields_in_short

    @classmethod
    def of(cls, given: Given, name: str | None, otherwise: str, resampling: Resampling) -> Systems:
        """Creates a single system from an argument of the Python interface.

        Args:
            given: Path, or records in memory.
            name: Name of the system. The default is the name of the file, or ``otherwise`` for records.
            otherwise: Default name for records in memory.
            resampling: Resampling settings for the confidence intervals.

        Raises:
            InputError: If ``given`` is neither a path nor records.
        """
        readable_input = readable(given)
        if isinstance(readable_input, Records):
            return cls([(name or otherwise, readable_input)], resampling)
        source = input_at(readable_input)
        if (inputs := _inputs.get()) is not None:
            inputs.append(source)
        return cls([(source.system if name is None and isinstance(source, DataSet) else name, source)], resampling)

    def named(self) -> dict[str, Readable]:
        """Returns the systems by name. Systems for which no name is given are named after their files.

        Raises:
            OptionError: If two systems have the same name.
        """
        short = iter(system_names([str(source) for name, source in self.given if name is None]))
        names = [name if name is not None else next(short) for name, _ in self.given]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"system '{name}' appears twice; name one of them: OTHER=FILE")
        return {name: source for name, (_, source) in zip(names, self.given, strict=True)}

    def count(self) -> None:
        """Enables record counting for every file; :meth:`accounted` requires this."""
        for _, source in self.given:
            if isinstance(source, Source):
                source.count()

    def accounted(self, runs: Sequence[R]) -> list[R]:
        """Returns the runs with the accounts of their files. An account is added to each run that has no account and
        belongs to a single file.
        """
        if len(runs) != len(self.given):
            return list(runs)
        return [_accounted(run, source) for run, (_, source) in zip(runs, self.given, strict=True)]

    def alone(self, option: str, path: str | None, what: str) -> None:
        """Raises an error if an evidence file is requested for several systems.

        Args:
            option: Name of the option for the evidence file, used in the message.
            path: Path of the evidence file, or None.
            what: Description of the input of each system, such as "file of responses", for the message.

        Raises:
            OptionError: If there are several systems.
        """
        if path and len(self.given) > 1:
            raise OptionError(f"{option} accepts only one {what}")

    @contextmanager
    def evidence(self, path: str | None) -> Iterator[Write | None]:
        """Provides, within a context, a function that writes evidence records as JSON Lines, or None if there is no
        path.
        """
        if path is None:
            yield None
            return
        with atomic_write(path) as stream:
            yield lambda records: stream.writelines(dump_json(record) + b"\n" for record in records)

    def each(self, score: Callable[..., R], per_caption: str | None = None) -> list[R]:
        """Scores caption files one after another. The evidence can be written only for a single file.

        Args:
            score: Function that returns the run of a file. The function receives the arguments ``name``,
                ``resampling``, ``on_block`` and ``on_progress``.
            per_caption: Path of the file for the evidence.

        Raises:
            OptionError: If evidence is requested for several files.
        """
        self.alone("--per-caption", per_caption, "caption file")
        runs: list[R] = []
        named = self.named()
        with self.evidence(per_caption) as write:
            for name, source in named.items():
                if self.by is not None:
                    self.slicers[name] = Slicer(source, self.by)
                on_block = _keeping(write, self.slicers.get(name))
                with self.reading(name, source, None) as advance:
                    how: dict[str, Any] = {"resampling": self.resampling, "on_block": on_block}
                    runs.append(score(source, name=name, on_progress=advance, **how))
        return runs

    def sliced(self, runs: Sequence[Run]) -> list[Run]:
        """Returns the runs and, if a column defines slices, their counts for each value of this column."""
        return [replace(run, parts=self.slicers[run.name].parts()) if run.name in self.slicers else run for run in runs]


def _keeping(write: Write | None, slicer: Slicer | None) -> Callable[[Any, Any], None] | None:
    """Returns the callback for scored blocks, or None if nothing has to be stored."""
    if write is None and slicer is None:
        return None

    def keep(scorer: Any, block: Any) -> None:
        if slicer is not None:
            slicer.add(block)
        if write is not None:
            write(scorer.records(block))

    return keep


_inputs: ContextVar[list[Source] | None] = ContextVar("_inputs", default=None)


def naming_inputs(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps a function of the Python interface. If the input is a folder or a pattern, error messages of the wrapped
    function name the affected file.
    """

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> T:
        inputs: list[Source] = []
        token = _inputs.set(inputs)
        try:
            with naming_files(inputs):
                return function(*args, **kwargs)
        finally:
            _inputs.reset(token)

    return named


def sources_of(given: Given | Sequence[str | os.PathLike[str]] | None) -> list[Readable]:
    """Converts an argument to a list of sources: one source for a path or records, one source per path for a list, or
    no source for a missing argument.
    """
    if given is None or (isinstance(given, tuple) and not given):
        return []
    if isinstance(given, (list, tuple)) and given and all(isinstance(path, (str, os.PathLike)) for path in given):
        return [readable(path) for path in given]
    return [readable(given)]  # type: ignore[arg-type]  # mypy cannot exclude a sequence of paths


def options_of(record: Benchmark) -> dict[str, Parameter]:
    """Returns those parameters of a benchmark's ``score`` function that are declared as options, in order.

    Raises:
        TypeError: If an option is not a parameter of the function.
    """
    assert record.score is not None
    known = {**signature(record.score).parameters}
    if record.declares is not None:
        known |= signature(record.declares).parameters
    if unknown := [name for name in record.options if name not in known]:
        raise TypeError(f"options of '{record.name}' that its function score does not accept: {', '.join(unknown)}")
    return {name: known[name] for name in record.options}


def function_of(record: Benchmark) -> Callable[..., Any] | None:
    """Returns the Python function that scores one system on a benchmark. The benchmark defines this function itself, or
    the function is derived from the benchmark's options.

    Returns:
        Function that returns a Run, or a list of runs if the benchmark evaluates one file in several ways. The function
        is None for benchmarks that only compare files.
    """
    if record.function is not None:
        return record.function
    score = record.score
    if score is None or record.metric_set is None:
        return None
    keyword, scoring = Parameter.KEYWORD_ONLY, signature(ScoringOptions).parameters if record.scoring else {}
    options = {
        name: parameter for name, parameter in options_of(record).items() if record.options[name].file != "written"
    }
    more = {
        "name": Parameter("name", keyword, default=None, annotation="str | None"),
        "resamples": Parameter("resamples", keyword, default=DEFAULT_RESAMPLES, annotation="int"),
        "seed": Parameter("seed", keyword, default=DEFAULT_SEED, annotation="int"),
        "bootstrap": Parameter("bootstrap", keyword, default=None, annotation="Bootstrap | None"),
    }
    first = Parameter(record.files, Parameter.POSITIONAL_OR_KEYWORD, annotation="Given")
    parameters = [
        parameter.replace(kind=keyword) for parameter in (*options.values(), *scoring.values(), *more.values())
    ]
    shape = signature(score).replace(
        parameters=[first, *parameters], return_annotation="Run" if record.several else "list[Run]"
    )

    @naming_inputs
    def function(*args: Any, **kwargs: Any) -> Any:
        bound = shape.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        for option in options:
            _check_option(option, values[option], record.options[option])
        given, name = values.pop(record.files), values.pop("name")
        resampling = drawn(*(values.pop(key) for key in ("resamples", "seed", "bootstrap")))
        if record.scoring:
            values["scoring"] = ScoringOptions(**{key: values.pop(key) for key in scoring})
        systems = Systems.of(given, name, record.files, resampling)
        if not record.scoring:
            systems.count()
        runs = systems.accounted(score(systems, **values))
        return runs[0] if record.several else runs

    function.__name__ = function.__qualname__ = VERB_OF.get(record.name, record.name)
    function.__signature__ = shape  # type: ignore[attr-defined]
    function.__doc__ = _docstring(record, options)
    return function


def _check_option(name: str, value: object, option: Option) -> None:
    """Raises an InputError if the value of an option is not allowed, as the command line does. None and functions are
    not checked.
    """
    if value is None or callable(value):
        return
    if option.choices and isinstance(value, str):
        check_choice(name, value, option.choices)
    if option.at_least is not None and (
        isinstance(value, bool) or not isinstance(value, int) or value < option.at_least
    ):
        raise InputError(f"{name} must be a whole number of at least {option.at_least}, got {short_repr(value)}")


def _accounted(run: R, source: Readable) -> R:
    counts, size, crc = RecordCount(), 0, None
    if isinstance(source, Records):
        deque(counts.of(source.numbered()), maxlen=0)
    elif isinstance(source, Source) and source.counts is not None:
        counts, size, crc = source.counts, source.taken, source.crc32
    if run.account is not None or not counts.records:
        return run
    return with_account(run, counts, size, crc)


def with_account(run: R, counts: RecordCount, size: int = 0, crc32: str | None = None) -> R:
    """Returns a run with the account of its records (not of its captions), and with a note for each unusual property.

    Args:
        run: Run that was computed from the records.
        counts: Counts of the records.
        size: Size of the file in bytes, or 0 for records in memory or on a cluster.
        crc32: CRC-32 of the file.
    """
    skipped, unknown = (run.other_counts.get(name, 0) for name in ("skipped", "unknown"))
    account = counts.account(size, crc32, skipped, unknown)
    told = "duplicate" in run.other_counts  # already in the benchmark's own notes
    notes = [note for note in counts.notes if not (told and "repeat" in note)]
    return replace(run, account=account, notes=(*run.notes, *notes))


def _docstring(record: Benchmark, options: Iterable[str]) -> str:
    told = [f"    {name}: {record.options[name].help}" for name in options]
    shared = "claims, skip_bad, on_unknown_image, any_fingerprint, any_ids, strict, workers, drop_unfinished"
    scoring = [f"    {shared}: Same as in :func:`scapo_eval.score`."] if record.scoring else []
    lines = [
        record.summary,
        "",
        "Args:",
        f"    {record.files}: Path, or records (a list of mappings, a DataFrame, a Dataset).",
        *told,
        *scoring,
        "    name: Name of the system. The default is the name of the file.",
        "    resamples, seed, bootstrap: Same as in :func:`scapo_eval.score`.",
        "",
        "Raises:",
        "    InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.",
    ]
    if record.example:
        lines += ["", "Example:", indent(dedent(record.example).strip(), "    ")]
    return "\n".join(lines)


def drawn(resamples: int, seed: int, bootstrap: Bootstrap | None) -> Resampling:
    """Returns the resampling settings from the arguments that all Python functions share."""
    return Resampling(resamples, seed, bootstrap=bootstrap)
