"""``scapo-eval report``: an HTML page to look at, or a table for a paper."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import get_args

import click

from ..claims import CLAIMS, Claims
from ..errors import InputError
from ..io.files import STDIN, atomic_write, iter_lines
from ..oracle import PresenceOracle, Truth
from ..report.data import METRICS_FILE, Group, Report, TrainingLog, caption_evidence, read_training_log
from ..report.tables import Format
from ..results import FORMAT, System
from ..stats import DEFAULT_RESAMPLES, DEFAULT_SEED
from ..vocabulary import Vocabulary
from .common import Command, Output, input_size, progress, system_names, with_options
from .compare import load_systems, unique_names
from .score import DOPA_VOCABULARY


@dataclass(frozen=True, slots=True)
class Sources:
    """The options of :func:`source_options`."""

    truth: str | None
    vocabulary: str
    dopa: str | None
    dopa_vocabulary: str
    any_fingerprint: bool
    on_unknown_image: str
    skip_bad: bool
    claims: Claims
    trail: tuple[str, ...]
    name: tuple[str, ...]
    resamples: int
    seed: int
    quiet: bool


def source_options(command: Command) -> Command:
    """Adds what ``report`` and ``plot`` share: inputs and how captions are judged, as ``sources: Sources``."""
    options = [
        click.argument("inputs", nargs=-1, required=True),
        click.option("--truth", metavar="FILE", help="What is in the images, to judge captions and samples by."),
        click.option("--vocabulary", default="coco80", show_default=True, metavar="NAME|FILE", help="Labels, aliases."),
        click.option("--dopa", metavar="MATRIX", help="A DOPA matrix: adds the figures against it (*_dagger)."),
        click.option("--dopa-vocabulary", default=DOPA_VOCABULARY, show_default=True, metavar="NAME|FILE", help="Its."),
        click.option("--any-fingerprint", is_flag=True, help="Accept a matrix made for another vocabulary."),
        click.option(
            "--on-unknown-image",
            type=click.Choice(["error", "skip"]),
            default="error",
            show_default=True,
            help="Captions of images that the truth does not have.",
        ),
        click.option("--skip-bad", is_flag=True, help="Leave faulty lines out and count them in the signature."),
        click.option(
            "--claims", type=click.Choice(CLAIMS), default="all", show_default=True, help="Mentions that count."
        ),
        click.option(
            "--trail",
            multiple=True,
            metavar="PREFIX",
            help="Systems whose names begin so are checkpoints of one run, in the order given.",
        ),
        click.option(
            "--name",
            multiple=True,
            metavar="OLD=NEW",
            help="Call a system otherwise; one name joins a system's figures of several benchmarks in a table.",
        ),
        click.option("--resamples", type=click.IntRange(0, 1_000_000), default=DEFAULT_RESAMPLES, show_default=True),
        click.option("--seed", type=click.IntRange(0), default=DEFAULT_SEED, show_default=True),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
    ]
    return with_options(command, options, "sources", Sources)


def gather(inputs: Sequence[str], sources: Sources) -> Report:
    """Reads every input, recognised by content: a run's folder, a results file, or captions.

    Systems come in the order given, the first of each benchmark is its baseline.

    Raises:
        InputError, InputErrors: as the readers do.
    """
    folders = [path for path in inputs if path != STDIN and Path(path).is_dir()]
    files = [path for path in inputs if path not in folders]
    saved = {path for path in files if _is_results(path)}
    for path in folders:
        if not (Path(path) / METRICS_FILE).is_file():
            raise InputError(f"is a folder, and no training run: it holds no {METRICS_FILE}", path=path)
    captions_at_hand = len(saved) < len(files)
    labels = Vocabulary.load(sources.vocabulary) if captions_at_hand or folders else None
    oracle = PresenceOracle.load(sources.truth) if sources.truth and labels else None
    dagger = None
    if sources.dopa and captions_at_hand:
        matrix, second = PresenceOracle.load(sources.dopa), Vocabulary.load(sources.dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=sources.any_fingerprint)
    output = _plain_output(sources)
    systems: list[System] = []
    captions = []
    names = dict(zip(files, system_names(files), strict=True)) if files else {}
    called = _renamings(sources.name)
    for path in files:
        if path in saved:
            systems += [replace(s, name=called.get(s.name, s.name)) for s in load_systems(path)]
            continue
        assert labels is not None
        with progress(output, names[path], input_size(path)) as advance:
            run = caption_evidence(
                path,
                labels,
                oracle,
                name=called.get(names[path], names[path]),
                dagger=dagger,
                any_fingerprint=sources.any_fingerprint,
                skip_bad=sources.skip_bad,
                skip_unknown_images=sources.on_unknown_image == "skip",
                claims=sources.claims,
                resamples=sources.resamples,
                seed=sources.seed,
                on_progress=advance,
            )
        captions.append(run)
        systems.append(run.scores.system())
    for old, new in called.items():
        if new not in (system.name for system in systems):
            there = ", ".join(system.name for system in systems)
            raise click.UsageError(f"--name: there is no system '{old}' (there are {there})")
    for system in systems:
        for note in system.notes:
            output.warn(f"{system.name}: {note}")
    truth = Truth.of(oracle, labels, any_fingerprint=sources.any_fingerprint) if oracle and labels else None
    return Report(
        groups=tuple(
            Group.of(unique_names(members), resamples=sources.resamples, seed=sources.seed)
            for members in _by_metric(systems)
        ),
        captions=tuple(captions),
        training_logs=_distinct_names([read_training_log(path) for path in folders]),
        trails=sources.trail,
        vocabulary=labels,
        truth=truth,
    )


def _renamings(pairs: Sequence[str]) -> dict[str, str]:
    called = {}
    for pair in pairs:
        old, equals, new = pair.rpartition("=")
        if not (old and equals and new):
            raise click.UsageError(f"expected --name OLD=NEW, got '{pair}'")
        called[old] = new
    return called


def _plain_output(sources: Sources) -> Output:
    return Output(
        as_json=False,
        output=None,
        resamples=sources.resamples,
        seed=sources.seed,
        test="approximate_randomization",
        width=None,
        no_color=False,
        quiet=sources.quiet,
        fail_under=(),
        fail_above=(),
    )


def _is_results(path: str) -> bool:
    """Whether a file is what -o of a scoring verb writes: its first line holds the format's name."""
    if path == STDIN:
        return False
    first = next(iter_lines(path), None)
    return first is not None and FORMAT.encode() in first[1][:200]


