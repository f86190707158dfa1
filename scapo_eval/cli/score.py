"""``scapo-eval captions.jsonl``: Cap. Score, Hal. and Cover Rate and CHAIR of one or several systems."""

from __future__ import annotations

from contextlib import ExitStack

import click

from ..claims import CLAIMS, Claims
from ..io.files import atomic_write, dump_json
from ..oracle import PresenceOracle, Truth
from ..scoring import CaptionScores, ScoredBlock, Scorer, score_file
from ..vocabulary import Vocabulary
from .common import Output, caption_file, emit, input_size, output_options, progress, system_names

DOPA_VOCABULARY = "dopa160"


@click.command("score")
@click.argument("captions", nargs=-1, required=True)
@click.option("--truth", metavar="FILE", help="What is in the images; without it every record needs 'objects'.")
@click.option(
    "--vocabulary", default="coco80", show_default=True, metavar="NAME|FILE", help="Labels and their aliases."
)
@click.option("--dopa", metavar="MATRIX", help="A DOPA matrix: adds the figures against it (*_dagger).")
@click.option(
    "--dopa-vocabulary", default=DOPA_VOCABULARY, show_default=True, metavar="NAME|FILE", help="Vocabulary of --dopa."
)
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option(
    "--on-unknown-image",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Captions of images that the truth does not have.",
)
@click.option(
    "--claims",
    type=click.Choice(CLAIMS),
    default="all",
    show_default=True,
    help="Mentions that count: all (the paper); asserted, without negated ones; certain, without hedged ones too.",
)
@click.option("--skip-bad", is_flag=True, help="Leave faulty lines out and count them in the signature.")
@click.option(
    "--per-caption",
    metavar="FILE",
    help="Write mentions, verdicts and counts of every caption as JSON Lines (one system only).",
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that parse and match.")
@output_options
def command(
    captions: tuple[str, ...],
    truth: str | None,
    vocabulary: str,
    dopa: str | None,
    dopa_vocabulary: str,
    any_fingerprint: bool,
    on_unknown_image: str,
    claims: Claims,
    skip_bad: bool,
    per_caption: str | None,
    workers: int,
    output: Output,
) -> int:
    """Scores caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, plain, .gz or .zst; - is standard input.
    """
    if per_caption and len(captions) > 1:
        raise click.UsageError("--per-caption takes one caption file at a time")
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    dagger = None
    if dopa:
        matrix, second = PresenceOracle.load(dopa), Vocabulary.load(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=any_fingerprint)
    scores: list[CaptionScores] = []
    with ExitStack() as stack:
        evidence = stack.enter_context(atomic_write(per_caption)) if per_caption else None

        def write(scorer: Scorer, block: ScoredBlock) -> None:
            assert evidence is not None
            evidence.writelines(dump_json(record) + b"\n" for record in scorer.evidence(block))

        for path, name in zip(captions, system_names(captions), strict=True):
            with caption_file(path), progress(output, name, input_size(path)) as advance:
                scores.append(
                    score_file(
                        path,
                        labels,
                        oracle,
                        dagger=dagger,
                        name=name,
                        skip_bad=skip_bad,
                        skip_unknown_images=on_unknown_image == "skip",
                        claims=claims,
                        any_fingerprint=any_fingerprint,
                        workers=workers,
                        resamples=output.resamples,
                        seed=output.seed,
                        on_block=write if evidence else None,
                        on_progress=advance,
                    )
                )
    return emit([score.system() for score in scores], output)
