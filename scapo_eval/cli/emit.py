"""The one way in which the results of a scoring verb are shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from ..base.errors import InputError
from ..benchmarks.protocol import Protocol
from ..files.json_text import dump_json
from ..results.comparison import compare
from ..results.render import chosen_metrics, latex, markdown
from ..results.results import Results, Run, same_metrics
from ..results.slices import Sliced
from .echo import echo
from .gates import check_gates
from .options import Format, Output
from .tables import show_table
from .tsv import tsv


def emit(
    runs: Sequence[Run],
    output: Output,
    *,
    allow_different: bool = False,
    files: Sequence[str | None] = (),
    sliced: Sliced | None = None,
) -> int:
    """Computes intervals and differences, prints them, writes the results file, checks the gates.

    Args:
        runs: the first is the baseline.
        output: the options.
        allow_different: whether the verb itself sets different readings side by side.
        files: what each run was scored from, where it may tell prompts.
        sliced: the systems by the values of a column.

    Returns:
        The exit code: 0, or 3 where a gate is missed.
    """
    metric_set = same_metrics(runs)[0].metric_set
    if output.by and sliced is None:
        raise click.UsageError("--by belongs to verbs that score caption files: score, chair")
    for gate in output.gates:
        gate.check(metric_set)
    try:
        shown = chosen_metrics([metric_set], output.metrics or tuple(metric_set.formulas))[0]
    except InputError as error:
        raise click.UsageError(f"--metrics: {error}") from None
    if output.protocol:
        protocol = Protocol.load(output.protocol)
        runs = [
            protocol.followed_by(run, path, off_protocol=output.off_protocol)
            for run, path in zip(runs, files or [None] * len(runs), strict=True)
        ]
    elif output.off_protocol:
        raise click.UsageError("--off-protocol belongs to --protocol NAME")
    results = compare(
        runs,
        resampling=replace(runs[0].resampling, interval=output.interval),
        test=output.test,
        margin=None if output.equivalence is None else output.equivalence / 100,
        allow_different=allow_different or output.allow_different,
    )
    if sliced is not None:
        results = replace(results, sliced=sliced.to_dict(metric_set, results.runs[0].resampling))
    if output.output:
        results.save(output.output)
    for run in runs:
        for note in run.notes:
            output.warn(f"{run.name}: {note}" if len(runs) > 1 else note)
    found = results.to_dict()
    _print(results, _only(found, shown), output)
    return check_gates(found, output.gates)


def output_format(form: Format | None, *, as_json: bool, width: int | None) -> str:
    """The format of results: the one asked for, a table on a terminal (or for a given width), TSV elsewhere.

    Raises:
        click.UsageError: ``--json`` beside another ``--format``.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other")
    if as_json or form:
        return "json" if as_json else str(form)
    return "table" if width or sys.stdout.isatty() else "tsv"  # not rich's view of it: FORCE_COLOR makes no terminal


def _print(results: Results, found: dict[str, Any], output: Output) -> None:
    form = output_format(output.form, as_json=output.as_json, width=output.width)
    if form == "json":
        echo(dump_json(found))
    elif form == "tsv":
        echo(tsv(found, results.metric_set.plain_numbers), nl=False)
    elif form == "table":
        show_table(output.console(), found, results.metric_set, resamples=output.resamples)
    else:
        render = latex if form == "latex" else markdown
        echo(render(results, intervals=output.intervals, metrics=output.metrics), nl=False)


def _only(found: dict[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    """The results with these metrics only, in this order."""
    place = {name: k for k, name in enumerate(metrics)}
    systems = [{**each, "metrics": {name: each["metrics"][name] for name in metrics}} for each in found["systems"]]
    rows = [row for row in found["comparisons"] if row["metric"] in place]
    order = {system["name"]: k for k, system in enumerate(found["systems"])}
    if "sliced" in found:
        found = {**found, "sliced": _only_sliced(found["sliced"], place)}
    rows.sort(key=lambda row: (order[row["system"]], place[row["metric"]]))
    return {**found, "systems": systems, "comparisons": rows}


def _only_sliced(sliced: dict[str, Any], metrics: Mapping[str, int]) -> dict[str, Any]:
    kept = []
    for entry in sliced["slices"]:
        parts = {key: entry[key] for key in ("metrics", "differences") if key in entry}
        kept.append({**entry, **{key: {m: part[m] for m in metrics} for key, part in parts.items()}})
    tests = [row for row in sliced["interactions"] if row["metric"] in metrics]
    return {**sliced, "slices": kept, "interactions": tests}
