"""Self-contained HTML page. The scores at the top are static HTML, and all other content is stored in packed columns.

jinja2 renders the top of the page (with autoescape), so this part is visible before any script runs. Captions and
numbers are compressed with gzip and encoded in base85, and the page's script decodes them. The script inserts text only
as text nodes, never as markup. A Content-Security-Policy blocks all requests and all other scripts. Equal inputs
produce byte-identical pages.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from .. import __version__
from ..base.errors import InputError, MissingExtra
from ..base.ids import canonical_image_id, file_name_of, positions_by_file_name
from ..base.verdicts import Verdict
from ..benchmarks.labels import label_rows, together
from ..files.json_text import dump_json
from ..matching.matcher import AliasMatcher
from ..matching.uses import USES
from ..matching.vocabulary import Vocabulary
from ..results.metric import MetricSet
from ..results.names import benchmark_name, metric_meaning, metric_name, reader_mark
from ..results.parts import labels_of
from ..results.render import (
    MANY_METRICS,
    Cell,
    Column,
    headline,
    is_better,
    joined,
    number,
    on_shared_images,
    stars,
)
from ..results.results import Resampling, Results
from ..results.stats import MIN_SHARED_IMAGES
from . import bundle, checked
from .answers import columns_of
from .boxes import boxes_of
from .data import (
    GUARDS,
    ISO_LEVELS,
    CaptionEvidence,
    ClaimEvidence,
    Plane,
    Report,
    SurfaceForm,
    guards,
    iso_curve,
    marked,
    planes,
    surface_forms,
    suspect_forms,
)
from .overview import overview
from .sentences import spoken_metrics
from .training import training_columns

THUMBNAIL_PIXELS = 220
CLAIMS_SHOWN = 2000
"""Maximum number of descriptions per system whose claims a page shows."""

_ARROWS: Mapping[bool | None, str] = {True: " ↑", False: " ↓"}
_IMAGE_SUFFIXES = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".webp": "webp"}


def environment() -> Any:
    """Returns the jinja2 environment with the page's templates.

    Raises:
        MissingExtra: If jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("report", "an HTML report") from None
    return jinja2.Environment(
        loader=jinja2.DictLoader(bundle.texts(".html")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(report: Report, *, title: str, images: Mapping[str, str] | None = None, state: str | None = None) -> bytes:
    """Returns the report as the content of one HTML file.

    Args:
        report: Report to display.
        title: Title of the page.
        images: Mapping from each image id to the address of its picture; see :func:`image_files` and
            :func:`thumbnails`.
        state: Fingerprint of the inputs for a served page, which reloads when the inputs change, or None if the page is
            a file.

    Raises:
        MissingExtra: If jinja2 is not installed.
    """
    templates = environment()
    images = images or {}
    from_disk = any(not address.startswith("data:") for address in images.values())
    drawn = planes(report)
    arguments = overview(report)
    scripts, style = [bundle.script()], bundle.style()
    payloads = {
        "charts": _packed({**_charts(report, drawn), "arguments": arguments}),
        "captions": _packed(_captions(report.captions, *_slices(report))),
        "answers": _packed(columns_of(report.answers)),
        "pictures": _packed(dict(images)),
        "boxes": _packed(boxes_of(report, images) if images else {}),
    }
    if report.claims:
        payloads["claims"] = _packed([_claims(claim) for claim in report.claims])
    if report.checked:
        payloads["kinds"] = _packed(checked.columns_of(report.checked))
    if report.training_logs:  # the library for long curves is included only with training logs
        scripts.insert(0, bundle.vendored("uPlot.iife.min.js"))
        style += bundle.vendored("uPlot.min.css")
        training, numbers = training_columns(report)
        payloads |= {"training": _packed(training), "numbers": _packed_bytes(numbers)}
    if state is not None:
        scripts.append(bundle.watching())
    groups = [_group(group) for group in report.groups]
    text: str = templates.get_template("page").render(
        state=state,
        title=title,
        version=__version__,
        scripts=scripts,
        style=style,
        policy="; ".join(
            (
                "default-src 'none'",
                "script-src " + " ".join(f"'{_csp_hash(script)}'" for script in scripts),
                f"style-src '{_csp_hash(style)}'",
                "img-src data:" + (" file:" if from_disk else ""),
                *(["connect-src 'self'"] if state is not None else []),
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        arguments=arguments,
        joined=_joined(report.groups),
        groups=groups,
        kinds=_by_kind(report, groups),
        planes=drawn,
        captions=report.captions,
        claims=bool(report.claims),
        claims_shown=CLAIMS_SHOWN,
        claims_left_out=any(len(claim.descriptions) > CLAIMS_SHOWN for claim in report.claims),
        answers=[(name, benchmark_name(name)) for name in dict.fromkeys(answer.benchmark for answer in report.answers)],
        guards=_guard_rows(report, arguments),
        guard_names=GUARDS,
        runs=report.training_logs,
        percent=percent,
        payloads=payloads,
    )
    return text.encode("utf-8", "replace")  # an unpaired surrogate has no UTF-8 representation; packed texts keep it


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed(value: Any) -> str:
    """Encodes data as JSON, compresses the JSON with gzip, and encodes the result in base85, which is a sixteenth
    shorter than base64. The encoded text contains no characters that have a special meaning in HTML.
    """
    return _packed_bytes(dump_json(value))


def _packed_bytes(data: bytes) -> str:
    return base64.b85encode(gzip.compress(data, 9, mtime=0)).decode().replace("<", ",")


def percent(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """Formats a fraction in percent, or None as ``n/a``."""
    if value is None:
        return "n/a"
    text = f"{100 * value:{'+' if sign else ''}.{digits}f}"
    return text if float(text) else text.lstrip("+-")


# The head


def _group(group: Results) -> dict[str, Any]:
    """Returns the scores on one benchmark as the cells of a table."""
    metric, record = group.metric_set, group.to_dict()
    differences = {(row["system"], row["metric"]): row for row in record["comparisons"]}
    names = list(record["systems"][0]["metrics"])
    sizes = {system["name"]: system["n_images"] for system in record["systems"]}

    def cell(system: Mapping[str, Any], name: str) -> dict[str, str]:
        measured, plain = system["metrics"][name], name in metric.plain_numbers
        made = {"value": number(measured["value"], plain), "interval": "", "difference": "", "tone": ""}
        if measured["ci_low"] is not None:
            made["interval"] = f"{number(measured['ci_low'], plain)} – {number(measured['ci_high'], plain)}"
        if row := differences.get((system["name"], name)):
            change = "" if row["difference"] is None else number(row["difference"], plain, sign=True) + stars(row)
            mark = " ≠" if row.get("differing") else ""
            apart = on_shared_images(row, sizes, lambda value: number(value, plain)).replace("->", "→")
            made["difference"] = "; ".join(filter(None, (change + mark, apart)))
            better = is_better(row, metric.higher_is_better.get(name))
            made["tone"] = "untested" if better is None else "better" if better else "worse"
        return made

    signatures = [system["signature"] for system in record["systems"]]
    headings = [
        (
            n,
            metric_name(n) + reader_mark(n, signatures) + _ARROWS.get(metric.higher_is_better.get(n), ""),
            metric_meaning(metric.name, n),
        )
        for n in names
    ]
    tests = sorted({row["test"] for row in record["comparisons"]} - {None})
    sharing = {row["n_images"] for row in record["comparisons"]}
    shared = sorted({n for n in sharing if n >= MIN_SHARED_IMAGES} or sharing)  # fewer: no difference shown
    return {
        "name": benchmark_name(metric.name),
        "set": metric.name,
        "counted": metric.counted,
        "metrics": headings,
        "headline": [h for h in headings if len(names) <= MANY_METRICS or h[0] in spoken_metrics(metric)],
        "systems": [
            {
                "name": system["name"],
                "signature": system["signature"],
                "cells": {name: cell(system, name) for name in names},
                "card": {
                    "scored": f"{system['n_captions']:,}",
                    "images": f"{system['n_images']:,}",
                    **{k.replace("_", " "): f"{v:,}" for k, v in _shown_counts(system["counts"])},
                },
                "notes": system.get("notes", []),
            }
            for system in record["systems"]
        ],
        "test": ", ".join(test.replace("_", " ") for test in tests),
        "shared": "–".join(f"{n:,}" for n in dict.fromkeys((*shared[:1], *shared[-1:]))),
        "holm": any("p_holm" in row for row in record["comparisons"]),
        "interval": _interval_method(group.runs[0].resampling),
    }


def _interval_method(resampling: Resampling) -> str:
    """Returns the name of the method that computes the intervals, as displayed below a table."""
    if resampling.interval == "wilson":
        return "Wilson, effective sample size"
    return f"{resampling.resamples:,} bootstrap resamples of images"


def _heading(group: Results, name: str) -> str:
    return metric_name(name) + reader_mark(name, (str(run.signature) for run in group.runs))


def _joined(groups: Sequence[Results]) -> dict[str, Any] | None:
    """Returns the headline metrics of several benchmarks as a table with one row per system, or None if there is only
    one benchmark.
    """
    if len(groups) < 2:
        return None
    shown = [
        (group.metric_set, name, Column(_heading(group, name), benchmark_name(group.metric_set.name)))
        for group in groups
        for name in headline(group.metric_set)
        if any(run.values[name] is not None for run in group.runs)
    ]
    table = joined(
        groups, [(metrics.name, name, column) for metrics, name, column in shown], "System", differences=True
    )

    firsts = {metrics.name: name for metrics, name, _ in reversed(shown)}  # benchmark -> its first metric
    baselines = {group.metric_set.name: group.runs[0].name for group in groups if len(group.runs) > 1}

    def cell(system: str, metric_set: MetricSet, name: str, entry: Cell) -> dict[str, str]:
        if entry.value is None:
            return {"value": ""}
        plain, higher = name in metric_set.plain_numbers, metric_set.higher_is_better.get(name)
        tone = "untested"
        if entry.difference and entry.stars and higher is not None:
            tone = "better" if (entry.difference > 0) == higher else "worse"
        of_baseline = baselines.get(metric_set.name) == system and firsts[metric_set.name] == name
        change = "baseline" if of_baseline else ""
        if entry.difference is not None:
            change = number(entry.difference, plain, sign=True).replace("-", "−") + entry.stars
        return {"value": number(entry.value, plain), "difference": change, "tone": tone}

    return {
        "benchmarks": [
            {
                "set": group.metric_set.name,
                "name": benchmark_name(group.metric_set.name),
                "span": sum(metrics is group.metric_set for metrics, _, _ in shown),
            }
            for group in groups
        ],
        "columns": [
            {
                "name": column.heading + _ARROWS.get(metrics.higher_is_better.get(name), ""),
                "meaning": metric_meaning(metrics.name, name),
            }
            for metrics, name, column in shown
        ],
        "rows": [
            {
                "name": name,
                "cells": [cell(name, metrics, n, c) for (metrics, n, _), c in zip(shown, cells, strict=True)],
            }
            for name, cells in table.rows
        ],
        "notes": [note for note in table.notes if not note.startswith("*")],  # the page explains stars itself
    }


def _shown_counts(counts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    always = ("generated", "hallucinated", "covered", "truth")
    troubles = ("unknown", "skipped", "unknown_images", "unparsed", "missing", "duplicate", "dropped")
    return [(k, counts[k]) for k in (*always, *troubles) if k in counts and (k in always or counts[k])]


def _by_kind(report: Report, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the scores of claims as a table with one row per kind of claim, or None if there are no such scores."""
    for group, made in zip(report.groups, groups, strict=True):
        if group.metric_set.name == "claimscore":
            return {**made, "rows": checked.figures(group), "texts": bool(report.checked)}
    return None


_CLAIM = ("claim", "true", "descriptive", "reference")


def _claims(evidence: ClaimEvidence) -> dict[str, Any]:
    """Returns the claims in the descriptions that contain the most false claims, and the answers about the reference
    claims for these descriptions. Further descriptions of an image are numbered, so that they can be paired.
    """
    seen: Counter[str] = Counter()
    keys = {}
    for judged in evidence.descriptions:
        seen[judged.image] += 1
        keys[id(judged)] = judged.image + (f" ({seen[judged.image]})" if seen[judged.image] > 1 else "")
    return {
        "name": evidence.name,
        "left_out": max(0, len(evidence.descriptions) - CLAIMS_SHOWN),
        "descriptions": [
            {
                "key": keys[id(judged)],
                "text": judged.text,
                "rows": [dict(zip(_CLAIM, row, strict=True)) for row in judged.rows],
                "unread": judged.unread,
                "references": [{"claim": claim, "answer": answer} for claim, answer in judged.references],
            }
            for judged in evidence.worst(CLAIMS_SHOWN)
        ],
    }


def _guard_rows(report: Report, arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row for each system with captions. The row contains the scores, the values of the guards, and the
    changes of these values from the system's initial baseline.
    """
    rows: list[dict[str, Any]] = []
    argument = next((candidate for candidate in arguments if candidate["set"] == "capscore"), None)
    for run in report.captions:
        row: dict[str, Any] = {"name": run.name, "scores": run.scores.values, "values": guards(run), "changes": {}}
        if argument is not None:
            k = [system["name"] for system in argument["systems"]].index(run.name)
            entry = (argument["against"][argument["natural"][k]] or argument["against"][0])[k]
            row["changes"] = (entry or {}).get("guards", {})
        rows.append(row)
    return rows


# The packed numbers


def _charts(report: Report, drawn: list[Plane]) -> dict[str, Any]:
    surfaces = [surface_forms(run) for run in report.captions]
    names = list(dict.fromkeys([s.name for g in report.groups for s in g.runs] + [r.name for r in report.captions]))
    return {
        "names": names,
        "verdicts": {str(int(verdict)): verdict.word for verdict in Verdict},
        "captions": [run.name for run in report.captions],
        "sliced": bool(_slices(report)[0]),
        "iso": [[level, _rounded(iso_curve(level))] for level in ISO_LEVELS],
        "planes": [
            {
                "set": plane.metric_set,
                "title": plane.title,
                "axes": [_axis(plane.metric_set, name) for name in (plane.x, plane.y)],
                "points": [
                    {"name": p.name, "x": p.x, "y": p.y, "score": p.score, "ellipse": _rounded(p.ellipse.tolist())}
                    for p in plane.points
                ],
                "trails": plane.trails,
            }
            for plane in drawn
        ],
        "labels": _label_tables(report.captions, surfaces),
        "suspects": [asdict(form) for form in suspect_forms(surfaces)],
        "all_labels": report.captions[0].truth.vocabulary.labels if report.captions else [],
        "answers": [
            (name, [answer.name for answer in report.answers if answer.benchmark == name])
            for name in dict.fromkeys(answer.benchmark for answer in report.answers)
        ],
        "lengths": [_histogram([len(words) for words in run.words]) for run in report.captions],
        "claimed": len(report.claims),
        "checked": len(report.checked),
        "trained": len(report.training_logs),
    }


def _axis(metric_set: str, name: str) -> dict[str, str]:
    return {"name": metric_name(name), "meaning": metric_meaning(metric_set, name)}


def _rounded(points: Iterable[Iterable[float]]) -> list[list[float]]:
    return [[round(value, 5) for value in point] for point in points]


def _label_tables(runs: Sequence[CaptionEvidence], surfaces: Sequence[Sequence[SurfaceForm]]) -> list[dict[str, Any]]:
    """Returns the table of labels of each system. All tables have the same labels: those that a system names, or that
    an image contains.
    """
    used = sorted({k for run in runs for k in np.flatnonzero(run.labels.mentions + run.labels.truth).tolist()})
    return [_label_table(run, forms, used) for run, forms in zip(runs, surfaces, strict=True)]


def _label_table(run: CaptionEvidence, forms: Sequence[SurfaceForm], used: Sequence[int]) -> dict[str, Any]:
    labels = run.truth.vocabulary.labels
    most, counts, pairs = together(run.labels)
    return {
        "label": [labels[k] for k in used],
        **{name: [values[k] for k in used] for name, values in label_rows(run.labels).items()},
        "forms": {f.name: [getattr(form, f.name) for form in forms] for f in fields(SurfaceForm)},
        "together": {"labels": [labels[k] for k in most], "counts": counts},
        "beside": [{"hallucinated": labels[a], "present": labels[b], "captions": n} for a, b, n in pairs],
    }


def _histogram(values: list[int], width: int = 10, most: int = 40) -> list[int]:
    """Returns the number of values in each bin. All bins have the width ``width``. The last bin has no upper bound."""
    counts: list[int] = np.bincount(np.minimum(np.asarray(values, dtype=np.int64) // width, most - 1)).tolist()
    return counts


# The packed captions


def _slices(report: Report) -> tuple[list[str], list[list[int]]]:
    """Returns the names of the slices in the scores, and for each system the slice index of every caption."""
    group = next((group for group in report.groups if group.metric_set.name == "capscore" and group.sliced), None)
    sliced = [run.slices for run in report.captions if run.slices is not None]
    if group is None or len(sliced) < len(report.captions):
        return [], []
    label = labels_of([run.parts for run in group.runs if run.parts is not None])
    slices = group.sliced or {}
    places = {name: k for k, name in enumerate(dict.fromkeys(entry["slice"] for entry in slices["slices"]))}
    return list(places), [[places[label(value)] for value in values] for values in sliced]


def _captions(
    runs: Iterable[CaptionEvidence], slices: Sequence[str], places: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Returns the columns of all captions, with the images in the order in which they first occur.

    ``texts`` contains the captions sorted by image and then by system. Captions of the same image share phrases, and
    this order keeps these captions within gzip's window. ``image`` and ``line`` contain the difference between each
    value and the previous value. ``form`` is an index into ``forms``, which lists pairs of a label and a length.
    """
    runs = list(runs)
    images = {image: k for k, image in enumerate(dict.fromkeys(i for run in runs for i in run.image_ids))}
    labels = runs[0].truth.vocabulary.labels if runs else ()
    present: list[list[int]] = [[] for _ in images]
    texts: list[list[str]] = [[] for _ in images]
    systems = []
    for at, run in enumerate(runs):
        shown = list(dict.fromkeys(run.image_ids))
        for image, row in zip(shown, run.truth.oracle.find_rows(shown).tolist(), strict=True):
            states = run.truth.states[row]
            present[images[image]] = np.flatnonzero(states == 1).tolist()
        matcher = AliasMatcher(run.truth.vocabulary)
        columns = marked(run.texts, run.states, matcher, run.rewards, run.found, run.uses, run.counts)
        for image, text in zip(run.image_ids, columns.pop("text"), strict=True):
            texts[images[image]].append(text)
        pairs = list(zip(columns.pop("label"), columns.pop("length"), strict=True))
        forms = {pair: k for k, (pair, _) in enumerate(Counter(pairs).most_common())}
        systems.append(
            {
                "name": run.name,
                "image": _steps([images[image] for image in run.image_ids]),
                "line": _steps(run.lines),
                "forms": list(forms),
                "form": [forms[pair] for pair in pairs],
                "slice": places[at] if slices else [],
                **columns,
            }
        )
    return {
        "labels": labels,
        "aliases": _aliases(runs[0].truth.vocabulary) if runs else [],
        "uses": USES,
        "slices": slices,
        "images": list(images),
        "present": present,
        "texts": [text for of_image in texts for text in of_image],
        "systems": systems,
    }


def _steps(values: Sequence[int]) -> list[int]:
    """Returns the difference between each value and the previous value."""
    return [b - a for a, b in pairwise((0, *values))]


def _aliases(vocabulary: Vocabulary) -> list[list[str]]:
    """Returns the aliases of each label, in the order of the labels."""
    aliases: dict[str, list[str]] = {label: [] for label in vocabulary.labels}
    for alias, label in vocabulary.aliases.items():
        aliases[label].append(alias)
    return list(aliases.values())


# Pictures


def image_files(folder: str | Path, wanted: Iterable[str]) -> dict[str, Path]:
    """Returns a mapping from each image to its picture file in the folder or a subfolder. Images without a picture are
    omitted.

    An image id is compared with the path of a file inside the folder, with or without its extension. If no path equals
    the id, a file is accepted whose name is unique and matches the id without its folder and extension.

    Raises:
        InputError: If the folder is not found, or contains no picture for any of the images.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError("folder not found", path=folder)
    paths = [path for path in sorted(root.rglob("*")) if path.suffix.lower() in _IMAGE_SUFFIXES]
    by_id: dict[str, Path] = {}
    for path in paths:
        inside = path.relative_to(root)
        for spelling in (inside, inside.with_suffix("")):
            by_id.setdefault(canonical_image_id(spelling.as_posix()), path)
    images = sorted(set(wanted))
    of_files, of_images = positions_by_file_name(path.name for path in paths), positions_by_file_name(images)
    files: dict[str, Path] = {}
    for image in images:
        name = file_name_of(image)
        if image in by_id:
            files[image] = by_id[image]
        elif of_images[name] >= 0 and of_files.get(name, -1) >= 0:
            files[image] = paths[of_files[name]]
    if not files:
        raise InputError("pictures of these images not found (files are joined by image id)", path=folder)
    return files


def addresses(pictures: Mapping[str, Path], report_path: str) -> dict[str, str]:
    """Returns the addresses of pictures on disk. The addresses are relative to the folder of the page, or absolute if
    the page is written to ``-``.
    """
    import os

    if report_path == "-":
        return {image: path.resolve().as_uri() for image, path in pictures.items()}
    start = Path(report_path).resolve().parent
    return {
        image: quote(os.path.relpath(path.resolve(), start).replace(os.sep, "/")) for image, path in pictures.items()
    }


def thumbnails(pictures: Mapping[str, Path]) -> dict[str, str]:
    """Returns small JPEG copies of pictures as ``data:`` URLs. The longer side of a copy has THUMBNAIL_PIXELS pixels.

    Raises:
        MissingExtra: If Pillow is not installed.
        InputError: If a file is not a readable image.
    """
    import io

    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("report", "embedding thumbnails") from None
    made = {}
    for image, path in pictures.items():
        try:
            with Image.open(path) as picture:
                picture.draft("RGB", (2 * THUMBNAIL_PIXELS, 2 * THUMBNAIL_PIXELS))
                small = picture.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise InputError(f"not a readable image: {error}", path=path) from None
        small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=72, optimize=True)
        made[image] = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
    return made
