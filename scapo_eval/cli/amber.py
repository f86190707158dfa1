"""``scapo-eval amber RESPONSES --data AMBER_DIR``: AMBER's generative and discriminative metrics."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import get_args

import click

from ..benchmarks.amber import ANSWERS, Amber, AmberData, Mode, NltkNouns, Similarity, read_responses
from ..files.files import refuse_replacing
from .cluster import Cluster, cluster_options
from .emit import emit
from .files import INPUT, OUTPUT, named_files
from .options import Output, evidence_file, output_options
from .screen import progress


@click.command("amber")
@click.argument("responses", type=INPUT, nargs=-1, required=True)
@click.option("--data", required=True, metavar="DIR", help="Checkout of AMBER's repository, or its data folder.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="embedded",
    show_default=True,
    help="parity: NLTK's nouns and the official script's digits; embedded: neither NLTK nor spaCy.",
)
@click.option(
    "--similarity",
    type=INPUT,
    default="none",
    show_default=True,
    metavar="none|spacy:MODEL|FILE",
    help="Which words count as the same: a spaCy model's (computed once, kept), or a JSON file of pairs.",
)
@click.option(
    "--answers",
    type=click.Choice(list(ANSWERS)),
    help="How yes/no answers are read.  [default: first-word; with --mode parity exact]",
)
@click.option("--drop-unfinished", is_flag=True, help="Drop a description's last sentence where it has no end.")
@click.option("--skip-bad", is_flag=True, help="Leave faulty records out and count them in the signature.")
@click.option(
    "--per-answer",
    type=OUTPUT,
    metavar="FILE",
    help="Write the verdict on every answer as JSON Lines (one system only).",
)
@click.option(
    "--noun-cache",
    type=OUTPUT,
    metavar="FILE",
    help="Keep NLTK's nouns in a file, for the next run with --mode parity.",
)
@click.option(
    "--workers", type=click.IntRange(1), help="Processes that tag in --mode parity.  [default: one per processor]"
)
@cluster_options
@output_options
def command(
    responses: tuple[str, ...],
    data: str,
    mode: Mode,
    similarity: str,
    answers: str | None,
    drop_unfinished: bool,
    skip_bad: bool,
    per_answer: str | None,
    noun_cache: str | None,
    workers: int | None,
    cluster: Cluster,
    output: Output,
) -> int:
    """Scores AMBER responses; several files are compared with the first.

    RESPONSES are JSON arrays or JSON Lines of {"id", "response"}, plain, .gz or .zst. A task that is not in the
    file has no value; precision and recall have "no" as their positive class.
    """
    if per_answer and len(responses) > 1:
        raise click.UsageError("--per-answer takes one file of responses at a time")
    if cluster.engine:
        if per_answer or noun_cache:
            raise click.UsageError("--engine takes neither --per-answer nor --noun-cache")
        from ..distributed import ray
        from ..distributed.amber import AmberReading

        reading: AmberReading = {"mode": mode, "parser": answers, "skip_bad": skip_bad}
        reading |= {"drop_unfinished": drop_unfinished}
        on_ray = partial(ray.amber, data=data, similarity=similarity, workers=workers, **reading)
        return emit(cluster.runs(responses, output, on_ray), output)
    folder = Path(data, "data") if Path(data, "data").is_dir() else Path(data)
    written = [path for path in (output.output, per_answer, noun_cache) if path]
    refuse_replacing(written, [*folder.glob("*"), *folder.glob("query/*")])
    named = named_files(responses)
    benchmark = AmberData.load(data)
    scorer = Amber(
        benchmark,
        mode,
        similarity=Similarity.load(similarity, benchmark.words),
        answers=answers,
        tagger=NltkNouns(workers, noun_cache) if mode == "parity" else None,
    )
    read = [read_responses(path, benchmark, official=mode == "parity", skip_bad=skip_bad) for _, path in named]
    if drop_unfinished:
        read = [found.without_unfinished() for found in read]
    scored = []
    for (name, _), found in zip(named, read, strict=True):
        with progress(output, name, sum(len(response.text) for response in found.scored)) as advance:
            scored.append(scorer.score(found, name, resampling=output.resampling, on_progress=advance))
    runs = [each.run for each in scored]
    items = [{response.number for response in found.scored} for found in read]
    for run, answered in zip(runs, items, strict=True):
        if answered != items[0]:
            names = f"{run.name} and {runs[0].name}"
            output.warn(f"{names} answer different items; differences compare all their answers on shared images")
    with evidence_file(per_answer) as write:
        if write:
            write(scored[0].records())
    return emit(runs, output)
