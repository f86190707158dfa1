"""Input that was made to do harm: refused with its file and place, in bounded memory, and never run or believed."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval.annotate.qc.rounds import draw_round, read_rounds
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.base import errors
from scapo_eval.base.errors import InputError, ScapoError, short_repr
from scapo_eval.base.text import guard_cells, guarded, printable, unguarded
from scapo_eval.benchmarks.faithscore import read_facts
from scapo_eval.benchmarks.protocol import Protocol
from scapo_eval.engines import Completion, Request, images
from scapo_eval.files import json_text, limits
from scapo_eval.files.files import read_bytes
from scapo_eval.files.json_text import iter_records, parse_json
from scapo_eval.files.limits import limit_decoded
from scapo_eval.inference.shards import merge_outputs
from scapo_eval.inference.sources import ImageFile, ImageFolder
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.readers.captions import parquet_blocks
from scapo_eval.readers.formats import open_layout
from scapo_eval.truths.truth import read_truth


def refusal(path: Path, content: bytes | str, read: Callable[[Path], Any]) -> str:
    """The message with which a file is refused; it names the file."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ScapoError) as refused:
        read(path)
    assert path.name in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("reviewed: [a]\nlabels: {dog: [dog]}", "'reviewed': expected kinds of findings"),
        ("labels: !!map [1]", "tags such as '!!map' are not read"),
        ("labels: {dog: [!!bool maybe]}", "tags such as '!!bool' are not read"),
        ("labels: {dog: !!python/object/apply:os.system [id]}", "tags such as"),
        ("labels: {dog: [0x_]}\nignore: [5]", "'ignore': 5 is not text"),
        ("labels: {dog: [dog], 2001-99-99: []}", "label '2001-99-99' has no alias"),
        ("labels: {}", "'labels' is empty"),
        ("labels: " + "[" * 3000, "nested more than 20 levels deep"),
        ("labels: " + "{a: " * 3000, "nested more than 20 levels deep"),
        ("a: &a [x]\nlabels: {dog: *a}", "anchors and aliases"),
        ("labels: {dog: [dog]}\n---\nlabels: {}", "a second document"),
        ("labels: {dog: {aliases: [dog], definition: [[x]]}}", "'dog: definition': expected a text"),
        (f"labels: {{dog: [{' '.join(['word'] * 50_000)}]}}", "has 50,000 words; at most 100"),
        ("labels: {dog: [dog]}\ninclude: ../rules.yaml", "not a valid file beside the vocabulary"),
        ("labels: {dog: [dog]}\ninclude: 'rules.yaml]'", "odd.yaml: 'include': "),
        ("lists: {a: [" + "x, " * 9_000 + "y]}\nlabels: {dog: [dog]}\nignore: ['" + "{a}" * 40 + "']", "phrases; at"),
    ],
)
def test_vocabularies(tmp_path: Path, content: str, reason: str) -> None:
    assert reason in refusal(tmp_path / "odd.yaml", content, Vocabulary.load)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.json", '{"1": ["dog"], "1": ["cat"]}', "key '1' appears twice"),
        ("t.json", '{"labels": ["dog"], "objects": {"1": ["dog"], "1": []}}', "key '1' appears twice"),
        ("t.json", '{"1": ["dog"], "01": ["dog"]}', "'1' and '01' are the same image, 1"),
        ("t.csv", "image_id,label\n1,dog\n01,cat\n", "'1' and '01' are the same image, 1"),
        ("t.jsonl", '{"image_id": 1, "objects": ["dog"], "objects": []}\n', "key 'objects' appears twice"),
        ("t.json", '{"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "a"}]}', "is empty"),
        (
            "t.json",
            '{"images": [{"id": 1}], "annotations": [{"image_id": 1, "category_id": 1}],'
            ' "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
            "the id of a category '1' appears twice",
        ),
        (
            "t.json",
            '{"images": [{"id": 1}], "annotations": [{"image_id": 1, "category_id": 1, "category_id": 2}],'
            ' "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}',
            "key 'category_id' appears twice",
        ),
        ("t.json", '{"images": ' + "[" * 5000 + ', "annotations", "categories"', "not a valid COCO"),
        (
            "t.json",
            '{"images": [{"id": 1, "neg_category_ids": [9223372036854775808]}], "annotations": [],'
            ' "categories": [{"id": 1, "name": "a"}]}',
            "neg_category_ids[0]",
        ),
        ("t.json", b"\0" * 9000, "begins with a NUL"),
        ("t.csv", "image_id,label" + "," * (2 << 20), "its first line does not end"),
    ],
)
def test_truths(tmp_path: Path, name: str, content: str | bytes, reason: str) -> None:
    assert reason in refusal(tmp_path / name, content, read_truth)


