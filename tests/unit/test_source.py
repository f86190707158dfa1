"""An input that is opened once: what it gives, as often as it can, and what it refuses."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from scapo_eval import score
from scapo_eval.base.errors import InputError
from scapo_eval.files import hub
from scapo_eval.files import source as source_module
from scapo_eval.files.hub import is_hub_dataset
from scapo_eval.files.source import HEAD, Source

DATA = b"".join(b'{"image_id": %d, "caption": "a dog"}\n' % k for k in range(20_000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_the_head_and_any_number_of_readings(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(b"\xef\xbb\xbf" + DATA))
    source = Source(path)
    assert source.head == DATA[: HEAD - 3]
    assert source.packed == (pack is not bytes)
    assert source.size == (len(DATA) + 3 if pack is bytes else None)
    with source.stream() as one, source.stream() as other:  # two at once do not disturb each other
        assert one.read(1000) == other.read(1000)
        assert one.read() == other.read() == DATA[997:]
    with source.file() as file:
        assert file.seek(0, io.SEEK_END) == len(DATA) + 3
    assert source.read() == b"\xef\xbb\xbf" + DATA


def piped(data: bytes) -> tuple[Source, threading.Thread]:
    """A source at the end of a pipe that a thread writes to."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as stream:
            stream.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    source = Source(f"/dev/fd/{reader}")
    assert source.head == data[:HEAD]
    os.close(reader)
    return source, thread


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no /dev/fd")
def test_a_pipe_is_read_once_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_ALWAYS_KEPT", 2 * HEAD)
    source, thread = piped(DATA)
    assert source.size is None
    assert source.read() == DATA  # from its beginning, though the head has been read
    with pytest.raises(InputError, match=r"/dev/fd/\d+: can be read only once"):
        source.read()
    with pytest.raises(InputError, match="can be read only once"):
        source.keep()
    thread.join()
    source, thread = piped(DATA)
    source.keep()
    assert [source.read() for _ in range(3)] == [DATA] * 3
    thread.join()


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no /dev/fd")
def test_nobody_reads_the_rest_of_a_pipe_for_the_whole() -> None:
    """What one reader has taken of a pipe is lost to the next: that one is refused, not given fewer records."""
    reader, writer = os.pipe()
    os.write(writer, b'{"image_id": 1, "caption": "a dog"}\n' * 100)
    os.close(writer)
    first = Source(f"/dev/fd/{reader}")
    assert first.head
    first.close()
    with pytest.raises(InputError, match="is a pipe that has already been read"):
        _ = Source(f"/dev/fd/{reader}").head
    os.close(reader)


def test_standard_input_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(DATA))))
    source = Source("-")
    assert (source.name, str(source), source.packed) == ("<stdin>", "-", True)
    assert source.read() == DATA
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="<stdin>: standard input is closed"):
        _ = Source("-").head


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"{}\n")


def rewrite(path: Path) -> None:
    """Other bytes of the same number, in place, later."""
    with path.open("r+b") as stream:
        stream.write(b'{"image_id": 9')
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replace(path: Path) -> None:
    (path.parent / "new").write_bytes(path.read_bytes())
    (path.parent / "new").replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (grow, r"was written to while it was read \(it is 3 bytes longer\)"),
        (rewrite, r"was written to while it was read \(it is as long as before\)"),
        (cut, "was cut off while it was read"),
        (replace, "was replaced while it was read"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, change: Callable[[Path], None], said: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(DATA))
    source = Source(path)
    with pytest.raises(InputError, match=f"{path}: {said}"), source.stream() as stream:  # noqa: PT012
        stream.read(10)
        change(path)
        stream.read(10)
    if change is replace or pack is not bytes:
        return
    path.write_bytes(DATA)
    spans = list(Source(path).spans(1000))
    change(path)
    with pytest.raises(InputError, match=f"{path}: {said}"):
        _ = [span.read() for span in spans]


@pytest.mark.parametrize("change", [grow, rewrite])
@pytest.mark.slow
def test_scoring_a_file_that_is_being_written(tmp_path: Path, change: Callable[[Path], None]) -> None:
    from scapo_eval import PresenceOracle, Vocabulary
    from scapo_eval.benchmarks.capscore import score_file

    path = tmp_path / "c.jsonl"
    path.write_bytes(DATA * 3)
    oracle = PresenceOracle.from_objects({k: ["dog"] for k in range(20_000)}, source="truth")
    assert score(str(path), truth=oracle, resamples=0).n_records == 60_000
    with pytest.raises(InputError, match=r"c\.jsonl: was written to while it was read"):
        score_file(path, Vocabulary.load("coco80"), oracle, on_progress=lambda size: change(path))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is a directory, not a file"),
        (tmp_path / "x", "file not found"),
        ("a\0b", r"not a valid file name \(it contains a NUL\)"),
        ("/dev/null", ""),
    ):
        if not said:
            assert Source(path).read() == b""
            continue
        with pytest.raises(InputError, match=said):
            _ = Source(path).head


