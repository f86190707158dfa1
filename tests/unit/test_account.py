"""The account of a caption file: every record is in it, and what is unusual is said."""

from __future__ import annotations

import csv
import gzip
import json
import multiprocessing
import os
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import PresenceOracle
from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.odd_texts import OddTexts, odd_texts
from scapo_eval.benchmarks.capscore import score_file
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.cli.main import main
from scapo_eval.files.source import Source
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.readers.captions import LIMITS
from scapo_eval.results.results import load_results

TRUTH = {k: ["dog"] for k in range(300)}
PLAIN = [{"image_id": k, "caption": f"A dog. It is {k} years old."} for k in range(200)]


def write(path: Path, records: list[dict[str, Any]]) -> str:
    """Records as JSON Lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def run(path: str | Path, **options: Any) -> scapo_eval.Run:
    """The scores of a file."""
    oracle = PresenceOracle.from_objects(TRUTH, source="truth")
    return score_file(path, Vocabulary.load("coco80"), oracle, ScoringOptions(**options))


def account(path: str | Path, **options: Any) -> dict[str, Any]:
    """The account of a file, without the hash of its bytes."""
    found = run(path, **options).account
    assert found is not None
    return {key: value for key, value in found.to_dict().items() if key != "crc32"}


def crc32(path: str | Path, **options: Any) -> str | None:
    """The hash of a file's bytes, as its account says."""
    found = run(path, **options).account
    assert found is not None
    return found.crc32


