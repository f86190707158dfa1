"""``scapo-eval reward``: SCAPO's reward of every response and subsentence of a rollout file."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..claims import CLAIMS
from ..errors import InputError, InputErrors
from ..io.files import atomic_write, display_name, dump_json
from ..io.formats import ForeignCaption
from ..io.rollouts import rollout_blocks
from ..oracle import PresenceOracle
from ..reward import LAMBDAS, Level, RewardConfig, RewardResult, SubsentenceReward
from ..segment import RULES
from ..vocabulary import Vocabulary

_DEFAULT = RewardConfig()


@click.command("reward")
@click.argument("rollouts", required=True)
@click.option("--truth", required=True, metavar="FILE", help="What is in the images.")
@click.option(
    "--vocabulary", default="coco80", show_default=True, metavar="NAME|FILE", help="Labels and their aliases."
)
@click.option(
    "--rule", type=click.Choice(RULES), default=_DEFAULT.rule, show_default=True, help="How responses are cut."
)
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default=_DEFAULT.level,
    show_default=True,
    help="Reward pieces, or whole responses by 1 - Hal. Rate or Cap. Score.",
)
@click.option("--r-g", type=float, default=_DEFAULT.r_g, show_default=True, help="Gain for new supported objects.")
@click.option("--r-rep", type=float, default=_DEFAULT.r_rep, show_default=True, help="Gain for repeated ones.")
@click.option("--r-h", type=float, default=_DEFAULT.r_h, show_default=True, help="Penalty for hallucinated ones.")
@click.option(
    "--r-reg", type=float, default=_DEFAULT.r_reg, show_default=True, help="Penalty of a piece without objects."
)
@click.option("--lam-g", type=click.Choice(tuple(LAMBDAS)), default="min1", show_default=True, help="Scaling of gains.")
@click.option(
    "--lam-h", type=click.Choice(tuple(LAMBDAS)), default="min1", show_default=True, help="Scaling of penalties."
)
@click.option("--additive", is_flag=True, help="Sum gain and penalty of a piece (ablation).")
@click.option("--claims", type=click.Choice(CLAIMS), default="all", show_default=True, help="Which mentions count.")
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option(
    "--on-unknown-image",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Responses to images that the truth does not have.",
)
@click.option("--skip-bad", is_flag=True, help="Leave faulty records out and count them.")
@click.option(
    "-o", "--output", default="-", metavar="FILE", help="Where the JSON Lines go; standard output by default."
)
@click.option("-q", "--quiet", is_flag=True, help="No summary and no warnings.")
def command(
    rollouts: str,
    truth: str,
    vocabulary: str,
    any_fingerprint: bool,
    on_unknown_image: str,
    skip_bad: bool,
    output: str,
    quiet: bool,
    **settings: Any,
) -> int:
    """Writes one JSON line per response: its reward, its counts and its pieces.

    ROLLOUTS are JSON Lines with image_id and response, verl's rollout dumps, TRL's completions (parquet) or
    captions of any tool; - is standard input.
    """
    reward = SubsentenceReward(
        Vocabulary.load(vocabulary),
        PresenceOracle.load(truth),
        RewardConfig(**settings),
        any_fingerprint=any_fingerprint,
    )
    skipped: list[InputError] = []
    unknown: list[InputError] = []
    n = empty = 0
    total = 0.0
    blocks = rollout_blocks(rollouts, on_error=skipped.append if skip_bad else None)
    with atomic_write(output) as stream:
        for block in blocks:
            kept = known_images(block, reward.truth.oracle, display_name(rollouts), unknown)
            columns = reward.batch([row.image_id for row in kept], [row.caption for row in kept])
            if unknown and on_unknown_image == "error":
                continue  # read on, so that all faults are named
            n, empty, total = n + len(columns), empty + columns.n_empty, total + float(columns.total.sum())
            stream.writelines(
                dump_json(_record(row, result)) + b"\n" for row, result in zip(kept, columns.results(), strict=True)
            )
        if unknown and on_unknown_image == "error":
            raise InputErrors(unknown)
        if not n:
            raise InputError("no response is left", path=display_name(rollouts))
    if not quiet:
        for note in (reward.truth.warning,):
            if note:
                click.echo(f"scapo-eval: warning: {note}", err=True)
        left_out = (
            f", {len(skipped)} faulty and {len(unknown)} of unknown images left out" if skipped or unknown else ""
        )
        click.echo(f"{n:,} responses ({empty:,} empty){left_out}; mean reward {total / n:.4f}", err=True)
        click.echo(f"{reward.signature}|n:{n}|skip:{len(skipped) + len(unknown)}", err=True)
    return 0


def known_images(
    block: list[ForeignCaption], oracle: PresenceOracle, name: str, unknown: list[InputError]
) -> list[ForeignCaption]:
    """The responses whose image the truth knows; the others become faults in ``unknown``."""
    for row in block:
        if row.image_id not in oracle.index:
            unknown.append(
                InputError(f"unknown image id '{row.image_id}' (not in {oracle.source})", path=name, line=row.line)
            )
    return [row for row in block if row.image_id in oracle.index]


def _record(row: ForeignCaption, result: RewardResult) -> dict[str, Any]:
    return {
        "line": row.line,
        "image_id": row.image_id,
        "response": row.caption,
        "total": result.total,
        "generated": result.generated,
        "hallucinated": result.hallucinated,
        "covered": result.covered,
        "unknown": result.unknown,
        "parts": [
            {**part._asdict(), "text": row.caption[part.start : part.end], "claims": claims}
            for part, claims in zip(result.parts, result.claims, strict=True)
        ],
    }
