"""Commands of the benchmarks, created from their records: arguments, options, scoring, and output of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from inspect import Parameter
from typing import Any

import click

from ..base.errors import InputError, OptionError
from ..benchmarks.protocol import Protocol, ProtocolFacts, checked_sample
from ..benchmarks.provenance import caption_file
from ..benchmarks.scoring import ScoringOptions
from ..benchmarks.slicing import LENGTH
from ..benchmarks.systems import Advance, Systems, options_of
from ..files.files import refuse_replacing
from ..files.records import Readable
from ..files.source import Input, Source
from ..readers.formats import keys_are_named, recognize
from ..results.benchmark import Benchmark, OnEngine, Option
from ..results.results import Run
from .base import Verb
from .cluster import Cluster, cluster_options, refuse_engine, skipping
from .emit import emit
from .files import INPUT, OUTPUT, sources_given
from .options import Output, complete_kinds, on_bad_record, output_options, scoring_options
from .screen import progress

QUESTIONS_LAYOUT = "questions"


def command_of(record: Benchmark) -> click.Command:
    """Returns the command that scores a benchmark.

    Args:
        record: Benchmark record whose ``score`` function defines the defaults of the options.
    """

    def run(
        output: Output,
        scoring: ScoringOptions | None = None,
        cluster: Cluster | None = None,
        **values: Any,
    ) -> int:
        with ExitStack() as connection:
            return _run(output, scoring, cluster, values, connection)

    def _run(
        output: Output,
        scoring: ScoringOptions | None,
        cluster: Cluster | None,
        values: dict[str, Any],
        connection: ExitStack,
    ) -> int:
        strict = not record.scoring and "strict" not in record.options and values.pop("strict")
        files = values.pop(record.files)
        given = sources_given([files] if isinstance(files, str) else files)
        if output.protocol or (output.by and output.by != LENGTH):
            for _, source in given:
                source.keep()
        try:
            if record.listed and values[record.listed]:
                given, values[record.listed] = _sorted_out(given, values[record.listed])
            samples: Sequence[ProtocolFacts] = ()
            if output.protocol:
                protocol = Protocol.load(output.protocol)
                values = _filled(protocol, values)
                if record.captions and not (cluster and cluster.engine):
                    samples = _samples(protocol, record, given, scoring, output)
            if cluster is not None and cluster.engine and record.engine is not None:
                runs = _on_engine(record.engine, cluster, given, values, scoring, output, connection)
            else:
                runs = _here(record, given, values, scoring, output)
        except OptionError as error:
            raise click.UsageError(str(error)) from None
        if strict:
            _refuse_unusual(runs)
        if not runs:
            return 0
        code = emit(runs, output, allow_different=not record.several, samples=samples)
        if record.advice and (line := record.advice(values)):
            output.note(line)
        return code

    decorated: Any = output_options(run)
    if record.scoring:
        decorated = scoring_options(decorated)
    elif "strict" not in record.options:
        strict = click.option("--strict", is_flag=True, help="Reject files with any warning.")
        decorated = strict(decorated)
    if record.engine is not None:
        decorated = cluster_options(decorated)
    for name, parameter in reversed(options_of(record).items()):
        decorated = _click_option(name, record.options[name], parameter)(decorated)
    argument = click.argument(
        record.files,
        type=INPUT,
        nargs=-1 if record.several else 1,
        required=record.files_needed,
        metavar=record.metavar,
    )
    command: click.Command = click.command(record.verb, cls=Verb, help=record.help or record.summary)(
        argument(decorated)
    )
    refuse_engine(command, record.one_process)
    return command


def _filled(protocol: Protocol, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in missing options with those that the protocol prescribes. A switch that is off counts as a missing
    option.
    """
    switches = {name for name, value in values.items() if value is False}
    filled = protocol.filled({name: None if name in switches else value for name, value in values.items()})
    return {name: bool(value) if name in switches else value for name, value in filled.items()}


def _samples(
    protocol: Protocol,
    record: Benchmark,
    given: Sequence[tuple[str | None, Source]],
    scoring: ScoringOptions | None,
    output: Output,
) -> list[ProtocolFacts]:
    """Returns the properties of all caption files. If a file deviates from the protocol, an error is raised before any
    file is scored.
    """
    omits = scoring is None or scoring.skip_bad or scoring.on_unknown_image == "skip"
    samples = []
    for name, (_, source) in zip(Systems(given).named(), given, strict=True):
        with caption_file(source):
            samples.append(
                checked_sample(protocol, name, record.name, source, omits=omits, off_protocol=output.off_protocol)
            )
    return samples


