"""``scapo-eval density``: annotated objects and rewarded subsentences per response (the paper's density table)."""

from __future__ import annotations

import click

from ..base.types import Rule
from ..benchmarks.density import score_density
from ..benchmarks.scoring import ScoringOptions
from ..matching.vocabulary import Vocabulary
from ..segmenting.segment import RULES
from ..truths.oracle import PresenceOracle
from .emit import emit
from .files import INPUT
from .options import Output, output_options, scoring_options

DEFAULT_VOCABULARY = "coco80"


@click.command("density")
@click.argument("rollouts", type=INPUT, required=True)
@click.option(
    "--truth",
    type=INPUT,
    required=True,
    multiple=True,
    metavar="FILE",
    help="What is in the images; once per vocabulary.",
)
@click.option(
    "--vocabulary",
    type=INPUT,
    multiple=True,
    metavar="NAME|FILE",
    help=f"Labels and their aliases, in the order of the truths.  [default: {DEFAULT_VOCABULARY}]",
)
@click.option(
    "--rule", type=click.Choice(RULES), default="subsentence", show_default=True, help="How responses are cut."
)
@click.option("--calibrate", is_flag=True, help="Show every rule, to choose one by your own responses.")
@scoring_options
@output_options
def command(
    rollouts: str,
    truth: tuple[str, ...],
    vocabulary: tuple[str, ...],
    rule: Rule,
    calibrate: bool,
    scoring: ScoringOptions,
    output: Output,
) -> int:
    """Objects per response (all, supported, hallucinated) and subsentences (all, and with such objects).

    ROLLOUTS are what scapo-eval reward reads. Several annotations side by side:

    scapo-eval density rollouts.jsonl --truth instances.json --vocabulary coco80 --truth dopa.npz --vocabulary dopa160
    """
    vocabulary = vocabulary or (DEFAULT_VOCABULARY,)
    if len(vocabulary) != len(truth):
        raise click.UsageError(f"{len(truth)} --truth for {len(vocabulary)} --vocabulary: give one for each")
    annotations = [
        (Vocabulary.load(name), PresenceOracle.load(path)) for name, path in zip(vocabulary, truth, strict=True)
    ]
    rules = RULES if calibrate else (rule,)
    runs = score_density(rollouts, annotations, rules, scoring, resampling=output.resampling, warn=output.warn)
    return emit(runs, output, allow_different=True)
