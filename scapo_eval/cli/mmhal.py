"""``scapo-eval mmhal RATINGS``: MMHal-Bench score and hallucination rate from a judge's ratings."""

from __future__ import annotations

import click

from ..benchmarks.mmhal import mmhal_run, read_ratings
from .emit import emit
from .files import INPUT, named_files
from .options import Output, output_options


@click.command("mmhal")
@click.argument("ratings", type=INPUT, nargs=-1, required=True)
@output_options
def command(ratings: tuple[str, ...], output: Output) -> int:
    """Scores MMHal-Bench ratings; several files are compared with the first.

    RATINGS are the official evaluation output (a JSON array of the judge's completions), or records with
    rating or judge_text and optionally question_type and image_id. The judge itself runs elsewhere.
    """
    runs = [
        mmhal_run(name, read_ratings(path, warn=output.warn), output.resampling) for name, path in named_files(ratings)
    ]
    return emit(runs, output)
