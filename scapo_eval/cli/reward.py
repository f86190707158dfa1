"""``scapo-eval reward``: computes SCAPO's reward of every response and subsentence in a rollout file."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..benchmarks.rollouts import reward_file
from ..benchmarks.scoring import ScoringOptions
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..matching.vocabulary import Vocabulary
from ..rewarding.reward import LAMBDAS, Level, RewardConfig, SubsentenceReward
from ..segmenting.segment import RULES
from ..truths.oracle import PresenceOracle
from .base import Verb
from .echo import echo
from .files import OUTPUT, PLAIN, source_of
from .numbers import Number
from .options import complete_kinds, scoring_options

_DEFAULT = RewardConfig()


@click.command("reward", cls=Verb)
@click.argument("rollouts", type=PLAIN, required=True)
@click.option("--truth", type=PLAIN, required=True, metavar="FILE", help="Ground truth.")
@click.option(
    "--vocabulary",
    type=PLAIN,
    default="coco80",
    show_default=True,
    metavar="NAME|FILE",
    help="Labels and their aliases.",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default=_DEFAULT.rule,
    show_default=True,
    help="Segmentation rule for responses.",
)
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default=_DEFAULT.level,
    show_default=True,
    help="Reward pieces, or whole responses by 1 - Hal. Rate or Cap. Score.",
)
@click.option(
    "--beta",
    type=Number(),
    default=_DEFAULT.beta,
    show_default=True,
    help="With --level cap: weight of Cover (1: Cap. Score; below 1, hallucinations count more).",
)
@click.option("--r-g", type=Number(), default=_DEFAULT.r_g, show_default=True, help="Gain for new supported objects.")
@click.option(
    "--r-rep",
    type=Number(),
    default=_DEFAULT.r_rep,
    show_default=True,
    help="Gain for repeated objects. Negative values are penalties.",
)
@click.option("--r-h", type=Number(), default=_DEFAULT.r_h, show_default=True, help="Penalty for hallucinated objects.")
@click.option(
    "--r-reg", type=Number(), default=_DEFAULT.r_reg, show_default=True, help="Penalty for pieces without objects."
)
@click.option("--lam-g", type=click.Choice(tuple(LAMBDAS)), default="min1", show_default=True, help="Scaling of gains.")
@click.option(
    "--lam-h", type=click.Choice(tuple(LAMBDAS)), default="min1", show_default=True, help="Scaling of penalties."
)
@click.option("--answer-only", is_flag=True, help="Ignore reasoning and tool text (<think>, <tool_call>).")
@click.option(
    "--kinds",
    default="presence",
    show_default=True,
    metavar="KIND,...",
    shell_complete=complete_kinds,
    help="Claims that count: presence, count, attribute, relation, text.",
)
@click.option(
    "--scenes",
    type=PLAIN,
    multiple=True,
    metavar="FILE",
    help="For kinds beyond presence: COCO, Visual Genome, scene graphs, references or claim matrices, in order.",
)
@click.option("--additive", is_flag=True, help="Add gain and penalty of a piece (ablation).")
@scoring_options
@click.option(
    "-o",
    "--output",
    default="-",
    type=OUTPUT,
    metavar="FILE",
    help="Output file of JSON Lines; standard output by default.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary and no warnings.")
def command(
    rollouts: str,
    truth: str,
    vocabulary: str,
    scoring: ScoringOptions,
    output: str,
    quiet: bool,
    **settings: Any,
) -> int:
    """Writes one JSON line per response: its reward, its counts and its pieces.

    ROLLOUTS are JSON Lines with image_id and response, rollout dumps from verl, completions from TRL (parquet), or
    captions from any tool. A hyphen (-) selects standard input.
    """
    reward = SubsentenceReward(
        Vocabulary.load(vocabulary),
        PresenceOracle.load(truth),
        RewardConfig(claims=scoring.claims, **settings),
        any_fingerprint=scoring.any_fingerprint,
    )

    def warn(text: str) -> None:
        if not quiet:
            echo(f"scapo-eval: warning: {text}", err=True)

    with atomic_write(output) as stream:
        scored, total = reward_file(
            source_of(rollouts),
            reward,
            scoring,
            write=lambda record: stream.write(dump_json(record) + b"\n"),
            warn=warn,
        )
    if quiet:
        return 0
    for note in reward.truth.notes:
        warn(note)
    n, empty = scored.n_records, scored.table.counts()["empty"]
    left_out = (
        f", {scored.skipped} faulty and {scored.unknown_images} of unknown images omitted" if scored.left_out else ""
    )
    echo(f"{n:,} responses ({empty:,} empty){left_out}; mean reward {total / n:.4f}", err=True)
    unfinished = "|unfinished:dropped" if scoring.drop_unfinished else ""
    echo(f"{reward.signature}{unfinished}|n:{n}|skip:{scored.left_out}", err=True)
    return 0
