"""``scapo-eval annotate qc``: lets a person check random cells, and computes bounds on the remaining errors."""

from __future__ import annotations

import getpass
import shlex
import sys
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from ..annotate.qc.draws import DEFAULT_AT_LEAST, DEFAULT_RANDOM, PRESENT_PER_LABEL
from ..annotate.qc.exchange import pairs_table, read_answers
from ..annotate.qc.rounds import ask_undecided, check_person, close_round, draw_round, draw_second, open_round
from ..annotate.qc.summary import DEFAULT_CONFIDENCE, refine_command, summarize, write_summary
from ..annotate.qc.summary_tables import SummaryTable as Content
from ..annotate.qc.summary_tables import labels_table, overall_table, people_lines, rounds_table, words_of
from ..annotate.store import Store, files_of
from ..base.errors import ScapoError
from ..base.text import guarded
from ..files.files import atomic_write, refuse_replacing
from ..files.json_text import dump_json
from ..results.stats import DEFAULT_SEED
from .echo import echo
from .files import OUTPUT, PLAIN
from .groups import Group
from .numbers import NumberRange, Seed
from .screen import SafeConsole
from .tables import first_few

CONFIDENCE = click.option(
    "--confidence", type=NumberRange(0.5, 1, max_open=True), default=DEFAULT_CONFIDENCE, show_default=True,
    help="Confidence of each bound, after any number of rounds.",
)  # fmt: skip
BY = click.option("--by", metavar="NAME", help="Name of the person who answers.  [default: your user name]")

SECOND = click.option("--second", is_flag=True, help="Use the second person's share (draw --second).")