def matrix(**arrays: Any) -> bytes:
    """An npz file of a matrix, with some of its arrays replaced."""
    sink = io.BytesIO()
    np.savez(sink, **{"matrix": np.ones((2, 1), "i1"), "image_ids": np.array(["1", "2"]), "labels": ["dog"], **arrays})
    return sink.getvalue()


@pytest.mark.parametrize(
    "arrays",
    [
        {"matrix": np.array(1)},
        {"image_ids": np.array("1")},
        {"labels": np.array(5)},
        {"labels": np.zeros(1, "M8[s]")},
        {"matrix": np.zeros((2, 1), [("a", "i1")])},
        {"matrix": np.zeros((2, 1), "m8[s]")},
        {"matrix": np.array([[None], [{}]])},
    ],
)
def test_matrices_of_other_arrays(tmp_path: Path, arrays: dict[str, Any]) -> None:
    refusal(tmp_path / "m.npz", matrix(**arrays), read_truth)


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    data = bytearray(matrix())
    place = data.index(b"'shape': (2, 1)")
    data[place : place + 15] = b"'shape': (2, [)"
    refusal(tmp_path / "m.npz", bytes(data), read_truth)


def test_parquet_of_times(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"image_id": ["1"], "dog": pyarrow.array([0], pyarrow.timestamp("s")), "cat": pyarrow.array([1], "int8")}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet: column 'dog': cells must be 1"):
        read_truth(tmp_path / "t.parquet")


# --- bombs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mebibyte unpacked, two whole: bombs of the tests can be small."""
    monkeypatch.setattr(limits, "MAX_UNPACKED", 1 << 20)
    monkeypatch.setattr(limits, "MAX_WHOLE", 2 << 20)


def bomb(kind: str) -> bytes:
    """16 MiB of blank lines, packed."""
    data = b'{"image_id": 1, "caption": "A dog."}\n' + b"\n" * (16 << 20)
    if kind == "gzip":
        return gzip.compress(data, 9)
    return bytes(pytest.importorskip("zstandard").compress(data))


@pytest.mark.parametrize("kind", ["gzip", "zstandard"])
@pytest.mark.parametrize("read", [read_bytes, read_truth, lambda path: list(iter_records(path)), open_layout])
@pytest.mark.usefixtures("small_limits")
@pytest.mark.slow
def test_compressed_bombs(tmp_path: Path, kind: str, read: Callable[[Path], Any]) -> None:
    message = refusal(
        tmp_path / "bomb.jsonl", bomb(kind), lambda path: list(read(path).rows if read is open_layout else [read(path)])
    )
    assert "when decoded" in message
    assert "--max-decoded" in message


