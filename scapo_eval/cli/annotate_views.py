"""Read-only commands of ``scapo-eval annotate``: ``mine``, ``lint``, ``compare``, ``status``, ``history``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click
from rich.table import Table
from rich.text import Text

from ..annotate.agreement import compare
from ..annotate.coarse import prompts_for as coarse_prompts
from ..annotate.mine import LabelConfusion, confusion, disputed, read_rollouts, suggested
from ..annotate.prompt_lint import lint
from ..annotate.prompts import LabelPrompt, Template, known_groups
from ..annotate.refine import prompts_for
from ..annotate.store import Store
from ..base.errors import InputError
from ..base.ids import canonical_image_id
from ..base.text import guarded
from ..base.verdicts import UNKNOWN
from ..claiming.claim import question_of
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..matching.mining import mine
from ..matching.vocabulary import Vocabulary
from .annotate import joint_groups, own_prompts
from .base import Verb
from .codes import BAD_INPUT
from .echo import echo
from .files import INPUT, OUTPUT, PLAIN
from .screen import SafeConsole


@click.command("mine", cls=Verb)
@click.argument("run")
@click.argument("rollouts", type=PLAIN, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=OUTPUT, metavar="FILE.jsonl", help="Write the disputed cells, for `refine --cells`."
)
@click.option(
    "--min-rollouts",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Minimum number of contradicting rollouts.",
)
@click.option(
    "--top", type=click.IntRange(0), default=15, show_default=True, help="Number of cells, labels and phrases to show."
)
@click.option("--words/--no-words", default=True, help="Search for mentions outside the vocabulary.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mine_command(
    run: str, rollouts: tuple[str, ...], output: str | None, min_rollouts: int, top: int, words: bool, as_json: bool
) -> None:
    """Finds contradictions between ROLLOUTS (several captions per image) and the matrix, as well as words that are
    missing from the vocabulary.
    """
    if twice := [path for k, path in enumerate(rollouts) if path in rollouts[:k]]:
        raise InputError("the file is given twice", path=twice[0])
    store = Store.open(run)
    store.refuse_claims()
    mentions = read_rollouts(store, rollouts)
    if not mentions.rollouts.any():
        raise InputError(f"rollouts of the images of {run} not found", path=rollouts[0])
    cells = disputed(store, mentions, min_rollouts=min_rollouts)
    labels = confusion(store, mentions, cells)
    advised = suggested(labels)[:top]
    phrases = mine(mentions.texts, store.vocabulary)[:top] if words else []
    rows = [
        {
            "image_id": store.image_ids[cell.row], "label": store.labels[cell.column], "verdict": cell.verdict,
            "claims": cell.claims, "rollouts": cell.rollouts, "evidence": round(cell.evidence, 4),
        }
        for cell in cells
    ]  # fmt: skip
    if output:
        with atomic_write(output) as stream:
            stream.writelines(dump_json(row) + b"\n" for row in rows)
    if mentions.unknown:
        echo(f"scapo-eval: warning: {mentions.unknown:,} rollouts of images that are not in the run", err=True)
    if as_json:
        record = {
            "rollouts": int(mentions.rollouts.sum()),
            "disputed": len(rows),
            "cells": rows[:top],
            "labels": [_confusion_row(label) for label in labels],
            "suggested": [confused.label for confused in advised],
            "outside": [{"phrase": phrase.phrase, "captions": phrase.captions} for phrase in phrases],
        }
        sys.stdout.write(dump_json(record).decode() + "\n")
        return
    echo(f"{int(mentions.rollouts.sum()):,} rollouts; {len(rows):,} disputed cells", err=True)
    _table(
        ("image", "label", "judge", "claimed by", "rollouts", "evidence"),
        (
            (store.image_ids[cell.row], store.labels[cell.column], "present" if cell.verdict else "absent",
             cell.claims, cell.rollouts, f"{cell.evidence:.1f}")
            for cell in cells[:top]
        ),
    )  # fmt: skip
    _table(
        ("label", "present", "claimed, judged absent", "silent, judged present", "said if there", "if not", "beside"),
        (
            (label.label, label.present, label.claimed_absent, label.silent_present, _percent(label.claim_rate_present),
             _percent(label.claim_rate_absent), label.with_label)
            for label in labels[:top]
        ),
    )  # fmt: skip
    if phrases:
        _table(("not in the vocabulary", "captions"), ((phrase.phrase, phrase.captions) for phrase in phrases))
    if advised:
        echo("candidates for a custom prompt: " + ", ".join(confused.label for confused in advised))
    if groups := _worth_joining(store.vocabulary, advised):
        echo("perhaps together: " + "; ".join(",".join(group) for group in groups))


def _worth_joining(vocabulary: Vocabulary, advised: Sequence[LabelConfusion]) -> list[tuple[str, ...]]:
    """Returns pairs of labels that are confused with each other, and known groups of labels that contain a suggested
    label.
    """
    pairs = {tuple(sorted((confused.label, confused.with_label))) for confused in advised if confused.with_label}
    names = {confused.label for confused in advised}
    pairs |= {tuple(sorted(group)) for group in known_groups(vocabulary) if names & set(group)}
    return sorted(pairs)


def _confusion_row(confused: LabelConfusion) -> dict[str, object]:
    rates = {name: getattr(confused, name) for name in ("claim_rate_present", "claim_rate_absent")}
    return {
        "label": confused.label, "present": confused.present, "claimed_absent": confused.claimed_absent,
        "silent_present": confused.silent_present, "with_label": confused.with_label or None,
        **{name: None if rate != rate else rate for name, rate in rates.items()},
    }  # fmt: skip


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table if the output is a terminal, otherwise tab-separated values."""
    console = SafeConsole(highlight=False)
    texts = [
        [f"{cell:,}" if isinstance(cell, int) and console.is_terminal else str(cell) for cell in row] for row in rows
    ]
    if not console.is_terminal:
        sys.stdout.write("".join("\t".join(map(guarded, row)) + "\n" for row in [list(columns), *texts]))
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def _percent(share: float | None) -> str:
    return "n/a" if share is None or share != share else f"{100 * share:.2f}%"


