"""Reading and writing files: what SPEC section 8 wants read without complaint, what is refused, and where."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from scapo_eval.base.errors import FaultList, InputError, InputErrors, MissingExtra, ScapoError
from scapo_eval.base.hashes import digest
from scapo_eval.base.installed import install_command
from scapo_eval.files.files import atomic_write, iter_lines
from scapo_eval.files.json_text import dump_json, iter_records, read_json
from scapo_eval.readers import captions as caption_files
from scapo_eval.readers.captions import Captions, FileChecks, captions_of, iter_blocks, parsed
from scapo_eval.results.signature import Signature

RECORDS = [{"image_id": 1, "caption": "a dog"}, {"image_id": "2", "caption": "caf\u00e9 \u732b \U0001f436 \0 \ud800"}]
LINES = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def read_captions(path: Path) -> Captions:
    faults = FaultList()
    all_of_them = Captions()
    for part in parsed(iter_blocks(path), faults):
        all_of_them.extend(part)
    faults.raise_if_any()
    return all_of_them


def bomb(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


READABLE: dict[str, bytes] = {
    "plain": LINES,
    "no last newline": LINES.rstrip(b"\n"),
    "bom": bomb(LINES),
    "crlf": LINES.replace(b"\n", b"\r\n"),
    "blank lines": b"\n \n" + LINES.replace(b"\n", b"\n\t\n\r\n"),
    "gz": gzip.compress(LINES),
    "two gz members": gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]),
    "zst": zstandard.compress(LINES),
    "two zst frames": zstandard.compress(LINES[:30]) + zstandard.compress(LINES[30:]),
    "bom in gz": gzip.compress(bomb(LINES)),
    "array": json.dumps(RECORDS).encode(),
    "indented array": b"\n" + json.dumps(RECORDS, indent=2).encode(),
    "array in zst with bom and crlf": zstandard.compress(
        bomb(json.dumps(RECORDS, indent=1).encode().replace(b"\n", b"\r\n"))
    ),
    "utf-8 unescaped, bare NUL": b'{"image_id": 1, "caption": "a dog"}\n'
    + '{"image_id": "2", "caption": "caf\u00e9 \u732b \U0001f436 \0 \\ud800"}'.encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", READABLE)
def test_what_must_be_read_without_complaint(tmp_path: Path, name: str) -> None:
    path = tmp_path / "c"  # recognised by content, never by name
    path.write_bytes(READABLE[name])
    assert [record for _, record in iter_records(path)] == RECORDS
    found = read_captions(path)
    assert found.image_ids == ["1", "2"]
    assert found.captions == [record["caption"] for record in RECORDS]


@pytest.mark.parametrize("name", ["plain", "gz", "zst", "array", "bom"])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(READABLE[name])))
    assert [record for _, record in iter_records("-")] == RECORDS


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="<stdin>: standard input is closed"):
        list(iter_records("-"))


def test_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\n" + LINES.replace(b"\n", b"\n\n"))
    assert [number for number, _ in iter_records(tmp_path / "c")] == [2, 4]
    assert read_captions(tmp_path / "c").numbers == [2, 4]
    (tmp_path / "c").write_bytes(READABLE["indented array"])
    assert [number for number, _ in iter_records(tmp_path / "c")] == [
        1,
        2,
    ]  # elements, as an array has no lines of records


def test_extra_keys_pass(tmp_path: Path) -> None:
    record = {
        "id": 7,
        "image_id": 1,
        "caption": "x",
        "image": "a.jpg",
        "model": "m",
        "objects": ["dog"],
        "meta": {"k": [1]},
    }
    (tmp_path / "c").write_bytes(dump_json(record))
    found = read_captions(tmp_path / "c")
    assert (found.ids, found.objects) == ([7], [["dog"]])


def test_blocks_hold_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption_files, "BLOCK_BYTES", 1000)
    records = [{"image_id": k, "caption": "x" * (k % 300)} for k in range(500)]
    (tmp_path / "c").write_bytes(b"\n".join(dump_json(record) for record in records))
    blocks = list(iter_blocks(tmp_path / "c"))
    assert len(blocks) > 50
    found = [block.parse(FaultList()) for block in blocks]
    assert {block.size for block in blocks[:-1]} <= set(range(1000, 1340))
    assert [part.numbers for part in found] == [list(range(1, part.lines + 1)) for part in found]
    assert [text for part in found for text in part.captions] == [record["caption"] for record in records]


# ---- refused ----

REFUSED: list[tuple[str, bytes, str]] = [
    ("empty", b"", ": the file contains no record"),
    ("blank", b"\n \r\n\t\n", ": the file contains no record"),
    ("only a bom", b"\xef\xbb\xbf", ": the file contains no record"),
    ("empty array", b" [ ]\n", ": the file contains no record"),
    ("broken", LINES + b'{"image_id": 3, "caption": "x\n', ":3: not valid JSON: unexpected end of data"),
    ("two on a line", b'{"image_id": 1, "caption": ""}{"a": 1}', ":1: not valid JSON: unexpected content"),
    ("broken array", b'[\n{"image_id": 1, "caption": ""},\n\n{"image_id": x}]', ":4: not valid JSON"),
    ("lines after an array", b"[]\n" + LINES, ":2: not valid JSON"),
    ("array and lines", b"[1,\n" + LINES, ":3: not valid JSON"),
    ("nan id", b'{"image_id": NaN, "caption": "x"}', r":1: not valid JSON: NaN is not JSON \(an id or text is"),
    ("nan text", LINES + b'{"image_id": 1, "caption": NaN}', ":3: not valid JSON: NaN is not JSON"),
    ("infinity", b'{"image_id": -Infinity, "caption": "x"}', ":1: not valid JSON: Infinity is not JSON"),
    ("NaN said, quote missing", b'{"image_id": 1, "caption": "NaN', ":1: not valid JSON: unexpected end of data"),
    ("nan and surrogate", b'{"image_id": NaN, "caption": "\\ud800"}', ":1: not valid JSON: NaN is not JSON"),
    ("utf-16", '{"image_id": 1}'.encode("utf-16"), ":1: is UTF-16"),
    ("utf-16-le", '{"image_id": 1}'.encode("utf-16-le"), ":1: is UTF-16"),
    ("utf-16-be", '\ufeff{"image_id": 1}'.encode("utf-16-be"), ":1: is UTF-16"),
    ("utf-32", '{"image_id": 1}'.encode("utf-32"), ":1: is UTF-16 or UTF-32"),
    ("latin-1", LINES + '{"caption": "caf\u00e9"}'.encode("latin-1"), r":3: not UTF-8 \(byte 0xe9 at column 17\)"),
    ("latin-1 array", '[\n"caf\u00e9"]'.encode("latin-1"), r":2: not UTF-8 \(byte 0xe9 at column 5\)"),
    ("binary", bytes(range(256)), ":1: "),
    ("deep", b"[" * 200_000, ":1: not valid JSON"),
    ("deep with surrogate", b'{"a": "\\ud800", "b": ' + b"[" * 200_000, ":1: not valid JSON"),
    ("cut gz", gzip.compress(LINES)[:-9], ": damaged or truncated compressed file"),
    ("cut gz header", gzip.compress(LINES)[:5], ": damaged or truncated compressed file"),
    ("broken gz", gzip.compress(LINES)[:20] + b"\0" * 20, ": damaged or truncated compressed file"),
    ("gz and rubbish", gzip.compress(LINES) + b"rubbish", ": damaged or truncated compressed file"),
    ("cut zst", zstandard.compress(LINES)[:-3], ": damaged or truncated compressed file"),
    ("cut second zst frame", zstandard.compress(LINES) + zstandard.compress(LINES)[:-3], ": damaged or truncated"),
    ("zst and rubbish", zstandard.compress(LINES) + b"rubbish", ": damaged or truncated compressed file"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(content)
    readers: list[Callable[[], object]] = [lambda: list(iter_records(path)), lambda: read_captions(path)]
    for reader in readers:
        with pytest.raises(ScapoError, match=f"^{path}{reason}"):
            reader()


def test_a_large_zst_file_cut_anywhere_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = b"".join(b'{"image_id": 1, "caption": "%d"}\n' % k for k in rng.integers(0, 2**60, 20_000))
    data = zstandard.compress(lines)
    path = tmp_path / "c.zst"
    for cut in (len(data) // 3, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match="damaged or truncated"):
            list(iter_lines(path))
    path.write_bytes(data)
    assert sum(1 for _ in iter_lines(path)) == 20_000


def test_a_line_of_50_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(LINES + b'{"image_id": 1, "caption": "' + b"x" * 50_000_000 + b'"}\n', 1))
    with pytest.raises(InputError, match=r"c\.jsonl\.gz:3: a line of more than 16 MiB"):
        list(iter_lines(path))


RECORD_FAULTS = [
    ({}, "missing key 'image_id' (found: nothing)"),
    ({"image": 1, "text": 2}, "missing key 'image_id' (found: image, text)"),
    ({"image_id": 1}, "missing key 'caption' (found: image_id)"),
    (
        {"image_id": 1, "response": "x"},
        "missing key 'caption' (found: image_id, response); is it a rollout? use scapo-eval reward",
    ),
    ({"image_id": 1, "caption": None}, "'caption' must be a string, found null"),
    ({"image_id": 1, "caption": 5}, "'caption' must be a string, found a number"),
    ({"image_id": 1, "caption": True}, "'caption' must be a string, found true/false"),
    (
        {"image_id": 1, "caption": ["x", "y"]},
        "several captions for one image: write a record (image_id, caption) for each caption: jq -c "
        """'(arrays[], objects) | {image_id: .["image_id"], caption: .["caption"][]}' FILE > captions.jsonl""",
    ),
    ({"image_id": 1, "caption": []}, "'caption' must be a string, found an array"),
    ({"image_id": 1, "caption": {"x": 1}}, "'caption' must be a string, found an object"),
    ({"image_id": None, "caption": "x"}, "'image_id' must be a number or a string, not null"),
    ({"image_id": True, "caption": "x"}, "'image_id' must be a number or a string, not true"),
    ({"image_id": [1], "caption": "x"}, "'image_id' must be a number or a string, not list"),
    ({"image_id": {}, "caption": "x"}, "'image_id' must be a number or a string, not dict"),
    ({"image_id": "", "caption": "x"}, "'image_id' is an empty string"),
    ({"image_id": -4, "caption": "x"}, "'image_id' must not be negative, got -4"),
    ({"image_id": 1.5, "caption": "x"}, "'image_id' must be a whole number, got 1.5"),
    ({"image_id": 1, "caption": "x", "objects": "dog"}, "'objects' must be a list of strings"),
    ({"image_id": 1, "caption": "x", "objects": [1]}, "'objects' must be a list of strings"),
    ("text", "expected a JSON object, found a string"),
    (["image_id"], "expected a JSON object, found an array"),
    (7, "expected a JSON object, found a number"),
    (None, "expected a JSON object, found null"),
]  # fmt: skip


def test_the_keys_of_a_record_are_named_in_a_command() -> None:
    faults = FaultList()
    captions_of("my captions", [(1, {"nr": 1, "by": "me", "said": "A dog."})], faults)
    command = "scapo-eval score 'my captions' --image-key nr --caption-key said --truth TRUTH"
    assert str(faults.errors[0]).endswith(f"(found: nr, by, said); name the keys: {command}")
    faults = FaultList()  # LLaMA-Factory's predictions have no image ids
    captions_of("x", [(1, {"prompt": "Describe this.", "predict": "A dog on the sofa.", "label": ""})], faults)
    assert str(faults.errors[0]).endswith("add the key image_id to each record (captions: 'predict')")


@pytest.mark.parametrize(("record", "reason"), RECORD_FAULTS)
def test_records_that_are_refused(tmp_path: Path, record: Any, reason: str) -> None:
    faults = FaultList()
    found = captions_of("c", enumerate([RECORDS[0], record, RECORDS[1]], 1), faults)
    assert [str(error) for error in faults.errors] == [f"c:2: {reason.replace('FILE', 'c')}"]
    assert found.numbers == [1, 3]
    path = tmp_path / "c.jsonl"
    path.write_bytes(LINES + dump_json(record))
    with pytest.raises(InputErrors) as caught:
        read_captions(path)
    assert str(caught.value) == f"{path}:3: {reason.replace('FILE', str(path))}"


def test_a_thousand_faults_are_counted_and_twenty_shown(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"{}\n" * 1000)
    for reader in (lambda: read_captions(path), lambda: list(iter_lines_as_records(path))):
        with pytest.raises(InputErrors) as caught:
            reader()
        assert str(caught.value).endswith(" (1,000 records, lines 1-1000)")
        assert "\n" not in str(caught.value)
    path.write_bytes(b"".join(b'{"image_id": %d, "key%d": 1}\n' % (k, k) for k in range(1000)))
    with pytest.raises(InputErrors) as caught:
        read_captions(path)
    shown = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in shown[:20]] == [f"{path}:{k}" for k in range(1, 21)]
    assert shown[20:] == ["... and 980 more errors (1000 in total)"]


def iter_lines_as_records(path: Path) -> Any:
    """The same faults from the general reader: a file of arrays where objects belong."""
    path.write_bytes(b"5\n" * 1000)
    return iter_records(path)


def test_reading_goes_on_with_a_callback(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"xx\n" + LINES + b"5\n")
    seen: list[InputError] = []
    assert [number for number, _ in iter_records(tmp_path / "c", on_error=seen.append)] == [2, 3]
    assert [error.line for error in seen] == [1, 4]


@pytest.mark.parametrize("identity", [7, "7", "seven", 1.5, ["a", 1], {"a": 1}, "\ud800", True])
def test_an_explicit_id_stands_once(identity: Any) -> None:
    checks = FileChecks("c")
    for first, ids in ((1, ["other", identity, None, None]), (11, [identity, "third"])):
        block = Captions(ids=ids, numbers=list(range(first, first + len(ids))))
        checks.add(block)
    with pytest.raises(InputErrors) as caught:
        checks.check()
    assert str(caught.value) == "c:11: the same id appears twice (lines 2 and 11)"


def test_different_ids_and_no_ids_pass() -> None:
    checks = FileChecks("c")
    checks.add(Captions(ids=[None, None, 1, 2, "a", "A"], numbers=[1, 2, 3, 4, 5, 6]))
    checks.check()
    checks.add(Captions(ids=["1"], numbers=[7]))  # another spelling of the first
    with pytest.raises(InputErrors, match=r"the same id appears twice \(lines 3 and 7\)"):
        checks.check()
    FileChecks("c").check()


def test_one_file_holds_one_model() -> None:
    checks = FileChecks("c")
    for first, models in ((1, [None, "a", "a"]), (11, [None, "b", "a"]), (21, ["c"])):
        checks.add(Captions(ids=[None] * len(models), numbers=list(range(first, first + len(models))), models=models))
    with pytest.raises(InputError, match=r"^c:12: several models in one file \('a', 'b', 'c'\); .*import c --model"):
        checks.check()


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "none", "file not found"),
        (tmp_path / "a" / "b", "file not found"),
    ):
        for read in (lambda: list(iter_records(path)), lambda: read_json(path), lambda: read_captions(path)):  # noqa: B023
            with pytest.raises(InputError, match=f"{path}: {reason}"):
                read()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(LINES)
    path.chmod(0)
    with pytest.raises(InputError, match="no permission to read it"):
        list(iter_records(path))


# ---- writing ----


@pytest.mark.parametrize(
    ("name", "unpack"),
    [
        ("x.jsonl", bytes),
        ("x.gz", gzip.decompress),
        ("x.zst", lambda b: zstandard.ZstdDecompressor().decompressobj().decompress(b)),
    ],
)
def test_a_written_file_is_whole_and_reproducible(tmp_path: Path, name: str, unpack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    contents = []
    for _ in range(2):
        with atomic_write(path) as stream:
            stream.write(b"one\n")
            assert not contents or path.read_bytes() == contents[0]  # the old file stays until the new one is whole
            stream.write(b"two\n")
        contents.append(path.read_bytes())
    assert unpack(contents[0]) == b"one\ntwo\n"
    assert contents[0] == contents[1]
    assert [p.name for p in tmp_path.iterdir()] == [name]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("failure", [KeyboardInterrupt, InputError("x"), MissingExtra("x", "y"), ZeroDivisionError])
def test_a_failure_leaves_nothing_behind_and_the_old_file_alone(tmp_path: Path, failure: Any) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(b"old")

    def write_half() -> None:
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise failure

    with pytest.raises(failure if isinstance(failure, type) else type(failure)):
        write_half()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("target", ["no/such/folder/x", ".", "/dev/full", "x" * 300, "file/x"])
def test_targets_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError, match="cannot be written: "), atomic_write(target) as stream:
        stream.write(b"x" * 100_000)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_json_that_orjson_refuses() -> None:
    assert json.loads(dump_json({"a": "\ud800", "b": [1, None]})) == {"a": "\ud800", "b": [1, None]}
    assert dump_json({"a": "caf\u00e9"}) == '{"a":"caf\u00e9"}'.encode()


# ---- errors and signatures ----


def test_an_error_names_file_line_and_reason() -> None:
    assert str(InputError("why", path="a.jsonl", line=3)) == "a.jsonl:3: why"
    assert str(InputError("why", path=Path("a.jsonl"))) == "a.jsonl: why"
    assert str(InputError("why")) == "why"
    assert str(InputErrors([InputError("x", path="a", line=1), InputError("y", path="a", line=2)])) == "a:1: x\na:2: y"
    assert str(InputErrors([InputError("x", path="a", line=1)], total=1)) == "a:1: x"
    assert install_command("plot") in str(MissingExtra("plot", "drawing"))
    assert issubclass(ScapoError, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        InputError("x", path="a", line=3),
        InputErrors([InputError("x", path="a", line=3)] * 25, 40),
        MissingExtra("e", "n"),
    ],
)
def test_errors_come_back_whole_from_worker_processes(error: ScapoError) -> None:
    import pickle

    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {k: str(v) for k, v in vars(copy).items()} == {k: str(v) for k, v in vars(error).items()}


def test_digest_and_signature() -> None:
    assert digest(["a", "b"]) == digest([b"a", b"b"]) == digest(iter(["a", "b"]))
    assert (
        len({digest(["a", "b"]), digest(["b", "a"]), digest(["ab"]), digest(["a", "b", ""]), digest(["\ud800"])}) == 5
    )
    line = str(Signature.of("m", vocab="v@1", oracle=None, n=3))
    assert line.startswith("m|vocab:v@1|n:3|v:")
