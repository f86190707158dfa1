"""Export of a run: the matrix E* or the claim matrix, as a file for scorers and rewards, and a data card that describes
the origin of the matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..base.errors import InputError, InputErrors
from ..base.hashes import digest
from ..base.verdicts import ABSENT, PRESENT, UNKNOWN
from ..benchmarks.prompts import DESCRIBE
from ..files.files import atomic_write, decoding
from ..files.json_text import dump_json, read_json
from ..inference.runner import now
from ..truths.claim_matrix import ClaimMatrix
from ..truths.oracle import PresenceOracle
from .passes import PASSES, PRESENT_FROM, UNREAD
from .qc.rounds import judged_matrix, read_rounds
from .qc.summary import DEFAULT_CONFIDENCE, read_summary, summarize, summary_path
from .qc.summary_tables import labels_table, overall_table, rounds_table
from .store import Store

CARD, MARKDOWN = ".card.json", ".card.md"
FORMATS = (".npz", ".parquet")


def finalize(
    store: Store,
    output: str,
    *,
    allow_unknown: bool = False,
    license: str = "",
    note: str = "",
    thresholds: tuple[float, float] = (PRESENT_FROM, PRESENT_FROM),
) -> dict[str, Any]:
    """Writes the matrix and its data card (``OUTPUT.card.json`` and ``OUTPUT.card.md``).

    Excluded images are omitted from the matrix and listed in the data card.

    Args:
        store: Annotation run.
        output: Name of the matrix file, with the extension ``.npz`` or ``.parquet``. A claim matrix is a ``.npz`` file.
        allow_unknown: True to write cells without a verdict as unknown (-1) instead of raising an error.
        license: License of the matrix. The images keep their own licenses.
        note: Description of the matrix, to be quoted in the card.
        thresholds: Two thresholds for cells with a probability: the label is absent if P(yes) is below the first
            threshold, present if P(yes) is at least the second threshold, and unknown in between. The matrix file also
            contains the probabilities.

    Returns:
        The data card as a dictionary.

    Raises:
        InputErrors: If cells have no verdict although ``allow_unknown`` is false. The error lists the first cells
            without a verdict.
        InputError: If all images are excluded, or if the extension is unknown.
    """
    formats = FORMATS[:1] if store.claims else FORMATS
    if not output.removesuffix(".gz").removesuffix(".zst").endswith(formats):
        raise InputError(f"not a valid name for a matrix: it must end in {' or '.join(formats)}", path=output)
    rows = np.flatnonzero(store.included)
    if not len(rows):
        raise InputError("every image is excluded", path=str(store.folder))
    if not allow_unknown:
        _refuse_open(store)
    matrix = _claim_matrix(store, rows, thresholds) if store.claims else _presence(store, rows, thresholds, output)
    card = _card(store, matrix, output, license, note, thresholds)
    with decoding("card: pool.json of the run", store.folder / "pool.json"):
        text = markdown(card)
    matrix.save(output)
    with atomic_write(f"{output}{CARD}") as stream:
        stream.write(orjson.dumps(card, option=orjson.OPT_INDENT_2) + b"\n")
    with atomic_write(f"{output}{MARKDOWN}") as stream:
        stream.write(text.encode("utf-8", "replace"))
    return card


def _presence(store: Store, rows: NDArray[np.int64], thresholds: tuple[float, float], output: str) -> PresenceOracle:
    probabilities = store.probabilities[rows]
    return PresenceOracle.from_matrix(
        store.matrix[rows], [store.image_ids[row] for row in rows.tolist()], store.labels,
        vocabulary_fingerprint=store.vocabulary.fingerprint, source=output,
        probabilities=None if np.isnan(probabilities).all() else probabilities,
    ).decided(*thresholds)  # fmt: skip


def _claim_matrix(store: Store, rows: NDArray[np.int64], thresholds: tuple[float, float]) -> ClaimMatrix:
    cells = store.cells[rows]
    states, p = store.matrix[rows][cells], store.probabilities[rows][cells]
    decided = np.where(p >= thresholds[1], PRESENT, np.where(p < thresholds[0], ABSENT, UNKNOWN))
    return ClaimMatrix.of(
        [store.image_ids[row] for row in rows.tolist()],
        [store.claims[row] for row in rows.tolist()],
        np.where(np.isnan(p), states, decided).astype(np.int8),
        probabilities=None if np.isnan(p).all() else p,
        vocabulary_fingerprint=store.vocabulary.fingerprint,
    )


def write_prompts(store: Store, output: str, prompt: str = DESCRIBE) -> int:
    """Writes training prompts for ``scapo_train`` (``data.train``), one for each image that is not excluded.

    Args:
        store: Annotation run.
        output: Name of the JSON Lines file. Paths of images in the folder of the output file, or in its subfolders, are
            relative to that folder.
        prompt: Text of the prompt.

    Returns:
        The number of prompts that were written.
    """
    root = Path(output).absolute().parent
    rows = np.flatnonzero(store.included).tolist()
    images = {store.image_ids[row]: Path(store.paths[row]).absolute() for row in rows}
    with atomic_write(output) as stream:
        for image, path in images.items():
            name = path.relative_to(root) if path.is_relative_to(root) else path
            stream.write(dump_json({"image": str(name), "image_id": image, "prompt": prompt}) + b"\n")
    return len(images)


def _refuse_open(store: Store) -> None:
    cells = store.open_cells()
    if not len(cells):
        return
    never = sum(store.provenance_of(row, column) is None for row, column in cells.tolist())
    faults = [InputError(_what_is_open(store, len(cells), never), path=str(store.folder))]
    for row, column in cells[: InputErrors.SHOWN - 1].tolist():
        provenance = store.provenance_of(row, column)
        why = "never judged" if provenance is None else f"no verdict from {provenance.prompt or provenance.judge}"
        name = store.name_of(row, column)
        cell = name.get("claim", name["label"])
        faults.append(InputError(f"  image {name['image_id']}, {cell}: {why}"))
    raise InputErrors(faults, len(cells), len(faults) - 1)  # the first line is a heading


def _what_is_open(store: Store, cells: int, never: int) -> str:
    parts = [f"{never:,} never judged (run `annotate coarse` again)"] if never else []
    parts += (
        [f"{cells - never:,} without a readable verdict (listed in {store.folder / UNREAD})"] if cells > never else []
    )
    return (
        f"{cells:,} cells are open: {', '.join(parts)}. Repeat their requests (with another --seed), let a "
        "person decide them (`annotate qc draw --undecided`), or write them as unknown with --allow-unknown"
    )


def _card(
    store: Store,
    written: PresenceOracle | ClaimMatrix,
    output: str,
    license: str,
    note: str,
    thresholds: tuple[float, float],
) -> dict[str, Any]:
    rows = np.flatnonzero(store.included)
    cells_of, sources = store.cells[rows], store.provenance_ids[rows]
    matrix = np.full(cells_of.shape, UNKNOWN, dtype=np.int8)
    matrix[cells_of] = written.columns["state"] if isinstance(written, ClaimMatrix) else written.matrix().ravel()
    cells = Counter({k: int(n) for k, n in zip(*np.unique(sources, return_counts=True), strict=True) if k >= 0})
    by_kind: Counter[str] = Counter()
    by_judge: Counter[str] = Counter()
    by_person: Counter[str] = Counter()
    by_prompt: Counter[str] = Counter()
    by_round: Counter[str] = Counter()
    for k, n in cells.items():
        provenance = store.provenances[k]
        by_kind[provenance.kind] += n
        (by_person if provenance.kind == "human" else by_judge)[provenance.judge] += n
        by_round[str(provenance.round)] += n
        if provenance.prompt:
            by_prompt[provenance.prompt] += n
    present = int((matrix == PRESENT).sum())
    pool = store.folder / "pool.json"
    vocabulary = store.vocabulary
    return {
        "format": "scapo-dopa-card/1",
        "matrix": output.rsplit("/", 1)[-1],
        "fingerprint": written.fingerprint,
        "made": now(),
        "licence": license or None,  # the key keeps its first spelling
        "note": note or None,
        "images": {
            "n": len(written.image_ids),
            "hash": digest(written.image_ids),
            "excluded": [{"image_id": image, "reason": reason} for image, reason in sorted(store.excluded.items())],
            "pool": read_json(pool) if pool.is_file() else None,
        },
        "vocabulary": {
            "name": vocabulary.name,
            "version": vocabulary.version,
            "source": vocabulary.source,
            "fingerprint": vocabulary.fingerprint,
            "labels": len(vocabulary.labels),
            "aliases": len(vocabulary.aliases),
        },
        "cells": {
            "present": present,
            "absent": int((matrix == ABSENT).sum()),
            "unknown": int((matrix[cells_of] == UNKNOWN).sum()),
            "present_per_image": present / len(written.image_ids),
            "changed_since_first_verdict": store.changed(),
            "verdicts_written": len(store),
            "by_kind": dict(by_kind),
            "by_round": dict(sorted(by_round.items())),
        },
        "probabilities": _probabilities(written.probabilities, thresholds),
        **_by_label(store, matrix, cells_of),
        "judges": dict(by_judge.most_common()),
        "people": dict(by_person.most_common()),
        "prompts": [
            {**store.prompts[name], "cells": n} for name, n in by_prompt.most_common() if name in store.prompts
        ],
        "passes": store.lines(PASSES),
        "quality_control": _quality_now(store, rows, matrix),
    }


def _by_label(store: Store, matrix: NDArray[np.int8], cells: NDArray[np.bool_]) -> dict[str, Any]:
    """Returns the frequency of every label, or the states of the claims of every kind."""
    true, false = ((matrix == state).sum(axis=0).tolist() for state in (PRESENT, ABSENT))
    if not store.claims:
        return {"label_frequency": dict(zip(store.labels, true, strict=True))}
    kinds = zip(store.labels, cells.sum(axis=0).tolist(), true, false, strict=True)
    return {
        "claims": {kind: {"claims": n, "true": yes, "false": no, "unknown": n - yes - no} for kind, n, yes, no in kinds}
    }


def _probabilities(probabilities: NDArray[np.float32] | None, thresholds: tuple[float, float]) -> dict[str, Any] | None:
    """Returns the thresholds and the distribution of the probabilities, or None if no cell has a probability."""
    if probabilities is None:
        return None
    p = probabilities[~np.isnan(probabilities)].astype(np.float64)
    return {
        "cells": len(p),
        "absent_below": thresholds[0],
        "present_from": thresholds[1],
        "between": int(((p >= thresholds[0]) & (p < thresholds[1])).sum()),
        "by_tenth": np.histogram(p, bins=10, range=(0, 1))[0].tolist(),
        "errors_if_calibrated": float(np.minimum(p, 1 - p).sum()),
    }


def _quality_now(store: Store, rows: NDArray[np.int64], written: NDArray[np.int8]) -> dict[str, Any] | None:
    """Returns the state of quality control for the written matrix. The summary that was stored with a round may
    describe an earlier matrix.
    """
    if not any(round_.state != "open" for round_ in read_rounds(store)):
        return None
    stored = summary_path(store).is_file()  # a process may have been killed before it wrote the summary
    confidence = read_summary(store)["confidence"] if stored else DEFAULT_CONFIDENCE
    matrix = judged_matrix(store)
    changed = int((matrix[rows] != written).sum())
    matrix[rows] = written
    summary = summarize(store, confidence=confidence, matrix=matrix)
    if changed:
        why = f"the thresholds of P(yes) give {changed:,} cells other verdicts than those that people checked"
        summary["overall_missing"] = why
    return summary


def markdown(card: Mapping[str, Any]) -> str:
    """Returns the data card as Markdown."""
    cells, images, vocabulary = card["cells"], card["images"], card["vocabulary"]
    total = cells["present"] + cells["absent"] + cells["unknown"]
    lines = [
        f"# {card['matrix']}",
        "",
        *_subject(card),
        f"- vocabulary: {vocabulary['name']} {vocabulary['version']} (fingerprint {vocabulary['fingerprint']}, "
        f"{vocabulary['aliases']:,} aliases)",
        f"- matrix fingerprint {card['fingerprint']}, images hash {images['hash']}, made {card['made']}",
        f"- license: {card['licence'] or 'NOT STATED'} (of the matrix; the images keep their own)",
        "",
        "## Verdicts",
        "",
        *_table(("decided by", "cells", "share"), _shares(_KINDS, cells["by_kind"], total)),
        "",
        *_table(("judge or person", "cells", "share"), _shares({}, {**card["judges"], **card["people"]}, total)),
        "",
        f"{cells['changed_since_first_verdict']:,} cells have another verdict than their first one; "
        f"{cells['verdicts_written']:,} verdicts were written in all.",
        "",
        "## Prompts of the final verdicts",
        "",
        *_table(("prompt", "kind", "labels", "cells"), _prompt_rows(card["prompts"])),
        "",
        "The texts are in the JSON card.",
        "",
        *_probabilities_section(card.get("probabilities")),
        "## Quality control",
        "",
        *_quality(card["quality_control"]),
        "",
        "## Images",
        "",
        *_pool(images["pool"]),
        f"{len(images['excluded']):,} images could not be loaded and are omitted"
        + (": " + ", ".join(image["image_id"] for image in images["excluded"][:50]) if images["excluded"] else "")
        + ".",
        "",
    ]
    return "\n".join(lines)


def _subject(card: Mapping[str, Any]) -> list[str]:
    """Returns the first lines of the card: a description of the matrix, and either the numbers of images and labels or
    the number of claims of each kind.
    """
    cells, images, claims = card["cells"], card["images"], card.get("claims")
    if claims:
        rows = [[kind, *(f"{n:,}" for n in counts.values())] for kind, counts in claims.items()]
        return [
            card["note"] or "Which claims about the images are true, decided for claims that captions make.",
            "",
            *_table(("kind", "claims", "true", "false", "unknown"), rows),
            "",
            f"- {images['n']:,} images; {sum(counts['claims'] for counts in claims.values()):,} claims",
        ]
    return [
        card["note"] or "Which objects are present in which images, decided for every image and label.",
        "",
        f"- {images['n']:,} images x {card['vocabulary']['labels']:,} labels; {cells['present']:,} present "
        f"({cells['present_per_image']:.2f} per image), {cells['absent']:,} absent, {cells['unknown']:,} unknown",
    ]


_KINDS = {
    "coarse": "the coarse prompt",
    "label": "a label-specific prompt",
    "joint": "a joint prompt",
    "human": "a person",
}


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _shares(names: Mapping[str, str], counts: Mapping[str, int], total: int) -> list[list[str]]:
    return [[names.get(key, key), f"{n:,}", f"{100 * n / total:.2f}%"] for key, n in counts.items()]


def _prompt_rows(prompts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns one table row per prompt. Coarse prompts that differ only in their label share one row."""
    rows = []
    general = [prompt for prompt in prompts if prompt["kind"] == "coarse"]
    if general:
        labels = {label for prompt in general for label in prompt["labels"]}
        hashes = digest(sorted(prompt["prompt"] for prompt in general))
        cells = sum(prompt["cells"] for prompt in general)
        asked = f"{len(labels)}" if labels else "any claim"
        rows.append([f"{len(general)} texts (hash {hashes})", "coarse", asked, f"{cells:,}"])
    for prompt in prompts:
        if prompt["kind"] != "coarse":
            rows.append([prompt["prompt"], prompt["kind"], ", ".join(prompt["labels"]), f"{prompt['cells']:,}"])
    return rows


