"""``scapo-eval power``: estimates the differences that a sample can detect, based on the results of a pilot."""

from __future__ import annotations

import click
from rich.text import Text

from ..base.text import guarded
from ..files.json_text import dump_json
from ..results.metric import MetricSet
from ..results.power import Power, as_record, power
from ..results.render import chosen_metrics, number
from .base import Verb
from .echo import echo
from .emit import output_format
from .files import INPUT, named_runs
from .numbers import NumberRange
from .options import OutputFormat, format_options, metrics_option
from .screen import Screen
from .tables import aligned

COLUMNS = (
    "system",
    "baseline",
    "metric",
    "value",
    "pilot_images",
    "images",
    "detectable",
    "difference",
    "power",
    "images_needed",
)


@click.command("power", cls=Verb)
@click.argument("results", type=INPUT, nargs=-1, required=True)
@click.option(
    "--difference",
    type=NumberRange(0, min_open=True),
    metavar="POINTS",
    help="True difference, in points or a plain number's own unit.",
)
@click.option(
    "--images", type=click.IntRange(1), metavar="N", help="Planned number of images.  [default: as in the pilot]"
)
@metrics_option(help="Show only these metrics.")
@format_options
@click.option("--width", type=click.IntRange(40), help="Width of the table in characters.")
@click.option("--no-color", is_flag=True, help="No colors (NO_COLOR works, too).")
def command(
    results: tuple[str, ...],
    difference: float | None,
    images: int | None,
    metrics: tuple[str, ...] | None,
    form: OutputFormat | None,
    as_json: bool,
    width: int | None,
    no_color: bool,
) -> None:
    """Estimates the differences that can be detected with a sample.

    RESULTS are results files of a pilot, written by a scoring verb with -o. Further systems are compared with the first
    system. A single system is compared with a hypothetical similar system that fails on other images, which is the
    worst case. Differences are in percentage points, or in the metric's own unit if the metric is not a fraction.
    """
    shape = output_format(form, as_json=as_json, width=width)
    runs = named_runs(results)
    metric_set = runs[0].metric_set
    wanted = chosen_metrics([metric_set], metrics)[0]
    powers: list[Power] = []
    for plain in (False, True):
        names = [name for name in wanted if (name in metric_set.plain_numbers) == plain]
        gap = None if difference is None else difference if plain else difference / 100
        powers += power(runs, difference=gap, images=images, metrics=names) if names else []
    powers.sort(key=lambda entry: (entry.system, wanted.index(entry.metric)))
    if shape == "json":
        echo(dump_json({"power": [as_record(entry) for entry in powers]}))
    elif shape == "tsv":
        rows = [COLUMNS, *(tuple(_cells(entry, metric_set).values()) for entry in powers)]
        echo("".join("\t".join(map(guarded, row)) + "\n" for row in rows), nl=False)
    else:
        _show(Screen(width=width, no_color=no_color), powers, metric_set)


def _cells(entry: Power, metric_set: MetricSet) -> dict[str, str]:
    plain = entry.metric in metric_set.plain_numbers
    return {
        "system": entry.system,
        "baseline": entry.baseline or "",
        "metric": entry.metric,
        "value": number(entry.value, plain),
        "pilot_images": str(entry.pilot_images),
        "images": str(entry.images),
        "detectable": number(entry.detectable, plain, 2),
        "difference": "" if entry.difference is None else number(entry.difference, plain, 2),
        "power": "" if entry.power is None else f"{100 * entry.power:.0f}",
        "images_needed": "" if entry.images_needed is None else str(entry.images_needed),
    }


def _show(screen: Screen, powers: list[Power], metric_set: MetricSet) -> None:
    console = screen.console()
    for system, baseline in dict.fromkeys((entry.system, entry.baseline) for entry in powers):
        own = [entry for entry in powers if (entry.system, entry.baseline) == (system, baseline)]
        against = f"{system} against {baseline}" if baseline else f"{system} against a similar system, unpaired"
        console.print(Text(f"{against}: {own[0].pilot_images:,} images", style="bold"), soft_wrap=True)
        heads = ["metric", "value", f"detectable with {own[0].images:,} images"]
        if own[0].difference is not None:
            heads += ["difference", "power", "images for 80 %"]
        lines = [[Text(head, style="dim") for head in heads]]
        for entry in own:
            cells = _cells(entry, metric_set)
            row = [cells["metric"], cells["value"], cells["detectable"]]
            if entry.power is not None:
                row += [cells["difference"], f"{cells['power']} %", f"{entry.images_needed or 0:,}"]
            lines.append([Text(text) for text in row + [""] * (len(heads) - len(row))])
        for line in aligned(lines, right=range(1, len(heads))):
            console.print(line, soft_wrap=True)
        console.print()
    console.print(Text("Detectable: found by a two-sided test at the 5 % level with 80 % power.", style="dim"))
