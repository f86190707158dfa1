"""Looking at captions in Python: the records of the command line, marked captions, rates by label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scapo_eval
from scapo_eval import InputError, InputErrors
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
    for wrong, reason in (
        ({"image": 10**9}, "there is no caption of image 1000000000"),
        ({"image": None, "worst": -1}, "worst must be a whole number of at least 1, got -1"),
        ({"worst": "3"}, "worst must be a whole number of at least 1, got '3'"),
    ):
        with pytest.raises(InputError, match=reason):
            scapo_eval.show(CAPTIONS, **wrong, **GIVEN)
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


def test_a_run_is_looked_at_as_its_captions_are() -> None:
    rows = [json.loads(line) for line in Path(CAPTIONS).read_text().splitlines()]
    for given in (CAPTIONS, rows):
        run = scapo_eval.score(given, claims="asserted", **GIVEN)
        assert scapo_eval.evidence(run) == scapo_eval.evidence(given, claims="asserted", **GIVEN)
        assert scapo_eval.labels(run).to_dict() == scapo_eval.labels(given, claims="asserted", **GIVEN).to_dict()
        assert str(scapo_eval.show(run)) == str(scapo_eval.show(given, claims="asserted", **GIVEN))
    with pytest.raises(InputError, match="a run has its own truth, vocabulary and claims"):
        scapo_eval.labels(run, **GIVEN)


def test_a_run_without_its_captions(tmp_path: Path) -> None:
    captions = tmp_path / "c.jsonl"
    captions.write_text(Path(CAPTIONS).read_text())
    run = scapo_eval.score(captions, **GIVEN)
    run.save(tmp_path / "r.json")
    captions.write_text(Path(CAPTIONS).read_text().replace("A dog", "A cat"))
    with pytest.raises(InputError, match="c: the captions were changed after they were scored"):
        scapo_eval.evidence(run)
    with pytest.raises(InputError, match="c: the run has no captions"):
        scapo_eval.labels(*scapo_eval.load_results(tmp_path / "r.json"))


def test_a_folder_is_one_data_set(tmp_path: Path) -> None:
    lines = Path(CAPTIONS).read_text().splitlines(keepends=True)
    for name, part in (("a", lines[:10]), ("b", lines[10:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(part))
    assert scapo_eval.evidence(tmp_path, **GIVEN) == scapo_eval.evidence(CAPTIONS, **GIVEN)
    assert scapo_eval.labels(tmp_path, **GIVEN).rows == scapo_eval.labels(CAPTIONS, **GIVEN).rows
    (tmp_path / "b.jsonl").write_text('{"image_id": 1}\n')
    with pytest.raises(InputErrors, match=r"b\.jsonl:1: missing key 'caption'"):
        scapo_eval.evidence(tmp_path, **GIVEN)


def test_labels_are_short_in_print_and_tidy_in_a_frame() -> None:
    run = scapo_eval.labels([{"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog", "couch"]}])
    assert repr(run) == "<LabelRun captions: 3 labels (1 hallucinated, 1 missed), 1 captions, 1 images>"
    assert len(repr(run.counts)) <= 200
    frame = run.to_pandas()
    assert frame.set_index("label").loc["cat", "rate"] == 1
    assert pd.isna(frame.set_index("label").loc["couch", "rate"])
    assert frame.drop(columns="label").dtypes.map(lambda kind: kind.kind).isin(["i", "f"]).all()
    assert frame["hallucinated"].tolist() == [row["hallucinated"] for row in run.rows]
