"""``scapo-eval pairs``: creates preference pairs from sampled responses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import click

from ..base.errors import InputError
from ..benchmarks.pairs import DATASET_INFO, By, Pair, PairFormat, PairSettings, pair_file, pair_record
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..inference.sources import ImageFolder
from ..matching.vocabulary import Vocabulary
from ..truths.oracle import PresenceOracle
from .base import Verb
from .echo import echo
from .files import OUTPUT, PLAIN, source_of
from .numbers import Number
from .options import key_options, on_bad_record

_DEFAULT = PairSettings()


@click.command("pairs", cls=Verb)
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
    "--format", "layout", type=click.Choice(get_args(PairFormat)), required=True, help="Data format to write."
)
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default=_DEFAULT.by,
    show_default=True,
    help="Score for the comparison: Cap. Score, Hal. Rate, SCAPO's reward, or the next sentence after equal text.",
)
@click.option(
    "--min-gap",
    type=Number(),
    help="Minimum gap between the scores.  [default: 10 points for rates, 1 for rewards]",
)
@click.option(
    "--length-ratio",
    type=Number(),
    default=_DEFAULT.length_ratio,
    show_default=True,
    help="Maximum ratio of the numbers of words in the longer and the shorter text.",
)
@click.option(
    "--max-pairs",
    type=int,
    default=_DEFAULT.max_pairs,
    show_default=True,
    help="Maximum number of pairs per prompt, those with the largest gaps.",
)
@click.option("--images", required=True, metavar="FOLDER", help="Folder of the images, for the paths in the output.")
@click.option("--prompt", metavar="TEXT", help="Prompt of records that contain none.")
@on_bad_record
@key_options
@click.option(
    "--on-unknown-image",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Treatment of responses whose image has no ground truth.",
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=OUTPUT,
    metavar="FILE",
    help="Output file of the pairs; standard output by default.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
def command(
    rollouts: str,
    truth: str,
    vocabulary: str,
    layout: PairFormat,
    by: By,
    min_gap: float | None,
    length_ratio: float,
    max_pairs: int,
    images: str,
    prompt: str | None,
    skip_bad: bool,
    on_unknown_image: str,
    output: str,
    quiet: bool,
) -> int:
    """Writes preference pairs (DPO) from several sampled responses per prompt, one pair per JSON line.

    ROLLOUTS are files that scapo-eval reward reads. Responses to the same image and prompt are compared. Responses with
    equal scores form no pair, and each text is in at most one pair.
    """
    settings = PairSettings(by, min_gap, length_ratio, max_pairs)
    folder = ImageFolder(images)

    def record(pair: Pair) -> bytes:
        image = folder.find(pair.image_id)
        if not os.path.isfile(image):
            raise InputError(f"image {pair.image_id}: file not found, or several files have this id", path=images)
        return dump_json(pair_record(pair, layout, by, image)) + b"\n"

    with atomic_write(output) as stream:
        summary = pair_file(
            source_of(rollouts),
            Vocabulary.load(vocabulary),
            PresenceOracle.load(truth),
            settings,
            prompt=prompt,
            skip_bad=skip_bad,
            skip_unknown_images=on_unknown_image == "skip",
            write=lambda pair: stream.write(record(pair)),
        )
    if not quiet:
        omitted = ((summary.skipped, "faulty"), (summary.unknown_images, "of unknown images"))
        left_out = "".join(f", {n:,} {which} omitted" for n, which in omitted if n)
        echo(
            f"{summary.pairs:,} pairs for {summary.paired_prompts:,} of {summary.prompts:,} prompts, "
            f"from {summary.responses:,} responses{left_out}",
            err=True,
        )
        if layout == "llamafactory":
            name = "FILE" if output == "-" else Path(output).name
            entry = json.dumps({"scapo_pairs": {"file_name": name, **DATASET_INFO}})
            echo(f"dataset_info.json: {entry}", err=True)
    return 0
