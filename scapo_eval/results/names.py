"""Names of metrics for people, in one table: headings of tables for papers, legends, reports and plots."""

from __future__ import annotations

import re

DAGGER_SUFFIX, DAGGER = "_dagger", "†"

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
    "cog": "Cog",
    "recall": "Recall",
    "len": "Len",
    "accuracy": "Accuracy",
    "precision": "Precision",
    "f1": "F1",
    "yes_ratio": "Yes ratio",
    "yes_recall": "Yes recall",
    "no_recall": "No recall",
    "amber_score": "AMBER Score",
    "mmhal_score": "Score",
    "mmhal_hal": "Hal. Rate",
    "score": "Score",
    "faithscore": "FaithScore",
    "avg_facts": "Avg. Facts",
    "objects": "Objects",
    "objects_supported": "Objects, supported",
    "objects_hallucinated": "Objects, hallucinated",
    "subsentences": "Subsentences",
    "subsentences_supported": "Subsentences, supported",
    "subsentences_hallucinated": "Subsentences, hallucinated",
    "subsentences_both": "Subsentences, both",
    "mean_accuracy": "Mean accuracy",
    "mean_f1": "Mean F1",
    "a_acc": "aAcc",
    "f_acc": "fAcc",
    "q_acc": "qAcc",
    "easy_acc": "Easy",
    "hard_acc": "Hard",
    "average": "Average",
    "dcscore": "DCScore",
    "capeval_c": "CAPEval C",
    "capeval_p": "CAPEval P",
    "claims": "Claims",
    "mme_perception": "MME perception",
    "mme_cognition": "MME cognition",
    "mmbench_circular": "MMBench circular",
    "mmbench_vanilla": "MMBench vanilla",
    "mmmu_accuracy": "MMMU",
    "llava_bench_relative": "LLaVA-Bench",
    "mmvet_total": "MM-Vet",
}
"""Metric -> its name in papers; metrics of a part (``existence_f1``, ``phd_base``) follow from these."""

_CHAIR_I = "mentions that are hallucinated"
_CHAIR_S = "captions with a hallucinated mention"

MEANINGS = {
    "capscore": {
        "hal_rate": "claimed labels that are absent",
        "cover_rate": "present labels that are claimed",
        "cap_score": "harmonic mean of 1 - hal_rate and cover_rate",
        "chair_i": _CHAIR_I,
        "chair_s": _CHAIR_S,
    },
    "chair": {
        "chair_s": _CHAIR_S,
        "chair_i": _CHAIR_I,
        "recall": "present objects that are mentioned",
        "len": "words (or tokens) per caption",
        "hal_rate": "different objects that are hallucinated",
    },
    "objhal": {
        "chair_s": _CHAIR_S,
        "chair_s_refined": "captions with a hallucinated mention, among those that name an object",
        "chair_i": _CHAIR_I,
        "recall": "present objects that are mentioned",
        "len": "words per caption",
    },
    "amber": {
        "chair": _CHAIR_I,
        "cover": "annotated objects that are mentioned",
        "hal": "responses with a hallucination",
        "cog": "hallucinations that people tend to, too",
    },
    "hallusionbench": {
        "a_acc": "questions answered right",
        "f_acc": "figures, all of whose questions are right",
        "q_acc": "questions that are right about every figure (or none) they are asked of",
        "average": "mean of the three",
        "easy_acc": "q_acc about the original, or without a figure",
        "hard_acc": "q_acc about the edited figures",
    },
    "facts": {
        "dcscore": "mean of F1 over all claims and over the descriptive ones",
        "precision": "claims that are true",
        "recall": "reference claims, and true claims beyond them, that are stated",
        "capeval_c": "reference claims that the description speaks of",
        "capeval_p": "of these, rightly",
        "claims": "claims per description",
    },
}
"""Metric set -> metric -> what is counted, for the legend of a table; a share unless it says otherwise."""

_MEANINGS_ANYWHERE = {
    "hal_rate": MEANINGS["capscore"]["hal_rate"],
    "cover_rate": MEANINGS["capscore"]["cover_rate"],
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
"""Metric -> what is counted, where its set says nothing of its own."""

CHANGES = {
    "hal_rate": ("names {} points fewer absent objects", "names {} points more absent objects"),
    "cover_rate": ("covers {} points fewer present objects", "covers {} points more present objects"),
}
"""Metric -> how a fall and a rise of it read in a sentence; other metrics are named with the signed change."""

BENCHMARKS = {
    "capscore": "Captions",
    "chair": "CHAIR",
    "objhal": "Object HalBench",
    "amber": "AMBER",
    "phd": "PhD",
    "pope": "POPE",
    "hallusionbench": "HallusionBench",
    "yesno": "Yes/no",
    "mmhal": "MMHal-Bench",
    "faithscore": "FaithScore",
    "facts": "Claims",
    "density": "Density",
    "augmented": "Described",
    "handed-over": "General",
}
"""Metric set -> heading over its columns where several benchmarks share a table."""


def metric_name(name: str) -> str:
    """The name of a metric in papers, for example ``Cap. Score†`` for ``cap_score_dagger``."""
    if name.endswith(DAGGER_SUFFIX):
        return metric_name(name.removesuffix(DAGGER_SUFFIX)) + DAGGER
    if name in NAMES:
        return NAMES[name]
    if name.startswith("phd_"):
        mode, _, task = name.removeprefix("phd_").partition("_")
        return f"PhD-{mode}" + (" by task" if task == "task" else f" {task.replace('_', ' ')}" if task else "")
    for known in sorted(NAMES, key=len, reverse=True):
        if name.endswith(f"_{known}"):
            part = name.removesuffix(f"_{known}").replace("_", " ")
            return f"{part[:1].upper()}{part[1:]} {_lowered(NAMES[known])}"
    return name.replace("_", " ")


def metric_meaning(metric_set: str, name: str) -> str:
    """What a metric counts, in one line and in people's names; empty where nothing is known beyond its name."""
    if name.endswith(DAGGER_SUFFIX):
        plain = metric_meaning(metric_set, name.removesuffix(DAGGER_SUFFIX))
        return f"{plain}, by the second vocabulary and truth (DOPA)" if plain else ""
    found = MEANINGS.get(metric_set, {}).get(name, "")
    if not found:
        known = (key for key in sorted(_MEANINGS_ANYWHERE, key=len, reverse=True) if name.endswith(key))
        found = _MEANINGS_ANYWHERE.get(next(known, ""), "")
    return re.sub(r"[a-z]+(?:_[a-z]+)+|\bchair\b|\bf1\b", lambda key: NAMES.get(key[0], key[0]), found)


def _lowered(text: str) -> str:
    mixed = text[1:2].isdigit() or text[1:2].isupper() or text == "FaithScore"
    return text if mixed else text[:1].lower() + text[1:]


def benchmark_name(metric_set: str) -> str:
    """The name of a benchmark over the columns of its metrics."""
    return BENCHMARKS.get(metric_set, metric_set)
