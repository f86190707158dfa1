"""``scapo-eval captions.jsonl``: Cap. Score, Hal. and Cover Rate and CHAIR of one or several systems."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

import click

from ..metrics.capscore import score_file
from ..oracle import PresenceOracle, Truth
from ..results import Run, unique_names
from ..scoring import ScoringOptions
from ..vocabulary import Vocabulary
from .emit import emit, score_and_emit
from .files import INPUT, OUTPUT, split_name
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
@click.option(
    "--engine",
    type=click.Choice(["ray"]),
    help="Count on a Ray cluster (extra 'ray'); each argument is one system: a file, a quoted pattern, a URI.",
)
@click.option(
    "--address", metavar="ADDRESS", help="With --engine: the cluster (auto, ray://HOST:10001).  [default: here]"
)
@click.option(
    "--on-bad-file",
    type=click.Choice(["fail", "skip"]),
    help="With --engine: files that cannot be read are an error, or are left out, counted and named.  [default: fail]",
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
    engine: Literal["ray"] | None,
    address: str | None,
    on_bad_file: Literal["fail", "skip"] | None,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """Scores caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input. Captions of a billion: docs/scale.md.
    """
    if engine:
        if per_caption or not truth:
            raise click.UsageError("--engine needs --truth, and takes no --per-caption")
        given = {"truth": truth, "vocabulary": vocabulary, "dopa": dopa, "dopa_vocabulary": dopa_vocabulary}
        return _on_ray(captions, given, address, on_bad_file or "fail", scoring, output)
    if address or on_bad_file:
        raise click.UsageError("--address and --on-bad-file belong to --engine")
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    dagger = None
    if dopa:
        matrix, second = PresenceOracle.load(dopa), Vocabulary.load(dopa_vocabulary)
        dagger = Truth.of(matrix, second, any_fingerprint=scoring.any_fingerprint)

    def score(path: str, **how: Any) -> Run:
        return score_file(path, labels, oracle, scoring, dagger=dagger, **how)

    return score_and_emit(captions, per_caption, output, score)


def _on_ray(
    captions: tuple[str, ...],
    given: dict[str, Any],
    address: str | None,
    on_bad_file: Literal["fail", "skip"],
    scoring: ScoringOptions,
    output: Output,
) -> int:
    from ..distributed import ray

    reading = {each.name: getattr(scoring, each.name) for each in fields(scoring) if each.name != "workers"}
    with ray.connected(address, quiet=output.quiet):
        runs = [
            ray.score(
                path,
                name=name,
                workers=scoring.workers,
                on_bad_file=on_bad_file,
                resamples=output.resamples,
                seed=output.seed,
                **given,
                **reading,
            )
            for name, path in map(split_name, captions)
        ]
    return emit(unique_names(runs), output)