def test_a_file_in_which_nothing_is_unusual(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", PLAIN)
    expected = {
        "bytes": Path(path).stat().st_size, "lines": 200, "records": 200, "skipped": 0, "duplicates": 0, "empty": 0,
        "cut": 0, "unmatched_ids": 0, "captions_per_image": [1, 1],
    }  # fmt: skip
    assert account(path) == account(path, workers=2) == account(path, strict=True) == expected
    (tmp_path / "c.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    assert account(tmp_path / "c.gz") == {**expected, "bytes": (tmp_path / "c.gz").stat().st_size}
    (tmp_path / "c.json").write_text(json.dumps(PLAIN))
    assert account(tmp_path / "c.json") == {**expected, "bytes": (tmp_path / "c.json").stat().st_size}
    found = run(path)
    assert found.notes == ()
    found.save(tmp_path / "r.json")
    assert load_results(tmp_path / "r.json")[0].account == found.account


def crc_of(data: bytes) -> str:
    """CRC-32 as accounts write it."""
    return f"{zlib.crc32(data):08x}"


def content(form: str) -> bytes:
    """Captions of more than two blocks as bytes of a file."""
    lines = "".join(json.dumps({"image_id": k % 200, "caption": f"A dog. {k}" * 9}) + "\n" for k in range(20_000))
    if form == "lines":
        return b"\xef\xbb\xbf\n\n" + lines.encode() + b"\n \n"
    if form == "array":
        return b"[" + b",".join(lines.encode().splitlines()) + b"]\n\n"
    if form == "table":
        return b"image_id,caption\n" + b"".join(b"%d,A dog.\n" % (k % 200) for k in range(9_000))
    return gzip.compress(lines.encode()) + b"\0" * 100_000  # padded, as on tapes


@pytest.mark.parametrize("form", ["lines", "array", "table", "gzip"])
@pytest.mark.slow
def test_the_hash_is_that_of_the_bytes_however_they_come(tmp_path: Path, form: str) -> None:
    data = content(form)
    expected = crc_of(data)
    path = tmp_path / "c"
    path.write_bytes(data)
    assert crc32(path) == crc32(path, workers=2) == expected
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    assert crc32(tmp_path / "pipe") == expected
    writer.join()


def test_no_hash_of_what_was_not_read_as_a_whole(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(PLAIN), tmp_path / "c.parquet")
    assert crc32(tmp_path / "c.parquet") is None
    (tmp_path / "c.parquet.gz").write_bytes(packed := gzip.compress((tmp_path / "c.parquet").read_bytes()))
    assert crc32(tmp_path / "c.parquet.gz") == crc_of(packed)
    source = Source(write(tmp_path / "c.jsonl", PLAIN))
    assert source.read()
    assert source.crc32 is None  # nobody asked for one
    source.hash()
    assert source.crc32 is None  # it was read before
    assert source.read()
    assert source.crc32 == crc_of((tmp_path / "c.jsonl").read_bytes())


ODD: list[dict[str, Any]] = [
    *PLAIN,
    *PLAIN[:20],  # a resumed job that appended
    {"image_id": 7, "caption": "Another dog."},
    {"image_id": 8, "caption": " \n"},
    {"image_id": 250, "caption": "A dog. A dog and", "meta": {"finish": "length"}},
    {"image_id": 251, "caption": "A dog. A dog and", "meta": {"finish": "content_filter"}},
    {"image_id": 252, "caption": "A dog. A dog and", "meta": {"finish": "stop", "length": 3}},
    {"image_id": 999, "caption": "A dog."},
    {"image_id": 253},
]


@pytest.mark.parametrize("workers", [None, 2])
def test_what_is_unusual_is_counted_and_said(tmp_path: Path, workers: int | None) -> None:
    path = write(tmp_path / "c.jsonl", ODD)
    options = {"skip_bad": True, "on_unknown_image": "skip", "workers": workers}
    found = run(path, **options)
    assert found.account is not None
    assert found.account.to_dict() == {
        "crc32": crc_of(Path(path).read_bytes()),
        "bytes": Path(path).stat().st_size, "lines": 227, "records": 227, "skipped": 1, "duplicates": 20, "empty": 1,
        "cut": 2, "unmatched_ids": 1, "captions_per_image": [1, 3],
    }  # fmt: skip
    assert found.n_records == 225
    said = "\n".join(found.notes)
    assert "20 of 227 records are identical to an earlier record of their image" in said
    assert "1 to 3 captions per image" in said
    assert "empty captions: 1" in said
    assert "cut off" not in said  # fewer than one in a hundred
    with pytest.raises(
        InputError, match=r"c\.jsonl: 20 of 227 records are identical .* captions per image.*\(--strict\)"
    ):
        run(path, strict=True, **options)


@pytest.mark.slow
def test_processes_without_a_hash_in_common(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", ODD[:-1] * 20)
    method = multiprocessing.get_start_method()
    expected = account(path, on_unknown_image="skip")
    multiprocessing.set_start_method("spawn", force=True)
    try:
        assert account(path, on_unknown_image="skip", workers=2) == expected
    finally:
        multiprocessing.set_start_method(method, force=True)
    assert expected["duplicates"] == 20 + 19 * 225


def test_texts_that_end_inside_a_sentence(tmp_path: Path) -> None:
    cut = [{"image_id": k, "caption": "A dog runs. It is on the"} for k in range(10)]
    short = [{"image_id": k, "caption": "a dog on the grass"} for k in range(10, 200)]  # no sentence of any has an end
    found = run(write(tmp_path / "c.jsonl", cut + short))
    assert found.account is not None
    assert found.account.cut == 10
    assert "10 of 200 captions were cut off by a limit" in "\n".join(found.notes)
    assert run(tmp_path / "c.jsonl", drop_unfinished=True).account == found.account.__class__(
        **{**found.account.to_dict(), "cut": 0, "captions_per_image": (1, 1)}
    )
    assert LIMITS == ("length", "content_filter")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('image_id\tcaption\n1\t"A dog\n2\tA cat.\n', r"b\.tsv:2: not a valid table: unexpected end of data"),
        ('image_id\tcaption\n1\t"A dog\n2\tA "big" cat.\n3\tx\n', r"b\.tsv:2: not a valid table: .* expected after"),
        (
            'image_id\tcaption\tid\n1\t"A dog\tx\n2\tA cat.\ty\n3\t"\tz\n',
            r"b\.tsv:2: a cell continues on line 3, which looks like a record: check for an unclosed quote, "
            "or write the table as JSON Lines",
        ),
        ('image_id,caption\n1,"A dog\n2,A cat\n\n3,12"\n', r"b\.tsv:2: a cell continues on line 3, which looks like"),
        (
            'image_id,caption\n1,"A dog, brown\n2,A cat\n3,12"\n',
            r"b\.tsv:2: a cell continues on line 3, which looks like",
        ),
        ('image_id,caption\n1," A dog\n2, A cat\n3, 12"\n', r"b\.tsv:2: a cell continues on line 3, which looks like"),
    ],
)
def test_a_quote_that_is_left_open(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "b.tsv").write_text(text)
    with pytest.raises(InputError, match=said):
        run(tmp_path / "b.tsv")


def test_captions_of_several_lines_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(
        'image_id,caption\n1,"A dog, here\nand there, too.\n\nOn 2, a cat."\n2,"A ""dog"""\n'
    )
    assert account(tmp_path / "b.csv")["records"] == 2


@pytest.mark.parametrize(
    "caption",
    [
        "I see:\n1, a dog\n2, a cat",
        "In the stands:\n5,000 people\nand a dog",
        "\n1, a dog\n2, a cat\n",
        "\n",
    ],
)
def test_captions_with_numbered_lines_in_a_table(tmp_path: Path, caption: str) -> None:
    with (tmp_path / "b.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image_id", "caption"), (12, caption), (13, "A dog.")])
    assert account(tmp_path / "b.csv")["records"] == 2


