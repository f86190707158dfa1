"""Forty wrong first commands, which either do what is meant or fail with a message whose suggested command works."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from scapo_eval.cli.main import cli

Run = Callable[..., tuple[int, str, str]]

CAPTIONS = [{"image_id": k, "caption": "A dog and a cat."} for k in (1, 2, 3)]
OBJECTS = {"1": ["dog"], "2": ["cat"], "3": ["dog", "cat"]}
NAMES = [{"image_id": f"val/img_{'abc'[k - 1]}.jpg", "caption": "A dog and a cat."} for k in (1, 2, 3)]

FILES: dict[str, Any] = {
    "c.jsonl": CAPTIONS,
    "t.json": OBJECTS,
    "coco_names.jsonl": [{**row, "image_id": f"COCO_val2014_{row['image_id']:012d}.jpg"} for row in CAPTIONS],
    "names.jsonl": NAMES,
    "stems.json": {"img_a": ["dog"], "img_b": ["cat"], "img_c": ["dog", "cat"]},
    "jpgs.json": {"img_a.jpg": ["dog"], "img_b.jpg": ["cat"], "img_c.jpg": ["dog", "cat"]},
    "ambiguous.json": {"x/img_a.jpg": ["dog"], "y/img_a.jpg": ["cat"], "img_b": ["cat"], "img_c": ["dog"]},
    "other_images.json": {"9": ["dog"]},
    "many.jsonl": [{"image_id": k, "caption": "A dog."} for k in range(1, 51)],
    "wide.csv": "image_id,dog,cat\n1,1,0\n2,0,1\n3,1,1\n",
    "wide.tsv": "file_name\tdog\tcat\n1.jpg\tTrue\tFalse\n2.jpg\tFalse\tTrue\n3.jpg\tTrue\tTrue\n",
    "wide_bad.csv": "image_id,dog,cat\n1,1,0\n2,0,maybe\n",
    "lists.csv": "image,objects\n1,dog\n2,cat\n3,dog; cat\n",
    "labels.jsonl": [{"image_id": k, "labels": v} for k, v in OBJECTS.items()],
    "images.json": [{"image": f"{k}.jpg", "objects": v} for k, v in OBJECTS.items()],
    "ids.jsonl": [{"id": k, "objects": v} for k, v in OBJECTS.items()],
    "counts.json": {"1": {"dog": 2}},
    "pope.jsonl": [{"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}],
    "coco_captions.json": {"images": [{"id": 1}], "annotations": [{"image_id": 1, "id": 1, "caption": "A dog."}]},
    "words.txt": "dog\ncat\nsofa\n",
    "words.json": ["dog", "cat"],
    "words.yaml": "- dog\n- cat\n",
    "words.csv": "label\ndog\ncat\n",
    "aliases.json": {"dog": ["puppy"], "cat": ["cat", "kitten"]},
    "prose.txt": "A dog runs over the wide green lawn.\n",
    "by_image.json": {"1": "A dog and a cat.", "2": "A dog and a cat.", "3": "A dog and a cat."},
    "inside.json": {"captions": CAPTIONS},
    "lists.jsonl": [{"image_id": 1, "caption": ["A dog.", "A cat."]}],
    "keys.jsonl": [{"img": k, "output": "A dog and a cat."} for k in (1, 2, 3)],
    "foreign.jsonl": [{"nr": k, "said": "A dog and a cat."} for k in (1, 2, 3)],
    "empty.jsonl": "",
    "python.jsonl": "{'image_id': 1, 'caption': 'A dog.'}\n",
    "parts/a.jsonl": CAPTIONS[:1],
    "parts/b.jsonl": CAPTIONS[1:],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the files of a new user."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith(".jsonl") and isinstance(content, list):
            content = "".join(json.dumps(record) + "\n" for record in content)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return tmp_path


def values(out: str) -> dict[str, float]:
    """Returns metric -> value of the only system in the JSON output."""
    [system] = json.loads(out)["systems"]
    return {name: metric["value"] for name, metric in system["metrics"].items()}


MEANT = [
    "coco_names.jsonl --truth t.json",
    "names.jsonl --truth stems.json",
    "names.jsonl --truth jpgs.json",
    "c.jsonl --truth wide.csv",
    "c.jsonl --truth wide.tsv",
    "c.jsonl --truth lists.csv",
    "c.jsonl --truth labels.jsonl",
    "c.jsonl --truth images.json",
    "c.jsonl --truth ids.jsonl",
    "by_image.json --truth t.json",
    "keys.jsonl --truth t.json",
    "parts --truth t.json",
    "parts/*.jsonl --truth t.json",
    "c.jsonl --truth t.json --vocabulary words.json",
    "c.jsonl --truth t.json --vocabulary words.txt",
    "c.jsonl --truth t.json --vocabulary words.yaml",
    "c.jsonl --truth t.json --vocabulary words.csv",
    "c.jsonl --truth t.json --vocabulary aliases.json",
]
"""Commands with a clear meaning, whose figures are those of ``c.jsonl --truth t.json``."""


@pytest.mark.parametrize("words", MEANT)
def test_what_is_meant_is_done(words: str, run: Run) -> None:
    expected = values(run("c.jsonl", "--truth", "t.json", "--json", "-q")[1])
    code, out, err = run(*words.split(), "--json")
    assert code == 0, err
    assert values(out) == expected
    assert ("scapo-eval vocab expand" in err) == ("--vocabulary" in words)


TOLD = [
    ("c.jsonl", "missing ground truth: use --truth FILE"),
    ("c.jsonl t.json", "t.json: a ground truth, not captions: use --truth t.json"),
    ("t.json --truth c.jsonl", "c.jsonl: not a valid truth: recognized as own captions"),
    ("--truth t.json", "Missing argument 'CAPTIONS...'"),
    ("c.jsonl --truth nowhere.json", "nowhere.json: file not found"),
    ("nowhere.jsonl --truth t.json", "nowhere.jsonl: file not found"),
    ("c.jsonl --truth other_images.json", "only 0 of 3 captions have the id of an image in other_images.json"),
    ("names.jsonl --truth ambiguous.json", "unknown image id 'val/img_a.jpg' (not in ambiguous.json)"),
    ("c.jsonl --truth wide_bad.csv", "wide_bad.csv:3: 'present' must be 1, 0 or -1 (unknown), not 'maybe'"),
    ("c.jsonl --truth counts.json", "'1' has an object where a list of labels is expected"),
    ("c.jsonl --truth pope.jsonl", "recognized as yes/no questions with labels"),
    ("c.jsonl --truth coco_captions.json", "COCO's captions are references (--references FILE)"),
    ("c.jsonl --truth by_image.json", "recognized as captions by image"),
    ("c.jsonl --truth empty.jsonl", "empty.jsonl: the file is empty"),
    ("c.jsonl --truth t.json --vocabulary coco", "known: coco80, dopa160, open400 (or give a file)"),
    ("c.jsonl --truth t.json --vocabulary prose.txt", "a list of words, or {label: [aliases]}"),
    ("inside.json --truth t.json", "the records are inside 'captions'; take them out: jq -c '.captions[]'"),
    ("lists.jsonl --truth t.json", "found an array; give each caption a record of its own"),
    ("foreign.jsonl --truth t.json", "name the keys: scapo-eval import --image-key, --caption-key"),
    ("empty.jsonl --truth t.json", "the file holds no record"),
    ("python.jsonl --truth t.json", "python.jsonl:1: not valid JSON"),
    ("prose.txt --truth t.json", "neither JSON nor a table with at least two columns"),
    ("parts/*.csv --truth t.json", "parts/*.csv: no file matches"),
    ("scor c.jsonl", "did you mean 'score'?"),
    ("c.jsonl --truth t.json --skip_bad", "Did you mean '--skip-bad'?"),
    ("c.jsonl --truth t.json --metrics hallucination", "known: hal_rate, cover_rate, cap_score"),
    ("c.jsonl --truth t.json -o c.jsonl", "c.jsonl: also an input and would be overwritten"),
    ("compare c.jsonl c.jsonl", "not a results file"),
    ("pope c.jsonl", "it holds no answers; to score them: scapo-eval score c.jsonl --truth TRUTH"),
    ("c.jsonl --truth t.json --fail-under hal_rate", "expected METRIC=VALUE, for example cap_score=0.70"),
]

FILLED = {"TRUTH": "t.json", "ANSWERS": "answers.jsonl"}


@pytest.mark.parametrize(("words", "said"), TOLD)
def test_a_message_says_what_to_do(words: str, said: str, run: Run, folder: Path) -> None:
    code, _, err = run(*words.split())
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    (folder / "answers.jsonl").write_text('{"id": "1", "response": "Yes"}\n')
    for command in re.findall(
        r"(?<!Usage): scapo-eval ([a-z][^;\n]* [^;\n]*)$", err.removeprefix("scapo-eval: "), re.MULTILINE
    ):
        if " --image-key," not in command:
            code, _, err = run(*(FILLED.get(word, word) for word in shlex.split(command)))
            assert code == 0, (command, err)


def test_the_keys_that_are_named_are_read(run: Run) -> None:
    code, _, err = run("import", "foreign.jsonl", "--image-key", "nr", "--caption-key", "said", "-o", "made.jsonl")
    assert code == 0, err
    assert run("made.jsonl", "--truth", "t.json", "-q")[0] == 0


def test_the_words_of_a_list_are_completed_by_the_command_that_is_named(run: Run) -> None:
    code, out, err = run("vocab", "expand", "words.txt")
    assert code == 0, err
    assert "sofas" in out


def test_unknown_images_are_told_once_with_their_number(run: Run) -> None:
    Path("most.json").write_text(json.dumps({str(k): ["dog"] for k in range(1, 41)}))
    code, _, err = run("many.jsonl", "--truth", "most.json")
    assert code == 2
    lines = err.splitlines()
    assert len(lines) == 4
    assert "unknown image id '41' (not in most.json)" in lines[0]
    assert lines[3].endswith("--on-unknown-image skip leaves them out (7 records, lines 44-50)")
    assert run("many.jsonl", "--truth", "most.json", "--on-unknown-image", "skip", "-q")[0] == 0


def test_help_as_a_word_is_help(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "labels") == run("labels", "--help")


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        ("c.jsonl --vocabulary", "co", {"coco80"}),
        ("c.jsonl --protocol", "chair-op", {"chair-opera", "chair-opera-instructblip"}),
        ("c.jsonl --metrics", "hal_rate,cover_r", {"hal_rate,cover_rate"}),
        ("c.jsonl --fail-under", "cap_sc", {"cap_score="}),
        ("chair c.jsonl --metrics", "chair_", {"chair_s", "chair_i"}),
    ],
)
def test_names_are_completed(words: str, begun: str, expected: set[str]) -> None:
    completed = ShellComplete(cli, {}, "scapo-eval", "_SCAPO_EVAL_COMPLETE").get_completions(words.split(), begun)
    assert {item.value for item in completed if item.type == "plain"} >= expected
    assert all(item.value.startswith(begun) for item in completed)


@pytest.mark.parametrize(
    "command",
    [
        "reward mine=c.jsonl --truth t.json -q",
        "oracle check t.json --captions mine=c.jsonl",
        "oracle stats t.json --captions mine=c.jsonl",
        "vocab check coco80 --captions mine=c.jsonl",
        "pairs mine=c.jsonl --truth t.json --format trl --images . --prompt p",
    ],
)
def test_a_name_before_a_file_is_no_part_of_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text('{"image_id": 1, "caption": "A dog."}\n')
    Path("t.json").write_text('{"1": ["dog"]}')
    code, _, err = run(*command.split())
    assert code == 0, err
