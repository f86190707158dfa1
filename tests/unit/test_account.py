"""The account of a caption file: every record is in it, and what is unusual is said."""

from __future__ import annotations

import gzip
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import PresenceOracle
from scapo_eval.base.errors import InputError
from scapo_eval.benchmarks.capscore import score_file
from scapo_eval.benchmarks.scoring import ScoringOptions
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
    found = run(path, **options).account
    assert found is not None
    return found.to_dict()


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


ODD = [
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
        "bytes": Path(path).stat().st_size, "lines": 227, "records": 227, "skipped": 1, "duplicates": 20, "empty": 1,
        "cut": 2, "unmatched_ids": 1, "captions_per_image": [1, 3],
    }  # fmt: skip
    assert found.n_records == 225
    said = "\n".join(found.notes)
    assert "20 of 227 records repeat an earlier one of their image word for word" in said
    assert "1 to 3 captions per image" in said
    assert "empty captions: 1" in said
    assert "cut off" not in said  # fewer than one in a hundred
    with pytest.raises(InputError, match=r"c\.jsonl: 20 of 227 records repeat .* captions per image.*\(--strict\)"):
        run(path, strict=True, **options)


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
            r"b\.tsv:2: a cell goes on over line 3, which looks like a record: is a quote left open\?",
        ),
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
