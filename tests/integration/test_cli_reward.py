"""``scapo-eval reward`` and ``scapo-eval density`` as users run them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("warm")
LABELS = ["dog", "cat", "car"]
RESPONSES = [
    ("1", "A dog is here today. A cat sits on the red car."),
    ("COCO_val2014_000000000002.jpg", "It is a nice day. A cat sits by a dog."),
    (2, ""),
]


def run(*arguments: object, stdin: str = "", code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        ["scapo-eval", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    (folder / "v.yaml").write_text(
        json.dumps({"name": "toy", "labels": {label: {"aliases": [label]} for label in LABELS}})
    )
    (folder / "w.yaml").write_text(json.dumps({"name": "dogs", "labels": {"dog": {"aliases": ["dog"]}}}))
    (folder / "truth.json").write_text(json.dumps({"objects": {"1": ["dog"], "2": ["cat", "dog"]}, "labels": LABELS}))
    lines = [json.dumps({"image_id": image, "response": text}) for image, text in RESPONSES]
    (folder / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    verl = [
        {"input": "user\nDescribe.", "output": t, "gts": "", "score": 0.0, "step": 1, "image_id": i}
        for i, t in RESPONSES
    ]
    (folder / "verl.jsonl").write_text("\n".join(map(json.dumps, verl)) + "\n")
    return folder


def test_reward_writes_every_piece(world: Path) -> None:
    out, err = run(
        "reward", world / "rollouts.jsonl", "--truth", world / "truth.json", "--vocabulary", world / "v.yaml"
    )
    first, second, empty = records(out)
    assert first["image_id"] == "1"
    assert [(part["reward"], part["text"], part["claims"]) for part in first["parts"]] == [
        (1.0, "A dog is here today. ", {"dog": "new"}),
        (-1.0, "A cat sits on the red car.", {"cat": "hal", "car": "hal"}),
    ]
    assert (first["generated"], first["hallucinated"], first["covered"], first["total"]) == (3, 2, 1, 0.0)
    assert second["image_id"] == "2"
    assert [part["reward"] for part in second["parts"]] == [-0.1, 1.0]
    assert (empty["line"], empty["parts"], empty["total"]) == (3, [], 0.0)
    assert "3 responses (1 empty); mean reward 0.3000" in err
    assert "reward|vocab:toy@" in err
    assert "|rule:subsentence|" in err


def test_the_signature_says_that_unfinished_sentences_are_dropped(world: Path) -> None:
    words = ("reward", world / "rollouts.jsonl", "--truth", world / "truth.json", "--vocabulary", world / "v.yaml")
    said = {run(*words, *more)[1].splitlines()[-1] for more in ((), ("--drop-unfinished",))}
    assert sorted("|unfinished:dropped|" in signature for signature in said) == [False, True]


def test_reward_settings_and_output_file(world: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    truth = ("--truth", world / "truth.json", "--vocabulary", world / "v.yaml", "-q")
    out, err = run(
        "reward", world / "rollouts.jsonl", *truth, "--lam-h", "linear", "--r-h", 2, "--additive", "-o", target
    )
    assert (out, err) == ("", "")
    assert [part["reward"] for part in records(target.read_text())[0]["parts"]] == [1.0, -4.0]
    out, _ = run("reward", world / "rollouts.jsonl", *truth, "--level", "cap")
    assert [round(record["total"], 4) for record in records(out)] == [0.5, 1.0, 0.0]
    _, err = run("reward", world / "rollouts.jsonl", *truth, "--r-reg", -1, code=2)
    assert "r_reg must be a number >= 0, got -1.0" in err


def test_reward_reads_verl_trl_and_standard_input(world: Path, tmp_path: Path) -> None:
    truth = ("--truth", world / "truth.json", "--vocabulary", world / "v.yaml", "-q")
    expected = [record["total"] for record in records(run("reward", world / "rollouts.jsonl", *truth)[0])]
    assert [r["total"] for r in records(run("reward", world / "verl.jsonl", *truth)[0])] == expected
    text = (world / "rollouts.jsonl").read_text()
    assert [r["total"] for r in records(run("reward", "-", *truth, stdin=text)[0])] == expected
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "prompt": ["Describe this image."] * 3,
        "completion": [text for _, text in RESPONSES],
        "image_id": [str(image) for image, _ in RESPONSES],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "completions_00001.parquet")
    assert [r["total"] for r in records(run("reward", tmp_path / "completions_00001.parquet", *truth)[0])] == expected


def test_reward_names_bad_input(world: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    lines = [
        '{"image_id": 1, "response": "A dog."}',
        '{"image_id": 1, "response": null}',
        '{"image_id": 9, "response": ""}',
    ]
    bad.write_text("\n".join(lines) + "\n")
    truth = ("--truth", world / "truth.json", "--vocabulary", world / "v.yaml")
    _, err = run("reward", bad, *truth, code=2)
    assert f"{bad}:2: " in err
    _, err = run("reward", bad, *truth, "--skip-bad", code=2)
    assert f"{bad}:3: unknown image id '9'" in err
    out, err = run("reward", bad, *truth, "--skip-bad", "--on-unknown-image", "skip")
    assert len(records(out)) == 1
    assert "1 faulty and 1 of unknown images omitted" in err
    assert "|skip:2" in err
    _, err = run("reward", tmp_path / "none.jsonl", *truth, code=2)
    assert "file not found" in err


def figures(out: str) -> dict[str, dict[str, float]]:
    return {s["name"]: {k: v["value"] for k, v in s["metrics"].items()} for s in json.loads(out)["systems"]}


def test_density_is_the_paper_s_table(world: Path) -> None:
    two = (
        "--vocabulary",
        world / "v.yaml",
        "--truth",
        world / "truth.json",
        "--truth",
        world / "truth.json",
        "--vocabulary",
        world / "w.yaml",
    )
    found = figures(run("density", world / "rollouts.jsonl", *two, "--json", "-q")[0])
    assert found["toy"] == pytest.approx(
        {
            "objects": 5 / 3,
            "objects_supported": 1.0,
            "objects_hallucinated": 2 / 3,
            "subsentences": 4 / 3,
            "subsentences_supported": 2 / 3,
            "subsentences_hallucinated": 1 / 3,
            "subsentences_both": 0.0,
        }
    )
    assert found["dogs"]["objects"] == pytest.approx(2 / 3)
    assert found["toy"]["objects_supported"] + found["toy"]["objects_hallucinated"] == pytest.approx(
        found["toy"]["objects"]
    )


def test_density_calibrates_over_all_rules(world: Path) -> None:
    one = ("--vocabulary", world / "v.yaml", "--truth", world / "truth.json")
    out, _ = run("density", world / "rollouts.jsonl", *one, "--calibrate", "--json", "-q", "--resamples", 0)
    found = figures(out)
    assert list(found) == [
        f"toy {rule}" for rule in ("subsentence", "sentence", "clause", "object", "response", "discourse")
    ]
    assert found["toy response"]["subsentences"] == pytest.approx(2 / 3)  # an empty response has no piece
    assert found["toy object"]["subsentences"] == pytest.approx(5 / 3)
    signatures = [system["signature"] for system in json.loads(out)["systems"]]
    assert "|rule:object|" in signatures[3]
    table, _ = run("density", world / "rollouts.jsonl", *one)
    assert "toy\tsubsentences\t1.33" in table


def test_density_names_bad_input(world: Path) -> None:
    truth = ("--truth", world / "truth.json")
    _, err = run("density", world / "rollouts.jsonl", *truth, *truth, "--vocabulary", world / "v.yaml", code=2)
    assert "2 --truth for 1 --vocabulary: specify one --truth for each" in err


def test_density_on_real_captions(shared: Path) -> None:
    folder = shared / "data" / "captions_real"
    captions = folder / "coco_val2014_opera_llava15_greedy.jsonl"
    arguments = (
        "density",
        captions,
        "--truth",
        folder / "gt" / "coco_chair_gt.jsonl",
        "--json",
        "-q",
        "--resamples",
        0,
    )
    found = figures(run(*arguments)[0])["coco80"]
    assert found["objects_supported"] + found["objects_hallucinated"] == pytest.approx(found["objects"])
    assert 2 < found["objects"] < 5
    assert 6 < found["subsentences"] < 12
    assert found["subsentences_supported"] > found["objects_supported"]  # as in the paper: pieces repeat objects