@pytest.mark.usefixtures("small_limits")
def test_the_limit_is_the_users(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    path.write_bytes(bomb("gzip"))
    limit_decoded(20 << 20)
    try:
        assert len(read_bytes(path)) > 16 << 20
    finally:
        limit_decoded(None)
    path.write_bytes(b" " * (3 << 20))
    with pytest.raises(InputError, match="more than 2 MiB when decoded; allow more with --max-decoded SIZE"):
        read_bytes(path)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("member", ["matrix.npy", "xl/worksheets/sheet1.xml"])
def test_archives_that_unpack_to_too_much(tmp_path: Path, member: str) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, b" " * (8 << 20))
    pytest.importorskip("openpyxl")
    assert "when decoded" in refusal(
        tmp_path / "b.zip", sink.getvalue(), read_truth if "npy" in member else open_layout
    )


def test_a_text_that_is_stored_once_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr(limits, "MAX_UNPACKED", 1 << 20)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 40_000, pa.int32()), pa.array(["dog " * 5000]))
    table = pa.table({"image_id": range(40_000), "caption": text})
    pq.write_table(table, tmp_path / "once.parquet")
    content = (tmp_path / "once.parquet").read_bytes()
    assert len(content) < 1 << 20
    before = pa.total_allocated_bytes()
    for read in (
        lambda path: list(parquet_blocks(path)),
        lambda path: list(open_layout(path).rows),
        read_truth,
    ):
        message = refusal(tmp_path / "bomb.parquet", content, read)
        assert "when decoded" in message
    assert pa.total_allocated_bytes() - before < 1 << 30
    pq.write_table(table.slice(0, 40), tmp_path / "few.parquet")
    assert [block.batch.num_rows for block in parquet_blocks(tmp_path / "few.parquet")] == [40]
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], ["image_id", "caption", "caption"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    for read in (lambda path: list(parquet_blocks(path)), lambda path: list(open_layout(path).rows), read_truth):
        message = refusal(tmp_path / "t.parquet", (tmp_path / "twice.parquet").read_bytes(), read)
        assert "column 'caption' appears twice" in message


@pytest.mark.parametrize("part", ["[]", "{}", '{"":0}', '"a"', "[[]]", '{"a":[]}'])
@pytest.mark.slow
def test_json_of_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(limits, "MAX_VALUES", 1 << 20)
    parts = "[" + f"{part}," * 100_000 + "1]"
    for read in (json_text.read_json, lambda path: list(iter_records(path)), read_truth):
        message = refusal(tmp_path / "parts.json", parts, read)
        assert "times its own size; allow more with --max-decoded SIZE" in message
    limit_decoded(1 << 30)
    try:
        assert len(json_text.read_json(tmp_path / "parts.json")) == 100_001
    finally:
        limit_decoded(None)
    honest = [{"image_id": k, "caption": f"A dog and {k} cats, all of them on a long bench."} for k in range(20_000)]
    (tmp_path / "honest.json").write_text(json.dumps(honest))
    assert json_text.read_json(tmp_path / "honest.json") == honest


def test_faults_without_end_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MAX_FAULTS", 50)
    message = refusal(tmp_path / "f.jsonl", b"5\n" * 1000, lambda path: list(iter_records(path)))
    assert "50 records" in message


def test_a_row_at_the_end_of_a_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["index", "prediction"])
    book.active.append([1, "Yes"])
    book.active.cell(1_048_576, 1, 2)
    book.active.cell(1_048_576, 2, "No")
    book.save(tmp_path / "far.xlsx")
    assert [line for line, _ in open_layout(tmp_path / "far.xlsx").rows] == [2, 1_048_576]


# --- records --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [2**63, None, -5, "x", 1.5, True])
def test_counts_of_facts(tmp_path: Path, facts: object) -> None:
    record = json.dumps({"id": 1, "facts": facts, "verified": 1})
    assert "f.jsonl:1" in refusal(tmp_path / "f.jsonl", record, read_facts)


def test_keys_twice_are_found_only_where_asked() -> None:
    assert parse_json(b'{"a": 1, "a": 2}') == {"a": 2}
    assert parse_json(b'[{"a": "b:c"}, {"a": {"d": []}}]', unique=True) == [{"a": "b:c"}, {"a": {"d": []}}]
    with pytest.raises(ValueError, match="key 'd' appears twice"):
        parse_json(b'[{"a": {"d": 1, "d": 2}}]', unique=True)


