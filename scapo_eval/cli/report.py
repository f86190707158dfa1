"""``scapo-eval report``: creates an HTML page or a table for a paper from the scores of several systems."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import click

from ..benchmarks.capscore import DOPA_VOCABULARY
from ..benchmarks.scoring import ScoringOptions
from ..claiming.claim import KINDS, kinds_of
from ..files.files import STDIN, atomic_write, refuse_replacing
from ..report.data import RUN_FILES, Report
from ..report.gather import Settings, gather
from ..report.tables import TABLES
from ..results.render import TableFormat, render
from ..results.results import Resampling
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .base import Verb
from .files import INPUT, OUTPUT, split_name
from .numbers import Seed
from .options import (
    Command,
    bootstrap_option,
    complete_columns,
    complete_kinds,
    metrics_option,
    scoring_options,
    with_options,
)
from .screen import Screen, progress, stage

_ALL_KINDS = ",".join(KINDS)
_TITLE = "scapo report"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Values of the options that :func:`input_options` adds."""

    truth: str | None
    scenes: tuple[str, ...]
    kinds: str
    vocabulary: str
    dopa: str | None
    dopa_vocabulary: str
    trail: tuple[str, ...]
    name: tuple[str, ...]
    resamples: int
    seed: int
    bootstrap: Bootstrap | None
    by: str | None
    allow_different: bool
    quiet: bool

    def files(self) -> list[str]:
        """Returns the files (or names of shipped files) that the options name."""
        return [*filter(None, (self.truth, *self.scenes, self.vocabulary, self.dopa, self.dopa_vocabulary))]

    def gather(self, inputs: Sequence[str], scoring: ScoringOptions) -> Report:
        """Reads all inputs, each given as ``NAME=FILE`` or FILE. Progress and warnings are printed to standard
        error.
        """
        if not self.scenes and self.kinds != _ALL_KINDS:
            raise click.UsageError("--kinds requires --scenes FILE")
        split = [split_name(argument) for argument in inputs]
        given: dict[str, str] = {}
        for name, path in split:
            if name is not None and given.setdefault(path, name) != name:
                raise click.UsageError(f"'{path}' is given under two names: {given[path]}, {name}")
        settings = Settings(
            truth=self.truth,
            scenes=self.scenes,
            kinds=kinds_of(self.kinds),
            vocabulary=self.vocabulary,
            dopa=self.dopa,
            dopa_vocabulary=self.dopa_vocabulary,
            scoring=scoring,
            trails=self.trail,
            names=_renamings(self.name),
            given=given,
            resampling=Resampling(self.resamples, self.seed, bootstrap=self.bootstrap),
            allow_different=self.allow_different,
            by=self.by,
        )
        screen = Screen(quiet=self.quiet)
        return gather(
            [path for _, path in split],
            settings,
            progress=partial(progress, screen),
            stage=partial(stage, screen),
            warn=screen.warn,
        )


