"""Image sources, verdict parsers and prompts of judges, and missing extras of engines."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from scapo_eval.base.errors import InputError, InputErrors, MissingExtra
from scapo_eval.cli.main import cli
from scapo_eval.inference import judge_prompts
from scapo_eval.inference.judge import read_answers_to_judge, read_facts_of, read_labels, read_rating, read_verdict
from scapo_eval.inference.sources import ImageFolder, find_images


def touch(folder: Path, *names: str) -> Path:
    """Empty files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def test_images_from_everywhere(tmp_path: Path) -> None:
    folder = touch(tmp_path / "images", "COCO_val2014_000000000007.jpg", "sub/cat photo.PNG", "b.webp", "notes.txt")
    found = [(picture.image_id, picture.name) for picture in find_images([str(folder)])]
    assert found == [
        ("7", "COCO_val2014_000000000007.jpg"),
        ("b.webp", "b.webp"),
        ("sub/cat photo.PNG", "sub/cat photo.PNG"),
    ]
    assert [p.image_id for p in find_images([str(folder / "*.jpg"), str(folder / "b.webp")])] == ["7", "b.webp"]
    coco = tmp_path / "instances.json"
    coco.write_text(
        json.dumps({"images": [{"id": 7, "file_name": "COCO_val2014_000000000007.jpg"}], "annotations": []})
    )
    (picture,) = find_images([str(coco)], str(folder))
    assert (picture.image_id, Path(picture.path)) == ("7", folder / "COCO_val2014_000000000007.jpg")
    listed = tmp_path / "images" / "list.jsonl"
    listed.write_text('{"image": "b.webp"}\n{"image_id": 9, "image": "gone.png"}\n')
    assert [(p.image_id, Path(p.path)) for p in find_images([str(listed)])] == [
        ("b.webp", folder / "b.webp"),
        ("9", folder / "gone.png"),
    ]
    assert len(find_images([str(folder)], limit=2)) == 2
    with pytest.raises(InputErrors, match="same image id '7'"):
        find_images([str(folder), str(coco)], str(folder))
    (tmp_path / "bad.jsonl").write_text('{"text": 1}\n')
    with pytest.raises(InputError, match=r"bad\.jsonl:1: missing key 'image"):
        find_images([str(tmp_path / "bad.jsonl")])


def test_a_benchmark_s_names_find_their_files(tmp_path: Path) -> None:
    root = touch(
        tmp_path, "val2014/COCO_val2014_000000000007.jpg", "CCS_images/7.png", "CCS_images/8.png", "a/AMBER_3.jpg",
        "x/twice.png", "y/twice.png", "hash01.jpg",
    )  # fmt: skip
    folder = ImageFolder(root)
    assert Path(folder.find("7")) == root / "val2014/COCO_val2014_000000000007.jpg"
    assert Path(folder.find("COCO_val2014_000000000007.jpg")) == root / "val2014/COCO_val2014_000000000007.jpg"
    assert Path(folder.find("CCS_images/7.png")) == root / "CCS_images/7.png"
    assert Path(folder.find("AMBER_3.jpg")) == root / "a/AMBER_3.jpg"
    assert Path(folder.find("hash01")) == root / "hash01.jpg"
    for missing in ("8", "twice.png", "CCS_images/9.png", "nobody.jpg"):
        assert not Path(folder.find(missing)).exists()
    for impossible in ("9" * 5000, "a\0b"):  # a name that no file can have is an item that fails, not the end of all
        assert folder.find(impossible) == str(root / impossible)
    with pytest.raises(InputError, match="folder not found"):
        ImageFolder(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("It is right.\nRating: 5", 5),
        ("- **Rating: 6**, very informative", 6),
        ("**Rating:** 0", 0),
        ("rating = 3 ... so Rating: 3", 3),
        ("Rating: 4/6", 4),
        ("Rating: 2 or Rating: 3", None),
        ("Rating: 7", None),
        ("Rating: 10", None),
        ("Rating: 4.5", None),
        ("Rating: " + "1" * 5000, None),
        ("five", None),
        ("", None),
    ],
)
def test_ratings(text: str, rating: int | None) -> None:
    assert read_rating(text) == rating


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1: D\n2: A", [True, False]),
        ("1. Descriptive\n2) **analytical**", [True, False]),
        ("Sure:\n1 - d\n2 - a", [True, False]),
        ("1: D 2: A", [True, False]),
        ("1. A dog sits.\n2. D-shaped clouds.", None),  # the sentences, repeated without labels
        ("1: D", None),
        ("1: D\n2: A\n3: D", None),
        ("1: D\n1: A\n2: A", None),
        ("none", None),
    ],
)
def test_labels(text: str, labels: list[bool] | None) -> None:
    assert read_labels(text, 2) == labels


