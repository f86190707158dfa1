"""Captions in every layout as direct input of score, chair, show and report, with the same results as native JSON
Lines.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.base.errors import FaultList, InputError
from scapo_eval.readers.captions import ArrowBlock, Block, Captions, ParsedBlock, caption_blocks, parsed
from scapo_eval.readers.formats import recognize_file

TEXTS = {1: "A dog and a cat.", 2: "A car, and no dog\tat all.", 3: 'A "dog" in the street with a person.'}
RECORDS = [{"image_id": image, "caption": text} for image, text in TEXTS.items()]
TRUTH = {"labels": ["dog", "cat", "car", "person"], "objects": {"1": ["dog"], "2": ["car"], "3": ["dog"]}}
LMMS = [{"doc_id": k, "doc": {"image_id": k}, "filtered_resps": [text], "target": "x"} for k, text in TEXTS.items()]

Run = Callable[..., tuple[int, str, str]]


def lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def table(header: str, rows: list[list[object]], delimiter: str) -> bytes:
    import csv

    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([header.split(), *rows])
    return stream.getvalue().encode()


def parquet(columns: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def workbook(rows: list[list[object]]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


VLM = [[k, f"{image}.jpg", text] for k, (image, text) in enumerate(TEXTS.items())]
LAYOUTS: dict[str, bytes] = {
    "lines": lines(RECORDS),
    "array": json.dumps(RECORDS).encode(),
    "indented array": json.dumps([{**record, "id": k} for k, record in enumerate(RECORDS)], indent=1).encode(),
    "csv": table("image_id caption", [list(pair) for pair in TEXTS.items()], ","),
    "tsv": table("image_id caption", [list(pair) for pair in TEXTS.items()], "\t"),
    "parquet": parquet({"image_id": list(TEXTS), "caption": list(TEXTS.values())}),
    "rollouts": lines([{"image_id": image, "response": text, "sample": 0} for image, text in TEXTS.items()]),
    "llava": lines(
        [
            {"question_id": image, "prompt": "Describe.", "text": text, "answer_id": "x", "model_id": "m"}
            for image, text in TEXTS.items()
        ]
    ),
    "lmms-eval": lines(LMMS),
    "lmms-eval log": json.dumps({"args": {"model": "m"}, "logs": LMMS}, indent=2).encode(),
    "verl": lines(
        [{"input": "Describe.", "output": text, "score": 0.0, "image_id": image} for image, text in TEXTS.items()]
    ),
    "trl": parquet({"prompt": ["Describe."] * 3, "completion": list(TEXTS.values()), "image_id": list(TEXTS)}),
    "amber": json.dumps([{"id": image, "response": text} for image, text in TEXTS.items()]).encode(),
    "vlmevalkit tsv": table("index image_path prediction", VLM, "\t"),
    "vlmevalkit xlsx": workbook([["index", "image_path", "prediction"], *VLM]),
    "vlmevalkit json": json.dumps(
        [dict(zip(("index", "image_path", "prediction"), row, strict=True)) for row in VLM]
    ).encode(),
}


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in a folder with truth.json, and returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    Path("truth.json").write_text(json.dumps(TRUTH))
    return run


def read(path: str | Path, **options: Any) -> Captions:
    faults = FaultList()
    found = Captions()
    for part in parsed(caption_blocks(path, **options), faults):
        found.extend(part)
    faults.raise_if_any()
    return found


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_captions(tmp_path: Path, layout: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "x"  # recognized by content, never by name
    path.write_bytes(pack(LAYOUTS[layout]))
    found = read(path)
    assert dict(zip(found.image_ids, found.captions, strict=True)) == {str(k): text for k, text in TEXTS.items()}
    assert found.numbers == sorted(found.numbers)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_score_and_chair_take_every_layout(run: Run, layout: str) -> None:
    Path("own.jsonl").write_bytes(LAYOUTS["lines"])
    Path("x").write_bytes(LAYOUTS[layout])
    for verb in ("score", "chair"):
        wanted = json.loads(run(verb, "own.jsonl", "--truth", "truth.json", "--json")[1])["systems"][0]
        code, out, err = run(verb, "x", "--truth", "truth.json", "--json", "--workers", "2", "-q")
        found = json.loads(out)["systems"][0]
        assert (code, err) == (0, "")
        for system in found, wanted:
            system |= {"name": "own", "account": {**system["account"], "bytes": 0, "crc32": None}}
            system["signature"] = re.sub(r"asked_with:\w+\|", "", system["signature"])  # some layouts tell prompts
        assert found == wanted
        assert found["counts"]["hallucinated"] == 3


def test_show_report_check_and_overlap_take_a_table(run: Run) -> None:
    Path("x.csv").write_bytes(LAYOUTS["csv"])
    code, out, _ = run("show", "x.csv", "--image", "2", "--truth", "truth.json", "--json")
    assert code == 0
    assert json.loads(out)["caption"] == TEXTS[2]
    code, out, _ = run("report", "x.csv", "--truth", "truth.json", "--format", "csv")
    assert code == 0
    assert "Cap. Score" in out
    code, out, _ = run("oracle", "check", "truth.json", "--captions", "x.csv")
    assert code == 0
    assert "3 images" in out
    code, out, _ = run("oracle", "overlap", "truth.json", "x.csv", "--json")
    assert json.loads(out)["evaluation"][0]["shared"] == 3


def test_inline_truth_in_parquet_and_in_a_table(run: Run) -> None:
    objects = [["dog", "cat"], ["car"], ["dog", "person"]]
    columns = {"image_id": list(TEXTS), "caption": list(TEXTS.values()), "objects": objects}
    Path("x.parquet").write_bytes(parquet(columns))
    rows = [[image, text, json.dumps(o)] for (image, text), o in zip(TEXTS.items(), objects, strict=True)]
    Path("x.csv").write_bytes(table("image_id caption objects", rows, ","))
    for name in ("x.parquet", "x.csv"):
        code, out, err = run("score", name, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["systems"][0]["counts"]["covered"] == 5


def test_own_lines_travel_unparsed_and_own_parquet_as_columns(tmp_path: Path) -> None:
    for layout, data in LAYOUTS.items():
        (tmp_path / "x").write_bytes(data)
        raw = layout in ("lines", "array", "indented array")
        kind = Block if raw else ArrowBlock if layout == "parquet" else ParsedBlock
        assert {type(block) for block in caption_blocks(tmp_path / "x")} == {kind}, layout


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("layout", ["lines", "lmms-eval", "csv", "vlmevalkit tsv"])
def test_standard_input(tmp_path: Path, layout: str) -> None:
    (tmp_path / "truth.json").write_text(json.dumps(TRUTH))
    command = ["scapo-eval", "score", "-", "--truth", "truth.json", "--json"]
    done = subprocess.run(command, input=LAYOUTS[layout], capture_output=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout)["systems"][0]["counts"]["generated"] == 6


def test_rollouts_may_say_yes_and_captions_may_not(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(lines([{"input": "Is it?", "output": "Yes, a dog.", "score": 1.0, "image_id": 1}]))
    assert read(path, rollouts=True).captions == ["Yes, a dog."]
    with pytest.raises(InputError, match="they seem to be answers to questions, not captions"):
        read(path)


@pytest.mark.parametrize("verb", ["score", "chair"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (table("image_id words", [[1, "A dog."]], ","), "unknown layout: table with the keys image_id, words"),
        (parquet({"image_id": [1.0, float("nan")], "caption": ["a", "b"]}), "x:2: 'image_id' must be a number"),
        (parquet({"image_id": [1, 2], "caption": ["a", None]}), "x:2: 'caption' must be a string, found null"),
        (table("image_id caption", [["", "A dog."]], ","), "x:2: 'image_id' is an empty string"),
        (table("image_id caption objects", [[1, "A dog.", "dog"]], ","), "x:2: 'objects' must be a JSON list"),
        (b"image_id,caption\n1,a,b\n", "x:2: 3 cells under 2 columns"),
        (lines([{**r, "model": "ab"[k % 2]} for k, r in enumerate(RECORDS)]), "several models in one file ('a', 'b')"),
        (
            parquet({"image_id": [1, 2], "caption": ["a", "b"], "model": ["a", "b"]}),
            "several models in one file ('a', 'b'); extract one with: scapo-eval import x --model NAME",
        ),
        (
            lines([{"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}]),
            "yes/no questions with labels",
        ),
        (
            lines([{"question_id": 1, "image": "1.jpg", "prompt": "Is there a dog?", "text": "Yes", "model_id": "m"}]),
            "LLaVA answers",
        ),
    ],
)
def test_faults_are_named_by_file_and_place(run: Run, verb: str, data: bytes, said: str) -> None:
    Path("x").write_bytes(data)
    code, out, err = run(verb, "x", "--truth", "truth.json")
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_show_names_a_file_without_captions(run: Run) -> None:
    Path("x").write_bytes(table("image_id words", [[1, "A dog."]], ","))
    code, out, err = run("show", "x", "--truth", "truth.json", "--image", "1")
    assert (code, out) == (2, "")
    assert err.startswith("scapo-eval: x: unknown layout: table with the keys image_id, words")


@pytest.mark.parametrize("image", ["image", "img_id", "file_name", "image_path", "id", "question_id", "key"])
@pytest.mark.parametrize("text", ["caption", "response", "text", "description", "output", "generated_caption", "pred"])
def test_keys_as_people_write_them(run: Run, image: str, text: str) -> None:
    """Checks 7 x 7 pairs of keys. Each pair gives the figures of image_id and caption, or is rejected as another
    layout.
    """
    Path("own.jsonl").write_bytes(lines(RECORDS))
    names = {"file_name": "COCO_val2014_{:012}.jpg", "image_path": "images/{}.png"}
    records = [{image: names.get(image, "{}").format(k), text: caption, "seed": 1} for k, caption in TEXTS.items()]
    if (image, text) == ("id", "response"):
        records = [{key: value for key, value in record.items() if key != "seed"} for record in records]
    Path("x").write_bytes(lines(records))
    scored = [run("score", path, "--truth", "truth.json", "--json", "--resamples", "0") for path in ("own.jsonl", "x")]
    assert [code for code, _, _ in scored] == [0, 0], scored[1][2]
    own, other = (json.loads(out)["systems"][0] for _, out, _ in scored)
    assert other["counts"] == own["counts"]
    assert f"image ids are taken from '{image}', captions from '{text}'" in scored[1][2]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("show x --truth truth.json", ""),
        ("import x", "warning: 1 faulty records omitted; the first: x:2: "),
        ("pairs x --truth truth.json --format trl --images . --prompt p", "from 3 responses, 1 faulty omitted"),
        ("labels x --truth truth.json", ""),
    ],
)
def test_a_faulty_record_is_an_error_or_is_omitted(run: Run, command: str, said: str) -> None:
    records = [{"image_id": k, "caption": text} for k, text in TEXTS.items()]
    Path("x").write_bytes(lines([records[0], {"image_id": 2}, *records[1:]]))
    code, _, err = run(*command.split())
    assert (code, "x:2: missing key 'caption'" in err) == (2, True)
    code, out, err = run(*command.split(), "--on-bad-record", "skip")
    assert (code, said in err) == (0, True), err
    assert run(*command.split(), "--skip-bad") == (code, out, err)


IMAGE_KEYS = (
    "image_id", "img_id", "imgid", "imageId", "imageID", "coco_id", "image", "Image", "img", "image_file", "image_path",
    "img_path", "image_source", "image_name", "img_name", "file_name", "filename", "File Name", "file", "filepath",
    "path", "url", "image_url", "id", "question_id", "sample_id", "key", "uid", "index",
)  # fmt: skip
CAPTION_KEYS = (
    "caption", "Caption", "captions", "response", "description", "text", "sentence", "answer", "output", "outputs",
    "prediction", "pred", "result", "candidate", "generation", "generated", "generated_caption", "generated_text",
    "model_output", "model_response", "model_answer", "completion", "pred_caption", "predicted_caption", "content",
)  # fmt: skip


def texts_of(records: list[dict[str, Any]], warned: list[str] | None = None) -> dict[str, str]:
    Path("x").write_bytes(lines(records))
    blocks = list(caption_blocks("x", warn=([] if warned is None else warned).append))
    [captions] = parsed(blocks, FaultList())
    return dict(zip(captions.image_ids, captions.captions, strict=True))


def test_every_pair_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 725 pairs are read, except one that is the layout of another tool."""
    monkeypatch.chdir(tmp_path)
    expected = {str(image): text for image, text in TEXTS.items()}
    for image, caption in itertools.product(IMAGE_KEYS, CAPTION_KEYS):
        if (image, caption) == ("index", "prediction"):  # VLMEvalKit's, whose index is no image
            continue
        warned: list[str] = []
        assert texts_of([{image: f"{k}", caption: text} for k, text in TEXTS.items()], warned) == expected
        own = image == "image_id" and caption in ("caption", "response")
        assert own or f"ids are taken from '{image}', captions from '{caption}'" in warned[0], (image, caption)