ROWS = [{"image": {"bytes": b"no picture", "path": "a/7.jpg"}, "text": "A dog.", "size": 2.5}]


class StandIn:
    """Replaces the package datasets: a data set whose only column with media must not be decoded."""

    def __init__(self) -> None:
        self.asked: tuple[object, ...] = ()

    def load_dataset(self, name: str, config: str | None, *, split: str | None, revision: str | None) -> object:
        self.asked = (name, config, split, revision)
        if name == "n/none":
            raise FileNotFoundError("no such\ndata set")
        return self if split else dict.fromkeys(("train", "test") if name == "n/two" else ("train",), self)

    def with_format(self, kind: str) -> StandIn:
        assert kind == "arrow"
        return self

    def iter(self, size: int) -> list[object]:
        pyarrow = pytest.importorskip("pyarrow")
        return [pyarrow.Table.from_pylist(ROWS)]


@pytest.mark.parametrize(
    ("uri", "asked"),
    [
        ("hf://datasets/n/one", ("n/one", None, None, None)),
        ("hf://datasets/n/one.v2:test", ("n/one.v2", None, "test", None)),
        ("hf://datasets/n/two@v1/english:train", ("n/two", "english", "train", "v1")),
        ("hf://datasets/{folder}:train", ("{folder}", None, "train", None)),
        ("hf://datasets/{folder}/english", ("{folder}", "english", None, None)),
    ],
)
def test_a_data_set_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, asked: tuple[object, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", stand_in := StandIn())  # type: ignore[arg-type]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = Source(uri.format(folder=tmp_path))
    assert source.read() == b'{"image":"a/7.jpg","text":"A dog.","size":2.5}\n'
    assert stand_in.asked == tuple(part and str(part).format(folder=tmp_path) for part in asked)
    assert score(str(source), truth={7: ["dog"]}, resamples=0).n_records == 1


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("hf://datasets/n/two", "has several splits; give one: hf://datasets/n/two:train, hf://datasets/n/two:test"),
        ("hf://datasets/n/none", r"cannot be loaded \(no such data set\); download it first: hf download"),
    ],
)
def test_a_data_set_of_the_hub_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, uri: str, said: str) -> None:
    monkeypatch.setitem(sys.modules, "datasets", StandIn())  # type: ignore[arg-type]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=f"{uri}: {said}"):
        _ = Source(uri).head
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="needs the package datasets: pip install datasets"):
        _ = Source(uri).head


def test_without_a_network_the_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int) -> None:
        raise socket.gaierror(-2, f"no {host}:{port}")

    monkeypatch.setitem(sys.modules, "datasets", stand_in := StandIn())  # type: ignore[arg-type]
    monkeypatch.setattr(hub, "getproxies", dict)
    monkeypatch.setattr(hub.socket, "getaddrinfo", unknown)
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=r"reached \(no huggingface.co:443\); .* cache: export HF_HUB_OFFLINE=1$"):
        _ = Source("hf://datasets/n/one").head
    assert not stand_in.asked
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert Source("hf://datasets/n/one:test").head
    assert stand_in.asked


def test_all_missing_packages_of_the_hub_are_in_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="needs further packages: pip install pyarrow huggingface_hub"):
        _ = Source("hf://datasets/n/x/data.jsonl").head


def test_a_file_in_a_repository_is_no_data_set() -> None:
    assert not is_hub_dataset("hf://datasets/n/x/data.jsonl")
    assert not is_hub_dataset("hf://datasets/n/x/parts/*.parquet")
    assert not is_hub_dataset("s3://datasets/n/x")


@pytest.mark.filterwarnings("default")
def test_a_local_data_set_with_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package datasets itself reads a folder; the files are no pictures, so decoding them would fail."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k in (1, 2):
        (folder / f"{k}.jpg").write_bytes(b"no picture")
    rows = [{"file_name": f"{k}.jpg", "text": text} for k, text in ((1, "A dog."), (2, "A cat."))]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [json.loads(line) for line in Source(f"hf://datasets/{folder}:train").read().splitlines()]
    assert [(Path(row["image"]).name, row["text"]) for row in found] == [("1.jpg", "A dog."), ("2.jpg", "A cat.")]
