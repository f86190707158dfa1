"""``scapo-eval describe IMAGES -o captions.jsonl``: a model describes images."""

from __future__ import annotations

import click

from ..inference.describe import PRESETS, describe
from ..inference.runner import Session
from ..inference.shards import Shard
from ..inference.sources import find_images
from .base import Verb
from .engine_options import EngineSettings, completion_progress, engine_options, finish, shard_option, shared
from .files import OUTPUT, PICTURES


@click.command("describe", cls=Verb)
@click.argument("images", type=PICTURES, nargs=-1, required=True)
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Captions as JSON Lines.")
@click.option("--images-root", metavar="DIR", help="Folder with the images of lists and annotation files.")
@click.option(
    "--prompt",
    default="paper",
    show_default=True,
    metavar="paper|augmentation|TEXT",
    help="The paper's prompt for scores, its prompt for description-augmented answers, or your own.",
)
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True, help="Descriptions per image.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N images.")
@shard_option
@engine_options(max_tokens=1024)
def command(
    images: tuple[str, ...],
    output: str,
    images_root: str | None,
    prompt: str,
    samples: int,
    limit: int | None,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Uses a model to describe images. The output is a caption file for the scoring verbs.

    IMAGES are folders, globs, files, COCO annotation files, or lists of {"image_id", "image"}. If the command was
    killed, run it again to resume. The command also writes FILE.run.json (the settings), FILE.journal (the completions)
    and FILE.failed.jsonl (images without a completion).
    """
    if samples > 1 and settings.sampling.temperature == 0:
        raise click.UsageError(
            "several samples of one image require --temperature above 0: greedy samples are identical"
        )
    pictures = find_images(images, images_root, limit)
    output, pictures, share = shared(shard, output, pictures, lambda image: image.image_id)
    with settings.journal(output) as journal:
        engine = settings.make()
        try:
            with completion_progress(settings, "describe", len(pictures) * samples) as advance:
                tally = describe(
                    pictures,
                    Session(engine, journal, advance=advance, warn=settings.warn, share=share),
                    output,
                    prompt=PRESETS.get(prompt, prompt),
                    sampling=settings.sampling,
                    samples=samples,
                    model=settings.model,
                )
        finally:
            engine.close()
    return finish(tally, "descriptions", output, settings)
