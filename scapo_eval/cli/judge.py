"""``scapo-eval judge mmhal|faithscore|objhal|facts|claims|uses``: a model judges answers from another model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import click

from ..base.errors import InputError
from ..claiming.claim import kinds_of
from ..claiming.extract import ClaimExtractor
from ..engines import ENGINES, Engine
from ..files.files import read_text
from ..inference.judge import judge_faithscore, judge_mmhal, read_answers_to_judge
from ..inference.judge_claims import claims_to_judge, judge_claims, read_claim_task
from ..inference.judge_facts import Against, JudgePrompts, judge_facts, read_references
from ..inference.judge_objects import OBJECTS_TASK, judge_objects, read_captions
from ..inference.judge_prompts import MMHAL_TASK
from ..inference.judge_uses import captions_to_judge, judge_uses, read_uses_task
from ..inference.runner import Session
from ..inference.shards import Shard, Share
from ..inference.sources import ImageFolder
from ..matching.matcher import AliasMatcher
from ..matching.uses import READINGS, Reading
from ..matching.vocabulary import Vocabulary
from ..segmenting.reasoning import answer_of
from ..segmenting.unfinished import without_unfinished
from .engine_options import (
    EngineSettings,
    accounted,
    completion_progress,
    engine_options,
    finish,
    make_engine,
    shard_option,
    shared,
)
from .files import OUTPUT, PLAIN
from .groups import Group
from .numbers import NumberRange
from .options import Command, complete_kinds


@click.group("judge", cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Uses a model to judge answers. Score the verdicts with mmhal, faithscore, objhal, facts and claims. The
    verdicts of uses are for the option --uses of scoring commands.
    """


AGAIN = "run the same command to repeat failed requests, and add --retry to repeat unreadable verdicts"

retry_option = click.option(
    "--retry", is_flag=True, help="Repeat requests whose verdicts could not be read in an earlier run."
)

_VERIFIER = (
    click.option("--verifier-model", metavar="NAME", help="Model that verifies.  [default: --model]"),
    click.option("--verifier-engine", type=click.Choice(ENGINES), help="The verifier's engine.  [default: --engine]"),
    click.option("--verifier-url", metavar="URL", help="The verifier's server.  [default: --base-url]"),
)


def verifier_options(command: Command) -> Command:
    """Adds the options for a second model, which verifies statements."""
    for option in reversed(_VERIFIER):
        command = option(command)
    return command


@contextmanager
def judge_session(
    settings: EngineSettings, output: str, total: int | None, *, retry: bool, share: Share[Any] | None
) -> Iterator[Session]:
    """Yields a session of the judge with the journal of an output file, and shows the progress.

    Args:
        settings: Engine of the judge.
        output: Path of the output file.
        total: Number of requests, or None if it is unknown.
        retry: True to repeat requests whose verdicts were unreadable in earlier runs.
        share: Items that this shard processes, or None if the work is not sharded.
    """
    with settings.journal(output) as journal:
        engine = settings.make()
        try:
            with completion_progress(settings, "judge", total) as advance:
                yield Session(engine, journal, advance=advance, retry=retry, share=share)
        finally:
            engine.close()


@contextmanager
def two_engines(
    settings: EngineSettings, model: str | None, engine: str | None, url: str | None
) -> Iterator[tuple[Engine, Engine]]:
    """Yields the engines of the judge and of the verifier. The judge and the verifier share one engine unless they
    differ in an option.
    """
    own = (settings.engine, settings.model, settings.base_url)
    other = (engine or settings.engine, model or settings.model, url or settings.base_url)
    judge = settings.make()
    try:
        verifier = judge if other == own else make_engine(settings, *other)
        try:
            yield judge, verifier
        finally:
            if verifier is not judge:
                verifier.close()
    finally:
        judge.close()