def test_messages_have_an_end(tmp_path: Path) -> None:
    error = InputError("found " + "x" * 10**6, path="p" * 10**6, line=3)
    assert len(str(error)) < 4100
    assert str(error).startswith("ppp")
    assert len(str(pickle.loads(pickle.dumps(error)))) < 4100


def test_messages_look_at_the_beginning_of_a_value_only() -> None:
    deep: list[Any] = []
    for _ in range(60):
        deep = [deep, deep]  # its repr has 2**60 brackets
    assert len(short_repr(deep)) <= 60
    assert short_repr("a" * 10**6) == short_repr("a" * 10**7)


# --- run folders ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with verdicts, an archive and an open round."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    pictures = [ImageFile(str(k), f"{k}.png", f"{k}.png") for k in range(4)]
    with Store.create(folder, pictures, Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"]})) as store:
        rows, columns = (each.ravel() for each in np.indices(store.matrix.shape))
        store.write(rows, columns, (rows + columns) % 2, CellProvenance("coarse", "coarse@1", "judge@1"))
        store.exclude("3", "not readable")
        draw_round(store, random=1, present=1, at_least=1)
        store.compact()
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"[]"),
        ("run.json", b'{"format": "scapo-annotation/1", "vocabulary": 5}'),
        ("vocabulary.json", b'{"labels": {}}'),
        ("images.jsonl", b'{"image_id": 1, "name": "a", "path": "b"}\n'),
        ("images.jsonl", b"5\n"),
        ("excluded.jsonl", b'{"image_id": []}\n'),
        ("prompts.jsonl", b"null\n"),
        ("sources.jsonl", b'{"kind": "no", "prompt": "", "judge": ""}\n'),
        ("sources.jsonl", b'{"kind": "coarse", "prompt": "", "judge": "", "round": "x"}\n'),
        ("verdicts.npz", b"PK\x03\x04"),
        ("verdicts.npz", matrix()),
        ("qc/round-001.jsonl", b"[]\n"),
        ("qc/round-001.jsonl", b'{"format": "scapo-qc-round/1"}\n'),
    ],
)
def test_damaged_runs_name_the_file(run_folder: Path, name: str, content: bytes) -> None:
    whole = (run_folder / name).read_bytes()
    try:
        message = refusal(run_folder / name, content, lambda _: read_rounds(Store.open(run_folder)))
    finally:
        (run_folder / name).write_bytes(whole)
    assert message.startswith(str(run_folder / name))


# --- terminals and tables -------------------------------------------------------------------------------------------


def test_control_characters_are_shown() -> None:
    assert printable("a\x1b[2J\x07\u202eb\ud800\tc\n") == "a\\x1b[2J\\x07\\u202eb\\ud800\tc\n"
    assert printable("caf\u00e9 \U0001f600") == "caf\u00e9 \U0001f600"


def test_control_characters_are_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    from scapo_eval.cli.echo import echo

    echo("dog\x1b[31m")  # click would take it away, and the label would be another one
    echo("dog\x1b[31m", err=True)
    assert capsys.readouterr() == ("dog\\x1b[31m\n", "dog\\x1b[31m\n")


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_formulas_are_guarded(cell: str) -> None:
    assert guarded(cell) == f"'{cell}"
    assert unguarded(guarded(cell)) == cell
    guard_cells(False)
    try:
        assert guarded(cell) == cell
    finally:
        guard_cells(True)


@pytest.mark.parametrize("cell", ["-0.5", "+3", "-1,234.5", "-1e-05", "-", "a=b", "'tis", "", "-12.5%", "-.5"])
def test_numbers_and_texts_stay(cell: str) -> None:
    assert guarded(cell) == unguarded(cell) == cell


# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Callable[[int, dict[str, str], bytes], str]]:
    """Starts servers that give one reply to every request; each call gives an address."""
    running: list[ThreadingHTTPServer] = []

    def start(status: int, headers: dict[str, str], body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self) -> None:
                said = body.replace(b"KEY", self.headers.get("Authorization", "").encode())
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(said))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"127.0.0.1:{running[-1].server_address[1]}/v1"

    yield start
    for each in running:
        each.shutdown()
        each.server_close()


def ask(address: str, **options: Any) -> tuple[Any, Completion]:
    """An engine after one request, and the completion."""
    pytest.importorskip("aiohttp")
    from scapo_eval.engines.openai_http import OpenAIEngine

    engine = OpenAIEngine("m", address, attempts=1, concurrency=1, **options)
    found: list[Completion] = []
    engine.run([Request.of("Hello")], lambda _, completion: found.append(completion))
    return engine, found[0]


def test_no_secret_is_told(server: Callable[..., str]) -> None:
    reply = json.dumps({"error": {"message": "wrong key KEY"}}).encode()
    address = server(400, {"Server": "s"}, reply)
    engine, completion = ask(
        f"http://ada:pass-word@{address}?api_key=abcdef", api_key="sk-abcdef\n", extra={"hf_token": "t0ken", "n": 1}
    )
    told = json.dumps([dict(engine.card), dict(engine.identity), completion.error, repr(engine)])
    assert "wrong key" in told
    assert not [secret for secret in ("pass-word", "sk-abcdef", "abcdef", "t0ken") if secret in told]
    assert engine.identity["extra"] == {"hf_token": "***", "n": 1}


def test_a_login_in_the_address_is_sent_and_not_told(server: Callable[..., str]) -> None:
    address = server(400, {}, b"KEY")
    engine, completion = ask(f"http://ada:pass-word@{address}")
    assert completion.error == "HTTP 400: Basic ***"
    assert engine.card["base_url"] == f"http://{address}"


def test_a_secret_option_that_the_server_repeats_is_not_told(server: Callable[..., str]) -> None:
    address = server(400, {}, b"t0ken-1 t0ken-2 t0ken-3 seed")
    extra = {"api_key": "t0ken-1", "inner": {"password": ["t0ken-2"], "token": {"value": "t0ken-3"}}, "name": "seed"}
    assert ask(f"http://{address}", extra=extra)[1].error == "HTTP 400: *** *** *** seed"


