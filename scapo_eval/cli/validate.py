"""``scapo-eval validate``: compares metrics with human judgments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ..base.errors import InputError
from ..base.text import guarded
from ..files.json_text import dump_json
from ..matching.uses import READINGS, Reading
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED
from ..truths.references import Unnamed
from ..validation.halves import Half
from ..validation.ngrams import NGRAMS
from ..validation.validate import Validation, validate
from .base import Verb
from .common import completing
from .echo import echo
from .emit import output_format
from .files import INPUT, PLAIN, split_name
from .numbers import Seed
from .options import OutputFormat, format_options, metrics_of, reference_options
from .screen import Screen
from .tables import aligned, folded
from .tsv import p_text

AGREEMENT_COLUMNS = "kind rating statistic metric value ci_low ci_high n n_images baseline p_value p_holm".split()


def _range(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    ranges = {}
    for text in texts:
        name, _, bounds = text.rpartition("=")
        try:
            low, high = map(float, bounds.split(":"))
            is_valid = bool(name) and low < high
        except ValueError:
            is_valid = False
        if not is_valid:
            raise click.BadParameter(f"{text!r} is not NAME=LOW:HIGH, for example rating=1:5")
        if name in ranges:
            raise click.BadParameter(f"two ranges for {name!r}")
        ranges[name] = low, high
    return ranges


@click.command("validate", cls=Verb)
@click.argument("judgements", type=PLAIN, metavar="JUDGMENTS")
@click.option(
    "--set", "set_name", metavar="NAME", help="Name of the set, if a file contains several: faithscore-answers."
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=completing(lambda ctx: [*metrics_of(ctx), *NGRAMS, "length"]),
    help="A metric of score, cider_d, bleu_4, rouge_l (extra 'ngrams') or length; may be repeated. The first is the"
    " baseline.",
)
@click.option(
    "--scores",
    type=INPUT,
    multiple=True,
    metavar="NAME=FILE",
    help="Scores from another source (JSON Lines with id and score); may be repeated.",
)
@click.option(
    "--rating", "ratings", multiple=True, metavar="NAME", help="Rating dimension to compare with.  [default: all]"
)
@click.option("--truth", type=INPUT, metavar="FILE", help="Ground truth.")
@click.option(
    "--scenes",
    type=INPUT,
    multiple=True,
    metavar="FILE",
    help="Ground truth beyond presence, as for claims (marked spans, FAITHSCORE's facts); may be repeated.",
)
@click.option("--vocabulary", type=INPUT, metavar="NAME|FILE", help="Labels and aliases, as for score.")
@reference_options
@click.option("--claims", type=click.Choice(READINGS), default="all", show_default=True, help="Mentions that count.")
@click.option("--without", multiple=True, metavar="SYSTEM", help="Omit the texts of a system.")
@click.option(
    "--half",
    type=click.Choice(["fit", "report"]),
    help="Use only the images of one half. cap_people was fitted on 'fit' of THumB.",
)
@click.option(
    "--range", "ranges", multiple=True, callback=_range, metavar="NAME=LOW:HIGH", help="Bounds of your own rating."
)
@click.option(
    "--resamples",
    type=click.IntRange(0, 100_000),
    default=DEFAULT_RESAMPLES,
    show_default=True,
    help="Number of resamples.",
)
@click.option("--seed", type=Seed(), default=DEFAULT_SEED, show_default=True, help="Seed of the resampling.")
@format_options
@click.option("--width", type=click.IntRange(40), help="Width of the tables in characters.")
@click.option("--no-color", is_flag=True, help="No colors (NO_COLOR works, too).")
@click.option("-q", "--quiet", is_flag=True, help="No warnings.")
def command(
    judgements: str,
    set_name: str | None,
    metrics: tuple[str, ...],
    scores: tuple[str, ...],
    ratings: tuple[str, ...],
    truth: str | None,
    scenes: tuple[str, ...],
    vocabulary: str | None,
    references: str | None,
    leave_out_self: bool,
    unnamed: Unnamed | None,
    weights: str | None,
    claims: Reading,
    without: tuple[str, ...],
    half: Half | None,
    ranges: dict[str, tuple[float, float]],
    resamples: int,
    seed: int,
    form: OutputFormat | None,
    as_json: bool,
    width: int | None,
    no_color: bool,
    quiet: bool,
) -> None:
    """Measures the agreement between metrics and people. JUDGMENTS are files with ratings, pairs or marked spans of
    captions.

    THumB, FAITHSCORE, HaELM, Composite and IIW-400 are recognized by their fields. Your own judgments must be JSON
    Lines with the keys ``image_id``, ``caption`` and ``rating`` (docs/validity.md). Intervals are computed with images
    as the units. Every metric is compared with the first metric.
    """
    shape = output_format(form, as_json=as_json, width=width)
    screen = Screen(width=width, no_color=no_color, quiet=quiet)
    columns = dict(map(_named, scores))
    if len(columns) < len(scores):
        raise click.UsageError("two --scores have the same name")
    validation = validate(
        judgements,
        set_name=set_name,
        metrics=metrics,
        scores=columns,
        ratings=ratings,
        truth=truth,
        scenes=scenes,
        references=references,
        leave_out_self=leave_out_self,
        unnamed=unnamed,
        weights=weights,
        vocabulary=vocabulary,
        claims=claims,
        half=half,
        without=without,
        ranges=ranges,
        resamples=resamples,
        seed=seed,
    )
    for note in validation.notes:
        screen.warn(note)
    if shape == "json":
        echo(dump_json(validation.to_dict()))
    elif shape == "tsv":
        sys.stdout.write(_tsv(validation))
    else:
        _show(screen.console(), validation)


def _named(argument: str) -> tuple[str, str]:
    name, path = split_name(argument)
    if name is None:
        raise InputError(f"expected --scores NAME=FILE, got {argument!r}")
    return name, path


def _tsv(validation: Validation) -> str:
    lines = [AGREEMENT_COLUMNS]
    for agreement in validation.agreements:
        cells = [
            agreement.rating,
            agreement.statistic,
            agreement.metric,
            *map(_number, (agreement.value, agreement.low, agreement.high)),
        ]
        lines.append(["agreement", *cells, str(agreement.n), str(agreement.n_images), "", "", ""])
    for gap in validation.differences:
        cells = [gap.rating, gap.statistic, gap.metric, *map(_number, (gap.difference, gap.low, gap.high))]
        lines.append(["difference", *cells, str(gap.n), "", gap.baseline, p_text(gap.p_value), p_text(gap.p_holm)])
    for system in validation.systems:
        for name, mean in system.means.items():
            lines.append(["mean", name, system.system, name, _number(mean), "", "", str(system.n), "", "", "", ""])
    return "".join("\t".join(guarded(" ".join(cell.split())) for cell in line) + "\n" for line in lines)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _show(console: Console, validation: Validation) -> None:
    by_metric = {(gap.metric, gap.rating, gap.statistic): gap for gap in validation.differences}
    for rating in dict.fromkeys(agreement.rating for agreement in validation.agreements):
        of_rating = [agreement for agreement in validation.agreements if agreement.rating == rating]
        statistics = list(dict.fromkeys(agreement.statistic for agreement in of_rating))
        rows: list[list[Text]] = [[Text(rating, style="bold"), *(Text(name, style="dim") for name in statistics)]]
        for metric in dict.fromkeys(agreement.metric for agreement in of_rating):
            cells = {agreement.statistic: agreement for agreement in of_rating if agreement.metric == metric}
            rows.append([Text(f"  {metric}"), *(_cell(cells.get(name), by_metric) for name in statistics)])
        for line in aligned(rows):
            console.print(line, soft_wrap=True)
        console.print()
    if validation.systems:
        names = list(validation.systems[0].means)
        rows = [[Text("means", style="bold"), *(Text(name, style="dim") for name in names)]]
        rows += [[Text(f"  {s.system}"), *(Text(_number(s.means[name])) for name in names)] for s in validation.systems]
        for line in aligned(rows):
            console.print(line, soft_wrap=True)
        console.print()
    items = validation.judgements.items
    sizes = f"{validation.judgements.name}: {len(items):,} items, {len({item.image for item in items}):,} images."
    legend = f"{sizes} 95 % intervals by image; * p < 0.05, ** p < 0.01 against the first metric, after Holm."
    for part in (legend, *folded(str(validation.signature), console.width)):
        console.print(Text(part, style="dim"), soft_wrap=True)


def _cell(agreement: Any, differences: Any) -> Text:
    if agreement is None:
        return Text("")
    text = Text(_number(agreement.value))
    gap = differences.get((agreement.metric, agreement.rating, agreement.statistic))
    p = None if gap is None else gap.p_holm
    text.append("**" if p is not None and p < 0.01 else "*" if p is not None and p < 0.05 else "")
    if agreement.low is not None:
        text.append(f" [{_number(agreement.low)}, {_number(agreement.high)}]", style="dim")
    return text
