"""``scapo-eval labels``: lists hallucinated and missed objects for each label."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ..base.text import guarded
from ..benchmarks.labels import score_labels
from ..benchmarks.provenance import caption_file
from ..benchmarks.scoring import ScoringOptions
from ..files.json_text import dump_json
from ..matching.vocabulary import Vocabulary
from ..results.render import number
from ..truths.oracle import PresenceOracle
from .base import Verb
from .cluster import refuse_engine
from .echo import echo
from .emit import output_format
from .files import INPUT, named_files
from .options import OutputFormat, format_options, scoring_options
from .screen import Screen, progress
from .tables import aligned, folded

TSV_COLUMNS = (
    "system label mentions claims hallucinated rate low high truth missed miss_rate miss_low miss_high unknown".split()
)


@click.command("labels", cls=Verb)
@click.argument("captions", type=INPUT, nargs=-1, required=True)
@click.option("--truth", type=INPUT, metavar="FILE", help="Ground truth. Without it, records need 'objects'.")
@click.option(
    "--vocabulary", type=INPUT, default="coco80", show_default=True, metavar="NAME|FILE", help="Labels and aliases."
)
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, help="Number of labels and pairs per table."
)
@scoring_options
@format_options
@click.option("--width", type=click.IntRange(40), help="Width of the tables in characters.")
@click.option("--no-color", is_flag=True, help="No colors (NO_COLOR works, too).")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(
    captions: tuple[str, ...],
    truth: str | None,
    vocabulary: str,
    top: int,
    scoring: ScoringOptions,
    form: OutputFormat | None,
    as_json: bool,
    width: int | None,
    no_color: bool,
    quiet: bool,
) -> None:
    """Lists hallucinated and missed objects by label, and labels that are hallucinated together.

    Rates are shares of captions and are given with Wilson's 95 % intervals. A table contains the first --top labels,
    whereas the tsv and json formats contain all labels that are mentioned or present.
    """
    shape = output_format(form, as_json=as_json, width=width)
    screen = Screen(width=width, no_color=no_color, quiet=quiet)
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth) if truth else None
    runs = []
    for name, path in named_files(captions):
        with caption_file(path), progress(screen, name, path.size) as advance:
            runs.append(score_labels(path, labels, oracle, scoring, name=name, on_progress=advance))
    for run in runs:
        for note in run.scores.notes:
            screen.warn(f"{run.scores.name}: {note}")
    if shape == "json":
        echo(dump_json({"systems": [run.to_dict() for run in runs]}))
    elif shape == "tsv":
        sys.stdout.write(_tsv([run.to_dict() for run in runs]))
    else:
        for run in runs:
            _show(screen.console(), run.to_dict(), top)


refuse_engine(command, "the label by label table of one file is")


def _tsv(systems: list[dict[str, Any]]) -> str:
    lines = [TSV_COLUMNS]
    for system in systems:
        rows = {row["label"]: row for row in (*system["invented"], *system["missed"], *system["labels"])}
        for row in rows.values():
            cells = {"system": " ".join(system["name"].split()), **row}
            lines.append([guarded(_cell(cells[column])) for column in TSV_COLUMNS])
    return "".join("\t".join(line) + "\n" for line in lines)


def _cell(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)


def _show(console: Console, system: dict[str, Any], top: int) -> None:
    sizes = f"{system['n_captions']:,} captions, {system['n_images']:,} images"
    console.print(Text(f"{system['name']}: {sizes}", style="bold"), soft_wrap=True)
    _rates(
        console,
        "hallucinated",
        "share of captions that mention it",
        system["invented"],
        "hallucinated",
        "claims",
        "",
        top,
    )
    _rates(console, "missed", "share of captions of images with it", system["missed"], "missed", "truth", "miss_", top)
    together = [(" + ".join(pair["labels"]), pair["captions"]) for pair in system["invented_together"]]
    beside = [(f"{pair['invented']} beside {pair['present']}", pair["captions"]) for pair in system["invented_beside"]]
    _pairs(console, "hallucinated together", together[:top])
    _pairs(console, "hallucinated next to present labels", beside[:top])
    console.print()
    console.print(Text("Shares of captions with Wilson's 95 % intervals (captions as independent).", style="dim"))
    for line in folded(system["signature"], console.width):
        console.print(Text(line, style="dim"), soft_wrap=True)
    console.print()


def _rates(
    console: Console, title: str, of: str, rows: list[dict[str, Any]], few: str, many: str, prefix: str, top: int
) -> None:
    names = ("rate", "low", "high")
    cells = [[Text(title, style="bold"), Text(), Text(of, style="dim"), Text()]]
    for row in rows[:top]:
        rate, low, high = (number(row[f"{prefix}{name}"]) for name in names)
        share = Text(f"{row[few]:,} of {row[many]:,}")
        cells.append([Text(f"  {row['label']}"), share, Text(f"{rate} %"), Text(f"[{low}, {high}]", style="dim")])
    console.print()
    if len(cells) == 1:
        console.print(Text(f"{title}: nothing", style="bold"))
        return
    heading, *body = cells
    console.print(Text.assemble(heading[0], "  ", heading[2]), soft_wrap=True)
    for line in aligned(body, right=(1, 2, 3)):
        console.print(line, soft_wrap=True)
    if len(rows) > top:
        console.print(Text(f"  and {len(rows) - top:,} more (--top, --format tsv)", style="dim"))


def _pairs(console: Console, title: str, pairs: list[tuple[str, int]]) -> None:
    if pairs:
        console.print()
        console.print(Text.assemble(Text(title, style="bold"), Text("  captions", style="dim")))
        for line in aligned([[Text(f"  {text}"), Text(f"{n:,}")] for text, n in pairs], right=(1,)):
            console.print(line, soft_wrap=True)
