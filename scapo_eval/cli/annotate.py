"""``scapo-eval annotate``: a judge creates a matrix that states which labels are present or absent in your own images
(the DOPA pipeline).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import click

from ..annotate.coarse import JudgedClaims, calls_left, claims_in, coarse, is_run, joined, open_or_create
from ..annotate.coarse import prompts_for as coarse_prompts
from ..annotate.passes import PRESENT_FROM, UNREAD, Forecast, PassOutcome, Prompt, journal_of, judge_of
from ..annotate.prompt_lint import lint
from ..annotate.prompts import LabelPrompt, Template, claim_prompts
from ..annotate.qc.summary import read_summary, summary_path
from ..annotate.shards import SHARD, keep_shard, rows_of, shard_of
from ..annotate.store import Store, files_of
from ..claiming.claim import kinds_of
from ..engines import Engine
from ..files.files import refuse_replacing
from ..inference.judge_claims import CLAIM_TASK, read_claim_task
from ..inference.runner import Session
from ..inference.shards import Shard
from ..inference.sources import find_images
from ..matching.vocabulary import Vocabulary
from .codes import SOME_FAILED
from .echo import echo
from .engine_options import EngineSettings, completion_progress, engine_options, shard_option
from .files import INPUT, OUTPUT, PICTURES
from .groups import Group
from .numbers import NumberRange, Seed
from .options import complete_kinds

_CLAIM_KINDS = "count,attribute,relation,text"
_FORECAST_EVERY = 60.0  # seconds between forecasts during a pass
_MAX_TOKENS = 256

Command = TypeVar("Command", bound=Callable[..., Any])


_ELSEWHERE = {
    "qc": ("annotate_qc", "command"),
    **{name: ("annotate_views", f"{name}_command") for name in ("mine", "lint", "compare", "status", "history")},
}
"""Command -> (module of this package, attribute). The module is imported when the command is used."""


class _Group(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order of the pipeline."""
        return ["sample", "coarse", "mine", "lint", "refine", "compare", "qc", "status", "history", "finalize"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Returns a command after importing its module if necessary."""
        if name not in _ELSEWHERE:
            return super().get_command(ctx, name)
        module, attribute = _ELSEWHERE[name]
        command: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return command


@click.group("annotate", cls=_Group)
def command() -> None:
    """Builds a matrix that states which labels are present or absent in your own images. A judge creates the matrix,
    and a person verifies it.

    The steps are ``sample``, ``coarse``, ``mine``, ``refine``, ``qc`` and ``finalize``. The commands lint, compare,
    status and history inspect a run. RUN is the folder of the run. If a command was killed, run it again to resume.
    """


def _prices(command: Command) -> Command:
    options = [
        click.option("--price-in", type=NumberRange(0), metavar="X", help="Price of a million prompt tokens."),
        click.option("--price-out", type=NumberRange(0), metavar="X", help="Price of a million completion tokens."),
        click.option("--forecast", is_flag=True, help="Make only the first few calls, and forecast the total cost."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@command.command("sample")
@click.argument("pool", type=PICTURES, nargs=-1, required=True)
@click.option("-n", "n", type=click.IntRange(1), required=True, help="Number of images to draw.")
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    required=True,
    metavar="FILE.jsonl",
    help="List of images, with FILE.card.json.",
)
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Seed of the draw.")
@click.option(
    "--exclude",
    type=INPUT,
    multiple=True,
    metavar="EVAL",
    help="Exclude its images: ground truth, captions, lists, folders.",
)
@click.option("--images-root", metavar="DIR", help="Folder with the images of lists and annotation files.")
def sample_command(
    pool: tuple[str, ...], n: int, output: str, seed: int, exclude: tuple[str, ...], images_root: str | None
) -> None:
    """Draws images from POOL (folders, lists, COCO annotations) and excludes the images of evaluation sets by their
    ids.
    """
    from ..annotate.sample import write_sample

    card = write_sample(output, find_images(pool, images_root), n, seed=seed, exclude=exclude, sources=pool)
    kept_out = sum(source["in_pool"] for source in card["excluded"])
    echo(f"{output}: {n:,} of {card['pool']['images']:,} images, {kept_out:,} images excluded", err=True)


_prompts = click.option(
    "--prompts",
    "texts",
    type=click.Choice(["own", "paper"]),
    default="own",
    show_default=True,
    help="The project's prompts, or those of the SCAPO paper (coarse; refine: book; chair,bench).",
)


_probability = click.option(
    "--probability",
    is_flag=True,
    help="Ask for one word, yes or no, and keep P(yes) of every cell; finalize sets the thresholds.",
)


@command.command("coarse")
@click.argument("images", type=PICTURES, nargs=-1, required=True)
@click.option("-o", "--output", "run", required=True, metavar="RUN", help="Folder of the run, created if necessary.")
@click.option("--vocabulary", type=INPUT, default="dopa160", show_default=True, metavar="NAME|FILE", help="The labels.")
@click.option("--images-root", metavar="DIR", help="Folder with the images of lists and annotation files.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N images.")
@click.option(
    "--captions", type=INPUT, multiple=True, metavar="FILE",
    help="Ask about the claims in these captions or rollouts instead of the labels.",
)  # fmt: skip
@click.option(
    "--judged", type=INPUT, multiple=True, metavar="FILE",
    help="Take over the claims that `judge claims` or a claim matrix has decided.",
)  # fmt: skip
@click.option(
    "--kinds",
    default=_CLAIM_KINDS,
    show_default=True,
    metavar="KIND,...",
    shell_complete=complete_kinds,
    help="Kinds of claims, for --captions and --judged.",
)
@click.option(
    "--labels-per-call", type=click.IntRange(1), default=1, show_default=True, help="Higher: cheaper, less exact."
)
@click.option("--prompt", metavar="FILE", help="Custom prompt with {object} for the label, or {question}.")
@_prompts
@_probability
@shard_option
@click.option(
    "--servers", type=click.IntRange(1), default=1, metavar="N", help="Forecast for N servers with the same speed."
)
@click.option("--price-hour", type=NumberRange(0), metavar="X", help="Price of an hour of one server.")
@_prices
@engine_options(max_tokens=_MAX_TOKENS)
def coarse_command(
    images: tuple[str, ...],
    run: str,
    vocabulary: str,
    images_root: str | None,
    limit: int | None,
    captions: tuple[str, ...],
    judged: tuple[str, ...],
    kinds: str,
    labels_per_call: int,
    prompt: str | None,
    texts: str,
    probability: bool,
    shard: Shard | None,
    servers: int,
    price_hour: float | None,
    price_in: float | None,
    price_out: float | None,
    forecast: bool,
    settings: EngineSettings,
) -> int:
    """Asks a judge about every label in every image of IMAGES (folders, globs, lists, COCO annotations).

    With --captions, the command instead asks about every distinct claim that the captions make about an image. With
    --judged, the command asks only about the claims that the file leaves undecided.
    """
    from ..annotate.sample import card_of

    _no_restart(settings)
    labels = Vocabulary.load(vocabulary)
    pictures = find_images(images, images_root, limit)
    if texts == "paper" and (prompt or labels_per_call > 1):
        raise click.UsageError("--prompts paper asks about one label per call and excludes --prompt")
    if probability and (texts == "paper" or labels_per_call > 1):
        raise click.UsageError(
            "--probability requires a one-word answer about one label per call; the paper's prompt requests JSON"
        )
    of_claims = bool(captions or judged)
    if of_claims and (texts == "paper" or labels_per_call > 1):
        raise click.UsageError("--captions and --judged ask about one claim per call, and exclude --prompts paper")
    decided = [JudgedClaims.load(path, pictures, labels, kinds_of(kinds)) for path in judged]
    mined, foreign = claims_in(captions, pictures, labels, kinds_of(kinds)) if captions else ({}, 0)
    claims = joined([mined, *(each.states for each in decided)]) if of_claims else None
    if foreign:
        settings.warn(f"{foreign:,} captions of images that are not in the list")
    for note in (note for each in decided for note in each.notes):
        settings.warn(note)
    task, template = CLAIM_TASK, None
    if of_claims:
        task = read_claim_task(prompt)
    else:
        template = Template.read(prompt, "coarse") if prompt else None
        template = Template.published("coarse") if texts == "paper" else template
        # an invalid prompt must not create a run
        coarse_prompts(labels, labels_per_call, template, one_word=probability)
    run = shard.path(run) if shard else run
    if not decided and not is_run(run):  # a run whose cells are decided needs no engine
        settings.require()
    with open_or_create(run, pictures, labels, claims) as store:
        keep_shard(store, shard)
        rows = rows_of(store, shard)
        if labels.info != store.vocabulary.info:
            settings.warn(
                f"definitions of {vocabulary} have changed; the run uses its own copy ({run}/vocabulary.json)"
            )
        if card := card_of(images):
            store.keep_pool(card)
        prompts: Sequence[Prompt]
        for each in decided:
            each.store(store, rows)
        if of_claims:
            prompts = claim_prompts(store.claims, task, one_word=probability)
        else:
            prompts = of_labels = coarse_prompts(store.vocabulary, labels_per_call, template, one_word=probability)
            if prompt:
                _warn_of_prompts(of_labels, store.vocabulary, settings)
        total = calls_left(store, prompts, rows)
        _say(settings, f"{run}: {_sizes(store)}")
        if not total:  # no engine is needed
            return _finish(store, PassOutcome(), settings)

        def work(session: Session, report: Callable[[Forecast], None]) -> PassOutcome:
            _warn_of_other_judges(store, session.engine, settings)
            return coarse(
                store, session, prompts, sampling=settings.sampling, report=report, only_first=forecast, rows=rows
            )

        prices = Prices(price_in, price_out, price_hour, servers)
        return _pass(store, settings, "coarse", lambda engine: total, prices, forecast, work)


@command.command("refine")
@click.argument("run")
@click.option(
    "--labels", metavar="A,B,...", default="", help="Ask about these labels again, with the general label prompt."
)
@click.option(
    "--prompt", "own", multiple=True, metavar="LABEL=FILE", help="Ask about a label again, with a custom prompt."
)
@click.option(
    "--joint",
    multiple=True,
    metavar="A,B[=FILE]",
    help="Ask about confused labels in one call, with the general joint prompt or a custom one.",
)
@click.option(
    "--cells", type=INPUT, metavar="FILE", help="Ask only about the cells in this list (from `annotate mine`)."
)
@click.option(
    "--vocabulary",
    type=INPUT,
    metavar="FILE",
    help="Use definitions from this file (with the labels and aliases of the run).",
)
@click.option("--reason", default="", help="Reason for asking again, for the history.")
@click.option("--round", "number", type=click.IntRange(0), help="Round of quality control.  [default: last round]")
@_prompts
@_probability
@_prices
@engine_options(max_tokens=_MAX_TOKENS)
def refine_command(
    run: str,
    labels: str,
    own: tuple[str, ...],
    joint: tuple[str, ...],
    cells: str | None,
    vocabulary: str | None,
    reason: str,
    number: int | None,
    texts: str,
    probability: bool,
    price_in: float | None,
    price_out: float | None,
    forecast: bool,
    settings: EngineSettings,
) -> int:
    """Asks a judge again about those cells of RUN that the options select. All human decisions and all earlier verdicts
    are kept.
    """
    from ..annotate.refine import Refinement, all_cells, listed_cells, needed_calls, prompts_for, refine

    _no_restart(settings)
    given = Vocabulary.load(vocabulary) if vocabulary else None
    with Store.open(run, vocabulary=given, write=True) as store:
        store.refuse_claims()
        prompts = prompts_for(
            given or store.vocabulary, _names(labels), own=own_prompts(own), groups=joint_groups(joint),
            published=texts == "paper", one_word=probability,
        )  # fmt: skip
        if not prompts:
            raise click.UsageError("nothing to ask: specify labels with --labels, --prompt or --joint")
        _warn_of_prompts(prompts, store.vocabulary, settings)
        wanted = all_cells(store, prompts)
        if cells:
            wanted &= listed_cells(store, cells)
        refinement = Refinement(
            prompts, wanted, reason or ("listed cells" if cells else "refined prompt"), _round(store, number)
        )

        def work(session: Session, report: Callable[[Forecast], None]) -> PassOutcome:
            return refine(store, session, refinement, sampling=settings.sampling, report=report, only_first=forecast)

        def count(engine: Engine) -> int:
            return int(needed_calls(store, refinement, judge_of(engine)).sum())

        return _pass(store, settings, "refine", count, Prices(price_in, price_out), forecast, work)


def _pass(
    store: Store,
    settings: EngineSettings,
    name: str,
    count: Callable[[Engine], int],
    prices: Prices,
    only_forecast: bool,
    work: Callable[[Session, Callable[[Forecast], None]], PassOutcome],
) -> int:
    """Runs one pass in which an engine answers questions about cells, and provides forecasts of time and cost. Returns
    the exit code of the command.
    """
    settings.require()
    told_at = 0.0

    def report(forecast: Forecast) -> None:
        nonlocal told_at
        if not told_at or time.monotonic() - told_at >= _FORECAST_EVERY:
            told_at = time.monotonic()
            _say(settings, _forecast_text(forecast, prices))

    with ExitStack() as stack:
        journal = stack.enter_context(journal_of(store, settings.warn))
        engine = settings.make()
        stack.callback(engine.close)
        total = count(engine)
        _say(settings, f"{store.folder}: {total:,} calls to make")
        if not total:
            return _finish(store, PassOutcome(), settings)
        advance = stack.enter_context(completion_progress(settings, name, total))
        session = Session(engine, journal, advance=advance)
        outcome = work(session, report)
        tally = session.tally
    if only_forecast:
        _say(settings, "forecast only: the same command without --forecast continues from here")
        return 0
    _say(settings, f"{store.folder}: {tally.summary('answers')}")
    return _finish(store, outcome, settings)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices from which the cost of a pass is forecast.

    Attributes:
        tokens_in, tokens_out: Prices per million prompt tokens and per million completion tokens.
        hour: Price of one server for one hour.
        servers: Number of servers that share the work.
    """

    tokens_in: float | None = None
    tokens_out: float | None = None
    hour: float | None = None
    servers: int = 1


def _forecast_text(forecast: Forecast, prices: Prices) -> str:
    parts = [f"{forecast.done:,} of {forecast.total:,} calls"]
    if forecast.made and forecast.seconds > 0:
        parts.append(f"{forecast.made / forecast.seconds:,.1f}/s")
    if forecast.prompt_tokens:
        parts.append(f"{forecast.prompt_tokens:,.0f} + {forecast.completion_tokens:,.1f} tokens per call")
    if forecast.left and forecast.seconds_left is not None:
        parts.append(f"{_duration(forecast.seconds_left)} left")
        if prices.servers > 1:
            parts.append(f"{_duration(forecast.seconds_left / prices.servers)} on {prices.servers:,} servers")
        if prices.hour is not None:
            parts.append(f"{forecast.seconds_left / 3600 * prices.hour:,.2f} for the servers' hours")
        if forecast.prompt_tokens:
            tokens = (forecast.left * forecast.prompt_tokens, forecast.left * forecast.completion_tokens)
            parts.append(f"{tokens[0] / 1e6:,.2f} M + {tokens[1] / 1e6:,.2f} M tokens to come")
    if prices.tokens_in is not None or prices.tokens_out is not None:
        tokens = prices.tokens_in or 0.0, prices.tokens_out or 0.0
        spent, whole = forecast.cost(forecast.done, *tokens), forecast.cost(forecast.total, *tokens)
        parts.append(
            f"cost {spent:,.2f} of {whole:,.2f}"
            if forecast.prompt_tokens
            else "cost unknown: the engine does not count tokens"
        )
    return "forecast: " + ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _finish(store: Store, outcome: PassOutcome, settings: EngineSettings) -> int:
    parts = [f"{outcome.cells:,} cells asked", f"{outcome.present:,} {'true' if store.claims else 'present'}"]
    parts += [f"{outcome.changed:,} changed"] if outcome.changed else []
    parts += [f"{len(outcome.unread):,} without a readable verdict"] if outcome.unread else []
    parts += [f"{len(outcome.failed):,} without an answer"] if outcome.failed else []
    parts += [f"{len(outcome.excluded):,} images cannot be loaded"] if outcome.excluded else []
    if outcome.calls or outcome.excluded:
        _say(settings, f"{store.folder}: {'; '.join(parts)}")
    own = rows_of(store, shard_of(store.folder) if (store.folder / SHARD).exists() else None)
    still = int(own[store.open_cells()[:, 0]].sum())
    if still:
        _say(settings, f"{store.folder / UNREAD}: lists open cells; {still:,} in all")
    if store.excluded:
        _say(settings, f"{store.folder / 'excluded.jsonl'}: {len(store.excluded):,} images are excluded")
    return SOME_FAILED if outcome.flawed or still or store.excluded else 0


def _say(settings: EngineSettings, text: str) -> None:
    if not settings.quiet:
        echo(text, err=True)


def _no_restart(settings: EngineSettings) -> None:
    if settings.restart:
        raise click.UsageError("a run contains every version of its verdicts; to start again, choose another folder")


def _warn_of_other_judges(store: Store, engine: Engine, settings: EngineSettings) -> None:
    others = {provenance.judge for provenance in store.provenances if provenance.kind == "coarse"} - {judge_of(engine)}
    if others:
        settings.warn(f"this run has coarse verdicts of {', '.join(sorted(others))}; {judge_of(engine)} adds to them")


def _warn_of_prompts(prompts: Sequence[LabelPrompt], vocabulary: Vocabulary, settings: EngineSettings) -> None:
    mismatches = [finding for finding in lint(prompts, vocabulary) if finding.kind != "both"]
    if mismatches:
        first = f"{mismatches[0].label}: {', '.join(mismatches[0].aliases[:3])}"
        settings.warn(
            f"{len(mismatches)} labels have aliases that their prompt does not count ({first}...); see annotate lint"
        )


def _sizes(store: Store) -> str:
    settled = int((store.cells & ~store.unsettled).sum())
    if store.claims:
        return f"{len(store.images):,} images, {len(store.claims):,} claims, {settled:,} settled"
    return f"{len(store.image_ids):,} images x {len(store.labels):,} labels, {settled:,} cells settled"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def own_prompts(options: Sequence[str]) -> dict[str, str]:
    """Parses ``--prompt LABEL=FILE`` options into a mapping from label to file."""
    paths: dict[str, str] = {}
    for option in options:
        label, equals, path = option.partition("=")
        if not equals or not label or not path or label in paths:
            raise click.UsageError(f"expected --prompt LABEL=FILE, each label once, got '{option}'")
        paths[label] = path
    return paths


def joint_groups(options: Sequence[str]) -> dict[tuple[str, ...], str | None]:
    """Parses ``--joint A,B[=FILE]`` options into a mapping from a group of labels to its prompt file, or to None for
    the project's own prompt.
    """
    paths: dict[tuple[str, ...], str | None] = {}
    for option in options:
        names, _, path = option.partition("=")
        group = tuple(_names(names))
        if not group:
            raise click.UsageError(f"expected --joint A,B or --joint A,B=FILE, got '{option}'")
        paths[group] = path or None
    return paths


def _round(store: Store, given: int | None) -> int:
    """Returns the number of the quality-control round on which a refinement is based."""
    if given is not None or not summary_path(store).is_file():
        return given or 0
    return len(read_summary(store)["rounds"])


@command.command("finalize")
@click.argument("run")
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Name ending in .npz or .parquet.")
@click.option("--allow-unknown", is_flag=True, help="Write open cells as unknown instead of raising an error.")
@click.option(
    "--license", "--licence", "license_", default="", metavar="TEXT",
    help="License of the matrix, for the card, for example CC-BY-4.0.",
)  # fmt: skip
@click.option("--note", default="", metavar="TEXT", help="A sentence for the card.")
@click.option(
    "--present-from", type=NumberRange(0, 1), default=PRESENT_FROM, show_default=True, metavar="P",
    help="Cells with a probability: P(yes) from which a label is present.",
)  # fmt: skip
@click.option(
    "--absent-below", type=NumberRange(0, 1), metavar="P",
    help="P(yes) below which it is absent; between the two it is unknown.  [default: --present-from]",
)  # fmt: skip
@click.option(
    "--prompts", metavar="FILE", help="Also write training prompts (JSON Lines) for the images of the matrix."
)
def finalize_command(
    run: str,
    output: str,
    allow_unknown: bool,
    license_: str,
    note: str,
    present_from: float,
    absent_below: float | None,
    prompts: str | None,
) -> None:
    """Writes the matrix of RUN, which all scorers and rewards accept, and writes FILE.card.json and FILE.card.md."""
    from ..annotate.finalize import CARD, MARKDOWN, finalize, write_prompts

    refuse_replacing([output, f"{output}{CARD}", f"{output}{MARKDOWN}", *filter(None, [prompts])], files_of(run))
    if absent_below is not None and absent_below > present_from:
        raise click.UsageError("--absent-below is above --present-from")
    store = Store.open(run)
    thresholds = (present_from if absent_below is None else absent_below, present_from)
    card = finalize(store, output, allow_unknown=allow_unknown, license=license_, note=note, thresholds=thresholds)
    if prompts is not None:
        echo(f"{prompts}: {write_prompts(store, prompts):,} prompts (data.train of scapo_train)", err=True)
    cells, images = card["cells"], card["images"]
    found = (
        f"{sum(kind['claims'] for kind in card['claims'].values()):,} claims about {images['n']:,} images, "
        f"{cells['present']:,} true, {cells['absent']:,} false"
        if "claims" in card
        else f"{images['n']:,} images x {card['vocabulary']['labels']:,} labels, "
        f"{cells['present_per_image']:.2f} present per image"
    )
    excluded = f"{len(images['excluded']):,} images excluded"
    echo(f"{output}: {found}, {cells['unknown']:,} unknown; {excluded}", err=True)
    if card["quality_control"] is None:
        echo(
            "scapo-eval: warning: no person has checked this matrix (annotate qc), so its error rate is unknown",
            err=True,
        )
    if not license_:
        echo("scapo-eval: warning: --license is missing: the card says NOT STATED", err=True)
