"""``scapo-eval oracle``: converts, describes, checks and compares ground truth files."""

from __future__ import annotations

import sys
from typing import Any

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from ..benchmarks.capscore import score_file
from ..benchmarks.chair import PROFILES
from ..benchmarks.chair import profile as chosen_profile
from ..benchmarks.chair.truth import joined_truth
from ..benchmarks.labels import absent_claims
from ..benchmarks.scoring import ScoringOptions
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..inference.sources import image_ids
from ..matching.uses import READINGS, Reading
from ..matching.vocabulary import Vocabulary, shipped_vocabularies
from ..results.results import Resampling
from ..truths.oracle import PresenceOracle, Truth
from ..truths.references import (
    REFERENCE_VOCABULARY,
    UNNAMED,
    WEIGHT_UNIT,
    References,
    Unnamed,
    reference_truth,
)
from ..truths.truth_table import read_open_images
from .codes import BAD_INPUT
from .echo import echo
from .files import OUTPUT, PLAIN, source_of
from .groups import Group
from .screen import SafeConsole, Screen
from .tables import aligned

FREQUENCY_CLASSES = ((0, 100, "<100"), (100, 500, "100-499"), (500, 1000, "500-999"), (1000, None, ">=1000"))
"""Classes in the paper's table of label frequencies: minimum number of positive images, exclusive upper limit, name."""


@click.group("oracle", cls=Group)
def command() -> None:
    """Create, convert, describe and check ground truth files (COCO, LVIS, Visual Genome, Open Images, matrices, maps,
    AMBER).
    """


@command.command()
@click.argument("truth", type=PLAIN)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Name ending in .npz, .parquet, .json or .jsonl."
)
@click.option(
    "--vocabulary", type=PLAIN, metavar="NAME|FILE", help="Keep only the labels of this vocabulary, in its order."
)
def convert(truth: str, output: str, vocabulary: str | None) -> None:
    """Writes TRUTH in another format.

    The content, and therefore the fingerprint, is unchanged, with one exception: .npz and .parquet files have a fixed
    set of labels. If TRUTH has none, such as a map from images to the present labels, a warning states the difference.
    """
    oracle = PresenceOracle.load(truth)
    if vocabulary:
        oracle = oracle.restricted_to(Vocabulary.load(vocabulary))
    if oracle.world == "open-axis" and output.removesuffix(".gz").removesuffix(".zst").endswith((".npz", ".parquet")):
        Screen().warn(
            f"{truth} has no fixed set of labels, so an unlisted label is absent. In {output}, labels that no image "
            "lists are unknown. Use .json or .jsonl, or set the labels with --vocabulary"
        )
    _save(oracle, output)


@command.command("chair")
@click.option(
    "--instances",
    type=PLAIN,
    required=True,
    multiple=True,
    metavar="FILE",
    help="COCO's instances_*.json; may be repeated.",
)
@click.option(
    "--captions",
    type=PLAIN,
    required=True,
    multiple=True,
    metavar="FILE",
    help="COCO's captions_*.json of the same images.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="reference",
    show_default=True,
    help="Method of reading captions, as in scapo-eval chair.",
)
@click.option("--synonyms", type=PLAIN, metavar="FILE", help="For 'reference' and 'opera': CHAIR's synonyms.txt.")
@click.option(
    "--vocabulary", type=PLAIN, metavar="NAME|FILE", help="For 'native': labels and their aliases.  [default: coco80]"
)
@click.option(
    "-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Name ending in .npz, .parquet, .json or .jsonl."
)
def chair_truth(
    instances: tuple[str, ...],
    captions: tuple[str, ...],
    profile: str,
    synonyms: str | None,
    vocabulary: str | None,
    output: str,
) -> None:
    """Joins COCO's instances and captions into CHAIR's ground truth, which contains, for each image, all annotated or
    mentioned objects.
    """
    reader = chosen_profile(profile, vocabulary=vocabulary, synonyms=synonyms)
    joined = joined_truth(instances, captions, reader, warn=_warn)
    _save(PresenceOracle.of_columns(joined), output)


