"""``scapo-eval objhal CAPTIONS --truth ...``: Object HalBench, objects listed by a judge or found by a profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import click

from ..benchmarks.chair import profile as chosen_profile
from ..benchmarks.objhal import Source, score_objhal
from ..benchmarks.scoring import ScoringOptions
from ..results.results import Run
from ..truths.oracle import PresenceOracle
from .chair import object_options
from .emit import score_and_emit
from .files import INPUT
from .options import Output, output_options, scoring_options


@click.command("objhal")
@click.argument("captions", type=INPUT, nargs=-1, required=True)
@click.option(
    "--objects",
    type=click.Choice(get_args(Source)),
    default="auto",
    show_default=True,
    help="Who says which words are objects: the judge (judge objhal), or the profile; auto: the judge where it did.",
)
@object_options
@scoring_options
@output_options
def command(
    captions: tuple[str, ...],
    objects: Source,
    truth: str,
    profile: str,
    synonyms: str | None,
    vocabulary: str | None,
    per_caption: str | None,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """Scores Object HalBench: CHAIR per response and per mention, and recall; several files are compared.

    CAPTIONS are what scapo-eval judge objhal wrote, or captions in any layout, whose objects the profile then finds.
    The benchmark's synonym list is synonyms_refine.txt of its repository (--profile reference --synonyms FILE).
    """
    reader = chosen_profile(
        profile, vocabulary=vocabulary, synonyms=synonyms, claims=scoring.claims, workers=scoring.workers
    )
    if profile == "opera":
        scoring = replace(scoring, workers=None)  # its tagger has processes of its own
    oracle = PresenceOracle.load(truth)

    def score(path: str, **how: Any) -> Run:
        return score_objhal(path, reader, oracle, scoring, source=objects, **how)

    return score_and_emit(captions, per_caption, output, score)
