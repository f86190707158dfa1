"""Other tools' files: recognised by content, read, converted, refused with a place and a reason."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError, InputErrors, MissingExtra, ScapoError
from scapo_eval.benchmarks.faithscore import read_facts
from scapo_eval.benchmarks.mmhal import read_ratings
from scapo_eval.cli.main import main
from scapo_eval.files.containers import XLSX_CELL_LIMIT
from scapo_eval.files.fields import last_user_turn
from scapo_eval.readers.answers import read_answers, unique
from scapo_eval.readers.captions_foreign import read_foreign_captions
from scapo_eval.readers.formats import open_layout, recognize
from scapo_eval.results.harness import handed_over


def write(path: Path, value: Any) -> Path:
    """Lists of records as lines, anything else as one JSON value."""
    lines = [json.dumps(record) for record in value] if isinstance(value, list) else [json.dumps(value, indent=1)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def array(path: Path, records: list[Any]) -> Path:
    path.write_text(json.dumps(records, indent=2), encoding="utf-8")
    return path


def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, args)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capfd.readouterr()
    return int(left.value.code or 0), out, err


LMMS_CAPTION = {"doc_id": 0, "target": "['a', 'b']", "filtered_resps": ["A dog."], "doc_hash": "00"}

LAYOUTS: dict[str, Any] = {
    "captions": [{"image_id": 1, "caption": "A dog."}],
    "rollouts": [{"image_id": 1, "response": "A dog.", "sample": 0}],
    "answers": [{"id": "a", "response": "Yes"}],
    "phd-answers": [{"mode": "base", "image": "1.jpg", "question": "Is there a dog?", "response": "Yes"}],
    "llava": [{"question_id": 1, "prompt": "?", "text": "Yes", "answer_id": "x", "model_id": "m", "metadata": {}}],
    "questions": [{"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}],
    "lmms-eval": [LMMS_CAPTION],
    "lmms-eval-log": {"args": {"model": "m"}, "logs": [LMMS_CAPTION]},
    "lmms-eval-results": {"results": {"mme": {"alias": "mme"}}, "configs": {}},
    "vlmevalkit": [{"index": 0, "question": "?", "prediction": "Yes"}],
    "verl": [{"input": "user\n?\nassistant\n", "output": "Yes", "gts": "yes", "score": 1.0, "step": 1}],
    "trl": [{"step": 1, "prompt": "?", "completion": "Yes", "advantage": 0.0}],
    "pope": [{"question": "Is there a dog?", "answer": "Yes"}],
    "phd-questions": [{"image_id": "1", "yes_question": "?", "no_question": "?"}],
    "mmhal-answers": [{"image_id": "x", "question": "?", "gt_answer": "a", "model_answer": "b"}],
    "faithscore": [{"id": "1", "facts": ["a"], "verified": [1]}],
    "coco-annotations": {"images": [], "annotations": []},
    "scapo-results": {"systems": []},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_recognises_by_content_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    assert recognize(write(tmp_path / "misleading.xlsx", LAYOUTS[name])).name == name


def test_array_of_coco_and_amber(tmp_path: Path) -> None:
    assert recognize(array(tmp_path / "a", [{"image_id": 1, "caption": "x"}])).name == "coco-results"
    assert recognize(array(tmp_path / "b", [{"id": 1, "response": "x"}])).name == "amber"
    assert recognize(array(tmp_path / "c", [{"id": "pope/1", "response": "x"}])).name == "answers"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\n \n", "contains no record"),
        (b"[]", "empty JSON array"),
        (b'{"a": 1}\n', "unknown layout: JSON lines with the keys a; understood are: "),
        (b"just some words\n", "neither JSON nor a table"),
        (b"\x80\x04\x95\x00", "pickle"),
        (b"\xd0\xcf\x11\xe0rest", "old Excel workbook"),
        (b"PK\x03\x04rest", "damaged xlsx workbook"),
        (b"PAR1rest", "damaged parquet"),
        (b"a\tb\n\xff\xfe\n", "neither JSON nor UTF-8"),
        (b"a\ta\n1\t2\n", "column 'a' appears twice"),
        (b"index\tprediction\n1\tYes\textra\n", "3 cells under 2 columns"),
        (b'{\n "logs": [1]\n}', "list of samples"),
        ('{"id": 1, "response": "x"}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(ScapoError, match=reason) as refused:
        list(read_answers(path))
    assert "input" in str(refused.value)


def test_wrong_kind_says_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    captions = write(tmp_path / "captions.jsonl", LAYOUTS["captions"])
    with pytest.raises(InputError, match=r"recognized as own captions .*contains no answers"):
        list(read_answers(captions))
    questions = write(tmp_path / "questions.jsonl", LAYOUTS["questions"])
    with pytest.raises(
        InputError, match=r"contains no captions; to score answers with them: scapo-eval yesno ANSWERS --questions "
    ):
        list(read_foreign_captions(questions))


def test_faults_carry_their_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "bad.jsonl",
        [
            {"id": "a", "response": "Yes"},
            {"id": "b"},
            {"id": None, "response": "No"},
            {"id": "c", "response": 7},
            {"id": True, "response": "No"},
        ],
    )
    with pytest.raises(InputErrors) as refused:
        list(read_answers(path))
    assert [(error.line, error.reason) for error in refused.value.errors] == [
        (2, "missing key 'response' (found: id)"),
        (3, "'id' must be a string or a whole number, not null"),
        (4, "'response' must be a string, not a number"),
        (5, "'id' must be a string or a whole number, not True"),
    ]
    passed: list[InputError] = []
    assert [answer.id for answer in read_answers(path, on_error=passed.append)] == ["a"]
    assert [error.line for error in passed] == [2, 3, 4, 5]


def test_ids_are_one_spelling_of_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", [{"id": 7, "response": ""}, {"id": "007", "response": ""}, {"id": 7.0, "response": ""}]
    )
    assert [answer.id for answer in read_answers(path)] == ["7", "007", "7"]


def test_mixed_models_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    rows = [{"question_id": k, "prompt": "?", "text": "Yes", "model_id": model} for k, model in enumerate("aab")]
    path = write(tmp_path / "mixed.jsonl", rows)
    with pytest.raises(InputError, match=r"mixed.jsonl:3: several models in one file \('a', 'b'\).*--model"):
        list(read_answers(path))
    assert [answer.id for answer in read_answers(path, model="b")] == ["2"]
    with pytest.raises(InputError, match="no answer of the model 'c'"):
        list(read_answers(path, model="c"))
    with pytest.raises(InputError, match=r"mixed.jsonl:3: several models in one file \('a', 'b'\).*--model"):
        list(read_foreign_captions(path))
    assert list(read_foreign_captions(path, model="b")) == [(3, "2", "Yes")]


def test_repeated_answers(tmp_path: Path) -> None:
    rows = [{"id": "a", "response": "Yes"}, {"id": "b", "response": "No"}, {"id": "a", "response": "No"}]
    path = write(tmp_path / "twice.jsonl", rows)
    assert len(list(read_answers(path))) == 3  # what they mean is the benchmark's to say
    with pytest.raises(InputErrors, match=r"twice.jsonl:3: id 'a' is answered again \(first on line 1\)"):
        list(unique(read_answers(path), str(path)))


def test_lmms_eval_names_documents_where_question_ids_repeat(tmp_path: Path) -> None:
    def sample(number: int, question: str, **more: Any) -> dict[str, Any]:
        scores = {"question_id": question, "score": 1.0}
        return {"doc_id": number, "target": "yes", "filtered_resps": "Yes", "pope_accuracy": scores, **more}

    once = write(tmp_path / "once.jsonl", [sample(0, "1"), sample(1, "2")])
    assert [(answer.id, answer.benchmark) for answer in read_answers(once)] == [("1", "pope"), ("2", "pope")]
    again = write(tmp_path / "again.jsonl", [sample(0, "1"), sample(3000, "1")])
    assert [answer.id for answer in read_answers(again)] == ["doc/0", "doc/3000"]
    known = [sample(0, "1", doc={"category": "popular"}), sample(3000, "1", doc={"category": "random"})]
    categories = write(tmp_path / "categories.jsonl", known)
    assert [(answer.id, answer.category) for answer in read_answers(categories)] == [("1", "popular"), ("1", "random")]


@pytest.mark.parametrize("responses", ["A dog.", ["A dog."], [["A dog."]]])
def test_lmms_eval_responses_of_every_version(tmp_path: Path, responses: Any) -> None:
    caption = {"coco_Bleu_4": {"answer": ["x"], "pred": "A dog.", "image_id": 226988, "id": 0}}
    path = write(tmp_path / "a.jsonl", [{**LMMS_CAPTION, "filtered_resps": responses, **caption}])
    assert list(read_foreign_captions(path)) == [(1, "226988", "A dog.")]
    assert [answer.response for answer in read_answers(path)] == ["A dog."]


@pytest.mark.parametrize(
    ("doc", "image"),
    [
        ({"question_id": "COCO_val2014_000000226988.jpg", "id": 3, "answer": ["x"]}, "226988"),  # coco_cap
        ({"image_id": 17, "annotations_captions": ["x"]}, "17"),  # nocaps
        ({"image_source": "COCO_val2014_000000226988", "question_id": "1"}, "226988"),  # pope
    ],
)
def test_lmms_eval_image_from_its_document(tmp_path: Path, doc: dict[str, Any], image: str) -> None:
    path = write(tmp_path / "a.jsonl", [{**LMMS_CAPTION, "doc": doc}])
    assert [found for _, found, _ in read_foreign_captions(path)] == [image]


def test_lmms_eval_without_an_image_is_no_caption(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [LMMS_CAPTION])
    with pytest.raises(InputErrors, match=r"a.jsonl:1: no image id"):
        list(read_foreign_captions(path))


def test_repeats_are_several_captions_but_no_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{**LMMS_CAPTION, "filtered_resps": ["A.", "B."], "doc": {"image_id": 5}}])
    assert list(read_foreign_captions(path)) == [(1, "5", "A."), (1, "5", "B.")]
    with pytest.raises(InputErrors, match="2 responses to one question"):
        list(read_answers(path))


def test_one_line_log_is_read_as_the_document_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(LAYOUTS["lmms-eval-log"]), encoding="utf-8")
    assert [answer.model for answer in read_answers(path)] == ["m"]


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        ("user\nIs it?\nassistant\n", "Is it?"),
        ("system\nYou are kind.\nuser\nIs it?\nassistant\n", "Is it?"),
        (
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Is it?<|im_end|>\n<|im_start|>assistant\n",
            "Is it?",
        ),
        ("Is the assistant here?", "Is the assistant here?"),
        (
            [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "image"}, {"text": "Is it?"}]}],
            "Is it?",
        ),
        ("", None),
        (None, None),
    ],
)
def test_last_user_turn(prompt: object, question: str | None) -> None:
    assert last_user_turn(prompt) == question


def test_rollouts_with_images_are_captions(tmp_path: Path) -> None:
    verl = [{**LAYOUTS["verl"][0], "output": "A dog.", "extra_info": {"image_id": "000000226988"}}]
    assert list(read_foreign_captions(write(tmp_path / "v.jsonl", verl))) == [(1, "226988", "A dog.")]
    trl = [{**LAYOUTS["trl"][0], "completion": [{"role": "assistant", "content": "A dog."}], "image_id": 5}]
    assert list(read_foreign_captions(write(tmp_path / "t.jsonl", trl))) == [(1, "5", "A dog.")]


def test_amber_holds_captions_and_answers(tmp_path: Path) -> None:
    path = array(tmp_path / "amber.json", [{"id": 7, "response": "A dog."}, {"id": 1005, "response": "Yes"}])
    told: list[str] = []
    assert list(read_foreign_captions(path, warn=told.append)) == [(1, "7", "A dog.")]
    assert "1 answers are not captions" in told[0]
    assert [answer.id for answer in read_answers(path)] == ["7", "1005"]
    with pytest.raises(InputError, match="no caption: AMBER's ids above 1004"):
        list(read_foreign_captions(array(tmp_path / "b.json", [{"id": 1005, "response": "Yes"}])))


def test_table_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    text = (
        "index\tquestion\tprediction\timage_path\n"
        '0\t"two\nlines"\t"tab\there"\t"[\'COCO_val2014_000000000009.jpg\']"\n'
        "1\t?\t\t1.jpg\n"
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    first, second = read_answers(path)
    assert (first.line, first.response, first.image) == (2, "tab\there", "COCO_val2014_000000000009.jpg")
    assert (second.line, second.response) == (4, "")  # an empty cell is an empty answer
    assert [image for _, image, _ in read_foreign_captions(path)] == ["9", "1"]


def test_workbook_cells(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["index", "question", "answer", "prediction"])
    sheet.append([0, "?", "Yes", "x" * XLSX_CELL_LIMIT])
    sheet.append([1.0, "?", "No", None])
    sheet.append([2, "?", "No", "=1+1 is two"])
    sheet.append([3, "?", "No", "line_x000D_end"])
    book.save(tmp_path / "a.xlsx")
    told: list[str] = []
    answers = list(read_answers(tmp_path / "a.xlsx", warn=told.append))
    assert [(answer.id, answer.line, answer.label) for answer in answers] == [
        ("0", 2, "yes"), ("1", 3, "no"), ("2", 4, "no"), ("3", 5, "no"),
    ]  # fmt: skip
    assert [answer.response for answer in answers[1:]] == ["", "=1+1 is two", "line\rend"]
    assert len(told) == 1
    assert "1 cell (row 2) of 32,767 characters" in told[0]
    with pytest.warns(UserWarning, match="32,767"):
        list(read_answers(tmp_path / "a.xlsx"))


def test_a_first_sheet_without_a_table_is_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Notes"
    book.active.append(["Made on Monday"])
    book.create_sheet("Data").append(["index", "prediction"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"two columns \(sheet 'Notes'; only the first sheet is read\)"):
        recognize(tmp_path / "a.xlsx")


def test_damaged_workbook_and_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    book.active.append(["index", "prediction"])
    book.save(path)
    with pytest.raises(InputError, match="contains no record"):
        recognize(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + b"\0" * 40 + whole[at + 40 :])
        with pytest.raises(InputError, match=str(path)):
            list(read_answers(path))
    path.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"xlsx workbook\) needs the extra 'formats'"):
        recognize(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match=r"parquet file\) needs the extra 'formats'"):
        recognize(path)


def test_text_survives(tmp_path: Path) -> None:
    nasty = "NUL \0 surrogate \ud800 emoji \U0001f600 [/]"
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps({"id": 1, "response": nasty}).encode() + b"\r\n"))
    assert [answer.response for answer in read_answers(path)] == [nasty]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for raw in (
        io.BytesIO(b'{"id": 1, "response": "Yes"}\n'),
        io.BufferedReader(io.BytesIO(b'{"id": 1, "response": "Yes"}')),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))  # type: ignore[type-var]
        assert [answer.id for answer in read_answers("-")] == ["1"]


# --- the verb -------------------------------------------------------------------------------------------------------


def test_import_converts_and_says_what_it_recognised(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.json", LAYOUTS["llava"])
    code, out, err = run(capfd, monkeypatch, "import", source, "-o", tmp_path / "out.jsonl")
    assert (code, out) == (0, "")
    assert "LLaVA answers (question_id, text, model_id): 1 answers -> " in err
    assert list(read_answers(tmp_path / "out.jsonl")) == [
        next(iter(read_answers(source))),
    ]
    code, out, err = run(capfd, monkeypatch, "import", source, "--as", "captions", "-q")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"image_id": "1", "caption": "Yes", "model": "m", "prompt": "?"}


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([{**LAYOUTS["llava"][0], "text": "A dog on a beach."}], "captions"),
        (LAYOUTS["vlmevalkit"], "answers"),
        ([{"id": 1, "image_id": 3, "response": "A dog."}], "captions"),
        ([{"id": 1, "image_id": 3, "response": "A dog.", "label": "no"}], "answers"),
        (LAYOUTS["rollouts"], "captions"),
    ],
)
def test_import_tells_captions_from_answers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, records: list[Any], kind: str
) -> None:
    _, out, err = run(capfd, monkeypatch, "import", write(tmp_path / "a", records))
    assert f": 1 {kind} -> standard output" in err
    assert ("caption" in json.loads(out)) == (kind == "captions")


def test_import_joins_labels_by_id(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = write(tmp_path / "a.jsonl", [{**LAYOUTS["llava"][0], "prompt": "Is there a dog?\nAnswer briefly."}])
    labels = write(tmp_path / "labels.jsonl", LAYOUTS["questions"])
    _, out, _ = run(capfd, monkeypatch, "import", answers, "--labels", labels)
    assert json.loads(out) == {
        "id": "1", "response": "Yes", "image": "1.jpg", "question": "Is there a dog?", "label": "yes", "model": "m",
    }  # fmt: skip


def test_import_leaves_nothing_behind_when_it_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.jsonl", [{"id": "a", "response": "Yes"}, {"id": "a", "response": "No"}])
    code, out, err = run(capfd, monkeypatch, "import", source, "-o", tmp_path / "out.jsonl")
    assert (code, out) == (2, "")
    assert "a.jsonl:2: id 'a' is answered again (first on line 1)" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nosuch.jsonl"], "nosuch.jsonl: file not found"),
        (["{captions}", "{captions}"], "only one file of captions or answers can be converted at a time"),
        (["{captions}", "--name", "x"], "--name is for finished results"),
        (["{captions}", "--as", "answers"], "recognized as own captions"),
        (["{captions}", "--labels", "{captions}"], "captions have no labels"),
        ([], "Missing argument"),
    ],
)
def test_import_refuses(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    captions = write(tmp_path / "captions.jsonl", LAYOUTS["captions"])
    code, out, err = run(capfd, monkeypatch, "import", *(part.format(captions=captions) for part in arguments))
    assert (code, out) == (2, "")
    assert reason in err
    assert "Traceback" not in err


# --- no input makes a traceback -------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(-9, 9) | st.text(max_size=5)
KEYS = st.sampled_from(["content", "question_id", "image"])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)
HEADS = [b"", b"{", b"[", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"a\tb\n", b'a,"b\n']


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.data())
@pytest.mark.slow
def test_odd_values_are_faults_not_crashes(tmp_path: Path, name: str, data: st.DataObject) -> None:
    layout = LAYOUTS[name]
    records = layout if isinstance(layout, list) else [layout]
    odd = {key: data.draw(JSON, key) for key in data.draw(st.sets(st.sampled_from(sorted(records[0]))), "keys")}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**records[0], **odd}), encoding="utf-8")
    for read in (read_answers, read_foreign_captions, read_results, read_ratings, read_facts):
        with contextlib.suppress(ScapoError):
            for _ in read(path):
                pass


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=60), st.sampled_from(HEADS))
def test_odd_bytes_are_faults_not_crashes(tmp_path: Path, tail: bytes, head: bytes) -> None:
    path = tmp_path / "odd"
    path.write_bytes(head + tail)
    for read in (read_answers, read_foreign_captions, read_results, read_ratings, read_facts):
        with contextlib.suppress(ScapoError):
            for _ in read(path):
                pass


def read_results(path: Path) -> list[str]:
    return list(handed_over(open_layout(path), path).values)
