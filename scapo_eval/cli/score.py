"""``scapo-eval captions.jsonl``: Cap. Score, Hal. and Cover Rate and CHAIR of one or several systems."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from ..benchmarks.capscore import score_file
from ..benchmarks.scoring import ScoringOptions
from ..matching.vocabulary import Vocabulary
from ..results.results import Run
from ..truths.oracle import PresenceOracle, Truth
from .cluster import Cluster, cluster_options, skipping
from .emit import emit, score_and_emit
from .files import INPUT, OUTPUT
from .options import Output, output_options, scoring_options

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
@cluster_options
@scoring_options
@output_options
def command(
    captions: tuple[str, ...],
    truth: str | None,
    vocabulary: str,
    dopa: str | None,
    dopa_vocabulary: str,
    per_caption: str | None,
    cluster: Cluster,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """Scores caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input. Captions of a billion: docs/scale.md.
    """
    if cluster.engine:
        if per_caption or not truth:
            raise click.UsageError("--engine needs --truth, and takes no --per-caption")
        from ..distributed import ray

        given: dict[str, Any] = {
            "truth": truth,
            "vocabulary": vocabulary,
            "dopa": dopa,
            "dopa_vocabulary": dopa_vocabulary,
        }
        on_ray = partial(ray.score, workers=scoring.workers, **given, **skipping(scoring))
        return emit(cluster.runs(captions, output, on_ray), output)
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    dagger = None
    if dopa:
        matrix, second = PresenceOracle.load(dopa), Vocabulary.load(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=scoring.any_fingerprint)

    def score(path: str, **how: Any) -> Run:
        return score_file(path, labels, oracle, scoring, dagger=dagger, **how)

    return score_and_emit(captions, per_caption, output, score)
