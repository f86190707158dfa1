"""Wrong, mixed and damaged files as input of any command: one message, exit code 2, and no scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.cli.main import main
from scapo_eval.results.benchmark import benchmarks

Refusal = Callable[..., str]

LLAVA = [{"question_id": k, "prompt": "Describe.", "text": "No dog.", "model_id": "m"} for k in range(3)]
POPE = [{"question_id": 1, "prompt": "Is there a dog in the image?", "text": "Yes", "model_id": "m"}]
AMBER = [{"id": k, "response": "A long description of a picture in which a dog sits beside a tree."} for k in (1, 2)]
QUESTIONS = [{"question_id": 1, "image": "1.jpg", "text": "Is there a dog in the image?", "label": "yes"}]
MIXED = [{"image_id": k, "caption": "A dog.", "model": "aab"[k]} for k in range(3)]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Refusal:
    """Runs a command in a folder with truth.json, and returns the message of its rejection."""
    monkeypatch.chdir(tmp_path)
    Path("truth.json").write_text(
        json.dumps({"labels": ["cat", "dog"], "objects": {str(k): ["dog"] for k in range(9)}})
    )

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        captured = capfd.readouterr()
        assert (leaving.value.code, captured.out) == (2, "")
        return captured.err

    return call


def write(name: str, records: list[Any]) -> str:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("c.jsonl --truth damaged.npz", "damaged.npz: damaged: not an .npz file"),
        ("reward c.jsonl --truth truth.json --r-h inf", "inf is not a finite number"),
        ("c.jsonl --truth truth.json --seed 9223372036854775808", "is not below 2**63"),
        ("describe x.jsonl -o o.jsonl --model m --temperature nan", "nan is not a finite number"),
        ("describe x.jsonl -o o.jsonl --model m --engine-option a={", "--engine-option a: not valid JSON"),
        ("describe x.jsonl -o o.jsonl --model m --engine-option a=1 --engine-option a=2", "a is given twice"),
        ("annotate mine run c.jsonl c.jsonl", "c.jsonl: the file is given twice"),
    ],
)
def test_numbers_and_options_that_are_none(arguments: str, said: str, refused: Refusal) -> None:
    write("c.jsonl", [{"image_id": 1, "caption": "A dog."}])
    write("x.jsonl", [{"image_id": 1, "image": "1.jpg"}])
    Path("damaged.npz").write_text("junk here")
    assert said in " ".join(refused(*arguments.split()).split())


@pytest.mark.parametrize("verb", ["score", "chair"])
@pytest.mark.parametrize(
    ("records", "what", "remedy"),
    [
        (LLAVA, "LLaVA answers", "if they are captions: scapo-eval import x.jsonl --as captions"),
        (POPE, "LLaVA answers", "pope answers (scapo-eval pope)"),
        (AMBER, "own answers", "AMBER's descriptions (scapo-eval amber)"),
        (
            QUESTIONS,
            "yes/no questions with labels",
            "to score answers with them: scapo-eval yesno ANSWERS --questions x.jsonl",
        ),
    ],
)
def test_files_without_captions_are_called_what_they_are(
    refused: Refusal, verb: str, records: list[Any], what: str, remedy: str
) -> None:
    message = refused(verb, write("x.jsonl", records), "--truth", "truth.json")
    assert message.startswith(f"scapo-eval: x.jsonl: no captions (image_id, caption) but {what}")
    assert remedy in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("verb", ["score", "chair"])
def test_faulty_captions_are_still_named_by_line(refused: Refusal, verb: str) -> None:
    message = refused(verb, write("x.jsonl", [MIXED[0], {"image_id": 1}]), "--truth", "truth.json")
    assert message.startswith("scapo-eval: x.jsonl:2: missing key 'caption'")


@pytest.mark.parametrize("verb", ["score", "chair"])
def test_captions_of_several_models(refused: Refusal, verb: str) -> None:
    message = refused(verb, write("x.jsonl", MIXED), "--truth", "truth.json")
    assert message.startswith("scapo-eval: x.jsonl:3: several models in one file ('a', 'b'); ")
    assert "scapo-eval import x.jsonl --model NAME" in message


@pytest.mark.parametrize(("verb", "wanted"), [("mmhal", "ratings"), ("faithscore", "facts")])
def test_judgements_that_are_none(refused: Refusal, verb: str, wanted: str) -> None:
    message = refused(verb, write("x.jsonl", MIXED))
    assert message.startswith("scapo-eval: x.jsonl:1: ")
    assert f"none of the 3 records contains {wanted}; they look like own captions (image_id, caption)" in message


ONE_PROCESS = {record.verb: record.one_process for record in benchmarks() if record.engine is None}
ONE_PROCESS["labels"] = "the label by label table of one file is"


@pytest.mark.parametrize("verb", ONE_PROCESS)
def test_verbs_without_an_engine_say_why(refused: Refusal, verb: str) -> None:
    asked = ("--engine", "ray", "--address", "auto")
    message = " ".join(refused(verb, write("x.jsonl", MIXED), *asked).split())
    assert (
        f"Error: {verb} does not support --engine, --address, --on-bad-file: {ONE_PROCESS[verb]} counted in one "
        "process (docs/scale.md#" in message
    )


def test_what_belongs_to_an_engine_needs_one(refused: Refusal) -> None:
    path = write("x.jsonl", MIXED)
    assert "--address requires --engine ray\n" in refused("chair", path, "--truth", "x", "--address", "a")
    message = refused("hallusionbench", path, "--engine", "ray")
    assert "--engine needs --questions\n" in message
    message = refused("chair", path, "--truth", "truth.json", "--engine", "ray", "--per-caption", "y.jsonl")
    assert "--engine takes no --per-caption\n" in message