@pytest.mark.parametrize(
    "address", ["ftp://ada:pass-word@h/v1", "h:8000/v1", "http:///v1", "http://[::1/v1", "file:///x"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ScapoError, match="not a valid address of a server") as refused:
        ask(address)
    assert "pass-word" not in str(refused.value)


def test_keys_that_are_none() -> None:
    with pytest.raises(ScapoError, match="API key") as refused:
        ask("http://127.0.0.1:9", api_key="sk-a\r\nX-Other: b")
    assert "sk-a" not in str(refused.value)


def test_redirects_are_not_followed(server: Callable[..., str]) -> None:
    address = server(307, {"Location": "http://ada:pass@evil.example/v1"}, b"")
    with pytest.raises(ScapoError, match=r"redirects to http://evil\.example/v1: not followed"):
        ask(f"http://{address}", api_key="sk-abcdef")


@pytest.mark.parametrize(
    ("usage", "tokens"), [({"prompt_tokens": "x"}, None), ({"prompt_tokens": 10**18}, None), ({"prompt_tokens": 5}, 5)]
)
def test_odd_usage(server: Callable[..., str], usage: dict[str, Any], tokens: int | None) -> None:
    reply = {"choices": [{"message": {"content": "Yes"}, "finish_reason": ["stop"]}], "usage": usage}
    _, completion = ask("http://" + server(200, {}, json.dumps(reply).encode()))
    assert (completion.text, completion.finish, completion.prompt_tokens) == ("Yes", None, tokens)


def test_long_waits_and_long_replies_end_the_run(server: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScapoError, match="asks to wait 999,999,999 s"):
        ask("http://" + server(429, {"Retry-After": "999999999"}, b"busy"))
    from scapo_eval.engines import openai_http

    monkeypatch.setattr(openai_http, "_LONGEST_REPLY", 1 << 20)
    _, completion = ask("http://" + server(200, {}, b" " * (2 << 20)))
    assert completion.error == "the server's reply is longer than 1 MiB"


# --- code -----------------------------------------------------------------------------------------------------------


class Malice:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_picture_whose_name_is_too_long(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from scapo_train.data import check_pictures, read_prompts

    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"image": "[" * 5000, "image_id": 1, "prompt": "Describe."}) + "\n")
    with pytest.raises(InputError, match="file not found"):
        check_pictures(read_prompts(path, tmp_path))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """A checkpoint of a small layer, and what reads it."""
    torch = pytest.importorskip("torch")
    from scapo_train.checkpoint.save import Checkpoints

    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = Checkpoints(tmp_path / "checkpoints", 1)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert checkpoints.save(1, model, optimizer, {})
    folder, weight = checkpoints.latest(), model.weight.detach().clone()
    assert folder is not None

    def load() -> None:
        torch.nn.init.zeros_(model.weight)
        checkpoints.load(folder, model, optimizer)
        assert torch.equal(model.weight, weight)

    return folder, load


def test_a_checkpoint_holds_no_pickle_and_runs_none(
    saved: tuple[Path, Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, load = saved
    assert sorted(path.name for path in folder.iterdir()) == ["index.json", "rank-0-0.safetensors", "state.json"]
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("something is unpickled"))
    (folder / ".metadata").write_bytes(pickle.dumps(Malice(tmp_path / "harm")))
    load()
    (folder / "index.json").unlink()  # as a version before 0.2 wrote it
    with pytest.raises(InputError, match=r"step-000001: is a pickled checkpoint of a version before 0\.2"):
        load()
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("shape",), [3, 2**40], "do not cover its shape"),
        (("shape",), [3, 10**30], "damaged"),
        (("shape",), [-3, 2], "damaged"),
        (("dtype",), "object", "Invalid enum value 'object'"),
        (("chunks",), [], "do not cover its shape"),
        (("chunks", 0, "file"), "../rank-0-0.safetensors", "damaged"),
        (("chunks", 0, "file"), "rank-0-1.safetensors", "file not found"),
        (("chunks", 0, "offset"), [0], "do not cover its shape"),
        (("chunks", 0, "offset"), [1, 0], "do not cover its shape"),
        (("chunks", 0, "shape"), [2, 3], "do not cover its shape"),
        (("chunks", 0, "shape"), [3, 1], "do not cover its shape"),
    ],
)
def test_indices_of_checkpoints(
    saved: tuple[Path, Callable[[], None]], place: tuple[Any, ...], value: Any, said: str
) -> None:
    folder, load = saved
    index = json.loads((folder / "index.json").read_text())
    inner = index["tensors"]["model.weight"]
    for step in place[:-1]:
        inner = inner[step]
    assert place[-1] in inner
    inner[place[-1]] = value
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"step-000001: is damaged, or of another model or optimizer \(") as refused:
        load()
    assert said in str(refused.value)


def test_tensors_of_checkpoints(saved: tuple[Path, Callable[[], None]]) -> None:
    folder, load = saved
    path = folder / "rank-0-0.safetensors"
    content = path.read_bytes()
    turned = content.replace(b'"shape":[3,2]', b'"shape":[2,3]')
    for damaged, said in (
        (content[:-1], ""), (b"", ""), (b"\xff" * 100, ""), (pickle.dumps([1]), ""),
        (turned, "'model.weight' has another shape than in index.json"),
    ):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"step-000001: is damaged") as refused:
            load()
        assert f"rank-0-0.safetensors: damaged: {said}" in str(refused.value)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="not a file"):
        load()
    path.unlink()
    path.write_bytes(content)
    load()


