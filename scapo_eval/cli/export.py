"""``scapo-eval export RESULTS --to eee``: converts results to the schemas of other projects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import click

from ..files.files import STDIN, atomic_write
from ..files.json_text import dump_json, iter_records
from ..results.exchange import Provenance, Relationship, datastore_path, documents, instances, with_instances
from ..results.results import Resampling, Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .base import Verb
from .echo import echo
from .files import INPUT, OUTPUTS, PLAIN, named_runs, refuse_replacing_inputs
from .numbers import Number, Seed
from .options import bootstrap_option


@click.command("export", cls=Verb)
@click.argument("results", type=INPUT, nargs=-1, required=True)
@click.option(
    "--to", "form", type=click.Choice(["eee"]), required=True, help="Target schema: eee is Every Eval Ever, 0.3."
)
@click.option(
    "-o", "--output", type=OUTPUTS, required=True, metavar="FILE|DIR",
    help="Output file. With several systems, FILE.SYSTEM.json each, or DIR/ in the layout of the datastore.",
)  # fmt: skip
@click.option(
    "--model", "models", multiple=True, metavar="SYSTEM=ID",
    help="Id of a system's model, developer/name as on Hugging Face.  [default: unknown/SYSTEM]",
)  # fmt: skip
@click.option("--organization", default="unknown", show_default=True, metavar="NAME", help="Evaluating organization.")
@click.option(
    "--relationship", type=click.Choice(get_args(Relationship)), default="other", show_default=True,
    help="Relationship of the evaluator to the model's developer.",
)  # fmt: skip
@click.option(
    "--timestamp",
    type=Number(),
    metavar="SECONDS",
    help="Time of the evaluation, in seconds since 1970.  [default: now]",
)
@click.option("--resamples", type=click.IntRange(0, 1_000_000), default=DEFAULT_RESAMPLES, show_default=True)
@click.option("--seed", type=Seed(), default=DEFAULT_SEED, show_default=True)
@bootstrap_option
@click.option(
    "--instances", "evidence", type=PLAIN, metavar="FILE",
    help="Also write a record per answer or caption, from the evidence of --per-answer or --per-caption (one system).",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print the written files.")
def command(
    results: tuple[str, ...],
    form: str,
    output: str,
    models: tuple[str, ...],
    organization: str,
    relationship: Relationship,
    timestamp: float | None,
    resamples: int,
    seed: int,
    bootstrap: Bootstrap | None,
    evidence: str | None,
    quiet: bool,
) -> None:
    """Exports results files, including intervals, to another schema, and creates one document per system and benchmark.

    RESULTS are results files, written with -o by a scoring verb or by import.
    """
    pairs = [text.rpartition("=") for text in models]
    if bad := next((text for text, (a, _, b) in zip(models, pairs, strict=True) if not a or not b), None):
        raise click.UsageError(f"expected --model SYSTEM=ID, got '{bad}'")
    drawn = Resampling(resamples, seed, bootstrap=bootstrap)
    runs = tuple(run.redrawn(drawn) for run in named_runs(results))
    if output == STDIN and len(runs) > 1:
        raise click.UsageError("-o - takes one system; write several into a folder: -o FOLDER/")
    provenance = Provenance(
        timestamp=time.time() if timestamp is None else timestamp,
        organization=organization,
        relationship=relationship,
        models=tuple((system, model) for system, _, model in pairs),
    )
    exported = list(documents(runs, provenance))
    paths = _paths(output, runs, exported)
    records: bytes | None = None
    if evidence:
        if len(exported) != 1 or output == STDIN:
            raise click.UsageError("--instances requires one system and an output file")
        lines = [
            dump_json(record) + b"\n" for record in instances(exported[0], (row for _, row in iter_records(evidence)))
        ]
        records, place = b"".join(lines), f"{paths[0].removesuffix('.json')}_samples.jsonl"
        named = f"{datastore_path(exported[0]).removesuffix('.json')}_samples.jsonl"
        exported = [with_instances(exported[0], named, records, len(lines))]
        paths.append(place)
    refuse_replacing_inputs([path for path in paths if path != STDIN])
    if records is not None:
        Path(paths[-1]).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(paths.pop()) as stream:
            stream.write(records)
    for path, document in zip(paths, exported, strict=True):
        if path != STDIN:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(dump_json(document) + b"\n")
        if not quiet:
            echo(f"scapo-eval: {len(document['evaluation_results'])} metrics -> {path}", err=True)


def _paths(output: str, runs: tuple[Run, ...], exported: list[dict[str, Any]]) -> list[str]:
    if output.endswith("/") or Path(output).is_dir():
        return [str(Path(output, datastore_path(document))) for document in exported]
    if len(runs) == 1:
        return [output]
    stem = output.removesuffix(".json")
    benchmarks = {run.metric_set.name for run in runs}
    names = [f"{run.metric_set.name}.{run.name}" if len(benchmarks) > 1 else run.name for run in runs]
    return [f"{stem}.{name.replace('/', '_')}.json" for name in names]
