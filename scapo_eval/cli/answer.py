"""``scapo-eval answer QUESTIONS -o answers.jsonl``: a model answers the questions of a benchmark."""

from __future__ import annotations

import click

from ..benchmarks.prompts import DESCRIBE_IN_DETAIL
from ..inference.answer import answer, images_to_describe, read_descriptions, read_questions
from ..inference.describe import describe
from ..inference.runner import Session
from ..inference.shards import DESCRIPTIONS_SUFFIX, Shard
from ..inference.sources import ImageFolder
from ..results.benchmark import benchmarks
from .base import Verb
from .engine_options import EngineSettings, completion_progress, engine_options, finish, shard_option, shared
from .files import INPUT, OUTPUT, PLAIN

RECORDS = tuple(benchmarks())


HELP = f"""Answers questions; {", ".join(kind.verb for kind in RECORDS if kind.augmented)} and judge read the output.

QUESTIONS are {", ".join(kind.asked for kind in RECORDS if kind.asked)}, or your own records of
{{"id", "image", "question"}}. With --describe every image is described once, in detail, by the same model, and its
questions come with image and description. The published discriminative scores of SCAPO are description-augmented ones:
compare them with those of --describe only.
"""


@click.command("answer", cls=Verb, help=HELP)
@click.argument("questions", type=PLAIN, nargs=-1, required=True)
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Answers as JSON Lines.")
@click.option("--images-root", metavar="DIR", help="Folder with the images, in any depth, by file name or id.")
@click.option(
    "--describe",
    "self_describe",
    is_flag=True,
    help="Describe each image first, and include the description in the prompt.",
)
@click.option(
    "--descriptions",
    type=INPUT,
    metavar="FILE",
    help="Include these descriptions in the prompts (captions as JSON Lines).",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N questions.")
@shard_option
@engine_options(max_tokens=1024)
def command(
    questions: tuple[str, ...],
    output: str,
    images_root: str | None,
    self_describe: bool,
    descriptions: str | None,
    limit: int | None,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Uses a model to answer the questions of benchmarks. The text of the help page is :data:`HELP`."""
    if self_describe and descriptions:
        raise click.UsageError("--describe and --descriptions exclude each other")
    every = read_questions(questions, ImageFolder(images_root))[:limit]
    # shared by image: each description is generated once, and servers can cache the prefix of an image
    output, asked, share = shared(shard, output, every, lambda question: question.image_id or str(question.id))
    known = read_descriptions(descriptions) if descriptions else None
    code = 0
    described_in = f"{output}{DESCRIPTIONS_SUFFIX}"
    with settings.journal(output, *([described_in] if self_describe else [])) as journal:
        engine = settings.make()
        try:
            if self_describe:
                pictures = images_to_describe(asked)
                images = images_to_describe(every)
                images_share = shard.share(images, lambda image: image.image_id) if shard else None
                describing = Session(engine, journal, share=images_share)
                with completion_progress(settings, "describe", len(pictures)) as describing.advance:
                    described = describe(
                        pictures, describing, described_in, prompt=DESCRIBE_IN_DETAIL, sampling=settings.sampling,
                        model=settings.model,
                    )  # fmt: skip
                code = finish(described, "descriptions", described_in, settings)
                known = read_descriptions(described_in) if pictures and described.failed < described.requests else {}
            with completion_progress(settings, "answer", len(asked)) as advance:
                session = Session(engine, journal, advance=advance, share=share)
                tally = answer(
                    asked, session, output, descriptions=known, sampling=settings.sampling, model=settings.model
                )
        finally:
            engine.close()
    return max(code, finish(tally, "answers", output, settings))
