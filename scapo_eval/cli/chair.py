"""``scapo-eval chair CAPTIONS --truth ...``: CHAIR as the project, the standalone script or OPERA's script reads it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from ..benchmarks.chair import PROFILES, score_chair
from ..benchmarks.chair import profile as chosen_profile
from ..benchmarks.chair.choice import DEFAULT_VOCABULARY
from ..benchmarks.scoring import ScoringOptions
from ..results.results import Run
from ..truths.oracle import PresenceOracle
from .cluster import Cluster, cluster_options, skipping
from .emit import emit, score_and_emit
from .files import INPUT, OUTPUT
from .options import Command, Output, output_options, scoring_options


def object_options(command: Command) -> Command:
    """Adds the options that say what is in the images and how captions become objects, and where evidence goes."""
    options = [
        click.option(
            "--truth",
            type=INPUT,
            required=True,
            metavar="FILE",
            help="What is in the images; for the scripts' own figures CHAIR's ground truth as {id: [objects]}.",
        ),
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="native",
            show_default=True,
            help="How captions are read: the project's matcher, the standalone CHAIR script's way, or OPERA's "
            "(extra 'nltk').",
        ),
        click.option(
            "--synonyms",
            type=INPUT,
            metavar="FILE",
            help="For 'reference' and 'opera': CHAIR's synonyms.txt, one object a line, words separated by comma and "
            "space.",
        ),
        click.option(
            "--vocabulary",
            type=INPUT,
            metavar="NAME|FILE",
            help=f"For 'native': labels and their aliases.  [default: {DEFAULT_VOCABULARY}]",
        ),
        click.option(
            "--per-caption",
            type=OUTPUT,
            metavar="FILE",
            help="Write the ordered object lists of every caption as JSON Lines (one system only).",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("chair")
@click.argument("captions", type=INPUT, nargs=-1, required=True)
@object_options
@cluster_options
@scoring_options
@output_options
def command(
    captions: tuple[str, ...],
    truth: str,
    profile: str,
    synonyms: str | None,
    vocabulary: str | None,
    per_caption: str | None,
    cluster: Cluster,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """CHAIR_s, CHAIR_i, Recall and Len of caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input.
    """
    if cluster.engine:
        if per_caption:
            raise click.UsageError("--engine takes no --per-caption")
        from ..distributed import ray

        given: dict[str, Any] = {"truth": truth, "profile": profile, "synonyms": synonyms, "vocabulary": vocabulary}
        on_ray = partial(ray.chair, workers=scoring.workers, **given, **skipping(scoring))
        code = emit(cluster.runs(captions, output, on_ray), output)
    else:
        reader = chosen_profile(
            profile, vocabulary=vocabulary, synonyms=synonyms, claims=scoring.claims, workers=scoring.workers
        )
        if profile == "opera":
            scoring = replace(scoring, workers=None)  # its tagger has processes of its own
        oracle = PresenceOracle.load(truth)

        def score(path: str, **how: Any) -> Run:
            return score_chair(path, reader, oracle, scoring, **how)

        code = score_and_emit(captions, per_caption, output, score)
    if profile == "native":
        output.note("most published tables use the profile 'opera' (--profile opera --synonyms FILE), not 'native'")
    return code
