"""POPE with 8,910 real answers of LLaVA-1.5-13B (``shared/data/pope``)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval.benchmarks.pope import BENCHMARK, CATEGORIES, read_pope, read_pope_questions
from scapo_eval.benchmarks.questions import Question
from scapo_eval.benchmarks.yesno import FORMULAS
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import Resampling, Run
from scapo_eval.results.stats import bootstrap

ANSWERS = "llava-v1.5-13b.answers.jsonl"


@pytest.fixture(scope="module")
def pope(shared: Path) -> Path:
    return shared / "data" / "pope"


@pytest.fixture(scope="module")
def wanted(pope: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((pope / "expected.json").read_text())[ANSWERS]
    return found


@pytest.fixture(scope="module")
def questions(pope: Path) -> list[Question]:
    return read_pope_questions([pope / f"coco_pope_{category}.json" for category in CATEGORIES])


def score(path: Path, questions: list[Question], parser: str = "pope") -> Run:
    joined = read_pope(path, questions, PARSERS[parser])
    (run,) = BENCHMARK.runs({"llava": joined}, parser=parser, resampling=Resampling(0))
    return run


@pytest.mark.parametrize("parser", ["pope", "default", "vlmevalkit", "lmms", "contains"])
def test_figures(pope: Path, wanted: dict[str, Any], questions: list[Question], parser: str) -> None:
    """Checks the figures. All parsers agree, because these answers consist of one word."""
    run = score(pope / ANSWERS, questions, parser)
    values = run.values
    for name in FORMULAS:
        assert round(values[name] or 0, 12) == wanted["pooled"][name]
        for category in CATEGORIES:
            assert round(values[f"{category}_{name}"] or 0, 12) == wanted["per_category"][category][name]
    assert round(values["mean_f1"] or 0, 12) == wanted["mean_f1_over_categories_present"]
    counts = run.table.counts()
    for category, cells in wanted["per_category"].items():
        assert [counts[f"{category}_{cell}"] for cell in ("tp", "fp", "tn", "fn")] == [
            cells[cell] for cell in ("TP", "FP", "TN", "FN")
        ]
    assert run.other_counts == {"unparsed": 0, "missing": 0, "duplicate": 0, "unknown": 0}
    assert (run.n_records, run.n_images) == (8910, 500)


def test_the_bootstrap_resamples_images(pope: Path, wanted: dict[str, Any], questions: list[Question]) -> None:
    """Checks that the width corresponds to the cluster-robust standard error, not to that of 8,910 independent
    answers.
    """
    run = score(pope / ANSWERS, questions)
    intervals = bootstrap(run.table, run.metric_set, resamples=20_000, seed=1)
    for name, cells in {"accuracy": wanted["pooled"], "random_accuracy": wanted["per_category"]["random"]}.items():
        low, high = intervals[name].low, intervals[name].high
        assert low is not None
        assert high is not None
        assert (high - low) / (2 * 1.959964) == pytest.approx(cells["accuracy_cluster_se_CR0"], rel=0.03)
    assert wanted["pooled"]["accuracy_naive_se"] < 0.7 * wanted["pooled"]["accuracy_cluster_se_CR0"]


def test_order_of_lines_and_type_of_ids_do_not_matter(pope: Path, questions: list[Question], tmp_path: Path) -> None:
    records = [json.loads(line) for line in (pope / ANSWERS).read_text().splitlines()]
    for record in records:
        record["question_id"] = str(record["question_id"])
    random.Random(5).shuffle(records)
    path = tmp_path / "shuffled.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    shuffled, plain = score(path, questions), score(pope / ANSWERS, questions)
    assert np.array_equal(shuffled.table.rows, plain.table.rows)
    assert shuffled.signature == plain.signature


def test_one_category_alone(pope: Path, wanted: dict[str, Any]) -> None:
    run = score(pope / ANSWERS, read_pope_questions([pope / "coco_pope_random.json"]))
    values = run.values
    assert round(values["f1"] or 0, 12) == wanted["per_category"]["random"]["f1"]
    assert "mean_f1" not in values
    assert run.counts["unknown"] == 6000
