"""HallusionBench: every figure that the official script prints, against its own output on three answer files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.benchmarks.hallusionbench import hallusionbench_runs, read_hallusionbench, read_questions
from scapo_eval.files.records import readable
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import Resampling, Run

PRINTED = {
    "Acc per question pair (qAcc)": "q_acc",
    "Acc per figure (fAcc)": "f_acc",
    "Acc per easy question (easy aAcc)": "easy_acc",
    "Acc per hard question (hard aAcc)": "hard_acc",
    "Acc per question (aAcc)": "a_acc",
    "Yes/No Bias (Pct Diff)": "yes_bias",
    "Yes/No Bias (FP Ratio)": "yes_bias_fp",
    "Consistency Test (correct)": "f_acc",
    "Consistency Test (inconsistent)": "figures_inconsistent",
    "Consistency Test (wrong)": "figures_wrong",
    "LH": "lh",
    "VI": "vi",
    "Mixed": "mixed",
}


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module", params=["a", "b", "c"])
def system(request: pytest.FixtureRequest, shared: Path) -> tuple[Run, dict[str, Any]]:
    folder = shared / "data" / "parity" / "hallusionbench"
    questions = lines(folder / "questions.jsonl.gz")
    answers = lines(folder / f"answers_{request.param}.jsonl.gz")
    asked = read_questions([readable([{**row, "question": ""} for row in questions])])
    results = [
        {**question, "question": "", "model_prediction": answer["answer"], "same": answer["same"]}
        for question, answer in zip(questions, answers, strict=True)
    ]
    joined = read_hallusionbench(readable(results), asked, PARSERS["default"])
    [run] = hallusionbench_runs({"x": joined}, parser="default", resampling=Resampling(0))
    return run, json.loads((folder / "expected.json").read_text())[request.param]


def test_printed(system: tuple[Run, dict[str, Any]]) -> None:
    run, expected = system
    for heading, name in PRINTED.items():
        printed = expected["printed"][heading]
        value = run.values[name]
        assert value is not None
        found = value if "Bias" in heading else round(100 * value, 4)
        assert found == pytest.approx(printed, abs=1e-12 if "Bias" in heading else 0), heading


@pytest.mark.parametrize("part", ["all", "VD", "VS"])
def test_counts(system: tuple[Run, dict[str, Any]], part: str) -> None:
    run, expected = system
    prefix = "" if part == "all" else f"{part.lower()}_"
    counts = {name.removeprefix(prefix): number for name, number in run.counts.items() if name.startswith(prefix)}
    values = {name.removeprefix(prefix): value for name, value in run.values.items() if name.startswith(prefix)}
    wanted = expected["functions"][part]
    for unit, theirs in {
        "questions": "question",
        "figures": "figure",
        "pairs": "pair",
        "easy": "easy",
        "hard": "hard",
    }.items():
        assert (counts[unit], counts[f"{unit}_right"]) == (wanted[theirs]["total"], wanted[theirs]["correct"])
    assert counts["figures_wrong"] == wanted["figure"]["wrong"]
    pair = wanted["pair"]
    assert (counts["lh"], counts["vi"], counts["mixed"]) == (pair["LH_cg"], pair["VI_cg"], pair["Mix_cg"])
    assert values["yes_bias"] == pytest.approx(wanted["yes_no"]["diff"], abs=1e-12)
    assert values["yes_bias_fp"] == pytest.approx(wanted["yes_no"]["fp"], abs=1e-12)
