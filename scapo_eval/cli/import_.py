"""``scapo-eval import FILE -o out.jsonl``: converts files from other tools to the project's own formats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import click

from ..base.errors import InputError
from ..base.types import Answer
from ..benchmarks.join import join
from ..benchmarks.questions import read_questions
from ..files.files import STDIN, atomic_write
from ..files.json_text import dump_json
from ..readers.answers import answers_of, unique
from ..readers.captions_foreign import captions_of
from ..readers.formats import ForeignCaption, keys_are_named, kind_of, open_layout
from ..results.harness import handed_over, is_results, results_object
from .base import Verb
from .echo import echo
from .files import INPUT, OUTPUT, PLAIN, source_of
from .options import key_options, on_bad_record


@click.command("import", cls=Verb)
@click.argument("files", type=PLAIN, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    default=STDIN,
    metavar="FILE",
    help="Output file, compressed for .gz and .zst. [default: stdout]",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["captions", "answers"]),
    help="Kind of records to read, if the file is ambiguous.",
)
@key_options
@on_bad_record
@click.option("--labels", type=INPUT, metavar="FILE", help="Questions with labels (a benchmark's files), joined by id.")
@click.option("--model", metavar="NAME", help="Model to import if a file contains several.")
@click.option("--name", metavar="NAME", help="Name of the system whose final results are imported.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print the recognized formats.")
def command(
    files: tuple[str, ...],
    output: str,
    kind: str | None,
    skip_bad: bool,
    labels: str | None,
    model: str | None,
    name: str | None,
    quiet: bool,
) -> int:
    """Converts another tool's captions or answers to JSON Lines, or its results to a results file.

    FILES are recognized by content: COCO results, answers from LLaVA and from benchmarks, samples from lmms-eval, xlsx,
    tsv and json files from VLMEvalKit, verl rollouts, and TRL completions. For results (results.json from lmms-eval,
    *_score.csv and *_acc.csv from VLMEvalKit), several files are accepted.
    """

    def say(text: str) -> None:
        if not quiet:
            echo(f"scapo-eval: {text}", err=True)

    def warn(text: str) -> None:
        say(f"warning: {text}")

    if keys_are_named() and (kind == "answers" or labels or name):
        raise click.UsageError("--image-key and --caption-key are for captions")
    skipped: list[InputError] = []
    on_error = skipped.append if skip_bad else None
    inputs = [source_of(path) for path in files]
    sources = [open_layout(path, on_error=on_error, warn=warn) for path in inputs]
    if all(is_results(source) for source in sources):
        if kind or labels or model:
            raise click.UsageError("--as, --labels and --model are for captions and answers, not for finished results")
        runs = [handed_over(source, path) for source, path in zip(sources, inputs, strict=True)]
        with atomic_write(output) as stream:
            stream.write(dump_json(results_object(runs, name)) + b"\n")
        for source, run in zip(sources, runs, strict=True):
            say(f"{run.path}: {source.format.title}: {len(run.values):,} values imported -> {_shown(output)}")
        return 0
    if name:
        other = next(path for path, source in zip(files, sources, strict=True) if not is_results(source))
        raise click.UsageError(f"--name is for finished results; {_shown(other)} contains captions or answers")
    if len(files) > 1:
        raise click.UsageError("only one file of captions or answers can be converted at a time")
    source = sources[0]
    kind = kind or ("answers" if labels and source.format.answer else kind_of(source))
    if kind == "captions" and labels:
        raise click.UsageError("captions have no labels")
    if kind == "captions":
        records: Iterable[dict[str, Any]] = map(
            _caption_record, captions_of(source, model=model, on_error=on_error, warn=warn)
        )
    else:
        answers: Iterable[Answer] = answers_of(source, model=model, on_error=on_error)
        if labels:
            run_of = join(list(answers), read_questions(labels), lambda _: None, source=source.rows.path)
            for note in run_of.notes:
                warn(note)
            answers = [
                replace(
                    item.answer,
                    label=item.question.label,
                    image=item.answer.image or item.question.image,
                    question=item.question.text or item.answer.question,
                    category=item.answer.category or item.question.category,
                )
                for item in run_of.graded
            ]
        records = map(_answer_record, unique(answers, source.rows.path))
    count = 0
    with atomic_write(output) as stream:
        for record in records:
            stream.write(dump_json(record) + b"\n")
            count += 1
    say(f"{source.rows.path}: {source.format.title}: {count:,} {kind} -> {_shown(output)}")
    if skipped:
        warn(f"{len(skipped):,} faulty records omitted; the first: {skipped[0]}")
    return 0


def _shown(output: str) -> str:
    return "standard output" if output == STDIN else output


def _caption_record(caption: ForeignCaption) -> dict[str, Any]:
    return _filled({"image_id": caption.image_id, **asdict(caption), "written": None})


def _answer_record(answer: Answer) -> dict[str, Any]:
    return _filled(asdict(answer))


def _filled(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None and key != "line"}