@pytest.mark.parametrize("text", ['{"1": "A dog.", "1": "A cat."}', '{\n"1": "A dog.",\n"1": "A cat."\n}'])
def test_captions_by_image_that_name_an_image_twice(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ScapoError, match=r"c\.json:1: not valid JSON: key '1' appears twice"):
        run(tmp_path / "c.json")


def test_objects_of_records_that_the_truth_says_are_absent_are_said(tmp_path: Path) -> None:
    records = [{**record, "objects": ["dog"] if k % 4 else ["cat"]} for k, record in enumerate(PLAIN)]
    found = run(write(tmp_path / "c.jsonl", records))
    assert found.account is not None
    assert found.account.contradicting == 50
    assert any("50 of 200 records have 'objects' that are absent in the ground truth" in note for note in found.notes)
    with pytest.raises(InputError, match=r"absent in the ground truth.*--strict"):
        run(tmp_path / "c.jsonl", strict=True)


def test_lists_of_a_judge_that_are_not_scored_are_said(tmp_path: Path) -> None:
    records = [{**record, "extracted": ["cat"]} for record in PLAIN]
    assert any("'extracted'" in note and "objhal" in note for note in run(write(tmp_path / "c.jsonl", records)).notes)


@pytest.mark.parametrize("nothing", ["", " ", "nan", "NaN", "None", "null"])
def test_what_a_table_writes_for_nothing_is_an_empty_caption(tmp_path: Path, nothing: str) -> None:
    path = write(tmp_path / "c.jsonl", [*PLAIN, {"image_id": 250, "caption": nothing}])
    assert account(path)["empty"] == 1


FAILED = [
    "Error: CUDA out of memory", "CUDA out of memory. Tried to allocate 2 GiB", "torch.cuda.OutOfMemoryError: CUDA",
    "Error code: 429 - {'error': {'message': 'slow down'}}", "openai.RateLimitError: Error code", "$ERROR$",
    "requests.exceptions.ConnectionError: HTTPConnectionPool", "Failed to obtain answer via API.", "[BLOCKED]",
    "Traceback (most recent call last):\n  File", "<!DOCTYPE html><html>", "502 Bad Gateway", '{"error": {"code": 1}}',
    "KeyError('choices')", "Request timed out.", "**NETWORK ERROR DUE TO HIGH TRAFFIC.**", "An error occurred: x",
    "I'm sorry, I can't help with images.", "I\u2019m sorry, but I can\u2019t assist with that.",
    "I am unable to view images.", "As an AI language model, I cannot view images.", "There is no image attached.",
    "I don't have access to the image.", "Exception: x", "content_filter",
]  # fmt: skip
MARKUP = [
    "<think>The user</think> A dog", "A dog.<|im_end|>", "Assistant: A dog", "ASSISTANT: A dog", "assistant\nA dog",
    "[INST] Describe [/INST] A dog", "A dog</s>", "\u25c1think\u25b7ok\u25c1/think\u25b7 A dog", "### Response: A dog",
]  # fmt: skip
TEXTS_LIKE_THEM = [
    "Sorry sign on a door.", "A sorry looking dog sits.", "Error message displayed on a laptop screen on a desk.",
    "Blocked road with cones.", "Failed cake on a table.", "The sign reads 'Error: no entry'.", "404 buildings",
    "I'm sorry, I can't identify the people, but the image shows two men with a dog.", "I can't see a dog.",
    "No, I can't see a dog in the picture.", "I do not see a dog in the image.", "500 people", "Timeout sign at a game",
    "Model: a train on a track", "Unfortunately the dog can't see the ball", "Html code on a screen", "Sorry, no.",
    "A man < 20 years old", "There is no dog in this picture.", "I can't help but notice the dog.",
]  # fmt: skip


def test_failed_texts_and_markup_are_told_from_captions_about_them() -> None:
    assert [text for text in FAILED if set(odd_texts([text])) != {"failed"}] == []
    assert [text for text in MARKUP if set(odd_texts([text])) != {"markup"}] == []
    assert odd_texts(TEXTS_LIKE_THEM) == {}


