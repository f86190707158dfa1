"""``scapo-eval chair CAPTIONS --truth ...``: CHAIR as the project, the standalone script or OPERA's script reads it."""

from __future__ import annotations

from dataclasses import replace

import click

from ..io.files import input_size
from ..metrics.chair import PROFILES, ChairScorer, Native, Opera, Profile, Reference, Synonyms, score_chair
from ..oracle import PresenceOracle
from ..results import Run, system_names
from ..scoring import ScoredBlock, ScoringOptions
from ..vocabulary import Vocabulary
from .common import (
    Output,
    caption_file,
    emit,
    evidence_file,
    output_options,
    progress,
    scoring_options,
)

DEFAULT_VOCABULARY = "coco80"


@click.command("chair")
@click.argument("captions", nargs=-1, required=True)
@click.option(
    "--truth",
    required=True,
    metavar="FILE",
    help="What is in the images; for the scripts' own figures CHAIR's ground truth as {id: [objects]}.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="native",
    show_default=True,
    help="How captions are read: the project's matcher, the standalone CHAIR script's way, or OPERA's (extra 'nltk').",
)
@click.option(
    "--synonyms",
    metavar="FILE",
    help="For 'reference' and 'opera': CHAIR's synonyms.txt, one object a line, words separated by comma and space.",
)
@click.option(
    "--vocabulary",
    metavar="NAME|FILE",
    help=f"For 'native': labels and their aliases.  [default: {DEFAULT_VOCABULARY}]",
)
@click.option(
    "--per-caption",
    metavar="FILE",
    help="Write the ordered object lists of every caption as JSON Lines (one system only).",
)
@scoring_options
@output_options
def command(
    captions: tuple[str, ...],
    truth: str,
    profile: str,
    synonyms: str | None,
    vocabulary: str | None,
    per_caption: str | None,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """CHAIR_s, CHAIR_i, Recall and Len of caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input.
    """
    if per_caption and len(captions) > 1:
        raise click.UsageError("--per-caption takes one caption file at a time")
    reader = reading_profile(profile, synonyms, vocabulary, scoring)
    if profile == "opera":
        scoring = replace(scoring, workers=None)  # its tagger has processes of its own
    oracle = PresenceOracle.load(truth)
    runs: list[Run] = []
    with evidence_file(per_caption) as write:

        def keep(scorer: ChairScorer, block: ScoredBlock) -> None:
            assert write is not None
            write(scorer.records(block))

        for path, name in zip(captions, system_names(captions), strict=True):
            with caption_file(path), progress(output, name, input_size(path)) as advance:
                run = score_chair(
                    path,
                    reader,
                    oracle,
                    scoring,
                    name=name,
                    resampling=output.resampling,
                    on_block=keep if write else None,
                    on_progress=advance,
                )
            runs.append(run)
    return emit(runs, output)


def reading_profile(profile: str, synonyms: str | None, vocabulary: str | None, scoring: ScoringOptions) -> Profile:
    """How captions are read, by the options that each profile takes."""
    if profile == "native":
        if synonyms:
            raise click.UsageError(
                "--synonyms belongs to the profiles 'reference' and 'opera'; 'native' has --vocabulary"
            )
        return Native(Vocabulary.load(vocabulary or DEFAULT_VOCABULARY), scoring.claims)
    if vocabulary:
        raise click.UsageError(f"--vocabulary belongs to the profile 'native'; '{profile}' has --synonyms")
    if not synonyms:
        raise click.UsageError(
            f"the profile '{profile}' needs --synonyms FILE: data/synonyms.txt of github.com/LisaAnne/Hallucination"
        )
    if scoring.claims != "all":
        raise click.UsageError(f"--claims belongs to the profile 'native'; '{profile}' counts every mention")
    words = Synonyms.load(synonyms)
    return Reference(words) if profile == "reference" else Opera(words, scoring.workers)