def _probabilities_section(said: Any) -> list[str]:
    if not isinstance(said, dict):
        return []
    shares = [[f"{k / 10:.1f} to {(k + 1) / 10:.1f}", f"{n:,}"] for k, n in enumerate(said["by_tenth"])]
    return [
        "## Probabilities",
        "",
        f"{said['cells']:,} cells were judged by the probability of yes: absent below {said['absent_below']:g}, "
        f"present from {said['present_from']:g}, {said['between']:,} between these written as unknown.",
        "",
        *_table(("P(yes)", "cells"), shares),
        "",
    ]


def _quality(summary: Any) -> list[str]:
    if not isinstance(summary, dict):
        return ["**None**: no person has checked this matrix, so its error rate is unknown."]
    overall = overall_table(summary)
    bounds = _table(*overall) if overall else [f"No overall bounds: {summary['overall_missing']}."]
    return [*_table(*rounds_table(summary)), "", *bounds, "", *_table(*labels_table(summary))]


def _pool(card: Any) -> list[str]:
    if not isinstance(card, dict):
        return ["The images come from a list and were not drawn by `annotate sample`.", ""]
    kept_out = (
        "; ".join(f"{exclusion['source']} ({exclusion['images']:,} images)" for exclusion in card["excluded"])
        or "nothing"
    )
    pool = card["pool"]
    return [
        f"Drawn with seed {card['seed']} from {pool['images']:,} images of {', '.join(pool['sources'])} "
        f"(hash {pool['hash']}). Excluded: {kept_out}.",
        "",
    ]