def test_failed_texts_and_markup_are_counted_and_said(tmp_path: Path) -> None:
    odd = [{"image_id": 250 + k, "caption": text} for k, text in enumerate((FAILED[0], MARKUP[0], FAILED[-1]))]
    path = write(tmp_path / "c.jsonl", [*PLAIN, *odd])
    found = run(path)
    assert found.account is not None
    assert found.account == run(path, workers=2).account
    assert found.account.to_dict()["failed"] == {"records": 2, "text": FAILED[0], "line": 201, "image_id": "250"}
    assert found.account.markup == OddTexts(1, MARKUP[0], 202, "251")
    said = "\n".join(found.notes)
    assert "2 of 203 texts are error messages or refusals," in said
    assert "(first: line 201, image 250: 'Error: CUDA out of memory'); if requests failed, generate" in said
    assert "1 of 203 texts contain reasoning or tags of a chat template" in said
    found.save(tmp_path / "r.json")
    assert load_results(tmp_path / "r.json")[0].account == found.account
    with pytest.raises(InputError, match=r"error messages or refusals.*--strict"):
        run(path, strict=True)
    answers = [{"id": k, "response": "Yes", "label": "yes"} for k in range(3)]
    answers += [{"id": 4, "response": FAILED[3], "label": "no"}, {"id": 5, "response": FAILED[0], "label": "no"}]
    noted = scapo_eval.yesno(write(tmp_path / "a.jsonl", answers), resamples=0)
    assert noted.account is not None
    assert noted.account.failed == OddTexts(2, FAILED[3], 4)
    assert any("2 of 5 texts are error messages" in note for note in noted.notes)


def test_accounts_of_answers_and_their_strictness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"id": k, "response": "Yes", "label": "yes", "question": f"Is it {k}?"} for k in range(30)]
    path = write(tmp_path / "a.jsonl", [*answers, answers[0], {**answers[1], "id": 40, "response": "nan"}])
    found = scapo_eval.yesno(path, resamples=0)
    assert found.account is not None
    assert found.account.to_dict() == {
        "bytes": Path(path).stat().st_size, "lines": 32, "records": 32, "skipped": 0, "duplicates": 1, "empty": 1,
        "cut": 0, "unmatched_ids": 0, "captions_per_image": [0, 0], "crc32": crc_of(Path(path).read_bytes()),
    }  # fmt: skip
    assert any("1 of 32 records have an empty text" in note for note in found.notes)
    for arguments, code in (["yesno", path], 0), (["yesno", path, "--strict"], 2):
        monkeypatch.setattr("sys.argv", ["scapo-eval", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
    assert "(--strict)" in capsys.readouterr().err


@pytest.mark.parametrize("scored", [scapo_eval.score, scapo_eval.chair])
def test_strict_python_functions_refuse_what_is_unusual(scored: Any) -> None:
    rows = [{"image_id": k, "caption": f"A dog in picture {k}."} for k in range(5)]
    truth = {str(k): ["dog"] for k in range(5)}
    assert scored(rows, truth=truth, strict=True, resamples=0).account.records == 5
    with pytest.raises(InputError, match=r"1 of 6 records are identical to an earlier record .*\(--strict\)"):
        scored([*rows, rows[0]], truth=truth, strict=True, resamples=0)


def test_repeated_records_of_truths_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = [{"image_id": k % 3, "objects": ["dog"]} for k in range(5)] + [{"image_id": 7, "objects": []}]
    records = write(tmp_path / "t.jsonl", rows)
    table = tmp_path / "t.csv"
    table.write_text("image_id,object\n0,dog\n0,dog\n1,cat\n7,\n")
    for path, repeated in (records, 2), (str(table), 1):
        monkeypatch.setattr("sys.argv", ["scapo-eval", "oracle", "check", path])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        said = capsys.readouterr().out
        assert f"repeated records: {repeated} (each cell counts once)" in said
        assert "images without an object: 1" in said


def test_unusual_records_that_a_judge_or_pairs_read_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "1.jpg").write_bytes(b"")
    rows = [{"image_id": 1, "response": text, "prompt": "p"} for text in ("A dog.", "A cat.", "A cat.", "nan")]
    rollouts = write(tmp_path / "r.jsonl", [*rows, {"image_id": 2, "response": "A dog.", "prompt": "p"}])
    truth = tmp_path / "t.json"
    truth.write_text('{"1": ["dog"]}')
    judge = ["judge", "objhal", rollouts, "-o", str(tmp_path / "o.jsonl"), "--model", "m", "--base-url"]
    pairs = ["pairs", rollouts, "--truth", str(truth), "--format", "trl", "--images", str(tmp_path)]
    said = []
    for arguments in ([*judge, "http://127.0.0.1:9/v1"], [*pairs, "--on-unknown-image", "skip"]):
        monkeypatch.setattr("sys.argv", ["scapo-eval", *arguments])
        with pytest.raises(SystemExit):
            main()
        said.append(capsys.readouterr().err)
    assert "r.jsonl: 1 of 5 records are identical to an earlier record" in said[0]
    assert "r.jsonl: 1 of 5 records have an empty text" in said[0]
    assert "from 4 responses, 1 of unknown images omitted" in said[1]
