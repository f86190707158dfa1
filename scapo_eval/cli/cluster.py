"""``--engine``: a verb's files counted on a cluster, one system after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import click

from ..results import Run, unique_names
from .files import split_name
from .options import Command, Output, with_options


@dataclass(frozen=True)
class Cluster:
    """Where records are counted.

    Attributes:
        engine: whose cluster it is; None: this process.
        address: of the cluster.
        on_bad_file: what becomes of files that cannot be read.
    """

    engine: Literal["ray"] | None
    address: str | None
    on_bad_file: Literal["fail", "skip"] | None

    def __post_init__(self) -> None:
        if not self.engine and (self.address or self.on_bad_file):
            raise click.UsageError("--address and --on-bad-file belong to --engine")

    def runs(self, arguments: Sequence[str], output: Output, score: Callable[..., Run]) -> list[Run]:
        """The runs of all systems.

        Args:
            arguments: a file, a pattern or a URI each, ``NAME=`` before it.
            output: the verb's options.
            score: counts one system on the engine: ``(path, name=, on_bad_file=, resamples=, seed=)``.
        """
        from ..distributed import ray

        how = {"on_bad_file": self.on_bad_file or "fail", "resamples": output.resamples, "seed": output.seed}
        with ray.connected(self.address, quiet=output.quiet):
            return unique_names([score(path, name=name, **how) for name, path in map(split_name, arguments)])


def cluster_options(command: Command) -> Command:
    """Adds ``--engine`` and its options; the command receives them as ``cluster: Cluster``."""
    options = [
        click.option(
            "--engine",
            type=click.Choice(["ray"]),
            help="Count on a Ray cluster (extra 'ray'); each argument is one system: a file, a quoted pattern, a URI.",
        ),
        click.option(
            "--address",
            metavar="ADDRESS",
            help="With --engine: the cluster (auto, ray://HOST:10001).  [default: one here]",
        ),
        click.option(
            "--on-bad-file",
            type=click.Choice(["fail", "skip"]),
            help="With --engine: files that cannot be read are an error, or are left out, counted and named."
            "  [default: fail]",
        ),
    ]
    return with_options(command, options, "cluster", Cluster)
