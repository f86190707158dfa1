"""``scapo-eval show``: displays the captions of a given image, or the worst captions, with colored mentions, verdicts
and missed objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.text import Text

from ..base.errors import FaultList, InputError
from ..base.ids import canonical_image_id
from ..benchmarks.capscore import CaptionScorer, worst_captions
from ..benchmarks.evidence import MARKS
from ..benchmarks.provenance import caption_file
from ..benchmarks.scoring import ScoringOptions
from ..files.files import display_name
from ..files.json_text import dump_json
from ..files.source import Input
from ..matching.uses import READINGS, Reading
from ..matching.vocabulary import Vocabulary
from ..readers.captions import Captions, caption_blocks, parsed
from ..results.results import Run
from ..truths.oracle import PresenceOracle, Truth
from .base import Verb
from .common import add_common_options
from .emit import emit
from .files import INPUT, first_file, named_files, named_runs
from .options import Output, key_options, on_bad_record, output_options
from .screen import SafeConsole

STYLES = {"supported": "bold green", "hallucinated": "bold red underline", "unknown": "yellow"}


@click.command("show", cls=Verb)
@click.argument("results", type=INPUT, nargs=-1, required=True)
@output_options
def table(results: tuple[str, ...], output: Output) -> int:
    """Shows results files. All systems are compared with the first system.

    RESULTS are results files that a scoring verb wrote with -o. Caption files are displayed differently; see scapo-eval
    show --help.
    """
    return emit(runs_of(results, output), output)


def runs_of(results: Sequence[str], output: Output) -> list[Run]:
    """Returns the runs in results files under the given system names.

    Raises:
        NotResults: If a file is not a results file.
    """
    return [run.redrawn(output.resampling) for run in named_runs(results)]


class Show(Verb):
    """Command that displays captions, or the table of results if the first file is a results file."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the context of the command if the inputs are captions, or the context of :data:`table` if they are
        results files.
        """
        both = click.Command("show", params=[*self.params, *table.params])
        first = None if parent is None else first_file(args, both, parent)
        if first is not None and first[1].kind.name == "results":
            add_common_options(table)
            return table.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("show", cls=Show)
@click.argument("captions", type=INPUT, nargs=-1, required=True)
@click.option("--image", metavar="ID", help="Show one image, in any spelling of its id, instead of the worst captions.")
@click.option("--worst", type=click.IntRange(1), default=5, show_default=True, help="Number of captions per file.")
@click.option("--truth", type=INPUT, metavar="FILE", help="Ground truth. Without it, records need 'objects'.")
@click.option(
    "--vocabulary", type=INPUT, default="coco80", show_default=True, metavar="NAME|FILE", help="Labels and aliases."
)
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option("--claims", type=click.Choice(READINGS), default="all", show_default=True, help="Mentions that count.")
@on_bad_record
@key_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per caption.")
@click.option("--width", type=click.IntRange(40), help="Width in characters.")
@click.option("--no-color", is_flag=True, help="No colors; verdicts are still marked.")
def command(
    captions: tuple[str, ...],
    image: str | None,
    worst: int,
    truth: str | None,
    vocabulary: str,
    any_fingerprint: bool,
    claims: Reading,
    skip_bad: bool,
    as_json: bool,
    width: int | None,
    no_color: bool,
) -> None:
    """Shows the matched and missed objects of captions. For results files, the command shows the table of results.

    With --image ID, the captions of one image are shown. Otherwise, the worst captions of each file are shown, sorted
    by the number of hallucinated labels (highest first) and then by caption score (lowest first). The marks are +
    (supported), ! (hallucinated), ? (unknown) and ~ (ignore phrase).
    """
    given = click.get_current_context().get_parameter_source("worst")
    if image is not None and given is ParameterSource.COMMANDLINE:
        raise click.UsageError("--image shows all captions of one image and excludes --worst")
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    console = SafeConsole(width=width, no_color=no_color or None, highlight=False)
    options = ScoringOptions(claims=claims, skip_bad=skip_bad, any_fingerprint=any_fingerprint, any_ids=True)
    for name, record, scorer in (
        _of_image(captions, image, labels, oracle, options)
        if image is not None
        else _worst_of(captions, worst, labels, oracle, options)
    ):
        if as_json:
            sys.stdout.write(dump_json({"system": name, **record}).decode() + "\n")
        else:
            present = scorer.truths[0].oracle.present(record["image_id"])
            _print(console, name, record, scorer, present=sorted(present))


ShownCaption = tuple[str, dict[str, Any], CaptionScorer]
"""System name, evidence of a caption, and its scorer."""


def _of_image(
    captions: Sequence[str], image: str, labels: Vocabulary, oracle: PresenceOracle | None, options: ScoringOptions
) -> Iterator[ShownCaption]:
    try:
        wanted = canonical_image_id(image)
    except ValueError as error:
        raise InputError(f"--image {error}") from None
    shown = False
    named = named_files(captions)
    for name, path in named:
        with caption_file(path):
            mine = _captions_of(path, wanted)
        if not mine.captions:
            continue
        if oracle is None and any(objects is None for objects in mine.objects):
            raise InputError(
                "missing ground truth: use --truth FILE, or add 'objects' to every record", path=display_name(path)
            )
        facts = oracle or PresenceOracle.from_objects({wanted: mine.objects[0] or []}, source=display_name(path))
        truth = Truth.of(facts, labels, any_fingerprint=options.any_fingerprint)
        scorer = CaptionScorer((truth,), claims=options.claims)
        faults = FaultList()
        block = scorer.score(mine, display_name(path), faults)
        faults.raise_if_any()
        for record in scorer.records(block):
            shown = True
            yield name, record, scorer
    if not shown:
        raise InputError(f"no caption for image '{image}'", path=", ".join(display_name(path) for _, path in named))


def _worst_of(
    captions: Sequence[str], worst: int, labels: Vocabulary, oracle: PresenceOracle | None, options: ScoringOptions
) -> Iterator[ShownCaption]:
    for name, path in named_files(captions):
        with caption_file(path):
            worst_records = worst_captions(path, labels, oracle, options, worst)
        yield from ((name, record, scorer) for record, scorer in worst_records)


def _captions_of(path: Input, image: str) -> Captions:
    """Returns the captions of one image from a file. Faults in records for other images are ignored."""
    mine = Captions()
    blocks = caption_blocks(path, on_error=lambda _: None, warn=lambda _: None)
    for part in parsed(blocks, FaultList(lambda _: None)):
        mine.extend(part.only(np.array([i == image for i in part.image_ids])))
    return mine


def _print(console: SafeConsole, name: str, record: dict[str, Any], scorer: CaptionScorer, present: list[str]) -> None:
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
        labels = dict.fromkeys(m["label"] for m in record["mentions"] if m["verdict"] == verdict)
        if labels:
            console.print(
                Text(f"{verdict}: ", style=STYLES[verdict]).append(
                    ", ".join(labels), style="default not bold not underline"
                )
            )
    console.print(Text("missed: ", style="bold").append(", ".join(record["missed"]) or "nothing", style="not bold"))
    console.print(Text(f"in the image: {', '.join(present) or 'nothing of the vocabulary'}", style="dim"))
    console.print()


def _spans(record: dict[str, Any], scorer: CaptionScorer) -> Iterator[tuple[int, int, str, str]]:
    """Yields ``(start, end, style, mark)`` for mentions and ignore phrases in text order."""
    spans = [(m["start"], m["end"], STYLES[m["verdict"]], MARKS[m["verdict"]]) for m in record["mentions"]]
    spans += [(start, end, "dim", "~") for start, end in scorer.matchers[0].find_ignored(record["caption"])]
    yield from sorted(spans)
