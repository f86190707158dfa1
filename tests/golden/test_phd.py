"""PhD with synthetic answers in its schema, real Arabic answers, and the paper's own table (``shared``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval.benchmarks import prompts
from scapo_eval.benchmarks.phd import BENCHMARK, MODES, read_phd, read_phd_answers
from scapo_eval.benchmarks.yesno import Unparsed, mean
from scapo_eval.readers.parsers import PARSERS, first_word
from scapo_eval.results.metric import harmonic_mean
from scapo_eval.results.results import Resampling, Run


@pytest.fixture(scope="module")
def phd(shared: Path) -> Path:
    return shared / "data" / "phd"


@pytest.fixture(scope="module")
def expected(phd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((phd / "expected.json").read_text())
    return found


def score(phd: Path, answers: str, data: str | None, parser: str = "default", unparsed: Unparsed = "wrong") -> Run:
    questions = read_phd(phd / data) if data else None
    joined = read_phd_answers(phd / answers, questions, PARSERS[parser])
    (run,) = BENCHMARK.runs({"a": joined}, parser=parser, unparsed=unparsed, resampling=Resampling(0))
    return run


def test_parsed_answers(phd: Path, expected: dict[str, Any]) -> None:
    run = read_phd_answers(phd / "phd_synthetic_answers.jsonl", None, first_word)
    said = {item.answer.id: item.said or "unknown" for item in run.graded}
    assert said == expected["phd_synthetic_answers.jsonl"]["parsed_first_word"]


@pytest.mark.parametrize("data", [None, "phd_synthetic.json", "phd_synthetic_iac_key.json"])
@pytest.mark.parametrize(
    ("policy", "parser", "unparsed"),
    [
        ("first_word_unknown_is_error", "default", "wrong"),
        ("first_word_unknown_dropped", "default", "drop"),
        ("pope_official_rule", "pope", "wrong"),
    ],
)
def test_figures(
    phd: Path, expected: dict[str, Any], data: str | None, policy: str, parser: str, unparsed: Unparsed
) -> None:
    run = score(phd, "phd_synthetic_answers.jsonl", data, parser, unparsed)
    wanted = expected["phd_synthetic_answers.jsonl"][policy]
    values = {name: round(value or 0, 12) for name, value in run.values.items()}
    for mode, cells in wanted["modes"].items():
        assert values[f"phd_{mode}"] == cells["phd_index"]
        assert values[f"phd_{mode}_task"] == cells["phd_index_mean_over_tasks"]
        assert values[f"{mode}_accuracy"] == cells["accuracy"]
        assert values[f"{mode}_yes_recall"] == cells["yes_recall"]
        assert values[f"{mode}_no_recall"] == cells["no_recall"]
        for task, one in wanted["mode_task"][mode].items():
            assert values[f"phd_{mode}_{task}"] == one["phd_index"]
    assert values["phd_all"] == wanted["phd_all_mean_of_four_mode_indices"]
    assert values["phd_all_task"] == wanted["phd_all_mean_of_four_task_averaged_modes"]
    assert values["accuracy"] == wanted["pooled_over_everything"]["accuracy"]
    assert run.n_records == wanted["pooled_over_everything"]["n"]
    assert run.counts["unparsed"] == (0 if parser == "pope" else 13)


def test_prompts_are_the_ones_that_were_asked(phd: Path) -> None:
    asked = [json.loads(line) for line in (phd / "phd_synthetic_answers.jsonl").read_text().splitlines()]
    built = {question.id: question for question in read_phd(phd / "phd_synthetic_iac_key.json")}
    assert set(built) == {record["id"] for record in asked}
    for record in asked:
        assert built[record["id"]].prompt == record["question"]
        assert built[record["id"]].label == record["label"]


def test_an_absent_mode_has_no_value(phd: Path, tmp_path: Path) -> None:
    lines = (phd / "phd_synthetic_answers.jsonl").read_text().splitlines()
    (tmp_path / "a.jsonl").write_text("\n".join(line for line in lines if '"mode": "icc"' not in line))
    run = score(phd, str(tmp_path / "a.jsonl"), "phd_synthetic.json")
    values = run.values
    nothing = {name for name, value in values.items() if value is None}
    tasks = ("object", "attribute", "sentiment", "position", "counting")
    assert nothing == {"phd_icc", "phd_all", "phd_icc_task", "phd_all_task"} | {f"phd_icc_{task}" for task in tasks} | {
        f"icc_{name}" for name in ("accuracy", "yes_recall", "no_recall")
    }
    assert run.counts["missing"] == 60
    assert "no answer in mode icc, so phd_all (the mean of the four modes) has no value" in run.notes


def test_real_arabic_answers(phd: Path, expected: dict[str, Any]) -> None:
    """Checks the published PhD index of these answers, with one mode and no tasks."""
    run = score(phd, "sarab_ccs_gpt-4o-mini.jsonl", None)
    wanted = expected["sarab_ccs_gpt-4o-mini.jsonl"]
    values = run.values
    for name, key in {"phd_ccs": "phd_index", "ccs_yes_recall": "yes_recall", "ccs_no_recall": "no_recall"}.items():
        assert round(values[name] or 0, 12) == wanted[key]
        assert round(values[name] or 0, 3) == wanted["published"][key]
    assert round(values["accuracy"] or 0, 12) == wanted["accuracy"]
    assert values["phd_ccs_task"] is None
    assert run.n_records == 30


def test_records_of_the_prerelease_have_neither_image_id_nor_task(phd: Path) -> None:
    questions = read_phd(phd / "phd_ccs_prerelease_excerpt.json")
    assert len(questions) == len({question.id for question in questions}) == 80
    assert {(question.mode, question.task) for question in questions} == {("ccs", None)}
    assert questions[2].image == "images/CCS_images/17.png"
    assert questions[2].image_id == "ccs/17"


def test_phd_all_of_the_papers_table(shared: Path) -> None:
    """Checks in Table 1 that the printed PhD-all is the unweighted mean of its four modes."""
    paper = (shared / "paper" / "scapo_paper.tex").read_text()
    table = paper[paper.index(r"\label{tab:rule_based_main}") : paper.index(r"\paragraph{Comparison Methods.}")]
    lines = [line.split("&", 1)[1] for line in table.splitlines() if line.count("&") == 9]
    rows = [[float(cell) for cell in re.findall(r"\d+\.\d", line)] for line in lines]
    assert len(rows) == 12
    for row in rows:
        modes = {mode: np.float64(value) for mode, value in zip(MODES, row[4:8], strict=True)}
        measure = mean([lambda sums, mode=mode: sums[mode] for mode in MODES])
        assert float(measure(modes)) == pytest.approx(row[8], abs=0.0501)


@pytest.mark.parametrize(("p", "r", "f1"), [(84.5, 92.6, 88.4), (87.3, 93.8, 90.4), (87.6, 94.4, 90.9)])
def test_f1_of_the_papers_table(p: float, r: float, f1: float) -> None:
    assert float(harmonic_mean(np.float64(p / 100), np.float64(r / 100))) == pytest.approx(f1 / 100, abs=0.000501)


def test_prompts_stand_in_the_paper(shared: Path) -> None:
    paper = (shared / "paper" / "scapo_paper.tex").read_text()
    verbatim = re.findall(r"\\begin\{Verbatim\}\[[^\]]*\]\n(.*?)\n\\end\{Verbatim\}", paper, re.DOTALL)
    assert prompts.DESCRIBE in verbatim
    assert prompts.DESCRIBE_IN_DETAIL in verbatim
    template = next(text for text in verbatim if "{generated_description}" in text)
    assert prompts.with_description("{generated_description}", "Q?") == f"{template}\nQ?"