@click.group("qc", cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Lets a person check random cells on a local web page, and computes bounds on the remaining errors.

    First run `draw RUN`, then `serve RUN`. Answer the pairs in the browser, and then finish the round to list the
    labels with errors. Run `annotate refine` on these labels and draw again, until a round over all labels contains no
    errors.
    """


@command.command()
@click.argument("run")
@click.option("--random", type=click.IntRange(1), default=DEFAULT_RANDOM, show_default=True, help="Pairs per label.")
@click.option(
    "--present", type=click.IntRange(1), metavar="N",
    help=f"Number of pairs among all present cells.  [default: {PRESENT_PER_LABEL} for each label]",
)  # fmt: skip
@click.option(
    "--at-least", type=click.IntRange(0), default=DEFAULT_AT_LEAST, show_default=True,
    help="Minimum number of present pairs per label, including the other draws.",
)  # fmt: skip
@click.option(
    "--labels", metavar="A,B", help="Draw only these labels, to check a refinement. Overall bounds require all labels."
)
@click.option("--failing", is_flag=True, help="Draw only the labels with errors in the last finished round.")
@click.option("--undecided", is_flag=True, help="Draw instead every cell without a readable verdict.")
@click.option(
    "--second", type=NumberRange(0, 1, min_open=True), metavar="SHARE",
    help="Draw instead a share of the last round's pairs, for a second person (serve --second).",
)  # fmt: skip
@click.option("--seed", type=Seed(), default=DEFAULT_SEED, show_default=True, help="Seed of the draw.")
def draw(
    run: str,
    random: int,
    present: int | None,
    at_least: int,
    labels: str | None,
    failing: bool,
    undecided: bool,
    second: float | None,
    seed: int,
) -> None:
    """Draws the next round, excluding pairs that a person has already seen."""
    if sum(map(bool, (labels, failing, undecided, second))) > 1:
        raise click.UsageError("--labels, --failing, --undecided and --second exclude each other")
    store = Store.open(run)
    if second:
        share = draw_second(store, share=second, seed=seed)
        echo(f"round {share.number}: {len(share.answers):,} pairs for a second person; seed {seed}", err=True)
        echo(f"answer them: scapo-eval annotate qc serve {shlex.quote(run)} --second --by NAME", err=True)
        return
    if undecided:
        asked_for = ask_undecided(store)
        echo(f"round {asked_for.number}: {len(asked_for.answers):,} undecided cells", err=True)
        echo(f"answer them: scapo-eval annotate qc serve {shlex.quote(run)}", err=True)
        return
    wanted = [label.strip() for label in labels.split(",")] if labels else None
    if failing:
        wanted = summarize(store)["refine"]
        if not wanted:
            raise ScapoError("no label has errors in the last finished round")
    drawn = draw_round(store, labels=wanted, random=random, present=present, at_least=at_least, seed=seed)
    asked = drawn.draw.pairs
    echo(
        f"round {drawn.number}: {len(asked.rows):,} pairs of {len(drawn.draw.labels):,} labels "
        f"({int((~asked.random).sum()):,} drawn because the judge calls them present); seed {seed}",
        err=True,
    )
    echo(f"answer them: scapo-eval annotate qc serve {shlex.quote(run)}", err=True)


@command.command()
@click.argument("run")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: any free one]")
@click.option("--open", "browse", is_flag=True, help="Open the page in the browser.")
@BY
@SECOND
@CONFIDENCE
def serve(run: str, port: int, browse: bool, by: str | None, second: bool, confidence: float) -> None:
    """Serves the page for the open round.

    The page is accessible only from this machine, and is served until you press Ctrl-C. Every answer is saved
    immediately.

    To open the page on another machine, run ssh -L 8000:127.0.0.1:8000 HOST on that machine, and use --port 8000 here.
    """
    from ..annotate.qc.server import QcServer

    store = Store.open(run)
    with open_round(store, write=True, second=second) as current:
        check_person(store, current, by or _user())

        def finished(summary: dict[str, Any]) -> None:
            show(summary, run)
            echo("the page shows the errors; Ctrl-C stops the server", err=True)

        try:
            server = QcServer(
                store, current, by=by or _user(), port=port, confidence=confidence, finished=finished
            )  # fmt: skip
        except OSError as error:
            raise ScapoError(f"port {port} cannot be used: {error.strerror}") from None
        with server:
            left = len(current.open_pairs)
            echo(f"round {current.number}: {left:,} of {len(current.answers):,} pairs to answer", err=True)
            echo(server.url)
            sys.stdout.flush()
            if browse:
                click.launch(server.url)
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                echo("\nstopped; every answer is saved", err=True)


@command.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print the current content of qc/summary.json.")
@click.option("--errors", "list_errors", is_flag=True, help="List all errors.")
@CONFIDENCE
def status(run: str, as_json: bool, list_errors: bool, confidence: float) -> None:
    """Lists the rounds, the errors, and bounds on the remaining errors.

    Bounds are listed per label and overall. A star marks labels that were changed after their last draw.
    """
    summary = summarize(Store.open(run), confidence=confidence)
    if as_json:
        echo(dump_json(summary))
        return
    show(summary, run, labels=True)
    if list_errors:
        claim = ("claim",) if summary["claims"] else ()
        keys = ("round", "image_id", "label", *claim, "judged", "person", "by", "prompt", "judge")
        echo("\t".join(keys))
        for error in summary["errors"]:
            echo("\t".join(guarded(" ".join(str(error[key]).split())) for key in keys))


@command.command()
@click.argument("run")
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="CSV, or - for standard output.")
@SECOND
def export(run: str, output: str, second: bool) -> None:
    """Writes the pairs of the open round as CSV.

    The pairs can then be answered with another tool. The judge's verdicts remain hidden.
    """
    store = Store.open(run)
    refuse_replacing([output], files_of(run))
    with atomic_write(output) as stream:
        stream.write(pairs_table(open_round(store, second=second), store))


@command.command("import")
@click.argument("run")
@click.argument("answers", type=PLAIN)
@BY
@SECOND
def import_(run: str, answers: str, by: str | None, second: bool) -> None:
    """Imports answers to the open round from CSV or JSON Lines.

    The fields are image_id, label and verdict (yes, no, unsure, missing). Lines without a verdict are skipped.
    """
    store = Store.open(run)
    with open_round(store, write=True, second=second) as current:
        check_person(store, current, by or _user())
        taken = read_answers(answers, current, store)
        current.answer_many(taken, by=by or _user())
        left = len(current.open_pairs)
    echo(f"round {current.number}: {len(taken):,} answers imported, {left:,} pairs still open", err=True)
    if not left:
        echo(f"finish it: scapo-eval annotate qc close {shlex.quote(run)}{' --second' if second else ''}", err=True)


@command.command()
@click.argument("run")
@click.option("--abandon", is_flag=True, help="End the round with open pairs. Answers are kept, without bounds.")
@SECOND
@CONFIDENCE
def close(run: str, abandon: bool, second: bool, confidence: float) -> None:
    """Finishes the open round.

    Like the button on the page, this command writes the verdicts into the run and lists the errors.
    """
    with Store.open(run, write=True) as store, open_round(store, write=True, second=second) as current:
        close_round(store, current, abandon=abandon)
        summary = write_summary(store, confidence=confidence)
    show(summary, run)


def show(summary: dict[str, Any], run: str, *, labels: bool = False) -> None:
    """Prints a summary with the rounds, the bounds and the next step."""
    console = SafeConsole(highlight=False)
    _table(console, rounds_table(summary))
    for line in people_lines(summary):
        console.print(Text(line), soft_wrap=True)
    if (labels or summary["claims"]) and summary["labels"]:
        console.print()
        _table(console, labels_table(summary))
    console.print()
    if overall := overall_table(summary):
        _table(console, overall)
    else:
        console.print(Text(f"no overall bounds: {summary['overall_missing']}"))
    if summary["stale"]:
        console.print(Text(f"changed since their last draw: {first_few(summary['stale'], 12)}"))
    if summary["refine"]:
        name = words_of(summary)["label"]
        console.print(Text(f"{name}s with errors in the last round: {first_few(summary['refine'], 12)}"))
    if next_step := refine_command(run, summary):
        console.print(Text(next_step), soft_wrap=True)


def _table(console: SafeConsole, content: Content) -> None:
    """Prints a table if the output is a terminal, otherwise tab-separated values."""
    heads, rows = content
    if not console.is_terminal:
        for row in (heads, *rows):
            echo("\t".join(map(guarded, row)))
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for k, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if k == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise ScapoError("user name not found; specify it with --by NAME") from None
