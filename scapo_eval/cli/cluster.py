"""``--engine``: computes the counts for a scoring command on a cluster, one system after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import click

from ..base.installed import install_command
from ..benchmarks.scoring import ScoringOptions
from ..results.results import Run, unique_names
from .options import Command, Output, with_options

if TYPE_CHECKING:
    from ..distributed.batch import Skipping


_ON_BAD_FILE = "--on-bad-file"
ENGINE_OPTIONS = ("--engine", "--address", _ON_BAD_FILE)
"""Options of the commands that count on a cluster."""


class _EngineName(click.Choice[str]):
    """Choice of the engine, whose message for Spark names the functions in Python."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name of the engine."""
        if value.lower() in ("spark", "pyspark"):
            reason = "Spark is used from Python, with scapo_eval.distributed.spark (docs/scale.md#score-on-spark)"
            self.fail(f"{reason}: {install_command('spark')}", param, ctx)
        return super().convert(value, param, ctx)


def refuse_engine(command: click.Command, counted: str) -> None:
    """Adds hidden options such as ``--engine`` to a command that supports no engine. If one of these options is given,
    the error message states the reason.

    Args:
        command: Command to which the options are added.
        counted: Description of the work that runs in one process, ending in "is" or "are".
    """

    def refuse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
        if values and not ctx.resilient_parsing:
            reason = f"{counted} counted in one process (docs/scale.md#what-runs-on-an-engine)"
            raise click.UsageError(f"{command.name} does not support {', '.join(ENGINE_OPTIONS)}: {reason}", ctx)

    if not any(option.name == "engine" for option in command.params):
        command.params.append(
            click.Option([*ENGINE_OPTIONS], multiple=True, hidden=True, expose_value=False, callback=refuse)
        )


@dataclass(frozen=True)
class Cluster:
    """Cluster or process in which the counts are computed.

    Attributes:
        engine: Name of the cluster's engine, or None to compute in this process.
        address: Address of the cluster.
        on_bad_file: Treatment of files that cannot be read.
    """

    engine: Literal["ray"] | None
    address: str | None
    on_bad_file: Literal["fail", "skip"] | None

    def __post_init__(self) -> None:
        given = [flag for flag, value in (("--address", self.address), (_ON_BAD_FILE, self.on_bad_file)) if value]
        if given and not self.engine:
            records = "; without it, use --on-bad-record skip to omit faulty records" if _ON_BAD_FILE in given else ""
            verb = "require" if len(given) > 1 else "requires"
            raise click.UsageError(f"{' and '.join(given)} {verb} --engine ray{records}")

    def runs(self, systems: Sequence[tuple[str | None, str]], output: Output, score: Callable[..., Run]) -> list[Run]:
        """Returns the runs of all systems, with counts computed on the connected cluster.

        Args:
            systems: Name (or None) and path of each system. Each path is a file, a pattern or a URI.
            output: Values of the command's output options.
            score: Function that scores one system on the engine. The function is called with ``(path, name=,
                on_bad_file=, resamples=, seed=, bootstrap=, interval=)``.
        """
        how: dict[str, Any] = {"on_bad_file": self.on_bad_file or "fail", "bootstrap": output.bootstrap or "poisson"}
        how |= {"resamples": output.resamples, "seed": output.seed, "interval": output.interval}
        return unique_names([score(path, name=name, **how) for name, path in systems])

    def connected(self, output: Output) -> AbstractContextManager[None]:
        """Returns a context in which the command is connected to the cluster."""
        from ..distributed import ray

        return ray.connected(self.address, quiet=output.quiet)


def skipping(scoring: ScoringOptions) -> Skipping:
    """Returns those scoring options that an engine accepts. The number of workers is passed as a separate argument.
    Accounts are not recorded.
    """
    arguments: Any = {
        field.name: getattr(scoring, field.name)
        for field in fields(scoring)
        if field.name not in ("workers", "strict", "any_ids")
    }
    return arguments  # type: ignore[no-any-return]


def cluster_options(command: Command) -> Command:
    """Adds ``--engine`` and the options for the engine. The command receives them as ``cluster: Cluster``."""
    options = [
        click.option(
            "--engine",
            type=_EngineName(["ray"]),
            help="Count on a Ray cluster (extra 'ray'); each argument is one system: a file, a quoted pattern, a URI.",
        ),
        click.option(
            "--address",
            metavar="ADDRESS",
            help="With --engine: address of the cluster (auto, ray://HOST:10001).  [default: local cluster]",
        ),
        click.option(
            _ON_BAD_FILE,
            type=click.Choice(["fail", "skip"]),
            help="With --engine: unreadable files are an error, or are omitted and reported (see also --on-bad-record)."
            "  [default: fail]",
        ),
    ]
    return with_options(command, options, "cluster", Cluster)