@command.command("mmhal")
@click.argument("answers", type=PLAIN)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Ratings as JSON Lines, for scapo-eval mmhal."
)
@click.option(
    "--prompt-file", type=PLAIN, metavar="FILE",
    help="Custom instruction, or a complete prompt with {image_content}, {question}, {gt_answer}, {response}.",
)  # fmt: skip
@retry_option
@shard_option
@engine_options(max_tokens=512)
def mmhal(
    answers: str, output: str, prompt_file: str | None, retry: bool, shard: Shard | None, settings: EngineSettings
) -> int:
    """Rates answers to MMHal-Bench from 0 to 6. The judge reads only texts.

    ANSWERS contains one record per question, with the fields question, gt_answer, image_content and response (or
    model_answer), in the format that ``scapo-eval answer`` writes for MMHal-Bench. The option --model specifies the
    judge.
    """
    with accounted(answers, quiet=settings.quiet) as source:
        to_judge = read_answers_to_judge(source, needed=("question", "gt_answer"))
    output, to_judge, share = shared(shard, output, to_judge, lambda answer: answer.response)
    task = read_text(prompt_file) if prompt_file else MMHAL_TASK
    with judge_session(settings, output, len(to_judge), retry=retry, share=share) as session:
        tally = judge_mmhal(
            to_judge, session, output, judge=settings.model,
            task=task, sampling=settings.sampling,
        )  # fmt: skip
    return finish(tally, "ratings", output, settings, again=AGAIN)


