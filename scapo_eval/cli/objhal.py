"""``scapo-eval objhal CAPTIONS --truth ...``: Object HalBench, objects listed by a judge or found by a profile."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import click

from ..io.files import input_size
from ..metrics.chair import profile as chosen_profile
from ..metrics.objhal import ObjHalScorer, Source, score_objhal
from ..oracle import PresenceOracle
from ..results import Run
from ..scoring import ScoredBlock, ScoringOptions
from .chair import object_options
from .emit import emit
from .files import INPUT, named_files
from .options import Output, caption_file, evidence_file, output_options, scoring_options
from .screen import progress


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
    if per_caption and len(captions) > 1:
        raise click.UsageError("--per-caption takes one caption file at a time")
    reader = chosen_profile(
        profile, vocabulary=vocabulary, synonyms=synonyms, claims=scoring.claims, workers=scoring.workers
    )
    if profile == "opera":
        scoring = replace(scoring, workers=None)  # its tagger has processes of its own
    oracle = PresenceOracle.load(truth)
    named = named_files(captions)
    runs: list[Run] = []
    with evidence_file(per_caption) as write:

        def keep(scorer: ObjHalScorer, block: ScoredBlock) -> None:
            assert write is not None
            write(scorer.records(block))

        for name, path in named:
            with caption_file(path), progress(output, name, input_size(path)) as advance:
                run = score_objhal(
                    path,
                    reader,
                    oracle,
                    scoring,
                    source=objects,
                    name=name,
                    resampling=output.resampling,
                    on_block=keep if write else None,
                    on_progress=advance,
                )
            runs.append(run)
    return emit(runs, output, files=[path for _, path in named])
