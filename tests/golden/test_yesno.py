"""Yes/no answers on real data, with all parsers, figures and layouts (``shared/data/pope``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.benchmarks.join import JoinedAnswers
from scapo_eval.benchmarks.pope import read_pope, read_pope_questions
from scapo_eval.benchmarks.yesno import BENCHMARK, read_yesno
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import Resampling

RULES = {
    "pope": "pope_official",
    "lmms": "lmms_eval_exact_match",
    "vlmevalkit": "vlmevalkit_exactly_one_word",
    "amber": "amber_strict_Yes_No",
    "default": "first_word",
    "contains": "first_yes_or_no_word_anywhere",
}
FIGURES = ("accuracy", "precision", "recall", "f1", "yes_ratio")


@pytest.fixture(scope="session")
def pope(shared: Path) -> Path:
    return shared / "data" / "pope"


@pytest.fixture(scope="session")
def expected(pope: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((pope / "expected.json").read_text())
    return found


def check(joined: JoinedAnswers, wanted: dict[str, Any]) -> None:
    """Compares counts exactly, and figures to the 12 printed digits of the expected values."""
    (run,) = BENCHMARK.runs({"a": joined}, parser="any", resampling=Resampling(0))
    totals = dict.fromkeys(("tp", "fp", "tn", "fn", "yes_unparsed", "no_unparsed"), 0)
    for name, n in run.table.counts().items():
        cell = next(cell for cell in totals if name == cell or name.endswith(f"_{cell}"))
        totals[cell] += n
    unparsed = totals["yes_unparsed"] + totals["no_unparsed"]
    assert [totals["tp"], totals["fp"], totals["tn"], totals["fn"], unparsed] == [
        wanted[key] for key in ("TP", "FP", "TN", "FN", "unknown")
    ]
    for name in FIGURES:
        value = run.values[name]
        assert (None if value is None else round(value, 12)) == wanted[name], name


def test_parse_cases(pope: Path) -> None:
    columns = {"pope": "pope_official", "vlmevalkit": "vlmevalkit", "lmms": "lmms_eval_pope", "amber": "amber_official"}
    cases = json.loads((pope / "parse_cases.json").read_text())["cases"]
    assert len(cases) == 30
    for case in cases:
        for name, column in columns.items():
            assert (PARSERS[name](case["response"]) or "unknown") == case[column], (name, case["response"])


@pytest.mark.parametrize("name", PARSERS)
def test_254_verbose_answers_under_every_rule(pope: Path, expected: dict[str, Any], name: str) -> None:
    joined = read_yesno(pope / "hallusionbench_verbose_254.jsonl", None, PARSERS[name])
    check(joined, expected["hallusionbench_verbose_254.jsonl"]["rules"][RULES[name]])


LAYOUTS = [
    "llava_answers.jsonl",
    "lmms_eval_v0.2_pope.json",
    "lmms_eval_v0.3_samples_pope.jsonl",
    "lmms_eval_v0.5_samples_pope.jsonl",
    "lmms_eval_v0.7_samples_pope.jsonl",
    "pope_official_answers.json",
    "trl_completions_00001.parquet",
    "unified_yesno.jsonl",
    "verl_rollout_1.jsonl",
    "vlmevalkit_LLaVA-13B_POPE.json",
    "vlmevalkit_LLaVA-13B_POPE.tsv",
    "vlmevalkit_LLaVA-13B_POPE.xlsx",
]
WITHOUT_LABELS = ("llava_answers.jsonl", "pope_official_answers.json")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("truth", ["own labels", "all of POPE"])
def test_the_same_answers_in_every_layout(pope: Path, expected: dict[str, Any], layout: str, truth: str) -> None:
    questions = None
    if truth == "all of POPE":
        questions = read_pope_questions(sorted(pope.glob("coco_pope_*.json")))
    elif layout in WITHOUT_LABELS:
        questions = read_pope_questions([pope / "formats" / "labels.jsonl"])
    joined = read_pope(pope / "formats" / layout, questions, PARSERS["default"])
    check(joined, expected["formats"]["all_files_same_18_rows"])
    assert joined.counts["missing"] == (8910 - 18 if truth == "all of POPE" else 0)