@command.command("references")
@click.argument("references", type=PLAIN)
@click.option(
    "--vocabulary",
    type=PLAIN,
    default=REFERENCE_VOCABULARY,
    show_default=True,
    metavar="NAME|FILE",
    help="Labels of the ground truth.",
)
@click.option("--claims", type=click.Choice(READINGS), default="visual", show_default=True, help="Mentions that count.")
@click.option(
    "--unnamed",
    type=click.Choice(UNNAMED),
    default="unknown",
    show_default=True,
    help="State of labels that no reference names.",
)
@click.option(
    "--weights", type=OUTPUT, metavar="FILE", help="Also write the weights, the shares of references (JSONL)."
)
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Name ending in .npz or .parquet.")
def reference_matrix(
    references: str, vocabulary: str, claims: Reading, unnamed: Unnamed, weights: str | None, output: str
) -> None:
    """Creates a ground truth from REFERENCES: named labels are present, denied labels are absent, and all other labels
    are unknown.
    """
    labels = Vocabulary.load(vocabulary)
    truth = reference_truth(References.load(references), labels, claims=claims, unnamed=unnamed)
    _save(truth.oracle, output)
    if weights:
        with atomic_write(weights) as stream:
            for image, row in zip(truth.oracle.image_ids, truth.weights, strict=True):
                shares = {labels.labels[k]: int(row[k]) / WEIGHT_UNIT for k in np.flatnonzero(row).tolist()}
                stream.write(dump_json({"image_id": image, "weights": shares}) + b"\n")


@command.command("open-images")
@click.argument("files", type=PLAIN, nargs=-1, required=True)
@click.option(
    "--classes", type=PLAIN, required=True, metavar="FILE", help="Class descriptions with rows of code and name."
)
@click.option(
    "--vocabulary",
    type=PLAIN,
    metavar="NAME|FILE",
    help="Keep only the labels of this vocabulary, found by their aliases.",
)
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Name ending in .npz or .parquet.")
def open_images(files: tuple[str, ...], classes: str, vocabulary: str | None, output: str) -> None:
    """Joins the Open Images FILES (image-level labels, boxes) with the class names."""
    oracle = PresenceOracle.of_columns(read_open_images(files, classes))
    if vocabulary:
        oracle = oracle.restricted_to(Vocabulary.load(vocabulary))
    _save(oracle, output)


def _save(oracle: PresenceOracle, output: str) -> None:
    oracle.save(output)
    if oracle.names is not None:
        _warn(
            f"{output} cannot store that labels are found by a vocabulary's aliases; "
            "select the labels now with --vocabulary"
        )
    echo(f"{output}: {len(oracle.image_ids):,} images x {len(oracle.labels):,} labels", err=True)


def _warn(text: str) -> None:
    echo(f"warning: {text}", err=True)


