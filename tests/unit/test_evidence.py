"""Looking at captions in Python: the records of the command line, marked captions, rates by label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scapo_eval
from scapo_eval import InputError
from scapo_eval.cli.main import main

ROOT = Path(__file__).parents[2] / "examples"
GIVEN: dict[str, Any] = {"truth": str(ROOT / "truth.json")}
CAPTIONS = str(ROOT / "captions_baseline.jsonl")


def test_records_are_those_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["score", CAPTIONS, "--truth", GIVEN["truth"], "--per-caption", str(tmp_path / "e.jsonl"), "-q"]
    monkeypatch.setattr("sys.argv", ["scapo-eval", *arguments])
    with pytest.raises(SystemExit):
        main()
    records = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert scapo_eval.evidence(CAPTIONS, **GIVEN) == records
    frame = pd.DataFrame(scapo_eval.evidence(pd.read_json(CAPTIONS, lines=True), **GIVEN))
    assert list(frame["missed"]) == [record["missed"] for record in records]


def test_shown_captions_are_the_worst_or_those_of_an_image() -> None:
    worst = scapo_eval.show(CAPTIONS, worst=2, **GIVEN)
    wrong = [record["counts"]["hallucinated"] for record in scapo_eval.evidence(CAPTIONS, **GIVEN)]
    assert [record["counts"]["hallucinated"] for record in worst.records] == sorted(wrong, reverse=True)[:2]
    (record,) = scapo_eval.show(CAPTIONS, image="COCO_val2014_000000000005.jpg", **GIVEN).records
    assert record["image_id"] == "5"
    assert scapo_eval.show(CAPTIONS, image=10**9, **GIVEN).records == []
    with pytest.raises(InputError):
        scapo_eval.show(CAPTIONS, truth="missing.json")


def test_a_page_holds_no_markup_of_a_caption() -> None:
    rows = [{"image_id": 1, "caption": "<script>x</script> A dog\x1b[31m & a <b>cat</b>.", "objects": ["dog"]}]
    shown = scapo_eval.show(rows)
    html = shown._repr_html_()
    assert "<script>" not in html
    assert "<b>cat" not in html
    assert '<mark style="background:#f3c6c6" title="cat: hallucinated">cat</mark>' in html
    assert "\x1b" not in str(shown)
    assert "missed: nothing" in str(shown)


def test_labels_are_those_of_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["scapo-eval", "labels", CAPTIONS, "--truth", GIVEN["truth"], "--json"])
    with pytest.raises(SystemExit):
        main()
    (system,) = json.loads(capsys.readouterr().out)["systems"]
    rows = {row["label"]: row for row in scapo_eval.labels(CAPTIONS, **GIVEN).rows}
    assert rows
    for row in (*system["invented"], *system["missed"]):
        assert rows[row["label"]] == row
