"""``scapo-eval plot``: the report's pictures as PNG, SVG or PDF for papers."""

from __future__ import annotations

import io

import click

from ..base.errors import InputError
from ..benchmarks.scoring import ScoringOptions
from ..files.files import atomic_write
from .files import OUTPUT
from .report import Inputs, input_options


@click.command("plot")
@click.argument("kind", type=click.Choice(["frontier", "labels", "training"]))
@input_options
@click.option("-o", "--output", type=OUTPUT, metavar="FILE", required=True, help="A name in .png, .svg or .pdf.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="How many labels.")
@click.option(
    "--smooth",
    type=click.IntRange(1),
    metavar="STEPS",
    help="Training: a line is the mean of so many logged steps.  [default: a 30th of the run]",
)
@click.option(
    "--width",
    type=click.Choice(["column", "text"]),
    default="text",
    show_default=True,
    help="Of one column, or of the text, of a paper.",
)
@click.option("--dark", is_flag=True, help="For a dark page.")
def command(
    kind: str,
    inputs: tuple[str, ...],
    how: Inputs,
    scoring: ScoringOptions,
    output: str,
    top: int,
    smooth: int | None,
    width: str,
    dark: bool,
) -> None:
    """Draws a picture of INPUTS, which are as in `report`.

    frontier: Hal. Rate against Cover Rate with curves of equal Cap. Score. labels: what is hallucinated
    most. training: curves of training runs.
    """
    if smooth and kind != "training":
        raise click.UsageError("--smooth is for plot training")
    from ..report import plots
    from ..report.data import planes

    form = plots.picture_format(output)
    report = how.gather(inputs, scoring)
    style = plots.Style(width, dark)
    picture = io.BytesIO()
    try:
        if kind == "frontier":
            plots.frontier(picture, form, planes(report), style)
        elif kind == "labels":
            plots.labels(picture, form, report.captions, top, style)
        else:
            plots.training(picture, form, report.training_logs, smooth, style)
    except InputError as error:  # nothing to draw
        raise InputError(error.reason, path=error.path or ", ".join(inputs)) from None
    with atomic_write(output) as stream:
        stream.write(picture.getvalue())