@command.command()
@click.argument("truth", type=PLAIN)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Number of labels to list.")
@click.option(
    "--vocabulary",
    type=PLAIN,
    metavar="NAME|FILE",
    help="Vocabulary for counting aliases and for --captions.  [default: that of the matrix; for captions coco80]",
)
@click.option(
    "--captions",
    type=PLAIN,
    multiple=True,
    metavar="FILE",
    help="Captions of a system; may be repeated. Lists claimed labels that TRUTH marks as absent.",
)
def stats(truth: str, as_json: bool, top: int, vocabulary: str | None, captions: tuple[str, ...]) -> None:
    """Lists images, labels, aliases, positives per image, and label frequencies (the paper's Tables 5 and 6).

    With --captions, the command also lists labels that may be under-annotated: labels that captions claim although
    TRUTH marks them as absent, sorted by agreement between systems. A person must check the listed images.
    """
    oracle = PresenceOracle.load(truth)
    names = _made_for(oracle, vocabulary)
    labels = (names or Vocabulary.load("coco80")) if captions else None
    options = ScoringOptions(on_unknown_image="skip", any_fingerprint=vocabulary is not None, any_ids=True)
    claims = (
        [absent_claim.to_dict() for absent_claim in absent_claims([*map(source_of, captions)], labels, oracle, options)]
        if labels
        else []
    )
    frequency = np.bincount(oracle.label_ids, minlength=len(oracle.labels))
    images = len(oracle.image_ids)
    classes = {
        name: int(((frequency >= low) & (frequency < (high or np.inf))).sum()) for low, high, name in FREQUENCY_CLASSES
    }
    ranked = sorted(zip(frequency.tolist(), oracle.labels, strict=True), key=lambda pair: (-pair[0], pair[1]))
    summary = {
        "images": images,
        "labels": len(oracle.labels),
        **(
            {"aliases": len(names.aliases), "aliases_per_label": len(names.aliases) / len(names.labels)}
            if names
            else {}
        ),
        "world": oracle.world,
        "fingerprint": oracle.fingerprint,
        "positives": int(frequency.sum()),
        "positives_per_image": float(frequency.sum() / images),
        "unknown_cells": oracle.n_unknown,
        "images_without_positives": int((np.diff(oracle.indptr) == 0).sum()),
        "repeated_records": oracle.repeated,
    }
    if as_json:
        everything: dict[str, Any] = {
            **summary,
            "label_frequency_classes": classes,
            "label_frequency": {n: f for f, n in ranked},
        }
        everything |= {"claimed_and_absent": claims} if captions else {}
        sys.stdout.write(dump_json(everything).decode() + "\n")
        return
    console = SafeConsole(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in summary.items():
        table.add_row(
            key.replace("_", " "),
            f"{value:,.2f}" if isinstance(value, float) else str(value) if isinstance(value, str) else f"{value:,}",
        )
    console.print(table)
    table = Table("positive images", "labels", "share", box=None, pad_edge=False)
    for name, count in classes.items():
        table.add_row(name, str(count), f"{100 * count / max(1, len(oracle.labels)):.1f}%")
    table.add_row("total", str(len(oracle.labels)), "100.0%")
    console.print(table)
    for count, label in ranked[:top]:
        console.print(Text(f"{count:>8,}  {label}"))
    if captions:
        _show_claims(console, claims, top)


def _show_claims(console: SafeConsole, claims: list[dict[str, Any]], top: int) -> None:
    console.print(Text("\nclaimed and absent, to be checked by a person (images)", style="bold"), soft_wrap=True)
    names = ("absent", "agreed", "claimed", "annotated")
    cells = [[Text(name) for name in ("label", *names, "absent of claimed", "for example")]]
    for row in claims[:top]:
        share = f"{100 * row['share']:.1f}% [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
        counts = [f"{row[name]:,}" for name in names]
        cells.append([Text(text) for text in (row["label"], *counts, share, " ".join(row["images"][:2]))])
    for line in aligned(cells, right=(1, 2, 3, 4)):
        console.print(line, soft_wrap=True)
    if len(claims) > top:
        console.print(Text(f"and {len(claims) - top:,} more labels (--top, --json)"))


def _made_for(oracle: PresenceOracle, name: str | None) -> Vocabulary | None:
    """Returns the vocabulary for which a matrix was made: the named vocabulary, or the shipped vocabulary with the same
    fingerprint.
    """
    if name:
        return Vocabulary.load(name)
    shipped = map(Vocabulary.load, shipped_vocabularies() if oracle.vocabulary_fingerprint else ())
    return next((vocabulary for vocabulary in shipped if vocabulary.fingerprint == oracle.vocabulary_fingerprint), None)


@command.command()
@click.argument("train", type=PLAIN)
@click.argument("evaluation", type=PLAIN, nargs=-1, required=True, metavar="EVAL...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def overlap(train: str, evaluation: tuple[str, ...], as_json: bool) -> int:
    """Checks that TRAIN shares no image with any of the EVAL inputs. The exit code is 2 if there are shared images.

    TRAIN and EVAL are ground truth files, captions, answers, questions, lists, COCO annotations or folders of images.
    Two images are identical if their COCO ids are equal: val2014 and train2017 share many images (for example,
    COCO_val2014_000000000042.jpg and 000000000042.jpg). Data sets with their own numbering (AMBER) cannot be
    distinguished from COCO by id.
    """
    ours = image_ids(train)
    rows: list[dict[str, Any]] = []
    for source in evaluation:
        theirs = image_ids(source)
        shared = sorted(ours & theirs, key=lambda image: (len(image), image))
        rows.append({"source": source, "images": len(theirs), "shared": len(shared), "shared_ids": shared})
    record = {
        "train": train,
        "images": len(ours),
        "disjoint": not any(row["shared"] for row in rows),
        "evaluation": rows,
    }
    if as_json:
        sys.stdout.write(dump_json(record).decode() + "\n")
    else:
        for row in rows:
            few = ", ".join(row["shared_ids"][:5]) + (", ..." if row["shared"] > 5 else "")
            sharing = f"{row['shared']:,} shared images ({few})" if row["shared"] else "disjoint, no shared image"
            echo(f"{train} ({len(ours):,} images) and {row['source']} ({row['images']:,} images): {sharing}")
    return 0 if record["disjoint"] else BAD_INPUT


@command.command()
@click.argument("truth", type=PLAIN)
@click.option(
    "--vocabulary",
    type=PLAIN,
    default="coco80",
    show_default=True,
    metavar="NAME|FILE",
    help="Labels to score.",
)
@click.option(
    "--captions", type=PLAIN, multiple=True, metavar="FILE", help="Caption files whose images must have ground truth."
)
@click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary.")
@click.option("--any-ids", is_flag=True, help="Accept captions even if they seem to belong to other images.")
def check(truth: str, vocabulary: str, captions: tuple[str, ...], any_fingerprint: bool, any_ids: bool) -> None:
    """Checks whether TRUTH fits a vocabulary and whether it fits the images and claims of caption files. The exit code
    is 2 if TRUTH does not fit.
    """
    labels = Vocabulary.load(vocabulary)
    oracle = PresenceOracle.load(truth)
    fitted = Truth.of(oracle, labels, any_fingerprint=any_fingerprint)
    if fitted.warning:
        echo(f"warning: {fitted.warning}")
    outside = [label for k, label in enumerate(labels.labels) if (fitted.states[:, k] == -1).all()]
    if outside:
        echo(f"unknown everywhere (no claim about them is counted): {_some(outside)}")
    never = [
        label for k, label in enumerate(labels.labels) if not (fitted.states[:, k] == 1).any() and label not in outside
    ]
    if never:
        echo(f"present nowhere: {_some(never)}")
    if oracle.repeated:
        echo(f"repeated records: {oracle.repeated:,} (each cell counts once)")
    if empty := int((np.diff(oracle.indptr) == 0).sum()):
        echo(f"images without an object: {empty:,}")
    for path in captions:
        for note in score_file(
            source_of(path), labels, fitted, ScoringOptions(any_ids=any_ids), resampling=Resampling(0)
        ).notes:
            if note not in fitted.notes:
                echo(f"warning: {path}: {note}")
    sizes = f"{len(fitted.oracle.image_ids):,} images, {int(fitted.n_present.sum()):,} present labels"
    echo(f"{truth}: fits '{labels.name}': {sizes}")


def _some(names: list[str], shown: int = 12) -> str:
    """Returns a text that states the first few names in a list and the number of remaining names."""
    more = f", and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
