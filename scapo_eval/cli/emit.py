"""Output of results, which all scoring commands share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click
from rich.text import Text

from ..base.errors import InputError
from ..base.text import guarded
from ..benchmarks.protocol import UNKNOWN_SAMPLE, Protocol, ProtocolFacts
from ..benchmarks.published import CAVEAT, beside_records, beside_table, footnote
from ..benchmarks.published import beside as published_beside
from ..files.json_text import dump_json
from ..files.source import STDIN
from ..results.comparison import compare
from ..results.names import metric_name, reader_mark
from ..results.render import chosen_metrics, latex, markdown, number, render
from ..results.results import Results, Run, same_metrics
from .echo import echo
from .gates import check_gates, check_worse
from .options import Output, OutputFormat
from .screen import stage
from .tables import show_table
from .tsv import tsv

_LONG = 5_000_000  # number of resampled images from which a status is displayed (about a second)


def emit(
    runs: Sequence[Run],
    output: Output,
    *,
    allow_different: bool = False,
    samples: Sequence[ProtocolFacts] = (),
) -> int:
    """Computes intervals and differences, prints them, writes the results file, and checks the conditions on metrics
    (gates).

    Args:
        runs: Runs of all systems, of which the first is the baseline.
        output: Output options.
        allow_different: True if the command itself compares several ways of reading a file.
        samples: Properties of the captions of each run, whose prompts and length limit are checked against the
            protocol.

    Returns:
        The exit code: 3 if the metrics do not pass a gate, otherwise 0.
    """
    metric_set = same_metrics(runs)[0].metric_set
    unsliced = [run.name for run in runs if output.by and not (run.parts and run.parts.column == output.by)]
    if unsliced and len(unsliced) == len(runs):
        raise click.UsageError("--by requires a verb that scores caption files: score, chair")
    if unsliced:
        raise click.UsageError(f"--by {output.by}: scored without this column: {', '.join(unsliced)}")
    for gate in output.gates:
        gate.check(metric_set)
    check_worse(output.fail_worse, metric_set, len(runs), tested=output.resamples > 0)
    try:
        shown = chosen_metrics([metric_set], output.metrics or tuple(metric_set.formulas))[0]
    except InputError as error:
        raise click.UsageError(f"--metrics: {error}") from None
    beside = footnotes = None
    if output.protocol:
        protocol = Protocol.load(output.protocol)
        samples = samples or [UNKNOWN_SAMPLE] * len(runs)
        followed = zip(runs, samples, strict=True)
        runs = [protocol.followed(run, sample, off_protocol=output.off_protocol) for run, sample in followed]
        footnotes = list(dict.fromkeys(footnote(run, protocol, s) for run, s in zip(runs, samples, strict=True)))
        beside = protocol if output.beside else None
    work = output.resamples * sum(run.n_images for run in runs)
    drawn = f"intervals and differences of {len(runs)} systems" if len(runs) > 1 else "intervals of 1 system"
    said = f"{output.resamples:,} resamples: {drawn}"
    with stage(output, said) if work > _LONG else nullcontext():
        results = compare(
            runs,
            resampling=replace(runs[0].resampling, interval=output.interval),
            test=output.test,
            margin=None if output.equivalence is None else output.equivalence / 100,
            allow_different=allow_different or output.allow_different,
        )
        record = results.to_dict()
    if output.output:
        results.save(output.output)
    for run in runs:
        for note in run.notes:
            output.warn(f"{run.name}: {note}" if len(runs) > 1 else note)
    if output.output != STDIN:  # the results file is the only text on standard output, so it can be read
        _print(results, _only(record, shown), output, beside, footnotes or ())
    level = 1 - results.runs[0].resampling.confidence
    return check_gates(record, output.gates, output.fail_worse, metric_set, level)


def output_format(form: OutputFormat | None, *, as_json: bool, width: int | None) -> str:
    """Returns the requested output format, or the default format. By default, the output is a table if it goes to a
    terminal or if a width is given, and TSV otherwise.

    Raises:
        click.UsageError: If ``--json`` is combined with another ``--format``.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other")
    if as_json or form:
        return "json" if as_json else str(form)
    return "table" if width or sys.stdout.isatty() else "tsv"  # instead of rich's detection, which FORCE_COLOR changes