def input_options(command: Command) -> Command:
    """Adds the arguments that ``report`` and ``plot`` share: the inputs, and the settings for scoring captions."""
    options = [
        click.argument("inputs", type=INPUT, nargs=-1, required=True),
        click.option("--truth", type=INPUT, metavar="FILE", help="Ground truth for captions and samples."),
        click.option(
            "--scenes",
            type=INPUT,
            multiple=True,
            metavar="FILE",
            help="Ground truth beyond presence (docs/claims.md). Adds claims of all kinds.",
        ),
        click.option(
            "--kinds",
            default=_ALL_KINDS,
            show_default=True,
            metavar="KIND,...",
            shell_complete=complete_kinds,
            help="Kinds of claims for --scenes.",
        ),
        click.option(
            "--vocabulary",
            type=INPUT,
            default="coco80",
            show_default=True,
            metavar="NAME|FILE",
            help="Labels and aliases.",
        ),
        click.option("--dopa", type=INPUT, metavar="MATRIX", help="DOPA matrix, which adds the *_dagger metrics."),
        click.option(
            "--dopa-vocabulary",
            type=INPUT,
            default=DOPA_VOCABULARY,
            show_default=True,
            metavar="NAME|FILE",
            help="Vocabulary of --dopa.",
        ),
        click.option(
            "--trail",
            multiple=True,
            metavar="PREFIX",
            help="Treat systems with this name prefix as checkpoints of one run, in the given order.",
        ),
        click.option(
            "--name",
            multiple=True,
            metavar="OLD=NEW",
            help="Rename a system. Equal names join the metrics of several benchmarks in a table.",
        ),
        click.option("--resamples", type=click.IntRange(0, 1_000_000), default=DEFAULT_RESAMPLES, show_default=True),
        click.option("--seed", type=Seed(), default=DEFAULT_SEED, show_default=True),
        bootstrap_option,
        click.option(
            "--by",
            metavar="COLUMN",
            shell_complete=complete_columns,
            help="Also report captions by a column of their records (prompt, scene...), or by length.",
        ),
        click.option("--allow-different", is_flag=True, help="Compare systems that were scored differently."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
    ]
    return with_options(scoring_options(command), options, "how", Inputs)


def _renamings(pairs: Sequence[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        old, equals, new = pair.rpartition("=")
        if not (old and equals and new):
            raise click.UsageError(f"expected --name OLD=NEW, got '{pair}'")
        names[old] = new
    return names


@click.command("report", cls=Verb)
@input_options
@click.option("-o", "--output", metavar="FILE", default="-", type=OUTPUT, show_default=True, help="Output file.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", *get_args(TableFormat)]),
    default="html",
    show_default=True,
    help="HTML page, or a table for a paper.",
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    default="scores",
    show_default=True,
    help="With latex, markdown, csv: all metrics, or the layout of the paper's table with this number or name.",
)
@metrics_option(
    help="With --table scores: these metrics.  [default: all; the headline metrics of several benchmarks]",
)
@click.option("--intervals", is_flag=True, help="With latex and markdown: include intervals.")
@click.option("--title", default=_TITLE, show_default=True, help="Title of the page.")
@click.option("--images", metavar="DIR", help="Show the images in this folder, by reference.")
@click.option("--thumbnails", is_flag=True, help="Embed small copies of --images in the page.")
@click.option("--watch", is_flag=True, help="Serve the page on this computer and update it continuously.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --watch.  [default: a free one]")
def command(
    inputs: tuple[str, ...],
    how: Inputs,
    scoring: ScoringOptions,
    output: str,
    form: str,
    table: str,
    metrics: tuple[str, ...] | None,
    intervals: bool,
    title: str,
    images: str | None,
    thumbnails: bool,
    watch: bool,
    port: int,
) -> None:
    """Creates one HTML page (or a table) from INPUTS, each of the form FILE or NAME=FILE.

    INPUTS are results files (-o of a scoring verb), caption files (scored against --truth, or against their own
    'objects'), verdicts on claims (judge facts), objects listed by a judge (judge objhal), ratings (judge mmhal),
    yes/no answers with labels (answer, plain or --describe) and folders of training runs. Inputs of different kinds can
    be combined; the kind of each input is recognized by its content. The first system of each benchmark is its
    baseline.
    """
    if form == "html" and (metrics or intervals or table != "scores"):
        raise click.UsageError("--table, --metrics and --intervals are for tables: --format latex, markdown or csv")
    if form != "html" and (images or title != _TITLE):
        raise click.UsageError("--title and --images are for the page: --format html")
    if port and not watch:
        raise click.UsageError("--port requires --watch")
    if thumbnails and not images:
        raise click.UsageError("--thumbnails requires the folder of the pictures: --images FOLDER")
    if watch:
        if form != "html" or output != STDIN or images:
            raise click.UsageError("--watch serves a page and excludes -o, --format and --images")
        if any(path == STDIN for _, path in map(split_name, inputs)):
            raise click.UsageError("--watch reads its inputs repeatedly, so they must be files or folders")
        _watch(inputs, how, scoring, title, port)
        return
    if form == "html" and output == STDIN and sys.stdout.isatty():
        raise click.UsageError("a page cannot be shown on a terminal: write it with -o report.html")
    if form == "html":
        from ..report import html

        html.environment()  # before a long run, because its extra may be missing
    folders = [path for _, path in map(split_name, inputs)]
    refuse_replacing([output], [Path(folder, name) for folder in folders for name in RUN_FILES])
    report, screen = how.gather(inputs, scoring), Screen(quiet=how.quiet)
    if form == "html":
        addresses: dict[str, str] = {}
        if images:
            with stage(screen, "finding the pictures"):
                pictures = html.image_files(images, report.image_ids())
                addresses = html.thumbnails(pictures) if thumbnails else html.addresses(pictures, output)
        captions = sum(len(run.texts) for run in report.captions)
        with stage(screen, f"creating the page: {captions:,} captions"):
            made = html.page(report, title=title, images=addresses)
    else:
        from ..report import tables

        content = tables.table(report, table, intervals=intervals, metrics=metrics)
        made = render(content, form).encode("utf-8", "replace")  # type: ignore[arg-type]
    with atomic_write(output) as stream:
        stream.write(made)


def _watch(inputs: tuple[str, ...], how: Inputs, scoring: ScoringOptions, title: str, port: int) -> None:
    """Serves the page until the user interrupts the program."""
    from ..report import html
    from ..report.watch import ReportServer, state_of

    screen, paths = Screen(quiet=how.quiet), [*(path for _, path in map(split_name, inputs)), *how.files()]
    quiet = replace(how, quiet=True)

    def make(state: str) -> bytes:
        return html.page(quiet.gather(inputs, scoring), title=title, state=state)

    try:
        server = ReportServer(make, lambda: state_of(paths), port=port, failed=screen.warn)
    except OSError as error:
        raise click.UsageError(f"port {port} cannot be used: {error.strerror}") from None
    click.echo(f"{server.url}  (Ctrl-C stops it)", err=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