@click.command("lint", cls=Verb)
@click.argument("run", required=False)
@click.option(
    "--vocabulary", type=INPUT, metavar="NAME|FILE", help="Vocabulary, if there is no RUN.  [default: dopa160]"
)
@click.option("--coarse", "coarse_file", metavar="FILE", help="Custom coarse prompt.")
@click.option("--prompt", "own", multiple=True, metavar="LABEL=FILE", help="Label-specific prompt.")
@click.option("--joint", multiple=True, metavar="A,B[=FILE]", help="Joint prompt.")
def lint_command(
    run: str | None, vocabulary: str | None, coarse_file: str | None, own: tuple[str, ...], joint: tuple[str, ...]
) -> int:
    """Checks prompts against the aliases: every word that counts as a label in captions must also count for the judge.

    If a RUN is given, every prompt in the run is checked. Otherwise, the given files are checked, or the project's own
    prompts if no files are given. The exit code is 2 if an alias is counted in captions, but not in a prompt. If a
    prompt names an alias both as counting and as not counting, only a note is issued.
    """
    if run and vocabulary:
        raise click.UsageError("--vocabulary cannot be given with a RUN, which has its own")
    store = Store.open(run) if run else None
    labels = store.vocabulary if store else Vocabulary.load(vocabulary or "dopa160")
    prompts = prompts_for(labels, [], own=own_prompts(own), groups=joint_groups(joint))
    if coarse_file:
        prompts += coarse_prompts(labels, 1, Template.read(coarse_file, "coarse"))
    if store:
        store.refuse_claims()
        prompts += [
            LabelPrompt(name.rpartition("@")[0], row["kind"], tuple(row["labels"]), row["system"], row["user"])
            for name, row in store.prompts.items()
        ]
    if not prompts:
        prompts = coarse_prompts(labels)
        prompts += prompts_for(labels, labels.labels, own={}, groups={})
        for group in known_groups(labels):
            prompts += prompts_for(labels, [], own={}, groups={group: None})
    findings = lint(prompts, labels)
    for finding in findings:
        why = {
            "excluded": "counts as the label in captions, but not in the prompt",
            "both": "is named as counting and as not counting",
            "subtype": "counts as the label in captions, but the prompt counts no subtypes and does not name it",
            "unnamed": "counts as the label in captions, but the prompt does not name it",
        }[finding.kind]
        place = f' ("{finding.text}")' if finding.text else ""
        echo(f"{finding.prompt}: {finding.label}: {finding.kind}: {', '.join(finding.aliases)}: {why}{place}")
    notes = sum(finding.kind == "both" for finding in findings)
    echo(f"{len(prompts)} prompts, {len(findings) - notes or 'no'} findings, {notes} notes", err=True)
    return BAD_INPUT if len(findings) > notes else 0


