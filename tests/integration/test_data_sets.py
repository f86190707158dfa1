"""A folder or a pattern as one data set, with the figures of a single file, and with faults reported for the right
file.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.readers.data_set import DataSet

Run = Callable[..., tuple[int, str, str]]

CAPTIONS: list[dict[str, Any]] = [
    {"image_id": k % 40, "caption": f"A dog and a cat. It is {k} years old."} for k in range(100)
]
ANSWERS: list[dict[str, Any]] = [
    {"id": str(k), "question": f"Is there a dog {k}?", "response": "Yes" if k % 3 else "No", "label": "yes"}
    for k in range(90)
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to an empty folder with a ground truth."""
    monkeypatch.chdir(tmp_path)
    Path("truth.json").write_text(json.dumps({str(k): ["dog"] for k in range(40)}))
    Path("parts").mkdir()


def lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def write(records: list[dict[str, Any]]) -> None:
    """Writes a file with all records, and three parts of it in different formats."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    Path("all.jsonl").write_bytes(lines(records))
    Path("parts/0.jsonl").write_bytes(b"\xef\xbb\xbf\n" + lines(records[:30])[:-1])  # no line end
    Path("parts/1.jsonl.gz").write_bytes(gzip.compress(lines(records[30:50])))
    parquet.write_table(pyarrow.Table.from_pylist(records[50:70]), "parts/2.parquet")
    Path("parts/3.json").write_text(json.dumps(records[70:]))
    Path("parts/4.jsonl").write_bytes(b"")  # shards without records
    parquet.write_table(pyarrow.Table.from_pylist(records[:1])[:0], "parts/6.parquet")  # as Spark writes them
    Path("parts/5.json").write_text("[]")
    Path("parts/README.md").write_text("Captions.")
    Path("parts/.hidden.jsonl").write_text("{")


def scored(run: Run, *arguments: str) -> dict[str, Any]:
    """Returns the only system of a command."""
    code, out, err = run(*arguments, "--json", "-q")
    assert (code, err) == (0, "")
    systems = json.loads(out)["systems"]
    assert len(systems) == 1
    system: dict[str, Any] = systems[0]
    return system


VERBS = {
    "score": (CAPTIONS, ("--truth", "truth.json")),
    "chair": (CAPTIONS, ("--truth", "truth.json")),
    "": (CAPTIONS, ("--truth", "truth.json")),
    "yesno": (ANSWERS, ()),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("given", ["parts", "parts/", "parts/[0-9]*", "**/[0-9].*"])
def test_the_figures_are_those_of_the_files_in_one(run: Run, verb: str, given: str) -> None:
    records, options = VERBS[verb]
    write(records)
    words = [verb] if verb else []
    wanted = scored(run, *words, "all.jsonl", *options)
    for more in ((), ("--workers", "2")) if options else ((),):
        found = scored(run, *words, given, *options, *more)
        assert found["name"] == (given if given.startswith("**") else "parts")
        ignored = {"name": ""}
        if "account" in wanted:
            assert found["account"]["bytes"] == sum(path.stat().st_size for path in Path("parts").glob("[0-9]*"))
            assert found["account"]["records"] == wanted["account"]["records"] == len(records)
            ignored["account"] = ""
        assert {**found, **ignored} == {**wanted, **ignored}


def test_files_that_the_shell_lists_are_several_systems(run: Run) -> None:
    write(CAPTIONS)
    Path("more").mkdir()
    Path("more/a.jsonl").write_bytes(lines(CAPTIONS))
    code, out, _ = run("score", "all.jsonl", "parts", "X=more/*.jsonl", "--truth", "truth.json", "--json", "-q")
    assert code == 0
    systems = json.loads(out)["systems"]
    assert [system["name"] for system in systems] == ["all", "parts", "X"]
    assert systems[0]["metrics"] == systems[1]["metrics"] == systems[2]["metrics"]


@pytest.mark.parametrize("verb", ["score", "chair"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_fault_is_named_in_its_file(run: Run, verb: str, workers: str) -> None:
    Path("parts/0.jsonl").write_bytes(lines(CAPTIONS[:10]))
    Path("parts/1.jsonl").write_bytes(lines([*CAPTIONS[10:13], {"image_id": 1}, {"image_id": 999, "caption": "A."}]))
    code, _, said = run(verb, "parts/*.jsonl", "--truth", "truth.json", "--workers", workers)
    assert code == 2
    assert "parts/1.jsonl:4: missing key 'caption'" in said
    assert "parts/1.jsonl:5: unknown image id '999'" in said


def test_a_fault_in_a_table_of_a_folder_is_named_with_its_line(run: Run) -> None:
    Path("parts/0.jsonl").write_bytes(lines(CAPTIONS[:3]))
    Path("parts/1.csv").write_text('image_id,caption\n1,"A dog.\nA cat."\n2,A dog.\n999,A dog.\n')
    for given in ("parts", "parts/1.csv"):
        assert "parts/1.csv:5: unknown image id '999'" in run("score", given, "--truth", "truth.json")[2]


def test_a_folder_of_tables_with_lists_of_images(run: Run) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for k in range(2):
        rows = [
            {"image": [{"bytes": b"\xff\xd8", "path": f"{n}.jpg"}], "caption": "A dog and a cat."}
            for n in range(k * 5, k * 5 + 5)
        ]
        parquet.write_table(pyarrow.Table.from_pylist(rows), f"parts/{k}.parquet")
    assert scored(run, "score", "parts", "--truth", "truth.json")["n_images"] == 10


def test_faults_that_name_several_lines(run: Run) -> None:
    Path("parts/0.jsonl").write_bytes(lines([{**CAPTIONS[0], "id": 1}, {**CAPTIONS[1], "id": 2}]))
    Path("parts/1.jsonl").write_bytes(lines([{**CAPTIONS[2], "id": 3}, {**CAPTIONS[3], "id": 2}]))
    code, _, said = run("score", "parts", "--truth", "truth.json")
    assert code == 2
    assert "parts/1.jsonl:2: the same id appears twice (lines 2 of parts/0.jsonl and 2)" in said
    Path("parts/0.jsonl").write_bytes(lines(ANSWERS[:3]))
    Path("parts/1.jsonl").write_bytes(lines([{**ANSWERS[4], "response": 3}, *ANSWERS[5:7]]))
    code, _, said = run("yesno", "parts")
    assert code == 2
    assert "parts/1.jsonl:1: " in said


def test_what_is_refused(run: Run) -> None:
    code, _, said = run("score", "none/*.jsonl", "--truth", "truth.json")
    assert code == 2
    assert "none/*.jsonl: no file matches" in said
    code, _, said = run("score", "parts", "--truth", "truth.json")
    assert code == 2
    assert "parts: the folder contains no file in .jsonl, .json, .parquet, .csv or .tsv" in said
    Path("parts/0.jsonl").write_bytes(lines(CAPTIONS))
    code, _, said = run("score", "parts/*", "--truth", "truth.json", "-o", "parts/0.jsonl")
    assert code == 2
    assert Path("parts/0.jsonl").read_bytes() == lines(CAPTIONS)
    Path("parts/1.jsonl").write_bytes(lines(ANSWERS))
    code, _, said = run("score", "parts", "--truth", "truth.json")
    assert code == 2
    assert "it contains 0.jsonl (own captions" in said
    Path("parts/1.jsonl").write_text(json.dumps({"image_id": 1, "caption": {"of": "A dog."}}, indent=1))
    code, _, said = run("score", "parts", "--truth", "truth.json")
    assert code == 2
    assert "parts/1.jsonl: a JSON object; the files of a folder or pattern are JSON Lines" in said
    Path("parts/0.parquet").touch()
    code, _, said = run("score", "parts", "--truth", "truth.json")
    assert code == 2
    assert "parts/0.parquet: not a parquet file" in said


def test_a_folder_of_tables_is_a_data_set(run: Run) -> None:
    Path("all.jsonl").write_bytes(lines(CAPTIONS))
    for k, part in enumerate((CAPTIONS[:2], CAPTIONS[2:])):
        rows = "".join(f"{record['image_id']}\t{record['caption']}\n" for record in part)
        Path(f"parts/{k}.tsv").write_text(f"image_id\tcaption\n{rows}")
    in_parts, in_one = (scored(run, "score", path, "--truth", "truth.json") for path in ("parts", "all.jsonl"))
    assert in_parts["metrics"] == in_one["metrics"]


@pytest.mark.parametrize("kind", ["maps", "records", "cells", "wide"])
def test_a_folder_or_pattern_is_a_truth(run: Run, kind: str) -> None:
    write(CAPTIONS)
    truth = {"1": ["dog"], "2": ["cat"], "3": ["dog", "cat"], "4": ["cat"]}
    Path("whole.json").write_text(json.dumps(truth))
    Path("truths").mkdir()
    for k, images in enumerate((["1", "2"], ["3", "4"])):
        if kind == "maps":
            Path(f"truths/{k}.json").write_text(json.dumps({image: truth[image] for image in images}))
        elif kind == "records":
            Path(f"truths/{k}.jsonl").write_bytes(lines([{"image_id": i, "objects": truth[i]} for i in images]))
        elif kind == "cells":
            cells = "".join(f"{image},{label}\n" for image in images for label in truth[image])
            Path(f"truths/{k}.csv").write_text(f"image_id,label\n{cells}")
        else:
            cells = "".join(f"{i},{int('dog' in truth[i])},{int('cat' in truth[i])}\n" for i in images)
            Path(f"truths/{k}.csv").write_text(f"image_id,dog,cat\n{cells}")
    options = ("--on-unknown-image", "skip", "--vocabulary", "v.json")
    Path("v.json").write_text('{"dog": ["dog"], "cat": ["cat"]}')
    expected = scored(run, "score", "all.jsonl", "--truth", "whole.json", *options)["metrics"]
    for given in ("truths", "truths/*"):
        assert scored(run, "score", "all.jsonl", "--truth", given, *options)["metrics"] == expected


def test_a_fault_in_a_truth_of_several_files_names_the_file(run: Run) -> None:
    write(CAPTIONS)
    Path("truths").mkdir()
    Path("truths/a.jsonl").write_bytes(lines([{"image_id": 1, "objects": ["dog"]}]))
    Path("truths/b.jsonl").write_bytes(lines([{"image_id": 2, "objects": ["dog"]}, {"image_id": 3, "objects": 1}]))
    code, _, err = run("score", "all.jsonl", "--truth", "truths")
    assert code == 2
    assert "truths/b.jsonl:2: " in err
    code, _, err = run("score", "all.jsonl", "--truth", "parts")
    assert code == 2
    assert "parts: not a valid truth: recognized as own captions" in err


@pytest.mark.parametrize(
    "command",
    [
        "reward {} --truth truth.json -q",
        "pairs {} --truth truth.json --format trl --images . --prompt p -q",
        "oracle check truth.json --captions {}",
        "oracle stats truth.json --json --captions {}",
        "vocab check coco80 --captions {}",
        "vocab mine {}",
        "protocol check {} --protocol chair-opera",
    ],
)
def test_captions_are_read_in_the_same_way_everywhere(run: Run, command: str) -> None:
    Path("all.jsonl").write_bytes(lines(CAPTIONS))
    Path("two files").mkdir()
    Path("two files/0.jsonl").write_bytes(lines(CAPTIONS[:30]))
    Path("two files/1.json").write_text(json.dumps(CAPTIONS[30:]))
    expected = run(*command.format("all.jsonl").split())
    assert expected[0] == 2 * command.startswith("protocol")  # not the protocol's images
    for given in ("two files", "two files/*"):
        code, out, err = run(*(word.format(given) for word in command.split()))
        assert (code, out.replace(given, "all.jsonl"), err.replace(given, "all.jsonl")) == expected


def test_results_files_are_a_data_set(run: Run) -> None:
    write(CAPTIONS)
    Path("res").mkdir()
    for name in ("a", "b"):
        assert run("score", f"{name}=all.jsonl", "--truth", "truth.json", "-q", "-o", f"res/{name}.json")[0] == 0
    for words in ("compare", "show", "power", ""):
        options = ["--json"] if words == "power" else ["--json", "-q"]
        expected = run(*words.split(), "res/a.json", "res/b.json", *options)
        assert expected[0] == 0, expected
        for given in ("res", "res/*.json"):
            assert run(*words.split(), given, *options) == expected
    assert run("report", "res", "--format", "csv")[1] == run("report", "res/a.json", "res/b.json", "--format", "csv")[1]
    assert [run.name for run in scapo_eval.load_results("res")] == ["a", "b"]


def test_a_file_whose_name_looks_like_a_pattern(run: Run) -> None:
    Path("c[1].jsonl").write_bytes(lines(CAPTIONS))
    assert scored(run, "score", "c[1].jsonl", "--truth", "truth.json")["name"] == "c[1]"
    with pytest.raises(InputError, match="no file matches"):
        DataSet("d[1].jsonl")


def test_other_verbs_read_a_data_set_too(run: Run) -> None:
    write(CAPTIONS)
    for given in ("parts", "all.jsonl"):
        code, out, _ = run("labels", given, "--truth", "truth.json", "--json", "-q")
        assert code == 0
        if given == "parts":
            wanted = json.loads(out.replace('"parts"', '"all"'))
    assert json.loads(out) == wanted
    assert run("import", "parts/[0-9]*", "-o", "own.jsonl", "-q")[0] == 0
    captions = [json.loads(line)["caption"] for line in Path("own.jsonl").read_bytes().splitlines()]
    assert captions == [record["caption"] for record in CAPTIONS]
    Path("parts/4.jsonl").write_text('{"image_id": 1}\n')
    for words in (["labels", "parts", "--truth", "truth.json"], ["import", "parts", "-o", "o.jsonl"]):
        code, _, said = run(*words)
        assert code == 2
        assert "parts/4.jsonl:1: missing key 'caption'" in said


@pytest.mark.parametrize("given", ["parts", "parts/[0-9]*"])
def test_python_and_the_report_take_them_too(run: Run, given: str) -> None:
    write(CAPTIONS)
    one, parts = (scapo_eval.score(path, truth="truth.json", resamples=0) for path in ("all.jsonl", given))
    assert (parts.name, parts.values) == ("parts", one.values)
    assert scapo_eval.chair(given, truth="truth.json", resamples=0).values["chair_s"] == one.values["chair_s"]
    code, out, err = run("report", given, "named=all.jsonl", "--truth", "truth.json", "--format", "csv", "-q")
    assert (code, err) == (0, "")
    assert [line.split(",")[0] for line in out.splitlines()[1:3]] == ["parts", "named"]
    write(ANSWERS)
    answered = scapo_eval.yesno(given, resamples=0)
    assert (answered.name, answered.values) == ("parts", scapo_eval.yesno("all.jsonl", resamples=0).values)


def test_a_fault_is_named_in_its_file_in_python_and_in_the_report_too(run: Run) -> None:
    write(CAPTIONS)
    Path("parts/4.jsonl").write_text('{"image_id": 3}\n')
    with pytest.raises(InputErrors, match=r"^parts/4\.jsonl:1: missing key 'caption'"):
        scapo_eval.score("parts", truth="truth.json")
    code, _, err = run("report", "parts", "--truth", "truth.json", "--format", "csv")
    assert code == 2
    assert "parts/4.jsonl:1: missing key 'caption'" in err
