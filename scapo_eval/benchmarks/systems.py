"""The systems to be scored: their files or records by name, and what scoring them needs of its surroundings."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from ..base.errors import OptionError
from ..base.reprs import fields_in_short
from ..files.account import RecordCount
from ..files.containers import Warn, warn_user
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..files.records import Given, Readable, Records, readable
from ..files.source import Source
from ..readers.data_set import DataSet, input_at, naming_files
from ..results.benchmark import Benchmark
from ..results.results import Resampling, Run, system_names
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .scoring import ScoringOptions
from .slicing import Slicer

Advance = Callable[[int], None]
"""Takes how much more is done."""

ProgressContext = Callable[[str, Readable, "int | None"], AbstractContextManager[Advance]]
"""Name of a system, its file, and how much there is to do (None: the file's bytes) -> context around scoring it."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Run)

Write = Callable[[Iterable[Mapping[str, Any]]], None]


def _unseen(name: str, source: Readable, total: int | None) -> AbstractContextManager[Advance]:
    return nullcontext(lambda done: None)


@dataclass(frozen=True)
class Systems:
    """The systems to score; the first one is the baseline of the others.

    Attributes:
        given: name of each system, None if its file gives it, and its file or records.
        resampling: how intervals are drawn.
        warn: told of damage that does not prevent reading.
        reading: context around the scoring of one system, which shows how far it is.
        by: column of the captions' records (or their length) by whose values results are sliced; None: by none.
        slicers: of the systems that were scored by :meth:`each`, if there is a column.
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
        """Returns one system, as a Python function is given it.

        Args:
            given: a path, or records in memory.
            name: of the system; None: the file's, or ``otherwise`` for records.
            otherwise: what records are called.
            resampling: of the intervals.

        Raises:
            InputError: if it is neither a path nor records.
        """
        readable_input = readable(given)
        if isinstance(readable_input, Records):
            return cls([(name or otherwise, readable_input)], resampling)
        source = input_at(readable_input)
        if (inputs := _inputs.get()) is not None:
            inputs.append(source)
        return cls([(source.system if name is None and isinstance(source, DataSet) else name, source)], resampling)

    def named(self) -> dict[str, Readable]:
        """Returns the systems by name; without one of its own a system has its file's.

        Raises:
            OptionError: if two systems have one name.
        """
        short = iter(system_names([str(source) for name, source in self.given if name is None]))
        names = [name if name is not None else next(short) for name, _ in self.given]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"system '{name}' appears twice; name one of them: OTHER=FILE")
        return {name: source for name, (_, source) in zip(names, self.given, strict=True)}

    def count(self) -> None:
        """Has the records of every file counted as they are read, for :meth:`accounted`."""
        for _, source in self.given:
            if isinstance(source, Source):
                source.count()

    def accounted(self, runs: Sequence[R]) -> list[R]:
        """Returns the runs with the accounts of their files, where each is of one file and has none yet."""
        if len(runs) != len(self.given):
            return list(runs)
        return [_accounted(run, source) for run, (_, source) in zip(runs, self.given, strict=True)]

    def alone(self, option: str, path: str | None, what: str) -> None:
        """Refuses evidence of several systems in one file.

        Args:
            option: by which it is asked for.
            path: its file, None without.
            what: what one file of a system is.

        Raises:
            OptionError: if there are several systems.
        """
        if path and len(self.given) > 1:
            raise OptionError(f"{option} takes one {what} at a time")

    @contextmanager
    def evidence(self, path: str | None) -> Iterator[Write | None]:
        """Yields what writes records of evidence as JSON Lines, None without a path."""
        if path is None:
            yield None
            return
        with atomic_write(path) as stream:
            yield lambda records: stream.writelines(dump_json(record) + b"\n" for record in records)

    def each(self, score: Callable[..., R], per_caption: str | None = None) -> list[R]:
        """Scores files of captions one after another, and writes the evidence of the only one.

        Args:
            score: makes a run of a file; takes ``name``, ``resampling``, ``on_block`` and ``on_progress``.
            per_caption: file of the evidence.

        Raises:
            OptionError: for evidence of several files.
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
        """Returns the scored systems with their counts by the column's values, if there is a column."""
        return [replace(run, parts=self.slicers[run.name].parts()) if run.name in self.slicers else run for run in runs]


def _keeping(write: Write | None, slicer: Slicer | None) -> Callable[[Any, Any], None] | None:
    """Returns what is done with every scored block; None for nothing."""
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
    """Wraps a function of the Python interface: a fault in a folder or pattern is said to be in one of its files."""

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
    """Returns one source, or each path of a list of paths; none of None, or of a missing option."""
    if given is None or (isinstance(given, tuple) and not given):
        return []
    if isinstance(given, (list, tuple)) and given and all(isinstance(path, (str, os.PathLike)) for path in given):
        return [readable(path) for path in given]
    return [readable(given)]  # type: ignore[arg-type]  # a sequence of paths is told apart by its elements alone


def options_of(record: Benchmark) -> dict[str, Parameter]:
    """Returns the parameters of a benchmark's ``score`` that its options say, in their order.

    Raises:
        TypeError: if an option is not a parameter by name.
    """
    assert record.score is not None
    known = {**signature(record.score).parameters}
    if record.declares is not None:
        known |= signature(record.declares).parameters
    if unknown := [name for name in record.options if name not in known]:
        raise TypeError(f"options of '{record.name}' that its score does not take: {', '.join(unknown)}")
    return {name: known[name] for name in record.options}


def function_of(record: Benchmark) -> Callable[..., Any] | None:
    """Returns a benchmark's function in Python, which scores one system: its own, or one made of its options.

    Returns:
        The function, which returns a Run (a list of them where the benchmark reads one file in several ways); None for
        a benchmark that only sets files side by side.
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
        given, name = values.pop(record.files), values.pop("name")
        resampling = drawn(*(values.pop(key) for key in ("resamples", "seed", "bootstrap")))
        if record.scoring:
            values["scoring"] = ScoringOptions(**{key: values.pop(key) for key in scoring})
        systems = Systems.of(given, name, record.files, resampling)
        if not record.scoring:
            systems.count()
        runs = systems.accounted(score(systems, **values))
        return runs[0] if record.several else runs

    function.__name__ = function.__qualname__ = record.name
    function.__signature__ = shape  # type: ignore[attr-defined]
    function.__doc__ = _docstring(record, options)
    return function


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
    """Returns a run of other records than captions with their account, and a note for whatever is unusual.

    Args:
        run: of the records.
        counts: of them.
        size: bytes of their file; 0 if they were in memory or counted on a cluster.
        crc32: of those bytes.
    """
    skipped, unknown = (run.other_counts.get(name, 0) for name in ("skipped", "unknown"))
    account = counts.account(size, crc32, skipped, unknown)
    told = "duplicate" in run.other_counts  # the benchmark's own notes say so
    notes = [note for note in counts.notes if not (told and "repeat" in note)]
    return replace(run, account=account, notes=(*run.notes, *notes))


def _docstring(record: Benchmark, options: Iterable[str]) -> str:
    told = [f"    {name}: {record.options[name].help[:1].lower()}{record.options[name].help[1:]}" for name in options]
    scoring = ["    claims, skip_bad, on_unknown_image, any_fingerprint, workers, drop_unfinished: see"
               " :func:`scapo_eval.score`."] if record.scoring else []  # fmt: skip
    lines = [
        record.summary,
        "",
        "Args:",
        f"    {record.files}: a path, or records (a list of mappings, a DataFrame, a Dataset).",
        *told,
        *scoring,
        "    name: of the system; by default the file's.",
        "    resamples, seed, bootstrap: see :func:`scapo_eval.score`.",
        "",
        "Raises:",
        "    InputErrors, InputError: faults, by file and line or by row.",
    ]
    return "\n".join(lines)


def drawn(resamples: int, seed: int, bootstrap: Bootstrap | None) -> Resampling:
    """Returns how intervals are made, from the arguments that every Python function has."""
    return Resampling(resamples, seed, bootstrap=bootstrap)
