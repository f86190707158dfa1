"""Overview page of the report. The overview compares every system with every baseline and is based only on tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..base.columns import MentionColumns
from ..matching.matcher import AliasMatcher
from ..results.benchmark import find_benchmark
from ..results.comparison import compare
from ..results.metric import MetricSet
from ..results.names import CHANGES, benchmark_name, metric_meaning, metric_name, reader_mark
from ..results.render import is_better, stars
from ..results.results import Results
from ..results.stats import MIN_SHARED_IMAGES, Comparison, holm
from .changes import SAYS_LESS, LabelChange, amount_changes, label_changes, length_difference, telling_captions
from .data import CaptionEvidence, Report, marked
from .sentences import LENGTH, Sentence, sentence, spoken_metrics

MOST_BASELINES = 10
"""Maximum number of systems of a benchmark for which each can be the baseline. With more systems, only the first
can.
"""

_DIFFERENCE = {
    "difference": "difference", "low": "ci_low", "high": "ci_high", "before": "baseline_value", "after": "system_value"
}  # fmt: skip

MOST_LABELS = 5
"""Maximum number of changed labels on the Overview page. The Labels page shows all."""


def overview(report: Report) -> list[dict[str, Any]]:
    """Returns the comparisons that the page displays, for every benchmark whose runs come from different systems.

    ``against`` has one row per baseline, with one entry per system (None for the baseline itself). An entry contains
    the clauses of the summary sentence with their colors, the differences, the labels that changed most, and an example
    pair of captions. ``natural`` contains each system's initial baseline, that is, the first system with which the
    system can be compared.
    """
    return [_argument(group, report) for group in report.groups if _of_systems(group.metric_set)]


def _data_set(captions: Sequence[CaptionEvidence]) -> str:
    """Returns a phrase that names the ground truth and the vocabulary of the captions, or an empty string if not all
    captions share them. The names of ground truths and vocabularies are not stored in results files.
    """
    sets = {(Path(caption.truth.oracle.source).name, caption.truth.vocabulary.name) for caption in captions}
    return "judged by {}, vocabulary {}".format(*sets.pop()) if len(sets) == 1 else ""


def _of_systems(metric_set: MetricSet) -> bool:
    record = find_benchmark(metric_set.name)
    return record is None or record.several


def _argument(group: Results, report: Report) -> dict[str, Any]:
    metric_set = group.metric_set
    names = list(metric_set.formulas)
    signatures = [str(run.signature) for run in group.runs]
    captions = {run.name: run for run in report.captions} if metric_set.name == "capscore" else {}
    groups = [group]
    if 2 < len(group.runs) <= MOST_BASELINES and metric_set.counted:
        runs = group.runs
        groups += [
            compare([runs[k], *runs[:k], *runs[k + 1 :]], resampling=runs[0].resampling, allow_different=True)
            for k in range(1, len(runs))
        ]
    elif len(group.runs) == 2:
        groups.append(compare(group.runs[::-1], resampling=group.runs[0].resampling, allow_different=True))
    images = {run.name: frozenset(run.table.image_ids) for run in group.runs}
    texts = _Texts()
    against = [_against(compared, [run.name for run in group.runs], images, captions, texts) for compared in groups]
    rest = [None] * (len(group.runs) - len(against))
    alone = next(iter(captions.values())) if len(group.runs) == 1 and captions else None
    return {
        "set": metric_set.name,
        "title": benchmark_name(metric_set.name),
        "data": _data_set(list(captions.values())),
        "counted": metric_set.counted,
        "metrics": [
            {"key": name, "name": metric_name(name) + reader_mark(name, signatures),
             "higher": metric_set.higher_is_better.get(name), "plain": name in metric_set.plain_numbers,
             "meaning": metric_meaning(metric_set.name, name)}
            for name in names
        ],
        "spoken": [names.index(name) for name in spoken_metrics(metric_set)],
        "systems": [
            {"name": run.name, "images": run.n_images, "scored": run.n_records,
             "values": [{"value": value.value, "low": value.low, "high": value.high}
                        for value in map(run.metrics.__getitem__, names)]}
            for run in group.runs
        ],
        "against": [*against, *rest],
        "natural": natural_baselines(list(images.values())),
        "worst": _worst(alone, texts) if alone else None,
        "sliced": _sliced(group) if group.sliced else None,
        "texts": texts.columns(next(iter(captions.values()))) if captions else None,
        "labels": next(iter(captions.values())).truth.vocabulary.labels if captions else (),
    }  # fmt: skip


def _worst(run: CaptionEvidence, texts: _Texts, most: int = 3) -> list[dict[str, Any]]:
    """Returns the images and the texts of the captions with the most absent objects. Among equally ranked captions,
    shorter ones come first.
    """
    wrong = (run.claimed & (run.states == 0)).sum(axis=1)
    order = sorted(np.flatnonzero(wrong).tolist(), key=lambda k: (-wrong[k], len(run.texts[k]), k))
    return [{"image": run.image_ids[k], "text": texts.add(run, k)} for k in order[:most]]


def _sliced(group: Results) -> dict[str, Any]:
    """Returns the slices of a group of runs. Systems, slices and metrics are represented by indices.

    ``cells`` contains lists ``[system, slice, images, metrics]``. Each metric is a list ``[value, low, high]``. For
    systems other than the baseline, the difference, its bounds and the number of shared images follow. ``tests``
    contains lists ``[system, baseline or null, metric, p]``.
    """
    sliced = group.sliced or {}
    systems = {run.name: k for k, run in enumerate(group.runs)}
    metrics = {name: k for k, name in enumerate(group.metric_set.formulas)}
    spoken = spoken_metrics(group.metric_set)
    slices = {name: k for k, name in enumerate(dict.fromkeys(entry["slice"] for entry in sliced["slices"]))}

    def numbers(entry: Mapping[str, Any], name: str) -> list[float | None]:
        value, change = entry["metrics"][name], entry.get("differences", {}).get(name)
        difference = [] if change is None else [change[key] for key in ("difference", "ci_low", "ci_high", "n_images")]
        return [value["value"], value["ci_low"], value["ci_high"], *difference]

    return {
        "by": sliced["by"],
        "slices": list(slices),
        "cells": [
            [systems[entry["system"]], slices[entry["slice"]], entry["n_images"],
             [numbers(entry, name) for name in spoken]]
            for entry in sliced["slices"]
        ],
        "tests": [
            [systems[row["system"]], None if row["baseline"] is None else systems[row["baseline"]],
             metrics[row["metric"]], row["p_value"]]
            for row in sliced["interactions"]
            if row["metric"] in spoken and row["p_value"] is not None
        ],
    }  # fmt: skip


def natural_baselines(images: Sequence[frozenset[str]]) -> list[int]:
    """Returns, for each system, the first system that shares enough images with it for a comparison. The first such
    system may be the system itself.
    """

    def comparable(a: frozenset[str], b: frozenset[str]) -> bool:
        return a == b or len(a & b) >= MIN_SHARED_IMAGES

    return [next(k for k in range(len(images)) if comparable(images[k], own)) for own in images]


def _against(
    group: Results,
    order: Sequence[str],
    images: Mapping[str, frozenset[str]],
    captions: Mapping[str, CaptionEvidence],
    texts: _Texts,
) -> list[dict[str, Any] | None]:
    """Returns the comparison of every system with the first system of a group, in the order of the page."""
    baseline, resampling = group.runs[0].name, group.runs[0].resampling
    base = captions.get(baseline)
    lengths = _lengths(
        {
            name: length_difference(captions[name], base, resampling)
            for name in order
            if base is not None and name != baseline and name in captions
        },
        baseline,
    )
    verdicts = {row["system"]: row for row in group.verdicts}
    signatures = [str(run.signature) for run in group.runs]
    made: list[dict[str, Any] | None] = []
    for name in order:
        rows = [row for row in group.comparisons if row["system"] == name]
        if not rows:
            made.append(None)
            continue
        said = sentence(
            rows,
            group.metric_set,
            lengths.get(name),
            same_images=images[name] == images[baseline],
            verdict=verdicts.get(name),
            named=lambda metric: metric_name(metric) + reader_mark(metric, signatures),
        )
        entry: dict[str, Any] = {
            "verdict": said.verdict,
            "tone": said.tone,
            "said": [
                {"text": piece, "tone": part.tone, "metric": part.metric}
                for piece, part in zip(said.pieces(), said.parts, strict=True)
            ],
            "n": said.n_images,
            "rows": [{**{name: row[key] for name, key in _DIFFERENCE.items()}, "stars": stars(row)} for row in rows],
        }
        if base is not None and name in captions:
            entry |= _evidence(captions[name], base, said, group, texts)
        made.append(entry)
    return made


def _evidence(
    ours: CaptionEvidence, base: CaptionEvidence, said: Sentence, group: Results, texts: _Texts
) -> dict[str, Any]:
    changes = label_changes(ours, base, group.runs[0].resampling, MOST_LABELS)
    evidence: dict[str, Any] = {
        "labels": [_change(change) | {"low": change.low, "high": change.high} for change in changes[:MOST_LABELS]],
        "tested": [_change(change) for change in changes],
        "guards": _guards(ours, base, group),
    }
    if example := _example(ours, base, changes[:MOST_LABELS], said):
        pair, label, what = example
        evidence["example"] = {
            "label": label,
            "what": what,
            "image": ours.image_ids[pair[0]],
            "texts": [texts.add(base, pair[1]), texts.add(ours, pair[0])],
        }
    return evidence


def _change(change: LabelChange) -> dict[str, Any]:
    return {"label": change.label, "difference": round(change.difference, 6), "tone": change.tone}


def _guards(ours: CaptionEvidence, base: CaptionEvidence, group: Results) -> dict[str, Any]:
    """Returns the relative changes from the baseline in words and objects per caption, computed on the shared images.

    If a system hallucinates less and has at least 20 % fewer words or objects, ``says_less`` is the result of the test
    of the caption score. For all other systems, ``says_less`` is empty.
    """
    guards: dict[str, Any] = {**amount_changes(ours, base), "says_less": ""}
    rows = {row["metric"]: row for row in group.comparisons if row["system"] == ours.name}
    fell = (rows["hal_rate"]["difference"] or 0) < 0
    if fell and any(guards[name] is not None and guards[name] <= -SAYS_LESS for name in ("words", "objects")):
        better = is_better(rows["cap_score"], True)
        guards["says_less"] = "untested" if better is None else "better" if better else "worse"
    return guards


def _example(
    ours: CaptionEvidence, base: CaptionEvidence, changes: Sequence[LabelChange], said: Sentence
) -> tuple[tuple[int, int], str | None, str] | None:
    """Returns a pair of captions, and the label or the clause that the pair illustrates. The pair illustrates the
    largest tested change, if there is one.
    """
    told = next((change for change in changes if change.tone != "untested"), None)
    if told and (pair := telling_captions(ours, base, better=told.difference < 0, label=told.label)):
        return pair, told.label, ""
    for part in said.parts:
        if part.metric in CHANGES:
            covered = part.metric == "cover_rate"
            if pair := telling_captions(ours, base, better=part.fell != covered, covered=covered):
                return pair, None, part.text
    return None


def _lengths(comparisons: Mapping[str, Comparison], baseline: str) -> dict[str, dict[str, Any]]:
    """Returns the comparisons of caption lengths in the format of :func:`scapo_eval.results.comparison.compare`."""
    corrected = holm([comparison.p_value for comparison in comparisons.values()])
    return {
        name: {**asdict(comparison), "metric": LENGTH, "system": name, "baseline": baseline, "p_holm": p,
               "ci_low": comparison.interval.low, "ci_high": comparison.interval.high}
        for (name, comparison), p in zip(comparisons.items(), corrected, strict=True)
    }  # fmt: skip


class _Texts:
    """Captions on the page, each of which is stored only once."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}
        self._runs: list[tuple[CaptionEvidence, int]] = []

    def add(self, run: CaptionEvidence, k: int) -> int:
        """Returns the index of a caption among the captions on the page."""
        place = self._places.setdefault((run.name, k), len(self._places))
        if place == len(self._runs):
            self._runs.append((run, k))
        return place

    def columns(self, first: CaptionEvidence) -> dict[str, list[Any]]:
        """Returns the captions with their marks; see :func:`scapo_eval.report.data.marked`."""
        columns: dict[str, list[Any]] = marked([], None, None)
        matcher = AliasMatcher(first.truth.vocabulary)
        for run, k in self._runs:
            rows = run.mentions.row(k)
            spans = (column[rows] for column in (run.mentions.start, run.mentions.end, run.mentions.label_id))
            mentions = MentionColumns(np.array([0, rows.stop - rows.start]), *spans)
            marks = marked([run.texts[k]], run.states[[k]], matcher, mentions=mentions)
            for name, values in marks.items():
                columns[name] += values
        return columns
