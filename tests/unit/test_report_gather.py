"""What a report gathers: objects that a judge listed, scored by the lists; captions by the values of a column."""

from __future__ import annotations

import base64
import gzip
import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval.base.errors import InputError
from scapo_eval.report import html
from scapo_eval.report.data import Report
from scapo_eval.report.gather import Settings, gather
from scapo_eval.results.results import Resampling

ROWS = [
    {"image_id": 1, "caption": "A dog, a cat.", "extracted": ["dog", "Dog", "a cat", "sun"], "judge_model": "j"},
    {"image_id": 2, "caption": "A puppy.", "extracted": ["puppy"], "judge_model": "j"},
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    lists, truth = tmp_path / "lists.jsonl", tmp_path / "truth.json"
    lists.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    truth.write_text(json.dumps({"objects": {"1": ["dog"], "2": ["dog", "cat"]}}))
    return lists, truth


def gathered(*files: Path, truth: Path | None, by: str | None = None) -> Report:
    settings = Settings(truth=str(truth) if truth else None, resampling=Resampling(20), by=by)
    quiet = {"progress": lambda name, size: nullcontext(lambda done: None), "warn": lambda text: None}
    return gather([*map(str, files)], settings, **quiet)


def payload(report: Report, name: str) -> Any:
    packed = re.search(rb'id="data-%s">([^<]+)<' % name.encode(), html.page(report, title="t"))
    assert packed is not None
    return json.loads(gzip.decompress(base64.b85decode(packed[1].replace(b",", b"<"))))


def test_lists_are_scored_as_the_verb_scores_them(files: tuple[Path, Path]) -> None:
    lists, truth = files
    report = gathered(lists, truth=truth)
    (run,) = report.groups[0].runs
    assert run.values == scapo_eval.objhal(lists, truth=truth, resamples=20).values
    assert run.values["chair_i"] == 1 / 3
    (evidence,) = report.claims
    assert [[row[:2] for row in each.rows] for each in evidence.worst(5)] == [
        [("Dog", True), ("a cat", False), ("sun", None)], [("puppy", True)],
    ]  # fmt: skip
    (shown,) = payload(report, "claims")
    assert shown["descriptions"][0]["text"] == "A dog, a cat."


def test_lists_need_a_truth(files: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"lists\.jsonl: the objects that a judge listed require a ground truth"):
        gathered(files[0], truth=None)


def test_a_trail_without_systems_is_told(files: tuple[Path, Path]) -> None:
    lists, truth = files
    told: list[str] = []
    settings = Settings(truth=str(truth), resampling=Resampling(20), trails=("list", "run-"))
    gather([str(lists)], settings, progress=lambda name, size: nullcontext(lambda done: None), warn=told.append)
    assert told == ["no system has the prefix 'run-' of --trail"]


def test_captions_by_a_column(tmp_path: Path) -> None:
    """The page has the slices of the results, and every caption's own."""
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"objects": {str(k): ["dog"] for k in range(80)}, "labels": ["dog", "cat"]}))
    paths = []
    for name, wrong in (("base", 3), ("ours", 5)):
        paths.append(tmp_path / f"{name}.jsonl")
        rows = [
            {"image_id": k, "caption": "a dog" + (" and a cat" if k % wrong == 0 else ""), "scene": "ab"[k % 2]}
            for k in range(80)
        ]
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = gathered(*paths, truth=truth, by="scene")
    (argument,) = payload(report, "charts")["arguments"]
    sliced = argument["sliced"]
    assert (sliced["by"], sliced["slices"]) == ("scene", ["a", "b"])
    assert [cell[:3] for cell in sliced["cells"]] == [[0, 0, 40], [0, 1, 40], [1, 0, 40], [1, 1, 40]]
    metric = argument["spoken"].index([metric["key"] for metric in argument["metrics"]].index("hal_rate"))
    value, _, _, difference, low, high, shared = sliced["cells"][2][3][metric]
    assert (value, shared) == (8 / 48, 40)
    assert difference == pytest.approx(8 / 48 - 14 / 54)
    assert low < difference < high
    found = report.groups[0].sliced
    assert found is not None
    tests = {(row["system"], row["baseline"], row["metric"]): row["p_value"] for row in found["interactions"]}
    assert [1, 0, metric, tests["ours", "base", "hal_rate"]] in [
        [s, b, argument["spoken"].index(m), p] for s, b, m, p in sliced["tests"]
    ]
    captions = payload(report, "captions")
    assert captions["slices"] == ["a", "b"]
    assert captions["systems"][1]["slice"] == [0, 1] * 40
    plain = gathered(*paths, truth=truth)
    assert payload(plain, "charts")["arguments"][0]["sliced"] is None
    assert payload(plain, "captions")["slices"] == []


def test_systems_of_one_name_are_told_apart_with_their_evidence(tmp_path: Path) -> None:
    truth, results = tmp_path / "truth.json", tmp_path / "results.json"
    truth.write_text(json.dumps({"objects": {"1": ["dog"], "2": ["cat"]}, "labels": ["dog", "cat"]}))
    captions = [{"image_id": 1, "caption": "A dog."}, {"image_id": 2, "caption": "A dog."}]
    (tmp_path / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in captions))
    run = scapo_eval.score(captions, truth=truth, name="base", resamples=20)
    scapo_eval.compare([run]).save(results)
    report = gathered(results, tmp_path / "base.jsonl", truth=truth)
    assert [run.name for run in report.groups[0].runs] == ["base#1", "base#2"]
    assert [evidence.name for evidence in report.captions] == ["base#2"]
    assert [row["name"] for row in payload(report, "captions")["systems"]] == ["base#2"]


def test_answers_of_two_files_under_one_name_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"p{k}.jsonl" for k in (1, 2)]
    for k, file in enumerate(files):
        file.write_text(json.dumps({"id": k, "image": "1.jpg", "response": "Yes", "label": "yes"}) + "\n")
    settings = Settings(given=dict.fromkeys(map(str, files), "m"), resampling=Resampling(20))
    with pytest.raises(InputError, match="system 'm' appears twice; name one of them: OTHER=FILE"):
        gather([*map(str, files)], settings, progress=lambda name, size: nullcontext(lambda done: None))