@click.command("compare", cls=Verb)
@click.argument("run")
@click.argument("reference")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--top", type=click.IntRange(0), default=15, show_default=True, help="Number of labels to show.")
def compare_command(run: str, reference: str, as_json: bool, top: int) -> None:
    """Compares the verdicts of RUN with those of REFERENCE on the cells that were judged in both runs. Such a
    comparison shows, for example, the effect of asking about several labels per call, or the agreement of two judges.
    """
    comparison = compare(Store.open(run), Store.open(reference))
    if as_json:
        shares = {
            name: {"value": value, "ci_low": between.low, "ci_high": between.high}
            for name, (value, between) in comparison.shares.items()
        }
        columns = ("label", "cells", "only_run", "only_reference")
        labels = [dict(zip(columns, row, strict=True)) for row in comparison.labels]
        counts = {"images": comparison.images, "cells": comparison.cells, "differ": comparison.differ}
        sys.stdout.write(dump_json({**counts, "shares": shares, "labels": labels}).decode() + "\n")
        return
    echo(f"{comparison.cells:,} cells of {comparison.images:,} images, {comparison.differ:,} differ", err=True)
    figures = (
        (name.replace("_", " "), _percent(value), _percent(between.low), _percent(between.high))
        for name, (value, between) in comparison.shares.items()
    )
    _table(("share", "value", "ci low", "ci high"), figures)
    differing = (row for row in comparison.labels[:top] if row[2] + row[3])
    _table(("label", "cells", f"present only in {run}", f"only in {reference}"), differing)


@click.command("status", cls=Verb)
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(run: str, as_json: bool) -> None:
    """Lists the numbers of settled and open cells in RUN by kind of verdict, and the number of excluded images."""
    store = Store.open(run)
    of_kind: dict[str, int] = {}
    for k, provenance in enumerate(store.provenances):
        number = int(((store.provenance_ids == k) & ~store.unsettled).sum())
        of_kind[provenance.kind] = of_kind.get(provenance.kind, 0) + number
    status = {
        "images": len(store.images),
        **({"claims": len(store.claims)} if store.claims else {"labels": len(store.labels)}),
        "vocabulary": f"{store.vocabulary.name}@{store.vocabulary.fingerprint}",
        "true" if store.claims else "present": int((store.matrix == 1).sum()),
        "false" if store.claims else "absent": int((store.matrix == 0).sum()),
        "open": len(store.open_cells()),
        "excluded_images": len(store.excluded),
        "verdicts_written": len(store),
        "changed_since_first_verdict": store.changed(),
        "judges": sorted({provenance.judge for provenance in store.provenances if provenance.kind != "human"}),
        **{f"by_{kind}": number for kind, number in of_kind.items()},
    }
    if as_json:
        sys.stdout.write(dump_json(status).decode() + "\n")
        return
    for key, value in status.items():
        shown = f"{value:,}" if isinstance(value, int) else ", ".join(value) if isinstance(value, list) else value
        echo(f"{key.replace('_', ' ')}\t{shown}")


@click.command("history", cls=Verb)
@click.argument("run")
@click.argument("image")
@click.argument("label", metavar="LABEL|KIND")
def history_command(run: str, image: str, label: str) -> None:
    """Prints every verdict on a cell of RUN, oldest first, with its source, its prompt and its reason.

    For a run that evaluates claims, prints the verdicts on all claims of one kind about the image.
    """
    store = Store.open(run)
    image = canonical_image_id(image)
    rows = [row for row, of_row in enumerate(store.image_ids) if of_row == image]
    if not rows:
        raise InputError(f"unknown image id '{image}'", path=run)
    if label not in store.columns:
        raise InputError(f"unknown label '{label}'", path=run)
    words = {1: "present", 0: "absent", UNKNOWN: "unknown"}
    if store.claims:
        words = {1: "true", 0: "false", UNKNOWN: "unknown"}
    column = store.columns[label]
    for row in rows:
        for verdict, provenance in store.history(row, column):
            fields = (
                words[verdict],
                provenance.kind,
                provenance.prompt,
                provenance.judge,
                f"round {provenance.round}",
                provenance.reason or provenance.answer,
                *((question_of(store.claims[row]),) if store.claims else ()),
            )
            echo("\t".join(guarded(" ".join(field.split())) for field in fields))
    if image in store.excluded:
        echo(f"excluded\t{store.excluded[image]}")