GOOD_STATE: dict[str, Any] = {"step": 3, "bad": [1], "config": "", "best": {"value": None, "step": 0, "waited": 0}}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"step": -1}, "$.step"), ({"step": 2**70}, "$.step"), ({"bad": [None]}, "$.bad[0]"), ({"bad": 5}, "$.bad"),
        ({"best": None}, "$.best"), ({"best": {"value": "x", "step": 0, "waited": 0}}, "$.best.value"),
        ({"versions": [{"step": 0, "packages": {"torch": 2}}]}, "$.versions[0].packages"),
        ({"alarms": {"start": {"length": "x"}, "said": []}}, "$.alarms.start"), ({"config": 5}, "$.config"),
        ({"ahead": {"0": {"ids": [["x"]], "finished": [True], "logprobs": [[0.0]]}}}, "$.ahead[...].ids[0][0]"),
        ({"alarms": {"start": {}, "said": [], "raised": {"kl": {"name": "kl"}}}}, "missing required field"),
    ],
)  # fmt: skip
def test_states_of_checkpoints(change: dict[str, Any], place: str) -> None:
    pytest.importorskip("torch")
    from scapo_train.checkpoint.resume import known_state

    assert known_state({**GOOD_STATE, "other": 1}, Path("c")) == {**GOOD_STATE, "reward": None, "ahead": {}}
    with pytest.raises(InputError, match=re.escape(place)) as refused:
        known_state({**GOOD_STATE, **change}, Path("c"))
    assert str(refused.value).startswith("c/state.json: damaged: ")


@pytest.mark.parametrize(
    ("program", "imported", "said"),
    [
        ("from scapo_eval.cli.start import run; run()", "click", "scapo-eval: interrupted"),
        ("-m scapo_train x.toml", "torch", "scapo_train: interrupted"),
        ("-m scapo_train.plan x", "msgspec", "scapo_train: interrupted"),
    ],
)
def test_an_interrupt_of_the_first_imports_is_no_traceback(
    tmp_path: Path, program: str, imported: str, said: str
) -> None:
    for name in ("torch", "transformers"):  # looked for
        pytest.importorskip(name)
    (tmp_path / f"{imported}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    arguments = program.split() if program.startswith("-m") else ["-c", program]
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr.split(";")[0].strip()) == (130, said)


def test_descriptions_without_any_reference_are_named(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"image_id": 9, "caption": "A dog."}\n')
    (tmp_path / "r.jsonl").write_text('{"image_id": 1, "claims": ["A cat."]}\n')
    arguments = [
        "judge",
        "facts",
        "c.jsonl",
        "--references",
        "r.jsonl",
        "-o",
        "o.jsonl",
        "--model",
        "m",
        "--tries",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "from scapo_eval.cli.start import run; run()", *arguments],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    said = "scapo-eval: c.jsonl: none of the descriptions' images has reference claims\n"
    assert (done.returncode, done.stderr) == (2, said)


# --- pictures -------------------------------------------------------------------------------------------------------


def test_what_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    os.mkfifo(tmp_path / "pipe.png")  # nobody writes to it
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    (tmp_path / "loop.png").symlink_to("loop.png")
    with (tmp_path / "large.png").open("wb") as stream:
        stream.truncate(1 << 40)
    image.new("RGB", (8, 8)).save(tmp_path / "program.eps")
    (tmp_path / "program.eps").rename(tmp_path / "program.png")
    monkeypatch.setattr(images, "MAX_FILE", 1 << 20)
    for name, reason in (
        ("pipe.png", "is not a file"), ("endless.png", "is not a file"),
        ("loop.png", "Too many levels of symbolic links"),
        ("large.png", "is larger than 1 MiB"), ("program.png", "not a valid image"),
        ("a\0b.png", "not a valid file name"),
        ("\ud800.png", "not a valid file name"), ("http://127.0.0.1:9/x.png", "file not found"),
        ("data:image/png;base64,AAAA", "file not found"), ("file:///dev/zero", "file not found"),
    ):  # fmt: skip
        with pytest.raises(images.ImageFault, match=reason):
            images.load(str(tmp_path / name))