def _by_metric(systems: Sequence[System]) -> list[list[System]]:
    order = list(dict.fromkeys(system.metric.name for system in systems))
    ordered = sorted(systems, key=lambda system: order.index(system.metric.name))
    return [list(members) for _, members in groupby(ordered, key=lambda system: system.metric.name)]


def _distinct_names(runs: Sequence[TrainingLog]) -> tuple[TrainingLog, ...]:
    names = [run.name for run in runs]
    return tuple(
        replace(run, name=f"{run.name}#{names[: k + 1].count(run.name)}") if names.count(run.name) > 1 else run
        for k, run in enumerate(runs)
    )


@click.command("report")
@source_options
@click.option("-o", "--output", metavar="FILE", default="-", show_default=True, help="Where the report goes.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", *get_args(Format)]),
    default="html",
    show_default=True,
    help="A page to look at, or a table for a paper.",
)
@click.option(
    "--table",
    type=click.Choice(["scores", "1", "2", "3", "4"]),
    default="scores",
    show_default=True,
    help="With latex, markdown, csv: every figure, or the layout of the paper's table of that number.",
)
@click.option("--title", default="scapo report", show_default=True, help="Of the page.")
@click.option("--images", metavar="DIR", help="Show the pictures of this folder, from where they lie.")
@click.option("--thumbnails", is_flag=True, help="Put small copies of --images into the page itself.")
def command(
    inputs: tuple[str, ...],
    sources: Sources,
    output: str,
    form: str,
    table: str,
    title: str,
    images: str | None,
    thumbnails: bool,
) -> None:
    """Makes one HTML page (or a table) of INPUTS.

    INPUTS are results files (-o of a scoring verb), caption files (scored against --truth, or their own
    'objects') and folders of training runs, in any mixture, recognised by content. The first system of each
    benchmark is its baseline.
    """
    if thumbnails and not images:
        raise click.UsageError("--thumbnails are copies of pictures: give their folder with --images")
    if form == "html" and output == STDIN and sys.stdout.isatty():
        raise click.UsageError("a page is nothing for a terminal: write it with -o report.html")
    report = gather(inputs, sources)
    if form == "html":
        from ..report import html

        addresses: dict[str, str] = {}
        if images:
            pictures = html.image_files(images, (image for run in report.captions for image in run.image_ids))
            addresses = html.thumbnails(pictures) if thumbnails else html.addresses(pictures, output)
        made = html.page(report, title=title, images=addresses)
    else:
        from ..report import tables

        made = tables.render(tables.table(report, table), form).encode("utf-8", "replace")  # type: ignore[arg-type]
    with atomic_write(output) as stream:
        stream.write(made)
