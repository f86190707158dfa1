"""The report's sentences on made-up results, where it is known what may be said and what may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from scapo_eval.benchmarks.amber.formulas import METRICS as AMBER
from scapo_eval.benchmarks.capscore import capscore_metrics
from scapo_eval.benchmarks.chair import METRICS as CHAIR
from scapo_eval.benchmarks.pope import pope_metrics
from scapo_eval.report.data import Report
from scapo_eval.report.overview import natural_baselines, overview
from scapo_eval.report.sentences import Sentence, sentence
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet
from scapo_eval.results.names import metric_meaning
from scapo_eval.results.results import Resampling, Run
from scapo_eval.results.signature import Signature

CAPTIONS = capscore_metrics()


def row(metric: str, difference: float | None, p: float | None = 0.001, n: int = 500, **more: Any) -> dict[str, Any]:
    """A comparison as :func:`scapo_eval.results.comparison.compare` makes it: tested, unless ``p`` is None."""
    missing = difference is None
    return {
        "system": "ours", "baseline": "base", "metric": metric, "n_images": n, "difference": difference,
        "system_value": None if missing else 0.5 + difference, "baseline_value": None if missing else 0.5,
        "ci_low": None if missing or p is None else difference - (difference != 0) * 0.01,
        "ci_high": None if missing or p is None else difference + (difference != 0) * 0.01,
        "p_value": p, "p_holm": p, "test": None if p is None else "studentized_permutation",
        "n_differing": 7 * bool(difference), "standard_error": 0.01, "detectable": None, **more,
    }  # fmt: skip


def said(
    metric_set: MetricSet, rows: Sequence[Mapping[str, Any]], length: Mapping[str, Any] | None = None, same: bool = True
) -> tuple[str, str]:
    made = sentence(rows, metric_set, length, same_images=same)
    return made.verdict, str(made)


def tones(made: Sentence) -> dict[str, str]:
    return {part.metric: part.tone for part in made.parts}


WORDS = {**row("len", -24.0), "baseline_value": 100.0, "system_value": 76.0}


@pytest.mark.parametrize(
    ("rows", "length", "verdict", "text"),
    [
        (
            [row("hal_rate", -0.081), row("cover_rate", -0.027), row("cap_score", 0.026)],
            WORDS,
            "better overall",
            "names 8.1 points fewer absent objects, at the cost of 2.7 points of coverage; Cap. Score +2.6; "
            "captions 24 % shorter",
        ),
        (
            [row("hal_rate", -0.081), row("cover_rate", -0.027), row("cap_score", 0.002, p=0.4)],
            {**WORDS, "p_holm": 0.2},
            "trade-off",
            "names 8.1 points fewer absent objects, covers 2.7 points fewer present objects; "
            "no difference shown in Cap. Score",
        ),
        (
            [row("hal_rate", 0.01, p=0.3), row("cover_rate", -0.02, p=0.06), row("cap_score", 0.004, p=1.0)],
            None,
            "no significant difference",
            "no difference shown in Hal. Rate, Cover Rate or Cap. Score",
        ),
        (
            [row("hal_rate", 0.031), row("cover_rate", 0.012, p=0.5), row("cap_score", -0.02, p=0.049)],
            None,
            "worse",
            "names 3.1 points more absent objects; Cap. Score −2.0; no difference shown in Cover Rate",
        ),
        (
            [row("hal_rate", -0.031), row("cover_rate", 0.012, p=0.5), row("cap_score", 0.01, p=0.05)],
            None,
            "better in Hal. Rate",
            "names 3.1 points fewer absent objects; no difference shown in Cover Rate or Cap. Score",
        ),
        (
            [row("hal_rate", -0.0002), row("cover_rate", 0.0, p=1.0), row("cap_score", 0.0001, p=1.0)],
            None,
            "better in Hal. Rate",
            "names 0.020 points fewer absent objects; no difference shown in Cover Rate or Cap. Score",
        ),
    ],
)  # fmt: skip
def test_only_tested_differences_of_captions_are_claimed(rows: Any, length: Any, verdict: str, text: str) -> None:
    assert said(CAPTIONS, rows, length) == (verdict, text)


def test_a_difference_that_is_not_shown_has_the_detectable_difference() -> None:
    rows = [
        row("hal_rate", 0.01, p=0.3, detectable=0.012),
        row("cover_rate", -0.02, p=0.06),
        row("cap_score", 0.01, p=0.2, detectable=0.008),
    ]
    text = "no difference shown in Hal. Rate (detectable with 80 % power: 1.2), Cover Rate or Cap. Score (0.8)"
    assert said(CAPTIONS, rows) == ("no significant difference", text)


def test_equal_files_are_the_same_and_a_tie_is_not() -> None:
    names = ("hal_rate", "cover_rate", "cap_score")
    same = [row(name, 0.0, p=1.0) for name in names]
    assert said(CAPTIONS, same) == (
        "no difference", "identical in every metric on each of the 500 shared images",
    )  # fmt: skip
    tie = [row(name, 0.0, p=1.0, ci_low=-0.01, ci_high=0.01, n_differing=9) for name in names]
    assert said(CAPTIONS, tie)[0] == "no significant difference"


@pytest.mark.parametrize(
    ("n", "same", "verdict", "text"),
    [
        (6, False, "not compared", "only 6 images are shared: too few to compare"),
        (1, False, "not compared", "only 1 image is shared: too few to compare"),
        (0, False, "not compared", "no image is shared: too few to compare"),
        (12, True, "not tested", "only 12 images: too few to test"),
        (500, True, "not tested", "no resamples, so no tests"),
    ],
)
def test_without_a_test_nothing_is_claimed(n: int, same: bool, verdict: str, text: str) -> None:
    difference = -0.2 if same else None
    rows = [row(name, difference, None, n) for name in ("hal_rate", "cover_rate", "cap_score")]
    assert said(CAPTIONS, rows, same=same) == (verdict, text)


def test_systems_that_were_scored_differently_are_not_compared() -> None:
    rows = [row("hal_rate", -0.1, differing=["vocab", "claims"])]
    assert said(CAPTIONS, rows) == (
        "not comparable", "different settings (vocab, claims) may explain a difference",
    )  # fmt: skip


def test_a_tested_loss_is_red_where_cap_score_is_better_too() -> None:
    rows = [row("hal_rate", -0.081), row("cover_rate", -0.027), row("cap_score", 0.026)]
    won = sentence(rows, CAPTIONS, WORDS, same_images=True)
    assert tones(won) == {"hal_rate": "better", "cover_rate": "worse", "cap_score": "better", "len": "untested"}
    assert (won.verdict, won.tone) == ("better overall", "better")
    rows[2] = row("cap_score", -0.004, p=0.5)
    assert tones(sentence(rows, CAPTIONS, WORDS, same_images=True))["cover_rate"] == "worse"


def test_amber_chair_and_pope_figures() -> None:
    amber = [
        row("chair", -0.032), row("cover", 0.011, p=0.2), row("hal", -0.09), row("cog", -0.01, p=0.3),
        row("cap_score", 0.019), row("accuracy", None, None),
        row("f1", None, None) | {"system_value": 0.8},
    ]  # fmt: skip
    assert said(AMBER, amber) == (
        "better in Cap. Score and Hal",
        "CHAIR −3.2 (lower is better), Cap. Score +1.9, Hal −9.0 (lower is better); "
        "no difference shown in Cover or Cog; F1 not compared: one of the two has no value",
    )
    chair = [
        row("chair_s", 0.04), row("chair_i", 0.03), row("recall", 0.05),
        row("len", 12.0, baseline_value=100.0, system_value=112.0),
    ]  # fmt: skip
    assert said(CHAIR, chair) == (
        "trade-off",
        "CHAIR_s +4.0 (lower is better), CHAIR_i +3.0 (lower is better), Recall +5.0; captions 12 % longer",
    )
    pope = [row("accuracy", -0.012), row("f1", -0.02), row("yes_ratio", 0.05)]
    made = sentence(pope, pope_metrics([""]), same_images=True)
    assert (made.verdict, str(made)) == ("worse", "Accuracy −1.2, F1 −2.0, Yes ratio +5.0")
    assert tones(made) == {"accuracy": "worse", "f1": "worse", "yes_ratio": "untested"}


def a_run(name: str, images: range, wrong: int) -> Run:
    """A caption per image: four labels named, all present but ``wrong`` of them in two images of three."""
    rows = [[1, 4, k, 4 - k, 4, 4, k, k > 0, 0] for k in (wrong * (i % 3 > 0) for i in images)]
    table = CountTable(CAPTIONS.columns, tuple(sorted(map(str, images))), np.array(rows, dtype=np.int64))
    return Run(
        name=name, signature=Signature.of("capscore"), metric_set=CAPTIONS, table=table, n_records=len(rows),
        resampling=Resampling(300),
    )  # fmt: skip


def test_every_system_is_the_baseline_once_and_groups_that_share_no_images_have_their_own() -> None:
    runs = [
        a_run("a", range(60), 2),
        a_run("b", range(60), 1),
        a_run("c", range(200, 260), 1),
        a_run("d", range(200, 260), 1),
    ]
    group = compare(runs, resampling=Resampling(300))
    (found,) = overview(Report((group,)))
    assert found["natural"] == [0, 0, 2, 2]
    assert [[entry and entry["verdict"] for entry in entries] for entries in found["against"]] == [
        [None, "better", "not compared", "not compared"],
        ["worse", None, "not compared", "not compared"],
        ["not compared", "not compared", None, "no difference"],
        ["not compared", "not compared", "no difference", None],
    ]
    other = compare([runs[1], runs[0]], resampling=Resampling(300))
    (row_of_cap_score,) = (row for row in other.comparisons if row["metric"] == "cap_score")
    row = found["against"][1][0]["rows"][list(CAPTIONS.formulas).index("cap_score")]
    difference, low, high = row["difference"], row["low"], row["high"]
    assert (difference, low, high) == tuple(row_of_cap_score[name] for name in ("difference", "ci_low", "ci_high"))


def test_natural_baselines_ask_for_thirty_shared_images_or_the_same_ones() -> None:
    sets = [frozenset(map(str, images)) for images in (range(100), range(71, 200), range(5), range(5))]
    assert natural_baselines(sets) == [0, 1, 2, 2]
    assert natural_baselines([sets[0], frozenset(map(str, range(70, 200)))]) == [0, 0]


def test_every_spoken_metric_has_a_meaning_in_peoples_names() -> None:
    assert metric_meaning("capscore", "cap_score") == "harmonic mean of 1 - Hal. Rate and Cover Rate"
    assert metric_meaning("amber", "chair") == "mentions that are hallucinated"
    assert metric_meaning("pope", "popular_accuracy") == "answers that are right"
    assert metric_meaning("capscore", "hal_rate_dagger").endswith("by the second vocabulary and truth (DOPA)")
