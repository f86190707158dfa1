"""Display names of metrics in paper tables, legends, reports and plots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from .benchmark import benchmarks, find_benchmark

DAGGER_SUFFIX, DAGGER = "_dagger", "†"
NATIVE_SUFFIX, NATIVE = "_native", "native"
READ = ("chair_s", "chair_s_refined", "chair_i")
"""Metrics whose value depends on the caption reader, so that their display names include the reader."""

NAMES = {
    "hal_rate": "Hal. Rate",
    "cover_rate": "Cover Rate",
    "cap_score": "Cap. Score",
    "chair_s": "CHAIR_s",
    "chair_s_refined": "CHAIR_s refined",
    "chair_i": "CHAIR_i",
    "chair": "CHAIR",
    "cover": "Cover",
    "hal": "Hal",
    "recall": "Recall",
    "len": "Len",
    "accuracy": "Accuracy",
    "precision": "Precision",
    "f1": "F1",
    "yes_ratio": "Yes ratio",
    "yes_recall": "Yes recall",
    "no_recall": "No recall",
    "mean_accuracy": "Mean accuracy",
    "mean_f1": "Mean F1",
    "mme_perception": "MME perception",
    "mme_cognition": "MME cognition",
    "mmbench_circular": "MMBench circular",
    "mmbench_vanilla": "MMBench vanilla",
    "mmmu_accuracy": "MMMU",
    "llava_bench_relative": "LLaVA-Bench",
    "mmvet_total": "MM-Vet",
}
"""Metric -> name in papers, for metrics that are shared between benchmarks or belong to none. Benchmark records define
all other names. Names of partial metrics (``existence_f1``) are derived from these names.
"""

_MEANINGS_ANYWHERE = {
    "hal_rate": "claimed labels that are absent",
    "cover_rate": "present labels that are claimed",
    "cap_score": "harmonic mean of 1 - hallucinations and coverage",
    "accuracy": "answers that are right",
    "precision": "of what is said to be so, the share that is",
    "recall": "of what is so, the share that is said",
    "f1": "harmonic mean of precision and recall",
    "yes_ratio": "answers that say yes; neither direction is better",
    "amber_score": "mean of 1 - chair and f1, times 100",
    "mmhal_score": "mean rating by a judge, 0 to 6",
    "mmhal_hal": "answers rated below 3",
    "faithscore": "atomic facts that are verified",
    "avg_facts": "verified facts per answer",
}
"""Metric -> counted quantity, used if the benchmark record defines no meaning."""

CHANGES = {
    "hal_rate": ("names {} points fewer absent objects", "names {} points more absent objects"),
    "cover_rate": ("covers {} points fewer present objects", "covers {} points more present objects"),
}
"""Metric -> phrases for a decrease and an increase. Other metrics are described by name and signed change."""

GENERAL = {"handed-over": "General"}
"""Metric set without a benchmark -> heading above its columns."""


@cache
def _names() -> Mapping[str, str]:
    """Returns a mapping from each metric to its name in papers. Benchmarks in other packages cannot override the names
    of shipped metrics or of metrics that several benchmarks share.
    """
    records = [*benchmarks()]
    return {name: text for record in reversed(records) for name, text in record.metric_names.items()} | NAMES


def metric_name(name: str) -> str:
    """Returns the name of a metric as used in papers, for example ``F1`` for ``f1``."""
    if name.endswith(DAGGER_SUFFIX):
        return metric_name(name.removesuffix(DAGGER_SUFFIX)) + DAGGER
    if name.endswith(NATIVE_SUFFIX):
        return f"{metric_name(name.removesuffix(NATIVE_SUFFIX))} ({NATIVE})"
    names = _names()
    if name in names:
        return names[name]
    for record in benchmarks():
        if record.name_of is not None and (given := record.name_of(name)):
            return given
    for known in sorted(names, key=len, reverse=True):
        if name.endswith(f"_{known}"):
            part = name.removesuffix(f"_{known}").replace("_", " ")
            return f"{part[:1].upper()}{part[1:]} {_lowered(names[known])}"
    return name.replace("_", " ")


def meanings_of(metric_set: str) -> Mapping[str, str]:
    """Returns a mapping from each metric to the quantity that it counts, as defined in the benchmark record."""
    record = find_benchmark(metric_set)
    return record.meanings if record else {}


def reader_of(signature: str) -> str | None:
    """Returns the profile with which the captions were read (``native``, ``reference`` or ``opera``), or None if no
    captions were matched.
    """
    metric_set, *fields = signature.split("|")
    if metric_set == "capscore":
        return NATIVE
    return next((field.removeprefix("profile:") for field in fields if field.startswith("profile:")), None)


_READERS = {
    "native": "matched with",
    "reference": "matched as in the standalone CHAIR script, with",
    "opera": "matched as in OPERA's script, with",
}

_WORLDS = {
    "closed": "closed label set",
    "open-axis": "open label set",
    "partial": "partial label set",
    "total": "total label set",
}
"""``world`` of a signature -> name of the label set in the glossary."""


def reading_of(signature: str) -> str:
    """Returns a phrase that names the ground truth and the profile with which the captions were read, or an empty text
    if no captions were matched.
    """
    if (reader := reader_of(signature)) is None:
        return ""
    fields = dict(field.partition(":")[::2] for field in signature.split("|")[1:])
    words = fields.get("vocab") or f"synonyms {fields.get('synonyms', '')}"
    judge = f"listed by {fields['judge']}, then " if "judge" in fields else ""
    world = f" ({_WORLDS.get(fields['world'], fields['world'])})" if "world" in fields else ""
    truth = f"Ground truth {fields.get('oracle', 'inline')}{world}"
    return f"{truth}; objects {judge}{_READERS.get(reader, reader)} {words}"


def reader_mark(name: str, signatures: Iterable[str]) -> str:
    """Returns the suffix of a metric's display name, for example ``" (native)"`` if the project's matcher was applied
    to the captions.

    Names without a suffix are reserved for values that were computed according to the rules of the reference scripts.
    """
    if name not in READ:
        return ""
    readers = dict.fromkeys(filter(None, map(reader_of, signatures)))
    return f" ({', '.join(readers)})" if NATIVE in readers else ""


def metric_meaning(metric_set: str, name: str) -> str:
    """Returns a one-line description of the quantity that a metric counts, using display names. Returns an empty text
    if the quantity is unknown.
    """
    if name.endswith(NATIVE_SUFFIX):
        plain = metric_meaning(metric_set, name.removesuffix(NATIVE_SUFFIX))
        return f"{plain}, with objects matched by scapo" if plain else ""
    if name.endswith(DAGGER_SUFFIX):
        plain = metric_meaning(metric_set, name.removesuffix(DAGGER_SUFFIX))
        return f"{plain}, by the second vocabulary and truth (DOPA)" if plain else ""
    meaning = meanings_of(metric_set).get(name, "")
    if not meaning:
        known = (key for key in sorted(_MEANINGS_ANYWHERE, key=len, reverse=True) if name.endswith(key))
        meaning = _MEANINGS_ANYWHERE.get(next(known, ""), "")
    return re.sub(r"[a-z]+(?:_[a-z]+)+|\bchair\b|\bf1\b", lambda key: _names().get(key[0], key[0]), meaning)


def _lowered(text: str) -> str:
    mixed = text[1:2].isdigit() or text[1:2].isupper() or text == "FaithScore"
    return text if mixed else text[:1].lower() + text[1:]


def benchmark_name(metric_set: str) -> str:
    """Returns the display name of a benchmark, for the heading above its metric columns."""
    record = find_benchmark(metric_set)
    return record.title if record else GENERAL.get(metric_set, metric_set)