@command.command("faithscore")
@click.argument("answers", type=PLAIN)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Facts as JSON Lines, for scapo-eval faithscore."
)
@click.option("--images-root", metavar="DIR", help="Folder with the images, in any depth, by file name or id.")
@verifier_options
@click.option("--setting", metavar="NAME", help="Name of the generation setting (detailed, conversation...).")
@click.option(
    "--probability", is_flag=True,
    help="Read and store the verifier's P(yes), one token per fact. A fact is verified from --present-from.",
)  # fmt: skip
@click.option(
    "--present-from", type=NumberRange(0, 1), metavar="P",
    help="With --probability: P(yes) from which a fact is verified.  [default: 0.5]",
)  # fmt: skip
@retry_option
@shard_option
@engine_options(max_tokens=1024)
def faithscore(
    answers: str,
    output: str,
    images_root: str | None,
    verifier_model: str | None,
    verifier_engine: str | None,
    verifier_url: str | None,
    setting: str | None,
    probability: bool,
    present_from: float | None,
    retry: bool,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Splits answers into atomic facts and checks each fact against the image.

    ANSWERS are captions or answers that refer to an image. The model specified with --model labels sentences and splits
    them into facts. The verifier must accept images; it decides whether each fact is true.
    """
    if present_from is not None and not probability:
        raise click.UsageError("--present-from requires --probability")
    if probability and present_from is None:
        present_from = 0.5
    with accounted(answers, quiet=settings.quiet) as source:
        to_judge = read_answers_to_judge(source)
    output, to_judge, share = shared(shard, output, to_judge, lambda answer: answer.image or answer.id)
    folder = ImageFolder(images_root)
    with (
        settings.journal(output) as journal,
        two_engines(settings, verifier_model, verifier_engine, verifier_url) as (engine, verifier),
        completion_progress(settings, "judge", None) as advance,
    ):
        tally = judge_faithscore(
            to_judge,
            Session(engine, journal, advance=advance, retry=retry, share=share),
            Session(verifier, journal, advance=advance, retry=retry),
            folder,
            output,
            judge=settings.model,
            verified_by=verifier_model or settings.model,
            sampling=settings.sampling,
            setting=setting,
            present_from=present_from,
        )
    return finish(tally, "answers split and verified", output, settings, again=AGAIN)


@command.command("objhal")
@click.argument("captions", type=PLAIN)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Objects as JSON Lines, for scapo-eval objhal."
)
@click.option(
    "--prompt-file", type=PLAIN, metavar="FILE",
    help="Custom instruction, or a complete prompt with {question} and {answer}.",
)  # fmt: skip
@click.option(
    "--drop-unfinished", is_flag=True, help="First remove the last sentence of a caption if it is unfinished."
)
@retry_option
@shard_option
@engine_options(max_tokens=512)
def objhal(
    captions: str,
    output: str,
    prompt_file: str | None,
    drop_unfinished: bool,
    retry: bool,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Lists the objects in captions. The judge reads only texts.

    CAPTIONS are captions in any layout that scapo-eval import recognizes. The option --model names the judge, which
    answers with a JSON list.
    """
    task = read_text(prompt_file) if prompt_file else OBJECTS_TASK
    with accounted(captions, quiet=settings.quiet) as source:
        to_judge = read_captions(source)
    output, to_judge, share = shared(shard, output, to_judge, lambda caption: caption.caption)
    with judge_session(settings, output, None, retry=retry, share=share) as session:
        tally = judge_objects(
            to_judge, session, output, judge=settings.model,
            task=task, sampling=settings.sampling, drop_unfinished=drop_unfinished,
        )  # fmt: skip
    return finish(tally, "captions with their objects", output, settings, again=AGAIN)


@command.command("facts")
@click.argument("captions", type=PLAIN)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Verdicts as JSON Lines, for scapo-eval facts."
)
@click.option("--images-root", metavar="DIR", help="Folder with the images, in any depth, by file name or id.")
@click.option(
    "--references", type=PLAIN, metavar="FILE", help="Reference claims: records with image_id and claims (texts)."
)
@click.option(
    "--against", type=click.Choice(get_args(Against)),
    help="Source of verification.  [default: all given sources of --images-root and --references]",
)  # fmt: skip
@click.option(
    "--prompts", metavar="DIR",
    help="Folder of custom prompts: any of decompose.txt, verify.txt, match.txt, answer.txt.",
)  # fmt: skip
@verifier_options
@retry_option
@shard_option
@engine_options(max_tokens=4096)
def facts(
    captions: str,
    output: str,
    images_root: str | None,
    references: str | None,
    against: Against | None,
    prompts: str | None,
    verifier_model: str | None,
    verifier_engine: str | None,
    verifier_url: str | None,
    retry: bool,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Splits descriptions into claims, verifies them, and compares them with reference claims.

    CAPTIONS are records with an image and a caption (or response). The model that --model names splits descriptions,
    matches claims, and looks up reference claims. The verifier decides which claims are true, using the image, the
    reference claims, or both.
    """
    if not images_root and not references:
        raise click.UsageError("no source of verification: use --images-root, --references, or both")
    against = against or ("both" if images_root and references else "image" if images_root else "references")
    if against != "image" and not references:
        raise click.UsageError(f"--against {against} needs --references")
    with accounted(captions, quiet=settings.quiet) as source:
        to_judge = read_answers_to_judge(source)
    output, to_judge, share = shared(shard, output, to_judge, lambda answer: answer.image or answer.id)
    known = read_references(references) if references else None
    texts = JudgePrompts.read(prompts) if prompts else JudgePrompts()
    folder = ImageFolder(images_root)
    with (
        settings.journal(output) as journal,
        two_engines(settings, verifier_model, verifier_engine, verifier_url) as (engine, verifier),
        completion_progress(settings, "judge", None) as advance,
    ):
        tally = judge_facts(
            to_judge,
            Session(engine, journal, advance=advance, retry=retry, share=share),
            Session(verifier, journal, advance=advance, retry=retry),
            output,
            judge=settings.model,
            verified_by=verifier_model or settings.model,
            against=against,
            folder=folder,
            references=known,
            prompts=texts,
            sampling=settings.sampling,
            source=captions,
        )
    return finish(tally, "descriptions judged", output, settings, again=AGAIN)


@command.command("claims")
@click.argument("captions", type=PLAIN, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE",
    help="Answers as JSON Lines, for --scenes of scapo-eval claims and reward.",
)  # fmt: skip
@click.option(
    "--images-root", required=True, metavar="DIR", help="Folder with the images, in any depth, by file name or id."
)
@click.option(
    "--vocabulary", type=PLAIN, default="coco80", show_default=True, metavar="NAME|FILE",
    help="Labels and their aliases, as for scapo-eval claims.",
)  # fmt: skip
@click.option(
    "--kinds", default="count,attribute,relation,text", show_default=True, metavar="KIND,...",
    shell_complete=complete_kinds, help="Claims to ask about: presence, count, attribute, relation, text.",
)  # fmt: skip
@click.option(
    "--claims", "reading", type=click.Choice(READINGS), default="all", show_default=True, help="Mentions that count."
)
@click.option("--prompt-file", type=PLAIN, metavar="FILE", help="Custom prompt with {question}.")
@retry_option
@shard_option
@engine_options(max_tokens=64)
def claims(
    captions: tuple[str, ...],
    output: str,
    images_root: str,
    vocabulary: str,
    kinds: str,
    reading: Reading,
    prompt_file: str | None,
    retry: bool,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Asks a judge about the claims in captions, once for each distinct claim about an image. The answers are yes, no,
    absent or unsure.

    CAPTIONS are files in any layout that scapo-eval import recognizes. Include the files of all systems that you want
    to compare. The option --model names the judge, which receives the image and one question.
    """
    task = read_claim_task(prompt_file)
    extractor = ClaimExtractor(Vocabulary.load(vocabulary), kinds_of(kinds))
    read = []
    for path in captions:
        with accounted(path, quiet=settings.quiet) as source:
            read += read_captions(source)
    to_judge = claims_to_judge(read, extractor, reading)
    if not to_judge:
        raise InputError(f"no claim of {', '.join(extractor.kinds)} in the captions", path=captions[0])
    output, to_judge, share = shared(shard, output, to_judge, lambda image: f"{image.image_id} {image.claims}")
    folder = ImageFolder(images_root)
    total = sum(len(image.claims) for image in to_judge)
    with judge_session(settings, output, total, retry=retry, share=share) as session:
        tally = judge_claims(
            to_judge, session, folder, output, judge=settings.model, task=task, sampling=settings.sampling
        )
    return finish(tally, "claims judged", output, settings, again=AGAIN)


@command.command("uses")
@click.argument("captions", type=PLAIN, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE",
    help="Uses as JSON Lines, for --uses of scapo-eval score, chair, claims and reward.",
)  # fmt: skip
@click.option(
    "--vocabulary", type=PLAIN, default="coco80", show_default=True, metavar="NAME|FILE",
    help="Labels and their aliases, as for scoring.",
)  # fmt: skip
@click.option(
    "--prompt-file", type=PLAIN, metavar="FILE",
    help="Custom instruction, or a complete prompt with {caption} and {mentions}.",
)  # fmt: skip
@click.option("--drop-unfinished", is_flag=True, help="Judge captions as --drop-unfinished of the scoring commands.")
@click.option("--answer-only", is_flag=True, help="Judge responses as --answer-only of scapo-eval reward.")
@retry_option
@shard_option
@engine_options(max_tokens=1024)
def uses(
    captions: tuple[str, ...],
    output: str,
    vocabulary: str,
    prompt_file: str | None,
    drop_unfinished: bool,
    answer_only: bool,
    retry: bool,
    shard: Shard | None,
    settings: EngineSettings,
) -> int:
    """Determines how captions use the names of objects: as a claim, hedged, negated and so on. The judge reads only
    texts, each distinct text once.

    CAPTIONS are files in any layout that scapo-eval import recognizes. Include the files of all systems that you want
    to compare. The option --model names the judge. Captions whose answers cannot be read are read by the rules.
    """
    task = read_uses_task(prompt_file)
    matcher = AliasMatcher(Vocabulary.load(vocabulary))
    texts = list[str]()
    for path in captions:
        with accounted(path, quiet=settings.quiet) as source:
            texts += [caption.caption for caption in read_captions(source)]
    for applies, change in ((drop_unfinished, without_unfinished), (answer_only, answer_of)):
        texts = [*map(change, texts)] if applies else texts
    to_judge = captions_to_judge(texts, matcher)
    output, to_judge, share = shared(shard, output, to_judge, lambda caption: caption.text)
    total = sum(bool(caption.mentions) for caption in to_judge)
    with judge_session(settings, output, total, retry=retry, share=share) as session:
        tally = judge_uses(
            to_judge, session, output, matcher=matcher, judge=settings.model,
            task=task, sampling=settings.sampling,
        )  # fmt: skip
    return finish(tally, "texts judged", output, settings, again=AGAIN)
