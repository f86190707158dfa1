"""Files next to the outputs of ``describe``, ``answer`` and ``judge``, and outputs in a folder of pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Image = pytest.importorskip("PIL.Image")

ScapoEval = Callable[..., tuple[int, str, str]]

MODEL = ("--model", "m", "--tries", 1, "-q")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to a folder with two pictures."""
    monkeypatch.chdir(tmp_path)
    Path("pictures").mkdir()
    for name in "12":
        Image.new("RGB", (8, 8), (int(name), 9, 9)).save(f"pictures/{name}.png")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("c.jsonl.failed.jsonl", "describe {} -o c.jsonl"),
        ("a.jsonl.run.json", "answer {} -o a.jsonl"),
        ("a.jsonl.journal", "answer {} -o a.jsonl --restart"),
        ("a.jsonl.descriptions.jsonl", "answer {} -o a.jsonl --describe"),
        ("c.1-of-2.jsonl", "judge objhal {} -o c.jsonl --shard 1/2"),
    ],
)
def test_an_input_that_stands_next_to_the_output_is_kept(run: ScapoEval, name: str, command: str) -> None:
    record = {"id": "1", "image_id": "1", "image": "pictures/1.png", "question": "Is it red?"}
    record |= {"caption": "A dog."} if "judge" in command else {}
    Path(name).write_text(json.dumps(record) + "\n")
    code, out, err = run(*command.format(name).split(), *MODEL)
    assert (code, out) == (2, "")
    assert f"{name}: is also an input and would be overwritten" in err
    assert json.loads(Path(name).read_text()) == record
    assert {path.name for path in Path().iterdir()} == {"pictures", name}


def test_a_threshold_of_probabilities_requires_probabilities(run: ScapoEval) -> None:
    Path("c.jsonl").write_text('{"image_id": 1, "caption": "A dog."}\n')
    code, _, err = run("judge", "faithscore", "c.jsonl", "-o", "f.jsonl", "--present-from", 0.9, *MODEL)
    assert code == 2
    assert "--present-from requires --probability" in err


def test_descriptions_may_stand_in_the_folder_of_the_pictures(run: ScapoEval, start: Callable[..., str]) -> None:
    command = ("describe", "pictures", "-o", "pictures/c.jsonl", *MODEL, "--base-url", start())
    for _ in range(2):
        assert run(*command) == (0, "", "")
    assert len(Path("pictures/c.jsonl").read_text().splitlines()) == 2


def test_a_list_of_images_may_stand_in_their_folder(run: ScapoEval) -> None:
    lists = []
    for _ in range(2):
        code, _, err = run("annotate", "sample", "pictures", "-n", 1, "-o", "pictures/images.jsonl")
        assert code == 0, err
        lists.append(Path("pictures/images.jsonl").read_bytes())
    assert lists[0] == lists[1]


@pytest.mark.parametrize("command", ["describe {} -o pictures/1.png --model m", "annotate sample {} -n 1 -o {}/1.png"])
def test_no_picture_is_overwritten(run: ScapoEval, command: str) -> None:
    before = Path("pictures/1.png").read_bytes()
    code, _, err = run(*command.replace("{}", "pictures").split())
    assert code == 2
    assert "pictures/1.png: is also an input and would be overwritten" in err
    assert Path("pictures/1.png").read_bytes() == before
    assert len([*Path("pictures").iterdir()]) == 2
