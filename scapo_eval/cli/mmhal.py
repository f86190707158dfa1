"""``scapo-eval mmhal RATINGS``: MMHal-Bench score and hallucination rate from a judge's ratings."""

from __future__ import annotations

import click

from ..metrics.judge import mmhal_system, read_ratings
from .common import Output, emit, output_options, system_names


@click.command("mmhal")
@click.argument("ratings", nargs=-1, required=True)
@output_options
def command(ratings: tuple[str, ...], output: Output) -> int:
    """Scores MMHal-Bench ratings; several files are compared with the first.

    RATINGS are the official evaluation output (a JSON array of the judge's completions), or records with
    rating or judge_text and optionally question_type and image_id. The judge itself runs elsewhere.
    """
    named = zip(system_names(ratings), ratings, strict=True)
    return emit([mmhal_system(name, read_ratings(path, warn=output.warn)) for name, path in named], output)
