"""``scapo-eval phd ANSWERS --data data.json``: the PhD index per mode and task; also PhD's prompts."""

from __future__ import annotations

from typing import Any

import click

from ..benchmarks.phd import BENCHMARK, prompt_record, read_phd
from ..files.files import atomic_write
from ..files.json_text import dump_json
from .files import INPUT, OUTPUT
from .options import Output, output_options
from .yesno import reading_options, score


@click.command("phd")
@click.argument("answers", type=INPUT, nargs=-1)
@click.option(
    "--data", type=INPUT, metavar="FILE", help="PhD's data.json; without it the answers' own labels, modes and tasks."
)
@click.option(
    "--prompts",
    type=OUTPUT,
    metavar="FILE",
    help="Write the prompts of all modes as JSON Lines and stop (needs --data).",
)
@reading_options
@output_options
def command(answers: tuple[str, ...], data: str | None, prompts: str | None, output: Output, **reading: Any) -> int:
    """Scores answers to PhD; several files are compared with the first.

    ANSWERS are own JSON Lines with ids as --prompts writes them (phd/MODE/IMAGE/yes), or with mode, image and
    question.
    """
    if prompts:
        if data is None or answers:
            raise click.UsageError("--prompts takes --data and no answers")
        with atomic_write(prompts) as stream:
            for question in read_phd(data):
                record = prompt_record(question)
                record["question"] = record.pop("prompt")
                stream.write(dump_json(record) + b"\n")
        return 0
    if not answers:
        raise click.UsageError("no answers to score (or --prompts FILE to write the prompts)")
    return score(BENCHMARK, answers, (data,) if data else (), output, **reading)
