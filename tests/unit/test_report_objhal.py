"""The report of objects that a judge listed: scored by the lists, every name with its verdict."""

from __future__ import annotations

import base64
import gzip
import json
import re
from contextlib import nullcontext
from pathlib import Path

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


def gathered(lists: Path, truth: Path | None) -> Report:
    settings = Settings(truth=str(truth) if truth else None, resampling=Resampling(20))
    return gather([str(lists)], settings, progress=lambda name, size: nullcontext(lambda done: None))


def test_lists_are_scored_as_the_verb_scores_them(files: tuple[Path, Path]) -> None:
    lists, truth = files
    report = gathered(lists, truth)
    (run,) = report.groups[0].runs
    assert run.values == scapo_eval.objhal(lists, truth=truth, resamples=20).values
    assert run.values["chair_i"] == 1 / 3
    (evidence,) = report.claims
    assert [[row[:2] for row in each.rows] for each in evidence.worst(5)] == [
        [("Dog", True), ("a cat", False), ("sun", None)], [("puppy", True)],
    ]  # fmt: skip
    packed = re.search(rb'id="data-claims">([^<]+)<', html.page(report, title="t"))
    assert packed is not None
    (shown,) = json.loads(gzip.decompress(base64.b85decode(packed[1].replace(b",", b"<"))))
    assert shown["descriptions"][0]["text"] == "A dog, a cat."


def test_lists_need_a_truth(files: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"lists\.jsonl: objects that a judge listed are scored against a truth"):
        gathered(files[0], None)