@pytest.mark.parametrize(
    ("record", "image"),
    [
        ({"image": {"path": "a/7.jpg", "bytes": None}, "text": "A dog."}, "7"),
        ({"image": ["7.jpg"], "captions": ["A dog."]}, "7"),
        ({"id": 1, "url": "https://example.org/2.jpg", "path": "3.jpg", "imageID": 7, "text": "A dog."}, "7"),
        ({"id": 1, "url": "https://example.org/2.jpg", "path": "7.jpg", "text": "A dog."}, "7"),
        ({"id": 1, "url": "https://example.org/7.jpg", "text": "A dog."}, "7"),
        ({"file_name": "7.jpg", "path": "/data/7.jpg", "text": "A dog.", "caption": "A dog."}, "7"),
        ({"7.jpg": "A dog."}, "7"),
        ({"7.jpg": ["A dog."]}, "7"),
        ({"image_id": 7, "caption": "A dog.", "text": "Describe this."}, "7"),
    ],
)
def test_which_key_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], image: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert texts_of([record]) == {image: "A dog."}


@pytest.mark.parametrize("labels", [{"1.jpg": ["dog"], "2.jpg": ["traffic light"]}, {"1.jpg": ["fire hydrant"]}])
def test_a_map_of_labels_is_no_captions(tmp_path: Path, labels: dict[str, list[str]]) -> None:
    (tmp_path / "x").write_text(json.dumps(labels))
    known = recognize_file(tmp_path / "x")
    assert known is not None
    assert known.kind.name == "truth"


