"""``scapo-eval density``: annotated objects and rewarded subsentences per response (the paper's density table)."""

from __future__ import annotations

from itertools import product

import click

from ..claims import CLAIMS, Claims
from ..counts import CountBuilder
from ..errors import InputError, InputErrors
from ..io.files import display_name
from ..io.rollouts import rollout_blocks
from ..metrics.density import COLUMNS, density_counts, density_metric
from ..oracle import PresenceOracle
from ..results import System
from ..reward import RewardConfig, SubsentenceReward
from ..segment import RULES
from ..signature import digest, signature
from ..types import Rule
from ..vocabulary import Vocabulary
from .common import Output, emit, output_options
from .reward import known_images

DEFAULT_VOCABULARY = "coco80"


@click.command("density")
@click.argument("rollouts", required=True)
@click.option(
    "--truth", required=True, multiple=True, metavar="FILE", help="What is in the images; once per vocabulary."
)
@click.option(
    "--vocabulary",
    multiple=True,
    metavar="NAME|FILE",
    help=f"Labels and their aliases, in the order of the truths.  [default: {DEFAULT_VOCABULARY}]",
)
@click.option(
    "--rule", type=click.Choice(RULES), default="subsentence", show_default=True, help="How responses are cut."
)
@click.option("--calibrate", is_flag=True, help="Show every rule, to choose one by your own responses.")
@click.option("--claims", type=click.Choice(CLAIMS), default="all", show_default=True, help="Which mentions count.")
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option(
    "--on-unknown-image",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Responses to images that a truth does not have.",
)
@click.option("--skip-bad", is_flag=True, help="Leave faulty records out and count them in the signature.")
@output_options
def command(
    rollouts: str,
    truth: tuple[str, ...],
    vocabulary: tuple[str, ...],
    rule: Rule,
    calibrate: bool,
    claims: Claims,
    any_fingerprint: bool,
    on_unknown_image: str,
    skip_bad: bool,
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
    rules: tuple[Rule, ...] = RULES if calibrate else (rule,)
    rewards = [
        SubsentenceReward(labels, oracle, RewardConfig(rule=r, claims=claims), any_fingerprint=any_fingerprint)
        for (labels, oracle), r in product(annotations, rules)
    ]
    builders = [CountBuilder(COLUMNS) for _ in rewards]
    skipped: list[InputError] = []
    unknown: list[InputError] = []
    n = 0
    for block in rollout_blocks(rollouts, on_error=skipped.append if skip_bad else None, warn=output.warn):
        for _, oracle in annotations:
            block = known_images(block, oracle, display_name(rollouts), unknown)
        images, texts = [row.image_id for row in block], [row.caption for row in block]
        n += len(block)
        for builder, reward in zip(builders, rewards, strict=True):
            builder.add(images, density_counts(reward.batch(images, texts)))
    if unknown and on_unknown_image == "error":
        raise InputErrors(unknown)
    if not n:
        raise InputError("no response is left", path=display_name(rollouts))
    left_out = len(skipped) + len(unknown)
    systems = []
    for builder, reward in zip(builders, rewards, strict=True):
        table = builder.table()
        labels, oracle = reward.truth.vocabulary, reward.truth.oracle
        line = signature(
            "density",
            vocab=f"{labels.name}@{labels.fingerprint}",
            oracle=oracle.fingerprint,
            world=oracle.world,
            **reward.config.described(),
            n=n,
            ids=digest(table.image_ids),
            skip=left_out,
            bs=output.resamples,
            seed=output.seed,
        )
        name = f"{labels.name} {reward.config.rule}" if calibrate else labels.name
        notes = (reward.truth.warning,) if reward.truth.warning and reward.config.rule == rules[0] else ()
        counts = {"skipped": len(skipped), "unknown_images": len(unknown)}
        systems.append(System(name, line, density_metric(), table, n, counts, notes=notes))
    return emit(systems, output)
