"""``scapo-eval pairs`` as users run it, with formats that are read back by their documented schemas."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("warm")
LABELS = ["dog", "cat", "car", "tree"]
GOOD = "A dog is near the tree here."  # Cap. Score 100
FAIR = "There is a dog near here now."  # Cap. Score 66.7
BAD = "A cat is inside the car here."  # Cap. Score 0
LONG = "A cat is on the old red car, and nothing else can be seen here at all on this very nice day."
NOTHING = "It is a nice day outside today."
RESPONSES = [("1", text) for text in (GOOD, FAIR, BAD, LONG, NOTHING, BAD)]


def run(*arguments: object, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    done = subprocess.run(["scapo-eval", "pairs", *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Deprecat" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "v.yaml").write_text(
        json.dumps({"name": "toy", "labels": {label: {"aliases": [label]} for label in LABELS}})
    )
    (folder / "truth.json").write_text(json.dumps({"objects": {"1": ["dog", "tree"], "2": ["cat"]}, "labels": LABELS}))
    (folder / "images").mkdir()
    for image in ("000000000001.jpg", "2.jpg"):
        (folder / "images" / image).write_bytes(b"")
    write(folder / "rollouts.jsonl", RESPONSES)
    return folder


def write(path: Path, responses: list[tuple[str, str]], **more: Any) -> Path:
    rows = [{"image_id": image, "response": text, "prompt": "Describe.", **more} for image, text in responses]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def given(world: Path, layout: str = "trl") -> list[object]:
    truth = ["--truth", world / "truth.json", "--vocabulary", world / "v.yaml"]
    return [*truth, "--images", world / "images", "--format", layout]


def texts(record: dict[str, Any]) -> tuple[str, str]:
    return record["chosen"][0]["content"], record["rejected"][0]["content"]


def test_the_largest_gap_of_matched_length_first(world: Path) -> None:
    found, err = run(world / "rollouts.jsonl", *given(world))
    assert [texts(record) for record in found] == [(GOOD, BAD)]
    assert found[0]["metadata"] == {
        "image_id": "1",
        "by": "cap",
        "gap": 100.0,
        "shared_characters": 0,
        "chosen": {"line": 1, "score": 100.0, "words": 7},
        "rejected": {"line": 3, "score": 0.0, "words": 7},
    }
    assert err == "1 pairs for 1 of 1 prompts, from 6 responses\n"
    found, _ = run(world / "rollouts.jsonl", *given(world), "--max-pairs", 9)
    assert [texts(record) for record in found] == [(GOOD, BAD), (FAIR, NOTHING)]  # no text twice, no tie
    found, _ = run(world / "rollouts.jsonl", *given(world), "--max-pairs", 9, "--length-ratio", 5)
    assert [texts(record) for record in found] == [(GOOD, BAD), (FAIR, LONG)]
    found, err = run(world / "rollouts.jsonl", *given(world), "--min-gap", 101)
    assert (found, err) == ([], "0 pairs for 0 of 1 prompts, from 6 responses\n")


def test_by_hal_rate_and_reward(world: Path) -> None:
    found, _ = run(world / "rollouts.jsonl", *given(world), "--by", "hal", "--max-pairs", 9)
    assert [texts(record) for record in found] == [(GOOD, BAD)]  # saying nothing is not preferred to anything
    assert (found[0]["metadata"]["chosen"]["score"], found[0]["metadata"]["rejected"]["score"]) == (0.0, 100.0)
    found, _ = run(world / "rollouts.jsonl", *given(world), "--by", "reward")
    assert [texts(record) for record in found] == [(GOOD, BAD)]
    assert found[0]["metadata"]["gap"] == 2.0


def test_sentences_after_the_same_text(world: Path, tmp_path: Path) -> None:
    start = "A dog is on the old street. "
    responses = [
        ("1", start + "Next to it is a tree. It is late."),
        ("1", start + "Next to it is a cat. It is late."),
        ("1", start + "Next to it is nothing at all."),
        ("1", "A tree. " + "Next to it is a car."),  # another beginning
        ("2", "A cat is here on the mat."),
    ]
    found, _ = run(write(tmp_path / "r.jsonl", responses), *given(world), "--by", "sentence", "--max-pairs", 3)
    assert [texts(record) for record in found] == [(start + "Next to it is a tree.", start + "Next to it is a cat.")]
    metadata = found[0]["metadata"]
    assert (metadata["shared_characters"], metadata["gap"], metadata["chosen"]["words"]) == (len(start), 2.0, 6)


def test_the_formats_are_as_their_frameworks_read_them(world: Path) -> None:
    image = str(world / "images" / "000000000001.jpg")
    (record,), _ = run(world / "rollouts.jsonl", *given(world, "trl"))
    assert {key: record[key] for key in ("prompt", "chosen", "rejected", "images")} == {
        "prompt": [{"role": "user", "content": "Describe."}],
        "chosen": [{"role": "assistant", "content": GOOD}],
        "rejected": [{"role": "assistant", "content": BAD}],
        "images": [image],
    }
    (record,), err = run(world / "rollouts.jsonl", *given(world, "llamafactory"))
    entry = json.loads(err.partition("dataset_info.json: ")[2])["scapo_pairs"]
    assert (entry["file_name"], entry["formatting"], entry["ranking"]) == ("FILE", "sharegpt", True)
    columns = {name: record[column] for name, column in entry["columns"].items()}
    assert columns == {
        "messages": [{"from": "human", "value": "<image>Describe."}],
        "chosen": {"from": "gpt", "value": GOOD},
        "rejected": {"from": "gpt", "value": BAD},
        "images": [image],
    }
    (record,), _ = run(world / "rollouts.jsonl", *given(world, "ms-swift"))
    assert record["messages"] == [
        {"role": "user", "content": "<image>Describe."},
        {"role": "assistant", "content": GOOD},
    ]
    assert (record["rejected_response"], record["images"]) == (BAD, [image])
    assert record["rejected_response"] != record["messages"][-1]["content"]  # ms-swift raises where they are equal
    assert record["messages"][0]["content"].count("<image>") == len(record["images"])


def test_a_prompt_with_a_placeholder_does_not_get_a_second_one(world: Path, tmp_path: Path) -> None:
    for prompt, expected in (
        ("<image>\nDescribe.", "Describe."),
        ("Describe.\n<image>", "Describe."),
        ("Look here:\n<image>\nDescribe.", "Look here:\nDescribe."),
    ):
        rollouts = write(tmp_path / "r.jsonl", RESPONSES, prompt=prompt)
        (record,), _ = run(rollouts, *given(world, "ms-swift"))
        assert record["messages"][0]["content"] == f"<image>{expected}"
        (record,), _ = run(rollouts, *given(world, "trl"))
        assert record["prompt"] == [{"role": "user", "content": expected}]


def test_what_cannot_be_paired_says_so(world: Path, tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.jsonl", RESPONSES, prompt="")
    _, err = run(plain, *given(world), code=2)
    assert "plain.jsonl:1: the record contains no prompt; use --prompt" in err
    found, _ = run(plain, *given(world), "--prompt", "What is it?")
    assert found[0]["prompt"][0]["content"] == "What is it?"
    found, err = run(plain, *given(world), "--skip-bad")
    assert (found, err) == ([], "0 pairs for 0 of 0 prompts, from 0 responses, 6 faulty omitted\n")
    unknown = write(tmp_path / "unknown.jsonl", [("9", GOOD), *RESPONSES])
    _, err = run(unknown, *given(world), code=2)
    assert "unknown.jsonl:1: unknown image id '9' (not in" in err
    found, _ = run(unknown, *given(world), "--on-unknown-image", "skip")
    assert len(found) == 1
    _, err = run(plain, *given(world), "--length-ratio", 0.5, code=2)
    assert "length_ratio must be at least 1, got 0.5" in err
    (tmp_path / "empty").mkdir()
    elsewhere = [tmp_path / "empty" if word == world / "images" else word for word in given(world)]
    _, err = run(world / "rollouts.jsonl", *elsewhere, code=2)
    assert "image 1: file not found" in err
    for name in ("1.jpg", "000000000001.png"):
        (tmp_path / "empty" / name).write_bytes(b"")
    _, err = run(world / "rollouts.jsonl", *elsewhere, code=2)
    assert "image 1: file not found, or several files have this id" in err
