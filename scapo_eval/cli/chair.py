"""``scapo-eval chair CAPTIONS --truth ...``: CHAIR as the project, the standalone script or OPERA's script reads it."""

from __future__ import annotations

from contextlib import ExitStack

import click

from ..io.files import atomic_write, dump_json
from ..metrics.chair import PROFILES, ChairScorer, Native, Opera, Profile, Reference, Synonyms, score_chair
from ..oracle import PresenceOracle
from ..results import System
from ..scoring import ScoredBlock
from ..vocabulary import Vocabulary
from .common import Output, caption_file, emit, input_size, output_options, progress, system_names

DEFAULT_VOCABULARY = "coco80"


@click.command("chair")
@click.argument("captions", nargs=-1, required=True)
@click.option(
    "--truth",
    required=True,
    metavar="FILE",
    help="What is in the images; for the scripts' own figures CHAIR's ground truth as {id: [objects]}.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="native",
    show_default=True,
    help="How captions are read: the project's matcher, the standalone CHAIR script's way, or OPERA's (extra 'nltk').",
)
@click.option(
    "--synonyms",
    metavar="FILE",
    help="For 'reference' and 'opera': CHAIR's synonyms.txt, one object a line, words separated by comma and space.",
)
@click.option(
    "--vocabulary",
    metavar="NAME|FILE",
    help=f"For 'native': labels and their aliases.  [default: {DEFAULT_VOCABULARY}]",
)
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option(
    "--on-unknown-image",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Captions of images that the truth does not have.",
)
@click.option("--skip-bad", is_flag=True, help="Leave faulty lines out and count them in the signature.")
@click.option(
    "--per-caption",
    metavar="FILE",
    help="Write the ordered object lists of every caption as JSON Lines (one system only).",
)
@click.option(
    "--workers", type=click.IntRange(1), help="For 'opera': processes that tag.  [default: one per processor]"
)
@output_options
def command(
    captions: tuple[str, ...],
    truth: str,
    profile: str,
    synonyms: str | None,
    vocabulary: str | None,
    any_fingerprint: bool,
    on_unknown_image: str,
    skip_bad: bool,
    per_caption: str | None,
    workers: int | None,
    output: Output,
) -> int:
    """CHAIR_s, CHAIR_i, Recall and Len of caption files; several are compared with the first.

    CAPTIONS are JSON Lines with image_id and caption, plain, .gz or .zst; - is standard input.
    """
    if per_caption and len(captions) > 1:
        raise click.UsageError("--per-caption takes one caption file at a time")
    reader = _reader(profile, synonyms, vocabulary, workers)
    oracle = PresenceOracle.load(truth)
    systems: list[System] = []
    with ExitStack() as stack:
        evidence = stack.enter_context(atomic_write(per_caption)) if per_caption else None

        def write(scorer: ChairScorer, block: ScoredBlock) -> None:
            assert evidence is not None
            evidence.writelines(dump_json(record) + b"\n" for record in scorer.evidence(block))

        for path, name in zip(captions, system_names(captions), strict=True):
            with caption_file(path), progress(output, name, input_size(path)) as advance:
                systems.append(
                    score_chair(
                        path,
                        reader,
                        oracle,
                        name=name,
                        skip_bad=skip_bad,
                        skip_unknown_images=on_unknown_image == "skip",
                        any_fingerprint=any_fingerprint,
                        resamples=output.resamples,
                        seed=output.seed,
                        on_block=write if evidence else None,
                        on_progress=advance,
                    )
                )
    return emit(systems, output)


def _reader(profile: str, synonyms: str | None, vocabulary: str | None, workers: int | None) -> Profile:
    if profile == "native":
        if synonyms:
            raise click.UsageError(
                "--synonyms belongs to the profiles 'reference' and 'opera'; 'native' has --vocabulary"
            )
        return Native(Vocabulary.load(vocabulary or DEFAULT_VOCABULARY))
    if vocabulary:
        raise click.UsageError(f"--vocabulary belongs to the profile 'native'; '{profile}' has --synonyms")
    if not synonyms:
        raise click.UsageError(
            f"the profile '{profile}' needs --synonyms FILE: data/synonyms.txt of github.com/LisaAnne/Hallucination"
        )
    words = Synonyms.load(synonyms)
    return Reference(words) if profile == "reference" else Opera(words, workers)
