"""``scapo-eval plot``: the report's pictures as PNG, SVG or PDF for papers."""

from __future__ import annotations

import io

import click

from ..io.files import atomic_write
from ..scoring import ScoringOptions
from .files import OUTPUT
from .report import Inputs, input_options


@click.command("plot")
@click.argument("kind", type=click.Choice(["frontier", "labels", "training"]))
@input_options
@click.option("-o", "--output", type=OUTPUT, metavar="FILE", required=True, help="A name in .png, .svg or .pdf.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="How many labels.")
def command(kind: str, inputs: tuple[str, ...], how: Inputs, scoring: ScoringOptions, output: str, top: int) -> None:
    """Draws a picture of INPUTS, which are as in `report`.

    frontier: Hal. Rate against Cover Rate with curves of equal Cap. Score. labels: what is hallucinated
    most. training: curves of training runs.
    """
    from ..report import plots
    from ..report.data import planes

    form = plots.picture_format(output)
    report = how.gather(inputs, scoring)
    picture = io.BytesIO()
    if kind == "frontier":
        plots.frontier(picture, form, planes(report))
    elif kind == "labels":
        plots.labels(picture, form, report.captions, top)
    else:
        plots.training(picture, form, report.training_logs)
    with atomic_write(output) as stream:
        stream.write(picture.getvalue())
