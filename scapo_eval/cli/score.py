"""``scapo-eval captions.jsonl``: Cap. Score, Hal. and Cover Rate and CHAIR of one or several systems."""

from __future__ import annotations

import click

from ..io.files import input_size
from ..metrics.capscore import CaptionScorer, score_file
from ..oracle import PresenceOracle, Truth
from ..results import Run
from ..scoring import ScoredBlock, ScoringOptions
from ..vocabulary import Vocabulary
from .emit import emit
from .files import INPUT, OUTPUT, named_files
from .options import Output, caption_file, evidence_file, output_options, scoring_options
from .screen import progress

DOPA_VOCABULARY = "dopa160"


@click.command("score")
@click.argument("captions", type=INPUT, nargs=-1, required=True)
@click.option(
    "--truth", type=INPUT, metavar="FILE", help="What is in the images; without it every record needs 'objects'."
)
@click.option(
    "--vocabulary",
    type=INPUT,
    default="coco80",
    show_default=True,
    metavar="NAME|FILE",
    help="Labels and their aliases.",
)
@click.option("--dopa", type=INPUT, metavar="MATRIX", help="A DOPA matrix: adds the metrics against it (*_dagger).")
@click.option(
    "--dopa-vocabulary",
    type=INPUT,
    default=DOPA_VOCABULARY,
    show_default=True,
    metavar="NAME|FILE",
    help="Vocabulary of --dopa.",
)
@click.option(
    "--per-caption",
    type=OUTPUT,
    metavar="FILE",
    help="Write mentions, verdicts and counts of every caption as JSON Lines (one system only).",
)
@scoring_options
@output_options
def command(
    captions: tuple[str, ...],
    truth: str | None,
    vocabulary: str,
    dopa: str | None,
    dopa_vocabulary: str,
    per_caption: str | None,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """Scores caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input.
    """
    if per_caption and len(captions) > 1:
        raise click.UsageError("--per-caption takes one caption file at a time")
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    dagger = None
    if dopa:
        matrix, second = PresenceOracle.load(dopa), Vocabulary.load(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=scoring.any_fingerprint)
    named = named_files(captions)
    runs: list[Run] = []
    with evidence_file(per_caption) as write:

        def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
            assert write is not None
            write(scorer.records(block))

        for name, path in named:
            with caption_file(path), progress(output, name, input_size(path)) as advance:
                run = score_file(
                    path,
                    labels,
                    oracle,
                    scoring,
                    dagger=dagger,
                    name=name,
                    resampling=output.resampling,
                    on_block=keep if write else None,
                    on_progress=advance,
                )
            runs.append(run)
    return emit(runs, output, files=[path for _, path in named])
