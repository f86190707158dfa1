"""Per-image results where people look at images and runs: fields of a FiftyOne data set, a table of W&B."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.errors import InputError, MissingExtra
from ..base.ids import canonical_image_id
from ..results.results import Run


def to_fiftyone(
    dataset: Any, run: Run, *, evidence: Iterable[Mapping[str, Any]] = (), prefix: str = "scapo", key: str | None = None
) -> int:
    """Writes each image's metrics, and what its caption hallucinated and missed, into the samples of a data set.

    Fields are ``PREFIX_chair_i``... (floats, absent where an image has no value), and with evidence
    ``PREFIX_hallucinated`` and ``PREFIX_missed`` (lists of labels), to sort and filter by.

    Args:
        dataset: a ``fiftyone.Dataset``, or a view of one.
        run: of the captions of its images.
        evidence: lines of ``--per-caption``.
        prefix: of the fields.
        key: field of a sample that names its image; None: the name of its file.

    Returns:
        The number of samples that were written.

    Raises:
        InputError: if none of the samples is an image of the run.
    """
    values = {record["image_id"]: record for record in run.per_image()}
    objects = {canonical_image_id(line["image_id"]): line for line in evidence}
    written = 0
    for sample in dataset:
        image = canonical_image_id(sample[key] if key else sample.filepath)
        if image not in values:
            continue
        for name in run.metric_set.formulas:
            if values[image][name] is not None:
                sample[f"{prefix}_{name}"] = float(values[image][name])
        for name in ("hallucinated", "missed"):
            if name in objects.get(image, {}):
                sample[f"{prefix}_{name}"] = list(objects[image][name])
        sample.save()
        written += 1
    if not written:
        raise InputError(f"none of the data set's images is among the {len(values):,} of {run.name}")
    return written


def wandb_table(run: Run, *, evidence: Iterable[Mapping[str, Any]] = ()) -> Any:
    """Returns one row per image: its metrics, with evidence also its caption and what that hallucinated and missed.

    Log it with ``wandb.log({"captions": wandb_table(run)})``.

    Args:
        run: any run with counts.
        evidence: lines of ``--per-caption``; of several captions of one image the last.

    Raises:
        MissingExtra: if wandb is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "a table of Weights & Biases") from None
    lines = {canonical_image_id(line["image_id"]): line for line in evidence}
    metrics = list(run.metric_set.formulas)
    texts = ["caption", "hallucinated", "missed"] if lines else []
    data = [
        [record["image_id"], *(record[name] for name in metrics)]
        + [_text(lines.get(record["image_id"], {}).get(name)) for name in texts]
        for record in run.per_image()
    ]
    return wandb.Table(columns=["image_id", *metrics, *texts], data=data)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
