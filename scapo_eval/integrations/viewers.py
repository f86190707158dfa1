"""Export of per-image results to viewers, as fields of a FiftyOne data set or as a table in Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from ..base.errors import InputError, MissingExtra
from ..base.ids import canonical_image_id
from ..results.results import Run


def to_fiftyone(
    dataset: Any, run: Run, *, evidence: Iterable[Mapping[str, Any]] = (), prefix: str = "scapo", key: str | None = None
) -> int:
    """Writes the metrics of each image, and the hallucinated and missed labels of its caption, to the samples of a
    FiftyOne data set.

    Each metric has a field such as ``PREFIX_chair_i``, which contains a float and is omitted for images without a
    value. If evidence is given, the fields ``PREFIX_hallucinated`` and ``PREFIX_missed`` contain lists of labels. In
    FiftyOne, samples can be sorted and filtered by these fields.

    Args:
        dataset: A ``fiftyone.Dataset``, or a view of one.
        run: Run in which captions of the images in the data set were scored.
        evidence: Records that ``--per-caption`` writes.
        prefix: Prefix of the field names.
        key: Name of the sample field that contains the image id. If ``key`` is None, the image is identified by the end
            of its path: the longest one that the run contains, or the name of the file without its suffix.

    Returns:
        The number of updated samples.

    Raises:
        InputError: If the run contains none of the images in the data set.
    """
    values = {record["image_id"]: record for record in run.per_image()}
    objects = {canonical_image_id(line["image_id"]): _with_hallucinated(line) for line in evidence}
    written = 0
    for sample in dataset:
        names = [sample[key]] if key else _names_of(sample.filepath)
        image = next((image for name in names if (image := canonical_image_id(name)) in values), None)
        if image is None:
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


def _names_of(path: str) -> Iterator[str]:
    """Yields the names by which a run may identify an image file: the ends of its path, and its name without suffix."""
    parts = PurePath(path).parts
    yield from ("/".join(parts[k:]) for k in range(len(parts)))
    yield PurePath(path).stem


def wandb_table(run: Run, *, evidence: Iterable[Mapping[str, Any]] = ()) -> Any:
    """Returns a Weights & Biases table with one row per image. Each row contains the metrics for an image and, if
    evidence is given, the image's caption and the hallucinated and missed labels.

    Log the table with ``wandb.log({"captions": wandb_table(run)})``.

    Args:
        run: Run with counts per image.
        evidence: Records that ``--per-caption`` writes. If an image has several captions, the last one is shown.

    Raises:
        MissingExtra: If wandb is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "a table of Weights & Biases") from None
    lines = {canonical_image_id(line["image_id"]): _with_hallucinated(line) for line in evidence}
    metrics = list(run.metric_set.formulas)
    texts = ["caption", "hallucinated", "missed"] if lines else []
    data = [
        [record["image_id"], *(record[name] for name in metrics)]
        + [_text(lines.get(record["image_id"], {}).get(name)) for name in texts]
        for record in run.per_image()
    ]
    return wandb.Table(columns=["image_id", *metrics, *texts], data=data)


def _with_hallucinated(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns evidence with the hallucinated labels, which evidence of the Cap. Score states only by mention."""
    if "hallucinated" in line or "mentions" not in line:
        return line
    named = [mention["label"] for mention in line["mentions"] if mention["verdict"] == "hallucinated"]
    return {**line, "hallucinated": list(dict.fromkeys(named))}


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