def _print(
    results: Results, record: dict[str, Any], output: Output, beside: Protocol | None, footnotes: Sequence[str]
) -> None:
    form = output_format(output.form, as_json=output.as_json, width=output.width)
    if form == "json":
        more: dict[str, Any] = {"footnotes": list(footnotes)} if footnotes else {}
        more |= {"published": beside_records(beside, results.runs)} if beside else {}
        echo(dump_json({**record, **more}))
        return
    if form == "tsv":
        echo(tsv(record, results.metric_set.plain_numbers), nl=False)
    elif form == "table":
        show_table(output.console(), record, results.metric_set, resamples=output.resamples)
    else:
        render_as = latex if form == "latex" else markdown
        text = render_as(results, intervals=output.intervals, metrics=output.metrics, footnotes=footnotes)
        echo(text, nl=False)
    apart = [("the slices of --by", "sliced" in record), ("the tests of --equivalence", output.equivalence is not None)]
    for what in (what for what, given in apart if given and form != "table"):
        output.note(f"{what} are shown with --format table and --format json")
    if beside:
        _print_beside(results, beside, output, form)
    if footnotes and form == "table":
        for text in footnotes:
            echo(f"\nFootnote: {text}")
    elif footnotes and form == "tsv":
        for text in footnotes:
            output.note(f"footnote: {text}")


def _print_beside(results: Results, protocol: Protocol, output: Output, form: str) -> None:
    if not protocol.published:
        output.note(f"no published rows are known for '{protocol.name}'")
        return
    signatures = [str(run.signature) for run in results.runs]
    names = {name: metric_name(name) + reader_mark(name, signatures) for name in results.metric_set.formulas}
    if form in ("latex", "markdown"):
        table = beside_table(protocol, results.runs, names)
        echo("\n" + render(table, "latex" if form == "latex" else "markdown"), nl=False)
        return
    metrics, rows = published_beside(protocol, results.runs)
    plain = results.metric_set.plain_numbers
    lines = [
        (row.system, *(number(row.values.get(name), name in plain) for name in metrics), row.source or "this run")
        for row in rows
    ]
    heads = ("system", *(names[name] if form == "table" else name for name in metrics), "source")
    if form == "tsv":
        echo("\n" + "\n".join("\t".join(map(guarded, line)) for line in (heads, *lines)))
        output.note(CAVEAT)
        return
    from rich.table import Column, Table

    grid = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
    for line in lines:
        own = line[-1] == "this run"
        grid.add_row(*(Text(text, style="bold" if own else "") for text in line))
    console = output.console()
    console.print()
    console.print(grid)
    console.print(Text(CAVEAT, style="dim"))


def _only(record: dict[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    """Returns the results restricted to the given metrics, in the given order."""
    place = {name: k for k, name in enumerate(metrics)}
    systems = [{**entry, "metrics": {name: entry["metrics"][name] for name in metrics}} for entry in record["systems"]]
    rows = [row for row in record["comparisons"] if row["metric"] in place]
    order = {system["name"]: k for k, system in enumerate(record["systems"])}
    if "sliced" in record:
        record = {**record, "sliced": _only_sliced(record["sliced"], place)}
    rows.sort(key=lambda row: (order[row["system"]], place[row["metric"]]))
    return {**record, "systems": systems, "comparisons": rows}


def _only_sliced(sliced: dict[str, Any], metrics: Mapping[str, int]) -> dict[str, Any]:
    kept = []
    for entry in sliced["slices"]:
        parts = {key: entry[key] for key in ("metrics", "differences") if key in entry}
        kept.append({**entry, **{key: {m: part[m] for m in metrics} for key, part in parts.items()}})
    tests = [row for row in sliced["interactions"] if row["metric"] in metrics]
    return {**sliced, "slices": kept, "interactions": tests}
