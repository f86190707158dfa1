"""``scapo-eval plot``: draws the report's figures as PNG, SVG or PDF for papers."""

from __future__ import annotations

import io

import click

from ..base.errors import InputError
from ..benchmarks.scoring import ScoringOptions
from ..files.files import atomic_write
from .base import Verb
from .files import OUTPUT, PLAIN
from .report import Inputs, input_options


@click.command("plot", cls=Verb)
@click.argument("kind", type=click.Choice(["frontier", "differences", "labels", "faithscore", "training"]))
@input_options
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="FILE",
    required=True,
    help="Output file with the extension .png, .svg or .pdf.",
)
@click.option("--top", type=click.IntRange(1), help="With labels: number of labels.  [default: 20]")
@click.option(
    "--smooth",
    type=click.IntRange(1),
    metavar="STEPS",
    help="With training: number of steps to average, rounded up to an odd number.  [default: a 30th of the run]",
)
@click.option(
    "--width",
    default="text",
    show_default=True,
    metavar="column|text|INCHES",
    help="Width of one column (3.35) or of the text (6.9) in a two-column paper, or inches (5.5 for NeurIPS and ICLR).",
)
@click.option("--font", metavar="NAME", help="An installed font.  [default: matplotlib's]")
@click.option("--style", "sheet", type=PLAIN, metavar="NAME|FILE", help="Style sheet of matplotlib, applied last.")
@click.option("--dark", is_flag=True, help="Colors for a dark background.")
def command(
    kind: str,
    inputs: tuple[str, ...],
    how: Inputs,
    scoring: ScoringOptions,
    output: str,
    top: int | None,
    smooth: int | None,
    width: str,
    font: str | None,
    sheet: str | None,
    dark: bool,
) -> None:
    """Draws a figure from INPUTS, which are the same as for `report`.

    The first argument names the figure: frontier (hallucination rate against cover rate, with curves of equal caption
    score), differences (differences from the baseline, with intervals and tests), labels (the most frequently
    hallucinated labels), faithscore (FaithScore against the mean number of facts by setting), or training (curves of
    training runs).
    """
    if smooth and kind != "training":
        raise click.UsageError("--smooth is for plot training")
    if top and kind != "labels":
        raise click.UsageError("--top is for plot labels")
    if how.trail and kind != "frontier":
        raise click.UsageError("--trail is for plot frontier")
    if how.by:
        raise click.UsageError("--by is for report")
    from ..report import plots
    from ..report.data import planes

    form = plots.picture_format(output)
    try:
        inches: str | float = width if width in plots.WIDTHS else float(width)
    except ValueError:
        raise click.UsageError(
            f"--width accepts {', '.join(plots.WIDTHS)} or a number of inches, got '{width}'"
        ) from None
    style = plots.Style(inches, dark, font, sheet)
    report = how.gather(inputs, scoring)
    picture = io.BytesIO()
    try:
        if kind == "frontier":
            figure = plots.frontier(planes(report), style)
        elif kind == "differences":
            several = [group for group in report.groups if len(group.runs) > 1]
            if not several:
                raise InputError("nothing to draw: differences need two systems of one benchmark")
            if len(several) > 1:
                names = ", ".join(group.metric_set.name for group in several)
                raise InputError(f"differences of one benchmark are drawn at a time, and there are several: {names}")
            figure = plots.differences(several[0], style=style)
        elif kind == "faithscore":
            groups = sorted(report.groups, key=lambda group: group.metric_set.name != "faithscore")
            if not groups:
                raise InputError("nothing to draw: FaithScore's figure needs results of scapo-eval faithscore")
            figure = plots.faithscore(groups[0], style)
        elif kind == "labels":
            figure = plots.labels(report.captions, top or 20, style)
        else:
            figure = plots.training(report.training_logs, smooth, style)
    except InputError as error:  # nothing to draw
        raise InputError(error.reason, path=error.path or ", ".join(inputs)) from None
    plots.save(figure, picture, form)
    with atomic_write(output) as stream:
        stream.write(picture.getvalue())