def test_lists_name_pictures_below_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "images"
    (root / "inner").mkdir(parents=True)
    for path in (tmp_path / "secret.png", root / "1.png", root / "inner" / "2.png"):
        path.write_bytes(b"x")
    found = ImageFolder(root).find
    for name in ("../secret.png", "inner/../../secret.png", str(tmp_path / "secret.png"), "inner/../../../secret.png"):
        assert found(name) == str(root / "secret.png")  # which is not there
    assert found("inner/2.png") == found("/elsewhere/2.png") == str(root / "inner" / "2.png")
    assert found("\r\n") == str(root / "\r\n")  # nor is this
    assert ImageFolder(None).find("../secret.png") == "../secret.png"  # the user's own list


# --- shards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("shard", {"of": 10**18}, "shards are missing: 2, 3"), ("shard", {"number": 0}, "not a valid shard: 0/1"),
        ("shard", {"rows": ["x"]}, "$.rows[0]"), ("shard", {"failed": None}, "$.failed"),
        ("shard", {"work": 5}, "$.work"),
        ("shard", {"rows": [-1]}, "$.rows[0]"), ("shard", {"rows_in_all": 2**60}, "rows are missing"),
        ("shard", {"format": "x"}, "$.format"), ("run", {"counts": {"made": "x"}}, "$.counts"),
        ("run", {"images": 5}, "$.images"), ("run", {"started": None}, "$.started"),
    ],
)  # fmt: skip
def test_shards_of_others(tmp_path: Path, name: str, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "a.1-of-1.jsonl"
    path.write_text('{"image_id": "1"}\n')
    documents: dict[str, dict[str, Any]] = {
        "shard": {
            "format": "scapo-shard/1",
            "number": 1,
            "of": 1,
            "work": "w",
            "rows_in_all": 1,
            "rows": [0],
            "failed": [],
        },
        "run": {"environment": {}, "images": {"n": 1}, "counts": {"made": 1}, "started": "a", "finished": "b"},
    }
    for each, document in documents.items():
        content = {**document, **change} if each == name else document
        (tmp_path / f"{path.name}.{each}.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=re.escape(reason)):
        merge_outputs([str(path)], str(tmp_path / "out.jsonl"))
    assert not list(tmp_path.glob("out*"))
    for each, document in documents.items():
        (tmp_path / f"{path.name}.{each}.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="is also an input"):
        merge_outputs([str(path)], str(path))
    (tmp_path / f"{path.name}.journal").write_bytes(b"x" * (limits.MAX_LINE + 1))
    with pytest.raises(InputError, match="a line of more than 16 MiB"):
        merge_outputs([str(path)], str(tmp_path / "out.jsonl"))
    assert not list(tmp_path.glob("out*"))
    (tmp_path / f"{path.name}.journal").unlink()
    assert merge_outputs([str(path)], str(tmp_path / "out.jsonl")).rows == 1


def test_protocols_of_too_many_images(tmp_path: Path) -> None:
    document = {"name": "a", "title": "b", "benchmarks": ["chair"], "image_ids": {"first": 1, "last": 2**53}}
    assert "expected a range" in refusal(tmp_path / "p.json", json.dumps(document), Protocol.load)
    document["image_ids"] = {"first": 2, "last": 1}
    assert "expected a range" in refusal(tmp_path / "p.json", json.dumps(document), Protocol.load)