def _click_option(name: str, option: Option, parameter: Parameter) -> Callable[[Any], Any]:
    if name == "skip_bad":
        return on_bad_record
    default = parameter.default
    required = default is Parameter.empty
    kind: Any = {"read": INPUT, "written": OUTPUT}.get(option.file or "")
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.at_least is not None:
        kind = click.IntRange(option.at_least)
    elif kind is None and not required and default is not None and not option.repeated:
        kind = type(default)
    more: dict[str, Any] = {} if default is False else {"type": kind}
    if not required and not option.repeated:  # a required option must not have a default, not even None
        more |= {"default": default, "show_default": default is not None and default is not False}
    return click.option(
        *(option.flags or ("--" + name.replace("_", "-"),)),
        name,
        required=required,
        is_flag=True if default is False else None,  # False would make the value of the option optional
        multiple=option.repeated,
        metavar=option.metavar,
        shell_complete=complete_kinds if option.metavar == "KIND,..." else None,
        help=option.help,
        **more,
    )


def _sorted_out(
    given: Sequence[tuple[str | None, Source]], questions: Sequence[Input]
) -> tuple[list[tuple[str | None, Source]], tuple[Input, ...]]:
    """Separates answer files from question files, because option parsing treats b.json in ``--questions a.json b.json``
    as an answer file.
    """
    moved = [file for file in given if recognize(file[1]).name == QUESTIONS_LAYOUT]
    rest = [file for file in given if file not in moved]
    if not rest:
        raise OptionError("no answers: every file contains questions")
    return rest, (*questions, *(path for _, path in moved))


def _here(
    record: Benchmark,
    given: Sequence[tuple[str | None, Source]],
    values: Mapping[str, Any],
    scoring: ScoringOptions | None,
    output: Output,
) -> Sequence[Run]:
    """Scores all systems in this process and returns their runs. If requested, the runs are sliced by a column."""
    assert record.score is not None
    if record.own_files is not None:
        written = [values[name] for name, option in record.options.items() if option.file == "written"]
        refuse_replacing([path for path in (output.output, *written) if path], list(record.own_files(values)))

    @contextmanager
    def reading(name: str, source: Readable, total: int | None) -> Iterator[Advance]:
        checked = caption_file(source) if record.captions and isinstance(source, Source) else nullcontext()
        with checked:
            size = source.size if total is None and isinstance(source, Source) else total
            with progress(output, name, size) as advance:
                yield advance

    systems = Systems(list(given), output.resampling, output.warn, reading, output.by)
    more = {"scoring": scoring} if record.scoring else {}
    if not record.scoring:
        systems.count()
    return systems.sliced(systems.accounted(record.score(systems, **values, **more)))


def _on_engine(
    engine: OnEngine,
    cluster: Cluster,
    given: Sequence[tuple[str | None, Source]],
    values: Mapping[str, Any],
    scoring: ScoringOptions | None,
    output: Output,
    connection: ExitStack,
) -> Sequence[Run]:
    """Scores all systems on a cluster and returns their runs. The cluster stays connected until ``connection`` is
    closed.

    Raises:
        OptionError: If an option that the engine requires is missing, or if an option that it does not support is
            given.
    """
    missing = [_flag(name) for name in engine.needs if not values[name]]
    refused = [_flag(name) for name in engine.refuses if values[name]]
    if missing or refused:
        conditions = (("needs", missing), ("takes no", refused))
        unmet = [f"{verb} {', '.join(options)}" for verb, options in conditions if options]
        raise OptionError(f"--engine {' and '.join(unmet)}")
    if keys_are_named():
        raise OptionError("--engine takes no --image-key and --caption-key; convert the files first: scapo-eval import")
    connection.enter_context(cluster.connected(output))
    from ..distributed import ray

    how = {engine.renamed.get(name, name): value for name, value in values.items() if name not in engine.refuses}
    if scoring is not None:
        how |= {"workers": scoring.workers, **skipping(scoring)}
    score = partial(getattr(ray, engine.function), **how, **engine.given)
    runs = engine.finished(cluster.runs([(name, source.path) for name, source in given], output, score))
    if scoring is not None and scoring.strict:
        _refuse_unusual(runs)
    return runs


def _refuse_unusual(runs: Sequence[Run]) -> None:
    """Raises an error if a run has notes about unusual captions (``--strict``).

    Raises:
        InputError: If a run has notes. The message contains the notes of the first such run.
    """
    if noted := next((run for run in runs if run.notes), None):
        raise InputError(f"{'; '.join(noted.notes)} (--strict)", path=noted.name)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