@pytest.mark.parametrize("key", ["image_id", "file"])
@pytest.mark.parametrize("pack", [lines, lambda records: json.dumps(records).encode()])
def test_images_that_differ_in_their_folder_are_told(run: Run, key: str, pack: Callable[[Any], bytes]) -> None:
    names = ["a/1.jpg", "b/1.jpg", "a/2.jpg", "a/2.jpg", "2", "a/3.jpg", "b\\3.jpg"]
    Path("x").write_bytes(pack([{key: name, "caption": "A dog."} for name in names]))
    code, _, err = run("score", "x", "--truth", "truth.json", "--resamples", "0")
    assert code == 0, err
    assert "2 image ids with files in several folders: 'a/1.jpg' and 'b/1.jpg' are both read as image 1" in err
    Path("x").write_bytes(pack([{key: name, "caption": "A dog."} for name in names[2:6]]))
    assert "several folders" not in run("score", "x", "--truth", "truth.json", "--resamples", "0")[2]


def test_any_other_keys_are_named(run: Run) -> None:
    Path("x").write_bytes(lines([{"pic": f"{k}.jpg", "words": text} for k, text in TEXTS.items()]))
    code, _, err = run("score", "x", "--truth", "truth.json")
    assert code == 2
    assert "missing key 'image_id' (found: pic, words)" in err
    assert "; name the keys: scapo-eval score x --image-key pic --caption-key words --truth TRUTH\n" in err
    keys = ("--image-key", "pic", "--caption-key", "words")
    code, out, _ = run("import", "x", *keys)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"image_id": str(k), "caption": text} for k, text in TEXTS.items()
    ]
    Path("own.jsonl").write_text(out)
    for verb in ("score", "labels", "show", "chair", "claims", "density", "reward"):
        given = (verb, "{}", "--truth", "truth.json")
        named = run(*(word.format("x") for word in given), *keys)
        assert named[0] == 0, named[2]
        assert named[1].replace("x", "own") == run(*(word.format("own.jsonl") for word in given))[1].replace("x", "own")
        assert run(*(word.format("x") for word in given))[0] == 2  # the keys apply to one command
    assert run("report", "x", *keys, "--truth", "truth.json", "--format", "csv")[0] == 0
    code, _, err = run("score", "x", *keys, "--truth", "truth.json", "--engine", "ray")
    assert (code, "--engine takes no --image-key" in err) == (2, True)
    code, _, err = run("import", "x", "--image-key", "pic", "--caption-key", "word")
    assert (code, "missing key 'word'" in err) == (2, True)
    code, _, err = run("import", "x", "--image-key", "pic", "--as", "answers")
    assert (code, "--image-key and --caption-key are for captions" in err) == (2, True)