def test_facts() -> None:
    wrapped = 'Sure!\n```json\n{"entities": ["A  dog.", "", "A dog."], "colors": ["It is red."]}\n```'
    assert read_facts_of(wrapped) == [("entities", "A dog."), ("colors", "It is red.")]
    assert read_facts_of("{}") == []
    assert read_facts_of('{"entities": "A dog."}') is None
    assert read_facts_of('{"dogs": ["A dog."]}') is None
    assert read_facts_of("A dog.") is None
    assert read_facts_of(judge_prompts.FACTS_EXAMPLE[1]) is not None  # the prompt's own example


def test_verdicts() -> None:
    assert read_verdict("Yes, it is.") is True
    assert read_verdict("**No**") is False
    assert read_verdict("The answer is no.") is False
    assert read_verdict("Perhaps.") is None


def test_judge_prompts_keep_braces_and_show_their_examples() -> None:
    case = {"image_content": "{x}", "question": "{response}", "gt_answer": "b", "response": "{gt_answer}"}
    turns = judge_prompts.mmhal_turns(case)
    assert [turn.role for turn in turns] == ["system", *["user", "assistant"] * 3, "user"]
    assert turns[-1].text == (
        "Image contents: {x}\nQuestion: {response}\nCorrect answer: b\nModel's answer: {gt_answer}"
    )
    for turn in turns:
        if turn.role == "assistant":
            assert read_rating(turn.text) is not None
    (whole,) = judge_prompts.mmhal_turns(case, "Rate {response}!")
    assert whole.text == "Rate {gt_answer}!"


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("openai_http", "aiohttp", "http"), ("vllm_offline", "vllm", "vllm"), ("hf", "torch", "hf")],
)
def test_an_absent_library_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    engine = importlib.import_module(f"scapo_eval.engines.{module}")
    made = {"openai_http": "OpenAIEngine", "vllm_offline": "VllmEngine", "hf": "TransformersEngine"}[module]
    with pytest.raises(MissingExtra, match=rf"pip install .*\[{extra}\]"):
        getattr(engine, made)("model")


def test_empty_values_are_not_called_missing(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"response": "Yes", "gt_answer": ""}\n{"response": 7, "gt_answer": "Yes"}\n{"response": "Yes"}\n')
    with pytest.raises(InputErrors) as caught:
        read_answers_to_judge(path, needed=("gt_answer",))
    for line, reason in enumerate(
        (
            "the value of 'gt_answer' is empty or not a text",
            "the value of 'response' is empty or not a text",
            "missing key 'gt_answer' (found: response)",
        ),
        1,
    ):
        assert f"{path}:{line}: {reason}" in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "describe images -o begun.jsonl --restart",
        "answer questions.jsonl -o out.jsonl",
        "judge mmhal questions.jsonl -o out.jsonl",
        "judge facts captions.jsonl -o out.jsonl --images-root images --engine vllm --verifier-engine openai",
        "annotate coarse images -o RUN",
        "annotate coarse images -o RUN --shard 1/2",
    ],
)
def test_a_missing_extra_is_reported_before_files_are_created(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(touch(tmp_path, "images/3.jpg"))
    (tmp_path / "captions.jsonl").write_text('{"image_id": 3, "caption": "Two dogs and a red cat."}')
    question = {
        "id": 1,
        "image": "3.jpg",
        "question": "Why?",
        "gt_answer": "So.",
        "image_content": "dog",
        "response": "So.",
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setitem(sys.modules, "vllm", sys)  # any module
    (tmp_path / "begun.jsonl.journal").write_text("kept\n")
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(cli, [*words.split(), "--model", "m"])
    assert isinstance(done.exception, MissingExtra), done.output
    assert done.exception.extra == "http"
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "begun.jsonl.journal").read_text() == "kept\n"
