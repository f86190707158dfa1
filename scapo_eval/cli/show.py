"""``scapo-eval show``: one image's captions with colored mentions, verdicts and missed objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.text import Text

from ..claims import CLAIMS, Claims
from ..errors import InputError
from ..ids import canonical_image_id
from ..io.captions import Captions, caption_blocks
from ..io.files import FaultList, display_name, dump_json
from ..metrics.capscore import CaptionScorer
from ..oracle import PresenceOracle, Truth
from ..results import system_names
from ..vocabulary import Vocabulary

STYLES = {"supported": "bold green", "hallucinated": "bold red underline", "unknown": "yellow"}
MARKS = {"supported": "+", "hallucinated": "!", "unknown": "?"}


@click.command("show")
@click.argument("captions", nargs=-1, required=True)
@click.option("--image", required=True, metavar="ID", help="The image, in any spelling of its id.")
@click.option("--truth", metavar="FILE", help="What is in the images; without it every record needs 'objects'.")
@click.option("--vocabulary", default="coco80", show_default=True, metavar="NAME|FILE", help="Labels and aliases.")
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option("--claims", type=click.Choice(CLAIMS), default="all", show_default=True, help="Mentions that count.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per caption.")
@click.option("--width", type=click.IntRange(40), help="Width in characters.")
@click.option("--no-color", is_flag=True, help="No colors; verdicts stay as marks.")
def command(
    captions: tuple[str, ...],
    image: str,
    truth: str | None,
    vocabulary: str,
    any_fingerprint: bool,
    claims: Claims,
    as_json: bool,
    width: int | None,
    no_color: bool,
) -> None:
    """Shows what was matched in the captions of one image, and what was missed.

    Marks: + supported, ! hallucinated, ? unknown to the truth, ~ an ignore phrase.
    """
    try:
        wanted = canonical_image_id(image)
    except ValueError as error:
        raise InputError(f"--image {error}") from None
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    console = Console(width=width, no_color=no_color or None, highlight=False)
    found = False
    for path, name in zip(captions, system_names(captions), strict=True):
        mine = _captions_of(path, wanted)
        if not mine.captions:
            continue
        if oracle is None and any(objects is None for objects in mine.objects):
            raise InputError("no truth: give --truth FILE, or 'objects' in every record", path=display_name(path))
        facts = oracle or PresenceOracle.from_objects({wanted: mine.objects[0] or []}, source=display_name(path))
        scorer = CaptionScorer((Truth.of(facts, labels, any_fingerprint=any_fingerprint),), claims=claims)
        faults = FaultList()
        block = scorer.score(mine, display_name(path), faults)
        faults.raise_if_any()
        for record in scorer.records(block):
            found = True
            if as_json:
                sys.stdout.write(dump_json({"system": name, **record}).decode() + "\n")
            else:
                _print(console, name, record, scorer, present=sorted(facts.present(wanted)))
    if not found:
        raise InputError(f"no caption of image '{image}'", path=", ".join(map(display_name, captions)))


def _captions_of(path: str, image: str) -> Captions:
    """The captions of one image; faults elsewhere in the file do not matter here."""
    mine = Captions()
    for block in caption_blocks(path, on_error=lambda _: None, warn=lambda _: None):
        parsed = block.parse(FaultList(lambda _: None))
        for k in np.flatnonzero([i == image for i in parsed.image_ids]).tolist():
            for field in Captions.__slots__:
                getattr(mine, field).append(getattr(parsed, field)[k])
    return mine


def _print(console: Console, name: str, record: dict[str, Any], scorer: CaptionScorer, present: list[str]) -> None:
    text = record["caption"]
    body = Text()
    at = 0
    for start, end, style, mark in _spans(record, scorer):
        body.append(text[at:start])
        body.append(text[start:end], style=style)
        body.append(mark, style="dim")
        at = end
    body.append(text[at:])
    console.print(Text(f"{name}  image {record['image_id']}  line {record['line']}", style="bold"))
    console.print(body)
    for verdict in STYLES:
        said = dict.fromkeys(m["label"] for m in record["mentions"] if m["verdict"] == verdict)
        if said:
            console.print(
                Text(f"{verdict}: ", style=STYLES[verdict]).append(
                    ", ".join(said), style="default not bold not underline"
                )
            )
    console.print(Text("missed: ", style="bold").append(", ".join(record["missed"]) or "nothing", style="not bold"))
    console.print(Text(f"in the image: {', '.join(present) or 'nothing of the vocabulary'}", style="dim"))
    console.print()


def _spans(record: dict[str, Any], scorer: CaptionScorer) -> Iterator[tuple[int, int, str, str]]:
    """``(start, end, style, mark)`` of mentions and ignore phrases in text order."""
    found = [(m["start"], m["end"], STYLES[m["verdict"]], MARKS[m["verdict"]]) for m in record["mentions"]]
    found += [(start, end, "dim", "~") for start, end in scorer.matchers[0].find_ignored(record["caption"])]
    yield from sorted(found)
